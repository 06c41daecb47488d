/**
 * The tables of a small build farm, in its own words.
 *
 * **Details**
 *
 * | here | what Reclaim calls it |
 * |---|---|
 * | tenant | company |
 * | tool, release | skill, version |
 * | job | run |
 * | ticket, worker | issue, agent |
 * | bookmark | task session |
 *
 * The checks are what lets the layers beside this file be short: every row decodes, a finished job has its
 * instant, and instants are whole milliseconds, as the driver reads them.
 */
import { Effect } from "effect"
import * as Migrator from "effect/sql/Migrator"
import * as SqlClient from "effect/sql/SqlClient"

const statements = [
  `create table tenants (id uuid primary key, name text not null)`,
  `create table tools (
     id uuid primary key,
     tenant_id uuid not null references tenants,
     name text not null,
     current_release_id uuid
   )`,
  `create table releases (
     id uuid primary key,
     tenant_id uuid not null references tenants,
     tool_id uuid not null references tools,
     number int not null,
     unique (tool_id, number)
   )`,
  `create table release_files (
     release_id uuid not null references releases,
     ordinal int not null,
     path text not null check (length(path) <= 1024),
     content bytea not null,
     executable boolean not null default false,
     primary key (release_id, ordinal)
   )`,
  `create table workers (id uuid primary key, tenant_id uuid not null references tenants)`,
  `create table tickets (
     id uuid primary key,
     tenant_id uuid not null references tenants,
     state text not null check (state in ('open', 'done', 'cancelled')),
     closed_at timestamptz(3) check (isfinite(closed_at)),
     check ((state = 'open') = (closed_at is null))
   )`,
  `create table jobs (
     id uuid primary key,
     tenant_id uuid not null references tenants,
     worker_id uuid not null references workers,
     ticket_id uuid not null references tickets,
     session_id uuid,
     state text not null check (state in ('queued', 'running', 'succeeded', 'failed')),
     prepared_at timestamptz(3),
     finished_at timestamptz(3) check (isfinite(finished_at)),
     check ((state in ('queued', 'running')) = (finished_at is null))
   )`,
  `create table job_releases (
     job_id uuid not null references jobs,
     release_id uuid not null references releases,
     primary key (job_id, release_id)
   )`,
  `create table bookmarks (
     id uuid primary key,
     tenant_id uuid not null references tenants,
     worker_id uuid not null references workers,
     session_id uuid not null,
     last_job_id uuid references jobs
   )`
]

/** Makes them, once. */
export const migrate = Migrator.make({})({
  table: "build_farm_migrations",
  loader: Migrator.fromRecord({
    "0001_tables": Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      for (const statement of statements) yield* sql.unsafe(statement)
    })
  })
})
