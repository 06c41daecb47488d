import { FaultPoint, type Ids, RetentionPolicy, RetentionSettings } from "@reclaim/core"
import { DatabaseError, Transactions } from "@reclaim/db"
import { AccessRecords, type BytePath, FileError, VersionStore } from "@reclaim/fs"
import { Array as Arr, DateTime, Duration, Effect, Option, Schema, Stream } from "effect"
import { evict } from "./eviction.ts"
import { type Examination, examineAll } from "./examination.ts"
import { clocks, type Judged, type Judgement, type ManifestOf, manifestsOf, reasonOf } from "./judgement.ts"
import {
  comparable,
  type Found,
  type LeftoverEntry,
  look,
  oneForEachName,
  plan,
  settle,
  vanished
} from "./settlement.ts"
import type { DatabaseFailure, Services } from "./services.ts"
import { deleteTrash } from "./trash.ts"

const afterObserve = FaultPoint.make("sweep.afterObserve")

// 1 hour: a record is written in milliseconds; what is left of one that long after belongs to a crash.
const temporaryAge = Duration.hours(1)

const isFileError = Schema.is(FileError.FileError)

/** What one batch does and counts. Mutable: it is the loop's own. */
interface Batch {
  /** False for a dry run: it plans and counts, and changes nothing. */
  readonly wet: boolean
  readonly now: RetentionPolicy.Now
  readonly counts: ReturnType<typeof makeCounts>
  readonly skipped: Record<string, number>
  /** Companies whose lock somebody else holds: not asked again in this batch. */
  readonly busy: Set<Ids.CompanyId>
  readonly trash: Array<{ readonly companyId: Ids.CompanyId; readonly path: BytePath.BytePath }>
}

const makeCounts = () => ({
  considered: 0,
  candidates: 0,
  candidateAllocatedBytes: 0n,
  evicted: 0,
  undone: 0,
  reclaimedAllocatedBytes: 0n,
  trashFinished: 0,
  trashWaiting: 0,
  settled: 0,
  errors: 0
})

/** What a batch did, as far as its entries tell. */
export interface Swept extends Readonly<ReturnType<typeof makeCounts>> {
  readonly skipped: Readonly<Record<string, number>>
}

/** Counts an entry that stays, once under each of its reasons. */
const skip = ({ skipped }: Batch, ...reasons: ReadonlyArray<{ readonly _tag: string }>): void => {
  for (const tag of new Set(reasons.map(({ _tag }) => _tag))) skipped[tag] = (skipped[tag] ?? 0) + 1
}

/** A file that cannot be looked at, written or removed is counted and does not end the batch. */
const attempt = <A, E, R>({ counts }: Batch, effect: Effect.Effect<A, E | FileError.FileError, R>) =>
  Effect.catchIf(Effect.asSome(effect), isFileError, (error) => {
    counts.errors += 1
    return Effect.as(Effect.logWarning(`an entry could not be handled: ${error.message}`), Option.none<A>())
  })

/**
 * Whether an instant that a file tells is at least `age` ago. In milliseconds, because some file systems
 * hold times that no date can express.
 */
const isOlder = (batch: Batch, millis: number, age: Duration.Duration): boolean =>
  DateTime.toEpochMillis(RetentionPolicy.fileClock(batch.now)) - millis >= Duration.toMillis(age)

const modifiedAt = ({ mtimeNs }: { readonly mtimeNs: bigint }): number => Number(mtimeNs / 1_000_000n)

/** Whether a window of observation starts: never where the record could not be looked at, it may be there. */
const isObserved = ({ facts, reasons }: Judged): boolean =>
  facts.obstacles.length === 0 && reasons.some(({ _tag }) => _tag === "Observing")

/** Starts the windows of copies without a record of use. */
const observe = Effect.fnUntraced(function* (batch: Batch, copies: ReadonlyArray<Judged>) {
  if (!batch.wet || copies.length === 0) return
  const records = yield* AccessRecords.AccessRecords
  // Not as of the judgement, which may be minutes old: each gets a whole window.
  const { database } = yield* clocks
  for (const { copy } of copies) {
    yield* attempt(batch, records.observe(copy, database))
    yield* afterObserve
  }
})

/** A copy that nothing keeps but, perhaps, its contents. */
const consider = Effect.fnUntraced(function* (
  batch: Batch,
  { copy, revision }: Judged,
  examination: Examination
) {
  if (batch.busy.has(copy.companyId)) return skip(batch, { _tag: "CompanyBusy" })
  const reason = reasonOf(examination)
  if (reason !== undefined) {
    // Another server evicted it, or somebody writes in it: no reason of the copy's own.
    return skip(
      batch,
      reason._tag === "Unreadable" && vanished(reason) ? { _tag: "ChangedMeanwhile" } : reason
    )
  }
  const scan = yield* Effect.fromOption(examination.scan).pipe(Effect.orDie)
  batch.counts.candidates += 1
  batch.counts.candidateAllocatedBytes += scan.allocatedBytes
  if (!batch.wet) return
  const eviction = yield* evict({ copy, revision, scan })
  if (eviction._tag === "Evicted") {
    batch.counts.evicted += 1
    batch.trash.push({ companyId: copy.companyId, path: eviction.trash })
    return
  }
  const { because, stuck, undone } = eviction
  skip(batch, because)
  if (stuck) batch.counts.errors += 1
  if (undone) batch.counts.undone += 1
  if (because._tag === "CompanyBusy") batch.busy.add(copy.companyId)
  yield* Effect.logDebug("a copy stays after all").pipe(
    Effect.annotateLogs({ company: copy.companyId, version: copy.versionId, because })
  )
})

/** What a crashed process left of a copy. */
const putRight = Effect.fnUntraced(function* (batch: Batch, found: Found, manifestOf: ManifestOf) {
  const { companyId } = found.copy
  const planned = yield* plan(found, manifestOf)
  if (planned._tag === "Stays")
    return planned.because === undefined ? undefined : skip(batch, planned.because)
  if (!batch.wet) return
  if (batch.busy.has(companyId)) return skip(batch, { _tag: "CompanyBusy" })
  const settlement = yield* settle(planned)
  if (settlement._tag === "Settled") {
    batch.counts.settled += 1
    if (Option.isSome(settlement.trash)) batch.trash.push({ companyId, path: settlement.trash.value })
    return
  }
  skip(batch, settlement.because)
  if (settlement.because._tag === "CompanyBusy") batch.busy.add(companyId)
})

/**
 * Records of use without a copy. They are removed under the exclusive lock after one more look: since they
 * were listed the copy may have come back, and the record of a copy that is just leaving is its evictor's.
 */
const removeOrphans = Effect.fnUntraced(function* (
  batch: Batch,
  companyId: Ids.CompanyId,
  orphans: ReadonlyArray<VersionStore.Orphan>
) {
  const transactions = yield* Transactions.Transactions
  const records = yield* AccessRecords.AccessRecords
  const store = yield* VersionStore.VersionStore
  const { grace } = yield* RetentionSettings.RetentionSettings
  const old = orphans.filter(({ info, lastUse }) => {
    const effective = RetentionPolicy.effectiveLastUse(lastUse, batch.now)
    const usedAt = effective._tag === "Recorded" ? DateTime.toEpochMillis(effective.at) : modifiedAt(info)
    return isOlder(batch, usedAt, grace)
  })
  // An old record costs a few bytes: it can wait until the company is not busy.
  if (old.length === 0 || batch.busy.has(companyId)) return
  const remove = Effect.fnUntraced(function* (orphan: VersionStore.Orphan) {
    if (Option.isNone(yield* store.inspect(orphan))) yield* records.remove(orphan)
  })
  yield* transactions
    .companyExclusive(companyId, () =>
      Effect.forEach(old, (orphan) => attempt(batch, remove(orphan)), { discard: true })
    )
    .pipe(
      Effect.catchTags({
        CompanyBusy: () => Effect.void,
        DatabaseError: (error) =>
          DatabaseError.isPassing(error)
            ? Effect.logWarning(`records without a copy are left for later: ${error.message}`)
            : Effect.fail(error)
      })
    )
})

/** What is left of a skill without copies, and what crashed processes left beside its records. */
const tidySkill = Effect.fnUntraced(function* (batch: Batch, end: VersionStore.SkillEnd) {
  const records = yield* AccessRecords.AccessRecords
  const store = yield* VersionStore.VersionStore
  const { grace } = yield* RetentionSettings.RetentionSettings
  const { companyId, skillId } = end
  const before = DateTime.subtractDuration(RetentionPolicy.fileClock(batch.now), temporaryAge)
  yield* records.removeTemporaries(companyId, skillId, before)
  if (end.empty && isOlder(batch, modifiedAt(end.info), grace)) {
    yield* store.removeEmptySkill(companyId, skillId)
  }
})

const isLeftover = (entry: VersionStore.StoreEntry): entry is LeftoverEntry =>
  entry._tag === "Entry" && entry.name._tag !== "Copy" && entry.name._tag !== "Trash"

/** Whether an entry counts towards the limit of a batch: a version folder, a leftover, or an obstacle. */
export const isConsidered = ({ _tag }: VersionStore.StoreEntry): boolean =>
  _tag === "Entry" || _tag === "Obstacle"

/**
 * Considers some entries, which were judged with others maybe, and does, unless the run is dry, what the plan
 * says. Interruption takes effect between entries.
 */
export const sweepEntries = Effect.fnUntraced(function* (
  entries: ReadonlyArray<VersionStore.StoreEntry>,
  judgement: Judgement,
  options: { readonly dryRun: boolean }
): Effect.fn.Return<Swept, DatabaseFailure, Services | RetentionSettings.RetentionSettings> {
  const { now } = judgement
  const its = new Set(entries)
  const judged = judgement.judged.filter(({ entry }) => its.has(entry))
  const batch: Batch = {
    wet: !options.dryRun,
    now,
    counts: makeCounts(),
    skipped: {},
    busy: new Set(),
    trash: []
  }
  const { counts, trash, wet } = batch
  counts.considered = entries.filter(isConsidered).length

  const candidates = judged.filter(({ reasons }) => reasons.length === 0)
  const { grace } = yield* RetentionSettings.RetentionSettings
  const found = yield* Effect.forEach(entries.filter(isLeftover), (entry) => attempt(batch, look(entry, now)))
  const leftovers = yield* comparable(oneForEachName(Arr.getSomes(found), grace))
  const manifestOf = yield* manifestsOf([
    ...candidates.map(({ copy }) => copy),
    ...leftovers.flatMap(({ copy, revision }) => (Option.isSome(revision) ? [copy] : []))
  ])

  const kept = judged.filter(({ reasons }) => reasons.length > 0)
  for (const { reasons } of kept) skip(batch, ...reasons)
  yield* observe(batch, kept.filter(isObserved))
  // Leftovers first: one that is judged beside its copy must not find the copy gone.
  for (const leftover of leftovers) yield* attempt(batch, putRight(batch, leftover, manifestOf))
  yield* examineAll(candidates, ({ copy, entry }) => ({ path: entry.path, manifest: manifestOf(copy) })).pipe(
    Stream.runForEach(({ examination, item }) => consider(batch, item, examination))
  )
  for (const entry of entries) {
    if (entry._tag === "Obstacle") skip(batch, entry.reason)
    else if (entry._tag === "SkillEnd" && wet) yield* attempt(batch, tidySkill(batch, entry))
    else if (entry._tag === "Entry" && entry.name._tag === "Trash") {
      trash.push({ companyId: entry.companyId, path: entry.path })
    }
  }

  const orphans = wet ? entries.filter((entry) => entry._tag === "Orphan") : []
  for (const records of Object.values(Arr.groupBy(orphans, ({ companyId }) => companyId))) {
    yield* removeOrphans(batch, records[0].companyId, records)
  }

  const byCompany = wet ? Object.values(Arr.groupBy(trash, ({ companyId }) => companyId)) : []
  for (const folders of byCompany) {
    const paths = folders.map(({ path }) => path)
    const deletion = yield* deleteTrash(folders[0].companyId, paths)
    counts.trashFinished += deletion.finished
    counts.trashWaiting += deletion.waiting
    counts.reclaimedAllocatedBytes += deletion.reclaimedBytes
    counts.errors += deletion.left
  }
  return { ...counts, skipped: batch.skipped }
})
