/** Does one thing to the backups of an instance and kills itself at a point, the `nth` time it is reached. */
import { FaultPoint } from "@reclaim/core"
import { Effect, Option } from "effect"
import * as BackupStore from "../../src/BackupStore.ts"
import { backupLayer, captureOptions, scope } from "./backups.ts"

const [action = "", instance = "", point = "", nth = "1"] = process.argv.slice(2)

const kill = Effect.callback<never>(() => {
  process.kill(process.pid, "SIGKILL")
})

let left = Number(nth)
const handler = (reached: string) =>
  Effect.suspend(() => {
    if (reached !== point) return Effect.void
    left -= 1
    return left === 0 ? kill : Effect.void
  })

const actions: Record<string, Effect.Effect<unknown, unknown, BackupStore.BackupStore>> = {
  capture: Effect.flatMap(BackupStore.BackupStore, (store) => store.capture(captureOptions(instance))),
  /** Killed while the thread copies: when it asks about an entry, everything before that was written. */
  copying: Effect.flatMap(BackupStore.BackupStore, (store) => {
    const { sources, ...options } = captureOptions(instance)
    const select: BackupStore.Source["select"] = (path) => {
      if (path === point) process.kill(process.pid, "SIGKILL")
      return { _tag: "Copy" }
    }
    return store.capture({ ...options, sources: sources.map((source) => ({ ...source, select })) })
  }),
  restore: Effect.flatMap(BackupStore.BackupStore, (store) =>
    store.restore({ scope: scope(), target: `${instance}/target` })
  ),
  verify: Effect.gen(function* () {
    const store = yield* BackupStore.BackupStore
    const { manifest, path } = Option.getOrThrow((yield* store.inspect(scope())).current)
    const verification = yield* store.verify(path, yield* Effect.fromResult(manifest))
    return verification._tag
  }),
  retire: Effect.gen(function* () {
    const store = yield* BackupStore.BackupStore
    const { current } = yield* store.inspect(scope())
    const retiring = yield* store.retire(scope(), "current", Option.getOrThrow(current).info)
    yield* retiring.confirm
    return yield* store.expire(retiring)
  }).pipe(Effect.scoped)
}

Effect.runPromise(
  actions[action]!.pipe(
    Effect.provideService(FaultPoint.FaultHandler, handler),
    Effect.provide(backupLayer(instance))
  )
).then(
  (result) => process.stdout.write(action === "verify" ? String(result) : "done"),
  (error: unknown) => {
    process.stderr.write(String(error))
    process.exitCode = 1
  }
)
