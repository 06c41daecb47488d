import * as PgClient from "@effect/sql-pg/PgClient"
import { type Ids, RetentionSettings } from "@reclaim/core"
import { InstanceRoots } from "@reclaim/fs"
import { SkillVersionCache, SkillVersionRetention, SkillVersions } from "@reclaim/runtime"
import { Config, Effect, Layer, Schedule, Stream } from "effect"

/** The two services, on the client, the folders and the settings that the host has. */
export const Copies = SkillVersions.layer.pipe(
  Layer.provide(
    Layer.unwrap(
      Effect.map(Config.String("INSTANCE"), (instance) => InstanceRoots.layerFromEnv({ instance }))
    )
  ),
  Layer.provide(RetentionSettings.layerFromEnv()),
  Layer.provide(PgClient.layerConfig({ url: Config.Redacted("DATABASE_URL") }))
)

/** Before a run starts: from here on its copies stay, and what is missing is restored. */
export const startRun = Effect.fn("startRun")(function* (run: {
  readonly companyId: Ids.CompanyId
  readonly runId: Ids.RunId
  readonly versions: ReadonlyArray<Ids.VersionId>
}) {
  const cache = yield* SkillVersionCache.SkillVersionCache
  const prepared = yield* cache.prepare(run)
  return prepared.flatMap((version) => (version._tag === "Ready" ? [version.path] : []))
})

/** When it is over: its copies may go again. */
export const endRun = (runId: Ids.RunId) =>
  Effect.flatMap(SkillVersionCache.SkillVersionCache, (cache) => cache.release(runId))

/** One pass over the instance; each batch is logged with what went and what stayed why. */
export const sweep = Effect.flatMap(SkillVersionRetention.SkillVersionRetention, (retention) =>
  Stream.runDrain(retention.sweep())
)

/** Now and every hour, for as long as the scope lives. */
export const sweeping = sweep.pipe(
  Effect.catchCause((cause) => Effect.logError("a sweep failed, the next one runs", cause)),
  Effect.repeat(Schedule.fixed("1 hour")),
  Effect.forkScoped
)
