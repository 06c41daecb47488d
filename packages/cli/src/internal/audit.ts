/** What `reclaim skills audit` prints. */
import { type DatabaseError, HostSchema, type SkillCatalog } from "@reclaim/db"
import { SkillVersionAudit } from "@reclaim/runtime"
import { Effect, Option, Stream } from "effect"
import * as Output from "../Output.ts"
import { Unsuccessful } from "./failure.ts"
import { makeListing } from "./listing.ts"
import { Printer } from "./printer.ts"
import type { OutputClosed } from "./process.ts"
import { differences, sentence } from "./reasons.ts"
import type { Column } from "./table.ts"
import { count } from "./units.ts"

const columns: ReadonlyArray<Column> = [
  { title: "VERSION", width: 36 },
  { title: "STATUS", width: 10 },
  { title: "REPAIRED", width: 8 },
  { title: "WHAT" }
]

const whatOf = ({ files, problemCount, reason, status }: SkillVersionAudit.Audited): string =>
  [
    ...(status === "missing" ? ["an active run pins it, and there is no copy"] : []),
    ...(files.length === 0 ? [] : [differences(files, problemCount)]),
    ...Option.toArray(Option.map(reason, sentence))
  ].join("; ")

const cellsOf = (audited: SkillVersionAudit.Audited): ReadonlyArray<string> => [
  Option.getOrElse(audited.versionId, () => "-"),
  audited.status,
  audited.status === "intact" ? "" : audited.repaired ? "yes" : "no",
  whatOf(audited)
]

const totals = ({ audited, found, repaired, unrepaired }: Output.AuditSummary): string =>
  [
    `audited ${count(audited, "copy", "copies")}`,
    ...Object.entries(found).flatMap(([status, times]) => (times === 0 ? [] : [`${times} ${status}`])),
    ...(repaired + unrepaired === 0 ? [] : [`${repaired} repaired`, `${unrepaired} left`])
  ].join(", ")

/** Audits a company and prints what is found. Fails when a finding is left unrepaired. */
export const auditCompany = Effect.fnUntraced(function* (
  options: SkillVersionAudit.AuditOptions
): Effect.fn.Return<
  void,
  DatabaseError.DatabaseError | OutputClosed | SkillVersionAudit.AuditError | Unsuccessful,
  HostSchema.HostSchema | Printer | SkillCatalog.SkillCatalog | SkillVersionAudit.SkillVersionAudit
> {
  const printer = yield* Printer
  const host = yield* HostSchema.HostSchema
  const { audit } = yield* SkillVersionAudit.SkillVersionAudit
  const list = yield* makeListing(columns)
  const empty: Output.AuditSummary = {
    type: "summary",
    companyId: options.companyId,
    audited: 0,
    found: { intact: 0, missing: 0, altered: 0, incomplete: 0, unprovable: 0, unexpected: 0 },
    repaired: 0,
    unrepaired: 0,
    selectionsRecorded: Option.isSome(yield* host.adopted)
  }
  const summary = yield* audit(options).pipe(
    Stream.runFoldEffect(
      () => empty,
      Effect.fnUntraced(function* (sum, audited) {
        const { companyId, status } = audited
        yield* printer.document(Output.Audit, { type: "audit", ...audited })
        yield* list({
          companyId,
          skillId: Option.getOrUndefined(audited.skillId),
          cells: cellsOf(audited)
        })
        const next: Output.AuditSummary = {
          ...sum,
          audited: sum.audited + 1,
          found: { ...sum.found, [status]: sum.found[status] + 1 },
          repaired: sum.repaired + (audited.repaired ? 1 : 0),
          unrepaired: sum.unrepaired + (SkillVersionAudit.isOpen(audited) ? 1 : 0)
        }
        yield* printer.progress(`audited ${count(next.audited, "copy", "copies")}`)
        return next
      })
    )
  )
  yield* printer.document(Output.AuditSummary, summary)
  yield* printer.lines(
    ...(summary.audited === 0 ? ["there is no copy on disk"] : ["", totals(summary)]),
    ...(summary.selectionsRecorded
      ? []
      : ["what runs selected is not recorded, so what is missing is not known: run reclaim migrate"])
  )
  if (summary.unrepaired > 0) return yield* new Unsuccessful()
})
