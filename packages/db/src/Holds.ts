/**
 * Lets an operator hold a version or the backup of a session scope.
 *
 * @since 0.1.0
 */
import { Ids } from "@reclaim/core"
import { Context, DateTime, Effect, Layer, Option, Schema } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { DatabaseClock } from "./DatabaseClock.ts"
import { DatabaseError, NestedTransaction, make as makeError, retry } from "./DatabaseError.ts"
import { HostSchema, type NotAdopted } from "./HostSchema.ts"
import { millis, query, run } from "./internal/rows.ts"
import { Transactions } from "./Transactions.ts"

/**
 * What is held, by whom and why.
 *
 * @category models
 * @since 0.1.0
 */
export const Hold = Schema.TaggedUnion({
  Version: {
    companyId: Ids.CompanyId,
    versionId: Ids.VersionId,
    by: Schema.String,
    note: Schema.String,
    createdAt: Schema.DateTimeUtcFromString
  },
  Scope: {
    scope: Ids.ScopeId,
    by: Schema.String,
    note: Schema.String,
    createdAt: Schema.DateTimeUtcFromString
  }
})
/** @category models @since 0.1.0 */
export type Hold = typeof Hold.Type

/**
 * What operators hold. Holding again replaces who holds and the note.
 *
 * @category services
 * @since 0.1.0
 */
export class Holds extends Context.Service<
  Holds,
  {
    /** Holds a version. Takes the company's lock shared, so that no eviction in hand misses it. */
    readonly holdVersion: (
      companyId: Ids.CompanyId,
      versionId: Ids.VersionId,
      by: string,
      note: string
    ) => Effect.Effect<void, DatabaseError | NotAdopted>
    /** Holds the backup of a session scope. */
    readonly holdScope: (
      scope: Ids.ScopeId,
      by: string,
      note: string
    ) => Effect.Effect<void, DatabaseError | NotAdopted>
    /** Undoes a hold. False when there was none. */
    readonly unholdVersion: (
      companyId: Ids.CompanyId,
      versionId: Ids.VersionId
    ) => Effect.Effect<boolean, DatabaseError | NotAdopted>
    /** Undoes a hold. False when there was none. */
    readonly unholdScope: (scope: Ids.ScopeId) => Effect.Effect<boolean, DatabaseError | NotAdopted>
    /** Everything that is held, oldest first; empty while the schema `reclaim` is missing. */
    readonly list: Effect.Effect<ReadonlyArray<Hold>, DatabaseError>
    /** The holds of scopes, in one statement. */
    readonly scopes: (
      scopes: ReadonlyArray<Ids.ScopeId>
    ) => Effect.Effect<
      ReadonlyMap<Ids.ScopeId, { readonly by: string; readonly note: string }>,
      DatabaseError
    >
  }
>()("@reclaim/db/Holds") {}

const Row = Schema.Struct({
  kind: Schema.Literals(["version", "scope"]),
  companyId: Schema.NullOr(Ids.CompanyId),
  versionId: Schema.NullOr(Ids.VersionId),
  scope: Schema.NullOr(Ids.ScopeId),
  by: Schema.String,
  note: Schema.String,
  createdAt: Schema.Finite
})
const ScopeRow = Schema.Struct({ scope: Ids.ScopeId, by: Schema.String, note: Schema.String })
const Removed = Schema.Struct({ removed: Schema.Boolean })

/**
 * The holds in the schema `reclaim`.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<
  Holds,
  never,
  SqlClient.SqlClient | Transactions | HostSchema | DatabaseClock
> = Layer.effect(
  Holds,
  Effect.gen(function* () {
    const sql = (yield* SqlClient.SqlClient).withoutTransforms()
    const transactions = yield* Transactions
    const host = yield* HostSchema
    const clock = yield* DatabaseClock

    const nested = (operation: string) => () =>
      Effect.fail(makeError({ _tag: "NestedTransaction" }, operation))

    const holdVersion = Effect.fnUntraced(function* (
      companyId: Ids.CompanyId,
      versionId: Ids.VersionId,
      by: string,
      note: string
    ) {
      const operation = "holding a version"
      // Holding again is the same as holding once, so it may be tried again.
      yield* transactions
        .companyShared(
          companyId,
          Effect.fnUntraced(function* () {
            yield* host.requireAdopted(operation)
            const now = DateTime.toDateUtc(yield* clock.now)
            yield* run(
              operation,
              sql`insert into reclaim.holds (kind, company_id, version_id, held_by, note, created_at)
                values ('version', ${companyId}::uuid, ${versionId}::uuid, ${by}, ${note}, ${now})
                on conflict (company_id, version_id) where kind = 'version'
                do update set held_by = excluded.held_by, note = excluded.note`
            )
          }),
          { operation }
        )
        .pipe(
          retry,
          Effect.catchIf((error) => Schema.is(NestedTransaction)(error), nested(operation))
        )
    })

    const holdScope = Effect.fnUntraced(function* (scope: Ids.ScopeId, by: string, note: string) {
      const operation = "holding a scope"
      yield* host.requireAdopted(operation)
      const now = DateTime.toDateUtc(yield* clock.now)
      yield* run(
        operation,
        sql`insert into reclaim.holds (kind, scope, held_by, note, created_at)
            values ('scope', ${scope}, ${by}, ${note}, ${now})
            on conflict (scope) where kind = 'scope' do update set held_by = excluded.held_by, note = excluded.note`
      )
    })

    const unholdVersion = Effect.fnUntraced(function* (companyId: Ids.CompanyId, versionId: Ids.VersionId) {
      const operation = "undoing a hold"
      yield* host.requireAdopted(operation)
      const rows = yield* query(
        Removed,
        operation,
        sql`delete from reclaim.holds
            where kind = 'version' and company_id = ${companyId}::uuid and version_id = ${versionId}::uuid
            returning true as "removed"`
      )
      return rows.length > 0
    })

    const unholdScope = Effect.fnUntraced(function* (scope: Ids.ScopeId) {
      const operation = "undoing a hold"
      yield* host.requireAdopted(operation)
      const rows = yield* query(
        Removed,
        operation,
        sql`delete from reclaim.holds where kind = 'scope' and scope = ${scope} returning true as "removed"`
      )
      return rows.length > 0
    })

    const list = Effect.gen(function* () {
      if (Option.isNone(yield* host.adopted)) return []
      const rows = yield* query(
        Row,
        "listing holds",
        sql`select kind as "kind", company_id::text as "companyId", version_id::text as "versionId",
              scope as "scope", held_by as "by", note as "note",
              ${millis(sql, sql`created_at`)} as "createdAt"
            from reclaim.holds order by created_at, company_id, version_id, scope`
      )
      return rows.flatMap(({ by, companyId, note, scope, versionId, ...row }): ReadonlyArray<Hold> => {
        const createdAt = DateTime.makeUnsafe(Math.floor(row.createdAt))
        if (companyId !== null && versionId !== null) {
          return [{ _tag: "Version", companyId, versionId, by, note, createdAt }]
        }
        return scope === null ? [] : [{ _tag: "Scope", scope, by, note, createdAt }]
      })
    })

    const scopes = Effect.fnUntraced(function* (wanted: ReadonlyArray<Ids.ScopeId>) {
      const held = new Map<Ids.ScopeId, { readonly by: string; readonly note: string }>()
      if (wanted.length === 0 || Option.isNone(yield* host.adopted)) return held
      const rows = yield* query(
        ScopeRow,
        "reading holds",
        sql`select scope as "scope", held_by as "by", note as "note"
            from reclaim.holds where kind = 'scope' and scope = any(${wanted}::text[])`
      )
      for (const { by, note, scope } of rows) held.set(scope, { by, note })
      return held
    })

    return Holds.of({
      holdVersion,
      holdScope: (scope, by, note) => transactions.join("holding a scope", holdScope(scope, by, note)),
      unholdVersion: (companyId, versionId) =>
        transactions.join("undoing a hold", unholdVersion(companyId, versionId)),
      unholdScope: (scope) => transactions.join("undoing a hold", unholdScope(scope)),
      list: transactions.join("listing holds", list),
      scopes: (wanted) => transactions.join("reading holds", scopes(wanted))
    })
  })
)
