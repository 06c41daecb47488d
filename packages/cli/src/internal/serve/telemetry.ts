/** Sends logs, metrics and spans to a collector, when the usual variables name one, and logs to standard error. */
import { Config, ConfigProvider, Effect, Layer, Logger, References } from "effect"
import type { LogLevel } from "effect/LogLevel"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import * as Otlp from "effect/observability/Otlp"
import * as OtlpSerialization from "effect/observability/OtlpSerialization"

/** What the variables mean where they are not set. */
const defaults = ConfigProvider.fromEnv({
  env: {
    OTEL_SERVICE_NAME: "reclaim",
    OTEL_LOGS_EXPORTER: "otlp",
    OTEL_METRICS_EXPORTER: "otlp",
    OTEL_TRACES_EXPORTER: "otlp",
    // 2 seconds: what a collector that does not answer may add to the end of the process, per signal.
    OTEL_EXPORTER_OTLP_TIMEOUT: "2000"
  }
})

const protocol = Config.Literals(["http/protobuf", "http/json"], "OTEL_EXPORTER_OTLP_PROTOCOL").pipe(
  Config.withDefault("http/protobuf")
)

/**
 * Nothing is sent unless a variable names an endpoint, and nothing waits for what is sent. A variable that cannot be
 * understood arrives as a defect that is a `ConfigError`, and is told as one.
 */
export const layerExport = (version: string): Layer.Layer<never, Config.ConfigError> =>
  Layer.unwrap(
    Effect.map(protocol, (chosen) =>
      Otlp.layerFromConfig({ resource: { serviceVersion: version } }).pipe(
        Layer.provide(chosen === "http/json" ? OtlpSerialization.layerJson : OtlpSerialization.layerProtobuf),
        Layer.provide(FetchHttpClient.layer)
      )
    )
  ).pipe(
    Layer.provide(
      Layer.effect(
        ConfigProvider.ConfigProvider,
        Effect.map(ConfigProvider.ConfigProvider, ConfigProvider.orElse(defaults))
      )
    )
  )

/** A line per event: for a person on a terminal, else JSON. */
export const layerLog = (options: { readonly json: boolean; readonly level: LogLevel }): Layer.Layer<never> =>
  Layer.mergeAll(
    // `consoleJson` would write to standard output, whatever is set.
    Logger.layer([options.json ? Logger.withConsoleError(Logger.formatJson) : Logger.consolePretty()]),
    Layer.succeed(References.MinimumLogLevel, options.level)
  )
