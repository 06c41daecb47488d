/**
 * Names one copy of a skill version, by the folders it lies in.
 *
 * @since 0.1.0
 */
import type { CompanyId, SkillId, VersionId } from "./Ids.ts"

/** Whose copy it is and of what. @category models @since 0.1.0 */
export interface CopyRef {
  readonly companyId: CompanyId
  readonly skillId: SkillId
  readonly versionId: VersionId
}
