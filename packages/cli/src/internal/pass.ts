/** What the sweeps of both workers print alike: each batch as it ends, under one head, then the whole. */
import { Effect, Option, Stream } from "effect"
import type * as Output from "../Output.ts"
import type { OutputClosed } from "./process.ts"
import { Printer } from "./printer.ts"
import { heading } from "./reasons.ts"
import { type Column, row } from "./table.ts"
import { count } from "./units.ts"

/** A batch of either worker. */
interface Batch<Report> {
  readonly report: Report
  readonly dryRun: boolean
  readonly continuation: Option.Option<string>
}

/** The batches so far, added up. */
interface Pass<Report> {
  readonly batches: number
  readonly report: Report
  readonly dryRun: boolean
  readonly continuation: string | null
}

/** How often each reason kept something, most often first. */
export const reasonRows = (counts: Output.Counts): ReadonlyArray<ReadonlyArray<string>> =>
  Object.entries(counts)
    .toSorted(([left, a], [right, b]) => b - a || (left < right ? -1 : 1))
    .map(([tag, times]) => [times.toLocaleString("en-US"), tag, heading(tag)])

export const reasonColumns: ReadonlyArray<Column> = [
  { title: "STAYED", align: "right" },
  { title: "REASON" },
  { title: "BECAUSE" }
]

/** What both workers count. */
interface Counted {
  readonly skipped: Output.Counts
  readonly errors: number
}

/** What a worker's batches and its whole pass look like. */
interface Shape<Report> {
  readonly empty: Report
  readonly combine: (left: Report, right: Report) => Report
  readonly columns: ReadonlyArray<Column>
  readonly cells: (number: number, report: Report) => ReadonlyArray<string>
  readonly document: (
    report: Report,
    dryRun: boolean,
    continuation: string | null
  ) => Effect.Effect<void, OutputClosed>
  readonly progress: (report: Report) => string
  readonly summary: (pass: Pass<Report>) => Effect.Effect<void, OutputClosed>
  /** What the pass came to, in lines for a person. */
  readonly told: (pass: Pass<Report>) => ReadonlyArray<string>
}

/** Prints each batch of a pass as it ends, then the whole. Returns the batches added up. */
export const printPass = Effect.fnUntraced(function* <Report extends Counted, E, R>(
  batches: Stream.Stream<Batch<Report>, E, R>,
  start: { readonly dryRun: boolean; readonly continuation: string | null },
  shape: Shape<Report>
) {
  const printer = yield* Printer
  const pass = yield* batches.pipe(
    Stream.runFoldEffect(
      (): Pass<Report> => ({ batches: 0, report: shape.empty, ...start }),
      Effect.fnUntraced(function* (before, batch) {
        const continuation = Option.getOrNull(batch.continuation)
        if (before.batches === 0) {
          yield* printer.lines(
            row(
              shape.columns,
              shape.columns.map(({ title }) => title)
            )
          )
        }
        yield* shape.document(batch.report, batch.dryRun, continuation)
        const pass: Pass<Report> = {
          batches: before.batches + 1,
          report: shape.combine(before.report, batch.report),
          dryRun: batch.dryRun,
          continuation
        }
        yield* printer.lines(row(shape.columns, shape.cells(pass.batches, batch.report)))
        yield* printer.progress(shape.progress(pass.report))
        return pass
      })
    )
  )
  const { continuation, report } = pass
  yield* shape.summary(pass)
  if (Object.keys(report.skipped).length > 0) {
    yield* printer.lines("")
    yield* printer.table(reasonColumns, reasonRows(report.skipped))
  }
  yield* printer.lines(
    "",
    ...shape.told(pass),
    ...(report.errors > 0 ? [`${count(report.errors, "error")}; --log-level info tells more`] : []),
    ...(continuation === null ? [] : [`stopped early; go on with --continue ${continuation}`])
  )
  return report
})
