/** Puts the companies of the demonstration together, as values: nothing is written here. */
import { Ids } from "@reclaim/core"
import { companies } from "./catalog.ts"
import type { SkillSketch } from "./catalog.ts"
import { filesOf } from "./contents.ts"
import type { DemoFile } from "./contents.ts"
import * as Dice from "./dice.ts"

export interface DemoVersion {
  readonly id: Ids.VersionId
  readonly revision: number
  readonly files: ReadonlyArray<DemoFile>
  /** None for files that stand in the version's own row. */
  readonly snapshotId: string | undefined
  readonly createdDaysAgo: number
}

export interface DemoSkill {
  readonly id: Ids.SkillId
  readonly sketch: SkillSketch
  /** Oldest first; the last one is the current one. */
  readonly versions: ReadonlyArray<DemoVersion>
}

export interface DemoAgent {
  readonly id: Ids.AgentId
  readonly name: string
}

export interface DemoCompany {
  readonly id: Ids.CompanyId
  readonly name: string
  readonly agents: ReadonlyArray<DemoAgent>
  readonly skills: ReadonlyArray<DemoSkill>
}

// Any number does; with another one the files and ids differ and the story stays.
const seed = 20_261_130

export const make = (): ReadonlyArray<DemoCompany> => {
  const dice = Dice.make(seed)
  return companies.map((company) => ({
    id: Ids.CompanyId.make(dice.uuid()),
    name: company.name,
    agents: company.agents.map((name) => ({ id: Ids.AgentId.make(dice.uuid()), name })),
    skills: company.skills.map((sketch) => ({
      id: Ids.SkillId.make(dice.uuid()),
      sketch,
      versions: Array.from({ length: sketch.versions }, (_, index) => ({
        id: Ids.VersionId.make(dice.uuid()),
        revision: index + 1,
        files: filesOf(dice, sketch, index + 1),
        snapshotId: sketch.repository ? dice.uuid() : undefined,
        createdDaysAgo: (sketch.versions - index) * 9 + dice.between(0, 5)
      }))
    }))
  }))
}
