import { CopyComparison, FaultPoint, type Ids, type Manifest, type VersionReason } from "@reclaim/core"
import { DatabaseClock, Journal, SkillCatalog, Transactions } from "@reclaim/db"
import { AccessRecords, type CopyRef, type FileError, InstanceRoots, Trees, VersionStore } from "@reclaim/fs"
import { Array as Arr, Duration, Effect, Option, Result } from "effect"
import { ServerName } from "../ServerName.ts"
import { obstacleOf } from "./examination.ts"

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
const repairBeforeSetAside = FaultPoint.make("repair.beforeSetAside")
const repairAfterSetAside = FaultPoint.make("repair.afterSetAside")
const repairAfterPublish = FaultPoint.make("repair.afterPublish")

// 5 s: what a preparation waits for the exclusive lock before it reports its company busy (S-03).
const repairPatience = Duration.seconds(5)
// 3: a copy that vanishes twice between its staging and the last look is being fought over.
const attempts = 3
// 50: as many versions as one batch of a sweep; bounds what a single transaction waits for.
const versionsPerTransaction = 50
// 4: enough to overlap reading from the database with writing to the disk.
const concurrency = 4

export interface Options {
  readonly verify: Verify
  /** Whether copies that had to be restored are told in the journal as healed. */
  readonly healing: boolean
}

/**
 * What lies where a copy should be. `Altered` carries what it looked like, to find it unchanged later;
 * `Lost` is a staging that somebody claimed.
 */
type Found =
  | { readonly _tag: "Good" }
  | { readonly _tag: "Absent" }
  | { readonly _tag: "Altered"; readonly scan: Trees.TreeScan }
  | { readonly _tag: "Blocked"; readonly reason: MissingReason }
  | { readonly _tag: "Lost" }

const blocked = (reason: MissingReason): Found => ({ _tag: "Blocked", reason })

/** Looks at what is there, without a lock. */
const look = Effect.fnUntraced(function* (
  copy: CopyRef.CopyRef,
  manifest: Manifest.Manifest,
  verify: Verify
) {
  const store = yield* VersionStore.VersionStore
  const trees = yield* Trees.Trees
  const path = store.pathOf(copy)
  const info = yield* store.inspect(copy)
  if (Option.isNone(info)) return { _tag: "Absent" } satisfies Found
  if (info.value.kind !== "directory") {
    return { _tag: "Blocked", reason: { _tag: "Unexpected", what: info.value.kind, path } } satisfies Found
  }
  const comparator = CopyComparison.make(manifest, "serving")
  const scan = yield* trees.scan(path, {
    digests: verify === "digest",
    onEntries: (entries) => {
      for (const entry of entries) comparator.add(entry)
    }
  })
  return comparator.finish().same
    ? ({ _tag: "Good" } satisfies Found)
    : ({ _tag: "Altered", scan } satisfies Found)
})

type Settled = Outcome | { readonly _tag: "Again" }

interface Wanted {
  readonly copy: CopyRef.CopyRef
  readonly manifest: Manifest.Manifest
}

const unstaged = (found: Found) => ({ found, staged: undefined })

/** Looks, and stages what is missing or altered. The staging lives as long as the scope. */
const stageWanted = Effect.fnUntraced(
  function* ({ copy, manifest }: Wanted, verify: Verify) {
    const store = yield* VersionStore.VersionStore
    const catalog = yield* SkillCatalog.SkillCatalog
    const found = yield* look(copy, manifest, verify)
    const staged =
      found._tag === "Absent" || found._tag === "Altered"
        ? yield* store.stage(copy, manifest, catalog.contents(copy.companyId, copy.versionId, manifest))
        : undefined
    return { found, staged }
  },
  Effect.catchTags({
    FileError: (error) => Effect.succeed(unstaged(blocked(obstacleOf(error)))),
    WrongContents: (error) =>
      Effect.succeed(unstaged(blocked({ _tag: "NotRecoverable", detail: error.message }))),
    StagingLost: () => Effect.succeed(unstaged({ _tag: "Lost" }))
  })
)

/**
 * One attempt at some versions: stage without a lock, then publish under one.
 */
const attemptSome = Effect.fnUntraced(function* (
  companyId: Ids.CompanyId,
  wanted: ReadonlyArray<Wanted>,
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
    (each) => Effect.map(stageWanted(each, options.verify), (plan) => ({ ...each, ...plan })),
    { concurrency }
  )

  /** A record that cannot be written is no reason to refuse a copy that is there; its window starts later. */
  const touch = Effect.fnUntraced(function* (copy: CopyRef.CopyRef) {
    yield* records
      .touch(copy, yield* clock.now)
      .pipe(
        Effect.catchTag("FileError", (error) =>
          Effect.logWarning(`the last use could not be recorded: ${error.message}`)
        )
      )
  })

  const tell = (event: "healed" | "repaired", copy: CopyRef.CopyRef, allocatedBytes: bigint) =>
    journal.append({
      worker: "skill-versions",
      event,
      companyId,
      skillId: copy.skillId,
      versionId: copy.versionId,
      scope: null,
      allocatedBytes,
      digest: null,
      server,
      detail: null
    })

  const finish = Effect.fnUntraced(function* (copy: CopyRef.CopyRef, restored: boolean) {
    yield* touch(copy)
    if (restored && options.healing) yield* tell("healed", copy, 0n)
    // The last look: what a run is told to use must be there now, whatever was seen before the lock.
    const info = yield* store.inspect(copy)
    const settled: Settled =
      Option.isSome(info) && info.value.kind === "directory"
        ? { _tag: "Ready", copy, path: store.pathOf(copy), restored }
        : { _tag: "Again" }
    outcomes.set(copy.versionId, settled)
  })

  const settle = (copy: CopyRef.CopyRef, settled: Settled) =>
    Effect.sync(() => {
      outcomes.set(copy.versionId, settled)
    })
  const refuse = (copy: CopyRef.CopyRef, reason: MissingReason) =>
    settle(copy, { _tag: "Missing", copy, reason })
  const keepOthers = (copy: CopyRef.CopyRef) => ({
    FileError: (error: FileError.FileError) => refuse(copy, obstacleOf(error)),
    NameTaken: ({ kind, path }: VersionStore.NameTaken) =>
      refuse(copy, { _tag: "Unexpected", what: kind, path }),
    StagingLost: () => settle(copy, { _tag: "Again" })
  })

  for (const { copy, found } of plans) {
    if (found._tag === "Blocked") yield* refuse(copy, found.reason)
  }

  const publishable = plans.filter(({ found }) => found._tag === "Good" || found._tag === "Absent")
  if (publishable.length > 0) {
    yield* beforeShared
    yield* transactions.companyShared(companyId, () =>
      Effect.forEach(
        publishable,
        ({ copy, staged }) =>
          Effect.gen(function* () {
            const published = staged === undefined ? "exists" : yield* store.publish(staged)
            yield* finish(copy, published === "published")
          }).pipe(Effect.catchTags(keepOthers(copy))),
        { discard: true }
      )
    )
    yield* afterShared
  }

  for (const { copy, found, staged } of plans) {
    if (found._tag !== "Altered" || staged === undefined) continue
    const repair = Effect.gen(function* () {
      const info = yield* store.inspect(copy)
      if (Option.isSome(info)) {
        // Somebody repaired it, or it is being written: what was staged may be right, the verdict is not.
        if (!VersionStore.sameTop(info.value, found.scan.top)) {
          return yield* settle(copy, { _tag: "Again" })
        }
        yield* repairBeforeSetAside
        yield* store.setAsideCopy(copy)
        yield* repairAfterSetAside
      }
      yield* store.publish(staged)
      yield* repairAfterPublish
      yield* finish(copy, true)
      yield* tell("repaired", copy, found.scan.allocatedBytes)
    })
    // Uninterruptible: between setting aside and publishing there is no copy.
    yield* transactions
      .companyExclusiveWithin(companyId, repairPatience, () => Effect.uninterruptible(repair))
      .pipe(
        Effect.catchTags({
          ...keepOthers(copy),
          CompanyBusy: () => refuse(copy, { _tag: "CompanyBusy" })
        })
      )
  }

  return wanted.map((each) => ({
    ...each,
    settled: outcomes.get(each.copy.versionId) ?? { _tag: "Again" as const }
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
) {
  const catalog = yield* SkillCatalog.SkillCatalog
  const roots = yield* InstanceRoots.InstanceRoots
  const manifests = yield* catalog.manifests(
    companyId,
    copies.map(({ versionId }) => versionId),
    { caseInsensitive: roots.caseInsensitive }
  )
  const outcomes = new Map<Ids.VersionId, Outcome>()
  const missing = (copy: CopyRef.CopyRef, reason: MissingReason) =>
    outcomes.set(copy.versionId, { _tag: "Missing", copy, reason })

  let open: ReadonlyArray<Wanted> = copies.flatMap((copy) => {
    const manifest = manifests.get(copy.versionId)
    if (manifest !== undefined && Result.isSuccess(manifest)) return [{ copy, manifest: manifest.success }]
    missing(copy, {
      _tag: "NotRecoverable",
      detail: manifest === undefined ? "the database has no such version" : manifest.failure.detail
    })
    return []
  })

  for (let attempt = 1; open.length > 0; attempt++) {
    const again: Array<Wanted> = []
    for (const some of Arr.chunksOf(open, versionsPerTransaction)) {
      for (const { copy, manifest, settled } of yield* Effect.scoped(attemptSome(companyId, some, options))) {
        if (settled._tag !== "Again") outcomes.set(copy.versionId, settled)
        else if (attempt < attempts) again.push({ copy, manifest })
        else missing(copy, { _tag: "ChangedMeanwhile", what: "the copy kept vanishing" })
      }
    }
    open = again
  }
  return Arr.getSomes(copies.map(({ versionId }) => Option.fromUndefinedOr(outcomes.get(versionId))))
})
