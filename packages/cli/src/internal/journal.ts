/** `reclaim journal`. */
import type { Ids } from "@reclaim/core"
import { DatabaseClock, Journal } from "@reclaim/db"
import { DateTime, Effect, Option, Predicate, Stream } from "effect"
import type { Duration } from "effect"
import { Command, Flag } from "effect/cli"
import * as Output from "../Output.ts"
import { layerOwn } from "./connection.ts"
import * as Flags from "./flags.ts"
import type { Subcommand } from "./flags.ts"
import { Printer } from "./printer.ts"
import { row } from "./table.ts"
import { formatBytes, formatInstant } from "./units.ts"

// Entries are printed as they come, so the widths are those of what is usual.
const columns = [
  { title: "WHEN (UTC)", width: 16 },
  { title: "EVENT", width: 10 },
  { title: "SIZE", width: 8, align: "right" },
  { title: "COMPANY", width: 36 },
  { title: "WHAT", width: 36 },
  { title: "BY" }
] as const

const reasonTag = (detail: unknown): string =>
  Predicate.hasProperty(detail, "reason") &&
  Predicate.hasProperty(detail.reason, "_tag") &&
  Predicate.isString(detail.reason._tag)
    ? ` (${detail.reason._tag})`
    : ""

const print = Effect.fnUntraced(function* (
  companyId: Option.Option<Ids.CompanyId>,
  since: Option.Option<Duration.Duration>
) {
  const printer = yield* Printer
  const journal = yield* Journal.Journal
  const now = yield* Effect.flatMap(DatabaseClock.DatabaseClock, (clock) => clock.now)
  const from = Option.match(since, {
    onNone: () => DateTime.makeUnsafe(0),
    onSome: (duration) => DateTime.subtractDuration(now, duration)
  })
  const printed = yield* journal.since(from, Option.getOrUndefined(companyId)).pipe(
    Stream.runFoldEffect(
      () => 0,
      Effect.fnUntraced(function* (printed, entry) {
        if (printed === 0)
          yield* printer.lines(
            row(
              columns,
              columns.map(({ title }) => title)
            )
          )
        yield* printer.document(Output.JournalEntry, { type: "journal", ...entry })
        yield* printer.lines(
          row(columns, [
            formatInstant(entry.at),
            `${entry.event}${reasonTag(entry.detail)}`,
            formatBytes(entry.allocatedBytes),
            entry.companyId ?? "",
            entry.versionId ?? entry.scope ?? "",
            `${entry.worker} on ${entry.server}`
          ])
        )
        return printed + 1
      })
    )
  )
  if (printed === 0) yield* printer.lines("the journal has no entry")
})

export const journal: Subcommand<"journal"> = Command.make(
  "journal",
  {
    company: Flags.company.pipe(Flag.optional),
    since: Flags.duration("since", "How far back; everything that is kept unless it is given").pipe(
      Flag.optional
    )
  },
  ({ company, since }) => Effect.provide(print(company, since), layerOwn)
).pipe(
  Command.withDescription("Tell what went, when, why and by whom; the newest entry comes last"),
  Command.withExamples([
    { command: "reclaim journal --since '12 hours'", description: "What happened tonight" }
  ])
)
