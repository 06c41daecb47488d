import { expect, layer } from "@effect/vitest"
import { Effect, Predicate } from "effect"
import { createServer } from "node:http"
import * as Fixture from "./support/fixture.ts"
import { eventually } from "./support/reclaim.ts"
import { serve } from "./support/serving.ts"

interface Received {
  readonly path: string
  readonly type: string
  readonly token: string
  readonly body: string
}

/** A collector as others would run one. One that does not answer takes what it gets and says nothing. */
const collector = Effect.fnUntraced(function* (answers: boolean) {
  const received: Array<Received> = []
  const server = createServer((request, response) => {
    let body = ""
    request.setEncoding("latin1").on("data", (chunk: string) => {
      body += chunk
    })
    request.on("end", () => {
      received.push({
        path: request.url ?? "",
        type: request.headers["content-type"] ?? "",
        token: String(request.headers["x-token"]),
        body
      })
      if (answers) response.end()
    })
  })
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => {
      server.listen(0, "127.0.0.1", () => resume(Effect.void))
    }),
    () =>
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void))
        server.closeAllConnections()
      })
  )
  const address = server.address()
  return { received, url: `http://127.0.0.1:${Predicate.hasProperty(address, "port") ? address.port : ""}` }
})

const gone = (received: ReadonlyArray<Received>, path: string) =>
  received.filter((each) => each.path === path).map(({ body }) => body)

layer(Fixture.layer, { timeout: 60_000 })("telemetry", (it) => {
  it.effect("[O-05] sends logs, metrics and spans where the usual variables say", () =>
    Effect.gen(function* () {
      const { instance, oldCopy, url, versions } = yield* Fixture.Fixture
      const { received, url: endpoint } = yield* collector(true)
      yield* oldCopy(versions[0])
      const running = yield* serve({
        DATABASE_URL: url,
        RECLAIM_INSTANCE: instance,
        OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
        OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
        OTEL_EXPORTER_OTLP_HEADERS: "x-token=s3cret",
        OTEL_RESOURCE_ATTRIBUTES: "deployment.environment=trial"
      })
      yield* eventually(
        Effect.map(running.status, ({ skillVersions }) => skillVersions.activity === "waiting")
      )
      yield* running.kill("SIGTERM")
      expect(yield* running.exitCode).toBe(0)
      // What the end itself tells is sent too.
      expect(gone(received, "/v1/logs").join()).toContain('"stringValue":"drained"')
      expect(gone(received, "/v1/logs").join()).toContain('"stringValue":"swept skill versions"')
      expect(gone(received, "/v1/traces").join()).toContain('"name":"SkillVersionRetention.batch"')
      expect(gone(received, "/v1/metrics").join()).toContain('"name":"reclaim.sweep.removed"')
      for (const { body, token, type } of received) {
        expect(type).toBe("application/json")
        expect(token).toBe("s3cret")
        expect(body).toContain('{"key":"service.name","value":{"stringValue":"reclaim"}}')
        expect(body).toContain('{"key":"deployment.environment","value":{"stringValue":"trial"}}')
      }
    }).pipe(Effect.scoped)
  )

  it.effect("[O-05] sends protobuf under the name that is given, and only what is asked for", () =>
    Effect.gen(function* () {
      const { instance, url } = yield* Fixture.Fixture
      const { received, url: endpoint } = yield* collector(true)
      const running = yield* serve({
        DATABASE_URL: url,
        RECLAIM_INSTANCE: instance,
        OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
        OTEL_SERVICE_NAME: "reclaim-west",
        OTEL_METRICS_EXPORTER: "none"
      })
      yield* running.kill("SIGTERM")
      expect(yield* running.exitCode).toBe(0)
      expect(gone(received, "/v1/metrics")).toEqual([])
      expect(gone(received, "/v1/logs").join()).toContain("reclaim-west")
      expect(new Set(received.map(({ type }) => type))).toEqual(new Set(["application/x-protobuf"]))
    }).pipe(Effect.scoped)
  )

  for (const [name, endpoint] of [
    ["is not there", Effect.succeed("http://127.0.0.1:9")],
    ["does not answer", Effect.map(collector(false), ({ url }) => url)]
  ] as const) {
    it.effect(`[O-05] a collector that ${name} holds up neither the sweeps nor the end`, () =>
      Effect.gen(function* () {
        const { instance, oldCopy, url, versions } = yield* Fixture.Fixture
        yield* oldCopy(versions[0])
        const running = yield* serve({
          DATABASE_URL: url,
          RECLAIM_INSTANCE: instance,
          OTEL_EXPORTER_OTLP_ENDPOINT: yield* endpoint
        })
        yield* eventually(
          Effect.map(
            running.status,
            ({ skillVersions }) =>
              skillVersions.lastSweep._tag === "Some" && skillVersions.lastSweep.value.evicted === 1
          )
        )
        yield* running.kill("SIGTERM")
        expect(yield* running.exitCode).toBe(0)
      }).pipe(Effect.scoped)
    )
  }
})
