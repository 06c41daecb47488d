/**
 * Counts what lies on disk and what went, for the status page: in the background and seldom, however many
 * look at the page.
 */
import type { Ids } from "@reclaim/core"
import { DatabaseClock, Journal } from "@reclaim/db"
import { InstanceRoots, PosixFileSystem, Trees, VersionStore } from "@reclaim/fs"
import { BackupExpiration, HostControls } from "@reclaim/runtime"
import { Cause, Context, DateTime, Duration, Effect, Layer, Option, Ref, Result, Stream } from "effect"
import type * as Output from "../../Output.ts"
import { addDiagnosis, emptyDiagnosis } from "../backups.ts"

/** What one company has on disk. */
export interface Holding {
  readonly companyId: Ids.CompanyId
  readonly copies: number
  readonly allocatedBytes: bigint
  /** Leftovers, and what is not ours. */
  readonly others: number
}

/** What went on one day, from midnight to midnight UTC. */
export interface Day {
  readonly day: DateTime.Utc
  readonly copies: number
  readonly copyBytes: bigint
  readonly backups: number
  readonly backupBytes: bigint
}

export interface Findings {
  readonly at: DateTime.Utc
  /** The largest first. */
  readonly companies: ReadonlyArray<Holding>
  /** None where the expiration is disabled. */
  readonly backups: Option.Option<Output.BackupSummary>
  readonly volume: Option.Option<PosixFileSystem.VolumeInfo>
  /** One for each of the last days, today last. */
  readonly days: ReadonlyArray<Day>
}

/** What was found last; none before the first survey has ended. */
export class Survey extends Context.Service<
  Survey,
  { readonly latest: Effect.Effect<Option.Option<Findings>> }
>()("@reclaim/cli/Survey") {}

// 15 minutes: figures of a page that a person looks at now and then.
const interval = Duration.minutes(15)
// A tenth of the time at most, on an instance where one survey takes long.
const rest = 10
// 30 days: what fits in a chart on a phone; the journal keeps 90.
const shownDays = 30

// 256: some messages to the threads at a time, and some kilobytes of entries in memory.
const measuredAtOnce = 256

type Occupant = VersionStore.Entry | VersionStore.Obstacle

const isOccupant = (entry: VersionStore.StoreEntry): entry is Occupant =>
  entry._tag === "Entry" || entry._tag === "Obstacle"

const holdings = Effect.gen(function* () {
  const store = yield* VersionStore.VersionStore
  const trees = yield* Trees.Trees
  const found = new Map<Ids.CompanyId, Holding>()
  const add = (entry: Occupant, allocatedBytes: bigint) => {
    const { companyId } = entry
    const before = found.get(companyId) ?? { companyId, copies: 0, allocatedBytes: 0n, others: 0 }
    const copy = entry._tag === "Entry" && entry.name._tag === "Copy"
    found.set(companyId, {
      companyId,
      copies: before.copies + (copy ? 1 : 0),
      others: before.others + (copy ? 0 : 1),
      allocatedBytes: before.allocatedBytes + allocatedBytes
    })
  }
  yield* store.entries().pipe(
    Stream.filter(isOccupant),
    Stream.grouped(measuredAtOnce),
    Stream.runForEach(
      Effect.fnUntraced(function* (occupants) {
        for (const entry of occupants) if (entry._tag === "Obstacle") add(entry, 0n)
        const entries = occupants.filter((entry) => entry._tag === "Entry")
        const usages = yield* trees.usages(entries.map(({ path }) => path))
        for (const [index, entry] of entries.entries()) {
          const usage = usages[index]
          // What goes while it is measured takes no room.
          add(entry, usage !== undefined && Result.isSuccess(usage) ? usage.success.allocatedBytes : 0n)
        }
      })
    )
  )
  return [...found.values()].toSorted((left, right) =>
    left.allocatedBytes === right.allocatedBytes
      ? left.companyId < right.companyId
        ? -1
        : 1
      : left.allocatedBytes < right.allocatedBytes
        ? 1
        : -1
  )
})

const backupsHeld = Effect.gen(function* () {
  const expiration = yield* Effect.serviceOption(BackupExpiration.BackupExpiration)
  if (Option.isNone(expiration)) return Option.none()
  return Option.some(yield* Stream.runFold(expiration.value.diagnose(), () => emptyDiagnosis, addDiagnosis))
})

const history = Effect.gen(function* () {
  const journal = yield* Journal.Journal
  const clock = yield* DatabaseClock.DatabaseClock
  const today = DateTime.startOf(yield* clock.now, "day")
  const first = DateTime.subtract(today, { days: shownDays - 1 })
  const days = Array.from({ length: shownDays }, (_, index): Day => ({
    day: DateTime.add(first, { days: index }),
    copies: 0,
    copyBytes: 0n,
    backups: 0,
    backupBytes: 0n
  }))
  const byDay = new Map(days.map((day) => [DateTime.toEpochMillis(day.day), day]))
  for (const { allocatedBytes, count, day, event } of yield* journal.daily(first)) {
    const key = DateTime.toEpochMillis(day)
    const before = byDay.get(key)
    if (before === undefined) continue
    if (event === "evicted") {
      byDay.set(key, {
        ...before,
        copies: before.copies + count,
        copyBytes: before.copyBytes + allocatedBytes
      })
    } else if (event === "expired") {
      byDay.set(key, {
        ...before,
        backups: before.backups + count,
        backupBytes: before.backupBytes + allocatedBytes
      })
    }
  }
  return [...byDay.values()]
})

const look = Effect.gen(function* () {
  const posix = yield* PosixFileSystem.PosixFileSystem
  const roots = yield* InstanceRoots.InstanceRoots
  return {
    companies: yield* holdings,
    backups: yield* backupsHeld,
    days: yield* history,
    volume: yield* Effect.option(posix.volume(roots.instance)),
    at: yield* DateTime.now
  } satisfies Findings
})

/** Looks at once and then every quarter of an hour, while the host is active. */
export const layer: Layer.Layer<
  Survey,
  never,
  | DatabaseClock.DatabaseClock
  | HostControls.HostControls
  | InstanceRoots.InstanceRoots
  | Journal.Journal
  | PosixFileSystem.PosixFileSystem
  | Trees.Trees
  | VersionStore.VersionStore
> = Layer.effect(
  Survey,
  Effect.gen(function* () {
    const controls = yield* HostControls.HostControls
    const latest = yield* Ref.make(Option.none<Findings>())
    yield* Effect.forkScoped(
      Effect.forever(
        Effect.gen(function* () {
          yield* controls.changes.pipe(
            Stream.filter((phase) => phase === "active"),
            Stream.runHead
          )
          const [took] = yield* look.pipe(
            Effect.flatMap((findings) => Ref.set(latest, Option.some(findings))),
            Effect.catchCauseIf(
              (cause) => !Cause.hasInterruptsOnly(cause),
              (cause) => Effect.logWarning("what lies on disk could not be counted", cause)
            ),
            Effect.timed
          )
          yield* Effect.sleep(Duration.max(interval, Duration.times(took, rest)))
        })
      )
    )
    return { latest: Ref.get(latest) }
  })
)
