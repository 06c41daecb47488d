import { expect, it } from "@effect/vitest"
import { RetentionSettings, VersionReport } from "@reclaim/core"
import { InstanceRoots, PosixFileSystem } from "@reclaim/fs"
import { SkillVersionRetention } from "@reclaim/runtime"
import { Effect, Exit, Layer, Option, Ref, Schema, Stream } from "effect"
import { Output } from "../src/index.ts"
import * as Skills from "../src/internal/skills.ts"
import * as Recording from "./support/recording.ts"

const decodeSummary = Schema.decodeUnknownOption(Output.SweepSummary)

interface Fakes {
  /** Free space before the sweep, then after each batch. */
  readonly free: readonly [before: bigint, ...after: ReadonlyArray<bigint>]
  readonly errors?: number
}

const noFlags: Skills.SweepFlags = {
  dryRun: false,
  company: Option.none(),
  untilFree: Option.none(),
  batchLimit: 50,
  maxBatches: Option.none(),
  continuation: Option.none()
}

/** Sweeps a volume that has so much room, and returns what was printed and how it ended. */
const sweep = Effect.fnUntraced(function* ({ errors = 0, free }: Fakes, flags: Partial<Skills.SweepFlags>) {
  const [before, ...after] = free
  const documents = yield* Ref.make<ReadonlyArray<unknown>>([])
  const batches = after.map((bytes, index): SkillVersionRetention.Batch => ({
    report: VersionReport.VersionReport.make({
      ...VersionReport.empty,
      considered: 10,
      evicted: 5,
      errors,
      freeBytesAfter: Option.some(bytes)
    }),
    dryRun: false,
    continuation: index === after.length - 1 ? Option.none() : Option.some(`token ${index}`)
  }))
  const exit = yield* Skills.sweepAll({ ...noFlags, ...flags }).pipe(
    Effect.provide(
      Layer.mergeAll(
        Layer.mock(SkillVersionRetention.SkillVersionRetention, {
          sweep: () => Stream.fromIterable(batches)
        }),
        Layer.mock(PosixFileSystem.PosixFileSystem, {
          volume: () => Effect.succeed({ free: before, available: before, total: 1000n })
        }),
        Layer.succeed(InstanceRoots.InstanceRoots, {
          instance: "/i",
          skills: "/i/skills",
          sessions: "/i/sessions",
          caseInsensitive: false
        }),
        RetentionSettings.layer(),
        Recording.layer(documents)
      )
    ),
    Effect.exit
  )
  const printed = yield* Ref.get(documents)
  return { exit, batches: printed.length - 1, summary: Option.getOrThrow(decodeSummary(printed.at(-1))) }
})

it.effect("[O-02] stops after the batch that freed enough, and says where to go on", () =>
  Effect.gen(function* () {
    const { batches, exit, summary } = yield* sweep(
      { free: [100n, 200n, 300n, 400n] },
      { untilFree: Option.some(300n) }
    )
    expect(Exit.isSuccess(exit)).toBe(true)
    expect(batches).toBe(2)
    expect(summary).toMatchObject({ batches: 2, evicted: 10, continuation: "token 1" })
  })
)

it.effect("[O-02] does nothing where there is enough room already", () =>
  Effect.gen(function* () {
    const { summary } = yield* sweep({ free: [300n, 400n] }, { untilFree: Option.some(300n) })
    expect(summary).toMatchObject({ batches: 0, evicted: 0, continuation: null })
  })
)

it.effect("[O-02] ends the pass where there never is enough room", () =>
  Effect.gen(function* () {
    const { summary } = yield* sweep({ free: [1n, 2n, 3n] }, { untilFree: Option.some(300n) })
    expect(summary).toMatchObject({ batches: 2, evicted: 10, continuation: null })
  })
)

it.effect("[O-04] an entry that could not be deleted fails the command after everything is told", () =>
  Effect.gen(function* () {
    const { exit, summary } = yield* sweep({ free: [1n, 2n], errors: 1 }, {})
    expect(summary).toMatchObject({ batches: 1, errors: 1 })
    expect(Exit.isFailure(exit)).toBe(true)
  })
)
