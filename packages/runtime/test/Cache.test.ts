import { assert, layer } from "@effect/vitest"
import { DatabaseError, HostSchema, SkillPins, Transactions } from "@reclaim/db"
import { Trees, VersionStore } from "@reclaim/fs"
import { layerFaulty } from "@reclaim/fs/testing"
import { DateTime, Duration, Effect, Exit, Fiber, Layer, Option, Schema } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Fs from "node:fs"
import { openTransactions } from "../../db/test/support/database.ts"
import { SkillVersionCache } from "../src/index.ts"
import { evict } from "../src/internal/eviction.ts"
import { FaultPoints } from "../src/testing.ts"
import {
  alter,
  contentsOf,
  interruptAt,
  lastUse,
  leftovers,
  overwrite,
  pathOf,
  pinningRuns,
  prepare,
  recordOf,
  short,
  standard
} from "./support/Copies.ts"
import * as World from "./support/World.ts"

const hex = (value: string | Uint8Array) => Buffer.from(value).toString("hex")

layer(World.layer(), { excludeTestServices: true })("preparing", (it) => {
  it.effect("[S-01] rebuilds a copy from its inventory byte for byte, with the modes of [S-04]", () =>
    Effect.gen(function* () {
      yield* World.begin
      const binary = Uint8Array.from({ length: 256 }, (_, index) => index)
      const { companyId, copies } = yield* World.skill({
        versions: 1,
        files: [
          { path: "SKILL.md", content: "Gr\u00fc\u00dfe \u2014 \u{1f980}\r\n", kind: "text" },
          {
            path: "bin/tool",
            content: Buffer.from(binary).toString("base64"),
            encoding: "base64",
            executable: true
          },
          { path: "deep/er/still/\u00e4 b'c$.txt", content: "x", encoding: "utf8", executable: false },
          { path: "deep/empty", content: "" }
        ]
      })
      const [prepared] = yield* prepare(companyId, [copies[0]!.versionId])
      const path = yield* pathOf(copies[0]!)
      assert.deepStrictEqual(prepared, {
        _tag: "Ready",
        skillId: copies[0]!.skillId,
        versionId: copies[0]!.versionId,
        path,
        restored: true
      })
      assert.deepStrictEqual(contentsOf(path), {
        "SKILL.md": `444 ${hex("Gr\u00fc\u00dfe \u2014 \u{1f980}\r\n")}`,
        bin: "folder 755",
        "bin/tool": `555 ${hex(binary)}`,
        deep: "folder 755",
        "deep/empty": "444 ",
        "deep/er": "folder 755",
        "deep/er/still": "folder 755",
        "deep/er/still/\u00e4 b'c$.txt": `444 ${hex("x")}`
      })
      assert.strictEqual(Fs.statSync(path).mode & 0o7777, 0o755)
      assert.deepStrictEqual(yield* leftovers(copies[0]!), [])
    })
  )

  it.effect(
    "[S-01] rebuilds from a repository snapshot what lies under the skill's path, and nothing else",
    () =>
      Effect.gen(function* () {
        yield* World.begin
        const { companyId } = yield* World.Fixtures.company
        const skillId = yield* World.Fixtures.skill(companyId)
        const snapshotId = yield* World.Fixtures.snapshot(companyId, [
          { path: "README.md", content: "of the repository" },
          { path: "skills/a/SKILL.md", content: "a" },
          { path: "skills/a/run", content: "AP8=", encoding: "base64", executable: true },
          { path: "skills/ab/SKILL.md", content: "not of a" }
        ])
        const version = Effect.fnUntraced(function* (revision: number, skillPath: string | null) {
          return yield* World.Fixtures.version({ companyId, skillId, revision, snapshotId, skillPath })
        })
        const [below, whole, dot] = [
          yield* version(1, "skills/a"),
          yield* version(2, null),
          yield* version(3, ".")
        ]
        const answers = yield* prepare(companyId, [below, whole, dot])
        assert.deepStrictEqual(answers.map(short), ["Ready restored", "Ready restored", "Ready restored"])
        assert.deepStrictEqual(contentsOf(yield* pathOf({ companyId, skillId, versionId: below })), {
          "SKILL.md": `444 ${hex("a")}`,
          run: "555 00ff"
        })
        const all = contentsOf(yield* pathOf({ companyId, skillId, versionId: whole }))
        assert.strictEqual(all["skills/a/run"], "555 00ff")
        assert.strictEqual(all["README.md"], `444 ${hex("of the repository")}`)
        assert.deepStrictEqual(contentsOf(yield* pathOf({ companyId, skillId, versionId: dot })), all)
      })
  )

  it.effect("[S-01] rebuilds a file that travels in several parts", () =>
    Effect.gen(function* () {
      yield* World.begin
      const large = "0123456789abcdef".repeat(640 * 1024)
      const { companyId, copies } = yield* World.skill({
        versions: 1,
        files: [
          { path: "a", content: "before" },
          { path: "large", content: large },
          { path: "z", content: "after" }
        ]
      })
      assert.deepStrictEqual((yield* prepare(companyId, [copies[0]!.versionId])).map(short), [
        "Ready restored"
      ])
      const path = yield* pathOf(copies[0]!)
      assert.isTrue(Fs.readFileSync(`${path}/large`, "utf8") === large)
      assert.strictEqual(Fs.readFileSync(`${path}/z`, "utf8"), "after")
    })
  )

  it.effect(
    "[S-01] a snapshot that cannot be used is told, writes nothing, and does not lose the others",
    () =>
      Effect.gen(function* () {
        yield* World.begin
        const { companyId } = yield* World.Fixtures.company
        const skillId = yield* World.Fixtures.skill(companyId)
        const bad: ReadonlyArray<unknown> = [
          [{ path: "/etc/passwd", content: "x" }],
          [{ path: "../../escape", content: "x" }],
          [{ path: "a/../../b", content: "x" }],
          [
            { path: "a", content: "x" },
            { path: "a", content: "x" }
          ],
          [
            { path: "a", content: "x" },
            { path: "a/b", content: "x" }
          ],
          [{ path: "a", content: "YQ", encoding: "base64" }],
          [{ path: "a", content: "_-8=", encoding: "base64" }],
          [{ path: "a", content: "x", encoding: "latin1" }],
          [{ path: "a", content: 1 }],
          [
            { path: "ok", content: "x" },
            { path: "", content: "x" }
          ],
          { path: "a" },
          [],
          null
        ]
        const versions = yield* Effect.forEach(
          [...bad, [{ path: "SKILL.md", content: "good" }]],
          (files, index) => World.Fixtures.version({ companyId, skillId, revision: index + 1, files })
        )
        const answers = yield* prepare(companyId, versions)
        assert.deepStrictEqual(answers.map(short), [...bad.map(() => "NotRecoverable"), "Ready restored"])
        for (const answer of answers.slice(0, bad.length)) {
          assert.isTrue(answer._tag === "Missing" && Option.contains(answer.skillId, skillId))
        }
        const store = yield* VersionStore.VersionStore
        const folder = store.pathOf({ companyId, skillId, versionId: versions[0]! }).slice(0, -37)
        assert.deepStrictEqual(Fs.readdirSync(folder), [String(versions.at(-1))])
      })
  )

  it.effect("[S-01] contents that are no longer those of the manifest are never served", () =>
    Effect.gen(function* () {
      yield* World.begin
      const sql = yield* SqlClient.SqlClient
      const { companyId, copies } = yield* World.skill({ versions: 3 })
      const [changed, deleted, good] = [copies[0]!, copies[1]!, copies[2]!]
      const gate = yield* FaultPoints.gate("restore.afterFolder")
      const fiber = yield* Effect.forkChild(
        gate.guard(
          prepare(
            companyId,
            copies.map(({ versionId }) => versionId)
          )
        )
      )
      yield* gate.reached
      yield* sql`update company_skill_versions set file_inventory =
        jsonb_set(file_inventory, '{0,content}', '"revision X"') where id = ${changed.versionId}::uuid`
      yield* sql`delete from company_skill_versions where id = ${deleted.versionId}::uuid`
      yield* gate.open
      assert.deepStrictEqual((yield* Fiber.join(fiber)).map(short), [
        "NotRecoverable",
        "NotRecoverable",
        "Ready restored"
      ])
      assert.isFalse(yield* World.isThere(changed))
      assert.isFalse(yield* World.isThere(deleted))
      assert.deepStrictEqual(contentsOf(yield* pathOf(good)), standard(3))
      assert.deepStrictEqual(yield* leftovers(good), [])
    })
  )

  it.effect(
    "[S-02] two preparations of one version at the same time both succeed, and one copy results",
    () =>
      Effect.gen(function* () {
        yield* World.begin
        const { companyId, copies } = yield* World.skill({ versions: 1 })
        const copy = copies[0]!
        const here = yield* FaultPoints.gate("restore.beforeShared")
        const there = yield* FaultPoints.gate("restore.beforeShared")
        const first = yield* Effect.forkChild(here.guard(prepare(companyId, [copy.versionId])))
        const second = yield* Effect.forkChild(
          there.guard(World.elsewhere()(prepare(companyId, [copy.versionId])))
        )
        yield* here.reached
        yield* there.reached
        assert.deepStrictEqual(yield* leftovers(copy), [".staging", ".staging"])
        yield* here.open
        assert.deepStrictEqual((yield* Fiber.join(first)).map(short), ["Ready restored"])
        const inode = Fs.statSync(yield* pathOf(copy)).ino
        yield* there.open
        assert.deepStrictEqual((yield* Fiber.join(second)).map(short), ["Ready"])
        assert.strictEqual(Fs.statSync(yield* pathOf(copy)).ino, inode)
        assert.deepStrictEqual(contentsOf(yield* pathOf(copy)), standard(1))
        assert.deepStrictEqual(yield* leftovers(copy), [])
      })
  )

  for (const point of [
    "restore.afterFolder",
    "restore.afterFile",
    "restore.afterStaging",
    "restore.beforePublish"
  ]) {
    it.effect(`[S-02] a writer whose staging was claimed at ${point} stages again`, () =>
      Effect.gen(function* () {
        yield* World.begin
        const { companyId, copies } = yield* World.skill({ versions: 1 })
        const copy = copies[0]!
        // Nothing pins the copy, or else the sweep would heal it.
        const cache = yield* SkillVersionCache.SkillVersionCache
        const { versionId } = copy
        const gate = yield* FaultPoints.gate(point)
        const fiber = yield* Effect.forkChild(gate.guard(cache.restore({ companyId, versionId })))
        yield* gate.reached
        if (point === "restore.beforePublish") {
          // The lock excludes a sweep here; only what asks for no lock can take it.
          const folder = (yield* pathOf(copy)).slice(0, -37)
          const [name] = Fs.readdirSync(folder)
          Fs.renameSync(`${folder}/${name}`, `${folder}/.trash-${crypto.randomUUID()}`)
        } else {
          // What the test writes is years old at noon of 2030.
          const report = yield* World.elsewhere()(World.sweepOnce({ companyId }))
          assert.strictEqual(report.settled, 1)
        }
        yield* gate.open
        assert.strictEqual(short(yield* Fiber.join(fiber)), "Ready restored")
        assert.deepStrictEqual(contentsOf(yield* pathOf(copy)), standard(1))
        yield* World.sweep({ companyId })
        assert.deepStrictEqual(yield* leftovers(copy), [])
        assert.isTrue(yield* World.isThere(copy))
      })
    )
  }

  it.effect("[S-02] a half written copy that appears before the publishing is never answered as ready", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 1 })
      const copy = copies[0]!
      const path = yield* pathOf(copy)
      const gate = yield* FaultPoints.gate("restore.beforeShared")
      const fiber = yield* Effect.forkChild(gate.guard(prepare(companyId, [copy.versionId])))
      yield* gate.reached
      Fs.mkdirSync(path)
      Fs.writeFileSync(`${path}/SKILL.md`, "rev")
      yield* gate.open
      assert.deepStrictEqual((yield* Fiber.join(fiber)).map(short), ["Ready restored"])
      assert.deepStrictEqual(contentsOf(path), standard(1))
      assert.deepStrictEqual(yield* leftovers(copy), [".replaced"])
    })
  )

  it.effect("[S-02] a good copy that is replaced by another before the last look is looked at again", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 1 })
      const copy = copies[0]!
      const path = yield* pathOf(copy)
      yield* prepare(companyId, [copy.versionId])
      const gate = yield* FaultPoints.gate("restore.beforeShared")
      const fiber = yield* Effect.forkChild(gate.guard(prepare(companyId, [copy.versionId])))
      yield* gate.reached
      Fs.renameSync(path, `${path.slice(0, -37)}/.trash-${crypto.randomUUID()}`)
      Fs.mkdirSync(path)
      Fs.writeFileSync(`${path}/SKILL.md`, "something else")
      yield* gate.open
      assert.deepStrictEqual((yield* Fiber.join(fiber)).map(short), ["Ready restored"])
      assert.deepStrictEqual(contentsOf(path), standard(1))
    })
  )

  it.effect("[S-02] a copy that vanishes while it is looked at is missed, not an error", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 1 })
      const copy = copies[0]!
      const path = yield* pathOf(copy)
      yield* prepare(companyId, [copy.versionId])
      const answers = yield* Effect.gen(function* () {
        const trees = yield* Trees.Trees
        let scans = 0
        // It goes after the first look and before the scan, which is not a single call.
        const vanishing = Trees.Trees.of({
          ...trees,
          scan: (root, options) =>
            Effect.suspend(() => {
              scans += 1
              if (scans === 1) Fs.renameSync(path, `${path.slice(0, -37)}/.trash-${crypto.randomUUID()}`)
              return trees.scan(root, options)
            })
        })
        return yield* Effect.provide(
          prepare(companyId, [copy.versionId]),
          SkillVersionCache.layer.pipe(Layer.provide(Layer.succeed(Trees.Trees, vanishing)), Layer.fresh),
          { local: true }
        )
      })
      assert.deepStrictEqual(answers.map(short), ["Ready restored"])
    })
  )

  it.effect("[S-05] pins are committed before anything is staged", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 1 })
      const copy = copies[0]!
      const runId = yield* World.Fixtures.runId
      const gate = yield* FaultPoints.gate("restore.afterFolder")
      const fiber = yield* Effect.forkChild(gate.guard(prepare(companyId, [copy.versionId], { runId })))
      yield* gate.reached
      assert.deepStrictEqual(yield* pinningRuns(copy), [runId])
      // And no lock is held: an exclusive one is granted.
      const transactions = yield* Transactions.Transactions
      yield* transactions.companyExclusive(companyId, () => Effect.void)
      assert.isFalse(yield* World.isThere(copy))
      yield* gate.open
      yield* Fiber.join(fiber)
    })
  )

  it.effect("[S-05] answers per version, in the order of the selection, each once", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies, skillId } = yield* World.skill({ versions: 2 })
      const other = yield* World.skill({ versions: 1 })
      const unusable = yield* World.Fixtures.version({ companyId, skillId, revision: 9, files: [] })
      const unknown = yield* World.Fixtures.versionId
      const blocked = yield* World.Fixtures.version({ companyId, skillId, revision: 10 })
      const blockedPath = yield* pathOf({ companyId, skillId, versionId: blocked })
      Fs.mkdirSync(blockedPath.slice(0, -37), { recursive: true })
      Fs.symlinkSync("/", blockedPath)
      const answers = yield* prepare(companyId, [
        unknown,
        copies[1]!.versionId,
        unusable,
        blocked,
        other.copies[0]!.versionId,
        copies[0]!.versionId,
        copies[1]!.versionId
      ])
      assert.deepStrictEqual(answers.map(short), [
        "NotRecoverable",
        "Ready restored",
        "NotRecoverable",
        "Unexpected",
        "NotRecoverable",
        "Ready restored"
      ])
      assert.deepStrictEqual(
        answers.map(({ versionId }) => versionId),
        [unknown, copies[1]!.versionId, unusable, blocked, other.copies[0]!.versionId, copies[0]!.versionId]
      )
      for (const answer of [answers[0], answers[4]]) {
        assert.isTrue(answer?._tag === "Missing" && Option.isNone(answer.skillId))
      }
      assert.isTrue(Fs.lstatSync(blockedPath).isSymbolicLink())
      assert.isFalse(yield* World.isThere(other.copies[0]!))
    })
  )

  it.effect("[S-05] prepares more versions than fit one transaction", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 120 })
      const versions = copies.map(({ versionId }) => versionId)
      assert.deepStrictEqual(
        new Set((yield* prepare(companyId, versions)).map(short)),
        new Set(["Ready restored"])
      )
      assert.deepStrictEqual(
        (yield* prepare(companyId, versions)).map(short),
        copies.map(() => "Ready")
      )
    })
  )

  it.effect("[S-05] a run's pins only grow until it is released, and then it stays known", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { agentId, companyId, copies } = yield* World.skill({ versions: 3 })
      const cache = yield* SkillVersionCache.SkillVersionCache
      const runId = yield* World.Fixtures.runId
      yield* prepare(companyId, [copies[0]!.versionId], { runId })
      yield* prepare(companyId, [copies[1]!.versionId], { runId })
      yield* prepare(companyId, [copies[1]!.versionId], { runId })
      yield* prepare(companyId, [], { runId })
      assert.deepStrictEqual(yield* Effect.forEach(copies, pinningRuns), [[runId], [runId], []])
      yield* World.Fixtures.run({ agentId, companyId }, { id: runId, status: "running", started: true })
      yield* World.advance("2 hours")
      assert.deepStrictEqual((yield* World.sweepOnce({ companyId })).skipped, { ActiveRun: 2 })
      assert.strictEqual(yield* cache.release(runId), 2)
      assert.strictEqual(yield* cache.release(runId), 0)
      const pins = yield* SkillPins.SkillPins
      assert.deepStrictEqual((yield* pins.facts([companyId])).get(companyId)?.selectionUnknown, [])
      assert.strictEqual((yield* World.sweepOnce({ companyId })).evicted, 2)
    })
  )

  it.effect("[S-05] an empty selection makes a run known", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { agentId, companyId } = yield* World.skill({ versions: 1 })
      const pins = yield* SkillPins.SkillPins
      const runId = yield* World.Fixtures.run({ agentId, companyId }, { status: "running", started: true })
      const unknown = Effect.map(pins.facts([companyId]), (facts) => facts.get(companyId)?.selectionUnknown)
      assert.deepStrictEqual(yield* unknown, [runId])
      assert.deepStrictEqual(yield* prepare(companyId, [], { runId }), [])
      assert.deepStrictEqual(yield* unknown, [])
    })
  )

  it.effect("[S-05] a company that the database does not have fails the call and records nothing", () =>
    Effect.gen(function* () {
      yield* World.begin
      const sql = yield* SqlClient.SqlClient
      const cache = yield* SkillVersionCache.SkillVersionCache
      const companyId = yield* World.Fixtures.companyId
      const runId = yield* World.Fixtures.runId
      const versionId = yield* World.Fixtures.versionId
      const calls: ReadonlyArray<Effect.Effect<unknown, SkillVersionCache.CacheError>> = [
        cache.prepare({ companyId, runId, versions: [] }),
        cache.prepare({ companyId, runId, versions: [versionId] }),
        cache.restore({ companyId, versionId })
      ]
      for (const call of calls) {
        assert.strictEqual((yield* Effect.flip(call))._tag, "UnknownCompany")
      }
      assert.deepStrictEqual(
        yield* sql`select 1 from reclaim.run_selections where run_id = ${runId}::uuid`,
        []
      )
    })
  )

  it.effect("[S-05] restores on request without pinning; the copy counts as used now", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 1 })
      const cache = yield* SkillVersionCache.SkillVersionCache
      const { versionId } = copies[0]!
      assert.strictEqual(short(yield* cache.restore({ companyId, versionId })), "Ready restored")
      assert.strictEqual(short(yield* cache.restore({ companyId, versionId })), "Ready")
      assert.deepStrictEqual(yield* pinningRuns(copies[0]!), [])
      assert.deepStrictEqual(yield* lastUse(copies[0]!), recordOf(World.noon))
      const unknown = yield* cache.restore({ companyId, versionId: yield* World.Fixtures.versionId })
      assert.strictEqual(short(unknown), "NotRecoverable")
    })
  )

  it.effect("[S-16] every preparation counts as a use, and none takes the clock back", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 1 })
      const [copy] = copies
      yield* prepare(companyId, [copy!.versionId])
      assert.deepStrictEqual(yield* lastUse(copy!), recordOf(World.noon))
      yield* World.advance("10 minutes")
      yield* prepare(companyId, [copy!.versionId])
      const later = recordOf(DateTime.addDuration(World.noon, "10 minutes"))
      assert.deepStrictEqual(yield* lastUse(copy!), later)
      yield* World.advance(Duration.minutes(-5))
      yield* prepare(companyId, [copy!.versionId])
      assert.deepStrictEqual(yield* lastUse(copy!), later)
    })
  )

  it.effect(
    "[S-06] preparations of one company do not wait for each other, and an eviction never queues",
    () =>
      Effect.gen(function* () {
        yield* World.begin
        const { companyId, copies } = yield* World.skill({ versions: 3 })
        const [first, second, idle] = [copies[0]!, copies[1]!, copies[2]!]
        const cache = yield* SkillVersionCache.SkillVersionCache
        yield* cache.restore({ companyId, versionId: idle.versionId })
        yield* World.advance("2 hours")
        const gate = yield* FaultPoints.gate("restore.beforePublish")
        const fiber = yield* Effect.forkChild(
          gate.guard(cache.restore({ companyId, versionId: first.versionId }))
        )
        yield* gate.reached
        // The lock is held shared. An eviction is told at once that the company is busy ...
        const report = yield* World.elsewhere()(World.sweepOnce({ companyId }))
        assert.strictEqual(report.evicted, 0)
        assert.strictEqual(report.skipped.CompanyBusy, 2)
        assert.isTrue(yield* World.isThere(idle))
        // ... and another preparation comes through while the first one still holds it.
        assert.deepStrictEqual((yield* prepare(companyId, [second.versionId])).map(short), ["Ready restored"])
        yield* gate.open
        assert.strictEqual(short(yield* Fiber.join(fiber)), "Ready restored")
        assert.strictEqual((yield* World.sweepOnce({ companyId })).evicted, 1)
      })
  )

  for (const point of [
    "evict.beforeFacts",
    "evict.beforeRename",
    "evict.afterRename",
    "evict.afterSecondLook",
    "evict.afterRecord",
    "evict.beforeCommit",
    "evict.afterCommit",
    "evict.beforeTrash",
    "evict.afterTrash"
  ]) {
    it.effect(
      `[S-21] a preparation that begins when an eviction is at ${point} has its copy in the end`,
      () =>
        Effect.gen(function* () {
          yield* World.begin
          const { companyId, copies } = yield* World.skill({ versions: 1 })
          const copy = copies[0]!
          const cache = yield* SkillVersionCache.SkillVersionCache
          yield* cache.restore({ companyId, versionId: copy.versionId })
          yield* World.advance("2 hours")
          const gate = yield* FaultPoints.gate(point)
          const sweeping = yield* Effect.forkChild(
            gate.guard(World.elsewhere()(World.sweepOnce({ companyId })))
          )
          yield* gate.reached
          const asked = yield* FaultPoints.gate("transaction.afterBegin")
          const preparing = yield* Effect.forkChild(asked.guard(prepare(companyId, [copy.versionId])))
          yield* asked.reached
          yield* asked.open
          if (point.startsWith("evict.after") && /Commit|Trash/.test(point)) {
            // The lock is free again: the preparation need not wait for the eviction.
            assert.deepStrictEqual((yield* Fiber.join(preparing)).map(short), ["Ready restored"])
          }
          yield* gate.open
          const report = yield* Fiber.join(sweeping)
          assert.strictEqual(report.evicted, 1)
          assert.deepStrictEqual((yield* Fiber.join(preparing)).map(short), ["Ready restored"])
          assert.deepStrictEqual(contentsOf(yield* pathOf(copy)), standard(1))
          assert.deepStrictEqual(yield* lastUse(copy), recordOf(DateTime.addDuration(World.noon, "2 hours")))
          const after = yield* World.sweepOnce({ companyId })
          assert.deepStrictEqual(after.skipped, { ActiveRun: 1, RecentlyUsed: 1 })
          assert.deepStrictEqual(yield* leftovers(copy), [])
        })
    )
  }

  it.effect("[S-21] a pin that is committed after the proof, before the lock, keeps the copy", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 1 })
      const copy = copies[0]!
      const cache = yield* SkillVersionCache.SkillVersionCache
      yield* cache.restore({ companyId, versionId: copy.versionId })
      yield* World.advance("2 hours")
      const inode = Fs.statSync(yield* pathOf(copy)).ino
      const trees = yield* Trees.Trees
      const scan = yield* trees.scan(yield* pathOf(copy), { digests: true })
      yield* prepare(companyId, [copy.versionId])
      assert.deepStrictEqual(yield* evict({ copy, revision: Option.none(), scan }), {
        _tag: "Kept",
        because: { _tag: "ChangedMeanwhile", what: "ActiveRun, RecentlyUsed" },
        undone: false,
        stuck: false
      })
      assert.strictEqual(Fs.statSync(yield* pathOf(copy)).ino, inode)
    })
  )

  it.effect("[S-28] a full disk makes nothing by halves, and the answer has the reason", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 3 })
      const [full, good] = [copies[0]!, copies[1]!]
      const answers = yield* prepare(companyId, [full.versionId, good.versionId]).pipe(
        World.elsewhere({
          posix: layerFaulty([
            {
              method: "writeNew",
              matches: (path) => path.includes(`.staging-${full.versionId}`) && path.endsWith("run.sh"),
              code: "ENOSPC"
            }
          ])
        })
      )
      assert.deepStrictEqual(answers.map(short), ["Unreadable", "Ready restored"])
      assert.isTrue(
        answers[0]?._tag === "Missing" &&
          answers[0].reason._tag === "Unreadable" &&
          answers[0].reason.code === "ENOSPC"
      )
      assert.isFalse(yield* World.isThere(full))
      assert.deepStrictEqual(yield* leftovers(full), [])
      // The folder itself cannot be made.
      const third = copies[2]!
      const again = yield* prepare(companyId, [third.versionId, good.versionId]).pipe(
        World.elsewhere({
          posix: layerFaulty([
            { method: "makeDirectory", matches: (path) => path.includes(third.versionId), code: "EDQUOT" }
          ])
        })
      )
      assert.deepStrictEqual(again.map(short), ["Unreadable", "Ready"])
      // Once there is room again, nothing stands in the way.
      assert.deepStrictEqual((yield* prepare(companyId, [full.versionId])).map(short), ["Ready restored"])
      assert.deepStrictEqual(contentsOf(yield* pathOf(full)), standard(1))
    })
  )

  it.effect("[S-28] a use that cannot be recorded does not refuse a copy that is there", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 1 })
      const answers = yield* prepare(companyId, [copies[0]!.versionId]).pipe(
        World.elsewhere({
          posix: layerFaulty([
            { method: "writeNew", matches: (path) => path.includes("__version_access__"), code: "ENOSPC" }
          ])
        })
      )
      assert.deepStrictEqual(answers.map(short), ["Ready restored"])
      yield* World.advance("1 day")
      // Without a record a full window starts with the sweep; the run pins it besides.
      assert.isTrue(yield* World.isThere(copies[0]!))
    })
  )

  it.effect("[D-03] one connection is enough to prepare, to repair and to be prepared for", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 8 })
      const versions = copies.map(({ versionId }) => versionId)
      const once = World.elsewhere({ pool: { maxConnections: 1 } })
      assert.deepStrictEqual(
        (yield* once(prepare(companyId, versions))).map(short),
        copies.map(() => "Ready restored")
      )
      yield* alter(yield* pathOf(copies[0]!), () => undefined)
      overwrite(`${yield* pathOf(copies[0]!)}/SKILL.md`, "longer than it was before")
      const [first, second] = yield* once(
        Effect.all([prepare(companyId, versions), prepare(companyId, versions)], { concurrency: 2 })
      )
      assert.isTrue([...first, ...second].every(({ _tag }) => _tag === "Ready"))
      assert.deepStrictEqual(contentsOf(yield* pathOf(copies[0]!)), standard(1))
    })
  )

  it.effect("[D-03] refuses to run inside a transaction of the caller, with a typed error", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 1 })
      const sql = yield* SqlClient.SqlClient
      const cache = yield* SkillVersionCache.SkillVersionCache
      const runId = yield* World.Fixtures.runId
      const calls: ReadonlyArray<Effect.Effect<unknown, SkillVersionCache.CacheError>> = [
        cache.prepare({ companyId, runId, versions: [copies[0]!.versionId] }),
        cache.prepare({ companyId, runId, versions: [] }),
        cache.restore({ companyId, versionId: copies[0]!.versionId }),
        cache.release(runId)
      ]
      for (const call of calls) {
        const error = yield* Effect.flip(sql.withTransaction(call))
        assert.isTrue(Schema.is(DatabaseError.NestedTransaction)(error), String(error))
      }
      assert.isFalse(yield* World.isThere(copies[0]!))
    })
  )

  for (const point of [
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
  ]) {
    it.effect(`[D-03] interrupted at ${point}, it leaves no transaction, no lock and no staging`, () =>
      Effect.gen(function* () {
        yield* World.begin
        const { companyId, copies } = yield* World.skill({ versions: 1 })
        const copy = copies[0]!
        const exit = yield* interruptAt(point, prepare(companyId, [copy.versionId]))
        assert.isTrue(Exit.hasInterrupts(exit))
        assert.strictEqual(yield* openTransactions, 0)
        assert.deepStrictEqual(yield* leftovers(copy), [])
        const transactions = yield* Transactions.Transactions
        yield* transactions.companyExclusive(companyId, () => Effect.void)
        if (yield* World.isThere(copy)) {
          assert.deepStrictEqual(contentsOf(yield* pathOf(copy)), standard(1))
        }
        assert.match((yield* prepare(companyId, [copy.versionId])).map(short).join(","), /^Ready/)
        assert.deepStrictEqual(contentsOf(yield* pathOf(copy)), standard(1))
      })
    )
  }

  it.effect("[D-08] preparing copies that are there takes as many statements for forty as for one", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 40 })
      const versions = copies.map(({ versionId }) => versionId)
      yield* prepare(companyId, versions)
      const count = (some: ReadonlyArray<(typeof versions)[number]>) =>
        Effect.map(World.statementsOf(prepare(companyId, some)), ({ statements, value }) => {
          assert.deepStrictEqual(
            value.map(short),
            some.map(() => "Ready")
          )
          return statements
        })
      const one = yield* count(versions.slice(0, 1))
      const forty = yield* count(versions)
      assert.deepStrictEqual(forty, one)
      assert.isAtMost(one.length, 20)
    })
  )

  it.effect("[D-08] restoring small copies takes a fixed number of statements for each", () =>
    Effect.gen(function* () {
      yield* World.begin
      const counts: Array<number> = []
      for (const versions of [1, 2, 12]) {
        const { companyId, copies } = yield* World.skill({ versions })
        const { statements } = yield* World.statementsOf(
          prepare(
            companyId,
            copies.map(({ versionId }) => versionId)
          )
        )
        counts.push(statements.length)
      }
      const perCopy = counts[1]! - counts[0]!
      assert.isAtMost(perCopy, 4)
      assert.strictEqual(counts[2]! - counts[0]!, 11 * perCopy)
    })
  )
})

layer(World.layer({ adopted: false }), { excludeTestServices: true })(
  "preparing before the adoption",
  (it) => {
    it.effect("[S-05] fails with the advice to adopt, and writes nothing", () =>
      Effect.gen(function* () {
        yield* World.begin
        const { companyId, copies } = yield* World.skill({ versions: 1 })
        const cache = yield* SkillVersionCache.SkillVersionCache
        const runId = yield* World.Fixtures.runId
        const calls: ReadonlyArray<Effect.Effect<unknown, SkillVersionCache.CacheError>> = [
          cache.prepare({ companyId, runId, versions: [copies[0]!.versionId] }),
          cache.restore({ companyId, versionId: copies[0]!.versionId }),
          cache.release(runId)
        ]
        for (const call of calls) {
          assert.isTrue(Schema.is(HostSchema.NotAdopted)(yield* Effect.flip(call)))
        }
        assert.deepStrictEqual(yield* World.listing, [])
      })
    )
  }
)
