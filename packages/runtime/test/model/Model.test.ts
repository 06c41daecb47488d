import { assert, layer } from "@effect/vitest"
import { Arbitrary, Clock, Duration, Effect, Schema } from "effect"
import type { Command } from "./Commands.ts"
import * as Commands from "./Commands.ts"
import * as Interpreter from "./Interpreter.ts"

interface Sequence {
  readonly lagging: boolean
  readonly commands: ReadonlyArray<Command>
}

// 50 phrases: long enough for a copy to come, be used, go and come back around a crash.
const longest = 50
// Each kind of event often enough to mean something.
const least = { commands: 2000, crashes: 50, evicted: 100, undone: 20, healed: 20, expired: 20 }
// 4,000 commands: twice as many as it takes when they are drawn as they should be.
const patience = 4000

const sequence: Arbitrary.Arbitrary<Sequence> = Arbitrary.all({
  lagging: Arbitrary.schema(Schema.Boolean),
  commands: Arbitrary.map(Arbitrary.array(Commands.phrase, { maxLength: longest }), (phrases) =>
    phrases.flat()
  )
})

// A failure tells both: the seed gives all sequences again, the replay the one that failed, cut short.
const seed = process.env["RECLAIM_MODEL_SEED"] ?? crypto.randomUUID()
const replay = process.env["RECLAIM_MODEL_REPLAY"]
const hours = Number(process.env["RECLAIM_SOAK_HOURS"] ?? 0)

const lacking = (tally: Interpreter.Tally) =>
  Object.entries(least).filter(([name, count]) =>
    Object.entries(tally).some(([key, value]) => key === name && value < count)
  )

layer(Interpreter.layer, { excludeTestServices: true, timeout: "60 seconds" })("any interleaving", (it) => {
  it.effect(
    "[Q-02] loses no copy and no backup that something speaks for, and nothing that only the disk has",
    () =>
      Effect.gen(function* () {
        const { run, tally } = yield* Interpreter.make
        const clock = yield* Clock.Clock
        const since = clock.monotonicTimeNanosUnsafe()
        const until = since + Duration.toNanosUnsafe(Duration.hours(hours))
        const isOver = () =>
          clock.monotonicTimeNanosUnsafe() >= until &&
          (lacking(tally).length === 0 || tally.commands >= patience)
        const property = ({ commands, lagging }: Sequence) => Effect.as(run(commands, lagging), true)
        for (let round = 0; !isOver(); round++) {
          const options =
            replay === undefined
              ? { runs: 1, size: longest, seed: `${seed}/${round}`, maxShrinks: 150 }
              : { replay }
          const failure = Arbitrary.formatCheckFailure(
            yield* Arbitrary.checkEffect(sequence, property, options)
          )
          if (failure !== undefined) assert.fail(`${failure}\nSeed: ${seed}, sequence ${round}`)
          if (replay !== undefined) return
        }
        const seconds = (clock.monotonicTimeNanosUnsafe() - since) / 1_000_000_000n
        console.log(`seed ${seed}: ${JSON.stringify(tally)} in ${seconds} s`)
        assert.deepStrictEqual(lacking(tally), [])
      }),
    { timeout: 1_200_000 + hours * 3_600_000 }
  )
})
