import { assert, layer } from "@effect/vitest"
import { Journal } from "@reclaim/db"
import { AccessRecords } from "@reclaim/fs"
import { layerFaulty } from "@reclaim/fs/testing"
import { DateTime, Effect, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Fs from "node:fs"
import { ServerName } from "../src/index.ts"
import * as Sweeping from "./support/Sweeping.ts"
import * as World from "./support/World.ts"

const disk = { full: false, failing: false }

/** While the disk is full, nothing can be made or written; renaming and unlinking work. */
const full = layerFaulty([
  ...(["writeNew", "makeDirectory", "link", "makeLink"] as const).map((method) => ({
    method,
    matches: () => disk.full,
    code: "ENOSPC"
  })),
  {
    method: "rename",
    matches: (path) => {
      const fails = disk.failing && path.includes("/.evicting-")
      // Once: what tries again at once would succeed.
      if (fails) disk.failing = false
      return fails
    },
    code: "EIO"
  }
])

const whileFull = <A, E, R>(self: Effect.Effect<A, E, R>) =>
  Effect.acquireUseRelease(
    Effect.sync(() => void (disk.full = true)),
    () => self,
    () => Effect.sync(() => void (disk.full = false))
  )

layer(World.layer({ posix: full }), { excludeTestServices: true })("a full disk", (it) => {
  it.effect("[S-28] does not stop the cleanup: evicting, settling and deleting make no file", () =>
    Effect.gen(function* () {
      const made = yield* Sweeping.idleSkill({ versions: 3 })
      const [, second, third] = made.copies
      Fs.renameSync(yield* Sweeping.pathOf(second!), yield* Sweeping.leftoverPath(second!, "evicting"))
      Fs.renameSync(yield* Sweeping.pathOf(third!), yield* Sweeping.leftoverPath(third!, "replaced"))
      const report = yield* whileFull(World.sweepOnce({ companyId: made.companyId }))
      assert.deepStrictEqual(
        [report.evicted, report.settled, report.trashFinished, report.errors],
        [1, 2, 2, 0]
      )
    })
  )

  it.effect("[S-16] keeps a copy whose window of observation cannot be written, and tells", () =>
    Effect.gen(function* () {
      const made = yield* Sweeping.idleSkill({ versions: 1 })
      yield* (yield* AccessRecords.AccessRecords).remove(made.copies[0]!)
      for (let times = 0; times < 2; times++) {
        const report = yield* whileFull(World.sweepOnce({ companyId: made.companyId }))
        assert.deepStrictEqual(report.skipped, { Observing: 1 })
        assert.strictEqual(report.errors, 1)
        yield* World.advance("2 hours")
      }
    })
  )

  it.effect("[S-21] [S-22] an eviction that cannot go on after its commit is settled by a later sweep", () =>
    Effect.gen(function* () {
      const made = yield* Sweeping.idleSkill({ versions: 1 })
      const [copy] = made.copies
      disk.failing = true
      const report = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
        Effect.ensuring(Effect.sync(() => void (disk.failing = false)))
      )
      assert.deepStrictEqual([report.evicted, report.undone], [0, 0])
      assert.deepStrictEqual(report.skipped, { Unreadable: 1 })
      assert.match((yield* Sweeping.siblings(copy!)).join(), /^\.evicting-/)
      assert.strictEqual((yield* World.sweepOnce({ companyId: made.companyId })).settled, 1)
      assert.isTrue(yield* World.isThere(copy!))
      assert.deepStrictEqual(yield* Sweeping.events(copy!), ["evicted", "undone"])
    })
  )

  it.effect("[S-07] [S-28] a healing that cannot write does not stop the cleanup", () =>
    Effect.gen(function* () {
      const made = yield* Sweeping.idleSkill({ versions: 2 })
      const [pinned] = made.copies
      const runId = yield* World.Fixtures.run(made, { status: "running", started: true })
      const sql = yield* SqlClient.SqlClient
      yield* sql`insert into reclaim.run_selections (run_id, company_id, recorded_at)
        values (${runId}::uuid, ${made.companyId}::uuid, now())`
      yield* sql`insert into reclaim.run_pins (run_id, company_id, skill_id, version_id, recorded_at)
        values (${runId}::uuid, ${made.companyId}::uuid, ${made.skillId}::uuid, ${pinned!.versionId}::uuid, now())`
      Fs.rmSync(yield* Sweeping.pathOf(pinned!), { recursive: true })
      const report = yield* whileFull(World.sweepOnce({ companyId: made.companyId }))
      assert.deepStrictEqual([report.evicted, report.healed], [1, 0])
      assert.strictEqual((yield* World.sweepOnce({ companyId: made.companyId })).healed, 1)
    })
  )
})

layer(World.layer(), { excludeTestServices: true })("the account", (it) => {
  it.effect(
    "[S-29] tells what went, when by the database's clock, how much, what was proven and by whom",
    () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        const [copy] = made.copies
        const report = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
          Effect.provideService(ServerName.ServerName, "server-7")
        )
        const journal = yield* Journal.Journal
        const [row] = yield* Stream.runCollect(journal.since(World.noon, made.companyId))
        assert.deepInclude(row, {
          worker: "skill-versions",
          event: "evicted",
          companyId: copy!.companyId,
          skillId: copy!.skillId,
          versionId: copy!.versionId,
          allocatedBytes: report.reclaimedAllocatedBytes,
          server: "server-7"
        })
        assert.deepStrictEqual(row!.at, DateTime.add(World.noon, { hours: 1 }))
        assert.match(row!.digest ?? "", /^[0-9a-f]{64}$/)
      })
  )

  it.effect("[S-29] is kept for 90 days", () =>
    Effect.gen(function* () {
      const made = yield* Sweeping.idleSkill({ versions: 1 })
      yield* World.sweepOnce({ companyId: made.companyId })
      yield* World.advance("90 days")
      yield* World.sweepOnce({ companyId: made.companyId })
      assert.deepStrictEqual(yield* Sweeping.events(made.copies[0]!), ["evicted"])
      yield* World.advance("1 millis")
      yield* World.sweepOnce({ companyId: made.companyId })
      assert.deepStrictEqual(yield* Sweeping.events(made.copies[0]!), [])
    })
  )

  it.effect("[S-28] [S-29] a database without room neither stops the sweep nor undoes an eviction", () =>
    Effect.gen(function* () {
      const made = yield* Sweeping.idleSkill({ versions: 1 })
      const sql = yield* SqlClient.SqlClient
      yield* sql`create function no_room() returns trigger language plpgsql as
        'begin raise exception ''no room'' using errcode = ''53100''; end'`
      for (const table of ["journal", "run_pins", "run_selections"]) {
        yield* sql.unsafe(
          `create trigger no_room before insert or delete on reclaim.${table} execute function no_room()`
        )
      }
      const report = yield* World.sweepOnce({ companyId: made.companyId })
      assert.deepStrictEqual([report.evicted, report.trashFinished, report.errors], [1, 1, 0])
      assert.deepStrictEqual(yield* Sweeping.events(made.copies[0]!), [])
    })
  )
})
