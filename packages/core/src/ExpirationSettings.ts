/**
 * Settings of the expiration of native session failover backups.
 *
 * @since 0.1.0
 */
import { Config, Context, Duration, Effect, Layer } from "effect"
import { InvalidSetting, boolean, duration, wholeNumber } from "./internal/settings.ts"

export { InvalidSetting }

/**
 * @category services
 * @since 0.1.0
 */
export class ExpirationSettings extends Context.Service<
  ExpirationSettings,
  {
    /** False: nothing expires; capturing and restoring go on. */
    readonly enabled: boolean
    /** Report candidates; delete neither backups nor task sessions. */
    readonly dryRun: boolean
    /** How long every issue of a session must have been closed; at least one day. */
    readonly window: Duration.Duration
  }
>()("@reclaim/core/ExpirationSettings") {}

/**
 * @category defaults
 * @since 0.1.0
 */
export const defaults: ExpirationSettings["Service"] = {
  enabled: true,
  dryRun: false,
  window: Duration.days(7)
}

/**
 * Reads each setting from its variable, so that everything that is wrong can be told at once.
 *
 * @category configuration
 * @since 0.1.0
 */
export const variables = {
  enabled: boolean("PAPERCLIP_NATIVE_HARNESS_BACKUP_EXPIRATION_ENABLED").pipe(
    Config.withDefault(defaults.enabled)
  ),
  dryRun: boolean("PAPERCLIP_NATIVE_HARNESS_BACKUP_EXPIRATION_DRY_RUN").pipe(
    Config.withDefault(defaults.dryRun)
  ),
  window: wholeNumber("PAPERCLIP_NATIVE_HARNESS_BACKUP_EXPIRATION_DAYS", 1, "days").pipe(
    Config.map(Duration.days),
    Config.withDefault(defaults.window)
  )
} satisfies Record<keyof ExpirationSettings["Service"], Config.Config<unknown>>

/**
 * Reads the settings from `PAPERCLIP_NATIVE_HARNESS_BACKUP_EXPIRATION_*`. An empty value counts as unset; a bad
 * one fails with its variable, the value and what is allowed.
 *
 * @category configuration
 * @since 0.1.0
 */
export const config: Config.Config<ExpirationSettings["Service"]> = Config.all(variables)

/** @category models @since 0.1.0 */
export interface Options extends Partial<Omit<ExpirationSettings["Service"], "window">> {
  readonly window?: Duration.Input
}

const merge = Effect.fnUntraced(function* (base: ExpirationSettings["Service"], options: Options) {
  const settings: ExpirationSettings["Service"] = {
    ...base,
    ...options,
    window: yield* duration("window", options.window ?? base.window, Duration.days(1))
  }
  return settings
})

/**
 * The defaults, overlaid with what the host gives.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: Options = {}): Layer.Layer<ExpirationSettings, InvalidSetting> =>
  Layer.effect(ExpirationSettings, merge(defaults, options))

/**
 * The environment's settings, overlaid with what the host gives.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerFromEnv = (
  options: Options = {}
): Layer.Layer<ExpirationSettings, Config.ConfigError | InvalidSetting> =>
  Layer.effect(
    ExpirationSettings,
    Effect.flatMap(config, (base) => merge(base, options))
  )
