import { Effect } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { Connection } from "effect/sql/SqlConnection"

const signal = (pid: number, name: NodeJS.Signals) => Effect.sync(() => void process.kill(pid, name))

/** Stops the backend with this process id: it answers nothing until it is continued. */
export const stop = (pid: number): Effect.Effect<void> => signal(pid, "SIGSTOP")

/** Continues a stopped backend. One that is gone needs nothing. */
export const resume = (pid: number): Effect.Effect<void> =>
  Effect.ignore(Effect.try({ try: () => process.kill(pid, "SIGCONT"), catch: () => "gone" as const }))

/** The process id of the backend that answers. */
export const pid = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly pid: number }>`select pg_backend_pid() as pid`
  return rows[0]?.pid ?? (yield* Effect.die("no backend"))
})

/** A client that runs an effect before each statement on a reserved connection. */
export const hooked = (
  sql: SqlClient.SqlClient,
  before: (statement: string) => Effect.Effect<void>
): SqlClient.SqlClient => {
  const wrap = (connection: Connection): Connection => ({
    execute: (text, params, transform) =>
      Effect.andThen(before(text), connection.execute(text, params, transform)),
    executeRaw: (text, params) => Effect.andThen(before(text), connection.executeRaw(text, params)),
    executeStream: (text, params, transform) => connection.executeStream(text, params, transform),
    executeValues: (text, params) => Effect.andThen(before(text), connection.executeValues(text, params)),
    executeValuesUnprepared: (text, params) =>
      Effect.andThen(before(text), connection.executeValuesUnprepared(text, params)),
    executeUnprepared: (text, params, transform) =>
      Effect.andThen(before(text), connection.executeUnprepared(text, params, transform))
  })
  const reserve = Effect.map(sql.reserve, wrap)
  return new Proxy(sql, {
    get: (target, key): unknown => {
      if (key === "reserve") return reserve
      if (key === "withoutTransforms") return () => hooked(target.withoutTransforms(), before)
      return Reflect.get(target, key)
    }
  })
}
