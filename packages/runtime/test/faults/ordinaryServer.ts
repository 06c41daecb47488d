/** A server process that does some things one after the other, and prints how each ended. */
import { Cause, Effect, Exit, Layer, Schema } from "effect"
import { MovableClock } from "../../src/testing.ts"
import * as Threads from "../support/threads.ts"
import * as Operations from "./Operations.ts"
import * as Server from "./Server.ts"

const Task = Schema.fromJsonString(
  Schema.Struct({
    operations: Schema.Array(Operations.Operation),
    instance: Schema.String,
    url: Schema.String,
    name: Schema.String,
    now: Schema.DateTimeUtcFromString
  })
)

const main = Effect.gen(function* () {
  const task = yield* Schema.decodeUnknownEffect(Task)(process.argv[2])
  const ends = yield* Effect.forEach(task.operations, (operation) =>
    Effect.map(Effect.exit(Operations.run(operation)), (exit) =>
      Exit.isSuccess(exit) ? "done" : String(Cause.squash(exit.cause))
    )
  ).pipe(
    Effect.provide(
      Server.layer(task).pipe(
        Layer.provideMerge(MovableClock.layer(task.now)),
        Layer.provideMerge(Threads.layer)
      )
    )
  )
  process.stdout.write(JSON.stringify(ends))
})

Effect.runFork(
  main.pipe(Effect.tapCause((cause) => Effect.sync(() => process.stderr.write(`${String(cause)}\n`))))
)
