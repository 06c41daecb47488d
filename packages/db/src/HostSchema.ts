/**
 * Looks at the tables of the host, once, before anything relies on them.
 *
 * **Details**
 *
 * A host may lack what a feature needs. What the skill sweep needs and what the backup sweep needs are told
 * apart, so that a host without sessions can still use the former. Optional tables are found or not, and one
 * that is found must have every column that is needed: what it pins would else count as absent. Columns that
 * are not listed here do not matter.
 *
 * @since 0.1.0
 */
import { Context, DateTime, Effect, Layer, Option, Schema } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { DatabaseError } from "./DatabaseError.ts"
import { millis, query } from "./internal/rows.ts"
import { Transactions } from "./Transactions.ts"

/**
 * The host lacks tables or columns. Lists all of them, as `table.column`.
 *
 * @category errors
 * @since 0.1.0
 */
export class MissingTables extends Schema.TaggedError<MissingTables>()("MissingTables", {
  purpose: Schema.Literals(["skills", "backups"]),
  missing: Schema.Array(Schema.String)
}) {
  /** One line for an operator. */
  override get message(): string {
    return `the database lacks what ${this.purpose} need: ${this.missing.join(", ")}`
  }
}

/**
 * The schema `reclaim` is not there, and what was asked for writes to it.
 *
 * @category errors
 * @since 0.1.0
 */
export class NotAdopted extends Schema.TaggedError<NotAdopted>()("NotAdopted", {
  operation: Schema.String
}) {
  /** One line for an operator. */
  override get message(): string {
    return `${this.operation}: the database has no schema "reclaim" yet; run "reclaim migrate" first`
  }
}

/**
 * A right that the connected role lacks on a table.
 *
 * @category models
 * @since 0.1.0
 */
export interface MissingRight {
  readonly table: string
  /** `BYPASSRLS`: a policy hides rows of the table from the role, and what is hidden must not read as none. */
  readonly right: "SELECT" | "INSERT" | "UPDATE" | "DELETE" | "USAGE" | "BYPASSRLS"
  /** What cannot work without it: `expiry` disables the expiration of backups only. */
  readonly purpose: "skills" | "backups" | "expiry" | "reclaim"
}

/**
 * What the database offers.
 *
 * @category services
 * @since 0.1.0
 */
export class HostSchema extends Context.Service<
  HostSchema,
  {
    /** True when versions can refer to repository snapshots. */
    readonly repositorySnapshots: boolean
    /** True when there is a table of skill test runs, which pin versions. */
    readonly testRuns: boolean
    /** True when skills have `key`, `slug` and `name` to show. */
    readonly skillNames: boolean
    /** Fails when a table or column is missing that skill versions need, or an optional table is incomplete. */
    readonly requireSkills: Effect.Effect<void, MissingTables>
    /** Fails when a table or column is missing that session backups need. */
    readonly requireBackups: Effect.Effect<void, MissingTables>
    /**
     * When `migrate` adopted this database; none while the schema `reclaim` is missing. Looked up until it
     * is found, and remembered then.
     */
    readonly adopted: Effect.Effect<Option.Option<DateTime.Utc>, DatabaseError>
    /** The tables of the schema `reclaim` that are not there: all of them before `migrate`. */
    readonly missingOwn: Effect.Effect<ReadonlyArray<string>, DatabaseError>
    /** Fails for an operation that writes to the schema `reclaim` while that is missing. */
    readonly requireAdopted: (operation: string) => Effect.Effect<DateTime.Utc, DatabaseError | NotAdopted>
    /** The rights that the connected role lacks, on the tables that exist. */
    readonly missingRights: Effect.Effect<ReadonlyArray<MissingRight>, DatabaseError>
  }
>()("@reclaim/db/HostSchema") {}

type Columns = Readonly<Record<string, ReadonlyArray<string>>>

const skills: Columns = {
  companies: ["id"],
  company_skills: ["id", "company_id", "current_version_id"],
  company_skill_versions: [
    "id",
    "company_id",
    "company_skill_id",
    "revision_number",
    "file_inventory",
    "created_at"
  ],
  agents: ["id", "company_id", "adapter_config"],
  heartbeat_runs: [
    "id",
    "company_id",
    "status",
    "runtime_mode",
    "retry_of_run_id",
    "started_at",
    "created_at"
  ],
  native_run_finalizations: ["run_id", "phase", "lease_expires_at", "recovery_state"]
}

const backups: Columns = {
  companies: ["id"],
  agents: ["id", "company_id"],
  heartbeat_runs: [
    "id",
    "company_id",
    "agent_id",
    "status",
    "runtime_mode",
    "native_session_id",
    "native_issue_id",
    "context_snapshot",
    "retry_of_run_id",
    "started_at",
    "finished_at",
    "created_at"
  ],
  native_run_finalizations: [
    "run_id",
    "company_id",
    "issue_id",
    "phase",
    "lease_expires_at",
    "recovery_state"
  ],
  agent_task_sessions: ["id", "company_id", "agent_id", "adapter_type", "session_params_json", "last_run_id"],
  environment_leases: ["id", "company_id", "status", "cleanup_status", "metadata"],
  issues: ["id", "company_id", "status", "completed_at", "cancelled_at"]
}

const snapshots: Columns = {
  company_skill_versions: ["repository_snapshot_id", "repository_skill_path"],
  company_skill_repository_snapshots: ["id", "company_id", "file_inventory"]
}

const testRuns: Columns = {
  company_skill_test_runs: ["id", "company_id", "skill_version_id", "status", "deleted_at", "superseded_at"]
}

const names: Columns = { company_skills: ["key", "slug", "name"] }

/** Locked by the expiration, which takes UPDATE on one column; the last is deleted from as well. */
const locked: ReadonlyArray<string> = [
  "heartbeat_runs",
  "native_run_finalizations",
  "issues",
  "environment_leases",
  "agent_task_sessions"
]

const reclaimTables = ["adoption", "migrations", "run_selections", "run_pins", "holds", "journal"]

/** Written by who migrates, with rights of its own; read by everybody who starts. */
const readOnly: ReadonlyArray<string> = ["adoption", "migrations"]

const allTables: ReadonlyArray<string> = [
  ...new Set([skills, backups, snapshots, testRuns].flatMap((columns) => Object.keys(columns)))
]

// Null for a table without columns.
const Column = Schema.Struct({ table: Schema.String, column: Schema.NullOr(Schema.String) })
const Table = Schema.Struct({ table: Schema.String })
const Adoption = Schema.Struct({ at: Schema.Finite })
const Right = Schema.Struct({
  table: Schema.String,
  ours: Schema.Boolean,
  hidden: Schema.Boolean,
  select: Schema.Boolean,
  insert: Schema.Boolean,
  update: Schema.Boolean,
  delete: Schema.Boolean
})
const Usage = Schema.Struct({ usage: Schema.Boolean })

const make = (
  hostTables: ReadonlyArray<string>
): Layer.Layer<HostSchema, DatabaseError, SqlClient.SqlClient | Transactions> =>
  Layer.effect(
    HostSchema,
    Effect.gen(function* () {
      const sql = (yield* SqlClient.SqlClient).withoutTransforms()
      const transactions = yield* Transactions
      const operation = "looking at the host's tables"

      // The catalogue is readable without rights on the tables, and follows the search path as queries do.
      const rows = yield* transactions.join(
        operation,
        query(
          Column,
          operation,
          sql`select c.relname::text as "table", a.attname::text as "column"
            from pg_catalog.pg_class c
            left join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
            where c.relname::text = any(${hostTables}::text[])
              and c.relkind in ('r', 'p', 'v', 'm', 'f')
              and pg_catalog.pg_table_is_visible(c.oid)`
        )
      )
      const tables = new Set(rows.map((row) => row.table))
      const found = new Set(rows.map((row) => `${row.table}.${row.column}`))
      const withTestRuns = Object.keys(testRuns).some((table) => tables.has(table))
      const withSnapshots = found.has("company_skill_versions.repository_snapshot_id")
      const lacking = (columns: Columns) =>
        Object.entries(columns).flatMap(([table, list]) =>
          list.map((column) => `${table}.${column}`).filter((name) => !found.has(name))
        )
      const has = (columns: Columns) => lacking(columns).length === 0
      const require = (purpose: "skills" | "backups", ...needed: ReadonlyArray<Columns>) => {
        const missing = hostTables.length === 0 ? [] : needed.flatMap(lacking)
        return missing.length === 0 ? Effect.void : Effect.fail(new MissingTables({ purpose, missing }))
      }

      const missingOwn = transactions.join(
        "looking for the schema reclaim",
        Effect.map(
          query(
            Table,
            operation,
            sql`select c.relname::text as "table"
              from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
              where n.nspname = 'reclaim' and c.relname::text = any(${reclaimTables}::text[])`
          ),
          (rows) => reclaimTables.filter((name) => rows.every(({ table }) => table !== name))
        )
      )

      let known: DateTime.Utc | undefined
      const adopted = Effect.suspend(() =>
        known !== undefined
          ? Effect.succeedSome(known)
          : transactions.join(
              "looking for the schema reclaim",
              Effect.gen(function* () {
                if ((yield* missingOwn).length > 0) return Option.none<DateTime.Utc>()
                const at = yield* query(
                  Adoption,
                  operation,
                  sql`select ${millis(sql, sql`adopted_at`)} as "at" from reclaim.adoption`
                )
                if (at[0] === undefined) return Option.none<DateTime.Utc>()
                known = DateTime.makeUnsafe(Math.floor(at[0].at))
                return Option.some(known)
              })
            )
      )

      const missingRights = transactions.join(
        "checking rights",
        Effect.gen(function* () {
          const rights = yield* query(
            Right,
            operation,
            sql`select c.relname::text as "table", n.nspname = 'reclaim' as "ours",
                row_security_active(c.oid) as "hidden",
                has_table_privilege(c.oid, 'SELECT') as "select",
                has_table_privilege(c.oid, 'INSERT') as "insert",
                has_any_column_privilege(c.oid, 'UPDATE') as "update",
                has_table_privilege(c.oid, 'DELETE') as "delete"
              from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
              where (n.nspname = 'reclaim' and c.relname::text = any(${reclaimTables}::text[]))
                 or (c.relname::text = any(${hostTables}::text[]) and c.relkind in ('r', 'p', 'v', 'm', 'f')
                     and pg_catalog.pg_table_is_visible(c.oid))
              order by 2, 1`
          )
          const usage = yield* query(
            Usage,
            operation,
            sql`select has_schema_privilege(oid, 'USAGE') as "usage"
              from pg_catalog.pg_namespace where nspname = 'reclaim'`
          )
          const missing: Array<MissingRight> = []
          if (usage.some((row) => !row.usage)) {
            missing.push({ table: "reclaim", right: "USAGE", purpose: "reclaim" })
          }
          for (const row of rights) {
            const { table } = row
            const name = row.ours ? `reclaim.${table}` : table
            const purpose = row.ours
              ? "reclaim"
              : table in skills || table in snapshots || table in testRuns
                ? "skills"
                : "backups"
            if (row.hidden) missing.push({ table: name, right: "BYPASSRLS", purpose })
            if (row.ours) {
              if (!row.select) missing.push({ table: name, right: "SELECT", purpose: "reclaim" })
              if (readOnly.includes(table)) continue
              if (!row.insert) missing.push({ table: name, right: "INSERT", purpose: "reclaim" })
              if (!row.update && table !== "journal") {
                missing.push({ table: name, right: "UPDATE", purpose: "reclaim" })
              }
              if (!row.delete) missing.push({ table: name, right: "DELETE", purpose: "reclaim" })
              continue
            }
            if (!row.select) missing.push({ table, right: "SELECT", purpose })
            if (locked.includes(table) && !row.update)
              missing.push({ table, right: "UPDATE", purpose: "expiry" })
            if (table === "agent_task_sessions" && !row.delete) {
              missing.push({ table, right: "DELETE", purpose: "expiry" })
            }
          }
          return missing
        })
      )

      return HostSchema.of({
        repositorySnapshots: withSnapshots,
        testRuns: withTestRuns,
        skillNames: has(names),
        requireSkills: require("skills", skills, ...(withTestRuns ? [testRuns] : []), ...(withSnapshots
          ? [snapshots]
          : [])),
        requireBackups: require("backups", backups),
        adopted,
        missingOwn,
        requireAdopted: (operation) =>
          Effect.flatMap(
            adopted,
            Option.match({ onNone: () => Effect.fail(new NotAdopted({ operation })), onSome: Effect.succeed })
          ),
        missingRights
      })
    })
  )

/**
 * Looks at the tables when it is built. It does not fail there for what is missing: that is for those who
 * need it, so that a command can tell an operator everything at once.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = make(allTables)

/**
 * Looks at the schema `reclaim` alone, for a host that supplies its own `SkillCatalog`, `SkillPins` and
 * `SessionCatalog`: what those need is for them to check. A table of such a host that happens to have the name
 * of one of PaperClip's means nothing here.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerOwn = make([])
