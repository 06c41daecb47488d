/** Draws what went per day. The words stay outside of the picture, so that they are readable at any width. */
import { DateTime } from "effect"
import { count, formatBytes } from "../units.ts"
import { element, type Markup } from "./markup.ts"
import type { Day } from "./survey.ts"

const total = (day: Day): bigint => day.copyBytes + day.backupBytes

const dateOf = (day: DateTime.Utc): string => DateTime.formatIso(day).slice(0, 10)

const describe = (day: Day): string =>
  `${dateOf(day.day)}: ${count(day.copies, "copy", "copies")}, ${formatBytes(day.copyBytes)}; ` +
  `${count(day.backups, "backup")}, ${formatBytes(day.backupBytes)}`

// Units of the picture, which is stretched to the width of the page.
const slot = 20
const barWidth = 14
const height = 120

const bar = (kind: "copies" | "backups", index: number, from: number, to: number): Markup =>
  element("rect", {
    class: kind,
    x: index * slot + (slot - barWidth) / 2,
    y: (height - to).toFixed(2),
    width: barWidth,
    height: (to - from).toFixed(2)
  })

const picture = (days: ReadonlyArray<Day>, largest: bigint): Markup => {
  const width = days.length * slot
  const scale = (bytes: bigint) => (Number(bytes) / Number(largest)) * height
  return element(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": `What was reclaimed on each of the last ${days.length} days; the table below tells the same`
    },
    [0, 0.5].map((line) =>
      element("line", { class: "grid", x1: 0, x2: width, y1: line * height, y2: line * height })
    ),
    days.map((day, index) =>
      element(
        "g",
        {},
        element("title", {}, describe(day)),
        // All of the day's height answers the pointer, not its bar alone.
        element("rect", { class: "day", x: index * slot, y: 0, width: slot, height }),
        bar("copies", index, 0, scale(day.copyBytes)),
        bar("backups", index, scale(day.copyBytes), scale(total(day)))
      )
    ),
    element("line", { class: "axis", x1: 0, x2: width, y1: height, y2: height })
  )
}

const table = (days: ReadonlyArray<Day>): Markup =>
  element(
    "table",
    {},
    element("caption", { class: "unseen" }, "Reclaimed per day, in UTC"),
    element(
      "thead",
      {},
      element(
        "tr",
        {},
        element("th", { scope: "col" }, "Day"),
        ["Copies", "Size", "Backups", "Size"].map((title) =>
          element("th", { scope: "col", class: "figure" }, title)
        )
      )
    ),
    element(
      "tbody",
      {},
      days
        .filter((day) => day.copies + day.backups > 0)
        .toReversed()
        .map((day) =>
          element(
            "tr",
            {},
            element("th", { scope: "row" }, dateOf(day.day)),
            element("td", { class: "figure" }, day.copies.toLocaleString("en-US")),
            element("td", { class: "figure" }, formatBytes(day.copyBytes)),
            element("td", { class: "figure" }, day.backups.toLocaleString("en-US")),
            element("td", { class: "figure" }, formatBytes(day.backupBytes))
          )
        )
    )
  )

/** A chart with its legend, and a table of the same figures. */
export const chart = (days: ReadonlyArray<Day>): Markup => {
  const largest = days.reduce((most, day) => (total(day) > most ? total(day) : most), 0n)
  const sum = days.reduce((all, day) => all + total(day), 0n)
  if (sum === 0n) {
    return element("p", { class: "quiet" }, `Nothing went in the last ${days.length} days.`)
  }
  const first = days[0]
  const last = days.at(-1)
  return element(
    "figure",
    {},
    element(
      "figcaption",
      {},
      element("strong", {}, formatBytes(sum)),
      ` in ${days.length} days. `,
      element("span", { class: "key" }, element("span", { class: "swatch copies" }), "skill versions"),
      " ",
      element("span", { class: "key" }, element("span", { class: "swatch backups" }), "session backups")
    ),
    element("div", { class: "most quiet" }, `${formatBytes(largest)} on the day with the most`),
    picture(days, largest),
    element(
      "div",
      { class: "ends quiet" },
      element("span", {}, first === undefined ? "" : dateOf(first.day)),
      element("span", {}, last === undefined ? "" : dateOf(last.day))
    ),
    element(
      "details",
      {},
      element("summary", {}, "The figures"),
      element("div", { class: "scroll" }, table(days))
    )
  )
}
