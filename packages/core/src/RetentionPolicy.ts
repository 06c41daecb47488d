/**
 * Decides which skill version copies may leave the disk.
 *
 * **Details**
 *
 * Facts in, decision out: nothing here reads a clock, a file or a table. `decide` is total. It returns
 * every reason that holds, and evicts only when there is none and the copy is proven equal to what the
 * database would rebuild. Adding a fact that speaks for a copy never makes it go.
 *
 * @since 0.1.0
 */
import { DateTime, Duration, Option, Schema } from "effect"
import { FileProblem } from "./CopyComparison.ts"
import type { AgentId, RunId, TestRunId } from "./Ids.ts"
import type { RetentionSettings } from "./RetentionSettings.ts"
import { type Obstacle, VersionReason } from "./VersionReason.ts"

/**
 * The record of a copy's last use. `Absent` covers every record that cannot be read or understood.
 *
 * @category models
 * @since 0.1.0
 */
export type LastUse = { readonly _tag: "Recorded"; readonly at: DateTime.Utc } | { readonly _tag: "Absent" }

/**
 * The outcome of comparing a copy with the database. Only `Same` lets it go.
 *
 * @category models
 * @since 0.1.0
 */
export const Proof = Schema.TaggedUnion({
  Same: {},
  Differs: { files: Schema.Array(FileProblem) },
  NotRecoverable: { detail: Schema.String },
  Obstructed: { obstacle: Schema.Union([VersionReason.cases.Unexpected, VersionReason.cases.Unreadable]) }
})
/** @category models @since 0.1.0 */
export type Proof = typeof Proof.Type

/**
 * The two clocks an age is measured with. Instants that the database wrote are compared with `database`;
 * instants from files with the earlier of the two, so that a clock that runs ahead cannot age a copy.
 *
 * @category models
 * @since 0.1.0
 */
export interface Now {
  readonly database: DateTime.Utc
  readonly local: DateTime.Utc
}

/**
 * Everything that is known about one copy. `rank` counts from 0, the newest version of the skill in the
 * database; it is none when the database has no such version. `proof` is none until contents were
 * compared.
 *
 * @category models
 * @since 0.1.0
 */
export interface VersionFacts {
  readonly current: boolean
  readonly rank: Option.Option<number>
  readonly activeRuns: ReadonlyArray<RunId>
  readonly unsettledRecovery: ReadonlyArray<RunId>
  readonly agents: ReadonlyArray<AgentId>
  readonly testRuns: ReadonlyArray<TestRunId>
  readonly selectionUnknown: ReadonlyArray<RunId>
  readonly agentsUnreadable: ReadonlyArray<AgentId>
  readonly held: Option.Option<{ readonly by: string; readonly note: string }>
  readonly lastUse: LastUse
  readonly obstacles: ReadonlyArray<Obstacle>
  readonly proof: Option.Option<Proof>
}

/** @category models @since 0.1.0 */
export type Decision =
  | { readonly _tag: "Evict" }
  | { readonly _tag: "Retain"; readonly reasons: readonly [VersionReason, ...ReadonlyArray<VersionReason>] }

// 5 minutes: clocks of servers that share a database drift by seconds; a record further ahead than this
// comes from a clock that was wrong, and must not keep its copy for ever.
const futureTolerance = Duration.minutes(5)

/** The earlier of the two clocks: what an instant from a file is compared with. @since 0.1.0 */
export const fileClock = (now: Now): DateTime.Utc => DateTime.min(now.database, now.local)

/**
 * Reads a record as the policy does: one that lies more than 5 minutes in the future counts as absent.
 *
 * @category queries
 * @since 0.1.0
 */
export const effectiveLastUse = (lastUse: LastUse, now: Now): LastUse =>
  lastUse._tag === "Recorded" &&
  DateTime.isGreaterThan(
    lastUse.at,
    DateTime.addDuration(DateTime.max(now.database, now.local), futureTolerance)
  )
    ? { _tag: "Absent" }
    : lastUse

/** When what happened `at` is a whole grace old; the last instant that can be named where that is later. */
const eligible = (at: DateTime.Utc, grace: Duration.Duration): DateTime.Utc =>
  DateTime.makeUnsafe(Math.min(DateTime.toEpochMillis(at) + Duration.toMillis(grace), 8.64e15))

const proofReason = (proof: Option.Option<Proof>): VersionReason | undefined => {
  if (Option.isNone(proof)) return { _tag: "NotRecoverable", detail: "not compared with the database" }
  switch (proof.value._tag) {
    case "Same":
      return undefined
    case "Obstructed":
      return proof.value.obstacle
    default:
      return proof.value
  }
}

/**
 * Every reason that holds without looking at contents. None means that the copy is a candidate: it goes
 * if, and only if, it is proven.
 *
 * @category queries
 * @since 0.1.0
 */
export const reasonsBeforeProof = (
  facts: VersionFacts,
  settings: Pick<RetentionSettings["Service"], "keep" | "grace">,
  now: Now
): ReadonlyArray<VersionReason> => {
  const reasons: Array<VersionReason> = [...facts.obstacles]
  if (facts.current) reasons.push({ _tag: "Current" })
  if (Option.isSome(facts.rank) && facts.rank.value < settings.keep) reasons.push({ _tag: "NewestKept" })
  if (facts.activeRuns.length > 0) reasons.push({ _tag: "ActiveRun", runIds: facts.activeRuns })
  if (facts.unsettledRecovery.length > 0) {
    reasons.push({ _tag: "UnsettledRecovery", runIds: facts.unsettledRecovery })
  }
  if (facts.agents.length > 0) reasons.push({ _tag: "AgentPin", agentIds: facts.agents })
  if (facts.testRuns.length > 0) reasons.push({ _tag: "TestRun", testRunIds: facts.testRuns })
  if (facts.selectionUnknown.length > 0) {
    reasons.push({ _tag: "SelectionUnknown", runIds: facts.selectionUnknown })
  }
  if (facts.agentsUnreadable.length > 0) {
    reasons.push({ _tag: "AgentPinsUnreadable", agentIds: facts.agentsUnreadable })
  }
  if (Option.isSome(facts.held)) reasons.push({ ...facts.held.value, _tag: "Held" })
  const lastUse = effectiveLastUse(facts.lastUse, now)
  if (lastUse._tag === "Absent") {
    reasons.push({ _tag: "Observing", eligibleAt: eligible(now.database, settings.grace) })
  } else if (Duration.isLessThan(DateTime.distance(lastUse.at, fileClock(now)), settings.grace)) {
    reasons.push({
      _tag: "RecentlyUsed",
      lastUsedAt: lastUse.at,
      eligibleAt: eligible(lastUse.at, settings.grace)
    })
  }
  if (Option.isNone(facts.rank)) {
    reasons.push({ _tag: "NotRecoverable", detail: "the database has no such version of this skill" })
  }
  return reasons
}

/**
 * Decides. A copy whose contents were not compared never goes.
 *
 * @category queries
 * @since 0.1.0
 */
export const decide = (
  facts: VersionFacts,
  settings: Pick<RetentionSettings["Service"], "keep" | "grace">,
  now: Now
): Decision => {
  const reasons = reasonsBeforeProof(facts, settings, now)
  const [first, ...rest] = reasons
  if (first !== undefined) return { _tag: "Retain", reasons: [first, ...rest] }
  const unproven = proofReason(facts.proof)
  return unproven === undefined ? { _tag: "Evict" } : { _tag: "Retain", reasons: [unproven] }
}
