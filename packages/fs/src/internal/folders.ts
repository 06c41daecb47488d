/** Looks at the folders that lead to a copy, one by one, so that a link in their place is an error. */
import { Array as Arr, Effect, Result } from "effect"
import type { BytePath } from "../BytePath.ts"
import { type FileError, hasCode, make as fileError } from "../FileError.ts"
import type { EntryInfo, PosixFileSystem } from "../PosixFileSystem.ts"

type Posix = PosixFileSystem["Service"]

const asFolder = (operation: string, path: BytePath, info: EntryInfo): Result.Result<EntryInfo, FileError> =>
  info.kind === "directory"
    ? Result.succeed(info)
    : Result.fail(fileError(operation, path, info.kind === "symlink" ? "ELOOP" : "ENOTDIR"))

/** The folder itself, or ELOOP for a link and ENOTDIR for anything else. */
export const folderInfo = (
  posix: Posix,
  operation: string,
  path: BytePath
): Effect.Effect<EntryInfo, FileError> =>
  Effect.flatMap(posix.lstat(path), (info) => Effect.fromResult(asFolder(operation, path, info)))

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

/** `requireFolders` for several paths below one root, looking at all of their folders in one go. */
export const requireAllFolders = Effect.fnUntraced(function* (
  posix: Posix,
  operation: string,
  root: string,
  all: ReadonlyArray<ReadonlyArray<string>>
) {
  const parts = all.map((names) => names.map((_, index) => [root, ...names.slice(0, index + 1)].join("/")))
  const paths = Arr.dedupe(parts.flat())
  const looks = new Map(Arr.zip(paths, yield* posix.lstatAll(paths)))
  return parts.map((folders) =>
    folders.reduce<Result.Result<string, FileError>>(
      (above, path) =>
        Result.flatMap(above, () =>
          Result.flatMap(looks.get(path) ?? Result.fail(fileError(operation, path, "ENOENT")), (info) =>
            Result.map(asFolder(operation, path, info), () => path)
          )
        ),
      Result.succeed(root)
    )
  )
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
