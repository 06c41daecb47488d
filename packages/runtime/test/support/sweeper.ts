/**
 * A server process that sweeps one company, and that ends, as if by kill -9, when it reaches a point for the
 * so-many-th time.
 */
import { PgClient } from "@effect/sql-pg"
import { FaultPoint, Ids, RetentionSettings } from "@reclaim/core"
import { Holds, HostSchema, Journal, SkillCatalog, SkillPins, Transactions } from "@reclaim/db"
import { InstanceRoots, PosixFileSystem } from "@reclaim/fs"
import { Effect, Layer, Logger, Redacted, Schema, Stream } from "effect"
import { SkillVersionRetention, SkillVersions } from "../../src/index.ts"
import { MovableClock } from "../../src/testing.ts"
import { meddle } from "./crash.ts"

const Task = Schema.fromJsonString(
  Schema.Struct({
    instance: Schema.String,
    url: Schema.String,
    now: Schema.DateTimeUtcFromString,
    companyId: Ids.CompanyId,
    skillFolder: Schema.String,
    changing: Ids.VersionId,
    point: Schema.String,
    occurrence: Schema.Int
  })
)

const main = Effect.gen(function* () {
  const task = yield* Schema.decodeUnknownEffect(Task)(process.argv[2])
  let left = task.occurrence
  const handler = (point: string) =>
    Effect.sync(() => {
      meddle(point, task.skillFolder, task.changing)
      if (point === task.point && --left === 0) process.kill(process.pid, "SIGKILL")
    })
  const roots = InstanceRoots.layer({ instance: task.instance }).pipe(Layer.provide(PosixFileSystem.layer))
  const database = Layer.mergeAll(SkillCatalog.layer, SkillPins.layer, Holds.layer, Journal.layer).pipe(
    Layer.provideMerge(HostSchema.layer),
    Layer.provideMerge(Transactions.layer),
    Layer.provideMerge(MovableClock.layer(task.now)),
    Layer.provide(PgClient.layer({ url: Redacted.make(task.url) }))
  )
  const services = SkillVersions.layerServices.pipe(
    Layer.provideMerge(
      Layer.mergeAll(
        SkillVersions.layerDisk.pipe(Layer.provideMerge(roots)),
        database,
        RetentionSettings.layer({}),
        Logger.layer([])
      )
    )
  )
  yield* Effect.flatMap(SkillVersionRetention.SkillVersionRetention, (retention) =>
    Stream.runDrain(retention.sweep({ companyId: task.companyId }))
  ).pipe(Effect.provideService(FaultPoint.FaultHandler, handler), Effect.provide(services))
})

Effect.runFork(
  main.pipe(Effect.tapCause((cause) => Effect.sync(() => process.stderr.write(`${String(cause)}\n`))))
)
