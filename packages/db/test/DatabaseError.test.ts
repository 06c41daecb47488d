import { PgClient } from "@effect/sql-pg"
import { expect, layer } from "@effect/vitest"
import { TestDatabase } from "@reclaim/postgres/testing"
import { Deferred, Effect, Fiber, Layer, Redacted, Result } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { ConnectionError, SqlError } from "effect/sql/SqlError"
import { DatabaseClock, DatabaseError, Transactions } from "../src/index.ts"
import { bare } from "./support/database.ts"

const classify = (self: Effect.Effect<unknown, SqlError>) =>
  Effect.map(Effect.flip(self), (error) => {
    const { reason, retryable } = DatabaseError.fromSqlError(error, "test")
    return [reason._tag, retryable]
  })

layer(bare(), { excludeTestServices: true })("DatabaseError", (it) => {
  it.effect("[D-02] tells the failures of a real server apart", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const raise = (code: string) =>
        classify(sql.unsafe(`do $$ begin raise exception 'raised' using errcode = '${code}'; end $$`))
      yield* sql`create table t (id int primary key)`
      yield* sql`insert into t values (1), (2)`
      expect(yield* classify(sql`select * from nowhere`)).toEqual(["MissingTable", false])
      expect(yield* classify(sql`select nothing from t`)).toEqual(["MissingTable", false])
      expect(yield* classify(sql`select * from nowhere.t`)).toEqual(["MissingTable", false])
      expect(yield* classify(sql`select 1 / 0`)).toEqual(["Other", false])
      expect(yield* classify(sql`insert into t values (1)`)).toEqual(["Other", false])
      expect(yield* raise("53100")).toEqual(["DiskFull", false])
      expect(yield* raise("53000")).toEqual(["Other", false])
      expect(yield* raise("53200")).toEqual(["Other", false])
      expect(yield* raise("53400")).toEqual(["Other", false])
      expect(yield* raise("53300")).toEqual(["ConnectionLost", true])
      expect(yield* raise("40001")).toEqual(["Serialization", true])
      expect(yield* raise("57P01")).toEqual(["ConnectionLost", true])
      expect(yield* raise("42501")).toEqual(["PermissionDenied", false])
      const timeout = sql.withTransaction(
        Effect.andThen(sql`set local statement_timeout = '50ms'`, sql`select pg_sleep(10)`)
      )
      expect(yield* classify(timeout)).toEqual(["StatementTimeout", true])
    })
  )

  it.effect("[D-02] [S-21] an error of the socket is no answer of the server", () =>
    Effect.sync(() => {
      const stateOf = (code: string) =>
        DatabaseError.sqlState(
          new SqlError({
            reason: new ConnectionError({ cause: Object.assign(new Error(code), { code }), message: code })
          })
        )
      for (const code of ["EPIPE", "ECONNRESET", "EBADF", "E2BIG"]) expect(stateOf(code)).toBeUndefined()
      for (const code of ["57P01", "XX000", "P0001", "HV000"]) expect(stateOf(code)).toBe(code)
    })
  )

  it.effect(
    "[D-02] the next pass may do better after what can be tried again and after an unknown commit",
    () =>
      Effect.sync(() => {
        const is = (reason: DatabaseError.DatabaseReason) =>
          DatabaseError.isPassing(DatabaseError.make(reason, "test"))
        for (const tag of [
          "LockTimeout",
          "Deadlock",
          "Serialization",
          "StatementTimeout",
          "PoolTimeout"
        ] as const)
          expect(is({ _tag: tag })).toBe(true)
        expect(is({ _tag: "ConnectionLost", detail: "" })).toBe(true)
        expect(is({ _tag: "CommitUnknown", detail: "" })).toBe(true)
        expect(is({ _tag: "DiskFull", detail: "" })).toBe(false)
        expect(is({ _tag: "NestedTransaction" })).toBe(false)
        expect(is({ _tag: "MissingTable", what: "" })).toBe(false)
        expect(is({ _tag: "PermissionDenied", what: "" })).toBe(false)
        expect(is({ _tag: "Undecodable", detail: "" })).toBe(false)
        expect(is({ _tag: "Other", detail: "" })).toBe(false)
      })
  )

  it.effect("[D-02] a row that somebody has locked and a deadlock", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const lock = (id: number) => sql`select id from t where id = ${id} for update`
      const entered = yield* Deferred.make<void>()
      const gate = yield* Deferred.make<void>()
      const holder = yield* Effect.forkChild(
        sql.withTransaction(
          lock(1).pipe(
            Effect.andThen(Deferred.succeed(entered, undefined)),
            Effect.andThen(Deferred.await(gate)),
            Effect.andThen(lock(2))
          )
        )
      )
      yield* Deferred.await(entered)
      expect(yield* classify(sql`select id from t where id = 1 for update nowait`)).toEqual([
        "LockTimeout",
        true
      ])
      const second = yield* Effect.forkChild(
        Effect.result(
          sql.withTransaction(
            lock(2).pipe(Effect.andThen(Deferred.succeed(gate, undefined)), Effect.andThen(lock(1)))
          )
        )
      )
      const outcomes = [yield* Effect.result(Fiber.join(holder)), yield* Fiber.join(second)]
      const failures = outcomes.flatMap((outcome) => (Result.isFailure(outcome) ? [outcome.failure] : []))
      expect(failures.map((error) => DatabaseError.fromSqlError(error, "test").reason._tag)).toEqual([
        "Deadlock"
      ])
    })
  )

  it.effect("[D-02] a server that is not there is a lost connection, in one clear line", () =>
    Effect.gen(function* () {
      const { url } = yield* TestDatabase.TestDatabase
      const nowhere = new URL(url)
      nowhere.searchParams.set("host", "/nowhere")
      const error = yield* Effect.flip(
        Effect.provide(
          Effect.flatMap(DatabaseClock.DatabaseClock, (clock) => clock.now),
          DatabaseClock.layer.pipe(
            Layer.provide(Transactions.layer),
            Layer.provide(PgClient.layer({ url: Redacted.make(nowhere.href) }))
          ),
          { local: true }
        )
      )
      expect(error._tag === "DatabaseError" && error.reason._tag).toBe("ConnectionLost")
      expect(error.message).toMatch(/^reading the database's clock: the connection was lost \(.*\)$/)
    })
  )
})

layer(
  bare().pipe((base) => DatabaseClock.layer.pipe(Layer.provideMerge(base))),
  { excludeTestServices: true }
)("DatabaseClock", (it) => {
  it.effect("[C-05] goes on inside a transaction, where now() stands still", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const clock = yield* DatabaseClock.DatabaseClock
      const { run } = yield* Transactions.Transactions
      const [first, second] = yield* run(() =>
        Effect.all([clock.now, Effect.andThen(sql`select pg_sleep(0.02)`, clock.now)])
      )
      expect(second.epochMilliseconds - first.epochMilliseconds).toBeGreaterThanOrEqual(19)
    })
  )

  it.effect("[D-03] refuses inside a transaction of the caller", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const clock = yield* DatabaseClock.DatabaseClock
      const error = yield* Effect.flip(sql.withTransaction(clock.now))
      expect(error._tag === "DatabaseError" && error.reason._tag).toBe("NestedTransaction")
    })
  )
})
