/**
 * Sweeps by itself for as long as its layer lives: skill versions from readiness on, session backups two
 * minutes after it, each about once an hour.
 *
 * **Details**
 *
 * The first sweep starts at its exact time. After it the period is uniform between 0.9 and 1.1 hours, counted
 * from start to start, so that many servers drift apart; a sweep that takes longer than its period is
 * followed by the next one at once. A sweep that fails is logged, and the next one runs.
 *
 * On standby and while draining a sweep is interrupted, which takes effect between two entries, and none
 * begins. After a standby it goes on where it stopped. Closing the layer's scope interrupts too, and waits
 * until the entry in hand is finished or undone.
 *
 * @since 0.1.0
 */
import { BackupReport, ExpirationSettings, RetentionSettings, VersionReport } from "@reclaim/core"
import {
  Cause,
  Clock,
  Context,
  DateTime,
  Duration,
  Effect,
  Exit,
  Layer,
  Option,
  Random,
  Stream,
  SubscriptionRef
} from "effect"
import { BackupExpiration } from "./BackupExpiration.ts"
import { HostControls, type HostPhase } from "./HostControls.ts"
import * as Metrics from "./internal/metrics.ts"
import { SkillVersionRetention } from "./SkillVersionRetention.ts"

/**
 * | activity | meaning |
 * |---|---|
 * | `disabled` | the settings forbid it; nothing will ever run |
 * | `starting` | the host is not ready |
 * | `waiting` | the next sweep is at `nextAt` |
 * | `sweeping` | a sweep is running, or is finishing the entry in hand |
 * | `standby` | the host is on standby |
 * | `drained` | the host drains or is closing: nothing will run any more |
 *
 * @category models
 * @since 0.1.0
 */
export type Activity = "disabled" | "starting" | "waiting" | "sweeping" | "standby" | "drained"

/**
 * The last sweep, as far as it got: `stopped` by a standby or a drain, `failed` with what `detail` says.
 *
 * @category models
 * @since 0.1.0
 */
export interface Sweep<Report> {
  readonly startedAt: DateTime.Utc
  readonly endedAt: DateTime.Utc
  readonly outcome: "completed" | "stopped" | "failed"
  readonly detail: Option.Option<string>
  readonly dryRun: boolean
  readonly report: Report
}

/** What a worker is doing, and how it went before. @category models @since 0.1.0 */
export interface Status<Report> {
  readonly activity: Activity
  /** When the next sweep begins, while the worker waits for it. */
  readonly nextAt: Option.Option<DateTime.Utc>
  readonly lastSweep: Option.Option<Sweep<Report>>
  /** When the last pass ended that got to its end. */
  readonly lastSuccessAt: Option.Option<DateTime.Utc>
}

/** @category models @since 0.1.0 */
export interface Worker<Report> {
  readonly status: Effect.Effect<Status<Report>>
  /**
   * Returns when no sweep runs. Once the host is on standby or drains none begins after that, so this is
   * what a host awaits before it goes on.
   */
  readonly awaitIdle: Effect.Effect<void>
}

/** The worker that sweeps skill version copies. @category services @since 0.1.0 */
export class SkillVersionWorker extends Context.Service<
  SkillVersionWorker,
  Worker<VersionReport.VersionReport>
>()("@reclaim/runtime/SkillVersionWorker") {}

/** The worker that expires session backups. @category services @since 0.1.0 */
export class BackupWorker extends Context.Service<BackupWorker, Worker<BackupReport.BackupReport>>()(
  "@reclaim/runtime/BackupWorker"
) {}

// 1 hour, 0.9 to 1.1: the specification; servers that were started together drift apart within hours.
const period = Duration.hours(1)
const jitter = [0.9, 1.1] as const
// 2 minutes: the seed document lets a restarted server find its sessions again before any backup goes.
const backupDelay = Duration.minutes(2)

const lineOf = (cause: Cause.Cause<unknown>): string => Cause.pretty(cause).split("\n", 1).join("")

interface Batch<Report> {
  readonly report: Report
  readonly dryRun: boolean
  readonly continuation: Option.Option<string>
}

interface Options<Report, E> {
  readonly name: string
  readonly enabled: boolean
  /** From readiness to the first sweep. */
  readonly delay: Duration.Duration
  readonly empty: Report
  readonly combine: (left: Report, right: Report) => Report
  readonly succeeded: (pass: Report, at: DateTime.Utc) => Effect.Effect<void>
  readonly sweep: (options: { readonly continuation?: string }) => Stream.Stream<Batch<Report>, E>
}

const make = Effect.fnUntraced(function* <Report, E>(options: Options<Report, E>) {
  const controls = yield* HostControls
  const status = yield* SubscriptionRef.make<Status<Report>>({
    activity: options.enabled ? "starting" : "disabled",
    nextAt: Option.none(),
    lastSweep: Option.none(),
    lastSuccessAt: Option.none()
  })
  const update = (change: Partial<Status<Report>>) =>
    SubscriptionRef.update(status, (before) => ({ ...before, ...change }))

  const awaitPhase = (is: (phase: HostPhase) => boolean) =>
    controls.changes.pipe(
      Stream.filter((phase) => is(phase) || phase === "draining"),
      Stream.runHead,
      Effect.map(Option.getOrElse((): HostPhase => "draining"))
    )

  /** Where a pass that a standby stopped goes on. */
  let continuation: string | undefined

  const sweep = Effect.gen(function* () {
    const startedAt = yield* DateTime.now
    let dryRun = false
    let report = options.empty
    yield* options.sweep(continuation === undefined ? {} : { continuation }).pipe(
      Stream.runForEach((batch) =>
        Effect.sync(() => {
          report = options.combine(report, batch.report)
          dryRun = batch.dryRun
          continuation = Option.getOrUndefined(batch.continuation)
        })
      ),
      Effect.onExit(
        Effect.fnUntraced(function* (exit) {
          const endedAt = yield* DateTime.now
          const stopped = Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause)
          // A failed pass begins anew: what failed may be where it stopped.
          if (!stopped) continuation = undefined
          yield* update({
            activity: "waiting",
            lastSweep: Option.some({
              startedAt,
              endedAt,
              outcome: Exit.isSuccess(exit) ? "completed" : stopped ? "stopped" : "failed",
              detail: Exit.isFailure(exit) && !stopped ? Option.some(lineOf(exit.cause)) : Option.none(),
              dryRun,
              report
            }),
            ...(Exit.isSuccess(exit) ? { lastSuccessAt: Option.some(endedAt) } : {})
          })
          if (Exit.isSuccess(exit)) yield* options.succeeded(report, endedAt)
        })
      ),
      Effect.catchCauseIf(
        (cause) => !Cause.hasInterruptsOnly(cause),
        (cause) =>
          Effect.logError("a sweep failed, the next one runs", cause).pipe(
            Effect.annotateLogs({ worker: options.name })
          )
      )
    )
  })

  /** Sweeps when it is time, as long as the host is active. */
  const sweeping = (dueAt: { nanos: bigint }) =>
    Effect.gen(function* () {
      for (;;) {
        const remaining = dueAt.nanos - (yield* Clock.monotonicTimeNanos)
        if (remaining > 0n) {
          const wait = Duration.nanos(remaining)
          yield* update({
            activity: "waiting",
            nextAt: Option.some(DateTime.addDuration(yield* DateTime.now, wait))
          })
          yield* Effect.sleep(wait)
        }
        // In this order: whoever finds the worker idle after the phase has changed relies on it staying so.
        yield* update({ activity: "sweeping", nextAt: Option.none() })
        if ((yield* controls.phase) !== "active") {
          // The change is on its way to whoever races with this, unless the host drops changes that did not last.
          yield* update({ activity: "standby" })
          yield* Effect.sleep("1 second")
          continue
        }
        const startedAt = yield* Clock.monotonicTimeNanos
        yield* sweep
        const factor = yield* Random.nextBetween(...jitter)
        dueAt.nanos = startedAt + Duration.toNanosUnsafe(Duration.times(period, factor))
      }
    })

  const run = Effect.gen(function* () {
    if ((yield* awaitPhase((phase) => phase !== "starting")) === "draining") return
    const dueAt = { nanos: (yield* Clock.monotonicTimeNanos) + Duration.toNanosUnsafe(options.delay) }
    for (;;) {
      yield* update({ activity: "standby", nextAt: Option.none() })
      if ((yield* awaitPhase((phase) => phase === "active")) === "draining") return
      yield* Effect.raceFirst(
        sweeping(dueAt),
        awaitPhase((phase) => phase !== "active")
      )
    }
  }).pipe(Effect.ensuring(update({ activity: "drained", nextAt: Option.none() })))

  yield* options.enabled
    ? Effect.forkScoped(run)
    : Effect.logInfo("the settings disable this worker").pipe(Effect.annotateLogs({ worker: options.name }))

  return {
    status: SubscriptionRef.get(status),
    awaitIdle: SubscriptionRef.changes(status).pipe(
      Stream.filter(({ activity }) => activity !== "sweeping"),
      Stream.runHead,
      Effect.asVoid
    )
  } satisfies Worker<Report>
})

/**
 * Sweeps skill version copies from readiness on.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerSkillVersions: Layer.Layer<
  SkillVersionWorker,
  never,
  HostControls | RetentionSettings.RetentionSettings | SkillVersionRetention
> = Layer.effect(
  SkillVersionWorker,
  Effect.gen(function* () {
    const retention = yield* SkillVersionRetention
    const { enabled } = yield* RetentionSettings.RetentionSettings
    return yield* make({
      name: "skill-versions",
      enabled,
      delay: Duration.zero,
      empty: VersionReport.empty,
      combine: VersionReport.combine,
      succeeded: Metrics.versionsPassed,
      sweep: retention.sweep
    })
  })
)

/**
 * Expires session backups from two minutes after readiness on.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerBackups: Layer.Layer<
  BackupWorker,
  never,
  BackupExpiration | ExpirationSettings.ExpirationSettings | HostControls
> = Layer.effect(
  BackupWorker,
  Effect.gen(function* () {
    const expiration = yield* BackupExpiration
    const { enabled } = yield* ExpirationSettings.ExpirationSettings
    return yield* make({
      name: "backups",
      enabled,
      delay: backupDelay,
      empty: BackupReport.empty,
      combine: BackupReport.combine,
      succeeded: Metrics.backupsPassed,
      sweep: expiration.sweep
    })
  })
)

/** Both workers. @category layers @since 0.1.0 */
export const layer: Layer.Layer<
  BackupWorker | SkillVersionWorker,
  never,
  | BackupExpiration
  | ExpirationSettings.ExpirationSettings
  | HostControls
  | RetentionSettings.RetentionSettings
  | SkillVersionRetention
> = Layer.merge(layerSkillVersions, layerBackups)
