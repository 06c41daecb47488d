/**
 * Counts what one batch of the retention sweep did, and adds batches up.
 *
 * **Details**
 *
 * Reports form a monoid: `empty` changes nothing and the order of adding does not matter for the sum of
 * neighbours. Byte figures are bigint, so a pass over any disk adds up exactly.
 *
 * @since 0.1.0
 */
import { Option, Schema } from "effect"

const Count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))
const Bytes = Schema.BigInt.check(Schema.isGreaterThanOrEqualToBigInt(0n))

/**
 * - `considered`: entries looked at, copies and leftovers.
 * - `candidates`, `candidateAllocatedBytes`: copies that nothing keeps, and what they occupy on disk.
 * - `evicted`, `undone`: copies that went, and moves that were taken back.
 * - `reclaimedAllocatedBytes`: what deleting trash really freed.
 * - `trashFinished`, `trashWaiting`: trash folders that are gone completely, and ones left to a later sweep.
 * - `settled`, `healed`: leftovers put right, and missing copies of active runs that were restored.
 * - `skipped`: per reason or skip, how many entries stayed for it. An entry counts under each reason.
 * - `durationMillis`: whole milliseconds, because fractions do not add up the same in every grouping.
 * - `freeBytesBefore`, `freeBytesAfter`: free space of the volume, none where it could not be read.
 *
 * @category models
 * @since 0.1.0
 */
export class VersionReport extends Schema.Class<VersionReport>("VersionReport")({
  considered: Count,
  candidates: Count,
  candidateAllocatedBytes: Bytes,
  evicted: Count,
  undone: Count,
  reclaimedAllocatedBytes: Bytes,
  trashFinished: Count,
  trashWaiting: Count,
  settled: Count,
  healed: Count,
  skipped: Schema.Record(Schema.String, Count),
  errors: Count,
  durationMillis: Count,
  freeBytesBefore: Schema.Option(Bytes),
  freeBytesAfter: Schema.Option(Bytes)
}) {}

/** @category constructors @since 0.1.0 */
export const empty: VersionReport = VersionReport.make({
  considered: 0,
  candidates: 0,
  candidateAllocatedBytes: 0n,
  evicted: 0,
  undone: 0,
  reclaimedAllocatedBytes: 0n,
  trashFinished: 0,
  trashWaiting: 0,
  settled: 0,
  healed: 0,
  skipped: {},
  errors: 0,
  durationMillis: 0,
  freeBytesBefore: Option.none(),
  freeBytesAfter: Option.none()
})

/** Adds counts under the same names. @category combining @since 0.1.0 */
export const addCounts = (
  left: Readonly<Record<string, number>>,
  right: Readonly<Record<string, number>>
): Readonly<Record<string, number>> => {
  const sum = new Map(Object.entries(left))
  for (const [name, count] of Object.entries(right)) sum.set(name, (sum.get(name) ?? 0) + count)
  return Object.fromEntries(sum)
}

/**
 * Adds two reports, `left` being the earlier one.
 *
 * @category combining
 * @since 0.1.0
 */
export const combine = (left: VersionReport, right: VersionReport): VersionReport =>
  VersionReport.make({
    considered: left.considered + right.considered,
    candidates: left.candidates + right.candidates,
    candidateAllocatedBytes: left.candidateAllocatedBytes + right.candidateAllocatedBytes,
    evicted: left.evicted + right.evicted,
    undone: left.undone + right.undone,
    reclaimedAllocatedBytes: left.reclaimedAllocatedBytes + right.reclaimedAllocatedBytes,
    trashFinished: left.trashFinished + right.trashFinished,
    trashWaiting: left.trashWaiting + right.trashWaiting,
    settled: left.settled + right.settled,
    healed: left.healed + right.healed,
    skipped: addCounts(left.skipped, right.skipped),
    errors: left.errors + right.errors,
    durationMillis: left.durationMillis + right.durationMillis,
    freeBytesBefore: Option.orElse(left.freeBytesBefore, () => right.freeBytesBefore),
    freeBytesAfter: Option.orElse(right.freeBytesAfter, () => left.freeBytesAfter)
  })

/**
 * The report as the fields of one structured log line: bytes as numbers, because log pipelines know no
 * bigint, and free space only where it is known.
 *
 * @category formatting
 * @since 0.1.0
 */
export const toLog = (report: VersionReport): Readonly<Record<string, unknown>> => ({
  considered: report.considered,
  candidates: report.candidates,
  candidateAllocatedBytes: Number(report.candidateAllocatedBytes),
  evicted: report.evicted,
  undone: report.undone,
  reclaimedAllocatedBytes: Number(report.reclaimedAllocatedBytes),
  trashFinished: report.trashFinished,
  trashWaiting: report.trashWaiting,
  settled: report.settled,
  healed: report.healed,
  skipped: report.skipped,
  errors: report.errors,
  durationMillis: report.durationMillis,
  freeBytesBefore: Option.getOrUndefined(Option.map(report.freeBytesBefore, Number)),
  freeBytesAfter: Option.getOrUndefined(Option.map(report.freeBytesAfter, Number))
})
