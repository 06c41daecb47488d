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

const uuid = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/gi

/**
 * Every id in the texts and names of a value. Without recursion: a host's value can be nested deeply.
 */
const idsWithin = (value: unknown): ReadonlySet<Ids.VersionId> => {
  const found = new Set<Ids.VersionId>()
  const open: Array<unknown> = [value]
  while (open.length > 0) {
    const next = open.pop()
    if (typeof next === "string") {
      for (const [text] of next.matchAll(uuid)) {
        const id = Ids.parse(Ids.VersionId, text)
        if (Option.isSome(id)) found.add(id.value)
      }
    } else if (typeof next === "object" && next !== null) {
      for (const [name, inner] of Object.entries(next)) open.push(name, inner)
    }
  }
  return found
}

/**
 * The versions that an agent's configuration names, or none when it cannot be understood. `shape` is the
 * JSON type of the whole configuration, null when the column is. Every id that stands in the selection counts,
 * wherever it does, because a host may name versions in a shape that is not known yet; one that is no
 * version's keeps nothing.
 */
export const agentPins = (
  shape: string | null,
  sync: unknown
): Option.Option<ReadonlyArray<Ids.VersionId>> => {
  if (shape !== null && shape !== "null" && shape !== "object") return Option.none()
  const decoded = Schema.decodeUnknownOption(SkillSync)(sync)
  if (Option.isNone(decoded)) return Option.none()
  for (const entry of decoded.value?.desiredSkills ?? []) {
    const named = typeof entry === "string" ? null : (entry.versionId ?? null)
    if (named === null) continue
    if (Option.isNone(Ids.parse(Ids.VersionId, named))) return Option.none()
  }
  return Option.some([...idsWithin(sync)])
}
