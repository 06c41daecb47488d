/**
 * Makes the tables of a host, for trying Reclaim out and for tests.
 *
 * **Details**
 *
 * The tables have the columns that matter, their neighbours, and the foreign keys of a real host. On a real
 * host they exist and this does nothing; a table that exists is never altered.
 *
 * @since 0.1.0
 */
import { Effect, Schema } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { DatabaseError, NestedTransaction } from "./DatabaseError.ts"
import { query, run } from "./internal/rows.ts"
import { lockKey } from "./LockKey.ts"
import { Transactions } from "./Transactions.ts"

/** In the order in which they can be made. */
const tables: ReadonlyArray<readonly [name: string, statements: ReadonlyArray<string>]> = [
  [
    "companies",
    [
      `create table companies (
         id uuid primary key default gen_random_uuid(),
         name text not null,
         created_at timestamptz not null default now(),
         updated_at timestamptz not null default now()
       )`
    ]
  ],
  [
    "agents",
    [
      `create table agents (
         id uuid primary key default gen_random_uuid(),
         company_id uuid not null references companies (id),
         name text not null,
         adapter_type text not null default 'process',
         adapter_config jsonb not null default '{}',
         created_at timestamptz not null default now(),
         updated_at timestamptz not null default now()
       )`,
      `create index agents_company_idx on agents (company_id)`
    ]
  ],
  [
    "company_skill_repository_snapshots",
    [
      `create table company_skill_repository_snapshots (
         id uuid primary key default gen_random_uuid(),
         company_id uuid not null references companies (id) on delete cascade,
         content_hash text not null,
         file_inventory jsonb not null,
         created_at timestamptz not null default now(),
         unique (company_id, content_hash)
       )`
    ]
  ],
  [
    "company_skills",
    [
      `create table company_skills (
         id uuid primary key default gen_random_uuid(),
         company_id uuid not null references companies (id),
         key text not null,
         slug text not null,
         name text not null,
         description text,
         markdown text not null default '',
         source_type text not null default 'local_path',
         file_inventory jsonb not null default '[]',
         current_version_id uuid,
         metadata jsonb,
         created_at timestamptz not null default now(),
         updated_at timestamptz not null default now(),
         unique (company_id, key)
       )`,
      `create index company_skills_current_version_idx on company_skills (company_id, current_version_id)`
    ]
  ],
  [
    "company_skill_versions",
    [
      `create table company_skill_versions (
         id uuid primary key default gen_random_uuid(),
         company_id uuid not null references companies (id) on delete cascade,
         company_skill_id uuid not null references company_skills (id) on delete cascade,
         revision_number int not null,
         label text,
         file_inventory jsonb not null default '[]',
         author_agent_id uuid references agents (id) on delete set null,
         author_user_id text,
         repository_snapshot_id uuid references company_skill_repository_snapshots (id) on delete restrict,
         repository_skill_path text,
         created_at timestamptz not null default now(),
         unique (company_skill_id, revision_number)
       )`,
      `create index company_skill_versions_skill_idx
         on company_skill_versions (company_id, company_skill_id, created_at)`
    ]
  ],
  [
    "issues",
    [
      `create table issues (
         id uuid primary key default gen_random_uuid(),
         company_id uuid not null references companies (id),
         title text not null default '',
         status text not null default 'backlog',
         started_at timestamptz,
         completed_at timestamptz,
         cancelled_at timestamptz,
         created_at timestamptz not null default now(),
         updated_at timestamptz not null default now()
       )`
    ]
  ],
  [
    "heartbeat_runs",
    [
      `create table heartbeat_runs (
         id uuid primary key default gen_random_uuid(),
         company_id uuid not null references companies (id),
         agent_id uuid not null references agents (id),
         invocation_source text not null default 'on_demand',
         status text not null default 'queued',
         runtime_mode text not null default 'legacy',
         runner_profile_json jsonb,
         runner_instance_id uuid,
         native_session_id uuid,
         native_issue_id uuid,
         retry_of_run_id uuid references heartbeat_runs (id) on delete set null,
         scheduled_retry_at timestamptz,
         context_snapshot jsonb,
         error text,
         started_at timestamptz,
         finished_at timestamptz,
         created_at timestamptz not null default now(),
         updated_at timestamptz not null default now()
       )`,
      `create index heartbeat_runs_company_agent_started_idx on heartbeat_runs (company_id, agent_id, started_at)`,
      `create unique index heartbeat_runs_native_issue_idx on heartbeat_runs (company_id, native_issue_id, id)`
    ]
  ],
  [
    "native_run_finalizations",
    [
      `create table native_run_finalizations (
         run_id uuid primary key references heartbeat_runs (id),
         company_id uuid not null references companies (id),
         issue_id uuid not null references issues (id),
         phase text not null,
         attempt int not null default 0,
         lease_owner text,
         lease_expires_at timestamptz,
         failure_code text,
         next_attempt_at timestamptz,
         recovery_state text,
         recovery_history jsonb not null default '[]',
         created_at timestamptz not null default now(),
         updated_at timestamptz not null default now()
       )`
    ]
  ],
  [
    "agent_task_sessions",
    [
      `create table agent_task_sessions (
         id uuid primary key default gen_random_uuid(),
         company_id uuid not null references companies (id),
         agent_id uuid not null references agents (id),
         adapter_type text not null,
         task_key text not null,
         session_params_json jsonb,
         session_display_id text,
         last_run_id uuid references heartbeat_runs (id),
         last_error text,
         created_at timestamptz not null default now(),
         updated_at timestamptz not null default now(),
         unique (company_id, agent_id, adapter_type, task_key)
       )`
    ]
  ],
  [
    "environments",
    [
      `create table environments (
         id uuid primary key default gen_random_uuid(),
         company_id uuid not null references companies (id),
         driver text not null default 'local',
         status text not null default 'active'
       )`
    ]
  ],
  [
    "environment_leases",
    [
      `create table environment_leases (
         id uuid primary key default gen_random_uuid(),
         company_id uuid not null references companies (id) on delete cascade,
         environment_id uuid not null references environments (id) on delete cascade,
         issue_id uuid references issues (id) on delete set null,
         heartbeat_run_id uuid references heartbeat_runs (id) on delete set null,
         status text not null default 'active',
         lease_policy text not null default 'ephemeral',
         provider text,
         provider_lease_id text,
         acquired_at timestamptz not null default now(),
         expires_at timestamptz,
         released_at timestamptz,
         cleanup_status text,
         metadata jsonb,
         created_at timestamptz not null default now(),
         updated_at timestamptz not null default now()
       )`,
      `create index environment_leases_environment_idx on environment_leases (company_id, environment_id, status)`
    ]
  ],
  [
    "company_skill_test_runs",
    [
      `create table company_skill_test_runs (
         id uuid primary key default gen_random_uuid(),
         company_id uuid not null references companies (id) on delete cascade,
         skill_version_id uuid not null references company_skill_versions (id) on delete restrict,
         agent_id uuid references agents (id),
         issue_id uuid references issues (id),
         status text not null default 'queued',
         deleted_at timestamptz,
         superseded_at timestamptz,
         created_at timestamptz not null default now()
       )`
    ]
  ]
]

const Name = Schema.Struct({ name: Schema.String })
const operation = "making the host's tables"

/**
 * Makes the tables that are not there, in the first schema of the search path. Returns their names.
 *
 * @category migrations
 * @since 0.1.0
 */
export const create: Effect.Effect<
  ReadonlyArray<string>,
  DatabaseError | NestedTransaction,
  SqlClient.SqlClient | Transactions
> = Effect.gen(function* () {
  const sql = (yield* SqlClient.SqlClient).withoutTransforms()
  const transactions = yield* Transactions
  return yield* transactions.run(
    Effect.fnUntraced(function* () {
      yield* run(operation, sql`select pg_advisory_xact_lock(${lockKey("migrate", "host")}::int8)`)
      const names = tables.map(([name]) => name)
      const rows = yield* query(
        Name,
        operation,
        sql`select n as "name" from unnest(${names}::text[]) as n where to_regclass(quote_ident(n)) is not null`
      )
      const there = new Set(rows.map((row) => row.name))
      const made: Array<string> = []
      for (const [name, statements] of tables) {
        if (there.has(name)) continue
        for (const statement of statements) yield* run(operation, sql.unsafe(statement))
        made.push(name)
      }
      if (made.includes("company_skills") && made.includes("company_skill_versions")) {
        // The two refer to each other, so one of the references comes last.
        yield* run(
          operation,
          sql`alter table company_skills add foreign key (current_version_id)
              references company_skill_versions (id) on delete set null`
        )
      }
      return made
    }),
    { operation, statementTimeout: "60 seconds", answerTimeout: "70 seconds", lockTimeout: "60 seconds" }
  )
})
