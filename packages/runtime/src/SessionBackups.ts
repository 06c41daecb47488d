/**
 * Composes everything that failover backups of native sessions need into one layer.
 *
 * **Details**
 *
 * A host provides its `SqlClient`, its roots, its settings and its `SessionActivity`. A host with other tables
 * provides its own `SessionCatalog` and takes `layerServices` instead. What only captures and restores needs
 * no database: `FailoverBackups.layer` on `layerDisk`.
 *
 * @since 0.1.0
 */
import type { ExpirationSettings } from "@reclaim/core"
import {
  DatabaseClock,
  type DatabaseError,
  Holds,
  HostSchema,
  Journal,
  SessionCatalog,
  Transactions
} from "@reclaim/db"
import { BackupStore, type InstanceRoots, PosixFileSystem, Trees } from "@reclaim/fs"
import { Layer } from "effect"
import type { SqlClient } from "effect/sql/SqlClient"
import * as BackupExpiration from "./BackupExpiration.ts"
import * as FailoverBackups from "./FailoverBackups.ts"
import type { SessionActivity } from "./SessionActivity.ts"

/** The disk below the roots. @category layers @since 0.1.0 */
export const layerDisk: Layer.Layer<
  BackupStore.BackupStore | PosixFileSystem.PosixFileSystem | Trees.Trees,
  never,
  InstanceRoots.InstanceRoots
> = BackupStore.layer.pipe(Layer.provideMerge(Trees.layer), Layer.provideMerge(PosixFileSystem.layer))

/** The database of a host that has the tables of PaperClip. @category layers @since 0.1.0 */
export const layerDatabase: Layer.Layer<
  | DatabaseClock.DatabaseClock
  | Holds.Holds
  | HostSchema.HostSchema
  | Journal.Journal
  | SessionCatalog.SessionCatalog
  | Transactions.Transactions,
  DatabaseError.DatabaseError | HostSchema.MissingTables,
  SqlClient
> = Layer.mergeAll(Holds.layer, Journal.layer, SessionCatalog.layer).pipe(
  Layer.provideMerge(HostSchema.layer),
  Layer.provideMerge(DatabaseClock.layer),
  Layer.provideMerge(Transactions.layer)
)

/** The two services, on whatever layers a host supplies for what they need. @category layers @since 0.1.0 */
export const layerServices = Layer.mergeAll(FailoverBackups.layer, BackupExpiration.layer)

/**
 * The two services, on the host's `SqlClient`, roots, settings and account of its sessions.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<
  FailoverBackups.FailoverBackups | BackupExpiration.BackupExpiration,
  DatabaseError.DatabaseError | HostSchema.MissingTables,
  InstanceRoots.InstanceRoots | ExpirationSettings.ExpirationSettings | SessionActivity | SqlClient
> = layerServices.pipe(Layer.provide(Layer.merge(layerDisk, layerDatabase)))
