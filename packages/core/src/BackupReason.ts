/**
 * Says why a failover backup of a native session stays.
 *
 * **Details**
 *
 * A reason belongs to a decision and is known before anything is touched. A skip is what the execution met
 * later, under the locks. Both are values that a report counts and an operator reads; neither is an error.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"
import { IssueId, RunId } from "./Ids.ts"
import { LeaseId } from "./NativeSession.ts"

const Instant = Schema.DateTimeUtcFromString
const runIds = Schema.Array(RunId)
const issueIds = Schema.Array(IssueId)

/**
 * What a session is doing in a process of the host. `unknown` is the answer of a host that could not tell.
 *
 * @category models
 * @since 0.1.0
 */
export const SessionActivity = Schema.Literals(["executing", "initializing", "warm", "closing", "unknown"])
/** @category models @since 0.1.0 */
export type SessionActivity = typeof SessionActivity.Type

/**
 * Why a backup stays.
 *
 * | reason | a backup stays because |
 * |---|---|
 * | `IssueOpen` | issues that the session worked on are neither done nor cancelled |
 * | `IssueClosedRecently` | issues were closed within the window |
 * | `IssueUnknown` | the issue of runs, or when it was closed, is not known |
 * | `CopyRecent` | it was written within the window |
 * | `RunUnfinished` | runs of the session, runs that retry one of them, or runs on its issues are not finished |
 * | `RunUnknown` | runs that the session names cannot be found |
 * | `FinalizationUnsettled` | runs can still be resumed |
 * | `LeaseReferences` | environment leases name the session or its folder |
 * | `ActiveInProcess` | a process of the host is using the session |
 * | `CleanupActivationPending` | a cleanup of the session's folder is about to run |
 * | `ControlPlaneMissing` | the session has no state file, so its runs are not known |
 * | `ControlPlaneUnreadable` | the state file cannot be read or understood |
 * | `ControlPlaneTooLarge` | the state file is too large to be read; `bytes` is its size |
 * | `ManifestUnreadable` | its manifest is missing, or cannot be read or understood |
 * | `Held` | an operator holds it |
 * | `Unexpected` | something lies there, or a row says something, that does not belong to the session |
 * | `Unreadable` | the system or the database refused to let it be read |
 *
 * @category models
 * @since 0.1.0
 */
export const BackupReason = Schema.TaggedUnion({
  IssueOpen: { issueIds },
  IssueClosedRecently: { issueIds, eligibleAt: Instant },
  IssueUnknown: { runIds },
  CopyRecent: { writtenAt: Instant, eligibleAt: Instant },
  RunUnfinished: { runIds },
  RunUnknown: { runIds },
  FinalizationUnsettled: { runIds },
  LeaseReferences: { leaseIds: Schema.Array(LeaseId) },
  ActiveInProcess: { state: SessionActivity },
  CleanupActivationPending: {},
  ControlPlaneMissing: {},
  ControlPlaneUnreadable: { detail: Schema.String },
  // Not an Int: a sparse file may claim more bytes than a whole number of JSON can name exactly.
  ControlPlaneTooLarge: { bytes: Schema.Finite },
  ManifestUnreadable: { detail: Schema.String },
  Held: { by: Schema.String, note: Schema.String },
  Unexpected: { what: Schema.String, path: Schema.String },
  Unreadable: { code: Schema.String, path: Schema.String }
})
/** @category models @since 0.1.0 */
export type BackupReason = typeof BackupReason.Type

/** What the disk, the system or a row put in the way of a decision. @category models @since 0.1.0 */
export const Obstacle = Schema.Union([BackupReason.cases.Unexpected, BackupReason.cases.Unreadable])
/** @category models @since 0.1.0 */
export type Obstacle = typeof Obstacle.Type

/**
 * A row that does not decode: it keeps what it is about, whichever table it comes from.
 *
 * @category constructors
 * @since 0.1.0
 */
export const undecodableRow = (table: string, id: string): Obstacle => ({
  _tag: "Unreadable",
  code: "undecodable row",
  path: `${table}/${id}`
})

/**
 * What the execution met under the locks, so that a backup that was to go stayed after all.
 *
 * | skip | meaning |
 * |---|---|
 * | `RowsBusy` | somebody else has locked rows of the session |
 * | `RunAppeared` | runs of the session appeared after the backup was moved |
 * | `ChangedMeanwhile` | the backup or its session changed since the plan; `what` says which |
 * | `LockLost` | the transaction that held the locks ended, or may have |
 *
 * @category models
 * @since 0.1.0
 */
export const BackupSkip = Schema.TaggedUnion({
  RowsBusy: {},
  RunAppeared: { runIds },
  ChangedMeanwhile: { what: Schema.String },
  LockLost: {}
})
/** @category models @since 0.1.0 */
export type BackupSkip = typeof BackupSkip.Type
