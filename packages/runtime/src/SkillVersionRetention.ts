/**
 * Sweeps skill version copies that the database can rebuild and nobody uses.
 *
 * **Details**
 *
 * A sweep is one pass over the instance in batches of at most 50 entries. A batch reads its facts, plans
 * from them with the pure policy, and executes: it evicts what is proven, settles what crashed processes
 * left, and deletes the trash of both. Diagnosis, dry run and sweep plan with the same code.
 *
 * **Gotchas**
 *
 * Not safe when servers share the folder without sharing the database, or when a server materializes
 * copies without recording what its runs selected.
 *
 * @since 0.1.0
 */
import {
  Continuation,
  type Ids,
  RetentionPolicy,
  RetentionSettings,
  type VersionReason,
  VersionReport
} from "@reclaim/core"
import { type DatabaseError, HostSchema, SkillCatalog, SkillPins } from "@reclaim/db"
import { type FileError, Trees, VersionStore } from "@reclaim/fs"
import {
  Array as Arr,
  Clock,
  Context,
  type DateTime,
  Effect,
  Function,
  Layer,
  Option,
  Result,
  Schema,
  Semaphore,
  Stream
} from "effect"
import { examine, obstacleOf } from "./internal/examination.ts"
import { heal } from "./internal/healing.ts"
import { orLater, pruneJournal } from "./internal/housekeeping.ts"
import * as Metrics from "./internal/metrics.ts"
import { type DatabaseFailure, type Services, services } from "./internal/services.ts"
import { judge, type Judged, type Judgement, manifestsOf, reasonOf } from "./internal/judgement.ts"
import { isConsidered, sweepEntries } from "./internal/sweepBatch.ts"
import { UnknownCompany } from "./SkillVersionCache.ts"

/** @category options @since 0.1.0 */
export interface SweepOptions {
  /** Only this company. */
  readonly companyId?: Ids.CompanyId
  /** Report only. The setting makes every sweep dry, whatever stands here. */
  readonly dryRun?: boolean
  /** Entries per batch, 1 to 50, which is the default. */
  readonly batchLimit?: number
  /** Where an earlier sweep of the same companies stopped. */
  readonly continuation?: string
}

/** @category options @since 0.1.0 */
export interface DiagnoseOptions {
  readonly companyId?: Ids.CompanyId
  readonly versionId?: Ids.VersionId
}

/**
 * One batch. `continuation` is none when the pass is over.
 *
 * @category models
 * @since 0.1.0
 */
export interface Batch {
  readonly report: VersionReport.VersionReport
  readonly dryRun: boolean
  readonly continuation: Option.Option<string>
}

/**
 * What a diagnosis says about one thing on disk. Copies come with every reason that holds; leftovers and
 * obstacles are told so that nothing on disk goes unmentioned.
 *
 * @category models
 * @since 0.1.0
 */
export type Diagnosis =
  | {
      readonly _tag: "Copy"
      readonly companyId: Ids.CompanyId
      readonly skillId: Ids.SkillId
      readonly versionId: Ids.VersionId
      readonly decision: "retain" | "evict"
      readonly reasons: ReadonlyArray<VersionReason.VersionReason>
      readonly lastUsedAt: Option.Option<DateTime.Utc>
      readonly apparentBytes: bigint
      readonly allocatedBytes: bigint
    }
  | {
      readonly _tag: "Leftover"
      readonly companyId: Ids.CompanyId
      readonly skillId: Ids.SkillId
      readonly kind: "Staging" | "Evicting" | "Replaced" | "Trash"
      readonly path: string
    }
  | {
      readonly _tag: "Obstacle"
      readonly companyId: Ids.CompanyId
      readonly reason: VersionReason.Obstacle
    }

/** Another sweep of this process is running. @category errors @since 0.1.0 */
export class SweepInProgress extends Schema.TaggedError<SweepInProgress>()("SweepInProgress", {}) {
  override get message() {
    return "a sweep of skill versions is already running in this process"
  }
}

/** A batch limit outside of 1 to 50. @category errors @since 0.1.0 */
export class InvalidBatchLimit extends Schema.TaggedError<InvalidBatchLimit>()("InvalidBatchLimit", {
  /** As it was given; it may be no number at all. */
  value: Schema.String
}) {
  override get message() {
    return `a batch takes 1 to ${maxBatch} entries, not ${this.value}`
  }
}

/** What ends a sweep. What concerns one entry is counted in the report. @category errors @since 0.1.0 */
export type SweepError =
  | DatabaseError.DatabaseError
  | DatabaseError.NestedTransaction
  | HostSchema.NotAdopted
  | HostSchema.MissingTables
  | FileError.FileError
  | Continuation.InvalidContinuation
  | InvalidBatchLimit
  | SweepInProgress
  | UnknownCompany

/** @category services @since 0.1.0 */
export class SkillVersionRetention extends Context.Service<
  SkillVersionRetention,
  {
    /**
     * One pass in batches, each done when it is emitted, its trash deleted. There is always one batch, with
     * zero counts when there is nothing; none at all when the settings disable the sweep. Pulling fewer
     * batches ends the sweep early; the last batch pulled tells where to go on. Interruption takes effect
     * between entries.
     */
    readonly sweep: (options?: SweepOptions) => Stream.Stream<Batch, SweepError>
    /** Tells for every copy, of one company or of all, whether it would go and every reason why not. */
    readonly diagnose: (options?: DiagnoseOptions) => Stream.Stream<Diagnosis, SweepError>
  }
>()("@reclaim/runtime/SkillVersionRetention") {}

// 50: bounds one batch to about a second on a cold disk, and what a server is asked for at once.
const maxBatch = 50
// 4 batches: judging costs answers of the database, however many copies it is about, and most of them stay. What is
// judged is decided anew under the lock, so that it may wait for its turn.
const judgedTogether = 4
// 200: bounds the memory of a batch where there are only orphaned records and empty skills.
const maxPortion = 200
// 1,000 runs: what one pass forgets; the next one goes on.
const forgetLimit = 1000

/**
 * What a pass does besides its entries, once, before them. Returns how many copies came back. What cannot
 * be done now is left to the next pass: neither a busy company nor a full database stops the cleanup.
 */
const housekeeping = Effect.fnUntraced(function* (companyId: Ids.CompanyId | undefined) {
  const pins = yield* SkillPins.SkillPins
  yield* orLater("forgetting runs", pins.forget(forgetLimit))
  yield* pruneJournal
  return yield* orLater("healing", heal(companyId))
})

/** The entries of a batch and whether others follow them. */
interface Portion {
  readonly entries: ReadonlyArray<VersionStore.StoreEntry>
  readonly last: boolean
}

/** What is known before a batch: `healed` are copies that came back before it, `startedAt` when that began. */
interface Prepared extends Portion {
  readonly judgement: Judgement
  readonly healed: number
  readonly startedAt?: bigint
}

/**
 * Cuts the entries into portions with at most `limit` that are considered. What is only tidied comes along
 * with those before it, up to a bound on the whole.
 */
const portions = (limit: number) =>
  Stream.mapAccum(
    (): ReadonlyArray<VersionStore.StoreEntry> => [],
    (portion, entry: VersionStore.StoreEntry) =>
      portion.length >= maxPortion || (isConsidered(entry) && portion.filter(isConsidered).length >= limit)
        ? ([[entry], [portion]] as const)
        : ([[...portion, entry], []] as const),
    { onHalt: (portion) => (portion.length === 0 ? [] : [portion]) }
  )

const requireCompany = Effect.fnUntraced(function* (companyId: Ids.CompanyId | undefined) {
  const catalog = yield* SkillCatalog.SkillCatalog
  const host = yield* HostSchema.HostSchema
  yield* host.requireSkills
  if (companyId !== undefined && !(yield* catalog.hasCompany(companyId))) {
    return yield* new UnknownCompany({ companyId })
  }
})

const sweepWith = Effect.fnUntraced(function* (options: SweepOptions) {
  const settings = yield* RetentionSettings.RetentionSettings
  const store = yield* VersionStore.VersionStore
  const host = yield* HostSchema.HostSchema
  const { companyId } = options
  if (!settings.enabled) return Stream.empty
  const limit = options.batchLimit ?? maxBatch
  if (!Number.isInteger(limit) || limit < 1 || limit > maxBatch)
    return yield* new InvalidBatchLimit({ value: String(limit) })
  const dryRun = settings.dryRun || options.dryRun === true
  const scope = companyId ?? "all"
  const after =
    options.continuation === undefined
      ? undefined
      : (yield* Effect.fromResult(
          Continuation.decode(options.continuation, { worker: "skill-versions", scope })
        )).position
  yield* requireCompany(companyId)
  if (!dryRun) yield* host.requireAdopted("sweeping skill versions")

  const freeBytes = Effect.option(Effect.map(store.volume, ({ available }) => available))

  const runBatch = Effect.fn("SkillVersionRetention.batch")(function* ({
    entries,
    healed,
    judgement,
    last,
    startedAt: since
  }: Prepared) {
    const startedAt = since ?? (yield* Clock.monotonicTimeNanos)
    const freeBytesBefore = yield* freeBytes
    const swept = yield* sweepEntries(entries, judgement, { dryRun })
    const report = VersionReport.VersionReport.make({
      ...swept,
      healed,
      durationMillis: Number(((yield* Clock.monotonicTimeNanos) - startedAt) / 1_000_000n),
      freeBytesBefore,
      freeBytesAfter: yield* freeBytes
    })
    const end = entries.at(-1)
    const continuation =
      last || end === undefined
        ? Option.none()
        : Option.some(
            Continuation.encode(
              Continuation.Continuation.make({ worker: "skill-versions", scope, position: end.position })
            )
          )
    yield* Effect.logInfo("swept skill versions").pipe(
      Effect.annotateLogs({ ...VersionReport.toLog(report), worker: "skill-versions", dryRun, scope })
    )
    yield* Metrics.versions(report, dryRun)
    return { report, dryRun, continuation } satisfies Batch
  })

  /** What comes before some batches. What it took counts for the first of them. */
  const prepare = Effect.fnUntraced(function* (
    some: ReadonlyArray<Portion>,
    index: number
  ): Effect.fn.Return<
    ReadonlyArray<Prepared>,
    DatabaseFailure,
    Services | RetentionSettings.RetentionSettings
  > {
    const startedAt = yield* Clock.monotonicTimeNanos
    const healed = index === 0 && after === undefined && !dryRun ? yield* housekeeping(companyId) : 0
    const judgement = yield* judge(some.flatMap(({ entries }) => entries))
    return some.map((portion, place) =>
      place === 0 ? { ...portion, judgement, healed, startedAt } : { ...portion, judgement, healed: 0 }
    )
  })

  return store.entries({ company: companyId, after }).pipe(
    portions(limit),
    // The next portion is listed before a batch runs, so that the last batch knows that it is the last.
    Stream.zipWithNext,
    Stream.map(([entries, next]): Portion => ({ entries, last: Option.isNone(next) })),
    Stream.orElseIfEmpty(() => Stream.succeed<Portion>({ entries: [], last: true })),
    Stream.grouped(judgedTogether),
    Stream.zipWithIndex,
    Stream.mapEffect(([some, index]) => prepare(some, index)),
    Stream.flattenIterable,
    Stream.mapEffect(runBatch),
    Stream.tap(() => Effect.yieldNow)
  )
})

const diagnoseEntries = Effect.fnUntraced(function* (entries: ReadonlyArray<VersionStore.StoreEntry>) {
  const trees = yield* Trees.Trees
  const found = yield* judge(entries)
  const { now } = found
  const judged = new Map(found.judged.map((each) => [each.entry.position, each]))
  const manifestOf = yield* manifestsOf(
    [...judged.values()].filter(({ reasons }) => reasons.length === 0).map(({ copy }) => copy)
  )

  // What its facts keep is only measured, all of it at once.
  const kept = [...judged.values()].filter(({ reasons }) => reasons.length > 0).map(({ entry }) => entry)
  const usages = new Map(
    Arr.zip(
      kept.map(({ position }) => position),
      yield* trees.usages(kept.map(({ path }) => path))
    )
  )

  const diagnoseCopy = Effect.fnUntraced(function* (each: Judged) {
    const lastUse = RetentionPolicy.effectiveLastUse(each.facts.lastUse, now)
    const examination =
      each.reasons.length === 0
        ? Option.some(yield* examine(each.entry.path, manifestOf(each.copy)))
        : Option.none()
    const measured = yield* Option.match(
      Option.flatMap(examination, ({ scan }) => scan),
      {
        onNone: () => {
          const usage = usages.get(each.entry.position)
          return usage === undefined ? Effect.result(trees.usage(each.entry.path)) : Effect.succeed(usage)
        },
        onSome: (scan) => Effect.succeed(Result.succeed(scan))
      }
    )
    const known = [
      ...each.reasons,
      ...Arr.fromNullishOr(Option.getOrUndefined(Option.map(examination, reasonOf)))
    ]
    // A copy that cannot be measured cannot be read either, and that is a reason of its own.
    const reasons =
      Result.isFailure(measured) && known.every(({ _tag }) => _tag !== "Unreadable")
        ? [...known, obstacleOf(measured.failure)]
        : known
    return {
      _tag: "Copy",
      ...each.copy,
      decision: reasons.length === 0 ? "evict" : "retain",
      reasons,
      lastUsedAt: lastUse._tag === "Recorded" ? Option.some(lastUse.at) : Option.none(),
      apparentBytes: Result.isSuccess(measured) ? measured.success.apparentBytes : 0n,
      allocatedBytes: Result.isSuccess(measured) ? measured.success.allocatedBytes : 0n
    } satisfies Diagnosis
  })

  return yield* Effect.forEach(
    entries,
    (entry): Effect.Effect<ReadonlyArray<Diagnosis>, never, Trees.Trees> => {
      const copy = judged.get(entry.position)
      if (copy !== undefined) return Effect.map(diagnoseCopy(copy), Arr.of)
      if (entry._tag === "Entry" && entry.name._tag !== "Copy") {
        return Effect.succeed([
          {
            _tag: "Leftover",
            companyId: entry.companyId,
            skillId: entry.skillId,
            kind: entry.name._tag,
            path: entry.shownPath
          }
        ])
      }
      return Effect.succeed(
        entry._tag === "Obstacle"
          ? [{ _tag: "Obstacle", companyId: entry.companyId, reason: entry.reason }]
          : []
      )
    }
  )
})

const diagnoseWith = Effect.fnUntraced(function* ({ companyId, versionId }: DiagnoseOptions) {
  const store = yield* VersionStore.VersionStore
  yield* requireCompany(companyId)
  return store.entries({ company: companyId }).pipe(
    Stream.filter(
      (entry) =>
        versionId === undefined ||
        (entry._tag === "Entry" && entry.name._tag !== "Trash" && entry.name.versionId === versionId) ||
        (entry._tag === "Obstacle" && Option.contains(entry.versionId, versionId))
    ),
    Stream.grouped(maxBatch),
    Stream.mapEffect(diagnoseEntries),
    Stream.flatMap((groups) => Stream.fromIterable(groups.flat()))
  )
})

/**
 * The retention on the services of the host.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<
  SkillVersionRetention,
  never,
  Services | RetentionSettings.RetentionSettings
> = Layer.effect(
  SkillVersionRetention,
  Effect.gen(function* () {
    const context = Context.add(
      yield* services,
      RetentionSettings.RetentionSettings,
      yield* RetentionSettings.RetentionSettings
    )
    // One sweep at a time: two would only prove the same copies twice and compete for the same locks.
    const running = yield* Semaphore.make(1)
    const enter = Effect.acquireRelease(
      Effect.filterOrFail(running.takeIfAvailable(1), Function.identity, () => new SweepInProgress({})),
      () => running.release(1)
    )
    return SkillVersionRetention.of({
      sweep: (options = {}) =>
        Stream.unwrap(Effect.andThen(enter, sweepWith(options))).pipe(
          Stream.withSpan("SkillVersionRetention.sweep", {
            attributes: { "reclaim.company.id": options.companyId, "reclaim.dry_run": options.dryRun }
          }),
          Stream.provideContext(context)
        ),
      diagnose: (options = {}) => Stream.unwrap(diagnoseWith(options)).pipe(Stream.provideContext(context))
    })
  })
)
