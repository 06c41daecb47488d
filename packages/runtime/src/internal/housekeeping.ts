import { DatabaseClock, DatabaseError, type HostSchema, Journal } from "@reclaim/db"
import { DateTime, Duration, Effect, Schema } from "effect"

// 90 days: as long as an operator may ask why something went.
const journalKept = Duration.days(90)

const isDatabaseError = Schema.is(DatabaseError.DatabaseError)

/** Whether the next sweep may do better, so that this one need not end for it. */
export const canWait = (error: unknown): error is DatabaseError.DatabaseError =>
  isDatabaseError(error) && (DatabaseError.isPassing(error) || error.reason._tag === "DiskFull")

/** Leaves to the next sweep what cannot be done now. */
export const orLater = <E, R>(
  what: string,
  effect: Effect.Effect<number, E | DatabaseError.DatabaseError, R>
) =>
  Effect.catchIf(effect, canWait, (error) =>
    Effect.as(Effect.logWarning(`${what} has to wait: ${error.message}`), 0)
  )

/** Removes the oldest entries of the journal. */
export const pruneJournal: Effect.Effect<
  number,
  DatabaseError.DatabaseError | HostSchema.NotAdopted,
  DatabaseClock.DatabaseClock | Journal.Journal
> = Effect.gen(function* () {
  const journal = yield* Journal.Journal
  const clock = yield* DatabaseClock.DatabaseClock
  const before = DateTime.subtractDuration(yield* clock.now, journalKept)
  return yield* orLater("pruning the journal", journal.prune(before))
})
