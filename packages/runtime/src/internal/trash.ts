import type { Ids } from "@reclaim/core"
import { Transactions } from "@reclaim/db"
import { type BytePath, Trees } from "@reclaim/fs"
import { Clock, Duration, Effect } from "effect"

/** What deleting trash gave. `left` counts entries that could not go. */
export interface Deletion {
  readonly finished: number
  readonly reclaimedBytes: bigint
  readonly left: number
}

// 250 ms: a pool of one connection is not starved by a sweep, and nobody waits longer for the trash lock.
const slice = Duration.millis(250)
// 4: as many folders at once as there are threads to unlink with; more would only queue.
const concurrency = 4

/**
 * Deletes trash folders of one company under the trash lock, one slice after the other, interruptible
 * between any two entries. A folder that another process deletes at the moment is left to it: it is gone
 * soon, or the next sweep finds it.
 */
export const deleteTrash = Effect.fnUntraced(function* (
  companyId: Ids.CompanyId,
  folders: ReadonlyArray<BytePath.BytePath>
) {
  const transactions = yield* Transactions.Transactions
  const trees = yield* Trees.Trees
  let finished = 0
  let reclaimedBytes = 0n
  let left = 0
  let pending = folders

  const removeSlice = Effect.gen(function* () {
    const unfinished: Array<BytePath.BytePath> = []
    const clock = yield* Clock.Clock
    const end = clock.monotonicTimeNanosUnsafe() + Duration.toNanosUnsafe(slice)
    const remove = Effect.fnUntraced(function* (folder: BytePath.BytePath) {
      const remaining = end - clock.monotonicTimeNanosUnsafe()
      if (remaining <= 0n) return unfinished.push(folder)
      const removal = yield* trees.remove(folder, { deadline: Duration.nanos(remaining) })
      reclaimedBytes += removal.reclaimedBytes
      if (removal.complete) return (finished += 1)
      if (removal.failureCount === 0) return unfinished.push(folder)
      left += removal.failureCount
      return yield* Effect.logWarning("some of the trash cannot be deleted").pipe(
        Effect.annotateLogs({ "reclaim.company": companyId, failures: removal.failures })
      )
    })
    yield* Effect.forEach(pending, remove, { concurrency, discard: true })
    pending = unfinished
  })

  while (pending.length > 0) {
    const busy = yield* transactions
      .trash(companyId, () => removeSlice)
      .pipe(
        Effect.as(false),
        Effect.catchTag("CompanyBusy", () => Effect.succeed(true))
      )
    if (busy) break
    yield* Effect.yieldNow
  }
  return { finished, reclaimedBytes, left } satisfies Deletion
})
