import { assert, layer } from "@effect/vitest"
import { HostTables, Migrations, Transactions } from "@reclaim/db"
import { TestDatabase } from "@reclaim/postgres/testing"
import { Cause, Effect, Exit, Layer, Random } from "effect"
import { inject } from "vitest"
import { MovableClock } from "../../src/testing.ts"
import * as Threads from "../support/threads.ts"
import * as World from "../support/World.ts"
import * as Cell from "./Cell.ts"
import { type Column, columns, type Event } from "./Faults.ts"
import * as Plan from "./Plan.ts"
import { declared } from "./Points.ts"
import { ruleOf, rules } from "./Rules.ts"
import * as Table from "./Table.ts"

const seed = process.env["RECLAIM_FAULTS_SEED"] ?? crypto.randomUUID()
const only = process.env["RECLAIM_FAULTS_ONLY"]
const soak = process.env["RECLAIM_FAULTS_ALL"] === "1" || Number(process.env["RECLAIM_SOAK_HOURS"] ?? 0) > 0

// 3: most of a cell's time is waiting, for the database and for processes that start.
const concurrency = 3
// 6: what a run takes at least of each column, whatever the seed.
const leastPerColumn = 6

const shared = Layer.effectDiscard(Effect.andThen(HostTables.create, Migrations.migrate)).pipe(
  Layer.provide(Transactions.layer),
  Layer.provide(MovableClock.layer(World.noon)),
  Layer.provideMerge(TestDatabase.layerClient(inject("databaseUrl"))),
  Layer.provideMerge(Threads.layer)
)

/** Runs every scenario with no fault at all, and tells what each does. */
const trace = Effect.gen(function* () {
  const traces = new Map<string, Array<Event>>()
  const cells = Cell.scenarioNames.map((scenario) => {
    const events: Array<Event> = []
    traces.set(scenario, events)
    const cell = { scenario, point: "", occurrence: 1, column: "none" } as const
    return Cell.run(cell, (event) => events.push(event)).pipe(
      Effect.tapCause((cause) => Effect.sync(() => console.log(`${scenario}: ${Cause.pretty(cause)}`)))
    )
  })
  yield* Effect.all(cells, { concurrency })
  return traces
})

type Outcome = "struck" | "met nothing" | "failed"

/** Runs the cells of an entry until one met something; in the long form all of them. */
const take = Effect.fnUntraced(function* ({ cells }: Plan.Entry) {
  let outcome: Outcome = "met nothing"
  const failures: Array<string> = []
  for (const cell of cells) {
    if (outcome !== "met nothing" && !soak) break
    const exit = yield* Effect.exit(Cell.run(cell))
    if (Exit.isFailure(exit)) {
      failures.push(`${Cell.show(cell)}: ${Cause.pretty(exit.cause)}`)
      console.log(failures.at(-1))
      outcome = "failed"
    } else if (exit.value && outcome === "met nothing") outcome = "struck"
  }
  return { failures, outcome }
})

const marks: Record<Outcome, string> = { struck: "x", "met nothing": "?", failed: "F" }

const print = (taken: ReadonlyMap<string, Outcome>, cells: number) => {
  const width = Math.max(...declared.map(({ length }) => length))
  const rows = declared.map((point) =>
    [
      point.padEnd(width),
      ...columns.map((column) => {
        const outcome = taken.get(`${point}/${column}`)
        const untaken = ruleOf(point, column) !== undefined ? "-" : "."
        return (outcome === undefined ? untaken : marks[outcome]).padStart(column.length)
      })
    ].join("  ")
  )
  const header = `RECLAIM_FAULTS_SEED=${seed}: ${taken.size} points and faults, of ${cells} cells`
  console.log([header, ["".padEnd(width), ...columns].join("  "), ...rows].join("\n"))
}

layer(shared, { excludeTestServices: true, timeout: "60 seconds" })("faults", (it) => {
  it.effect(
    "[Q-01] at every named point lose nothing, and the next sweeps put right what they leave",
    () =>
      Effect.gen(function* () {
        if (only !== undefined) {
          const [scenario = "", point = "", occurrence, name] = only.split("/")
          const column = columns.find((each) => each === name) ?? "none"
          yield* Cell.run({ scenario, point, occurrence: Number(occurrence), column })
          return
        }
        const traces = yield* trace
        assert.deepStrictEqual(
          declared.filter((point) => !Plan.isReached(traces, point)),
          [],
          "no scenario reaches these points"
        )
        const everything = Plan.everything(traces, declared)
        // What can meet nothing has a rule that says why, and a rule is about what can meet nothing.
        const wrong = declared.flatMap((point) =>
          columns
            .filter(
              (column) =>
                everything.some((entry) => entry.point === point && entry.column === column) ===
                (ruleOf(point, column) !== undefined)
            )
            .map((column) => `${column}: ${point}`)
        )
        assert.deepStrictEqual(wrong.toSorted(), [])
        const entries = soak ? everything : yield* Random.withSeed(Plan.some(traces, declared), seed)
        const taken = new Map<string, Outcome>()
        const failures: Array<string> = []
        yield* Effect.forEach(
          entries,
          (entry) =>
            Effect.map(take(entry), (result) => {
              taken.set(`${entry.point}/${entry.column}`, result.outcome)
              failures.push(...result.failures)
            }),
          { concurrency, discard: true }
        )
        print(
          taken,
          everything.reduce((sum, { cells }) => sum + cells.length, 0)
        )
        assert.deepStrictEqual(failures, [])
        const idle = [...taken].flatMap(([entry, outcome]) => (outcome === "met nothing" ? [entry] : []))
        assert.deepStrictEqual(idle, [])
        const times = (column: Column) => entries.filter((entry) => entry.column === column).length
        for (const column of columns) assert.isAtLeast(times(column), leastPerColumn, column)
      }),
    { timeout: soak ? 4 * 3_600_000 : 1_200_000 }
  )

  it.effect("[Q-01] the rules of what meets nothing are about points that there are, one for each", () =>
    Effect.sync(() => {
      const unused = rules.filter(({ points }) => !declared.some((point) => points.test(point)))
      assert.deepStrictEqual(unused, [])
      for (const point of declared) {
        for (const column of columns) {
          const about = rules.filter((rule) => rule.column === column && rule.points.test(point))
          assert.isAtMost(about.length, 1, `${column} at ${point}`)
        }
      }
    })
  )

  it.effect("[Q-01] the matrix in docs/reliability.md is that of the code", () =>
    Effect.sync(() => {
      if (process.env["RECLAIM_FAULTS_WRITE"] === "1") Table.write()
      assert.deepStrictEqual(Table.written(), Table.generated)
    })
  )
})
