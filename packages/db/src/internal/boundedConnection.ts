import { Clock, Duration, Effect, Exit, Fiber, Option, Stream } from "effect"
import type { Connection } from "effect/sql/SqlConnection"
import { ConnectionError, SqlError, UnknownError } from "effect/sql/SqlError"
import { sqlState } from "../DatabaseError.ts"

// 1 second: a cancelled statement of a live server ends within milliseconds. Where it does not, the
// connection is given up, and the server rolls back when it notices.
const cancelBound = Duration.seconds(1)

/**
 * A reserved connection on which no answer is awaited for ever.
 *
 * The driver waits for an answer without a bound where it cannot be interrupted, and a stopped server
 * answers nothing. So each statement runs in a fiber of its own, and the caller waits for that fiber under
 * a bound. What is not answered in time makes the connection `lost`: nothing is sent on it any more.
 */
export interface BoundedConnection {
  readonly connection: Connection
  /** Sends a statement under its own bound. `None` is no answer, and the connection is lost. */
  readonly send: <A>(
    statement: Effect.Effect<A, SqlError>,
    bound: Duration.Duration
  ) => Effect.Effect<Option.Option<Exit.Exit<A, SqlError>>>
  /** True when an answer is missing or the connection has ended. */
  readonly isLost: () => boolean
  /** The time since the last statement that got an answer was sent. */
  readonly sinceLastAnswer: Effect.Effect<Duration.Duration>
}

const noAnswer = (): SqlError =>
  new SqlError({
    reason: new ConnectionError({
      cause: new Error("the server did not answer in time"),
      message: "no answer",
      operation: "query"
    })
  })

const unsupported = (): SqlError =>
  new SqlError({
    reason: new UnknownError({
      cause: new Error("streaming rows is not supported in a bounded transaction"),
      message: "not supported",
      operation: "stream"
    })
  })

export const make = (raw: Connection, clock: Clock.Clock, bound: Duration.Duration): BoundedConnection => {
  let lost: SqlError | undefined
  // Counted from sending, not from receiving: an answer may have waited in the socket while this process
  // stood still, and then the lock is older than it looks.
  let answered = clock.monotonicTimeNanosUnsafe()

  const send = <A>(statement: Effect.Effect<A, SqlError>, within: Duration.Duration) =>
    Effect.uninterruptibleMask((restore) =>
      Effect.suspend(() => {
        const sent = clock.monotonicTimeNanosUnsafe()
        return Effect.flatMap(Effect.forkDetach(statement, { startImmediately: true }), (fiber) =>
          restore(Effect.timeoutOption(Fiber.await(fiber), within)).pipe(
            Effect.tap((answer) =>
              Effect.sync(() => {
                if (Option.isNone(answer)) {
                  lost ??= noAnswer()
                  return
                }
                const exit = answer.value
                if (Exit.isSuccess(exit)) {
                  answered = sent
                  return
                }
                // An error of the server is an answer; one of the driver is none, and may be the end.
                const error = Option.getOrUndefined(Exit.findErrorOption(exit))
                if (error === undefined) return
                if (sqlState(error) !== undefined) answered = sent
                else if (error.reason._tag === "ConnectionError") lost ??= error
              })
            ),
            Effect.onInterrupt(() =>
              Effect.map(Effect.timeoutOption(Fiber.interrupt(fiber), cancelBound), (done) => {
                if (Option.isNone(done)) lost ??= noAnswer()
              })
            ),
            Effect.provideService(Clock.Clock, clock)
          )
        )
      })
    )

  const ask = <A>(statement: Effect.Effect<A, SqlError>): Effect.Effect<A, SqlError> =>
    Effect.suspend(() =>
      lost === undefined
        ? Effect.flatMap(send(statement, bound), (answer) =>
            Option.isSome(answer) ? answer.value : Effect.fail(noAnswer())
          )
        : Effect.fail(lost)
    )

  return {
    connection: {
      execute: (sql, params, transform) => ask(raw.execute(sql, params, transform)),
      executeRaw: (sql, params) => ask(raw.executeRaw(sql, params)),
      executeValues: (sql, params) => ask(raw.executeValues(sql, params)),
      executeValuesUnprepared: (sql, params) => ask(raw.executeValuesUnprepared(sql, params)),
      executeUnprepared: (sql, params, transform) => ask(raw.executeUnprepared(sql, params, transform)),
      // Each pull waits for the server without a bound.
      executeStream: () => Stream.fail(unsupported())
    },
    send,
    isLost: () => lost !== undefined,
    sinceLastAnswer: Effect.sync(() => Duration.nanos(clock.monotonicTimeNanosUnsafe() - answered))
  }
}
