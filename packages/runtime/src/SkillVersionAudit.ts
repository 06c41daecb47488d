/**
 * Audits the copies of one company: tells of each whether it is what the database would rebuild, and on
 * request puts right what is not.
 *
 * **Details**
 *
 * Each copy is read whole, contents included, in slices of at most 250 ms under the shared company lock, so
 * that no copy is moved while it is read and nobody waits long for an audit. Preparations are not held up.
 * A repair is the one that a preparation makes: a good copy is published, an altered one is kept aside,
 * missing ones are restored, and the journal tells.
 *
 * **Gotchas**
 *
 * A version whose run is preparing at this very moment counts as missing until it is published. A copy that
 * was repaired counts as used now. Where a copy cannot be read in peace because it is being written, or the
 * lock cannot be had, it is `unprovable` with that reason.
 *
 * @since 0.1.0
 */
import { type Ids, VersionAudit } from "@reclaim/core"
import { HostSchema, SkillCatalog } from "@reclaim/db"
import { type CopyRef, type FileError, VersionStore } from "@reclaim/fs"
import { Context, Effect, Layer, Option, Result, Stream } from "effect"
import { type Busy, absent, inspect, repair } from "./internal/auditing.ts"
import { manifestsOf } from "./internal/judgement.ts"
import { type Services, services } from "./internal/services.ts"
import { type CacheError, type MissingReason, UnknownCompany } from "./SkillVersionCache.ts"

/** @category options @since 0.1.0 */
export interface AuditOptions {
  readonly companyId: Ids.CompanyId
  /** Repairs what is altered or incomplete, and restores what is missing. */
  readonly repair?: boolean
}

/**
 * What was found in one place. Skill and version are none where the name of what lies there is neither's.
 * `path` is for people. `repaired` tells that the copy is whole now; where a repair was refused, `reason` says
 * why.
 *
 * @category models
 * @since 0.1.0
 */
export interface Audited extends VersionAudit.Verdict {
  readonly companyId: Ids.CompanyId
  readonly skillId: Option.Option<Ids.SkillId>
  readonly versionId: Option.Option<Ids.VersionId>
  readonly path: string
  readonly reason: Option.Option<MissingReason>
  readonly repaired: boolean
}

/** What ends an audit. What concerns one copy is a verdict. @category errors @since 0.1.0 */
export type AuditError = CacheError | FileError.FileError

/** @category services @since 0.1.0 */
export class SkillVersionAudit extends Context.Service<
  SkillVersionAudit,
  {
    /**
     * Every copy of the company in the order of paths, and everything else that lies among them and that
     * Reclaim did not make; then the versions that active runs pin and that have no copy. What crashed
     * processes left is not told: a sweep settles it. Without the schema `reclaim` no pins are known, so
     * nothing is missing then, and a repair fails with `NotAdopted`. Interruption takes effect between
     * slices and copies.
     */
    readonly audit: (options: AuditOptions) => Stream.Stream<Audited, AuditError>
  }
>()("@reclaim/runtime/SkillVersionAudit") {}

// 50: as many manifests as are in memory at once, like in a batch of a sweep.
const group = 50

/** Whether something is still to be put right. @category queries @since 0.1.0 */
export const isOpen = ({ repaired, status }: Pick<Audited, "repaired" | "status">): boolean =>
  status !== "intact" && !repaired

/** The copy that an entry is, if it is one. */
const copyOf = (entry: VersionStore.StoreEntry): CopyRef.CopyRef | undefined =>
  entry._tag === "Entry" && entry.name._tag === "Copy"
    ? { companyId: entry.companyId, skillId: entry.skillId, versionId: entry.name.versionId }
    : undefined

const auditWith = Effect.fnUntraced(function* (options: AuditOptions) {
  const { companyId } = options
  const catalog = yield* SkillCatalog.SkillCatalog
  const host = yield* HostSchema.HostSchema
  const store = yield* VersionStore.VersionStore
  yield* host.requireSkills
  if (!(yield* catalog.hasCompany(companyId))) return yield* new UnknownCompany({ companyId })
  if (options.repair === true) yield* host.requireAdopted("repairing copies")
  const busy: Busy = { shared: false, exclusive: false }
  const obstructed = new Set<Ids.VersionId>()

  const toAudited = (copy: CopyRef.CopyRef, verdict: VersionAudit.Verdict): Audited => ({
    ...verdict,
    companyId,
    skillId: Option.some(copy.skillId),
    versionId: Option.some(copy.versionId),
    path: store.pathOf(copy),
    repaired: false
  })

  const settle = Effect.fnUntraced(function* (
    found: ReadonlyArray<{ readonly copy: CopyRef.CopyRef; readonly verdict: VersionAudit.Verdict }>
  ) {
    const broken = found.filter(({ verdict }) => VersionAudit.isRepairable(verdict)).map(({ copy }) => copy)
    if (options.repair !== true || broken.length === 0) {
      return found.map(({ copy, verdict }) => toAudited(copy, verdict))
    }
    const refused = yield* repair(companyId, broken, busy)
    return found.map(({ copy, verdict }): Audited => {
      const audited = toAudited(copy, verdict)
      if (!VersionAudit.isRepairable(verdict)) return audited
      const reason = Option.fromUndefinedOr(refused.get(copy.versionId))
      return { ...audited, reason, repaired: Option.isNone(reason) }
    })
  })

  /** One at a time; the manifests of some copies are read together. */
  const auditEntries = Effect.fnUntraced(function* (entries: ReadonlyArray<VersionStore.StoreEntry>) {
    const copies = entries.flatMap((entry) => copyOf(entry) ?? [])
    const rows = yield* catalog.describe(copies)
    const manifestOf = yield* manifestsOf(
      copies.filter((copy) => Option.isSome(SkillCatalog.rowOf(rows, copy)))
    )
    const auditCopy = Effect.fn("SkillVersionAudit.copy")(function* (copy: CopyRef.CopyRef) {
      const manifest = manifestOf(copy)
      const verdict =
        manifest !== undefined && Result.isSuccess(manifest)
          ? yield* inspect(copy, manifest.success, busy)
          : Option.some(
              VersionAudit.fromReason({
                _tag: "NotRecoverable",
                detail: manifest?.failure.detail ?? "the database has no such version of this skill"
              })
            )
      return yield* settle(Option.toArray(Option.map(verdict, (verdict) => ({ copy, verdict }))))
    })
    return Stream.fromIterable(entries).pipe(
      Stream.mapEffect((entry): ReturnType<typeof auditCopy> => {
        if (entry._tag === "Obstacle") {
          const { reason, shownPath, skillId, versionId } = entry
          if (Option.isSome(versionId)) obstructed.add(versionId.value)
          const verdict = VersionAudit.fromReason(reason)
          return Effect.succeed([
            { ...verdict, companyId, skillId, versionId, path: shownPath, repaired: false }
          ])
        }
        const copy = copyOf(entry)
        return copy === undefined ? Effect.succeed([]) : auditCopy(copy)
      })
    )
  })

  // What was an obstacle among the entries is told once.
  const auditAbsent = Effect.map(absent(companyId, busy), (all) =>
    all.filter(({ copy, verdict }) => verdict.status === "missing" || !obstructed.has(copy.versionId))
  )

  return store
    .entries({ company: companyId })
    .pipe(
      Stream.grouped(group),
      Stream.mapEffect(auditEntries),
      Stream.flatten,
      Stream.concat(Stream.fromEffect(Effect.flatMap(auditAbsent, settle))),
      Stream.flatMap(Stream.fromIterable)
    )
})

/**
 * The audit on the services of the host.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<SkillVersionAudit, never, Services> = Layer.effect(
  SkillVersionAudit,
  Effect.map(services, (context) =>
    SkillVersionAudit.of({
      audit: (options) => Stream.unwrap(auditWith(options)).pipe(Stream.provideContext(context))
    })
  )
)
