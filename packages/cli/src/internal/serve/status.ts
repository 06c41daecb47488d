/** What the host tells about itself, as a document. */
import type { BackupReport, VersionReport } from "@reclaim/core"
import type { HostControls, Workers } from "@reclaim/runtime"
import { type DateTime, Option } from "effect"
import type * as Output from "../../Output.ts"

/** Everything that is true of the host at one moment. */
export interface Moment {
  readonly now: DateTime.Utc
  readonly startedAt: DateTime.Utc
  readonly version: string
  readonly server: string
  readonly phase: HostControls.HostPhase
  /** Why it is not ready. */
  readonly reasons: ReadonlyArray<string>
  readonly versions: Workers.Status<VersionReport.VersionReport>
  readonly backups: Workers.Status<BackupReport.BackupReport>
}

const worker = <Report extends object>(status: Workers.Status<Report>) => ({
  ...status,
  lastSweep: Option.map(status.lastSweep, ({ report, ...sweep }) => ({ ...sweep, ...report }))
})

export const document = (moment: Moment): Output.Status => ({
  type: "status",
  version: moment.version,
  server: moment.server,
  startedAt: moment.startedAt,
  phase: moment.phase,
  ready: moment.reasons.length === 0,
  reasons: moment.reasons,
  skillVersions: worker(moment.versions),
  backups: worker(moment.backups)
})
