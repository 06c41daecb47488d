/** One server process: every service for skill versions and session backups, on one instance and one database. */
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
import { AccessRecords, BackupStore, InstanceRoots, Trees, VersionStore } from "@reclaim/fs"
import { Effect, Layer, Logger, Option, Redacted } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { hooked } from "../../../db/test/support/backend.ts"
import { BackupExpiration, FailoverBackups, SessionActivity, SkillVersions } from "../../src/index.ts"
import * as Threads from "../support/threads.ts"

export interface Options {
  readonly instance: string
  readonly url: string
  /** By this name the database knows the connections of the server. */
  readonly name: string
  /** In place of the system's calls, to make some of them fail. */
  readonly posix?: Threads.Posix
  readonly trees?: (real: Trees.Trees["Service"]) => Trees.Trees["Service"]
  /** Runs before each statement. */
  readonly onStatement?: Effect.Effect<void>
}

/** Reads in two slices what is read in slices, so that there is something between them. */
const inTwoSlices = (real: Trees.Trees["Service"]): Trees.Trees["Service"] =>
  Trees.Trees.of({
    ...real,
    scanSliced: (root, options) =>
      Effect.map(real.scanSliced(root, options), ({ advance }) => {
        let read = Option.none<Trees.TreeScan>()
        const first = Effect.map(advance, (scan) => {
          read = scan
          return Option.none()
        })
        const advanceOnce = Effect.suspend((): typeof advance =>
          Option.isSome(read) ? Effect.succeed(read) : first
        )
        return { advance: advanceOnce }
      })
  })

/** The threads are shared: what runs in them has ended when its server has. */
export const layer = (options: Options) => {
  const client = Layer.effect(
    SqlClient.SqlClient,
    Effect.map(SqlClient.SqlClient, (sql) => hooked(sql, () => options.onStatement ?? Effect.void))
  ).pipe(
    Layer.provide(
      PgClient.layer({
        url: Redacted.make(options.url),
        applicationName: options.name,
        maxConnections: 4,
        minConnections: 0
      })
    )
  )
  const database = Layer.mergeAll(
    SkillCatalog.layer,
    SkillPins.layer,
    SessionCatalog.layer,
    Holds.layer,
    Journal.layer
  ).pipe(
    Layer.provideMerge(HostSchema.layer),
    Layer.provideMerge(Transactions.layer),
    Layer.provideMerge(client)
  )
  const trees = Layer.effect(
    Trees.Trees,
    Effect.map(Trees.Trees, (real) => (options.trees ?? ((same) => same))(inTwoSlices(real)))
  )
  const disk = Layer.mergeAll(VersionStore.layer, BackupStore.layer).pipe(
    Layer.provideMerge(AccessRecords.layer),
    Layer.provideMerge(trees),
    Layer.provideMerge(options.posix ?? Threads.posix),
    Layer.provideMerge(InstanceRoots.layer({ instance: options.instance }))
  )
  return Layer.mergeAll(SkillVersions.layerServices, BackupExpiration.layer, FailoverBackups.layer).pipe(
    Layer.provideMerge(
      Layer.mergeAll(
        disk,
        database,
        RetentionSettings.layer({}),
        ExpirationSettings.layer({}),
        SessionActivity.layerNone
      )
    ),
    Layer.provideMerge(Logger.layer([]))
  )
}

/** What a server offers. */
export type Services = Layer.Success<ReturnType<typeof layer>> | DatabaseClock.DatabaseClock
