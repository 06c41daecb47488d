import { Config, Duration, Effect, Option, Schema, SchemaTransformation } from "effect"

/**
 * A setting whose bad value is reported with its variable, the value and what is allowed. Effect's own
 * constructors name the variable only, and an operator who reads a start-up error needs all three.
 */
const setting = <A extends boolean | number>(
  variable: string,
  allowed: string,
  parse: (text: string) => A | undefined,
  target: Schema.Codec<A>
): Config.Config<A> =>
  Config.schema(
    Schema.String.check(
      Schema.makeFilter((text: string) =>
        parse(text) === undefined
          ? `${variable} is ${JSON.stringify(text)}, allowed is ${allowed}`
          : undefined
      )
    ).pipe(
      Schema.decodeTo(
        target,
        SchemaTransformation.transform({
          decode: (text: string) => parse(text)!,
          encode: (value: A) => String(value)
        })
      )
    ),
    variable
  )

// A map, because a plain object would also answer to `constructor`.
const booleans: ReadonlyMap<string, boolean> = new Map([
  ["true", true],
  ["yes", true],
  ["on", true],
  ["1", true],
  ["false", false],
  ["no", false],
  ["off", false],
  ["0", false]
])

export const boolean = (variable: string): Config.Config<boolean> =>
  setting(variable, "true or false", (text) => booleans.get(text), Schema.Boolean)

// 52,560,000 minutes are 100 years: more is a typing error, and instants that far away cannot be computed.
const most = { minutes: 52_560_000, days: 36_500, versions: 1_000_000 }

export const wholeNumber = (
  variable: string,
  minimum: number,
  unit: keyof typeof most
): Config.Config<number> =>
  setting(
    variable,
    `a whole number of ${unit} from ${minimum} to ${most[unit]}`,
    (text) => {
      const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN
      return value >= minimum && value <= most[unit] ? value : undefined
    },
    Schema.Finite
  )

/** A value that a host gave in code, outside what the setting allows. */
export class InvalidSetting extends Schema.TaggedError<InvalidSetting>()("InvalidSetting", {
  setting: Schema.String,
  value: Schema.String,
  allowed: Schema.String
}) {
  override get message() {
    return `${this.setting} is ${this.value}, allowed is ${this.allowed}`
  }
}

const longest = Duration.days(most.days)

/** Reads a duration that a host gave in code, within the same bounds as the variable's. */
export const duration = Effect.fnUntraced(function* (
  setting: string,
  input: Duration.Input,
  minimum: Duration.Duration
) {
  const value = Duration.fromInput(input)
  if (
    Option.isNone(value) ||
    Duration.isLessThan(value.value, minimum) ||
    Duration.isGreaterThan(value.value, longest)
  ) {
    return yield* new InvalidSetting({
      setting,
      value: Option.match(value, { onNone: () => JSON.stringify(input), onSome: Duration.format }),
      allowed: `a duration from ${Duration.format(minimum)} to ${Duration.format(longest)}`
    })
  }
  return value.value
})

/** Checks a whole number that a host gave in code, within the same bounds as the variable's. */
export const count = Effect.fnUntraced(function* (
  setting: string,
  value: number,
  minimum: number,
  unit: keyof typeof most
) {
  if (!Number.isInteger(value) || value < minimum || value > most[unit]) {
    return yield* new InvalidSetting({
      setting,
      value: String(value),
      allowed: `a whole number of ${unit} from ${minimum} to ${most[unit]}`
    })
  }
  return value
})
