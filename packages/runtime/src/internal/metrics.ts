/** The metrics of both workers, named and measured as `docs/operations.md` tells. */
import type { BackupReport, VersionReport } from "@reclaim/core"
import { DateTime, Effect, Metric } from "effect"

type WorkerName = "backups" | "skill-versions"

const counter = (name: string, description: string) =>
  Metric.counter(name, { description, incremental: true })

const bytes = (name: string, description: string) =>
  Metric.counter(name, { description, bigint: true, incremental: true, attributes: { unit: "bytes" } })

const considered = counter("reclaim.sweep.considered", "Copies, leftovers and session scopes looked at")
const candidates = counter("reclaim.sweep.candidates", "Copies and backups that nothing keeps")
const candidateBytes = bytes("reclaim.sweep.candidate.size", "What candidates occupy on disk")
const removed = counter("reclaim.sweep.removed", "Copies evicted and backups expired")
const undone = counter("reclaim.sweep.undone", "Moves that were taken back")
const restored = counter("reclaim.sweep.restored", "Copies healed and backups recovered")
const reclaimedBytes = bytes("reclaim.sweep.reclaimed.size", "What deleting really freed")
const skipped = counter("reclaim.sweep.skipped", "Things that stayed, under each of their reasons")
const errors = counter("reclaim.sweep.errors", "Things that could not be handled")
const batchDuration = Metric.histogram("reclaim.sweep.batch.duration", {
  description: "Duration of one batch",
  // 10 ms to 164 s: an idle batch takes milliseconds, one that deletes gigabytes minutes.
  boundaries: Metric.exponentialBoundaries({ start: 0.01, factor: 4, count: 8 }),
  attributes: { unit: "seconds" }
})
const lastSuccess = Metric.gauge("reclaim.sweep.last_success", {
  description: "When the last whole pass ended, as a Unix time",
  attributes: { unit: "seconds" }
})
const trashWaiting = Metric.gauge("reclaim.trash.waiting", {
  description: "Trash folders that the last whole pass left to the next one"
})

const add = <Input extends bigint | number>(
  metric: Metric.Metric<Input, unknown>,
  attributes: Readonly<Record<string, string>>,
  value: Input
) => Metric.update(Metric.withAttributes(metric, attributes), value)

/** What the workers count under names of their own. */
interface Figures {
  readonly considered: number
  readonly removed: number
  readonly undone: number
  readonly restored: number
}

/** Also from a dry run, which is told apart: its candidates are no work that was done. */
const record = Effect.fnUntraced(function* (
  worker: WorkerName,
  dryRun: boolean,
  report: BackupReport.BackupReport | VersionReport.VersionReport,
  figures: Figures
) {
  const attributes = { "reclaim.worker": worker, "reclaim.dry_run": String(dryRun) }
  yield* add(considered, attributes, figures.considered)
  yield* add(candidates, attributes, report.candidates)
  yield* add(candidateBytes, attributes, report.candidateAllocatedBytes)
  yield* add(removed, attributes, figures.removed)
  yield* add(undone, attributes, figures.undone)
  yield* add(restored, attributes, figures.restored)
  yield* add(reclaimedBytes, attributes, report.reclaimedAllocatedBytes)
  yield* add(errors, attributes, report.errors)
  yield* add(batchDuration, attributes, report.durationMillis / 1000)
  for (const [reason, times] of Object.entries(report.skipped)) {
    yield* add(skipped, { ...attributes, "reclaim.reason": reason }, times)
  }
})

/** Counts a batch of the retention. */
export const versions = (report: VersionReport.VersionReport, dryRun: boolean): Effect.Effect<void> =>
  record("skill-versions", dryRun, report, {
    considered: report.considered,
    removed: report.evicted,
    undone: report.undone,
    restored: report.healed
  })

/** Counts a batch of the expiration. */
export const backups = (report: BackupReport.BackupReport, dryRun: boolean): Effect.Effect<void> =>
  record("backups", dryRun, report, {
    considered: report.checked,
    removed: report.expired,
    undone: 0,
    restored: report.recovered
  })

const succeeded = (worker: WorkerName, at: DateTime.Utc) =>
  add(lastSuccess, { "reclaim.worker": worker }, DateTime.toEpochMillis(at) / 1000)

/** A pass of the retention came to its end. */
export const versionsPassed = (pass: VersionReport.VersionReport, at: DateTime.Utc): Effect.Effect<void> =>
  Effect.andThen(Metric.update(trashWaiting, pass.trashWaiting), succeeded("skill-versions", at))

/** A pass of the expiration came to its end. */
export const backupsPassed = (_pass: BackupReport.BackupReport, at: DateTime.Utc): Effect.Effect<void> =>
  succeeded("backups", at)
