/**
 * Makes the tables of Reclaim, in a schema of their own.
 *
 * **Details**
 *
 * The schema `reclaim` holds what Reclaim knows and the host does not: when the server adopted it, what
 * runs selected, what operators hold, and the journal. Nothing refers to a table of the host and nothing of
 * the host is altered. Several processes may migrate at once; where the schema is current it is only looked
 * at, so a role without CREATE can start.
 *
 * @since 0.1.0
 */
import { DateTime, Effect, Schema } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { DatabaseError, NestedTransaction } from "./DatabaseError.ts"
import { DatabaseClock } from "./DatabaseClock.ts"
import { query, run } from "./internal/rows.ts"
import { lockKey } from "./LockKey.ts"
import { Transactions } from "./Transactions.ts"

/** Each step is applied once, in order, and never changes after a release. */
const steps: ReadonlyArray<ReadonlyArray<string>> = [
  [
    `create table reclaim.adoption (
       only_row boolean primary key default true check (only_row),
       adopted_at timestamptz not null
     )`,
    `create table reclaim.run_selections (
       run_id uuid not null,
       company_id uuid not null,
       recorded_at timestamptz not null,
       released_at timestamptz,
       primary key (run_id, company_id)
     )`,
    `create index run_selections_recorded_at on reclaim.run_selections (recorded_at)`,
    `create table reclaim.run_pins (
       run_id uuid not null,
       company_id uuid not null,
       skill_id uuid not null,
       version_id uuid not null,
       recorded_at timestamptz not null,
       primary key (run_id, version_id, company_id, skill_id)
     )`,
    `create index run_pins_company_id on reclaim.run_pins (company_id)`,
    `create table reclaim.holds (
       kind text not null check (kind in ('version', 'scope')),
       company_id uuid,
       version_id uuid,
       scope text,
       held_by text not null,
       note text not null,
       created_at timestamptz not null,
       check ((kind = 'version' and company_id is not null and version_id is not null and scope is null)
           or (kind = 'scope' and company_id is null and version_id is null and scope is not null))
     )`,
    `create unique index holds_version on reclaim.holds (company_id, version_id) where kind = 'version'`,
    `create unique index holds_scope on reclaim.holds (scope) where kind = 'scope'`,
    `create table reclaim.journal (
       id bigint generated always as identity primary key,
       at timestamptz not null,
       worker text not null,
       event text not null,
       company_id uuid,
       skill_id uuid,
       version_id uuid,
       scope text,
       allocated_bytes bigint not null,
       digest text,
       server text not null,
       detail jsonb
     )`,
    `create index journal_at on reclaim.journal (at, id)`
  ]
]

/**
 * The version of the schema that this release needs.
 *
 * @category constants
 * @since 0.1.0
 */
export const currentVersion: number = steps.length

const Present = Schema.Struct({ present: Schema.Boolean })
const Version = Schema.Struct({ version: Schema.Finite })
const operation = "migrating the schema reclaim"

/** The version that is there, 0 for none. Reads the catalogue first: it is readable without any right. */
const look = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const rows = yield* query(
    Present,
    operation,
    sql`select exists (
      select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
      where n.nspname = 'reclaim' and c.relname = 'migrations') as "present"`
  )
  if (rows[0]?.present !== true) return 0
  const versions = yield* query(
    Version,
    operation,
    sql`select coalesce(max(id), 0)::int as "version" from reclaim.migrations`
  )
  return versions[0]?.version ?? 0
})

/**
 * The version of the schema that is there, 0 for none. Only looks.
 *
 * @category queries
 * @since 0.1.0
 */
export const installed: Effect.Effect<number, DatabaseError, SqlClient.SqlClient | Transactions> = Effect.gen(
  function* () {
    const sql = (yield* SqlClient.SqlClient).withoutTransforms()
    const transactions = yield* Transactions
    return yield* transactions.join("looking at the schema reclaim", look(sql))
  }
)

/**
 * Brings the schema up to date and records the instant of adoption, once. Returns the number of steps that
 * were applied.
 *
 * **Gotchas**
 *
 * A server that runs with another role than the one that migrates needs USAGE on the schema and SELECT,
 * INSERT, UPDATE and DELETE on its tables; `HostSchema.missingRights` tells.
 *
 * @category migrations
 * @since 0.1.0
 */
export const migrate: Effect.Effect<
  number,
  DatabaseError | NestedTransaction,
  SqlClient.SqlClient | Transactions | DatabaseClock
> = Effect.gen(function* () {
  const sql = (yield* SqlClient.SqlClient).withoutTransforms()
  const transactions = yield* Transactions
  const clock = yield* DatabaseClock
  if ((yield* installed) >= currentVersion) return 0
  return yield* transactions.run(
    Effect.fnUntraced(function* () {
      // One process migrates; the others wait for it here and then find nothing to do.
      yield* run(operation, sql`select pg_advisory_xact_lock(${lockKey("migrate", "reclaim")}::int8)`)
      const from = yield* look(sql)
      if (from >= currentVersion) return 0
      if (from === 0) {
        yield* run(operation, sql`create schema if not exists reclaim`)
        yield* run(
          operation,
          sql`create table if not exists reclaim.migrations (id int primary key, applied_at timestamptz not null)`
        )
      }
      const now = DateTime.toDateUtc(yield* clock.now)
      for (const [index, statements] of steps.entries()) {
        if (index < from) continue
        for (const statement of statements) yield* run(operation, sql.unsafe(statement))
        yield* run(
          operation,
          sql`insert into reclaim.migrations (id, applied_at) values (${index + 1}, ${now})`
        )
      }
      yield* run(
        operation,
        sql`insert into reclaim.adoption (adopted_at) values (${now}) on conflict do nothing`
      )
      return currentVersion - from
    }),
    // 60 seconds: another process may be migrating on a slow disk.
    { operation, lockTimeout: "60 seconds", statementTimeout: "60 seconds", answerTimeout: "70 seconds" }
  )
})
