/**
 * Looks at the server, at the way to it and at what happened there, for an operator who asks what is wrong.
 *
 * **Details**
 *
 * Everything here reads and nothing decides: whether a version is too old or a clock too far off is for the
 * caller to say.
 *
 * @since 0.1.0
 */
import { Ids } from "@reclaim/core"
import { DateTime, Duration, Effect, Option, Schema } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { Connection } from "effect/sql/SqlConnection"
import { type DatabaseError, fromSqlError } from "./DatabaseError.ts"
import { millis, query } from "./internal/rows.ts"
import { Transactions } from "./Transactions.ts"

/**
 * The server and who is connected to it. `versionNumber` is the server's own, like 180004 for 18.4; `now` is
 * its clock.
 *
 * @category models
 * @since 0.1.0
 */
export interface Server {
  readonly version: string
  readonly versionNumber: number
  readonly database: string
  readonly role: string
  /** True for a standby, which takes no writes. */
  readonly inRecovery: boolean
  /** True where new transactions are read-only, whatever the reason. */
  readonly readOnly: boolean
  readonly now: DateTime.Utc
}

/**
 * Whether two open connections are one and the same server process, which only a pooler that hands servers
 * out per transaction makes possible. `prepared` names the statements that clients have prepared on such a
 * shared process.
 *
 * @category models
 * @since 0.1.0
 */
export interface Pooling {
  readonly shared: boolean
  readonly prepared: ReadonlyArray<string>
}

/** A run, and since when it has been there. @category models @since 0.1.0 */
export interface RunSince {
  readonly runId: Ids.RunId
  readonly companyId: Ids.CompanyId
  readonly status: string | null
  /** When it started; when it was created where it has not. */
  readonly since: Option.Option<DateTime.Utc>
}

/** When a worker last changed something. @category models @since 0.1.0 */
export interface LastChange {
  readonly worker: string
  readonly at: DateTime.Utc
}

const ServerRow = Schema.Struct({
  version: Schema.String,
  versionNumber: Schema.Finite,
  database: Schema.String,
  role: Schema.String,
  inRecovery: Schema.Boolean,
  readOnly: Schema.Boolean,
  at: Schema.Finite
})
const PidRow = Schema.Struct({ pid: Schema.Finite })
const PreparedRow = Schema.Struct({ name: Schema.String })
const CompanyRow = Schema.Struct({ id: Ids.CompanyId })
const RunRow = Schema.Struct({
  runId: Ids.RunId,
  companyId: Ids.CompanyId,
  status: Schema.NullOr(Schema.String),
  since: Schema.NullOr(Schema.Finite)
})
const ChangeRow = Schema.Struct({ worker: Schema.String, at: Schema.Finite })

const instant = (milliseconds: number) => DateTime.makeUnsafe(Math.floor(milliseconds))

const alone: Pooling = { shared: false, prepared: [] }

const client = Effect.map(SqlClient.SqlClient, (sql) => sql.withoutTransforms())

/** @category queries @since 0.1.0 */
export const server: Effect.Effect<Server, DatabaseError, SqlClient.SqlClient | Transactions> = Effect.gen(
  function* () {
    const sql = yield* client
    const transactions = yield* Transactions
    const operation = "looking at the server"
    const rows = yield* transactions.join(
      operation,
      query(
        ServerRow,
        operation,
        sql`select current_setting('server_version') as "version",
              current_setting('server_version_num')::int as "versionNumber",
              current_database()::text as "database", current_user::text as "role",
              pg_is_in_recovery() as "inRecovery",
              current_setting('transaction_read_only')::boolean as "readOnly",
              (extract(epoch from clock_timestamp()) * 1000)::float8 as "at"`
      )
    )
    const row = rows[0]
    if (row === undefined) return yield* Effect.die("a select without a table returned no row")
    const { at, ...found } = row
    return { ...found, now: instant(at) }
  }
)

// 8 rounds: a busy pooler hands out another server process now and then, hardly every time.
const rounds = 8
// 5 seconds: a pooler that gives each connection a server of its own may have none left for the second.
const patience = Duration.seconds(5)

/**
 * Finds out how connections become server processes, by asking two open connections in turns which one they
 * are. Needs two connections of the pool.
 *
 * @category queries
 * @since 0.1.0
 */
export const pooling: Effect.Effect<Pooling, DatabaseError, SqlClient.SqlClient> = Effect.gen(function* () {
  const sql = yield* client
  const operation = "looking for a pooler"
  const ask = <S extends Schema.ConstraintDecoder<unknown>>(
    connection: Connection,
    schema: S,
    text: string
  ) => query(schema, operation, connection.execute(text, [], undefined))
  const pid = (connection: Connection) =>
    Effect.map(ask(connection, PidRow, `select pg_backend_pid() as "pid"`), (rows) => rows[0]?.pid)
  const reserve = Effect.mapError(sql.reserve, (error) => fromSqlError(error, operation))
  const one = yield* reserve
  const other = yield* reserve
  const first = yield* pid(one)
  for (let round = 0; round < rounds; round += 1) {
    const second = yield* pid(other)
    const again = yield* pid(one)
    // One process for both, or one connection that goes from process to process.
    if (second !== again && again === first) continue
    const prepared = yield* ask(
      other,
      PreparedRow,
      // What was prepared with SQL is its author's business; a driver prepares with the protocol.
      `select name::text as "name" from pg_catalog.pg_prepared_statements where not from_sql order by name`
    )
    return { shared: true, prepared: prepared.map(({ name }) => name) }
  }
  return alone
}).pipe(Effect.scoped, Effect.timeoutOrElse({ duration: patience, orElse: () => Effect.succeed(alone) }))

/** The ids of all companies. @category queries @since 0.1.0 */
export const companies: Effect.Effect<
  ReadonlyArray<Ids.CompanyId>,
  DatabaseError,
  SqlClient.SqlClient | Transactions
> = Effect.gen(function* () {
  const sql = yield* client
  const transactions = yield* Transactions
  const operation = "listing the companies"
  const rows = yield* transactions.join(
    operation,
    query(CompanyRow, operation, sql`select id::text as "id" from companies order by id`)
  )
  return rows.map(({ id }) => id)
})

/** Looks runs up, the oldest first. @category queries @since 0.1.0 */
export const runsSince = Effect.fnUntraced(function* (
  runIds: ReadonlyArray<Ids.RunId>
): Effect.fn.Return<ReadonlyArray<RunSince>, DatabaseError, SqlClient.SqlClient | Transactions> {
  if (runIds.length === 0) return []
  const sql = yield* client
  const transactions = yield* Transactions
  const operation = "looking runs up"
  const rows = yield* transactions.join(
    operation,
    query(
      RunRow,
      operation,
      sql`select r.id::text as "runId", r.company_id::text as "companyId", r.status::text as "status",
            ${millis(sql, sql`coalesce(r.started_at, r.created_at)`)} as "since"
          from heartbeat_runs r where r.id = any(${runIds}::uuid[]) order by "since", r.id`
    )
  )
  return rows.map((row) => ({
    ...row,
    since: row.since === null ? Option.none() : Option.some(instant(row.since))
  }))
})

/**
 * The last entry of each worker in the journal, as far as it is kept. Only where the schema `reclaim` is there.
 *
 * @category queries
 * @since 0.1.0
 */
export const lastChanges: Effect.Effect<
  ReadonlyArray<LastChange>,
  DatabaseError,
  SqlClient.SqlClient | Transactions
> = Effect.gen(function* () {
  const sql = yield* client
  const transactions = yield* Transactions
  const operation = "looking at the journal"
  const rows = yield* transactions.join(
    operation,
    query(
      ChangeRow,
      operation,
      sql`select worker as "worker", ${millis(sql, sql`max(at)`)} as "at"
          from reclaim.journal group by worker order by worker`
    )
  )
  return rows.map(({ at, worker }) => ({ worker, at: instant(at) }))
})
