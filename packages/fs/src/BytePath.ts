/**
 * Names files by the bytes that the kernel uses, not by the text that people read.
 *
 * **Details**
 *
 * A name on disk is any sequence of bytes without `/` and NUL. Decoding it as UTF-8 loses what does not
 * decode, and the lossy name then names nothing, or something else. Paths of our own making are strings;
 * a name that was read from a folder travels as bytes.
 *
 * @since 0.1.0
 */
import { isUtf8 } from "node:buffer"

/** A path: a string is UTF-8, bytes are taken as they are. @category models @since 0.1.0 */
export type BytePath = string | Uint8Array

const encoder = new TextEncoder()
const decoder = new TextDecoder("utf-8", { ignoreBOM: true })

/** The bytes of a path. @category conversions @since 0.1.0 */
export const bytes = (path: BytePath): Uint8Array => (typeof path === "string" ? encoder.encode(path) : path)

/** The path with one character per byte, as it travels between threads. @internal */
export const latin1 = (path: BytePath): string => Buffer.from(bytes(path)).toString("latin1")

/** The path as text, or undefined where it is not UTF-8. @category conversions @since 0.1.0 */
export const text = (path: BytePath): string | undefined => {
  if (typeof path === "string") return path
  return isUtf8(path) ? decoder.decode(path) : undefined
}

const escape = (character: string) => `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`

/**
 * A path that can be printed on one line: control characters, and every byte above ASCII in a path that
 * is not UTF-8, are written as `\xNN`. Only for people; it is never turned back into a path.
 *
 * @category formatting
 * @since 0.1.0
 */
export const show = (path: BytePath): string =>
  text(path)?.replace(/\p{Cc}/gu, escape) ??
  Buffer.from(bytes(path))
    .toString("latin1")
    .replace(/[^\u0020-\u007e]/g, escape)

/** Appends names to a folder's path. @category combinators @since 0.1.0 */
export const join = (folder: BytePath, ...names: ReadonlyArray<BytePath>): BytePath => {
  if (typeof folder === "string" && names.every((name) => typeof name === "string")) {
    return [folder === "/" ? "" : folder, ...names].join("/")
  }
  const parts = [folder === "/" ? "" : folder, ...names].map(bytes)
  const joined = new Uint8Array(parts.reduce((size, part) => size + part.length + 1, -1))
  let at = 0
  for (const part of parts) {
    joined.set(part, at)
    at += part.length + 1
    if (at < joined.length) joined[at - 1] = 0x2f
  }
  return joined
}
