import { FaultPoint, RetentionPolicy, RetentionSettings, VersionReason } from "@reclaim/core"
import {
  DatabaseClock,
  type DatabaseError,
  Journal,
  SkillCatalog,
  SkillPins,
  Transactions
} from "@reclaim/db"
import { AccessRecords, type CopyRef, type FileError, Trees, VersionStore } from "@reclaim/fs"
import { DateTime, Duration, Effect, Option, Schema } from "effect"
import { ServerName } from "../ServerName.ts"
import { versionFacts } from "./facts.ts"

/** A proven copy, with what it looked like while it was proven. */
export interface Candidate {
  readonly copy: CopyRef.CopyRef
  readonly scan: Trees.TreeScan
}

/** Why a copy stayed after all: what the execution met, or what the system refused. */
export type KeptBecause = VersionReason.VersionSkip | VersionReason.Obstacle

/**
 * How an eviction ended: `trash` is the folder to delete. `undone` tells that the copy had been moved.
 */
export type Eviction =
  | { readonly _tag: "Evicted"; readonly trash: string }
  | { readonly _tag: "Kept"; readonly because: KeptBecause; readonly undone: boolean }

/** Leaves the transaction without committing. A move that was made is undone by then. */
class Abandoned extends Schema.TaggedError<Abandoned>()("Abandoned", {
  because: VersionReason.VersionSkip,
  undone: Schema.Boolean
}) {}

// 5 s: far below the 30 s after which the server ends an idle transaction and its lock with it, so a
// process that was stopped for a while finds out before it renames.
const answerLimit = Duration.seconds(5)
// 5 s: as long as a repair waits; moving one folder back needs the lock for milliseconds.
const moveBackPatience = Duration.seconds(5)

const beforeFacts = FaultPoint.make("evict.beforeFacts")
const afterSecondLook = FaultPoint.make("evict.afterSecondLook")
const afterRecord = FaultPoint.make("evict.afterRecord")
const beforeCommit = FaultPoint.make("evict.beforeCommit")
const afterCommit = FaultPoint.make("evict.afterCommit")
const beforeTrash = FaultPoint.make("evict.beforeTrash")
const afterTrash = FaultPoint.make("evict.afterTrash")

const kept = (because: KeptBecause, undone = false): Eviction => ({ _tag: "Kept", because, undone })

const changed = (what: string): VersionReason.VersionSkip => ({ _tag: "ChangedMeanwhile", what })

/** What a failed call on the copy means: it vanished, it cannot be moved, or it is refused. */
const keptByFile = (error: FileError.FileError, undone: boolean): Eviction =>
  error.code === "EXDEV"
    ? kept({ _tag: "CrossDevice" }, undone)
    : error.code === "ENOENT"
      ? kept(changed("the copy vanished"), undone)
      : kept({ _tag: "Unreadable", code: error.code, path: error.path }, undone)

/**
 * A lost connection and an unknown commit are the sweep's daily weather: the copy is back in its place and
 * the next pass decides anew. A failure that will be there again then ends the sweep.
 */
const keptByDatabase = (error: DatabaseError.DatabaseError, undone: boolean) =>
  error.retryable || error.reason._tag === "CommitUnknown"
    ? Effect.as(Effect.logWarning(`a copy stays: ${error.message}`), kept({ _tag: "LockLost" }, undone))
    : Effect.fail(error)

/**
 * Moves one proven copy out of the way and makes it trash.
 *
 * Under the exclusive company lock, in one transaction: the facts are read and decided again, the folder is
 * renamed to `.evicting-*`, the facts are read once more, the record of use goes, the journal is written,
 * commit. Whatever fails before the commit is known undoes the rename. After it, outside the lock, the
 * whole fingerprint is compared once more; only then does the folder become trash.
 */
export const evict = Effect.fn("SkillVersionRetention.evict")(function* ({ copy, scan }: Candidate) {
  const transactions = yield* Transactions.Transactions
  const store = yield* VersionStore.VersionStore
  const records = yield* AccessRecords.AccessRecords
  const catalog = yield* SkillCatalog.SkillCatalog
  const pins = yield* SkillPins.SkillPins
  const journal = yield* Journal.Journal
  const clock = yield* DatabaseClock.DatabaseClock
  const settings = yield* RetentionSettings.RetentionSettings
  const trees = yield* Trees.Trees
  const server = yield* ServerName
  let moved = false

  const decideAgain = Effect.gen(function* () {
    const rows = yield* catalog.describe([copy])
    const companyPins = (yield* pins.facts([copy.companyId])).get(copy.companyId)
    const lastUse = yield* records.read(copy)
    const now = { database: yield* clock.now, local: yield* DateTime.now }
    const decision = RetentionPolicy.decide(
      versionFacts({ copy, rows, pins: companyPins, lastUse, proof: Option.some({ _tag: "Same" }) }),
      settings,
      now
    )
    if (decision._tag === "Retain") {
      const because = changed(decision.reasons.map(({ _tag }) => _tag).join(", "))
      return yield* new Abandoned({ because, undone: moved })
    }
  })

  const tell = (event: "evicted" | "undone") =>
    journal.append({
      worker: "skill-versions",
      event,
      companyId: copy.companyId,
      skillId: copy.skillId,
      versionId: copy.versionId,
      scope: null,
      allocatedBytes: scan.allocatedBytes,
      digest: scan.fingerprint,
      server,
      detail: null
    })

  const move = transactions.companyExclusive(
    copy.companyId,
    Effect.fnUntraced(function* (tx) {
      yield* beforeFacts
      yield* decideAgain
      // PostgreSQL cannot fence a rename. What can be done is to rename only while the lock is known to be
      // fresh: a process that slept longer than this asks nobody and moves nothing.
      if (Duration.isGreaterThan(yield* tx.sinceLastAnswer, answerLimit)) {
        return yield* new Abandoned({ because: { _tag: "LockLost" }, undone: false })
      }
      const leaving = yield* store.evict(copy, scan.top)
      moved = true
      // From here on a failure takes the move back while the lock still excludes every preparation.
      yield* Effect.gen(function* () {
        // Who prepared although the lock was ours (it was lost, or never asked for) shows up here.
        yield* decideAgain
        yield* afterSecondLook
        yield* records.remove(copy)
        yield* afterRecord
        yield* tell("evicted")
        yield* beforeCommit
      }).pipe(Effect.onError(() => Effect.ignore(leaving.undo)))
      return leaving
    })
  )

  // The copy is not what was proven: somebody who had it open wrote in it. It gets its name again, or, where
  // that is taken, is set aside; where the lock cannot be had, a later sweep settles it.
  const putBack = Effect.fnUntraced(function* (leaving: VersionStore.Evicting) {
    yield* transactions.companyExclusiveWithin(copy.companyId, moveBackPatience, () =>
      Effect.gen(function* () {
        if ((yield* store.moveBack(leaving)) === "taken") yield* store.setAside(leaving)
        yield* tell("undone")
      })
    )
    return kept(changed("the contents"), true)
  })

  const attempt = Effect.gen(function* () {
    const leaving = yield* move
    yield* leaving.confirm
    yield* afterCommit
    const after = yield* Effect.option(trees.scan(leaving.path, { digests: false }))
    if (Option.isNone(after) || after.value.fingerprint !== scan.fingerprint) return yield* putBack(leaving)
    yield* beforeTrash
    const trash = yield* store.toTrash(leaving)
    yield* afterTrash
    return Option.match(trash, {
      onNone: () => kept(changed("another process settled it")),
      onSome: ({ path }): Eviction => ({ _tag: "Evicted", trash: path })
    })
  })

  return yield* Effect.scoped(attempt).pipe(
    Effect.catchTags({
      Abandoned: ({ because, undone }) => Effect.succeed(kept(because, undone)),
      Changed: ({ what }) => Effect.succeed(kept(changed(what))),
      CompanyBusy: () => Effect.succeed(kept({ _tag: "CompanyBusy" }, moved)),
      FileError: (error) => Effect.succeed(keptByFile(error, moved)),
      DatabaseError: (error) =>
        // The row that tells of the eviction may have been committed; then this one takes it back.
        Effect.andThen(
          moved && error.reason._tag === "CommitUnknown" ? Effect.ignore(tell("undone")) : Effect.void,
          keptByDatabase(error, moved)
        )
    })
  )
}, Effect.uninterruptible)
