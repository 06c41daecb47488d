import { assert, layer } from "@effect/vitest"
import { Ids } from "@reclaim/core"
import { DateTime, Effect, Exit, Option } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Fs from "node:fs"
import { FailoverBackups, SessionActivity } from "../src/index.ts"
import { FaultPoints } from "../src/testing.ts"
import * as World from "./support/SessionsWorld.ts"

const { Make } = World
type Session = World.Make.Session

/** Lets the session have a turn that leaves a note, and backs it up as a host does. */
const turn = Effect.fnUntraced(function* (session: Pick<Session, "scope" | "sessionId">, note: string) {
  const backups = yield* FailoverBackups.FailoverBackups
  const { path } = yield* World.Instance
  const runner = `${path}/sandbox-${session.scope}/runner`
  const home = `${path}/sandbox-${session.scope}/codex-home`
  Fs.mkdirSync(runner, { recursive: true })
  Fs.mkdirSync(`${home}/sessions`, { recursive: true })
  Fs.mkdirSync(`${home}/tmp`, { recursive: true })
  Fs.writeFileSync(`${runner}/state.json`, JSON.stringify({ note }))
  Fs.writeFileSync(`${home}/auth.json`, "secret")
  Fs.writeFileSync(`${home}/tmp/scratch`, "scratch")
  Fs.writeFileSync(`${home}/sessions/rollout.jsonl`, note, { mode: 0o600 })
  return yield* backups.capture({
    scope: session.scope,
    identity: { normalizedSessionId: Ids.NativeSessionId.make(session.sessionId), providerKind: "codex" },
    sources: [
      { name: "runner", path: runner },
      { name: "codex-home", path: home }
    ]
  })
})

layer(World.layer(), { excludeTestServices: true })("the life of a backup", (it) => {
  it.effect("[B-01] is captured, restored, expires, and a reopened issue starts afresh", () =>
    Effect.gen(function* () {
      yield* World.begin
      const session = yield* Make.session({ issue: { completedAt: World.noon } })
      yield* World.state(session)
      const captured = yield* turn(session, "turn 1")
      assert.deepStrictEqual([...captured.omitted].toSorted(), ["codex-home/auth.json", "codex-home/tmp"])
      assert.strictEqual(yield* World.restored(session), "turn 1")

      // The next turn replaces it.
      yield* turn(session, "turn 2")
      assert.deepStrictEqual(yield* World.names(session), ["current"])
      assert.strictEqual(yield* World.restored(session), "turn 2")

      yield* World.advance("6 days")
      assert.deepStrictEqual(Object.keys((yield* World.sweepOnce()).skipped).toSorted(), [
        "CopyRecent",
        "IssueClosedRecently"
      ])
      yield* World.advance("1 day")
      const report = yield* World.sweepOnce()
      assert.deepInclude(report, { expired: 1, clearedTaskSessions: 1, errors: 0 })
      assert.strictEqual(report.reclaimedAllocatedBytes, report.candidateAllocatedBytes)
      assert.isUndefined(yield* World.restored(session))
      assert.deepStrictEqual(yield* World.names(session), [])

      // The issue is reopened: nothing leads to the old session, and the new one has a backup of its own.
      const sql = yield* SqlClient.SqlClient
      yield* sql`update issues set status = 'in_progress', completed_at = null where id = ${session.issueId}::uuid`
      assert.strictEqual((yield* sql`select from agent_task_sessions`).length, 0)
      const fresh = { ...session, scope: Make.scopeId(), sessionId: crypto.randomUUID() }
      const runId = yield* Make.run(session, {
        sessionId: fresh.sessionId,
        issueId: session.issueId,
        status: "running",
        finishedAt: null
      })
      yield* Make.taskSession(session, { params: { sessionId: fresh.sessionId }, lastRunId: runId })
      yield* World.state({ ...fresh, runId })
      yield* turn(fresh, "fresh")
      yield* World.advance("30 days")
      assert.strictEqual((yield* World.sweepOnce()).expired, 0)
      assert.strictEqual(yield* World.restored(fresh), "fresh")
      assert.isUndefined(yield* World.restored(session))
    })
  )

  it.effect("[B-03] a leaving backup can be restored until it is confirmed, and an expired one never", () =>
    Effect.gen(function* () {
      yield* World.begin
      const session = yield* World.expirable()
      const seen: Array<string | undefined> = []
      const instance = yield* World.Instance
      const backups = yield* FailoverBackups.FailoverBackups
      const look = World.restored(session).pipe(
        Effect.map((note) => void seen.push(note)),
        Effect.provideService(World.Instance, instance),
        Effect.provideService(FailoverBackups.FailoverBackups, backups)
      )
      yield* World.sweepOnce().pipe(FaultPoints.at("expiration.afterRetire", look))
      yield* World.begin
      const second = { ...(yield* World.expirable({ scope: session.scope })) }
      assert.strictEqual(second.scope, session.scope)
      yield* World.sweepOnce().pipe(FaultPoints.at("expiration.beforeLastLook", look))
      assert.deepStrictEqual(seen, ["current", undefined])
    })
  )

  it.effect("[B-01] a capture that ends while its old backup is leaving is not lost", () =>
    Effect.gen(function* () {
      yield* World.begin
      const session = yield* World.expirable()
      const instance = yield* World.Instance
      const backups = yield* FailoverBackups.FailoverBackups
      const capture = turn(session, "late").pipe(
        Effect.provideService(World.Instance, instance),
        Effect.provideService(FailoverBackups.FailoverBackups, backups)
      )
      for (const point of [
        "expiration.afterRetire",
        "expiration.beforeConfirm",
        "expiration.beforeLastLook"
      ]) {
        yield* World.begin
        yield* World.expirable({ scope: session.scope, sessionId: crypto.randomUUID() })
        yield* World.onceAt(point, capture)(World.sweep())
        assert.strictEqual(yield* World.restored(session), "late", point)
        yield* World.sweep()
        assert.strictEqual(yield* World.restored(session), "late", point)
      }
    })
  )

  it.effect("[B-01] a backup that is being written keeps the old one in its place", () =>
    Effect.gen(function* () {
      yield* World.begin
      const session = yield* World.expirable()
      const folder = `${yield* World.pathOf(session.scope)}/failover-backups`
      const gate = yield* FaultPoints.gate("capture.beforeSwap")
      const sweep = Effect.gen(function* () {
        yield* gate.reached
        const name = Fs.readdirSync(folder).find((each) => each.startsWith(".pending-"))
        // The disk's own time is not the movable clock's.
        const at = DateTime.toDateUtc(DateTime.subtractDuration(World.noon, "23 hours"))
        Fs.utimesSync(`${folder}/${name}`, at, at)
        return yield* World.sweepOnce()
      }).pipe(Effect.ensuring(gate.open))
      const [captured, report] = yield* Effect.all([gate.guard(turn(session, "late")), sweep], {
        concurrency: 2
      })
      assert.strictEqual(captured.scope, session.scope)
      assert.deepStrictEqual(report.skipped, { Unexpected: 1 })
      assert.strictEqual(yield* World.restored(session), "late")
    })
  )

  it.effect("[B-05] the account of a tracker ends with the scope, each entry for itself", () =>
    Effect.gen(function* () {
      const tracker = yield* SessionActivity.SessionTracker
      const activity = yield* SessionActivity.SessionActivity
      const scope = Make.scopeId()
      const of = activity.of({ scope, sessionId: Option.none() })
      assert.deepStrictEqual(yield* of, [])
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* tracker.track(scope, "warm")
          yield* Effect.scoped(
            Effect.gen(function* () {
              yield* tracker.track(scope, "executing")
              yield* tracker.track(Make.scopeId(), "closing")
              yield* tracker.track(scope, "warm")
              assert.deepStrictEqual([...(yield* of)].toSorted(), ["executing", "warm", "warm"])
            })
          )
          assert.deepStrictEqual(yield* of, ["warm"])
          const exit = yield* Effect.exit(
            Effect.scoped(Effect.andThen(tracker.track(scope, "closing"), Effect.die("x")))
          )
          assert.isTrue(Exit.isFailure(exit))
          assert.deepStrictEqual(yield* of, ["warm"])
        })
      )
      assert.deepStrictEqual(yield* of, [])
    })
  )
})
