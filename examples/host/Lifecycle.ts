/** What the farm is doing, in its own words, and how Reclaim's workers hear of it. */
import { HostControls } from "@reclaim/runtime"
import { Context, Effect, Layer, Stream, SubscriptionRef } from "effect"

export type State = "booting" | "serving" | "paused" | "stopping"

const phases: Readonly<Record<State, HostControls.HostPhase>> = {
  booting: "starting",
  serving: "active",
  paused: "standby",
  stopping: "draining"
}

export class Lifecycle extends Context.Service<Lifecycle, SubscriptionRef.SubscriptionRef<State>>()(
  "build-farm/Lifecycle"
) {}

/** The farm's own, which it would have without Reclaim, too. */
export const layer: Layer.Layer<Lifecycle> = Layer.effect(Lifecycle, SubscriptionRef.make<State>("booting"))

/** What Reclaim's workers ask. */
export const layerControls: Layer.Layer<HostControls.HostControls, never, Lifecycle> = Layer.effect(
  HostControls.HostControls,
  Effect.map(Lifecycle, (lifecycle) => ({
    phase: Effect.map(SubscriptionRef.get(lifecycle), (state) => phases[state]),
    changes: Stream.map(SubscriptionRef.changes(lifecycle), (state) => phases[state])
  }))
)

/** Goes to another state, unless the farm is stopping: nothing leads out of that. Returns where it is now. */
export const go = (to: State): Effect.Effect<State, never, Lifecycle> =>
  Effect.flatMap(Lifecycle, (lifecycle) =>
    SubscriptionRef.updateAndGet(lifecycle, (state) => (state === "stopping" ? state : to))
  )

/** Serves from here on, and stops before anything that was built earlier is taken down. */
export const layerServing: Layer.Layer<never, never, Lifecycle> = Layer.effectDiscard(
  Effect.acquireRelease(go("serving"), () => go("stopping"))
)
