import { DateTime, Duration } from "effect"

/**
 * Whether something that happened `at` is a whole window old by `clock`. Compared as numbers, because the
 * sum of an instant and a window may lie outside the instants that can be named.
 */
export const isOld = (at: DateTime.Utc, window: Duration.Duration, clock: DateTime.Utc): boolean =>
  DateTime.toEpochMillis(clock) - DateTime.toEpochMillis(at) >= Duration.toMillis(window)

/** When something that happened `at` is a whole window old, for people to read: at most the last instant. */
export const eligibleAt = (at: DateTime.Utc, window: Duration.Duration): DateTime.Utc =>
  DateTime.makeUnsafe(Math.min(DateTime.toEpochMillis(at) + Duration.toMillis(window), 8.64e15))
