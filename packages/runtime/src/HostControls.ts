/**
 * Tells the workers what their host is doing: starting, active, on standby, or draining.
 *
 * **Details**
 *
 * A host that has such a state already implements this service with two lines over it. One that has none
 * takes `layerMemory` and moves its `HostSwitch`.
 *
 * @since 0.1.0
 */
import { Context, Effect, Layer, Schema, Stream, SubscriptionRef } from "effect"

/**
 * | phase | meaning | what the workers do |
 * |---|---|---|
 * | `starting` | not ready yet | wait |
 * | `active` | serves | sweep when it is time |
 * | `standby` | gives way for a while | stop between entries, begin nothing |
 * | `draining` | is about to end; final | stop between entries, for good |
 *
 * @category models
 * @since 0.1.0
 */
export const HostPhase = Schema.Literals(["starting", "active", "standby", "draining"])
/** @category models @since 0.1.0 */
export type HostPhase = typeof HostPhase.Type

/**
 * What the workers ask their host.
 *
 * **Example** (A host that keeps its own state)
 *
 * ```ts
 * Layer.effect(HostControls, Effect.map(Lifecycle, (lifecycle) => ({
 *   phase: SubscriptionRef.get(lifecycle.phase),
 *   changes: SubscriptionRef.changes(lifecycle.phase)
 * })))
 * ```
 *
 * @category services
 * @since 0.1.0
 */
export class HostControls extends Context.Service<
  HostControls,
  {
    /**
     * The phase that the host is in now. A worker asks before each sweep: once this says something else
     * than `active`, no sweep begins.
     */
    readonly phase: Effect.Effect<HostPhase>
    /** The phase that the host is in, then each that follows. When it ends, the host counts as draining. */
    readonly changes: Stream.Stream<HostPhase>
  }
>()("@reclaim/runtime/HostControls") {}

/**
 * Moves a host from phase to phase. Draining is final: nothing leads out of it.
 *
 * @category services
 * @since 0.1.0
 */
export class HostSwitch extends Context.Service<
  HostSwitch,
  {
    /** The host is ready: sweeps begin. */
    readonly ready: Effect.Effect<void>
    /** Sweeps stop between entries until `resume`. */
    readonly standby: Effect.Effect<void>
    /** Ends a standby. */
    readonly resume: Effect.Effect<void>
    /** Sweeps stop between entries, for good. */
    readonly drain: Effect.Effect<void>
  }
>()("@reclaim/runtime/HostSwitch") {}

const phaseOf = (state: {
  readonly ready: boolean
  readonly standby: boolean
  readonly drain: boolean
}): HostPhase => (state.drain ? "draining" : !state.ready ? "starting" : state.standby ? "standby" : "active")

/**
 * Controls in memory, for a host without a state of its own. Being ready and being on standby are
 * independent: a host that goes on standby while it starts is ready on standby.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerMemory: Layer.Layer<HostControls | HostSwitch> = Layer.effectContext(
  Effect.map(SubscriptionRef.make({ ready: false, standby: false, drain: false }), (ref) =>
    Context.make(HostControls, {
      phase: Effect.map(SubscriptionRef.get(ref), phaseOf),
      changes: Stream.map(SubscriptionRef.changes(ref), phaseOf)
    }).pipe(
      Context.add(HostSwitch, {
        ready: SubscriptionRef.update(ref, (state) => ({ ...state, ready: true })),
        standby: SubscriptionRef.update(ref, (state) => ({ ...state, standby: true })),
        resume: SubscriptionRef.update(ref, (state) => ({ ...state, standby: false })),
        drain: SubscriptionRef.update(ref, (state) => ({ ...state, drain: true }))
      })
    )
  )
)
