/** Why a backup is not taken or restored, in words for an operator. */
import { Schema } from "effect"

/** A source that is not backed up. @category errors @since 0.1.0 */
export class RefusedSource extends Schema.TaggedError<RefusedSource>()("RefusedSource", {
  path: Schema.String,
  detail: Schema.String
}) {
  override get message(): string {
    return `${this.path}: ${this.detail}`
  }
}

/** A target that is not restored to. @category errors @since 0.1.0 */
export class RefusedTarget extends Schema.TaggedError<RefusedTarget>()("RefusedTarget", {
  path: Schema.String,
  detail: Schema.String
}) {
  override get message(): string {
    return `${this.path}: ${this.detail}`
  }
}

/**
 * No backup of the scope could be restored, and why each one could not. There is none where `attempts` is
 * empty.
 *
 * @category errors
 * @since 0.1.0
 */
export class RestoreFailed extends Schema.TaggedError<RestoreFailed>()("RestoreFailed", {
  scope: Schema.String,
  attempts: Schema.Array(Schema.Struct({ name: Schema.String, detail: Schema.String }))
}) {
  override get message(): string {
    return this.attempts.length === 0
      ? `${this.scope}: there is no backup`
      : `${this.scope}: ${this.attempts.map(({ detail, name }) => `${name}: ${detail}`).join("; ")}`
  }
}
