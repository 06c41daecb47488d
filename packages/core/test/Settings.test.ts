import * as ExpirationSettings from "../src/ExpirationSettings.ts"
import * as RetentionSettings from "../src/RetentionSettings.ts"
import { assert, describe, it } from "@effect/vitest"
import { type Config, ConfigProvider, Duration, Effect, Layer } from "effect"

const environment = (env: Record<string, string>) => ConfigProvider.layer(ConfigProvider.fromEnv({ env }))

const retention = Effect.fnUntraced(function* (env: Record<string, string>) {
  return yield* Effect.provide(
    RetentionSettings.RetentionSettings,
    Layer.provide(RetentionSettings.layerFromEnv(), environment(env))
  )
})

const expiration = Effect.fnUntraced(function* (env: Record<string, string>) {
  return yield* Effect.provide(
    ExpirationSettings.ExpirationSettings,
    Layer.provide(ExpirationSettings.layerFromEnv(), environment(env))
  )
})

type Read = (
  env: Record<string, string>
) => Effect.Effect<unknown, Config.ConfigError | RetentionSettings.InvalidSetting>

const skill = "PAPERCLIP_SKILL_VERSION_RETENTION"
const backup = "PAPERCLIP_NATIVE_HARNESS_BACKUP_EXPIRATION"

const flags: ReadonlyArray<readonly [variable: string, read: Read, setting: string]> = [
  [`${skill}_ENABLED`, retention, "enabled"],
  [`${skill}_DRY_RUN`, retention, "dryRun"],
  [`${backup}_ENABLED`, expiration, "enabled"],
  [`${backup}_DRY_RUN`, expiration, "dryRun"]
]

const numbers: ReadonlyArray<
  readonly [
    variable: string,
    read: Read,
    setting: string,
    minimum: number,
    maximum: number,
    (n: number) => unknown
  ]
> = [
  [`${skill}_KEEP`, retention, "keep", 0, 1_000_000, (n) => n],
  [
    `${skill}_GRACE_MINUTES`,
    retention,
    "grace",
    0,
    52_560_000,
    (n) => Duration.toMillis(Duration.minutes(n))
  ],
  [`${backup}_DAYS`, expiration, "window", 1, 36_500, (n) => Duration.toMillis(Duration.days(n))]
]

const plain = (settings: unknown, name: string) => {
  const value: unknown = Reflect.get(Object(settings), name)
  return Duration.isDuration(value) ? Duration.toMillis(value) : value
}

const refused = Effect.fnUntraced(function* <R>(
  read: Effect.Effect<unknown, { readonly message: string }, R>,
  ...parts: ReadonlyArray<string>
) {
  const { message } = yield* Effect.flip(read)
  for (const part of parts) assert.include(message, part)
})

const junk = ["yes please", " ", "null", "undefined", "constructor", "__proto__", "toString", "-0x1", "\0"]

describe("Settings", () => {
  it.effect("[C-07] an empty environment gives the defaults", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* retention({}), RetentionSettings.defaults)
      assert.deepStrictEqual(yield* expiration({}), ExpirationSettings.defaults)
      assert.deepStrictEqual(RetentionSettings.defaults, {
        enabled: true,
        dryRun: false,
        keep: 0,
        grace: Duration.minutes(60)
      })
      assert.deepStrictEqual(ExpirationSettings.defaults, {
        enabled: true,
        dryRun: false,
        window: Duration.days(7)
      })
    })
  )

  for (const [variable, read, setting] of flags) {
    it.effect(`[C-07] ${variable} is true or false, or one clear error`, () =>
      Effect.gen(function* () {
        const defaults = yield* read({})
        for (const [text, value] of [
          ["true", true],
          ["false", false],
          ["1", true],
          ["0", false],
          ["yes", true],
          ["no", false],
          ["on", true],
          ["off", false],
          ["", plain(defaults, setting)]
        ] as const) {
          assert.strictEqual(plain(yield* read({ [variable]: text }), setting), value, text)
        }
        for (const text of [...junk, "-1", "2", "1.5", "truefalse", "TRUE "]) {
          yield* refused(read({ [variable]: text }), variable, JSON.stringify(text), "true or false")
        }
      })
    )
  }

  for (const [variable, read, setting, minimum, maximum, convert] of numbers) {
    it.effect(`[C-07] ${variable} is a whole number from ${minimum}, or one clear error`, () =>
      Effect.gen(function* () {
        const defaults = yield* read({})
        for (const value of [minimum, minimum + 1, 30, maximum]) {
          assert.strictEqual(plain(yield* read({ [variable]: String(value) }), setting), convert(value))
        }
        assert.strictEqual(plain(yield* read({ [variable]: "" }), setting), plain(defaults, setting))
        const bad = [...junk, "-1", "-0", "1.5", "1e3", "0x10", "+5", "5 ", "NaN", "Infinity", "١"]
        const huge = [String(maximum + 1), "9".repeat(15), "9".repeat(16), "9".repeat(400)]
        for (const text of [...bad, ...huge, ...(minimum > 0 ? ["0", "00"] : [])]) {
          yield* refused(
            read({ [variable]: text }),
            variable,
            JSON.stringify(text),
            "a whole number of",
            `from ${minimum} to ${maximum}`
          )
        }
      })
    )
  }

  it.effect("[C-07] a host's values overlay the defaults, or the environment", () =>
    Effect.gen(function* () {
      const inCode = RetentionSettings.layer({ keep: 2, grace: "90 minutes" })
      assert.deepStrictEqual(yield* Effect.provide(RetentionSettings.RetentionSettings, inCode), {
        ...RetentionSettings.defaults,
        keep: 2,
        grace: Duration.minutes(90)
      })
      const overlaid = Layer.provide(
        RetentionSettings.layerFromEnv({ dryRun: true }),
        environment({ [`${skill}_KEEP`]: "3" })
      )
      assert.deepStrictEqual(yield* Effect.provide(RetentionSettings.RetentionSettings, overlaid), {
        ...RetentionSettings.defaults,
        keep: 3,
        dryRun: true
      })
      const window = Layer.provide(ExpirationSettings.layerFromEnv({ window: "1 day" }), environment({}))
      assert.deepStrictEqual(yield* Effect.provide(ExpirationSettings.ExpirationSettings, window), {
        ...ExpirationSettings.defaults,
        window: Duration.days(1)
      })
    })
  )

  it.effect("[C-07] a value in code is held to the same bounds", () =>
    Effect.gen(function* () {
      const keep = (keep: number) => Layer.build(RetentionSettings.layer({ keep }))
      const grace = (grace: Duration.Input) => Layer.build(RetentionSettings.layer({ grace }))
      const window = (window: Duration.Input) => Layer.build(ExpirationSettings.layer({ window }))
      for (const value of [-1, 0.5, Number.NaN, Infinity, 1e9]) {
        yield* refused(keep(value), "keep", String(value), "a whole number of versions from 0 to 1000000")
      }
      // A grace this long would lie outside the instants that can be named.
      const endless = [Duration.infinity, Duration.days(1e9), "40000 days"] as const
      for (const value of [...endless, Duration.millis(-1), Duration.negativeInfinity]) {
        yield* refused(grace(value), "grace", "a duration from 0 to 36500d")
      }
      for (const value of [...endless, Duration.zero, "23 hours", Duration.millis(-1)] as const) {
        yield* refused(window(value), "window", "a duration from 1d to 36500d")
      }
      yield* grace(0)
      yield* grace(Duration.days(36_500))
      yield* window("1 day")
    })
  )

  it.effect("[C-07] text from plain JavaScript that is no duration is an error, not a crash", () =>
    Effect.gen(function* () {
      const options: RetentionSettings.Options = JSON.parse('{"grace":"one hour"}')
      yield* refused(Layer.build(RetentionSettings.layer(options)), "grace", '"one hour"', "a duration from")
    })
  )
})
