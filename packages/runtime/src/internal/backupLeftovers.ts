import { BackupLeftover, type Ids, type RetentionPolicy } from "@reclaim/core"
import { BackupStore, type FileError } from "@reclaim/fs"
import { Effect, Option, Result } from "effect"
import type { Services } from "../BackupExpiration.ts"
import { ageOf, type Inspected, tell, usageOf } from "./expiration.ts"

/** What settling the leftovers of a scope did. `expired` are folders to delete. */
export interface Settled {
  readonly recovered: number
  readonly expired: ReadonlyArray<BackupStore.Moved<"Expired">>
  readonly stays: ReadonlyArray<BackupLeftover.Why>
}

const backupOf = (backup: BackupStore.Backup, digests: BackupLeftover.Digests): BackupLeftover.Backup => ({
  completedAt: Option.map(Result.getSuccess(backup.manifest), ({ completedAt }) => completedAt),
  digests
})

/** Compares a backup with the digests of its manifest. One that cannot be read is not verified. */
const verify = Effect.fnUntraced(function* ({ manifest, path }: BackupStore.Backup) {
  const store = yield* BackupStore.BackupStore
  if (Result.isFailure(manifest)) return "failed" as const
  const outcome = yield* Effect.result(store.verify(path, manifest.success))
  return Result.isSuccess(outcome) && outcome.success._tag === "Verified"
    ? ("verified" as const)
    : ("failed" as const)
})

/** Moves a leftover and tells of it, with no interruption in between. */
const told = Effect.fnUntraced(function* <A, E, R>(
  event: "expired" | "recovered",
  leftover: BackupStore.Leftover,
  companyId: Ids.CompanyId | null,
  move: Effect.Effect<A, E, R>,
  happened: (outcome: A) => boolean
) {
  const allocatedBytes = yield* usageOf([leftover])
  return yield* move.pipe(
    Effect.tap((outcome) =>
      happened(outcome) ? tell(event, { scope: leftover.scope, companyId, allocatedBytes }) : Effect.void
    ),
    Effect.uninterruptible
  )
})

const isMoved = (outcome: BackupStore.MoveBack): boolean => outcome === "moved"

/**
 * Settles what interrupted captures and expirations left in a scope, as the pure rules say. Each action is
 * one rename that overwrites nothing, so two processes may do this at once.
 */
export const settleScope = Effect.fnUntraced(function* (
  { disk }: Inspected,
  companyId: Ids.CompanyId | null,
  runs: BackupLeftover.ScopeFacts["runs"],
  held: boolean,
  now: RetentionPolicy.Now
): Effect.fn.Return<Settled, FileError.FileError, Services> {
  const store = yield* BackupStore.BackupStore
  const digests = new Map<string, BackupLeftover.Digests>()
  const named = [...disk.retiring, ...disk.expired, ...disk.pending]
  const byName = new Map(named.map((leftover) => [leftover.name, leftover]))
  const facts = (): BackupLeftover.ScopeFacts => {
    const described = (backup: BackupStore.Backup) =>
      backupOf(backup, digests.get(backup.name) ?? "unverified")
    return {
      current: Option.map(disk.current, described),
      previous: Option.map(disk.previous, described),
      retiring: disk.retiring.map((leftover) => ({ ...described(leftover), name: leftover.name })),
      expired: disk.expired.map((leftover) => ({ ...described(leftover), name: leftover.name })),
      pending: disk.pending.map(({ info, name }) => ({ name, age: ageOf(info.mtimeNs, now) })),
      runs,
      held
    }
  }

  let settlements = BackupLeftover.settle(facts())
  // At most once for `current` and once for each leftover: a digest that is known is not asked for again.
  for (let round = 0; round <= named.length + 1; round++) {
    const wanted = settlements.find(({ action }) => action._tag === "Verify")
    if (wanted === undefined || wanted.action._tag !== "Verify") break
    const backup =
      wanted.action.what === "current" ? Option.getOrUndefined(disk.current) : byName.get(wanted.name)
    if (backup === undefined) break
    digests.set(backup.name, yield* verify(backup))
    settlements = BackupLeftover.settle(facts())
  }

  let recovered = 0
  const expired: Array<BackupStore.Moved<"Expired">> = []
  const stays: Array<BackupLeftover.Why> = []
  for (const { action, kind, name } of settlements) {
    const leftover = byName.get(name)
    if (leftover === undefined) continue
    switch (action._tag) {
      case "Leave":
        stays.push(action.why)
        break
      case "Delete":
        if (leftover.kind === "Expired") expired.push({ ...leftover, kind: leftover.kind })
        break
      case "ToExpired":
        if (leftover.kind === "Pending") {
          expired.push(...Option.toArray(yield* store.drop({ ...leftover, kind: leftover.kind })))
        } else if (leftover.kind === "Retiring") {
          const moved = store.expire({ ...leftover, kind: leftover.kind })
          expired.push(...Option.toArray(yield* told("expired", leftover, companyId, moved, Option.isSome)))
        }
        break
      case "Restore": {
        if (leftover.kind === "Pending") break
        const moved = store.revive({ ...leftover, kind: leftover.kind })
        if ((yield* told("recovered", leftover, companyId, moved, isMoved)) === "moved") recovered += 1
        break
      }
      case "Verify":
      case "Wait":
        yield* Effect.logDebug("a leftover waits for the next sweep").pipe(
          Effect.annotateLogs({ scope: disk.scope, kind, name })
        )
    }
  }
  return { recovered, expired, stays }
})
