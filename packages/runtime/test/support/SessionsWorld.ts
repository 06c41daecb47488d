/** A host with native sessions: a real database, real folders, and time that a test moves. */
import { PgClient } from "@effect/sql-pg"
import { FaultPoint, Ids } from "@reclaim/core"
import { DatabaseError, HostTables, Journal, Migrations, Transactions } from "@reclaim/db"
import { TestDatabase } from "@reclaim/postgres/testing"
import {
  type Clock,
  DateTime,
  Deferred,
  Effect,
  Exit,
  Fiber,
  Layer,
  Logger,
  Redacted,
  References,
  Stream
} from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { execFileSync } from "node:child_process"
import { createHash } from "node:crypto"
import * as Fs from "node:fs"
import * as Os from "node:os"
import { inject } from "vitest"
import { hooked } from "../../../db/test/support/backend.ts"
import * as Make from "../../../db/test/support/sessions.ts"
import { BackupExpiration, FailoverBackups } from "../../src/index.ts"
import { MovableClock } from "../../src/testing.ts"
import * as SessionServer from "./sessionServer.ts"
import * as Threads from "./threads.ts"
import * as World from "./World.ts"

export { Make }
export const { advance, noon, picture, Instance } = World

const instance = Layer.effect(
  Instance,
  Effect.acquireRelease(
    Effect.sync(() => ({ path: Fs.realpathSync(Fs.mkdtempSync(`${Os.tmpdir()}/reclaim-sessions-`)) })),
    ({ path }) =>
      Effect.sync(() => {
        execFileSync("chmod", ["-R", "u+rwx", path])
        Fs.rmSync(path, { recursive: true, force: true })
      })
  )
)

const server = (options: SessionServer.Options) =>
  Layer.unwrap(Effect.map(Instance, ({ path }) => SessionServer.layer(path, options)))

/** What happens before each statement on a reserved connection; a test may set it. */
let beforeStatement: (text: string) => Effect.Effect<void> = () => Effect.void

const client = ({ pool, user }: Pick<Options, "pool" | "user">) =>
  Layer.effect(
    SqlClient.SqlClient,
    Effect.map(SqlClient.SqlClient, (sql) =>
      hooked(sql, (text) => Effect.suspend(() => beforeStatement(text)))
    )
  ).pipe(
    Layer.provideMerge(
      Layer.unwrap(
        Effect.map(TestDatabase.TestDatabase, ({ url }) => {
          const as = new URL(url)
          if (user !== undefined) as.username = user
          return PgClient.layer({ ...pool, url: Redacted.make(as.href) })
        })
      )
    )
  )

export interface Options extends SessionServer.Options {
  readonly pool?: Omit<PgClient.PgPoolConfig, "url">
  /** The role that connects, in place of the one that owns the tables. */
  readonly user?: string
}

/** Use it with `excludeTestServices`, as `World.layer`. */
export const layer = (options: Options = {}) =>
  server(options).pipe(
    Layer.provideMerge(
      Layer.effectDiscard(Effect.andThen(HostTables.create, Migrations.migrate)).pipe(
        Layer.provide(Transactions.layer)
      )
    ),
    Layer.provideMerge(MovableClock.layer(noon)),
    Layer.provideMerge(client(options)),
    Layer.provideMerge(TestDatabase.layer(inject("databaseUrl"))),
    Layer.provideMerge(instance),
    Layer.provideMerge(Threads.layer)
  )

/** Runs an effect in another server process on the same disk, database and time. */
export const elsewhere =
  (options: Options = {}) =>
  <A, E, R>(self: Effect.Effect<A, E, R>) =>
    Effect.provide(self, Layer.fresh(server(options).pipe(Layer.provideMerge(client(options)))), {
      local: true
    })

/** Runs something before each statement that a body of a transaction sends. */
export const beforeEach =
  (action: (text: string) => Effect.Effect<void>) =>
  <A, E, R>(self: Effect.Effect<A, E, R>) =>
    Effect.acquireUseRelease(
      Effect.sync(() => void (beforeStatement = action)),
      () => self,
      () => Effect.sync(() => void (beforeStatement = () => Effect.void))
    )

/** The statements that an effect sends. */
export const statementsOf = <A, E, R>(self: Effect.Effect<A, E, R>) =>
  Effect.suspend(() => {
    const sent: Array<string> = []
    return Effect.map(beforeEach((text) => Effect.sync(() => void sent.push(text)))(self), (value) => ({
      value,
      statements: sent
    }))
  })

const durable = "runtime/paperclip-runner/durable-sessions"

/** Both clocks at noon, no session on disk, no row in the tables. Every test begins with it. */
export const begin = Effect.gen(function* () {
  yield* (yield* MovableClock.MovableClock).set(noon)
  const { path } = yield* Instance
  for (const name of Fs.readdirSync(path)) {
    execFileSync("chmod", ["-R", "u+rwx", `${path}/${name}`])
    Fs.rmSync(`${path}/${name}`, { recursive: true })
  }
  Fs.mkdirSync(`${path}/${durable}`, { recursive: true })
  const sql = yield* SqlClient.SqlClient
  yield* sql`truncate companies, reclaim.journal, reclaim.holds cascade`
})

export const pathOf = (scope: string) => Effect.map(Instance, ({ path }) => `${path}/${durable}/${scope}`)

const files = (note: string) => ({ "state.json": JSON.stringify({ note }), "turn.log": `turn of ${note}\n` })

/** The digest that the host computes for the runner's folder of `backup`; 420 is the mode 0644. */
const runnerDigest = (note: string) => {
  const hash = createHash("sha256")
  let bytes = 0
  for (const [name, content] of Object.entries(files(note))) {
    hash.update(`file:${name}:420:${Buffer.byteLength(content)}\0`)
    hash.update(content)
    bytes += Buffer.byteLength(content)
  }
  return { sha256: `sha256:${hash.digest("hex")}`, bytes }
}

export interface BackupOptions {
  readonly name?: string
  readonly note?: string
  readonly completedAt?: DateTime.Utc
  readonly sessionId?: string
  /** False leaves the manifest out; a text stands in its place. */
  readonly manifest?: boolean | string
  /** Other contents than the manifest says. */
  readonly damaged?: boolean
}

/** A backup folder as a host writes it, old enough to go. */
export const backup = Effect.fnUntraced(function* (
  session: { readonly scope: string; readonly sessionId: string },
  options: BackupOptions = {}
) {
  const name = options.name ?? "current"
  const note = options.note ?? name
  const folder = `${yield* pathOf(session.scope)}/failover-backups/${name}`
  Fs.mkdirSync(`${folder}/runner`, { recursive: true })
  for (const [file, content] of Object.entries(files(note))) {
    Fs.writeFileSync(`${folder}/runner/${file}`, options.damaged === true ? `${content}!` : content)
    Fs.chmodSync(`${folder}/runner/${file}`, 0o644)
  }
  const manifest = JSON.stringify({
    schema: "paperclip.native-harness-backup.v1",
    normalizedSessionId: options.sessionId ?? session.sessionId,
    runnerInstanceId: null,
    providerKind: "codex",
    driverKind: null,
    providerSessionIdentity: null,
    sourceProviderLeaseId: null,
    environmentFingerprint: null,
    runnerContractVersion: null,
    directories: [{ name: "runner", ...runnerDigest(note) }],
    completedAt: DateTime.formatIso(options.completedAt ?? Make.longAgo)
  })
  if (options.manifest !== false) {
    Fs.writeFileSync(
      `${folder}/manifest.json`,
      typeof options.manifest === "string" ? options.manifest : manifest
    )
  }
  return folder
})

/** Writes the state file of a session. */
export const state = Effect.fnUntraced(function* (
  session: { readonly scope: string; readonly sessionId: string; readonly runId: string },
  text = Make.stateText(session.sessionId, session.runId)
) {
  const folder = `${yield* pathOf(session.scope)}/control-plane`
  Fs.mkdirSync(folder, { recursive: true })
  Fs.writeFileSync(`${folder}/control-plane-state.json`, text)
})

/** A session whose backup nothing keeps, in the tables and on disk. */
export const expirable = Effect.fnUntraced(function* (
  options: Make.SessionOptions & { readonly backups?: ReadonlyArray<BackupOptions> } = {}
) {
  const session = yield* Make.session(options)
  yield* state(session)
  for (const each of options.backups ?? [{}]) yield* backup(session, each)
  return session
})

/** The names in the folder of a session's backups, leftovers as `.kind`. */
export const names = (session: { readonly scope: string }) =>
  Effect.map(pathOf(session.scope), (path) =>
    Fs.existsSync(`${path}/failover-backups`)
      ? Fs.readdirSync(`${path}/failover-backups`)
          .map((name) => (name.startsWith(".") ? name.slice(0, name.indexOf("-")) : name))
          .toSorted()
      : []
  )

export const sweep = Effect.fnUntraced(function* (options?: BackupExpiration.SweepOptions) {
  const expiration = yield* BackupExpiration.BackupExpiration
  return yield* Stream.runCollect(expiration.sweep(options))
})

export const sweepOnce = Effect.fnUntraced(function* (options?: BackupExpiration.SweepOptions) {
  const [batch, ...more] = yield* sweep(options)
  if (batch === undefined || more.length > 0) return yield* Effect.die(`${more.length + 1} batches`)
  return batch.report
})

/** The reasons, by their tags, that a diagnosis gives for a scope. */
export const reasons = Effect.fnUntraced(function* (session: { readonly scope: Ids.ScopeId }) {
  const expiration = yield* BackupExpiration.BackupExpiration
  const diagnoses = yield* Stream.runCollect(expiration.diagnose({ scope: session.scope }))
  return diagnoses.find((diagnosis) => diagnosis._tag === "Backup")?.reasons
})

/** What the journal tells of a scope, oldest first. */
export const events = Effect.fnUntraced(function* (session: { readonly scope: string }) {
  const journal = yield* Journal.Journal
  const rows = yield* Stream.runCollect(journal.since(DateTime.makeUnsafe(0)))
  return rows.filter(({ scope }) => scope === session.scope).map(({ event }) => event)
})

/** How many task sessions name a session. */
export const taskSessions = Effect.fnUntraced(function* (session: { readonly sessionId: string }) {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql`select from agent_task_sessions
    where session_params_json ->> 'sessionId' = ${session.sessionId}`
  return rows.length
})

/** The note of the backup that a restoration gives, or the error. */
export const restored = Effect.fnUntraced(function* (session: { readonly scope: Ids.ScopeId }) {
  const backups = yield* FailoverBackups.FailoverBackups
  const target = Fs.mkdtempSync(`${Os.tmpdir()}/reclaim-restored-`)
  const exit = yield* Effect.exit(backups.restore({ scope: session.scope, target }))
  const note = Exit.isSuccess(exit)
    ? /"note":"(.*)"/.exec(Fs.readFileSync(`${target}/runner/state.json`, "utf8"))?.[1]
    : undefined
  Fs.rmSync(target, { recursive: true, force: true })
  return note
})

/** Does something once, the first time that a point is reached, in no transaction of the one who is there. */
export const onceAt =
  (point: string, action: Effect.Effect<unknown, unknown>) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.suspend(() => {
      let done = false
      return Effect.provideService(self, FaultPoint.FaultHandler, (name) => {
        if (done || name !== point) return Effect.void
        done = true
        return Effect.orDie(Effect.asVoid(action))
      })
    })

/** An action of another process, to be run anywhere: with a connection of its own. */
export const apart = <A, E>(self: Effect.Effect<A, E, SqlClient.SqlClient>) =>
  Effect.map(TestDatabase.TestDatabase, ({ url }) =>
    Effect.provide(self, Layer.fresh(PgClient.layer({ url: Redacted.make(url), maxConnections: 1 })), {
      local: true
    })
  )

/** The lines that an effect logs, at the level of information and above. */
export const logged = <A, E, R>(self: Effect.Effect<A, E, R>) =>
  Effect.suspend(() => {
    const lines: Array<{
      readonly message: unknown
      readonly annotations: Readonly<Record<string, unknown>>
    }> = []
    const logger = Logger.make(({ fiber, message }) => {
      lines.push({ message, annotations: { ...fiber.getRef(References.CurrentLogAnnotations) } })
    })
    return Effect.as(Effect.provide(self, Logger.layer([logger])), lines)
  })

export { eventually } from "../../../db/test/support/database.ts"
export { tables, unfinished } from "./Sweeping.ts"
export type Scope = Ids.ScopeId
/** What a test of this world may use. */
export type Services = Layer.Success<ReturnType<typeof layer>>

/** The n-th scope in the order of a sweep. */
export const scopeAt = (n: number): Ids.ScopeId => Ids.ScopeId.make(n.toString(16).padStart(64, "0"))

/** Runs an effect while another connection holds the locks of a statement. */
export const whileLocked =
  (statement: string) =>
  <A, E, R>(self: Effect.Effect<A, E, R>) =>
    Effect.gen(function* () {
      const { url } = yield* TestDatabase.TestDatabase
      const held = yield* Deferred.make<void>()
      const done = yield* Deferred.make<void>()
      const holder = yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* sql.withTransaction(
          Effect.andThen(
            sql.unsafe(statement),
            Effect.andThen(Deferred.succeed(held, undefined), Deferred.await(done))
          )
        )
      }).pipe(
        Effect.provide(Layer.fresh(PgClient.layer({ url: Redacted.make(url), maxConnections: 1 })), {
          local: true
        }),
        Effect.forkChild
      )
      yield* Effect.raceFirst(
        Deferred.await(held),
        Effect.andThen(Fiber.join(holder), Effect.die("never locked"))
      )
      const value = yield* Effect.ensuring(self, Deferred.succeed(done, undefined))
      yield* Fiber.join(holder)
      return value
    })

/** Runs an effect in a process that stands still for six seconds when it reaches a point. */
export const sleepingAt =
  (point: string) =>
  <A, E, R>(self: Effect.Effect<A, E, R>) =>
    Effect.flatMap(DatabaseError.WaitClock, (real) => {
      let slept = 0n
      const clock: Clock.Clock = {
        currentTimeMillisUnsafe: () => real.currentTimeMillisUnsafe(),
        currentTimeMillis: real.currentTimeMillis,
        currentTimeNanosUnsafe: () => real.currentTimeNanosUnsafe(),
        currentTimeNanos: real.currentTimeNanos,
        monotonicTimeNanosUnsafe: () => real.monotonicTimeNanosUnsafe() + slept,
        monotonicTimeNanos: Effect.map(real.monotonicTimeNanos, (nanos) => nanos + slept),
        sleep: (duration) => real.sleep(duration)
      }
      return onceAt(
        point,
        Effect.sync(() => void (slept = 6_000_000_000n))
      )(Effect.provideService(self, DatabaseError.WaitClock, clock))
    })
