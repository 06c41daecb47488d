/** A server process that does one thing and dies by SIGKILL when it reaches a point for the so-many-th time. */
import { FaultPoint } from "@reclaim/core"
import { Effect, Layer, Schema } from "effect"
import { MovableClock } from "../../src/testing.ts"
import * as Threads from "../support/threads.ts"
import * as Operations from "./Operations.ts"
import * as Server from "./Server.ts"

const Task = Schema.fromJsonString(
  Schema.Struct({
    ...Operations.Task.fields,
    instance: Schema.String,
    url: Schema.String,
    name: Schema.String,
    now: Schema.DateTimeUtcFromString,
    point: Schema.String,
    occurrence: Schema.Int
  })
)

const main = Effect.gen(function* () {
  const task = yield* Schema.decodeUnknownEffect(Task)(process.argv[2])
  const others = Operations.others(task.url, task.meanwhile)
  let left = task.occurrence
  const handler = (point: string) =>
    Effect.andThen(
      others(point),
      Effect.sync(() => {
        if (point === task.point && --left === 0) process.kill(process.pid, "SIGKILL")
      })
    )
  yield* Operations.run(task.operation).pipe(
    Effect.provideService(FaultPoint.FaultHandler, handler),
    Effect.provide(
      Server.layer(task).pipe(
        Layer.provideMerge(MovableClock.layer(task.now)),
        Layer.provideMerge(Threads.layer)
      )
    )
  )
})

Effect.runFork(
  main.pipe(Effect.tapCause((cause) => Effect.sync(() => process.stderr.write(`${String(cause)}\n`))))
)
