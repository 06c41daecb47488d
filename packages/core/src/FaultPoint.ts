/**
 * Names the steps of a protocol, so that a test can stop, fail or kill the process exactly there.
 *
 * **Details**
 *
 * A point is declared beside the step it stands for. Without a handler it costs one lookup; no name is
 * registered anywhere.
 *
 * @since 0.1.0
 */
import { Context, Effect } from "effect"

/**
 * What happens at a point: nothing, unless a test provides a handler. The handler may fail only by dying
 * or by interrupting, because a step that has no error of its own must not grow one for tests.
 *
 * @category references
 * @since 0.1.0
 */
export const FaultHandler = Context.Reference<(point: string) => Effect.Effect<void>>(
  "@reclaim/core/FaultHandler",
  { defaultValue: () => unwatched }
)

const unwatched = () => Effect.void

/**
 * Whether there is a handler: what is done in one step only where nobody looks in between.
 *
 * @category references
 * @since 0.1.0
 */
export const isWatched: Effect.Effect<boolean> = Effect.map(FaultHandler, (handler) => handler !== unwatched)

/**
 * Declares a point. The name is `<protocol>.<step>` and unique.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (name: string): Effect.Effect<void> =>
  Effect.flatMap(FaultHandler, (handler) => handler(name))
