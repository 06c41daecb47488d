import type { Ids } from "@reclaim/core"
import { SkillPins } from "@reclaim/db"
import { type CopyRef, VersionStore } from "@reclaim/fs"
import { Array as Arr, Effect, Option } from "effect"
import { canWait } from "./housekeeping.ts"
import { ensure } from "./restoration.ts"
import type { DatabaseFailure, Services } from "./services.ts"

/**
 * Restores copies that active runs pin and that are missing: a process that was killed between the rename
 * and its undo leaves such a hole. Returns how many came back; what cannot come back is logged. A company
 * that cannot be asked now is logged too, and does not hold up the others.
 */
export const heal = Effect.fnUntraced(function* (
  companyId: Ids.CompanyId | undefined
): Effect.fn.Return<number, DatabaseFailure, Services> {
  const pins = yield* SkillPins.SkillPins
  const store = yield* VersionStore.VersionStore
  const pinned = new Map((yield* pins.activePins(companyId)).map((pin) => [pin.versionId, pin]))

  const isMissing = (copy: CopyRef.CopyRef) =>
    store.inspect(copy).pipe(
      Effect.map(Option.isNone),
      Effect.catchTag("FileError", (error) =>
        Effect.as(Effect.logWarning(`an active run's copy cannot be looked at: ${error.message}`), false)
      )
    )

  const healCompany = (copies: Arr.NonEmptyReadonlyArray<CopyRef.CopyRef>) =>
    ensure(copies[0].companyId, copies, { verify: "shape", healing: true }).pipe(
      Effect.catchIf(canWait, (error) =>
        Effect.as(
          Effect.logWarning(`a company's copies could not be healed: ${error.message}`).pipe(
            Effect.annotateLogs({ company: copies[0].companyId })
          ),
          []
        )
      )
    )

  let healed = 0
  const missing = yield* Effect.filter(pinned.values(), isMissing)
  for (const copies of Object.values(Arr.groupBy(missing, (copy) => copy.companyId))) {
    for (const outcome of yield* healCompany(copies)) {
      if (outcome._tag === "Ready") healed += outcome.restored ? 1 : 0
      else {
        yield* Effect.logWarning("an active run's copy is missing").pipe(
          Effect.annotateLogs({
            company: outcome.copy.companyId,
            version: outcome.copy.versionId,
            reason: outcome.reason
          })
        )
      }
    }
  }
  return healed
})
