/**
 * What the farm's tables say of sessions: the jobs that ran in them, the tickets that those worked on, and the
 * bookmarks by which a worker finds a session again.
 *
 * The farm has no leases, and nothing of a job is left to settle once it has finished: such a run is a `legacy`
 * one, which needs no finalization. Two tickets of a session, or a job that is not over, are for
 * `NativeSession` of core to judge.
 */
import { Ids, NativeSession } from "@reclaim/core"
import { SessionCatalog, Transactions } from "@reclaim/db"
import { DateTime, Effect, Layer, Option, Schema } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { Fragment } from "effect/sql/Statement"
import * as Rows from "./Rows.ts"

const Instant = Schema.NullOr(Schema.DateTimeUtcFromDate)
const Job = Schema.Struct({
  id: Ids.RunId,
  companyId: Ids.CompanyId,
  agentId: Ids.AgentId,
  status: Schema.String,
  nativeSessionId: Schema.NullOr(Ids.NativeSessionId),
  nativeIssueId: Ids.IssueId,
  finishedAt: Instant
})
const Ticket = Schema.Struct({
  id: Ids.IssueId,
  companyId: Ids.CompanyId,
  status: Schema.String,
  closedAt: Instant
})
const Bookmark = Schema.Struct({
  id: NativeSession.TaskSessionId,
  companyId: Ids.CompanyId,
  agentId: Ids.AgentId,
  sessionId: Schema.String,
  lastRunId: Schema.NullOr(Ids.RunId)
})
const Id = Schema.Struct({ id: Schema.String })

/** The farm's sessions have UUIDs; no row of it names another one. */
const uuidOf = ({ state }: SessionCatalog.SessionRef) =>
  Option.toArray(state).flatMap(({ sessionId }) =>
    /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(sessionId) ? [sessionId.toLowerCase()] : []
  )

/** As the library knows them. By the checks of the tables every row decodes, so there are no obstacles. */
const found = (
  jobs: ReadonlyArray<typeof Job.Type>,
  tickets: ReadonlyArray<typeof Ticket.Type>,
  bookmarks: ReadonlyArray<typeof Bookmark.Type>
): SessionCatalog.Found => ({
  rows: {
    runs: jobs.map(asRun),
    finalizations: [],
    issues: tickets.map(({ closedAt, ...ticket }) => ({
      ...ticket,
      completedAt: closedAt,
      cancelledAt: closedAt
    })),
    leases: [],
    taskSessions: bookmarks.map(({ sessionId, ...bookmark }) => ({
      ...bookmark,
      sessionParams: { sessionId }
    }))
  },
  obstacles: () => []
})

const asRun = (job: typeof Job.Type): NativeSession.RunRow => ({
  ...job,
  runtimeMode: "legacy",
  contextSnapshot: null,
  retryOfRunId: null
})

export const layer: Layer.Layer<
  SessionCatalog.SessionCatalog,
  never,
  SqlClient.SqlClient | Transactions.Transactions
> = Layer.effect(
  SessionCatalog.SessionCatalog,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const transactions = yield* Transactions.Transactions
    const read = yield* Rows.reader

    const readJobs = (which: Fragment) =>
      read(
        Job,
        "reading jobs",
        sql`select j.id, j.tenant_id as "companyId", j.worker_id as "agentId", j.state as "status",
              j.session_id as "nativeSessionId", j.ticket_id as "nativeIssueId", j.finished_at as "finishedAt"
            from jobs j where ${which}`
      )
    const readTickets = (jobs: ReadonlyArray<typeof Job.Type>, lock: Fragment) =>
      read(
        Ticket,
        "reading tickets",
        sql`select t.id, t.tenant_id as "companyId", t.state as "status", t.closed_at as "closedAt"
            from tickets t where t.id = any(${NativeSession.issueIdsOf(jobs.map(asRun), [])}::uuid[])
            order by t.id ${lock}`
      )
    const readBookmarks = (which: Fragment) =>
      read(
        Bookmark,
        "reading bookmarks",
        sql`select b.id, b.tenant_id as "companyId", b.worker_id as "agentId", b.session_id as "sessionId",
              b.last_job_id as "lastRunId"
            from bookmarks b where ${which}`
      )

    /** For many sessions at once. Jobs of others come along where they work on a ticket of one of these. */
    const load = Effect.fnUntraced(function* (sessions: ReadonlyArray<SessionCatalog.SessionRef>) {
      const uuids = sessions.flatMap(uuidOf)
      const bookmarks = yield* readBookmarks(sql`b.session_id = any(${uuids}::uuid[])`)
      const named = [
        ...sessions.flatMap(({ state }) => Option.toArray(state).flatMap(({ runIds }) => runIds)),
        ...bookmarks.flatMap(({ lastRunId }) => (lastRunId === null ? [] : [lastRunId]))
      ]
      const own = sql`(o.id = any(${named}::uuid[]) or o.session_id = any(${uuids}::uuid[]))`
      const jobs = yield* readJobs(sql`
        exists (select from jobs o where ${own}
                and (o.id = j.id or (o.ticket_id = j.ticket_id and j.finished_at is null)))`)
      return found(jobs, yield* readTickets(jobs, sql``), bookmarks)
    })

    /** One session's rows, by their keys alone. */
    const byKey = Effect.fnUntraced(function* (
      { scope, state }: SessionCatalog.SessionRef,
      rows: NativeSession.SessionRows,
      lock: { readonly rows: Fragment; readonly bookmarks: Fragment }
    ) {
      // Which rows are the session's does not depend on the time.
      const session = NativeSession.fromRows(scope, state, rows, DateTime.makeUnsafe(0))
      const jobs = yield* readJobs(sql`j.id = any(${session.runIds}::uuid[]) order by j.id ${lock.rows}`)
      const tickets = yield* readTickets(jobs, lock.rows)
      const bookmarks = yield* readBookmarks(
        sql`b.id = any(${session.taskSessions}::uuid[]) order by b.id ${lock.bookmarks}`
      )
      return found(jobs, tickets, bookmarks)
    })

    return SessionCatalog.SessionCatalog.of({
      hasCompany: (companyId) =>
        Effect.map(
          read(Id, "finding a tenant", sql`select id from tenants where id = ${companyId}::uuid`),
          (rows) => rows.length > 0
        ),
      load: (sessions) => transactions.join("reading sessions", load(sessions)),
      lock: (session, rows) =>
        byKey(session, rows, {
          rows: sql`for no key update nowait`,
          bookmarks: sql`for update nowait`
        }).pipe(
          Effect.catchIf(
            ({ reason }) => reason._tag === "LockTimeout",
            () => new SessionCatalog.RowsBusy({ scope: session.scope })
          )
        ),
      reread: (session, rows) =>
        transactions.join("reading a session", byKey(session, rows, { rows: sql``, bookmarks: sql`` })),
      removeTaskSessions: (ids) =>
        Effect.map(
          read(
            Id,
            "removing bookmarks",
            sql`delete from bookmarks where id = any(${ids}::uuid[]) returning id`
          ),
          (rows) => rows.length
        )
    })
  })
)
