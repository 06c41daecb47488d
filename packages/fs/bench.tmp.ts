import { Effect } from "effect"
import * as Fs from "node:fs"
import { spawnSync } from "node:child_process"
import * as Trees from "./src/Trees.ts"
const base = process.argv[2]!
const make = (root: string, dirs: number, files: number) => {
  Fs.mkdirSync(root, { recursive: true })
  for (let d = 0; d < dirs; d++) {
    Fs.mkdirSync(`${root}/d${d}`)
    for (let i = 0; i < files; i++) Fs.writeFileSync(`${root}/d${d}/f${i}`, "hello world".repeat(20))
  }
}
const time = (f: () => unknown) => {
  const t = performance.now()
  f()
  return (performance.now() - t).toFixed(0)
}
const main = Effect.gen(function* () {
  const trees = yield* Trees.Trees
  yield* trees.usage("/etc").pipe(Effect.ignore)
  for (let r = 0; r < 3; r++) {
    // 40 copies of 50 folders of 25 files = 2000 folders, 50,000 files
    for (let c = 0; c < 40; c++) make(`${base}/rm/c${c}`, 50, 25)
    spawnSync("sync")
    const du = time(() => spawnSync("du", ["-s", `${base}/rm`]))
    const t0 = performance.now()
    yield* trees.usage(`${base}/rm`)
    const us = (performance.now() - t0).toFixed(0)
    const t00 = performance.now()
    yield* Effect.forEach(
      Array.from({ length: 40 }, (_, c) => `${base}/rm/c${c}`),
      (p) => trees.usage(p),
      { concurrency: 4 }
    )
    const us4 = (performance.now() - t00).toFixed(0)
    const t01 = performance.now()
    yield* trees.scan(`${base}/rm`, { digests: false })
    const sc = (performance.now() - t01).toFixed(0)
    const t02 = performance.now()
    yield* trees.scan(`${base}/rm`, { digests: true })
    const scd = (performance.now() - t02).toFixed(0)
    const rm = time(() => spawnSync("rm", ["-rf", `${base}/rm`]))
    for (let c = 0; c < 40; c++) make(`${base}/t/c${c}`, 50, 25)
    spawnSync("sync")
    const t = performance.now()
    yield* Effect.forEach(
      Array.from({ length: 40 }, (_, c) => `${base}/t/c${c}`),
      (p) => trees.remove(p),
      { concurrency: 4 }
    )
    const ours = (performance.now() - t).toFixed(0)
    for (let c = 0; c < 40; c++) make(`${base}/t/c${c}`, 50, 25)
    spawnSync("sync")
    const t1 = performance.now()
    yield* trees.remove(`${base}/t`)
    const one = (performance.now() - t1).toFixed(0)
    for (let c = 0; c < 40; c++) make(`${base}/t/c${c}`, 50, 25)
    spawnSync("sync")
    const t2 = performance.now()
    Fs.rmSync(`${base}/t`, { recursive: true })
    const nodeRm = (performance.now() - t2).toFixed(0)
    console.log(
      JSON.stringify({
        du,
        usage: us,
        usage4: us4,
        scan: sc,
        scanDigests: scd,
        rm,
        ours4: ours,
        ours1: one,
        nodeRm
      })
    )
  }
}).pipe(Effect.provide(Trees.layer))
Effect.runPromise(main)
