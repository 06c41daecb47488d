/**
 * Looks whether the database has what the workers need, and builds them the first time that it has.
 *
 * The tables of the host are looked at anew each time, because a host may be started before its database is
 * there. However many ask, there is one look at a time, and none within a second of the last.
 */
import { type BackupReport, ExpirationSettings, RetentionSettings, type VersionReport } from "@reclaim/core"
import { DatabaseClock, HostSchema, Journal, Transactions } from "@reclaim/db"
import {
  BackupExpiration,
  HostControls,
  SessionActivity,
  SessionBackups,
  SkillVersionRetention,
  SkillVersions,
  Workers
} from "@reclaim/runtime"
import type { InstanceRoots } from "@reclaim/fs"
import { Cause, Context, Deferred, Effect, Exit, Layer, Option, Ref, Scope } from "effect"
import type { SqlClient } from "effect/sql/SqlClient"
import { withoutCredentials } from "../failure.ts"
import * as Survey from "./survey.ts"

export class Engine extends Context.Service<
  Engine,
  {
    /** Why the workers cannot work; empty when they can. Answers within seconds, whatever the database does. */
    readonly reasons: Effect.Effect<ReadonlyArray<string>>
    readonly versions: Effect.Effect<Workers.Status<VersionReport.VersionReport>>
    readonly backups: Effect.Effect<Workers.Status<BackupReport.BackupReport>>
    readonly findings: Effect.Effect<Option.Option<Survey.Findings>>
    /** Returns when no sweep runs. */
    readonly awaitIdle: Effect.Effect<void>
  }
>()("@reclaim/cli/Engine") {}

// 2 seconds: whoever asks for readiness asks again soon, and a server that is slower is no use now.
const bounds = {
  acquireTimeout: "2 seconds",
  lockTimeout: "2 seconds",
  statementTimeout: "2 seconds",
  idleTimeout: "2 seconds",
  answerTimeout: "2 seconds",
  commitTimeout: "2 seconds",
  rollbackTimeout: "1 second"
} as const

// Longer than one statement may take, so that the reason is told where there is one.
const patience = "3 seconds"

// 1 second: what requests can cost the database is bounded, and nobody who probes minds an answer that old.
const freshness = "1 second"

// 5 seconds: how long after its database a host begins to work.
const watchInterval = "5 seconds"

/** A worker that does nothing, for as long as there is none. */
const idle = <Report>(activity: Workers.Activity): Workers.Worker<Report> => ({
  status: Effect.succeed({
    activity,
    nextAt: Option.none(),
    lastSweep: Option.none(),
    lastSuccessAt: Option.none()
  }),
  awaitIdle: Effect.void
})

interface Running {
  readonly versions: Workers.Worker<VersionReport.VersionReport>
  readonly backups: Workers.Worker<BackupReport.BackupReport>
  readonly findings: Effect.Effect<Option.Option<Survey.Findings>>
}

const notRunning: Running = {
  versions: idle("starting"),
  backups: idle("starting"),
  findings: Effect.succeedNone
}

// Only what is enabled, so that a host without sessions needs none of their tables.
const layerVersions = Layer.unwrap(
  Effect.map(RetentionSettings.RetentionSettings, ({ enabled }) =>
    enabled
      ? Workers.layerSkillVersions.pipe(
          Layer.provide(SkillVersionRetention.layer),
          Layer.provide(Layer.merge(SkillVersions.layerDisk, SkillVersions.layerDatabase))
        )
      : Layer.succeed(Workers.SkillVersionWorker, idle("disabled"))
  )
)
const layerBackups = Layer.unwrap(
  Effect.map(ExpirationSettings.ExpirationSettings, ({ enabled }) =>
    enabled
      ? Workers.layerBackups.pipe(
          Layer.provideMerge(BackupExpiration.layer),
          Layer.provide(Layer.merge(SessionBackups.layerDisk, SessionBackups.layerDatabase)),
          // This process runs no sessions.
          Layer.provide(SessionActivity.layerNone)
        )
      : Layer.succeed(Workers.BackupWorker, idle("disabled"))
  )
)
const layerRunning = Survey.layer.pipe(
  Layer.provideMerge(Layer.merge(layerVersions, layerBackups)),
  Layer.provide(Layer.merge(SkillVersions.layerDisk, Journal.layer)),
  Layer.provide(HostSchema.layer),
  Layer.provide(DatabaseClock.layer),
  Layer.provide(Transactions.layer)
)

const what = "serving"

/** Fails with what is missing. */
const look = Effect.gen(function* () {
  const retention = yield* RetentionSettings.RetentionSettings
  const expiration = yield* ExpirationSettings.ExpirationSettings
  yield* Effect.gen(function* () {
    const host = yield* HostSchema.HostSchema
    if (retention.enabled) yield* host.requireSkills
    if (expiration.enabled) yield* host.requireBackups
    yield* host.requireAdopted(what)
  }).pipe(
    Effect.provide(HostSchema.layer.pipe(Layer.provideMerge(Transactions.layerWith(bounds))), { local: true })
  )
})

const messageOf = (cause: Cause.Cause<unknown>): string => {
  const error = Cause.squash(cause)
  return withoutCredentials(error instanceof Error ? error.message : String(error))
    .split("\n", 1)
    .join("")
}

/** What the workers need of a host, whether its database is there or not. */
type Needs =
  | ExpirationSettings.ExpirationSettings
  | HostControls.HostControls
  | HostControls.HostSwitch
  | InstanceRoots.InstanceRoots
  | RetentionSettings.RetentionSettings
  | SqlClient

export const layer: Layer.Layer<Engine, never, Needs> = Layer.effect(
  Engine,
  Effect.gen(function* () {
    const scope = yield* Effect.scope
    const context = yield* Effect.context<Needs>()
    const hostSwitch = yield* HostControls.HostSwitch
    const running = yield* Ref.make(Option.none<Running>())

    const start = Effect.gen(function* () {
      if (Option.isSome(yield* Ref.get(running))) return
      // A scope of its own, so that an attempt that fails leaves nothing behind.
      const attempt = yield* Scope.fork(scope)
      const built = yield* Effect.onError(Layer.buildWithScope(layerRunning, attempt), (cause) =>
        Scope.close(attempt, Exit.failCause(cause))
      )
      yield* Ref.set(
        running,
        Option.some({
          versions: Context.get(built, Workers.SkillVersionWorker),
          backups: Context.get(built, Workers.BackupWorker),
          findings: Context.get(built, Survey.Survey).latest
        })
      )
      yield* Effect.logInfo("the host is ready")
      yield* hostSwitch.ready
    })

    let told = ""
    const check = Effect.andThen(look, start).pipe(
      Effect.provideContext(context),
      Effect.matchCause({
        onFailure: (cause) => [messageOf(cause)],
        onSuccess: (): ReadonlyArray<string> => []
      }),
      Effect.tap(([reason = ""]) =>
        Effect.suspend(() => {
          const before = told
          told = reason
          return reason === "" || reason === before ? Effect.void : Effect.logWarning(`not ready: ${reason}`)
        })
      )
    )

    /** What the look that is under way, or has just ended, finds. */
    let latest: Deferred.Deferred<ReadonlyArray<string>> | undefined
    const begin = Effect.suspend(() => {
      const found = Deferred.makeUnsafe<ReadonlyArray<string>>()
      latest = found
      return check.pipe(
        Deferred.into(found),
        Effect.andThen(Effect.sleep(freshness)),
        Effect.ensuring(
          Effect.sync(() => {
            latest = undefined
          })
        ),
        Effect.forkIn(scope),
        Effect.as(found)
      )
    })
    const reasons = Effect.suspend(() => (latest === undefined ? begin : Effect.succeed(latest))).pipe(
      // Only the waiting ends: the look itself has a bound of its own, and others may wait for it.
      Effect.flatMap(Deferred.await),
      Effect.timeoutOrElse({
        duration: patience,
        orElse: () => Effect.succeed([`the database has not answered within ${patience}`])
      })
    )

    yield* Effect.forkScoped(Effect.forever(Effect.andThen(reasons, Effect.sleep(watchInterval))))

    const now = Effect.map(
      Ref.get(running),
      Option.getOrElse(() => notRunning)
    )
    return {
      reasons,
      versions: Effect.flatMap(now, ({ versions }) => versions.status),
      backups: Effect.flatMap(now, ({ backups }) => backups.status),
      findings: Effect.flatMap(now, ({ findings }) => findings),
      awaitIdle: Effect.flatMap(now, ({ backups, versions }) =>
        Effect.andThen(versions.awaitIdle, backups.awaitIdle)
      )
    }
  })
)
