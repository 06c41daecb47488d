/**
 * Composes everything that skill version copies need into one layer.
 *
 * **Details**
 *
 * A host provides its `SqlClient`, its roots and its settings. A host with other tables provides its own
 * `SkillCatalog` and `SkillPins` and takes `layerServices` instead.
 *
 * @since 0.1.0
 */
import type { RetentionSettings } from "@reclaim/core"
import {
  DatabaseClock,
  type DatabaseError,
  Holds,
  HostSchema,
  Journal,
  SkillCatalog,
  SkillPins,
  Transactions
} from "@reclaim/db"
import { AccessRecords, type InstanceRoots, PosixFileSystem, Trees, VersionStore } from "@reclaim/fs"
import { Layer } from "effect"
import type { SqlClient } from "effect/sql/SqlClient"
import * as SkillVersionAudit from "./SkillVersionAudit.ts"
import * as SkillVersionCache from "./SkillVersionCache.ts"
import * as SkillVersionRetention from "./SkillVersionRetention.ts"

/** The disk below the roots. @category layers @since 0.1.0 */
export const layerDisk: Layer.Layer<
  AccessRecords.AccessRecords | PosixFileSystem.PosixFileSystem | Trees.Trees | VersionStore.VersionStore,
  never,
  InstanceRoots.InstanceRoots
> = VersionStore.layer.pipe(
  Layer.provideMerge(AccessRecords.layer),
  Layer.provideMerge(Trees.layer),
  Layer.provideMerge(PosixFileSystem.layer)
)

/** The database of a host that has the tables of PaperClip. @category layers @since 0.1.0 */
export const layerDatabase: Layer.Layer<
  | DatabaseClock.DatabaseClock
  | Holds.Holds
  | HostSchema.HostSchema
  | Journal.Journal
  | SkillCatalog.SkillCatalog
  | SkillPins.SkillPins
  | Transactions.Transactions,
  DatabaseError.DatabaseError | HostSchema.MissingTables,
  SqlClient
> = Layer.mergeAll(Holds.layer, Journal.layer, SkillCatalog.layer, SkillPins.layer).pipe(
  Layer.provideMerge(HostSchema.layer),
  Layer.provideMerge(DatabaseClock.layer),
  Layer.provideMerge(Transactions.layer)
)

/** The services, on whatever layers a host supplies for what they need. @category layers @since 0.1.0 */
export const layerServices = Layer.mergeAll(
  SkillVersionAudit.layer,
  SkillVersionCache.layer,
  SkillVersionRetention.layer
)

/** The services, on the host's `SqlClient`, roots and settings. @category layers @since 0.1.0 */
export const layer: Layer.Layer<
  | SkillVersionAudit.SkillVersionAudit
  | SkillVersionCache.SkillVersionCache
  | SkillVersionRetention.SkillVersionRetention,
  DatabaseError.DatabaseError | HostSchema.MissingTables,
  InstanceRoots.InstanceRoots | RetentionSettings.RetentionSettings | SqlClient
> = layerServices.pipe(Layer.provide(Layer.merge(layerDisk, layerDatabase)))
