import * as PgClient from "@effect/sql-pg/PgClient"
import { describe, expect, layer } from "@effect/vitest"
import { DatabaseHealth } from "@reclaim/db"
import { TestDatabase } from "@reclaim/postgres/testing"
import { Context, DateTime, Effect, FileSystem, Layer, Redacted, Schema } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { inject } from "vitest"
import * as PgBouncer from "../../db/test/support/pgBouncer.ts"
import { Output } from "../src/index.ts"
import { judgeClock, judgePooling, judgeServer, judgeVolume } from "../src/internal/doctor.ts"
import * as Fixture from "./support/fixture.ts"
import type { Finished } from "./support/reclaim.ts"
import * as Sessions from "./support/sessions.ts"

const decodeCheck = Schema.decodeUnknownSync(Output.Check)
const decodeSummary = Schema.decodeUnknownSync(Output.CheckSummary)

/** Every check, and the summary, which must fit them and the exit code. */
const checksOf = ({ code, documents }: Finished): ReadonlyArray<Output.Check> => {
  const checks = documents.slice(0, -1).map((document) => decodeCheck(document))
  const count = (status: Output.Check["status"]) => checks.filter((check) => check.status === status).length
  const failed = count("failed")
  expect(decodeSummary(documents.at(-1))).toEqual({
    type: "summary",
    checks: checks.length,
    ok: count("ok"),
    warnings: count("warning"),
    failed
  })
  expect(code).toBe(failed > 0 ? 1 : 0)
  // What is wrong comes with what to do about it.
  expect(checks.filter(({ advice, status }) => status === "warning" && advice === null)).toEqual([])
  return checks
}

const examine = Effect.fnUntraced(function* (
  env?: Readonly<Record<string, string>>,
  node?: ReadonlyArray<string>
) {
  const { run } = yield* Fixture.Fixture
  return checksOf(yield* run(["doctor", "--json"], env, node === undefined ? {} : { node }))
})

const named = (checks: ReadonlyArray<Output.Check>, name: string) =>
  checks.filter((check) => check.name === name)

/** What is not as it should be. How full the disk is, is not the test's. */
const troubles = (checks: ReadonlyArray<Output.Check>) =>
  checks.filter(({ name, status }) => status !== "ok" && !name.startsWith("disk space"))

const preload = (code: string): ReadonlyArray<string> => [
  "--import",
  `data:text/javascript,${encodeURIComponent(code)}`
]

/** The process believes that it is so much later. */
const later = (hours: number) =>
  preload(`const now = Date.now; Date.now = () => now() + ${hours} * 3_600_000`)

/** A database of its own with the tables of a host, and a client for it. */
const freshHost = Effect.gen(function* () {
  const { run } = yield* Fixture.Fixture
  const { url } = yield* TestDatabase.make(inject("databaseUrl"))
  const context = yield* Layer.build(PgClient.layer({ url: Redacted.make(url), prepare: false }))
  const migrated = yield* run(["migrate", "--with-host-tables"], { DATABASE_URL: url })
  expect(migrated.code).toBe(0)
  return { url, sql: Context.get(context, SqlClient.SqlClient) }
}).pipe(Effect.orDie)

const asRole = Effect.fnUntraced(function* (host: Effect.Success<typeof freshHost>) {
  const { sql, url } = host
  const role = `doctor_${crypto.randomUUID().replaceAll("-", "")}`
  yield* Effect.acquireRelease(sql`create role ${sql(role)} login`, () =>
    Effect.ignore(Effect.andThen(sql`drop owned by ${sql(role)}`, sql`drop role ${sql(role)}`))
  )
  const other = new URL(url)
  other.username = role
  return { role, env: { DATABASE_URL: other.href } }
})

const runningRun = Effect.fnUntraced(function* (hoursAgo: number) {
  const { agentId, companyId } = yield* Fixture.Fixture
  const sql = yield* SqlClient.SqlClient
  const id: string = crypto.randomUUID()
  yield* sql`insert into heartbeat_runs (id, company_id, agent_id, status, created_at, started_at)
    values (${id}::uuid, ${companyId}::uuid, ${agentId}::uuid, 'running', now(),
      now() - make_interval(hours => ${hoursAgo}::int))`
  return yield* Effect.acquireRelease(Effect.succeed(id), () =>
    Effect.orDie(
      sql`update heartbeat_runs set status = 'failed', runtime_mode = 'legacy' where id = ${id}::uuid`
    )
  )
})

/** Every entry below a folder, with everything that a change would change. */
const snapshot = Effect.fnUntraced(function* (folder: string) {
  const files = yield* FileSystem.FileSystem
  const names = yield* files.readDirectory(folder, { recursive: true })
  return yield* Effect.forEach(names.toSorted(), (name) =>
    Effect.map(files.stat(`${folder}/${name}`), ({ ino, mode, mtime, size }) => [
      name,
      ino,
      mode,
      mtime,
      size
    ])
  )
})

layer(Fixture.layer, { timeout: 120_000 })("doctor", (it) => {
  describe("a server in order", () => {
    it.effect("[O-06] [O-03] is told to be in order, to a person and to a program", () =>
      Effect.gen(function* () {
        const { oldCopy, run, versions } = yield* Fixture.Fixture
        yield* oldCopy(versions[2])
        yield* Sessions.make()
        const checks = yield* examine()
        expect(troubles(checks)).toEqual([])
        expect(checks.map(({ name }) => name)).toEqual([
          "platform",
          "settings",
          "instance folder",
          "skills folder",
          "sessions folder",
          "letter case",
          "disk space",
          "permissions",
          "leftovers",
          "database",
          "server version",
          "primary server",
          "clock",
          "pooler",
          "schema reclaim",
          "tables for skill versions",
          "tables for session backups",
          "rights",
          "last change",
          "selections"
        ])
        const read = yield* run(["doctor"])
        expect(read.code).toBe(0)
        expect(read.stdout.split("\n")[0]).toMatch(/^STATUS +CHECK +FOUND$/)
        expect(read.stdout).toMatch(/^ok +server version +PostgreSQL \d+/m)
        expect(read.stdout).toMatch(/\n\n20 checks: (20 ok, 0 warnings|19 ok, 1 warning), 0 failed\n$/)
        expect(read.stderr).toBe("")
      })
    )

    it.effect("[O-06] is not changed by being looked at", () =>
      Effect.gen(function* () {
        const { instance, oldCopy, versions } = yield* Fixture.Fixture
        yield* oldCopy(versions[0])
        const host = yield* freshHost
        const { env, role } = yield* asRole(host)
        const { sql } = host
        yield* sql`grant usage on schema reclaim to ${sql(role)}`
        yield* sql`grant select, insert, update, delete on all tables in schema reclaim to ${sql(role)}`
        yield* sql`grant select, update, delete on all tables in schema public to ${sql(role)}`
        // Whatever wrote would fail.
        yield* sql`alter role ${sql(role)} set default_transaction_read_only to on`
        const before = yield* snapshot(instance)
        const checks = yield* examine(env)
        expect(troubles(checks)).toEqual([
          expect.objectContaining({
            name: "primary server",
            status: "failed",
            detail: "transactions are read-only here"
          })
        ])
        expect(yield* snapshot(instance)).toEqual(before)
      }).pipe(Effect.scoped)
    )
  })

  describe("the instance", () => {
    it.effect("[O-06] [C-07] goes on without any of what it needs, and shows every bad setting", () =>
      Effect.gen(function* () {
        const checks = yield* examine({
          RECLAIM_INSTANCE: "/",
          DATABASE_URL: "postgres://user@127.0.0.1:1/x",
          PAPERCLIP_SKILL_VERSION_RETENTION_KEEP: "-1",
          PAPERCLIP_SKILL_VERSION_RETENTION_DRY_RUN: "maybe",
          PAPERCLIP_NATIVE_HARNESS_BACKUP_EXPIRATION_DAYS: "0"
        })
        expect(troubles(checks).map(({ detail, name, status }) => [status, name, detail])).toEqual([
          [
            "failed",
            "settings",
            expect.stringMatching(/_RETENTION_DRY_RUN is "maybe", allowed is true or false$/)
          ],
          ["failed", "settings", expect.stringMatching(/_RETENTION_KEEP is "-1", allowed is /)],
          ["failed", "settings", expect.stringMatching(/_EXPIRATION_DAYS is "0", allowed is /)],
          ["failed", "instance folder", "the instance folder must not be the root of the file system"],
          ["failed", "database", expect.stringMatching(/^cannot reach the database at 127\.0\.0\.1:1\/x: /)]
        ])
      })
    )

    it.effect("[O-06] tells of folders that are not there", () =>
      Effect.gen(function* () {
        const files = yield* FileSystem.FileSystem
        const folder = yield* files.makeTempDirectoryScoped()
        const checks = yield* examine({ RECLAIM_INSTANCE: folder })
        expect(troubles(checks).map(({ detail, name, status }) => [status, name, detail])).toEqual([
          ["warning", "skills folder", expect.stringMatching(/\/skills does not exist$/)],
          ["warning", "sessions folder", expect.stringMatching(/\/durable-sessions does not exist$/)]
        ])
        const [gone] = troubles(yield* examine({ RECLAIM_INSTANCE: `${folder}/nowhere` }))
        expect(gone).toMatchObject({ name: "instance folder", status: "failed" })
      }).pipe(Effect.scoped)
    )

    const root = process.getuid?.() === 0
    // nobody: an unprivileged user that every system has.
    const nobody = 65534

    it.effect("[O-06] [Q-04] names the folders that an ordinary user cannot read or write", () =>
      Effect.gen(function* () {
        const { companyId, oldCopy, pathOf, run, skillId, url, versions } = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        const folder = yield* files.makeTempDirectoryScoped()
        const copied = yield* oldCopy(versions[1])
        const skill = `${folder}/skills/${companyId}/__versions__/${skillId}`
        yield* files.copy(copied, `${skill}/${versions[1]}`)
        const closed = `${folder}/skills/${companyId}/__versions__/${versions[0]}`
        yield* files.makeDirectory(closed)
        const all = yield* files.readDirectory(folder, { recursive: true })
        if (root) {
          for (const name of ["", ...all]) yield* files.chown(`${folder}/${name}`, nobody, nobody)
        }
        yield* files.chmod(skill, 0o555)
        yield* files.chmod(closed, 0)
        const user = root ? preload(`process.setgid(${nobody}); process.setuid(${nobody})`) : undefined
        const found = yield* run(
          ["doctor", "--json"],
          { RECLAIM_INSTANCE: folder, DATABASE_URL: url },
          user === undefined ? {} : { node: user }
        )
        yield* files.chmod(skill, 0o755)
        yield* files.chmod(closed, 0o755)
        if (found.stdout === "") {
          // The checkout lies in somebody's private home.
          return console.log(`Doctor.test.ts: left out as an ordinary user: ${found.stderr.split("\n")[0]}`)
        }
        const checks = checksOf(found)
        expect(named(checks, "permissions").map(({ detail, status }) => [status, detail])).toEqual([
          ["failed", `cannot be read: ${closed}`],
          ["failed", `cannot be written: ${skill}`]
        ])
        expect(pathOf(versions[1])).toBe(copied)
      }).pipe(Effect.scoped)
    )

    it.effect("[O-06] counts leftovers by kind, says what becomes of them, and when that is overdue", () =>
      Effect.gen(function* () {
        const { companyId, skillId, versions } = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        const folder = yield* files.makeTempDirectoryScoped()
        const skill = `${folder}/skills/${companyId}/__versions__/${skillId}`
        const sessions = `${folder}/runtime/paperclip-runner/durable-sessions`
        const backups = `${sessions}/${Sessions.newScope()}/failover-backups`
        const id = () => crypto.randomUUID()
        for (const path of [
          `${skill}/.staging-${versions[0]}-${id()}`,
          `${skill}/.staging-${versions[1]}-${id()}`,
          `${skill}/.evicting-${versions[0]}-${id()}`,
          `${skill}/.replaced-${versions[0]}-${id()}`,
          `${skill}/.trash-${id()}`,
          `${backups}/.pending-${id()}`,
          `${backups}/.retiring-${id()}`,
          `${backups}/.expired-${id()}`,
          `${sessions}/.restoring-${id()}`
        ]) {
          yield* files.makeDirectory(path, { recursive: true })
        }
        const kindsOf = (checks: ReadonlyArray<Output.Check>) =>
          named(checks, "leftovers").map(({ detail }) =>
            /^(\d folders?) (\.[a-z]+): /.exec(detail)?.slice(1).join(" ")
          )
        const expected = expect.arrayContaining([
          "1 folder .evicting",
          "1 folder .expired",
          "1 folder .pending",
          "1 folder .replaced",
          "1 folder .restoring",
          "1 folder .retiring",
          "1 folder .trash",
          "2 folders .staging"
        ])
        const env = { RECLAIM_INSTANCE: folder }
        const now = yield* examine(env)
        expect(kindsOf(now)).toEqual(expected)
        expect(troubles(now)).toEqual([])
        const overdue = yield* examine(env, later(25))
        expect(kindsOf(overdue)).toEqual(expected)
        const leftovers = named(overdue, "leftovers")
        expect(leftovers.map(({ status }) => status)).toEqual(Array(8).fill("warning"))
        const advice = (kind: string) =>
          leftovers.find(({ detail }) => detail.includes(` .${kind}: `))?.advice
        expect(advice("staging")).toBe("reclaim skills sweep")
        expect(advice("retiring")).toBe("reclaim backups sweep")
        expect(advice("replaced")).toContain("reclaim skills audit")
        expect(advice("restoring")).toContain("by hand")
        // A process that is a day ahead of its database says so.
        expect(named(overdue, "clock")).toMatchObject([{ status: "warning" }])
      }).pipe(Effect.scoped)
    )
  })

  describe("the database", () => {
    it.effect(
      "[O-06] [D-05] a server that is not adopted gets the advice to migrate, and all else is checked",
      () =>
        Effect.gen(function* () {
          const { sql, url } = yield* freshHost
          yield* sql`drop table reclaim.holds`
          const half = yield* examine({ DATABASE_URL: url })
          expect(named(half, "schema reclaim")).toMatchObject([
            { status: "warning", detail: expect.stringMatching(/: reclaim\.holds$/) }
          ])
          yield* sql`drop schema reclaim cascade`
          const checks = yield* examine({ DATABASE_URL: url })
          expect(troubles(checks).filter(({ name }) => !name.endsWith(" folder"))).toEqual([
            expect.objectContaining({
              name: "schema reclaim",
              status: "warning",
              advice: expect.stringContaining("reclaim migrate")
            })
          ])
          expect(named(checks, "selections")).toHaveLength(1)
        }).pipe(Effect.scoped)
    )

    it.effect(
      "[O-06] [D-06] lists every table and column that is missing, and what can be done without",
      () =>
        Effect.gen(function* () {
          const { sql, url } = yield* freshHost
          yield* sql`drop table environment_leases`
          yield* sql`alter table issues drop column completed_at, drop column cancelled_at`
          yield* sql`alter table heartbeat_runs drop column retry_of_run_id`
          const checks = yield* examine({ DATABASE_URL: url })
          const lease = ["id", "company_id", "status", "cleanup_status", "metadata"]
          const leases = lease.map((column) => `environment_leases.${column}`).join(", ")
          expect(named(checks, "tables for skill versions")).toMatchObject([
            { status: "failed", detail: "missing: heartbeat_runs.retry_of_run_id" }
          ])
          expect(named(checks, "tables for session backups")).toMatchObject([
            {
              status: "failed",
              detail: `missing: heartbeat_runs.retry_of_run_id, ${leases}, issues.completed_at, issues.cancelled_at`
            }
          ])
          yield* sql`alter table heartbeat_runs add column retry_of_run_id uuid`
          const without = yield* examine({
            DATABASE_URL: url,
            PAPERCLIP_NATIVE_HARNESS_BACKUP_EXPIRATION_ENABLED: "false"
          })
          expect(named(without, "tables for skill versions")).toMatchObject([{ status: "ok" }])
          expect(named(without, "tables for session backups")).toMatchObject([{ status: "warning" }])
          expect(without.filter(({ status }) => status === "failed")).toEqual([])
        }).pipe(Effect.scoped)
    )

    it.effect("[O-06] [D-05] gives the statements for the rights that a role lacks", () =>
      Effect.gen(function* () {
        const host = yield* freshHost
        const { sql } = host
        const { env, role } = yield* asRole(host)
        const follow = (advice: string | null | undefined) =>
          Effect.forEach(advice?.match(/[^;]+;/g) ?? [], (statement) => sql.unsafe(statement))
        const none = named(yield* examine(env), "rights")
        expect(none).toMatchObject([{ status: "failed" }])
        expect(none[0]?.detail).toContain("SELECT on company_skill_versions")
        yield* follow(none[0]?.advice)
        const expiry = yield* examine(env)
        expect(named(expiry, "rights")).toEqual([])
        const lacking = named(expiry, "rights for expiry")
        expect(lacking).toMatchObject([{ status: "warning" }])
        expect(lacking[0]?.detail).toContain("DELETE on agent_task_sessions")
        yield* follow(lacking[0]?.advice)
        expect(named(yield* examine(env), "rights")).toMatchObject([{ status: "ok" }])

        // A policy hides rows without an error to whoever looks.
        yield* sql`insert into companies (name) values ('whose runs are hidden')`
        yield* sql`alter table heartbeat_runs enable row level security`
        const hidden = yield* examine(env)
        expect(named(hidden, "rights")).toMatchObject([
          {
            status: "failed",
            detail: `${role} lacks: policies hide rows of heartbeat_runs`,
            advice: `alter role "${role}" bypassrls;`
          }
        ])
        expect(named(hidden, "selections")).toMatchObject([{ status: "failed" }])
      }).pipe(Effect.scoped)
    )

    it.effect(
      "[O-06] names runs that have blocked their company for a day, and how to record their selection",
      () =>
        Effect.gen(function* () {
          const { companyId, run, versions } = yield* Fixture.Fixture
          yield* runningRun(23)
          const fine = yield* examine()
          expect(named(fine, "selections")).toMatchObject([
            { status: "ok", detail: expect.stringMatching(/^1 run of the last 24 hours /) }
          ])
          const old = yield* runningRun(25)
          const blocked = named(yield* examine(), "selections").filter(({ status }) => status === "warning")
          expect(blocked).toHaveLength(1)
          expect(blocked[0]?.detail).toMatch(
            new RegExp(`^run ${old} \\(running\\) began at .*company ${companyId} stays$`)
          )
          const command = `reclaim skills prepare --company ${companyId} --run ${old} --version ID`
          expect(blocked[0]?.advice?.endsWith(command)).toBe(true)

          const args = command.replace("ID", versions[1]).split(" ").slice(1)
          expect((yield* run(args)).code).toBe(0)
          const recorded = yield* examine()
          expect(named(recorded, "selections").map(({ status }) => status)).toEqual(["ok"])
          // One run has a record and another has none: two kinds of servers are at work.
          expect(named(recorded, "servers")).toMatchObject([
            { status: "warning", advice: expect.stringContaining("_RETENTION_DRY_RUN=true") }
          ])
        }).pipe(Effect.scoped)
    )

    it.effect("[O-06] tells when a sweep last changed something", () =>
      Effect.gen(function* () {
        const { oldCopy, run, versions } = yield* Fixture.Fixture
        yield* oldCopy(versions[0])
        expect((yield* run(["skills", "sweep"])).code).toBe(0)
        const [last] = named(yield* examine(), "last change")
        expect(last?.detail).toMatch(/skill versions: \d{4}-\d\d-\d\d \d\d:\d\d UTC/)
      })
    )

    it.effect("[O-06] knows a server that is too old, takes no writes or has another time", () =>
      Effect.sync(() => {
        const server: DatabaseHealth.Server = {
          version: "18.4",
          versionNumber: 180_004,
          database: "host",
          role: "worker",
          inRecovery: false,
          readOnly: false,
          now: DateTime.makeUnsafe(0)
        }
        const statuses = (changes: Partial<DatabaseHealth.Server>) =>
          judgeServer({ ...server, ...changes }).map(({ status }) => status)
        expect(statuses({})).toEqual(["ok", "ok"])
        expect(statuses({ version: "15.0", versionNumber: 150_000 })).toEqual(["ok", "ok"])
        expect(statuses({ version: "14.13", versionNumber: 140_013 })).toEqual(["failed", "ok"])
        expect(statuses({ inRecovery: true, readOnly: true })).toEqual(["ok", "failed"])
        expect(judgeServer({ ...server, inRecovery: true, readOnly: true })[1]?.detail).toContain("standby")
        expect(statuses({ readOnly: true })).toEqual(["ok", "failed"])

        const clock = (at: number) => judgeClock(DateTime.makeUnsafe(at), 1_000_000, 1_000_500)
        expect(clock(1_000_200)).toMatchObject({
          status: "ok",
          detail: "this machine and the database agree"
        })
        expect(clock(1_000_500 + 60_000)).toMatchObject({ status: "ok" })
        expect(clock(1_000_500 + 61_000)).toMatchObject({
          status: "warning",
          detail: "the database is 1 min 1 s ahead of this machine"
        })
        expect(clock(1_000_000 - 61_000)).toMatchObject({
          status: "warning",
          detail: "the database is 1 min 1 s behind this machine"
        })
        const GiB = 1024n ** 3n
        const room = (available: bigint, total: bigint) =>
          judgeVolume("disk space", { available, total }).status
        expect(room(10n * GiB, 100n * GiB)).toBe("ok")
        expect(room(4n * GiB, 100n * GiB)).toBe("warning")
        expect(room(GiB - 1n, 10n * GiB)).toBe("warning")
      })
    )
  })

  describe("the way to the database", () => {
    it.effect("[D-04] blames a client that prepares statements through a pooler, and no other", () =>
      Effect.sync(() => {
        expect(judgePooling({ shared: false, prepared: [] }).status).toBe("ok")
        expect(judgePooling({ shared: true, prepared: [] })).toMatchObject({
          status: "warning",
          advice: expect.stringContaining("prepare: false")
        })
        // PgBouncer's own names: it keeps track of what each client has prepared.
        expect(judgePooling({ shared: true, prepared: ["PGBOUNCER_1"] }).status).toBe("warning")
        expect(judgePooling({ shared: true, prepared: ["effect_a_1"] })).toMatchObject({
          status: "failed",
          advice: expect.stringContaining("prepare: false")
        })
      })
    )

    if (PgBouncer.binary === undefined)
      console.log("PgBouncer is not installed: its test in Doctor.test.ts is skipped")
    else {
      it.effect(
        "[D-04] recognises PgBouncer in transaction mode, and a host's client that is set up wrongly",
        () =>
          Effect.gen(function* () {
            const { url } = yield* Fixture.Fixture
            const pooled = yield* PgBouncer.through(url)
            const right = yield* examine({ DATABASE_URL: pooled })
            expect(named(right, "pooler")).toMatchObject([
              { status: "warning", advice: expect.stringContaining("prepare: false") }
            ])
            expect(right.filter(({ status }) => status === "failed")).toEqual([])
            yield* Effect.gen(function* () {
              const sql = yield* SqlClient.SqlClient
              yield* sql`select ${1}::int`
            }).pipe(
              Effect.provide(PgClient.layer({ url: Redacted.make(pooled), maxConnections: 1 }), {
                local: true
              })
            )
            const wrong = yield* examine({ DATABASE_URL: pooled })
            expect(named(wrong, "pooler")).toMatchObject([
              {
                status: "failed",
                detail: expect.stringMatching(/a client prepares statements through it: effect_/),
                advice: expect.stringContaining("prepare: false")
              }
            ])
          }).pipe(Effect.scoped)
      )
    }
  })
})
