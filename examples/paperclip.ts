import * as PgClient from "@effect/sql-pg/PgClient"
import { ExpirationSettings, type Ids, RetentionSettings } from "@reclaim/core"
import { InstanceRoots } from "@reclaim/fs"
import {
  HostControls,
  SessionActivity,
  SessionBackups,
  SkillVersionCache,
  SkillVersions,
  Workers
} from "@reclaim/runtime"
import { Config, Effect, Layer } from "effect"

/** The client, the folders and the settings that the host has. */
const host = Layer.mergeAll(
  PgClient.layerConfig({ url: Config.Redacted("DATABASE_URL") }),
  Layer.unwrap(Effect.map(Config.String("INSTANCE"), (instance) => InstanceRoots.layerFromEnv({ instance }))),
  RetentionSettings.layerFromEnv(),
  ExpirationSettings.layerFromEnv()
)

/** The services, and workers that sweep once an hour: from `HostSwitch.ready` on, and not on standby. */
export const Reclaim = Workers.layer.pipe(
  Layer.provideMerge(Layer.merge(SkillVersions.layer, SessionBackups.layer)),
  Layer.provideMerge(Layer.merge(HostControls.layerMemory, SessionActivity.layerTracker)),
  Layer.provide(host)
)

/** Before a run starts: from here on its copies stay, and what is missing is restored. */
export const startRun = Effect.fn("startRun")(function* (run: {
  readonly companyId: Ids.CompanyId
  readonly runId: Ids.RunId
  readonly versions: ReadonlyArray<Ids.VersionId>
}) {
  const cache = yield* SkillVersionCache.SkillVersionCache
  const paths: Array<string> = []
  for (const version of yield* cache.prepare(run)) {
    if (version._tag === "Ready") paths.push(version.path)
    else yield* Effect.logError(`the run lacks version ${version.versionId}`, version.reason)
  }
  return paths
})

/** When it is over: its copies may go again. */
export const endRun = (runId: Ids.RunId) =>
  Effect.flatMap(SkillVersionCache.SkillVersionCache, (cache) => cache.release(runId))
