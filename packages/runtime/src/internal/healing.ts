import type { Ids } from "@reclaim/core"
import { SkillPins } from "@reclaim/db"
import { type CopyRef, VersionStore } from "@reclaim/fs"
import { Array as Arr, Effect, Option } from "effect"
import { ensure } from "./restoration.ts"

/**
 * Restores copies that active runs pin and that are missing: a process that was killed between the rename
 * and its undo leaves such a hole. Returns how many came back; what cannot come back is logged.
 */
export const heal = Effect.fnUntraced(function* (companyId: Ids.CompanyId | undefined) {
  const pins = yield* SkillPins.SkillPins
  const store = yield* VersionStore.VersionStore
  const pinned = Arr.dedupeWith(
    yield* pins.activePins(companyId),
    (a, b) => a.versionId === b.versionId && a.companyId === b.companyId
  )
  const missing = yield* Effect.filter(pinned, (copy) =>
    Effect.map(
      Effect.option(store.inspect(copy)),
      (found) => Option.isSome(found) && Option.isNone(found.value)
    )
  )
  let healed = 0
  for (const copies of Object.values(Arr.groupBy(missing, (copy) => copy.companyId))) {
    for (const outcome of yield* ensure(copies[0].companyId, copies, { verify: "shape", healing: true })) {
      if (outcome._tag === "Ready") healed += outcome.restored ? 1 : 0
      else
        yield* Effect.logWarning("an active run's copy is missing").pipe(
          Effect.annotateLogs(annotations(outcome))
        )
    }
  }
  return healed
})

const annotations = (outcome: {
  readonly copy: CopyRef.CopyRef
  readonly reason: { readonly _tag: string }
}) => ({
  company: outcome.copy.companyId,
  version: outcome.copy.versionId,
  reason: outcome.reason
})
