/** Listens for HTTP on one address. No client can keep it from closing, nor keep a connection that it does not use. */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Duration, Effect, Layer, Predicate, Schema } from "effect"
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

// 5 seconds: longer than the slowest answer takes, which waits three for the database. Whoever neither sends nor
// reads is not waited for any longer, while it serves and when it ends.
const patience = Duration.seconds(5)
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
      const server = createServer({ requestTimeout: Duration.toMillis(patience) })
      server.maxConnections = maxConnections
      server.timeout = Duration.toMillis(patience)
      // Node leaves a connection that asks for an upgrade to whoever answers. There is nothing to upgrade to, so
      // it ends with its answer, or when nothing happens on it.
      server.on("upgrade", (_request, socket) => {
        for (const event of ["finish", "timeout"]) socket.on(event, () => socket.destroy())
      })
      return yield* NodeHttpServer.make(() => server, {
        host: NetAddress.formatIp(at.host),
        port: at.port,
        gracefulShutdownTimeout: patience
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
