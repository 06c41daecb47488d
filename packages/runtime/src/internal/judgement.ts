import { RetentionPolicy, RetentionSettings, type Manifest, type VersionReason } from "@reclaim/core"
import { DatabaseClock, type DatabaseError, SkillCatalog, SkillPins, Transactions } from "@reclaim/db"
import { AccessRecords, type CopyRef, InstanceRoots, type VersionStore } from "@reclaim/fs"
import { Array as Arr, DateTime, Effect, Option, Result } from "effect"
import { type Examination, obstacleOf } from "./examination.ts"
import { versionFacts } from "./facts.ts"
import type { Services } from "./services.ts"

/** An entry whose name is of one kind, or of some. */
export type Entry<Tag extends VersionStore.Entry["name"]["_tag"]> = VersionStore.Entry & {
  readonly name: Extract<VersionStore.Entry["name"], { readonly _tag: Tag }>
}

/**
 * A copy with all that is known before contents are read: none of `reasons` makes it a candidate. `revision`
 * is that of its row, read before its manifest.
 */
export interface Judged {
  readonly copy: CopyRef.CopyRef
  readonly revision: Option.Option<string>
  readonly entry: VersionStore.Entry
  readonly facts: RetentionPolicy.VersionFacts
  readonly reasons: ReadonlyArray<VersionReason.VersionReason>
}

/** What the database would rebuild for a copy; undefined where it has no such version. */
export type ManifestOf = (
  copy: CopyRef.CopyRef
) => Result.Result<Manifest.Manifest, Manifest.UnusableSnapshot> | undefined

const isCopy = (entry: VersionStore.StoreEntry): entry is Entry<"Copy"> =>
  entry._tag === "Entry" && entry.name._tag === "Copy"

/** What the row of a copy is now; none where the database has none. */
export const revisionOf = (
  rows: ReadonlyMap<CopyRef.CopyRef["versionId"], SkillCatalog.VersionRow>,
  copy: CopyRef.CopyRef
): Option.Option<string> => Option.map(SkillCatalog.rowOf(rows, copy), ({ revision }) => revision)

/** The two clocks, read together. */
export const clocks: Effect.Effect<
  RetentionPolicy.Now,
  DatabaseError.DatabaseError,
  DatabaseClock.DatabaseClock
> = Effect.flatMap(DatabaseClock.DatabaseClock, ({ now }) =>
  Effect.all({ database: now, local: DateTime.now })
)

/** Copies that were judged together, as of an instant. */
export interface Judgement {
  readonly now: RetentionPolicy.Now
  readonly judged: ReadonlyArray<Judged>
}

/**
 * Judges the copies among some entries, of any number of companies, as of the instant that comes with them: in
 * one transaction and a number of statements that does not depend on how many they are. Reads no contents.
 */
export const judge = Effect.fnUntraced(function* (
  entries: ReadonlyArray<VersionStore.StoreEntry>
): Effect.fn.Return<Judgement, DatabaseError.DatabaseError, Services | RetentionSettings.RetentionSettings> {
  const transactions = yield* Transactions.Transactions
  const catalog = yield* SkillCatalog.SkillCatalog
  const pins = yield* SkillPins.SkillPins
  const records = yield* AccessRecords.AccessRecords
  const settings = yield* RetentionSettings.RetentionSettings
  const copies = entries.filter(isCopy).map((entry) => ({
    entry,
    copy: { companyId: entry.companyId, skillId: entry.skillId, versionId: entry.name.versionId }
  }))
  if (copies.length === 0) return { now: yield* clocks, judged: [] }
  const { companyPins, now, rows } = yield* transactions.join(
    "judging copies",
    Effect.all({
      now: clocks,
      rows: catalog.describe(copies.map(({ copy }) => copy)),
      companyPins: pins.facts(Arr.dedupe(copies.map(({ copy }) => copy.companyId)))
    })
  )
  const lastUses = yield* records.readAll(copies.map(({ copy }) => copy))
  const judged = Arr.zipWith(copies, lastUses, ({ copy, entry }, read): Judged => {
    const facts = versionFacts({
      copy,
      rows,
      pins: companyPins.get(copy.companyId),
      lastUse: Result.getOrElse(read, () => ({ _tag: "Absent" }) as const),
      obstacles: Result.isFailure(read) ? [obstacleOf(read.failure)] : []
    })
    const reasons = RetentionPolicy.reasonsBeforeProof(facts, settings, now)
    return { copy, revision: revisionOf(rows, copy), entry, facts, reasons }
  })
  return { now, judged }
})

/** A copy in one word, for who collects things by it. */
export const keyOf = ({ companyId, skillId, versionId }: CopyRef.CopyRef) =>
  `${companyId}/${skillId}/${versionId}`

/**
 * The manifests of some copies, in one statement per company. The caller asks only for copies whose row is
 * of their skill: what lies in the folder of another skill is not the version's copy, whatever it contains.
 */
export const manifestsOf = Effect.fnUntraced(function* (
  copies: ReadonlyArray<CopyRef.CopyRef>
): Effect.fn.Return<ManifestOf, DatabaseError.DatabaseError, Services> {
  const catalog = yield* SkillCatalog.SkillCatalog
  const { caseInsensitive } = yield* InstanceRoots.InstanceRoots
  const found = new Map<string, Result.Result<Manifest.Manifest, Manifest.UnusableSnapshot>>()
  for (const group of Object.values(Arr.groupBy(copies, ({ companyId }) => companyId))) {
    const versionIds = Arr.dedupe(group.map(({ versionId }) => versionId))
    const manifests = yield* catalog.manifests(group[0].companyId, versionIds, { caseInsensitive })
    for (const copy of group) {
      const manifest = manifests.get(copy.versionId)
      if (manifest !== undefined) found.set(keyOf(copy), manifest)
    }
  }
  return (copy) => found.get(keyOf(copy))
})

/** Why a folder that was compared stays, if it does. */
export const reasonOf = ({ proof }: Examination): VersionReason.VersionReason | undefined =>
  proof._tag === "Same" ? undefined : proof._tag === "Obstructed" ? proof.obstacle : proof
