/** Prints either for a person or for a program, and never mixes the two. */
import { Context, Effect, Layer, Ref, Schema, Stdio } from "effect"
import * as Output from "../Output.ts"
import type { Shown } from "./failure.ts"
import { write } from "./process.ts"
import type { OutputClosed } from "./process.ts"
import { printable, table } from "./table.ts"
import type { Column } from "./table.ts"

/**
 * With `--json` the documents alone go to standard output, otherwise what a person reads does. Progress and
 * errors for a person go to standard error.
 */
export class Printer extends Context.Service<
  Printer,
  {
    /** Whether a program reads. */
    readonly json: boolean
    /** A document for a program. Prints nothing for a person. */
    readonly document: <A, I>(schema: Schema.Codec<A, I>, value: A) => Effect.Effect<void, OutputClosed>
    /** Lines for a person. Prints nothing for a program. */
    readonly lines: (...lines: ReadonlyArray<string>) => Effect.Effect<void, OutputClosed>
    /** A table for a person. */
    readonly table: (
      columns: ReadonlyArray<Column>,
      rows: ReadonlyArray<ReadonlyArray<string>>
    ) => Effect.Effect<void, OutputClosed>
    /** What is going on, on one line of a terminal that the next one replaces. */
    readonly progress: (text: string) => Effect.Effect<void>
    /** The error that ends the command. */
    readonly failure: (shown: Shown) => Effect.Effect<void>
    /** A line on standard error, whoever reads the results. */
    readonly log: (text: string) => Effect.Effect<void>
    /** A line for a person that must not mix with results. */
    readonly aside: (text: string) => Effect.Effect<void>
  }
>()("@reclaim/cli/Printer") {}

const clearLine = "\r\u001b[2K"

export const layer = (options: { readonly json: boolean }): Layer.Layer<Printer, never, Stdio.Stdio> =>
  Layer.effect(
    Printer,
    Effect.gen(function* () {
      const { json } = options
      const stdio = yield* Stdio.Stdio
      const showProgress = !json && (yield* stdio.stderrIsTerminal)
      const pending = yield* Ref.make(false)
      const clear = Effect.flatMap(Ref.getAndSet(pending, false), (shown) =>
        shown ? Effect.ignore(write("stderr", clearLine)) : Effect.void
      )
      const lines = (...all: ReadonlyArray<string>) =>
        json
          ? Effect.void
          : Effect.andThen(clear, write("stdout", all.map((line) => `${printable(line)}\n`).join("")))
      const aside = (text: string) =>
        Effect.andThen(clear, Effect.ignore(write("stderr", `${printable(text)}\n`)))
      const document = <A, I>(schema: Schema.Codec<A, I>, value: A) =>
        json
          ? Schema.encodeEffect(schema)(value).pipe(
              Effect.orDie,
              Effect.flatMap((encoded) => write("stdout", `${JSON.stringify(encoded)}\n`))
            )
          : Effect.void
      return Printer.of({
        json,
        document,
        lines,
        table: (columns, rows) => lines(...table(columns, rows)),
        progress: (text) =>
          showProgress
            ? Ref.set(pending, true).pipe(
                Effect.andThen(Effect.ignore(write("stderr", `${clearLine}${printable(text)}`)))
              )
            : Effect.void,
        failure: ({ _tag, message }) =>
          json
            ? Effect.ignore(document(Output.Failure, { type: "error", _tag, message }))
            : aside(`reclaim: ${message}`),
        log: aside,
        aside: (text) => (json ? Effect.void : aside(text))
      })
    })
  )
