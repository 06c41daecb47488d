/**
 * Asks the farm's tables the way Reclaim needs it: on the connection of the transaction that is open, with a
 * bound on every wait, each row decoded, and each failure told apart.
 */
import { DatabaseError, Transactions } from "@reclaim/db"
import { Effect, Schema } from "effect"
import type { SqlError } from "effect/sql/SqlError"

/** One row that does not decode fails the statement: nothing is known then, and everything stays. */
export const reader = Effect.map(
  Transactions.Transactions,
  (transactions) =>
    <S extends Schema.ConstraintDecoder<unknown>>(
      row: S,
      operation: string,
      statement: Effect.Effect<ReadonlyArray<unknown>, SqlError>
    ) =>
      transactions.join(
        operation,
        statement.pipe(
          Effect.mapError((error) => DatabaseError.fromSqlError(error, operation)),
          Effect.flatMap((rows) =>
            Effect.mapError(Schema.decodeEffect(Schema.Array(row))(rows), ({ message }) =>
              DatabaseError.make({ _tag: "Undecodable", detail: message }, operation)
            )
          )
        )
      )
)
