import { expect, layer } from "@effect/vitest"
import * as PgClient from "@effect/sql-pg/PgClient"
import { EmbeddedPostgres } from "@reclaim/postgres"
import { Clock, Deferred, Effect, Fiber, FileSystem, Option, Redacted, Schema } from "effect"
import * as Reactivity from "effect/reactivity/Reactivity"
import * as SqlClient from "effect/sql/SqlClient"
import { TestClock } from "effect/testing"
import { connect } from "node:net"
import { dirname } from "node:path"
import { Output } from "../src/index.ts"
import * as Fixture from "./support/fixture.ts"
import { eventually, reclaim } from "./support/reclaim.ts"
import { type Host, request, serve, untilStatus } from "./support/serving.ts"

// Any number: the lock that an eviction waits for in these tests, in the middle of its transaction.
const gate = 8710

const Refused = Schema.fromJsonString(Output.Failure)
const tagOf = (body: string) => Effect.map(Schema.decodeEffect(Refused)(body), ({ _tag }) => _tag)

/** A host on the fixture's database and instance. */
const host = Effect.fnUntraced(function* (
  env: Readonly<Record<string, string>> = {},
  args: ReadonlyArray<string> = []
) {
  const { instance, url } = yield* Fixture.Fixture
  return yield* serve({ DATABASE_URL: url, RECLAIM_INSTANCE: instance, ...env }, args)
})

/** Lets no eviction past the entry in the journal, until it is opened or the scope closes. */
const closeGate = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`create or replace function wait_at_the_gate() returns trigger language plpgsql as
    'begin perform pg_advisory_xact_lock_shared(8710); return new; end'`
  yield* sql`create or replace trigger gate before insert on reclaim.journal
    for each row when (new.event = 'evicted') execute function wait_at_the_gate()`
  const closed = yield* Deferred.make<void>()
  const keeper = yield* sql`select pg_advisory_xact_lock(${gate})`.pipe(
    Effect.andThen(Deferred.succeed(closed, undefined)),
    Effect.andThen(Effect.never),
    sql.withTransaction,
    Effect.forkScoped
  )
  yield* Deferred.await(closed)
  return { open: Fiber.interrupt(keeper) }
})

const backends = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<{ readonly pid: number; readonly waits: boolean }>`
    select pid as "pid", coalesce(wait_event = 'advisory', false) as "waits" from pg_stat_activity
    where datname = current_database() and application_name = 'reclaim'`
)

/** Waits until an eviction has renamed its copy and stands before the end of its transaction. */
const midEviction = eventually(Effect.map(backends, (all) => all.some(({ waits }) => waits)))

const foldersOfSkill = Effect.gen(function* () {
  const { pathOf, versions } = yield* Fixture.Fixture
  const files = yield* FileSystem.FileSystem
  return yield* files.readDirectory(dirname(pathOf(versions[0]))).pipe(Effect.orElseSucceed(() => []))
})

/** Nothing of the eviction is left: the copy has its name, no leftover lies beside it, no session is open. */
const expectUndone = Effect.gen(function* () {
  const { versions } = yield* Fixture.Fixture
  const sql = yield* SqlClient.SqlClient
  expect(yield* foldersOfSkill).toEqual([versions[0]])
  yield* eventually(Effect.map(backends, (all) => all.length === 0))
  expect(
    yield* sql`select 1 from reclaim.journal where event = 'evicted' and version_id = ${versions[0]}::uuid`
  ).toEqual([])
})

/** Nothing evicted yet: each test starts with one old copy and no account of it. */
const oneOldCopy = Effect.gen(function* () {
  const { oldCopy, pathOf, versions } = yield* Fixture.Fixture
  const sql = yield* SqlClient.SqlClient
  const files = yield* FileSystem.FileSystem
  yield* sql`delete from reclaim.journal`
  yield* files.remove(dirname(pathOf(versions[0])), { recursive: true, force: true })
  return yield* oldCopy(versions[0])
})

const untilGone = (path: string) =>
  eventually(
    Effect.flatMap(FileSystem.FileSystem, (files) => Effect.map(files.exists(path), (there) => !there))
  )

const untilReady = (host: Host) => untilStatus(host, "/readyz", 200)

layer(Fixture.layer, { timeout: 60_000 })("serve", (it) => {
  it.effect("[O-05] sweeps by itself and tells health, readiness, metrics and status", () =>
    Effect.gen(function* () {
      const path = yield* oneOldCopy
      const running = yield* host()
      expect(running.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/)
      expect(yield* running.get("/healthz")).toMatchObject({ status: 200, body: "ok\n" })
      yield* untilReady(running)
      expect((yield* running.get("/readyz")).body).toBe("ready\n")
      yield* untilGone(path)
      yield* eventually(
        Effect.map(running.status, ({ skillVersions }) => Option.isSome(skillVersions.lastSuccessAt))
      )
      const status = yield* running.status
      expect(status).toMatchObject({ phase: "active", ready: true, reasons: [] })
      expect(status.skillVersions).toMatchObject({
        activity: "waiting",
        lastSweep: Option.some(
          expect.objectContaining({ outcome: "completed", evicted: 1, dryRun: false, considered: 1 })
        )
      })
      // Two minutes after readiness, and this test is quicker.
      expect(status.backups).toMatchObject({ activity: "waiting", lastSweep: Option.none() })
      const metrics = yield* running.get("/metrics")
      expect(metrics.headers["content-type"]).toContain("version=0.0.4")
      const samples = metrics.body.split("\n").filter((line) => line !== "" && !line.startsWith("#"))
      for (const sample of samples) {
        expect(sample).toMatch(/^[a-z_]+(\{([a-z_]+="[^"]*",?)+\})? -?[0-9.e+-]+$/i)
      }
      expect(samples).toContain(
        'reclaim_sweep_removed{reclaim_worker="skill-versions",reclaim_dry_run="false"} 1'
      )
      const swept = (yield* running.log).split("\n").find((line) => line.includes("swept skill versions"))
      expect(JSON.parse(swept ?? "")).toMatchObject({ level: "INFO", annotations: { evicted: 1 } })
      yield* running.kill("SIGTERM")
      expect(yield* running.exitCode).toBe(0)
      // Nothing but the document goes to standard output.
      expect(yield* running.lines).toHaveLength(1)
    }).pipe(Effect.scoped)
  )

  it.effect("[O-05] answers what it does not know, and requests without a body", () =>
    Effect.gen(function* () {
      const running = yield* host()
      const nothing = yield* running.get("/nothing?x=1")
      expect(nothing.status).toBe(404)
      expect(yield* tagOf(nothing.body)).toBe("NotFound")
      const wrong = yield* running.post("/healthz")
      expect(wrong).toMatchObject({ status: 405, headers: { allow: "GET, HEAD" } })
      expect(yield* running.get("/drain")).toMatchObject({ status: 405, headers: { allow: "POST" } })
      const head = yield* request(`${running.url}/healthz`, { method: "HEAD" })
      expect(head).toMatchObject({ status: 200, body: "" })
      expect(head.headers).toMatchObject({ "x-content-type-options": "nosniff", "cache-control": "no-store" })
    }).pipe(Effect.scoped)
  )

  it.effect("[O-05] [W-03] SIGTERM in the middle of an eviction ends with 0 and nothing half done", () =>
    Effect.gen(function* () {
      yield* oneOldCopy
      const gateway = yield* closeGate
      const running = yield* host()
      yield* midEviction
      expect((yield* foldersOfSkill).join()).toMatch(/^\.evicting-/)
      expect((yield* running.status).skillVersions.activity).toBe("sweeping")
      yield* running.kill("SIGTERM")
      expect(yield* running.exitCode).toBe(0)
      yield* expectUndone
      yield* gateway.open
    }).pipe(Effect.scoped)
  )

  it.effect("[O-05] a second signal does not wait for the work in hand", () =>
    Effect.gen(function* () {
      yield* oneOldCopy
      const gateway = yield* closeGate
      const running = yield* host()
      yield* midEviction
      const waiting = (yield* backends).flatMap(({ pid, waits }) => (waits ? [pid] : []))
      // The work in hand ends when the database answers, which it does not.
      yield* Effect.acquireRelease(
        Effect.sync(() => waiting.map((pid) => process.kill(pid, "SIGSTOP"))),
        () => Effect.sync(() => waiting.map((pid) => process.kill(pid, "SIGCONT")))
      )
      yield* running.signal("SIGTERM")
      // Until then it tells what it is doing.
      yield* untilStatus(running, "/readyz", 503)
      expect((yield* running.get("/readyz")).body).toContain("the host is draining\n")
      expect((yield* running.get("/healthz")).status).toBe(200)
      yield* eventually(
        Effect.gen(function* () {
          if (!(yield* running.isRunning)) return true
          yield* running.signal("SIGTERM")
          return false
        })
      )
      expect(yield* running.exitCode).toBe(130)
      yield* gateway.open
    }).pipe(Effect.scoped)
  )

  it.effect("[O-05] SIGINT in the middle of an eviction ends with 130 and nothing half done", () =>
    Effect.gen(function* () {
      yield* oneOldCopy
      const gateway = yield* closeGate
      const running = yield* host()
      yield* midEviction
      yield* running.kill("SIGINT")
      expect(yield* running.exitCode).toBe(130)
      yield* expectUndone
      yield* gateway.open
    }).pipe(Effect.scoped)
  )

  it.effect("[O-05] [W-03] a standby takes an eviction back, and a resume goes on with the next", () =>
    Effect.gen(function* () {
      const { oldCopy, versions } = yield* Fixture.Fixture
      yield* oneOldCopy
      yield* oldCopy(versions[1])
      const gateway = yield* closeGate
      const running = yield* host()
      yield* midEviction
      expect(yield* running.post("/standby")).toMatchObject({
        status: 200,
        body: '{"type":"phase","phase":"standby"}\n'
      })
      yield* eventually(
        Effect.map(running.status, ({ skillVersions }) => skillVersions.activity === "standby")
      )
      expect(new Set(yield* foldersOfSkill)).toEqual(new Set(versions.slice(0, 2)))
      expect((yield* running.status).skillVersions.lastSweep).toMatchObject(
        Option.some(expect.objectContaining({ outcome: "stopped" }))
      )
      // It gives way, but it is well.
      expect((yield* running.get("/readyz")).status).toBe(200)
      yield* gateway.open
      expect((yield* running.post("/resume")).body).toBe('{"type":"phase","phase":"active"}\n')
      // The one that was taken back has lost its record of use on the way, so it is observed for a while.
      yield* eventually(Effect.map(foldersOfSkill, (folders) => folders.length === 1))
      expect(versions).toContain((yield* foldersOfSkill).join())
    }).pipe(Effect.scoped)
  )

  it.effect(
    "[O-05] [W-03] a drain is accepted at once, and the process ends with 0 when the work is done",
    () =>
      Effect.gen(function* () {
        yield* oneOldCopy
        const gateway = yield* closeGate
        const running = yield* host()
        yield* midEviction
        expect(yield* running.post("/drain")).toMatchObject({
          status: 200,
          body: '{"type":"phase","phase":"draining"}\n'
        })
        expect(yield* running.exitCode).toBe(0)
        yield* expectUndone
        yield* gateway.open
      }).pipe(Effect.scoped)
  )

  it.effect("[O-05] a changing request needs the token, where there is one", () =>
    Effect.gen(function* () {
      const files = yield* FileSystem.FileSystem
      const file = `${yield* files.makeTempDirectoryScoped()}/token`
      yield* files.writeFileString(file, "s3cret-of-the-file\n")
      const running = yield* host({ RECLAIM_TOKEN: "s3cret-of-the-variable" }, ["--token-file", file])
      for (const headers of [
        {},
        { authorization: "Bearer s3cret-of-the-variable" },
        { authorization: "Bearer s3cret-of-the-fil" },
        { authorization: "Basic s3cret-of-the-file" }
      ]) {
        const refused = yield* running.post("/drain", headers)
        expect(refused).toMatchObject({ status: 401, headers: { "www-authenticate": "Bearer" } })
        expect(yield* tagOf(refused.body)).toBe("Unauthorized")
      }
      expect((yield* running.status).phase).not.toBe("draining")
      expect((yield* running.post("/standby", { authorization: "Bearer s3cret-of-the-file" })).status).toBe(
        200
      )
      expect(yield* running.log).not.toContain("s3cret")
    }).pipe(Effect.scoped)
  )

  it.effect("[O-05] the token may come from the environment, and other machines are served with one", () =>
    Effect.gen(function* () {
      const running = yield* host({ RECLAIM_TOKEN: "s3cret" }, ["--host", "0.0.0.0"])
      const port = new URL(running.url).port
      expect(running.url).toBe(`http://0.0.0.0:${port}`)
      const local = `http://127.0.0.1:${port}`
      // There a name may be anybody's.
      expect((yield* request(`${local}/healthz`, { headers: { host: "reclaim.internal" } })).status).toBe(200)
      expect((yield* request(`${local}/drain`, { method: "POST" })).status).toBe(401)
      const drained = yield* request(`${local}/drain`, {
        method: "POST",
        headers: { authorization: "bearer s3cret" }
      })
      expect(drained.status).toBe(200)
      expect(yield* running.exitCode).toBe(0)
    }).pipe(Effect.scoped)
  )

  it.effect("[O-05] a page of another site can neither read nor change anything", () =>
    Effect.gen(function* () {
      const running = yield* host()
      const { host: own, port } = new URL(running.url)
      for (const name of ["evil.example", `evil.example:${port}`, "127.0.0.1.evil.example"]) {
        const rebound = yield* request(`${running.url}/status.json`, { headers: { host: name } })
        expect(rebound.status, name).toBe(421)
        expect(yield* tagOf(rebound.body)).toBe("ForeignHost")
      }
      for (const name of [own, `localhost:${port}`, "localhost", `[::1]:${port}`]) {
        expect((yield* request(`${running.url}/healthz`, { headers: { host: name } })).status, name).toBe(200)
      }
      for (const headers of [
        { origin: "https://evil.example" },
        { origin: "null" },
        { origin: `http://127.0.0.1:${Number(port) + 1}` },
        { "sec-fetch-site": "cross-site" },
        { "sec-fetch-site": "same-site" }
      ]) {
        const refused = yield* running.post("/standby", headers)
        expect(refused.status, JSON.stringify(headers)).toBe(403)
        expect(yield* tagOf(refused.body)).toBe("ForeignOrigin")
      }
      const own1 = { origin: running.url, "sec-fetch-site": "same-origin" }
      expect((yield* running.post("/standby", own1)).status).toBe(200)
    }).pipe(Effect.scoped)
  )

  it.effect(
    "[O-05] says in one line why it cannot begin",
    () =>
      Effect.gen(function* () {
        const { run } = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        const folder = yield* files.makeTempDirectoryScoped()
        yield* files.writeFileString(`${folder}/empty`, "\n")
        const running = yield* host()
        const { port } = new URL(running.url)
        for (const [args, env, code, message] of [
          [
            ["--host", "0.0.0.0"],
            {},
            2,
            /0\.0\.0\.0 needs a token: use --token-file FILE or set RECLAIM_TOKEN/
          ],
          [["--host", "::"], {}, 2, /:: needs a token/],
          [["--host", "example.org"], {}, 2, /an IP address, or localhost/],
          [["--port", "65536"], {}, 2, /a whole number from 0 to 65535/],
          [
            ["--port", port],
            {},
            1,
            new RegExp(`cannot listen on http://127\\.0\\.0\\.1:${port}: the port is in use`)
          ],
          [
            ["--host", "192.0.2.1", "--port", "0"],
            { RECLAIM_TOKEN: "x" },
            1,
            /this machine has no such address/
          ],
          [["--token-file", `${folder}/none`], {}, 2, /the token file cannot be read \(NotFound\)/],
          [["--token-file", `${folder}/empty`], {}, 2, /the token file must hold one word/],
          [[], { RECLAIM_TOKEN: "two words" }, 2, /RECLAIM_TOKEN must be one word/],
          [[], { OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" }, 2, /"http\/protobuf" \| "http\/json".*/],
          [[], { OTEL_EXPORTER_OTLP_ENDPOINT: "not a url" }, 2, /URL/],
          [[], { PAPERCLIP_SKILL_VERSION_RETENTION_KEEP: "-1" }, 2, /PAPERCLIP_SKILL_VERSION_RETENTION_KEEP/],
          [[], { DATABASE_URL: "" }, 2, /no database given/]
        ] as const) {
          const refused = yield* run(["serve", ...args], env)
          expect(refused.code, refused.stderr).toBe(code)
          expect(refused.stderr).toMatch(message)
          expect(refused.stderr.split("\n")).toHaveLength(2)
          expect(refused.stdout).toBe("")
        }
      }).pipe(Effect.scoped),
    // It starts more than a dozen processes.
    180_000
  )

  it.effect("[O-05] a client that sends nothing does not keep it from ending", () =>
    Effect.gen(function* () {
      const running = yield* host()
      const { port } = new URL(running.url)
      const silent = (first: string) =>
        Effect.callback<void>((resume) => {
          const socket = connect(Number(port), "127.0.0.1", () => {
            socket.write(first, () => resume(Effect.void))
          })
          socket.on("error", () => undefined)
        })
      yield* silent("GET /healthz HTTP/1.1\r\nHost: local")
      yield* silent("")
      // This one is answered, and owes the rest of what it announced.
      yield* silent("POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
      yield* running.signal("SIGTERM")
      const code = yield* TestClock.withLive(Effect.timeoutOption(running.exitCode, "15 seconds"))
      expect(code).toEqual(Option.some(0))
    }).pipe(Effect.scoped)
  )

  it.effect("[O-05] no client keeps a connection that it does not use", () =>
    Effect.gen(function* () {
      const running = yield* host()
      const { port } = new URL(running.url)
      for (const first of [
        "",
        "GET /healthz HTTP/1.1\r\nHost: local",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
      ]) {
        let ended = false
        let closed = false
        // It does not close its own half, whatever it is told.
        const socket = connect({ port: Number(port), host: "127.0.0.1", allowHalfOpen: true })
        socket.write(first)
        socket
          .on("data", () => undefined)
          .on("end", () => (ended = true))
          .on("error", () => undefined)
          .on("close", () => (closed = true))
        yield* eventually(
          Effect.sync(() => {
            // Only whoever writes learns that nobody is there any more.
            if (ended && !closed) socket.write("x")
            return closed
          })
        )
      }
      expect((yield* running.get("/healthz")).status).toBe(200)
    }).pipe(Effect.scoped)
  )

  it.effect("[O-05] looks at the database once a second at most, however many ask", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`create sequence looks`
      yield* Effect.acquireRelease(
        Effect.andThen(
          sql`alter table reclaim.adoption rename to aside_adoption`,
          sql`create view reclaim.adoption as select case when nextval('looks') > 0 then adopted_at end as adopted_at
              from reclaim.aside_adoption`
        ),
        () =>
          Effect.orDie(
            Effect.andThen(
              sql`drop view reclaim.adoption`,
              sql`alter table reclaim.aside_adoption rename to adoption`
            )
          )
      )
      const running = yield* host({
        PAPERCLIP_SKILL_VERSION_RETENTION_ENABLED: "false",
        PAPERCLIP_NATIVE_HARNESS_BACKUP_EXPIRATION_ENABLED: "false"
      })
      yield* untilReady(running)
      const looks = Effect.map(
        sql<{ readonly count: number }>`select last_value::int as "count" from looks`,
        ([row]) => row?.count ?? 0
      )
      const before = yield* looks
      const start = yield* TestClock.withLive(Clock.currentTimeMillis)
      for (let asked = 0; asked < 60; asked += 1) yield* running.get("/readyz")
      const seconds = ((yield* TestClock.withLive(Clock.currentTimeMillis)) - start) / 1000
      // One may have been under way, and the account of the status page asks once.
      expect((yield* looks) - before).toBeLessThanOrEqual(seconds + 3)
    }).pipe(Effect.scoped)
  )

  it.effect("[O-05] works as soon as the tables are there, without being asked", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const path = yield* oneOldCopy
      yield* sql`alter schema reclaim rename to aside`
      const running = yield* host()
      const refused = yield* running.get("/readyz")
      expect(refused.status).toBe(503)
      expect(refused.body).toContain('run "reclaim migrate" first')
      expect(yield* running.status).toMatchObject({ phase: "starting", ready: false })
      expect((yield* running.status).skillVersions.activity).toBe("starting")
      yield* sql`alter table company_skills rename to aside_skills`
      yield* eventually(
        Effect.map(running.get("/readyz"), ({ body }) =>
          body.includes("the database lacks what skills need: company_skills.id")
        )
      )
      yield* sql`alter table aside_skills rename to company_skills`
      yield* sql`alter schema aside rename to reclaim`
      yield* untilGone(path)
      expect((yield* running.get("/readyz")).status).toBe(200)
    }).pipe(Effect.scoped)
  )

  it.effect("[O-05] a worker that is disabled needs no tables", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const path = yield* oneOldCopy
      yield* sql`alter table environment_leases rename to aside_leases`
      const running = yield* host()
      expect((yield* running.get("/readyz")).body).toContain("environment_leases.id")
      const without = yield* host({ PAPERCLIP_NATIVE_HARNESS_BACKUP_EXPIRATION_ENABLED: "false" })
      yield* untilGone(path)
      yield* sql`alter table aside_leases rename to environment_leases`
      expect((yield* without.status).backups.activity).toBe("disabled")
    }).pipe(Effect.scoped)
  )

  it.effect("[O-05] tells within seconds that the database does not answer, and ends as asked", () =>
    Effect.gen(function* () {
      const { instance } = yield* Fixture.Fixture
      const database = yield* EmbeddedPostgres.make({ durable: false })
      const env = { DATABASE_URL: database.url, RECLAIM_INSTANCE: instance }
      expect((yield* reclaim(["migrate", "--with-host-tables"], { env })).code).toBe(0)
      const running = yield* serve(env)
      yield* untilReady(running)
      const client = yield* PgClient.make({ url: Redacted.make(database.url), maxConnections: 1 })
      const connected = yield* client<{ readonly pid: number }>`
        select pid from pg_stat_activity where application_name = 'reclaim'`
      const pids = [database.pid, ...connected.map(({ pid }) => pid)]
      const signal = (name: NodeJS.Signals) =>
        Effect.sync(() => {
          for (const pid of pids) process.kill(pid, name)
        })
      yield* Effect.acquireRelease(signal("SIGSTOP"), () => signal("SIGCONT"))
      yield* untilStatus(running, "/readyz", 503)
      // Its answer is on the way while the host closes.
      const late = yield* Effect.forkChild(running.get("/readyz"))
      yield* running.kill("SIGTERM")
      expect(yield* running.exitCode).toBe(0)
      expect((yield* Fiber.join(late)).status).toBe(503)
    }).pipe(Effect.scoped, Effect.provide(Reactivity.layer))
  )
})
