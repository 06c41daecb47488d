/** The folders in which restorations are made, beside their targets. */
import { Clock, Duration, Effect, Stream } from "effect"
import { createHash, randomUUID } from "node:crypto"
import * as NodePath from "node:path"
import { text } from "../BytePath.ts"
import type { PosixFileSystem } from "../PosixFileSystem.ts"
import type { Trees } from "../Trees.ts"

// 24 hours: no restoration takes that long, and nothing is lost by waiting.
const abandonedAfter = Duration.toMillis(Duration.hours(24))

const uuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** Says for which target a folder is. A hash, because the target's name may be as long as a name can be. */
const prefix = (target: string) =>
  `.restoring-${createHash("sha256").update(NodePath.basename(target)).digest("hex").slice(0, 16)}-`

/** A fresh path beside the target. */
export const fresh = (target: string): string =>
  `${NodePath.dirname(target)}/${prefix(target)}${randomUUID()}`

/**
 * Removes what restorations to this very target left that were killed more than a day ago. Each is claimed by
 * a rename first, so that one that goes on after all fails instead of publishing half a folder. What cannot be
 * removed is logged: it is in nobody's way.
 */
export const removeAbandoned = Effect.fnUntraced(
  function* (posix: PosixFileSystem["Service"], trees: Pick<Trees["Service"], "remove">, target: string) {
    const folder = NodePath.dirname(target)
    const now = yield* Clock.currentTimeMillis
    const ours = prefix(target)
    yield* posix.names(folder).pipe(
      Stream.map(({ name }) => text(name)),
      Stream.filter((name) => name?.startsWith(ours) === true && uuid.test(name.slice(ours.length))),
      Stream.runForEach(
        Effect.fnUntraced(function* (name) {
          const path = `${folder}/${name}`
          const info = yield* posix.lstat(path)
          // The later of the two: an entry that is added sets the one, a rename the other.
          const touched = info.mtimeNs > info.ctimeNs ? info.mtimeNs : info.ctimeNs
          if (info.kind !== "directory" || now - Number(touched / 1_000_000n) < abandonedAfter) return
          const claimed = fresh(target)
          yield* posix.rename(path, claimed)
          const { failureCount, failures } = yield* trees.remove(claimed, { expected: info })
          if (failureCount > 0) {
            yield* Effect.logWarning("An abandoned restoration could not be deleted whole", failures)
          }
        })
      )
    )
  },
  Effect.catch((error) => Effect.logWarning("Abandoned restorations could not be removed", error))
)
