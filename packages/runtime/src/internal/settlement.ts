import { FaultPoint, Leftover, RetentionPolicy, RetentionSettings, type VersionReason } from "@reclaim/core"
import { DatabaseError, Journal, SkillCatalog, Transactions } from "@reclaim/db"
import { type CopyRef, type FileError, Trees, VersionStore } from "@reclaim/fs"
import { DateTime, Duration, Effect, Equal, Option } from "effect"
import { ServerName } from "../ServerName.ts"
import { examine } from "./examination.ts"
import { type Entry, keyOf, type ManifestOf, reasonOf, revisionOf } from "./judgement.ts"
import type { DatabaseFailure, Services } from "./services.ts"

export type LeftoverEntry = Entry<"Staging" | "Evicting" | "Replaced">

/**
 * A folder that a protocol left behind, with all that is known before contents are read. `revision` is that
 * of its version's row, where it is to be compared with it; none where the row is not of its skill.
 */
export interface Found {
  readonly revision: Option.Option<string>
  readonly entry: LeftoverEntry
  readonly copy: CopyRef.CopyRef
  readonly facts: Leftover.LeftoverFacts
  readonly action: Leftover.Action
}

/**
 * What is to be done with a leftover. `scan` is what it looked like when it was proven. A young one stays for
 * no reason of its own: whoever made it is at work.
 */
export type Plan =
  | { readonly _tag: "Stays"; readonly because: VersionReason.VersionReason | undefined }
  | {
      readonly _tag: "Moves"
      readonly found: Found
      readonly move: "ToTrash" | "MoveBack" | "SetAside"
      readonly scan: Option.Option<Trees.TreeScan>
    }

/** How settling ended. `trash` is the folder to delete, where there is one. */
export type Settlement =
  | { readonly _tag: "Settled"; readonly trash: Option.Option<string> }
  | { readonly _tag: "Kept"; readonly because: VersionReason.VersionSkip }

const beforeLook = FaultPoint.make("settle.beforeLook")
const beforeSettle = FaultPoint.make("settle.beforeMove")
const afterSettle = FaultPoint.make("settle.afterMove")

/** A call on something that moved away or changed under the look: no failure of ours. */
export const vanished = ({ code }: { readonly code: string }): boolean =>
  code === "ENOENT" || code === "ECHANGED"

const kept = (because: VersionReason.VersionSkip): Settlement => ({ _tag: "Kept", because })

const changed = kept({ _tag: "ChangedMeanwhile", what: "the leftover" })

/** Looks at a leftover from outside: how old it is, and whether its name is taken. */
export const look = Effect.fnUntraced(function* (
  entry: LeftoverEntry,
  now: RetentionPolicy.Now
): Effect.fn.Return<Found, FileError.FileError, Services | RetentionSettings.RetentionSettings> {
  const store = yield* VersionStore.VersionStore
  const settings = yield* RetentionSettings.RetentionSettings
  const { companyId, info, name, skillId } = entry
  const copy: CopyRef.CopyRef = { companyId, skillId, versionId: name.versionId }
  // A rename sets the change time, writing into the folder the modification time.
  const since = name._tag === "Evicting" ? info.ctimeNs : info.mtimeNs
  const age = DateTime.toEpochMillis(RetentionPolicy.fileClock(now)) - Number(since / 1_000_000n)
  const facts: Leftover.LeftoverFacts = {
    kind: name._tag,
    age: Duration.millis(Math.max(0, age)),
    nameTaken: Option.isSome(yield* store.inspect(copy)),
    contents: "unproven"
  }
  return { entry, copy, revision: Option.none(), facts, action: Leftover.settle(facts, settings.grace) }
})

/**
 * Of several that would get the same name back only one can: the one that left it last. It comes first, and
 * about the others it is decided as though it had its name, or each would cost a sweep of its own. A copy that
 * was restored and moved again before an older move of it was settled leaves several.
 */
export const oneForEachName = (
  leftovers: ReadonlyArray<Found>,
  grace: Duration.Duration
): ReadonlyArray<Found> => {
  const last = new Map<string, Found>()
  for (const found of leftovers) {
    if (found.action._tag !== "MoveBack") continue
    const other = last.get(keyOf(found.copy))
    if (other === undefined || other.entry.info.ctimeNs < found.entry.info.ctimeNs) {
      last.set(keyOf(found.copy), found)
    }
  }
  const back = new Set(last.values())
  const others = leftovers.flatMap((found): ReadonlyArray<Found> => {
    if (back.has(found)) return []
    if (found.action._tag !== "MoveBack") return [found]
    const facts = { ...found.facts, nameTaken: true }
    return [{ ...found, facts, action: Leftover.settle(facts, grace) }]
  })
  return [...back, ...others]
}

/** Adds the revisions of the rows that some leftovers are to be compared with. */
export const comparable = Effect.fnUntraced(function* (
  leftovers: ReadonlyArray<Found>
): Effect.fn.Return<ReadonlyArray<Found>, DatabaseError.DatabaseError, Services> {
  const catalog = yield* SkillCatalog.SkillCatalog
  const isCompared = ({ action }: Found) => action._tag === "Prove"
  if (!leftovers.some(isCompared)) return leftovers
  const rows = yield* catalog.describe(leftovers.filter(isCompared).map(({ copy }) => copy))
  return leftovers.map((found) =>
    isCompared(found) ? { ...found, revision: revisionOf(rows, found.copy) } : found
  )
})

/** Decides about a leftover, comparing it with the database where that is called for. */
export const plan = Effect.fnUntraced(function* (found: Found, manifestOf: ManifestOf) {
  const settings = yield* RetentionSettings.RetentionSettings
  const decided = (
    facts: Leftover.LeftoverFacts,
    scan: Option.Option<Trees.TreeScan>,
    because: VersionReason.VersionReason | undefined
  ): Plan => {
    const action = Leftover.settle(facts, settings.grace)
    switch (action._tag) {
      case "ToTrash":
      case "MoveBack":
      case "SetAside":
        return { _tag: "Moves", found: { ...found, facts, action }, move: action._tag, scan }
      default:
        return { _tag: "Stays", because }
    }
  }
  if (found.action._tag !== "Prove") return decided(found.facts, Option.none(), undefined)
  const examination = yield* examine(found.entry.path, manifestOf(found.copy))
  return decided({ ...found.facts, contents: examination.contents }, examination.scan, reasonOf(examination))
})

/**
 * Carries a plan out: under the exclusive company lock the leftover is decided about once more, because its
 * name may have been given to a new copy or become free meanwhile, and renamed.
 */
export const settle = Effect.fn("SkillVersionRetention.settle")(function* ({
  found,
  move,
  scan
}: Extract<Plan, { readonly _tag: "Moves" }>): Effect.fn.Return<
  Settlement,
  DatabaseFailure | FileError.FileError,
  Services | RetentionSettings.RetentionSettings
> {
  const transactions = yield* Transactions.Transactions
  const store = yield* VersionStore.VersionStore
  const trees = yield* Trees.Trees
  const catalog = yield* SkillCatalog.SkillCatalog
  const journal = yield* Journal.Journal
  const settings = yield* RetentionSettings.RetentionSettings
  const server = yield* ServerName
  const { copy, entry, facts, revision } = found
  const { companyId, name, skillId } = entry
  const ref = { companyId, skillId, name }

  // What was proven must still be there: the same look as before an eviction becomes trash, and like that
  // one outside of the lock, because its time depends on the size of the copy.
  if (Option.isSome(scan)) {
    yield* beforeLook
    const again = yield* trees.scan(entry.path, { digests: false }).pipe(
      Effect.asSome,
      // Another process settled it, or somebody writes in it.
      Effect.catchIf(vanished, () => Effect.succeedNone)
    )
    if (Option.isNone(again) || again.value.fingerprint !== scan.value.fingerprint) return changed
  }

  const tell = (event: "undone" | "set aside") =>
    journal.append({
      worker: "skill-versions",
      event,
      ...copy,
      scope: null,
      allocatedBytes: Option.match(scan, {
        onNone: () => 0n,
        onSome: ({ allocatedBytes }) => allocatedBytes
      }),
      digest: Option.getOrNull(Option.map(scan, ({ fingerprint }) => fingerprint)),
      server,
      detail: null
    })

  const settled = (trash: Option.Option<string>): Settlement => ({ _tag: "Settled", trash })
  /** What was done before the journal had it: a failed commit takes the row away, not the rename. */
  let untold: "undone" | "set aside" | undefined

  const rename = Effect.gen(function* () {
    if (move === "ToTrash") {
      const moved = yield* store.toTrash(ref, entry.info)
      return Option.isNone(moved) ? changed : settled(Option.some(moved.value.path))
    }
    if (name._tag !== "Evicting") return changed
    const leaving = { ...ref, name }
    const done =
      move === "MoveBack"
        ? (yield* store.moveBack(leaving, entry.info)) === "moved"
        : Option.isSome(yield* store.setAside(leaving, entry.info))
    if (!done) return changed
    untold = move === "MoveBack" ? "undone" : "set aside"
    yield* tell(untold)
    return settled(Option.none())
  })

  return yield* transactions
    .companyExclusive(
      companyId,
      Effect.fnUntraced(function* () {
        yield* beforeSettle
        const nameTaken = Option.isSome(yield* store.inspect(copy))
        const still = Leftover.settle({ ...facts, nameTaken }, settings.grace)
        if (still._tag !== move) return changed
        // What was proven is what the database held then.
        const proven =
          Option.isNone(scan) || Equal.equals(revisionOf(yield* catalog.describe([copy]), copy), revision)
        return proven ? yield* rename : changed
      })
    )
    .pipe(
      Effect.tap(() => afterSettle),
      Effect.uninterruptible,
      Effect.catchTags({
        Changed: () => Effect.succeed(changed),
        CompanyBusy: () => Effect.succeed(kept({ _tag: "CompanyBusy" })),
        DatabaseError: (error: DatabaseError.DatabaseError) =>
          // Whatever name the folder has now, the next pass decides anew.
          Effect.andThen(
            untold === undefined
              ? Effect.void
              : Effect.ignore(tell(untold), {
                  log: "Warn",
                  message: "a settled leftover is not in the journal"
                }),
            DatabaseError.isPassing(error)
              ? Effect.as(Effect.logWarning(`a leftover stays: ${error.message}`), kept({ _tag: "LockLost" }))
              : Effect.fail(error)
          )
      })
    )
})
