/**
 * A build farm that keeps its disk in order with Reclaim. It has its own tables, its own `SqlClient` and its own
 * HTTP server; this file puts them together.
 */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import * as PgClient from "@effect/sql-pg/PgClient"
import { ExpirationSettings, RetentionSettings } from "@reclaim/core"
import { DatabaseClock, Holds, HostSchema, Journal, Migrations, Transactions } from "@reclaim/db"
import { InstanceRoots } from "@reclaim/fs"
import { ServerName, SessionBackups, SkillVersions, Workers } from "@reclaim/runtime"
import { Config, Effect, Layer } from "effect"
import * as HttpRouter from "effect/http/HttpRouter"
import { createServer } from "node:http"
import * as JobPins from "./JobPins.ts"
import * as Lifecycle from "./Lifecycle.ts"
import * as Routes from "./Routes.ts"
import * as Sessions from "./Sessions.ts"
import * as Tables from "./Tables.ts"
import * as Terminals from "./Terminals.ts"
import * as ToolCatalog from "./ToolCatalog.ts"

/** The farm's client, which Reclaim uses too. */
const client = PgClient.layerConfig({ url: Config.Redacted("DATABASE_URL") })

/** Reclaim's part of the database, the schema `reclaim`, once both have their tables. */
const reclaim = Layer.mergeAll(Holds.layer, Journal.layer).pipe(
  Layer.provideMerge(HostSchema.layerOwn),
  Layer.provide(Layer.effectDiscard(Effect.andThen(Tables.migrate, Migrations.migrate))),
  Layer.provideMerge(DatabaseClock.layer),
  Layer.provideMerge(Transactions.layer)
)

/** What Reclaim asks the farm's tables. */
const farm = Layer.mergeAll(ToolCatalog.layer, JobPins.layer, Sessions.layer)

/** Where copies and sessions are. */
const roots = Layer.unwrap(
  Effect.map(Config.String("FARM_DIR"), (dir) =>
    InstanceRoots.layer({ instance: dir, sessions: `${dir}/sessions` })
  )
)

/** Nothing goes before an operator has looked at what would. */
const settings = Layer.unwrap(
  Effect.map(Config.Boolean("FARM_DRY_RUN").pipe(Config.withDefault(true)), (dryRun) =>
    Layer.merge(RetentionSettings.layer({ dryRun }), ExpirationSettings.layer({ dryRun }))
  )
)

/** Everything of Reclaim on everything of the farm. */
const services = Layer.merge(SkillVersions.layerServices, SessionBackups.layerServices).pipe(
  Layer.provide(Layer.merge(SkillVersions.layerDisk, SessionBackups.layerDisk)),
  Layer.provide(farm.pipe(Layer.provideMerge(reclaim))),
  Layer.provideMerge(Layer.mergeAll(roots, settings, Terminals.layer)),
  Layer.provideMerge(client)
)

/** The whole farm. Closing its scope lets requests end, then stops the sweeps, then closes the client. */
export const layer = Lifecycle.layerServing.pipe(
  Layer.provideMerge(HttpRouter.serve(Routes.layer)),
  Layer.provideMerge(
    NodeHttpServer.layerConfig(createServer, { host: Config.succeed("127.0.0.1"), port: Config.Int("PORT") })
  ),
  Layer.provideMerge(Workers.layer),
  Layer.provide(Lifecycle.layerControls),
  Layer.provideMerge(Lifecycle.layer),
  Layer.provideMerge(services),
  Layer.provide(Layer.succeed(ServerName.ServerName, "build-farm"))
)
