/** Counts the statements that are sent to the database, those that begin and end transactions left out. */
import { Effect } from "effect"
import { CurrentTransformer } from "effect/sql/Statement"

/** Does something and tells how many statements that took. */
export const counted = <A, E, R>(
  work: Effect.Effect<A, E, R>
): Effect.Effect<{ readonly value: A; readonly statements: number }, E, R> =>
  Effect.suspend(() => {
    let statements = 0
    return work.pipe(
      Effect.map((value) => ({ value, statements })),
      Effect.provideService(CurrentTransformer, (statement) =>
        Effect.sync(() => {
          statements += 1
          return statement
        })
      )
    )
  })
