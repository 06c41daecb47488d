import { assert, describe, it } from "@effect/vitest"
import { type CopyComparison, FaultPoint } from "@reclaim/core"
import { Duration, Effect, Fiber, Latch, Logger, Option } from "effect"
import { spawnSync } from "node:child_process"
import * as Fs from "node:fs"
import * as Net from "node:net"
import type { FileError } from "../src/FileError.ts"
import type { TaskResult } from "../src/internal/treeProtocol.ts"
import * as WorkerPool from "../src/internal/workerPool.ts"
import * as Trees from "../src/Trees.ts"
import { largeFolder, tempFolder, write } from "./support/fixtures.ts"

const { Trees: Service } = Trees

const bytesOf = (folder: string, name: ReadonlyArray<number>) =>
  Buffer.concat([Buffer.from(`${folder}/`), Buffer.from(name)])

/** What `du` counts, in 512-byte blocks, of every path that is given once. */
const blocks = (...paths: ReadonlyArray<string | Buffer>) =>
  paths.reduce((total, path) => total + Fs.lstatSync(path, { bigint: true }).blocks * 512n, 0n)

const scanned = Effect.fnUntraced(function* (root: string, digests = false) {
  const trees = yield* Service
  const entries: Array<CopyComparison.DiskEntry> = []
  const scan = yield* trees.scan(root, { digests, onEntries: (chunk) => entries.push(...chunk) })
  return { scan, entries, byPath: new Map(entries.map((entry) => [entry.shownPath, entry])) }
})

const fingerprint = (root: string) =>
  Effect.flatMap(Service, (trees) => trees.scan(root, { digests: false })).pipe(
    Effect.map((scan) => scan.fingerprint)
  )

/** A FIFO, a socket that stays behind, a link, and a device where that is allowed. */
const specials = (folder: string) =>
  Effect.gen(function* () {
    spawnSync("mkfifo", [`${folder}/fifo`])
    yield* Effect.acquireRelease(
      Effect.callback<Net.Server>((resume) => {
        const server = Net.createServer()
        server.listen(`${folder}/socket`, () => resume(Effect.succeed(server)))
      }),
      (server) => Effect.callback<void>((resume) => void server.close(() => resume(Effect.void)))
    )
    Fs.symlinkSync("/etc", `${folder}/link`)
  })

/** Keeps threads, each with a scan that has begun, until the scope closes. */
const occupyThreads = Effect.fnUntraced(function* (folder: string, count: number) {
  const root = `${folder}/occupied`
  write(root, Object.fromEntries(Array.from({ length: 1000 }, (_, at) => [`f${at}`, "x"])))
  const trees = yield* Service
  for (let at = 0; at < count; at += 1) {
    const { advance } = yield* trees.scanSliced(root, { digests: true, slice: "1 millis" })
    assert.isTrue(Option.isNone(yield* advance))
  }
})

describe("Trees", () => {
  it.effect("[F-03] counts as du does, hard links once and those outside apart", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const root = `${folder}/tree`
      write(root, { "a/one": "1".repeat(5000), "a/b/two": "2".repeat(100), "shared/out": "3".repeat(9000) })
      Fs.linkSync(`${root}/a/one`, `${root}/a/again`)
      Fs.linkSync(`${root}/shared/out`, `${folder}/elsewhere`)
      Fs.linkSync(`${root}/shared/out`, `${root}/shared/twice`)
      Fs.truncateSync(`${root}/a/b/two`, 50_000_000)

      const usage = yield* (yield* Service).usage(root)
      const du = (flag: string) =>
        BigInt(spawnSync("du", [flag, "-s", root]).stdout.toString().split("\t")[0]!)
      assert.strictEqual(usage.allocatedBytes, du("-B1"))
      assert.strictEqual(
        usage.apparentBytes,
        5000n + 50_000_000n + 9000n + 4n * Fs.statSync(root, { bigint: true }).size
      )
      assert.strictEqual(usage.sharedBytes, blocks(`${root}/shared/out`))
      assert.strictEqual(usage.entries, 8)

      const { scan } = yield* scanned(root)
      assert.strictEqual(scan.allocatedBytes, usage.allocatedBytes)
      assert.strictEqual(scan.sharedBytes, usage.sharedBytes)
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )

  it.effect("[F-03] measures many trees, each by itself and in their order", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const roots = Array.from({ length: 150 }, (_, at) => `${folder}/tree-${at}`)
      for (const [at, root] of roots.entries()) write(root, { file: "x".repeat(at) })
      Fs.rmSync(roots[70]!, { recursive: true })
      Fs.rmSync(roots[140]!, { recursive: true })
      Fs.symlinkSync(roots[0]!, roots[140]!)
      const trees = yield* Service
      const one = yield* Effect.forEach(roots, (root) => Effect.result(trees.usage(root)))
      assert.deepStrictEqual(yield* trees.usages(roots), one)
      assert.deepStrictEqual(
        one.flatMap((usage) => (usage._tag === "Failure" ? [usage.failure.code] : [])),
        ["ENOENT", "ELOOP"]
      )
      assert.deepStrictEqual(yield* trees.usages([]), [])
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )

  it.effect("[F-01] counts links as links at every depth, and refuses one as the top", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      write(`${folder}/outside`, { secret: "s".repeat(100_000) })
      write(`${folder}/tree`, { "a/b/file": "x" })
      Fs.symlinkSync(`${folder}/outside`, `${folder}/tree/one`)
      Fs.symlinkSync(`${folder}/outside`, `${folder}/tree/a/two`)
      Fs.symlinkSync(`${folder}/outside/secret`, `${folder}/tree/a/b/three`)
      Fs.symlinkSync(`${folder}/tree`, `${folder}/top`)

      const { byPath, scan } = yield* scanned(`${folder}/tree`, true)
      assert.deepStrictEqual(
        ["one", "a/two", "a/b/three"].map((path) => byPath.get(path)?.kind),
        ["symlink", "symlink", "symlink"]
      )
      assert.isBelow(Number(scan.apparentBytes), 100_000)
      const trees = yield* Service
      for (const refused of [
        yield* Effect.flip(trees.scan(`${folder}/top`, { digests: false })),
        yield* Effect.flip(trees.usage(`${folder}/top`)),
        yield* Effect.flip(trees.remove(`${folder}/top`))
      ]) {
        assert.strictEqual(refused.code, "ELOOP")
      }
      assert.strictEqual((yield* Effect.flip(trees.remove(`${folder}/outside/secret`))).code, "ENOTDIR")
      const removal = yield* trees.remove(`${folder}/tree`)
      assert.isTrue(removal.complete)
      assert.strictEqual(Fs.readFileSync(`${folder}/outside/secret`, "utf8").length, 100_000)
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )

  it.effect("[F-08] reads no file that is larger than asked for, whatever its size", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      write(root, { file: "12345", "core.dump": "" })
      Fs.truncateSync(`${root}/core.dump`, 2 ** 40)
      const trees = yield* Service
      const digests = new Map<string, boolean>()
      yield* trees.scan(root, {
        digests: true,
        maxDigestBytes: 5,
        onEntries: (chunk) => {
          for (const { sha256, shownPath } of chunk) digests.set(shownPath, sha256 !== null)
        }
      })
      assert.deepStrictEqual(Object.fromEntries(digests), { file: true, "core.dump": false })
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )

  it.effect("[F-09] deletes no other folder than the one that is expected", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      write(root, { "a/file": "x", other: "y" })
      const trees = yield* Service
      const { dev, ino } = Fs.lstatSync(root, { bigint: true })
      for (const expected of [
        { dev, ino: ino + 1n },
        { dev: dev + 1n, ino }
      ]) {
        assert.strictEqual((yield* Effect.flip(trees.remove(root, { expected }))).code, "ECHANGED")
      }
      // Another folder takes the name after the first entry went.
      const replaced = yield* Effect.flip(
        trees.remove(root, { expected: { dev, ino } }).pipe(
          Effect.provideService(FaultPoint.FaultHandler, (point) =>
            Effect.sync(() => {
              if (point !== "trash.betweenEntries") return
              Fs.renameSync(root, `${root}.moved`)
              write(root, { precious: "p", "b/precious": "p" })
            })
          )
        )
      )
      assert.strictEqual(replaced.code, "ECHANGED")
      assert.deepStrictEqual(Fs.readdirSync(root).toSorted(), ["b", "precious"])
      assert.isTrue((yield* trees.remove(`${root}.moved`, { expected: { dev, ino } })).complete)
      assert.isTrue((yield* trees.remove(`${root}.moved`, { expected: { dev, ino } })).complete)
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )

  it.effect("[F-06] measures, digests and deletes names that are not UTF-8", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      Fs.mkdirSync(root)
      Fs.writeFileSync(bytesOf(root, [0x61, 0xff, 0xfe]), "abc")
      Fs.mkdirSync(bytesOf(root, [0xc3]))
      Fs.writeFileSync(Buffer.concat([bytesOf(root, [0xc3]), Buffer.from("/in")]), "abc")
      Fs.writeFileSync(`${root}/grün`, "abc")
      const { byPath, scan } = yield* scanned(root, true)
      assert.strictEqual(scan.entries, 4)
      // sha256 of "abc", as FIPS 180-2 gives it.
      const digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
      assert.deepStrictEqual(
        [...byPath]
          .map(([shown, { path, sha256 }]) => [shown, path, sha256] as const)
          .toSorted(([left], [right]) => (left < right ? -1 : 1)),
        [
          ["\\xc3", null, null],
          ["\\xc3/in", null, digest],
          ["a\\xff\\xfe", null, digest],
          ["grün", "grün", digest]
        ]
      )
      const removal = yield* (yield* Service).remove(root)
      assert.deepStrictEqual([removal.complete, removal.removedEntries], [true, 5])
      assert.isFalse(Fs.existsSync(root))
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )

  it.live("[F-07] never opens a FIFO, a socket or a device, and unlinks them", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      Fs.mkdirSync(root)
      yield* specials(root)
      // A FIFO without a writer blocks whoever opens it for reading: the test would not come back.
      const { byPath } = yield* scanned(root, true)
      assert.deepStrictEqual(
        ["fifo", "socket", "link"].map((name) => byPath.get(name)?.kind),
        ["fifo", "socket", "symlink"]
      )
      const removal = yield* (yield* Service).remove(root)
      assert.deepStrictEqual([removal.complete, removal.failureCount], [true, 0])
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )

  it.live("[F-07] deletes deeper than PATH_MAX, with few descriptors and without recursion", () =>
    Effect.gen(function* () {
      const folder = yield* largeFolder
      const root = `${folder}/tree`
      Fs.mkdirSync(root)
      // 2,000 levels of ten characters are five times PATH_MAX; a process walks down one name at a time.
      const dig = `process.chdir(process.argv[1])
        for (let at = 0; at < 2000; at += 1) {
          fs.mkdirSync("abcdefghij")
          process.chdir("abcdefghij")
          fs.writeFileSync("file", "")
        }`
      assert.strictEqual(spawnSync(process.execPath, ["-e", dig, root]).status, 0)
      const trees = yield* Service
      assert.strictEqual((yield* Effect.flip(trees.usage(root))).code, "ETOODEEP")
      const removal = yield* trees.remove(root)
      assert.deepStrictEqual(
        { complete: removal.complete, removed: removal.removedEntries, failures: removal.failures },
        { complete: true, removed: 4001, failures: [] }
      )
      assert.deepStrictEqual(Fs.readdirSync(folder), [])
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )

  it.effect("[F-07] counts as reclaimed only what had no other name and what it removed itself", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const root = `${folder}/tree`
      write(root, { own: "o".repeat(6000), shared: "s".repeat(9000), "d/own": "x" })
      Fs.linkSync(`${root}/shared`, `${folder}/outside`)
      Fs.linkSync(`${root}/own`, `${root}/d/again`)
      const expected = blocks(root, `${root}/d`, `${root}/own`, `${root}/d/own`)
      const removal = yield* (yield* Service).remove(root)
      assert.strictEqual(removal.reclaimedBytes, expected)
      assert.strictEqual(Fs.readFileSync(`${folder}/outside`, "utf8").length, 9000)
      assert.deepStrictEqual(yield* (yield* Service).remove(root), {
        complete: true,
        stopped: false,
        removedEntries: 0,
        reclaimedBytes: 0n,
        failures: [],
        failureCount: 0
      })
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )

  it.effect("[F-02] notices an edit deep inside, a mode, a link, a swap and a reused inode", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      const make = () => write(root, { "a/b/c/deep": "one", "a/other": "two", top: "three" })
      make()
      Fs.utimesSync(`${root}/a/b/c/deep`, 1000, 1000)
      const seen = new Set([yield* fingerprint(root)])
      const change = Effect.fnUntraced(function* (edit: () => void) {
        const before = Fs.lstatSync(root, { bigint: true })
        edit()
        const after = yield* fingerprint(root)
        assert.isFalse(seen.has(after))
        seen.add(after)
        return before
      })
      // The same size, and the times put back: the change time tells.
      const before = yield* change(() => {
        Fs.writeFileSync(`${root}/a/b/c/deep`, "eno")
        Fs.utimesSync(`${root}/a/b/c/deep`, 1000, 1000)
      })
      assert.deepStrictEqual(Fs.lstatSync(root, { bigint: true }).ctimeNs, before.ctimeNs)
      yield* change(() => Fs.chmodSync(`${root}/a/other`, 0o600))
      yield* change(() => Fs.writeFileSync(`${root}/a/b/added`, ""))
      yield* change(() => Fs.rmSync(`${root}/a/b/added`))
      yield* change(() => Fs.linkSync(`${root}/top`, `${root}/a/top`))
      yield* change(() => {
        Fs.renameSync(`${root}/top`, `${root}/swap`)
        Fs.renameSync(`${root}/a/other`, `${root}/top`)
        Fs.renameSync(`${root}/swap`, `${root}/a/other`)
      })
      yield* change(() => {
        Fs.rmSync(root, { recursive: true })
        make()
      })
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )

  it.effect("[F-02] stays the same over the rename of the top folder, and over any order of readdir", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      write(
        `${folder}/tree`,
        Object.fromEntries(Array.from({ length: 400 }, (_, at) => [`d${at % 7}/f${at}`, "x"]))
      )
      const before = yield* fingerprint(`${folder}/tree`)
      const top = Fs.lstatSync(`${folder}/tree`, { bigint: true })
      Fs.renameSync(`${folder}/tree`, `${folder}/.evicting`)
      assert.notStrictEqual(Fs.lstatSync(`${folder}/.evicting`, { bigint: true }).ctimeNs, top.ctimeNs)
      assert.strictEqual(yield* fingerprint(`${folder}/.evicting`), before)
      assert.match(before, /^[0-9a-f]{64}$/)
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )

  it.effect("[F-08] fails when a file cannot be read or the tree changes under the read", () =>
    Effect.gen(function* () {
      const root = `${yield* largeFolder}/tree`
      // More than two chunks of entries, so that the thread waits for this one while the tree changes.
      write(root, Object.fromEntries(Array.from({ length: 2000 }, (_, at) => [`f${at}`, "x"])))
      const trees = yield* Service
      let edited = false
      const error = yield* trees
        .scan(root, {
          digests: true,
          onEntries: () => {
            if (edited) return
            edited = true
            Fs.writeFileSync(`${root}/added`, "")
          }
        })
        .pipe(Effect.flip)
      assert.strictEqual(error.code, "ECHANGED")
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )

  it.live("[F-05] streams a folder of 20,000 entries in small chunks and never stalls the event loop", () =>
    Effect.gen(function* () {
      const root = `${yield* largeFolder}/tree`
      Fs.mkdirSync(root)
      for (let at = 0; at < 20_000; at += 1) Fs.writeFileSync(`${root}/${at}`, "")
      const trees = yield* Service
      let turns = 0
      let counting = true
      const turn = () => {
        turns += 1
        if (counting) setImmediate(turn)
      }
      turn()
      let largest = 0
      let total = 0
      yield* trees.scan(root, {
        digests: false,
        onEntries: (chunk) => {
          largest = Math.max(largest, chunk.length)
          total += chunk.length
        }
      })
      assert.strictEqual(total, 20_000)
      assert.isAtMost(largest, 256)
      turns = 0
      const removal = yield* trees.remove(root)
      counting = false
      assert.deepStrictEqual([removal.complete, removal.removedEntries], [true, 20_001])
      // A tree that is deleted on this thread leaves no turn, one that is deleted elsewhere thousands.
      assert.isAbove(turns, 200)
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )

  it.live("[F-07] stops between two entries when it is interrupted, and leaves the rest", () =>
    Effect.gen(function* () {
      const root = `${yield* largeFolder}/tree`
      write(root, Object.fromEntries(Array.from({ length: 5000 }, (_, at) => [`f${at}`, ""])))
      const trees = yield* Service
      const reached = yield* Latch.make(false)
      const gate = yield* Latch.make(false)
      const fiber = yield* trees.remove(root).pipe(
        Effect.provideService(FaultPoint.FaultHandler, (point) =>
          point === "trash.betweenEntries"
            ? Effect.andThen(reached.open, Effect.uninterruptible(gate.await))
            : Effect.void
        ),
        Effect.forkChild
      )
      yield* reached.await
      assert.strictEqual(Fs.readdirSync(root).length, 4999)
      const interruption = yield* Effect.forkChild(Fiber.interrupt(fiber))
      yield* Effect.yieldNow
      yield* gate.open
      yield* Fiber.await(interruption)
      const left = Fs.readdirSync(root).length
      assert.isAbove(left, 0)
      // Nothing goes on behind the interruption.
      yield* Effect.forEach(Array.from({ length: 20 }), () => Effect.yieldNow)
      assert.strictEqual(Fs.readdirSync(root).length, left)
      assert.isTrue((yield* trees.remove(root)).complete)
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )

  it.live("[F-07] interruption waits for the thread that is deleting", () =>
    Effect.gen(function* () {
      const folder = yield* largeFolder
      const root = `${folder}/tree`
      write(root, Object.fromEntries(Array.from({ length: 8000 }, (_, at) => [`f${at}`, ""])))
      const trees = yield* Service
      yield* occupyThreads(folder, 3)
      const fiber = yield* Effect.forkChild(trees.remove(root))
      while (Fs.readdirSync(root).length > 7900) yield* Effect.yieldNow
      yield* Fiber.interrupt(fiber)
      const left = Fs.readdirSync(root).length
      assert.isAbove(left, 0)
      // The thread is idle again: it takes the next task at once, and the folder did not shrink before.
      yield* trees
        .usage(root)
        .pipe(Effect.tap(({ entries }) => Effect.sync(() => assert.strictEqual(entries, left))))
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )

  it.effect("[S-22] leaves the rest at the deadline, and gets on by an entry with every call", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      write(root, { "a/1": "", "a/2": "", "b/1": "" })
      const trees = yield* Service
      let calls = 0
      let removed = 0
      for (let complete = false; !complete && calls < 20; calls += 1) {
        const removal = yield* trees.remove(root, { deadline: 0 })
        complete = removal.complete
        removed += removal.removedEntries
        assert.isAtLeast(removal.removedEntries, 1)
        // An entry of each of the two slices, and a folder that this left empty.
        assert.isAtMost(removal.removedEntries, 3)
      }
      assert.strictEqual(removed, 6)
      assert.isFalse(Fs.existsSync(root))
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )

  it.live("[S-22] gives up at the deadline while it waits for a thread, and touches nothing", () =>
    Effect.gen(function* () {
      const folder = yield* largeFolder
      write(`${folder}/tree`, { file: "" })
      const trees = yield* Service
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* occupyThreads(folder, 4)
          assert.deepStrictEqual(yield* trees.remove(`${folder}/tree`, { deadline: "20 millis" }), {
            complete: false,
            stopped: true,
            removedEntries: 0,
            reclaimedBytes: 0n,
            failures: [],
            failureCount: 0
          })
          // A time that no timer can hold is not over at once.
          const patient = yield* Effect.forkChild(
            trees.remove(`${folder}/tree`, { deadline: Duration.infinity })
          )
          yield* Effect.sleep("20 millis")
          assert.isUndefined(patient.pollUnsafe())
          yield* Fiber.interrupt(patient)
          assert.deepStrictEqual(Fs.readdirSync(`${folder}/tree`), ["file"])
        })
      )
      const removal = yield* trees.remove(`${folder}/tree`, { deadline: "1 minute" })
      assert.deepStrictEqual([removal.complete, removal.stopped], [true, false])
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )

  it.live("a thread that crashes fails its task, and the log says why", () =>
    Effect.gen(function* () {
      const root = yield* tempFolder
      const pool = yield* WorkerPool.make(1)
      const logged: Array<string> = []
      const crash = Effect.callback<TaskResult, FileError>((resume) => {
        // No whole number of nanoseconds: the thread throws before it has a task to fail.
        const task = { _tag: "Scan", root, digests: false, entries: false, sliceMillis: 0.5 } as const
        pool.submit(task, { onEnd: resume })
      })
      const error = yield* Effect.flip(crash).pipe(
        Effect.provide(Logger.layer([Logger.map(Logger.formatLogFmt, (line) => void logged.push(line))]))
      )
      assert.deepStrictEqual([error.operation, error.path, error.code], ["scan", root, "EWORKER"])
      assert.match(logged.join("\n"), /RangeError/)
    }).pipe(Effect.scoped)
  )

  it.live("[F-05] a slice without an end is the whole tree", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      write(root, { file: "" })
      const { advance } = yield* (yield* Service).scanSliced(root, {
        digests: false,
        slice: Duration.infinity
      })
      assert.isTrue(Option.isSome(yield* advance))
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )

  it.live("scans in slices, and gives up its thread with the scope", () =>
    Effect.gen(function* () {
      const folder = yield* largeFolder
      const root = `${folder}/tree`
      write(root, Object.fromEntries(Array.from({ length: 3000 }, (_, at) => [`f${at}`, "x"])))
      const trees = yield* Service
      yield* occupyThreads(folder, 3)
      const whole = yield* fingerprint(root)
      const { entries, slices } = yield* Effect.scoped(
        Effect.gen(function* () {
          let entries = 0
          const sliced = yield* trees.scanSliced(root, {
            digests: true,
            slice: "1 millis",
            onEntries: (chunk) => {
              entries += chunk.length
            }
          })
          let slices = 0
          for (;;) {
            slices += 1
            const result = yield* sliced.advance
            if (result._tag === "None") continue
            assert.strictEqual(result.value.fingerprint, whole)
            return { entries, slices }
          }
        })
      )
      assert.strictEqual(entries, 3000)
      assert.isAbove(slices, 2)
      yield* Effect.scoped(
        Effect.flatMap(trees.scanSliced(root, { digests: true, slice: "1 millis" }), ({ advance }) => advance)
      )
      // With one thread left, this would wait for ever if the sliced scan had kept it.
      assert.strictEqual(yield* fingerprint(root), whole)
    }).pipe(Effect.provide(Trees.layer), Effect.scoped)
  )
})
