/** What the farm answers over HTTP. */
import { Ids } from "@reclaim/core"
import { Workers } from "@reclaim/runtime"
import { Effect, Layer, Schema, SubscriptionRef } from "effect"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Jobs from "./Jobs.ts"
import * as Lifecycle from "./Lifecycle.ts"
import * as Terminals from "./Terminals.ts"

const path = <A>(id: Schema.ConstraintCodec<A, string>) =>
  Effect.map(HttpRouter.schemaPathParams(Schema.Struct({ id })), (params) => params.id)

const start = Effect.gen(function* () {
  const job = yield* HttpServerRequest.schemaBodyJson(Jobs.Job)
  return yield* HttpServerResponse.json({ paths: yield* Jobs.start(job) })
}).pipe(
  Effect.catchTag("CannotStart", ({ missing }) => HttpServerResponse.json({ missing }, { status: 409 }))
)

const end = Effect.gen(function* () {
  yield* Jobs.end(yield* path(Ids.RunId), yield* HttpServerRequest.schemaBodyJson(Jobs.Outcome))
  return HttpServerResponse.empty()
})

const terminal = (change: "open" | "close") =>
  Effect.gen(function* () {
    yield* (yield* Terminals.Terminals)[change](yield* path(Ids.ScopeId))
    return HttpServerResponse.empty()
  })

const go = (to: Lifecycle.State) =>
  Effect.flatMap(Lifecycle.go(to), (state) => HttpServerResponse.json({ state }))

const health = Effect.gen(function* () {
  const versions = yield* (yield* Workers.SkillVersionWorker).status
  const backups = yield* (yield* Workers.BackupWorker).status
  return yield* HttpServerResponse.json({
    state: yield* SubscriptionRef.get(yield* Lifecycle.Lifecycle),
    releases: versions.activity,
    backups: backups.activity
  })
})

export const layer = Layer.mergeAll(
  HttpRouter.add("POST", "/jobs", start),
  HttpRouter.add("POST", "/jobs/:id/end", end),
  HttpRouter.add("PUT", "/terminals/:id", terminal("open")),
  HttpRouter.add("DELETE", "/terminals/:id", terminal("close")),
  HttpRouter.add("POST", "/pause", go("paused")),
  HttpRouter.add("POST", "/resume", go("serving")),
  HttpRouter.add("GET", "/health", health)
)
