/** `reclaim serve`. */
import { ExpirationSettings, RetentionSettings } from "@reclaim/core"
import { HostControls, ServerName } from "@reclaim/runtime"
import { Config, DateTime, Effect, FileSystem, Layer, Option, Redacted, Result, Stdio, Stream } from "effect"
import { Command, Flag, GlobalFlag } from "effect/cli"
import * as HttpServer from "effect/http/HttpServer"
import * as NetAddress from "effect/net/NetAddress"
import * as Output from "../Output.ts"
import { layerPool, layerRoots } from "./connection.ts"
import { BadUsage } from "./failure.ts"
import * as Flags from "./flags.ts"
import { DebugFlag, type Subcommand } from "./flags.ts"
import { Printer } from "./printer.ts"
import { server, termination } from "./process.ts"
import * as Engine from "./serve/engine.ts"
import * as Listener from "./serve/listener.ts"
import * as Routes from "./serve/routes.ts"
import * as Telemetry from "./serve/telemetry.ts"

const host = Flag.String("host").pipe(
  Flag.withMetavar("ADDRESS"),
  Flag.withDescription("Where to listen; other than a loopback address needs a token"),
  Flag.filterMap(
    (text) => Result.getSuccess(NetAddress.ipFromString(text === "localhost" ? "127.0.0.1" : text)),
    () => "an IP address, or localhost"
  ),
  Flag.withDefault(NetAddress.ipFromStringUnsafe("127.0.0.1"))
)

const port = Flags.whole("port", "The port; 0 lets the system choose", 0, 65_535).pipe(Flag.withDefault(8710))

const tokenFile = Flag.String("token-file").pipe(
  Flag.withMetavar("FILE"),
  Flag.withDescription("Holds the token that standby, resume and drain then need (or RECLAIM_TOKEN)"),
  Flag.optional
)

/** What a header can carry. */
const isToken = (text: string): boolean => /^[\u0021-\u007e]+$/.test(text)

const readToken = Effect.fnUntraced(function* (file: Option.Option<string>) {
  if (Option.isNone(file)) {
    const variable = yield* Config.option(Config.Redacted("RECLAIM_TOKEN"))
    if (Option.isSome(variable) && !isToken(Redacted.value(variable.value))) {
      return yield* new BadUsage({
        message: "RECLAIM_TOKEN must be one word of ASCII letters, digits and signs"
      })
    }
    return variable
  }
  const files = yield* FileSystem.FileSystem
  const text = yield* files
    .readFileString(file.value)
    .pipe(
      Effect.mapError(
        ({ reason }) =>
          new BadUsage({ message: `the token file cannot be read (${reason._tag}): ${file.value}` })
      )
    )
  const token = text.trim()
  if (!isToken(token)) {
    return yield* new BadUsage({
      message: `the token file must hold one word of ASCII letters, digits and signs: ${file.value}`
    })
  }
  return Option.some(Redacted.make(token))
})

// 8: two for each of the sweeps, the others for what people and probes ask.
const maxConnections = 8

/** What is wrong with the settings and the folders is told before anything listens. */
const layerSettings = Layer.mergeAll(
  HostControls.layerMemory,
  layerPool(maxConnections),
  layerRoots,
  RetentionSettings.layerFromEnv(),
  ExpirationSettings.layerFromEnv(),
  Layer.succeed(ServerName.ServerName, server)
)

const run = Effect.fnUntraced(function* (options: {
  readonly version: string
  readonly token: Option.Option<Redacted.Redacted>
  readonly loopback: boolean
  readonly terminated: Effect.Effect<void>
}) {
  const printer = yield* Printer
  const listener = yield* HttpServer.HttpServer
  const controls = yield* HostControls.HostControls
  const hostSwitch = yield* HostControls.HostSwitch
  const engine = yield* Engine.Engine
  const startedAt = yield* DateTime.now
  const { handler } = yield* Routes.make({ version: options.version, server, startedAt }, options)
  yield* listener.serve(handler)
  const url = HttpServer.formatAddress(listener.address)
  yield* printer.document(Output.Listening, { type: "listening", url })
  yield* printer.lines(`listening on ${url}`)

  yield* Effect.forkScoped(Effect.andThen(options.terminated, hostSwitch.drain))
  yield* controls.changes.pipe(
    Stream.filter((phase) => phase === "draining"),
    Stream.runHead,
    // Sweeps stop at once, and not only after the requests in flight have been answered.
    Effect.onInterrupt(() => hostSwitch.drain)
  )
  yield* Effect.logInfo("draining: waiting for the work in hand")
  yield* engine.awaitIdle
  yield* Effect.logInfo("drained")
}, Effect.scoped)

/** Made with the version, which the module that assembles the commands knows. */
export const make = (version: string): Subcommand<"serve"> =>
  Command.make(
    "serve",
    { host, port, tokenFile },
    Effect.fnUntraced(function* (flags) {
      // First of all, so that whoever stops a host that is starting finds it stopped as asked.
      const terminated = yield* termination
      const printer = yield* Printer
      const stdio = yield* Stdio.Stdio
      const debug = yield* DebugFlag
      const level = yield* GlobalFlag.LogLevel
      const token = yield* readToken(flags.tokenFile)
      const loopback = NetAddress.isLoopback(flags.host)
      if (!loopback && Option.isNone(token)) {
        return yield* new BadUsage({
          message: `listening on ${NetAddress.formatIp(flags.host)} needs a token: use --token-file FILE or set RECLAIM_TOKEN`
        })
      }
      const telemetry = Telemetry.layerExport(version).pipe(
        Layer.provideMerge(
          Telemetry.layerLog({
            json: printer.json || !(yield* stdio.stderrIsTerminal),
            level: Option.getOrElse(level, () => (debug ? "Debug" : "Info"))
          })
        )
      )
      yield* run({ version, token, loopback, terminated }).pipe(
        Effect.provide(
          Engine.layer.pipe(
            Layer.provideMerge(Listener.layer(flags)),
            Layer.provideMerge(layerSettings),
            Layer.provideMerge(telemetry)
          )
        )
      )
    }, Effect.scoped)
  ).pipe(
    Command.withDescription(
      "Sweep by itself, about once an hour, and answer on HTTP: a status page, health, readiness, metrics, " +
        "standby and drain. A process of its own that runs no sessions"
    ),
    Command.withExamples([
      { command: "reclaim serve", description: "Serve this machine at http://127.0.0.1:8710" },
      {
        command: "reclaim serve --host 0.0.0.0 --token-file /run/secrets/reclaim",
        description: "Serve others; changes need the token"
      }
    ])
  )
