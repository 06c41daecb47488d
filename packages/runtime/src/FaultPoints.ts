/**
 * Acts at the named points of the protocols.
 *
 * @since 0.1.0
 */
import { FaultPoint } from "@reclaim/core"
import { Deferred, Effect } from "effect"

/**
 * Runs an effect whenever a point is reached. Later points are not affected; a handler given around
 * another one replaces it.
 *
 * @category running
 * @since 0.1.0
 */
export const at =
  (point: string, action: Effect.Effect<void>) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.provideService(self, FaultPoint.FaultHandler, (name) => (name === point ? action : Effect.void))

/** Notes the points that are reached, in order. @category running @since 0.1.0 */
export const record =
  (reached: Array<string>) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.provideService(self, FaultPoint.FaultHandler, (name) =>
      Effect.sync(() => {
        reached.push(name)
      })
    )

/**
 * A point at which a fiber waits until it is told to go on.
 *
 * @category models
 * @since 0.1.0
 */
export interface Gate {
  /** Completes when the point was reached for the first time. */
  readonly reached: Effect.Effect<void>
  /** Lets whoever waits, and whoever comes later, go on. */
  readonly open: Effect.Effect<void>
  /** Runs an effect whose fiber waits at the point. */
  readonly guard: <A, E, R>(self: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
}

/**
 * Makes a gate at a point: the way to force two operations into one exact order.
 *
 * @category constructors
 * @since 0.1.0
 */
export const gate = Effect.fnUntraced(function* (point: string) {
  const arrived = yield* Deferred.make<void>()
  const opened = yield* Deferred.make<void>()
  return {
    reached: Deferred.await(arrived),
    open: Effect.asVoid(Deferred.succeed(opened, undefined)),
    guard: at(point, Effect.andThen(Deferred.succeed(arrived, undefined), Deferred.await(opened)))
  } satisfies Gate
})
