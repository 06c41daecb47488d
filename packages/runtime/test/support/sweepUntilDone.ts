/** A server process that sweeps until a pass changes nothing and met nobody, and prints what it evicted. */
import { VersionReport } from "@reclaim/core"
import { Effect, Schema, Stream } from "effect"
import { ServerName, SkillVersionRetention } from "../../src/index.ts"
import { MovableClock } from "../../src/testing.ts"
import * as ServerProcess from "./serverProcess.ts"

const Task = Schema.fromJsonString(
  Schema.Struct({
    name: Schema.String,
    instance: Schema.String,
    url: Schema.String,
    now: Schema.DateTimeUtcFromString
  })
)

const main = Effect.gen(function* () {
  const task = yield* Schema.decodeUnknownEffect(Task)(process.argv[2])
  const passes = Effect.gen(function* () {
    const retention = yield* SkillVersionRetention.SkillVersionRetention
    let evicted = 0
    for (;;) {
      const pass = yield* retention.sweep().pipe(
        Stream.runFold(
          () => VersionReport.empty,
          (sum, { report }) => VersionReport.combine(sum, report)
        )
      )
      evicted += pass.evicted
      const met = (pass.skipped["CompanyBusy"] ?? 0) + (pass.skipped["ChangedMeanwhile"] ?? 0)
      if (met + pass.candidates + pass.trashWaiting + pass.trashFinished === 0) return evicted
    }
  })
  const evicted = yield* passes.pipe(
    Effect.provide(ServerProcess.layer({ ...task, clock: MovableClock.layer(task.now) })),
    Effect.provideService(ServerName.ServerName, task.name)
  )
  process.stdout.write(`${JSON.stringify({ name: task.name, evicted })}\n`)
})

Effect.runFork(
  main.pipe(Effect.tapCause((cause) => Effect.sync(() => process.stderr.write(`${String(cause)}\n`))))
)
