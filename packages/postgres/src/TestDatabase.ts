/**
 * Creates a database for one test file and drops it afterwards.
 *
 * Each database has a random name, so files and whole runs can use one server at the same time. A run that is
 * killed leaves its databases on a server that outlives it; their names start with `reclaim_test_`.
 *
 * @since 0.1.0
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Context, Effect, Layer, Redacted } from "effect"
import type { Scope } from "effect"
import * as Reactivity from "effect/reactivity/Reactivity"
import * as SqlClient from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"

/**
 * A database that nobody else uses.
 *
 * @category services
 * @since 0.1.0
 */
export class TestDatabase extends Context.Service<
  TestDatabase,
  {
    /** Connects to the database with the user of the server's URL. */
    readonly url: string
    /** The name of the database. */
    readonly name: string
  }
>()("@reclaim/postgres/TestDatabase") {}

/** Runs one statement on a connection that is closed at once, so that waiting tests hold none. */
const administer = (serverUrl: string, statement: string): Effect.Effect<void, SqlError> =>
  PgClient.make({ url: Redacted.make(serverUrl), maxConnections: 1 }).pipe(
    Effect.flatMap((sql) => sql.unsafe(statement)),
    Effect.scoped,
    Effect.provide(Reactivity.layer),
    Effect.asVoid
  )

/**
 * Creates a database that is dropped when the scope closes, whoever is still connected to it.
 *
 * **Gotchas**
 *
 * The user of `serverUrl` must be allowed to create databases.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make: (serverUrl: string) => Effect.Effect<TestDatabase["Service"], SqlError, Scope.Scope> =
  Effect.fn("TestDatabase.make")(function* (serverUrl: string) {
    // Not from `Random`: two files whose tests seed it alike would get the same name.
    const name = `reclaim_test_${crypto.randomUUID().replaceAll("-", "")}`
    yield* Effect.acquireRelease(administer(serverUrl, `create database ${name}`), () =>
      administer(serverUrl, `drop database if exists ${name} with (force)`).pipe(
        Effect.catch((error) => Effect.logWarning(`The test database ${name} was not dropped`, error))
      )
    )
    const url = new URL(serverUrl)
    url.pathname = `/${name}`
    return TestDatabase.of({ url: url.href, name })
  })

/**
 * Provides a database that lives as long as the layer. See {@link make}.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (serverUrl: string): Layer.Layer<TestDatabase, SqlError> =>
  Layer.effect(TestDatabase, make(serverUrl))

/**
 * Provides a database and a client for it.
 *
 * **Example** (A database for a test file)
 *
 * ```ts
 * import { layer } from "@effect/vitest"
 * import { TestDatabase } from "@reclaim/postgres/testing"
 * import { Effect } from "effect"
 * import { SqlClient } from "effect/sql"
 * import { inject } from "vitest"
 *
 * layer(TestDatabase.layerClient(inject("databaseUrl")))("counting", (it) => {
 *   it.effect("counts", () => Effect.flatMap(SqlClient.SqlClient, (sql) => sql`select count(*) from pg_class`))
 * })
 * ```
 *
 * @category layers
 * @since 0.1.0
 */
export const layerClient = (
  serverUrl: string,
  config?: Omit<PgClient.PgPoolConfig, "url">
): Layer.Layer<TestDatabase | PgClient.PgClient | SqlClient.SqlClient, SqlError> =>
  Layer.unwrap(
    Effect.map(TestDatabase, ({ url }) => PgClient.layer({ ...config, url: Redacted.make(url) }))
  ).pipe(Layer.provideMerge(layer(serverUrl)))
