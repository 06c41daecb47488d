/**
 * Settings of the retention of skill version copies.
 *
 * @since 0.1.0
 */
import { Config, Context, Duration, Effect, Layer } from "effect"
import { InvalidSetting, boolean, count, duration, wholeNumber } from "./internal/settings.ts"

export { InvalidSetting }

/**
 * @category services
 * @since 0.1.0
 */
export class RetentionSettings extends Context.Service<
  RetentionSettings,
  {
    /** False: no sweep runs; preparing and restoring go on. */
    readonly enabled: boolean
    /** Report candidates; change neither copies nor records. */
    readonly dryRun: boolean
    /** How many of the newest versions of each skill stay, whatever their age. */
    readonly keep: number
    /** How long a copy must have been unused before it may go. */
    readonly grace: Duration.Duration
  }
>()("@reclaim/core/RetentionSettings") {}

/**
 * @category defaults
 * @since 0.1.0
 */
export const defaults: RetentionSettings["Service"] = {
  enabled: true,
  dryRun: false,
  keep: 0,
  grace: Duration.hours(1)
}

/**
 * Reads each setting from its variable, so that everything that is wrong can be told at once.
 *
 * @category configuration
 * @since 0.1.0
 */
export const variables = {
  enabled: boolean("PAPERCLIP_SKILL_VERSION_RETENTION_ENABLED").pipe(Config.withDefault(defaults.enabled)),
  dryRun: boolean("PAPERCLIP_SKILL_VERSION_RETENTION_DRY_RUN").pipe(Config.withDefault(defaults.dryRun)),
  keep: wholeNumber("PAPERCLIP_SKILL_VERSION_RETENTION_KEEP", 0, "versions").pipe(
    Config.withDefault(defaults.keep)
  ),
  grace: wholeNumber("PAPERCLIP_SKILL_VERSION_RETENTION_GRACE_MINUTES", 0, "minutes").pipe(
    Config.map(Duration.minutes),
    Config.withDefault(defaults.grace)
  )
} satisfies Record<keyof RetentionSettings["Service"], Config.Config<unknown>>

/**
 * Reads the settings from `PAPERCLIP_SKILL_VERSION_RETENTION_*`. An empty value counts as unset; a bad
 * one fails with its variable, the value and what is allowed.
 *
 * @category configuration
 * @since 0.1.0
 */
export const config: Config.Config<RetentionSettings["Service"]> = Config.all(variables)

/** @category models @since 0.1.0 */
export interface Options extends Partial<Omit<RetentionSettings["Service"], "grace">> {
  readonly grace?: Duration.Input
}

const merge = Effect.fnUntraced(function* (base: RetentionSettings["Service"], options: Options) {
  const settings: RetentionSettings["Service"] = {
    ...base,
    ...options,
    keep: yield* count("keep", options.keep ?? base.keep, 0, "versions"),
    grace: yield* duration("grace", options.grace ?? base.grace, Duration.zero)
  }
  return settings
})

/**
 * The defaults, overlaid with what the host gives.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: Options = {}): Layer.Layer<RetentionSettings, InvalidSetting> =>
  Layer.effect(RetentionSettings, merge(defaults, options))

/**
 * The environment's settings, overlaid with what the host gives.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerFromEnv = (
  options: Options = {}
): Layer.Layer<RetentionSettings, Config.ConfigError | InvalidSetting> =>
  Layer.effect(
    RetentionSettings,
    Effect.flatMap(config, (base) => merge(base, options))
  )
