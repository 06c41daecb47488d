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

/** The services, on a database of its own. Copies may go as soon as they are unused. */
const layer = (serverUrl: string, instance: string) =>
  SkillVersions.layerServices.pipe(
    Layer.provideMerge(Layer.merge(SkillVersions.layerDisk, SkillVersions.layerDatabase)),
    Layer.provideMerge(tables),
    Layer.provideMerge(DatabaseClock.layer),
    Layer.provideMerge(Transactions.layer),
    Layer.provideMerge(TestDatabase.layerClient(serverUrl)),
    Layer.provideMerge(InstanceRoots.layer({ instance })),
    Layer.provide(PosixFileSystem.layer),
    Layer.provideMerge(RetentionSettings.layer({ grace: Duration.zero }))
  )

/** Builds the services on a new, empty folder and database; `skills` is where its copies lie. */
export const make = Effect.gen(function* () {
  const { path, serverUrl } = yield* Workspace
  const instance = yield* System.temporaryFolder(path)
  const context = yield* Layer.build(layer(yield* serverUrl, instance))
  return { context, skills: `${instance}/skills` }
})
