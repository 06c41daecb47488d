import { assert, layer } from "@effect/vitest"
import type { CopyRef } from "@reclaim/fs"
import { layerFaulty } from "@reclaim/fs/testing"
import { Transactions } from "@reclaim/db"
import { Deferred, Effect, Exit, Fiber } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Fs from "node:fs"
import { openTransactions } from "../../db/test/support/database.ts"
import { SkillVersionCache } from "../src/index.ts"
import { FaultPoints } from "../src/testing.ts"
import {
  contentsOf,
  eventsOf,
  interruptAt,
  killAt,
  leftover,
  leftovers,
  overwrite,
  pathOf,
  prepare,
  short,
  standard
} from "./support/Copies.ts"
import * as World from "./support/World.ts"

/** One prepared copy, altered by `change`. */
const altered = Effect.fnUntraced(function* (change: (path: string) => void) {
  yield* World.begin
  const { companyId, copies } = yield* World.skill({ versions: 1 })
  const copy = copies[0]!
  yield* prepare(companyId, [copy.versionId])
  const path = yield* pathOf(copy)
  change(path)
  return { companyId, copy, path }
})

const truncate = (path: string) => overwrite(`${path}/SKILL.md`, "rev")

const states: ReadonlyArray<readonly [name: string, change: (path: string) => void]> = [
  ["a missing file", (path) => Fs.rmSync(`${path}/SKILL.md`)],
  ["a missing folder", (path) => Fs.rmSync(`${path}/scripts`, { recursive: true })],
  ["an extra file", (path) => Fs.writeFileSync(`${path}/assets/extra`, "x")],
  ["an extra empty folder", (path) => Fs.mkdirSync(`${path}/scripts/cache`)],
  ["a shorter file", truncate],
  ["a longer file", (path) => overwrite(`${path}/assets/logo.bin`, "longer than before")],
  ["a bit that is missing", (path) => Fs.chmodSync(`${path}/scripts/run.sh`, 0o444)],
  ["a bit that was set", (path) => Fs.chmodSync(`${path}/SKILL.md`, 0o555)],
  [
    "a link in the place of a file",
    (path) => {
      Fs.rmSync(`${path}/SKILL.md`)
      Fs.symlinkSync("/etc/hostname", `${path}/SKILL.md`)
    }
  ],
  [
    "a folder in the place of a file",
    (path) => {
      Fs.rmSync(`${path}/SKILL.md`)
      Fs.mkdirSync(`${path}/SKILL.md`)
    }
  ],
  [
    "a file in the place of a folder",
    (path) => {
      Fs.rmSync(`${path}/assets`, { recursive: true })
      Fs.writeFileSync(`${path}/assets`, "x")
    }
  ],
  [
    "nothing at all in it",
    (path) => {
      Fs.rmSync(path, { recursive: true })
      Fs.mkdirSync(path)
    }
  ]
]

layer(World.layer(), { excludeTestServices: true })("repairing", (it) => {
  for (const [name, change] of states) {
    it.effect(`[S-03] a copy with ${name} is noticed and replaced, and the altered one is kept aside`, () =>
      Effect.gen(function* () {
        const { companyId, copy, path } = yield* altered(change)
        const before = Fs.statSync(path).ino
        assert.deepStrictEqual((yield* prepare(companyId, [copy.versionId])).map(short), ["Ready restored"])
        assert.deepStrictEqual(contentsOf(path), standard(1))
        assert.deepStrictEqual(yield* leftovers(copy), [".replaced"])
        const aside = yield* leftover(copy, ".replaced")
        assert.strictEqual(Fs.statSync(aside).ino, before)
        assert.include(aside, `.replaced-${copy.versionId}-`)
        const events = yield* eventsOf(copy)
        assert.deepStrictEqual(
          events.map(({ event }) => event),
          ["repaired"]
        )
        assert.isAbove(Number(events[0]?.allocatedBytes), 0)
        assert.deepStrictEqual((yield* prepare(companyId, [copy.versionId])).map(short), ["Ready"])
      })
    )
  }

  it.effect("[S-03] an edit that keeps the size is noticed by digest, when asked", () =>
    Effect.gen(function* () {
      const { companyId, copy, path } = yield* altered((path) => overwrite(`${path}/SKILL.md`, "REVISION 1"))
      assert.deepStrictEqual((yield* prepare(companyId, [copy.versionId])).map(short), ["Ready"])
      assert.deepStrictEqual((yield* prepare(companyId, [copy.versionId], { verify: "digest" })).map(short), [
        "Ready restored"
      ])
      assert.deepStrictEqual(contentsOf(path), standard(1))
      assert.strictEqual(
        Fs.readFileSync(`${yield* leftover(copy, ".replaced")}/SKILL.md`, "utf8"),
        "REVISION 1"
      )
      const cache = yield* SkillVersionCache.SkillVersionCache
      const restored = yield* cache.restore({ companyId, versionId: copy.versionId, verify: "digest" })
      assert.strictEqual(short(restored), "Ready")
    })
  )

  it.effect("[S-03] modes other than the executable bit do not matter", () =>
    Effect.gen(function* () {
      const { companyId, copy } = yield* altered((path) => {
        Fs.chmodSync(`${path}/SKILL.md`, 0o600)
        Fs.chmodSync(`${path}/scripts/run.sh`, 0o700)
        Fs.chmodSync(`${path}/assets`, 0o500)
      })
      assert.deepStrictEqual((yield* prepare(companyId, [copy.versionId], { verify: "digest" })).map(short), [
        "Ready"
      ])
    })
  )

  it.effect(
    "[S-03] of what was set aside, the incomplete goes with the next sweep and the altered stays",
    () =>
      Effect.gen(function* () {
        const incomplete = yield* altered((path) => Fs.rmSync(`${path}/SKILL.md`))
        yield* prepare(incomplete.companyId, [incomplete.copy.versionId])
        yield* World.sweep({ companyId: incomplete.companyId })
        assert.deepStrictEqual(yield* leftovers(incomplete.copy), [])
        assert.isTrue(yield* World.isThere(incomplete.copy))
        const edited = yield* altered(truncate)
        yield* prepare(edited.companyId, [edited.copy.versionId])
        const report = yield* World.sweepOnce({ companyId: edited.companyId })
        assert.strictEqual(report.skipped.Differs, 1)
        assert.deepStrictEqual(yield* leftovers(edited.copy), [".replaced"])
      })
  )

  it.effect("[S-03] while somebody holds the lock shared for more than 5 s, the company is busy", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 3 })
      const versions = copies.map(({ versionId }) => versionId)
      yield* prepare(companyId, versions)
      const paths = yield* Effect.forEach(copies, pathOf)
      truncate(paths[0]!)
      truncate(paths[1]!)
      const transactions = yield* Transactions.Transactions
      const held = yield* Deferred.make<void>()
      const free = yield* Deferred.make<void>()
      const holder = yield* Effect.forkChild(
        transactions.companyShared(companyId, () =>
          Effect.andThen(Deferred.succeed(held, undefined), Deferred.await(free))
        )
      )
      yield* Deferred.await(held)
      const start = process.hrtime.bigint()
      const answers = yield* prepare(companyId, versions)
      const seconds = Number(process.hrtime.bigint() - start) / 1e9
      // Both altered copies share one wait, and the good one is served.
      assert.deepStrictEqual(answers.map(short), ["CompanyBusy", "CompanyBusy", "Ready"])
      assert.isAbove(seconds, 4)
      assert.isBelow(seconds, 9)
      assert.strictEqual(Fs.readFileSync(`${paths[0]}/SKILL.md`, "utf8"), "rev")
      assert.deepStrictEqual(yield* leftovers(copies[0]!), [])
      assert.strictEqual(yield* openTransactions, 1)
      yield* Deferred.succeed(free, undefined)
      yield* Fiber.join(holder)
      assert.deepStrictEqual((yield* prepare(companyId, versions)).map(short), [
        "Ready restored",
        "Ready restored",
        "Ready"
      ])
    })
  )

  it.effect("[S-03] a copy that was repaired meanwhile is not replaced once more", () =>
    Effect.gen(function* () {
      const { companyId, copy, path } = yield* altered(truncate)
      const gate = yield* FaultPoints.gate("restore.afterStaging")
      const slow = yield* Effect.forkChild(gate.guard(prepare(companyId, [copy.versionId])))
      yield* gate.reached
      const faster = yield* World.elsewhere()(prepare(companyId, [copy.versionId]))
      assert.deepStrictEqual(faster.map(short), ["Ready restored"])
      const inode = Fs.statSync(path).ino
      yield* gate.open
      assert.deepStrictEqual((yield* Fiber.join(slow)).map(short), ["Ready"])
      assert.strictEqual(Fs.statSync(path).ino, inode)
      assert.deepStrictEqual(yield* leftovers(copy), [".replaced"])
      assert.strictEqual((yield* eventsOf(copy)).length, 1)
    })
  )

  it.effect(
    "[S-03] what takes the name between setting aside and publishing is looked at before it is served",
    () =>
      Effect.gen(function* () {
        const { companyId, copy, path } = yield* altered(truncate)
        let times = 0
        const answers = yield* FaultPoints.at(
          "repair.afterSetAside",
          Effect.sync(() => {
            times += 1
            if (times > 1) return
            Fs.mkdirSync(path)
            Fs.writeFileSync(`${path}/SKILL.md`, "of an older server")
          })
        )(prepare(companyId, [copy.versionId]))
        assert.deepStrictEqual(answers.map(short), ["Ready restored"])
        assert.deepStrictEqual(contentsOf(path), standard(1))
        assert.deepStrictEqual(yield* leftovers(copy), [".replaced", ".replaced"])
      })
  )

  it.effect("[S-03] a file or a link with the name of a copy stays, and the others are repaired", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 3 })
      const versions = copies.map(({ versionId }) => versionId)
      const paths = yield* Effect.forEach(copies, pathOf)
      yield* prepare(companyId, versions)
      Fs.rmSync(paths[0]!, { recursive: true })
      Fs.writeFileSync(paths[0]!, "not ours")
      Fs.rmSync(paths[1]!, { recursive: true })
      Fs.symlinkSync(paths[2]!, paths[1]!)
      truncate(paths[2]!)
      assert.deepStrictEqual((yield* prepare(companyId, versions)).map(short), [
        "Unexpected",
        "Unexpected",
        "Ready restored"
      ])
      assert.strictEqual(Fs.readFileSync(paths[0]!, "utf8"), "not ours")
      assert.isTrue(Fs.lstatSync(paths[1]!).isSymbolicLink())
    })
  )

  it.effect("[S-03] a link where the skill's folder belongs is never followed", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 1 })
      const copy = copies[0]!
      const folder = (yield* pathOf(copy)).slice(0, -37)
      const outside = `${(yield* World.Instance).path}/outside`
      Fs.mkdirSync(outside, { recursive: true })
      Fs.mkdirSync(folder.slice(0, -37), { recursive: true })
      Fs.symlinkSync(outside, folder)
      const [answer] = yield* prepare(companyId, [copy.versionId])
      assert.isTrue(answer?._tag === "Missing" && answer.reason._tag === "Unreadable")
      assert.deepStrictEqual(Fs.readdirSync(outside), [])
    })
  )

  it.effect("[S-28] when the disk is full an altered copy stays where it is, with the reason", () =>
    Effect.gen(function* () {
      const { companyId, copy, path } = yield* altered(truncate)
      const full = World.elsewhere({
        posix: layerFaulty([
          { method: "writeNew", matches: (each) => each.includes(".staging-"), code: "ENOSPC" }
        ])
      })
      const [answer] = yield* full(prepare(companyId, [copy.versionId]))
      assert.isTrue(
        answer?._tag === "Missing" && answer.reason._tag === "Unreadable" && answer.reason.code === "ENOSPC"
      )
      assert.strictEqual(Fs.readFileSync(`${path}/SKILL.md`, "utf8"), "rev")
      assert.deepStrictEqual(yield* leftovers(copy), [])
    })
  )

  it.effect("[S-03] a repair whose rename is refused answers so, and the altered copy stays", () =>
    Effect.gen(function* () {
      const { companyId, copy, path } = yield* altered(truncate)
      const refused = World.elsewhere({
        posix: layerFaulty([{ method: "rename", matches: (each) => each === path, code: "EXDEV" }])
      })
      const [answer] = yield* refused(prepare(companyId, [copy.versionId]))
      assert.isTrue(
        answer?._tag === "Missing" && answer.reason._tag === "Unreadable" && answer.reason.code === "EXDEV"
      )
      assert.strictEqual(Fs.readFileSync(`${path}/SKILL.md`, "utf8"), "rev")
      assert.deepStrictEqual(yield* leftovers(copy), [])
      assert.deepStrictEqual(yield* eventsOf(copy), [])
    })
  )

  it.effect("[D-02] a connection that is lost while copies are published or replaced is tried again", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 2 })
      const [broken, absent] = [copies[0]!, copies[1]!]
      yield* prepare(companyId, [broken.versionId])
      truncate(yield* pathOf(broken))
      const sql = yield* SqlClient.SqlClient
      const cut = sql`select pg_terminate_backend(pid, 5000) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null`
      for (const [point, expected] of [
        ["restore.afterPublish", ["Ready restored", "Ready restored"]],
        ["repair.afterPublish", ["Ready restored", "Ready"]]
      ] as const) {
        truncate(yield* pathOf(broken))
        let times = 0
        const answers = yield* FaultPoints.at(
          point,
          Effect.suspend(() => {
            times += 1
            return times === 1 ? Effect.orDie(Effect.asVoid(cut)) : Effect.void
          })
        )(World.elsewhere()(prepare(companyId, [broken.versionId, absent.versionId])))
        assert.deepStrictEqual(answers.map(short), [...expected])
        assert.isAbove(times, 0)
        assert.deepStrictEqual(contentsOf(yield* pathOf(broken)), standard(1))
        assert.deepStrictEqual(contentsOf(yield* pathOf(absent)), standard(2))
      }
      // Both repairs are told, the one whose transaction was lost too.
      assert.deepStrictEqual(
        (yield* eventsOf(broken)).map(({ event }) => event),
        ["repaired", "repaired"]
      )
      assert.strictEqual(yield* openTransactions, 0)
    })
  )

  const points = [
    "restore.beforeShared",
    "restore.afterFolder",
    "restore.afterFile",
    "restore.afterStaging",
    "restore.beforePublish",
    "restore.afterPublish",
    "restore.afterShared",
    "repair.beforeSetAside",
    "repair.afterSetAside",
    "repair.afterPublish"
  ]

  /** A company with a copy that is missing, one that is altered and one that is good, none of them pinned. */
  const mixed = Effect.gen(function* () {
    yield* World.begin
    const { companyId, copies } = yield* World.skill({ versions: 3 })
    const cache = yield* SkillVersionCache.SkillVersionCache
    for (const { versionId } of copies.slice(1)) yield* cache.restore({ companyId, versionId })
    overwrite(`${yield* pathOf(copies[1]!)}/SKILL.md`, "precious")
    return { companyId, copies, versions: copies.map(({ versionId }) => versionId) }
  })

  /** All three are prepared again, elsewhere, and after a sweep nothing is left but what was altered. */
  const converges = Effect.fnUntraced(function* (
    companyId: CopyRef.CopyRef["companyId"],
    copies: ReadonlyArray<CopyRef.CopyRef>
  ) {
    const answers = yield* World.elsewhere()(
      prepare(
        companyId,
        copies.map(({ versionId }) => versionId),
        { verify: "digest" }
      )
    )
    assert.isTrue(answers.every(({ _tag }) => _tag === "Ready"))
    const check = Effect.gen(function* () {
      for (const [index, copy] of copies.entries()) {
        assert.deepStrictEqual(contentsOf(yield* pathOf(copy)), standard(index + 1))
      }
    })
    yield* check
    yield* World.elsewhere()(World.sweep({ companyId }))
    yield* World.elsewhere()(World.sweep({ companyId }))
    yield* check
    assert.deepStrictEqual(yield* leftovers(copies[0]!), [".replaced"])
    const aside = yield* leftover(copies[0]!, ".replaced")
    assert.strictEqual(Fs.readFileSync(`${aside}/SKILL.md`, "utf8"), "precious")
    assert.strictEqual(yield* openTransactions, 0)
  })

  for (const point of points) {
    it.effect(`[Q-01] killed at ${point}, the next preparation converges and nothing is lost`, () =>
      Effect.gen(function* () {
        const { companyId, copies, versions } = yield* mixed
        const exit = yield* prepare(companyId, versions).pipe(killAt(point), World.elsewhere(), Effect.exit)
        assert.isTrue(Exit.hasDies(exit))
        yield* converges(companyId, copies)
      })
    )

    it.effect(`[Q-01] killed at ${point}, the next sweep converges, and what the run pinned is healed`, () =>
      Effect.gen(function* () {
        const { companyId, copies, versions } = yield* mixed
        const exit = yield* prepare(companyId, versions).pipe(killAt(point), World.elsewhere(), Effect.exit)
        assert.isTrue(Exit.hasDies(exit))
        yield* World.elsewhere()(World.sweep({ companyId }))
        for (const copy of copies) assert.isTrue(yield* World.isThere(copy))
        yield* converges(companyId, copies)
      })
    )

    it.effect(
      `[Q-01] interrupted at ${point}, nothing half made is left, and the next preparation converges`,
      () =>
        Effect.gen(function* () {
          const { companyId, copies, versions } = yield* mixed
          const exit = yield* World.elsewhere()(interruptAt(point, prepare(companyId, versions)))
          assert.isTrue(Exit.hasInterrupts(exit))
          assert.strictEqual(yield* openTransactions, 0)
          assert.isTrue((yield* leftovers(copies[0]!)).every((kind) => kind === ".replaced"))
          // Never is a copy missing that was there: setting aside and publishing are one for an interruption.
          assert.isTrue(yield* World.isThere(copies[1]!))
          assert.isTrue(yield* World.isThere(copies[2]!))
          yield* converges(companyId, copies)
        })
    )
  }

  it.effect("[Q-01] the points of restoring and repairing are all tried", () =>
    Effect.gen(function* () {
      const { companyId, versions } = yield* mixed
      const reached: Array<string> = []
      yield* FaultPoints.record(reached)(prepare(companyId, versions))
      const concerned = reached.filter((each) => /^(restore|repair)\./.test(each))
      assert.deepStrictEqual([...new Set(concerned)].toSorted(), points.toSorted())
      // Each step of a repair is one step.
      assert.strictEqual(reached.filter((each) => each === "repair.afterSetAside").length, 1)
    })
  )
})
