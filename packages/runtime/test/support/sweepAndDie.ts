/**
 * A process that sweeps session backups and is killed at a point. Its arguments: the database, the instance,
 * the instant, the point, and optionally another point with a statement that is run there.
 */
import { PgClient } from "@effect/sql-pg"
import { FaultPoint } from "@reclaim/core"
import { DateTime, Effect, Layer, Redacted, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { BackupExpiration } from "../../src/index.ts"
import { MovableClock } from "../../src/testing.ts"
import * as SessionServer from "./sessionServer.ts"

const [url = "", instance = "", instant = "", point, other, statement = ""] = process.argv.slice(2)

const client = PgClient.layer({ url: Redacted.make(url), maxConnections: 2 })

const act = Effect.flatMap(SqlClient.SqlClient, (sql) => sql.unsafe(statement)).pipe(
  Effect.provide(Layer.fresh(client), { local: true }),
  Effect.orDie
)

const handler = (name: string) => {
  if (name === point)
    return Effect.andThen(
      Effect.sync(() => process.kill(process.pid, "SIGKILL")),
      Effect.never
    )
  return name === other ? Effect.asVoid(act) : Effect.void
}

const sweep = Effect.flatMap(BackupExpiration.BackupExpiration, (expiration) =>
  Stream.runDrain(expiration.sweep())
)

Effect.runFork(
  sweep.pipe(
    Effect.provide(
      SessionServer.layer(instance).pipe(
        Layer.provideMerge(MovableClock.layer(DateTime.makeUnsafe(instant))),
        Layer.provideMerge(client)
      )
    ),
    Effect.provideService(FaultPoint.FaultHandler, handler)
  )
)
