/**
 * Reads, locks and clears what the host's tables say about native sessions.
 *
 * **Details**
 *
 * The host has no index on a run's native session, on what a lease mentions or on what a task session names.
 * So the rows of many sessions are found at once, in a number of statements that does not depend on them,
 * and without any lock; under the locks of one session only primary keys are used. What the rows mean is for
 * `NativeSession` of core to say: the answer of `load` holds rows that do not concern a session.
 *
 * A row that does not decode becomes an obstacle of the sessions that it is about, or of all that were asked
 * for where it does not say which. A host with other tables supplies its own layer.
 *
 * @since 0.1.0
 */
import { BackupReason, type ControlPlaneState, Ids, NativeSession } from "@reclaim/core"
import { Array as Arr, Context, DateTime, Effect, Layer, Option, Result, Schema, SchemaGetter } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import type { Fragment } from "effect/sql/Statement"
import { type DatabaseError, fromSqlError } from "./DatabaseError.ts"
import { HostSchema, type MissingTables } from "./HostSchema.ts"
import { hasCompany } from "./internal/hasCompany.ts"
import { decodedAtOnce, millis, query } from "./internal/rows.ts"
import { Transactions } from "./Transactions.ts"

/**
 * A session to be looked up. Without a state its runs are not known, and only leases are found.
 *
 * @category models
 * @since 0.1.0
 */
export interface SessionRef {
  readonly scope: Ids.ScopeId
  readonly state: Option.Option<ControlPlaneState.ControlPlaneState>
}

/**
 * Rows for some sessions, and for each session what could not be understood.
 *
 * @category models
 * @since 0.1.0
 */
export interface Found {
  readonly rows: NativeSession.SessionRows
  readonly obstacles: (scope: Ids.ScopeId) => ReadonlyArray<BackupReason.Obstacle>
}

/** Somebody else has locked rows of the session. @category errors @since 0.1.0 */
export class RowsBusy extends Schema.TaggedError<RowsBusy>()("RowsBusy", { scope: Ids.ScopeId }) {
  override get message(): string {
    return `rows of the session ${this.scope} are locked by somebody else`
  }
}

/** @category services @since 0.1.0 */
export class SessionCatalog extends Context.Service<
  SessionCatalog,
  {
    /** Whether the database has the company. */
    readonly hasCompany: (companyId: Ids.CompanyId) => Effect.Effect<boolean, DatabaseError>
    /** Finds the rows of sessions, without locks, in a number of statements that does not depend on them. */
    readonly load: (sessions: ReadonlyArray<SessionRef>) => Effect.Effect<Found, DatabaseError>
    /**
     * Locks those of the rows that are the session's, by primary key, in the transaction that is open: runs,
     * finalizations, issues, leases and task sessions, each in the order of their ids, without waiting.
     * Leases that mention the session are among them, whatever their status. Returns the rows as they are
     * now; one that is gone is left out.
     */
    readonly lock: (
      session: SessionRef,
      rows: NativeSession.SessionRows
    ) => Effect.Effect<Found, DatabaseError | RowsBusy>
    /** Reads once more what `lock` read, by primary key: finalizations that came later are among it. */
    readonly reread: (
      session: SessionRef,
      rows: NativeSession.SessionRows
    ) => Effect.Effect<Found, DatabaseError>
    /** Removes task sessions in the transaction that is open. Returns how many there were. */
    readonly removeTaskSessions: (
      ids: ReadonlyArray<NativeSession.TaskSessionId>
    ) => Effect.Effect<number, DatabaseError>
  }
>()("@reclaim/db/SessionCatalog") {}

// Rounded up: an instant that is taken for a little later keeps a little longer.
const Instant = Schema.Finite.pipe(
  Schema.decodeTo(Schema.DateTimeUtcFromMillis, {
    decode: SchemaGetter.transform(Math.ceil),
    encode: SchemaGetter.passthrough()
  })
)
const Json = Schema.Unknown.pipe(Schema.decodeTo(Schema.Json))

const RunRow = Schema.Struct({
  id: Ids.RunId,
  companyId: Ids.CompanyId,
  agentId: Ids.AgentId,
  status: Schema.String,
  runtimeMode: Schema.NullOr(Schema.String),
  nativeSessionId: Schema.NullOr(Ids.NativeSessionId),
  nativeIssueId: Schema.NullOr(Ids.IssueId),
  contextSnapshot: Json,
  retryOfRunId: Schema.NullOr(Ids.RunId),
  finishedAt: Schema.NullOr(Instant)
})
const FinalizationRow = Schema.Struct({
  runId: Ids.RunId,
  companyId: Ids.CompanyId,
  issueId: Schema.NullOr(Ids.IssueId),
  phase: Schema.String,
  leaseExpiresAt: Schema.NullOr(Instant),
  recoveryState: Schema.NullOr(Schema.String)
})
const IssueRow = Schema.Struct({
  id: Ids.IssueId,
  companyId: Ids.CompanyId,
  status: Schema.String,
  completedAt: Schema.NullOr(Instant),
  cancelledAt: Schema.NullOr(Instant)
})
const LeaseRow = Schema.Struct({
  id: NativeSession.LeaseId,
  status: Schema.String,
  cleanupStatus: Schema.NullOr(Schema.String),
  metadata: Json
})
const TaskSessionRow = Schema.Struct({
  id: NativeSession.TaskSessionId,
  companyId: Ids.CompanyId,
  agentId: Ids.AgentId,
  sessionParams: Json,
  lastRunId: Schema.NullOr(Ids.RunId)
})
const Removed = Schema.Struct({ id: Schema.String })
const Key = Schema.Struct({ id: Schema.String })
const isKeyed = Schema.is(Key)

/** Rows of one table: those that decode, and for each of the others what tells it apart. */
interface Rows<A> {
  readonly decoded: ReadonlyArray<A>
  readonly broken: ReadonlyArray<{ readonly obstacle: BackupReason.Obstacle; readonly text: string }>
}

type Tables = {
  readonly [Table in keyof NativeSession.SessionRows]: Rows<NativeSession.SessionRows[Table][number]>
}

const draw = ({ scope, state }: SessionRef, rows: NativeSession.SessionRows): NativeSession.NativeSession =>
  // Which rows are a session's does not depend on the time; whether they are settled is not asked here.
  NativeSession.fromRows(scope, state, rows, DateTime.makeUnsafe(0))

const sessionIdOf = ({ state }: SessionRef) => Option.map(state, ({ sessionId }) => sessionId)

/** The rows that are one session's. */
const narrow = (session: SessionRef, rows: NativeSession.SessionRows) => {
  const { runIds, taskSessions } = draw(session, rows)
  return {
    runs: runIds,
    // Also those that no longer refer to it: a lease that has expired may be taken again.
    leases: rows.leases
      .filter((lease) =>
        NativeSession.refersTo({ ...lease, status: "active" }, session.scope, sessionIdOf(session))
      )
      .map(({ id }) => id),
    taskSessions
  }
}

/** A text as it stands inside JSON, folded. */
const inJson = (text: string): string => JSON.stringify(text).slice(1, -1).toLowerCase()

/**
 * The obstacles of each session. A row is a session's when it mentions the session, one of its runs or one
 * of its issues; where it mentions none of those that were asked for, it is everybody's.
 */
const attribute = (
  sessions: ReadonlyArray<SessionRef>,
  rows: NativeSession.SessionRows,
  broken: Rows<unknown>["broken"]
): Found["obstacles"] => {
  if (broken.length === 0) return () => []
  const needles = new Map(
    sessions.map((session) => {
      const { issueIds, runIds } = draw(session, rows)
      const names = [session.scope, ...Option.toArray(sessionIdOf(session)), ...runIds, ...issueIds]
      return [session.scope, names.map(inJson)]
    })
  )
  const known = [...needles.values()].flat()
  return (scope) =>
    broken.flatMap(({ obstacle, text }) => {
      const own = (needles.get(scope) ?? [scope]).some((needle) => text.includes(needle))
      return own || !known.some((needle) => text.includes(needle)) ? [obstacle] : []
    })
}

const found = (sessions: ReadonlyArray<SessionRef>, tables: Tables): Found => {
  const { finalizations, issues, leases, runs, taskSessions } = tables
  const rows: NativeSession.SessionRows = {
    runs: runs.decoded,
    finalizations: finalizations.decoded,
    issues: issues.decoded,
    leases: leases.decoded,
    taskSessions: taskSessions.decoded
  }
  const broken = [runs, finalizations, issues, leases, taskSessions].flatMap((table) => table.broken)
  return { rows, obstacles: attribute(sessions, rows, broken) }
}

const nothing: Found = {
  rows: { runs: [], finalizations: [], issues: [], leases: [], taskSessions: [] },
  obstacles: () => []
}

/**
 * The sessions' ids, as they are and folded, because the database may fold other letters than JavaScript. No
 * row holds a NUL, and PostgreSQL refuses to be asked for one.
 */
const sessionIds = (sessions: ReadonlyArray<SessionRef>): ReadonlyArray<string> =>
  Arr.dedupe(
    sessions.flatMap((session) =>
      Option.toArray(sessionIdOf(session)).flatMap((id) =>
        id.includes("\u0000") ? [] : [id, id.toLowerCase()]
      )
    )
  )

/** A name that is found as a word: a scope or a UUID. Shorter ones would be in very many words. */
const isPlain = (name: string): boolean => /^[0-9a-f-]{32,}$/i.test(name)
// No word is longer.
const int4Max = 2 ** 31 - 1

/** The only adapter whose task sessions resume native sessions. */
const adapterType = "paperclip_runner"

/**
 * The sessions in the host's tables.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<
  SessionCatalog,
  MissingTables,
  SqlClient.SqlClient | Transactions | HostSchema
> = Layer.effect(
  SessionCatalog,
  Effect.gen(function* () {
    const sql = (yield* SqlClient.SqlClient).withoutTransforms()
    const transactions = yield* Transactions
    yield* (yield* HostSchema).requireBackups

    /** Decodes row by row, because one that does not decode must not keep the sessions of all others. */
    const read = Effect.fnUntraced(function* <A>(
      schema: Schema.ConstraintDecoder<A>,
      table: string,
      statement: Effect.Effect<ReadonlyArray<object>, SqlError>
    ) {
      const rows = yield* Effect.mapError(statement, (error) => fromSqlError(error, `reading ${table}`))
      const decode = Schema.decodeUnknownResult(schema)
      const decoded: Array<A> = []
      const broken: Array<Rows<A>["broken"][number]> = []
      for (const [index, row] of rows.entries()) {
        if (index > 0 && index % decodedAtOnce === 0) yield* Effect.yieldNow
        const result = decode(row)
        if (Result.isSuccess(result)) decoded.push(result.success)
        else {
          const id = isKeyed(row) ? row.id : "?"
          broken.push({
            obstacle: BackupReason.undecodableRow(table, id),
            text: JSON.stringify(row).toLowerCase()
          })
        }
      }
      return { decoded, broken } satisfies Rows<A>
    })

    const runColumns = sql`
      r.id::text as "id", r.company_id::text as "companyId", r.agent_id::text as "agentId",
      r.status::text as "status", r.runtime_mode::text as "runtimeMode",
      r.native_session_id::text as "nativeSessionId", r.native_issue_id::text as "nativeIssueId",
      case when jsonb_typeof(r.context_snapshot) = 'object'
        then jsonb_build_object('issueId', r.context_snapshot -> 'issueId',
                                'taskId', r.context_snapshot -> 'taskId')
        else coalesce(r.context_snapshot, 'null'::jsonb) end as "contextSnapshot",
      r.retry_of_run_id::text as "retryOfRunId", ${millis(sql, sql`r.finished_at`)} as "finishedAt"`

    const finalizationColumns = sql`
      f.run_id::text as "id", f.run_id::text as "runId", f.company_id::text as "companyId",
      f.issue_id::text as "issueId", f.phase::text as "phase",
      ${millis(sql, sql`f.lease_expires_at`)} as "leaseExpiresAt", f.recovery_state::text as "recoveryState"`

    const issueColumns = sql`
      i.id::text as "id", i.company_id::text as "companyId", i.status::text as "status",
      ${millis(sql, sql`i.completed_at`)} as "completedAt", ${millis(sql, sql`i.cancelled_at`)} as "cancelledAt"`

    const leaseColumns = sql`
      l.id::text as "id", l.status::text as "status", l.cleanup_status::text as "cleanupStatus",
      coalesce(l.metadata, 'null'::jsonb) as "metadata"`

    const taskColumns = sql`
      t.id::text as "id", t.company_id::text as "companyId", t.agent_id::text as "agentId",
      case when jsonb_typeof(t.session_params_json) = 'object'
        then jsonb_build_object('sessionId', t.session_params_json -> 'sessionId')
        else 'null'::jsonb end as "sessionParams",
      t.last_run_id::text as "lastRunId"`

    /** The issues that a run names, as text: what is no id matches none. */
    const issuesOf = (row: Fragment): Fragment => sql`
      select ${row}.native_issue_id::text
      union all select lower(${row}.context_snapshot ->> 'issueId')
      union all select lower(${row}.context_snapshot ->> 'taskId')
      union all select f.issue_id::text from native_run_finalizations f where f.run_id = ${row}.id`

    const isOneOf = (column: Fragment, ids: ReadonlyArray<string>): Fragment =>
      sql`(${column} = any(${ids}::text[]) or lower(${column}) = any(${ids}::text[]))`

    const readTaskSessions = (ids: ReadonlyArray<string>) =>
      read(
        TaskSessionRow,
        "agent_task_sessions",
        sql<object>`select ${taskColumns} from agent_task_sessions t
            where t.adapter_type = ${adapterType}
              and ${isOneOf(sql`t.session_params_json ->> 'sessionId'`, ids)}
            order by t.id`
      )

    // Runs of the sessions, and runs that are not over and retry one of them or work on one of their issues. One
    // pass over the runs, of which there are very many, takes out the few that may be either.
    const readRuns = (runIds: ReadonlyArray<string>, ids: ReadonlyArray<string>) => {
      const own = sql`(r.id in (select unnest(${runIds}::uuid[]))
        or lower(r.native_session_id::text) in (select lower(n) from unnest(${ids}::text[]) n))`
      return read(
        RunRow,
        "heartbeat_runs",
        sql<object>`
          with relevant as materialized (
            select r.id, r.company_id, r.agent_id, r.status, r.runtime_mode, r.native_session_id,
              r.native_issue_id, r.context_snapshot, r.retry_of_run_id, r.finished_at, ${own} as own
            from heartbeat_runs r
            where ${own} or r.finished_at is null
              or coalesce(r.status::text, '') not in ${sql.in(NativeSession.terminalStatuses)}
          ), worked as materialized (
            select distinct n.issue from relevant o cross join lateral (${issuesOf(sql`o`)}) n (issue)
            where o.own and n.issue is not null
          )
          select ${runColumns} from relevant r
          where r.own or r.retry_of_run_id in (select o.id from relevant o where o.own)
            or exists (select from (${issuesOf(sql`r`)}) n (issue)
                       where n.issue in (select issue from worked))
          order by r.id`
      )
    }

    const readFinalizations = (runIds: ReadonlyArray<string>) =>
      read(
        FinalizationRow,
        "native_run_finalizations",
        sql<object>`select ${finalizationColumns} from native_run_finalizations f
            where f.run_id = any(${runIds}::uuid[]) order by f.run_id`
      )

    const readIssues = (ids: ReadonlyArray<string>) =>
      read(
        IssueRow,
        "issues",
        sql<object>`select ${issueColumns} from issues i where i.id = any(${ids}::uuid[]) order by i.id`
      )

    /**
     * Leases whose metadata mentions one of the names, anywhere and in any case. Names of hex digits and hyphens,
     * as scopes and UUIDs are, lie within one word of the metadata: one that is a name, which is looked up, or
     * one that is longer than the shortest name that it may hold. Few are, so that hardly any lease is searched
     * for all names.
     */
    const readLeases = (names: ReadonlyArray<string>) => {
      const plain = names.filter(isPlain).map((name) => name.toLowerCase())
      const others = names.filter((name) => !isPlain(name))
      const shortest = (some: ReadonlyArray<string>) => Math.min(...some.map(({ length }) => length), int4Max)
      const least = shortest(plain)
      // What has no hyphen holds no name that has one.
      const undivided = shortest(plain.filter((name) => !name.includes("-")))
      return read(
        LeaseRow,
        "environment_leases",
        sql<object>`
          select ${leaseColumns} from environment_leases l
          where exists (
              select from unnest(string_to_array(replace(lower(l.metadata::text), '/', '"'), '"')) w (word)
              where length(w.word) >= ${least}::int
                and (w.word in (select unnest(${plain}::text[]))
                  or length(w.word) > case when strpos(w.word, '-') > 0 then ${least}::int else ${undivided}::int end
                    and exists (select from unnest(${plain}::text[]) p where strpos(w.word, p) > 0)))
            or exists (select from unnest(${others.map(inJson)}::text[], ${others.map((name) => JSON.stringify(name).slice(1, -1))}::text[]) n (folded, name)
                       where strpos(lower(l.metadata::text), n.folded) > 0
                          or strpos(l.metadata::text, n.name) > 0)
          order by l.id`
      )
    }

    const load = Effect.fnUntraced(function* (sessions: ReadonlyArray<SessionRef>) {
      if (sessions.length === 0) return nothing
      const ids = sessionIds(sessions)
      return yield* transactions.join(
        "reading sessions",
        Effect.gen(function* () {
          const taskSessions = yield* readTaskSessions(ids)
          const runs = yield* readRuns(
            Arr.dedupe([
              ...sessions.flatMap(({ state }) => Option.toArray(state).flatMap(({ runIds }) => runIds)),
              ...taskSessions.decoded.flatMap(({ lastRunId }) => (lastRunId === null ? [] : [lastRunId]))
            ]),
            ids
          )
          const finalizations = yield* readFinalizations(runs.decoded.map(({ id }) => id))
          const issues = yield* readIssues(NativeSession.issueIdsOf(runs.decoded, finalizations.decoded))
          const leases = yield* readLeases([...sessions.map(({ scope }) => scope), ...ids])
          return found(sessions, { runs, finalizations, issues, leases, taskSessions })
        })
      )
    })

    const byKey = Effect.fnUntraced(function* (
      session: SessionRef,
      rows: NativeSession.SessionRows,
      locks: { readonly rows: Fragment; readonly taskSessions: Fragment }
    ) {
      const own = narrow(session, rows)
      const runs = yield* read(
        RunRow,
        "heartbeat_runs",
        sql<object>`select ${runColumns} from heartbeat_runs r
            where r.id = any(${own.runs}::uuid[]) order by r.id ${locks.rows}`
      )
      const finalizations = yield* read(
        FinalizationRow,
        "native_run_finalizations",
        sql<object>`select ${finalizationColumns} from native_run_finalizations f
            where f.run_id = any(${own.runs}::uuid[]) order by f.run_id ${locks.rows}`
      )
      const issues = yield* read(
        IssueRow,
        "issues",
        sql<object>`select ${issueColumns} from issues i
            where i.id = any(${NativeSession.issueIdsOf(runs.decoded, finalizations.decoded)}::uuid[])
            order by i.id ${locks.rows}`
      )
      const leases = yield* read(
        LeaseRow,
        "environment_leases",
        sql<object>`select ${leaseColumns} from environment_leases l
            where l.id = any(${own.leases}::uuid[]) order by l.id ${locks.rows}`
      )
      const taskSessions = yield* read(
        TaskSessionRow,
        "agent_task_sessions",
        sql<object>`select ${taskColumns} from agent_task_sessions t
            where t.id = any(${own.taskSessions}::uuid[]) order by t.id ${locks.taskSessions}`
      )
      return found([session], { runs, finalizations, issues, leases, taskSessions })
    })

    return SessionCatalog.of({
      hasCompany: hasCompany(sql, transactions),
      load,
      lock: (session, rows) =>
        byKey(session, rows, {
          rows: sql`for no key update nowait`,
          taskSessions: sql`for update nowait`
        }).pipe(
          // A row that is locked and a table that stays locked for the bound are told apart by nothing: both
          // mean that somebody is at work there.
          Effect.catchIf(
            (error) => error.reason._tag === "LockTimeout",
            () => new RowsBusy({ scope: session.scope })
          )
        ),
      reread: (session, rows) =>
        transactions.join("reading a session", byKey(session, rows, { rows: sql``, taskSessions: sql`` })),
      removeTaskSessions: (ids) =>
        ids.length === 0
          ? Effect.succeed(0)
          : Effect.map(
              query(
                Removed,
                "removing task sessions",
                sql`delete from agent_task_sessions where id = any(${ids}::uuid[]) returning id::text as "id"`
              ),
              (rows) => rows.length
            )
    })
  })
)
