/** Puts results into words: a table for people, JSON for machines. */
import type { Figure, Result } from "./Harness.ts"
import type { Spread } from "./Statistics.ts"
import type { Machine } from "./System.ts"

const millis = (value: number): string =>
  value >= 9_995
    ? `${(value / 1000).toFixed(1)} s`
    : value >= 999.5
      ? `${(value / 1000).toFixed(2)} s`
      : `${value < 99.5 ? value.toFixed(1) : value.toFixed(0)} ms`

const bytes = (value: number): string =>
  value >= 1e6 ? `${(value / 1e6).toFixed(1)} MB` : `${(value / 1e3).toFixed(1)} kB`

const shown = (value: number, { unit }: Figure): string =>
  unit === "bytes" ? bytes(value) : unit === "count" ? value.toFixed(1) : millis(value)

const between = ({ max, min }: Spread, show: (value: number) => string) => `${show(min)}..${show(max)}`

const titles = [
  "ID",
  "WHAT",
  "OURS",
  "MEDIAN",
  "MIN..MAX",
  "PEER",
  "MEDIAN",
  "MIN..MAX",
  "RATIO",
  "PAIRS",
  "LOOP P99",
  "STALL",
  "RSS"
]
const right = new Set(["MEDIAN", "RATIO", "LOOP P99", "STALL", "RSS"])

const rows = ({ id, lines }: Result): ReadonlyArray<ReadonlyArray<string>> =>
  lines.map(({ figure, loopP99Millis, ours, peakBytes, peer, ratio, stallMillis }) => [
    id,
    figure.name,
    ours.name,
    shown(ours.median, figure),
    between(ours, (value) => shown(value, figure)),
    peer.name,
    shown(peer.median, figure),
    between(peer, (value) => shown(value, figure)),
    ratio.median.toFixed(2),
    between(ratio, (value) => value.toFixed(2)),
    millis(loopP99Millis),
    millis(stallMillis),
    peakBytes === null ? "?" : `+${bytes(peakBytes)}`
  ])

const align = (table: ReadonlyArray<ReadonlyArray<string>>): ReadonlyArray<string> => {
  const widths = titles.map((_, column) => Math.max(...table.map((row) => (row[column] ?? "").length)))
  return table.map((row) =>
    row
      .map((cell, column) => {
        const width = widths[column] ?? 0
        return right.has(titles[column] ?? "") ? cell.padStart(width) : cell.padEnd(width)
      })
      .join("  ")
      .trimEnd()
  )
}

/** What the figures depend on, one fact to a line. */
const facts = (machine: Machine): ReadonlyArray<string> => [
  `${machine.cpu}, ${machine.cores} cores, ${(machine.memoryBytes / 2 ** 30).toFixed(0)} GiB, ${machine.system}`,
  `${machine.fileSystem} at ${machine.folder}, Node ${machine.node}`,
  `load average ${machine.loadAverage.toFixed(2)} at the start, ${machine.date}`
]

/** A table with one line for each comparison. */
export const human = (machine: Machine, results: ReadonlyArray<Result>): string =>
  [
    ...facts(machine),
    "",
    ...results.map(
      ({ amount, id, pairs, title }) =>
        `${id}  ${title}: ${amount}; ${pairs === 1 ? "1 pair" : `${pairs} pairs`} after a warm-up`
    ),
    "",
    ...align([titles, ...results.flatMap(rows)]),
    "",
    "RATIO is ours by theirs, of the medians; PAIRS is its spread over the single pairs. LOOP P99 and STALL are",
    "the delays of our event loop (the median of each round's p99 and longest), RSS by how much we grew at most."
  ].join("\n")

/** Everything, in one document. */
export const json = (machine: Machine, results: ReadonlyArray<Result>): string =>
  JSON.stringify({ machine, results }, undefined, 2)
