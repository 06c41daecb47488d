/** P-05 and P-06: considers copies that all stay, against a bare loop and against itself with fewer of them. */
import { SkillVersionRetention } from "@reclaim/runtime"
import { Array as Arr, Duration, Effect, References, Stream } from "effect"
import * as Harness from "../Harness.ts"
import * as Instance from "../Instance.ts"
import { considerAll } from "../peers/considerAll.ts"
import * as Population from "../Population.ts"
import * as Statements from "../Statements.ts"
import * as System from "../System.ts"

const grace = Duration.days(1)

const outcome = (considered: number, leaving: number) => `${considered} considered, ${leaving} to go`

/** An instance whose copies were all used just now. */
const populated = Effect.fnUntraced(function* (size: Harness.Size, population: Population.Population) {
  const { context, skills } = yield* Instance.makeWith({ grace })
  yield* Effect.provideContext(Population.insert(population), context)
  yield* System.say(`  ${Population.amount(population)}: in the database`)
  const now = new Date()
  yield* Population.write(population, skills, () => now)
  yield* Harness.settle(size, skills)
  return { context, skills }
})

/** One pass as a server makes it. */
const sweep = Effect.gen(function* () {
  const retention = yield* SkillVersionRetention.SkillVersionRetention
  const pass = retention.sweep().pipe(
    Stream.runFold(
      () => ({ batches: 0, considered: 0, candidates: 0 }),
      (sum, { report }) => ({
        batches: sum.batches + 1,
        considered: sum.considered + report.considered,
        candidates: sum.candidates + report.candidates
      })
    )
  )
  const { statements, value } = yield* Statements.counted(pass)
  return { ...value, statements }
  // A line for each batch is for the host's log; here it would be most of what is printed.
}).pipe(Effect.provideService(References.MinimumLogLevel, "Warn"))

const perBatch: Harness.Figure = { name: "statements a batch", unit: "count" }

const makeConsidering = Effect.fnUntraced(function* (size: Harness.Size) {
  const population = Population.make(size === "full" ? 1000 : 4)
  const { context, skills } = yield* populated(size, population)
  const bare = yield* Harness.side({
    name: "bare loop",
    prepare: Effect.void,
    work: () => considerAll(skills, Duration.toMillis(grace)),
    verify: (_, { considered, leaving }) =>
      Effect.succeed({ outcome: outcome(considered, leaving), figures: { [perBatch.name]: 1 } })
  }).pipe(Effect.provideContext(context))
  const ours = yield* Harness.side({
    name: "sweep",
    prepare: Effect.void,
    work: () => sweep,
    verify: (_, { batches, candidates, considered, statements }) =>
      Effect.succeed({
        outcome: outcome(considered, candidates),
        figures: { [perBatch.name]: statements / batches }
      })
  }).pipe(Effect.provideContext(context))
  const contest: Harness.Contest = {
    amount: Population.amount(population),
    comparisons: [
      { figure: Harness.time, ours, peer: bare },
      { figure: perBatch, ours, peer: bare }
    ]
  }
  return contest
}, Effect.orDie)

const perThousand: Harness.Figure = { name: "time for 1,000 copies", unit: "milliseconds" }

const makeGrowing = Effect.fnUntraced(function* (size: Harness.Size) {
  const companies = size === "full" ? [100, 1000, 10_000] : [2, 4]
  const sides = yield* Effect.forEach(companies, (count) =>
    Effect.gen(function* () {
      const population = Population.make(count)
      const { context } = yield* populated(size, population)
      return yield* Harness.side({
        name: Population.amount(population),
        prepare: Effect.sync(System.nanoseconds),
        work: (started) =>
          Effect.map(sweep, (swept) => ({ ...swept, millis: Number(System.nanoseconds() - started) / 1e6 })),
        verify: (_, { candidates, considered, millis }) =>
          Effect.succeed({
            // Each has its own number of copies, and all of them must be considered.
            outcome: `${considered === population.copies ? "all" : considered} considered, ${candidates} to go`,
            figures: { [perThousand.name]: (millis / population.copies) * 1000 }
          })
      }).pipe(Effect.provideContext(context))
    })
  )
  const [smallest, ...larger] = sides
  const contest: Harness.Contest = {
    amount: sides.map(({ name }) => name).join(", "),
    comparisons:
      smallest === undefined
        ? []
        : Arr.map([smallest, ...larger], (ours) => ({ figure: perThousand, ours, peer: smallest }))
  }
  return contest
}, Effect.orDie)

export const considering: Harness.Scenario = {
  id: "P-05",
  title: "considering copies",
  make: makeConsidering
}

export const growing: Harness.Scenario = { id: "P-06", title: "considering more copies", make: makeGrowing }
