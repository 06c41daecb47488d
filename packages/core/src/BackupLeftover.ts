/**
 * Decides what becomes of the folders that an interrupted backup or expiration left in a session scope: of
 * all of them together, because what one may become depends on the others.
 *
 * **Details**
 *
 * | leftover | state | action |
 * |---|---|---|
 * | retiring | without a valid manifest | stays |
 * | | `current` missing, the newest with a valid manifest | becomes `current`, unless `previous` is newer |
 * | | `current` missing, an older one | waits until the newest is `current` |
 * | | `current` newer, its digests verified | becomes expired |
 * | | `current` newer, its digests not compared | verify `current` and decide again |
 * | | `current` not newer, without a valid manifest, or damaged | stays |
 * | expired | no unfinished run | is deleted |
 * | | an unfinished run, another backup in the scope | stays |
 * | | an unfinished run, no other backup, the newest with a valid manifest | once its own digests verify it becomes `current`, because then its deletion had not begun |
 * | | an unfinished run otherwise, or runs not known | stays |
 * | pending | younger than 24 hours | stays |
 * | | no unfinished run | becomes expired |
 * | | an unfinished run, or runs not known | stays |
 *
 * Nothing of a scope that an operator holds is deleted or becomes expired. Only what is expired is ever
 * deleted, and every action but a deletion is one rename.
 *
 * @since 0.1.0
 */
import { DateTime, Duration, Option } from "effect"

/**
 * Whether the contents of a backup equal the digests of its manifest, as far as they were compared.
 *
 * @category models
 * @since 0.1.0
 */
export type Digests = "unverified" | "verified" | "failed"

/**
 * A backup in a scope. `completedAt` comes from its manifest; it is none when the manifest is missing, is not
 * understood, or is another session's, and so also when the entry is no folder.
 *
 * @category models
 * @since 0.1.0
 */
export interface Backup {
  readonly completedAt: Option.Option<DateTime.Utc>
  readonly digests: Digests
}

/**
 * Everything that decides about a scope's leftovers.
 *
 * - `current`, `previous`: none only when nothing has that name.
 * - `retiring`, `expired`, `pending`: each under its own name.
 * - `pending[].age` comes from the folder's mtime and may be negative where a clock stepped.
 * - `runs`: `unfinished` when a run of the session is; `unknown` when its runs are not known.
 * - `held`: whether an operator holds the scope.
 *
 * @category models
 * @since 0.1.0
 */
export interface ScopeFacts {
  readonly current: Option.Option<Backup>
  readonly previous: Option.Option<Backup>
  readonly retiring: ReadonlyArray<Backup & { readonly name: string }>
  readonly expired: ReadonlyArray<Backup & { readonly name: string }>
  readonly pending: ReadonlyArray<{ readonly name: string; readonly age: Duration.Duration }>
  readonly runs: "none" | "unfinished" | "unknown"
  readonly held: boolean
}

/**
 * - `Restore`: rename it to `current`, which must be free.
 * - `ToExpired`: rename it to `.expired-<UUID>`, to be deleted like any other.
 * - `Delete`: remove it.
 * - `Verify`: compare the digests of `current`, or of the leftover `itself`, and decide again.
 * - `Wait`: decide again once the other actions of the scope are done.
 * - `Leave`: it stays; `why` tells an operator.
 *
 * @category models
 * @since 0.1.0
 */
export type Action =
  | { readonly _tag: "Restore" }
  | { readonly _tag: "ToExpired" }
  | { readonly _tag: "Delete" }
  | { readonly _tag: "Verify"; readonly what: "current" | "itself" }
  | { readonly _tag: "Wait" }
  | { readonly _tag: "Leave"; readonly why: Why }

/**
 * | why | it stays because |
 * |---|---|
 * | `young` | somebody may still be writing it |
 * | `damaged` | it has no valid manifest |
 * | `currentDamaged` | `current` has no valid manifest, or other contents than its digests |
 * | `notOlder` | `current` is not newer |
 * | `previousNewer` | it would hide the newer `previous` |
 * | `runUnfinished` | a run of the session is not finished |
 * | `runsUnknown` | the session's runs are not known |
 * | `held` | an operator holds the scope |
 *
 * @category models
 * @since 0.1.0
 */
export type Why =
  | "young"
  | "damaged"
  | "currentDamaged"
  | "notOlder"
  | "previousNewer"
  | "runUnfinished"
  | "runsUnknown"
  | "held"

/** What becomes of one leftover. @category models @since 0.1.0 */
export interface Settlement {
  readonly kind: "Retiring" | "Expired" | "Pending"
  readonly name: string
  readonly action: Action
}

// 24 hours: B-09 fixes it; no capture of a session's home takes as long.
const pendingAge = Duration.hours(24)

const leave = (why: Why): Action => ({ _tag: "Leave", why })

/** The newest of the backups with a valid manifest; of several equally new ones the last by name. */
const newestOf = (backups: ReadonlyArray<Backup & { readonly name: string }>) => {
  let newest: { readonly name: string; readonly at: DateTime.Utc; readonly digests: Digests } | undefined
  for (const { completedAt, digests, name } of backups) {
    if (Option.isNone(completedAt)) continue
    const at = completedAt.value
    if (
      newest === undefined ||
      DateTime.isGreaterThan(at, newest.at) ||
      (DateTime.Equivalence(at, newest.at) && name > newest.name)
    ) {
      newest = { name, at, digests }
    }
  }
  return newest
}

const completedAt = (backup: Option.Option<Backup>) => Option.flatMap(backup, (it) => it.completedAt)

/**
 * Settles the leftovers of one scope. Total over every state, so that a test can enumerate them. At most one
 * leftover becomes `current`.
 *
 * @category queries
 * @since 0.1.0
 */
export const settle = (facts: ScopeFacts): ReadonlyArray<Settlement> => {
  const { current, held, runs } = facts
  const newest = newestOf(facts.retiring)
  const previousNewer =
    newest !== undefined &&
    Option.exists(completedAt(facts.previous), (at) => DateTime.isGreaterThan(at, newest.at))

  const settleRetiring = (name: string, backup: Backup): Action => {
    if (Option.isNone(backup.completedAt)) return leave("damaged")
    if (Option.isNone(current)) {
      if (previousNewer) return leave("previousNewer")
      return name === newest?.name ? { _tag: "Restore" } : { _tag: "Wait" }
    }
    if (Option.isNone(current.value.completedAt)) return leave("currentDamaged")
    if (!DateTime.isLessThan(backup.completedAt.value, current.value.completedAt.value)) {
      return leave("notOlder")
    }
    if (held) return leave("held")
    switch (current.value.digests) {
      case "unverified":
        return { _tag: "Verify", what: "current" }
      case "verified":
        return { _tag: "ToExpired" }
      case "failed":
        return leave("currentDamaged")
    }
  }

  // A backup whose digests fail was being deleted when its process died: it is no candidate to come back.
  const newestExpired = newestOf(facts.expired.filter(({ digests }) => digests !== "failed"))
  const hasOther = Option.isSome(current) || Option.isSome(facts.previous) || newest !== undefined

  const settleExpired = (name: string, backup: Backup): Action => {
    if (held) return leave("held")
    switch (runs) {
      case "none":
        return { _tag: "Delete" }
      case "unknown":
        return leave("runsUnknown")
      case "unfinished":
        if (hasOther || Option.isNone(backup.completedAt) || backup.digests === "failed") {
          return leave("runUnfinished")
        }
        if (name !== newestExpired?.name) return { _tag: "Wait" }
        return backup.digests === "verified" ? { _tag: "Restore" } : { _tag: "Verify", what: "itself" }
    }
  }

  const settlePending = (age: Duration.Duration): Action => {
    if (Duration.isLessThan(age, pendingAge)) return leave("young")
    if (held) return leave("held")
    switch (runs) {
      case "none":
        return { _tag: "ToExpired" }
      case "unknown":
        return leave("runsUnknown")
      case "unfinished":
        return leave("runUnfinished")
    }
  }

  return [
    ...facts.retiring.map((backup): Settlement => ({
      kind: "Retiring",
      name: backup.name,
      action: settleRetiring(backup.name, backup)
    })),
    ...facts.expired.map((backup): Settlement => ({
      kind: "Expired",
      name: backup.name,
      action: settleExpired(backup.name, backup)
    })),
    ...facts.pending.map(({ age, name }): Settlement => ({
      kind: "Pending",
      name,
      action: settlePending(age)
    }))
  ]
}
