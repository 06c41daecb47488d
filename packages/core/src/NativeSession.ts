/**
 * Finds out from the host's rows which runs, issues, leases and task sessions a native session has, and
 * whether they are done with it.
 *
 * **Details**
 *
 * Rows go in as the database described them, and may hold more than the one session: a row that has nothing
 * to do with it changes nothing. Whatever is not understood counts against letting the session go: an
 * unknown status is not a finished one, an unknown mode is not the legacy one, and an issue that is not
 * named by its id is not known.
 *
 * **Gotchas**
 *
 * A run that resumes the session without naming it, and that neither retries one of its runs nor works on
 * one of its issues, is not in these rows and not seen.
 *
 * @since 0.1.0
 */
import { DateTime, Option, Schema } from "effect"
import { canonicalSessionId, type ControlPlaneState } from "./ControlPlaneState.ts"
import {
  type AgentId,
  type CompanyId,
  IssueId,
  NativeSessionId,
  parse,
  type RunId,
  type ScopeId
} from "./Ids.ts"

/** A lease of an environment. @category ids @since 0.1.0 */
export const LeaseId = Schema.NonEmptyString.pipe(Schema.brand("LeaseId"))
/** @category ids @since 0.1.0 */
export type LeaseId = typeof LeaseId.Type

/** The row by which an agent finds the session of a task again. @category ids @since 0.1.0 */
export const TaskSessionId = Schema.NonEmptyString.pipe(Schema.brand("TaskSessionId"))
/** @category ids @since 0.1.0 */
export type TaskSessionId = typeof TaskSessionId.Type

/**
 * A row of `heartbeat_runs`. Of `contextSnapshot` only `issueId` and `taskId` are used, so that a query may
 * leave out everything else.
 *
 * @category models
 * @since 0.1.0
 */
export interface RunRow {
  readonly id: RunId
  readonly companyId: CompanyId
  readonly agentId: AgentId
  readonly status: string
  readonly runtimeMode: string | null
  readonly nativeSessionId: NativeSessionId | null
  readonly nativeIssueId: IssueId | null
  readonly contextSnapshot: Schema.Json
  readonly retryOfRunId: RunId | null
  readonly finishedAt: DateTime.Utc | null
}

/** A row of `native_run_finalizations`. @category models @since 0.1.0 */
export interface FinalizationRow {
  readonly runId: RunId
  readonly companyId: CompanyId
  readonly issueId: IssueId | null
  readonly phase: string
  readonly leaseExpiresAt: DateTime.Utc | null
  readonly recoveryState: string | null
}

/** A row of `issues`. @category models @since 0.1.0 */
export interface IssueRow {
  readonly id: IssueId
  readonly companyId: CompanyId
  readonly status: string
  readonly completedAt: DateTime.Utc | null
  readonly cancelledAt: DateTime.Utc | null
}

/** A row of `environment_leases`. @category models @since 0.1.0 */
export interface LeaseRow {
  readonly id: LeaseId
  readonly status: string
  readonly cleanupStatus: string | null
  readonly metadata: Schema.Json
}

/** A row of `agent_task_sessions`. Of `sessionParams` only `sessionId` is used. @category models @since 0.1.0 */
export interface TaskSessionRow {
  readonly id: TaskSessionId
  readonly companyId: CompanyId
  readonly agentId: AgentId
  readonly sessionParams: Schema.Json
  readonly lastRunId: RunId | null
}

/**
 * The rows that may concern a session:
 *
 * - `runs`: those with an id that the state file or a task session names, those with the session's native
 *   id, those that retry one of these, and those on one of their issues.
 * - `finalizations`: those of the runs.
 * - `issues`: those that the runs and finalizations name.
 * - `leases`: those whose metadata mentions the scope or the session.
 * - `taskSessions`: those whose parameters name the session.
 *
 * @category models
 * @since 0.1.0
 */
export interface SessionRows {
  readonly runs: ReadonlyArray<RunRow>
  readonly finalizations: ReadonlyArray<FinalizationRow>
  readonly issues: ReadonlyArray<IssueRow>
  readonly leases: ReadonlyArray<LeaseRow>
  readonly taskSessions: ReadonlyArray<TaskSessionRow>
}

/**
 * What the rows say of one session.
 *
 * - `runIds`: every run that is known to be the session's, found or not; `unknownRuns` were not found.
 * - `unfinishedRuns`: of the session, retries of its runs, and others on its issues.
 * - `unsettledRuns`: runs of the session that can still be resumed.
 * - `issueIds`: the issues of its runs; `openIssues` are neither done nor cancelled, `closedIssues` have the
 *   instant that goes with their status.
 * - `issueUnknown`: runs that name no issue, an issue that cannot be read or found, or one that has been
 *   closed at no known time.
 * - `leases`: those that still refer to the session.
 * - `taskSessions`: those that name the session, to be removed when its backup expires.
 * - `foreign`: what is of another company or agent than the session's current run.
 *
 * @category models
 * @since 0.1.0
 */
export interface NativeSession {
  readonly runIds: ReadonlyArray<RunId>
  readonly unknownRuns: ReadonlyArray<RunId>
  readonly unfinishedRuns: ReadonlyArray<RunId>
  readonly unsettledRuns: ReadonlyArray<RunId>
  readonly issueIds: ReadonlyArray<IssueId>
  readonly openIssues: ReadonlyArray<IssueId>
  readonly closedIssues: ReadonlyArray<{ readonly id: IssueId; readonly closedAt: DateTime.Utc }>
  readonly issueUnknown: ReadonlyArray<RunId>
  readonly leases: ReadonlyArray<LeaseId>
  readonly taskSessions: ReadonlyArray<TaskSessionId>
  readonly foreign: ReadonlyArray<{ readonly what: string; readonly path: string }>
}

/** The statuses of a run that is over. Any other is not, known or not. @category constants @since 0.1.0 */
export const terminalStatuses: ReadonlyArray<string> = [
  "succeeded",
  "failed",
  "cancelled",
  "timed_out",
  "interrupted"
]

/** Whether a run's status is a last one. An unknown status is not. @category queries @since 0.1.0 */
export const isTerminal = (status: string): boolean => terminalStatuses.includes(status)

/** Whether a run may still do something. @category queries @since 0.1.0 */
export const isUnfinished = (run: Pick<RunRow, "status" | "finishedAt">): boolean =>
  !isTerminal(run.status) || run.finishedAt === null

/** The phases of a finalization that is over. Any other is not. @category constants @since 0.1.0 */
export const settledPhases: ReadonlyArray<string> = ["committed", "terminal_failure"]

/**
 * Whether no recovery can resume a run any more: each of its finalizations is in a last phase, with no
 * recovery going on and no live lease. A native run without a finalization is unsettled; a legacy run needs
 * none.
 *
 * **Details**
 *
 * A lease that expires in this very millisecond is live: the driver drops what PostgreSQL knows below one.
 *
 * @category queries
 * @since 0.1.0
 */
export const isSettled = (
  run: Pick<RunRow, "runtimeMode">,
  finalizations: ReadonlyArray<Pick<FinalizationRow, "phase" | "leaseExpiresAt" | "recoveryState">>,
  now: DateTime.Utc
): boolean =>
  finalizations.length === 0
    ? run.runtimeMode === "legacy"
    : finalizations.every(
        ({ leaseExpiresAt, phase, recoveryState }) =>
          settledPhases.includes(phase) &&
          recoveryState === null &&
          (leaseExpiresAt === null || DateTime.isLessThan(leaseExpiresAt, now))
      )

/** Whether a JSON value holds one of the lower-case texts, in whatever place and case. */
const mentions = (json: Schema.Json, texts: ReadonlyArray<string>): boolean => {
  // A stack of its own, because a row may nest deeper than the engine recurses.
  const rest: Array<Schema.Json> = [json]
  for (let value = rest.pop(); value !== undefined; value = rest.pop()) {
    if (typeof value === "string") {
      const folded = value.toLowerCase()
      if (texts.some((text) => folded.includes(text))) return true
    } else if (typeof value === "object" && value !== null) {
      for (const [name, member] of Object.entries(value)) rest.push(name, member)
    }
  }
  return false
}

const cleaned: ReadonlySet<string | null> = new Set([null, "success", "failed"])

/**
 * Whether an environment lease still refers to a session: its metadata mentions the scope or the session,
 * and it is neither expired nor failed, or its cleanup is not over.
 *
 * @category queries
 * @since 0.1.0
 */
export const refersTo = (
  lease: Pick<LeaseRow, "status" | "cleanupStatus" | "metadata">,
  scope: ScopeId,
  sessionId: Option.Option<NativeSessionId>
): boolean =>
  ((lease.status !== "expired" && lease.status !== "failed") || !cleaned.has(lease.cleanupStatus)) &&
  mentions(lease.metadata, [scope, ...Option.toArray(sessionId).map((id) => id.toLowerCase())])

const Parameters = Schema.Struct({ sessionId: NativeSessionId })

/** Whether an agent's task session would resume this native session. @category queries @since 0.1.0 */
export const names = (
  taskSession: Pick<TaskSessionRow, "sessionParams">,
  sessionId: NativeSessionId
): boolean =>
  Option.exists(
    Schema.decodeUnknownOption(Parameters)(taskSession.sessionParams),
    (parameters) => canonicalSessionId(parameters.sessionId) === canonicalSessionId(sessionId)
  )

const Context = Schema.NullOr(
  Schema.Struct({
    issueId: Schema.optionalKey(Schema.Json),
    taskId: Schema.optionalKey(Schema.Json)
  })
)

/** The issues that a run names, and whether one of the names could not be read. */
const issuesOf = (run: RunRow, finalizations: ReadonlyArray<FinalizationRow>) => {
  const issueIds = new Set<IssueId>()
  if (run.nativeIssueId !== null) issueIds.add(run.nativeIssueId)
  for (const { issueId } of finalizations) if (issueId !== null) issueIds.add(issueId)
  const context = Schema.decodeUnknownOption(Context)(run.contextSnapshot)
  let unreadable = Option.isNone(context)
  const named = Option.getOrNull(context)
  for (const name of [named?.issueId, named?.taskId]) {
    if (name === undefined || name === null) continue
    const id = typeof name === "string" ? parse(IssueId, name) : Option.none()
    if (Option.isSome(id)) issueIds.add(id.value)
    else unreadable = true
  }
  return { issueIds, unreadable }
}

const closedAt = (issue: IssueRow): DateTime.Utc | null | "open" => {
  switch (issue.status) {
    case "done":
      return issue.completedAt
    case "cancelled":
      return issue.cancelledAt
    default:
      return "open"
  }
}

const groupBy = <Key, Row>(rows: ReadonlyArray<Row>, key: (row: Row) => Key) => {
  const groups = Map.groupBy(rows, key)
  return (wanted: Key): ReadonlyArray<Row> => groups.get(wanted) ?? []
}

/**
 * The issues that runs and their finalizations name: those whose rows must be known.
 *
 * @category queries
 * @since 0.1.0
 */
export const issueIdsOf = (
  runs: ReadonlyArray<RunRow>,
  finalizations: ReadonlyArray<FinalizationRow>
): ReadonlyArray<IssueId> => {
  const finalizationsOf = groupBy(finalizations, ({ runId }) => runId)
  return [...new Set(runs.flatMap((run) => [...issuesOf(run, finalizationsOf(run.id)).issueIds]))]
}

/**
 * Sorts the rows of many sessions, so that drawing each of them does not go through the rows of all: the answer
 * gives the rows that may concern a session, from which `fromRows` draws the same as from all.
 *
 * @category queries
 * @since 0.1.0
 */
export const bySession = (rows: SessionRows): ((state: Option.Option<ControlPlaneState>) => SessionRows) => {
  const finalizationsOf = groupBy(rows.finalizations, ({ runId }) => runId)
  const issuesById = groupBy(rows.issues, ({ id }) => id)
  const runsById = groupBy(rows.runs, ({ id }) => id)
  const runsBySession = groupBy(rows.runs, ({ nativeSessionId }) =>
    nativeSessionId === null ? null : canonicalSessionId(nativeSessionId)
  )
  const retriesOf = groupBy(rows.runs, ({ retryOfRunId }) => retryOfRunId)
  const tasksBySession = groupBy(rows.taskSessions, ({ sessionParams }) =>
    Option.getOrNull(
      Option.map(Schema.decodeUnknownOption(Parameters)(sessionParams), ({ sessionId }) =>
        canonicalSessionId(sessionId)
      )
    )
  )
  const place = new Map(rows.runs.map((run, index) => [run, index]))
  const issuesOfRun = new Map(rows.runs.map((run) => [run, issuesOf(run, finalizationsOf(run.id)).issueIds]))
  const runsByIssue = new Map<IssueId, Array<RunRow>>()
  for (const [run, issueIds] of issuesOfRun) {
    for (const id of issueIds) {
      const others = runsByIssue.get(id)
      if (others === undefined) runsByIssue.set(id, [run])
      else others.push(run)
    }
  }

  return (state) => {
    if (Option.isNone(state)) {
      return { runs: [], finalizations: [], issues: [], leases: rows.leases, taskSessions: [] }
    }
    const sessionId = canonicalSessionId(state.value.sessionId)
    const taskSessions = tasksBySession(sessionId)
    const own = new Set([
      ...runsBySession(sessionId),
      ...state.value.runIds.flatMap(runsById),
      ...taskSessions.flatMap(({ lastRunId }) => (lastRunId === null ? [] : runsById(lastRunId)))
    ])
    const issueIds = new Set([...own].flatMap((run) => [...(issuesOfRun.get(run) ?? [])]))
    const related = new Set([
      ...own,
      // Of a run that was not found, retries may have been.
      ...state.value.runIds.flatMap(retriesOf),
      ...taskSessions.flatMap(({ lastRunId }) => (lastRunId === null ? [] : retriesOf(lastRunId))),
      ...[...own].flatMap(({ id }) => retriesOf(id)),
      ...[...issueIds].flatMap((id) => runsByIssue.get(id) ?? [])
    ])
    const runs = [...related].toSorted((left, right) => (place.get(left) ?? 0) - (place.get(right) ?? 0))
    return {
      runs,
      finalizations: [...new Set(runs.map(({ id }) => id))].flatMap(finalizationsOf),
      issues: [...issueIds].flatMap(issuesById),
      leases: rows.leases,
      taskSessions
    }
  }
}

/**
 * Draws a session out of the rows. Without a state the runs are not known, and only the leases that mention
 * the scope are found.
 *
 * @category constructors
 * @since 0.1.0
 */
export const fromRows = (
  scope: ScopeId,
  state: Option.Option<ControlPlaneState>,
  rows: SessionRows,
  now: DateTime.Utc
): NativeSession => {
  const sessionId = Option.map(state, (known) => canonicalSessionId(known.sessionId))
  const isThis = (id: NativeSessionId) => Option.contains(sessionId, canonicalSessionId(id))
  const taskSessions = rows.taskSessions.filter((row) => Option.exists(sessionId, (id) => names(row, id)))
  const runIds = new Set<RunId>([
    ...Option.match(state, { onNone: () => [], onSome: (known) => known.runIds }),
    ...rows.runs.flatMap(({ id, nativeSessionId }) =>
      nativeSessionId !== null && isThis(nativeSessionId) ? [id] : []
    ),
    ...taskSessions.flatMap(({ lastRunId }) => (lastRunId === null ? [] : [lastRunId]))
  ])
  const runs = rows.runs.filter(({ id }) => runIds.has(id))
  const found = new Set(runs.map(({ id }) => id))
  const finalizationsOf = groupBy(rows.finalizations, ({ runId }) => runId)
  const issueRows = groupBy(rows.issues, ({ id }) => id)

  const runsOfIssue = new Map<IssueId, Array<RunId>>()
  const issueUnknown = new Set<RunId>()
  for (const run of runs) {
    const { issueIds, unreadable } = issuesOf(run, finalizationsOf(run.id))
    if (unreadable || issueIds.size === 0) issueUnknown.add(run.id)
    for (const id of issueIds) {
      const others = runsOfIssue.get(id)
      if (others === undefined) runsOfIssue.set(id, [run.id])
      else others.push(run.id)
    }
  }
  const openIssues = new Set<IssueId>()
  const closedIssues: Array<{ readonly id: IssueId; readonly closedAt: DateTime.Utc }> = []
  for (const [id, itsRuns] of runsOfIssue) {
    const closings = issueRows(id).map(closedAt)
    if (closings.length === 0 || closings.includes(null)) for (const runId of itsRuns) issueUnknown.add(runId)
    for (const closing of closings) {
      if (closing === "open") openIssues.add(id)
      else if (closing !== null) closedIssues.push({ id, closedAt: closing })
    }
  }

  const isRelated = (run: RunRow) => {
    if (runIds.has(run.id)) return true
    if (run.retryOfRunId !== null && runIds.has(run.retryOfRunId)) return true
    const { issueIds } = issuesOf(run, finalizationsOf(run.id))
    return [...issueIds].some((id) => runsOfIssue.has(id))
  }
  const unfinished = rows.runs.filter((run) => isUnfinished(run) && isRelated(run))

  const current = Option.match(state, { onNone: () => undefined, onSome: (known) => known.currentRunId })
  const owner = runs.find(({ id }) => id === current) ?? runs[0]
  const foreign: Array<{ readonly what: string; readonly path: string }> = []
  const expectOwner = (
    row: { readonly companyId: CompanyId; readonly agentId?: AgentId },
    what: string,
    path: string
  ) => {
    if (owner === undefined) return
    if (row.companyId !== owner.companyId) foreign.push({ what: `${what} of another company`, path })
    else if (row.agentId !== undefined && row.agentId !== owner.agentId) {
      foreign.push({ what: `${what} of another agent`, path })
    }
  }
  for (const run of runs) {
    expectOwner(run, "a run", `heartbeat_runs/${run.id}`)
    for (const finalization of finalizationsOf(run.id)) {
      expectOwner(finalization, "a finalization", `native_run_finalizations/${run.id}`)
    }
  }
  for (const id of runsOfIssue.keys()) {
    for (const issue of issueRows(id)) expectOwner(issue, "an issue", `issues/${id}`)
  }
  for (const row of taskSessions) expectOwner(row, "a task session", `agent_task_sessions/${row.id}`)

  return {
    runIds: [...runIds],
    unknownRuns: [...runIds].filter((id) => !found.has(id)),
    unfinishedRuns: [...new Set(unfinished.map(({ id }) => id))],
    unsettledRuns: [
      ...new Set(runs.filter((run) => !isSettled(run, finalizationsOf(run.id), now)).map(({ id }) => id))
    ],
    issueIds: [...runsOfIssue.keys()],
    openIssues: [...openIssues],
    closedIssues,
    issueUnknown: [...issueUnknown],
    leases: rows.leases.filter((lease) => refersTo(lease, scope, sessionId)).map(({ id }) => id),
    taskSessions: taskSessions.map(({ id }) => id),
    foreign
  }
}
