/**
 * Runs what we do and what others do on the same data, in turn, and compares the two.
 *
 * Every side of a scenario gets fresh data of its own, made and checked outside of the timed part. All
 * sides must come to the same outcome, or the run fails: a side that did less work is no peer.
 */
import { Context, Effect, Schema, type Scope } from "effect"
import * as Statistics from "./Statistics.ts"
import * as System from "./System.ts"

/** `smoke` only shows that both sides still work and agree; its figures mean nothing. */
export type Size = "full" | "smoke"

/** Where scenarios make their data. */
export class Workspace extends Context.Service<
  Workspace,
  {
    /** A folder of this run. */
    readonly path: string
    /** A PostgreSQL server of this run, started by the first scenario that asks for it. */
    readonly serverUrl: Effect.Effect<string>
  }
>()("benchmarks/Workspace") {}

/**
 * Forces what was prepared to the disk, so that nobody pays for what another side wrote. Not where the
 * figures mean nothing: it waits for whatever else is written on that file system.
 */
export const settle = (size: Size, path: string) =>
  size === "full" ? Effect.asVoid(System.command("sync", ["-f", path])) : Effect.void

/** What is compared: `time` is measured for every side, others are told by the sides themselves. */
export interface Figure {
  readonly name: string
  readonly unit: "milliseconds" | "bytes" | "count"
}

export const time: Figure = { name: "time", unit: "milliseconds" }

/** What a side achieved. Sides of one scenario must have equal outcomes. */
export interface Verdict {
  readonly outcome: string
  readonly figures?: Readonly<Record<string, number>>
}

interface Attempt {
  readonly outcome: string
  readonly figures: Readonly<Record<string, number>>
  readonly cost: System.Cost
}

/** One way to do it, ready to be tried as often as needed. */
export interface Side {
  readonly name: string
  readonly attempt: Effect.Effect<Attempt>
}

/**
 * Makes a side. `prepare` and `verify` are not timed; what `prepare` acquires is given back after `verify`.
 * An error of any of them ends the benchmark.
 */
export const side = Effect.fnUntraced(function* <
  Input,
  Output,
  EP,
  EW,
  EV,
  RP = never,
  RW = never,
  RV = never
>(options: {
  readonly name: string
  readonly prepare: Effect.Effect<Input, EP, RP>
  readonly work: (input: Input) => Effect.Effect<Output, EW, RW>
  readonly verify: (input: Input, output: Output) => Effect.Effect<Verdict, EV, RV>
}) {
  const context = yield* Effect.context<Exclude<RP | RW | RV, Scope.Scope>>()
  const attempt = Effect.gen(function* () {
    const input = yield* options.prepare
    const { cost, value } = yield* System.measure(options.work(input))
    const { figures, outcome } = yield* options.verify(input, value)
    return { outcome, figures: { [time.name]: cost.millis, ...figures }, cost } satisfies Attempt
  }).pipe(Effect.scoped, Effect.orDie, Effect.provideContext(context))
  const made: Side = { name: options.name, attempt }
  return made
})

/** One line of the result. */
export interface Comparison {
  readonly figure: Figure
  readonly ours: Side
  readonly peer: Side
}

/** What a scenario sets up. `amount` says how much there is to do. */
export interface Contest {
  readonly amount: string
  readonly comparisons: ReadonlyArray<Comparison>
}

export interface Scenario {
  readonly id: string
  readonly title: string
  readonly make: (size: Size) => Effect.Effect<Contest, never, Workspace | Scope.Scope>
}

/** Two sides came to different ends. */
export class Disagreement extends Schema.TaggedError<Disagreement>()("Disagreement", {
  scenario: Schema.String,
  left: Schema.String,
  right: Schema.String
}) {
  override get message() {
    return `${this.scenario}: the sides did not do the same\n  ${this.left}\n  ${this.right}`
  }
}

/** A line with its figures. The costs are of our side; `stallMillis` is the median of the longest stalls. */
export interface Line {
  readonly figure: Figure
  readonly ours: Statistics.Spread & { readonly name: string }
  readonly peer: Statistics.Spread & { readonly name: string }
  /** Of the medians, ours by the peer's; the spread is that of the single pairs. */
  readonly ratio: Statistics.Spread
  readonly loopP99Millis: number
  readonly stallMillis: number
  readonly peakBytes: number | null
}

export interface Result {
  readonly id: string
  readonly title: string
  readonly amount: string
  readonly pairs: number
  readonly lines: ReadonlyArray<Line>
}

const compare = (comparison: Comparison, attempts: ReadonlyMap<string, ReadonlyArray<Attempt>>): Line => {
  const all = (side: Side) => attempts.get(side.name) ?? []
  // The first one warmed up.
  const values = (side: Side) =>
    all(side)
      .slice(1)
      .map(({ figures }) => figures[comparison.figure.name] ?? Number.NaN)
  const costs = all(comparison.ours)
    .slice(1)
    .map(({ cost }) => cost)
  const ours = { name: comparison.ours.name, ...Statistics.spread(values(comparison.ours)) }
  const peer = { name: comparison.peer.name, ...Statistics.spread(values(comparison.peer)) }
  const peers = values(comparison.peer)
  const pairs = Statistics.spread(values(comparison.ours).map((value, index) => value / (peers[index] ?? 1)))
  // The largest, the warm-up included: later rounds find memory that the first one left.
  const peaks = all(comparison.ours).flatMap(({ cost }) => (cost.peakBytes === null ? [] : [cost.peakBytes]))
  return {
    figure: comparison.figure,
    ours,
    peer,
    ratio: { ...pairs, median: ours.median / peer.median },
    loopP99Millis: Statistics.median(costs.map(({ loopP99Millis }) => loopP99Millis)),
    stallMillis: Statistics.median(costs.map(({ longestStallMillis }) => longestStallMillis)),
    peakBytes: peaks.length === 0 ? null : Math.max(...peaks)
  }
}

/** Runs a scenario: one round to warm up, then as many as are asked for, each led by another side. */
export const run = Effect.fnUntraced(function* (
  scenario: Scenario,
  options: { readonly pairs: number; readonly size: Size }
) {
  yield* System.say(`${scenario.id} ${scenario.title}: preparing`)
  const { amount, comparisons } = yield* scenario.make(options.size)
  const sides = [...new Set(comparisons.flatMap(({ ours, peer }) => [ours, peer]))]
  const attempts = new Map<string, Array<Attempt>>(sides.map(({ name }) => [name, []]))
  for (let round = 0; round <= options.pairs; round += 1) {
    const first = round % sides.length
    const outcomes: Array<string> = []
    for (const { attempt, name } of [...sides.slice(first), ...sides.slice(0, first)]) {
      const done = yield* attempt
      attempts.get(name)?.push(done)
      outcomes.push(`${name}: ${done.outcome}`)
      yield* System.say(
        `${scenario.id} ${round === 0 ? "warm-up" : `round ${round}`}: ${name}, ${Math.round(done.cost.millis)} ms`
      )
    }
    const [left = "", ...others] = outcomes
    const outcome = (text: string) => text.slice(text.indexOf(": ") + 2)
    const right = others.find((other) => outcome(other) !== outcome(left))
    if (right !== undefined) return yield* new Disagreement({ scenario: scenario.id, left, right })
  }
  const result: Result = {
    id: scenario.id,
    title: scenario.title,
    amount,
    pairs: options.pairs,
    lines: comparisons.map((comparison) => compare(comparison, attempts))
  }
  return result
}, Effect.scoped)
