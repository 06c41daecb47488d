/**
 * Tells the time by the database's clock, the one that all servers share.
 *
 * @since 0.1.0
 */
import { Context, DateTime, Effect, Layer, Schema } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { DatabaseError } from "./DatabaseError.ts"
import { query } from "./internal/rows.ts"
import { Transactions } from "./Transactions.ts"

/**
 * The source of every instant that an age is measured from. A test replaces it to move time.
 *
 * @category services
 * @since 0.1.0
 */
export class DatabaseClock extends Context.Service<
  DatabaseClock,
  {
    /**
     * The instant now, on the connection of the transaction that is open, if one is. Read it after the
     * lock is held: `now()` would be the time the transaction began, which is stale by then.
     */
    readonly now: Effect.Effect<DateTime.Utc, DatabaseError>
  }
>()("@reclaim/db/DatabaseClock") {}

const Row = Schema.Struct({ at: Schema.Finite })

/**
 * The clock of the server.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<DatabaseClock, never, SqlClient.SqlClient | Transactions> = Layer.effect(
  DatabaseClock,
  Effect.gen(function* () {
    const sql = (yield* SqlClient.SqlClient).withoutTransforms()
    const transactions = yield* Transactions
    const operation = "reading the database's clock"
    return DatabaseClock.of({
      now: transactions.join(
        operation,
        query(
          Row,
          operation,
          sql`select (extract(epoch from clock_timestamp()) * 1000)::float8 as "at"`
        ).pipe(
          Effect.flatMap((rows) =>
            rows[0] === undefined
              ? Effect.die("clock_timestamp() returned no row")
              : Effect.succeed(DateTime.makeUnsafe(Math.floor(rows[0].at)))
          )
        )
      )
    })
  })
)
