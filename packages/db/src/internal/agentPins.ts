import { Ids } from "@reclaim/core"
import { Option, Schema } from "effect"

/**
 * `paperclipSkillSync` of an agent. The older hosts list keys of skills, which pin no version; the newer
 * ones list objects whose `versionId` pins when it is not null. Both can stand in one list.
 */
const SkillSync = Schema.NullOr(
  Schema.Struct({
    desiredSkills: Schema.optionalKey(
      Schema.NullOr(
        Schema.Array(
          Schema.Union([
            Schema.String,
            Schema.Struct({ versionId: Schema.optionalKey(Schema.NullOr(Schema.String)) })
          ])
        )
      )
    )
  })
)

/**
 * The versions that an agent's configuration names, or none when it cannot be understood. `shape` is the
 * JSON type of the whole configuration, null when the column is.
 */
export const agentPins = (
  shape: string | null,
  sync: unknown
): Option.Option<ReadonlyArray<Ids.VersionId>> => {
  if (shape !== null && shape !== "null" && shape !== "object") return Option.none()
  const decoded = Schema.decodeUnknownOption(SkillSync)(sync)
  if (Option.isNone(decoded)) return Option.none()
  const versionIds: Array<Ids.VersionId> = []
  for (const entry of decoded.value?.desiredSkills ?? []) {
    const named = typeof entry === "string" ? null : (entry.versionId ?? null)
    if (named === null) continue
    const versionId = Ids.parse(Ids.VersionId, named)
    if (Option.isNone(versionId)) return Option.none()
    versionIds.push(versionId.value)
  }
  return Option.some(versionIds)
}
