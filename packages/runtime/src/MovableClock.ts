/**
 * Two clocks that a test moves, the database's and the process's own, so that no test waits for a grace to
 * pass.
 *
 * **Details**
 *
 * Only telling the time is replaced. Waiting takes real time, because a pool and a server wait for real:
 * with effect's `TestClock` a jump of years would run every periodic task of the pool once per period.
 *
 * @since 0.1.0
 */
import { DatabaseClock } from "@reclaim/db"
import { Clock, Context, DateTime, Duration, Effect, Layer } from "effect"

/** @category services @since 0.1.0 */
export class MovableClock extends Context.Service<
  MovableClock,
  {
    /** Moves both clocks on, or back with a negative duration. */
    readonly adjust: (duration: Duration.Input) => Effect.Effect<void>
    /** Sets both clocks. */
    readonly set: (instant: DateTime.Utc) => Effect.Effect<void>
    /** Moves the process's clock against the database's. */
    readonly adjustLocal: (duration: Duration.Input) => Effect.Effect<void>
  }
>()("@reclaim/runtime/MovableClock") {}

/**
 * Both clocks begin at an instant and stand still until they are moved. The layer replaces the `Clock` of
 * what is run with it.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (start: DateTime.Utc): Layer.Layer<DatabaseClock.DatabaseClock | MovableClock> =>
  Layer.effectContext(
    Effect.clockWith((real) =>
      Effect.sync(() => {
        const hands = { database: DateTime.toEpochMillis(start), local: DateTime.toEpochMillis(start) }
        const millis = (duration: Duration.Input) => Duration.toMillis(Duration.fromInputUnsafe(duration))
        const local: Clock.Clock = {
          currentTimeMillisUnsafe: () => hands.local,
          currentTimeMillis: Effect.sync(() => hands.local),
          currentTimeNanosUnsafe: () => BigInt(hands.local) * 1_000_000n,
          currentTimeNanos: Effect.sync(() => BigInt(hands.local) * 1_000_000n),
          monotonicTimeNanosUnsafe: () => real.monotonicTimeNanosUnsafe(),
          monotonicTimeNanos: real.monotonicTimeNanos,
          sleep: (duration) => real.sleep(duration)
        }
        const clock = MovableClock.of({
          adjust: (duration) =>
            Effect.sync(() => {
              hands.database += millis(duration)
              hands.local += millis(duration)
            }),
          set: (instant) =>
            Effect.sync(() => {
              hands.database = DateTime.toEpochMillis(instant)
              hands.local = hands.database
            }),
          adjustLocal: (duration) =>
            Effect.sync(() => {
              hands.local += millis(duration)
            })
        })
        return Context.make(MovableClock, clock).pipe(
          Context.add(
            DatabaseClock.DatabaseClock,
            DatabaseClock.DatabaseClock.of({ now: Effect.sync(() => DateTime.makeUnsafe(hands.database)) })
          ),
          Context.add(Clock.Clock, local)
        )
      })
    )
  )
