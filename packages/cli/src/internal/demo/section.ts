import { Effect } from "effect"
import { Printer } from "../printer.ts"

/** Begins a part of the demonstration. */
export const section = Effect.fnUntraced(function* (title: string, ...about: ReadonlyArray<string>) {
  const printer = yield* Printer
  yield* printer.lines("", title, "-".repeat(title.length), ...about, ...(about.length > 0 ? [""] : []))
})
