import * as NodeServices from "@effect/platform-node/NodeServices"
import * as PgClient from "@effect/sql-pg/PgClient"
import { expect, it, layer } from "@effect/vitest"
import { BackupReport, ExpirationSettings } from "@reclaim/core"
import { InstanceRoots, PosixFileSystem } from "@reclaim/fs"
import { BackupExpiration, FailoverBackups, SessionActivity, SessionBackups } from "@reclaim/runtime"
import { Effect, Exit, FileSystem, Layer, Option, Redacted, Ref, Schema, Stream } from "effect"
import { Output } from "../src/index.ts"
import * as Backups from "../src/internal/backups.ts"
import * as Fixture from "./support/fixture.ts"
import * as Recording from "./support/recording.ts"
import * as Sessions from "./support/sessions.ts"

const decodeSummary = Schema.decodeUnknownOption(Output.BackupSweepSummary)

/** Sweeps three sessions in three batches, and returns what was printed and how it ended. */
const sweep = Effect.fnUntraced(function* (errors: number, flags: Partial<Backups.SweepFlags>) {
  const documents = yield* Ref.make<ReadonlyArray<unknown>>([])
  const batches = [1, 2, 3].map((number): BackupExpiration.Batch => ({
    report: BackupReport.BackupReport.make({ ...BackupReport.empty, checked: 1, expired: 1, errors }),
    dryRun: false,
    continuation: number === 3 ? Option.none() : Option.some(`token ${number}`)
  }))
  const exit = yield* Backups.sweepAll({
    dryRun: false,
    maxBatches: Option.none(),
    continuation: Option.none(),
    ...flags
  }).pipe(
    Effect.provide(
      Layer.mergeAll(
        Layer.mock(BackupExpiration.BackupExpiration, { sweep: () => Stream.fromIterable(batches) }),
        ExpirationSettings.layer(),
        Recording.layer(documents)
      )
    ),
    Effect.exit
  )
  const printed = yield* Ref.get(documents)
  return { exit, batches: printed.length - 1, summary: Option.getOrThrow(decodeSummary(printed.at(-1))) }
})

it.effect("[O-03] adds the batches of a sweep of backups up", () =>
  Effect.gen(function* () {
    const { batches, exit, summary } = yield* sweep(0, {})
    expect(Exit.isSuccess(exit)).toBe(true)
    expect(batches).toBe(3)
    expect(summary).toMatchObject({ batches: 3, checked: 3, expired: 3, continuation: null })
  })
)

it.effect("[O-02] stops a sweep of backups after so many batches, and says where to go on", () =>
  Effect.gen(function* () {
    const { batches, summary } = yield* sweep(0, { maxBatches: Option.some(2) })
    expect(batches).toBe(2)
    expect(summary).toMatchObject({ batches: 2, expired: 2, continuation: "token 2" })
  })
)

it.effect("[O-04] a backup that could not be deleted fails the command after everything is told", () =>
  Effect.gen(function* () {
    const { exit, summary } = yield* sweep(1, {})
    expect(summary).toMatchObject({ batches: 3, errors: 3 })
    expect(Exit.isFailure(exit)).toBe(true)
  })
)

layer(Fixture.layer, { timeout: 60_000, excludeTestServices: true })("a host of sessions", (it) => {
  it.effect("[W-01] [B-05] composes one layer, and its own account of warm sessions keeps a backup", () =>
    Effect.gen(function* () {
      const { instance, url } = yield* Fixture.Fixture
      const files = yield* FileSystem.FileSystem
      const session = yield* Sessions.make()
      const folder = yield* files.makeTempDirectoryScoped()
      const names = files.readDirectory(session.folder)
      const host = SessionBackups.layer.pipe(
        Layer.provideMerge(SessionActivity.layerTracker),
        Layer.provide(InstanceRoots.layer({ instance })),
        Layer.provide(PosixFileSystem.layer),
        Layer.provide(ExpirationSettings.layer()),
        Layer.provide(PgClient.layer({ url: Redacted.make(url) })),
        Layer.provide(NodeServices.layer)
      )
      yield* Effect.gen(function* () {
        const expiration = yield* BackupExpiration.BackupExpiration
        const backups = yield* FailoverBackups.FailoverBackups
        const tracker = yield* SessionActivity.SessionTracker
        const skipped = Effect.map(Stream.runCollect(expiration.sweep()), (batches) =>
          batches.map(({ report }) => report.skipped)
        )
        yield* tracker
          .track(session.scope, "warm")
          .pipe(
            Effect.andThen(Effect.map(skipped, (counts) => expect(counts).toEqual([{ ActiveInProcess: 1 }]))),
            Effect.scoped
          )
        const restored = yield* backups.restore({ scope: session.scope, target: `${folder}/back` })
        expect(restored.from).toBe("current")
        expect(yield* names).toEqual(["current"])
        expect(yield* skipped).toEqual([{}])
        expect(yield* names).toEqual([])
      }).pipe(Effect.provide(host))
    }).pipe(Effect.scoped)
  )
})
