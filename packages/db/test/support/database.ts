import type { PgClient } from "@effect/sql-pg"
import { TestDatabase } from "@reclaim/postgres/testing"
import { DateTime, Effect, Layer } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { inject } from "vitest"
import {
  DatabaseClock,
  Holds,
  HostSchema,
  HostTables,
  Journal,
  Migrations,
  SkillCatalog,
  SkillPins,
  Transactions
} from "../../src/index.ts"
import { hooked } from "./backend.ts"

type PoolConfig = Omit<PgClient.PgPoolConfig, "url">

/** Every statement that went over a reserved connection, in order. */
export const sent: Array<string> = []

/** The statements that an effect sends, but for those that every transaction has. */
export const statementsOf = <A, E, R>(
  self: Effect.Effect<A, E, R>
): Effect.Effect<ReadonlyArray<string>, E, R> =>
  Effect.suspend(() => {
    sent.length = 0
    return Effect.map(self, () => sent.filter((text) => !/^(BEGIN|COMMIT|select set_config)/.test(text)))
  })

const recording = Layer.effect(
  SqlClient.SqlClient,
  Effect.map(SqlClient.SqlClient, (sql) => hooked(sql, (text) => Effect.sync(() => void sent.push(text))))
)

/** An empty database, a client for it, and the transactions. */
export const bare = (config?: PoolConfig, bounds: Omit<Transactions.Options, "operation"> = {}) =>
  Transactions.layerWith(bounds).pipe(
    Layer.provideMerge(
      recording.pipe(Layer.provideMerge(TestDatabase.layerClient(inject("databaseUrl"), config)))
    )
  )

/** The instant at which the movable clock stands until a test moves it: when the database was adopted. */
export const noon = DateTime.makeUnsafe("2030-01-01T12:00:00Z")

const hands = { at: noon }

/** A clock that stands where a test puts it. */
export const clock = Layer.succeed(DatabaseClock.DatabaseClock, { now: Effect.sync(() => hands.at) })

/** Moves the clock for the length of an effect. */
export const at =
  (instant: DateTime.Utc) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.acquireUseRelease(
      Effect.sync(() => void (hands.at = instant)),
      () => self,
      () => Effect.sync(() => void (hands.at = noon))
    )

const services = Layer.mergeAll(SkillCatalog.layer, SkillPins.layer, Holds.layer, Journal.layer).pipe(
  Layer.provideMerge(HostSchema.layer)
)

/** The host's tables without the schema `reclaim`, and every service. */
export const host = (config?: PoolConfig) =>
  services.pipe(
    Layer.provideMerge(Layer.effectDiscard(HostTables.create)),
    Layer.provideMerge(clock),
    Layer.provideMerge(bare(config))
  )

/** The host's tables with the schema `reclaim`, and every service. */
export const adopted = (config?: PoolConfig) =>
  services.pipe(
    Layer.provideMerge(Layer.effectDiscard(Effect.andThen(HostTables.create, Migrations.migrate))),
    Layer.provideMerge(clock),
    Layer.provideMerge(bare(config))
  )

/** Retries until an effect gives true: for other processes only, a hundred times at most. */
export const eventually = <E, R>(check: Effect.Effect<boolean, E, R>): Effect.Effect<void, E, R> =>
  Effect.gen(function* () {
    for (let attempt = 0; attempt < 400; attempt++) {
      if (yield* check) return
      yield* realPause
    }
    return yield* Effect.die("it never came true")
  })

const realPause = Effect.callback<void>((resume) => {
  const timer = setTimeout(() => resume(Effect.void), 25)
  return Effect.sync(() => clearTimeout(timer))
})

/** Transactions of clients of this database that are open now, other than the asking one. */
export const openTransactions = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly count: bigint }>`
    select count(*) as count from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null
      and backend_type = 'client backend'`
  return Number(rows[0]?.count ?? 0n)
})

/** How many requests wait for an advisory lock of this database. */
export const lockWaiters = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql`
    select 1 from pg_locks where locktype = 'advisory' and not granted
      and database = (select oid from pg_database where datname = current_database())`
  return rows.length
})
