import { PgClient } from "@effect/sql-pg"
import { expect, layer } from "@effect/vitest"
import { Ids } from "@reclaim/core"
import { TestDatabase } from "@reclaim/postgres/testing"
import { DateTime, Effect, Layer, Option, Redacted } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { fork } from "node:child_process"
import {
  DatabaseClock,
  DatabaseError,
  HostSchema,
  HostTables,
  Migrations,
  SkillCatalog,
  SkillPins,
  Transactions
} from "../src/index.ts"
import { bare, clock, noon, statementsOf } from "./support/database.ts"
import * as Make from "./support/fixtures.ts"

const migrate = Effect.provide(Migrations.migrate, clock)

/** A role of this cluster for one test: its name, and a client that connects as it. */
const asRole = Effect.fnUntraced(function* (name: string) {
  const sql = yield* SqlClient.SqlClient
  const { url } = yield* TestDatabase.TestDatabase
  const role = `${name}_${crypto.randomUUID().replaceAll("-", "")}`
  yield* Effect.acquireRelease(sql`create role ${sql(role)} login`, () =>
    Effect.ignore(Effect.andThen(sql`drop owned by ${sql(role)}`, sql`drop role ${sql(role)}`))
  )
  const other = new URL(url)
  other.username = role
  return {
    role,
    client: Transactions.layer.pipe(
      Layer.provideMerge(PgClient.layer({ url: Redacted.make(other.href), maxConnections: 1 }))
    )
  }
})

/** Everything that makes up the schema, to see that nothing changed. */
const fingerprint = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql`
    select c.relname::text as name, c.oid::text as id, c.xmin::text as changed
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'reclaim' order by 1`
)

layer(bare())("Migrations", (it) => {
  it.effect("[D-05] several at once make the schema once", () =>
    Effect.gen(function* () {
      const applied = yield* Effect.all(
        Array.from({ length: 6 }, () => migrate),
        { concurrency: "unbounded" }
      )
      expect(applied.filter((steps) => steps > 0)).toEqual([Migrations.currentVersion])
    })
  )

  it.effect("[D-05] doing it again only looks, and keeps the instant of adoption", () =>
    Effect.gen(function* () {
      const before = yield* fingerprint
      const statements = yield* statementsOf(
        Effect.provideService(Migrations.migrate, DatabaseClock.DatabaseClock, {
          now: Effect.succeed(DateTime.addDuration(noon, "1 day"))
        })
      )
      expect(statements.length).toBe(2)
      expect(statements.every((statement) => statement.trimStart().startsWith("select"))).toBe(true)
      expect(yield* fingerprint).toEqual(before)
      const host = yield* Effect.provide(HostSchema.HostSchema, HostSchema.layer)
      expect(yield* host.adopted).toEqual(Option.some(noon))
    })
  )

  it.effect("[D-05] where it is current, a role without CREATE needs no more than USAGE and SELECT", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { client, role } = yield* asRole("reader")
      yield* sql`grant usage on schema reclaim to ${sql(role)}`
      yield* sql`grant select on all tables in schema reclaim to ${sql(role)}`
      expect(yield* Effect.provide(migrate, client)).toBe(0)
    }).pipe(Effect.scoped)
  )

  it.effect("[D-05] nothing refers to the host's tables", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const rows = yield* sql`
        select 1 from pg_constraint c join pg_namespace n on n.oid = c.connamespace
        where n.nspname = 'reclaim' and c.contype = 'f'`
      expect(rows.length).toBe(0)
    })
  )
})

layer(bare())("Migrations by a role without rights", (it) => {
  it.effect("[D-05] is refused with the right that is missing, and leaves nothing", () =>
    Effect.gen(function* () {
      const { client } = yield* asRole("stranger")
      const error = yield* Effect.flip(Effect.provide(migrate, client))
      expect(error instanceof DatabaseError.DatabaseError && error.reason._tag).toBe("PermissionDenied")
      expect(yield* fingerprint).toEqual([])
    }).pipe(Effect.scoped)
  )
})

layer(bare(), { excludeTestServices: true })("Migrations by several processes", (it) => {
  it.effect("[D-05] make the schema once", () =>
    Effect.gen(function* () {
      const { url } = yield* TestDatabase.TestDatabase
      const child = new URL("./support/migrating.ts", import.meta.url)
      const run = Effect.callback<number>((resume) => {
        const process = fork(child, [url], {
          execArgv: ["--conditions=@reclaim/source"],
          stdio: ["ignore", "inherit", "inherit", "ipc"]
        })
        let applied = -1
        process.on("message", (message) => (applied = Number(message)))
        process.on("exit", () => resume(Effect.succeed(applied)))
      })
      const applied = yield* Effect.all([run, run, run], { concurrency: "unbounded" })
      expect(applied.toSorted((a, b) => a - b)).toEqual([0, 0, Migrations.currentVersion])
    })
  )
})

const columns = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql`
    select table_name::text, column_name::text, data_type::text from information_schema.columns
    where table_schema = 'public' order by 1, 2`
)

const look = Effect.provide(HostSchema.HostSchema, HostSchema.layer, { local: true })

layer(bare())("HostSchema", (it) => {
  it.effect("[D-06] lists everything that is missing in one error", () =>
    Effect.gen(function* () {
      const host = yield* look
      const skills = yield* Effect.flip(host.requireSkills)
      expect(skills.missing).toContain("companies.id")
      expect(skills.missing).toContain("company_skill_versions.file_inventory")
      expect(skills.missing).toContain("agents.adapter_config")
      expect(skills.missing).not.toContain("company_skill_versions.repository_snapshot_id")
      expect(skills.missing.some((name) => name.startsWith("environment_leases"))).toBe(false)
      const backups = yield* Effect.flip(host.requireBackups)
      expect(backups.missing).toContain("environment_leases.metadata")
      const error = yield* Effect.flip(
        Effect.provide(
          SkillPins.SkillPins,
          SkillPins.layer.pipe(Layer.provide(HostSchema.layer), Layer.provide(clock)),
          { local: true }
        )
      )
      expect(error._tag).toBe("MissingTables")
      expect(error.message).toContain("heartbeat_runs.retry_of_run_id")
    })
  )

  it.effect("[D-06] the tables for trying it out have all columns, and are made once", () =>
    Effect.gen(function* () {
      expect((yield* HostTables.create).length).toBeGreaterThan(9)
      const made = yield* columns
      expect(yield* HostTables.create).toEqual([])
      expect(yield* columns).toEqual(made)
      const host = yield* look
      expect(host).toMatchObject({ repositorySnapshots: true, testRuns: true, skillNames: true })
      yield* host.requireSkills
      yield* host.requireBackups
    })
  )

  it.effect("[D-06] a host without sessions can use skills, and optional tables may be missing", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`drop table environment_leases`
      yield* sql`drop table company_skill_test_runs`
      yield* sql`alter table company_skill_versions drop column repository_snapshot_id`
      yield* sql`alter table company_skills drop column slug`
      const host = yield* look
      expect(host).toMatchObject({ repositorySnapshots: false, testRuns: false, skillNames: false })
      yield* host.requireSkills
      expect((yield* Effect.flip(host.requireBackups)).missing).toEqual([
        "environment_leases.id",
        "environment_leases.company_id",
        "environment_leases.status",
        "environment_leases.cleanup_status",
        "environment_leases.metadata"
      ])
      const services = Layer.mergeAll(SkillCatalog.layer, SkillPins.layer).pipe(
        Layer.provide(HostSchema.layer),
        Layer.provide(clock)
      )
      yield* Effect.gen(function* () {
        const company =
          (yield* sql<{ readonly id: string }>`
          insert into companies (name) values ('a') returning id::text as id`)[0]?.id ?? ""
        const skill =
          (yield* sql<{ readonly id: string }>`
          insert into company_skills (company_id, key, name) values (${company}::uuid, 'a', 'a')
          returning id::text as id`)[0]?.id ?? ""
        const version =
          (yield* sql<{ readonly id: string }>`
          insert into company_skill_versions (company_id, company_skill_id, revision_number, file_inventory)
          values (${company}::uuid, ${skill}::uuid, 1, '[{"path":"a","content":"b"}]') returning id::text as id`)[0]
            ?.id ?? ""
        const catalog = yield* SkillCatalog.SkillCatalog
        const pins = yield* SkillPins.SkillPins
        const companyId = Ids.CompanyId.make(company)
        const versionId = Ids.VersionId.make(version)
        expect((yield* pins.facts([companyId])).size).toBe(1)
        const manifests = yield* catalog.manifests(companyId, [versionId], { caseInsensitive: false })
        expect(manifests.get(versionId)?._tag).toBe("Success")
        expect((yield* catalog.names(companyId)).size).toBe(0)
      }).pipe(Effect.provide(services))
    })
  )

  it.effect("[D-06] an optional table that is there without what is needed is not absent", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`create table company_skill_test_runs (id uuid, company_id uuid, status text)`
      const tests = yield* look
      expect((yield* Effect.flip(tests.requireSkills)).missing).toEqual([
        "company_skill_test_runs.skill_version_id",
        "company_skill_test_runs.deleted_at",
        "company_skill_test_runs.superseded_at"
      ])
      yield* sql`drop table company_skill_test_runs`
      yield* sql`create table company_skill_test_runs ()`
      expect((yield* Effect.flip((yield* look).requireSkills)).missing.length).toBe(6)
      yield* sql`drop table company_skill_test_runs`
      yield* (yield* look).requireSkills

      yield* sql`alter table company_skill_versions
        add column repository_snapshot_id uuid, drop column repository_skill_path`
      yield* sql`alter table company_skill_repository_snapshots drop column file_inventory`
      expect((yield* Effect.flip((yield* look).requireSkills)).missing).toEqual([
        "company_skill_versions.repository_skill_path",
        "company_skill_repository_snapshots.file_inventory"
      ])
      yield* sql`drop table company_skill_repository_snapshots`
      expect((yield* Effect.flip((yield* look).requireSkills)).missing).toEqual([
        "company_skill_versions.repository_skill_path",
        "company_skill_repository_snapshots.id",
        "company_skill_repository_snapshots.company_id",
        "company_skill_repository_snapshots.file_inventory"
      ])
      yield* sql`alter table company_skill_versions drop column repository_snapshot_id`
      yield* (yield* look).requireSkills
    })
  )

  it.effect("[D-06] columns in another schema do not count, extra ones do not hurt", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`create schema elsewhere`
      yield* sql`alter table issues set schema elsewhere`
      yield* sql`alter table agents add column surprise xml`
      const host = yield* look
      yield* host.requireSkills
      expect((yield* Effect.flip(host.requireBackups)).missing).toContain("issues.status")
    })
  )

  it.effect("[O-02] without the schema reclaim, what writes says what to do, until it is there", () =>
    Effect.gen(function* () {
      const host = yield* look
      expect(yield* host.adopted).toEqual(Option.none())
      const error = yield* Effect.flip(host.requireAdopted("sweeping"))
      expect(error.message).toContain("reclaim migrate")
      yield* migrate
      expect(yield* host.adopted).toEqual(Option.some(noon))
      expect(yield* host.requireAdopted("sweeping")).toEqual(noon)
    })
  )
})

layer(bare())("rights", (it) => {
  it.effect("[D-05] tells which rights a role lacks, and what for", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* HostTables.create
      yield* migrate
      const all = yield* Effect.flatMap(look, (host) => host.missingRights)
      expect(all).toEqual([])
      const { client, role } = yield* asRole("worker")
      const missing = Effect.flatMap(look, (host) => host.missingRights).pipe(
        Effect.provide(client, { local: true })
      )
      const none = yield* missing
      expect(none).toContainEqual({ table: "reclaim", right: "USAGE", purpose: "reclaim" })
      expect(none).toContainEqual({ table: "company_skill_versions", right: "SELECT", purpose: "skills" })
      expect(none).toContainEqual({ table: "environment_leases", right: "SELECT", purpose: "backups" })
      yield* sql`grant usage on schema reclaim to ${sql(role)}`
      yield* sql`grant select, insert, update, delete on all tables in schema reclaim to ${sql(role)}`
      yield* sql`grant select on all tables in schema public to ${sql(role)}`
      const expiry = yield* missing
      expect(new Set(expiry.map((right) => right.purpose))).toEqual(new Set(["expiry"]))
      expect(expiry).toContainEqual({ table: "agent_task_sessions", right: "DELETE", purpose: "expiry" })
      yield* sql`grant update (updated_at) on heartbeat_runs, native_run_finalizations, issues, environment_leases,
        agent_task_sessions to ${sql(role)}`
      yield* sql`grant delete on agent_task_sessions to ${sql(role)}`
      expect(yield* missing).toEqual([])
      // Only who migrates writes there; everybody looks at the version when it starts.
      for (const table of ["adoption", "migrations"]) {
        yield* sql`revoke insert, update, delete on ${sql(`reclaim.${table}`)} from ${sql(role)}`
        expect(yield* missing).toEqual([])
        yield* sql`revoke select on ${sql(`reclaim.${table}`)} from ${sql(role)}`
        expect(yield* missing).toEqual([{ table: `reclaim.${table}`, right: "SELECT", purpose: "reclaim" }])
        yield* sql`grant select on ${sql(`reclaim.${table}`)} to ${sql(role)}`
      }
    }).pipe(Effect.scoped)
  )
})

layer(bare())("row-level security", (it) => {
  it.effect("[D-07] [S-14] rows that a policy hides are an error, not absent", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* HostTables.create
      yield* migrate
      const owner = yield* Make.company
      const version = yield* Make.versionId
      const agent = yield* Make.agent(owner.companyId, {
        paperclipSkillSync: { desiredSkills: [{ key: "a", versionId: version }] }
      })
      const { client, role } = yield* asRole("tenant")
      yield* sql`grant usage on schema reclaim to ${sql(role)}`
      yield* sql`grant select on all tables in schema reclaim, public to ${sql(role)}`
      const pins = SkillPins.layer.pipe(
        Layer.provide(HostSchema.layer),
        Layer.provide(clock),
        Layer.provide(client)
      )
      const facts = Effect.flatMap(SkillPins.SkillPins, ({ facts }) => facts([owner.companyId])).pipe(
        Effect.provide(pins, { local: true })
      )
      expect((yield* facts).get(owner.companyId)?.agents).toEqual(new Map([[version, [agent]]]))
      yield* sql`alter table agents enable row level security`
      yield* sql`create policy tenants on agents using (company_id::text = current_setting('app.company', true))`
      const error = yield* Effect.flip(facts)
      expect(error instanceof DatabaseError.DatabaseError && error.reason._tag).toBe("PermissionDenied")
      expect(error.message).toContain("agents")
      yield* sql`alter table agents disable row level security`
      yield* sql`alter table reclaim.run_pins enable row level security`
      expect((yield* Effect.flip(facts)).message).toContain("run_pins")
      const rights = Effect.flatMap(look, (host) => host.missingRights)
      expect(yield* Effect.provide(rights, client, { local: true })).toContainEqual({
        table: "reclaim.run_pins",
        right: "BYPASSRLS",
        purpose: "reclaim"
      })
    }).pipe(Effect.scoped)
  )
})
