/**
 * Carries a sweep's place from one call to the next as an opaque token.
 *
 * **Details**
 *
 * The token names its version, the worker and the part of the instance that it belongs to, and carries a
 * checksum: a damaged or foreign one is a typed error, because starting over would skip the rest of the
 * pass without anybody noticing.
 *
 * @since 0.1.0
 */
import { Result, Schema } from "effect"
import { Base64Url } from "effect/encoding"

/**
 * `worker` is the sweep, `scope` what it was limited to (a company's id, or `all`), `position` the last
 * entry that was considered.
 *
 * @category models
 * @since 0.1.0
 */
export class Continuation extends Schema.Class<Continuation>("Continuation")({
  worker: Schema.Literals(["skill-versions", "backups"]),
  scope: Schema.String,
  position: Schema.String
}) {}

/** @category errors @since 0.1.0 */
export class InvalidContinuation extends Schema.TaggedError<InvalidContinuation>()("InvalidContinuation", {
  detail: Schema.String
}) {
  override get message() {
    return `the continuation cannot be used: ${this.detail}`
  }
}

const Payload = Schema.fromJsonString(Continuation)

/** FNV-1a, 32 bits: it has to notice a token that was cut or mistyped, not one that was forged. */
const checksum = (text: string): string => {
  let hash = 0x811c9dc5
  for (let index = 0; index < text.length; index++) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193) >>> 0
  }
  return hash.toString(16).padStart(8, "0")
}

/** @category formatting @since 0.1.0 */
export const encode = (continuation: Continuation): string => {
  const body = Base64Url.encode(Schema.encodeSync(Payload)(continuation))
  return `reclaim1.${body}.${checksum(body)}`
}

/**
 * Reads a token that must belong to `worker` and `scope`.
 *
 * @category parsing
 * @since 0.1.0
 */
export const decode = (
  token: string,
  expected: Pick<Continuation, "worker" | "scope">
): Result.Result<Continuation, InvalidContinuation> => {
  const invalid = (detail: string) => Result.fail(new InvalidContinuation({ detail }))
  const parts = token.split(".")
  const [version, body, sum] = parts
  if (parts.length !== 3 || body === undefined || sum === undefined) return invalid("it is damaged")
  if (version !== "reclaim1") return invalid("it comes from another version")
  if (checksum(body) !== sum) return invalid("it is damaged")
  const decoded = Result.flatMap(Base64Url.decodeString(body), Schema.decodeUnknownResult(Payload))
  if (Result.isFailure(decoded)) return invalid("it is damaged")
  const continuation = decoded.success
  return continuation.worker === expected.worker && continuation.scope === expected.scope
    ? Result.succeed(continuation)
    : invalid("it belongs to another sweep")
}
