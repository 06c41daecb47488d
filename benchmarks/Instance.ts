/** Sets up an instance for a scenario: a folder, a database, and every service on both. */
import { RetentionSettings } from "@reclaim/core"
import { DatabaseClock, HostTables, Migrations, Transactions } from "@reclaim/db"
import { InstanceRoots, PosixFileSystem } from "@reclaim/fs"
import { TestDatabase } from "@reclaim/postgres/testing"
import { SkillVersions } from "@reclaim/runtime"
import { Duration, Effect, Layer } from "effect"
import { Workspace } from "./Harness.ts"
import * as System from "./System.ts"

const tables = Layer.effectDiscard(Effect.andThen(HostTables.create, Migrations.migrate))

/** The services, on a database of its own. */
const layer = (serverUrl: string, instance: string, settings: RetentionSettings.Options) =>
  SkillVersions.layerServices.pipe(
    Layer.provideMerge(Layer.merge(SkillVersions.layerDisk, SkillVersions.layerDatabase)),
    Layer.provideMerge(tables),
    Layer.provideMerge(DatabaseClock.layer),
    Layer.provideMerge(Transactions.layer),
    Layer.provideMerge(TestDatabase.layerClient(serverUrl)),
    Layer.provideMerge(InstanceRoots.layer({ instance })),
    Layer.provide(PosixFileSystem.layer),
    Layer.provideMerge(RetentionSettings.layer(settings))
  )

/** Builds the services on a new, empty folder and database; `skills` is where its copies lie. */
export const makeWith = Effect.fnUntraced(function* (settings: RetentionSettings.Options) {
  const { path, serverUrl } = yield* Workspace
  const instance = yield* System.temporaryFolder(path)
  const context = yield* Layer.build(layer(yield* serverUrl, instance, settings))
  return { context, skills: `${instance}/skills` }
})

/** With copies that may go as soon as they are unused. */
export const make = makeWith({ grace: Duration.zero })
