/** What the sweeps of both workers print alike: each batch as it ends, under one head. */
import { Effect, Option, Stream } from "effect"
import type { OutputClosed } from "./process.ts"
import { Printer } from "./printer.ts"
import { type Column, row } from "./table.ts"

/** A batch of either worker. */
interface Batch<Report> {
  readonly report: Report
  readonly dryRun: boolean
  readonly continuation: Option.Option<string>
}

/** The batches so far, added up. */
export interface Pass<Report> {
  readonly batches: number
  readonly report: Report
  readonly dryRun: boolean
  readonly continuation: string | null
}

/** What a worker's batches look like. */
export interface Shape<Report> {
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
}

/** Prints each batch of a pass as it ends, and adds them up. */
export const printBatches = Effect.fnUntraced(function* <Report, E, R>(
  batches: Stream.Stream<Batch<Report>, E, R>,
  start: { readonly dryRun: boolean; readonly continuation: string | null },
  shape: Shape<Report>
) {
  const printer = yield* Printer
  return yield* batches.pipe(
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
})
