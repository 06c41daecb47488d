/** What a server process is made of: every service on an instance and a database, with one clock or another. */
import { PgClient } from "@effect/sql-pg"
import { ExpirationSettings, RetentionSettings } from "@reclaim/core"
import {
  type DatabaseClock,
  Holds,
  HostSchema,
  Journal,
  SessionCatalog,
  SkillCatalog,
  SkillPins,
  Transactions
} from "@reclaim/db"
import { InstanceRoots, PosixFileSystem } from "@reclaim/fs"
import { Layer, Logger, Redacted } from "effect"
import type * as SqlClient from "effect/sql/SqlClient"
import { SessionActivity, SessionBackups, SkillVersions } from "../../src/index.ts"

export interface Options {
  readonly instance: string
  readonly url: string
  /** The database's, or one that a test moves. */
  readonly clock: Layer.Layer<
    DatabaseClock.DatabaseClock,
    never,
    SqlClient.SqlClient | Transactions.Transactions
  >
  readonly retention?: RetentionSettings.Options
  readonly pool?: Omit<PgClient.PgPoolConfig, "url">
}

export const layer = ({ clock, instance, pool, retention, url }: Options) => {
  const database = Layer.mergeAll(
    Holds.layer,
    Journal.layer,
    SessionCatalog.layer,
    SkillCatalog.layer,
    SkillPins.layer
  ).pipe(
    Layer.provideMerge(HostSchema.layer),
    Layer.provideMerge(clock),
    Layer.provideMerge(Transactions.layer),
    Layer.provideMerge(PgClient.layer({ ...pool, url: Redacted.make(url) }))
  )
  const disk = Layer.merge(SkillVersions.layerDisk, SessionBackups.layerDisk).pipe(
    Layer.provideMerge(InstanceRoots.layer({ instance }).pipe(Layer.provide(PosixFileSystem.layer)))
  )
  return Layer.mergeAll(SkillVersions.layerServices, SessionBackups.layerServices).pipe(
    Layer.provideMerge(
      Layer.mergeAll(
        database,
        disk,
        RetentionSettings.layer(retention),
        ExpirationSettings.layer(),
        SessionActivity.layerNone,
        Logger.layer([])
      )
    )
  )
}
