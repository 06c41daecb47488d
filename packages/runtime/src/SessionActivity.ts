/**
 * Tells what a host's processes are doing with native sessions.
 *
 * **Details**
 *
 * The database knows runs; only the host knows that a session is warm without one, or closing. A host
 * answers for this process, and hosts that share a disk answer for all of their servers.
 *
 * @since 0.1.0
 */
import { BackupReason, type Ids } from "@reclaim/core"
import { Context, Effect, Layer, type Option, type Scope } from "effect"

/** @category services @since 0.1.0 */
export class SessionActivity extends Context.Service<
  SessionActivity,
  {
    /**
     * What is going on with a session. The answer must be there whenever the session could be written or
     * resumed without a run that the database shows; `unknown` keeps.
     */
    readonly of: (session: {
      readonly scope: Ids.ScopeId
      readonly sessionId: Option.Option<Ids.NativeSessionId>
    }) => Effect.Effect<ReadonlyArray<BackupReason.SessionActivity>>
  }
>()("@reclaim/runtime/SessionActivity") {}

/**
 * No session is ever active in this process: right for a command that runs none.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerNone: Layer.Layer<SessionActivity> = Layer.succeed(SessionActivity, {
  of: () => Effect.succeed([])
})

/**
 * Keeps account of the sessions that this process works with.
 *
 * @category services
 * @since 0.1.0
 */
export class SessionTracker extends Context.Service<
  SessionTracker,
  {
    /** The session is in this state until the scope closes. */
    readonly track: (
      scope: Ids.ScopeId,
      state: BackupReason.SessionActivity
    ) => Effect.Effect<void, never, Scope.Scope>
  }
>()("@reclaim/runtime/SessionTracker") {}

/**
 * An account in memory, for a host of one process.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerTracker: Layer.Layer<SessionActivity | SessionTracker> = Layer.effectContext(
  Effect.sync(() => {
    const tracked = new Set<{
      readonly scope: Ids.ScopeId
      readonly state: BackupReason.SessionActivity
    }>()
    return Context.make(SessionTracker, {
      track: (scope, state) =>
        Effect.acquireRelease(
          Effect.sync(() => {
            const entry = { scope, state }
            tracked.add(entry)
            return entry
          }),
          (entry) => Effect.sync(() => tracked.delete(entry))
        ).pipe(Effect.asVoid)
    }).pipe(
      Context.add(SessionActivity, {
        of: (session) =>
          Effect.sync(() =>
            [...tracked].flatMap(({ scope, state }) => (scope === session.scope ? [state] : []))
          )
      })
    )
  })
)
