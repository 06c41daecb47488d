/** Both workers on a real instance and a real database, with the process's time in a test's hand. */
import { ExpirationSettings } from "@reclaim/core"
import { SessionCatalog } from "@reclaim/db"
import { BackupStore } from "@reclaim/fs"
import { DateTime, Duration, Effect, Layer, Option, type Scope } from "effect"
import { TestClock } from "effect/testing"
import { BackupExpiration, HostControls, SessionActivity, Workers } from "../../src/index.ts"
import * as World from "./World.ts"

const backups = BackupExpiration.layer.pipe(
  Layer.provide(
    Layer.mergeAll(
      BackupStore.layer,
      SessionCatalog.layer,
      SessionActivity.layerNone,
      ExpirationSettings.layer()
    )
  ),
  Layer.provideMerge(ExpirationSettings.layer())
)

/** The workers of a host. Build it where time and points are to be theirs. */
export const layerOn = <A>(host: Layer.Layer<A | HostControls.HostControls>) =>
  Workers.layer.pipe(Layer.provideMerge(host), Layer.provide(backups))

/** The workers and the switch of their host. */
export const layer = layerOn(HostControls.layerMemory)

/**
 * Runs a test on a world of its own. Waiting happens on a `TestClock` that begins at the world's noon; the
 * database's clock is moved along by `pass`.
 */
export const inWorld =
  (options: World.Options = {}) =>
  <A, E>(self: Effect.Effect<A, E, Layer.Success<ReturnType<typeof World.layer>> | Scope.Scope>) =>
    TestClock.setTime(DateTime.toEpochMillis(World.noon)).pipe(
      Effect.andThen(self),
      Effect.provide(TestClock.layer()),
      Effect.scoped,
      Effect.provide(World.layer(options))
    )

/** Lets time pass, for whoever waits and for the database. */
export const pass = Effect.fnUntraced(function* (duration: Duration.Input) {
  yield* World.advance(duration)
  yield* TestClock.adjust(duration)
})

/** Waits, in real time, until a worker is as it should be; dies when that takes too long. */
export const until = <Report>(
  worker: Workers.Worker<Report>,
  is: (status: Workers.Status<Report>) => boolean
): Effect.Effect<Workers.Status<Report>> =>
  TestClock.withLive(
    Effect.gen(function* () {
      for (;;) {
        const status = yield* worker.status
        if (is(status)) return status
        yield* Effect.sleep("5 millis")
      }
    }).pipe(
      Effect.timeoutOrElse({
        duration: "20 seconds",
        orElse: () => Effect.flatMap(worker.status, (status) => Effect.die(["the worker stays", status]))
      })
    )
  )

/** The minutes after noon at which the last sweep of a worker began; none before the first. */
export const startedAt = <Report>({ lastSweep }: Workers.Status<Report>): number | undefined =>
  Option.getOrUndefined(
    Option.map(
      lastSweep,
      (sweep) => (DateTime.toEpochMillis(sweep.startedAt) - DateTime.toEpochMillis(World.noon)) / 60_000
    )
  )
