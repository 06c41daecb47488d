/** What the tests of sweeping share. */
import { FaultPoint, type Ids } from "@reclaim/core"
import { Journal, Transactions } from "@reclaim/db"
import { AccessRecords, VersionStore } from "@reclaim/fs"
import { DateTime, Deferred, Effect, Fiber, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Fs from "node:fs"
import { SkillVersionCache } from "../../src/index.ts"
import * as World from "./World.ts"

/** Makes copies ready, without pinning them: they count as used now. */
export const materialize = Effect.fnUntraced(function* (copies: ReadonlyArray<VersionStore.CopyRef>) {
  const cache = yield* SkillVersionCache.SkillVersionCache
  for (const { companyId, versionId } of copies) {
    const prepared = yield* cache.restore({ companyId, versionId })
    if (prepared._tag !== "Ready") return yield* Effect.die(prepared)
  }
})

/** Writes copies by hand, as `World.skill` describes them; they count as used now. Faster than preparing. */
export const place = Effect.fnUntraced(function* (copies: ReadonlyArray<VersionStore.CopyRef>) {
  const records = yield* AccessRecords.AccessRecords
  const now = yield* DateTime.now
  for (const [index, copy] of copies.entries()) {
    const path = yield* pathOf(copy)
    Fs.mkdirSync(`${path}/scripts`, { recursive: true })
    Fs.mkdirSync(`${path}/assets`)
    Fs.writeFileSync(`${path}/SKILL.md`, `revision ${index + 1}`, { mode: 0o444 })
    Fs.writeFileSync(`${path}/scripts/run.sh`, "#!/bin/sh\n", { mode: 0o555 })
    Fs.writeFileSync(`${path}/assets/logo.bin`, Buffer.from("AAECAwQF", "base64"), { mode: 0o444 })
    yield* records.touch(copy, now)
  }
})

/** Begins anew with a skill whose copies are all on disk and unused for an hour: they may all go. */
export const idleSkill = Effect.fnUntraced(function* (options: Parameters<typeof World.skill>[0]) {
  yield* World.begin
  const made = yield* World.skill(options)
  yield* materialize(made.copies)
  yield* World.advance("1 hour")
  return made
})

/** Where a leftover of a copy would be; a new one each time. */
export const leftoverPath = Effect.fnUntraced(function* (
  copy: VersionStore.CopyRef,
  kind: "staging" | "evicting" | "replaced" | "trash"
) {
  const { path } = yield* World.Instance
  const name = kind === "trash" ? "" : `${copy.versionId}-`
  return `${path}/skills/${copy.companyId}/__versions__/${copy.skillId}/.${kind}-${name}${crypto.randomUUID()}`
})

/** Where a copy is, or would be. */
export const pathOf = (copy: VersionStore.CopyRef) =>
  Effect.map(VersionStore.VersionStore, (store) => store.pathOf(copy))

/** The names in the folder of a copy's skill. */
export const siblings = Effect.fnUntraced(function* (copy: VersionStore.CopyRef) {
  const path = (yield* pathOf(copy)).split("/").slice(0, -1).join("/")
  return Fs.existsSync(path) ? Fs.readdirSync(path).toSorted() : []
})

/** What the journal tells of one version, oldest first. */
export const events = Effect.fnUntraced(function* (copy: VersionStore.CopyRef) {
  const journal = yield* Journal.Journal
  const rows = yield* Stream.runCollect(
    journal.since(DateTime.makeUnsafe("2000-01-01T00:00:00Z"), copy.companyId)
  )
  return rows.filter(({ versionId }) => versionId === copy.versionId).map(({ event }) => event)
})

/**
 * Runs an effect until it waits at a point, the first time after another one was reached, and hands over how
 * to let it go on. Dies when the point is never reached.
 */
export const stopAt = Effect.fnUntraced(function* <A, E, R>(
  self: Effect.Effect<A, E, R>,
  point: string,
  after?: string
) {
  const reached = yield* Deferred.make<void>()
  const opened = yield* Deferred.make<void>()
  let armed = after === undefined
  const outer = yield* FaultPoint.FaultHandler
  const handler = (name: string) =>
    Effect.suspend(() => {
      if (name === after) armed = true
      return armed && name === point
        ? Effect.andThen(Deferred.succeed(reached, undefined), Deferred.await(opened))
        : outer(name)
    })
  const fiber = yield* Effect.forkChild(Effect.provideService(self, FaultPoint.FaultHandler, handler))
  yield* Effect.raceFirst(
    Deferred.await(reached),
    Effect.flatMap(Fiber.await(fiber), (exit) => Effect.die([`${point} was not reached`, exit]))
  )
  return { fiber, goOn: Effect.asVoid(Deferred.succeed(opened, undefined)) }
})

/** Does something at a point, in the effect's own fiber, whatever is done at others. */
export const also =
  (point: string, action: Effect.Effect<void>) =>
  <A, E, R>(self: Effect.Effect<A, E, R>) =>
    Effect.flatMap(FaultPoint.FaultHandler, (outer) =>
      Effect.provideService(self, FaultPoint.FaultHandler, (name) => (name === point ? action : outer(name)))
    )

/** Does something while an effect waits at a point, in no transaction of the effect's. */
export const during =
  <E2, R2>(point: string, action: Effect.Effect<unknown, E2, R2>, after?: string) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E | E2, R | R2> =>
    Effect.gen(function* () {
      const { fiber, goOn } = yield* stopAt(self, point, after)
      yield* Effect.ensuring(action, goOn)
      return yield* Fiber.join(fiber)
    })

/** Runs an effect while a preparation holds the lock of a company, or a deletion its trash lock. */
export const holding =
  (companyId: Ids.CompanyId, space: "companyShared" | "companyExclusive" | "trash" = "companyShared") =>
  <A, E, R>(self: Effect.Effect<A, E, R>) =>
    Effect.gen(function* () {
      const transactions = yield* Transactions.Transactions
      const entered = yield* Deferred.make<void>()
      const released = yield* Deferred.make<void>()
      const holder = yield* Effect.forkChild(
        transactions[space](companyId, () =>
          Effect.andThen(Deferred.succeed(entered, undefined), Deferred.await(released))
        )
      )
      yield* Deferred.await(entered)
      const value = yield* Effect.ensuring(self, Deferred.succeed(released, undefined))
      yield* Fiber.join(holder)
      return value
    })

/** Advisory locks that are held or awaited in this database, and transactions that clients have open in it. */
export const unfinished = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly locks: bigint; readonly transactions: bigint }>`
    select
      (select count(*) from pg_locks l join pg_database d on d.oid = l.database
       where d.datname = current_database() and l.locktype = 'advisory') as locks,
      (select count(*) from pg_stat_activity
       where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null
         and backend_type = 'client backend') as transactions`
  return { locks: Number(rows[0]?.locks ?? -1n), transactions: Number(rows[0]?.transactions ?? -1n) }
})

/** Every row of every table, the library's included. */
export const tables = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const names = yield* sql<{ readonly name: string }>`
    select format('%I.%I', schemaname, tablename) as name from pg_tables
    where schemaname in ('public', 'reclaim') order by 1`
  const contents: Record<string, unknown> = {}
  for (const { name } of names) {
    contents[name] = yield* sql.unsafe(
      `select coalesce(jsonb_agg(to_jsonb(t) order by to_jsonb(t)::text), '[]') as rows from ${name} t`
    )
  }
  return contents
})

/** Makes a version the current one of its skill. */
export const setCurrent = Effect.fnUntraced(function* ({ skillId, versionId }: VersionStore.CopyRef) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`update company_skills set current_version_id = ${versionId}::uuid where id = ${skillId}::uuid`
})
