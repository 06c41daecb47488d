/** Answers requests. Every answer is quick, whatever the database does. */
import { HostControls } from "@reclaim/runtime"
import { DateTime, Effect, Option, Schema } from "effect"
import { HttpServerRequest } from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import { format } from "effect/observability/PrometheusMetrics"
import { randomBytes } from "node:crypto"
import * as Output from "../../Output.ts"
import * as Access from "./access.ts"
import { Engine } from "./engine.ts"
import * as Page from "./page.ts"
import * as Status from "./status.ts"

type Response = HttpServerResponse.HttpServerResponse

const security = {
  "cache-control": "no-store",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff"
}

const secured = (response: Response): Response =>
  HttpServerResponse.setHeaders(response, { ...security, ...response.headers })

const document = <A, I>(schema: Schema.Codec<A, I>, value: A, status = 200): Effect.Effect<Response> =>
  Effect.map(Effect.orDie(Schema.encodeEffect(schema)(value)), (encoded) =>
    HttpServerResponse.text(`${JSON.stringify(encoded)}\n`, { status, contentType: "application/json" })
  )

const failure = (status: number, _tag: string, message: string): Effect.Effect<Response> =>
  document(Output.Failure, { type: "error", _tag, message }, status)

const text = (lines: ReadonlyArray<string>, status = 200): Response =>
  HttpServerResponse.text(lines.map((line) => `${line}\n`).join(""), { status })

/** Who serves. */
export interface Identity {
  readonly version: string
  readonly server: string
  readonly startedAt: DateTime.Utc
}

/** Makes the handler of all requests. */
export const make = Effect.fnUntraced(function* (identity: Identity, access: Access.Access) {
  const engine = yield* Engine
  const controls = yield* HostControls.HostControls
  const hostSwitch = yield* HostControls.HostSwitch

  const reasons = Effect.gen(function* () {
    const missing = yield* engine.reasons
    return (yield* controls.phase) === "draining" ? [...missing, "the host is draining"] : missing
  })

  const moment = Effect.gen(function* () {
    return {
      ...identity,
      // First, because it may wait for the database: what follows is then of one moment.
      reasons: yield* reasons,
      now: yield* DateTime.now,
      phase: yield* controls.phase,
      versions: yield* engine.versions,
      backups: yield* engine.backups
    } satisfies Status.Moment
  })

  const page = Effect.gen(function* () {
    const nonce = randomBytes(16).toString("base64url")
    const html = Page.render({
      ...(yield* moment),
      findings: yield* engine.findings,
      needsToken: Option.isSome(access.token),
      nonce
    })
    return HttpServerResponse.text(html, {
      contentType: "text/html; charset=utf-8",
      headers: {
        "content-security-policy":
          `default-src 'none'; style-src 'nonce-${nonce}'; script-src 'nonce-${nonce}'; img-src data:; ` +
          "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
      }
    })
  })

  const change = (name: string, effect: Effect.Effect<void>) =>
    Effect.gen(function* () {
      // Before it happens: a drain says what it does from then on.
      yield* Effect.logInfo(`${name} was asked for`)
      yield* effect
      const phase = yield* controls.phase
      return yield* document(Output.Phase, { type: "phase", phase })
    })

  const looks = new Map<string, Effect.Effect<Response>>([
    ["/", page],
    ["/healthz", Effect.succeed(text(["ok"]))],
    ["/readyz", Effect.map(reasons, (lines) => (lines.length === 0 ? text(["ready"]) : text(lines, 503)))],
    [
      "/metrics",
      Effect.map(format(), (metrics) =>
        HttpServerResponse.text(metrics, { contentType: "text/plain; version=0.0.4; charset=utf-8" })
      )
    ],
    ["/status.json", Effect.flatMap(moment, (now) => document(Output.Status, Status.document(now)))]
  ])
  const changes = new Map<string, Effect.Effect<Response>>([
    ["/standby", change("standby", hostSwitch.standby)],
    ["/resume", change("resume", hostSwitch.resume)],
    ["/drain", change("drain", hostSwitch.drain)]
  ])

  const handler = Effect.gen(function* () {
    const request = yield* HttpServerRequest
    yield* Access.toLook(access, request)
    const path = request.url.split("?", 1).join("")
    const look = looks.get(path)
    const change = changes.get(path)
    const allowed = look === undefined ? "POST" : "GET, HEAD"
    if (look === undefined && change === undefined) {
      return yield* failure(404, "NotFound", `there is nothing at ${path}`)
    }
    if (look !== undefined && (request.method === "GET" || request.method === "HEAD")) return yield* look
    if (change !== undefined && request.method === "POST") {
      yield* Access.toChange(access, request)
      return yield* change
    }
    return HttpServerResponse.setHeader(
      yield* failure(405, "WrongMethod", `${path} takes ${allowed}`),
      "allow",
      allowed
    )
  }).pipe(
    Effect.catch((refusal) =>
      Effect.map(failure(refusal.status, refusal._tag, refusal.message), (response) =>
        refusal.status === 401
          ? HttpServerResponse.setHeader(response, "www-authenticate", "Bearer")
          : response
      )
    ),
    Effect.catchDefect((defect) =>
      Effect.andThen(
        Effect.logError("a request could not be answered", defect),
        failure(500, "Unexpected", "this could not be answered; the log tells more")
      )
    ),
    Effect.map(secured)
  )
  return { handler }
})
