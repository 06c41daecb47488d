import { EmbeddedPostgres } from "@reclaim/postgres"
import { Console, Effect } from "effect"

// Stands for any program that holds a server: the tests end it in every way a program can end.
const program = Effect.gen(function* () {
  const binaries = process.argv[2]
  const { socketDir, pid, url } = yield* EmbeddedPostgres.make({ durable: false, binaries })
  yield* Console.log(JSON.stringify({ socketDir, pid, url }))
  return yield* Effect.never
}).pipe(
  Effect.scoped,
  Effect.catch((error) => Console.error(`${error.reason}: ${error.message}`))
)

Effect.runFork(program)
