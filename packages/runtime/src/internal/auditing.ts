import {
  CopyComparison,
  FaultPoint,
  type Ids,
  type Manifest,
  VersionAudit,
  VersionReason
} from "@reclaim/core"
import { DatabaseError, SkillPins, Transactions } from "@reclaim/db"
import { type CopyRef, type FileError, Trees, VersionStore } from "@reclaim/fs"
import { Array as Arr, Clock, Duration, Effect, Option, Schema } from "effect"
import { largest, obstacleOf } from "./examination.ts"
import { ensure } from "./restoration.ts"
import type { DatabaseFailure, Services } from "./services.ts"

const afterSlice = FaultPoint.make("audit.afterSlice")
const betweenSlices = FaultPoint.make("audit.betweenSlices")
const beforeRepair = FaultPoint.make("audit.beforeRepair")
const afterRepair = FaultPoint.make("audit.afterRepair")

// 250 ms: what whoever moves a copy waits at most because of an audit (S-27).
const slice = Duration.millis(250)
// 50 ms: the exclusive lock is only ever tried. Without a pause nobody who tries would meet a free moment.
const pause = Duration.millis(50)
// 1 ms: the shortest wait that a server knows; 0 would be none that ends.
const impatience = Duration.millis(1)
// 3: a copy that changed during each of three readings is being written.
const attempts = 3

/**
 * Whether the last one who asked for the company's lock waited for it in vain. Then the next ones try it
 * only, so that a busy company costs one wait and not one for each copy. Mutable: it is one audit's own.
 */
export interface Busy {
  shared: boolean
  exclusive: boolean
}

/** How a copy was found; none when it is gone. */
type Found = Option.Option<VersionAudit.Verdict>

/** One reading of a copy; `reason` is for a copy that never comes to rest. */
type Reading =
  | { readonly _tag: "Found"; readonly found: Found }
  | { readonly _tag: "Again"; readonly reason: VersionReason.VersionSkip }

const found = (verdict: VersionAudit.Verdict): Reading => ({ _tag: "Found", found: Option.some(verdict) })

const changed: Reading = { _tag: "Again", reason: { _tag: "ChangedMeanwhile", what: "the contents" } }

const isDatabaseError = Schema.is(DatabaseError.DatabaseError)

const isBusy = (error: unknown): boolean => isDatabaseError(error) && error.reason._tag === "LockTimeout"

/** What a failure of the database means for one copy; none when it concerns the whole audit. */
const skipOf = (error: DatabaseError.DatabaseError): Option.Option<VersionReason.VersionSkip> =>
  isBusy(error)
    ? Option.some({ _tag: "CompanyBusy" })
    : DatabaseError.isPassing(error)
      ? Option.some({ _tag: "LockLost" })
      : Option.none()

/** Looks at files while no copy of the company can be moved. */
const underLock = Effect.fnUntraced(function* <A, E, R>(
  companyId: Ids.CompanyId,
  busy: Busy,
  look: Effect.Effect<A, E, R>
) {
  const transactions = yield* Transactions.Transactions
  return yield* transactions
    .companyShared(companyId, () => look, {
      operation: "auditing a copy",
      ...(busy.shared ? { lockTimeout: impatience } : {})
    })
    .pipe(
      Effect.tap(() => Effect.sync(() => (busy.shared = false))),
      Effect.tapError((error) => Effect.sync(() => (busy.shared = isBusy(error))))
    )
})

const letOthersIn = Effect.flatMap(DatabaseError.WaitClock, (clock) =>
  Effect.provideService(Effect.sleep(pause), Clock.Clock, clock)
)

/** Reads a tree in slices, each under the lock. None when the copy is gone. */
const readTree = Effect.fnUntraced(function* (copy: CopyRef.CopyRef, busy: Busy, options: Trees.ScanOptions) {
  const store = yield* VersionStore.VersionStore
  const trees = yield* Trees.Trees
  const sliced = yield* trees.scanSliced(store.pathOf(copy), { ...options, slice })
  const start = Effect.gen(function* () {
    const info = yield* store.inspect(copy)
    if (Option.isNone(info)) return Option.none()
    return Option.some(yield* sliced.advance)
  })
  let step: typeof start = start
  for (let slices = 1; ; slices++) {
    const read = yield* underLock(
      copy.companyId,
      busy,
      Effect.tap(step, () => afterSlice)
    )
    if (Option.isNone(read)) return Option.none()
    if (Option.isSome(read.value)) return Option.some({ scan: read.value.value, slices })
    yield* betweenSlices
    yield* letOthersIn
    step = Effect.asSome(sliced.advance)
  }
}, Effect.scoped)

/**
 * Reads and compares a copy once. What was read in one slice before may be another thing in the next; so where
 * there was more than one, everything is looked at again, and must be what it was when it was read.
 */
const readOnce = (copy: CopyRef.CopyRef, manifest: Manifest.Manifest, busy: Busy) =>
  Effect.gen(function* () {
    const comparator = CopyComparison.make(manifest, "serving")
    const read = yield* readTree(copy, busy, {
      digests: true,
      maxDigestBytes: largest(manifest),
      onEntries: (entries) => {
        for (const entry of entries) comparator.add(entry)
      }
    })
    if (Option.isNone(read)) return { _tag: "Found", found: Option.none() } satisfies Reading
    const { scan, slices } = read.value
    if (slices > 1) {
      const after = yield* readTree(copy, busy, { digests: false })
      if (!Option.exists(after, (last) => last.scan.fingerprint === scan.fingerprint)) return changed
    }
    return found(VersionAudit.fromComparison(comparator.finish()))
  }).pipe(
    Effect.catchTags({
      FileError: (error) =>
        Effect.succeed(
          error.code === "ENOENT" || error.code === "ECHANGED"
            ? changed
            : found(VersionAudit.fromReason(obstacleOf(error)))
        ),
      DatabaseError: (error) =>
        Option.match(skipOf(error), {
          onNone: () => Effect.fail(error),
          onSome: (reason) =>
            Effect.succeed<Reading>(
              reason._tag === "CompanyBusy"
                ? found(VersionAudit.fromReason(reason))
                : { _tag: "Again", reason }
            )
        })
    })
  )

/** Tells what a copy is; none when it is gone by now. A copy that never comes to rest cannot be proven. */
export const inspect = Effect.fnUntraced(function* (
  copy: CopyRef.CopyRef,
  manifest: Manifest.Manifest,
  busy: Busy
): Effect.fn.Return<Found, DatabaseFailure, Services> {
  for (let attempt = 1; ; attempt++) {
    const reading = yield* readOnce(copy, manifest, busy)
    if (reading._tag === "Found") return reading.found
    if (attempt === attempts) return Option.some(VersionAudit.fromReason(reading.reason))
  }
})

/** A version that an active run pins, and what was found in place of its copy. */
export interface Absent {
  readonly copy: CopyRef.CopyRef
  readonly verdict: VersionAudit.Verdict
}

/**
 * The versions that active runs pin and that have no copy, or none that can be looked at. Those that seem to
 * be missing are looked for once more under the lock: somebody could have moved them just then.
 */
export const absent = Effect.fnUntraced(function* (
  companyId: Ids.CompanyId,
  busy: Busy
): Effect.fn.Return<ReadonlyArray<Absent>, DatabaseFailure, Services> {
  const pins = yield* SkillPins.SkillPins
  const store = yield* VersionStore.VersionStore
  const lookFor = (copy: CopyRef.CopyRef) =>
    store.inspect(copy).pipe(
      Effect.map((info) => (Option.isSome(info) ? [] : [{ copy, verdict: VersionAudit.missing }])),
      Effect.catchTag("FileError", (error: FileError.FileError) =>
        Effect.succeed([{ copy, verdict: VersionAudit.fromReason(obstacleOf(error)) }])
      )
    )
  const look = (concerned: (versionId: Ids.VersionId) => boolean) =>
    Effect.gen(function* () {
      const active = yield* pins.activePins(companyId)
      const copies = new Map(
        active
          .filter(({ versionId }) => concerned(versionId))
          .map(({ skillId, versionId }) => [versionId, { companyId, skillId, versionId }])
      )
      return Arr.flatten(yield* Effect.forEach(copies.values(), lookFor))
    })
  const suspects = yield* look(() => true)
  if (suspects.length === 0) return []
  const ids = new Set(suspects.map(({ copy }) => copy.versionId))
  return yield* underLock(
    companyId,
    busy,
    look((versionId) => ids.has(versionId))
  ).pipe(
    Effect.catchTag("DatabaseError", (error) =>
      Option.match(skipOf(error), {
        onNone: () => Effect.fail(error),
        onSome: (reason) =>
          Effect.succeed(suspects.map(({ copy }) => ({ copy, verdict: VersionAudit.fromReason(reason) })))
      })
    )
  )
})

/**
 * Repairs copies as a preparation would, and tells of each that did not become whole why not. It begins with
 * a look of its own: what somebody else repaired meanwhile is left as it is.
 */
export const repair = Effect.fnUntraced(function* (
  companyId: Ids.CompanyId,
  copies: ReadonlyArray<CopyRef.CopyRef>,
  busy: Busy
): Effect.fn.Return<
  ReadonlyMap<Ids.VersionId, VersionReason.VersionReason | VersionReason.VersionSkip>,
  DatabaseFailure,
  Services
> {
  yield* beforeRepair
  const refused = yield* ensure(companyId, copies, {
    verify: "digest",
    healing: true,
    ...(busy.exclusive ? { patience: Duration.zero } : {})
  }).pipe(
    Effect.map((outcomes) =>
      outcomes.flatMap((outcome) =>
        outcome._tag === "Missing" ? [[outcome.copy.versionId, outcome.reason] as const] : []
      )
    ),
    Effect.catchTag("DatabaseError", (error) =>
      Option.match(skipOf(error), {
        onNone: () => Effect.fail(error),
        onSome: (reason) => Effect.succeed(copies.map(({ versionId }) => [versionId, reason] as const))
      })
    )
  )
  busy.exclusive = refused.some(([, { _tag }]) => _tag === "CompanyBusy")
  yield* afterRepair
  return new Map(refused)
})
