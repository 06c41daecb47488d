/**
 * Tells the failures of the database apart, so that a caller can retry, keep, or report.
 *
 * **Details**
 *
 * Every failure of this package is one of these. The driver's own classification is refined by SQLSTATE:
 * a server that shuts down, an expired idle transaction and a refused connection are all `ConnectionLost`;
 * a COMMIT without an answer is `CommitUnknown`, which is no failure and no success.
 *
 * @since 0.1.0
 */
import { Clock, Context, Effect, Predicate, Schema } from "effect"
import type { SqlError } from "effect/sql/SqlError"

/**
 * What went wrong.
 *
 * | reason | meaning | retryable |
 * |---|---|---|
 * | `LockTimeout` | a lock was not granted within its bound | yes |
 * | `Deadlock`, `Serialization` | the server chose this transaction to fail | yes |
 * | `StatementTimeout` | a statement ran longer than its bound | yes |
 * | `PoolTimeout` | the host's pool had no connection free within the bound | yes |
 * | `ConnectionLost` | the connection ended before the transaction did: nothing was committed | yes |
 * | `CommitUnknown` | COMMIT was sent and not answered: it may have happened | no |
 * | `MissingTable` | a table, column or schema is not there | no |
 * | `PermissionDenied` | the role lacks a right | no |
 * | `DiskFull` | the server's disk has no room | no |
 * | `NestedTransaction` | called inside a transaction of the caller | no |
 * | `Undecodable` | a row is not what it should be | no |
 * | `Other` | anything else, in the server's words | no |
 *
 * @category models
 * @since 0.1.0
 */
export const DatabaseReason = Schema.TaggedUnion({
  LockTimeout: {},
  Deadlock: {},
  Serialization: {},
  StatementTimeout: {},
  PoolTimeout: {},
  ConnectionLost: { detail: Schema.String },
  CommitUnknown: { detail: Schema.String },
  MissingTable: { what: Schema.String },
  PermissionDenied: { what: Schema.String },
  DiskFull: { detail: Schema.String },
  NestedTransaction: {},
  Undecodable: { detail: Schema.String },
  Other: { detail: Schema.String }
})
/** @category models @since 0.1.0 */
export type DatabaseReason = typeof DatabaseReason.Type

const sentence = (reason: DatabaseReason): string =>
  DatabaseReason.match(reason, {
    LockTimeout: () => "a lock was not granted in time",
    Deadlock: () => "the server ended a deadlock",
    Serialization: () => "another transaction came first",
    StatementTimeout: () => "the statement took too long",
    PoolTimeout: () => "no connection of the pool became free in time",
    ConnectionLost: ({ detail }) => `the connection was lost (${detail})`,
    CommitUnknown: ({ detail }) => `the commit was not answered and may have happened (${detail})`,
    MissingTable: ({ what }) => `a table or column is missing: ${what}`,
    PermissionDenied: ({ what }) => `a right is missing: ${what}`,
    DiskFull: ({ detail }) => `the database has no room (${detail})`,
    NestedTransaction: () => "it must not be called inside a transaction of the caller",
    Undecodable: ({ detail }) => `a row could not be understood: ${detail}`,
    Other: ({ detail }) => detail
  })

const retryableTags: ReadonlySet<DatabaseReason["_tag"]> = new Set<DatabaseReason["_tag"]>([
  "LockTimeout",
  "Deadlock",
  "Serialization",
  "StatementTimeout",
  "PoolTimeout",
  "ConnectionLost"
])

/**
 * A failure of the database. `retryable` is true only where nothing can have been committed.
 *
 * @category errors
 * @since 0.1.0
 */
export class DatabaseError extends Schema.TaggedError<DatabaseError>()("DatabaseError", {
  reason: DatabaseReason,
  retryable: Schema.Boolean,
  operation: Schema.String
}) {
  /** One line for an operator. */
  override get message(): string {
    return `${this.operation}: ${sentence(this.reason)}`
  }
}

/**
 * A service was called inside a transaction that the caller opened. Reclaim takes locks and commits at
 * points of its own, so it must own its transactions.
 *
 * @category errors
 * @since 0.1.0
 */
export class NestedTransaction extends Schema.TaggedError<NestedTransaction>()("NestedTransaction", {
  operation: Schema.String
}) {
  /** One line for an operator. */
  override get message(): string {
    return `${this.operation}: it must not be called inside a transaction of the caller`
  }
}

/**
 * Makes an error whose `retryable` follows from its reason.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (reason: DatabaseReason, operation: string): DatabaseError =>
  new DatabaseError({ reason, retryable: retryableTags.has(reason._tag), operation })

/**
 * True for a failure after which the next pass may do better: one that can be tried again, or a commit that
 * may have happened, which the next pass finds out.
 *
 * @category queries
 * @since 0.1.0
 */
export const isPassing = (error: DatabaseError): boolean =>
  error.retryable || error.reason._tag === "CommitUnknown"

/**
 * The SQLSTATE that the server sent, if it sent one.
 *
 * @category queries
 * @since 0.1.0
 */
export const sqlState = (error: SqlError): string | undefined => {
  const cause = error.reason.cause
  return Predicate.hasProperty(cause, "code") &&
    typeof cause.code === "string" &&
    // None begins with E, unlike the codes of sockets: EPIPE is no answer.
    /^(?!E)[0-9A-Z]{5}$/.test(cause.code)
    ? cause.code
    : undefined
}

/** What the server said; the driver's own message is only "Query failed". */
const detailOf = (error: SqlError): string => {
  const cause = error.reason.cause
  return Predicate.hasProperty(cause, "message") && typeof cause.message === "string" && cause.message !== ""
    ? cause.message
    : error.message
}

// 57P01-03 and 57P05: the server ends or starts; 25P03, 25P04: it ended a transaction that was idle or old;
// 53300: it accepts no connection.
const lostStates = /^(08...|57P0[1235]|25P0[34]|53300)$/

const reasonOf = (error: SqlError): DatabaseReason => {
  const detail = detailOf(error)
  const state = sqlState(error)
  if (state !== undefined) {
    if (lostStates.test(state)) return { _tag: "ConnectionLost", detail }
    switch (state) {
      case "42P01":
      case "42703":
      case "3F000":
        return { _tag: "MissingTable", what: detail }
      case "42501":
        return { _tag: "PermissionDenied", what: detail }
      // Of the class only this one is the disk's. Memory (53200) can be short because of one huge value.
      case "53100":
        return { _tag: "DiskFull", detail }
    }
  }
  switch (error.reason._tag) {
    case "LockTimeoutError":
      return { _tag: "LockTimeout" }
    case "DeadlockError":
      return { _tag: "Deadlock" }
    case "SerializationError":
      return { _tag: "Serialization" }
    case "StatementTimeoutError":
      return { _tag: "StatementTimeout" }
    case "ConnectionError":
      return { _tag: "ConnectionLost", detail }
    default:
      return { _tag: "Other", detail }
  }
}

/**
 * Classifies a failure of the driver. The operation is what Reclaim was doing, for the operator's line.
 *
 * @category constructors
 * @since 0.1.0
 */
export const fromSqlError = (error: SqlError, operation: string): DatabaseError =>
  make(reasonOf(error), operation)

/**
 * The clock that waits for the database are measured with. It is the process's own even where a test
 * moves time, because the server's answers take real time; a test of the waits themselves provides another.
 *
 * @category references
 * @since 0.1.0
 */
export const WaitClock: Context.Reference<Clock.Clock> = Context.Reference("@reclaim/db/WaitClock", {
  defaultValue: () => Context.get(Context.empty(), Clock.Clock)
})

// 3 tries in all, 50 and 100 ms apart: a deadlock or a restart of a pooler is over by then, and a caller
// that holds nothing loses little; what fails three times is reported.
const tries = 3

/**
 * Tries again after a retryable failure, at most twice. The effect must be one that may run again: it is
 * never a body that touched files.
 *
 * @category error handling
 * @since 0.1.0
 */
export const retry = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> => {
  const attempt = (number: number): Effect.Effect<A, E, R> =>
    Effect.catchIf(
      self,
      (error) => number < tries && Schema.is(DatabaseError)(error) && error.retryable,
      () =>
        Effect.flatMap(WaitClock, (clock) =>
          Effect.andThen(
            Effect.provideService(Effect.sleep(`${50 * number} millis`), Clock.Clock, clock),
            attempt(number + 1)
          )
        )
    )
  return attempt(1)
}
