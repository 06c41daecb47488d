import {
  BackupReason,
  ControlPlaneState,
  ExpirationPolicy,
  ExpirationSettings,
  FaultPoint,
  type Ids,
  NativeSession,
  type RetentionPolicy
} from "@reclaim/core"
import { type DatabaseError, Holds, Journal, SessionCatalog, Transactions } from "@reclaim/db"
import { BackupStore, type FileError, Trees } from "@reclaim/fs"
import { DateTime, Duration, Effect, Option, Result, Schema } from "effect"
import { ServerName } from "../ServerName.ts"
import { SessionActivity } from "../SessionActivity.ts"
import { clocks } from "./judgement.ts"

/** A session's folder with the state file as it was understood. */
export interface Inspected {
  readonly disk: BackupStore.ScopeState
  readonly controlPlane: ExpirationPolicy.ControlPlane
  readonly ref: SessionCatalog.SessionRef
}

const controlPlaneOf = (found: BackupStore.ControlPlane): ExpirationPolicy.ControlPlane => {
  if (found._tag !== "Found") return found
  const decoded = ControlPlaneState.decode(found.text)
  return Result.isSuccess(decoded)
    ? { _tag: "Known", state: decoded.success }
    : { _tag: "Unreadable", detail: decoded.failure.detail }
}

/** Looks at a scope on disk. Whatever cannot be read is in the answer. */
export const inspect = Effect.fnUntraced(function* (scope: Ids.ScopeId) {
  const store = yield* BackupStore.BackupStore
  const disk = yield* store.inspect(scope)
  const controlPlane = controlPlaneOf(disk.controlPlane)
  const state = controlPlane._tag === "Known" ? Option.some(controlPlane.state) : Option.none()
  return { disk, controlPlane, ref: { scope, state } } satisfies Inspected
})

const instantOf = (nanoseconds: bigint): DateTime.Utc =>
  // Rounded up, so that a folder is never taken for older than it is.
  DateTime.makeUnsafe(Number(nanoseconds / 1_000_000n) + 1)

const backupOf = ({ info, manifest, path }: BackupStore.Backup): ExpirationPolicy.Backup => ({
  path,
  modifiedAt: instantOf(info.mtimeNs),
  manifest: Result.isSuccess(manifest)
    ? { _tag: "Known", manifest: manifest.success }
    : { _tag: "Unreadable", detail: manifest.failure.detail }
})

/** The backups of a scope that go together: `current` and a leftover `previous`. */
export const backupsOf = ({
  current,
  previous
}: BackupStore.ScopeState): ReadonlyArray<BackupStore.Backup> => [
  ...Option.toArray(current),
  ...Option.toArray(previous)
]

/**
 * Every reason that keeps a session's backups; none when there is no backup. The plan, the look under the
 * locks and the final check all use this function.
 */
export const reasonsOf = Effect.fnUntraced(function* (
  { controlPlane, disk, ref }: Inspected,
  backups: ReadonlyArray<BackupStore.Backup>,
  found: SessionCatalog.Found,
  held: Option.Option<{ readonly by: string; readonly note: string }>,
  now: RetentionPolicy.Now
) {
  const activity = yield* SessionActivity
  const settings = yield* ExpirationSettings.ExpirationSettings
  const [first, ...rest] = backups.map(backupOf)
  if (first === undefined) return []
  return ExpirationPolicy.reasons(
    {
      scope: disk.scope,
      backups: [first, ...rest],
      controlPlane,
      cleanupActivation: disk.cleanupActivation,
      activity: yield* activity.of({
        scope: disk.scope,
        sessionId: Option.map(ref.state, ({ sessionId }) => sessionId)
      }),
      held,
      obstacles: [...disk.obstacles, ...found.obstacles(disk.scope)],
      rows: found.rows
    },
    settings,
    now
  )
})

/** A backup that nothing keeps, with the rows that said so. */
export interface Candidate {
  readonly inspected: Inspected
  readonly found: SessionCatalog.Found
  readonly allocatedBytes: bigint
}

/** Why a backup stayed after all: what the execution met, or what the system refused. */
export type KeptBecause = BackupReason.BackupSkip | BackupReason.Obstacle

/** A backup on its way out: renamed, committed, and not yet looked at for the last time. */
export interface Retired {
  readonly candidate: Candidate
  readonly leaving: ReadonlyArray<BackupStore.Retiring>
  readonly clearedTaskSessions: number
}

export type Retirement =
  | { readonly _tag: "Retired"; readonly retired: Retired }
  | { readonly _tag: "Kept"; readonly because: KeptBecause }

/** Leaves the transaction without committing. */
class Abandoned extends Schema.TaggedError<Abandoned>()("Abandoned", {
  because: BackupReason.BackupSkip
}) {}

// 5 s: as for skill versions; a process that slept for longer must not rename on the strength of old locks.
const answerLimit = Duration.seconds(5)

const afterLock = FaultPoint.make("expiration.afterLock")
const afterTaskSessions = FaultPoint.make("expiration.afterTaskSessions")
const afterRetire = FaultPoint.make("expiration.afterRetire")
const beforeCommit = FaultPoint.make("expiration.beforeCommit")
const afterCommit = FaultPoint.make("expiration.afterCommit")
const beforeFinalLook = FaultPoint.make("expiration.beforeFinalLook")
const beforeConfirm = FaultPoint.make("expiration.beforeConfirm")
const beforeLastLook = FaultPoint.make("expiration.beforeLastLook")
const beforeDeletion = FaultPoint.make("expiration.beforeDeletion")

const changed = (what: string): BackupReason.BackupSkip => ({ _tag: "ChangedMeanwhile", what })

const sessionOf = ({ ref }: Inspected, found: SessionCatalog.Found, now: DateTime.Utc) =>
  NativeSession.fromRows(ref.scope, ref.state, found.rows, now)

/** Runs come first: they are what a moved backup is missed by. */
const skipOf = (reasons: ReadonlyArray<BackupReason.BackupReason>): BackupReason.BackupSkip | undefined => {
  const unfinished = reasons.find(({ _tag }) => _tag === "RunUnfinished")
  if (unfinished?._tag === "RunUnfinished") return { _tag: "RunAppeared", runIds: unfinished.runIds }
  return reasons.length === 0 ? undefined : changed(reasons.map(({ _tag }) => _tag).join(", "))
}

/** Writes what happened into the journal, in the transaction that is open or in one of its own. */
export const tell = Effect.fnUntraced(function* (
  event: "expired" | "undone" | "recovered",
  scope: Ids.ScopeId,
  allocatedBytes: bigint
) {
  const journal = yield* Journal.Journal
  yield* journal.append({
    worker: "backups",
    event,
    companyId: null,
    skillId: null,
    versionId: null,
    scope,
    allocatedBytes,
    digest: null,
    server: yield* ServerName,
    detail: null
  })
})

const keptByFile = (error: FileError.FileError): KeptBecause =>
  error.code === "ENOENT"
    ? changed("the backup vanished")
    : { _tag: "Unreadable", code: error.code, path: error.path }

const keptByDatabase = (error: DatabaseError.DatabaseError) =>
  error.retryable || error.reason._tag === "CommitUnknown"
    ? Effect.as(Effect.logWarning(`a backup stays: ${error.message}`), { _tag: "LockLost" } as const)
    : Effect.fail(error)

/**
 * Clears the task sessions of a session and moves its backups out of the way, in one transaction that holds
 * the locks of its rows. Until the caller concludes, the end of the scope moves them back.
 */
export const retire = Effect.fn("BackupExpiration.retire")(function* (candidate: Candidate) {
  const transactions = yield* Transactions.Transactions
  const catalog = yield* SessionCatalog.SessionCatalog
  const store = yield* BackupStore.BackupStore
  const holds = yield* Holds.Holds
  const { ref } = candidate.inspected
  const { scope } = ref
  const leaving: Array<BackupStore.Retiring> = []

  const body = Effect.fnUntraced(function* (tx: Transactions.Tx) {
    const locked = yield* catalog.lock(ref, candidate.found.rows)
    yield* afterLock
    const inspected = yield* inspect(scope)
    const backups = backupsOf(inspected.disk)
    if (backups.length === 0) return yield* new Abandoned({ because: changed("the backup vanished") })
    const held = Option.fromUndefinedOr((yield* holds.scopes([scope])).get(scope))
    const refuse = Effect.fnUntraced(function* (found: SessionCatalog.Found) {
      const because = skipOf(yield* reasonsOf(inspected, backups, found, held, yield* clocks))
      if (because !== undefined) return yield* new Abandoned({ because })
    })
    yield* refuse(locked)
    const session = sessionOf(inspected, locked, (yield* clocks).database)
    const clearedTaskSessions = yield* catalog.removeTaskSessions(session.taskSessions)
    yield* afterTaskSessions
    if (Duration.isGreaterThan(yield* tx.sinceLastAnswer, answerLimit)) {
      return yield* new Abandoned({ because: { _tag: "LockLost" } })
    }
    for (const backup of backups) {
      leaving.push(
        yield* store.retire(scope, backup.name === "previous" ? "previous" : "current", backup.info)
      )
    }
    yield* afterRetire
    yield* refuse(yield* catalog.reread(ref, candidate.found.rows))
    yield* tell("expired", scope, candidate.allocatedBytes)
    yield* beforeCommit
    return { candidate, leaving, clearedTaskSessions } satisfies Retired
  })

  const kept = (because: KeptBecause): Retirement => ({ _tag: "Kept", because })
  return yield* transactions.run(body).pipe(
    Effect.tap(() => afterCommit),
    Effect.map((retired): Retirement => ({ _tag: "Retired", retired })),
    Effect.onError(() => Effect.forEach(leaving, ({ undo }) => Effect.ignore(undo), { discard: true })),
    Effect.catchTags({
      Abandoned: ({ because }) => Effect.succeed(kept(because)),
      Changed: ({ what }) => Effect.succeed(kept(changed(what))),
      FileError: (error) => Effect.succeed(kept(keptByFile(error))),
      RowsBusy: () => Effect.succeed(kept({ _tag: "RowsBusy" })),
      DatabaseError: (error) => Effect.map(keptByDatabase(error), kept)
    })
  )
}, Effect.uninterruptible)

/** How a retired backup ended: with folders to delete, or back in its place. */
export type Conclusion =
  | {
      readonly _tag: "Expired"
      readonly retired: Retired
      readonly folders: ReadonlyArray<BackupStore.Moved<"Expired">>
    }
  | { readonly _tag: "Undone"; readonly retired: Retired; readonly because: KeptBecause }

/**
 * Looks at retired sessions for the last time, all of them at once, in a fresh transaction. Where a run, a
 * lease or anything else has appeared, the backups go back to their names; the others become expired.
 */
export const conclude = Effect.fnUntraced(function* (all: ReadonlyArray<Retired>) {
  const catalog = yield* SessionCatalog.SessionCatalog
  const holds = yield* Holds.Holds
  const store = yield* BackupStore.BackupStore
  if (all.length === 0) return []
  yield* beforeFinalLook
  const found = yield* catalog.load(all.map(({ candidate }) => candidate.inspected.ref))
  const held = yield* holds.scopes(all.map(({ candidate }) => candidate.inspected.ref.scope))
  const now = yield* clocks
  return yield* Effect.forEach(all, (retired) =>
    Effect.gen(function* () {
      const { candidate, leaving } = retired
      const { inspected } = candidate
      const { scope } = inspected.ref
      const planned = new Set(sessionOf(inspected, candidate.found, now.database).runIds)
      const appeared = sessionOf(inspected, found, now.database).runIds.filter((id) => !planned.has(id))
      const disk = yield* store.inspect(scope)
      const because =
        appeared.length > 0
          ? ({ _tag: "RunAppeared", runIds: appeared } as const)
          : skipOf(
              yield* reasonsOf(
                // The session's folder as it is now, the backups as they were before they moved.
                { ...inspected, disk: { ...disk, obstacles: inspected.disk.obstacles } },
                backupsOf(inspected.disk),
                found,
                Option.fromUndefinedOr(held.get(scope)),
                now
              )
            )
      yield* beforeConfirm
      if (because !== undefined) {
        yield* Effect.forEach(leaving, ({ undo }) => undo, { discard: true })
        yield* tell("undone", scope, candidate.allocatedBytes)
        return { _tag: "Undone", retired, because } satisfies Conclusion
      }
      const folders: Array<BackupStore.Moved<"Expired">> = []
      for (const each of leaving) {
        yield* each.confirm
        folders.push(...Option.toArray(yield* store.expire(each)))
      }
      // Another process took it for a leftover and moved it back: then it is there, and stays.
      return folders.length === 0
        ? ({ _tag: "Undone", retired, because: changed("another process settled it") } satisfies Conclusion)
        : ({ _tag: "Expired", retired, folders } satisfies Conclusion)
    }).pipe(
      Effect.uninterruptible,
      Effect.catchTag("FileError", (error) =>
        Effect.succeed({ _tag: "Undone", retired, because: keptByFile(error) } satisfies Conclusion)
      )
    )
  )
})

/** What deleting expired backups gave. */
export interface Deletion {
  readonly reclaimedBytes: bigint
  readonly errors: number
  /** Scopes whose backup came back because a run appeared at the last moment. */
  readonly revived: ReadonlyArray<Ids.ScopeId>
}

/** Deletes expired backups after one more look for a run of their sessions. Interruptible between entries. */
export const deleteExpired = Effect.fnUntraced(function* (
  sessions: ReadonlyArray<{
    readonly inspected: Inspected
    readonly folders: ReadonlyArray<BackupStore.LeftoverRef<"Expired"> & { readonly path: string }>
  }>
) {
  const catalog = yield* SessionCatalog.SessionCatalog
  const store = yield* BackupStore.BackupStore
  const trees = yield* Trees.Trees
  const revived: Array<Ids.ScopeId> = []
  let reclaimedBytes = 0n
  let errors = 0
  if (sessions.length === 0) return { reclaimedBytes, errors, revived } satisfies Deletion
  yield* beforeLastLook
  const found = yield* catalog.load(sessions.map(({ inspected }) => inspected.ref))
  const now = yield* clocks
  for (const { folders, inspected } of sessions) {
    const { scope } = inspected.ref
    if (sessionOf(inspected, found, now.database).unfinishedRuns.length > 0) {
      for (const folder of folders) {
        const outcome = yield* Effect.result(store.revive(folder))
        if (Result.isSuccess(outcome) && outcome.success === "moved") {
          revived.push(scope)
          yield* tell("undone", scope, 0n)
        } else {
          yield* Effect.logWarning("an expired backup stays, because a run of its session appeared").pipe(
            Effect.annotateLogs({ path: folder.path })
          )
        }
      }
      continue
    }
    for (const folder of folders) {
      yield* beforeDeletion
      const removal = yield* Effect.result(trees.remove(folder.path))
      if (Result.isFailure(removal)) {
        errors += 1
        yield* Effect.logWarning(`an expired backup cannot be deleted: ${removal.failure.message}`)
        continue
      }
      reclaimedBytes += removal.success.reclaimedBytes
      errors += removal.success.failureCount
      if (removal.success.failureCount > 0) {
        yield* Effect.logWarning("some of an expired backup cannot be deleted").pipe(
          Effect.annotateLogs({ path: folder.path, failures: removal.success.failures })
        )
      }
    }
  }
  return { reclaimedBytes, errors, revived } satisfies Deletion
})
