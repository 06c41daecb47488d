/**
 * Says which call on which path failed, and how the kernel named the failure.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"
import { type BytePath, show } from "./BytePath.ts"

/**
 * A call on the file system that failed. `code` is the errno name (`ENOENT`, `EACCES`, `EXDEV`, ...) or
 * one of those that Reclaim adds where the kernel has none:
 *
 * | code | meaning |
 * |---|---|
 * | `ECHANGED` | what was opened is not what was listed, or it changed while it was read |
 * | `ETOODEEP` | folders nest deeper than a copy can |
 * | `EUNSUPPORTED` | an entry that is neither a file, a folder nor a link cannot be copied |
 * | `EWORKER` | the thread that did the work ended |
 *
 * @category errors
 * @since 0.1.0
 */
export class FileError extends Schema.TaggedError<FileError>()("FileError", {
  operation: Schema.String,
  path: Schema.String,
  code: Schema.String
}) {
  override get message(): string {
    return `${this.operation} ${this.path}: ${this.code}`
  }
}

const codeOf = (cause: unknown): string =>
  typeof cause === "object" && cause !== null && "code" in cause && typeof cause.code === "string"
    ? cause.code
    : "UNKNOWN"

/** Wraps what `node:fs` threw. @category constructors @since 0.1.0 */
export const fromCause = (operation: string, path: BytePath, cause: unknown): FileError =>
  new FileError({ operation, path: show(path), code: codeOf(cause) })

/** @category constructors @since 0.1.0 */
export const make = (operation: string, path: BytePath, code: string): FileError =>
  new FileError({ operation, path: show(path), code })

/**
 * Whether a failure is one of the file system with one of some codes: for `Effect.catchIf` and its like.
 *
 * @category guards
 * @since 0.1.0
 */
export const hasCode =
  (...codes: ReadonlyArray<string>) =>
  (error: unknown): boolean =>
    error instanceof FileError && codes.includes(error.code)
