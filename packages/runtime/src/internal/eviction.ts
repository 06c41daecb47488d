import { FaultPoint, RetentionPolicy, RetentionSettings, VersionReason } from "@reclaim/core"
import { DatabaseError, Journal, SkillCatalog, SkillPins, Transactions } from "@reclaim/db"
import { AccessRecords, type CopyRef, type FileError, Trees, VersionStore } from "@reclaim/fs"
import { type DateTime, Duration, Effect, Equal, Option, Result, Schema } from "effect"
import { ServerName } from "../ServerName.ts"
import { obstacleOf } from "./examination.ts"
import { versionFacts } from "./facts.ts"
import { clocks, revisionOf } from "./judgement.ts"
import type { DatabaseFailure, Services } from "./services.ts"

/** A proven copy, with what it and its row looked like while it was proven. */
export interface Candidate {
  readonly copy: CopyRef.CopyRef
  readonly revision: Option.Option<string>
  readonly scan: Trees.TreeScan
}

/** Why a copy stayed after all: what the execution met, or what the system refused. */
export type KeptBecause = VersionReason.VersionSkip | VersionReason.Obstacle

/**
 * How an eviction ended: `trash` is the folder to delete. `undone` tells that the copy had been moved and has
 * its name again, `stuck` that it could not be moved back: a later sweep tries again.
 */
export type Eviction =
  | { readonly _tag: "Evicted"; readonly trash: string }
  | {
      readonly _tag: "Kept"
      readonly because: KeptBecause
      readonly undone: boolean
      readonly stuck: boolean
    }

/** Leaves the transaction without committing. */
class Abandoned extends Schema.TaggedError<Abandoned>()("Abandoned", {
  because: VersionReason.VersionSkip
}) {}

// 5 s: far below the 30 s after which the server ends an idle transaction and its lock with it, so a
// process that was stopped for a while finds out before it renames.
const answerLimit = Duration.seconds(5)
// 5 s: as long as a repair waits; moving one folder back needs the lock for milliseconds.
const moveBackPatience = Duration.seconds(5)

const beforeLock = FaultPoint.make("evict.beforeLock")
const beforeFacts = FaultPoint.make("evict.beforeFacts")
const afterFacts = FaultPoint.make("evict.afterFacts")
const afterSecondLook = FaultPoint.make("evict.afterSecondLook")
const afterRecord = FaultPoint.make("evict.afterRecord")
const beforeCommit = FaultPoint.make("evict.beforeCommit")
const afterCommit = FaultPoint.make("evict.afterCommit")
const beforeTrash = FaultPoint.make("evict.beforeTrash")
const afterTrash = FaultPoint.make("evict.afterTrash")

const changed = (what: string): VersionReason.VersionSkip => ({ _tag: "ChangedMeanwhile", what })

/** What a failed call on the copy means: it vanished, it cannot be moved, or it is refused. */
const refused = (error: FileError.FileError): KeptBecause =>
  error.code === "EXDEV"
    ? { _tag: "CrossDevice" }
    : error.code === "ENOENT"
      ? changed("the copy vanished")
      : obstacleOf(error)

/**
 * Moves one proven copy out of the way and makes it trash.
 *
 * Under the exclusive company lock, in one transaction: the facts are read and decided again, the folder is
 * renamed to `.evicting-*`, the facts are read once more, the record of use goes, the journal is written,
 * commit. Whatever fails before the commit is known undoes the rename. After it, outside the lock, the
 * whole fingerprint is compared once more; only then does the folder become trash.
 */
export const evict = Effect.fn("SkillVersionRetention.evict")(function* ({
  copy,
  revision,
  scan
}: Candidate): Effect.fn.Return<Eviction, DatabaseFailure, Services | RetentionSettings.RetentionSettings> {
  const transactions = yield* Transactions.Transactions
  const store = yield* VersionStore.VersionStore
  const records = yield* AccessRecords.AccessRecords
  const catalog = yield* SkillCatalog.SkillCatalog
  const pins = yield* SkillPins.SkillPins
  const journal = yield* Journal.Journal
  const settings = yield* RetentionSettings.RetentionSettings
  const trees = yield* Trees.Trees
  const server = yield* ServerName
  yield* Effect.annotateCurrentSpan({
    "reclaim.company.id": copy.companyId,
    "reclaim.version.id": copy.versionId,
    "reclaim.size": Number(scan.allocatedBytes)
  })

  /**
   * The whole decision once more, with what is so now. Two statements about this one copy, and the record of
   * use meanwhile: the lock is held while they are answered. Ages are as of `now`: a copy only grows older.
   */
  const decideAgain = Effect.fnUntraced(function* (now: RetentionPolicy.Now) {
    const { companyPins, lastUse, rows } = yield* Effect.all(
      {
        rows: catalog.describe([copy]),
        companyPins: pins.factsOf(copy.companyId, copy.versionId, now.database),
        lastUse: records.read(copy)
      },
      { concurrency: "unbounded" }
    )
    const decision = RetentionPolicy.decide(
      versionFacts({ copy, rows, pins: companyPins, lastUse, proof: Option.some({ _tag: "Same" }) }),
      settings,
      now
    )
    if (decision._tag === "Retain") {
      return yield* new Abandoned({ because: changed(decision.reasons.map(({ _tag }) => _tag).join(", ")) })
    }
    // What was proven is what the database held then. A row or a snapshot that was written since may hold
    // something else, or nothing that could be restored.
    if (!Equal.equals(revisionOf(rows, copy), revision)) {
      return yield* new Abandoned({ because: changed("the snapshot") })
    }
  })

  const tell = (event: "evicted" | "undone" | "set aside", at?: DateTime.Utc) =>
    journal.append(
      {
        worker: "skill-versions",
        event,
        ...copy,
        scope: null,
        allocatedBytes: scan.allocatedBytes,
        digest: scan.fingerprint,
        server,
        detail: null
      },
      at
    )

  /** The copy while it is moved and may still come back. */
  let leaving = Option.none<VersionStore.Evicting>()
  /** Whether it was moved and has its name again. */
  let undone = false
  let stuck = false

  const takeBack = Effect.suspend(() => {
    const taken = leaving
    leaving = Option.none()
    return Option.match(taken, {
      onNone: () => Effect.void,
      onSome: ({ undo }) =>
        Effect.matchEffect(undo, {
          onSuccess: (outcome) =>
            Effect.sync(() => {
              undone = outcome === "moved"
            }),
          onFailure: (error) => {
            stuck = true
            return Effect.logError(`a copy could not be moved back: ${error.message}`)
          }
        })
    })
  })

  const move = transactions.companyExclusive(
    copy.companyId,
    Effect.fnUntraced(function* (tx) {
      yield* beforeFacts
      const now = yield* clocks
      yield* decideAgain(now)
      yield* afterFacts
      // PostgreSQL cannot fence a rename. What can be done is to rename only while the lock is known to be
      // fresh: a process that slept longer than this asks nobody and moves nothing.
      if (Duration.isGreaterThan(yield* tx.sinceLastAnswer, answerLimit)) {
        return yield* new Abandoned({ because: { _tag: "LockLost" } })
      }
      const moved = yield* store.evict(copy, scan.top)
      leaving = Option.some(moved)
      // From here on a failure takes the move back while the lock still excludes every preparation.
      yield* Effect.gen(function* () {
        yield* moved.recheck
        // Who prepared although the lock was ours (it was lost, or never asked for) shows up here.
        yield* decideAgain(now)
        yield* afterSecondLook
        yield* records.remove(copy)
        yield* afterRecord
        yield* tell("evicted", now.database)
        yield* beforeCommit
      }).pipe(Effect.onError(() => takeBack))
      return moved
    })
  )

  const settledByAnother: Eviction = {
    _tag: "Kept",
    because: changed("another process settled it"),
    undone: false,
    stuck: false
  }

  // The copy is not what was proven: somebody who had it open wrote in it, or it cannot be read any more. It
  // gets its name again, or, where that is taken, is set aside; where the lock cannot be had, a later sweep
  // settles it.
  const putBack = (moved: VersionStore.Evicting, because: KeptBecause) =>
    transactions.companyExclusiveWithin(
      copy.companyId,
      moveBackPatience,
      Effect.fnUntraced(function* () {
        undone = (yield* store.moveBack(moved)) === "moved"
        if (!undone && Option.isNone(yield* store.setAside(moved))) return settledByAnother
        yield* tell(undone ? "undone" : "set aside")
        return { _tag: "Kept", because, undone, stuck } satisfies Eviction
      })
    )

  const attempt = Effect.gen(function* () {
    yield* beforeLock
    // A commit that failed or is unknown takes the move back too; then the lock is gone already.
    const moved = yield* move.pipe(Effect.onError(() => takeBack))
    leaving = Option.none()
    yield* moved.confirm
    yield* afterCommit
    const after = yield* Effect.result(trees.scan(moved.path, { digests: false }))
    if (Result.isFailure(after)) return yield* putBack(moved, obstacleOf(after.failure))
    if (after.success.fingerprint !== scan.fingerprint) return yield* putBack(moved, changed("the contents"))
    yield* beforeTrash
    const trash = yield* store.toTrash(moved, after.success.top)
    yield* afterTrash
    return Option.match(trash, {
      onNone: () => settledByAnother,
      onSome: ({ path }): Eviction => ({ _tag: "Evicted", trash: path })
    })
  })

  /** The transaction that would have told of the undoing is gone, so it is told in one of its own. */
  const keep = (because: KeptBecause): Effect.Effect<Eviction> =>
    Effect.as(
      undone
        ? Effect.ignore(tell("undone"), { log: "Warn", message: "an undone eviction is not in the journal" })
        : Effect.void,
      { _tag: "Kept", because, undone, stuck }
    )

  return yield* Effect.scoped(attempt).pipe(
    Effect.catchTags({
      Abandoned: ({ because }) => keep(because),
      Changed: ({ what }) => keep(changed(what)),
      CompanyBusy: () => keep({ _tag: "CompanyBusy" }),
      FileError: (error) => keep(refused(error)),
      // A lost connection and an unknown commit are the sweep's daily weather: the next pass decides anew. A
      // failure that will be there again then ends the sweep.
      DatabaseError: (error) =>
        keep({ _tag: "LockLost" }).pipe(
          Effect.tap(() =>
            DatabaseError.isPassing(error)
              ? Effect.logWarning(`a copy stays: ${error.message}`)
              : Effect.fail(error)
          )
        )
    }),
    Effect.tap(({ _tag }) => Effect.annotateCurrentSpan("reclaim.outcome", _tag))
  )
}, Effect.uninterruptible)
