import { PgClient } from "@effect/sql-pg"
import { describe, expect, layer } from "@effect/vitest"
import { Ids } from "@reclaim/core"
import { TestDatabase } from "@reclaim/postgres/testing"
import { Deferred, Duration, Effect, Exit, Fiber, Layer, Option, Redacted } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { inject } from "vitest"
import { DatabaseError, Transactions } from "../src/index.ts"
import { hooked, pid, resume, stop } from "./support/backend.ts"
import { eventually, openTransactions } from "./support/database.ts"
import * as PgBouncer from "./support/pgBouncer.ts"

const company = Ids.CompanyId.make("0b1e3d5c-7a9f-4c2e-8d1b-6f3a5e7c9d20")

/** Short bounds: the server in these tests does not answer at all. */
const bounds = {
  answerTimeout: "300 millis",
  commitTimeout: "300 millis",
  rollbackTimeout: "300 millis"
} as const

const directly = Layer.unwrap(
  Effect.map(TestDatabase.TestDatabase, ({ url }) =>
    PgClient.layer({ url: Redacted.make(url), maxConnections: 1 })
  )
)

const pooled = Layer.unwrap(
  Effect.flatMap(TestDatabase.TestDatabase, ({ url }) =>
    Effect.map(PgBouncer.through(url), (through) =>
      PgClient.layer({ url: Redacted.make(through), maxConnections: 1, prepare: false })
    )
  )
)

/** A look at the server that does not go through the client under test. */
const beside = <A, E, R>(self: Effect.Effect<A, E, R>) => Effect.provide(self, directly, { local: true })

const scenario = (text: string, body: "fine" | "failing" | "uninterruptible") =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`create table if not exists marks (name text)`
    yield* sql`truncate marks`
    const victim = yield* pid
    const stopping = hooked(sql, (statement) =>
      statement.includes(text) && !(text === "COMMIT" && statement !== text) ? stop(victim) : Effect.void
    )
    const { companyShared } = yield* Effect.provide(
      Transactions.Transactions,
      Transactions.layerWith(bounds).pipe(Layer.provide(Layer.succeed(SqlClient.SqlClient, stopping)))
    )
    const work = sql`insert into marks values ('here')`.pipe(
      Effect.mapError((error) => DatabaseError.fromSqlError(error, "marking")),
      Effect.andThen(body === "failing" ? Effect.fail("the body failed" as const) : Effect.void)
    )
    const [elapsed, outcome] = yield* Effect.timed(
      Effect.result(
        companyShared(company, () => (body === "uninterruptible" ? Effect.uninterruptible(work) : work))
      )
    )
    // The pool of one is usable at once, while the stopped backend still is.
    const [wait, next] = yield* Effect.timed(pid)
    yield* resume(victim)
    yield* eventually(
      beside(
        Effect.gen(function* () {
          const direct = yield* SqlClient.SqlClient
          const rows = yield* direct`select 1 from pg_stat_activity where pid = ${victim}`
          return rows.length === 0 && (yield* openTransactions) === 0
        })
      )
    )
    const marks = yield* sql`select name from marks`
    return {
      quick: Duration.toMillis(elapsed) < 3000 && Duration.toMillis(wait) < 1000,
      fresh: next !== victim,
      outcome:
        outcome._tag === "Success"
          ? "committed"
          : typeof outcome.failure === "string"
            ? outcome.failure
            : "reason" in outcome.failure && typeof outcome.failure.reason === "object"
              ? outcome.failure.reason._tag
              : outcome.failure._tag,
      marks: marks.length,
      victim
    }
  })

const statements = [
  ["BEGIN", "BEGIN"],
  ["the settings", "set_config"],
  ["the lock", "advisory"],
  ["a statement of the body", "insert into marks"]
] as const

const suites = [
  ["directly", directly],
  ...(PgBouncer.binary === undefined ? [] : [["through PgBouncer in transaction mode", pooled] as const])
] as const

if (PgBouncer.binary === undefined) {
  console.log("PgBouncer is not installed: its part of StoppedServer.test.ts is skipped")
}

layer(TestDatabase.layer(inject("databaseUrl")), { excludeTestServices: true })(
  "a server that stops answering",
  (it) => {
    for (const [how, client] of suites) {
      describe(how, () => {
        for (const [name, text] of statements) {
          for (const body of ["fine", "uninterruptible"] as const) {
            it.effect(
              `[S-21] [D-02] at ${name} (${body}): the connection is lost, the pool of one goes on`,
              () =>
                Effect.gen(function* () {
                  const seen = yield* scenario(text, body)
                  expect(seen).toMatchObject({
                    quick: true,
                    fresh: true,
                    outcome: "ConnectionLost",
                    marks: 0
                  })
                }).pipe(Effect.provide(client, { local: true }))
            )
          }
        }

        it.effect("[S-21] [D-03] at ROLLBACK: the body's failure stands, the pool of one goes on", () =>
          Effect.gen(function* () {
            const seen = yield* scenario("ROLLBACK", "failing")
            expect(seen).toMatchObject({ quick: true, fresh: true, outcome: "the body failed", marks: 0 })
          }).pipe(Effect.provide(client, { local: true }))
        )

        it.effect("[S-23] interruption is not held up, and the pool of one goes on", () =>
          Effect.gen(function* () {
            const sql = yield* SqlClient.SqlClient
            const victim = yield* pid
            const asked = yield* Deferred.make<void>()
            const stopping = hooked(sql, (statement) =>
              statement.includes("select 'stopped'")
                ? Effect.andThen(stop(victim), Deferred.succeed(asked, undefined))
                : Effect.void
            )
            const { run } = yield* Effect.provide(
              Transactions.Transactions,
              Transactions.layer.pipe(Layer.provide(Layer.succeed(SqlClient.SqlClient, stopping)))
            )
            const fiber = yield* Effect.forkChild(run(() => sql`select 'stopped'`))
            yield* Deferred.await(asked)
            const [elapsed] = yield* Effect.timed(Fiber.interrupt(fiber))
            expect(Duration.toMillis(elapsed)).toBeLessThan(3000)
            expect(yield* pid).not.toBe(victim)
            yield* resume(victim)
            yield* eventually(beside(Effect.map(openTransactions, (open) => open === 0)))
          }).pipe(Effect.provide(client, { local: true }))
        )

        it.effect("[S-23] interruption waits for a COMMIT in flight, as long as that may take", () =>
          Effect.gen(function* () {
            const sql = yield* SqlClient.SqlClient
            const victim = yield* pid
            const asked = yield* Deferred.make<void>()
            const stopping = hooked(sql, (statement) =>
              statement === "COMMIT"
                ? Effect.andThen(stop(victim), Deferred.succeed(asked, undefined))
                : Effect.void
            )
            const { run } = yield* Effect.provide(
              Transactions.Transactions,
              Transactions.layerWith(bounds).pipe(Layer.provide(Layer.succeed(SqlClient.SqlClient, stopping)))
            )
            let outcome = "none"
            const fiber = yield* Effect.forkChild(
              Effect.onExit(
                run(() => sql`select 1`),
                (exit) =>
                  Effect.sync(() => {
                    const error = Option.getOrUndefined(Exit.findErrorOption(exit))
                    outcome = error?._tag === "DatabaseError" ? error.reason._tag : "other"
                  })
              )
            )
            yield* Deferred.await(asked)
            yield* Fiber.interrupt(fiber)
            expect(outcome).toBe("CommitUnknown")
            yield* resume(victim)
          }).pipe(Effect.provide(client, { local: true }))
        )

        it.effect("[S-21] at COMMIT: the commit is unknown, in bounded time, and had happened", () =>
          Effect.gen(function* () {
            const seen = yield* scenario("COMMIT", "fine")
            expect(seen).toMatchObject({ quick: true, fresh: true, outcome: "CommitUnknown", marks: 1 })
          }).pipe(Effect.provide(client, { local: true }))
        )
      })
    }
  }
)
