import {
  type BackupLeftover,
  BackupReason,
  ControlPlaneState,
  ExpirationPolicy,
  ExpirationSettings,
  FaultPoint,
  type Ids,
  NativeSession,
  RetentionPolicy
} from "@reclaim/core"
import { DatabaseError, Holds, Journal, SessionCatalog, Transactions } from "@reclaim/db"
import { BackupStore, type FileError, Trees } from "@reclaim/fs"
import { Array as Arr, DateTime, Duration, Effect, Exit, Option, Result, Schema, Scope } from "effect"
import type { Services } from "../BackupExpiration.ts"
import { ServerName } from "../ServerName.ts"
import { SessionActivity } from "../SessionActivity.ts"
import { clocks } from "./judgement.ts"
import type { DatabaseFailure } from "./services.ts"

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

/**
 * The backups of a scope that go together: a leftover `previous` and `current`. They leave in this order and
 * come back in the other, so that a reader never finds the older one alone.
 */
export const backupsOf = ({
  current,
  previous
}: BackupStore.ScopeState): ReadonlyArray<BackupStore.Backup> => [
  ...Option.toArray(previous),
  ...Option.toArray(current)
]

/** How old a file's time is. Never negative: a clock that stepped back makes nothing older. */
export const ageOf = (nanoseconds: bigint, now: RetentionPolicy.Now): Duration.Duration =>
  Duration.millis(
    Math.max(0, DateTime.toEpochMillis(RetentionPolicy.fileClock(now)) - Number(nanoseconds / 1_000_000n))
  )

// 24 hours: B-09 takes an older one for a leftover.
const writingLimit = Duration.hours(24)

/**
 * Backups that somebody is writing: whoever does that uses the session, although neither the database nor
 * this process knows of it, and is about to rename what would be renamed here.
 */
const beingWritten = (
  { pending }: BackupStore.ScopeState,
  now: RetentionPolicy.Now
): ReadonlyArray<BackupReason.Obstacle> =>
  pending
    .filter(({ info }) => Duration.isLessThan(ageOf(info.mtimeNs, now), writingLimit))
    .map(({ path }) => ({ _tag: "Unexpected", what: "a backup that is being written", path }))

/**
 * Every reason that keeps a session's backups; where there is none, what stands where one belongs. The plan,
 * the look under the locks and the final check all use this function.
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
  if (first === undefined) return disk.obstacles
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
      obstacles: [...disk.obstacles, ...beingWritten(disk, now), ...found.obstacles(disk.scope)],
      rows: found.rows
    },
    settings,
    now
  )
})

/** Gives each session those of the rows that may concern it. */
export const bySession = (found: SessionCatalog.Found) => {
  const rowsOf = NativeSession.bySession(found.rows)
  return ({ ref }: Inspected): SessionCatalog.Found => ({ ...found, rows: rowsOf(ref.state) })
}

/** A session as its rows describe it. */
export const sessionOf = (
  { ref }: Inspected,
  found: SessionCatalog.Found,
  now: RetentionPolicy.Now
): NativeSession.NativeSession => NativeSession.fromRows(ref.scope, ref.state, found.rows, now.database)

/** What the rules for leftovers ask about a session's runs. */
export const runsOf = (
  inspected: Inspected,
  found: SessionCatalog.Found,
  now: RetentionPolicy.Now
): BackupLeftover.ScopeFacts["runs"] => {
  const { foreign, unfinishedRuns, unknownRuns } = sessionOf(inspected, found, now)
  if (unfinishedRuns.length > 0) return "unfinished"
  return Option.isNone(inspected.ref.state) ||
    unknownRuns.length > 0 ||
    foreign.length > 0 ||
    found.obstacles(inspected.ref.scope).length > 0
    ? "unknown"
    : "none"
}

/** What folders occupy. One that cannot be measured counts as nothing: a figure for people, no proof. */
export const usageOf = Effect.fnUntraced(function* (folders: ReadonlyArray<{ readonly path: string }>) {
  const trees = yield* Trees.Trees
  const usages = yield* trees.usages(folders.map(({ path }) => path))
  return Arr.getSuccesses(usages).reduce((total, { allocatedBytes }) => total + allocatedBytes, 0n)
})

/** Whose a session is, by its current run. Null where that is not known. */
export const ownerOf = (
  { ref: { state } }: Inspected,
  { rows }: SessionCatalog.Found
): Ids.CompanyId | null =>
  rows.runs.find(({ id }) => Option.exists(state, ({ currentRunId }) => currentRunId === id))?.companyId ??
  null

/** What an event is about. */
export interface Subject {
  readonly scope: Ids.ScopeId
  readonly companyId: Ids.CompanyId | null
  readonly allocatedBytes: bigint
}

type Event = "expired" | "undone" | "recovered"

/** Writes what happened into the journal, in the transaction that is open or in one of its own. */
const append = Effect.fnUntraced(function* (event: Event, { allocatedBytes, companyId, scope }: Subject) {
  const journal = yield* Journal.Journal
  yield* journal.append({
    worker: "backups",
    event,
    companyId,
    skillId: null,
    versionId: null,
    scope,
    allocatedBytes,
    digest: null,
    server: yield* ServerName,
    detail: null
  })
})

/** Tells what a rename on disk did, which no transaction can take back: where it cannot be told, it is logged. */
export const tell = (event: Event, subject: Subject) =>
  append(event, subject).pipe(
    Effect.as(true),
    Effect.catch((error) =>
      Effect.as(
        Effect.logWarning(`a backup is ${event}, which is not in the journal: ${error.message}`),
        false
      )
    ),
    Effect.annotateLogs({ scope: subject.scope })
  )

/** A backup that nothing keeps, with the rows that said so. */
export interface Candidate {
  readonly inspected: Inspected
  readonly found: SessionCatalog.Found
  readonly allocatedBytes: bigint
}

/** Why a backup stayed after all: what the execution met, or what the system refused. */
export type KeptBecause = BackupReason.BackupSkip | BackupReason.Obstacle

/**
 * Backups of a session on their way out: renamed, committed, and not yet looked at for the last time.
 * `backups` are what they were before, `runIds` all runs of the session that were known then.
 */
export interface Retired extends Subject {
  readonly backups: ReadonlyArray<BackupStore.Backup>
  readonly runIds: ReadonlyArray<Ids.RunId>
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
// 8: as many scopes as are looked at once; each is a handful of small reads.
export const inspectConcurrency = 8

const beforeLock = FaultPoint.make("expiration.beforeLock")
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
const settledByAnother = changed("another process settled it")

/** Runs come first: they are what a moved backup is missed by. */
const skipOf = (reasons: ReadonlyArray<BackupReason.BackupReason>): BackupReason.BackupSkip | undefined => {
  const unfinished = reasons.find(({ _tag }) => _tag === "RunUnfinished")
  if (unfinished?._tag === "RunUnfinished") return { _tag: "RunAppeared", runIds: unfinished.runIds }
  return reasons.length === 0 ? undefined : changed(reasons.map(({ _tag }) => _tag).join(", "))
}

const keptByFile = (error: FileError.FileError): KeptBecause =>
  error.code === "ENOENT"
    ? changed("the backup vanished")
    : { _tag: "Unreadable", code: error.code, path: error.path }

/** Moves backups back to their names. True when one has its name again, so that there is something to tell. */
const putBack = Effect.fnUntraced(function* (leaving: ReadonlyArray<BackupStore.Retiring>) {
  let moved = false
  for (const { path, undo, which } of leaving.toReversed()) {
    const outcome = yield* Effect.result(undo)
    if (Result.isSuccess(outcome) && outcome.success === "moved") moved = true
    else if (Result.isFailure(outcome) || outcome.success === "taken") {
      yield* Effect.logWarning(
        `a backup that was leaving is not ${which} again; a later sweep settles it`
      ).pipe(
        Effect.annotateLogs({ path, because: Result.isFailure(outcome) ? outcome.failure.message : "taken" })
      )
    }
  }
  return moved
})

/**
 * Clears the task sessions of a session and moves its backups out of the way, in one transaction that holds
 * the locks of its rows, and adds the session to `open`. Until it is concluded, the end of the scope moves
 * them back.
 */
export const retire = Effect.fn("BackupExpiration.retire")(function* (
  { allocatedBytes, found, inspected: planned }: Candidate,
  open: Set<Retired>
): Effect.fn.Return<
  Retirement,
  DatabaseFailure,
  Services | ExpirationSettings.ExpirationSettings | Scope.Scope
> {
  const transactions = yield* Transactions.Transactions
  const catalog = yield* SessionCatalog.SessionCatalog
  const store = yield* BackupStore.BackupStore
  const holds = yield* Holds.Holds
  const { ref } = planned
  const { scope } = ref
  const subject: Subject = { scope, companyId: ownerOf(planned, found), allocatedBytes }
  // Of its own, so that a failure moves back at once what was moved, and not at the end of the batch.
  const moving = yield* Scope.fork(yield* Effect.scope)
  const leaving: Array<BackupStore.Retiring> = []
  let undone = false

  const takeBack = Effect.gen(function* () {
    if (yield* putBack(leaving.splice(0))) undone = true
    // What was moved without its handle: another folder than the one that was compared.
    yield* Scope.close(moving, Exit.void)
  })
  /** The transaction that would have told of the undoing is gone, so it is told in one of its own. */
  const tellUndone = Effect.suspend(() => (undone ? tell("undone", subject) : Effect.void))

  const body = Effect.fnUntraced(function* (tx: Transactions.Tx) {
    const locked = yield* catalog.lock(ref, found.rows)
    yield* afterLock
    const inspected = yield* inspect(scope)
    const backups = backupsOf(inspected.disk)
    if (backups.length === 0) return yield* new Abandoned({ because: changed("the backup vanished") })
    const held = Option.fromUndefinedOr((yield* holds.scopes([scope])).get(scope))
    const refuse = Effect.fnUntraced(function* (rows: SessionCatalog.Found) {
      const because = skipOf(yield* reasonsOf(inspected, backups, rows, held, yield* clocks))
      if (because !== undefined) return yield* new Abandoned({ because })
    })
    yield* refuse(locked)
    const { runIds, taskSessions } = sessionOf(inspected, locked, yield* clocks)
    const clearedTaskSessions = yield* catalog.removeTaskSessions(taskSessions)
    yield* afterTaskSessions
    if (Duration.isGreaterThan(yield* tx.sinceLastAnswer, answerLimit)) {
      return yield* new Abandoned({ because: { _tag: "LockLost" } })
    }
    // From here on a failure moves back while the rows are still locked.
    yield* Effect.gen(function* () {
      for (const { info, name } of backups) {
        const which = name === "previous" ? "previous" : "current"
        const moved = yield* Scope.provide(store.retire(scope, which, info), moving)
        leaving.push(moved)
        yield* moved.recheck
      }
      yield* afterRetire
      yield* refuse(yield* catalog.reread(ref, locked.rows))
      yield* append("expired", subject)
      yield* beforeCommit
    }).pipe(Effect.onError(() => takeBack))
    return { ...subject, backups, runIds, leaving, clearedTaskSessions } satisfies Retired
  })

  const kept = (because: KeptBecause): Retirement => ({ _tag: "Kept", because })
  yield* beforeLock
  return yield* transactions.run(body).pipe(
    Effect.tap((retired) => {
      open.add(retired)
      return afterCommit
    }),
    Effect.map((retired): Retirement => ({ _tag: "Retired", retired })),
    // A commit that failed or is unknown takes the move back too.
    Effect.onError(() => Effect.andThen(takeBack, tellUndone)),
    Effect.catchTags({
      Abandoned: ({ because }) => Effect.succeed(kept(because)),
      Changed: ({ what }) => Effect.succeed(kept(changed(what))),
      FileError: (error) => Effect.succeed(kept(keptByFile(error))),
      RowsBusy: () => Effect.succeed(kept({ _tag: "RowsBusy" })),
      // A lost connection and an unknown commit are the sweep's daily weather: the next pass decides anew. A
      // failure that will be there again ends the sweep.
      DatabaseError: (error) =>
        DatabaseError.isPassing(error)
          ? Effect.as(Effect.logWarning(`a backup stays: ${error.message}`), kept({ _tag: "LockLost" }))
          : Effect.fail(error)
    })
  )
}, Effect.uninterruptible)

/** Moves back what was retired and not concluded. */
export const giveUp = Effect.fnUntraced(function* (open: ReadonlySet<Retired>) {
  // All of them before anything is told: a database that does not answer must not hold up the renames.
  const undone: Array<Retired> = []
  for (const retired of open) if (yield* putBack(retired.leaving)) undone.push(retired)
  for (const retired of undone) if (!(yield* tell("undone", retired))) break
})

/** How a retired backup ended: with folders to delete, or back in its place. */
export type Conclusion =
  | {
      readonly _tag: "Expired"
      readonly retired: Retired
      readonly folders: ReadonlyArray<BackupStore.Moved<"Expired">>
    }
  | { readonly _tag: "Undone"; readonly because: KeptBecause }

/**
 * Looks at retired sessions for the last time, all of them at once, in a fresh transaction. Where a run, a
 * lease or anything else has appeared, the backups go back to their names; the others become expired. What
 * is concluded is taken out of `open`.
 */
export const conclude = Effect.fnUntraced(function* (
  open: Set<Retired>
): Effect.fn.Return<
  ReadonlyArray<Conclusion>,
  DatabaseFailure,
  Services | ExpirationSettings.ExpirationSettings
> {
  const catalog = yield* SessionCatalog.SessionCatalog
  const holds = yield* Holds.Holds
  const store = yield* BackupStore.BackupStore
  if (open.size === 0) return []
  yield* beforeFinalLook
  const all = [...open]
  const looked = yield* Effect.forEach(
    all,
    (retired) => Effect.map(inspect(retired.scope), (inspected) => ({ inspected, retired })),
    { concurrency: inspectConcurrency }
  )
  const foundOf = bySession(yield* catalog.load(looked.map(({ inspected }) => inspected.ref)))
  const held = yield* holds.scopes(all.map(({ scope }) => scope))
  const now = yield* clocks

  const keptBy = Effect.fnUntraced(function* (
    inspected: Inspected,
    { backups, leaving, runIds, scope }: Retired
  ) {
    const { disk } = inspected
    if (leaving.some(({ name }) => !disk.retiring.some((leftover) => leftover.name === name))) {
      return settledByAnother
    }
    if (backupsOf(disk).length > 0) return changed("another backup was written")
    const found = foundOf(inspected)
    const session = sessionOf(inspected, found, now)
    const appeared = session.runIds.filter((id) => !runIds.includes(id))
    if (appeared.length > 0) return { _tag: "RunAppeared", runIds: appeared } as const
    // All of them were removed: a new one would resume the session.
    if (session.taskSessions.length > 0) return changed("a task session names the session again")
    const hold = Option.fromUndefinedOr(held.get(scope))
    return skipOf(yield* reasonsOf(inspected, backups, found, hold, now))
  })

  return yield* Effect.forEach(looked, ({ inspected, retired }) =>
    Effect.gen(function* (): Effect.fn.Return<
      Conclusion,
      FileError.FileError,
      Journal.Journal | SessionActivity | ExpirationSettings.ExpirationSettings
    > {
      const because = yield* keptBy(inspected, retired)
      yield* beforeConfirm
      if (because !== undefined) return { _tag: "Undone", because }
      const folders: Array<BackupStore.Moved<"Expired">> = []
      for (const each of retired.leaving) {
        folders.push(...Option.toArray(yield* store.expire(each)))
        yield* each.confirm
      }
      return folders.length === retired.leaving.length
        ? { _tag: "Expired", retired, folders }
        : { _tag: "Undone", because: settledByAnother }
    }).pipe(
      Effect.catchTag("FileError", (error) =>
        Effect.succeed<Conclusion>({ _tag: "Undone", because: keptByFile(error) })
      ),
      Effect.tap((conclusion) => {
        open.delete(retired)
        return conclusion._tag === "Undone" ? giveUp(new Set([retired])) : Effect.void
      }),
      Effect.uninterruptible
    )
  )
})

/** Expired folders of a session. `runIds` are its runs as they were known when it was retired in this batch. */
export interface Deletable {
  readonly scope: Ids.ScopeId
  readonly runIds: Option.Option<ReadonlyArray<Ids.RunId>>
  readonly folders: ReadonlyArray<{ readonly path: string }>
}

/** What a session looks like right before its backups are deleted. */
export interface LastLook {
  readonly inspected: Inspected
  readonly companyId: Ids.CompanyId | null
  readonly runs: BackupLeftover.ScopeFacts["runs"]
  readonly held: boolean
  readonly now: RetentionPolicy.Now
}

/**
 * Looks once more at a session whose backups are to be deleted, right before that, since deleting others may
 * have taken minutes. The answer is what the rules for leftovers ask about it.
 */
export const lastLook = Effect.fnUntraced(function* ({
  runIds,
  scope
}: Deletable): Effect.fn.Return<LastLook, DatabaseFailure, Services> {
  const catalog = yield* SessionCatalog.SessionCatalog
  const holds = yield* Holds.Holds
  const activity = yield* SessionActivity
  yield* beforeLastLook
  const inspected = yield* inspect(scope)
  const { state } = inspected.ref
  const found = yield* catalog.load([inspected.ref])
  const now = yield* clocks
  const held = (yield* holds.scopes([scope])).has(scope)
  const doing = yield* activity.of({ scope, sessionId: Option.map(state, ({ sessionId }) => sessionId) })
  const session = sessionOf(inspected, found, now)
  const appeared = Option.exists(
    runIds,
    (known) => session.taskSessions.length > 0 || session.runIds.some((id) => !known.includes(id))
  )
  const runs = doing.length > 0 || appeared ? "unfinished" : runsOf(inspected, found, now)
  return { inspected, companyId: ownerOf(inspected, found), runs, held, now }
})

/** Deletes an expired folder. Interruptible between entries. */
export const deleteFolder = Effect.fnUntraced(
  function* (path: string) {
    const trees = yield* Trees.Trees
    yield* beforeDeletion
    const { failureCount, failures, reclaimedBytes } = yield* trees.remove(path)
    if (failureCount > 0) {
      yield* Effect.logWarning("some of an expired backup cannot be deleted").pipe(
        Effect.annotateLogs({ failures })
      )
    }
    return { reclaimedBytes, errors: failureCount }
  },
  Effect.catchTag("FileError", (error) =>
    Effect.as(Effect.logWarning(`an expired backup cannot be deleted: ${error.message}`), {
      reclaimedBytes: 0n,
      errors: 1
    })
  ),
  (effect, path) => Effect.annotateLogs(effect, { path })
)
