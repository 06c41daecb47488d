import { Array as Arr, Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import type { Fragment } from "effect/sql/Statement"
import { type DatabaseError, fromSqlError, make } from "../DatabaseError.ts"

// 1,000: some milliseconds of decoding, between which others get their turn.
export const decodedAtOnce = 1000

/** Runs a statement and decodes its rows; one that does not decode fails the whole statement. */
export const query = <S extends Schema.ConstraintDecoder<unknown>>(
  schema: S,
  operation: string,
  statement: Effect.Effect<ReadonlyArray<unknown>, SqlError>
): Effect.Effect<ReadonlyArray<S["Type"]>, DatabaseError> =>
  statement.pipe(
    Effect.mapError((error) => fromSqlError(error, operation)),
    Effect.flatMap((rows) => {
      const decode = Schema.decodeEffect(Schema.Array(schema))
      return rows.length <= decodedAtOnce
        ? decode(rows)
        : Effect.map(
            Effect.forEach(Arr.chunksOf(rows, decodedAtOnce), (some) =>
              Effect.tap(decode(some), Effect.yieldNow)
            ),
            Arr.flatten
          )
    }),
    Effect.catchTag("SchemaError", (issue) =>
      Effect.fail(make({ _tag: "Undecodable", detail: issue.message }, operation))
    )
  )

/** Runs a statement whose rows do not matter. */
export const run = (
  operation: string,
  statement: Effect.Effect<unknown, SqlError>
): Effect.Effect<void, DatabaseError> =>
  Effect.asVoid(Effect.mapError(statement, (error) => fromSqlError(error, operation)))

/** Adds to the list under a key. */
export const push = <K, V>(map: Map<K, Array<V>>, key: K, value: V): void => {
  const list = map.get(key)
  if (list === undefined) map.set(key, [value])
  else if (!list.includes(value)) list.push(value)
}

/**
 * An instant as milliseconds since 1970. PostgreSQL has infinite ones, which no date can hold: they become
 * the last and the first instant that JavaScript has, so that a lease without an end decodes and is live.
 */
export const millis = (sql: SqlClient, column: Fragment): Fragment => sql`
  case when ${column} is not null
    then least(greatest((extract(epoch from ${column}) * 1000)::float8, -8.64e15), 8.64e15) end`
