import { assert, describe, layer } from "@effect/vitest"
import { FaultPoint } from "@reclaim/core"
import { layerFaulty } from "@reclaim/fs/testing"
import { DateTime, Effect, Exit, Fiber } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Fs from "node:fs"
import * as Backend from "../../db/test/support/backend.ts"
import { SessionActivity } from "../src/index.ts"
import { FaultPoints } from "../src/testing.ts"
import * as World from "./support/SessionsWorld.ts"

const { Make } = World
type Session = World.Make.Session

/** A queued run of the session, as another process inserts it. */
const appear = (session: Session, options: Partial<World.Make.RunOptions> = {}) =>
  World.apart(
    Make.run(session, { sessionId: session.sessionId, status: "queued", finishedAt: null, ...options })
  )

/** What a backup that stayed must be: in its place, whole, and restorable. */
const expectKept = Effect.fnUntraced(function* (session: Session, note = "current") {
  assert.deepStrictEqual(yield* World.names(session), ["current"])
  assert.strictEqual(yield* World.restored(session), note)
})

layer(World.layer(), { excludeTestServices: true })("retiring", (it) => {
  describe("a run that appears is noticed, and the backup is back", () => {
    for (const [point, what, cleared, events] of [
      ["expiration.beforeLock", "between the plan and the locks", 0, ["expired", "undone"]],
      ["expiration.afterLock", "under the locks", 0, ["expired", "undone"]],
      ["retire.afterRename", "between the rename and the commit", 0, ["expired", "undone"]],
      ["expiration.beforeCommit", "before the commit", 0, ["expired", "undone"]],
      ["expiration.beforeFinalLook", "after the commit", 0, ["expired", "undone"]],
      ["expiration.beforeLastLook", "before it is deleted", 0, ["expired", "recovered"]]
    ] as const) {
      for (const [kind, options] of [
        ["a queued run of the session", {}],
        ["a retry of its run", { sessionId: null, mode: "legacy" }],
        ["a run that is over at once", { status: "succeeded", finishedAt: World.noon }]
      ] as const) {
        it.effect(`[B-08] ${kind}, ${what}`, () =>
          Effect.gen(function* () {
            yield* World.begin
            const session = yield* World.expirable()
            const retry = kind === "a retry of its run" ? { retryOf: session.runId } : {}
            const action = yield* appear(session, { ...options, ...retry })
            const report = yield* World.onceAt(point, action)(World.sweepOnce())
            assert.strictEqual(report.expired, 0)
            assert.deepStrictEqual(report.skipped, { RunAppeared: 1 })
            assert.strictEqual(report.reclaimedAllocatedBytes, 0n)
            yield* expectKept(session)
            assert.strictEqual(yield* World.taskSessions(session), cleared)
            assert.deepStrictEqual(yield* World.events(session), [...events])
          })
        )
      }
    }
  })

  it.effect("[B-07] a run that starts while its rows are being locked keeps it, and its task session", () =>
    Effect.gen(function* () {
      yield* World.begin
      const session = yield* World.expirable()
      // The host takes the run up again: the very row that is about to be locked.
      const action = yield* World.apart(
        Effect.flatMap(
          SqlClient.SqlClient,
          (sql) => sql`update heartbeat_runs set status = 'running', finished_at = null
            where id = ${session.runId}::uuid`
        )
      )
      const report = yield* World.onceAt("expiration.beforeLock", action)(World.sweepOnce())
      assert.deepStrictEqual(report.skipped, { RunAppeared: 1 })
      yield* expectKept(session)
      assert.strictEqual(yield* World.taskSessions(session), 1)
      assert.deepStrictEqual(yield* World.events(session), [])
    })
  )

  describe("whatever else changes meanwhile keeps it too", () => {
    type Change = (session: Session) => Effect.Effect<Effect.Effect<unknown, unknown>, never, World.Services>
    const inTables =
      (change: (session: Session) => Effect.Effect<unknown, unknown, SqlClient.SqlClient>): Change =>
      (session) =>
        World.apart(change(session))
    const onDisk =
      (change: (folder: string) => void): Change =>
      ({ scope }) =>
        Effect.map(World.pathOf(scope), (folder) => Effect.sync(() => change(folder)))
    const changes: ReadonlyArray<readonly [what: string, change: Change]> = [
      [
        "its issue is reopened",
        inTables(({ issueId }) =>
          Effect.flatMap(
            SqlClient.SqlClient,
            (sql) => sql`update issues set status = 'todo', completed_at = null where id = ${issueId}::uuid`
          )
        )
      ],
      [
        "a lease refers to it",
        inTables((session) => Make.lease(session, { metadata: { x: session.scope } }))
      ],
      [
        "a task session names it again",
        inTables((session) => Make.taskSession(session, { params: { sessionId: session.sessionId } }))
      ],
      [
        "its state file names a run that is in no table",
        (session) =>
          Effect.map(World.pathOf(session.scope), (folder) =>
            Effect.sync(() =>
              Fs.writeFileSync(
                `${folder}/control-plane/control-plane-state.json`,
                Make.stateText(session.sessionId, crypto.randomUUID())
              )
            )
          )
      ],
      ["its state file goes", onDisk((folder) => Fs.rmSync(`${folder}/control-plane`, { recursive: true }))],
      [
        "a cleanup of its folder is about to run",
        onDisk((folder) => Fs.writeFileSync(`${folder}/cleanup-activation.json`, "{}"))
      ],
      [
        "an operator holds it",
        inTables(({ scope }) =>
          Effect.flatMap(
            SqlClient.SqlClient,
            (sql) => sql`insert into reclaim.holds (kind, scope, held_by, note, created_at)
              values ('scope', ${scope}, 'ops', 'wait', now())`
          )
        )
      ],
      [
        "it becomes active in this process",
        ({ scope }) =>
          Effect.map(SessionActivity.SessionTracker, (tracker) =>
            Effect.forkDetach(Effect.scoped(Effect.andThen(tracker.track(scope, "warm"), Effect.never)), {
              startImmediately: true
            })
          )
      ]
    ]
    for (const [what, change] of changes) {
      for (const point of ["expiration.beforeLock", "expiration.beforeFinalLook"]) {
        it.effect(`[B-08] ${what}, at ${point}`, () =>
          Effect.gen(function* () {
            yield* World.begin
            const session = yield* World.expirable()
            const report = yield* World.onceAt(point, yield* change(session))(World.sweepOnce())
            assert.strictEqual(report.expired, 0)
            // A run that is in no table may be one that was overlooked.
            const run = what.includes("names a run") && point === "expiration.beforeFinalLook"
            assert.deepStrictEqual(report.skipped, { [run ? "RunAppeared" : "ChangedMeanwhile"]: 1 })
            yield* expectKept(session)
          })
        )
      }
    }

    for (const [what, change] of changes.filter(([each]) => /active|task session|holds/.test(each))) {
      it.effect(`[B-08] ${what}, right before it is deleted`, () =>
        Effect.gen(function* () {
          yield* World.begin
          const session = yield* World.expirable()
          const report = yield* World.onceAt(
            "expiration.beforeLastLook",
            yield* change(session)
          )(World.sweepOnce())
          assert.strictEqual(report.expired, 0)
          assert.strictEqual(report.reclaimedAllocatedBytes, 0n)
          assert.deepStrictEqual(report.skipped, { [what.includes("holds") ? "Held" : "RunAppeared"]: 1 })
          const [name, ...more] = yield* World.names(session)
          assert.deepStrictEqual(more, [])
          // A hold keeps it where it is; it can be taken back from there.
          assert.strictEqual(name, what.includes("holds") ? ".expired" : "current")
        })
      )
    }

    it.effect("[B-08] a backup that is written after the rename stays, and so does the old one", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* World.expirable()
        const instance = yield* World.Instance
        const write = World.backup(session, { note: "new", completedAt: World.noon }).pipe(
          Effect.provideService(World.Instance, instance)
        )
        const report = yield* World.onceAt("expiration.beforeFinalLook", write)(World.sweepOnce())
        assert.strictEqual(report.expired, 0)
        assert.deepStrictEqual(report.skipped, { ChangedMeanwhile: 1 })
        assert.deepStrictEqual(yield* World.names(session), [".retiring", "current"])
        assert.strictEqual(yield* World.restored(session), "new")
        // The next sweep finds the new one whole, and drops the old one.
        yield* World.sweepOnce()
        assert.deepStrictEqual(yield* World.names(session), ["current"])
        assert.strictEqual(yield* World.restored(session), "new")
      })
    )

    it.effect("[B-08] a backup that is replaced before the rename is not the one that was looked at", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* World.expirable()
        const folder = `${yield* World.pathOf(session.scope)}/failover-backups`
        const instance = yield* World.Instance
        const replace = Effect.gen(function* () {
          Fs.renameSync(`${folder}/current`, `${folder}/old`)
          yield* World.backup(session, { note: "new" })
          Fs.rmSync(`${folder}/old`, { recursive: true })
        }).pipe(Effect.provideService(World.Instance, instance))
        const report = yield* World.onceAt("retire.beforeRename", replace)(World.sweepOnce())
        assert.deepStrictEqual(report.skipped, { ChangedMeanwhile: 1 })
        yield* expectKept(session, "new")
        assert.strictEqual(yield* World.taskSessions(session), 1)
      })
    )
  })

  describe("a busy row keeps", () => {
    for (const [table, statement] of [
      ["runs", (s: Session) => `update heartbeat_runs set error = 'x' where id = '${s.runId}'`],
      ["issues", (s: Session) => `update issues set title = 'x' where id = '${s.issueId}'`],
      [
        "task sessions",
        (s: Session) => `select from agent_task_sessions where id = '${s.taskSessionId}' for key share`
      ]
    ] as const) {
      it.effect(`[B-07] ${table}: RowsBusy, and only the session whose rows they are`, () =>
        Effect.gen(function* () {
          yield* World.begin
          const busy = yield* World.expirable()
          const free = yield* World.expirable({ owner: busy })
          const sql = yield* SqlClient.SqlClient
          const held = yield* World.sweepOnce().pipe(World.whileLocked(statement(busy)))
          assert.deepStrictEqual(held.skipped, { RowsBusy: 1 })
          assert.strictEqual(held.expired, 1)
          yield* expectKept(busy)
          assert.deepStrictEqual(yield* World.names(free), [])
          assert.deepStrictEqual(yield* World.events(busy), [])
          assert.strictEqual((yield* World.sweepOnce()).expired, 1)
          assert.strictEqual((yield* sql`select from agent_task_sessions`).length, 0)
        })
      )
    }
  })

  it.effect("[B-07] locks no row of a session that stays", () =>
    Effect.gen(function* () {
      yield* World.begin
      const stays = yield* World.expirable({ issue: { status: "in_progress" } })
      const goes = yield* World.expirable({ owner: stays })
      const { runId } = stays
      const statement = `select from heartbeat_runs where id = '${runId}' for update`
      const report = yield* World.sweepOnce().pipe(World.whileLocked(statement))
      assert.deepStrictEqual(report.skipped, { IssueOpen: 1 })
      assert.strictEqual(report.expired, 1)
      yield* expectKept(stays)
      assert.deepStrictEqual(yield* World.names(goes), [])
    })
  )

  it.effect("[B-07] removes exactly the task sessions that name the session", () =>
    Effect.gen(function* () {
      yield* World.begin
      const session = yield* World.expirable()
      yield* Make.taskSession(session, { params: { sessionId: session.sessionId.toUpperCase() } })
      const foreign = yield* Make.taskSession(session, {
        params: { sessionId: crypto.randomUUID() },
        lastRunId: session.runId
      })
      const adapter = yield* Make.taskSession(session, {
        params: { sessionId: session.sessionId },
        adapter: "codex_local"
      })
      const sql = yield* SqlClient.SqlClient
      assert.strictEqual((yield* World.sweepOnce()).clearedTaskSessions, 2)
      const rows = yield* sql<{ readonly id: string }>`select id::text from agent_task_sessions`
      assert.deepStrictEqual(rows.map(({ id }) => id).toSorted(), [foreign, adapter].map(String).toSorted())
    })
  )

  describe("a transaction that does not commit", () => {
    const failing = (deferred: boolean) => (body: Effect.Effect<void, unknown, World.Services>) =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* sql`create function public.refuse() returns trigger language plpgsql as
          $$ begin raise exception 'no journal today'; end $$`
        yield* sql.unsafe(
          deferred
            ? `create constraint trigger refuse after insert on reclaim.journal deferrable initially deferred
               for each row when (new.event = 'expired') execute function public.refuse()`
            : `create trigger refuse before insert on reclaim.journal
               for each row when (new.event = 'expired') execute function public.refuse()`
        )
        yield* Effect.ensuring(
          body,
          Effect.orDie(
            Effect.andThen(sql`drop trigger refuse on reclaim.journal`, sql`drop function public.refuse()`)
          )
        )
      })

    for (const [what, deferred] of [
      ["an error before the commit", false],
      ["a commit that the server refuses", true]
    ] as const) {
      it.effect(`[B-07] ${what} undoes the rename and gives the task session back`, () =>
        Effect.gen(function* () {
          yield* World.begin
          const session = yield* World.expirable({ backups: [{}, { name: "previous" }] })
          yield* failing(deferred)(
            Effect.gen(function* () {
              const exit = yield* Effect.exit(World.sweep())
              assert.include(String(Exit.isFailure(exit) ? exit.cause : ""), "no journal today")
              assert.deepStrictEqual(yield* World.names(session), ["current", "previous"])
              assert.strictEqual(yield* World.restored(session), "current")
              assert.strictEqual(yield* World.taskSessions(session), 1)
              assert.deepStrictEqual(yield* World.events(session), ["undone"])
            })
          )
          assert.strictEqual((yield* World.sweepOnce()).expired, 1)
        })
      )
    }

    it.effect("[S-29] a database without room for the journal does not stop it", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* World.expirable()
        const sql = yield* SqlClient.SqlClient
        yield* sql`create function public.full() returns trigger language plpgsql as
          $$ begin raise exception 'no room' using errcode = 'disk_full'; end $$`
        yield* sql`create trigger full_disk before insert on reclaim.journal
          for each row execute function public.full()`
        const report = yield* Effect.ensuring(
          World.sweepOnce(),
          Effect.orDie(
            Effect.andThen(sql`drop trigger full_disk on reclaim.journal`, sql`drop function public.full()`)
          )
        )
        assert.deepInclude(report, { expired: 1, errors: 0 })
        assert.deepStrictEqual(yield* World.names(session), [])
      })
    )

    it.effect("[B-07] a commit without an answer undoes the rename, and the next pass decides anew", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* World.expirable()
        let stopped: ReadonlyArray<number> = []
        const stop = yield* World.apart(
          Effect.gen(function* () {
            const sql = yield* SqlClient.SqlClient
            const rows = yield* sql<{ readonly pid: number }>`select pid from pg_stat_activity
              where datname = current_database() and xact_start is not null and pid <> pg_backend_pid()
                and backend_type = 'client backend'`
            stopped = rows.map(({ pid }) => pid)
            for (const pid of stopped) yield* Backend.stop(pid)
          })
        )
        const report = yield* World.sweepOnce().pipe(
          World.onceAt("expiration.beforeCommit", stop),
          World.elsewhere({ bounds: { commitTimeout: "1 second" } })
        )
        assert.strictEqual(stopped.length, 1)
        for (const pid of stopped) yield* Backend.resume(pid)
        assert.deepStrictEqual(report.skipped, { LockLost: 1 })
        yield* expectKept(session)
        // The commit had reached the server: it happened.
        yield* World.eventually(Effect.map(World.taskSessions(session), (count) => count === 0))
        assert.sameMembers([...(yield* World.events(session))], ["expired", "undone"])
        assert.strictEqual((yield* World.sweepOnce()).expired, 1)
      })
    )

    it.effect("[B-07] a connection that ends under the locks undoes the rename", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* World.expirable()
        const other = yield* World.expirable({ owner: session })
        const kill = yield* World.apart(
          Effect.flatMap(
            SqlClient.SqlClient,
            (sql) => sql`select pg_terminate_backend(pid, 5000) from pg_stat_activity
              where datname = current_database() and xact_start is not null and pid <> pg_backend_pid()
                and backend_type = 'client backend'`
          )
        )
        const report = yield* World.onceAt("expiration.afterRetire", kill)(World.sweepOnce())
        assert.deepStrictEqual(report.skipped, { LockLost: 1 })
        assert.strictEqual(report.expired, 1)
        const kept = (yield* World.names(session)).length > 0 ? session : other
        yield* expectKept(kept)
        assert.strictEqual(yield* World.taskSessions(kept), 1)
        assert.deepStrictEqual(yield* World.events(kept), ["undone"])
      })
    )

    it.effect("[B-08] a final look that fails undoes everything", () =>
      Effect.gen(function* () {
        yield* World.begin
        const sessions = [
          yield* World.expirable(),
          yield* World.expirable({ backups: [{ name: "previous" }] })
        ]
        const sql = yield* SqlClient.SqlClient
        const gone = yield* World.apart(
          Effect.flatMap(SqlClient.SqlClient, (other) => other`alter table heartbeat_runs rename to away`)
        )
        const exit = yield* Effect.exit(World.onceAt("expiration.beforeFinalLook", gone)(World.sweep()))
        yield* sql`alter table away rename to heartbeat_runs`
        assert.isTrue(Exit.isFailure(exit))
        assert.deepStrictEqual(yield* World.names(sessions[0]!), ["current"])
        assert.deepStrictEqual(yield* World.names(sessions[1]!), ["previous"])
        for (const session of sessions) {
          assert.strictEqual(yield* World.taskSessions(session), 0)
          assert.deepStrictEqual(yield* World.events(session), ["expired", "undone"])
        }
        assert.strictEqual((yield* World.sweepOnce()).expired, 2)
      })
    )
  })

  describe("current and previous", () => {
    it.effect("[B-08] a scope with only previous has a backup too", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* World.expirable({ backups: [{ name: "previous" }] })
        assert.deepInclude(yield* World.sweepOnce(), { candidates: 1, expired: 1 })
        assert.deepStrictEqual(yield* World.names(session), [])
      })
    )

    it.effect("[B-08] both go, each by a name of its own", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* World.expirable({ backups: [{}, { name: "previous" }] })
        const path = yield* World.pathOf(session.scope)
        let leaving: ReadonlyArray<string> = []
        const look = Effect.sync(() => void (leaving = Fs.readdirSync(`${path}/failover-backups`)))
        const report = yield* World.onceAt("expiration.beforeCommit", look)(World.sweepOnce())
        assert.deepInclude(report, { candidates: 1, expired: 1 })
        assert.strictEqual(leaving.filter((name) => name.startsWith(".retiring-")).length, 2)
        assert.deepStrictEqual(yield* World.names(session), [])
        assert.deepStrictEqual(yield* World.events(session), ["expired"])
      })
    )

    it.effect("[B-08] the older one leaves first and comes back last", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* World.expirable({ backups: [{}, { name: "previous" }] })
        const path = yield* World.pathOf(session.scope)
        const seen: Array<ReadonlyArray<string>> = []
        const look = Effect.sync(() => {
          seen.push(Fs.readdirSync(`${path}/failover-backups`).filter((name) => !name.startsWith(".")))
        })
        const run = yield* appear(session)
        yield* Effect.provideService(World.sweepOnce(), FaultPoint.FaultHandler, (name) =>
          name === "retire.afterRename" || name === "retire.afterUndo"
            ? look
            : name === "expiration.beforeFinalLook"
              ? Effect.orDie(Effect.asVoid(run))
              : Effect.void
        )
        assert.deepStrictEqual(
          seen.map((names) => names.toSorted()),
          [["current"], [], ["current"], ["current", "previous"]]
        )
      })
    )

    it.effect("[B-08] both come back to their own names", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* World.expirable({
          backups: [{}, { name: "previous", completedAt: DateTime.subtractDuration(Make.longAgo, "1 day") }]
        })
        const before = yield* World.picture
        yield* World.onceAt("expiration.beforeFinalLook", yield* appear(session))(World.sweepOnce())
        assert.deepStrictEqual(yield* World.names(session), ["current", "previous"])
        assert.strictEqual(yield* World.restored(session), "current")
        const path = yield* World.pathOf(session.scope)
        assert.include(
          Fs.readFileSync(`${path}/failover-backups/previous/runner/state.json`, "utf8"),
          "previous"
        )
        assert.strictEqual(before.split("\n").length, (yield* World.picture).split("\n").length)
      })
    )

    it.effect("[B-08] a run right before the deletion brings back the current one", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* World.expirable({
          backups: [{}, { name: "previous", completedAt: DateTime.subtractDuration(Make.longAgo, "1 day") }]
        })
        yield* World.onceAt("expiration.beforeLastLook", yield* appear(session))(World.sweepOnce())
        assert.deepStrictEqual(yield* World.names(session), [".expired", "current"])
        assert.strictEqual(yield* World.restored(session), "current")
      })
    )

    it.effect(
      "[B-08] a current that appeared before the deletion is not replaced; the expired one stays",
      () =>
        Effect.gen(function* () {
          yield* World.begin
          const session = yield* World.expirable()
          const instance = yield* World.Instance
          const run = yield* appear(session)
          const write = World.backup(session, { note: "new" }).pipe(
            Effect.provideService(World.Instance, instance),
            Effect.andThen(run)
          )
          yield* World.onceAt("expiration.beforeLastLook", write)(World.sweepOnce())
          assert.deepStrictEqual(yield* World.names(session), [".expired", "current"])
          assert.strictEqual(yield* World.restored(session), "new")
        })
    )

    it.effect("[B-08] the look before the deletion is each session's own, however long the others take", () =>
      Effect.gen(function* () {
        yield* World.begin
        const first = yield* World.expirable({ scope: World.scopeAt(1) })
        const second = yield* World.expirable({ owner: first, scope: World.scopeAt(2) })
        const report = yield* World.onceAt(
          "expiration.beforeDeletion",
          yield* appear(second)
        )(World.sweepOnce())
        assert.strictEqual(report.expired, 1)
        assert.deepStrictEqual(yield* World.names(first), [])
        yield* expectKept(second)
      })
    )

    it.effect("[B-08] a backup that somebody else is deleting does not become current", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* World.expirable()
        const path = yield* World.pathOf(session.scope)
        const run = yield* appear(session)
        const disturb = Effect.andThen(
          run,
          Effect.sync(() => {
            const [name] = Fs.readdirSync(`${path}/failover-backups`)
            Fs.rmSync(`${path}/failover-backups/${name}/runner/turn.log`)
          })
        )
        yield* World.onceAt("expiration.beforeLastLook", disturb)(World.sweepOnce())
        assert.deepStrictEqual(yield* World.names(session), [".expired"])
      })
    )
  })

  describe("two servers", () => {
    it.effect("[B-08] one that takes a backup on its way out for a leftover does not lose it", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* World.expirable({
          backups: [{}, { name: "previous", completedAt: DateTime.subtractDuration(Make.longAgo, "1 day") }]
        })
        const gate = yield* FaultPoints.gate("expiration.beforeFinalLook")
        const fiber = yield* Effect.forkChild(gate.guard(World.sweepOnce()))
        yield* gate.reached
        const other = yield* World.sweepOnce().pipe(World.elsewhere())
        assert.strictEqual(other.recovered, 1)
        yield* gate.open
        const report = yield* Fiber.join(fiber)
        assert.strictEqual(report.expired, 0)
        assert.deepStrictEqual(report.skipped, { ChangedMeanwhile: 1 })
        assert.deepStrictEqual(yield* World.names(session), ["current", "previous"])
        assert.strictEqual(yield* World.restored(session), "current")
      })
    )

    it.effect("[B-07] two that sweep at once expire each backup once", () =>
      Effect.gen(function* () {
        yield* World.begin
        const its = yield* Make.owner
        for (let index = 0; index < 8; index++) yield* World.expirable({ owner: its })
        const reports = yield* Effect.all([World.sweepOnce(), World.sweepOnce().pipe(World.elsewhere())], {
          concurrency: 2
        })
        const sum = (key: "expired" | "clearedTaskSessions" | "errors") =>
          reports.reduce((total, report) => total + report[key], 0)
        assert.strictEqual(sum("errors"), 0)
        for (let pass = 0; pass < 3; pass++) yield* World.sweep()
        assert.strictEqual(sum("clearedTaskSessions"), 8)
        const { path } = yield* World.Instance
        assert.notInclude(
          Fs.readdirSync(path, { recursive: true, encoding: "utf8" }).join("\n"),
          "failover-backups/"
        )
      })
    )
  })

  describe("interruption", () => {
    const late = ["expiration.beforeConfirm", "expiration.beforeLastLook", "expiration.beforeDeletion"]
    for (const point of [
      "expiration.afterLock",
      "expiration.afterTaskSessions",
      "expiration.afterRetire",
      "expiration.beforeCommit",
      "expiration.afterCommit",
      "expiration.beforeFinalLook",
      ...late
    ]) {
      it.effect(`[S-23] at ${point} leaves the backup in its place or expired, and nothing open`, () =>
        Effect.gen(function* () {
          yield* World.begin
          const session = yield* World.expirable()
          const gate = yield* FaultPoints.gate(point)
          const fiber = yield* Effect.forkChild(gate.guard(World.sweep()))
          yield* gate.reached
          const ending = yield* Effect.forkChild(Fiber.interrupt(fiber), { startImmediately: true })
          yield* gate.open
          yield* Fiber.join(ending)
          const names = yield* World.names(session)
          if (late.includes(point)) assert.deepStrictEqual(names, [".expired"])
          else {
            yield* expectKept(session)
            assert.strictEqual((yield* World.events(session)).at(-1), "undone")
          }
          assert.deepStrictEqual(yield* World.unfinished, { locks: 0, transactions: 0 })
          yield* World.sweep()
          assert.deepStrictEqual(yield* World.names(session), [])
          assert.strictEqual(yield* World.taskSessions(session), 0)
        })
      )
    }

    for (const point of [
      "expiration.afterLock",
      "expiration.afterRetire",
      "expiration.beforeCommit",
      "expiration.beforeFinalLook",
      "expiration.beforeConfirm"
    ]) {
      it.effect(`[F-09] a defect at ${point} moves the backup back`, () =>
        Effect.gen(function* () {
          yield* World.begin
          const session = yield* World.expirable({ backups: [{}, { name: "previous" }] })
          const exit = yield* Effect.exit(FaultPoints.at(point, Effect.die("a defect"))(World.sweep()))
          assert.isTrue(Exit.isFailure(exit))
          assert.deepStrictEqual(yield* World.names(session), ["current", "previous"])
          assert.deepStrictEqual(
            (yield* World.events(session)).at(-1),
            point === "expiration.afterLock" ? undefined : "undone"
          )
          assert.deepStrictEqual(yield* World.unfinished, { locks: 0, transactions: 0 })
        })
      )
    }
  })

  describe("renames that fail", () => {
    const named = (name: string) => (path: string) => path.includes(`failover-backups/${name}`)
    const faulty = (name: string, times: number) =>
      World.elsewhere({
        posix: layerFaulty([{ method: "rename", matches: named(name), code: "EXDEV", times }])
      })

    it.effect("[B-07] of the second backup takes the first one back", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* World.expirable({ backups: [{}, { name: "previous" }] })
        const report = yield* World.sweepOnce().pipe(faulty("current", 1))
        assert.deepStrictEqual(report.skipped, { Unreadable: 1 })
        assert.deepStrictEqual(yield* World.names(session), ["current", "previous"])
        assert.strictEqual(yield* World.taskSessions(session), 1)
        assert.deepStrictEqual(yield* World.events(session), ["undone"])
      })
    )

    it.effect("[B-08] to the expired name put the backup back", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* World.expirable()
        const report = yield* World.sweepOnce().pipe(faulty(".retiring", 1))
        assert.deepStrictEqual(report.skipped, { Unreadable: 1 })
        assert.strictEqual(report.expired, 0)
        yield* expectKept(session)
        assert.deepStrictEqual(yield* World.events(session), ["expired", "undone"])
      })
    )

    it.effect("[F-09] an undo that fails leaves it to the next sweep", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* World.expirable()
        const report = yield* World.sweepOnce().pipe(faulty(".retiring", 3))
        assert.strictEqual(report.expired, 0)
        assert.deepStrictEqual(yield* World.names(session), [".retiring"])
        assert.strictEqual(yield* World.restored(session), "current")
        assert.strictEqual((yield* World.sweepOnce()).recovered, 1)
        yield* expectKept(session)
        assert.deepStrictEqual(yield* World.events(session), ["expired", "recovered"])
      })
    )
  })

  it.effect("[C-05] a process that slept before the rename does not rename", () =>
    Effect.gen(function* () {
      yield* World.begin
      const session = yield* World.expirable()
      const report = yield* World.sleepingAt("expiration.afterTaskSessions")(World.sweepOnce())
      assert.deepStrictEqual(report.skipped, { LockLost: 1 })
      yield* expectKept(session)
      assert.strictEqual(yield* World.taskSessions(session), 1)
    })
  )
})

layer(World.layer({ pool: { maxConnections: 1 } }), { excludeTestServices: true })("a pool of one", (it) => {
  it.effect("[D-03] is enough", () =>
    Effect.gen(function* () {
      yield* World.begin
      const session = yield* World.expirable({ backups: [{}, { name: "previous" }] })
      assert.strictEqual((yield* World.sweepOnce()).expired, 1)
      assert.deepStrictEqual(yield* World.names(session), [])
    })
  )
})
