/**
 * One server process that captures, restores and expires session backups, on the database of a client and with
 * threads that it shares.
 */
import { ExpirationSettings } from "@reclaim/core"
import { Holds, HostSchema, Journal, SessionCatalog, Transactions } from "@reclaim/db"
import { BackupStore, InstanceRoots, type PosixFileSystem } from "@reclaim/fs"
import { Layer, Logger } from "effect"
import { BackupExpiration, FailoverBackups, ServerName, SessionActivity } from "../../src/index.ts"
import * as Threads from "./threads.ts"

export interface Options {
  readonly settings?: ExpirationSettings.Options
  /** In place of the system's calls, to make some of them fail. */
  readonly posix?: Layer.Layer<PosixFileSystem.PosixFileSystem>
  readonly bounds?: Omit<Transactions.Options, "operation">
}

export const layer = (instance: string, options: Options = {}) => {
  const disk = BackupStore.layer.pipe(
    Layer.provideMerge(options.posix ?? Threads.posix),
    Layer.provideMerge(InstanceRoots.layer({ instance }))
  )
  const database = Layer.mergeAll(SessionCatalog.layer, Holds.layer, Journal.layer).pipe(
    Layer.provideMerge(HostSchema.layer),
    Layer.provideMerge(Transactions.layerWith(options.bounds ?? {}))
  )
  return Layer.mergeAll(BackupExpiration.layer, FailoverBackups.layer).pipe(
    Layer.provideMerge(
      Layer.mergeAll(
        disk,
        database,
        SessionActivity.layerTracker,
        ExpirationSettings.layer(options.settings ?? {}),
        Layer.succeed(ServerName.ServerName, "server-a")
      )
    ),
    Layer.provideMerge(Logger.layer([]))
  )
}
