/**
 * Says why a skill version copy stays.
 *
 * **Details**
 *
 * A reason belongs to a decision and is known before anything is touched. A skip is what the execution met
 * later, under the lock. Both are values that a report counts and an operator reads; neither is an error.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"
import { FileProblem } from "./CopyComparison.ts"
import { AgentId, RunId, TestRunId } from "./Ids.ts"

const Instant = Schema.DateTimeUtcFromString
const runIds = Schema.Array(RunId)
const agentIds = Schema.Array(AgentId)

/**
 * Why a copy stays.
 *
 * | reason | a copy stays because |
 * |---|---|
 * | `Current` | it is the current version of its skill |
 * | `NewestKept` | it is among the newest versions that the settings keep |
 * | `ActiveRun` | runs that are not finished selected it |
 * | `UnsettledRecovery` | runs that can still be resumed selected it |
 * | `AgentPin` | agents name it in their configuration |
 * | `TestRun` | skill test runs use it |
 * | `SelectionUnknown` | runs of the company have not recorded what they selected |
 * | `AgentPinsUnreadable` | what agents of the company pin cannot be read |
 * | `RecentlyUsed` | it was used within the grace |
 * | `Observing` | it has no record of use; a full window starts with the first sweep that sees it |
 * | `Held` | an operator holds it |
 * | `NotRecoverable` | the database cannot rebuild it |
 * | `Differs` | the database would rebuild something else |
 * | `Unexpected` | something lies there that Reclaim did not make |
 * | `Unreadable` | the system refused to let it be read |
 *
 * @category models
 * @since 0.1.0
 */
export const VersionReason = Schema.TaggedUnion({
  Current: {},
  NewestKept: {},
  ActiveRun: { runIds },
  UnsettledRecovery: { runIds },
  AgentPin: { agentIds },
  TestRun: { testRunIds: Schema.Array(TestRunId) },
  SelectionUnknown: { runIds },
  AgentPinsUnreadable: { agentIds },
  RecentlyUsed: { lastUsedAt: Instant, eligibleAt: Instant },
  Observing: { eligibleAt: Instant },
  Held: { by: Schema.String, note: Schema.String },
  NotRecoverable: { detail: Schema.String },
  Differs: { files: Schema.Array(FileProblem) },
  Unexpected: { what: Schema.String, path: Schema.String },
  Unreadable: { code: Schema.String, path: Schema.String }
})
/** @category models @since 0.1.0 */
export type VersionReason = typeof VersionReason.Type

/** What the disk or the system put in the way of a decision. @category models @since 0.1.0 */
export const Obstacle = Schema.Union([VersionReason.cases.Unexpected, VersionReason.cases.Unreadable])
/** @category models @since 0.1.0 */
export type Obstacle = typeof Obstacle.Type

/**
 * What the execution met under the lock, so that a copy that was to go stayed after all.
 *
 * | skip | meaning |
 * |---|---|
 * | `ChangedMeanwhile` | the copy, its pins or its use changed since the plan; `what` says which |
 * | `CompanyBusy` | somebody else holds the company's lock |
 * | `LockLost` | the transaction that held the lock ended, or may have |
 * | `CrossDevice` | the copy lies on another file system than its folder |
 *
 * @category models
 * @since 0.1.0
 */
export const VersionSkip = Schema.TaggedUnion({
  ChangedMeanwhile: { what: Schema.String },
  CompanyBusy: {},
  LockLost: {},
  CrossDevice: {}
})
/** @category models @since 0.1.0 */
export type VersionSkip = typeof VersionSkip.Type
