import { Effect, Layer, Schema } from "effect"
import * as Fs from "node:fs"
import { monitorEventLoopDelay } from "node:perf_hooks"
import { BackupStore, InstanceRoots, PosixFileSystem, Trees } from "@reclaim/fs"
import { Ids } from "@reclaim/core"
const [source, instance] = process.argv.slice(2) as [string, string]
Fs.mkdirSync(instance, { recursive: true })
const layer = BackupStore.layer.pipe(
  Layer.provideMerge(Layer.mergeAll(Trees.layer, InstanceRoots.layer({ instance }))),
  Layer.provideMerge(PosixFileSystem.layer)
)
const scope = Schema.decodeSync(Ids.ScopeId)("a".repeat(64))
const rss = () => Math.round(process.memoryUsage.rss() / 1048576)
const main = Effect.gen(function* () {
  const store = yield* BackupStore.BackupStore
  let peak = 0
  const base = rss()
  const timer = setInterval(() => {
    peak = Math.max(peak, rss())
  }, 5)
  const delay = monitorEventLoopDelay({ resolution: 1 })
  delay.enable()
  const timed = <A, E>(what: string, e: Effect.Effect<A, E>) =>
    Effect.gen(function* () {
      const t = performance.now()
      delay.reset()
      peak = rss()
      const before = rss()
      const a = yield* e
      console.log(
        what,
        (performance.now() - t).toFixed(0),
        "ms; max loop delay",
        (delay.max / 1e6).toFixed(1),
        "ms; rss before",
        before,
        "peak",
        peak
      )
      return a
    })
  console.log("base rss", base)
  for (let i = 0; i < 2; i++) {
    const c = yield* timed(
      "capture",
      store.capture({
        scope,
        identity: { normalizedSessionId: Schema.decodeSync(Ids.NativeSessionId)("s1") },
        sources: [{ name: "codex-home", path: source }]
      })
    )
    console.log(c.bytes, c.manifest.directories)
  }
  console.log(
    yield* timed(
      "verify",
      Effect.gen(function* () {
        const s = yield* store.inspect(scope)
        return yield* store.verify(
          store.pathOf(scope) + "/current",
          (s.current as any).value.manifest.success
        )
      })
    )
  )
  Fs.rmSync(instance + "/target", { recursive: true, force: true })
  console.log(yield* timed("restore", store.restore({ scope, target: instance + "/target" })))
  clearInterval(timer)
}).pipe(Effect.provide(layer))
Effect.runPromise(main).catch((e) => {
  console.error(e)
  process.exit(1)
})
