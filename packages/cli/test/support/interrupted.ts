/** Presses Ctrl-C while a command waits for a lock. */
import { Deferred, Effect, Fiber, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { Fixture } from "./fixture.ts"
import { eventually, start } from "./reclaim.ts"

/**
 * Interrupts a command that waits for a table, which is locked meanwhile. Returns how it ended and what it
 * printed, once the database has none of its connections any more.
 */
export const interrupted = Effect.fnUntraced(function* (args: ReadonlyArray<string>, table: string) {
  const { instance, url } = yield* Fixture
  const sql = yield* SqlClient.SqlClient
  const ours = sql<{ readonly waits: boolean }>`
    select coalesce(wait_event_type = 'Lock', false) as waits from pg_stat_activity
    where datname = current_database() and application_name = 'reclaim'`
  const locked = yield* Deferred.make<void>()
  const blocker = yield* sql`lock table ${sql(table)} in access exclusive mode`.pipe(
    Effect.andThen(Deferred.succeed(locked, undefined)),
    Effect.andThen(Effect.never),
    sql.withTransaction,
    Effect.forkChild
  )
  yield* Deferred.await(locked)
  const command = yield* start([...args, "--json"], {
    env: { DATABASE_URL: url, RECLAIM_INSTANCE: instance }
  })
  const output = yield* Effect.forkChild(command.stdout.pipe(Stream.decodeText(), Stream.mkString))
  yield* eventually(Effect.map(ours, (rows) => rows.some(({ waits }) => waits)))
  yield* command.kill({ killSignal: "SIGINT" })
  const code = yield* command.exitCode
  const lines = (yield* Fiber.join(output)).split("\n").slice(0, -1)
  yield* eventually(Effect.map(ours, (rows) => rows.length === 0))
  yield* Fiber.interrupt(blocker)
  return { code, documents: lines.map((line): unknown => JSON.parse(line)) }
}, Effect.scoped)
