import * as NodeServices from "@effect/platform-node/NodeServices"
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, describe, it } from "@effect/vitest"
import { Ids } from "@reclaim/core"
import { DatabaseClock, Holds, HostSchema, Transactions } from "@reclaim/db"
import { TestDatabase } from "@reclaim/postgres/testing"
import { BackupExpiration, SkillVersionCache, SkillVersionRetention } from "@reclaim/runtime"
import { FaultPoints } from "@reclaim/runtime/testing"
import { ConfigProvider, Effect, FileSystem, Layer, Logger, Redacted, type Scope, Stream } from "effect"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import * as HttpClient from "effect/http/HttpClient"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import * as HttpServer from "effect/http/HttpServer"
import { ChildProcess, ChildProcessSpawner } from "effect/process"
import * as SqlClient from "effect/sql/SqlClient"
import { fileURLToPath } from "node:url"
import { inject } from "vitest"
import * as Host from "../../../examples/host/host.ts"
import * as Jobs from "../../../examples/host/Jobs.ts"
import { reclaim } from "./support/reclaim.ts"
import { eventually } from "../../db/test/support/database.ts"

const uuid = () => crypto.randomUUID()

/** A database and a folder, with a connection of the test's own. */
const makeGround = Effect.gen(function* () {
  const files = yield* FileSystem.FileSystem
  const { url } = yield* TestDatabase.make(inject("databaseUrl"))
  const dir = yield* files.realPath(yield* files.makeTempDirectoryScoped({ prefix: "reclaim-farm-" }))
  const client = yield* Layer.build(
    Layer.fresh(PgClient.layer({ url: Redacted.make(url), applicationName: "the test" }))
  )
  const env = { DATABASE_URL: url, FARM_DIR: dir, FARM_DRY_RUN: "false", PORT: "0" }
  return { files, dir, env, sql: yield* Effect.provide(SqlClient.SqlClient, client) }
})
type Ground = Effect.Success<typeof makeGround>

/** Runs an effect while the farm serves. */
const serving =
  ({ env }: Ground) =>
  <A, E, R>(self: Effect.Effect<A, E, R>) =>
    self.pipe(
      Effect.provide(Host.layer, { local: true }),
      Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env }))
    )

const send = Effect.fnUntraced(function* (request: HttpClientRequest.HttpClientRequest) {
  const response = yield* HttpClient.execute(request)
  const text = yield* response.text
  const body: unknown = text === "" ? undefined : JSON.parse(text)
  return { status: response.status, body }
})

const ask = Effect.fnUntraced(function* (
  method: "GET" | "POST" | "PUT" | "DELETE",
  path: string,
  body?: unknown
) {
  const { address } = yield* HttpServer.HttpServer
  const url = new URL(path, HttpServer.formatAddress(address))
  const request = HttpClientRequest.make(method)(url)
  return yield* send(body === undefined ? request : HttpClientRequest.bodyJsonUnsafe(request, body))
})

/** A tenant with a worker, an open ticket, and a tool of some releases, the last of them current. */
const makeTenant = Effect.fnUntraced(function* ({ dir, files, sql }: Ground, releases: number) {
  const tenantId = Ids.CompanyId.make(uuid())
  const toolId = Ids.SkillId.make(uuid())
  const [workerId, ticketId] = [uuid(), uuid()]
  yield* sql`insert into tenants values (${tenantId}::uuid, 'a tenant')`
  yield* sql`insert into workers values (${workerId}::uuid, ${tenantId}::uuid)`
  yield* sql`insert into tickets values (${ticketId}::uuid, ${tenantId}::uuid, 'open')`
  yield* sql`insert into tools values (${toolId}::uuid, ${tenantId}::uuid, 'compiler')`
  const versions: Array<Ids.VersionId> = []
  for (let number = 1; number <= releases; number++) {
    const id = Ids.VersionId.make(uuid())
    versions.push(id)
    yield* sql`insert into releases values (${id}::uuid, ${tenantId}::uuid, ${toolId}::uuid, ${number}::int)`
    yield* sql`insert into release_files values
      (${id}::uuid, 0, 'bin/compile', ${new TextEncoder().encode(`#!/bin/sh\necho ${number}\n`)}, true),
      (${id}::uuid, 1, 'empty', ''::bytea, false)`
    yield* sql`update tools set current_release_id = ${id}::uuid where id = ${toolId}::uuid`
  }
  const skills = `${dir}/skills/${tenantId}`
  const pathOf = (id: Ids.VersionId) => `${skills}/__versions__/${toolId}/${id}`
  return {
    tenantId,
    toolId,
    workerId,
    ticketId,
    versions,
    pathOf,
    job: (ids: ReadonlyArray<Ids.VersionId>, sessionId: string | null = null) => ({
      id: uuid(),
      tenantId,
      workerId,
      ticketId,
      sessionId,
      releases: ids
    }),
    /** As if nobody had used the copy for years. */
    age: (id: Ids.VersionId) =>
      files.writeFileString(
        `${skills}/__version_access__/${toolId}/${id}.json`,
        JSON.stringify({ schema: "reclaim.access.v1", lastUsedAt: "2020-01-01T00:00:00.000Z" })
      ),
    isThere: (id: Ids.VersionId) => files.exists(pathOf(id))
  }
})

const sweep = Effect.flatMap(SkillVersionRetention.SkillVersionRetention, (retention) =>
  Stream.runCollect(retention.sweep())
)

/** Why copies stay, by their versions. */
const kept = Effect.flatMap(SkillVersionRetention.SkillVersionRetention, (retention) =>
  retention.diagnose().pipe(
    Stream.runFold(
      () => new Map<string, ReadonlyArray<string>>(),
      (found, each) =>
        each._tag === "Copy"
          ? found.set(
              each.versionId,
              each.reasons.map(({ _tag }) => _tag)
            )
          : found
    )
  )
)

/** Waits for the sweep with which the workers begin, so that those of the test come after it. */
const settled = eventually(
  Effect.map(ask("GET", "/health"), ({ body }) => JSON.stringify(body).includes('"releases":"waiting"'))
)

/** Runs a test on ground of its own. */
const onGround = <A, E>(
  test: (
    ground: Ground
  ) => Effect.Effect<A, E, HttpClient.HttpClient | NodeServices.NodeServices | Scope.Scope>
) =>
  Effect.flatMap(makeGround, test).pipe(
    Effect.scoped,
    Effect.provide([NodeServices.layer, FetchHttpClient.layer, Logger.layer([])])
  )

describe("a host of another application", () => {
  it.live("[W-01] is composed in less than 80 lines, and the guide walks through all of its files", () =>
    Effect.gen(function* () {
      const files = yield* FileSystem.FileSystem
      const root = fileURLToPath(new URL("../../../", import.meta.url))
      const composition = yield* files.readFileString(`${root}examples/host/host.ts`)
      assert.isBelow(composition.trimEnd().split("\n").length, 80)
      const guide = yield* files.readFileString(`${root}docs/adopting.md`)
      for (const name of yield* files.readDirectory(`${root}examples/host`)) {
        assert.include(guide, `examples/host/${name}`)
      }
    }).pipe(Effect.provide(NodeServices.layer))
  )

  it.live(
    "[W-01] [D-06] starts a job with its releases, keeps them until it ends, and lets them go then",
    () =>
      onGround((ground) =>
        Effect.gen(function* () {
          yield* settled
          const { age, isThere, job, pathOf, versions } = yield* makeTenant(ground, 3)
          const [old, other, current] = [versions[0]!, versions[1]!, versions[2]!]
          // More than one part.
          yield* ground.sql`insert into release_files values
          (${old}::uuid, 2, 'large', convert_to(repeat('0123456789abcdef', 600000), 'UTF8'), false)`
          const running = job([old, current])
          const started = yield* ask("POST", "/jobs", running)
          assert.deepStrictEqual(started, { status: 200, body: { paths: [pathOf(old), pathOf(current)] } })
          const script = yield* ground.files.stat(`${pathOf(old)}/bin/compile`)
          assert.strictEqual(script.mode & 0o777, 0o555)
          assert.strictEqual(
            yield* ground.files.readFileString(`${pathOf(old)}/bin/compile`),
            "#!/bin/sh\necho 1\n"
          )
          assert.strictEqual((yield* ground.files.stat(`${pathOf(old)}/empty`)).size, 0n)
          // More than one part.
          assert.strictEqual(
            yield* ground.files.readFileString(`${pathOf(old)}/large`),
            "0123456789abcdef".repeat(600_000)
          )

          // The copy of a job that runs comes back when it is lost.
          yield* ground.files.remove(pathOf(current), { recursive: true })
          yield* sweep
          assert.isTrue(yield* isThere(current))
          for (const id of [old, current]) yield* age(id)
          yield* sweep
          assert.deepStrictEqual(
            yield* kept,
            new Map([
              [old, ["ActiveRun"]],
              [current, ["Current", "ActiveRun"]]
            ])
          )

          const ended = yield* ask("POST", `/jobs/${running.id}/end`, "succeeded")
          assert.strictEqual(ended.status, 204)
          yield* sweep
          assert.deepStrictEqual(yield* Effect.forEach([old, other, current], isThere), [false, false, true])
          assert.deepStrictEqual(yield* kept, new Map([[current, ["Current"]]]))
        }).pipe(serving(ground))
      )
  )

  it.live("[D-06] does not start a job whose release cannot be had, and leaves no pin of it", () =>
    onGround((ground) =>
      Effect.gen(function* () {
        const tenant = yield* makeTenant(ground, 2)
        const { job, versions } = tenant
        yield* ground.sql`delete from release_files where release_id = ${versions[0]!}::uuid`
        const impossible = job(versions)
        const answer = yield* ask("POST", "/jobs", impossible)
        assert.deepStrictEqual(answer, { status: 409, body: { missing: [versions[0]] } })
        const jobs = yield* ground.sql`select state from jobs where id = ${impossible.id}::uuid`
        assert.deepStrictEqual(jobs, [{ state: "failed" }])
        assert.deepStrictEqual(yield* ground.sql`select from job_releases`, [])
        // Pins of a job that is over, or of another tenant's, would count for nobody.
        const cache = yield* SkillVersionCache.SkillVersionCache
        const stranger = yield* makeTenant(ground, 1)
        const running = job([versions[1]!])
        assert.strictEqual((yield* ask("POST", "/jobs", running)).status, 200)
        for (const [companyId, runId] of [
          [tenant.tenantId, impossible.id],
          [stranger.tenantId, running.id]
        ] as const) {
          const error = yield* Effect.flip(
            cache.prepare({ companyId, runId: Ids.RunId.make(runId), versions: [] })
          )
          assert.include(error.message, "no unfinished job")
        }
      }).pipe(serving(ground))
    )
  )

  it.live("[D-06] does not start a job that was ended while it was prepared", () =>
    onGround((ground) =>
      Effect.gen(function* () {
        const { tenantId, job, ticketId, versions, workerId } = yield* makeTenant(ground, 1)
        const first = job(versions)
        const end = ground.sql`update jobs set state = 'failed', finished_at = now() where id = ${first.id}::uuid`
        const refused = yield* Effect.flip(
          Jobs.start({
            id: Ids.RunId.make(first.id),
            tenantId,
            workerId: Ids.AgentId.make(workerId),
            ticketId: Ids.IssueId.make(ticketId),
            sessionId: null,
            releases: versions
          }).pipe(FaultPoints.at("restore.afterShared", Effect.orDie(Effect.asVoid(end))))
        )
        assert.deepStrictEqual(refused, new Jobs.CannotStart({ missing: [] }))
        assert.deepStrictEqual(yield* ground.sql`select from job_releases`, [])
      }).pipe(serving(ground))
    )
  )

  it.live("[D-06] what its own layers say keeps copies: holds, unprepared jobs, changed releases", () =>
    onGround((ground) =>
      Effect.gen(function* () {
        yield* settled
        const { age, isThere, job, tenantId, ticketId, versions, workerId } = yield* makeTenant(ground, 4)
        const [held, changed, plain] = [versions[0]!, versions[1]!, versions[2]!]
        const first = job([held, changed, plain])
        yield* ask("POST", "/jobs", first)
        // As if the process had died before it let go.
        yield* ground.sql`update jobs set state = 'failed', finished_at = now() where id = ${first.id}::uuid`
        for (const id of [held, changed, plain]) yield* age(id)
        const holds = yield* Holds.Holds
        yield* holds.holdVersion(tenantId, held, "somebody", "a report about it is being written")
        yield* ground.sql`update release_files set content = 'other'::bytea
          where release_id = ${changed}::uuid and ordinal = 1`
        const unprepared = uuid()
        yield* ground.sql`insert into jobs (id, tenant_id, worker_id, ticket_id, state) values
          (${unprepared}::uuid, ${tenantId}::uuid, ${workerId}::uuid, ${ticketId}::uuid, 'running')`
        assert.deepStrictEqual(
          yield* kept,
          new Map([
            [held, ["SelectionUnknown", "Held"]],
            [changed, ["SelectionUnknown"]],
            [plain, ["SelectionUnknown"]]
          ])
        )
        yield* ask("POST", `/jobs/${unprepared}/end`, "failed")
        yield* sweep
        assert.deepStrictEqual(
          yield* kept,
          new Map([
            [held, ["Held"]],
            [changed, ["Differs"]]
          ])
        )
        assert.isFalse(yield* isThere(plain))
        assert.deepStrictEqual(yield* ground.sql`select from job_releases`, [])
      }).pipe(
        Effect.provide(
          Holds.layer.pipe(
            Layer.provide(HostSchema.layerOwn),
            Layer.provide(DatabaseClock.layer),
            Layer.provide(Transactions.layer),
            Layer.provide(Layer.succeed(SqlClient.SqlClient, ground.sql))
          )
        ),
        serving(ground)
      )
    )
  )

  it.live("[D-06] a release that is written after its copy was proven keeps the copy", () =>
    onGround((ground) =>
      Effect.gen(function* () {
        yield* settled
        const { age, isThere, job, versions } = yield* makeTenant(ground, 2)
        const [old] = versions
        const first = job([old!])
        yield* ask("POST", "/jobs", first)
        yield* ask("POST", `/jobs/${first.id}/end`, "succeeded")
        yield* age(old!)
        const write = ground.sql`update release_files set content = 'other'::bytea
          where release_id = ${old!}::uuid and ordinal = 1`
        const [batch] = yield* sweep.pipe(
          FaultPoints.at("evict.beforeLock", Effect.orDie(Effect.asVoid(write)))
        )
        assert.deepStrictEqual(batch?.report.skipped, { ChangedMeanwhile: 1 })
        assert.isTrue(yield* isThere(old!))
      }).pipe(serving(ground))
    )
  )

  it.live(
    "[W-01] [D-06] its workers sweep from the start, pause and go on with it, and end with its scope",
    () =>
      onGround((ground) =>
        Effect.gen(function* () {
          const tenant = yield* Effect.gen(function* () {
            yield* settled
            const tenant = yield* makeTenant(ground, 2)
            const job = tenant.job(tenant.versions)
            yield* ask("POST", "/jobs", job)
            yield* ask("POST", `/jobs/${job.id}/end`, "succeeded")
            for (const id of tenant.versions) yield* tenant.age(id)
            return tenant
          }).pipe(serving(ground))
          // The server takes a moment to notice that a client has gone.
          yield* eventually(
            Effect.map(
              ground.sql`select from pg_stat_activity
              where datname = current_database() and application_name <> 'the test'`,
              (connections) => connections.length === 0
            )
          )

          yield* Effect.gen(function* () {
            yield* eventually(Effect.map(tenant.isThere(tenant.versions[0]!), (is) => !is))
            assert.isTrue(yield* tenant.isThere(tenant.versions[1]!))
            const state = (name: string, releases: string, backups: string) =>
              eventually(
                Effect.map(
                  ask("GET", "/health"),
                  ({ body }) => JSON.stringify(body) === JSON.stringify({ state: name, releases, backups })
                )
              )
            yield* state("serving", "waiting", "waiting")
            const journal = yield* ground.sql`select event, server from reclaim.journal`
            assert.deepStrictEqual(journal, [{ event: "evicted", server: "build-farm" }])
            yield* ask("POST", "/pause")
            yield* state("paused", "standby", "standby")
            yield* ask("POST", "/resume")
            yield* state("serving", "waiting", "waiting")
          }).pipe(serving(ground))
        })
      )
  )

  it.live("[D-06] a session's backup goes when its ticket is closed and nobody is at work there", () =>
    onGround((ground) =>
      Effect.gen(function* () {
        const { dir, files, sql } = ground
        const { job, tenantId, ticketId, workerId } = yield* makeTenant(ground, 1)
        const scope = Ids.ScopeId.make("ab".repeat(32))
        const sessionId = uuid()
        const run = job([], sessionId)
        const folder = `${dir}/sessions/${scope}`
        const backup = `${folder}/failover-backups/current`
        yield* files.makeDirectory(`${folder}/control-plane`, { recursive: true })
        yield* files.writeFileString(
          `${folder}/control-plane/control-plane-state.json`,
          JSON.stringify({
            schema: "paperclip.runner.durable.control-plane-state.v1",
            identity: { runId: run.id, normalizedSessionId: sessionId }
          })
        )
        yield* files.makeDirectory(`${backup}/runner`, { recursive: true })
        yield* files.writeFileString(
          `${backup}/manifest.json`,
          JSON.stringify({
            schema: "paperclip.native-harness-backup.v1",
            normalizedSessionId: sessionId,
            directories: [{ name: "runner", sha256: `sha256:${"0".repeat(64)}`, bytes: 0 }],
            completedAt: "2020-01-01T00:00:00.000Z"
          })
        )
        yield* files.utimes(backup, 1_577_836_800, 1_577_836_800)

        const reasons = Effect.flatMap(BackupExpiration.BackupExpiration, (expiration) =>
          expiration.diagnose({ scope }).pipe(
            Stream.runCollect,
            Effect.map((found) =>
              found.flatMap((each) => (each._tag === "Backup" ? each.reasons.map(({ _tag }) => _tag) : []))
            )
          )
        )
        const expire = Effect.flatMap(BackupExpiration.BackupExpiration, (expiration) =>
          Effect.map(Stream.runCollect(expiration.sweep()), ([batch]) => batch?.report)
        )
        assert.deepStrictEqual(yield* reasons, ["RunUnknown"])
        yield* ask("POST", "/jobs", run)
        assert.deepStrictEqual(yield* reasons, ["RunUnfinished", "IssueOpen"])
        yield* ask("POST", `/jobs/${run.id}/end`, "succeeded")
        assert.deepStrictEqual(yield* reasons, ["IssueOpen"])
        yield* sql`update tickets set state = 'done', closed_at = now() where id = ${ticketId}::uuid`
        assert.deepStrictEqual(yield* reasons, ["IssueClosedRecently"])
        yield* sql`update tickets set closed_at = now() - interval '8 days' where id = ${ticketId}::uuid`
        yield* sql`insert into bookmarks values (${uuid()}::uuid, ${tenantId}::uuid, ${workerId}::uuid,
          ${sessionId}::uuid, ${run.id}::uuid)`

        for (const method of ["PUT", "PUT", "DELETE"] as const) {
          yield* ask(method, `/terminals/${scope}`)
          assert.deepStrictEqual(yield* reasons, ["ActiveInProcess"])
        }
        yield* ask("DELETE", `/terminals/${scope}`)
        const other = job([])
        yield* ask("POST", "/jobs", other)
        assert.deepStrictEqual(yield* reasons, ["RunUnfinished"])
        yield* ask("POST", `/jobs/${other.id}/end`, "failed")
        assert.deepStrictEqual(yield* reasons, [])

        for (const row of ["jobs", "tickets", "bookmarks"]) {
          const busy = yield* sql.withTransaction(
            Effect.andThen(sql.unsafe(`select from ${row} for update`), expire)
          )
          assert.deepStrictEqual(busy?.skipped, { RowsBusy: 1 }, row)
        }
        assert.isTrue(yield* files.exists(backup))

        const done = yield* expire
        assert.strictEqual(done?.expired, 1)
        assert.strictEqual(done?.clearedTaskSessions, 1)
        assert.isFalse(yield* files.exists(backup))
        assert.isTrue(yield* files.exists(`${folder}/control-plane/control-plane-state.json`))
        assert.deepStrictEqual(yield* sql`select from bookmarks`, [])
      }).pipe(serving(ground))
    )
  )

  it.live("[D-06] [O-02] commands that need none of PaperClip's tables work on its database", () =>
    onGround((ground) =>
      Effect.gen(function* () {
        const env = { DATABASE_URL: ground.env.DATABASE_URL, RECLAIM_INSTANCE: ground.dir }
        const scope = "ef".repeat(32)
        for (const args of [
          ["migrate"],
          ["hold", "--scope", scope, "--note", "a report about it is being written"],
          ["journal"]
        ]) {
          const { code, stderr } = yield* reclaim(args, { env })
          assert.strictEqual(code, 0, `${args.join(" ")}: ${stderr}`)
        }
        const { code, stderr } = yield* reclaim(["skills", "diagnose"], { env })
        assert.strictEqual(code, 1)
        assert.include(stderr, "the database lacks what skills need")
      }).pipe(serving(ground))
    )
  )

  it.live("[W-01] it is a process that serves until it is told to end", () =>
    onGround((ground) =>
      Effect.gen(function* () {
        const spawner = yield* ChildProcessSpawner.ChildProcessSpawner
        const main = fileURLToPath(new URL("../../../examples/host/main.ts", import.meta.url))
        const child = yield* spawner.spawn(
          ChildProcess.make(process.execPath, ["--conditions=@reclaim/source", main], {
            env: { ...ground.env, FARM_DRY_RUN: "" },
            extendEnv: false,
            stdin: "ignore"
          })
        )
        const [port] = yield* child.all.pipe(
          Stream.decodeText(),
          Stream.splitLines,
          Stream.map((line) => /Listening on http:\/\/[^ ]*:(\d+)/i.exec(line)?.[1]),
          Stream.filter((found) => found !== undefined),
          Stream.take(1),
          Stream.runCollect
        )
        const health = yield* send(HttpClientRequest.get(`http://127.0.0.1:${port}/health`))
        assert.deepInclude(health.body, { state: "serving" })
        yield* child.kill({ killSignal: "SIGTERM" })
        assert.strictEqual(Number(yield* child.exitCode), 130)
      })
    )
  )
})
