import { assert, describe, layer } from "@effect/vitest"
import { AccessRecords } from "@reclaim/fs"
import { Clock, DateTime, Effect } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Fs from "node:fs"
import { MovableClock } from "../src/testing.ts"
import * as Sweeping from "./support/Sweeping.ts"
import * as World from "./support/World.ts"

type Made = Effect.Success<ReturnType<typeof World.skill>>
type Kind = "staging" | "evicting" | "replaced"

const edit = (path: string) => World.overwrite(`${path}/SKILL.md`, "somebody's")

/** Sets the clock so that the folder is exactly as old as that; times of files are real. */
const aged = Effect.fnUntraced(function* (path: string, time: "ctimeMs" | "mtimeMs", millis: number) {
  const clock = yield* MovableClock.MovableClock
  yield* clock.set(DateTime.makeUnsafe(Math.floor(Fs.lstatSync(path)[time]) + millis))
})

/** Puts a leftover of the first copy beside it. `taken`: the copy itself is there too. */
const leave = Effect.fnUntraced(function* (
  { copies }: Made,
  kind: Kind,
  options: { readonly taken: boolean; readonly alter?: (path: string) => void }
) {
  const copy = yield* Sweeping.pathOf(copies[0]!)
  const path = yield* Sweeping.leftoverPath(copies[0]!, kind)
  if (options.taken) Fs.cpSync(copy, path, { recursive: true, preserveTimestamps: true })
  else Fs.renameSync(copy, path)
  options.alter?.(path)
  return path
})

/** Keeps the first copy itself: it was used an hour from now. */
const use = Effect.fnUntraced(function* ({ copies }: Made) {
  const records = yield* AccessRecords.AccessRecords
  yield* records.touch(copies[0]!, DateTime.add(World.noon, { hours: 1 }))
})

const rest = Effect.fnUntraced(function* ({ copies }: Made) {
  return (yield* Sweeping.siblings(copies[0]!)).map((name) =>
    name === copies[0]!.versionId ? "copy" : name.replace(/-.*/, "")
  )
})

layer(World.layer(), { excludeTestServices: true })("settling what crashed processes left", (it) => {
  describe("an evicting folder", () => {
    it.effect("[S-22] [C-09] younger than 60 s is somebody's, to the millisecond", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        const path = yield* leave(made, "evicting", { taken: false })
        yield* aged(path, "ctimeMs", 59_999)
        const young = yield* World.sweepOnce({ companyId: made.companyId })
        assert.deepStrictEqual(young.skipped, {})
        assert.isTrue(Fs.existsSync(path))
        yield* aged(path, "ctimeMs", 60_000)
        assert.strictEqual((yield* World.sweepOnce({ companyId: made.companyId })).settled, 1)
        assert.deepStrictEqual(yield* rest(made), ["copy"])
        assert.deepStrictEqual(yield* Sweeping.events(made.copies[0]!), ["undone"])
      })
    )

    const states: ReadonlyArray<
      readonly [string, ((path: string) => void) | undefined, ReadonlyArray<string>]
    > = [
      ["the same becomes trash", undefined, []],
      ["a different one is set aside", edit, [".replaced"]],
      ["an incomplete one is set aside, and is trash then", (path) => Fs.rmSync(`${path}/SKILL.md`), []]
    ]
    for (const [name, alter, expected] of states) {
      it.effect(`[S-22] whose name is taken is proven anew: ${name}`, () =>
        Effect.gen(function* () {
          const made = yield* Sweeping.idleSkill({ versions: 1 })
          yield* use(made)
          yield* leave(made, "evicting", { taken: true, ...(alter === undefined ? {} : { alter }) })
          const report = yield* World.sweepOnce({ companyId: made.companyId })
          assert.strictEqual(report.settled, 1)
          if (alter !== undefined) {
            assert.deepStrictEqual(yield* rest(made), [".replaced", "copy"])
            assert.deepStrictEqual(yield* Sweeping.events(made.copies[0]!), ["set aside"])
            yield* World.sweepOnce({ companyId: made.companyId })
          }
          assert.deepStrictEqual(yield* rest(made), [...expected, "copy"])
        })
      )
    }

    it.effect("[S-22] [S-17] that cannot be compared stays, and so does one of another skill's version", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        const other = yield* World.skill({ versions: 1, company: made })
        const [copy] = made.copies
        const sql = yield* SqlClient.SqlClient
        // The contents are those of the version, the folder is that of another skill.
        const stray = { ...copy!, skillId: other.skillId }
        for (const path of [
          yield* Sweeping.pathOf(stray),
          yield* Sweeping.leftoverPath(stray, "evicting"),
          yield* Sweeping.leftoverPath(stray, "replaced")
        ]) {
          Fs.cpSync(yield* Sweeping.pathOf(copy!), path, { recursive: true })
        }
        const before = yield* Sweeping.siblings(stray)
        yield* World.sweepOnce({ companyId: made.companyId })
        yield* World.advance("2 hours")
        const report = yield* World.sweepOnce({ companyId: made.companyId })
        assert.deepStrictEqual(report.skipped, { NotRecoverable: 3 })
        assert.deepStrictEqual(yield* Sweeping.siblings(stray), before)
        yield* sql`delete from company_skill_versions where id = ${copy!.versionId}::uuid`
        assert.strictEqual((yield* World.sweepOnce({ companyId: made.companyId })).settled, 0)
      })
    )

    const twins: typeof states = [
      ["the same as the other", undefined, ["copy"]],
      ["altered", edit, [".replaced", "copy"]]
    ]
    for (const [name, alter, expected] of twins) {
      it.effect(`[S-22] [Q-03] is settled by the same sweep when there are two of a copy, one ${name}`, () =>
        Effect.gen(function* () {
          const made = yield* Sweeping.idleSkill({ versions: 1 })
          yield* use(made)
          // Killed while it was leaving, restored meanwhile, and killed again.
          yield* leave(made, "evicting", { taken: true, ...(alter === undefined ? {} : { alter }) })
          yield* leave(made, "evicting", { taken: false })
          assert.deepStrictEqual(yield* rest(made), [".evicting", ".evicting"])
          const report = yield* World.sweepOnce({ companyId: made.companyId })
          assert.strictEqual(report.settled, 2)
          assert.strictEqual(report.errors, 0)
          assert.deepStrictEqual(yield* rest(made), expected)
        })
      )
    }

    it.effect("[S-22] is not lost when its name is taken, or becomes free, just before the lock", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        const copy = yield* Sweeping.pathOf(made.copies[0]!)
        const path = yield* leave(made, "evicting", { taken: false })
        const taken = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
          Sweeping.during(
            "settle.beforeMove",
            Effect.sync(() => Fs.cpSync(path, copy, { recursive: true }))
          )
        )
        assert.deepStrictEqual(taken.skipped, { ChangedMeanwhile: 1 })
        assert.deepStrictEqual(yield* rest(made), [".evicting", "copy"])
        const free = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
          Sweeping.during(
            "settle.beforeMove",
            Effect.sync(() => Fs.rmSync(copy, { recursive: true }))
          )
        )
        assert.strictEqual(free.settled, 0)
        assert.deepStrictEqual(yield* rest(made), [".evicting"])
        assert.strictEqual((yield* World.sweepOnce({ companyId: made.companyId })).settled, 1)
        assert.deepStrictEqual(yield* rest(made), ["copy"])
      })
    )

    it.effect("[S-22] [F-02] that is edited between its proof and the lock does not become trash", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        yield* use(made)
        const path = yield* leave(made, "evicting", { taken: true })
        const report = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
          Sweeping.during(
            "settle.beforeLook",
            Effect.sync(() => edit(path))
          )
        )
        assert.strictEqual(report.skipped["ChangedMeanwhile"], 1)
        assert.deepStrictEqual(yield* rest(made), [".evicting", "copy"])
      })
    )
  })

  describe("a staging folder", () => {
    it.effect(
      "[S-02] [S-22] is claimed at the longer of the grace and an hour by its mtime, then deleted",
      () =>
        Effect.gen(function* () {
          const made = yield* Sweeping.idleSkill({ versions: 1 })
          const path = yield* leave(made, "staging", { taken: false })
          yield* aged(path, "mtimeMs", 3_599_999)
          assert.deepStrictEqual((yield* World.sweepOnce({ companyId: made.companyId })).skipped, {})
          assert.isTrue(Fs.existsSync(path))
          yield* aged(path, "mtimeMs", 3_600_000)
          const report = yield* World.sweepOnce({ companyId: made.companyId })
          assert.deepStrictEqual([report.settled, report.trashFinished], [1, 1])
          assert.isTrue(report.reclaimedAllocatedBytes > 0n)
          assert.deepStrictEqual(yield* rest(made), [])
        })
    )
  })

  describe("a replaced folder", () => {
    for (const [name, alter, expected] of [
      ["equal goes", undefined, []],
      ["incomplete goes", (path: string) => Fs.rmSync(`${path}/scripts`, { recursive: true }), []],
      ["edited stays, for ever", edit, [".replaced"]],
      ["with a link stays", (path: string) => Fs.symlinkSync("/", `${path}/root`), [".replaced"]]
    ] as const) {
      it.effect(`[S-03] [S-22] that is ${name}`, () =>
        Effect.gen(function* () {
          const made = yield* Sweeping.idleSkill({ versions: 1 })
          yield* leave(made, "replaced", { taken: false, ...(alter === undefined ? {} : { alter }) })
          yield* World.sweepOnce({ companyId: made.companyId })
          assert.deepStrictEqual(yield* rest(made), [...expected])
          yield* World.advance("1000 days")
          const report = yield* World.sweepOnce({ companyId: made.companyId })
          assert.deepStrictEqual(yield* rest(made), [...expected])
          assert.strictEqual(report.errors, 0)
        })
      )
    }

    it.effect("[S-17] [F-08] that holds a file of a terabyte is told at once, not read", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        yield* leave(made, "replaced", {
          taken: false,
          alter: (path) => {
            Fs.writeFileSync(`${path}/core.dump`, "")
            Fs.truncateSync(`${path}/core.dump`, 2 ** 40)
          }
        })
        const report = yield* World.sweepOnce({ companyId: made.companyId })
        assert.deepStrictEqual(report.skipped, { Differs: 1 })
        assert.deepStrictEqual(yield* rest(made), [".replaced"])
      })
    )

    it.effect("[S-17] [S-22] stays when its snapshot is written between the proof and the move", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        yield* leave(made, "replaced", { taken: false })
        const sql = yield* SqlClient.SqlClient
        const empty = sql`update company_skill_versions set file_inventory = '[]'
          where id = ${made.copies[0]!.versionId}::uuid`.pipe(Effect.asVoid, Effect.orDie)
        const report = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
          Sweeping.during("settle.beforeMove", empty)
        )
        assert.deepStrictEqual(yield* rest(made), [".replaced"])
        assert.deepStrictEqual(report.skipped, { ChangedMeanwhile: 1 })
      })
    )
  })

  describe("trash", () => {
    it.effect("[S-22] is left while another process deletes, and finished by any later sweep", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 2 })
        const trash = yield* Sweeping.leftoverPath(made.copies[0]!, "trash")
        Fs.renameSync(yield* Sweeping.pathOf(made.copies[0]!), trash)
        const held = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
          Sweeping.holding(made.companyId, "trash")
        )
        // Evicting needs the company's lock alone.
        assert.deepStrictEqual([held.evicted, held.trashFinished, held.errors], [1, 0, 0])
        const report = yield* World.elsewhere()(World.sweepOnce({ companyId: made.companyId }))
        assert.strictEqual(report.trashFinished, 2)
        assert.deepStrictEqual(yield* rest(made), [])
      })
    )

    it.effect("[S-22] that vanishes is somebody else's success", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        const vanishing = yield* Sweeping.leftoverPath(made.copies[0]!, "trash")
        Fs.mkdirSync(vanishing)
        const report = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
          Sweeping.during(
            "transaction.afterLock",
            Effect.sync(() => Fs.rmSync(vanishing, { recursive: true })),
            "evict.afterTrash"
          )
        )
        assert.deepStrictEqual([report.evicted, report.trashFinished, report.errors], [1, 1, 0])
      })
    )

    it.effect("[S-22] is deleted in slices, each in a transaction of its own", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        for (let index = 0; index < 12; index++) {
          const trash = yield* Sweeping.leftoverPath(made.copies[0]!, "trash")
          Fs.mkdirSync(`${trash}/folder`, { recursive: true })
        }
        // Each look at the clock takes 100 ms: a slice of 250 ms has room for two or three folders.
        const real = yield* Clock.Clock
        let ahead = 0n
        const slow: Clock.Clock = {
          ...real,
          monotonicTimeNanosUnsafe: () => real.monotonicTimeNanosUnsafe() + (ahead += 100_000_000n)
        }
        const { statements, value } = yield* World.statementsOf(
          World.sweepOnce({ companyId: made.companyId }).pipe(Effect.provideService(Clock.Clock, slow))
        )
        assert.deepStrictEqual([value.evicted, value.trashFinished, value.errors], [1, 13, 0])
        const locks = statements.filter((text) => text.includes("pg_try_advisory_xact_lock")).length
        assert.isAbove(locks, 1 + 4)
      })
    )

    it.effect("[S-22] that turned into something else is counted, and the rest goes on", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        const { path: instance } = yield* World.Instance
        const odd = yield* Sweeping.leftoverPath(made.copies[0]!, "trash")
        Fs.mkdirSync(odd)
        const link = Effect.sync(() => {
          Fs.rmdirSync(odd)
          Fs.symlinkSync(instance, odd)
        })
        const report = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
          Sweeping.during("transaction.afterLock", link, "evict.afterTrash")
        )
        assert.deepStrictEqual([report.evicted, report.trashFinished, report.errors], [1, 1, 1])
        assert.isTrue(Fs.lstatSync(odd).isSymbolicLink())
      })
    )

    it.effect("[S-22] never costs a copy that is made meanwhile", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        const report = yield* World.sweepOnce({ companyId: made.companyId }).pipe(
          Sweeping.during("trash.betweenEntries", World.elsewhere()(Sweeping.materialize(made.copies)))
        )
        assert.deepStrictEqual([report.evicted, report.trashFinished], [1, 1])
        assert.deepStrictEqual(yield* rest(made), ["copy"])
      })
    )
  })

  describe("folders and records", () => {
    it.effect(
      "[S-22] an empty skill folder and orphaned records older than the grace go, younger ones not",
      () =>
        Effect.gen(function* () {
          const made = yield* Sweeping.idleSkill({ versions: 2 })
          const { path: instance } = yield* World.Instance
          const skill = `${instance}/skills/${made.companyId}/__versions__/${made.skillId}`
          const records = `${instance}/skills/${made.companyId}/__version_access__/${made.skillId}`
          for (const copy of made.copies) Fs.rmSync(yield* Sweeping.pathOf(copy), { recursive: true })
          const [old, young] = made.copies
          yield* (yield* AccessRecords.AccessRecords).touch(young!, DateTime.add(World.noon, { minutes: 30 }))
          Fs.writeFileSync(`${records}/${crypto.randomUUID()}.json`, "no record at all")
          yield* aged(skill, "mtimeMs", 3_599_999)
          yield* World.sweepOnce({ companyId: made.companyId })
          assert.isTrue(Fs.existsSync(skill))
          yield* World.begin
          yield* World.advance("1 hour")
          yield* World.sweepOnce({ companyId: made.companyId })
          assert.isFalse(Fs.existsSync(skill))
          assert.deepStrictEqual(Fs.readdirSync(records), [`${young!.versionId}.json`])
          assert.isFalse(Fs.existsSync(`${records}/${old!.versionId}.json`))
          yield* World.advance("30 minutes")
          yield* World.sweepOnce({ companyId: made.companyId })
          yield* World.sweepOnce({ companyId: made.companyId })
          assert.isFalse(Fs.existsSync(records))
        })
    )

    it.effect("[S-22] [S-24] the record of a copy that another server is evicting is not an orphan", () =>
      Effect.gen(function* () {
        const { companyId } = yield* Sweeping.idleSkill({ versions: 1 })
        const report = yield* World.sweepOnce({ companyId }).pipe(
          Sweeping.during("evict.afterRename", World.elsewhere()(World.sweepOnce({ companyId })))
        )
        assert.deepStrictEqual([report.evicted, report.undone, report.skipped], [1, 0, {}])
      })
    )

    it.effect("[S-22] a record whose copy came back since it was listed stays", () =>
      Effect.gen(function* () {
        const { companyId, copies } = yield* Sweeping.idleSkill({ versions: 1 })
        const [copy] = copies
        if (copy === undefined) return yield* Effect.die("no copy")
        Fs.rmSync(yield* Sweeping.pathOf(copy), { recursive: true })
        const records = yield* AccessRecords.AccessRecords
        yield* World.sweepOnce({ companyId }).pipe(
          // By then the entries are listed, and no lock is taken yet.
          Sweeping.during("forget.beforeSelections", World.elsewhere()(Sweeping.materialize(copies)))
        )
        assert.strictEqual((yield* records.read(copy))._tag, "Recorded")
        assert.strictEqual((yield* World.sweepOnce({ companyId })).skipped["RecentlyUsed"], 1)
      })
    )

    it.effect(
      "[S-22] [S-16] what a crash left beside the records goes, whether the skill has copies or not",
      () =>
        Effect.gen(function* () {
          const made = yield* Sweeping.idleSkill({ versions: 1 })
          const { path: instance } = yield* World.Instance
          const records = `${instance}/skills/${made.companyId}/__version_access__/${made.skillId}`
          const temporary = () => `${records}/.${made.copies[0]!.versionId}-${crypto.randomUUID()}.tmp`
          Fs.writeFileSync(temporary(), "")
          Fs.writeFileSync(`${records}/theirs.tmp`, "")
          yield* World.sweepOnce({ companyId: made.companyId, dryRun: true })
          assert.strictEqual(Fs.readdirSync(records).length, 3)
          yield* World.sweepOnce({ companyId: made.companyId })
          assert.deepStrictEqual(Fs.readdirSync(records), ["theirs.tmp"])
          Fs.writeFileSync(temporary(), "")
          yield* World.advance("1 day")
          yield* World.sweepOnce({ companyId: made.companyId })
          yield* World.sweepOnce({ companyId: made.companyId })
          assert.deepStrictEqual(Fs.readdirSync(records), ["theirs.tmp"])
        })
    )
  })
})
