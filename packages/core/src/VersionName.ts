/**
 * Tells what an entry of a skill's folder under `__versions__` is, from its name alone.
 *
 * **Details**
 *
 * | name | meaning |
 * |---|---|
 * | `<versionId>` | a copy |
 * | `.staging-<versionId>-<UUID>` | a copy being restored |
 * | `.evicting-<versionId>-<UUID>` | a copy that is leaving and may still come back |
 * | `.replaced-<versionId>-<UUID>` | an altered copy that a repair set aside |
 * | `.trash-<UUID>` | being deleted, never comes back |
 *
 * Any other name is `Unexpected` and stays.
 *
 * @since 0.1.0
 */
import { Option, Schema } from "effect"
import { VersionId } from "./Ids.ts"

const uuid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
const Token = Schema.String.check(
  Schema.isPattern(new RegExp(`^${uuid}$`), { expected: "a lower-case UUID" })
)

/** @category models @since 0.1.0 */
export const VersionName = Schema.TaggedUnion({
  Copy: { versionId: VersionId },
  Staging: { versionId: VersionId, token: Token },
  Evicting: { versionId: VersionId, token: Token },
  Replaced: { versionId: VersionId, token: Token },
  Trash: { token: Token },
  Unexpected: {}
})
/** @category models @since 0.1.0 */
export type VersionName = typeof VersionName.Type

/** The names that only Reclaim makes, and that it alone settles. @category models @since 0.1.0 */
export type Leftover = Extract<VersionName, { readonly _tag: "Staging" | "Evicting" | "Replaced" | "Trash" }>

const leaving = new RegExp(`^\\.(?:(staging)|(evicting)|replaced)-(${uuid})-(${uuid})$`)
const trash = new RegExp(`^\\.trash-(${uuid})$`)

/**
 * Parses the name of an entry. Names that are not valid text can be passed in any lossy decoding: what is
 * not plain ASCII is `Unexpected` all the same.
 *
 * @category parsing
 * @since 0.1.0
 */
export const parse = (name: string): VersionName => {
  const version = Schema.decodeOption(VersionId)(name)
  if (Option.isSome(version)) return { _tag: "Copy", versionId: version.value }
  const moved = leaving.exec(name)
  if (moved !== null) {
    const [, staging, evicting, versionId, token] = moved
    return {
      _tag: staging !== undefined ? "Staging" : evicting !== undefined ? "Evicting" : "Replaced",
      versionId: VersionId.make(versionId!),
      token: token!
    }
  }
  const dead = trash.exec(name)
  return dead === null ? { _tag: "Unexpected" } : { _tag: "Trash", token: dead[1]! }
}

/**
 * The name on disk, the inverse of `parse`.
 *
 * @category formatting
 * @since 0.1.0
 */
export const format = (name: Exclude<VersionName, { readonly _tag: "Unexpected" }>): string => {
  switch (name._tag) {
    case "Copy":
      return name.versionId
    case "Staging":
      return `.staging-${name.versionId}-${name.token}`
    case "Evicting":
      return `.evicting-${name.versionId}-${name.token}`
    case "Replaced":
      return `.replaced-${name.versionId}-${name.token}`
    case "Trash":
      return `.trash-${name.token}`
  }
}
