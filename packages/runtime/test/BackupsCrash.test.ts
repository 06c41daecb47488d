import { assert, describe, layer } from "@effect/vitest"
import { TestDatabase } from "@reclaim/postgres/testing"
import { DateTime, Effect } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { fork } from "node:child_process"
import * as World from "./support/SessionsWorld.ts"

const { Make } = World
type Session = World.Make.Session

/** Sweeps in a process of its own, which is killed at a point. */
const killedAt = Effect.fnUntraced(function* (
  point: string,
  meanwhile?: { readonly at: string; readonly statement: string }
) {
  const { path } = yield* World.Instance
  const { url } = yield* TestDatabase.TestDatabase
  const signal = yield* Effect.callback<string>((resume) => {
    const child = fork(
      new URL("./support/sweepAndDie.ts", import.meta.url),
      [
        url,
        path,
        DateTime.formatIso(World.noon),
        point,
        ...(meanwhile === undefined ? [] : [meanwhile.at, meanwhile.statement])
      ],
      { execArgv: ["--conditions=@reclaim/source"], stdio: "inherit" }
    )
    child.once("exit", (code, killed) => resume(Effect.succeed(killed ?? `exit ${code}`)))
    return Effect.sync(() => void child.kill("SIGKILL"))
  })
  assert.strictEqual(signal, "SIGKILL")
  // The server ends the transaction of a client that is gone; until then its locks are held.
  yield* World.eventually(Effect.map(World.unfinished, ({ transactions }) => transactions === 0))
})

const queued = (session: Session) =>
  `insert into heartbeat_runs (company_id, agent_id, status, native_session_id)
   values ('${session.companyId}', '${session.agentId}', 'queued', '${session.sessionId}')`

/** A run that appears after the crash gets the backup; when it is over the backup still goes, without a rest. */
const expectNothingLost = Effect.fnUntraced(function* (session: Session) {
  const sql = yield* SqlClient.SqlClient
  const names = yield* World.names(session)
  // Until the final look has confirmed that it goes, the backup can be restored at any moment.
  if (!names.includes(".expired")) assert.strictEqual(yield* World.restored(session), "current")
  yield* sql.unsafe(queued(session))
  yield* World.sweep()
  assert.strictEqual(yield* World.restored(session), "current", JSON.stringify(names))
  yield* sql`delete from heartbeat_runs where status = 'queued'`
  for (let pass = 0; pass < 3; pass++) yield* World.sweep()
  assert.deepStrictEqual(yield* World.names(session), [])
  assert.strictEqual(yield* World.taskSessions(session), 0)
})

const older = DateTime.subtractDuration(Make.longAgo, "1 day")
const both = [{}, { name: "previous", completedAt: older }]

layer(World.layer(), { excludeTestServices: true, timeout: "120 seconds" })("kill -9", (it) => {
  describe("while a backup expires", () => {
    for (const point of [
      "expiration.beforeLock",
      "expiration.afterLock",
      "expiration.afterTaskSessions",
      "retire.beforeRename",
      "retire.afterRename",
      "expiration.afterRetire",
      "expiration.beforeCommit",
      "transaction.beforeCommit",
      "expiration.afterCommit",
      "expiration.beforeFinalLook",
      "expiration.beforeConfirm",
      "expire.beforeRename",
      "expire.afterRename",
      "expiration.beforeLastLook",
      "expiration.beforeDeletion"
    ]) {
      it.effect(`[Q-01] at ${point} loses nothing`, () =>
        Effect.gen(function* () {
          yield* World.begin
          const session = yield* World.expirable({ backups: both })
          yield* killedAt(point)
          yield* expectNothingLost(session)
        })
      )
    }
  })

  describe("while a backup comes back", () => {
    for (const [point, at] of [
      ["retire.beforeUndo", "expiration.beforeFinalLook"],
      ["retire.afterUndo", "expiration.beforeFinalLook"],
      ["revive.beforeRename", "expiration.beforeLastLook"],
      ["revive.afterRename", "expiration.beforeLastLook"]
    ] as const) {
      it.effect(`[Q-01] at ${point} loses nothing`, () =>
        Effect.gen(function* () {
          yield* World.begin
          const session = yield* World.expirable({ backups: both })
          yield* killedAt(point, { at, statement: queued(session) })
          yield* expectNothingLost(session)
        })
      )
    }
  })

  describe("while leftovers are settled", () => {
    const leftover = (kind: string) => `.${kind}-${crypto.randomUUID()}`
    for (const [point, backups] of [
      ["revive.beforeRename", [{ name: leftover("retiring"), note: "current" }]],
      ["revive.afterRename", [{ name: leftover("retiring"), note: "current" }]],
      ["expire.beforeRename", [{}, { name: leftover("retiring"), completedAt: older }]],
      ["expire.afterRename", [{}, { name: leftover("retiring"), completedAt: older }]],
      ["drop.beforeRename", [{}, { name: leftover("pending"), manifest: false }]],
      ["drop.afterRename", [{}, { name: leftover("pending"), manifest: false }]]
    ] as const) {
      it.effect(`[Q-01] at ${point} loses nothing`, () =>
        Effect.gen(function* () {
          yield* World.begin
          const session = yield* World.expirable({ backups })
          yield* killedAt(point)
          yield* expectNothingLost(session)
        })
      )
    }
  })
})
