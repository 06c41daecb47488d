/**
 * Runs the transactions of Reclaim: on a connection of their own, under locks, with a bound on every wait.
 *
 * **Details**
 *
 * `withTransaction` of the driver cannot be used: its COMMIT and ROLLBACK wait for ever when the server
 * stops answering, and a lost connection is a defect there. Here BEGIN and COMMIT are statements on a
 * reserved connection, each statement is awaited under a bound, and a COMMIT without an answer is
 * `CommitUnknown`. A connection that owes an answer is closed, never given back to the pool.
 *
 * Isolation is READ COMMITTED, always: a lock in one statement and the facts in later ones see what was
 * committed while the lock was awaited; one statement, or REPEATABLE READ, would not.
 *
 * **Gotchas**
 *
 * Inside a body, plain statements of the same `SqlClient` join the transaction; its `withTransaction` and
 * the streams of its statements do not work there. PostgreSQL cannot fence a `rename(2)`: a process that stands still for longer than its
 * transaction lives still renames when it goes on. `Tx.sinceLastAnswer` makes that window small, not zero.
 *
 * @since 0.1.0
 */
import { FaultPoint, Ids } from "@reclaim/core"
import {
  Clock,
  Context,
  Duration,
  Effect,
  Exit,
  Layer,
  Metric,
  Option,
  Predicate,
  Schema,
  Scope
} from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import {
  DatabaseError,
  NestedTransaction,
  WaitClock,
  fromSqlError,
  make as makeError,
  retry,
  sqlState
} from "./DatabaseError.ts"
import * as Bounded from "./internal/boundedConnection.ts"
import { catchDefects } from "./internal/catchDefects.ts"
import { type LockSpace, lockKey } from "./LockKey.ts"

const afterBegin = FaultPoint.make("transaction.afterBegin")
const afterLock = FaultPoint.make("transaction.afterLock")
const beforeCommit = FaultPoint.make("transaction.beforeCommit")
const afterCommit = FaultPoint.make("transaction.afterCommit")
const commitUnknown = FaultPoint.make("transaction.commitUnknown")

/**
 * Somebody else holds the lock of the company. Not an error of the database: the company is skipped.
 *
 * @category errors
 * @since 0.1.0
 */
export class CompanyBusy extends Schema.TaggedError<CompanyBusy>()("CompanyBusy", {
  companyId: Ids.CompanyId
}) {
  /** One line for an operator. */
  override get message(): string {
    return `another process holds the lock of company ${this.companyId}`
  }
}

/**
 * What a body knows about the transaction it runs in.
 *
 * @category models
 * @since 0.1.0
 */
export interface Tx {
  /**
   * The time since the last statement that was answered on this connection was sent, on the monotonic
   * clock. What relies on the lock being held must check it: the lock was held then, not necessarily now.
   */
  readonly sinceLastAnswer: Effect.Effect<Duration.Duration>
}

/**
 * The bounds of a transaction.
 *
 * | bound | default | on what |
 * |---|---|---|
 * | `acquireTimeout` | 30 seconds | a connection of the pool |
 * | `lockTimeout` | 5 seconds | each lock (`lock_timeout`) |
 * | `statementTimeout` | 30 seconds | each statement (`statement_timeout`) |
 * | `idleTimeout` | 30 seconds | a transaction that sends nothing (`idle_in_transaction_session_timeout`) |
 * | `answerTimeout` | 35 seconds | each answer, by this process: a stopped server enforces nothing |
 * | `commitTimeout` | 10 seconds | the answer to COMMIT |
 * | `rollbackTimeout` | 5 seconds | the answer to ROLLBACK |
 *
 * @category models
 * @since 0.1.0
 */
export interface Options {
  readonly acquireTimeout?: Duration.Input
  readonly lockTimeout?: Duration.Input
  readonly statementTimeout?: Duration.Input
  readonly idleTimeout?: Duration.Input
  readonly answerTimeout?: Duration.Input
  readonly commitTimeout?: Duration.Input
  readonly rollbackTimeout?: Duration.Input
  /** What is being done, for errors and spans. */
  readonly operation?: string
}

/** @category defaults @since 0.1.0 */
export const defaults = {
  acquireTimeout: Duration.seconds(30),
  // 5 seconds: the specification's bound on waiting for a company.
  lockTimeout: Duration.seconds(5),
  statementTimeout: Duration.seconds(30),
  // 30 seconds: a process that stands still must lose its lock some day; the rename is refused after 5.
  idleTimeout: Duration.seconds(30),
  // Longer than statement_timeout, so that a live server answers first.
  answerTimeout: Duration.seconds(35),
  commitTimeout: Duration.seconds(10),
  rollbackTimeout: Duration.seconds(5),
  operation: "transaction"
} as const

/**
 * The transactions of Reclaim.
 *
 * @category services
 * @since 0.1.0
 */
export class Transactions extends Context.Service<
  Transactions,
  {
    /**
     * Runs the body in a transaction and commits it. A body that fails or is interrupted is rolled back.
     * Fails with `NestedTransaction` inside any open transaction, with `DatabaseError` `CommitUnknown` when
     * COMMIT was not answered.
     */
    readonly run: <A, E, R>(
      body: (tx: Tx) => Effect.Effect<A, E, R>,
      options?: Options
    ) => Effect.Effect<A, E | DatabaseError | NestedTransaction, R>
    /**
     * Joins the transaction of Reclaim that is open, or runs in a short one of its own, which is tried again
     * after a retryable failure. Inside a transaction of the caller it fails with a `DatabaseError` whose
     * reason is `NestedTransaction`. The effect must be one that may run again; the options matter only to a
     * transaction of its own.
     */
    readonly join: <A, E, R>(
      operation: string,
      effect: Effect.Effect<A, E, R>,
      options?: Omit<Options, "operation">
    ) => Effect.Effect<A, E | DatabaseError, R>
    /**
     * Runs the body under the shared lock of the company, awaited for `lockTimeout`. Those who prepare do
     * not wait for each other; while one of them is inside, no copy is moved.
     */
    readonly companyShared: <A, E, R>(
      companyId: Ids.CompanyId,
      body: (tx: Tx) => Effect.Effect<A, E, R>,
      options?: Options
    ) => Effect.Effect<A, E | DatabaseError | NestedTransaction, R>
    /**
     * Runs the body under the exclusive lock of the company. The lock is tried once and never queued for: a
     * waiting exclusive lock would hold up every later preparation.
     */
    readonly companyExclusive: <A, E, R>(
      companyId: Ids.CompanyId,
      body: (tx: Tx) => Effect.Effect<A, E, R>,
      options?: Options
    ) => Effect.Effect<A, E | DatabaseError | NestedTransaction | CompanyBusy, R>
    /**
     * Like `companyExclusive`, but tries again, in a new transaction each time, until the duration is over.
     * The body runs at most once.
     */
    readonly companyExclusiveWithin: <A, E, R>(
      companyId: Ids.CompanyId,
      duration: Duration.Input,
      body: (tx: Tx) => Effect.Effect<A, E, R>,
      options?: Options
    ) => Effect.Effect<A, E | DatabaseError | NestedTransaction | CompanyBusy, R>
    /** Runs the body under the lock for deleting the company's trash, tried once. */
    readonly trash: <A, E, R>(
      companyId: Ids.CompanyId,
      body: (tx: Tx) => Effect.Effect<A, E, R>,
      options?: Options
    ) => Effect.Effect<A, E | DatabaseError | NestedTransaction | CompanyBusy, R>
  }
>()("@reclaim/db/Transactions") {}

// 1 ms to 16 s: a lock is free, or held for milliseconds; every wait ends within seconds.
const boundaries = Metric.exponentialBoundaries({ start: 0.001, factor: 4, count: 8 })
const waitDuration = Metric.histogram("reclaim.lock.wait.duration", {
  description: "From asking for a lock until it is granted or refused",
  boundaries,
  attributes: { unit: "seconds" }
})
const holdDuration = Metric.histogram("reclaim.lock.hold.duration", {
  description: "From being granted a lock until its transaction has ended",
  boundaries,
  attributes: { unit: "seconds" }
})

/** The transactions that this module opened, to tell them from a caller's. */
const own = new WeakSet<object>()

const milliseconds = (duration: Duration.Duration): string =>
  `${Math.max(1, Math.round(Duration.toMillis(duration)))}ms`

/** The server says ROLLBACK when it is told to commit a transaction that had failed. */
const wasRolledBack = (result: unknown): boolean =>
  Predicate.hasProperty(result, "command") && result.command === "ROLLBACK"

// 08xxx, 57P0x, 40003: the connection or the server ended, so the commit may have happened; any other
// state is an answer.
const isAnswer = (error: SqlError): boolean => {
  const state = sqlState(error)
  return state !== undefined && !/^(08...|57P..|40003)$/.test(state)
}

// 50 milliseconds at first, 200 at most: a preparation holds the lock for a few milliseconds.
const retryDelay = (attempt: number): Duration.Duration => Duration.millis(Math.min(50 * attempt, 200))

const makeTransactions = (client: SqlClient.SqlClient, settings: Options): Transactions["Service"] => {
  const sql = client.withoutTransforms()

  const bounds = (options: Options | undefined) => {
    const merged = { ...defaults, ...settings, ...options }
    return {
      operation: merged.operation,
      acquire: Duration.fromInputUnsafe(merged.acquireTimeout),
      lock: Duration.fromInputUnsafe(merged.lockTimeout),
      statement: Duration.fromInputUnsafe(merged.statementTimeout),
      idle: Duration.fromInputUnsafe(merged.idleTimeout),
      answer: Duration.fromInputUnsafe(merged.answerTimeout),
      commit: Duration.fromInputUnsafe(merged.commitTimeout),
      rollback: Duration.fromInputUnsafe(merged.rollbackTimeout)
    }
  }

  const run = Effect.fnUntraced(function* <A, E, R>(
    body: (tx: Tx) => Effect.Effect<A, E, R>,
    options?: Options
  ): Effect.fn.Return<A, E | DatabaseError | NestedTransaction, R> {
    const bound = bounds(options)
    const { operation } = bound
    if (Option.isSome(yield* Effect.serviceOption(sql.transactionService))) {
      return yield* new NestedTransaction({ operation })
    }
    const clock = yield* WaitClock
    const failed = (error: SqlError) => fromSqlError(error, operation)

    const commit = Effect.fnUntraced(function* (
      connection: Bounded.BoundedConnection,
      raw: typeof connection.connection
    ) {
      if (connection.isLost()) {
        return yield* makeError({ _tag: "ConnectionLost", detail: "before COMMIT was sent" }, operation)
      }
      const answer = yield* connection.send(raw.executeRaw("COMMIT", []), bound.commit)
      const unknown = (detail: string) =>
        Effect.andThen(commitUnknown, makeError({ _tag: "CommitUnknown", detail }, operation))
      if (Option.isNone(answer)) return yield* unknown("no answer in time")
      if (Exit.isSuccess(answer.value)) {
        if (wasRolledBack(answer.value.value)) {
          return yield* makeError(
            { _tag: "Other", detail: "a statement had failed, so it was rolled back" },
            operation
          )
        }
        return yield* afterCommit
      }
      const error = Exit.findErrorOption(answer.value)
      if (Option.isSome(error) && isAnswer(error.value)) return yield* failed(error.value)
      return yield* unknown(Option.isSome(error) ? failed(error.value).message : "interrupted")
    })

    return yield* Effect.uninterruptibleMask(
      Effect.fnUntraced(function* (restore) {
        const scope = yield* Scope.make()
        const protocol = Effect.gen(function* () {
          const acquired = yield* restore(
            Scope.provide(sql.reserve, scope).pipe(
              Effect.timeoutOption(bound.acquire),
              Effect.provideService(Clock.Clock, clock),
              Effect.mapError(failed)
            )
          )
          if (Option.isNone(acquired)) return yield* makeError({ _tag: "PoolTimeout" }, operation)
          const raw = acquired.value
          const connection = Bounded.make(raw, clock, bound.answer)
          const level = [connection.connection, 0] as const
          own.add(level)

          const work = Effect.gen(function* () {
            yield* connection.connection.executeRaw("BEGIN ISOLATION LEVEL READ COMMITTED", [])
            // Inside the transaction, because poolers refuse start-up parameters; local, so that the
            // connection goes back to the host as it was. Without row_security the server refuses a statement
            // whose rows a policy would hide: hidden pins must not read as none.
            yield* connection.connection.executeRaw(
              "select set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true), " +
                "set_config('idle_in_transaction_session_timeout', $3, true), " +
                "set_config('row_security', 'off', true)",
              [milliseconds(bound.lock), milliseconds(bound.statement), milliseconds(bound.idle)]
            )
          }).pipe(
            Effect.mapError(failed),
            Effect.andThen(afterBegin),
            Effect.andThen(Effect.suspend(() => body({ sinceLastAnswer: connection.sinceLastAnswer }))),
            Effect.provideService(sql.transactionService, level),
            catchDefects(operation)
          )

          // A lost connection gets its ROLLBACK too, unawaited: if the missing answer came in this very
          // moment, the connection would else go back to the pool inside the transaction.
          const rollback = Effect.suspend(() =>
            connection.send(
              raw.executeRaw("ROLLBACK", []),
              connection.isLost() ? Duration.zero : bound.rollback
            )
          )

          const exit = yield* Effect.exit(restore(work))
          if (Exit.isFailure(exit)) {
            yield* rollback
            return yield* exit
          }
          yield* Effect.onError(beforeCommit, () => rollback)
          yield* commit(connection, raw)
          return exit.value
        })
        // Closing the scope gives the connection back, or ends it when a statement is still unanswered.
        return yield* Effect.onExit(protocol, (exit) => Scope.close(scope, exit))
      })
    ).pipe(Effect.withSpan(operation))
  })

  const join = <A, E, R>(
    operation: string,
    effect: Effect.Effect<A, E, R>,
    options?: Omit<Options, "operation">
  ): Effect.Effect<A, E | DatabaseError, R> =>
    Effect.flatMap(
      Effect.serviceOption(sql.transactionService),
      (open): Effect.Effect<A, E | DatabaseError, R> => {
        if (Option.isSome(open)) {
          return own.has(open.value)
            ? effect
            : Effect.fail(makeError({ _tag: "NestedTransaction" }, operation))
        }
        return retry(run(() => effect, { ...options, operation })).pipe(
          Effect.catchIf(
            (error): error is NestedTransaction => Schema.is(NestedTransaction)(error),
            () => Effect.fail(makeError({ _tag: "NestedTransaction" }, operation))
          )
        )
      }
    )

  /** Runs the body once the lock is granted, and measures the wait for it and the time it is held. */
  const underLock = Effect.fnUntraced(function* <A, E, R, E2>(
    lock: string,
    ask: (operation: string) => Effect.Effect<void, E2 | DatabaseError>,
    body: (tx: Tx) => Effect.Effect<A, E, R>,
    options: Options | undefined
  ): Effect.fn.Return<A, E | E2 | DatabaseError | NestedTransaction, R> {
    const clock = yield* WaitClock
    const operation = options?.operation ?? `${lock} lock`
    const since = (metric: typeof waitDuration, start: bigint) =>
      Metric.update(
        Metric.withAttributes(metric, { "reclaim.lock": lock }),
        Number(clock.monotonicTimeNanosUnsafe() - start) / 1e9
      )
    let grantedAt: bigint | undefined
    return yield* run(
      Effect.fnUntraced(function* (tx: Tx) {
        const askedAt = clock.monotonicTimeNanosUnsafe()
        yield* Effect.onExit(ask(operation), () => since(waitDuration, askedAt))
        grantedAt = clock.monotonicTimeNanosUnsafe()
        yield* afterLock
        return yield* body(tx)
      }),
      { ...options, operation }
    ).pipe(
      Effect.ensuring(
        Effect.suspend(() => (grantedAt === undefined ? Effect.void : since(holdDuration, grantedAt)))
      )
    )
  })

  const tried =
    (lock: string, space: LockSpace) =>
    <A, E, R>(companyId: Ids.CompanyId, body: (tx: Tx) => Effect.Effect<A, E, R>, options?: Options) =>
      underLock(
        lock,
        Effect.fnUntraced(function* (operation) {
          const rows = yield* sql<{ readonly locked: boolean }>`
            select pg_try_advisory_xact_lock(${lockKey(space, companyId)}::int8) as locked`.pipe(
            Effect.mapError((error) => fromSqlError(error, operation))
          )
          // Compared with true: an answer that is not understood is no lock.
          if (rows[0]?.locked !== true) return yield* new CompanyBusy({ companyId })
        }),
        body,
        options
      )

  const companyExclusive = tried("exclusive", "company")

  return Transactions.of({
    run,
    join,
    companyShared: (companyId, body, options) =>
      underLock(
        "shared",
        (operation) =>
          sql`select pg_advisory_xact_lock_shared(${lockKey("company", companyId)}::int8)`.pipe(
            Effect.mapError((error) => fromSqlError(error, operation))
          ),
        body,
        options
      ),
    companyExclusive,
    companyExclusiveWithin: Effect.fnUntraced(function* (companyId, duration, body, options) {
      const clock = yield* WaitClock
      const deadline =
        clock.monotonicTimeNanosUnsafe() +
        BigInt(Math.round(Duration.toMillis(Duration.fromInputUnsafe(duration)))) * 1_000_000n
      let entered = false
      for (let attempt = 1; ; attempt++) {
        const result = yield* Effect.result(
          companyExclusive(
            companyId,
            (tx) => {
              entered = true
              return body(tx)
            },
            options
          )
        )
        if (result._tag === "Success") return result.success
        // A body may fail with CompanyBusy of its own; only the lock's is tried again.
        if (entered || !Schema.is(CompanyBusy)(result.failure)) return yield* Effect.fromResult(result)
        const delay = retryDelay(attempt)
        if (clock.monotonicTimeNanosUnsafe() + BigInt(Duration.toMillis(delay)) * 1_000_000n >= deadline) {
          return yield* Effect.fromResult(result)
        }
        yield* Effect.provideService(Effect.sleep(delay), Clock.Clock, clock)
      }
    }),
    trash: tried("trash", "trash")
  })
}

/**
 * Transactions with bounds of the host's choice.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerWith = (
  options: Omit<Options, "operation">
): Layer.Layer<Transactions, never, SqlClient.SqlClient> =>
  Layer.effect(
    Transactions,
    Effect.map(SqlClient.SqlClient, (client) => makeTransactions(client, options))
  )

/**
 * Transactions with the default bounds, on the host's client.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<Transactions, never, SqlClient.SqlClient> = layerWith({})
