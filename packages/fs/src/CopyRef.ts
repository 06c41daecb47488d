/**
 * Names one copy of a skill version.
 *
 * @since 0.1.0
 */
import type { Ids } from "@reclaim/core"

/** Whose copy it is and of what. @category models @since 0.1.0 */
export interface CopyRef {
  readonly companyId: Ids.CompanyId
  readonly skillId: Ids.SkillId
  readonly versionId: Ids.VersionId
}
