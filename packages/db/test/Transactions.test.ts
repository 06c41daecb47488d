import { describe, expect, layer } from "@effect/vitest"
import { FaultPoint, Ids } from "@reclaim/core"
import { Cause, Clock, Deferred, Duration, Effect, Exit, Fiber, Option, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { ConnectionError, SqlError } from "effect/sql/SqlError"
import { TestClock } from "effect/testing"
import { DatabaseError, LockKey, Transactions } from "../src/index.ts"
import { pid } from "./support/backend.ts"
import { bare, eventually, lockWaiters, openTransactions } from "./support/database.ts"

const company = Ids.CompanyId.make("0b1e3d5c-7a9f-4c2e-8d1b-6f3a5e7c9d20")
const other = Ids.CompanyId.make("aaaaaaaa-7a9f-4c2e-8d1b-6f3a5e7c9d20")

const isDatabaseError = (error: unknown): error is DatabaseError.DatabaseError =>
  error instanceof DatabaseError.DatabaseError

const reason = (error: unknown) => (isDatabaseError(error) ? error.reason._tag : "no DatabaseError")

const advisoryLocks = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql`
    select 1 from pg_locks where locktype = 'advisory'
      and database = (select oid from pg_database where datname = current_database())`
  return rows.length
})

const table = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`create table if not exists marks (name text)`
  yield* sql`truncate marks`
})

const mark = (name: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) => Effect.asVoid(sql`insert into marks values (${name})`))

const marks = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(sql<{ readonly name: string }>`select name from marks order by name`, (rows) =>
    rows.map((row) => row.name)
  )
)

/** Runs an effect under a lock until the gate opens; the first part tells when it is inside. */
const inside = <E, R>(enter: (body: () => Effect.Effect<void>) => Effect.Effect<void, E, R>) =>
  Effect.gen(function* () {
    const entered = yield* Deferred.make<void>()
    const gate = yield* Deferred.make<void>()
    const fiber = yield* Effect.forkChild(
      enter(() => Effect.andThen(Deferred.succeed(entered, undefined), Deferred.await(gate)))
    )
    yield* Effect.raceFirst(Deferred.await(entered), Effect.andThen(Fiber.join(fiber), Effect.void))
    return { fiber, leave: Effect.andThen(Deferred.succeed(gate, undefined), Fiber.join(fiber)) }
  })

layer(bare(), { excludeTestServices: true })("Transactions", (it) => {
  describe("locks", () => {
    it.effect("[S-06] preparations of one company do not wait for each other", () =>
      Effect.gen(function* () {
        const { companyShared } = yield* Transactions.Transactions
        const first = yield* inside((body) => companyShared(company, body))
        yield* companyShared(company, () => Effect.void)
        yield* first.leave
      })
    )

    it.effect("[S-06] an exclusive lock is tried, never queued for, and later shared ones do not wait", () =>
      Effect.gen(function* () {
        const { companyExclusive, companyShared } = yield* Transactions.Transactions
        const preparing = yield* inside((body) => companyShared(company, body))
        const busy = yield* Effect.flip(companyExclusive(company, () => Effect.die("it was not locked")))
        expect(busy._tag).toBe("CompanyBusy")
        expect(yield* lockWaiters).toBe(0)
        yield* companyShared(company, () => Effect.void, { lockTimeout: "100 millis" })
        yield* preparing.leave
        expect(yield* companyExclusive(company, () => Effect.succeed("mine"))).toBe("mine")
      })
    )

    it.effect("[S-06] a shared lock excludes a move and waits no longer than its bound", () =>
      Effect.gen(function* () {
        const { companyExclusive, companyShared } = yield* Transactions.Transactions
        const moving = yield* inside((body) => companyExclusive(company, body))
        const error = yield* Effect.flip(
          companyShared(company, () => Effect.void, { lockTimeout: "100 millis" })
        )
        expect(reason(error)).toBe("LockTimeout")
        expect(isDatabaseError(error) && error.retryable).toBe(true)
        yield* moving.leave
      })
    )

    it.effect("[D-01] companies and kinds of lock do not meet", () =>
      Effect.gen(function* () {
        const { companyExclusive, trash } = yield* Transactions.Transactions
        const moving = yield* inside((body) => companyExclusive(company, body))
        yield* companyExclusive(other, () => Effect.void)
        yield* trash(company, () => Effect.void)
        const deleting = yield* inside((body) => trash(company, body))
        expect((yield* Effect.flip(trash(company, () => Effect.void)))._tag).toBe("CompanyBusy")
        yield* deleting.leave
        yield* moving.leave
      })
    )

    it.effect("[D-01] the lock is the documented key, so that every version of the library meets it", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { companyShared } = yield* Transactions.Transactions
        const preparing = yield* inside((body) => companyShared(company, body))
        const key = LockKey.lockKey("company", company)
        const rows = yield* sql<{ readonly free: boolean }>`
          select pg_try_advisory_xact_lock(${key}::int8) as free`
        expect(rows[0]?.free).toBe(false)
        yield* preparing.leave
      })
    )

    it.effect("[S-21] facts read after the lock see what was committed while it was awaited", () =>
      Effect.gen(function* () {
        yield* table
        const { companyExclusive, companyShared } = yield* Transactions.Transactions
        const entered = yield* Deferred.make<void>()
        const gate = yield* Deferred.make<void>()
        const writer = yield* Effect.forkChild(
          companyExclusive(company, () =>
            mark("pin").pipe(
              Effect.andThen(Deferred.succeed(entered, undefined)),
              Effect.andThen(Deferred.await(gate))
            )
          )
        )
        yield* Deferred.await(entered)
        const reader = yield* Effect.forkChild(companyShared(company, () => marks))
        yield* eventually(Effect.map(lockWaiters, (count) => count === 1))
        yield* Deferred.succeed(gate, undefined)
        yield* Fiber.join(writer)
        expect(yield* Fiber.join(reader)).toEqual(["pin"])
      })
    )

    it.effect("[S-03] the exclusive lock is tried again until the time is over", () =>
      Effect.gen(function* () {
        const { companyExclusiveWithin, companyShared } = yield* Transactions.Transactions
        const preparing = yield* inside((body) => companyShared(company, body))
        let runs = 0
        const body = () => Effect.sync(() => ++runs)
        const busy = yield* Effect.flip(companyExclusiveWithin(company, "200 millis", body))
        expect(busy._tag).toBe("CompanyBusy")
        expect(runs).toBe(0)
        const patient = yield* Effect.forkChild(companyExclusiveWithin(company, "20 seconds", body))
        yield* preparing.leave
        expect(yield* Fiber.join(patient)).toBe(1)
      })
    )

    it.effect("[S-03] a body that met a busy company itself is not run again", () =>
      Effect.gen(function* () {
        const { companyExclusiveWithin } = yield* Transactions.Transactions
        let runs = 0
        const error = yield* Effect.flip(
          companyExclusiveWithin(company, "5 seconds", () => {
            runs++
            return Effect.fail(new Transactions.CompanyBusy({ companyId: other }))
          })
        )
        expect(error).toEqual(new Transactions.CompanyBusy({ companyId: other }))
        expect(runs).toBe(1)
      })
    )
  })

  describe("the transaction", () => {
    it.effect("[D-02] the bounds hold inside and are gone afterwards", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { run } = yield* Transactions.Transactions
        const settings = sql<{ readonly bounds: string }>`
          select concat_ws(' ', current_setting('lock_timeout'), current_setting('statement_timeout'),
            current_setting('idle_in_transaction_session_timeout'), current_setting('transaction_isolation')) as bounds`
        const [within] = yield* run(() => settings)
        expect(within?.bounds).toBe("5s 30s 30s read committed")
        const [after] = yield* settings
        expect(after?.bounds).toBe("0 0 0 read committed")
      })
    )

    it.effect("[D-03] it refuses inside a transaction of the caller", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { companyExclusive, companyShared, join, run, trash } = yield* Transactions.Transactions
        const body = () => Effect.die("it ran")
        for (const attempt of [
          run(body),
          companyShared(company, body),
          companyExclusive(company, body),
          trash(company, body)
        ]) {
          expect((yield* Effect.flip(sql.withTransaction(attempt)))._tag).toBe("NestedTransaction")
          expect((yield* Effect.flip(run(() => attempt)))._tag).toBe("NestedTransaction")
        }
        const joined = yield* Effect.flip(sql.withTransaction(join("reading", body())))
        expect(reason(joined)).toBe("NestedTransaction")
      })
    )

    it.effect("[D-03] what joins runs on the connection of the open transaction", () =>
      Effect.gen(function* () {
        const { join, run } = yield* Transactions.Transactions
        const [outer, inner] = yield* run(() => Effect.all([pid, join("reading", pid)]))
        expect(inner).toBe(outer)
      })
    )

    it.effect("[D-02] a stream of rows, whose waits have no bound, is refused", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { run } = yield* Transactions.Transactions
        yield* run(() =>
          Effect.gen(function* () {
            const error = yield* Effect.flip(Stream.runCollect(sql`select 1`.stream))
            expect(DatabaseError.fromSqlError(error, "test").message).toContain("not supported")
            expect((yield* sql`select 1`).length).toBe(1)
          })
        )
      })
    )

    it.effect("[D-02] what runs on its own is tried again after a failure that passes", () =>
      Effect.gen(function* () {
        const { join } = yield* Transactions.Transactions
        let tries = 0
        const flaky = Effect.suspend(() =>
          ++tries < 3 ? Effect.fail(DatabaseError.make({ _tag: "Deadlock" }, "test")) : Effect.succeed("done")
        )
        expect(yield* join("reading", flaky)).toBe("done")
        tries = -10
        expect(reason(yield* Effect.flip(join("reading", flaky)))).toBe("Deadlock")
        expect(tries).toBe(-7)
      })
    )

    it.effect("[D-02] a failed statement that the body swallowed is no success", () =>
      Effect.gen(function* () {
        yield* table
        const sql = yield* SqlClient.SqlClient
        const { run } = yield* Transactions.Transactions
        const error = yield* Effect.flip(
          run(() => Effect.andThen(mark("a"), Effect.ignore(sql`select 1 / 0`)))
        )
        expect(reason(error)).toBe("Other")
        expect(yield* marks).toEqual([])
      })
    )

    it.effect("[D-03] failure, death and interruption of the body roll back and leave nothing open", () =>
      Effect.gen(function* () {
        yield* table
        const { companyShared } = yield* Transactions.Transactions
        for (const end of [Effect.fail("no"), Effect.die("no"), Effect.interrupt]) {
          const exit = yield* Effect.exit(companyShared(company, () => Effect.andThen(mark("a"), end)))
          expect(Exit.isFailure(exit)).toBe(true)
        }
        expect(yield* marks).toEqual([])
        expect(yield* openTransactions).toBe(0)
        expect(yield* advisoryLocks).toBe(0)
      })
    )

    it.effect("[S-23] interruption while a statement runs or a lock is awaited leaves nothing open", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { companyExclusive, companyShared } = yield* Transactions.Transactions
        const entered = yield* Deferred.make<void>()
        const sleeping = yield* Effect.forkChild(
          companyExclusive(company, () =>
            Effect.andThen(Deferred.succeed(entered, undefined), sql`select pg_sleep(60)`)
          )
        )
        yield* Deferred.await(entered)
        const queued = yield* Effect.forkChild(companyShared(company, () => Effect.void))
        yield* eventually(Effect.map(lockWaiters, (count) => count === 1))
        yield* Fiber.interrupt(queued)
        expect(yield* lockWaiters).toBe(0)
        yield* Fiber.interrupt(sleeping)
        expect(yield* openTransactions).toBe(0)
        expect(yield* advisoryLocks).toBe(0)
      })
    )

    it.effect("[D-02] a connection that ends during the body is a failure that may be tried again", () =>
      Effect.gen(function* () {
        yield* table
        const sql = yield* SqlClient.SqlClient
        const { run } = yield* Transactions.Transactions
        const ended = yield* Deferred.make<void>()
        const backend = yield* Deferred.make<number>()
        const victim = yield* Effect.forkChild(
          Effect.flip(
            run(() =>
              mark("a").pipe(
                Effect.andThen(Effect.flatMap(pid, (id) => Deferred.succeed(backend, id))),
                Effect.andThen(Deferred.await(ended)),
                Effect.andThen(mark("b")),
                Effect.mapError((error) => DatabaseError.fromSqlError(error, "marking"))
              )
            )
          )
        )
        yield* sql`select pg_terminate_backend(${yield* Deferred.await(backend)})`
        yield* Deferred.succeed(ended, undefined)
        const error = yield* Fiber.join(victim)
        expect(reason(error)).toBe("ConnectionLost")
        expect(yield* marks).toEqual([])
      })
    )

    it.effect("[D-02] a lost connection that the driver reports as a defect is a failure", () =>
      Effect.gen(function* () {
        const { run } = yield* Transactions.Transactions
        const lost = new SqlError({
          reason: new ConnectionError({ cause: new Error("gone"), message: "gone" })
        })
        expect(reason(yield* Effect.flip(run(() => Effect.die(lost))))).toBe("ConnectionLost")
        expect(Exit.isFailure(yield* Effect.exit(run(() => Effect.die("a bug"))))).toBe(true)
      })
    )

    it.effect("[S-21] a server that ends the connection before it answers COMMIT leaves it unknown", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { run } = yield* Transactions.Transactions
        let backend = 0
        const kill = (point: string) =>
          point === "transaction.beforeCommit"
            ? Effect.asVoid(Effect.orDie(sql`select pg_terminate_backend(${backend})`))
            : Effect.void
        const error = yield* Effect.flip(
          run(() => Effect.map(pid, (id) => void (backend = id))).pipe(
            Effect.provideService(FaultPoint.FaultHandler, kill)
          )
        )
        expect(reason(error)).toBe("CommitUnknown")
        expect(isDatabaseError(error) && error.retryable).toBe(false)
      })
    )

    it.effect("[S-21] a transaction that stands still for too long is ended by the server", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { companyExclusive, run } = yield* Transactions.Transactions
        const error = yield* Effect.flip(
          companyExclusive(
            company,
            () =>
              Effect.gen(function* () {
                const id = yield* pid
                yield* eventually(
                  // On another connection: this one must stay idle.
                  Effect.map(
                    Effect.provideService(
                      sql`select 1 from pg_stat_activity where pid = ${id}`,
                      sql.transactionService,
                      yield* Effect.map(sql.reserve, (connection) => [connection, 0] as const)
                    ),
                    (rows) => rows.length === 0
                  )
                )
                yield* mark("late")
              }).pipe(
                Effect.scoped,
                Effect.mapError((error) => DatabaseError.fromSqlError(error, "late"))
              ),
            { idleTimeout: "100 millis" }
          )
        )
        expect(reason(error)).toBe("ConnectionLost")
        yield* run(() => Effect.void)
      })
    )

    it.effect("[Q-01] what stops at a point before the commit undoes all, after it nothing", () =>
      Effect.gen(function* () {
        const { companyShared } = yield* Transactions.Transactions
        for (const [point, expected] of [
          ["transaction.afterBegin", []],
          ["transaction.afterLock", []],
          ["transaction.beforeCommit", []],
          ["transaction.afterCommit", ["a"]]
        ] as const) {
          yield* table
          const exit = yield* Effect.exit(
            companyShared(company, () => mark("a")).pipe(
              Effect.provideService(FaultPoint.FaultHandler, (at) =>
                at === point ? Effect.die(point) : Effect.void
              )
            )
          )
          expect(Option.map(Exit.getCause(exit), Cause.squash)).toEqual(Option.some(point))
          expect(yield* marks).toEqual(expected)
          expect(yield* openTransactions).toBe(0)
        }
      })
    )
  })
})

layer(bare({ maxConnections: 1 }), { excludeTestServices: true })("a pool of one", (it) => {
  it.effect("[D-03] is enough, and waiting for it has a bound and can be interrupted", () =>
    Effect.gen(function* () {
      const { join, run } = yield* Transactions.Transactions
      expect(yield* run(() => join("reading", Effect.succeed("fine")))).toBe("fine")
      const busy = yield* inside((body) => run(body))
      const error = yield* Effect.flip(run(() => Effect.void, { acquireTimeout: "100 millis" }))
      expect(reason(error)).toBe("PoolTimeout")
      const waiter = yield* Effect.forkChild(run(() => Effect.void))
      yield* Fiber.interrupt(waiter)
      yield* busy.leave
      expect(yield* run(() => Effect.succeed("free"))).toBe("free")
    })
  )
})

layer(bare())("time since the last answer", (it) => {
  it.effect("[S-21] grows until the server answers again", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { run } = yield* Transactions.Transactions
      const clock = yield* Clock.Clock
      yield* run((tx) =>
        Effect.gen(function* () {
          yield* TestClock.adjust("6 seconds")
          expect(Duration.toMillis(yield* tx.sinceLastAnswer)).toBe(6000)
          yield* sql`select 1`
          expect(Duration.toMillis(yield* tx.sinceLastAnswer)).toBe(0)
          yield* Effect.ignore(sql`select 1 / 0`)
          yield* TestClock.adjust("1 second")
          expect(Duration.toMillis(yield* tx.sinceLastAnswer)).toBe(1000)
          return yield* Effect.fail("done" as const)
        })
      ).pipe(Effect.provideService(DatabaseError.WaitClock, clock), Effect.flip)
    })
  )

  it.effect("[W-04] a test that moves time does not make the server late", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { run } = yield* Transactions.Transactions
      const fiber = yield* Effect.forkChild(run(() => sql`select pg_sleep(0.2)`))
      yield* TestClock.adjust("1 hour")
      yield* Fiber.join(fiber)
    })
  )
})
