/** Chooses which cells of the matrix a run takes. */
import { Effect, Random } from "effect"
import type { Cell } from "./Cell.ts"
import { type Column, columns, type Event, isItself, strikes } from "./Faults.ts"

/** What each scenario does when nothing happens to it, in order. */
export type Traces = ReadonlyMap<string, ReadonlyArray<Event>>

/** A point and a column, with the cells that stand for it: another is taken where one meets nothing after all. */
export interface Entry {
  readonly point: string
  readonly column: Column
  readonly cells: ReadonlyArray<Cell>
}

/** Where in a trace a point is reached. */
const reached = (trace: ReadonlyArray<Event>, point: string): ReadonlyArray<number> =>
  trace.flatMap((event, at) => (event._tag === "Point" && event.point === point ? [at] : []))

export const isReached = (traces: Traces, point: string): boolean =>
  [...traces.values()].some((trace) => reached(trace, point).length > 0)

/**
 * The cells of a point and a column in which the fault meets something: the first time that a scenario reaches
 * the point, the time in the middle, and the last.
 */
const cellsOf = (traces: Traces, point: string, column: Column): ReadonlyArray<Cell> =>
  [...traces].flatMap(([scenario, trace]) => {
    const places = reached(trace, point)
    const chosen = new Set([0, Math.ceil(places.length / 2) - 1, places.length - 1])
    return [...chosen].flatMap((index) => {
      const at = places[index]
      if (at === undefined) return []
      const meets = isItself(column) || trace.slice(at).some((event) => strikes(column, event))
      return meets ? [{ scenario, point, occurrence: index + 1, column }] : []
    })
  })

/** Every point and column that mean something. */
export const everything = (traces: Traces, points: ReadonlyArray<string>): ReadonlyArray<Entry> =>
  points.flatMap((point) =>
    columns.flatMap((column) => {
      const cells = cellsOf(traces, point, column)
      return cells.length === 0 ? [] : [{ point, column, cells }]
    })
  )

// 3 times as often as another column: what a process that is killed leaves is what the rest is built on.
const weight = (column: Column) => (column === "kill" ? 3 : 1)

/** Every point once, with the column that was taken least so far of those that mean something there. */
export const some = Effect.fnUntraced(function* (traces: Traces, points: ReadonlyArray<string>) {
  const all = yield* Random.shuffle(everything(traces, points))
  const taken = new Map<Column, number>()
  const share = ({ column }: Entry) => (taken.get(column) ?? 0) / weight(column)
  const entries: Array<Entry> = []
  // Those first that have the least choice.
  const choices = (point: string) => all.filter((entry) => entry.point === point)
  for (const point of points.toSorted((a, b) => choices(a).length - choices(b).length)) {
    const entry = choices(point).reduce((least, each) => (share(each) < share(least) ? each : least))
    taken.set(entry.column, (taken.get(entry.column) ?? 0) + 1)
    entries.push({ ...entry, cells: yield* Random.shuffle(entry.cells) })
  }
  return yield* Random.shuffle(entries)
})
