/**
 * Describes every JSON document that the command prints: one per line, told apart by `type`.
 *
 * **Details**
 *
 * Bytes are JSON numbers, instants ISO 8601 in UTC, reasons objects with a `_tag`; what is not known is null.
 * Later versions may add fields and further types of documents, so a reader takes what it knows and leaves
 * the rest.
 *
 * @since 0.1.0
 */
import { BackupReason, CopyComparison, Ids, VersionAudit, VersionReason } from "@reclaim/core"
import { HostControls } from "@reclaim/runtime"
import { Schema, SchemaGetter, Struct } from "effect"

/**
 * A number that may be large: bigint in the program, a number in JSON.
 *
 * @category fields
 * @since 0.1.0
 */
export const Large = Schema.Finite.pipe(
  Schema.decodeTo(Schema.BigInt, {
    decode: SchemaGetter.transform((value: number) => BigInt(Math.round(value))),
    encode: SchemaGetter.transform((value: bigint) => Number(value))
  })
)

/** A number of bytes. @category fields @since 0.1.0 */
export const Bytes = Large

/** @category fields @since 0.1.0 */
export const Instant = Schema.DateTimeUtcFromString

/** How many times each reason kept something. @category fields @since 0.1.0 */
export const Counts = Schema.Record(Schema.String, Schema.Int)
/** @category fields @since 0.1.0 */
export type Counts = typeof Counts.Type

/** Why a copy stays or is missing. @category fields @since 0.1.0 */
export const Reason = Schema.Union([VersionReason.VersionReason, VersionReason.VersionSkip])
/** @category fields @since 0.1.0 */
export type Reason = typeof Reason.Type

/** What `skills diagnose` says about one copy. @category documents @since 0.1.0 */
export const Copy = Schema.Struct({
  type: Schema.Literal("copy"),
  companyId: Ids.CompanyId,
  skillId: Ids.SkillId,
  versionId: Ids.VersionId,
  decision: Schema.Literals(["retain", "evict"]),
  reasons: Schema.Array(VersionReason.VersionReason),
  lastUsedAt: Schema.OptionFromNullOr(Instant),
  apparentBytes: Bytes,
  allocatedBytes: Bytes
})
/** @category documents @since 0.1.0 */
export type Copy = typeof Copy.Type

/** A folder that a protocol left behind and a sweep settles. @category documents @since 0.1.0 */
export const Leftover = Schema.Struct({
  type: Schema.Literal("leftover"),
  companyId: Ids.CompanyId,
  skillId: Ids.SkillId,
  kind: Schema.Literals(["Staging", "Evicting", "Replaced", "Trash"]),
  path: Schema.String
})
/** @category documents @since 0.1.0 */
export type Leftover = typeof Leftover.Type

/** Something that is no copy, lies where copies belong, and stays. @category documents @since 0.1.0 */
export const Obstacle = Schema.Struct({
  type: Schema.Literal("obstacle"),
  companyId: Ids.CompanyId,
  reason: VersionReason.Obstacle
})
/** @category documents @since 0.1.0 */
export type Obstacle = typeof Obstacle.Type

/**
 * The last document of `skills diagnose`. A copy counts under every reason it has.
 *
 * @category documents
 * @since 0.1.0
 */
export const DiagnosisSummary = Schema.Struct({
  type: Schema.Literal("summary"),
  copies: Schema.Int,
  candidates: Schema.Int,
  candidateAllocatedBytes: Bytes,
  allocatedBytes: Bytes,
  retained: Counts,
  leftovers: Schema.Int,
  obstacles: Schema.Int
})
/** @category documents @since 0.1.0 */
export type DiagnosisSummary = typeof DiagnosisSummary.Type

const totals = {
  worker: Schema.Literal("skill-versions"),
  dryRun: Schema.Boolean,
  considered: Schema.Int,
  candidates: Schema.Int,
  candidateAllocatedBytes: Bytes,
  evicted: Schema.Int,
  undone: Schema.Int,
  reclaimedAllocatedBytes: Bytes,
  trashFinished: Schema.Int,
  trashWaiting: Schema.Int,
  settled: Schema.Int,
  healed: Schema.Int,
  skipped: Counts,
  errors: Schema.Int,
  durationMillis: Schema.Finite,
  freeBytesBefore: Schema.OptionFromNullOr(Bytes),
  freeBytesAfter: Schema.OptionFromNullOr(Bytes),
  continuation: Schema.NullOr(Schema.String)
}

/**
 * One batch of `skills sweep`. `continuation` is null after the last batch of a pass.
 *
 * @category documents
 * @since 0.1.0
 */
export const Batch = Schema.Struct({ type: Schema.Literal("batch"), ...totals })
/** @category documents @since 0.1.0 */
export type Batch = typeof Batch.Type

/** The last document of `skills sweep`: the batches, added up. @category documents @since 0.1.0 */
export const SweepSummary = Schema.Struct({ type: Schema.Literal("summary"), batches: Schema.Int, ...totals })
/** @category documents @since 0.1.0 */
export type SweepSummary = typeof SweepSummary.Type

/** The settings switch the worker off, so nothing was done. @category documents @since 0.1.0 */
export const Disabled = Schema.Struct({ type: Schema.Literal("disabled") })
/** @category documents @since 0.1.0 */
export type Disabled = typeof Disabled.Type

const ready = { status: Schema.Literal("ready"), path: Schema.String, restored: Schema.Boolean }
const missing = { status: Schema.Literal("missing"), reason: Reason }

/**
 * What became of one version that a run, or an operator, asked for. Its skill is null where the database
 * does not know the version.
 *
 * @category documents
 * @since 0.1.0
 */
export const Prepared = Schema.Union([
  Schema.Struct({
    type: Schema.Literal("prepared"),
    skillId: Ids.SkillId,
    versionId: Ids.VersionId,
    ...ready
  }),
  Schema.Struct({
    type: Schema.Literal("prepared"),
    skillId: Schema.OptionFromNullOr(Ids.SkillId),
    versionId: Ids.VersionId,
    ...missing
  })
])
/** @category documents @since 0.1.0 */
export type Prepared = typeof Prepared.Type

/** @category documents @since 0.1.0 */
export const Released = Schema.Struct({
  type: Schema.Literal("released"),
  runId: Ids.RunId,
  pins: Schema.Int
})
/** @category documents @since 0.1.0 */
export type Released = typeof Released.Type

/**
 * What `skills audit` says about one copy, or about something that lies where copies belong; then skill and
 * version are null where its name is neither's. `files` lists the first 100 problems, `problemCount` counts
 * all. `reason` tells why a copy could not be compared, what is unexpected, or why a repair was refused.
 *
 * @category documents
 * @since 0.1.0
 */
export const Audit = Schema.Struct({
  type: Schema.Literal("audit"),
  companyId: Ids.CompanyId,
  skillId: Schema.OptionFromNullOr(Ids.SkillId),
  versionId: Schema.OptionFromNullOr(Ids.VersionId),
  path: Schema.String,
  status: VersionAudit.Status,
  files: Schema.Array(CopyComparison.FileProblem),
  problemCount: Schema.Int,
  reason: Schema.OptionFromNullOr(Reason),
  repaired: Schema.Boolean
})
/** @category documents @since 0.1.0 */
export type Audit = typeof Audit.Type

/**
 * The last document of `skills audit`. `found` counts by status, as it was before any repair; `unrepaired` are
 * the findings that are left. `selectionsRecorded` is false before `migrate`: then nobody knows what active
 * runs selected, and nothing counts as missing.
 *
 * @category documents
 * @since 0.1.0
 */
export const AuditSummary = Schema.Struct({
  type: Schema.Literal("summary"),
  companyId: Ids.CompanyId,
  audited: Schema.Int,
  found: Schema.Record(VersionAudit.Status, Schema.Int),
  repaired: Schema.Int,
  unrepaired: Schema.Int,
  selectionsRecorded: Schema.Boolean
})
/** @category documents @since 0.1.0 */
export type AuditSummary = typeof AuditSummary.Type

/**
 * What `backups diagnose` says about the backup of one session. `sessionId` is null where the session's state
 * file does not tell it.
 *
 * @category documents
 * @since 0.1.0
 */
export const Backup = Schema.Struct({
  type: Schema.Literal("backup"),
  // Not a ScopeId: what is no folder and only has such a name stays, too.
  scope: Schema.String,
  sessionId: Schema.OptionFromNullOr(Ids.NativeSessionId),
  decision: Schema.Literals(["retain", "expire"]),
  reasons: Schema.Array(BackupReason.BackupReason),
  allocatedBytes: Bytes
})
/** @category documents @since 0.1.0 */
export type Backup = typeof Backup.Type

/**
 * A folder that an interrupted operation left in a session's folder and a sweep settles.
 *
 * @category documents
 * @since 0.1.0
 */
export const BackupLeftover = Schema.Struct({
  type: Schema.Literal("leftover"),
  scope: Ids.ScopeId,
  kind: Schema.Literals(["Pending", "Retiring", "Expired"]),
  path: Schema.String
})
/** @category documents @since 0.1.0 */
export type BackupLeftover = typeof BackupLeftover.Type

/**
 * The last document of `backups diagnose`. A backup counts under every reason it has.
 *
 * @category documents
 * @since 0.1.0
 */
export const BackupSummary = Schema.Struct({
  type: Schema.Literal("summary"),
  backups: Schema.Int,
  candidates: Schema.Int,
  candidateAllocatedBytes: Bytes,
  allocatedBytes: Bytes,
  retained: Counts,
  leftovers: Schema.Int
})
/** @category documents @since 0.1.0 */
export type BackupSummary = typeof BackupSummary.Type

const backupTotals = {
  worker: Schema.Literal("backups"),
  dryRun: Schema.Boolean,
  checked: Schema.Int,
  candidates: Schema.Int,
  candidateAllocatedBytes: Bytes,
  expired: Schema.Int,
  reclaimedAllocatedBytes: Bytes,
  clearedTaskSessions: Schema.Int,
  recovered: Schema.Int,
  skipped: Counts,
  errors: Schema.Int,
  durationMillis: Schema.Finite,
  continuation: Schema.NullOr(Schema.String)
}

/**
 * One batch of `backups sweep`. `continuation` is null after the last batch of a pass.
 *
 * @category documents
 * @since 0.1.0
 */
export const BackupBatch = Schema.Struct({ type: Schema.Literal("batch"), ...backupTotals })
/** @category documents @since 0.1.0 */
export type BackupBatch = typeof BackupBatch.Type

/** The last document of `backups sweep`: the batches, added up. @category documents @since 0.1.0 */
export const BackupSweepSummary = Schema.Struct({
  type: Schema.Literal("summary"),
  batches: Schema.Int,
  ...backupTotals
})
/** @category documents @since 0.1.0 */
export type BackupSweepSummary = typeof BackupSweepSummary.Type

/**
 * What `backups capture` wrote. `omitted` are the paths that were left out, as `<source>/<path>`, the first
 * thousand of them.
 *
 * @category documents
 * @since 0.1.0
 */
export const Captured = Schema.Struct({
  type: Schema.Literal("captured"),
  scope: Ids.ScopeId,
  path: Schema.String,
  bytes: Bytes,
  omitted: Schema.Array(Schema.String)
})
/** @category documents @since 0.1.0 */
export type Captured = typeof Captured.Type

/** What `backups restore` wrote to `path`, and under which name it was found. @category documents @since 0.1.0 */
export const Restored = Schema.Struct({
  type: Schema.Literal("restored"),
  scope: Ids.ScopeId,
  from: Schema.Literals(["current", "previous", "retiring"]),
  path: Schema.String,
  bytes: Bytes
})
/** @category documents @since 0.1.0 */
export type Restored = typeof Restored.Type

const heldVersion = { kind: Schema.Literal("version"), companyId: Ids.CompanyId, versionId: Ids.VersionId }
const heldScope = { kind: Schema.Literal("scope"), scope: Ids.ScopeId }
const holdNote = { by: Schema.String, note: Schema.String }

/** What `hold` did. @category documents @since 0.1.0 */
export const Held = Schema.Union([
  Schema.Struct({ type: Schema.Literal("held"), ...heldVersion, ...holdNote }),
  Schema.Struct({ type: Schema.Literal("held"), ...heldScope, ...holdNote })
])
/** @category documents @since 0.1.0 */
export type Held = typeof Held.Type

/** What `unhold` did; `removed` is false where nothing was held. @category documents @since 0.1.0 */
export const Unheld = Schema.Union([
  Schema.Struct({ type: Schema.Literal("unheld"), ...heldVersion, removed: Schema.Boolean }),
  Schema.Struct({ type: Schema.Literal("unheld"), ...heldScope, removed: Schema.Boolean })
])
/** @category documents @since 0.1.0 */
export type Unheld = typeof Unheld.Type

/** One line of `holds`. @category documents @since 0.1.0 */
export const Hold = Schema.Union([
  Schema.Struct({ type: Schema.Literal("hold"), ...heldVersion, ...holdNote, createdAt: Instant }),
  Schema.Struct({ type: Schema.Literal("hold"), ...heldScope, ...holdNote, createdAt: Instant })
])
/** @category documents @since 0.1.0 */
export type Hold = typeof Hold.Type

/** One line of `journal`; which ids are set depends on what it tells. @category documents @since 0.1.0 */
export const JournalEntry = Schema.Struct({
  type: Schema.Literal("journal"),
  id: Large,
  at: Instant,
  worker: Schema.String,
  event: Schema.String,
  companyId: Schema.NullOr(Ids.CompanyId),
  skillId: Schema.NullOr(Ids.SkillId),
  versionId: Schema.NullOr(Ids.VersionId),
  scope: Schema.NullOr(Ids.ScopeId),
  allocatedBytes: Bytes,
  digest: Schema.NullOr(Schema.String),
  server: Schema.String,
  detail: Schema.Unknown
})
/** @category documents @since 0.1.0 */
export type JournalEntry = typeof JournalEntry.Type

/**
 * What `migrate` did: how many steps of the schema it applied, which of the host's tables it made, and when
 * the server was first adopted.
 *
 * @category documents
 * @since 0.1.0
 */
export const Migrated = Schema.Struct({
  type: Schema.Literal("migrated"),
  adoptedAt: Schema.OptionFromNullOr(Instant),
  steps: Schema.Int,
  hostTables: Schema.Array(Schema.String)
})
/** @category documents @since 0.1.0 */
export type Migrated = typeof Migrated.Type

/**
 * What one check of `doctor` found. `failed`: something cannot work, and the exit code is 1. `advice` says what
 * to do about it.
 *
 * @category documents
 * @since 0.1.0
 */
export const Check = Schema.Struct({
  type: Schema.Literal("check"),
  name: Schema.String,
  status: Schema.Literals(["ok", "warning", "failed"]),
  detail: Schema.String,
  advice: Schema.NullOr(Schema.String)
})
/** @category documents @since 0.1.0 */
export type Check = typeof Check.Type

/** The last document of `doctor`. @category documents @since 0.1.0 */
export const CheckSummary = Schema.Struct({
  type: Schema.Literal("summary"),
  checks: Schema.Int,
  ok: Schema.Int,
  warnings: Schema.Int,
  failed: Schema.Int
})
/** @category documents @since 0.1.0 */
export type CheckSummary = typeof CheckSummary.Type

/** What `serve` prints once it listens. With `--port 0` the system has chosen the port. @category documents @since 0.1.0 */
export const Listening = Schema.Struct({ type: Schema.Literal("listening"), url: Schema.String })
/** @category documents @since 0.1.0 */
export type Listening = typeof Listening.Type

/** What `serve` answers to a standby, a resume or a drain. @category documents @since 0.1.0 */
export const Phase = Schema.Struct({ type: Schema.Literal("phase"), phase: HostControls.HostPhase })
/** @category documents @since 0.1.0 */
export type Phase = typeof Phase.Type

const workerStatus = <Report extends Schema.Struct.Fields>(report: Report) =>
  Schema.Struct({
    activity: Schema.Literals(["disabled", "starting", "waiting", "sweeping", "standby", "drained"]),
    nextAt: Schema.OptionFromNullOr(Instant),
    lastSuccessAt: Schema.OptionFromNullOr(Instant),
    lastSweep: Schema.OptionFromNullOr(
      Schema.Struct({
        startedAt: Instant,
        endedAt: Instant,
        outcome: Schema.Literals(["completed", "stopped", "failed"]),
        detail: Schema.OptionFromNullOr(Schema.String),
        dryRun: Schema.Boolean,
        ...report
      })
    )
  })

/**
 * What `serve` tells at `/status.json`. `reasons` say why it is not ready; `nextAt` is null unless a sweep is
 * waited for.
 *
 * @category documents
 * @since 0.1.0
 */
export const Status = Schema.Struct({
  type: Schema.Literal("status"),
  version: Schema.String,
  server: Schema.String,
  startedAt: Instant,
  phase: HostControls.HostPhase,
  ready: Schema.Boolean,
  reasons: Schema.Array(Schema.String),
  skillVersions: workerStatus(Struct.omit(totals, ["worker", "dryRun", "continuation"])),
  backups: workerStatus(Struct.omit(backupTotals, ["worker", "dryRun", "continuation"]))
})
/** @category documents @since 0.1.0 */
export type Status = typeof Status.Type

/** The last document of `demo`. @category documents @since 0.1.0 */
export const Demo = Schema.Struct({
  type: Schema.Literal("demo"),
  instance: Schema.String,
  databaseUrl: Schema.String,
  copiesBefore: Schema.Int,
  copiesAfter: Schema.Int,
  allocatedBytesBefore: Bytes,
  allocatedBytesAfter: Bytes,
  evicted: Schema.Int,
  reclaimedAllocatedBytes: Bytes,
  restoredVersionId: Ids.VersionId,
  restoredFiles: Schema.Int,
  identical: Schema.Boolean,
  backupsBefore: Schema.Int,
  backupsAfter: Schema.Int,
  expiredBackups: Schema.Int,
  recoveredBackups: Schema.Int,
  clearedTaskSessions: Schema.Int,
  restoredScope: Ids.ScopeId
})
/** @category documents @since 0.1.0 */
export type Demo = typeof Demo.Type

/**
 * What went wrong, always the last document. The exit code is 1, or 2 when the command was used wrongly.
 *
 * @category documents
 * @since 0.1.0
 */
export const Failure = Schema.Struct({
  type: Schema.Literal("error"),
  _tag: Schema.String,
  message: Schema.String
})
/** @category documents @since 0.1.0 */
export type Failure = typeof Failure.Type
