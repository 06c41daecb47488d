import { assert, layer } from "@effect/vitest"
import { FaultPoint } from "@reclaim/core"
import { Effect, Exit, Option } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Fs from "node:fs"
import * as World from "./support/SessionsWorld.ts"

const { Make } = World

/** Sessions with their rows made in a few statements; all but every `keepEach`-th may go. */
const many = Effect.fnUntraced(function* (count: number, keepEach = 0) {
  const sql = yield* SqlClient.SqlClient
  const its = yield* Make.owner
  const issueId = yield* Make.issue(its)
  const open = yield* Make.issue(its, { status: "todo" })
  const sessions = Array.from({ length: count }, (_, index) => ({
    scope: World.scopeAt(index + 1),
    sessionId: crypto.randomUUID(),
    runId: crypto.randomUUID(),
    keep: keepEach > 0 && index % keepEach === 0
  }))
  const rows = JSON.stringify(sessions)
  yield* sql`insert into heartbeat_runs
      (id, company_id, agent_id, status, runtime_mode, native_session_id, native_issue_id, finished_at)
    select (r ->> 'runId')::uuid, ${its.companyId}::uuid, ${its.agentId}::uuid, 'succeeded', 'native',
      (r ->> 'sessionId')::uuid, case when (r ->> 'keep')::boolean then ${open}::uuid else ${issueId}::uuid end,
      '2029-12-01' from jsonb_array_elements(${rows}::jsonb) r`
  yield* sql`insert into native_run_finalizations (run_id, company_id, issue_id, phase)
    select id, company_id, native_issue_id, 'committed' from heartbeat_runs where company_id = ${its.companyId}::uuid`
  for (const session of sessions) {
    yield* World.state(session)
    yield* World.backup(session)
  }
  return sessions
})

const named = (sessions: ReadonlyArray<{ readonly scope: string }>) =>
  Effect.map(
    Effect.forEach(sessions, (session) => World.names(session)),
    (all) => all.filter((names) => names.length > 0).length
  )

layer(World.layer(), { excludeTestServices: true, timeout: "60 seconds" })("batches", (it) => {
  it.effect("[B-04] at most 50 expire per batch, in one pass, each once", () =>
    Effect.gen(function* () {
      yield* World.begin
      const sessions = yield* many(120)
      const batches = yield* World.sweep()
      assert.deepStrictEqual(
        batches.map(({ report }) => [report.checked, report.candidates, report.expired]),
        [
          [50, 50, 50],
          [50, 50, 50],
          [20, 20, 20]
        ]
      )
      assert.deepStrictEqual(
        batches.map(({ continuation }) => Option.isSome(continuation)),
        [true, true, false]
      )
      assert.strictEqual(yield* named(sessions), 0)
    })
  )

  it.effect("[B-04] at most 200 sessions are checked per batch", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { path } = yield* World.Instance
      const root = (yield* World.pathOf("x")).slice(0, -2)
      assert.include(root, path)
      for (let index = 1; index <= 401; index++) Fs.mkdirSync(`${root}/${World.scopeAt(index)}`)
      Fs.writeFileSync(`${root}/${World.scopeAt(402)}`, "no folder")
      const batches = yield* World.sweep()
      assert.deepStrictEqual(
        batches.map(({ report }) => report.checked),
        [200, 200, 2]
      )
      assert.deepStrictEqual(batches[2]!.report.skipped, { Unexpected: 1 })
      // Exactly full: there is no empty batch after it.
      Fs.rmSync(`${root}/${World.scopeAt(401)}`, { recursive: true })
      Fs.rmSync(`${root}/${World.scopeAt(402)}`)
      assert.deepStrictEqual(
        (yield* World.sweep()).map(({ report }) => report.checked),
        [200, 200]
      )
    })
  )

  it.effect("[B-04] a sweep goes on where another one stopped", () =>
    Effect.gen(function* () {
      yield* World.begin
      const sessions = yield* many(70, 5)
      const [first] = yield* World.sweep({ dryRun: true })
      const rest = yield* World.sweep({ continuation: Option.getOrThrow(first!.continuation) })
      assert.deepStrictEqual(
        rest.map(({ report }) => report.expired),
        [6]
      )
      assert.strictEqual(first!.report.checked + rest[0]!.report.checked, 70)
      assert.strictEqual(yield* named(sessions), 64)
      const failure = yield* Effect.flip(World.sweep({ continuation: "reclaim1.x.y" }))
      assert.strictEqual(failure._tag, "InvalidContinuation")
    })
  )

  it.effect("[B-04] [B-07] a session that is taken up while earlier batches are at work is not touched", () =>
    Effect.gen(function* () {
      yield* World.begin
      const sessions = yield* many(60)
      const sql = yield* SqlClient.SqlClient
      const taken = sessions[55]!
      const begun = sql`insert into heartbeat_runs (company_id, agent_id, status, runtime_mode, native_session_id)
        select company_id, agent_id, 'running', 'native', native_session_id from heartbeat_runs
        where id = ${taken.runId}::uuid`
      const batches = yield* World.onceAt(
        "expiration.beforeFinalLook",
        Effect.provideService(Effect.asVoid(begun), SqlClient.SqlClient, sql)
      )(World.sweep())
      assert.deepStrictEqual(
        batches.map(({ report }) => report.expired),
        [50, 9]
      )
      // It was found out before it was moved, not when it was looked at for the last time.
      assert.deepStrictEqual(yield* World.events(taken), [])
      assert.strictEqual(batches[1]!.report.skipped["RunUnfinished"], 1)
      assert.strictEqual(yield* named(sessions), 1)
    })
  )

  it.effect(
    "[B-04] [D-08] a pass asks for the rows of 1,000 sessions at once, and for none of an empty one",
    () =>
      Effect.gen(function* () {
        yield* World.begin
        const sessions = yield* many(410, 1)
        const { statements, value: batches } = yield* World.statementsOf(World.sweep())
        assert.deepStrictEqual(
          batches.map(({ report }) => [report.checked, report.skipped]),
          [200, 200, 10].map((count) => [count, { IssueOpen: count }])
        )
        assert.strictEqual(statements.filter((text) => text.includes("environment_leases")).length, 1)
        for (const { scope } of sessions) {
          Fs.rmSync(`${yield* World.pathOf(scope)}/failover-backups`, { recursive: true })
        }
        const empty = yield* World.statementsOf(World.sweep())
        assert.deepStrictEqual(
          empty.value.map(({ report }) => [report.checked, report.skipped]),
          [200, 200, 10].map((count) => [count, {}])
        )
        assert.strictEqual(empty.statements.filter((text) => text.includes("environment_leases")).length, 0)
      })
  )

  it.effect("[B-04] scopes that come and go meanwhile are neither missed twice nor met twice", () =>
    Effect.gen(function* () {
      yield* World.begin
      const sessions = yield* many(60)
      const instance = yield* World.Instance
      // After the first batch was listed one later scope goes and one comes.
      const change = Effect.gen(function* () {
        Fs.rmSync(yield* World.pathOf(sessions[55]!.scope), { recursive: true })
        yield* World.backup({ scope: World.scopeAt(1000), sessionId: "x" })
      }).pipe(Effect.provideService(World.Instance, instance))
      const batches = yield* World.onceAt("expiration.beforeFinalLook", change)(World.sweep())
      assert.deepStrictEqual(
        batches.map(({ report }) => [report.checked, report.expired]),
        [
          [50, 50],
          [10, 9]
        ]
      )
      assert.deepStrictEqual(batches[1]!.report.skipped, { ControlPlaneMissing: 1 })
    })
  )

  it.effect("[D-08] the statements of a batch do not grow with the sessions that are checked", () =>
    Effect.gen(function* () {
      yield* World.begin
      yield* many(3, 1)
      const few = yield* World.statementsOf(World.sweepOnce())
      assert.deepStrictEqual(few.value.skipped, { IssueOpen: 3 })
      yield* World.begin
      yield* many(60, 1)
      const more = yield* World.statementsOf(World.sweepOnce())
      assert.deepStrictEqual(more.value.skipped, { IssueOpen: 60 })
      assert.strictEqual(more.statements.length, few.statements.length)
    })
  )

  it.effect("[S-23] an interruption between two sessions concludes nothing that it took back", () =>
    Effect.gen(function* () {
      yield* World.begin
      const sessions = yield* many(4)
      let confirmed = 0
      // The second confirmation is where the process is told to stop.
      const exit = yield* Effect.exit(
        Effect.provideService(World.sweep(), FaultPoint.FaultHandler, (name) =>
          Effect.suspend(() => {
            if (name === "expiration.beforeConfirm") confirmed += 1
            return name === "expiration.beforeConfirm" && confirmed === 2 ? Effect.die("stop") : Effect.void
          })
        )
      )
      assert.isTrue(Exit.isFailure(exit))
      assert.deepStrictEqual(yield* Effect.forEach(sessions, (session) => World.names(session)), [
        [".expired"],
        ["current"],
        ["current"],
        ["current"]
      ])
      assert.deepStrictEqual(yield* Effect.forEach(sessions, (session) => World.events(session)), [
        ["expired"],
        ["expired", "undone"],
        ["expired", "undone"],
        ["expired", "undone"]
      ])
      yield* World.sweep()
      assert.strictEqual(yield* named(sessions), 0)
    })
  )

  it.effect("[D-07] a state file that nobody can understand does not stop the others", () =>
    Effect.gen(function* () {
      yield* World.begin
      const [odd, ...others] = yield* many(3)
      yield* World.state(odd!, Make.stateText("\u0000", odd!.runId))
      const report = yield* World.sweepOnce()
      assert.strictEqual(report.expired, 2)
      assert.deepStrictEqual(report.skipped, { Unexpected: 1 })
      assert.strictEqual(yield* named(others), 0)
      assert.deepStrictEqual(yield* World.names(odd!), ["current"])
    })
  )

  it.effect("[B-04] a deletion that cannot be finished is counted, told and done by the next sweep", () =>
    Effect.gen(function* () {
      yield* World.begin
      const [session] = yield* many(1)
      const folder = yield* World.pathOf(session!.scope)
      const hide = Effect.sync(() => {
        const [name] = Fs.readdirSync(`${folder}/failover-backups`)
        Fs.renameSync(`${folder}/failover-backups/${name}`, `${folder}/away`)
        Fs.symlinkSync(`${folder}/away`, `${folder}/failover-backups/${name}`)
      })
      const report = yield* World.onceAt("expiration.beforeDeletion", hide)(World.sweepOnce())
      assert.deepInclude(report, { errors: 1, reclaimedAllocatedBytes: 0n })
      // A link in its place is not followed.
      assert.isTrue(Fs.existsSync(`${folder}/away/manifest.json`))
    })
  )
})
