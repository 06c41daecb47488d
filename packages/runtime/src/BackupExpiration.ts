/**
 * Expires failover backups of native sessions whose work has long been closed.
 *
 * **Details**
 *
 * A batch checks at most 200 session scopes and expires at most 50. It finds the rows of all its sessions at
 * once, decides with the pure policy, and for each candidate locks the rows, decides again, removes the task
 * sessions that name the session and renames the backup, in one transaction. Then all sessions are looked at
 * once more, and each again right before its backup is deleted.
 *
 * **Gotchas**
 *
 * Not safe when several servers run sessions on one disk and `SessionActivity` answers for one of them only.
 *
 * @since 0.1.0
 */
import {
  type BackupLeftover,
  type BackupReason,
  BackupReport,
  Continuation,
  ExpirationSettings,
  type Ids,
  type NativeSession,
  type RetentionPolicy
} from "@reclaim/core"
import {
  DatabaseClock,
  type DatabaseError,
  Holds,
  HostSchema,
  Journal,
  SessionCatalog,
  Transactions
} from "@reclaim/db"
import { BackupStore, type FileError, Trees } from "@reclaim/fs"
import { Clock, Context, Effect, Function, Layer, Option, Schema, Semaphore, Stream } from "effect"
import { settleScope } from "./internal/backupLeftovers.ts"
import * as Expiration from "./internal/expiration.ts"
import { pruneJournal } from "./internal/housekeeping.ts"
import { clocks } from "./internal/judgement.ts"
import * as Metrics from "./internal/metrics.ts"
import { SessionActivity } from "./SessionActivity.ts"
import { UnknownCompany } from "./SkillVersionCache.ts"

/** @category options @since 0.1.0 */
export interface SweepOptions {
  /** Report only. The setting makes every sweep dry, whatever stands here. */
  readonly dryRun?: boolean
  /** Where an earlier sweep stopped. */
  readonly continuation?: string
}

/** @category options @since 0.1.0 */
export interface DiagnoseOptions {
  readonly scope?: Ids.ScopeId
  /** Only sessions whose runs are this company's. */
  readonly companyId?: Ids.CompanyId
}

/** One batch. `continuation` is none when the pass is over. @category models @since 0.1.0 */
export interface Batch {
  readonly report: BackupReport.BackupReport
  readonly dryRun: boolean
  readonly continuation: Option.Option<string>
}

/**
 * What a diagnosis says: about the backups of one scope, or about a folder that an interrupted operation left
 * in one and a sweep settles.
 *
 * @category models
 * @since 0.1.0
 */
export type Diagnosis =
  | {
      readonly _tag: "Backup"
      readonly scope: string
      readonly sessionId: Option.Option<Ids.NativeSessionId>
      readonly decision: "retain" | "expire"
      readonly reasons: ReadonlyArray<BackupReason.BackupReason>
      readonly allocatedBytes: bigint
    }
  | {
      readonly _tag: "Leftover"
      readonly scope: Ids.ScopeId
      readonly kind: BackupStore.LeftoverKind
      readonly path: string
    }

/** There is no folder of that session scope. @category errors @since 0.1.0 */
export class UnknownScope extends Schema.TaggedError<UnknownScope>()("UnknownScope", {
  scope: Schema.String
}) {
  override get message() {
    return `there is no session scope ${this.scope}`
  }
}

/** Another expiration sweep of this process is running. @category errors @since 0.1.0 */
export class ExpirationInProgress extends Schema.TaggedError<ExpirationInProgress>()(
  "ExpirationInProgress",
  {}
) {
  override get message() {
    return "a sweep of session backups is already running in this process"
  }
}

/** What ends a sweep. What concerns one session is counted in the report. @category errors @since 0.1.0 */
export type ExpirationError =
  | DatabaseError.DatabaseError
  | DatabaseError.NestedTransaction
  | HostSchema.NotAdopted
  | HostSchema.MissingTables
  | FileError.FileError
  | Continuation.InvalidContinuation
  | ExpirationInProgress

/** What ends a diagnosis. @category errors @since 0.1.0 */
export type DiagnosisError =
  | Exclude<ExpirationError, Continuation.InvalidContinuation | ExpirationInProgress | HostSchema.NotAdopted>
  | UnknownCompany
  | UnknownScope

/** @category services @since 0.1.0 */
export class BackupExpiration extends Context.Service<
  BackupExpiration,
  {
    /**
     * One pass in batches, each done when it is emitted, what expired deleted. There is always one batch,
     * with zero counts when there is nothing; none at all when the settings disable the sweep.
     */
    readonly sweep: (options?: SweepOptions) => Stream.Stream<Batch, ExpirationError>
    /**
     * Tells for every scope with a backup whether it would go and every reason why not, and names the leftovers.
     * A scope or a company that does not exist is an error.
     */
    readonly diagnose: (options?: DiagnoseOptions) => Stream.Stream<Diagnosis, DiagnosisError>
  }
>()("@reclaim/runtime/BackupExpiration") {}

/** What the service is made of. @category layers @since 0.1.0 */
export type Services =
  | BackupStore.BackupStore
  | DatabaseClock.DatabaseClock
  | Holds.Holds
  | HostSchema.HostSchema
  | Journal.Journal
  | SessionActivity
  | SessionCatalog.SessionCatalog
  | Transactions.Transactions
  | Trees.Trees

// 200 and 50: the seed document fixes them; they bound what one batch does and its row locks.
const maxChecked = 200
const maxExpired = 50
// 1,000: the host has no index by which a session's rows are found, so each look goes over whole tables however
// many sessions it asks for. More at once would save little and hold more rows in memory.
const maxAhead = 1_000

/** A session as it was looked at, with every reason that keeps its backups. */
interface Checked {
  readonly inspected: Expiration.Inspected
  readonly found: SessionCatalog.Found
  readonly reasons: ReadonlyArray<BackupReason.BackupReason>
  readonly runs: BackupLeftover.ScopeFacts["runs"]
  readonly held: boolean
  readonly session: NativeSession.NativeSession
  readonly companyId: Ids.CompanyId | null
}

const hasBackups = (disk: BackupStore.ScopeState): boolean => Expiration.backupsOf(disk).length > 0

const hasLeftovers = ({ expired, pending, retiring }: BackupStore.ScopeState): boolean =>
  expired.length + pending.length + retiring.length > 0

/** Looks at scopes and decides about their backups, in a number of statements that does not depend on them. */
const check = Effect.fnUntraced(function* (scopes: ReadonlyArray<Ids.ScopeId>) {
  const catalog = yield* SessionCatalog.SessionCatalog
  const holds = yield* Holds.Holds
  const inspected = yield* Effect.forEach(scopes, Expiration.inspect, {
    concurrency: Expiration.inspectConcurrency
  })
  const now = yield* clocks
  // A session folder outlives its backups by far: of one that holds nothing, nothing is asked.
  const asked = inspected.filter(
    ({ disk }) => hasBackups(disk) || hasLeftovers(disk) || disk.obstacles.length > 0
  )
  const found = yield* catalog.load(asked.map(({ ref }) => ref))
  const held = yield* holds.scopes(scopes)
  const foundOf = Expiration.bySession(found)
  const checked = yield* Effect.forEach(inspected, (each) =>
    Effect.gen(function* () {
      const hold = Option.fromUndefinedOr(held.get(each.ref.scope))
      const its = foundOf(each)
      return {
        inspected: each,
        found: its,
        session: Expiration.sessionOf(each, its, now),
        companyId: Expiration.ownerOf(each, its),
        held: Option.isSome(hold),
        runs: Expiration.runsOf(each, its, now),
        reasons: yield* Expiration.reasonsOf(each, Expiration.backupsOf(each.disk), its, hold, now)
      } satisfies Checked
    })
  )
  return { checked, found, now }
})

const scopesOf = (entries: ReadonlyArray<BackupStore.ScopeEntry>): ReadonlyArray<Ids.ScopeId> =>
  entries.flatMap((entry) => (entry._tag === "Scope" ? [entry.scope] : []))

/** What was found out about scopes, ahead of their batches too. With the `acting` ones something is to be done. */
interface Ahead {
  readonly reasons: ReadonlyMap<Ids.ScopeId, Checked["reasons"]>
  readonly acting: ReadonlyMap<Ids.ScopeId, Checked>
  readonly now: RetentionPolicy.Now
}

const isActing = ({ inspected: { disk }, reasons }: Checked): boolean =>
  hasLeftovers(disk) || (reasons.length === 0 && hasBackups(disk))

/** Keeps no rows of the sessions that stay: nearly all do. */
const lookAhead = Effect.fnUntraced(function* (scopes: ReadonlyArray<Ids.ScopeId>) {
  const { checked, now } = yield* check(scopes)
  const ahead: Ahead = {
    reasons: new Map(checked.map(({ inspected, reasons }) => [inspected.ref.scope, reasons])),
    acting: new Map(checked.filter(isActing).map((each) => [each.inspected.ref.scope, each])),
    now
  }
  return ahead
})

/** The scopes of a batch as they are now, and what was found out ahead for the batches after it. */
const examine = Effect.fnUntraced(function* (
  scopes: ReadonlyArray<Ids.ScopeId>,
  upcoming: Effect.Effect<ReadonlyArray<Ids.ScopeId>, FileError.FileError>,
  known: Option.Option<Ahead>,
  dryRun: boolean
) {
  const before = Option.filter(known, ({ reasons }) => scopes.every((scope) => reasons.has(scope)))
  if (Option.isNone(before)) {
    const ahead = yield* lookAhead(yield* upcoming)
    return { examined: ahead, ahead }
  }
  const acting = scopes.filter((scope) => before.value.acting.has(scope))
  // The batches since then may have taken minutes: what is to be done is decided anew.
  if (dryRun || acting.length === 0) return { examined: before.value, ahead: before.value }
  const { acting: still, now, reasons } = yield* lookAhead(acting)
  const examined = { acting: still, now, reasons: new Map([...before.value.reasons, ...reasons]) }
  return { examined, ahead: before.value }
})

const runBatch = Effect.fn("BackupExpiration.batch")(function* (
  after: string | undefined,
  known: Option.Option<Ahead>,
  dryRun: boolean
) {
  const store = yield* BackupStore.BackupStore
  const startedAt = yield* Clock.monotonicTimeNanos
  const next = (count: number) => store.scopes(after).pipe(Stream.take(count), Stream.runCollect)
  const listed = yield* next(maxChecked + 1)
  const entries = listed.slice(0, maxChecked)
  const skipped: Record<string, number> = {}
  const skip = (tags: ReadonlyArray<{ readonly _tag: string }>) => {
    for (const tag of new Set(tags.map(({ _tag }) => _tag))) skipped[tag] = (skipped[tag] ?? 0) + 1
  }
  const { ahead, examined } = yield* examine(
    scopesOf(entries),
    Effect.map(next(maxAhead), scopesOf),
    known,
    dryRun
  )

  let counted = 0
  let candidates = 0
  let candidateAllocatedBytes = 0n
  let clearedTaskSessions = 0
  let reclaimedAllocatedBytes = 0n
  let recovered = 0
  let errors = 0
  let expired = 0
  let position: string | undefined
  const open = new Set<Expiration.Retired>()
  const toDelete: Array<Expiration.Deletable> = []

  const settle = Effect.fnUntraced(function* ({
    companyId,
    held,
    inspected,
    now: at,
    runs
  }: Expiration.LastLook) {
    const settled = yield* settleScope(inspected, companyId, runs, held, at)
    recovered += settled.recovered
    if (settled.stays.length > 0) {
      yield* Effect.logWarning("something that an interrupted expiration left stays").pipe(
        Effect.annotateLogs({ scope: inspected.ref.scope, why: settled.stays })
      )
    }
    return settled
  })

  const consider = Effect.fnUntraced(function* ({
    companyId,
    found,
    held,
    inspected,
    reasons,
    runs
  }: Checked) {
    const { scope } = inspected.ref
    if (!dryRun && hasLeftovers(inspected.disk)) {
      const settled = yield* settle({ inspected, companyId, runs, held, now: examined.now })
      if (settled.expired.length > 0) {
        toDelete.push({ scope, runIds: Option.none(), folders: settled.expired })
      }
      // What is `current` again is decided about in the next pass, from what is on disk then.
      if (settled.recovered > 0) return
    }
    const backups = Expiration.backupsOf(inspected.disk)
    if (reasons.length > 0) return skip(reasons)
    if (backups.length === 0) return
    const allocatedBytes = yield* Expiration.usageOf(backups)
    candidates += 1
    candidateAllocatedBytes += allocatedBytes
    if (dryRun) return
    const retirement = yield* Expiration.retire({ inspected, found, allocatedBytes }, open)
    if (retirement._tag === "Kept") return skip([retirement.because])
    clearedTaskSessions += retirement.retired.clearedTaskSessions
  })

  const conclusions = yield* Effect.gen(function* () {
    for (const entry of entries) {
      if (candidates >= maxExpired) break
      position = entry.position
      counted += 1
      if (entry._tag === "Obstacle") {
        skip([entry.reason])
        continue
      }
      const each = examined.acting.get(entry.scope)
      if (each === undefined) {
        skip(examined.reasons.get(entry.scope) ?? [])
        continue
      }
      yield* consider(each).pipe(
        Effect.catchTag("FileError", (error) => {
          errors += 1
          return Effect.logWarning(`a session's backups could not be handled: ${error.message}`)
        })
      )
    }
    return yield* Expiration.conclude(open)
  }).pipe(
    // A batch that does not get to its end takes back what it moved; the end of the scope would too, but
    // only here does the journal say so.
    Effect.onError(() => Expiration.giveUp(open))
  )

  for (const conclusion of conclusions) {
    if (conclusion._tag === "Undone") {
      skip([conclusion.because])
      continue
    }
    expired += 1
    const { runIds, scope } = conclusion.retired
    toDelete.push({ scope, runIds: Option.some(runIds), folders: conclusion.folders })
  }

  for (const each of toDelete) {
    const look = yield* Expiration.lastLook(each)
    if (look.runs === "none" && !look.held) {
      for (const { path } of each.folders) {
        const deletion = yield* Expiration.deleteFolder(path)
        reclaimedAllocatedBytes += deletion.reclaimedBytes
        errors += deletion.errors
      }
      continue
    }
    // What is whole goes back to `current`, by the rules for leftovers; what is not stays.
    if (Option.isSome(each.runIds)) {
      expired -= 1
      skip([{ _tag: look.held ? "Held" : "RunAppeared" }])
    }
    yield* settle(look).pipe(
      Effect.catchTag("FileError", (error) => {
        errors += 1
        return Effect.logWarning(`an expired backup could not be moved back: ${error.message}`)
      })
    )
  }

  const last = counted === listed.length
  const report = BackupReport.BackupReport.make({
    checked: counted,
    candidates,
    candidateAllocatedBytes,
    expired,
    reclaimedAllocatedBytes,
    clearedTaskSessions,
    recovered,
    skipped,
    errors,
    durationMillis: Number(((yield* Clock.monotonicTimeNanos) - startedAt) / 1_000_000n)
  })
  yield* Metrics.backups(report, dryRun)
  if (candidates > 0) {
    yield* Effect.logInfo("swept session backups").pipe(
      Effect.annotateLogs({ ...BackupReport.toLog(report), worker: "backups", dryRun })
    )
  }
  return { report, ahead, position: last ? undefined : position }
}, Effect.scoped)

const sweepWith = Effect.fnUntraced(function* (options: SweepOptions) {
  const settings = yield* ExpirationSettings.ExpirationSettings
  const host = yield* HostSchema.HostSchema
  if (!settings.enabled) return Stream.empty
  const dryRun = settings.dryRun || options.dryRun === true
  const after =
    options.continuation === undefined
      ? undefined
      : (yield* Effect.fromResult(
          Continuation.decode(options.continuation, { worker: "backups", scope: "all" })
        )).position
  yield* host.requireBackups
  if (!dryRun) {
    yield* host.requireAdopted("expiring session backups")
    if (after === undefined) yield* pruneJournal
  }
  const start: readonly [after: string | undefined, ahead: Option.Option<Ahead>] = [after, Option.none()]
  return Stream.paginate(start, ([from, known]) =>
    Effect.map(runBatch(from, known, dryRun), ({ ahead, position, report }) => {
      const continuation = Option.map(Option.fromUndefinedOr(position), (at) =>
        Continuation.encode(Continuation.Continuation.make({ worker: "backups", scope: "all", position: at }))
      )
      const batch: Batch = { report, dryRun, continuation }
      const rest = Option.map(Option.fromUndefinedOr(position), (at) => [at, Option.some(ahead)] as const)
      return [[batch], rest] as const
    })
  )
})

const diagnoseScopes = Effect.fnUntraced(function* (
  entries: ReadonlyArray<BackupStore.ScopeEntry>,
  companyId: Ids.CompanyId | undefined
) {
  const { checked, found } = yield* check(scopesOf(entries))
  const owned = new Set(
    found.rows.runs.flatMap((run) => (companyId === undefined || run.companyId === companyId ? [run.id] : []))
  )
  const obstacles = entries.flatMap((entry): ReadonlyArray<Diagnosis> =>
    entry._tag === "Obstacle" && companyId === undefined
      ? [
          {
            _tag: "Backup",
            scope: entry.name,
            sessionId: Option.none(),
            decision: "retain",
            reasons: [entry.reason],
            allocatedBytes: 0n
          }
        ]
      : []
  )
  const scopes = checked.filter(
    ({ session }) => companyId === undefined || session.runIds.some((id) => owned.has(id))
  )
  const diagnosed = yield* Effect.forEach(
    scopes,
    Effect.fnUntraced(function* ({ inspected: { disk, ref }, reasons }) {
      const backups = Expiration.backupsOf(disk)
      const leftovers = [...disk.pending, ...disk.retiring, ...disk.expired].map(
        ({ kind, path, scope }): Diagnosis => ({ _tag: "Leftover", scope, kind, path })
      )
      if (backups.length === 0 && reasons.length === 0) return leftovers
      const backup: Diagnosis = {
        _tag: "Backup",
        scope: ref.scope,
        sessionId: Option.map(ref.state, ({ sessionId }) => sessionId),
        decision: reasons.length === 0 ? "expire" : "retain",
        reasons,
        allocatedBytes: yield* Expiration.usageOf(backups)
      }
      return [backup, ...leftovers]
    })
  )
  return [...obstacles, ...diagnosed.flat()]
})

const diagnoseWith = Effect.fnUntraced(function* ({ companyId, scope }: DiagnoseOptions) {
  const store = yield* BackupStore.BackupStore
  const host = yield* HostSchema.HostSchema
  const catalog = yield* SessionCatalog.SessionCatalog
  yield* host.requireBackups
  if (companyId !== undefined && !(yield* catalog.hasCompany(companyId))) {
    return yield* new UnknownCompany({ companyId })
  }
  return store.scopes().pipe(
    Stream.filter(({ position }) => scope === undefined || position === scope),
    Stream.orElseIfEmpty(() =>
      scope === undefined ? Stream.empty : Stream.fail(new UnknownScope({ scope }))
    ),
    Stream.grouped(maxChecked),
    Stream.mapEffect((entries) => diagnoseScopes(entries, companyId)),
    Stream.flatMap(Stream.fromIterable)
  )
})

/**
 * The expiration on the services of the host.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<BackupExpiration, never, Services | ExpirationSettings.ExpirationSettings> =
  Layer.effect(
    BackupExpiration,
    Effect.gen(function* () {
      // Exactly these: a call must run with the clock, the span and the references of its caller.
      const context = Context.pick(
        BackupStore.BackupStore,
        DatabaseClock.DatabaseClock,
        ExpirationSettings.ExpirationSettings,
        Holds.Holds,
        HostSchema.HostSchema,
        Journal.Journal,
        SessionActivity,
        SessionCatalog.SessionCatalog,
        Transactions.Transactions,
        Trees.Trees
      )(yield* Effect.context<Services | ExpirationSettings.ExpirationSettings>())
      const running = yield* Semaphore.make(1)
      const enter = Effect.acquireRelease(
        Effect.filterOrFail(
          running.takeIfAvailable(1),
          Function.identity,
          () => new ExpirationInProgress({})
        ),
        () => running.release(1)
      )
      return BackupExpiration.of({
        sweep: (options = {}) =>
          Stream.unwrap(Effect.andThen(enter, sweepWith(options))).pipe(
            Stream.withSpan("BackupExpiration.sweep", { attributes: { "reclaim.dry_run": options.dryRun } }),
            Stream.provideContext(context)
          ),
        diagnose: (options = {}) => Stream.unwrap(diagnoseWith(options)).pipe(Stream.provideContext(context))
      })
    })
  )
