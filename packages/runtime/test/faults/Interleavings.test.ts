/** Two operations of two servers, the second begun while the first stands at a point, for every point. */
import { assert, describe, layer } from "@effect/vitest"
import { Holds } from "@reclaim/db"
import { Effect, Exit, Fiber } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Fs from "node:fs"
import { eventually, lockWaiters } from "../../../db/test/support/database.ts"
import { FailoverBackups, SkillVersionCache } from "../../src/index.ts"
import { contentsOf, eventsOf, pathOf, prepare, short, standard } from "../support/Copies.ts"
import * as Sessions from "../support/SessionsWorld.ts"
import * as Sweeping from "../support/Sweeping.ts"
import * as World from "../support/World.ts"

/**
 * Begins `second` while `first` stands at the point. The first goes on when the second has ended, or waits for
 * a lock that the first holds.
 */
const beginAt = Effect.fnUntraced(function* <A, E, R, A2, E2, R2>(
  point: string,
  first: Effect.Effect<A, E, R>,
  second: Effect.Effect<A2, E2, R2>
) {
  const { fiber, goOn } = yield* Sweeping.stopAt(first, point)
  const other = yield* Effect.forkChild(second)
  yield* eventually(Effect.map(lockWaiters, (waiting) => waiting > 0 || other.pollUnsafe() !== undefined))
  yield* goOn
  return [yield* Fiber.join(fiber), yield* Fiber.join(other)] as const
})

const evicting = [
  "evict.beforeLock",
  "evict.beforeFacts",
  "evict.afterFacts",
  "evict.beforeRename",
  "evict.afterRename",
  "evict.afterSecondLook",
  "evict.afterRecord",
  "evict.beforeCommit",
  "evict.afterCommit",
  "evict.beforeTrash",
  "evict.afterTrash",
  "trash.betweenEntries"
]
const restoring = [
  "transaction.afterBegin",
  "transaction.afterLock",
  "transaction.beforeCommit",
  "transaction.afterCommit",
  "restore.afterFolder",
  "restore.afterFile",
  "restore.afterStaging",
  "restore.beforeShared",
  "restore.beforePublish",
  "restore.afterPublish",
  "access.afterTemp",
  "access.afterReplace",
  "restore.afterShared"
]

layer(World.layer(), { excludeTestServices: true })("two servers with one skill", (it) => {
  /** Two idle copies, one of them lost, and trash that somebody left. */
  const begin = Effect.gen(function* () {
    const made = yield* Sweeping.idleSkill({ versions: 3 })
    const [lost, there, trashed] = made.copies
    Fs.rmSync(yield* pathOf(lost!), { recursive: true })
    Fs.renameSync(yield* pathOf(trashed!), yield* Sweeping.leftoverPath(trashed!, "trash"))
    return { ...made, wanted: [lost!, there!] }
  })
  const assertWhole = Effect.fnUntraced(function* ({ wanted }: Effect.Success<typeof begin>) {
    for (const [index, copy] of wanted.entries()) {
      assert.deepStrictEqual(contentsOf(yield* pathOf(copy)), standard(index + 1))
    }
  })
  const assertAlone = Effect.fnUntraced(function* (made: Effect.Success<typeof begin>) {
    assert.deepStrictEqual(
      yield* Sweeping.siblings(made.wanted[0]!),
      made.wanted.map(({ versionId }) => String(versionId)).toSorted()
    )
    assert.deepStrictEqual(yield* Sweeping.unfinished, { locks: 0, transactions: 0 })
  })

  describe("a preparation, and a sweep that evicts and deletes trash", () => {
    for (const point of restoring) {
      it.effect(`[S-21] [S-22] a sweep that begins when a preparation is at ${point} costs it nothing`, () =>
        Effect.gen(function* () {
          const made = yield* begin
          const versions = made.wanted.map(({ versionId }) => versionId)
          const [answers, report] = yield* beginAt(
            point,
            prepare(made.companyId, versions),
            World.elsewhere()(World.sweepOnce({ companyId: made.companyId }))
          )
          assert.strictEqual(report.errors, 0)
          assert.isTrue(answers.every(({ _tag }) => _tag === "Ready"))
          yield* assertWhole(made)
          const after = yield* World.sweepOnce({ companyId: made.companyId })
          assert.strictEqual(after.skipped.ActiveRun, 2)
          yield* assertWhole(made)
          yield* assertAlone(made)
        })
      )
    }
  })

  describe("two preparations", () => {
    for (const point of restoring) {
      it.effect(`[S-02] one that begins when the other is at ${point}: both have one whole copy`, () =>
        Effect.gen(function* () {
          const made = yield* begin
          const versions = made.wanted.map(({ versionId }) => versionId)
          const both = yield* beginAt(
            point,
            prepare(made.companyId, versions),
            World.elsewhere()(prepare(made.companyId, versions))
          )
          for (const answers of both) assert.isTrue(answers.every(({ _tag }) => _tag === "Ready"))
          yield* World.sweepOnce({ companyId: made.companyId })
          yield* assertWhole(made)
          yield* assertAlone(made)
        })
      )
    }
  })

  describe("two sweeps", () => {
    for (const point of evicting) {
      it.effect(`[S-24] one that begins when the other is at ${point}: nothing is lost or left`, () =>
        Effect.gen(function* () {
          const made = yield* Sweeping.idleSkill({ versions: 2 })
          const sweep = World.sweepOnce({ companyId: made.companyId })
          const reports = yield* beginAt(point, sweep, World.elsewhere()(sweep))
          for (const report of reports) assert.strictEqual(report.errors, 0)
          // A copy that one of them took for a leftover came back, and goes when it was observed.
          for (let times = 0; times < 3; times++) {
            yield* sweep
            yield* World.advance("90 minutes")
          }
          assert.deepStrictEqual(yield* Sweeping.siblings(made.copies[0]!), [])
          for (const copy of made.copies) {
            const events = (yield* eventsOf(copy)).map(({ event }) => event)
            assert.strictEqual(events.at(-1), "evicted", events.join())
          }
          assert.deepStrictEqual(yield* Sweeping.unfinished, { locks: 0, transactions: 0 })
        })
      )
    }
  })

  describe("an eviction, and somebody who wants the copy to stay", () => {
    type Made = Effect.Success<ReturnType<typeof Sweeping.idleSkill>>
    const wishes: Record<
      string,
      (made: Made) => Effect.Effect<unknown, unknown, Holds.Holds | SqlClient.SqlClient>
    > = {
      "an operator who holds it": ({ companyId, copies }: Made) =>
        Effect.flatMap(Holds.Holds, (holds) =>
          holds.holdVersion(companyId, copies[0]!.versionId, "operations", "an incident")
        ),
      "an agent that names it": ({ companyId, copies }: Made) =>
        World.Fixtures.agent(companyId, {
          paperclipSkillSync: { desiredSkills: [{ versionId: copies[0]!.versionId }] }
        })
    }
    /** From here on the eviction looks no more; an operator waits for its lock from the first of them on. */
    const decided = ["evict.afterSecondLook", "evict.afterRecord", "evict.beforeCommit"]
    const locked = [
      "evict.beforeFacts",
      "evict.afterFacts",
      "evict.beforeRename",
      "evict.afterRename",
      ...decided
    ]
    const points = [...locked, "evict.afterCommit", "evict.beforeTrash"]

    /** It stays from now on: nothing takes it in the next sweeps, and if it went it can be had again. */
    const assertStays = Effect.fnUntraced(function* ({ companyId, copies }: Made, went: boolean) {
      assert.strictEqual(yield* World.isThere(copies[0]!), !went)
      const events = (yield* eventsOf(copies[0]!)).map(({ event }) => event)
      assert.strictEqual(events.at(-1), went ? "evicted" : events.length === 0 ? undefined : "undone")
      const cache = yield* SkillVersionCache.SkillVersionCache
      const restored = yield* cache.restore({ companyId, versionId: copies[0]!.versionId })
      assert.strictEqual(short(restored), went ? "Ready restored" : "Ready")
      yield* World.advance("2 hours")
      yield* World.sweepOnce({ companyId })
      assert.deepStrictEqual(contentsOf(yield* pathOf(copies[0]!)), standard(1))
      assert.deepStrictEqual(yield* Sweeping.siblings(copies[0]!), [copies[0]!.versionId])
    })

    for (const [who, wish] of Object.entries(wishes)) {
      for (const point of points) {
        it.effect(`[S-14] [S-21] ${who}, while it is at ${point}: it stays, or went before`, () =>
          Effect.gen(function* () {
            const made = yield* Sweeping.idleSkill({ versions: 1 })
            const [report] = yield* beginAt(
              point,
              World.sweepOnce({ companyId: made.companyId }),
              World.elsewhere()(wish(made))
            )
            const inTime = who.includes("agent") && locked.includes(point) && !decided.includes(point)
            assert.strictEqual(report.evicted, inTime ? 0 : 1)
            yield* assertStays(made, !inTime)
          })
        )
      }
    }

    for (const point of ["transaction.afterLock", "transaction.beforeCommit", "transaction.afterCommit"]) {
      it.effect(
        `[S-14] [S-21] an eviction that begins while an operator's hold is at ${point}: it stays`,
        () =>
          Effect.gen(function* () {
            const made = yield* Sweeping.idleSkill({ versions: 1 })
            const [, report] = yield* beginAt(
              point,
              wishes["an operator who holds it"]!(made),
              World.elsewhere()(World.sweepOnce({ companyId: made.companyId }))
            )
            assert.strictEqual(report.evicted, 0)
            yield* assertStays(made, false)
          })
      )
    }
  })
})

layer(Sessions.layer(), { excludeTestServices: true })("two servers with one session", (it) => {
  describe("an expiration, and a run that comes", () => {
    for (const point of [
      "expiration.afterTaskSessions",
      "retire.beforeRename",
      "expiration.afterRetire",
      "expiration.afterCommit",
      "expiration.beforeConfirm",
      "expire.beforeRename",
      "expire.afterRename"
    ]) {
      it.effect(`[B-08] a run that comes when it is at ${point} has its backup`, () =>
        Effect.gen(function* () {
          yield* Sessions.begin
          const session = yield* Sessions.expirable()
          const run = yield* Sessions.apart(
            Sessions.Make.run(session, { sessionId: session.sessionId, status: "queued", finishedAt: null })
          )
          const report = yield* Sessions.onceAt(point, run)(Sessions.sweepOnce())
          assert.strictEqual(report.expired, 0)
          assert.deepStrictEqual(yield* Sessions.names(session), ["current"])
          assert.strictEqual(yield* Sessions.restored(session), "current")
        })
      )
    }
  })

  describe("a restoration, and an expiration", () => {
    for (const point of [
      "backupRestore.afterFolder",
      "backupRestore.afterDirectory",
      "backupRestore.beforePublish",
      "backupRestore.afterPublish"
    ]) {
      it.effect(`[B-03] [B-08] one that begins when it is at ${point}: whole, or not at all`, () =>
        Effect.gen(function* () {
          yield* Sessions.begin
          const session = yield* Sessions.expirable()
          const target = `${yield* Sessions.pathOf(session.scope)}/target`
          const backups = yield* FailoverBackups.FailoverBackups
          const [restored, report] = yield* beginAt(
            point,
            Effect.exit(backups.restore({ scope: session.scope, target })),
            Sessions.elsewhere()(Sessions.sweepOnce())
          )
          assert.strictEqual(report.expired, 1)
          assert.deepStrictEqual(yield* Sessions.names(session), [])
          assert.strictEqual(Fs.existsSync(target), Exit.isSuccess(restored))
          if (Exit.isFailure(restored)) return
          assert.strictEqual(Fs.readFileSync(`${target}/runner/turn.log`, "utf8"), "turn of current\n")
        })
      )
    }
  })
})
