/**
 * Looks at entries and reads small files with synchronous calls, many of them in a row, inside a worker thread. A
 * call that fails is one answer among the others.
 */
import type { BigIntStats, Dirent } from "node:fs"
import type { EntryInfo } from "../PosixFileSystem.ts"
import { type Calls, codeOf, kindOf, native, show, smallFolder, statInfo, TreeError } from "./treeEngine.ts"
import type { FolderNames } from "./treeProtocol.ts"

export const make = (
  calls: Pick<
    Calls,
    "closeSync" | "constants" | "fstatSync" | "lstatSync" | "openSync" | "readdirSync" | "readSync"
  >
) => {
  const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = calls.constants

  /** Paths are of one character per byte. */
  const each = <A>(
    operation: string,
    paths: ReadonlyArray<string>,
    call: (path: string) => A
  ): ReadonlyArray<A | TreeError> =>
    paths.map((path) => {
      try {
        return call(path)
      } catch (cause) {
        return cause instanceof TreeError ? cause : new TreeError(operation, show(path), codeOf(cause))
      }
    })

  const lstat = (path: string): BigIntStats => calls.lstatSync(native(path), { bigint: true })

  const refuse = (path: string, code: string) => new TreeError("read", show(path), code)

  /** As `readSmall` of `PosixFileSystem` does it. */
  const readSmall = (path: string, maxBytes: number): Uint8Array => {
    const listed = lstat(path)
    if (listed.isSymbolicLink()) throw refuse(path, "ELOOP")
    if (listed.isDirectory()) throw refuse(path, "EISDIR")
    if (!listed.isFile()) throw refuse(path, "EINVAL")
    const descriptor = calls.openSync(native(path), O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
    try {
      const { dev, ino, size } = calls.fstatSync(descriptor, { bigint: true })
      if (ino !== listed.ino || dev !== listed.dev) throw refuse(path, "ECHANGED")
      if (size > BigInt(maxBytes)) throw refuse(path, "EFBIG")
      const buffer = new Uint8Array(Number(size) + 1)
      let at = 0
      while (at < buffer.length) {
        const count = calls.readSync(descriptor, buffer, at, buffer.length - at, null)
        if (count === 0) return buffer.subarray(0, at)
        at += count
      }
      throw refuse(path, "ECHANGED")
    } finally {
      calls.closeSync(descriptor)
    }
  }

  /** Undefined where the file system does not tell kinds with the names. */
  const kindByName = (entry: Dirent): EntryInfo["kind"] | undefined => {
    const kind = kindOf(entry)
    return kind !== "device" || entry.isBlockDevice() || entry.isCharacterDevice() ? kind : undefined
  }

  /** As `names` of `PosixFileSystem` does it, but all at once; null for a folder with which that may not be done. */
  const list = (path: string): FolderNames => {
    const descriptor = calls.openSync(native(path), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK)
    try {
      const { size } = calls.fstatSync(descriptor, { bigint: true })
      if (size === 0n || size > smallFolder) return null
      const folder = `/proc/self/fd/${descriptor}`
      // Without /proc it can only be read by its path.
      if (calls.lstatSync(folder, { throwIfNoEntry: false }) === undefined) return null
      return calls.readdirSync(folder, { encoding: "latin1", withFileTypes: true }).flatMap((entry) => {
        const kind = kindByName(entry)
        if (kind !== undefined) return [{ name: entry.name, kind }]
        const info = calls.lstatSync(native(`${folder}/${entry.name}`), { throwIfNoEntry: false })
        return info === undefined ? [] : [{ name: entry.name, kind: kindOf(info) }]
      })
    } finally {
      calls.closeSync(descriptor)
    }
  }

  return {
    list: (paths: ReadonlyArray<string>): ReadonlyArray<{ readonly names: FolderNames } | TreeError> =>
      each("opendir", paths, (path) => ({ names: list(path) })),
    look: (paths: ReadonlyArray<string>): ReadonlyArray<EntryInfo | TreeError> =>
      each("lstat", paths, (path) => statInfo(lstat(path))),
    read: (paths: ReadonlyArray<string>, maxBytes: number): ReadonlyArray<Uint8Array | TreeError> =>
      each("read", paths, (path) => readSmall(path, maxBytes))
  }
}
