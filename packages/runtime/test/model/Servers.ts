/** Servers in this process that die as if by kill -9, or lose their connections, while they are in the middle. */
import { PgClient } from "@effect/sql-pg"
import { ExpirationSettings, FaultPoint, type RetentionSettings } from "@reclaim/core"
import {
  DatabaseClock,
  DatabaseError,
  Holds,
  HostSchema,
  Journal,
  SessionCatalog,
  SkillCatalog,
  SkillPins,
  Transactions
} from "@reclaim/db"
import {
  AccessRecords,
  BackupStore,
  type InstanceRoots,
  type PosixFileSystem,
  type Trees,
  VersionStore
} from "@reclaim/fs"
import { TestDatabase } from "@reclaim/postgres/testing"
import {
  Clock,
  type Context,
  Deferred,
  Duration,
  Effect,
  type Exit,
  Fiber,
  Layer,
  Redacted,
  Scope
} from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { hooked } from "../../../db/test/support/backend.ts"
import { BackupExpiration, FailoverBackups, type SessionActivity, SkillVersions } from "../../src/index.ts"

/** What all servers share: the disk, the clock, and threads that never stop in the middle of a protocol. */
export type Shared =
  | DatabaseClock.DatabaseClock
  | ExpirationSettings.ExpirationSettings
  | InstanceRoots.InstanceRoots
  | PosixFileSystem.PosixFileSystem
  | RetentionSettings.RetentionSettings
  | SessionActivity.SessionActivity
  | Trees.Trees

// 40 ms: a lock is held by somebody who stands still, so that waiting longer gives no other answer.
const lockTimeout = "40 millis"
// 20 times: what waits for 5 s waits for a quarter of one, and the bounds on answers grow with it.
const speed = 20

const services = SkillVersions.layerServices.pipe(
  Layer.provideMerge(Layer.mergeAll(BackupExpiration.layer, FailoverBackups.layer)),
  Layer.provideMerge(BackupStore.layer),
  Layer.provideMerge(VersionStore.layer),
  Layer.provideMerge(AccessRecords.layer),
  Layer.provideMerge(
    Layer.mergeAll(SkillCatalog.layer, SkillPins.layer, SessionCatalog.layer, Holds.layer, Journal.layer)
  ),
  Layer.provideMerge(HostSchema.layer),
  Layer.provideMerge(
    Transactions.layerWith({
      lockTimeout,
      acquireTimeout: "20 minutes",
      answerTimeout: "20 minutes",
      commitTimeout: "20 minutes",
      rollbackTimeout: "20 minutes"
    })
  )
)

export type Services = Layer.Success<typeof services>

export interface Server {
  /** The name of its connections. */
  readonly name: string
  readonly context: Context.Context<Services>
  /** From then on nothing that it began gets past a point or reaches the database. */
  dead: boolean
}

/** Nothing ever completes it, and unlike a timer it keeps no process alive. */
const forever = Effect.flatMap(Deferred.make<never>(), Deferred.await)

export const start = Effect.gen(function* () {
  const { url } = yield* TestDatabase.TestDatabase
  const name = `server-${crypto.randomUUID()}`
  const state = { dead: false }
  const client = Layer.effect(
    SqlClient.SqlClient,
    Effect.map(SqlClient.SqlClient, (sql) =>
      hooked(sql, () => Effect.suspend(() => (state.dead ? forever : Effect.void)))
    )
  ).pipe(Layer.provide(PgClient.layer({ url: Redacted.make(url), maxConnections: 3, applicationName: name })))
  // A dead process closes nothing, so nothing closes this scope.
  const scope = yield* Scope.make()
  const context = yield* Layer.buildWithMemoMap(
    services.pipe(Layer.provide(client)),
    Layer.makeMemoMapUnsafe(),
    scope
  )
  return Object.assign(state, { name, context }) satisfies Server
})

/** Ends the connections of a server and waits until their locks are gone. */
export const disconnect = Effect.fnUntraced(function* ({ name }: Server) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = ${name}`
})

export const kill = (server: Server) =>
  Effect.suspend(() => {
    server.dead = true
    return disconnect(server)
  })

/** The clock of what waits, faster than the real one. */
const fast = Effect.map(DatabaseError.WaitClock, (real): Clock.Clock => {
  const nanos = () => real.monotonicTimeNanosUnsafe() * BigInt(speed)
  return {
    currentTimeMillisUnsafe: () => real.currentTimeMillisUnsafe(),
    currentTimeMillis: real.currentTimeMillis,
    currentTimeNanosUnsafe: () => real.currentTimeNanosUnsafe(),
    currentTimeNanos: real.currentTimeNanos,
    monotonicTimeNanosUnsafe: nanos,
    monotonicTimeNanos: Effect.sync(nanos),
    sleep: (duration) => real.sleep(Duration.millis(Duration.toMillis(duration) / speed))
  }
})

export interface Stopped<A, E> {
  /** The exit, when the point was not reached. */
  readonly ended: Exit.Exit<A, E> | undefined
  readonly goOn: Effect.Effect<Exit.Exit<A, E>>
  readonly interrupt: Effect.Effect<Exit.Exit<A, E>>
}

/** Runs something on a server until it reaches a point for the so-many-th time, or ends. */
export const runUntil = Effect.fnUntraced(function* <A, E>(
  server: Server,
  self: Effect.Effect<A, E, Services>,
  stop: { readonly point: string; readonly occurrence: number } | undefined,
  reaches: (point: string) => void
) {
  const reached = yield* Deferred.make<void>()
  const opened = yield* Deferred.make<void>()
  let count = 0
  let standing = false
  const handler = (point: string) =>
    Effect.suspend(() => {
      if (server.dead) return forever
      reaches(point)
      if (!standing && point === stop?.point && ++count === stop.occurrence) {
        standing = true
        return Effect.andThen(Deferred.succeed(reached, undefined), wait)
      }
      // Everything that the server does stands still, not one of its fibers alone.
      return standing ? wait : Effect.void
    })
  const wait = Effect.andThen(
    Deferred.await(opened),
    Effect.suspend(() => (server.dead ? forever : Effect.void))
  )
  const fiber = yield* self.pipe(
    Effect.provide(server.context),
    Effect.provideService(FaultPoint.FaultHandler, handler),
    Effect.provideService(DatabaseError.WaitClock, yield* fast),
    Effect.forkDetach
  )
  const ended = yield* Effect.raceFirst(Effect.as(Deferred.await(reached), undefined), Fiber.await(fiber))
  const open = Deferred.succeed(opened, undefined)
  return {
    ended,
    goOn: Effect.andThen(open, Fiber.await(fiber)),
    interrupt: Effect.gen(function* () {
      const ending = yield* Effect.forkDetach(Fiber.interrupt(fiber), { startImmediately: true })
      yield* open
      yield* Fiber.await(ending)
      return yield* Fiber.await(fiber)
    })
  } satisfies Stopped<A, E>
})
