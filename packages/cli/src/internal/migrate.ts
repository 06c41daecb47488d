/** `reclaim migrate`. */
import { DatabaseClock, HostSchema, HostTables, Migrations, Transactions } from "@reclaim/db"
import { Effect, Layer, Option } from "effect"
import { Command, Flag } from "effect/cli"
import * as Output from "../Output.ts"
import { layerClient } from "./connection.ts"
import type { Subcommand } from "./flags.ts"
import { Printer } from "./printer.ts"
import { count, formatInstant } from "./units.ts"

const program = Effect.fnUntraced(function* (withHostTables: boolean) {
  const printer = yield* Printer
  const hostTables = withHostTables ? yield* HostTables.create : []
  const steps = yield* Migrations.migrate
  const { adoptedAt, missing } = yield* Effect.gen(function* () {
    const host = yield* HostSchema.HostSchema
    return { adoptedAt: yield* host.adopted, missing: yield* Effect.result(host.requireSkills) }
  }).pipe(
    // Not before: it looks at the tables when it is built.
    Effect.provide(HostSchema.layer)
  )
  yield* printer.document(Output.Migrated, { type: "migrated", adoptedAt, steps, hostTables })
  if (hostTables.length > 0) yield* printer.lines(`made ${count(hostTables.length, "table")} of the host`)
  yield* printer.lines(
    steps === 0 ? "the schema reclaim is up to date" : "the schema reclaim is ready",
    ...Option.match(adoptedAt, {
      onNone: () => [],
      onSome: (at) => [`adopted at ${formatInstant(at)} UTC`]
    })
  )
  if (missing._tag === "Failure") {
    const tables = new Set(missing.failure.missing.map((column) => column.split(".")[0]))
    yield* printer.aside(
      `warning: the host's tables are not complete in this database: ${[...tables].join(", ")}`
    )
  }
})

export const migrate: Subcommand<"migrate"> = Command.make(
  "migrate",
  {
    withHostTables: Flag.Boolean("with-host-tables").pipe(
      Flag.withDescription("Make the host's tables too, for trying it out"),
      Flag.withoutNegation,
      Flag.withDefault(false)
    )
  },
  ({ withHostTables }) =>
    program(withHostTables).pipe(
      Effect.provide(
        DatabaseClock.layer.pipe(Layer.provideMerge(Transactions.layer), Layer.provideMerge(layerClient))
      )
    )
).pipe(
  Command.withDescription("Make or update the schema reclaim, which is how a server is adopted"),
  Command.withExamples([
    { command: "reclaim migrate", description: "Adopt a server" },
    { command: "reclaim migrate --with-host-tables", description: "Prepare an empty database for a trial" }
  ])
)
