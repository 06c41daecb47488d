import { assert, describe, layer } from "@effect/vitest"
import { FaultPoint } from "@reclaim/core"
import { DatabaseError, SkillPins } from "@reclaim/db"
import { AccessRecords, VersionStore } from "@reclaim/fs"
import { Clock, DateTime, Effect, Exit, Fiber } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Fs from "node:fs"
import { eventually } from "../../db/test/support/database.ts"
import * as Backend from "../../db/test/support/backend.ts"
import { SkillVersionCache } from "../src/index.ts"
import * as Sweeping from "./support/Sweeping.ts"
import * as World from "./support/World.ts"

const { Fixtures } = World

type Made = Effect.Success<ReturnType<typeof World.skill>>

/** The one folder of a skill that is leaving. */
const evicting = Effect.fnUntraced(function* ({ copies }: Made) {
  const name = (yield* Sweeping.siblings(copies[0]!)).find((each) => each.startsWith(".evicting-"))
  if (name === undefined) return yield* Effect.die("nothing is leaving")
  return (yield* Sweeping.pathOf(copies[0]!)).replace(/[^/]*$/, name)
})

/** Where the copy is at the moment: under its name, or leaving. */
const whereItIs = Effect.fnUntraced(function* (made: Made) {
  return (yield* World.isThere(made.copies[0]!))
    ? yield* Sweeping.pathOf(made.copies[0]!)
    : yield* evicting(made)
})

/** What may happen between the proof and the rename, or the rename and the second look. */
const changes: Record<
  string,
  (
    made: Made
  ) => Effect.Effect<
    unknown,
    unknown,
    AccessRecords.AccessRecords | SkillPins.SkillPins | SqlClient.SqlClient
  >
> = {
  "a run pins it": Effect.fnUntraced(function* (made) {
    const runId = yield* Fixtures.run(made, { status: "running", started: true })
    yield* (yield* SkillPins.SkillPins).record(made.companyId, runId, made.copies)
  }),
  "a run starts whose selection is unknown": (made) =>
    Fixtures.run(made, { status: "running", started: true }),
  "it becomes current": Effect.fnUntraced(function* (made) {
    const sql = yield* SqlClient.SqlClient
    yield* sql`update company_skills set current_version_id = ${made.copies[0]!.versionId}::uuid
      where id = ${made.skillId}::uuid`
  }),
  "an agent names it": (made) =>
    Fixtures.agent(made.companyId, {
      paperclipSkillSync: { desiredSkills: [{ versionId: made.copies[0]!.versionId }] }
    }),
  "an operator holds it": Effect.fnUntraced(function* (made) {
    // Not by the service, which waits for the lock of the company.
    const sql = yield* SqlClient.SqlClient
    yield* sql`insert into reclaim.holds (kind, company_id, version_id, held_by, note, created_at)
      values ('version', ${made.companyId}::uuid, ${made.copies[0]!.versionId}::uuid, 'ops', '', now())`
  }),
  "it is used": Effect.fnUntraced(function* (made) {
    yield* (yield* AccessRecords.AccessRecords).touch(
      made.copies[0]!,
      DateTime.add(World.noon, { minutes: 59 })
    )
  }),
  "its files are edited in the database": Effect.fnUntraced(function* (made) {
    const sql = yield* SqlClient.SqlClient
    yield* sql`update company_skill_versions set file_inventory = '[{"path":"SKILL.md","content":"other"}]'
      where id = ${made.copies[0]!.versionId}::uuid`
  }),
  "it is pointed at a snapshot": Effect.fnUntraced(function* (made) {
    const sql = yield* SqlClient.SqlClient
    const snapshotId = yield* World.Fixtures.snapshot(made.companyId, [])
    yield* sql`update company_skill_versions set repository_snapshot_id = ${snapshotId}::uuid
      where id = ${made.copies[0]!.versionId}::uuid`
  }),
  "its version is deleted": Effect.fnUntraced(function* (made) {
    const sql = yield* SqlClient.SqlClient
    yield* sql`delete from company_skill_versions where id = ${made.copies[0]!.versionId}::uuid`
  })
}

const assertUndone = Effect.fnUntraced(function* (made: Made, wasMoved: boolean) {
  const [copy] = made.copies
  assert.isTrue(yield* World.isThere(copy!))
  assert.deepStrictEqual(yield* Sweeping.siblings(copy!), [copy!.versionId])
  assert.deepStrictEqual(yield* Sweeping.events(copy!), wasMoved ? ["undone"] : [])
  assert.deepStrictEqual(yield* Sweeping.unfinished, { locks: 0, transactions: 0 })
})

layer(World.layer(), { excludeTestServices: true })("evicting", (it) => {
  describe("what changes meanwhile", () => {
    for (const [point, when] of [
      ["evict.beforeLock", "between the proof and the lock"],
      ["evict.afterRename", "between the rename and the second look"]
    ] as const) {
      const wasMoved = point === "evict.afterRename"
      for (const [name, change] of Object.entries(changes)) {
        it.effect(`[S-21] keeps a copy when ${name} ${when}`, () =>
          Effect.gen(function* () {
            const made = yield* Sweeping.idleSkill({ versions: 1 })
            const report = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
              Sweeping.during(point, change(made))
            )
            assert.deepStrictEqual(report.skipped, { ChangedMeanwhile: 1 })
            assert.strictEqual(report.candidates, 1)
            assert.strictEqual(report.evicted, 0)
            assert.strictEqual(report.undone, wasMoved ? 1 : 0)
            yield* assertUndone(made, wasMoved)
          })
        )
      }

      it.effect(`[S-21] [F-02] keeps a copy whose top folder changes ${when}`, () =>
        Effect.gen(function* () {
          const made = yield* Sweeping.idleSkill({ versions: 1 })
          const add = Effect.map(whereItIs(made), (path) => Fs.writeFileSync(`${path}/mine`, ""))
          const report = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
            Sweeping.during(point, add)
          )
          assert.deepStrictEqual(report.skipped, { ChangedMeanwhile: 1 })
          const path = yield* Sweeping.pathOf(made.copies[0]!)
          assert.isTrue(Fs.existsSync(`${path}/mine`))
          assert.deepStrictEqual(yield* Sweeping.siblings(made.copies[0]!), [made.copies[0]!.versionId])
        })
      )
    }

    it.effect("[S-21] what is taken back before the commit is taken back while the lock is still held", () =>
      Effect.gen(function* () {
        const context = yield* Effect.context<SqlClient.SqlClient>()
        for (const change of ["the top folder", "the facts"]) {
          const made = yield* Sweeping.idleSkill({ versions: 1 })
          let locks = -1
          const look = Effect.map(Sweeping.unfinished, (found) => {
            locks = found.locks
          }).pipe(Effect.orDie, Effect.provideContext(context))
          const meddle = Effect.gen(function* () {
            if (change === "the facts") return yield* Sweeping.setCurrent(made.copies[0]!)
            Fs.writeFileSync(`${yield* whereItIs(made)}/mine`, "")
          })
          const sweep = World.sweepOnce({ companyId: made.companyId }).pipe(
            Sweeping.during("evict.afterRename", meddle)
          )
          const report = yield* Sweeping.also("evict.beforeUndo", look)(sweep)
          assert.deepStrictEqual(report.skipped, { ChangedMeanwhile: 1 })
          assert.strictEqual(locks, 1)
        }
      })
    )

    it.effect("[S-21] a copy that is swapped for another one before the lock is not moved", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        const path = yield* Sweeping.pathOf(made.copies[0]!)
        const swap = Effect.sync(() => {
          Fs.renameSync(path, `${path}.old`)
          Fs.mkdirSync(path)
          Fs.writeFileSync(`${path}/SKILL.md`, "somebody's")
        })
        const report = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
          Sweeping.during("evict.beforeRename", swap)
        )
        assert.deepStrictEqual(report.skipped, { ChangedMeanwhile: 1 })
        assert.strictEqual(Fs.readFileSync(`${path}/SKILL.md`, "utf8"), "somebody's")
        Fs.rmSync(`${path}.old`, { recursive: true })
      })
    )

    it.effect("[S-18] a copy that becomes a link before the lock is not followed", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        const path = yield* Sweeping.pathOf(made.copies[0]!)
        const { path: instance } = yield* World.Instance
        const aside = `${instance}/aside-${crypto.randomUUID()}`
        const link = Effect.sync(() => {
          Fs.renameSync(path, aside)
          Fs.symlinkSync(aside, path)
        })
        const report = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
          Sweeping.during("evict.beforeRename", link)
        )
        assert.strictEqual(report.evicted, 0)
        assert.isTrue(Fs.lstatSync(path).isSymbolicLink())
        assert.isTrue(Fs.existsSync(`${aside}/SKILL.md`))
      })
    )

    it.effect("[S-21] a copy that vanishes is somebody else's success", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        const path = yield* Sweeping.pathOf(made.copies[0]!)
        const report = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
          Sweeping.during(
            "evict.beforeRename",
            Effect.sync(() => Fs.rmSync(path, { recursive: true }))
          )
        )
        assert.deepStrictEqual(report.skipped, { ChangedMeanwhile: 1 })
        assert.strictEqual(report.errors, 0)
      })
    )

    it.effect("[S-21] a preparation that comes before the lock keeps its copy, by the lock alone", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        const cache = yield* SkillVersionCache.SkillVersionCache
        const runId = yield* Fixtures.runId
        const prepare = cache.prepare({
          companyId: made.companyId,
          runId,
          versions: made.copies.map(({ versionId }) => versionId)
        })
        const report = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
          Sweeping.during("evict.beforeLock", prepare)
        )
        assert.deepStrictEqual(report.skipped, { ChangedMeanwhile: 1 })
        yield* assertUndone(made, false)
      })
    )
  })

  describe("an edit deep inside", () => {
    const edit = (path: string) => World.overwrite(`${path}/scripts/run.sh`, "#!/bin/sh\nedited\n")
    for (const point of ["evict.beforeLock", "evict.afterRename", "evict.afterCommit"]) {
      it.effect(`[S-21] [F-02] at ${point} is noticed by the fingerprint and moved back`, () =>
        Effect.gen(function* () {
          const made = yield* Sweeping.idleSkill({ versions: 1 })
          const [copy] = made.copies
          const report = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
            Sweeping.during(point, Effect.map(whereItIs(made), edit))
          )
          assert.deepStrictEqual(report.skipped, { ChangedMeanwhile: 1 })
          assert.strictEqual(report.undone, 1)
          assert.deepStrictEqual(yield* Sweeping.events(copy!), ["evicted", "undone"])
          const path = yield* Sweeping.pathOf(copy!)
          assert.match(Fs.readFileSync(`${path}/scripts/run.sh`, "utf8"), /edited/)
          assert.deepStrictEqual(yield* Sweeping.siblings(copy!), [copy!.versionId])
          yield* World.advance("2 hours")
          assert.deepStrictEqual((yield* World.sweepOnce({ companyId: made.companyId })).skipped, {
            Observing: 1
          })
        })
      )
    }

    it.effect("[S-21] is set aside where the name is taken, with the account saying so", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        const [copy] = made.copies
        const act = Effect.gen(function* () {
          edit(yield* evicting(made))
          yield* Sweeping.materialize(made.copies)
        })
        const report = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
          Sweeping.during("evict.afterCommit", act)
        )
        assert.deepStrictEqual(report.skipped, { ChangedMeanwhile: 1 })
        assert.strictEqual(report.undone, 0)
        const names = yield* Sweeping.siblings(copy!)
        assert.strictEqual(names.length, 2)
        const path = (yield* Sweeping.pathOf(copy!)).replace(/[^/]*$/, names[0]!)
        assert.match(names[0]!, /^\.replaced-/)
        assert.match(Fs.readFileSync(`${path}/scripts/run.sh`, "utf8"), /edited/)
        assert.isTrue(yield* World.isThere(copy!))
        assert.deepStrictEqual(yield* Sweeping.events(copy!), ["evicted", "set aside"])
      })
    )
  })

  describe("somebody else", () => {
    it.effect("[S-22] an evictor whose folder was moved back by another counts it as kept", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        const [copy] = made.copies
        const settle = Effect.gen(function* () {
          Fs.renameSync(yield* evicting(made), yield* Sweeping.pathOf(copy!))
        })
        for (const point of ["evict.afterCommit", "evict.beforeTrash"]) {
          const report = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
            Sweeping.during(point, settle)
          )
          assert.deepStrictEqual(report.skipped, { ChangedMeanwhile: 1 })
          assert.strictEqual(report.undone, 0)
          assert.isTrue(yield* World.isThere(copy!))
          // A copy that came back has no record: it is observed, for a whole window.
          yield* World.sweepOnce({ companyId: made.companyId })
          yield* World.advance("1 hour")
        }
        assert.deepStrictEqual(yield* Sweeping.events(copy!), ["evicted", "evicted"])
      })
    )

    it.effect("[S-24] a company whose lock is held is skipped for the rest of the batch, at once", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 5 })
        const busy = Effect.gen(function* () {
          const { statements, value } = yield* World.statementsOf(
            World.sweepOnce({ companyId: made.companyId })
          ).pipe(Sweeping.holding(made.companyId))
          assert.deepStrictEqual(value.skipped, { CompanyBusy: 5 })
          assert.strictEqual(value.errors, 0)
          // Tried once, never queued for, and not asked again.
          assert.strictEqual(
            statements.filter((text) => text.includes("pg_try_advisory_xact_lock")).length,
            1
          )
        })
        yield* busy
        const leftover = yield* Sweeping.leftoverPath(made.copies[0]!, "evicting")
        Fs.renameSync(yield* Sweeping.pathOf(made.copies[0]!), leftover)
        yield* busy
        const report = yield* World.sweepOnce({ companyId: made.companyId })
        assert.deepStrictEqual([report.evicted, report.settled], [4, 1])
      })
    )
  })

  describe("interruption", () => {
    const points = [
      "evict.beforeLock",
      "evict.beforeFacts",
      "evict.afterFacts",
      "evict.beforeRename",
      "evict.afterRename",
      "evict.afterSecondLook",
      "evict.afterRecord",
      "evict.beforeCommit",
      "transaction.beforeCommit",
      "transaction.afterCommit",
      "evict.afterCommit",
      "evict.beforeTrash",
      "trash.beforeRename",
      "trash.afterRename",
      "evict.afterTrash",
      "trash.betweenEntries"
    ]
    for (const point of points) {
      it.effect(`[S-23] at ${point} the entry in hand is finished or undone, and no other is begun`, () =>
        Effect.gen(function* () {
          const made = yield* Sweeping.idleSkill({ versions: 2 })
          const { fiber, goOn } = yield* Sweeping.stopAt(
            World.sweep({ companyId: made.companyId }),
            point,
            "evict.beforeLock"
          )
          const interrupting = yield* Effect.forkChild(Fiber.interrupt(fiber))
          yield* Effect.yieldNow
          yield* goOn
          yield* Fiber.join(interrupting)
          assert.isTrue(Exit.hasInterrupts(yield* Fiber.await(fiber)))
          assert.deepStrictEqual(yield* Sweeping.unfinished, { locks: 0, transactions: 0 })
          const names = yield* Sweeping.siblings(made.copies[0]!)
          assert.isUndefined(names.find((name) => name.startsWith(".evicting-")))
          const there = made.copies.filter(({ versionId }) => names.includes(versionId)).length
          for (const copy of made.copies) {
            const expected = names.includes(copy.versionId) ? [] : ["evicted"]
            assert.deepStrictEqual(yield* Sweeping.events(copy), expected)
          }
          // A new sweep may start, and finishes what is left.
          const report = yield* World.sweepOnce({ companyId: made.companyId })
          assert.strictEqual(report.evicted, there)
          assert.deepStrictEqual(yield* Sweeping.siblings(made.copies[0]!), [])
        })
      )
    }
  })
})

/** Bounds for a server that does not answer at all. */
const bounds = {
  answerTimeout: "400 millis",
  commitTimeout: "400 millis",
  rollbackTimeout: "300 millis"
} as const

layer(World.layer({ bounds }), { excludeTestServices: true })("failures of the database", (it) => {
  const backends = Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    return (yield* sql<{ readonly pid: number }>`
      select l.pid from pg_locks l join pg_database d on d.oid = l.database
      where d.datname = current_database() and l.locktype = 'advisory'`).map(({ pid }) => pid)
  })

  it.effect("[S-21] a connection that is lost between the rename and the commit undoes the move", () =>
    Effect.gen(function* () {
      for (const point of ["evict.afterRename", "evict.beforeCommit", "transaction.beforeCommit"]) {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        const kill = Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          for (const pid of yield* backends) yield* sql`select pg_terminate_backend(${pid}::int, 5000)`
        })
        const report = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
          Sweeping.during(point, kill, "evict.beforeLock")
        )
        assert.deepStrictEqual(report.skipped, { LockLost: 1 })
        assert.strictEqual(report.undone, 1)
        yield* assertUndone(made, true)
      }
    })
  )

  it.effect("[S-21] a commit without an answer undoes the move, and the account tells both", () =>
    Effect.gen(function* () {
      const made = yield* Sweeping.idleSkill({ versions: 1 })
      let stopped: ReadonlyArray<number> = []
      const stop = Effect.gen(function* () {
        stopped = yield* backends
        for (const pid of stopped) yield* Backend.stop(pid)
      })
      const report = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
        Sweeping.during("transaction.beforeCommit", stop, "evict.beforeCommit")
      )
      assert.isAbove(stopped.length, 0)
      for (const pid of stopped) yield* Backend.resume(pid)
      assert.deepStrictEqual(report.skipped, { LockLost: 1 })
      assert.strictEqual(report.undone, 1)
      assert.isTrue(yield* World.isThere(made.copies[0]!))
      yield* eventually(Effect.map(Sweeping.unfinished, ({ locks }) => locks === 0))
      // The commit had reached the server: it happened, and then was taken back.
      assert.sameMembers(yield* Sweeping.events(made.copies[0]!), ["evicted", "undone"])
      assert.strictEqual(yield* World.isThere(made.copies[0]!), true)
    })
  )

  it.effect("[S-21] a commit that the server refuses undoes the move and ends the sweep", () =>
    Effect.gen(function* () {
      const made = yield* Sweeping.idleSkill({ versions: 1 })
      const sql = yield* SqlClient.SqlClient
      yield* sql`create function refuse() returns trigger language plpgsql as
        'begin if new.event = ''evicted'' then raise exception ''refused''; end if; return new; end'`
      yield* sql`create constraint trigger refuse after insert on reclaim.journal
        deferrable initially deferred for each row execute function refuse()`
      const exit = yield* Effect.exit(World.sweepOnce({ companyId: made.companyId }))
      yield* sql`drop trigger refuse on reclaim.journal`
      assert.isTrue(Exit.isFailure(exit))
      yield* assertUndone(made, true)
      // The record of use is gone with the move, so a new window begins.
      assert.deepStrictEqual((yield* World.sweepOnce({ companyId: made.companyId })).skipped, {
        Observing: 1
      })
    })
  )

  it.effect("[S-21] more than 5 s after the last answer nothing is renamed", () =>
    Effect.gen(function* () {
      const real = yield* DatabaseError.WaitClock
      for (const [seconds, expected] of [
        [4, { evicted: 1, skipped: {} }],
        [6, { evicted: 0, skipped: { LockLost: 1 } }]
      ] as const) {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        let ahead = 0n
        const clock: Clock.Clock = {
          ...real,
          currentTimeMillisUnsafe: () => real.currentTimeMillisUnsafe(),
          currentTimeNanosUnsafe: () => real.currentTimeNanosUnsafe(),
          sleep: (duration) => real.sleep(duration),
          monotonicTimeNanosUnsafe: () => real.monotonicTimeNanosUnsafe() + ahead
        }
        const names: Array<string> = []
        const handler = (point: string) =>
          Effect.sync(() => {
            names.push(point)
            if (point === "evict.afterFacts") ahead = BigInt(seconds) * 1_000_000_000n
          })
        const { evicted, skipped } = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
          Effect.provideService(DatabaseError.WaitClock, clock),
          Effect.provideService(FaultPoint.FaultHandler, handler)
        )
        assert.deepStrictEqual({ evicted, skipped }, expected)
        assert.strictEqual(names.includes("evict.beforeRename"), expected.evicted === 1)
      }
    })
  )
})

layer(World.layer({ pool: { maxConnections: 1 }, bounds: { acquireTimeout: "300 millis" } }), {
  excludeTestServices: true
})("a pool of one", (it) => {
  it.effect("[D-03] [S-22] is enough to evict, to settle and to delete", () =>
    Effect.gen(function* () {
      const made = yield* Sweeping.idleSkill({ versions: 2 })
      const store = yield* VersionStore.VersionStore
      const [, second] = made.copies
      Fs.renameSync(store.pathOf(second!), yield* Sweeping.leftoverPath(second!, "evicting"))
      const report = yield* World.sweepOnce({ companyId: made.companyId })
      assert.strictEqual(report.evicted, 1)
      assert.strictEqual(report.settled, 1)
      assert.strictEqual(report.trashFinished, 1)
    })
  )

  it.effect("[S-24] [D-02] a pool that others exhaust does not hold an eviction up for ever", () =>
    Effect.gen(function* () {
      const made = yield* Sweeping.idleSkill({ versions: 1 })
      const sql = yield* SqlClient.SqlClient
      const { fiber, goOn } = yield* Sweeping.stopAt(
        World.sweepOnce({ companyId: made.companyId }),
        "evict.beforeLock"
      )
      const report = yield* Effect.scoped(
        Effect.gen(function* () {
          yield* sql.reserve
          yield* goOn
          // The connection is ours until the sweep has answered.
          return yield* Fiber.join(fiber).pipe(Effect.timeoutOption("5 seconds"))
        })
      )
      assert.isTrue(report._tag === "Some")
    })
  )
})
