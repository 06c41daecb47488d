/** What a server process is made of: every service on an instance and a database, at one fixed time. */
import { PgClient } from "@effect/sql-pg"
import { RetentionSettings } from "@reclaim/core"
import { Holds, HostSchema, Journal, SkillCatalog, SkillPins, Transactions } from "@reclaim/db"
import { InstanceRoots, PosixFileSystem } from "@reclaim/fs"
import { type DateTime, Layer, Logger, Redacted } from "effect"
import { SkillVersions } from "../../src/index.ts"
import { MovableClock } from "../../src/testing.ts"

export const layer = (options: {
  readonly instance: string
  readonly url: string
  readonly now: DateTime.Utc
}) => {
  const roots = InstanceRoots.layer({ instance: options.instance }).pipe(Layer.provide(PosixFileSystem.layer))
  const database = Layer.mergeAll(SkillCatalog.layer, SkillPins.layer, Holds.layer, Journal.layer).pipe(
    Layer.provideMerge(HostSchema.layer),
    Layer.provideMerge(Transactions.layer),
    Layer.provideMerge(MovableClock.layer(options.now)),
    Layer.provide(PgClient.layer({ url: Redacted.make(options.url) }))
  )
  return SkillVersions.layerServices.pipe(
    Layer.provideMerge(
      Layer.mergeAll(
        SkillVersions.layerDisk.pipe(Layer.provideMerge(roots)),
        database,
        RetentionSettings.layer({}),
        Logger.layer([])
      )
    )
  )
}
