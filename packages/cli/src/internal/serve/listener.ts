/** Listens for HTTP on one address. No client can keep it from closing. */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Effect, Layer, Predicate, Schema } from "effect"
import * as HttpServer from "effect/http/HttpServer"
import * as NetAddress from "effect/net/NetAddress"
import { createServer } from "node:http"

/** Nobody can listen there. */
export class CannotListen extends Schema.TaggedError<CannotListen>()("CannotListen", {
  url: Schema.String,
  detail: Schema.String
}) {
  override get message() {
    return `cannot listen on ${this.url}: ${this.detail}`
  }
}

const details: Readonly<Record<string, string>> = {
  EADDRINUSE: "the port is in use",
  EADDRNOTAVAIL: "this machine has no such address",
  EACCES: "the system refuses this port to this user"
}

const detailOf = (cause: unknown): string => {
  if (!Predicate.hasProperty(cause, "code") || !Predicate.isString(cause.code)) return String(cause)
  return details[cause.code] ?? cause.code
}

// 5 seconds: longer than the slowest answer takes, which waits three for the database. Whoever sends nothing is
// not waited for any longer.
const gracefulShutdownTimeout = "5 seconds"
// 256: a person, a collector and a few probes use ten at once.
const maxConnections = 256

/** An HTTP server. Port 0 lets the system choose. */
export const layer = (at: {
  readonly host: NetAddress.IpAddress
  readonly port: number
}): Layer.Layer<HttpServer.HttpServer, CannotListen> =>
  Layer.effect(
    HttpServer.HttpServer,
    Effect.gen(function* () {
      const server = createServer()
      server.maxConnections = maxConnections
      return yield* NodeHttpServer.make(() => server, {
        host: NetAddress.formatIp(at.host),
        port: at.port,
        gracefulShutdownTimeout
      }).pipe(
        Effect.mapError(
          ({ cause }) =>
            new CannotListen({
              url: `http://${NetAddress.formatUrlHost(at.host)}:${at.port}`,
              detail: detailOf(cause)
            })
        )
      )
    })
  )
