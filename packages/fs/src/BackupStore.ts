/**
 * Takes, restores, lists and moves the failover backups of native sessions under
 * `<sessions>/<scope>/failover-backups`.
 *
 * **Details**
 *
 * | name | what |
 * |---|---|
 * | `current`, `previous` | backups that the host and `restore` read, in this order |
 * | `.pending-<UUID>` | being written |
 * | `.retiring-<UUID>` | leaving, may still come back; `restore` reads it last |
 * | `.expired-<UUID>` | finished: the only name under which anything is ever deleted |
 *
 * Every move is one rename inside that folder, to a name that is free. A capture writes the new backup whole
 * before it touches the old one, and gives the old one up only when the new one has its name. A restoration
 * writes beside its target, compares every digest, and gives the target its name last. The folders that lead
 * to a backup are looked at one by one: a link in their place is an error.
 *
 * Who may move what is not decided here: locks, runs and proofs are the caller's. Neither a capture nor a
 * restoration takes a lock or asks a database.
 *
 * **Gotchas**
 *
 * Owners, extended attributes, access lists and the identity of hard links are not kept; modification times
 * are kept to the microsecond. A process that is killed while it restores leaves its `.restoring-*` folder
 * beside the target; the next restoration to the same target removes one that is older than a day.
 *
 * @since 0.1.0
 */
import type { BackupManifest, BackupReason, CodexHome, Ids } from "@reclaim/core"
import { Context, Effect, Layer, type Option, type Result, type Scope, type Stream } from "effect"
import { type FileError, hasCode } from "./FileError.ts"
import { InstanceRoots } from "./InstanceRoots.ts"
import * as BackupCapture from "./internal/backupCapture.ts"
import * as BackupEntries from "./internal/backupEntries.ts"
import type { RefusedSource, RefusedTarget, RestoreFailed } from "./internal/backupErrors.ts"
import * as BackupMoves from "./internal/backupMoves.ts"
import * as BackupRestore from "./internal/backupRestore.ts"
import * as FaultPoints from "./internal/faultPoints.ts"
import { type EntryInfo, PosixFileSystem } from "./PosixFileSystem.ts"
import { Trees } from "./Trees.ts"
import { afterRename, Changed, type ExpectedTop, type MoveBack, sameTop } from "./VersionStore.ts"

export { RefusedSource, RefusedTarget, RestoreFailed } from "./internal/backupErrors.ts"
export { Changed } from "./VersionStore.ts"
export type { MoveBack } from "./VersionStore.ts"

/**
 * One name of 64 hex digits among the session scopes. `position` is what `scopes` continues after. An
 * obstacle is no folder, or cannot be looked at.
 *
 * @category models
 * @since 0.1.0
 */
export type ScopeEntry =
  | {
      readonly _tag: "Scope"
      readonly scope: Ids.ScopeId
      readonly position: string
      readonly path: string
      readonly info: EntryInfo
    }
  | {
      readonly _tag: "Obstacle"
      readonly name: string
      readonly position: string
      readonly path: string
      readonly reason: BackupReason.Obstacle
    }

/** What `control-plane-state.json` is, as far as it can be read. @category models @since 0.1.0 */
export type ControlPlane =
  | { readonly _tag: "Missing" }
  | { readonly _tag: "Unreadable"; readonly detail: string }
  | { readonly _tag: "TooLarge"; readonly bytes: bigint }
  | { readonly _tag: "Found"; readonly text: string }

/** What an interrupted or unfinished protocol left. @category models @since 0.1.0 */
export type LeftoverKind = "Pending" | "Retiring" | "Expired"

/**
 * One backup. `manifest` fails also when the entry is no folder, which only `current` and `previous` can be.
 *
 * @category models
 * @since 0.1.0
 */
export interface Backup {
  readonly scope: Ids.ScopeId
  readonly name: string
  readonly path: string
  readonly info: EntryInfo
  readonly manifest: Result.Result<BackupManifest.BackupManifest, BackupManifest.UnreadableManifest>
}

/** Names a leftover. @category models @since 0.1.0 */
export interface LeftoverRef<Kind extends LeftoverKind = LeftoverKind> {
  readonly scope: Ids.ScopeId
  readonly kind: Kind
  readonly name: string
}

/** A backup under the name of a leftover. @category models @since 0.1.0 */
export interface Leftover<Kind extends LeftoverKind = LeftoverKind> extends Backup, LeftoverRef<Kind> {}

/** A folder under the name that it was moved to. @category models @since 0.1.0 */
export interface Moved<Kind extends LeftoverKind> extends LeftoverRef<Kind> {
  readonly path: string
}

/**
 * Everything that a scope's folder tells about its backups. `current` and `previous` are none only when
 * nothing has that name; what is no folder is also among the `obstacles`, like everything else that does not
 * belong there or cannot be read.
 *
 * @category models
 * @since 0.1.0
 */
export interface ScopeState {
  readonly scope: Ids.ScopeId
  readonly path: string
  readonly controlPlane: ControlPlane
  /** True also when it cannot be told. */
  readonly cleanupActivation: boolean
  readonly current: Option.Option<Backup>
  readonly previous: Option.Option<Backup>
  readonly retiring: ReadonlyArray<Leftover<"Retiring">>
  readonly expired: ReadonlyArray<Leftover<"Expired">>
  readonly pending: ReadonlyArray<Leftover<"Pending">>
  readonly obstacles: ReadonlyArray<BackupReason.Obstacle>
}

/**
 * A folder to back up, under the name that it has in the backup. Without `select` everything is copied, but
 * of a source named `codex-home` what `CodexHome` says.
 *
 * @category models
 * @since 0.1.0
 */
export interface Source {
  readonly name: string
  /** Absolute; must be a folder and no link. */
  readonly path: string
  /** Asked for every entry, by its path below the source; what it omits is not entered. */
  readonly select?: ((path: CodexHome.HomePath) => CodexHome.Selection) | undefined
}

/** Whose backup it is; what is left out becomes null in the manifest. @category models @since 0.1.0 */
export type Identity = Pick<BackupManifest.BackupManifest, "normalizedSessionId"> &
  Partial<
    Omit<BackupManifest.BackupManifest, "schema" | "normalizedSessionId" | "directories" | "completedAt">
  >

/** @category models @since 0.1.0 */
export interface CaptureOptions {
  readonly scope: Ids.ScopeId
  readonly identity: Identity
  readonly sources: ReadonlyArray<Source>
}

/**
 * A new `current`. `bytes` are those of its files; `omitted` are the printable paths that were left out, as
 * `<source>/<path>`, the first thousand.
 *
 * @category models
 * @since 0.1.0
 */
export interface Captured {
  readonly scope: Ids.ScopeId
  readonly path: string
  readonly bytes: bigint
  readonly omitted: ReadonlyArray<string>
  readonly manifest: BackupManifest.BackupManifest
}

/** @category models @since 0.1.0 */
export interface Restored {
  readonly scope: Ids.ScopeId
  readonly from: "current" | "previous" | "retiring"
  /** The target. */
  readonly path: string
  readonly bytes: bigint
}

/** Whether a backup holds what its manifest says. @category models @since 0.1.0 */
export type Verification =
  | { readonly _tag: "Verified"; readonly bytes: bigint }
  | { readonly _tag: "Damaged"; readonly detail: string }

/**
 * A backup on its way out. Unless `confirm` ran, the end of the scope moves it back.
 *
 * @category models
 * @since 0.1.0
 */
export interface Retiring extends Moved<"Retiring"> {
  readonly which: "current" | "previous"
  /** Tells this move from every other: the UUID in its name. */
  readonly token: string
  /**
   * Looks at the folder again, because the one that was compared and the one that was renamed could be two.
   * Fails when it is not what was expected, and moves nothing.
   */
  readonly recheck: Effect.Effect<void, FileError | Changed>
  /** Leaves the folder where it is when the scope ends. */
  readonly confirm: Effect.Effect<void>
  /** Moves it back now. The end of the scope then does nothing, or tries again where this failed. */
  readonly undo: Effect.Effect<MoveBack, FileError>
}

/**
 * The backups on disk and their moves.
 *
 * @category services
 * @since 0.1.0
 */
export class BackupStore extends Context.Service<
  BackupStore,
  {
    /**
     * The session scopes in the order of their names, strictly after a position, in bounded memory. Only
     * names of 64 lower-case hex digits are looked at; what vanishes is not there.
     */
    readonly scopes: (after?: string) => Stream.Stream<ScopeEntry, FileError>
    /** What the policies need from disk. Whatever cannot be read is in the answer. */
    readonly inspect: (scope: Ids.ScopeId) => Effect.Effect<ScopeState>
    /** Where a scope's backups are, whether they exist or not. */
    readonly pathOf: (scope: Ids.ScopeId) => string
    /**
     * Replaces the backup of a scope by a new one. A file that changes while it is copied is copied again a
     * few times (ECHANGED); what is neither a file, a folder nor a link fails (EUNSUPPORTED). A failure or
     * an interruption leaves the old backup as it was.
     */
    readonly capture: (options: CaptureOptions) => Effect.Effect<Captured, FileError | RefusedSource>
    /**
     * Writes the newest backup whose digests are right to a target that does not exist or is an empty
     * folder: whole or not at all. Only damage leads to an older one: a call that fails for another reason
     * (no space, no right, no descriptor) is a `FileError`, and the restoration may be tried again.
     */
    readonly restore: (options: {
      readonly scope: Ids.ScopeId
      readonly target: string
    }) => Effect.Effect<Restored, FileError | RefusedTarget | RestoreFailed>
    /** Compares all digests of a backup with its manifest. */
    readonly verify: (
      path: string,
      manifest: BackupManifest.BackupManifest
    ) => Effect.Effect<Verification, FileError>
    /**
     * Renames a backup to `.retiring-*` when its top folder still is `expected`, change time included;
     * `recheck` tells whether it was that folder that was renamed. Unless it is confirmed, the end of the scope moves it back, where its name is still free.
     */
    readonly retire: (
      scope: Ids.ScopeId,
      which: "current" | "previous",
      expected: EntryInfo
    ) => Effect.Effect<Retiring, FileError | Changed, Scope.Scope>
    /** Renames a leaving backup to `.expired-*`; none when it is gone. */
    readonly expire: (
      ref: LeftoverRef<"Retiring">
    ) => Effect.Effect<Option.Option<Moved<"Expired">>, FileError>
    /** Makes a backup `current` again, where that is free. */
    readonly revive: (ref: LeftoverRef<"Retiring" | "Expired">) => Effect.Effect<MoveBack, FileError>
    /** Claims an unfinished backup by renaming it to `.expired-*`; none when it is gone. */
    readonly drop: (ref: LeftoverRef<"Pending">) => Effect.Effect<Option.Option<Moved<"Expired">>, FileError>
  }
>()("@reclaim/fs/BackupStore") {}

const makeStore = Effect.gen(function* () {
  const posix = yield* PosixFileSystem
  const trees = yield* Trees
  const roots = yield* InstanceRoots
  const { sessions } = roots
  const moves = BackupMoves.make({ posix, sessions, trees })
  const { restore, verify } = BackupRestore.make({ moves, posix, trees })

  const retire = Effect.fnUntraced(function* (
    scope: Ids.ScopeId,
    which: "current" | "previous",
    expected: EntryInfo
  ) {
    const from = `${moves.pathOf(scope)}/${which}`
    const changed = (what: string) => new Changed({ path: from, what })
    const orChanged = <A>(effect: Effect.Effect<A, FileError>) =>
      Effect.catchIf(effect, hasCode("ENOENT"), () => Effect.fail(changed("it is gone")))
    const require = (found: EntryInfo, top: ExpectedTop) =>
      sameTop(found, top) ? Effect.void : Effect.fail(changed("its folder is not what it was"))
    let settled = false

    const acquire = Effect.gen(function* () {
      yield* FaultPoints.retireBeforeRename
      yield* orChanged(moves.requireBackups("rename", scope))
      yield* require(yield* orChanged(posix.lstat(from)), expected)
      return yield* orChanged(moves.move(scope, from, "Retiring"))
    })
    const undo = (path: string) =>
      Effect.gen(function* () {
        yield* FaultPoints.retireBeforeUndo
        const outcome = yield* moves.moveTo(scope, path, which)
        settled = true
        yield* FaultPoints.retireAfterUndo
        return outcome
      }).pipe(Effect.uninterruptible)
    const moved = yield* Effect.acquireRelease(acquire, ({ path }) =>
      Effect.suspend(() => (settled ? Effect.void : Effect.asVoid(undo(path)))).pipe(
        Effect.catch((error) => Effect.logError("A backup that was leaving could not be moved back", error)),
        Effect.annotateLogs({ path: from })
      )
    )
    yield* FaultPoints.retireAfterRename
    const retiring: Retiring = {
      ...moved,
      which,
      recheck: Effect.flatMap(orChanged(posix.lstat(moved.path)), (found) =>
        require(found, afterRename(expected))
      ),
      confirm: Effect.sync(() => {
        settled = true
      }),
      undo: undo(moved.path)
    }
    return retiring
  }, Effect.uninterruptible)

  return BackupStore.of({
    scopes: BackupEntries.scopes({ posix, sessions }),
    inspect: (scope) => BackupEntries.inspect(posix, sessions, scope),
    pathOf: moves.pathOf,
    capture: yield* BackupCapture.make({ moves, posix, roots, trees }),
    restore,
    verify,
    retire,
    expire: Effect.fnUntraced(function* (ref) {
      yield* FaultPoints.expireBeforeRename
      const expired = yield* moves.expire(ref.scope, yield* moves.leftoverPath(ref))
      yield* FaultPoints.expireAfterRename
      return expired
    }, Effect.uninterruptible),
    revive: Effect.fnUntraced(function* (ref) {
      yield* FaultPoints.reviveBeforeRename
      const outcome = yield* moves.moveTo(ref.scope, yield* moves.leftoverPath(ref), "current")
      yield* FaultPoints.reviveAfterRename
      return outcome
    }, Effect.uninterruptible),
    drop: Effect.fnUntraced(function* (ref) {
      yield* FaultPoints.dropBeforeRename
      const expired = yield* moves.expire(ref.scope, yield* moves.leftoverPath(ref))
      yield* FaultPoints.dropAfterRename
      return expired
    }, Effect.uninterruptible)
  })
})

/** @category layers @since 0.1.0 */
export const layer: Layer.Layer<BackupStore, never, PosixFileSystem | InstanceRoots | Trees> = Layer.effect(
  BackupStore,
  makeStore
)
