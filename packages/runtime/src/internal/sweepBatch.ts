import { FaultPoint, Leftover, RetentionPolicy, RetentionSettings, type VersionReason } from "@reclaim/core"
import { DatabaseClock, Journal, SkillCatalog, SkillPins, Transactions } from "@reclaim/db"
import { AccessRecords, type CopyRef, FileError, InstanceRoots, Trees, VersionStore } from "@reclaim/fs"
import { Array as Arr, DateTime, Duration, Effect, Option, Result, Schema } from "effect"
import { ServerName } from "../ServerName.ts"
import { type Examination, examine, obstacleOf } from "./examination.ts"
import { evict } from "./eviction.ts"
import { versionFacts } from "./facts.ts"
import { deleteTrash } from "./trash.ts"

type Entry<Tag extends VersionStore.Entry["name"]["_tag"]> = VersionStore.Entry & {
  readonly name: Extract<VersionStore.Entry["name"], { readonly _tag: Tag }>
}

/** A copy with all that is known before contents are read: none of `reasons` makes it a candidate. */
export interface Judged {
  readonly copy: CopyRef.CopyRef
  readonly entry: VersionStore.Entry
  readonly facts: RetentionPolicy.VersionFacts
  readonly reasons: ReadonlyArray<VersionReason.VersionReason>
}

const beforeSettle = FaultPoint.make("settle.beforeMove")
const afterSettle = FaultPoint.make("settle.afterMove")
const afterObserve = FaultPoint.make("sweep.afterObserve")

// 16: as many records as are read at once; they are small and mostly in the page cache.
const recordConcurrency = 16

const isCopy = (entry: VersionStore.StoreEntry): entry is Entry<"Copy"> =>
  entry._tag === "Entry" && entry.name._tag === "Copy"

const isFileError = Schema.is(FileError.FileError)

/** The two clocks, read together. */
export const clocks = Effect.gen(function* () {
  const clock = yield* DatabaseClock.DatabaseClock
  return { database: yield* clock.now, local: yield* DateTime.now } satisfies RetentionPolicy.Now
})

/**
 * Judges the copies among some entries, of any number of companies, in a number of statements that does
 * not depend on how many they are. Reads no contents.
 */
export const judge = Effect.fnUntraced(function* (
  entries: ReadonlyArray<VersionStore.StoreEntry>,
  now: RetentionPolicy.Now
) {
  const catalog = yield* SkillCatalog.SkillCatalog
  const pins = yield* SkillPins.SkillPins
  const records = yield* AccessRecords.AccessRecords
  const settings = yield* RetentionSettings.RetentionSettings
  const copies = entries.filter(isCopy).map((entry) => ({
    entry,
    copy: { companyId: entry.companyId, skillId: entry.skillId, versionId: entry.name.versionId }
  }))
  if (copies.length === 0) return []
  const rows = yield* catalog.describe(copies.map(({ copy }) => copy))
  const companyPins = yield* pins.facts(Arr.dedupe(copies.map(({ copy }) => copy.companyId)))
  return yield* Effect.forEach(
    copies,
    ({ copy, entry }) =>
      Effect.map(Effect.result(records.read(copy)), (read): Judged => {
        const facts = versionFacts({
          copy,
          rows,
          pins: companyPins.get(copy.companyId),
          lastUse: Result.getOrElse(read, () => ({ _tag: "Absent" }) as const),
          obstacles: Result.isFailure(read) ? [obstacleOf(read.failure)] : []
        })
        return { copy, entry, facts, reasons: RetentionPolicy.reasonsBeforeProof(facts, settings, now) }
      }),
    { concurrency: recordConcurrency }
  )
})

/** The manifests of some copies, in one statement per company. */
export const manifestsOf = Effect.fnUntraced(function* (copies: ReadonlyArray<CopyRef.CopyRef>) {
  const catalog = yield* SkillCatalog.SkillCatalog
  const { caseInsensitive } = yield* InstanceRoots.InstanceRoots
  const found = yield* Effect.forEach(
    Object.values(Arr.groupBy(copies, ({ companyId }) => companyId)),
    (group) =>
      catalog.manifests(
        group[0].companyId,
        group.map(({ versionId }) => versionId),
        { caseInsensitive }
      )
  )
  return new Map(found.flatMap((manifests) => [...manifests]))
})

/** The reasons of a candidate once it was compared: none means that it may go. */
export const reasonsOf = (
  judged: Judged,
  { proof }: Examination
): ReadonlyArray<VersionReason.VersionReason> => {
  return proof._tag === "Same" ? judged.reasons : [proof._tag === "Obstructed" ? proof.obstacle : proof]
}

/** What one batch does and counts. Mutable: it is the loop's own. */
const makeTally = () => {
  const counts = {
    considered: 0,
    candidates: 0,
    candidateAllocatedBytes: 0n,
    evicted: 0,
    undone: 0,
    reclaimedAllocatedBytes: 0n,
    trashFinished: 0,
    settled: 0,
    errors: 0
  }
  const skipped: Record<string, number> = {}
  return {
    counts,
    skipped,
    skip: (tags: ReadonlyArray<{ readonly _tag: string }>) => {
      for (const tag of new Set(tags.map(({ _tag }) => _tag))) skipped[tag] = (skipped[tag] ?? 0) + 1
    }
  }
}

const isOlder = (nanoseconds: bigint, age: Duration.Duration, now: RetentionPolicy.Now): boolean =>
  DateTime.toEpochMillis(RetentionPolicy.fileClock(now)) - Number(nanoseconds / 1_000_000n) >=
  Duration.toMillis(age)

/**
 * Considers some entries and does, unless the run is dry, what the plan says. Interruption takes effect
 * between entries.
 */
export const sweepEntries = Effect.fnUntraced(function* (
  entries: ReadonlyArray<VersionStore.StoreEntry>,
  options: { readonly dryRun: boolean }
) {
  const transactions = yield* Transactions.Transactions
  const store = yield* VersionStore.VersionStore
  const records = yield* AccessRecords.AccessRecords
  const trees = yield* Trees.Trees
  const journal = yield* Journal.Journal
  const settings = yield* RetentionSettings.RetentionSettings
  const server = yield* ServerName
  const tally = makeTally()
  const { counts } = tally
  const wet = !options.dryRun
  const now = yield* clocks
  /** Companies whose lock somebody else holds: not asked again in this batch. */
  const busy = new Set<string>()
  const trash: Array<{ readonly companyId: CopyRef.CopyRef["companyId"]; readonly path: string }> = []

  const failed = (error: FileError.FileError) => {
    counts.errors += 1
    return Effect.logWarning(`an entry could not be handled: ${error.message}`)
  }

  /** A file that cannot be written or removed is counted and does not end the batch. */
  const attempt = <A, E, R>(effect: Effect.Effect<A, E | FileError.FileError, R>) =>
    Effect.catchIf(Effect.asVoid(effect), isFileError, failed)

  const candidates: Array<Judged> = []
  const judged = yield* judge(entries, now)
  for (const each of judged) {
    counts.considered += 1
    if (each.reasons.length === 0) {
      candidates.push(each)
      continue
    }
    tally.skip(each.reasons)
    // A window starts only where the record is absent, never where it could not be looked at.
    if (wet && each.facts.obstacles.length === 0 && each.reasons.some(({ _tag }) => _tag === "Observing")) {
      yield* attempt(records.observe(each.copy, now.database))
      yield* afterObserve
    }
  }

  const manifests = yield* manifestsOf(candidates.map(({ copy }) => copy))
  for (const candidate of candidates) {
    const { copy, entry } = candidate
    if (busy.has(copy.companyId)) {
      tally.skip([{ _tag: "CompanyBusy" }])
      continue
    }
    const examination = yield* examine(entry.path, manifests.get(copy.versionId))
    const reasons = reasonsOf(candidate, examination)
    if (reasons.length > 0 || Option.isNone(examination.scan)) {
      tally.skip(reasons)
      continue
    }
    const scan = examination.scan.value
    counts.candidates += 1
    counts.candidateAllocatedBytes += scan.allocatedBytes
    if (!wet) continue
    const eviction = yield* evict({ copy, scan })
    if (eviction._tag === "Evicted") {
      counts.evicted += 1
      trash.push({ companyId: copy.companyId, path: eviction.trash })
      continue
    }
    tally.skip([eviction.because])
    if (eviction.undone) counts.undone += 1
    if (eviction.because._tag === "CompanyBusy") busy.add(copy.companyId)
    yield* Effect.logDebug("a copy stays after all").pipe(
      Effect.annotateLogs({ company: copy.companyId, version: copy.versionId, because: eviction.because })
    )
  }

  const settleLeftover = Effect.fnUntraced(function* (entry: Entry<"Staging" | "Evicting" | "Replaced">) {
    const { companyId, name, skillId } = entry
    const copy = { companyId, skillId, versionId: name.versionId }
    // A rename sets the change time, writing into the folder the modification time.
    const since = name._tag === "Evicting" ? entry.info.ctimeNs : entry.info.mtimeNs
    const age = Duration.millis(
      Math.max(0, DateTime.toEpochMillis(RetentionPolicy.fileClock(now)) - Number(since / 1_000_000n))
    )
    const facts = {
      kind: name._tag,
      age,
      nameTaken: Option.isSome(yield* store.inspect(copy)),
      contents: "unproven"
    } satisfies Leftover.LeftoverFacts
    let action = Leftover.settle(facts, settings.grace)
    let scan = Option.none<Trees.TreeScan>()
    if (action._tag === "Prove") {
      const examination = yield* examine(entry.path, (yield* manifestsOf([copy])).get(copy.versionId))
      scan = examination.scan
      action = Leftover.settle({ ...facts, contents: examination.contents }, settings.grace)
    }
    if (action._tag === "Leave") {
      tally.skip([{ _tag: leftoverSkips[action.why] }])
      return
    }
    if (!wet || action._tag === "Delete" || action._tag === "Prove") return
    if (busy.has(companyId)) return tally.skip([{ _tag: "CompanyBusy" }])
    const move = action._tag
    // What was proven must still be there: the same look as before an eviction becomes trash, and like that
    // one outside of the lock, because its time depends on the size of the copy.
    if (Option.isSome(scan)) {
      const again = yield* trees.scan(entry.path, { digests: false })
      if (again.fingerprint !== scan.value.fingerprint) {
        return tally.skip([{ _tag: "ChangedMeanwhile" }])
      }
    }
    const settle = Effect.gen(function* () {
      yield* beforeSettle
      const ref = { companyId, skillId, name }
      if (move === "ToTrash") {
        const moved = yield* store.toTrash(ref)
        if (Option.isNone(moved)) return false
        trash.push({ companyId, path: moved.value.path })
        return true
      }
      if (name._tag !== "Evicting") return false
      const leaving = { ...ref, name }
      // Decided again under the lock: the name may have been given to a new copy meanwhile.
      const done =
        move === "MoveBack"
          ? (yield* store.moveBack(leaving)) === "moved"
          : Option.isSome(yield* store.setAside(leaving))
      if (done) {
        yield* journal.append({
          worker: "skill-versions",
          event: move === "MoveBack" ? "undone" : "set aside",
          companyId,
          skillId,
          versionId: name.versionId,
          scope: null,
          allocatedBytes: 0n,
          digest: null,
          server,
          detail: null
        })
      }
      return done
    })
    const done = yield* transactions
      .companyExclusive(companyId, () => settle)
      .pipe(
        Effect.uninterruptible,
        Effect.catchTag("CompanyBusy", () =>
          Effect.sync(() => {
            busy.add(companyId)
            tally.skip([{ _tag: "CompanyBusy" }])
            return false
          })
        )
      )
    yield* afterSettle
    if (done) counts.settled += 1
  })

  for (const entry of entries) {
    switch (entry._tag) {
      case "Entry":
        if (entry.name._tag === "Copy") break
        counts.considered += 1
        if (entry.name._tag === "Trash") trash.push({ companyId: entry.companyId, path: String(entry.path) })
        else yield* attempt(settleLeftover({ ...entry, name: entry.name }))
        break
      case "Obstacle":
        counts.considered += 1
        tally.skip([entry.reason])
        break
      case "Orphan": {
        const lastUse = RetentionPolicy.effectiveLastUse(entry.lastUse, now)
        const old =
          lastUse._tag === "Recorded"
            ? DateTime.isLessThanOrEqualTo(
                DateTime.addDuration(lastUse.at, settings.grace),
                RetentionPolicy.fileClock(now)
              )
            : isOlder(entry.info.mtimeNs, settings.grace, now)
        if (wet && old) yield* attempt(records.remove(entry))
        break
      }
      case "SkillEnd":
        if (wet && entry.empty && isOlder(entry.info.mtimeNs, settings.grace, now)) {
          yield* attempt(store.removeEmptySkill(entry.companyId, entry.skillId))
        }
    }
  }

  if (wet) {
    for (const folders of Object.values(Arr.groupBy(trash, ({ companyId }) => companyId))) {
      const deletion = yield* deleteTrash(
        folders[0].companyId,
        folders.map(({ path }) => path)
      )
      counts.trashFinished += deletion.finished
      counts.reclaimedAllocatedBytes += deletion.reclaimedBytes
      counts.errors += deletion.left
    }
  }

  return { ...counts, skipped: tally.skipped }
})

/** What a leftover that stays is counted under. */
const leftoverSkips = {
  young: "RecentlyUsed",
  altered: "Differs",
  unprovable: "NotRecoverable"
} as const
