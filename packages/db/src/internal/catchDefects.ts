import { Effect } from "effect"
import { isSqlError } from "effect/sql/SqlError"
import { type DatabaseError, fromSqlError } from "../DatabaseError.ts"

/**
 * Turns the driver's defects into failures: a connection that is lost inside a transaction of sql-pg dies
 * with the error of its ROLLBACK instead of failing.
 */
export const catchDefects =
  (operation: string) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E | DatabaseError, R> =>
    Effect.catchDefect(self, (defect) =>
      isSqlError(defect) ? Effect.fail(fromSqlError(defect, operation)) : Effect.die(defect)
    )
