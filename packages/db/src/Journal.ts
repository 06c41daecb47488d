/**
 * Keeps the account of what went, when, why and by whom.
 *
 * **Details**
 *
 * A row is written in the transaction that does what it tells, so it is there exactly when that was
 * committed. The one exception is a database without room: then the entry is logged instead, because a
 * cleanup that stops when the disk is full would be of little use.
 *
 * @since 0.1.0
 */
import { Ids } from "@reclaim/core"
import { Context, DateTime, Effect, Layer, Option, Schema, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import { DatabaseClock } from "./DatabaseClock.ts"
import { type DatabaseError, fromSqlError, make as makeError } from "./DatabaseError.ts"
import { HostSchema, type NotAdopted } from "./HostSchema.ts"
import { query, run } from "./internal/rows.ts"
import { Transactions } from "./Transactions.ts"

/**
 * One event: `worker` is who did it, `event` what happened, `digest` the fingerprint that was proven,
 * `detail` anything more.
 *
 * @category models
 * @since 0.1.0
 */
export const Entry = Schema.Struct({
  worker: Schema.Literals(["skill-versions", "backups"]),
  event: Schema.Literals(["evicted", "undone", "set aside", "healed", "repaired", "expired", "recovered"]),
  companyId: Schema.NullOr(Ids.CompanyId),
  skillId: Schema.NullOr(Ids.SkillId),
  versionId: Schema.NullOr(Ids.VersionId),
  scope: Schema.NullOr(Ids.ScopeId),
  allocatedBytes: Schema.BigInt,
  digest: Schema.NullOr(Schema.String),
  server: Schema.String,
  detail: Schema.Json
})
/** @category models @since 0.1.0 */
export type Entry = typeof Entry.Type

/**
 * An event as it stands in the journal. A later release may know more workers and events.
 *
 * @category models
 * @since 0.1.0
 */
export interface Recorded extends Omit<Entry, "worker" | "event"> {
  readonly id: bigint
  readonly at: DateTime.Utc
  readonly worker: string
  readonly event: string
}

/**
 * How many events of a kind a worker wrote on one day, from midnight to midnight UTC, and their sizes together.
 *
 * @category models
 * @since 0.1.0
 */
export interface Daily {
  readonly day: DateTime.Utc
  readonly worker: string
  readonly event: string
  readonly count: number
  readonly allocatedBytes: bigint
}

/**
 * The journal.
 *
 * @category services
 * @since 0.1.0
 */
export class Journal extends Context.Service<
  Journal,
  {
    /**
     * Appends an event in the transaction that is open. `logged` means that the database had no room: the
     * entry went to the log as a warning, and the transaction is as it was. `at` is when it happened, for who
     * has read the clock in this transaction already.
     */
    readonly append: (
      entry: Entry,
      at?: DateTime.Utc
    ) => Effect.Effect<"written" | "logged", DatabaseError | NotAdopted>
    /** The events since an instant, oldest first, of one company or of all. */
    readonly since: (
      instant: DateTime.Utc,
      companyId?: Ids.CompanyId
    ) => Stream.Stream<Recorded, DatabaseError>
    /** The events since an instant, added up by the database, oldest day first. */
    readonly daily: (instant: DateTime.Utc) => Effect.Effect<ReadonlyArray<Daily>, DatabaseError>
    /** Removes events before an instant, at most 1,000 per call. Returns how many. */
    readonly prune: (before: DateTime.Utc) => Effect.Effect<number, DatabaseError | NotAdopted>
  }
>()("@reclaim/db/Journal") {}

// 500: a page that is decoded at once and fits any message.
const pageSize = 500

// 1,000: one statement's worth; a sweep prunes again the next time.
const pruneLimit = 1000

const Row = Schema.Struct({
  ...Entry.fields,
  id: Schema.BigInt,
  at: Schema.Finite,
  worker: Schema.String,
  event: Schema.String
})
const Count = Schema.Struct({ count: Schema.Finite })
const DailyRow = Schema.Struct({
  day: Schema.Finite,
  worker: Schema.String,
  event: Schema.String,
  count: Schema.Finite,
  allocatedBytes: Schema.BigInt
})
const Detail = Schema.fromJsonString(Entry.fields.detail)

/**
 * The journal in the schema `reclaim`.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<
  Journal,
  never,
  SqlClient.SqlClient | Transactions | HostSchema | DatabaseClock
> = Layer.effect(
  Journal,
  Effect.gen(function* () {
    const sql = (yield* SqlClient.SqlClient).withoutTransforms()
    const transactions = yield* Transactions
    const host = yield* HostSchema
    const clock = yield* DatabaseClock

    const append = Effect.fnUntraced(function* (entry: Entry, at?: DateTime.Utc) {
      const operation = "writing the journal"
      yield* host.requireAdopted(operation)
      const now = DateTime.toDateUtc(at ?? (yield* clock.now))
      const detail = yield* Effect.mapError(Schema.encodeEffect(Detail)(entry.detail), (issue) =>
        makeError({ _tag: "Undecodable", detail: `the detail is no JSON: ${issue.message}` }, operation)
      )
      // A savepoint, so that a failed insert does not take the eviction with it.
      yield* run(operation, sql`savepoint reclaim_journal`)
      const insert = sql`
        insert into reclaim.journal
          (at, worker, event, company_id, skill_id, version_id, scope, allocated_bytes, digest, server, detail)
        values (${now}, ${entry.worker}, ${entry.event}, ${entry.companyId}::uuid, ${entry.skillId}::uuid,
          ${entry.versionId}::uuid, ${entry.scope}, ${entry.allocatedBytes}::int8, ${entry.digest}, ${entry.server},
          ${detail}::jsonb)`
      const failure = yield* Effect.match(insert, {
        onFailure: (error): Option.Option<SqlError> => Option.some(error),
        onSuccess: () => Option.none<SqlError>()
      })
      if (Option.isSome(failure)) {
        const error = fromSqlError(failure.value, operation)
        if (error.reason._tag !== "DiskFull") return yield* error
        yield* run(operation, sql`rollback to savepoint reclaim_journal`)
        yield* Effect.logWarning("The database has no room for the journal", { at: now, ...entry })
      }
      yield* run(operation, sql`release savepoint reclaim_journal`)
      return Option.isSome(failure) ? ("logged" as const) : ("written" as const)
    })

    const page = (
      after: { readonly at: DateTime.Utc; readonly id: bigint },
      companyId: Ids.CompanyId | undefined
    ) => {
      const operation = "reading the journal"
      const company = companyId === undefined ? sql`true` : sql`company_id = ${companyId}::uuid`
      return transactions.join(
        operation,
        query(
          Row,
          operation,
          // Instants are read in whole milliseconds, so the position must be compared in them too.
          sql`select id as "id", floor(extract(epoch from at) * 1000)::float8 as "at", worker as "worker",
                event as "event", company_id::text as "companyId", skill_id::text as "skillId",
                version_id::text as "versionId", scope as "scope", allocated_bytes as "allocatedBytes",
                digest as "digest", server as "server", detail as "detail"
              from reclaim.journal
              where at >= ${DateTime.toDateUtc(after.at)}
                and (date_trunc('milliseconds', at), id) > (${DateTime.toDateUtc(after.at)}::timestamptz, ${after.id}::int8)
                and ${company}
              order by date_trunc('milliseconds', at), id
              limit ${pageSize}::int`
        )
      )
    }

    const since = (
      instant: DateTime.Utc,
      companyId?: Ids.CompanyId
    ): Stream.Stream<Recorded, DatabaseError> =>
      Stream.paginate({ at: instant, id: -1n }, (after) =>
        Effect.gen(function* () {
          if (Option.isNone(yield* host.adopted)) return [[], Option.none()] as const
          const rows = yield* page(after, companyId)
          const entries = rows.map((row): Recorded => ({ ...row, at: DateTime.makeUnsafe(row.at) }))
          const last = entries.at(-1)
          return [
            entries,
            last === undefined || entries.length < pageSize
              ? Option.none()
              : Option.some({ at: last.at, id: last.id })
          ] as const
        })
      )

    const daily = Effect.fnUntraced(function* (instant: DateTime.Utc) {
      const operation = "adding up the journal"
      if (Option.isNone(yield* host.adopted)) return []
      const rows = yield* query(
        DailyRow,
        operation,
        sql`select (extract(epoch from date_trunc('day', at at time zone 'UTC')) * 1000)::float8 as "day",
              worker as "worker", event as "event", count(*)::float8 as "count",
              sum(allocated_bytes)::int8 as "allocatedBytes"
            from reclaim.journal where at >= ${DateTime.toDateUtc(instant)}
            group by 1, 2, 3 order by 1, 2, 3`
      )
      return rows.map((row): Daily => ({ ...row, day: DateTime.makeUnsafe(row.day) }))
    })

    const prune = Effect.fnUntraced(function* (before: DateTime.Utc) {
      const operation = "pruning the journal"
      yield* host.requireAdopted(operation)
      const rows = yield* query(
        Count,
        operation,
        sql`with old as (
              select id from reclaim.journal where at < ${DateTime.toDateUtc(before)} order by at limit ${pruneLimit}::int
            ), gone as (delete from reclaim.journal j using old where j.id = old.id returning 1)
            select count(*)::float8 as "count" from gone`
      )
      return rows[0]?.count ?? 0
    })

    return Journal.of({
      append: Effect.fn("Journal.append")((entry, at) =>
        transactions.join("writing the journal", append(entry, at))
      ),
      since,
      daily: (instant) => transactions.join("adding up the journal", daily(instant)),
      prune: (before) => transactions.join("pruning the journal", prune(before))
    })
  })
)
