import { PgClient } from "@effect/sql-pg"
import { describe, expect, layer } from "@effect/vitest"
import { type ControlPlaneState, NativeSession } from "@reclaim/core"
import { TestDatabase } from "@reclaim/postgres/testing"
import { DateTime, Deferred, Effect, Fiber, Layer, Option, Redacted } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { HostSchema, SessionCatalog, Transactions } from "../src/index.ts"
import { adopted, noon, sent, statementsOf } from "./support/database.ts"
import * as Make from "./support/sessions.ts"

const services = SessionCatalog.layer.pipe(Layer.provideMerge(adopted()))

const load = Effect.fnUntraced(function* (
  ...sessions: ReadonlyArray<{ readonly ref: SessionCatalog.SessionRef }>
) {
  const catalog = yield* SessionCatalog.SessionCatalog
  return yield* catalog.load(sessions.map(({ ref }) => ref))
})

const drawn = ({ ref }: { readonly ref: SessionCatalog.SessionRef }, found: SessionCatalog.Found) =>
  NativeSession.fromRows(ref.scope, ref.state, found.rows, noon)

/** Locks what was found about a session, does something meanwhile, and commits. */
const locking = Effect.fnUntraced(function* <A, E, R>(
  { ref }: { readonly ref: SessionCatalog.SessionRef },
  found: SessionCatalog.Found,
  body: (locked: SessionCatalog.Found) => Effect.Effect<A, E, R>
) {
  const catalog = yield* SessionCatalog.SessionCatalog
  const { run } = yield* Transactions.Transactions
  return yield* run(() => Effect.flatMap(catalog.lock(ref, found.rows), body), { lockTimeout: "300 millis" })
})

/** Another client of the same database, as another user if one is given. */
const another = Effect.fnUntraced(function* (user?: string) {
  const { url } = yield* TestDatabase.TestDatabase
  const as = new URL(url)
  if (user !== undefined) as.username = user
  return PgClient.layer({ url: Redacted.make(as.href), maxConnections: 1 })
})

/** Runs an effect while another connection holds the lock that a statement takes. */
const whileLocked = Effect.fnUntraced(function* <A, E, R>(statement: string, self: Effect.Effect<A, E, R>) {
  const held = yield* Deferred.make<void>()
  const done = yield* Deferred.make<void>()
  const holder = yield* Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql.withTransaction(
      Effect.andThen(
        Effect.forEach(statement.split(";"), (each) => sql.unsafe(each)),
        Effect.andThen(Deferred.succeed(held, undefined), Deferred.await(done))
      )
    )
  }).pipe(Effect.provide(Layer.fresh(yield* another()), { local: true }), Effect.forkChild)
  yield* Effect.raceFirst(
    Deferred.await(held),
    Effect.andThen(Fiber.join(holder), Effect.die("never locked"))
  )
  const value = yield* Effect.ensuring(self, Deferred.succeed(done, undefined))
  yield* Fiber.join(holder)
  return value
})

layer(services)("SessionCatalog", (it) => {
  it.effect(
    "[B-06] finds a session's runs by its state file, by its native id and by its task sessions",
    () =>
      Effect.gen(function* () {
        const session = yield* Make.session()
        const byNativeId = yield* Make.run(session, {
          sessionId: session.sessionId,
          issueId: yield* Make.issue(session)
        })
        const byTaskSession = yield* Make.run(session, { issueId: yield* Make.issue(session) })
        const second = yield* Make.taskSession(session, {
          params: { sessionId: session.sessionId.toUpperCase() },
          lastRunId: byTaskSession
        })
        yield* Make.session()
        const known = drawn(session, yield* load(session))
        expect(known.runIds.toSorted()).toEqual([session.runId, byNativeId, byTaskSession].toSorted())
        expect(known.unknownRuns).toEqual([])
        expect(known.taskSessions.toSorted()).toEqual([`${session.taskSessionId}`, second].toSorted())
        expect(known.issueIds.length).toBe(3)
        expect(known.foreign).toEqual([])
      })
  )

  it.effect("[B-06] only the runner's adapter names a native session, whatever the case of the id", () =>
    Effect.gen(function* () {
      const session = yield* Make.session({ taskSession: false })
      const { sessionId } = session
      const upper = yield* Make.taskSession(session, { params: { sessionId: sessionId.toUpperCase() } })
      yield* Make.taskSession(session, { params: { sessionId }, adapter: "codex_local" })
      yield* Make.taskSession(session, { params: { other: sessionId } })
      yield* Make.taskSession(session, { params: [sessionId] })
      yield* Make.taskSession(session, { params: null })
      yield* Make.taskSession(session, { params: { sessionId: crypto.randomUUID() } })
      expect(drawn(session, yield* load(session)).taskSessions).toEqual([upper])
    })
  )

  it.effect("[B-06] what is of another company or agent is found, and told", () =>
    Effect.gen(function* () {
      const session = yield* Make.session()
      const stranger = yield* Make.owner
      const colleague = { ...session, agentId: yield* Make.agent(session.companyId) }
      const params = { sessionId: session.sessionId }
      yield* Make.run(stranger, { sessionId: session.sessionId })
      yield* Make.run(colleague, { sessionId: session.sessionId })
      yield* Make.taskSession(stranger, { params })
      yield* Make.taskSession(colleague, { params })
      expect(
        drawn(session, yield* load(session))
          .foreign.map(({ what }) => what)
          .toSorted()
      ).toEqual([
        "a run of another agent",
        "a run of another company",
        "a task session of another agent",
        "a task session of another company"
      ])
    })
  )

  it.effect("[B-05] finds unfinished runs that retry one of its runs or are on one of its issues", () =>
    Effect.gen(function* () {
      const session = yield* Make.session()
      const other = yield* Make.issue(session)
      const finalized = yield* Make.run(session, { sessionId: session.sessionId })
      yield* Make.finalization(session, finalized, { issueId: other })
      const open = { status: "queued", finishedAt: null } as const
      const expected = [
        yield* Make.run(session, { ...open, retryOf: session.runId }),
        yield* Make.run(session, { ...open, issueId: session.issueId }),
        yield* Make.run(session, { ...open, context: { issueId: session.issueId?.toUpperCase() } }),
        yield* Make.run(session, { ...open, context: { taskId: other } }),
        yield* Make.run(session, { status: "succeeded", finishedAt: null, issueId: session.issueId }),
        yield* Make.run(session, { status: "paused", issueId: session.issueId })
      ]
      const byFinalization = yield* Make.run(session, open)
      yield* Make.finalization(session, byFinalization, { issueId: other })
      // Not its own: another issue, and one that is over.
      yield* Make.run(session, { ...open, issueId: yield* Make.issue(session) })
      yield* Make.run(session, { issueId: session.issueId })
      expect(drawn(session, yield* load(session)).unfinishedRuns.toSorted()).toEqual(
        [...expected, byFinalization].toSorted()
      )
    })
  )

  it.effect("[B-05] finds leases by the scope or the session wherever their metadata mentions it", () =>
    Effect.gen(function* () {
      const session = yield* Make.session()
      const { scope, sessionId } = session
      const stamp = { nativeHarnessBackup: { sessionScopeSha256: scope } }
      const expected = [
        yield* Make.lease(session, { metadata: stamp }),
        yield* Make.lease(session, { metadata: stamp, status: "released" }),
        yield* Make.lease(session, { metadata: stamp, status: "retained" }),
        yield* Make.lease(session, { metadata: stamp, status: "pending_cleanup" }),
        yield* Make.lease(session, { metadata: stamp, status: "expired", cleanup: "pending" }),
        yield* Make.lease(session, { metadata: [{ deep: [`x ${sessionId.toUpperCase()} y`] }] }),
        yield* Make.lease(session, { metadata: { [`key-${scope.toUpperCase()}`]: null } })
      ]
      yield* Make.lease(session, { metadata: stamp, status: "expired" })
      yield* Make.lease(session, { metadata: stamp, status: "failed", cleanup: "success" })
      yield* Make.lease(session, { metadata: { sessionScopeSha256: Make.scopeId() } })
      const found = yield* load(session)
      expect(drawn(session, found).leases.toSorted()).toEqual(expected.toSorted())
      // Without a state file the scope still finds them.
      const blind = { ref: { scope, state: Option.none<ControlPlaneState.ControlPlaneState>() } }
      expect(drawn(blind, yield* load(blind)).leases.length).toBe(6)
    })
  )

  it.effect("[B-05] finds a lease by a session id that JSON and lower case write differently", () =>
    Effect.gen(function* () {
      const its = yield* Make.owner
      const sessionId = 'session-"É\\1"'
      const runId = yield* Make.run(its)
      const session = { ref: Make.refOf(Make.scopeId(), sessionId, runId) }
      const lease = yield* Make.lease(its, { metadata: { session: sessionId } })
      const task = yield* Make.taskSession(its, { params: { sessionId }, lastRunId: runId })
      const known = drawn(session, yield* load(session))
      expect(known.leases).toEqual([lease])
      expect(known.taskSessions).toEqual([task])
    })
  )

  it.effect(
    "[B-05] finds a lease by what stands inside of a longer word, in a path, in a name or in capitals",
    () =>
      Effect.gen(function* () {
        const its = yield* Make.owner
        const [one, other] = [yield* Make.session({ owner: its }), yield* Make.session({ owner: its })]
        const { scope, sessionId } = one
        const mentions: ReadonlyArray<unknown> = [
          { scope },
          { path: `/srv/durable-sessions/${scope}/runner` },
          [`sha256:${scope}`],
          `0${scope}0`,
          `${scope}-${crypto.randomUUID()}`,
          { [sessionId]: true },
          { session: sessionId.toUpperCase() },
          `a-${sessionId}-b`,
          `${sessionId}${"x".repeat(64)}`
        ]
        const leases = yield* Effect.forEach(mentions, (metadata) => Make.lease(its, { metadata }))
        yield* Make.lease(its, { metadata: [scope.slice(1), sessionId.slice(1), "x".repeat(80)] })
        const found = yield* load(one, other)
        expect(drawn(one, found).leases.toSorted()).toEqual(leases.toSorted())
        expect(found.rows.leases).toHaveLength(leases.length)
        expect(drawn(other, found).leases).toEqual([])
      })
  )

  describe("many sessions at once", () => {
    it.effect("[D-08] takes as many statements for forty sessions as for one", () =>
      Effect.gen(function* () {
        const its = yield* Make.owner
        const sessions: Array<Make.Session> = []
        for (let index = 0; index < 40; index++) sessions.push(yield* Make.session({ owner: its }))
        const one = yield* statementsOf(load(sessions[0]!))
        const all = yield* statementsOf(load(...sessions))
        expect(one.length).toBe(5)
        expect(all.length).toBe(5)
        expect(yield* statementsOf(load())).toEqual([])
        const found = yield* load(...sessions)
        for (const session of sessions) {
          const known = drawn(session, found)
          expect(known.runIds).toEqual([session.runId])
          expect(known.issueIds).toEqual([session.issueId])
          expect(known.taskSessions).toEqual([session.taskSessionId])
          expect(known.unsettledRuns).toEqual([])
          expect(found.obstacles(session.scope)).toEqual([])
        }
      })
    )

    it.effect("[D-07] a session id that PostgreSQL cannot hold does not spoil the others", () =>
      Effect.gen(function* () {
        const session = yield* Make.session()
        const odd = { ref: Make.refOf(Make.scopeId(), "\u0000", crypto.randomUUID()) }
        const lone = { ref: Make.refOf(Make.scopeId(), "\ud800", crypto.randomUUID()) }
        const found = yield* load(odd, session, lone)
        expect(drawn(session, found).runIds).toEqual([session.runId])
        expect(drawn(odd, found).unknownRuns.length).toBe(1)
        expect(drawn(odd, found).leases).toEqual([])
      })
    )
  })

  it.effect("[C-05] infinite instants are the last and the first, and nothing breaks on them", () =>
    Effect.gen(function* () {
      const session = yield* Make.session({
        issue: { completedAt: "infinity" },
        finalization: { lease: "infinity" }
      })
      const early = yield* Make.session({
        issue: { completedAt: "-infinity" },
        finalization: { lease: "-infinity" }
      })
      const found = yield* load(session, early)
      expect(drawn(session, found).unsettledRuns).toEqual([session.runId])
      expect(drawn(session, found).closedIssues).toEqual([
        { id: session.issueId, closedAt: DateTime.makeUnsafe(8.64e15) }
      ])
      expect(drawn(early, found).unsettledRuns).toEqual([])
      expect(drawn(early, found).closedIssues).toEqual([
        { id: early.issueId, closedAt: DateTime.makeUnsafe(-8.64e15) }
      ])
    })
  )

  describe("locking", () => {
    it.effect(
      "[B-07] locks runs, finalizations, issues, leases and task sessions, in that order and by id",
      () =>
        Effect.gen(function* () {
          const session = yield* Make.session()
          const found = yield* load(session)
          sent.length = 0
          yield* locking(session, found, () => Effect.void)
          const locks = sent
            .filter((text) => / nowait/i.test(text))
            .map((text) => text.replaceAll(/\s+/g, " "))
          expect(locks.map((text) => /from (\w+)/.exec(text.slice(text.lastIndexOf(" from ")))?.[1])).toEqual(
            [
              "heartbeat_runs",
              "native_run_finalizations",
              "issues",
              "environment_leases",
              "agent_task_sessions"
            ]
          )
          for (const [index, text] of locks.entries()) {
            expect(text).toMatch(
              index === 4
                ? /order by \w\.id for update nowait/
                : /order by \w\.(run_)?id for no key update nowait/
            )
          }
        })
    )

    for (const [table, statement] of [
      ["runs", (s: Make.Session) => `update heartbeat_runs set error = 'x' where id = '${s.runId}'`],
      [
        "finalizations",
        (s: Make.Session) => `update native_run_finalizations set attempt = 1 where run_id = '${s.runId}'`
      ],
      ["issues", (s: Make.Session) => `update issues set title = 'x' where id = '${s.issueId}'`],
      [
        "leases",
        (s: Make.Session) =>
          `update environment_leases set provider = 'x' where metadata::text like '%${s.scope}%'`
      ],
      [
        "task sessions",
        (s: Make.Session) => `update agent_task_sessions set last_error = 'x' where id = '${s.taskSessionId}'`
      ],
      [
        "task sessions that are only referred to",
        (s: Make.Session) => `select from agent_task_sessions where id = '${s.taskSessionId}' for key share`
      ],
      ["a whole table", () => "lock table issues in exclusive mode"]
    ] as const) {
      it.effect(`[B-07] somebody at work on ${table} is RowsBusy, without a wait`, () =>
        Effect.gen(function* () {
          const session = yield* Make.session()
          // A lease that no longer refers to the session may do so again: it is locked as well.
          yield* Make.lease(session, { metadata: { scope: session.scope }, status: "expired" })
          const found = yield* load(session)
          const failure = yield* whileLocked(
            statement(session),
            Effect.flip(locking(session, found, () => Effect.void))
          )
          expect(failure).toEqual(new SessionCatalog.RowsBusy({ scope: session.scope }))
          yield* locking(session, found, () => Effect.void)
        })
      )
    }

    it.effect("[B-07] rows of other sessions of the batch do not matter", () =>
      Effect.gen(function* () {
        const its = yield* Make.owner
        const session = yield* Make.session({ owner: its })
        const other = yield* Make.session({ owner: its })
        const lease = yield* Make.lease(its, { metadata: { scope: other.scope } })
        const found = yield* load(session, other)
        const locked = yield* whileLocked(
          `update heartbeat_runs set error = 'x' where id = '${other.runId}';
           update issues set title = 'x' where id = '${other.issueId}';
           update environment_leases set provider = 'x' where id = '${lease}';
           update agent_task_sessions set last_error = 'x' where id = '${other.taskSessionId}'`,
          locking(session, found, Effect.succeed)
        )
        expect(locked.rows.runs.map(({ id }) => id)).toEqual([session.runId])
        expect(locked.rows.finalizations.map(({ runId }) => runId)).toEqual([session.runId])
        expect(locked.rows.issues.map(({ id }) => id)).toEqual([session.issueId])
        expect(locked.rows.taskSessions.map(({ id }) => id)).toEqual([session.taskSessionId])
        expect(locked.rows.leases).toEqual([])
      })
    )

    it.effect("[B-07] does not stand in the way of an uncommitted run that refers to the locked rows", () =>
      Effect.gen(function* () {
        const session = yield* Make.session()
        const found = yield* load(session)
        const locked = yield* whileLocked(
          `insert into heartbeat_runs (company_id, agent_id, status, retry_of_run_id)
           values ('${session.companyId}', '${session.agentId}', 'succeeded', '${session.runId}')`,
          locking(session, found, Effect.succeed)
        )
        expect(locked.rows.runs.length).toBe(1)
      })
    )

    it.effect("[B-07] tells what the rows say now, and of a finalization that came later", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const catalog = yield* SessionCatalog.SessionCatalog
        const session = yield* Make.session({ finalization: null })
        const found = yield* load(session)
        yield* sql`update issues set status = 'in_progress' where id = ${session.issueId}::uuid`
        const other = yield* Make.issue(session, { status: "todo" })
        const [locked, again] = yield* locking(
          session,
          found,
          Effect.fnUntraced(function* (locked) {
            yield* Make.finalization(session, session.runId, { issueId: other, phase: "observed" }).pipe(
              Effect.provide(Layer.fresh(yield* another()), { local: true })
            )
            return [locked, yield* catalog.reread(session.ref, found.rows)] as const
          })
        )
        expect(drawn(session, locked).openIssues).toEqual([session.issueId])
        expect(drawn(session, again).openIssues.toSorted()).toEqual([`${session.issueId}`, other].toSorted())
        expect(drawn(session, again).unsettledRuns).toEqual([session.runId])
      })
    )

    it.effect("[B-07] under the locks nothing but primary keys is asked for", () =>
      Effect.gen(function* () {
        const session = yield* Make.session()
        const catalog = yield* SessionCatalog.SessionCatalog
        const found = yield* load(session)
        const statements = yield* statementsOf(
          locking(session, found, () =>
            Effect.andThen(
              catalog.reread(session.ref, found.rows),
              catalog.removeTaskSessions([session.taskSessionId!])
            )
          )
        )
        expect(statements.length).toBe(11)
        for (const statement of statements) {
          expect(statement.replaceAll(/\s+/g, " ")).toMatch(/where (\w\.)?(run_)?id = any\(/)
        }
      })
    )

    it.effect("[B-07] removes exactly the task sessions that are named", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const catalog = yield* SessionCatalog.SessionCatalog
        const session = yield* Make.session()
        const other = yield* Make.session({ owner: session })
        const gone = NativeSession.TaskSessionId.make(crypto.randomUUID())
        expect(yield* catalog.removeTaskSessions([])).toBe(0)
        expect(yield* catalog.removeTaskSessions([session.taskSessionId!, gone])).toBe(1)
        const rows =
          yield* sql`select id::text from agent_task_sessions where company_id = ${session.companyId}::uuid`
        expect(rows).toEqual([{ id: other.taskSessionId }])
      })
    )
  })

  it.effect("[D-05] rights on the listed columns are enough to look", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const session = yield* Make.session()
      const role = `looker_${crypto.randomUUID().replaceAll("-", "")}`
      yield* Effect.acquireRelease(sql`create role ${sql(role)} login`, () =>
        Effect.ignore(Effect.andThen(sql`drop owned by ${sql(role)}`, sql`drop role ${sql(role)}`))
      )
      const grants = `
        grant select (id, company_id, agent_id, status, runtime_mode, native_session_id, native_issue_id,
          context_snapshot, retry_of_run_id, started_at, finished_at, created_at) on heartbeat_runs to ${role};
        grant select (run_id, company_id, issue_id, phase, lease_expires_at, recovery_state)
          on native_run_finalizations to ${role};
        grant select (id, company_id, agent_id, adapter_type, session_params_json, last_run_id)
          on agent_task_sessions to ${role};
        grant select (id, company_id, status, cleanup_status, metadata) on environment_leases to ${role};
        grant select (id, company_id, status, completed_at, cancelled_at) on issues to ${role}`
      yield* Effect.forEach(grants.split(";"), (grant) => sql.unsafe(grant))
      const looking = SessionCatalog.layer.pipe(
        Layer.provide(HostSchema.layer),
        Layer.provide(Transactions.layer),
        Layer.provide(yield* another(role))
      )
      const found = yield* load(session).pipe(Effect.provide(Layer.fresh(looking), { local: true }))
      expect(drawn(session, found).runIds).toEqual([session.runId])
    }).pipe(Effect.scoped)
  )
})

/** A host whose columns allow more than ours do. */
const loose = Layer.effectDiscard(
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`alter table heartbeat_runs alter status drop not null`
    yield* sql`alter table native_run_finalizations alter phase drop not null`
    yield* sql`alter table issues alter status drop not null`
    yield* sql`alter table environment_leases alter status drop not null`
    yield* sql`alter table agent_task_sessions alter company_id drop not null`
  })
)

layer(loose.pipe(Layer.provideMerge(services)))(
  "SessionCatalog, rows that are not what they should be",
  (it) => {
    const spoil = Effect.fnUntraced(function* (
      table: string,
      column: string,
      key: string,
      id: string | null
    ) {
      const sql = yield* SqlClient.SqlClient
      yield* sql.unsafe(`update ${table} set ${column} = null where ${key} = '${id}'`)
    })
    const undecodable = (table: string, id: string | null) => ({
      _tag: "Unreadable",
      code: "undecodable row",
      path: `${table}/${id}`
    })
    const expectOnly = Effect.fnUntraced(function* (
      session: Make.Session,
      sibling: Make.Session,
      obstacle: unknown
    ) {
      for (const sessions of [
        [session, sibling],
        [sibling, session]
      ]) {
        const found = yield* load(...sessions)
        expect(found.obstacles(session.scope)).toEqual([obstacle])
        expect(found.obstacles(sibling.scope)).toEqual([])
      }
    })
    const two = Effect.gen(function* () {
      const its = yield* Make.owner
      return [yield* Make.session({ owner: its }), yield* Make.session({ owner: its })] as const
    })

    for (const [table, column, key] of [
      ["heartbeat_runs", "status", "runId"],
      ["native_run_finalizations", "phase", "runId"],
      ["issues", "status", "issueId"],
      ["agent_task_sessions", "company_id", "taskSessionId"]
    ] as const) {
      it.effect(`[D-07] an undecodable row of ${table} keeps its session only`, () =>
        Effect.gen(function* () {
          const [session, sibling] = yield* two
          const id = table === "native_run_finalizations" ? "run_id" : "id"
          yield* spoil(table, column, id, session[key])
          yield* expectOnly(session, sibling, undecodable(table, session[key]))
        })
      )
    }

    it.effect("[D-07] an undecodable lease keeps the session that it mentions", () =>
      Effect.gen(function* () {
        const [session, sibling] = yield* two
        const lease = yield* Make.lease(session, { metadata: { session: session.sessionId } })
        yield* spoil("environment_leases", "status", "id", lease)
        yield* expectOnly(session, sibling, undecodable("environment_leases", lease))
      })
    )

    it.effect("[D-07] rows of a run that the state file does not name keep the session whose run it is", () =>
      Effect.gen(function* () {
        const [session, sibling] = yield* two
        const issueId = yield* Make.issue(session)
        const older = yield* Make.run(session, { sessionId: session.sessionId, issueId })
        yield* Make.finalization(session, older, { issueId })
        yield* spoil("native_run_finalizations", "phase", "run_id", older)
        yield* expectOnly(session, sibling, undecodable("native_run_finalizations", older))
      })
    )

    it.effect(
      "[D-07] an undecodable run that may be at work on an issue keeps the sessions of that issue",
      () =>
        Effect.gen(function* () {
          const [session, sibling] = yield* two
          const other = yield* Make.run(session, { issueId: session.issueId })
          yield* spoil("heartbeat_runs", "status", "id", other)
          yield* expectOnly(session, sibling, undecodable("heartbeat_runs", other))
        })
    )

    it.effect("[D-07] a row that becomes undecodable is told under the locks too", () =>
      Effect.gen(function* () {
        const [session, sibling] = yield* two
        const found = yield* load(session, sibling)
        yield* spoil("issues", "status", "id", session.issueId)
        const locked = yield* locking(session, found, Effect.succeed)
        expect(locked.obstacles(session.scope)).toEqual([undecodable("issues", session.issueId)])
      })
    )
  }
)
