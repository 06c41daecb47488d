/** Opens what the commands work on, the database and the instance, from flags or the environment. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { DatabaseClock, DatabaseError, Holds, HostSchema, Journal, Transactions } from "@reclaim/db"
import { InstanceRoots } from "@reclaim/fs"
import { Config, Effect, Layer, Option, Path, Redacted } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { BadUsage, DatabaseUnreachable } from "./failure.ts"
import { DatabaseUrlFlag, InstanceFlag } from "./flags.ts"

/** Where a URL leads, without what it says about who asks. */
const targetOf = (url: URL): string => {
  const socket = url.searchParams.get("host")
  const place = socket ?? (url.hostname === "" ? "localhost" : url.hostname)
  return `${place}${url.port === "" || socket !== null ? "" : `:${url.port}`}${url.pathname}`
}

const databaseUrl = Effect.gen(function* () {
  const flag = yield* DatabaseUrlFlag
  const variable = yield* Config.option(Config.Redacted("DATABASE_URL"))
  const given = Option.orElse(flag, () => variable)
  if (Option.isNone(given)) {
    return yield* new BadUsage({ message: "no database given: use --database-url URL or set DATABASE_URL" })
  }
  const from = Option.isSome(flag) ? "--database-url" : "DATABASE_URL"
  const text = Redacted.value(given.value)
  // The text is in no message: a URL that is written wrongly can hold a password all the same.
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || (url.protocol !== "postgres:" && url.protocol !== "postgresql:")) {
    return yield* new BadUsage({
      message: `${from} is not a URL of a PostgreSQL database, like postgres://host:5432/name`
    })
  }
  return { url: given.value, target: targetOf(url) }
})

// 4: a sweep holds two at most; the rest lets a display query pass.
const maxConnections = 4

// Longer than a server that is starting needs, shorter than a person waits.
const patience = "10 seconds"

const pool = (maxConnections: number) =>
  Effect.map(databaseUrl, ({ target, url }) => {
    const unreachable = (detail: string) => new DatabaseUnreachable({ target, detail })
    return {
      unreachable,
      // `prepare: false` lets it work through any pooler.
      client: PgClient.layer({
        url,
        prepare: false,
        applicationName: "reclaim",
        maxConnections,
        connectTimeout: patience
      }).pipe(Layer.catch((error) => Layer.effectContext(Effect.fail(unreachable(error.message)))))
    }
  })

/** A client for the database that connects when it is first used. */
export const layerPool = (maxConnections: number) =>
  Layer.unwrap(Effect.map(pool(maxConnections), ({ client }) => client))

/** A client for the database, once it has answered. */
export const layerClient = Layer.unwrap(
  Effect.map(pool(maxConnections), ({ client, unreachable }) => {
    const answers = SqlClient.SqlClient.pipe(
      Effect.flatMap((sql) => sql`select 1`),
      Effect.mapError((error) => {
        const { reason } = DatabaseError.fromSqlError(error, "connecting")
        return unreachable("detail" in reason ? reason.detail : error.message)
      }),
      Effect.timeoutOrElse({
        duration: patience,
        orElse: () => Effect.fail(unreachable(`no answer within ${patience}`))
      })
    )
    return Layer.effectDiscard(answers).pipe(Layer.provideMerge(client))
  })
)

/** What needs the schema `reclaim` alone, and none of the host's tables. */
export const layerOwn = Layer.mergeAll(Holds.layer, Journal.layer).pipe(
  Layer.provideMerge(HostSchema.layer),
  Layer.provideMerge(DatabaseClock.layer),
  Layer.provideMerge(Transactions.layer),
  Layer.provide(layerClient)
)

const instance = Effect.gen(function* () {
  const flag = yield* InstanceFlag
  const variable = yield* Config.option(Config.String("RECLAIM_INSTANCE"))
  const given = Option.orElse(flag, () => variable)
  if (Option.isNone(given) || given.value === "") {
    return yield* new BadUsage({ message: "no instance given: use --instance DIR or set RECLAIM_INSTANCE" })
  }
  const path = yield* Path.Path
  return { instance: path.resolve(given.value) }
})

/** The folders of the instance. */
export const layerRoots = Layer.unwrap(Effect.map(instance, InstanceRoots.layerFromEnv))
