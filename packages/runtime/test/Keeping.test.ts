import { assert, describe, layer } from "@effect/vitest"
import { Ids, type VersionReason } from "@reclaim/core"
import { Holds, SkillPins } from "@reclaim/db"
import { AccessRecords } from "@reclaim/fs"
import { DateTime, Effect, Option, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { execFileSync } from "node:child_process"
import * as Fs from "node:fs"
import { SkillVersionCache, SkillVersionRetention } from "../src/index.ts"
import { MovableClock } from "../src/testing.ts"
import * as Sweeping from "./support/Sweeping.ts"
import * as World from "./support/World.ts"

const { Fixtures } = World

type Made = Effect.Success<ReturnType<typeof World.skill>>

/** The first of two versions: it is not the newest. */
const first = ({ copies }: Made) => copies[0]!

const selected = Effect.fnUntraced(function* (
  made: Made,
  options: Parameters<typeof Fixtures.run>[1],
  pins: ReadonlyArray<SkillPins.Pin>
) {
  const runId = yield* Fixtures.run(made, options)
  yield* (yield* SkillPins.SkillPins).record(made.companyId, runId, pins)
  return runId
})

const finish = Effect.fnUntraced(function* (runId: Ids.RunId, status: string) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`update heartbeat_runs set status = ${status} where id = ${runId}::uuid`
})

/** Makes the one reason hold, and gives the effect that ends it. */
const reasons = {
  "[S-10] Current": {
    tag: "Current",
    hold: Effect.fnUntraced(function* (made: Made) {
      const sql = yield* SqlClient.SqlClient
      const set = (id: string | null) =>
        sql`update company_skills set current_version_id = ${id}::uuid where id = ${made.skillId}::uuid`
      yield* set(first(made).versionId)
      return { release: set(null) }
    })
  },
  "[S-11] ActiveRun": {
    tag: "ActiveRun",
    hold: Effect.fnUntraced(function* (made: Made) {
      const runId = yield* selected(made, { status: "running", started: true }, [first(made)])
      return { release: finish(runId, "succeeded") }
    })
  },
  "[S-11] ActiveRun (a status that nobody knows)": {
    tag: "ActiveRun",
    hold: Effect.fnUntraced(function* (made: Made) {
      const runId = yield* selected(made, { status: "pondering", started: true }, [first(made)])
      return { release: finish(runId, "interrupted") }
    })
  },
  "[S-12] UnsettledRecovery (native, no finalization)": {
    tag: "UnsettledRecovery",
    hold: Effect.fnUntraced(function* (made: Made) {
      const runId = yield* selected(made, { status: "failed", mode: "native" }, [first(made)])
      const sql = yield* SqlClient.SqlClient
      return { release: sql`update heartbeat_runs set runtime_mode = 'legacy' where id = ${runId}::uuid` }
    })
  },
  "[S-12] UnsettledRecovery (a retry is scheduled)": {
    tag: "UnsettledRecovery",
    hold: Effect.fnUntraced(function* (made: Made) {
      const runId = yield* selected(made, { status: "failed" }, [first(made)])
      const retry = yield* Fixtures.run(made, { status: "scheduled_retry", retryOf: runId })
      return { release: finish(retry, "cancelled") }
    })
  },
  "[S-13] SelectionUnknown": {
    tag: "SelectionUnknown",
    both: true,
    hold: Effect.fnUntraced(function* (made: Made) {
      const runId = yield* Fixtures.run(made, { status: "running", started: true })
      const pins = yield* SkillPins.SkillPins
      return { release: pins.record(made.companyId, runId, []) }
    })
  },
  "[S-14] AgentPin": {
    tag: "AgentPin",
    hold: Effect.fnUntraced(function* (made: Made) {
      const sql = yield* SqlClient.SqlClient
      const agentId = yield* Fixtures.agent(made.companyId, {
        paperclipSkillSync: { desiredSkills: [{ versionId: first(made).versionId.toUpperCase() }] }
      })
      return { release: sql`update agents set adapter_config = '{}'::jsonb where id = ${agentId}::uuid` }
    })
  },
  "[S-14] AgentPinsUnreadable": {
    tag: "AgentPinsUnreadable",
    both: true,
    hold: Effect.fnUntraced(function* (made: Made) {
      const sql = yield* SqlClient.SqlClient
      const agentId = yield* Fixtures.agent(made.companyId, { paperclipSkillSync: 42 })
      return { release: sql`update agents set adapter_config = '{}'::jsonb where id = ${agentId}::uuid` }
    })
  },
  "[S-14] TestRun": {
    tag: "TestRun",
    hold: Effect.fnUntraced(function* (made: Made) {
      const sql = yield* SqlClient.SqlClient
      const id = crypto.randomUUID()
      yield* sql`insert into company_skill_test_runs (id, company_id, skill_version_id, status)
        values (${id}::uuid, ${made.companyId}::uuid, ${first(made).versionId}::uuid, 'running')`
      return { release: sql`update company_skill_test_runs set deleted_at = now() where id = ${id}::uuid` }
    })
  },
  "[S-14] Held": {
    tag: "Held",
    hold: Effect.fnUntraced(function* (made: Made) {
      const holds = yield* Holds.Holds
      const { companyId, versionId } = first(made)
      yield* holds.holdVersion(companyId, versionId, "ops", "the customer asked")
      return { release: holds.unholdVersion(companyId, versionId) }
    })
  },
  "[S-16] RecentlyUsed": {
    tag: "RecentlyUsed",
    hold: Effect.fnUntraced(function* (made: Made) {
      const { companyId, versionId } = first(made)
      yield* (yield* SkillVersionCache.SkillVersionCache).restore({ companyId, versionId })
      return { release: World.advance("1 hour") }
    })
  }
} as const

layer(World.layer(), { excludeTestServices: true })("what stays", (it) => {
  describe("each reason alone", () => {
    for (const [name, { hold, tag, ...rest }] of Object.entries(reasons)) {
      it.effect(`${name} alone keeps a copy, and nothing else does`, () =>
        Effect.gen(function* () {
          const made = yield* Sweeping.idleSkill({ versions: 2 })
          const { companyId } = made
          const { release } = yield* hold(made)
          const report = yield* World.sweepOnce({ companyId })
          assert.strictEqual(report.skipped[tag], "both" in rest ? 2 : 1)
          assert.strictEqual(Object.keys(report.skipped).length, 1)
          assert.strictEqual(report.evicted, "both" in rest ? 0 : 1)
          assert.isTrue(yield* World.isThere(first(made)))
          yield* release
          assert.strictEqual((yield* World.sweepOnce({ companyId })).evicted, "both" in rest ? 2 : 1)
          assert.isFalse(yield* World.isThere(first(made)))
        })
      )
    }

    it.effect("[S-13] a queued run that prepared nothing blocks nobody", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        yield* Fixtures.run(made, { status: "queued" })
        assert.strictEqual((yield* World.sweepOnce({ companyId: made.companyId })).evicted, 1)
      })
    )
  })

  describe("time", () => {
    it.effect("[C-05] [S-16] a copy goes exactly when the grace has passed, not a millisecond before", () =>
      Effect.gen(function* () {
        yield* World.begin
        const { companyId, copies } = yield* World.skill({ versions: 1 })
        yield* Sweeping.materialize(copies)
        yield* World.advance("3599999 millis")
        assert.deepStrictEqual((yield* World.sweepOnce({ companyId })).skipped, { RecentlyUsed: 1 })
        yield* World.advance("1 millis")
        assert.strictEqual((yield* World.sweepOnce({ companyId })).evicted, 1)
      })
    )

    it.effect("[S-16] a copy without a record is observed for a whole window", () =>
      Effect.gen(function* () {
        const { companyId, copies } = yield* Sweeping.idleSkill({ versions: 1 })
        const records = yield* AccessRecords.AccessRecords
        yield* records.remove(copies[0]!)
        for (let times = 0; times < 2; times++) {
          const { skipped } = yield* World.sweepOnce({ companyId })
          assert.deepStrictEqual(skipped, times === 0 ? { Observing: 1 } : { RecentlyUsed: 1 })
        }
        yield* World.advance("3599999 millis")
        assert.deepStrictEqual((yield* World.sweepOnce({ companyId })).skipped, { RecentlyUsed: 1 })
        yield* World.advance("1 millis")
        assert.strictEqual((yield* World.sweepOnce({ companyId })).evicted, 1)
      })
    )

    for (const [what, minutes, expected] of [
      ["five minutes in the future is a last use", 5, "RecentlyUsed"],
      ["further in the future is none", 5.001, "Observing"]
    ] as const) {
      it.effect(`[C-05] a record ${what}`, () =>
        Effect.gen(function* () {
          const { companyId, copies } = yield* Sweeping.idleSkill({ versions: 1 })
          const records = yield* AccessRecords.AccessRecords
          const later = DateTime.add(World.noon, { hours: 1, milliseconds: minutes * 60_000 })
          yield* records.touch(copies[0]!, later)
          assert.deepStrictEqual((yield* World.sweepOnce({ companyId })).skipped, { [expected]: 1 })
          // Neither keeps its copy for ever.
          yield* World.advance("66 minutes")
          assert.strictEqual((yield* World.sweepOnce({ companyId })).evicted, 1)
        })
      )
    }

    it.effect("[C-05] a local clock that runs ahead evicts nothing early", () =>
      Effect.gen(function* () {
        yield* World.begin
        const { companyId, copies } = yield* World.skill({ versions: 1 })
        yield* Sweeping.materialize(copies)
        yield* (yield* MovableClock.MovableClock).adjustLocal("48 hours")
        assert.deepStrictEqual((yield* World.sweepOnce({ companyId })).skipped, { RecentlyUsed: 1 })
        yield* World.advance("1 hour")
        assert.strictEqual((yield* World.sweepOnce({ companyId })).evicted, 1)
      })
    )

    it.effect("[C-05] a local clock that runs behind only keeps longer", () =>
      Effect.gen(function* () {
        const { companyId } = yield* Sweeping.idleSkill({ versions: 1 })
        const clock = yield* MovableClock.MovableClock
        yield* clock.adjustLocal("-1 minute")
        assert.deepStrictEqual((yield* World.sweepOnce({ companyId })).skipped, { RecentlyUsed: 1 })
        yield* clock.adjustLocal("1 minute")
        assert.strictEqual((yield* World.sweepOnce({ companyId })).evicted, 1)
      })
    )
  })

  describe("contents", () => {
    const alterations: ReadonlyArray<readonly [string, string, (path: string) => void]> = [
      ["[S-17] an edited file", "Differs", (path) => World.overwrite(`${path}/SKILL.md`, "revision 9")],
      ["[S-17] a file more", "Differs", (path) => Fs.writeFileSync(`${path}/notes.txt`, "mine")],
      ["[S-17] an empty folder more", "Differs", (path) => Fs.mkdirSync(`${path}/mine`)],
      ["[S-17] a file less", "Differs", (path) => Fs.rmSync(`${path}/SKILL.md`)],
      ["[S-17] an executable bit more", "Differs", (path) => Fs.chmodSync(`${path}/SKILL.md`, 0o555)],
      ["[S-18] a link in it", "Unexpected", (path) => Fs.symlinkSync("/etc/passwd", `${path}/assets/link`)],
      ["[S-18] a FIFO in it", "Unexpected", (path) => execFileSync("mkfifo", [`${path}/assets/pipe`])],
      [
        "[S-18] a file with the name of a folder",
        "Differs",
        (path) => {
          Fs.rmSync(`${path}/assets`, { recursive: true })
          Fs.writeFileSync(`${path}/assets`, "")
        }
      ],
      [
        "[S-18] a file whose name is no text",
        "Differs",
        (path) => Fs.writeFileSync(Buffer.concat([Buffer.from(`${path}/`), Buffer.from([0xff, 0x41])]), "")
      ]
    ]
    for (const [name, tag, alter] of alterations) {
      it.effect(`${name} keeps the copy`, () =>
        Effect.gen(function* () {
          const { companyId, copies } = yield* Sweeping.idleSkill({ versions: 1 })
          alter(yield* Sweeping.pathOf(copies[0]!))
          const before = yield* World.picture
          const report = yield* World.sweepOnce({ companyId })
          assert.deepStrictEqual(report.skipped, { [tag]: 1 })
          assert.strictEqual(report.candidates, 0)
          assert.strictEqual(yield* World.picture, before)
        })
      )
    }

    it.effect("[S-17] modes that mean nothing do not keep a copy, closed ones neither", () =>
      Effect.gen(function* () {
        const { companyId, copies } = yield* Sweeping.idleSkill({ versions: 1 })
        const path = yield* Sweeping.pathOf(copies[0]!)
        Fs.chmodSync(`${path}/SKILL.md`, 0o640)
        Fs.chmodSync(`${path}/scripts/run.sh`, 0o400)
        Fs.chmodSync(`${path}/assets`, process.getuid?.() === 0 ? 0o000 : 0o500)
        assert.strictEqual((yield* World.sweepOnce({ companyId })).evicted, 1)
        assert.deepStrictEqual(yield* Sweeping.siblings(copies[0]!), [])
      })
    )

    it.effect("[S-17] a version that the database lost, or cannot rebuild, keeps its copy alone", () =>
      Effect.gen(function* () {
        const { companyId, copies } = yield* Sweeping.idleSkill({ versions: 4 })
        const sql = yield* SqlClient.SqlClient
        const [gone, broken, list] = copies.map(({ versionId }) => versionId)
        yield* sql`delete from company_skill_versions where id = ${gone}::uuid`
        yield* sql`update company_skill_versions
          set file_inventory = '[{"path":"a","content":"YQ","encoding":"base64"}]' where id = ${broken}::uuid`
        yield* sql`update company_skill_versions set file_inventory = '{}' where id = ${list}::uuid`
        const report = yield* World.sweepOnce({ companyId })
        assert.deepStrictEqual(report.skipped, { NotRecoverable: 3 })
        assert.strictEqual(report.evicted, 1)
      })
    )

    it.effect(
      "[S-17] a copy in the folder of another skill, or of another company, is not the version's",
      () =>
        Effect.gen(function* () {
          const mine = yield* Sweeping.idleSkill({ versions: 1 })
          const other = yield* World.skill({ versions: 1, company: mine })
          const theirs = yield* World.skill({ versions: 1 })
          const records = yield* AccessRecords.AccessRecords
          const strays = [
            { ...mine.copies[0]!, skillId: other.skillId },
            { ...mine.copies[0]!, companyId: theirs.companyId, skillId: theirs.skillId }
          ]
          for (const stray of strays) {
            const path = yield* Sweeping.pathOf(stray)
            Fs.cpSync(yield* Sweeping.pathOf(mine.copies[0]!), path, { recursive: true })
            yield* records.touch(stray, World.noon)
          }
          assert.deepStrictEqual((yield* World.sweepOnce({ companyId: theirs.companyId })).skipped, {
            NotRecoverable: 1
          })
          const report = yield* World.sweepOnce({ companyId: mine.companyId })
          assert.deepStrictEqual(report.skipped, { NotRecoverable: 1 })
          assert.strictEqual(report.evicted, 1)
          for (const stray of strays) assert.isTrue(yield* World.isThere(stray))
        })
    )
  })

  describe("names", () => {
    it.effect("[S-18] [C-01] what is no folder or no name of ours is told and stays", () =>
      Effect.gen(function* () {
        const { companyId, copies, skillId } = yield* Sweeping.idleSkill({ versions: 3 })
        const { path: instance } = yield* World.Instance
        const skill = `${instance}/skills/${companyId}/__versions__/${skillId}`
        const outside = Fs.mkdtempSync(`${instance}/outside-`)
        Fs.writeFileSync(`${outside}/precious`, "")
        // The copies themselves become a link, a file and a FIFO.
        const [link = "", file = "", fifo = ""] = copies.map(({ versionId }) => `${skill}/${versionId}`)
        for (const path of [link, file, fifo]) Fs.rmSync(path, { recursive: true })
        Fs.symlinkSync(outside, link)
        Fs.writeFileSync(file, "")
        execFileSync("mkfifo", [fifo])
        Fs.mkdirSync(`${skill}/.trash-`)
        Fs.mkdirSync(`${skill}/.trash-${crypto.randomUUID().toUpperCase()}`)
        Fs.writeFileSync(`${skill}/.trash-${crypto.randomUUID()}`, "")
        Fs.symlinkSync(outside, `${skill}/.trash-${crypto.randomUUID()}`)
        Fs.symlinkSync(outside, `${skill}/.evicting-${copies[0]!.versionId}-${crypto.randomUUID()}`)
        Fs.mkdirSync(`${skill}/.evicting-${copies[0]!.versionId}`)
        Fs.mkdirSync(`${skill}/notes`)
        Fs.mkdirSync(`${instance}/skills/${companyId}/__versions__/tools`)
        Fs.symlinkSync(outside, `${instance}/skills/${companyId}/__versions__/${crypto.randomUUID()}`)
        Fs.mkdirSync(`${instance}/skills/${companyId}/__runtime__/trash`, { recursive: true })
        Fs.mkdirSync(`${instance}/skills/not-a-company/__versions__`, { recursive: true })
        const before = yield* World.picture
        const report = yield* World.sweepOnce({ companyId })
        assert.deepStrictEqual(report.skipped, { Unexpected: 12 })
        assert.strictEqual(report.considered, 12)
        assert.strictEqual(report.errors, 0)
        yield* World.advance("30 days")
        yield* World.sweep()
        const lines = (text: string) =>
          text
            .split("\n")
            .filter((line) => line.includes(companyId) || /outside-|not-a-company/.test(line))
            .filter((line) => !line.includes("__version_access__"))
        assert.deepStrictEqual(lines(yield* World.picture), lines(before))
      })
    )

    it.effect("[S-18] a company, its store or its records behind a link are not entered", () =>
      Effect.gen(function* () {
        const { companyId, copies } = yield* Sweeping.idleSkill({ versions: 1 })
        const { path: instance } = yield* World.Instance
        const company = `${instance}/skills/${companyId}`
        for (const folder of [company, `${company}/__versions__`, `${company}/__version_access__`]) {
          const aside = `${instance}/aside-${crypto.randomUUID()}`
          Fs.renameSync(folder, aside)
          Fs.symlinkSync(aside, folder)
          const report = yield* World.sweepOnce({ companyId })
          assert.strictEqual(report.evicted, 0)
          assert.isAtLeast((report.skipped["Unexpected"] ?? 0) + (report.skipped["Unreadable"] ?? 0), 1)
          Fs.rmSync(folder)
          Fs.renameSync(aside, folder)
        }
        assert.isTrue(yield* World.isThere(copies[0]!))
        assert.strictEqual((yield* World.sweepOnce({ companyId })).evicted, 1)
      })
    )
  })

  describe("diagnosis", () => {
    it.effect("[S-26] [C-02] tells every reason with its ids and instants, for all copies or for one", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 2 })
        const { companyId, copies } = made
        const sql = yield* SqlClient.SqlClient
        const [pinned, free] = [copies[0]!, copies[1]!]
        const running = yield* selected(made, { status: "running", started: true }, [pinned])
        const failed = yield* selected(made, { status: "failed", mode: "native" }, [pinned])
        const agentId = yield* Fixtures.agent(companyId, {
          paperclipSkillSync: { desiredSkills: [{ versionId: pinned.versionId }] }
        })
        const testRunId = Ids.TestRunId.make(crypto.randomUUID())
        yield* sql`insert into company_skill_test_runs (id, company_id, skill_version_id, status)
          values (${testRunId}::uuid, ${companyId}::uuid, ${pinned.versionId}::uuid, 'queued')`
        yield* sql`update company_skills set current_version_id = ${pinned.versionId}::uuid
          where id = ${made.skillId}::uuid`
        yield* (yield* Holds.Holds).holdVersion(companyId, pinned.versionId, "ops", "audit")
        const records = yield* AccessRecords.AccessRecords
        const usedAt = DateTime.add(World.noon, { minutes: 30 })
        yield* records.touch(pinned, usedAt)

        const retention = yield* SkillVersionRetention.SkillVersionRetention
        const found = yield* Stream.runCollect(retention.diagnose({ companyId }))
        const of = (copy: (typeof copies)[number]) =>
          found.find((each) => each._tag === "Copy" && each.versionId === copy.versionId)
        const expected: ReadonlyArray<VersionReason.VersionReason> = [
          { _tag: "Current" },
          { _tag: "ActiveRun", runIds: [running] },
          { _tag: "UnsettledRecovery", runIds: [failed] },
          { _tag: "AgentPin", agentIds: [agentId] },
          { _tag: "TestRun", testRunIds: [testRunId] },
          { _tag: "Held", by: "ops", note: "audit" },
          { _tag: "RecentlyUsed", lastUsedAt: usedAt, eligibleAt: DateTime.add(usedAt, { hours: 1 }) }
        ]
        const kept = of(pinned)
        assert(kept?._tag === "Copy")
        assert.deepStrictEqual(kept.reasons, expected)
        assert.strictEqual(kept.decision, "retain")
        assert.deepStrictEqual(kept.lastUsedAt, Option.some(usedAt))
        const going = of(free)
        assert(going?._tag === "Copy")
        assert.deepStrictEqual(going.reasons, [])
        assert.strictEqual(going.decision, "evict")
        assert.isTrue(going.allocatedBytes > 0n && going.apparentBytes > 0n)
        const one = yield* Stream.runCollect(retention.diagnose({ companyId, versionId: free.versionId }))
        assert.deepStrictEqual([...one], [going])
      })
    )

    it.effect("[S-26] [S-17] names the file that differs, and the leftovers and obstacles beside", () =>
      Effect.gen(function* () {
        const { companyId, copies } = yield* Sweeping.idleSkill({ versions: 1 })
        const path = yield* Sweeping.pathOf(copies[0]!)
        World.overwrite(`${path}/SKILL.md`, "revision 9")
        const trash = yield* Sweeping.leftoverPath(copies[0]!, "trash")
        Fs.mkdirSync(trash)
        Fs.mkdirSync(`${path}/../notes`)
        const before = yield* World.picture
        const retention = yield* SkillVersionRetention.SkillVersionRetention
        const found = yield* Stream.runCollect(retention.diagnose({ companyId }))
        assert.deepStrictEqual(
          found.map((each) =>
            each._tag === "Copy" ? each.reasons : each._tag === "Leftover" ? each.path : each.reason._tag
          ),
          [trash, [{ _tag: "Differs", files: [{ path: "SKILL.md", problem: "content" }] }], "Unexpected"]
        )
        assert.strictEqual(yield* World.picture, before)
      })
    )
  })
})

layer(World.layer({ settings: { keep: 2, grace: "30 minutes" } }), { excludeTestServices: true })(
  "settings",
  (it) => {
    it.effect("[S-15] the newest versions stay, counted over the database's, not over the copies", () =>
      Effect.gen(function* () {
        yield* World.begin
        const made = yield* World.skill({ versions: 5 })
        const [a, b, , d] = made.copies
        // The newest of all has no copy: of those on disk only one counts as kept.
        yield* Sweeping.materialize([a!, b!, d!])
        yield* World.advance("30 minutes")
        const report = yield* World.sweepOnce({ companyId: made.companyId })
        assert.deepStrictEqual(report.skipped, { NewestKept: 1 })
        assert.strictEqual(report.evicted, 2)
        assert.isTrue(yield* World.isThere(d!))
      })
    )
  }
)
