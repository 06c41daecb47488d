/** A printer that keeps the documents it is given, for whoever prints to a program. */
import { Effect, Layer, Ref, Schema } from "effect"
import { Printer } from "../../src/internal/printer.ts"

export const layer = (documents: Ref.Ref<ReadonlyArray<unknown>>): Layer.Layer<Printer> =>
  Layer.mock(Printer, {
    json: true,
    lines: () => Effect.void,
    table: () => Effect.void,
    progress: () => Effect.void,
    document: (schema, value) =>
      Schema.encodeEffect(schema)(value).pipe(
        Effect.orDie,
        Effect.flatMap((document) => Ref.update(documents, (all) => [...all, document]))
      )
  })
