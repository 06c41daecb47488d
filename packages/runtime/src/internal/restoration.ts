import { CopyComparison, FaultPoint, type Ids, type Manifest, type VersionReason } from "@reclaim/core"
import { DatabaseClock, DatabaseError, Journal, SkillCatalog, Transactions } from "@reclaim/db"
import { AccessRecords, type CopyRef, FileError, InstanceRoots, Trees, VersionStore } from "@reclaim/fs"
import type { PosixFileSystem } from "@reclaim/fs"
import { Array as Arr, type DateTime, Duration, Effect, Option, Result, Stream } from "effect"
import { ServerName } from "../ServerName.ts"
import { largest, obstacleOf } from "./examination.ts"
import type { DatabaseFailure, Services } from "./services.ts"

/** Why a version has no copy that a run could use. */
export type MissingReason = VersionReason.VersionReason | VersionReason.VersionSkip

/** How closely a copy that is there already is looked at before a run may use it. */
export type Verify = "shape" | "digest"

export type Outcome =
  | {
      readonly _tag: "Ready"
      readonly copy: CopyRef.CopyRef
      readonly path: string
      readonly restored: boolean
    }
  | { readonly _tag: "Missing"; readonly copy: CopyRef.CopyRef; readonly reason: MissingReason }

const beforeShared = FaultPoint.make("restore.beforeShared")
const afterShared = FaultPoint.make("restore.afterShared")
const repairAfterPublish = FaultPoint.make("repair.afterPublish")

// 5 s: what a preparation waits for the exclusive lock before it reports its company busy (S-03).
const repairPatience = Duration.seconds(5)
// 3: a copy that is never the same from one look to the next is being fought over.
const attempts = 3
// 50: as many versions as one batch of a sweep; bounds what a single transaction waits for.
const versionsPerTransaction = 50
// 4: enough to overlap reading from the database with writing to the disk.
const concurrency = 4
// 1: each version that is staged reads on a connection of its own, and a sweep holds no more than two.
const healingConcurrency = 1

export interface Options {
  readonly verify: Verify
  /** Whether copies that had to be restored are told in the journal as healed. */
  readonly healing: boolean
  /** What a repair waits for the exclusive lock, instead of 5 s. */
  readonly patience?: Duration.Duration
}

interface Wanted {
  readonly copy: CopyRef.CopyRef
  readonly manifest: Manifest.Manifest
}

/** How an attempt ended for a version. `Again`: somebody was faster; `reason` is for who never comes through. */
type Settled = Outcome | { readonly _tag: "Again"; readonly reason: MissingReason }

/** What an attempt found without a lock, and what it will do about it under one. */
type Plan =
  | { readonly _tag: "Serve"; readonly top: PosixFileSystem.EntryInfo }
  | { readonly _tag: "Publish"; readonly staged: VersionStore.Staged; readonly allocatedBytes: bigint }
  | { readonly _tag: "Replace"; readonly staged: VersionStore.Staged; readonly altered: Trees.TreeScan }
  | { readonly _tag: "Settled"; readonly settled: Settled }

/** A copy that this call published, with the event that the journal is told of it. */
interface Made {
  readonly event: "restored" | "healed" | "repaired"
  readonly allocatedBytes: bigint
}

const missing = (copy: CopyRef.CopyRef, reason: MissingReason): Settled => ({ _tag: "Missing", copy, reason })

const again = (what: string): Settled => ({ _tag: "Again", reason: { _tag: "ChangedMeanwhile", what } })

// What the failure of one version means. It never loses the others.

const unreadable = (copy: CopyRef.CopyRef) => (error: FileError.FileError) => {
  const reason = obstacleOf(error)
  // Moved away, or written to, between two looks: a miss, and no fault of the disk.
  const passing = error.code === "ENOENT" || error.code === "ECHANGED"
  return Effect.succeed<Settled>(passing ? { _tag: "Again", reason } : missing(copy, reason))
}

const claimed = () => Effect.succeed(again("what was staged was claimed by somebody else"))

const unrecoverable =
  (copy: CopyRef.CopyRef) => (error: VersionStore.WrongContents | DatabaseError.DatabaseError) =>
    Effect.succeed(missing(copy, { _tag: "NotRecoverable", detail: error.message }))

/** Failures of what is done under a lock. */
const failures = (copy: CopyRef.CopyRef) => ({
  FileError: unreadable(copy),
  StagingLost: claimed,
  NameTaken: ({ kind, path }: VersionStore.NameTaken) =>
    Effect.succeed(missing(copy, { _tag: "Unexpected", what: kind, path }))
})

/** The files of a version, each whole: large ones come from the database in parts. */
const contentsOf = ({ copy, manifest }: Wanted) =>
  Stream.unwrap(
    Effect.map(SkillCatalog.SkillCatalog, (catalog) =>
      catalog.contents(copy.companyId, copy.versionId, manifest).pipe(
        Stream.groupAdjacentBy(({ ordinal }) => ordinal),
        Stream.map(([ordinal, parts]) => ({
          ordinal,
          bytes: parts.length === 1 ? parts[0].bytes : Buffer.concat(parts.map(({ bytes }) => bytes))
        }))
      )
    )
  )

/** Looks, without a lock, and stages what is missing or altered. The staging lives as long as the scope. */
const plan = (wanted: Wanted, options: Options) =>
  Effect.gen(function* () {
    const { copy, manifest } = wanted
    const store = yield* VersionStore.VersionStore
    const trees = yield* Trees.Trees
    const stage = store.stage(copy, manifest, contentsOf(wanted))
    const info = yield* store.inspect(copy)
    const path = store.pathOf(copy)
    if (Option.isNone(info)) {
      const staged = yield* stage
      const allocatedBytes = options.healing ? (yield* trees.usage(staged.path)).allocatedBytes : 0n
      return { _tag: "Publish", staged, allocatedBytes } satisfies Plan
    }
    if (info.value.kind !== "directory") {
      return missing(copy, { _tag: "Unexpected", what: info.value.kind, path })
    }
    const comparator = CopyComparison.make(manifest, "serving")
    const scan = yield* trees.scan(path, {
      digests: options.verify === "digest",
      maxDigestBytes: largest(manifest),
      onEntries: (entries) => {
        for (const entry of entries) comparator.add(entry)
      }
    })
    return comparator.finish().same
      ? ({ _tag: "Serve", top: scan.top } satisfies Plan)
      : ({ _tag: "Replace", staged: yield* stage, altered: scan } satisfies Plan)
  }).pipe(
    Effect.catchTags({
      FileError: unreadable(wanted.copy),
      StagingLost: claimed,
      WrongContents: unrecoverable(wanted.copy),
      DatabaseError: (error) =>
        // The server answered, and about this version: its row went, or cannot be decoded.
        error.reason._tag === "Other" || error.reason._tag === "Undecodable"
          ? unrecoverable(wanted.copy)(error)
          : Effect.fail(error)
    }),
    Effect.map((found): Plan =>
      found._tag === "Missing" || found._tag === "Ready" || found._tag === "Again"
        ? { _tag: "Settled", settled: found }
        : found
    )
  )

/**
 * One attempt at some versions: look and stage without a lock, then publish under the shared one, and
 * replace under the exclusive one. May be repeated after any failure: it begins with what is there.
 */
const attemptSome = Effect.fnUntraced(function* (
  companyId: Ids.CompanyId,
  wanted: ReadonlyArray<Wanted>,
  made: Map<Ids.VersionId, Made>,
  options: Options
) {
  const store = yield* VersionStore.VersionStore
  const records = yield* AccessRecords.AccessRecords
  const transactions = yield* Transactions.Transactions
  const clock = yield* DatabaseClock.DatabaseClock
  const journal = yield* Journal.Journal
  const server = yield* ServerName
  const outcomes = new Map<Ids.VersionId, Settled>()

  const plans = yield* Effect.forEach(
    wanted,
    (each) => Effect.map(plan(each, options), (found) => ({ copy: each.copy, found })),
    { concurrency: options.healing ? healingConcurrency : concurrency }
  )

  /** The use is recorded and the copy looked at once more: it must be there whatever was seen before. */
  const finish = Effect.fnUntraced(function* (
    copy: CopyRef.CopyRef,
    now: DateTime.Utc,
    seen: Option.Option<PosixFileSystem.EntryInfo>
  ) {
    // A record that cannot be written is no reason to refuse a copy that is there.
    yield* Effect.catchTag(records.touch(copy, now), "FileError", (error) =>
      Effect.logWarning(`the last use could not be recorded: ${error.message}`)
    )
    const created = made.get(copy.versionId)
    if (created !== undefined && created.event !== "restored") {
      yield* journal.append({
        worker: "skill-versions",
        event: created.event,
        companyId,
        skillId: copy.skillId,
        versionId: copy.versionId,
        scope: null,
        allocatedBytes: created.allocatedBytes,
        digest: null,
        server,
        detail: null
      })
    }
    const info = yield* store.inspect(copy)
    const same =
      Option.isSome(info) &&
      info.value.kind === "directory" &&
      Option.match(seen, { onNone: () => true, onSome: (top) => VersionStore.sameTop(info.value, top) })
    return same
      ? ({
          _tag: "Ready",
          copy,
          path: store.pathOf(copy),
          restored: created !== undefined
        } satisfies Settled)
      : again("the copy was replaced or moved away")
  })

  const publish = Effect.fnUntraced(function* (
    copy: CopyRef.CopyRef,
    staged: VersionStore.Staged,
    result: Made
  ) {
    // Whatever took the name meanwhile has not been looked at: it may be altered, or half written.
    if ((yield* store.publish(staged)) === "exists") return false
    made.set(copy.versionId, result)
    return true
  })

  const serveOrPublish = Effect.fnUntraced(function* (copy: CopyRef.CopyRef, found: Plan, now: DateTime.Utc) {
    if (found._tag === "Serve") return yield* finish(copy, now, Option.some(found.top))
    if (found._tag !== "Publish") return undefined
    const { allocatedBytes, staged } = found
    const event = options.healing ? "healed" : "restored"
    if (!(yield* publish(copy, staged, { event, allocatedBytes }))) return again("another copy came first")
    return yield* finish(copy, now, Option.none())
  })

  for (const { copy, found } of plans) {
    if (found._tag === "Settled") outcomes.set(copy.versionId, found.settled)
  }

  if (plans.some(({ found }) => found._tag === "Serve" || found._tag === "Publish")) {
    yield* beforeShared
    yield* transactions.companyShared(companyId, () =>
      Effect.gen(function* () {
        const now = yield* clock.now
        for (const { copy, found } of plans) {
          const settled = yield* Effect.catchTags(serveOrPublish(copy, found, now), failures(copy))
          if (settled !== undefined) outcomes.set(copy.versionId, settled)
        }
      })
    )
    yield* afterShared
  }

  const replace = Effect.fnUntraced(function* (
    copy: CopyRef.CopyRef,
    staged: VersionStore.Staged,
    altered: Trees.TreeScan
  ) {
    const now = yield* clock.now
    const info = yield* store.inspect(copy)
    // Somebody repaired or moved it, or it is being written: the verdict is about something else.
    if (Option.isNone(info) || !VersionStore.sameTop(info.value, altered.top)) {
      return again("the copy was replaced or moved away")
    }
    yield* store.setAsideCopy(copy)
    const result = { event: "repaired", allocatedBytes: altered.allocatedBytes } as const
    if (!(yield* publish(copy, staged, result))) return again("another copy came first")
    yield* repairAfterPublish
    return yield* finish(copy, now, Option.none())
  })

  let busy = false
  for (const { copy, found } of plans) {
    if (found._tag !== "Replace") continue
    // A company that was busy for all of the patience is not waited for once more per copy.
    const patience = busy ? Duration.zero : (options.patience ?? repairPatience)
    const settled = yield* (
      transactions
        // Uninterruptible: between setting aside and publishing there is no copy.
        .companyExclusiveWithin(companyId, patience, () =>
          Effect.uninterruptible(replace(copy, found.staged, found.altered))
        )
        .pipe(
          Effect.catchTags({
            ...failures(copy),
            CompanyBusy: () => {
              busy = true
              return Effect.succeed(missing(copy, { _tag: "CompanyBusy" }))
            }
          })
        )
    )
    outcomes.set(copy.versionId, settled)
  }

  return wanted.map((each) => ({
    ...each,
    settled: outcomes.get(each.copy.versionId) ?? again("it was not settled")
  }))
})

/**
 * Makes sure that copies are there, whole, and recorded as used now.
 *
 * Missing copies are staged without a lock and published under the shared one; altered copies are replaced
 * under the exclusive one. One version that cannot be had does not lose the others.
 */
export const ensure = Effect.fnUntraced(function* (
  companyId: Ids.CompanyId,
  copies: ReadonlyArray<CopyRef.CopyRef>,
  options: Options
): Effect.fn.Return<ReadonlyArray<Outcome>, DatabaseFailure, Services> {
  const catalog = yield* SkillCatalog.SkillCatalog
  const roots = yield* InstanceRoots.InstanceRoots
  const manifests = yield* catalog.manifests(
    companyId,
    copies.map(({ versionId }) => versionId),
    { caseInsensitive: roots.caseInsensitive }
  )
  const outcomes = new Map<Ids.VersionId, Outcome>()
  const refuse = (copy: CopyRef.CopyRef, reason: MissingReason) =>
    outcomes.set(copy.versionId, { _tag: "Missing", copy, reason })

  let open: ReadonlyArray<Wanted> = copies.flatMap((copy) => {
    const manifest = manifests.get(copy.versionId)
    if (manifest !== undefined && Result.isSuccess(manifest)) return [{ copy, manifest: manifest.success }]
    refuse(copy, {
      _tag: "NotRecoverable",
      detail: manifest === undefined ? "the database has no such version" : manifest.failure.detail
    })
    return []
  })

  const made = new Map<Ids.VersionId, Made>()
  for (let attempt = 1; open.length > 0; attempt++) {
    const left: Array<Wanted> = []
    for (const some of Arr.chunksOf(open, versionsPerTransaction)) {
      // Also a lost connection is tried again, from the first look on: what was published stays published. So
      // is a commit without an answer: it carries the journal alone, which may then tell something twice.
      const settledSome = yield* Effect.scoped(attemptSome(companyId, some, made, options)).pipe(
        Effect.retry({
          times: 1,
          while: (error) => error._tag === "DatabaseError" && error.reason._tag === "CommitUnknown"
        }),
        DatabaseError.retry
      )
      for (const { copy, manifest, settled } of settledSome) {
        if (settled._tag !== "Again") outcomes.set(copy.versionId, settled)
        else if (attempt < attempts) left.push({ copy, manifest })
        else refuse(copy, settled.reason)
      }
    }
    open = left
  }
  return Arr.getSomes(copies.map(({ versionId }) => Option.fromUndefinedOr(outcomes.get(versionId))))
})
