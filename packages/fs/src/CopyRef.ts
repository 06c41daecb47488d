/**
 * Names one copy of a skill version.
 *
 * @since 0.1.0
 */
import type { CopyRef as Core } from "@reclaim/core"

/** Whose copy it is and of what. @category models @since 0.1.0 */
export interface CopyRef extends Core.CopyRef {}
