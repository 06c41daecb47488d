/** P-13: finds the session backups that may go, against one query for all sessions. */
import { ExpirationSettings } from "@reclaim/core"
import { DatabaseClock, HostTables, Migrations, Transactions } from "@reclaim/db"
import { InstanceRoots } from "@reclaim/fs"
import { TestDatabase } from "@reclaim/postgres/testing"
import { BackupExpiration, SessionActivity, SessionBackups } from "@reclaim/runtime"
import { Context, Duration, Effect, Layer, References, Stream } from "effect"
import * as Harness from "../Harness.ts"
import { findExpirable } from "../peers/findExpirable.ts"
import * as Sessions from "../Sessions.ts"
import * as Statements from "../Statements.ts"
import * as System from "../System.ts"

const days = 7
const perBatch: Harness.Figure = { name: "statements a batch", unit: "count" }

const tables = Layer.effectDiscard(Effect.andThen(HostTables.create, Migrations.migrate))

/** One pass that finds what may go and changes nothing, as the query does. */
const sweep = Effect.gen(function* () {
  const expiration = yield* BackupExpiration.BackupExpiration
  const pass = expiration.sweep({ dryRun: true }).pipe(
    Stream.runFold(
      () => ({ batches: 0, candidates: 0 }),
      ({ batches, candidates }, { report }) => ({
        batches: batches + 1,
        candidates: candidates + report.candidates
      })
    )
  )
  return yield* Statements.counted(pass)
}).pipe(Effect.provideService(References.MinimumLogLevel, "Warn"))

const make = Effect.fnUntraced(function* (size: Harness.Size) {
  const { path, serverUrl } = yield* Harness.Workspace
  const instance = yield* System.temporaryFolder(path)
  const context = yield* Layer.build(
    SessionBackups.layerServices.pipe(
      Layer.provideMerge(Layer.merge(SessionBackups.layerDisk, SessionBackups.layerDatabase)),
      Layer.provideMerge(tables),
      Layer.provideMerge(Layer.provideMerge(DatabaseClock.layer, Transactions.layer)),
      Layer.provideMerge(TestDatabase.layerClient(yield* serverUrl)),
      Layer.provideMerge(InstanceRoots.layer({ instance })),
      Layer.provideMerge(SessionActivity.layerNone),
      Layer.provideMerge(ExpirationSettings.layer({ window: Duration.days(days) }))
    )
  )
  const sessions: Sessions.Sessions =
    size === "full"
      ? { sessions: 2000, runs: 1_000_000, leases: 100_000 }
      : { sessions: 240, runs: 5000, leases: 500 }
  const { sessions: folder } = Context.get(context, InstanceRoots.InstanceRoots)
  yield* Effect.provideContext(Sessions.insert(sessions), context)
  yield* Sessions.write(sessions, folder)
  yield* Harness.settle(size, folder)

  const query = yield* Harness.side({
    name: "one query",
    prepare: Effect.void,
    work: () => findExpirable(folder, days),
    verify: (_, scopes) =>
      Effect.succeed({ outcome: `${scopes.length} to go`, figures: { [perBatch.name]: 1 } })
  }).pipe(Effect.provideContext(context))
  const ours = yield* Harness.side({
    name: "sweep, dry run",
    prepare: Effect.void,
    work: () => sweep,
    verify: (_, { statements, value: { batches, candidates } }) =>
      Effect.succeed({
        outcome: `${candidates} to go`,
        figures: { [perBatch.name]: statements / batches }
      })
  }).pipe(Effect.provideContext(context))
  const contest: Harness.Contest = {
    amount: Sessions.amount(sessions),
    comparisons: [Harness.time, perBatch].map((figure) => ({ figure, ours, peer: query }))
  }
  return contest
}, Effect.orDie)

export const expiring: Harness.Scenario = { id: "P-13", title: "finding backups that may go", make }
