/** Reads and writes sizes, durations and instants the way an operator writes and reads them. */
import { ByteSize, DateTime, Duration, Option } from "effect"

/** `512MiB`, `10GB`, `1.5 GiB`: a unit is required, because a bare number could be anything. */
export const parseSize = (text: string): Option.Option<bigint> => ByteSize.fromString(text)

const unitMillis: Readonly<Record<string, number>> = {
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000
}

/** `12 hours`, `7 days`, `90m`. */
export const parseDuration = (text: string): Option.Option<Duration.Duration> => {
  const match =
    /^\s*(\d{1,9}(?:\.\d{1,9})?)\s*(s|seconds?|m|min|mins|minutes?|h|hours?|d|days?|w|weeks?)\s*$/i.exec(text)
  const millis = unitMillis[match?.[2]?.charAt(0).toLowerCase() ?? ""]
  return millis === undefined ? Option.none() : Option.some(Duration.millis(Number(match?.[1]) * millis))
}

/** A whole number between the bounds, written with digits alone. */
export const parseWhole =
  (minimum: number, maximum: number) =>
  (text: string): Option.Option<number> => {
    const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN
    return value >= minimum && value <= maximum ? Option.some(value) : Option.none()
  }

const iec = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] as const

/** `0 B`, `512 B`, `1.4 MiB`: one decimal below ten, as many digits as a person wants to compare. */
export const formatBytes = (bytes: bigint): string => {
  let value = Number(bytes)
  let unit = 0
  // 1023.5, not 1024: what would be printed as `1024 KiB` is `1.0 MiB`.
  while (value >= 1023.5 && unit < iec.length - 1) {
    value /= 1024
    unit += 1
  }
  return unit === 0 ? `${value} B` : `${value < 9.95 ? value.toFixed(1) : value.toFixed(0)} ${iec[unit]}`
}

/** To the minute, in UTC: `2026-11-30 11:42`. */
export const formatInstant = (instant: DateTime.Utc): string =>
  DateTime.formatIso(instant).slice(0, 16).replace("T", " ")

/** `48 ms`, `1.4 s`, `2 min 5 s`. */
export const formatMillis = (millis: number): string => {
  if (millis < 1000) return `${Math.round(millis)} ms`
  if (millis < 60_000) return `${(millis / 1000).toFixed(1)} s`
  return `${Math.floor(millis / 60_000)} min ${Math.round((millis % 60_000) / 1000)} s`
}

/** `1 copy`, `3 copies`, `1,204 files`. */
export const count = (amount: number, one: string, many = `${one}s`): string =>
  `${amount.toLocaleString("en-US")} ${amount === 1 ? one : many}`
