import { describe, expect, it } from "@effect/vitest"
import { Ids } from "@reclaim/core"
import { DateTime, Duration, Option } from "effect"
import { withoutCredentials } from "../src/internal/failure.ts"
import { sentence } from "../src/internal/reasons.ts"
import { printable, table } from "../src/internal/table.ts"
import {
  formatBytes,
  formatInstant,
  formatMillis,
  parseDuration,
  parseSize,
  parseWhole
} from "../src/internal/units.ts"

describe("what an operator writes", () => {
  it("[O-02] reads sizes with a unit, and nothing else", () => {
    expect(parseSize("512MiB")).toEqual(Option.some(536_870_912n))
    expect(parseSize("10GB")).toEqual(Option.some(10_000_000_000n))
    expect(parseSize("1.5 GiB")).toEqual(Option.some(1_610_612_736n))
    for (const wrong of ["", "10", "10 gb", "-1GB", "MiB", "1e3MiB", "0.3B", "512MiBs"]) {
      expect(parseSize(wrong), wrong).toEqual(Option.none())
    }
  })

  it("[O-02] reads durations with a unit, and nothing else", () => {
    expect(parseDuration("12 hours")).toEqual(Option.some(Duration.hours(12)))
    expect(parseDuration("7 days")).toEqual(Option.some(Duration.days(7)))
    expect(parseDuration("1 Day")).toEqual(Option.some(Duration.days(1)))
    expect(parseDuration("90m")).toEqual(Option.some(Duration.minutes(90)))
    expect(parseDuration("2w")).toEqual(Option.some(Duration.days(14)))
    // `ms` looks like the plural of `m`, and a minute is sixty thousand times as long.
    for (const wrong of ["", "12", "yesterday", "-1 days", "1 ms", "5 millis", "1 month", "Infinity"]) {
      expect(parseDuration(wrong), wrong).toEqual(Option.none())
    }
  })

  it("[O-02] reads whole numbers within their bounds", () => {
    const read = parseWhole(1, 50)
    expect(read("1")).toEqual(Option.some(1))
    expect(read("50")).toEqual(Option.some(50))
    for (const wrong of ["0", "51", "-1", "1.5", "1e1", "", " 7", "0x10", "99999999999999999999"]) {
      expect(read(wrong), wrong).toEqual(Option.none())
    }
  })
})

describe("what an operator reads", () => {
  it("[O-03] writes bytes in IEC units", () => {
    expect(
      [0n, 1n, 1023n, 1024n, 1536n, 10_188n, 10_240n, 1_048_063n, 1_048_064n, 1_468_006n, 2n ** 40n].map(
        formatBytes
      )
    ).toEqual([
      "0 B",
      "1 B",
      "1023 B",
      "1.0 KiB",
      "1.5 KiB",
      "9.9 KiB",
      "10 KiB",
      "1023 KiB",
      "1.0 MiB",
      "1.4 MiB",
      "1.0 TiB"
    ])
  })

  it("[O-03] writes times to what matters", () => {
    expect(formatInstant(DateTime.makeUnsafe("2026-11-30T11:42:59.999Z"))).toBe("2026-11-30 11:42")
    expect([0, 999, 1000, 59_949, 125_000].map(formatMillis)).toEqual([
      "0 ms",
      "999 ms",
      "1.0 s",
      "59.9 s",
      "2 min 5 s"
    ])
  })

  it("[O-03] aligns columns by what is seen, figures to the right", () => {
    expect(
      table(
        [{ title: "NAME" }, { title: "SIZE", align: "right" }, { title: "WHY" }],
        [
          ["a", "1.0 MiB", "x"],
          ["日本", "9 B", ""]
        ]
      )
    ).toEqual(["NAME     SIZE  WHY", "a     1.0 MiB  x", "日本      9 B"])
  })

  it("[O-03] never passes control characters of a name or a note to the terminal", () => {
    expect(printable("a\u001b[2Jb\u009b0m\nc\u202edlrow")).toBe("a\\u001b[2Jb\\u009b0m\\u000ac\\u202edlrow")
  })

  it("[O-03] says one sentence per reason, and names no more than three of a kind", () => {
    expect(sentence({ _tag: "Current" })).toBe("the current version of its skill")
    const runIds = [1, 2, 3, 4, 5].map((digit) =>
      Ids.RunId.make(`${digit}0000000-0000-4000-8000-000000000000`)
    )
    expect(sentence({ _tag: "ActiveRun", runIds })).toBe(
      `pinned by runs ${runIds[0]}, ${runIds[1]}, ${runIds[2]} and 2 more`
    )
    expect(sentence({ _tag: "ActiveRun", runIds: runIds.slice(0, 1) })).toBe(`pinned by run ${runIds[0]}`)
    expect(sentence({ _tag: "Unreadable", code: "EACCES", path: "x/y" })).toBe("cannot be read (EACCES): x/y")
  })

  it("[O-03] hides the credentials of every URL", () => {
    expect(withoutCredentials('no postgres://user:hun@ter2@db/x and "http://a@b"')).toBe(
      'no postgres://***@db/x and "http://***@b"'
    )
    expect(withoutCredentials("postgres://db/x?user=a&password=hunter2&sslmode=on")).toBe(
      "postgres://db/x?user=a&password=***&sslmode=on"
    )
  })
})
