/** Looks at the folders that lead to a copy, one by one, so that a link in their place is an error. */
import { Effect } from "effect"
import type { BytePath } from "../BytePath.ts"
import { type FileError, hasCode, make as fileError } from "../FileError.ts"
import type { EntryInfo, PosixFileSystem } from "../PosixFileSystem.ts"

type Posix = PosixFileSystem["Service"]

/** The folder itself, or ELOOP for a link and ENOTDIR for anything else. */
export const folderInfo = (
  posix: Posix,
  operation: string,
  path: BytePath
): Effect.Effect<EntryInfo, FileError> =>
  Effect.filterOrFail(
    posix.lstat(path),
    (info) => info.kind === "directory",
    (info) => fileError(operation, path, info.kind === "symlink" ? "ELOOP" : "ENOTDIR")
  )

/** Each folder from the first name below `root` on; fails at the first that is none. */
export const requireFolders = Effect.fnUntraced(function* (
  posix: Posix,
  operation: string,
  root: string,
  names: ReadonlyArray<string>
) {
  let path = root
  for (const name of names) {
    path = `${path}/${name}`
    yield* folderInfo(posix, operation, path)
  }
  return path
})

/**
 * Makes the folders that are missing, the root itself included, one by one. Somebody else may make or
 * remove them meanwhile.
 */
export const ensureFolders = Effect.fnUntraced(function* (
  posix: Posix,
  operation: string,
  root: string,
  names: ReadonlyArray<string>
) {
  const ensure = (path: string) =>
    Effect.catchIf(folderInfo(posix, operation, path), hasCode("ENOENT"), () =>
      posix.makeDirectory(path, 0o755).pipe(
        Effect.catchIf(hasCode("EEXIST"), () => Effect.void),
        Effect.andThen(folderInfo(posix, operation, path))
      )
    )
  let path = root
  yield* ensure(path)
  for (const name of names) {
    path = `${path}/${name}`
    yield* ensure(path)
  }
  return path
})
