/** P-08: prepares warm copies while a sweep evicts others and deletes trash, against doing so alone. */
import { Ids } from "@reclaim/core"
import { SkillVersionCache, SkillVersionRetention } from "@reclaim/runtime"
import { Array as Arr, Effect, Fiber, References, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Corpus from "../Corpus.ts"
import * as Harness from "../Harness.ts"
import * as Instance from "../Instance.ts"
import * as Population from "../Population.ts"
import * as Statistics from "../Statistics.ts"
import * as System from "../System.ts"

const p99: Harness.Figure = { name: "one preparation, p99", unit: "milliseconds" }
const each: Harness.Figure = { name: "time per preparation", unit: "milliseconds" }

// 16: the row asks for as many.
const atOnce = 16
// 5: as many versions as a run selects.
const selected = 5

const longAgo = new Date("2020-01-01T00:00:00Z")

const make = Effect.fnUntraced(function* (size: Harness.Size) {
  const workspace = yield* Harness.Workspace
  const { context, skills } = yield* Instance.make
  const full = size === "full"
  // Of the company that prepares, whose lock the sweep then rarely gets, and of another one.
  const [busy, quiet] = [Corpus.make(full ? 300 : 30, 1), Corpus.make(full ? 300 : 20, 2)]
  const [warm, cold] = Arr.splitAt(busy.copies, full ? 200 : 20)
  const leaving = [...cold, ...quiet.copies]
  // Beyond those that are in the database: trash has no rows.
  const trash = [1, 2].map((company) => Corpus.make(full ? 500 : 30, company))
  const trashed = trash.map((corpus) => ({ ...corpus, copies: corpus.copies.slice(full ? -200 : -10) }))

  const template = yield* System.temporaryFolder(workspace.path)
  yield* Corpus.write(busy, template)
  yield* Corpus.write(quiet, template)
  yield* Effect.forEach(trashed, (corpus) => Corpus.write(corpus, template, Corpus.trashPath), {
    discard: true
  })
  yield* Effect.forEach([busy, quiet], Corpus.insert, { discard: true }).pipe(Effect.provideContext(context))
  for (const copy of leaving) {
    System.makeFolder(`${template}/${copy.companyId}/__version_access__/${copy.skillId}`)
    Population.writeRecord(template, copy, longAgo)
  }

  const fresh = Effect.acquireRelease(
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      // Runs of earlier rounds hold nothing any more.
      yield* sql`truncate reclaim.run_pins, reclaim.run_selections`
      yield* System.command("cp", ["-a", "--", template, skills])
      yield* Harness.settle(size, skills)
    }),
    () => Effect.ignore(System.command("rm", ["-rf", "--", skills]))
  )

  const random = Corpus.randomness(8)
  const prepareOnce = Effect.gen(function* () {
    const cache = yield* SkillVersionCache.SkillVersionCache
    const from = Math.floor(random() * (warm.length - selected))
    const started = System.nanoseconds()
    const prepared = yield* cache.prepare({
      companyId: busy.companyId,
      runId: Ids.RunId.make(crypto.randomUUID()),
      versions: warm.slice(from, from + selected).map(({ versionId }) => versionId)
    })
    const ready = prepared.every((one) => one._tag === "Ready" && !one.restored)
    return { millis: Number(System.nanoseconds() - started) / 1e6, ready }
  })
  /** Prepares until it is enough, and how long each took. */
  const prepareUntil = Effect.fnUntraced(function* (enough: (done: number) => boolean) {
    const done: Array<Effect.Success<typeof prepareOnce>> = []
    const started = System.nanoseconds()
    yield* Effect.all(
      Array.from({ length: atOnce }, () =>
        Effect.gen(function* () {
          while (!enough(done.length)) done.push(yield* prepareOnce)
        })
      ),
      { concurrency: atOnce, discard: true }
    )
    return { done, millis: Number(System.nanoseconds() - started) / 1e6 }
  })
  const verify = (
    _: unknown,
    { done, millis }: Effect.Success<ReturnType<typeof prepareUntil>>
  ): Effect.Effect<Harness.Verdict> =>
    Effect.succeed({
      outcome: `${done.filter(({ ready }) => !ready).length} that were not ready`,
      figures: {
        [p99.name]: Statistics.quantile(
          done.map((one) => one.millis),
          0.99
        ),
        [each.name]: millis / done.length
      }
    })

  // 640: 40 for each of those that prepare at once.
  const alone = yield* Harness.side({
    name: "without a sweep",
    prepare: fresh,
    work: () => prepareUntil((done) => done >= (full ? 640 : 32)),
    verify
  }).pipe(Effect.provideContext(context))
  const swept = yield* Harness.side({
    name: "during a sweep",
    prepare: fresh,
    work: Effect.fnUntraced(function* () {
      const retention = yield* SkillVersionRetention.SkillVersionRetention
      const sweep = yield* Effect.forkChild(
        Stream.runCollect(retention.sweep()).pipe(Effect.provideService(References.MinimumLogLevel, "Warn"))
      )
      const prepared = yield* prepareUntil((done) => done >= atOnce && sweep.pollUnsafe() !== undefined)
      const batches = yield* Fiber.join(sweep)
      const evicted = batches.reduce((sum, { report }) => sum + report.evicted, 0)
      yield* System.say(`  ${prepared.done.length} preparations while ${evicted} copies went`)
      return prepared
    }),
    verify
  }).pipe(Effect.provideContext(context))

  const deleted = trashed.reduce((sum, { copies }) => sum + copies.length, 0) * Corpus.filesPerCopy
  const contest: Harness.Contest = {
    amount: `${atOnce} at once, ${selected} of ${warm.length} copies each; ${leaving.length} to evict, ${deleted.toLocaleString("en-US")} files of trash`,
    comparisons: [p99, each].map((figure) => ({ figure, ours: swept, peer: alone }))
  }
  return contest
}, Effect.orDie)

export const preparing: Harness.Scenario = { id: "P-08", title: "preparing during a sweep", make }
