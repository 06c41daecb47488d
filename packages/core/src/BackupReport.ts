/**
 * Counts what one batch of the expiration sweep did, and adds batches up.
 *
 * **Details**
 *
 * Reports form a monoid: `empty` changes nothing and the grouping of batches does not matter. Byte figures
 * are bigint, so a pass over any disk adds up exactly.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"
import { addCounts } from "./VersionReport.ts"

const Count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))
const Bytes = Schema.BigInt.check(Schema.isGreaterThanOrEqualToBigInt(0n))

/**
 * - `checked`: session scopes looked at.
 * - `candidates`, `candidateAllocatedBytes`: scopes whose backup nothing keeps, and what it occupies on disk.
 * - `expired`: scopes whose backup went.
 * - `reclaimedAllocatedBytes`: what deleting expired backups really freed.
 * - `clearedTaskSessions`: agent task sessions that were removed with them.
 * - `recovered`: backups that an interrupted expiration had moved and that are `current` again.
 * - `skipped`: per reason or skip, how many scopes kept their backup for it. A scope counts under each reason.
 * - `durationMillis`: whole milliseconds, because fractions do not add up the same in every grouping.
 *
 * @category models
 * @since 0.1.0
 */
export class BackupReport extends Schema.Class<BackupReport>("BackupReport")({
  checked: Count,
  candidates: Count,
  candidateAllocatedBytes: Bytes,
  expired: Count,
  reclaimedAllocatedBytes: Bytes,
  clearedTaskSessions: Count,
  recovered: Count,
  skipped: Schema.Record(Schema.String, Count),
  errors: Count,
  durationMillis: Count
}) {}

/** @category constructors @since 0.1.0 */
export const empty: BackupReport = BackupReport.make({
  checked: 0,
  candidates: 0,
  candidateAllocatedBytes: 0n,
  expired: 0,
  reclaimedAllocatedBytes: 0n,
  clearedTaskSessions: 0,
  recovered: 0,
  skipped: {},
  errors: 0,
  durationMillis: 0
})

/**
 * Adds two reports.
 *
 * @category combining
 * @since 0.1.0
 */
export const combine = (left: BackupReport, right: BackupReport): BackupReport =>
  BackupReport.make({
    checked: left.checked + right.checked,
    candidates: left.candidates + right.candidates,
    candidateAllocatedBytes: left.candidateAllocatedBytes + right.candidateAllocatedBytes,
    expired: left.expired + right.expired,
    reclaimedAllocatedBytes: left.reclaimedAllocatedBytes + right.reclaimedAllocatedBytes,
    clearedTaskSessions: left.clearedTaskSessions + right.clearedTaskSessions,
    recovered: left.recovered + right.recovered,
    skipped: addCounts(left.skipped, right.skipped),
    errors: left.errors + right.errors,
    durationMillis: left.durationMillis + right.durationMillis
  })

/**
 * The report as the fields of one structured log line: bytes as numbers, because log pipelines know no
 * bigint.
 *
 * @category formatting
 * @since 0.1.0
 */
export const toLog = (report: BackupReport): Readonly<Record<string, unknown>> => ({
  checked: report.checked,
  candidates: report.candidates,
  candidateAllocatedBytes: Number(report.candidateAllocatedBytes),
  expired: report.expired,
  reclaimedAllocatedBytes: Number(report.reclaimedAllocatedBytes),
  clearedTaskSessions: report.clearedTaskSessions,
  recovered: report.recovered,
  skipped: report.skipped,
  errors: report.errors,
  durationMillis: report.durationMillis
})
