/** Moves a scope's backups: one rename each, inside their folder, to a name that is free. */
import type { Ids } from "@reclaim/core"
import { Effect, Option } from "effect"
import type { LeftoverKind, LeftoverRef, Moved, MoveBack } from "../BackupStore.ts"
import { type FileError, hasCode, make as fileError } from "../FileError.ts"
import type { PosixFileSystem } from "../PosixFileSystem.ts"
import type { Trees } from "../Trees.ts"
import * as BackupNames from "./backupNames.ts"
import { folderInfo, requireFolders } from "./folders.ts"

export const make = (options: {
  readonly posix: PosixFileSystem["Service"]
  readonly sessions: string
  readonly trees: Trees["Service"]
}) => {
  const { posix, sessions, trees } = options

  const pathOf = (scope: Ids.ScopeId) => `${sessions}/${scope}/${BackupNames.backupsFolder}`

  const requireBackups = (operation: string, scope: Ids.ScopeId) =>
    requireFolders(posix, operation, sessions, [scope, BackupNames.backupsFolder])

  /** The path of a leftover, if it can be one. */
  const leftoverPath = ({ kind, name, scope }: LeftoverRef): Effect.Effect<string, FileError> => {
    const path = `${pathOf(scope)}/${name}`
    return BackupNames.isOf(kind, name)
      ? Effect.succeed(path)
      : Effect.fail(fileError("rename", path, "EINVAL"))
  }

  /** To a new name of a kind. */
  const move = Effect.fnUntraced(function* <Kind extends LeftoverKind>(
    scope: Ids.ScopeId,
    from: string,
    kind: Kind
  ) {
    const folder = yield* requireBackups("rename", scope)
    yield* folderInfo(posix, "rename", from)
    const { name, token } = BackupNames.fresh(kind)
    const path = `${folder}/${name}`
    yield* posix.rename(from, path)
    return { scope, kind, name, path, token }
  })

  /** To a name of the host's, where nothing has that. */
  const moveTo = Effect.fnUntraced(
    function* (scope: Ids.ScopeId, from: string, which: "current" | "previous") {
      const folder = yield* requireBackups("rename", scope)
      yield* folderInfo(posix, "rename", from)
      const target = `${folder}/${which}`
      const free = yield* posix.lstat(target).pipe(
        Effect.as(false),
        Effect.catchIf(hasCode("ENOENT"), () => Effect.succeed(true))
      )
      if (!free) return "taken" as const
      // A backup that is published just now is not replaced: the kernel refuses a folder that is not empty.
      return yield* posix.rename(from, target).pipe(
        Effect.as("moved" as const),
        Effect.catchIf(hasCode("ENOTEMPTY", "EEXIST", "ENOTDIR"), () => Effect.succeed("taken" as const))
      )
    },
    (effect): Effect.Effect<MoveBack, FileError> =>
      Effect.catchIf(effect, hasCode("ENOENT"), () => Effect.succeed("gone" as const))
  )

  /** To `.expired-*`; none when it is gone. */
  const expire = (
    scope: Ids.ScopeId,
    from: string
  ): Effect.Effect<Option.Option<Moved<"Expired">>, FileError> =>
    move(scope, from, "Expired").pipe(
      Effect.map(({ kind, name, path }) => Option.some<Moved<"Expired">>({ scope, kind, name, path })),
      Effect.catchIf(hasCode("ENOENT"), () => Effect.succeedNone)
    )

  /** Deletes what is expired; what stays is left to a sweep. */
  const remove = ({ path }: Moved<"Expired">): Effect.Effect<void> =>
    trees.remove(path).pipe(
      Effect.flatMap(({ failureCount, failures }) =>
        failureCount === 0
          ? Effect.void
          : Effect.logWarning("A backup that is no longer needed could not be deleted whole", failures)
      ),
      Effect.catch((error) =>
        Effect.logWarning("A backup that is no longer needed could not be deleted", error)
      ),
      Effect.annotateLogs({ path })
    )

  return { expire, leftoverPath, move, moveTo, pathOf, remove, requireBackups }
}

export type BackupMoves = ReturnType<typeof make>
