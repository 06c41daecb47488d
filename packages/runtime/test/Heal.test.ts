import { assert, layer } from "@effect/vitest"
import { SkillPins, Transactions } from "@reclaim/db"
import { layerFaulty } from "@reclaim/fs/testing"
import { Deferred, Effect, Exit, Fiber } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Fs from "node:fs"
import { SkillVersionCache } from "../src/index.ts"
import { heal } from "../src/internal/healing.ts"
import {
  contentsOf,
  eventsOf,
  killAt,
  lastUse,
  leftovers,
  pathOf,
  prepare,
  recordOf,
  standard
} from "./support/Copies.ts"
import * as World from "./support/World.ts"

layer(World.layer(), { excludeTestServices: true })("healing", (it) => {
  it.effect("[S-07] a sweep restores what an active run pins and is missing, and [S-29] tells it", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 3 })
      const cache = yield* SkillVersionCache.SkillVersionCache
      yield* prepare(
        companyId,
        copies.slice(0, 2).map(({ versionId }) => versionId)
      )
      yield* cache.restore({ companyId, versionId: copies[2]!.versionId })
      for (const copy of copies) Fs.rmSync(yield* pathOf(copy), { recursive: true })
      yield* World.advance("10 minutes")
      const report = yield* World.sweepOnce({ companyId })
      assert.strictEqual(report.healed, 2)
      assert.deepStrictEqual(contentsOf(yield* pathOf(copies[0]!)), standard(1))
      assert.deepStrictEqual(contentsOf(yield* pathOf(copies[1]!)), standard(2))
      assert.isFalse(yield* World.isThere(copies[2]!))
      const events = yield* eventsOf(copies[0]!)
      assert.deepStrictEqual(
        events.map(({ event, worker }) => [event, worker]),
        [["healed", "skill-versions"]]
      )
      assert.isAbove(Number(events[0]?.allocatedBytes), 0)
      assert.deepStrictEqual(yield* eventsOf(copies[2]!), [])
      assert.notDeepEqual(yield* lastUse(copies[0]!), recordOf(World.noon))
      assert.strictEqual((yield* World.sweepOnce({ companyId })).healed, 0)
      assert.strictEqual((yield* eventsOf(copies[0]!)).length, 1)
    })
  )

  it.effect("[D-03] a sweep that restores many copies holds no more than two connections", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 8 })
      yield* prepare(
        companyId,
        copies.map(({ versionId }) => versionId)
      )
      for (const copy of copies) Fs.rmSync(yield* pathOf(copy), { recursive: true })
      const sql = yield* SqlClient.SqlClient
      const backends = Effect.map(
        sql<{ readonly pid: number }>`select pid from pg_stat_activity where datname = current_database()`,
        (rows) => rows.map(({ pid }) => pid)
      )
      const before = yield* backends
      // A pool of its own opens a connection whenever none is free, and keeps it.
      const opened = yield* World.elsewhere({ pool: { maxConnections: 10, minConnections: 0 } })(
        Effect.gen(function* () {
          assert.strictEqual((yield* World.sweepOnce({ companyId })).healed, copies.length)
          return (yield* backends).filter((pid) => !before.includes(pid))
        })
      )
      assert.isTrue(opened.length >= 1 && opened.length <= 2, String(opened.length))
    })
  )

  it.effect("[S-07] a dry run heals nothing", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 1 })
      yield* prepare(companyId, [copies[0]!.versionId])
      Fs.rmSync(yield* pathOf(copies[0]!), { recursive: true })
      assert.strictEqual((yield* World.sweepOnce({ companyId, dryRun: true })).healed, 0)
      assert.isFalse(yield* World.isThere(copies[0]!))
      assert.strictEqual((yield* World.sweepOnce({ companyId })).healed, 1)
    })
  )

  it.effect("[S-07] a copy that is there, whatever it looks like, is not touched", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 1 })
      yield* prepare(companyId, [copies[0]!.versionId])
      const path = yield* pathOf(copies[0]!)
      Fs.rmSync(`${path}/SKILL.md`)
      assert.strictEqual((yield* World.sweepOnce({ companyId })).healed, 0)
      assert.isFalse(Fs.existsSync(`${path}/SKILL.md`))
      assert.deepStrictEqual(yield* leftovers(copies[0]!), [])
    })
  )

  it.effect("[S-07] what cannot come back does not keep the others from coming back", () =>
    Effect.gen(function* () {
      yield* World.begin
      const first = yield* World.skill({ versions: 2 })
      const second = yield* World.skill({ versions: 1 })
      yield* prepare(
        first.companyId,
        first.copies.map(({ versionId }) => versionId)
      )
      yield* prepare(second.companyId, [second.copies[0]!.versionId])
      const paths = yield* Effect.forEach([...first.copies, ...second.copies], pathOf)
      for (const path of paths) Fs.rmSync(path, { recursive: true })
      const healed = yield* heal(undefined).pipe(
        World.elsewhere({
          posix: layerFaulty([
            {
              method: "makeDirectory",
              matches: (path) => path.includes(first.copies[0]!.versionId),
              code: "EROFS"
            }
          ])
        })
      )
      assert.strictEqual(healed, 2)
      assert.deepStrictEqual(
        paths.map((path) => Fs.existsSync(path)),
        [false, true, true]
      )
      assert.strictEqual(yield* heal(undefined), 1)
    })
  )

  it.effect("[S-07] a company whose lock is held for long does not keep the others from healing", () =>
    Effect.gen(function* () {
      yield* World.begin
      const transactions = yield* Transactions.Transactions
      const first = yield* World.skill({ versions: 1 })
      const second = yield* World.skill({ versions: 1 })
      for (const { companyId, copies } of [first, second]) {
        yield* prepare(companyId, [copies[0]!.versionId])
        Fs.rmSync(yield* pathOf(copies[0]!), { recursive: true })
      }
      const held = yield* Deferred.make<void>()
      const free = yield* Deferred.make<void>()
      const holder = yield* Effect.forkChild(
        transactions.companyExclusive(first.companyId, () =>
          Effect.andThen(Deferred.succeed(held, undefined), Deferred.await(free))
        )
      )
      yield* Deferred.await(held)
      const layerQuick = Transactions.layerWith({ lockTimeout: "100 millis" })
      const healed = yield* Effect.provide(heal(undefined), layerQuick, { local: true })
      assert.strictEqual(healed, 1)
      assert.isFalse(yield* World.isThere(first.copies[0]!))
      assert.isTrue(yield* World.isThere(second.copies[0]!))
      yield* Deferred.succeed(free, undefined)
      yield* Fiber.join(holder)
      assert.strictEqual(yield* heal(undefined), 1)
      assert.deepStrictEqual(yield* leftovers(first.copies[0]!), [])
    })
  )

  for (const point of [
    "evict.afterRename",
    "evict.afterSecondLook",
    "evict.afterRecord",
    "evict.beforeCommit"
  ]) {
    it.effect(`[S-07] a move that was not undone, because the process was killed at ${point}, heals`, () =>
      Effect.gen(function* () {
        yield* World.begin
        const { companyId, copies } = yield* World.skill({ versions: 1 })
        const copy = copies[0]!
        const cache = yield* SkillVersionCache.SkillVersionCache
        yield* cache.restore({ companyId, versionId: copy.versionId })
        yield* World.advance("2 hours")
        const exit = yield* World.sweep({ companyId }).pipe(killAt(point), World.elsewhere(), Effect.exit)
        assert.isTrue(Exit.hasDies(exit))
        assert.isFalse(yield* World.isThere(copy))
        assert.deepStrictEqual(yield* leftovers(copy), [".evicting"])
        // A run that had been told of the copy just before the lock was lost, as the specification names it.
        const pins = yield* SkillPins.SkillPins
        yield* pins.record(companyId, yield* World.Fixtures.runId, [copy])
        const report = yield* World.sweepOnce({ companyId })
        assert.strictEqual(report.healed, 1)
        assert.deepStrictEqual(contentsOf(yield* pathOf(copy)), standard(1))
        yield* World.sweep({ companyId })
        assert.deepStrictEqual(yield* leftovers(copy), [])
        assert.deepStrictEqual(contentsOf(yield* pathOf(copy)), standard(1))
      })
    )
  }
})
