import type { Ids } from "@reclaim/core"
import { DatabaseError, Transactions } from "@reclaim/db"
import { type BytePath, type Trees, VersionStore } from "@reclaim/fs"
import { Clock, Duration, Effect } from "effect"
import type { DatabaseFailure, Services } from "./services.ts"

/** What deleting trash gave. `left` counts entries that could not go, `waiting` folders that are still there. */
export interface Deletion {
  readonly finished: number
  readonly reclaimedBytes: bigint
  readonly left: number
  readonly waiting: number
}

// 250 ms: a pool of one connection is not starved by a sweep, and nobody waits longer for the trash lock.
const slice = Duration.millis(250)
// 4: as many folders at once as there are threads to unlink with; more would only queue.
const concurrency = 4

/**
 * Deletes trash folders of one company under the trash lock, one slice after the other, interruptible
 * between any two entries. What another process deletes at the moment is left to it, and what cannot be
 * deleted now to a later sweep.
 */
export const deleteTrash = Effect.fnUntraced(function* (
  companyId: Ids.CompanyId,
  folders: ReadonlyArray<BytePath.BytePath>
): Effect.fn.Return<Deletion, DatabaseFailure, Services> {
  const transactions = yield* Transactions.Transactions
  const store = yield* VersionStore.VersionStore
  const clock = yield* Clock.Clock
  let finished = 0
  let reclaimedBytes = 0n
  let left = 0
  let stuck = 0
  // Taken from the end, so that a slice costs no more for what it does not come to.
  const pending = folders.toReversed()

  const report = (count: number, failures: Trees.Removal["failures"]) => {
    left += count
    stuck += 1
    return Effect.logWarning("some of the trash cannot be deleted").pipe(
      Effect.annotateLogs({ company: companyId, failures })
    )
  }

  const removeSlice = Effect.gen(function* () {
    const unfinished: Array<BytePath.BytePath> = []
    const end = clock.monotonicTimeNanosUnsafe() + Duration.toNanosUnsafe(slice)
    const remove = Effect.fnUntraced(
      function* (folder: BytePath.BytePath, remaining: bigint) {
        const removal = yield* store.removeTrash(folder, { deadline: Duration.nanos(remaining) })
        reclaimedBytes += removal.reclaimedBytes
        // What could not go is counted when the rest has gone: in the slice that reaches the end.
        if (removal.stopped && (removal.removedEntries > 0 || removal.failureCount === 0)) {
          return unfinished.push(folder)
        }
        if (removal.failureCount > 0) return yield* report(removal.failureCount, removal.failures)
        // What is gone without us is somebody else's success.
        if (removal.removedEntries > 0) finished += 1
      },
      Effect.catchTag("FileError", ({ code, path }) => report(1, [{ code, path }]))
    )
    const removeOneByOne = Effect.gen(function* () {
      for (;;) {
        const remaining = end - clock.monotonicTimeNanosUnsafe()
        const folder = remaining > 0n ? pending.pop() : undefined
        if (folder === undefined) return
        yield* remove(folder, remaining)
      }
    })
    yield* Effect.all(
      Array.from({ length: concurrency }, () => removeOneByOne),
      { concurrency, discard: true }
    )
    pending.push(...unfinished)
  })

  while (pending.length > 0) {
    const ended = yield* transactions
      .trash(companyId, () => removeSlice)
      .pipe(
        Effect.as(false),
        Effect.catchTags({
          CompanyBusy: () => Effect.succeed(true),
          // What was deleted is deleted, whatever became of the lock; the rest waits for a later sweep.
          DatabaseError: (error) =>
            DatabaseError.isPassing(error)
              ? Effect.as(Effect.logWarning(`the trash is left for later: ${error.message}`), true)
              : Effect.fail(error)
        })
      )
    if (ended) break
    yield* Effect.yieldNow
  }
  return { finished, reclaimedBytes, left, waiting: stuck + pending.length }
})
