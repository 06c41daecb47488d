/**
 * The terminals that people have open on sessions. No job and no row tells of them, so Reclaim has to ask.
 *
 * One process serves all people here. Where several do, each must answer for all of them.
 */
import type { Ids } from "@reclaim/core"
import { SessionActivity } from "@reclaim/runtime"
import { Context, Effect, Layer, Ref } from "effect"

export class Terminals extends Context.Service<
  Terminals,
  {
    readonly open: (scope: Ids.ScopeId) => Effect.Effect<void>
    readonly close: (scope: Ids.ScopeId) => Effect.Effect<void>
  }
>()("build-farm/Terminals") {}

/** One entry for each terminal: closing one of two leaves the session in use. */
export const layer: Layer.Layer<Terminals | SessionActivity.SessionActivity> = Layer.effectContext(
  Effect.map(Ref.make<ReadonlyArray<Ids.ScopeId>>([]), (opened) =>
    Context.make(Terminals, {
      open: (scope) => Ref.update(opened, (all) => [...all, scope]),
      close: (scope) =>
        Ref.update(opened, (all) => (all.includes(scope) ? all.toSpliced(all.indexOf(scope), 1) : all))
    }).pipe(
      Context.add(SessionActivity.SessionActivity, {
        of: ({ scope }) => Effect.map(Ref.get(opened), (all) => (all.includes(scope) ? ["warm"] : []))
      })
    )
  )
)
