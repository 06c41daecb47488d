import { PgClient } from "@effect/sql-pg"
import { Effect, Layer, Redacted } from "effect"
import { DatabaseClock, Migrations, Transactions } from "../../src/index.ts"

/** A process that migrates the database of its first argument, and says how many steps it applied. */
const services = DatabaseClock.layer.pipe(
  Layer.provideMerge(Transactions.layer),
  Layer.provideMerge(PgClient.layer({ url: Redacted.make(process.argv[2] ?? "") }))
)

Effect.runFork(
  Migrations.migrate.pipe(
    Effect.provide(services),
    Effect.tap((applied) => Effect.sync(() => void process.send?.(applied))),
    Effect.ensuring(Effect.sync(() => process.disconnect?.()))
  )
)
