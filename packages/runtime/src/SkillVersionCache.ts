/**
 * Brings skill version copies back: prepares what a run selected, restores one on request.
 *
 * **Details**
 *
 * A preparation first records the run's selection under the shared company lock, so that from then on no
 * sweep takes those copies; then it stages what is missing without any lock; then it publishes and looks
 * at each copy once more under the shared lock. Preparations of one company never wait for each other.
 *
 * **Gotchas**
 *
 * The calls refuse to run inside a transaction of the caller: they commit at points of their own.
 *
 * @since 0.1.0
 */
import type { Ids } from "@reclaim/core"
import { Ids as IdSchemas } from "@reclaim/core"
import { DatabaseError, HostSchema, SkillCatalog, SkillPins, Transactions } from "@reclaim/db"
import { Array as Arr, Context, Effect, Layer, Option, Schema } from "effect"
import { type MissingReason, type Outcome, type Verify, ensure } from "./internal/restoration.ts"
import { type Services, services } from "./internal/services.ts"

export type { MissingReason, Verify }

/**
 * The answer for one version. `path` is absolute. `restored` says that this call made the copy. The skill
 * is none when the database has no such version.
 *
 * @category models
 * @since 0.1.0
 */
export type Prepared =
  | {
      readonly _tag: "Ready"
      readonly skillId: Ids.SkillId
      readonly versionId: Ids.VersionId
      readonly path: string
      readonly restored: boolean
    }
  | {
      readonly _tag: "Missing"
      readonly skillId: Option.Option<Ids.SkillId>
      readonly versionId: Ids.VersionId
      readonly reason: MissingReason
    }

/** The database has no such company. @category errors @since 0.1.0 */
export class UnknownCompany extends Schema.TaggedError<UnknownCompany>()("UnknownCompany", {
  companyId: IdSchemas.CompanyId
}) {
  override get message() {
    return `the database has no company ${this.companyId}`
  }
}

/**
 * What a call can fail with as a whole. What concerns one version only is a `Missing` answer.
 *
 * @category errors
 * @since 0.1.0
 */
export type CacheError =
  | DatabaseError.DatabaseError
  | DatabaseError.NestedTransaction
  | HostSchema.NotAdopted
  | HostSchema.MissingTables
  | UnknownCompany

/**
 * @category services
 * @since 0.1.0
 */
export class SkillVersionCache extends Context.Service<
  SkillVersionCache,
  {
    /**
     * Pins the versions for the run and makes their copies ready. May be repeated: a run's pins add up
     * until it is released. No versions at all make the run known. `verify` says how closely a copy that
     * is there is looked at: `shape` (the default) compares names, kinds, sizes and executable bits,
     * `digest` contents too.
     */
    readonly prepare: (options: {
      readonly companyId: Ids.CompanyId
      readonly runId: Ids.RunId
      readonly versions: ReadonlyArray<Ids.VersionId>
      readonly verify?: Verify
    }) => Effect.Effect<ReadonlyArray<Prepared>, CacheError>
    /** Makes one copy ready without pinning it; it counts as used now. */
    readonly restore: (options: {
      readonly companyId: Ids.CompanyId
      readonly versionId: Ids.VersionId
      readonly verify?: Verify
    }) => Effect.Effect<Prepared, CacheError>
    /** Drops the pins of a run, which stays known. Returns how many there were. */
    readonly release: (runId: Ids.RunId) => Effect.Effect<number, CacheError>
  }
>()("@reclaim/runtime/SkillVersionCache") {}

const toPrepared = (outcome: Outcome): Prepared =>
  outcome._tag === "Ready"
    ? {
        _tag: "Ready",
        skillId: outcome.copy.skillId,
        versionId: outcome.copy.versionId,
        path: outcome.path,
        restored: outcome.restored
      }
    : {
        _tag: "Missing",
        skillId: Option.some(outcome.copy.skillId),
        versionId: outcome.copy.versionId,
        reason: outcome.reason
      }

const unknownVersion = (versionId: Ids.VersionId): Prepared => ({
  _tag: "Missing",
  skillId: Option.none(),
  versionId,
  reason: { _tag: "NotRecoverable", detail: "the company has no such version in the database" }
})

/** Finds the copies of versions and pins them for the run, if there is one, in the transaction that is open. */
const select = Effect.fnUntraced(function* (
  companyId: Ids.CompanyId,
  versions: ReadonlyArray<Ids.VersionId>,
  runId: Option.Option<Ids.RunId>
) {
  const catalog = yield* SkillCatalog.SkillCatalog
  const pins = yield* SkillPins.SkillPins
  if (!(yield* catalog.hasCompany(companyId))) return yield* new UnknownCompany({ companyId })
  const skills = yield* catalog.lookup(companyId, versions)
  const copies = versions.flatMap((versionId) => {
    const skillId = skills.get(versionId)
    return skillId === undefined ? [] : [{ companyId, skillId, versionId }]
  })
  if (Option.isSome(runId)) yield* pins.record(companyId, runId.value, copies)
  return copies
})

const prepareWith = Effect.fnUntraced(function* (
  companyId: Ids.CompanyId,
  versions: ReadonlyArray<Ids.VersionId>,
  verify: Verify,
  runId: Option.Option<Ids.RunId>
) {
  const transactions = yield* Transactions.Transactions
  const host = yield* HostSchema.HostSchema
  yield* host.requireSkills
  const wanted = Arr.dedupe(versions)
  const copies = yield* DatabaseError.retry(
    transactions.companyShared(companyId, () =>
      Effect.andThen(host.requireAdopted("preparing copies"), select(companyId, wanted, runId))
    )
  )
  const outcomes = new Map(
    (yield* ensure(companyId, copies, { verify, healing: false })).map((outcome) => [
      outcome.copy.versionId,
      toPrepared(outcome)
    ])
  )
  return wanted.map((versionId) => outcomes.get(versionId) ?? unknownVersion(versionId))
})

/**
 * The cache on the services of the host.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<SkillVersionCache, never, Services> = Layer.effect(
  SkillVersionCache,
  Effect.gen(function* () {
    const pins = yield* SkillPins.SkillPins
    const transactions = yield* Transactions.Transactions
    const context = yield* services
    return SkillVersionCache.of({
      prepare: Effect.fn("SkillVersionCache.prepare")(function* (options) {
        return yield* prepareWith(
          options.companyId,
          options.versions,
          options.verify ?? "shape",
          Option.some(options.runId)
        )
      }, Effect.provideContext(context)),
      restore: Effect.fn("SkillVersionCache.restore")(function* (options) {
        const [prepared] = yield* prepareWith(
          options.companyId,
          [options.versionId],
          options.verify ?? "shape",
          Option.none()
        )
        return prepared ?? unknownVersion(options.versionId)
      }, Effect.provideContext(context)),
      release: Effect.fn("SkillVersionCache.release")((runId) =>
        DatabaseError.retry(transactions.run(() => pins.release(runId)))
      )
    })
  })
)
