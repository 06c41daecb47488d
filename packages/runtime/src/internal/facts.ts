import type { RetentionPolicy, VersionReason } from "@reclaim/core"
import { SkillCatalog, type SkillPins } from "@reclaim/db"
import type { CopyRef } from "@reclaim/fs"
import { Option } from "effect"

/**
 * Puts together what the database and the disk know about one copy. The plan and the look under the lock
 * use this same function, so that they cannot come to mean different things.
 */
export const versionFacts = (input: {
  readonly copy: CopyRef.CopyRef
  readonly rows: ReadonlyMap<CopyRef.CopyRef["versionId"], SkillCatalog.VersionRow>
  readonly pins: SkillPins.CompanyPins | undefined
  readonly lastUse: RetentionPolicy.LastUse
  readonly obstacles?: ReadonlyArray<VersionReason.Obstacle>
  readonly proof?: Option.Option<RetentionPolicy.Proof>
}): RetentionPolicy.VersionFacts => {
  const { versionId } = input.copy
  const { pins } = input
  const row = SkillCatalog.rowOf(input.rows, input.copy)
  // A host's own layer that gives no answer for a company has not said that nothing is pinned.
  const silent: ReadonlyArray<VersionReason.Obstacle> =
    pins === undefined ? [{ _tag: "Unreadable", code: "ENOPINS", path: input.copy.companyId }] : []
  return {
    current: Option.exists(row, ({ current }) => current),
    rank: Option.map(row, ({ rank }) => rank),
    activeRuns: pins?.activeRuns.get(versionId) ?? [],
    unsettledRecovery: pins?.unsettledRecovery.get(versionId) ?? [],
    agents: pins?.agents.get(versionId) ?? [],
    testRuns: pins?.testRuns.get(versionId) ?? [],
    selectionUnknown: pins?.selectionUnknown ?? [],
    agentsUnreadable: pins?.agentsUnreadable ?? [],
    held: Option.fromUndefinedOr(pins?.held.get(versionId)),
    lastUse: input.lastUse,
    obstacles: [...silent, ...(input.obstacles ?? [])],
    proof: input.proof ?? Option.none()
  }
}
