import { assert, describe, layer } from "@effect/vitest"
import { FaultPoint, Ids } from "@reclaim/core"
import { SkillPins } from "@reclaim/db"
import { AccessRecords, Trees, VersionStore } from "@reclaim/fs"
import { Context, Effect, Exit, Layer, Logger, Option, References, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Fs from "node:fs"
import { eventually } from "../../db/test/support/database.ts"
import { SkillVersionCache, SkillVersionRetention, SkillVersions } from "../src/index.ts"
import { judge } from "../src/internal/judgement.ts"
import { sweepEntries } from "../src/internal/sweepBatch.ts"
import * as Sweeping from "./support/Sweeping.ts"
import * as World from "./support/World.ts"

/** Copies that nobody made by preparing: only their folders, which the database knows nothing of. */
const strays = Effect.fnUntraced(function* (copy: VersionStore.CopyRef, count: number) {
  const store = yield* VersionStore.VersionStore
  const paths: Array<string> = []
  for (let index = 0; index < count; index++) {
    const versionId = Ids.VersionId.make(crypto.randomUUID())
    paths.push(store.pathOf({ ...copy, versionId }))
    Fs.mkdirSync(paths.at(-1)!, { recursive: true })
  }
  return paths.toSorted()
})

const considered = (batches: ReadonlyArray<SkillVersionRetention.Batch>) =>
  batches.map(({ report }) => report.considered)

layer(World.layer(), { excludeTestServices: true })("batches", (it) => {
  it.effect("[S-20] [S-21] reads the next copies while one is evicted, four of them at most", () =>
    Effect.gen(function* () {
      const made = yield* Sweeping.idleSkill({ versions: 12 })
      const trees = yield* Trees.Trees
      const store = yield* VersionStore.VersionStore
      let begun = 0
      let now = 0
      let most = 0
      const watched = Trees.Trees.of({
        ...trees,
        scan: (path, options) =>
          Effect.acquireUseRelease(
            Effect.sync(() => {
              begun += 1
              now += 1
              most = Math.max(most, now)
            }),
            () => trees.scan(path, options),
            () => Effect.sync(() => void (now -= 1))
          )
      })
      const others = eventually(Effect.sync(() => begun >= 5))
      const swept = yield* Stream.runCollect(store.entries({ company: made.companyId })).pipe(
        Effect.flatMap((entries) =>
          Effect.flatMap(judge(entries), (judgement) => sweepEntries(entries, judgement, { dryRun: false }))
        ),
        Effect.provideService(Trees.Trees, watched),
        Effect.provideService(FaultPoint.FaultHandler, (point) =>
          point === "evict.beforeLock" ? others : Effect.void
        )
      )
      assert.strictEqual(swept.evicted, 12)
      // The one that is evicted is compared once more.
      assert.isAtMost(most, 4 + 1)
    })
  )

  describe("one pass", () => {
    it.effect("[S-20] takes 50 entries at a time, everything once, however many skills there are", () =>
      Effect.gen(function* () {
        yield* World.begin
        const first = yield* World.skill({ versions: 1 })
        const second = yield* World.skill({ versions: 1, company: first })
        yield* strays(first.copies[0]!, 100)
        yield* strays(second.copies[0]!, 25)
        const batches = yield* World.sweep({ companyId: first.companyId })
        assert.deepStrictEqual(considered(batches), [50, 50, 25])
        assert.deepStrictEqual(
          batches.map(({ continuation }) => Option.isSome(continuation)),
          [true, true, false]
        )
        assert.deepStrictEqual(
          batches.map(({ report }) => report.skipped["NotRecoverable"]),
          [50, 50, 25]
        )
      })
    )

    it.effect("[S-20] exactly one batch's worth is one batch, and nothing is one empty batch", () =>
      Effect.gen(function* () {
        yield* World.begin
        const made = yield* World.skill({ versions: 1 })
        assert.deepStrictEqual(considered(yield* World.sweep({ companyId: made.companyId })), [0])
        yield* strays(made.copies[0]!, 50)
        assert.deepStrictEqual(considered(yield* World.sweep({ companyId: made.companyId })), [50])
      })
    )

    it.effect("[S-20] goes on from a continuation, stable while folders come and go", () =>
      Effect.gen(function* () {
        yield* World.begin
        const made = yield* World.skill({ versions: 1 })
        const { companyId } = made
        const paths = yield* strays(made.copies[0]!, 20)
        const seen = new Set<string>()
        const store = yield* VersionStore.VersionStore
        const records = store
          .pathOf(made.copies[0]!)
          .replace("/__versions__/", "/__version_access__/")
          .replace(/\/[^/]*$/, "")
        let continuation: string | undefined
        for (let round = 0; round < 4; round++) {
          const [batch] = yield* Stream.runCollect(
            (yield* SkillVersionRetention.SkillVersionRetention)
              .sweep({ companyId, batchLimit: 5, ...(continuation === undefined ? {} : { continuation }) })
              .pipe(Stream.take(1))
          )
          assert.strictEqual(batch!.report.considered, 5)
          // A window began for exactly those that were met.
          const recorded = Fs.readdirSync(records)
          assert.strictEqual(recorded.length, (round + 1) * 5)
          for (const name of recorded) seen.add(name.replace(/\.json$/, ""))
          continuation = Option.getOrUndefined(batch!.continuation)
          if (round < 3) {
            // One that was met goes, and one comes before the place.
            Fs.rmSync(paths[round * 5]!, { recursive: true })
            const early = Ids.VersionId.make(`00000000-0000-4000-8000-00000000000${round}`)
            Fs.mkdirSync(store.pathOf({ ...made.copies[0]!, versionId: early }))
          }
        }
        assert.isUndefined(continuation)
        assert.sameMembers(
          [...seen],
          paths.map((path) => path.split("/").at(-1))
        )
      })
    )

    it.effect("[S-20] [S-21] a copy that is prepared while an earlier batch is at work stays", () =>
      Effect.gen(function* () {
        yield* World.begin
        const made = yield* Sweeping.idleSkill({ versions: 3 })
        const last = made.copies.toSorted((left, right) => (left.versionId < right.versionId ? -1 : 1))[2]!
        const preparing = Effect.gen(function* () {
          const cache = yield* SkillVersionCache.SkillVersionCache
          const [answer] = yield* cache.prepare({
            companyId: made.companyId,
            runId: Ids.RunId.make(crypto.randomUUID()),
            versions: [last.versionId]
          })
          assert.strictEqual(answer?._tag, "Ready")
        })
        const batches = yield* World.sweep({ companyId: made.companyId, batchLimit: 1 }).pipe(
          Sweeping.during("evict.beforeLock", World.elsewhere()(preparing))
        )
        assert.deepStrictEqual(
          batches.map(({ report }) => report.evicted),
          [1, 1, 0]
        )
        assert.strictEqual(batches[2]!.report.skipped["ChangedMeanwhile"], 1)
        assert.isTrue(yield* World.isThere(last))
      })
    )

    it.effect("[S-20] [D-08] asks the database once for the copies of four batches", () =>
      Effect.gen(function* () {
        yield* World.begin
        const made = yield* World.skill({ versions: 1 })
        yield* strays(made.copies[0]!, 200)
        const four = yield* World.statementsOf(World.sweep({ companyId: made.companyId }))
        assert.strictEqual(four.value.length, 4)
        yield* strays(made.copies[0]!, 1)
        const five = yield* World.statementsOf(World.sweep({ companyId: made.companyId }))
        assert.strictEqual(five.value.length, 5)
        const looks = (statements: ReadonlyArray<string>) =>
          statements.filter((text) => text.includes("company_skill_versions")).length
        assert.strictEqual(looks(five.statements), 2 * looks(four.statements))
      })
    )

    it.effect("[S-20] pulling one batch does no more than that batch", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 4 })
        const retention = yield* SkillVersionRetention.SkillVersionRetention
        const batches = yield* Stream.runCollect(
          retention.sweep({ companyId: made.companyId, batchLimit: 2 }).pipe(Stream.take(1))
        )
        assert.strictEqual(batches[0]!.report.evicted, 2)
        assert.strictEqual((yield* Sweeping.siblings(made.copies[0]!)).length, 2)
        // The next one may start at once.
        const rest = yield* World.sweepOnce({
          companyId: made.companyId,
          continuation: Option.getOrThrow(batches[0]!.continuation)
        })
        assert.strictEqual(rest.evicted, 2)
      })
    )

    it.effect("[S-20] many skills without copies do not make batches without entries", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        const { path: instance } = yield* World.Instance
        const versions = `${instance}/skills/${made.companyId}/__versions__`
        for (let index = 0; index < 70; index++) Fs.mkdirSync(`${versions}/${crypto.randomUUID()}`)
        const report = yield* World.sweepOnce({ companyId: made.companyId })
        assert.deepStrictEqual([report.considered, report.evicted], [1, 1])
        assert.deepStrictEqual(Fs.readdirSync(versions), [made.skillId])
      })
    )
  })

  describe("what is refused", () => {
    const failure = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
      Effect.map(Effect.flip(effect), (error) => error)

    it.effect("[C-08] [S-20] a damaged or foreign continuation, a wrong limit, an unknown company", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 2 })
        const other = yield* World.skill({ versions: 1 })
        const { companyId } = made
        const [batch] = yield* World.sweep({ companyId, batchLimit: 1, dryRun: true })
        const token = Option.getOrThrow(batch!.continuation)
        for (const options of [
          { companyId, continuation: `${token.slice(0, -1)}?` },
          { companyId, continuation: "" },
          { companyId: other.companyId, continuation: token },
          { continuation: token }
        ]) {
          assert.strictEqual((yield* failure(World.sweep(options)))._tag, "InvalidContinuation")
        }
        for (const batchLimit of [0, 51, 1.5, Number.NaN, -1]) {
          assert.strictEqual(
            (yield* failure(World.sweep({ companyId, batchLimit })))._tag,
            "InvalidBatchLimit"
          )
        }
        const unknown = yield* failure(World.sweep({ companyId: yield* World.Fixtures.companyId }))
        assert.strictEqual(unknown._tag, "UnknownCompany")
        assert.strictEqual((yield* Sweeping.siblings(made.copies[0]!)).length, 2)
        assert.strictEqual((yield* World.sweepOnce({ companyId })).evicted, 2)
      })
    )

    it.effect("[S-24] a second sweep in the process, until the first is over", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        const { companyId } = made
        const second = yield* World.sweepOnce({ companyId }).pipe(
          Sweeping.during(
            "evict.beforeLock",
            Effect.gen(function* () {
              assert.strictEqual((yield* failure(World.sweep()))._tag, "SweepInProgress")
              assert.strictEqual((yield* failure(World.sweep({ dryRun: true })))._tag, "SweepInProgress")
            })
          )
        )
        assert.strictEqual(second.evicted, 1)
        assert.strictEqual((yield* World.sweepOnce({ companyId })).evicted, 0)
      })
    )

    it.effect("[D-03] a sweep inside a transaction of the caller", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const made = yield* Sweeping.idleSkill({ versions: 1 })
        for (const options of [{ companyId: made.companyId }, {}]) {
          const exit = yield* Effect.exit(sql.withTransaction(World.sweep(options)))
          assert.isTrue(Exit.isFailure(exit))
          assert.match(String(exit), /NestedTransaction|transaction of the caller/)
        }
        assert.isTrue(yield* World.isThere(made.copies[0]!))
      })
    )
  })

  describe("several servers", () => {
    it.effect("[S-24] evict each copy once between them", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 12 })
        const pass = World.sweepOnce({ companyId: made.companyId })
        let evicted = 0
        let trashed = 0
        for (let round = 0; round < 100 && evicted < 12; round++) {
          const reports = yield* Effect.all([pass, World.elsewhere()(pass)], { concurrency: 2 })
          for (const report of reports) {
            assert.strictEqual(report.errors, 0)
            evicted += report.evicted
            trashed += report.trashFinished
          }
        }
        trashed += (yield* pass).trashFinished
        assert.deepStrictEqual([evicted, trashed], [12, 12])
        for (const copy of made.copies) assert.deepStrictEqual(yield* Sweeping.events(copy), ["evicted"])
        assert.deepStrictEqual(yield* Sweeping.siblings(made.copies[0]!), [])
      })
    )
  })

  describe("the report", () => {
    it.effect("[S-26] is one structured line per batch, with what was done and what stayed", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 3 })
        const sql = yield* SqlClient.SqlClient
        yield* sql`update company_skills set current_version_id = ${made.copies[0]!.versionId}::uuid
          where id = ${made.skillId}::uuid`
        const lines: Array<Record<string, unknown>> = []
        const logger = Logger.make<unknown, void>(({ fiber, message }) => {
          if (String(message) === "swept skill versions") {
            lines.push({ ...fiber.getRef(References.CurrentLogAnnotations) })
          }
        })
        const usage = (yield* Stream.runCollect(
          (yield* SkillVersionRetention.SkillVersionRetention).diagnose({ companyId: made.companyId })
        )).reduce(
          (sum, each) => sum + (each._tag === "Copy" && each.decision === "evict" ? each.allocatedBytes : 0n),
          0n
        )
        const batches = yield* World.sweep({ companyId: made.companyId, batchLimit: 2 }).pipe(
          Effect.provide(Logger.layer([logger]))
        )
        assert.strictEqual(lines.length, 2)
        assert.strictEqual(batches.length, 2)
        const sum = (field: "candidates" | "evicted" | "trashFinished") =>
          batches.reduce((total, { report }) => total + report[field], 0)
        assert.deepStrictEqual([sum("candidates"), sum("evicted"), sum("trashFinished")], [2, 2, 2])
        assert.strictEqual(
          batches.reduce((total, { report }) => total + report.candidateAllocatedBytes, 0n),
          usage
        )
        assert.strictEqual(
          batches.reduce((total, { report }) => total + report.reclaimedAllocatedBytes, 0n),
          usage
        )
        for (const [index, { report }] of batches.entries()) {
          assert.isTrue(Option.isSome(report.freeBytesBefore) && Option.isSome(report.freeBytesAfter))
          const line = lines[index]!
          assert.deepInclude(line, {
            worker: "skill-versions",
            dryRun: false,
            scope: made.companyId,
            considered: report.considered,
            evicted: report.evicted,
            skipped: report.skipped,
            reclaimedAllocatedBytes: Number(report.reclaimedAllocatedBytes)
          })
        }
      })
    )
  })

  describe("a dry run", () => {
    it.effect("[S-25] makes the plan of the real run and leaves everything as it was", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 9 })
        const { companyId, copies } = made
        const records = yield* AccessRecords.AccessRecords
        const path = (index: number) => Sweeping.pathOf(copies[index]!)
        const sql = yield* SqlClient.SqlClient
        // One of everything that a sweep would do something about.
        yield* records.remove(copies[1]!)
        Fs.renameSync(yield* path(2), yield* Sweeping.leftoverPath(copies[2]!, "evicting"))
        Fs.cpSync(yield* path(3), yield* Sweeping.leftoverPath(copies[3]!, "evicting"), { recursive: true })
        Fs.cpSync(yield* path(4), yield* Sweeping.leftoverPath(copies[4]!, "replaced"), { recursive: true })
        Fs.cpSync(yield* path(5), yield* Sweeping.leftoverPath(copies[5]!, "staging"), { recursive: true })
        Fs.cpSync(yield* path(6), yield* Sweeping.leftoverPath(copies[6]!, "trash"), { recursive: true })
        World.overwrite(`${yield* path(7)}/SKILL.md`, "mine")
        Fs.rmSync(yield* path(8), { recursive: true })
        const { path: instance } = yield* World.Instance
        Fs.mkdirSync(`${instance}/skills/${companyId}/__versions__/${crypto.randomUUID()}`)
        const runId = yield* World.Fixtures.run(made, { status: "running", started: true })
        const cache = yield* SkillVersionCache.SkillVersionCache
        yield* cache.prepare({ companyId, runId, versions: [copies[0]!.versionId] })
        Fs.rmSync(yield* path(0), { recursive: true })
        yield* sql`insert into reclaim.journal (at, worker, event, allocated_bytes, server)
          values ('2000-01-01', 'old', 'old', 0, 'old')`
        yield* World.advance("2 hours")

        const before = [yield* World.picture, yield* Sweeping.tables]
        const dry = yield* World.sweepOnce({ companyId, dryRun: true })
        assert.deepStrictEqual([yield* World.picture, yield* Sweeping.tables], before)
        const real = yield* World.sweepOnce({ companyId })
        const planOf = ({ candidateAllocatedBytes, candidates, considered, skipped }: typeof dry) => ({
          candidateAllocatedBytes,
          candidates,
          considered,
          skipped
        })
        assert.deepStrictEqual(planOf(dry), planOf(real))
        assert.deepStrictEqual(
          [dry.evicted, dry.settled, dry.healed, dry.trashFinished, dry.reclaimedAllocatedBytes],
          [0, 0, 0, 0, 0n]
        )
        assert.strictEqual(real.candidates, 4)
        assert.deepStrictEqual([real.evicted, real.settled, real.healed], [4, 4, 1])
      })
    )
  })

  describe("statements and connections", () => {
    it.effect("[D-08] do not grow with the copies and leftovers that are considered", () =>
      Effect.gen(function* () {
        const counts: Array<number> = []
        for (const copies of [1, 40]) {
          const made = yield* Sweeping.idleSkill({ versions: 1 })
          const [copy] = made.copies
          yield* strays(copy!, copies)
          for (let index = 0; index < copies / 10; index++) {
            const replaced = yield* Sweeping.leftoverPath(copy!, "replaced")
            Fs.mkdirSync(replaced)
            Fs.writeFileSync(`${replaced}/mine`, "")
          }
          const { statements, value } = yield* World.statementsOf(
            World.sweepOnce({ companyId: made.companyId })
          )
          assert.strictEqual(value.considered, 1 + copies + Math.ceil(copies / 10))
          counts.push(statements.length)
        }
        assert.strictEqual(counts[0], counts[1])
      })
    )

    it.effect("[S-21] [D-08] under the lock are always the same few, however much the company has", () =>
      Effect.gen(function* () {
        const underTheLock: Array<ReadonlyArray<string>> = []
        for (const others of [0, 20]) {
          const made = yield* Sweeping.idleSkill({ versions: 1 })
          const pins = yield* SkillPins.SkillPins
          for (let index = 0; index < others; index++) {
            const runId = yield* World.Fixtures.run(made, { status: "running", started: true })
            const versionId = Ids.VersionId.make(crypto.randomUUID())
            yield* pins.record(made.companyId, runId, [{ skillId: made.skillId, versionId }])
            yield* World.Fixtures.agent(made.companyId, {
              paperclipSkillSync: { desiredSkills: [{ versionId: crypto.randomUUID() }] }
            })
          }
          const { statements, value } = yield* World.statementsOf(
            World.sweepOnce({ companyId: made.companyId })
          )
          assert.strictEqual(value.evicted, 1)
          const from = statements.findIndex((text) => text.includes("pg_try_advisory_xact_lock"))
          const some = statements.slice(from + 1)
          underTheLock.push(some.slice(0, some.indexOf("COMMIT")))
        }
        const [few, many] = underTheLock
        // Two looks of two; the journal within its savepoint.
        assert.strictEqual(few?.length, 2 + 2 + 3)
        assert.deepStrictEqual(many, few)
      })
    )

    it.effect("[D-03] a sweep never holds more than two", () =>
      Effect.gen(function* () {
        const made = yield* Sweeping.idleSkill({ versions: 6 })
        const other = yield* World.skill({ versions: 2 })
        yield* Sweeping.place(other.copies)
        yield* World.advance("1 hour")
        const sql = yield* SqlClient.SqlClient
        const backends = Effect.map(
          sql<{ readonly pid: number }>`select pid from pg_stat_activity where datname = current_database()`,
          (rows) => rows.map(({ pid }) => pid)
        )
        const before = yield* backends
        // A pool of its own opens a connection whenever none is free, and keeps it.
        const opened = yield* World.elsewhere({ pool: { maxConnections: 10, minConnections: 0 } })(
          Effect.gen(function* () {
            const batches = yield* World.sweep()
            assert.isAbove(
              batches.reduce((sum, { report }) => sum + report.evicted, 0),
              7
            )
            return (yield* backends).filter((pid) => !before.includes(pid))
          })
        )
        assert.isTrue(opened.length >= 1 && opened.length <= 2, String(opened.length))
        assert.strictEqual(yield* World.isThere(made.copies[0]!), false)
      })
    )

    it.effect(
      "[W-01] composes on a host's client; building it asks what the database offers, and no more",
      () =>
        Effect.gen(function* () {
          const host = yield* Effect.context<Layer.Services<typeof SkillVersions.layer>>()
          const { statements } = yield* World.statementsOf(
            Effect.scoped(Effect.provideContext(Layer.build(Layer.fresh(SkillVersions.layer)), host))
          )
          const asked = statements.filter((text) => !/^(BEGIN|COMMIT|select set_config)/.test(text))
          assert.strictEqual(asked.length, 1)
          assert.notMatch(asked[0]!, /insert|update|delete|advisory/i)
        })
    )

    it.effect("[W-01] nothing is asked and nothing is started when the layer is built", () =>
      Effect.gen(function* () {
        const before = process.getActiveResourcesInfo().filter((name) => name === "MessagePort").length
        const host = yield* Effect.context<
          Layer.Services<typeof SkillVersionRetention.layer> | Layer.Services<typeof SkillVersionCache.layer>
        >()
        const { statements } = yield* World.statementsOf(
          Effect.scoped(
            Layer.build(Layer.fresh(SkillVersionRetention.layer)).pipe(
              Effect.provideContext(host),
              Effect.map((context) => Context.get(context, SkillVersionRetention.SkillVersionRetention))
            )
          )
        )
        assert.deepStrictEqual(statements, [])
        const after = process.getActiveResourcesInfo().filter((name) => name === "MessagePort").length
        assert.strictEqual(after, before)
      })
    )
  })
})

layer(World.layer(), { excludeTestServices: true })("the whole instance", (it) => {
  it.effect("[S-20] one pass goes through all companies, and nothing is starved", () =>
    Effect.gen(function* () {
      yield* World.begin
      const companies = yield* Effect.forEach([1, 2, 3], () => World.skill({ versions: 2 }))
      for (const { copies } of companies) yield* Sweeping.materialize(copies)
      yield* World.advance("1 hour")
      const batches = yield* World.sweep({ batchLimit: 4 }).pipe(Sweeping.holding(companies[0]!.companyId))
      assert.deepStrictEqual(considered(batches), [4, 2])
      assert.strictEqual(
        batches.reduce((sum, { report }) => sum + report.evicted, 0),
        4
      )
      assert.strictEqual(
        batches.reduce((sum, { report }) => sum + (report.skipped["CompanyBusy"] ?? 0), 0),
        2
      )
      assert.strictEqual((yield* World.sweepOnce()).evicted, 2)
    })
  )
})

layer(World.layer({ bounds: { lockTimeout: "300 millis" } }), { excludeTestServices: true })(
  "a company that is busy for long",
  (it) => {
    it.effect(
      "[S-07] [S-24] a company that is busy holds up neither the healing of others nor the sweep",
      () =>
        Effect.gen(function* () {
          const made = yield* Sweeping.idleSkill({ versions: 1 })
          const other = yield* World.skill({ versions: 1 })
          yield* Sweeping.materialize(other.copies)
          yield* World.advance("1 hour")
          const cache = yield* SkillVersionCache.SkillVersionCache
          const runId = yield* World.Fixtures.run(made, { status: "running", started: true })
          yield* cache.prepare({ companyId: made.companyId, runId, versions: [made.copies[0]!.versionId] })
          Fs.rmSync(yield* Sweeping.pathOf(made.copies[0]!), { recursive: true })
          // An operator's repair, or a sweep elsewhere, holds the lock for long.
          const report = yield* World.sweepOnce().pipe(Sweeping.holding(made.companyId, "companyExclusive"))
          assert.strictEqual(report.evicted, 1)
          assert.strictEqual(report.healed, 0)
          assert.strictEqual((yield* World.sweepOnce()).healed, 1)
        })
    )
  }
)

layer(World.layer({ settings: { enabled: false } }), { excludeTestServices: true })("disabled", (it) => {
  it.effect("[C-07] no sweep runs, not even a dry one", () =>
    Effect.gen(function* () {
      const made = yield* Sweeping.idleSkill({ versions: 1 })
      assert.deepStrictEqual(yield* World.sweep(), [])
      assert.isTrue(yield* World.isThere(made.copies[0]!))
    })
  )
})

layer(World.layer({ settings: { dryRun: true } }), { excludeTestServices: true })("dry by setting", (it) => {
  it.effect("[S-25] the setting binds every sweep, whatever is asked for", () =>
    Effect.gen(function* () {
      const made = yield* Sweeping.idleSkill({ versions: 1 })
      const [batch] = yield* World.sweep({ dryRun: false })
      assert.isTrue(batch!.dryRun)
      assert.deepStrictEqual([batch!.report.candidates, batch!.report.evicted], [1, 0])
      assert.isTrue(yield* World.isThere(made.copies[0]!))
    })
  )
})

layer(World.layer({ adopted: false }), { excludeTestServices: true })("before the adoption", (it) => {
  it.effect("[S-13] [S-25] a dry run works and takes every selection as unrecorded, a sweep is refused", () =>
    Effect.gen(function* () {
      yield* World.begin
      const made = yield* World.skill({ versions: 1 })
      const [copy] = made.copies
      yield* strays(copy!, 1)
      yield* World.Fixtures.run(made, { status: "running", started: true })
      const report = yield* World.sweepOnce({ companyId: made.companyId, dryRun: true })
      assert.deepStrictEqual(report.skipped, { SelectionUnknown: 1, Observing: 1, NotRecoverable: 1 })
      assert.strictEqual((yield* Effect.flip(World.sweep({ companyId: made.companyId })))._tag, "NotAdopted")
    })
  )
})
