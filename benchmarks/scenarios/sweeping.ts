/** P-11: a whole sweep of a server, against a script that takes no lock and proves nothing. */
import { FaultPoint } from "@reclaim/core"
import { SkillVersionRetention } from "@reclaim/runtime"
import { Duration, Effect, References, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Corpus from "../Corpus.ts"
import * as Harness from "../Harness.ts"
import * as Instance from "../Instance.ts"
import { sweepByScript } from "../peers/sweepByScript.ts"
import * as Population from "../Population.ts"
import * as System from "../System.ts"

const graceMinutes = 60
const longAgo = new Date("2020-01-01T00:00:00Z")

// Of the 100 copies of a company: the current ones of five skills, one that a run holds, and two that go.
const isOld = (place: number) => place % 20 === 19 || place % Population.copiesPerCompany === 0
const leavingOf = (company: number) => [1, 2].map((place) => company * Population.copiesPerCompany + place)

/** The points of an eviction, each with what was done since the one before it. */
const steps: Readonly<Record<string, string>> = {
  "evict.beforeFacts": "lock",
  "evict.afterFacts": "facts again",
  "evict.afterRename": "rename",
  "evict.afterSecondLook": "facts once more",
  "evict.afterRecord": "record",
  "evict.beforeCommit": "journal",
  "evict.afterCommit": "commit",
  "evict.beforeTrash": "fingerprint",
  "evict.afterTrash": "trash"
}
const looking = "looking and proof"
const deleting = "deleting, and all else"
const shares = [looking, ...Object.values(steps), deleting].map((name): Harness.Figure => ({
  name,
  unit: "milliseconds"
}))

/** Adds up how long each step took. */
const stopwatch = () => {
  const millis = new Map<string, number>()
  let last = 0n
  const handler = (point: string) =>
    Effect.sync(() => {
      const step = steps[point]
      if (step === undefined && point !== "evict.beforeLock") return
      const now = System.nanoseconds()
      if (step !== undefined) millis.set(step, (millis.get(step) ?? 0) + Number(now - last) / 1e6)
      last = now
    })
  return { millis, handler }
}

const timed = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const started = System.nanoseconds()
    const value = yield* effect
    return { value, millis: Number(System.nanoseconds() - started) / 1e6 }
  })

const sweep = Effect.fnUntraced(function* (options: SkillVersionRetention.SweepOptions) {
  const retention = yield* SkillVersionRetention.SkillVersionRetention
  return yield* retention.sweep(options).pipe(
    Stream.runFold(
      () => 0,
      (sum, { report }) => sum + report.candidates
    ),
    Effect.provideService(References.MinimumLogLevel, "Warn")
  )
})

const make = Effect.fnUntraced(function* (size: Harness.Size) {
  const workspace = yield* Harness.Workspace
  const { context, skills } = yield* Instance.makeWith({ grace: Duration.minutes(graceMinutes) })
  const population = Population.make(size === "full" ? 200 : 4)
  yield* Effect.provideContext(Population.insert(population), context)
  const leaving = Array.from({ length: population.companies }, (_, company) => leavingOf(company)).flat()
  yield* Population.write(population, skills, (place) => (isOld(place) ? longAgo : new Date()))

  // What goes has contents of its own, which the database can rebuild.
  const corpus: Corpus.Corpus = { ...Corpus.make(0), copies: leaving.map(Population.copyAt) }
  const folders = corpus.copies.map((copy) => `${skills}/${Corpus.relativePath(copy)}`)
  yield* System.command("xargs", ["-0", "rm", "-rf", "--"], { input: folders.join("\0") })
  const template = yield* System.temporaryFolder(workspace.path)
  yield* Corpus.write(corpus, template)
  for (const copy of corpus.copies) {
    System.makeFolder(`${template}/${copy.companyId}/__version_access__/${copy.skillId}`)
    Population.writeRecord(template, copy, longAgo)
  }
  yield* Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    for (const [place, { versionId }] of corpus.copies.entries()) {
      yield* sql`update company_skill_versions set file_inventory = ${Corpus.inventory(place)}::jsonb
                 where id = ${versionId}::uuid`
    }
  }).pipe(Effect.provideContext(context))

  const fresh = Effect.andThen(
    System.command("cp", ["-a", "--", `${template}/.`, skills]),
    Harness.settle(size, skills)
  )
  const side = <Input, E, R, EP, RP>(
    name: string,
    prepare: Effect.Effect<Input, EP, RP>,
    work: (input: Input) => Effect.Effect<number, E, R>,
    figures: (input: Input, millis: number) => Readonly<Record<string, number>>
  ) =>
    Harness.side({
      name,
      prepare: Effect.flatMap(fresh, () => prepare),
      work: (input: Input) => timed(work(input)),
      verify: (input: Input, { millis, value }: { readonly millis: number; readonly value: number }) =>
        Effect.map(System.command("find", [skills, "-mindepth", "4", "-maxdepth", "4"]), (lines) => ({
          outcome: `${value} to go, ${lines.split("\n").length - 1} copies and records left`,
          figures: figures(input, millis)
        }))
    }).pipe(Effect.provideContext(context))

  const script = yield* side(
    "find, query, rm",
    Effect.void,
    () => sweepByScript(skills, graceMinutes),
    () => ({})
  )
  const ours = yield* side(
    "sweep",
    Effect.void,
    () => sweep({}),
    (_, millis) => Object.fromEntries(shares.map(({ name }) => [name, millis]))
  )
  const watched = yield* side(
    "each step",
    Effect.map(timed(sweep({ dryRun: true })), ({ millis }) => ({ ...stopwatch(), looked: millis })),
    ({ handler }) => Effect.provideService(sweep({}), FaultPoint.FaultHandler, handler),
    ({ looked, millis: steps }, millis) => {
      const evicting = [...steps.values()].reduce((sum, step) => sum + step, 0)
      return {
        ...Object.fromEntries(steps),
        [looking]: looked,
        [deleting]: Math.max(0, millis - looked - evicting)
      }
    }
  )

  const contest: Harness.Contest = {
    amount: `${Population.amount(population)}, ${leaving.length} of them to evict`,
    comparisons: [
      { figure: Harness.time, ours, peer: script },
      // The share of each step: its time by that of the whole.
      ...shares.map((figure) => ({ figure, ours: watched, peer: ours }))
    ]
  }
  return contest
}, Effect.orDie)

export const sweeping: Harness.Scenario = { id: "P-11", title: "sweeping a server", make }
