/** Lists what lies on disk below the company and the skill that it belongs to. */
import type { Ids } from "@reclaim/core"
import { type DatabaseError, SkillCatalog } from "@reclaim/db"
import { Effect, Ref } from "effect"
import { Printer } from "./printer.ts"
import type { OutputClosed } from "./process.ts"
import { type Column, row } from "./table.ts"

/** One line, and what it stands below. */
export interface Listed {
  readonly companyId: Ids.CompanyId
  readonly skillId: Ids.SkillId | undefined
  readonly cells: ReadonlyArray<string> | string
}

/** Prints a line, after the headings that it needs. */
export type List = (at: Listed) => Effect.Effect<void, DatabaseError.DatabaseError | OutputClosed>

/** Prints what comes grouped by company and skill, with names where the host has them. */
export const makeListing = Effect.fnUntraced(function* (
  columns: ReadonlyArray<Column>
): Effect.fn.Return<List, never, Printer | SkillCatalog.SkillCatalog> {
  const printer = yield* Printer
  const catalog = yield* SkillCatalog.SkillCatalog
  const last = yield* Ref.make({ company: "", skill: "" })
  const names = yield* Ref.make<ReadonlyMap<Ids.SkillId, SkillCatalog.SkillName>>(new Map())
  return Effect.fnUntraced(function* (at: Listed) {
    if (printer.json) return
    const before = yield* Ref.getAndSet(last, { company: at.companyId, skill: at.skillId ?? "" })
    if (before.company !== at.companyId) {
      yield* Ref.set(names, yield* catalog.names(at.companyId))
      yield* printer.lines(
        ...(before.company === "" ? [] : [""]),
        `company ${at.companyId}`,
        row(
          columns,
          columns.map(({ title }) => title)
        )
      )
    }
    if (at.skillId !== undefined && (before.company !== at.companyId || before.skill !== at.skillId)) {
      const name = (yield* Ref.get(names)).get(at.skillId)
      yield* printer.lines(`skill ${at.skillId}${name === undefined ? "" : ` ${name.slug}`}`)
    }
    yield* printer.lines(typeof at.cells === "string" ? at.cells : row(columns, at.cells))
  })
})
