/**
 * Starts a host: with `bare` it imports what the other one imports and asks its database something, with
 * `composed` it composes all layers on the same client, is ready and has swept an instance with nothing in it.
 * Arguments: which, the URL of the database, the folder of the instance. Prints what it took from the end of the
 * imports on: milliseconds, milliseconds of the processor, and the resident set at the end.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { ExpirationSettings, RetentionSettings } from "@reclaim/core"
import { InstanceRoots } from "@reclaim/fs"
import { HostControls, SessionActivity, SessionBackups, SkillVersions, Workers } from "@reclaim/runtime"
import { Effect, Layer, Logger, Option, Redacted } from "effect"
import * as SqlClient from "effect/sql/SqlClient"

const imported = { at: process.hrtime.bigint(), cpu: process.cpuUsage() }

const [which, url = "", instance = ""] = process.argv.slice(2)

const database = PgClient.layer({ url: Redacted.make(url) })

const bare = Effect.flatMap(SqlClient.SqlClient, (sql) => sql`select 1`)

const host = Workers.layer.pipe(
  Layer.provideMerge(Layer.merge(SkillVersions.layer, SessionBackups.layer)),
  Layer.provideMerge(
    Layer.mergeAll(
      HostControls.layerMemory,
      InstanceRoots.layer({ instance }),
      RetentionSettings.layer(),
      ExpirationSettings.layer(),
      SessionActivity.layerNone
    )
  )
)

const composed = Effect.gen(function* () {
  const worker = yield* Workers.SkillVersionWorker
  yield* (yield* HostControls.HostSwitch).ready
  while (Option.isNone((yield* worker.status).lastSuccessAt)) yield* Effect.sleep("1 milli")
}).pipe(Effect.provide(host))

const started: Effect.Effect<unknown, unknown, SqlClient.SqlClient> = which === "composed" ? composed : bare

await Effect.runPromise(
  Effect.scoped(started).pipe(
    Effect.tap(() =>
      Effect.sync(() => {
        const { system, user } = process.cpuUsage(imported.cpu)
        const millis = Number(process.hrtime.bigint() - imported.at) / 1e6
        process.stdout.write(`${millis} ${(system + user) / 1000} ${process.memoryUsage.rss()}`)
        // What stopping costs is no cost of starting.
        process.exit(0)
      })
    ),
    Effect.provide([database, Logger.layer([])])
  )
)
