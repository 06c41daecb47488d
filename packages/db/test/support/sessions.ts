/** Native sessions in the host's tables: runs, issues, finalizations, leases and task sessions. */
import { ControlPlaneState, Ids, NativeSession } from "@reclaim/core"
import { DateTime, Effect, Option, Result } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { SessionCatalog } from "../../src/index.ts"

export const owner = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const companyId = Ids.CompanyId.make(crypto.randomUUID())
  yield* sql`insert into companies (id, name) values (${companyId}::uuid, 'test')`
  return { companyId, agentId: yield* agent(companyId) }
})

export type Owner = Effect.Success<typeof owner>

export const agent = Effect.fnUntraced(function* (companyId: Ids.CompanyId) {
  const sql = yield* SqlClient.SqlClient
  const id = Ids.AgentId.make(crypto.randomUUID())
  yield* sql`insert into agents (id, company_id, name) values (${id}::uuid, ${companyId}::uuid, 'agent')`
  return id
})

/** An instant of a row; a text goes to the server as it is. */
export type Instant = DateTime.Utc | string | null

const text = (instant: Instant) =>
  instant === null || typeof instant === "string" ? instant : DateTime.formatIso(instant)

/** Before every window of a test whose clock stands at 2030-01-01. */
export const longAgo = DateTime.makeUnsafe("2029-12-01T00:00:00Z")

export interface IssueOptions {
  readonly status?: string
  readonly completedAt?: Instant
  readonly cancelledAt?: Instant
}

/** An issue that was done long ago, unless something else is said. */
export const issue = Effect.fnUntraced(function* (
  { companyId }: Pick<Owner, "companyId">,
  options: IssueOptions = {}
) {
  const sql = yield* SqlClient.SqlClient
  const id = Ids.IssueId.make(crypto.randomUUID())
  const status = options.status ?? "done"
  const completedAt =
    options.completedAt === undefined ? (status === "done" ? longAgo : null) : options.completedAt
  yield* sql`insert into issues (id, company_id, status, completed_at, cancelled_at)
    values (${id}::uuid, ${companyId}::uuid, ${status}, ${text(completedAt)}::timestamptz,
      ${text(options.cancelledAt ?? null)}::timestamptz)`
  return id
})

export interface RunOptions {
  readonly id?: Ids.RunId
  readonly status?: string
  readonly mode?: string
  readonly sessionId?: string | null
  readonly issueId?: Ids.IssueId | null
  readonly context?: unknown
  readonly retryOf?: Ids.RunId | null
  readonly finishedAt?: Instant
}

/** A native run that succeeded long ago, unless something else is said. */
export const run = Effect.fnUntraced(function* ({ agentId, companyId }: Owner, options: RunOptions = {}) {
  const sql = yield* SqlClient.SqlClient
  const id = options.id ?? Ids.RunId.make(crypto.randomUUID())
  const finishedAt = options.finishedAt === undefined ? longAgo : options.finishedAt
  yield* sql`insert into heartbeat_runs
      (id, company_id, agent_id, status, runtime_mode, native_session_id, native_issue_id, retry_of_run_id,
       context_snapshot, finished_at)
    values (${id}::uuid, ${companyId}::uuid, ${agentId}::uuid, ${options.status ?? "succeeded"},
      ${options.mode ?? "native"}, ${options.sessionId ?? null}::uuid, ${options.issueId ?? null}::uuid,
      ${options.retryOf ?? null}::uuid,
      ${options.context === undefined ? null : JSON.stringify(options.context)}::jsonb,
      ${text(finishedAt)}::timestamptz)`
  return id
})

export const finalization = Effect.fnUntraced(function* (
  { companyId }: Pick<Owner, "companyId">,
  runId: Ids.RunId,
  options: {
    readonly issueId: Ids.IssueId
    readonly phase?: string
    readonly lease?: Instant
    readonly recovery?: string | null
  }
) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`insert into native_run_finalizations
      (run_id, company_id, issue_id, phase, lease_expires_at, recovery_state)
    values (${runId}::uuid, ${companyId}::uuid, ${options.issueId}::uuid, ${options.phase ?? "committed"},
      ${text(options.lease ?? null)}::timestamptz, ${options.recovery ?? null})`
})

export const lease = Effect.fnUntraced(function* (
  { companyId }: Pick<Owner, "companyId">,
  options: {
    readonly metadata: unknown
    readonly status?: string
    readonly cleanup?: string | null
  }
) {
  const sql = yield* SqlClient.SqlClient
  const environment = crypto.randomUUID()
  const id = NativeSession.LeaseId.make(crypto.randomUUID())
  yield* sql`insert into environments (id, company_id) values (${environment}::uuid, ${companyId}::uuid)`
  yield* sql`insert into environment_leases (id, company_id, environment_id, status, cleanup_status, metadata)
    values (${id}::uuid, ${companyId}::uuid, ${environment}::uuid, ${options.status ?? "active"},
      ${options.cleanup ?? null}, ${JSON.stringify(options.metadata)}::jsonb)`
  return id
})

export const taskSession = Effect.fnUntraced(function* (
  { agentId, companyId }: Owner,
  options: {
    readonly params: unknown
    readonly adapter?: string
    readonly lastRunId?: Ids.RunId | null
  }
) {
  const sql = yield* SqlClient.SqlClient
  const id = NativeSession.TaskSessionId.make(crypto.randomUUID())
  yield* sql`insert into agent_task_sessions
      (id, company_id, agent_id, adapter_type, task_key, session_params_json, last_run_id)
    values (${id}::uuid, ${companyId}::uuid, ${agentId}::uuid, ${options.adapter ?? "paperclip_runner"}, ${id},
      ${JSON.stringify(options.params)}::jsonb, ${options.lastRunId ?? null}::uuid)`
  return id
})

/** What a state file says. */
export const stateText = (sessionId: string, runId: string): string =>
  JSON.stringify({
    schema: ControlPlaneState.schema,
    identity: {
      runnerInstanceId: crypto.randomUUID(),
      environmentLeaseId: null,
      runId,
      normalizedSessionId: sessionId,
      turnId: "turn-1",
      itemId: null
    },
    commands: [],
    leases: []
  })

export const refOf = (scope: Ids.ScopeId, sessionId: string, runId: string): SessionCatalog.SessionRef => ({
  scope,
  state: Option.some(Result.getOrThrow(ControlPlaneState.decode(stateText(sessionId, runId))))
})

export const scopeId = (): Ids.ScopeId =>
  Ids.ScopeId.make(`${crypto.randomUUID()}${crypto.randomUUID()}`.replaceAll("-", ""))

export interface SessionOptions {
  readonly owner?: Owner
  readonly scope?: Ids.ScopeId
  readonly sessionId?: string
  readonly issue?: IssueOptions | null
  readonly run?: Omit<RunOptions, "id" | "sessionId" | "issueId">
  readonly finalization?: Omit<Parameters<typeof finalization>[2], "issueId"> | null
  readonly taskSession?: boolean
}

/** Everything in the tables about one session whose work was done long ago: nothing keeps its backup. */
export const session = Effect.fnUntraced(function* (options: SessionOptions = {}) {
  const its = options.owner ?? (yield* owner)
  const scope = options.scope ?? scopeId()
  const sessionId = options.sessionId ?? crypto.randomUUID()
  const issueId = options.issue === null ? null : yield* issue(its, options.issue)
  const runId = yield* run(its, { ...options.run, sessionId, issueId })
  if (options.finalization !== null && issueId !== null) {
    yield* finalization(its, runId, { issueId, ...options.finalization })
  }
  const taskSessionId =
    options.taskSession === false
      ? null
      : yield* taskSession(its, { params: { sessionId, cwd: "/work" }, lastRunId: runId })
  return {
    ...its,
    scope,
    sessionId,
    issueId,
    runId,
    taskSessionId,
    ref: refOf(scope, sessionId, runId)
  }
})

export type Session = Effect.Success<ReturnType<typeof session>>
