import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Fs from "node:fs"
import { type Calls, type Environment, make, TreeError } from "../src/internal/treeEngine.ts"
import { tempFolder, write } from "./support/fixtures.ts"

interface Run {
  readonly engine: ReturnType<typeof make>
  readonly pauses: Array<number>
}

const errno = (code: string) => Object.assign(new Error(code), { code })

/** The engine on this thread, with some calls replaced. */
const run = (calls: Partial<Calls> = {}, environment: Partial<Environment> = {}): Run => {
  const pauses: Array<number> = []
  const engine = make({
    calls: { ...Fs, ...calls },
    cancelled: () => false,
    breathe: () => undefined,
    emit: () => undefined,
    pause: (millis) => pauses.push(millis),
    now: () => 0n,
    wallClock: () => 0,
    wake: () => undefined,
    ...environment
  })
  return { engine, pauses }
}

type Call = (...args: Array<never>) => unknown

/** A call with something around it; it keeps its type, overloads and all. */
const around = <F extends Call>(call: F, wrap: (path: string, proceed: () => unknown) => unknown): F =>
  new Proxy(call, {
    apply: (target, self, args: Array<unknown>) =>
      wrap(String(args[0]), () => Reflect.apply(target, self, args))
  })

/** As on a system whose open descriptors cannot be addressed. */
const plain: Partial<Calls> = {
  readlinkSync: around(Fs.readlinkSync, () => {
    throw errno("ENOENT")
  })
}

const everything = { deadline: null, maxEntries: null }

const failing = (
  name: "unlinkSync" | "rmdirSync",
  code: string,
  match: (path: string) => boolean,
  times = Number.POSITIVE_INFINITY
): Partial<Calls> => {
  let left = times
  return {
    [name]: around(Fs[name], (path, proceed) => {
      if (!match(path) || left === 0) return proceed()
      left -= 1
      throw errno(code)
    })
  }
}

const codeOf = (call: () => unknown): string => {
  try {
    call()
    return "none"
  } catch (error) {
    return error instanceof TreeError ? error.code : String(error)
  }
}

describe("treeEngine", () => {
  it.effect("[F-07] goes on after an entry that cannot go, and reports it with its reason", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      write(root, { "a/keep": "1", "a/go": "2", "b/go": "3", go: "4" })
      const { engine, pauses } = run(failing("unlinkSync", "EPERM", (path) => path.endsWith("/keep")))
      const removal = engine.remove(root, everything)
      assert.isFalse(removal.complete)
      assert.deepStrictEqual(removal.failures, [{ path: `${root}/a/keep`, code: "EPERM" }])
      assert.strictEqual(removal.failureCount, 1)
      assert.strictEqual(removal.removedEntries, 4)
      assert.deepStrictEqual(pauses, [])
      assert.deepStrictEqual(Fs.readdirSync(root), ["a"])
      assert.deepStrictEqual(Fs.readdirSync(`${root}/a`), ["keep"])
    }).pipe(Effect.scoped)
  )

  it.effect("[F-07] lists a hundred failures at most and counts them all", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      write(root, Object.fromEntries(Array.from({ length: 150 }, (_, at) => [`f${at}`, ""])))
      const removal = run(failing("unlinkSync", "EPERM", () => true)).engine.remove(root, everything)
      assert.deepStrictEqual([removal.failures.length, removal.failureCount], [100, 150])
    }).pipe(Effect.scoped)
  )

  it.effect("[F-07] retries what is passing, from one budget for the whole tree", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      for (const [code, name] of [
        ["EBUSY", "unlinkSync"],
        ["ENOTEMPTY", "rmdirSync"],
        ["EMFILE", "rmdirSync"],
        ["ENFILE", "unlinkSync"]
      ] as const) {
        write(`${folder}/tree`, { "a/1": "", "a/2": "", "b/1": "" })
        const { engine, pauses } = run(failing(name, code, (path) => !path.endsWith("/tree"), 5))
        assert.isTrue(engine.remove(`${folder}/tree`, everything).complete, code)
        assert.strictEqual(pauses.length, 5, code)
      }
      write(`${folder}/tree`, Object.fromEntries(Array.from({ length: 90 }, (_, at) => [`f${at}`, ""])))
      const { engine, pauses } = run(failing("unlinkSync", "EBUSY", () => true))
      const removal = engine.remove(`${folder}/tree`, everything)
      assert.strictEqual(removal.failureCount, 90)
      assert.strictEqual(pauses.length, 100)
    }).pipe(Effect.scoped)
  )

  it.effect("[F-07] tells a deadline that ended it from all else that leaves a rest", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      write(root, Object.fromEntries(Array.from({ length: 20 }, (_, at) => [`f${at}`, ""])))
      let time = 0n
      const failures = failing("unlinkSync", "EPERM", (path) => path.endsWith("1"))
      const { engine } = run(failures, { now: () => (time += 1n) })
      const some = engine.remove(root, { deadline: null, maxEntries: 3 })
      assert.deepStrictEqual([some.complete, some.stopped, some.removedEntries], [false, false, 3])
      const late = engine.remove(root, { deadline: 5n, maxEntries: null })
      assert.deepStrictEqual([late.complete, late.stopped], [false, true])
      const failed = engine.remove(root, { deadline: 1_000_000n, maxEntries: null })
      assert.deepStrictEqual([failed.complete, failed.stopped, failed.failureCount], [false, false, 2])
      const both = engine.remove(root, { deadline: 0n, maxEntries: null })
      assert.deepStrictEqual([both.complete, both.stopped, both.failureCount], [false, true, 1])
    }).pipe(Effect.scoped)
  )

  it.effect("[F-07] retries nothing past the deadline", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const root = `${folder}/tree`
      const busy = (call: Partial<Calls>) => {
        write(root, { "a/file": "" })
        let waited = 0n
        const { engine } = run(call, {
          pause: (millis) => (waited += BigInt(millis)),
          now: () => waited
        })
        const removal = engine.remove(root, { deadline: 100n, maxEntries: null })
        assert.deepStrictEqual([removal.complete, removal.stopped, waited], [false, true, 100n])
        return removal.failures
      }
      const entry = failing("unlinkSync", "EBUSY", () => true)
      assert.deepStrictEqual(busy(entry), [{ path: `${root}/a/file`, code: "EBUSY" }])
      const top = failing("rmdirSync", "EBUSY", (path) => path === root)
      assert.deepStrictEqual(busy(top), [])
      const openSync = around(Fs.openSync, (path, proceed) => {
        if (path !== root) return proceed()
        throw errno("EMFILE")
      })
      assert.deepStrictEqual(busy({ openSync }), [{ path: root, code: "EMFILE" }])
    }).pipe(Effect.scoped)
  )

  it.effect("[F-07] does not count what somebody else removed", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      write(root, { "a/mine": "", "a/theirs": "", "b/theirs": "" })
      const { engine } = run({
        unlinkSync: (path) => {
          Fs.unlinkSync(path)
          if (String(path).endsWith("theirs")) Fs.unlinkSync(path)
        }
      })
      const removal = engine.remove(root, everything)
      assert.deepStrictEqual([removal.complete, removal.removedEntries, removal.failureCount], [true, 4, 0])
    }).pipe(Effect.scoped)
  )

  it.effect("[F-07] empties a folder again when somebody wrote into it", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      write(root, { "a/1": "" })
      let late = 3
      const { engine } = run({
        rmdirSync: (path) => {
          if (late > 0 && String(path).endsWith("/a")) {
            late -= 1
            Fs.writeFileSync(`${root}/a/late${late}`, "")
          }
          Fs.rmdirSync(path)
        }
      })
      const removal = engine.remove(root, everything)
      assert.deepStrictEqual([removal.complete, removal.removedEntries], [true, 6])
    }).pipe(Effect.scoped)
  )

  it.effect("[F-01] does not enter a link that takes a folder's place after it was listed", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      for (const without of [{}, plain]) {
        const root = `${folder}/tree`
        write(root, { "a/file": "" })
        write(`${folder}/outside`, { precious: "p" })
        const swap = () => {
          if (!Fs.existsSync(`${root}/a/file`)) return
          Fs.renameSync(`${root}/a`, `${folder}/moved`)
          Fs.symlinkSync(`${folder}/outside`, `${root}/a`)
        }
        // Between the look at the folder and its opening.
        const calls: Partial<Calls> = {
          ...without,
          openSync: (path, flags, mode) => {
            if (String(path).endsWith("/a")) swap()
            return Fs.openSync(path, flags, mode)
          }
        }
        assert.include(
          ["ENOTDIR", "ELOOP"],
          codeOf(() => run(calls).engine.usage(root))
        )
        Fs.unlinkSync(`${root}/a`)
        Fs.renameSync(`${folder}/moved`, `${root}/a`)
        const removal = run(calls).engine.remove(root, everything)
        assert.isFalse(removal.complete)
        assert.deepStrictEqual(Fs.readdirSync(`${folder}/outside`), ["precious"])
        Fs.rmSync(root, { recursive: true })
        Fs.rmSync(`${folder}/moved`, { recursive: true })
      }
    }).pipe(Effect.scoped)
  )

  it.effect("[F-08] notices another folder or file under the name that was listed", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const root = `${folder}/tree`
      // Not at the top, whose own times are compared in the end.
      write(root, { "sub/a/file": "one", "sub/plain": "two" })
      write(folder, { "other/file": "one", same: "two" })
      const replace = (name: string, by: string): Partial<Calls> => ({
        openSync: (path, flags, mode) => {
          if (String(path).endsWith(`/${name}`) && Fs.existsSync(by)) {
            Fs.renameSync(`${root}/sub/${name}`, `${by}.old`)
            Fs.renameSync(by, `${root}/sub/${name}`)
          }
          return Fs.openSync(path, flags, mode)
        }
      })
      const options = { digests: true, entries: false }
      assert.strictEqual(
        codeOf(() => run(replace("a", `${folder}/other`)).engine.scan(root, options)),
        "ECHANGED"
      )
      assert.strictEqual(
        codeOf(() => run(replace("plain", `${folder}/same`)).engine.scan(root, options)),
        "ECHANGED"
      )
    }).pipe(Effect.scoped)
  )

  it.effect("[F-08] notices a file that grows while it is read", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      for (const size of [10, 1_000_000]) {
        write(root, { file: "x".repeat(size) })
        let grown = false
        const readSync = around(Fs.readSync, (_descriptor, proceed) => {
          if (!grown) {
            grown = true
            Fs.appendFileSync(`${root}/file`, "y")
          }
          return proceed()
        })
        const scan = () => run({ readSync }).engine.scan(root, { digests: true, entries: false })
        assert.strictEqual(codeOf(scan), "ECHANGED")
      }
    }).pipe(Effect.scoped)
  )

  it.effect("[F-08] stops reading a file that has more than was listed", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      for (const size of [10, 1_000_000]) {
        write(root, { file: "x".repeat(size) })
        let reads = 0
        const readSync = around(Fs.readSync, (_descriptor, proceed) => {
          reads += 1
          if (reads > 20) throw errno("EIO")
          // As fast as it is read.
          Fs.appendFileSync(`${root}/file`, "y".repeat(256 * 1024))
          return proceed()
        })
        const scan = () => run({ readSync }).engine.scan(root, { digests: true, entries: false })
        assert.strictEqual(codeOf(scan), "ECHANGED")
        assert.isAtMost(reads, 5)
      }
    }).pipe(Effect.scoped)
  )

  it.effect("[F-08] does not open a file that is larger than what is to be read", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      write(root, { small: "12345", large: "123456", "core.dump": "" })
      Fs.truncateSync(`${root}/core.dump`, 2 ** 40)
      for (const maxDigestBytes of [5, 5n]) {
        const digests = new Map<string, boolean>()
        const openSync = around(Fs.openSync, (path, proceed) => {
          if (/(large|core.dump)$/.test(path)) throw errno("EIO")
          return proceed()
        })
        const { engine } = run(
          { openSync },
          { emit: ({ sha256, shownPath }) => void digests.set(shownPath, sha256 !== null) }
        )
        engine.scan(root, { digests: true, entries: true, maxDigestBytes })
        assert.deepStrictEqual(Object.fromEntries(digests), { small: true, large: false, "core.dump": false })
      }
    }).pipe(Effect.scoped)
  )

  it.effect("[F-05] reads a folder in small pieces and hands out each entry as it is met", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      write(root, Object.fromEntries(Array.from({ length: 3000 }, (_, at) => [`f${at}`, ""])))
      let looked = 0
      let emitted = 0
      let ahead = 0
      const sizes = new Set<number | undefined>()
      const { engine } = run(
        {
          lstatSync: around(Fs.lstatSync, (path, proceed) => {
            if (/\/f\d+$/.test(path)) looked += 1
            ahead = Math.max(ahead, looked - emitted)
            return proceed()
          }),
          opendirSync: (path, options) => {
            sizes.add(options?.bufferSize)
            return Fs.opendirSync(path, options)
          }
        },
        { emit: () => (emitted += 1) }
      )
      engine.scan(root, { digests: false, entries: true })
      assert.deepStrictEqual([emitted, ahead], [3000, 1])
      assert.deepStrictEqual([...sizes], [512])
    }).pipe(Effect.scoped)
  )

  it.effect("[F-04] enters no other file system, and keeps what is mounted", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      write(root, { "a/mounted/precious": "p", "a/go": "", "file mount": "f" })
      const bound: Partial<Calls> = {
        readFileSync: around(Fs.readFileSync, (path, proceed) =>
          path === "/proc/self/mountinfo"
            ? [
                "22 1 8:1 / / rw - ext4 /dev/vda rw",
                `23 22 8:1 / ${root}/a/mounted rw - ext4 /dev/vda rw`,
                `24 22 8:1 / ${root}/file\\040mount rw - ext4 /dev/vda rw`
              ].join("\n")
            : proceed()
        )
      }
      const device: Partial<Calls> = {
        lstatSync: around(Fs.lstatSync, (path, proceed) => {
          const stat = proceed()
          if (
            path.endsWith("/mounted") &&
            stat instanceof Object &&
            "dev" in stat &&
            typeof stat.dev === "bigint"
          ) {
            stat.dev += 1n
          }
          return stat
        })
      }
      for (const calls of [bound, device]) {
        assert.strictEqual(
          codeOf(() => run(calls).engine.usage(root)),
          "EXDEV"
        )
      }
      const removal = run(bound).engine.remove(root, everything)
      assert.deepStrictEqual(
        removal.failures.toSorted((l, r) => (l.path < r.path ? -1 : 1)),
        [
          { path: `${root}/a/mounted`, code: "EXDEV" },
          { path: `${root}/file mount`, code: "EXDEV" }
        ]
      )
      const other = run(device).engine.remove(root, everything)
      assert.deepStrictEqual(other.failures, [{ path: `${root}/a/mounted`, code: "EXDEV" }])
      assert.strictEqual(Fs.readFileSync(`${root}/a/mounted/precious`, "utf8"), "p")
    }).pipe(Effect.scoped)
  )

  it.effect("[F-04] looks at the mounts once for many trees, and measures none that holds one", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      for (const name of ["first", "mounted", "last"]) write(`${folder}/${name}`, { "a/file": "x" })
      const roots = ["first", "mounted", "missing", "last"].map((name) => `${folder}/${name}`)
      let looked = 0
      const outcomes = (table: () => string) =>
        run({
          readFileSync: around(Fs.readFileSync, (path, proceed) => {
            if (path !== "/proc/self/mountinfo") return proceed()
            looked += 1
            return table()
          })
        })
          .engine.usages(roots)
          .map((usage) => (usage instanceof TreeError ? usage.code : usage.entries))
      assert.deepStrictEqual(
        outcomes(() => `23 22 8:1 / ${folder}/mounted/a rw - ext4 /dev/vda rw\n`),
        [2, "EXDEV", "ENOENT", 2]
      )
      assert.strictEqual(looked, 1)
      assert.deepStrictEqual(
        outcomes(() => {
          throw errno("EACCES")
        }),
        ["EACCES", "EACCES", "EACCES", "EACCES"]
      )
    }).pipe(Effect.scoped)
  )

  it.effect("[F-04] deletes nothing of a folder that is itself a mount point, and reads it", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      write(root, { "a/precious": "p" })
      const mounted: Partial<Calls> = {
        readFileSync: around(Fs.readFileSync, (path, proceed) =>
          path === "/proc/self/mountinfo" ? `23 22 8:1 / ${root} rw - ext4 /dev/vda rw\n` : proceed()
        )
      }
      assert.strictEqual(
        codeOf(() => run(mounted).engine.remove(root, everything)),
        "EXDEV"
      )
      assert.strictEqual(Fs.readFileSync(`${root}/a/precious`, "utf8"), "p")
      assert.strictEqual(run(mounted).engine.usage(root).entries, 2)
    }).pipe(Effect.scoped)
  )

  it.effect.skipIf(process.platform !== "linux")(
    "[F-04] takes mounts that it cannot know for no reason to go on",
    () =>
      Effect.gen(function* () {
        const root = `${yield* tempFolder}/tree`
        write(root, { "a/precious": "p" })
        for (const without of [{}, plain]) {
          const { engine } = run({
            ...without,
            readFileSync: around(Fs.readFileSync, (path, proceed) => {
              if (path === "/proc/self/mountinfo") throw errno("EACCES")
              return proceed()
            })
          })
          for (const call of [
            () => engine.remove(root, everything),
            () => engine.usage(root),
            () => engine.scan(root, { digests: false, entries: false })
          ]) {
            assert.strictEqual(codeOf(call), "EACCES")
          }
        }
        assert.strictEqual(Fs.readFileSync(`${root}/a/precious`, "utf8"), "p")
      }).pipe(Effect.scoped)
  )

  it.effect("[F-07] works on plain paths where descriptors cannot be addressed, beyond PATH_MAX too", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const root = `${folder}/tree`
      let path = root
      Fs.mkdirSync(path)
      for (let at = 0; at < 14; at += 1) {
        path += `/${"n".repeat(250)}`
        Fs.mkdirSync(path)
      }
      Fs.writeFileSync(`${path}/file`, "")
      Fs.chmodSync(`${root}/${"n".repeat(250)}`, 0o500)
      const longest: Array<number> = []
      const { engine } = run({
        ...plain,
        unlinkSync: (path) => {
          longest.push(String(path).length)
          Fs.unlinkSync(path)
        }
      })
      const removal = engine.remove(root, everything)
      assert.deepStrictEqual([removal.complete, removal.removedEntries], [true, 16])
      // macOS allows 1,024 bytes.
      assert.isBelow(Math.max(...longest), 1024)
      write(root, { "a/b": "x" })
      assert.strictEqual(run(plain).engine.scan(root, { digests: true, entries: false }).entries, 2)
    }).pipe(Effect.scoped)
  )

  it.effect("[F-07] keeps few descriptors open, however deep a tree is", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      Fs.mkdirSync(`${root}${"/d".repeat(500)}`, { recursive: true })
      let open = 0
      let most = 0
      const { engine } = run({
        openSync: around(Fs.openSync, (_path, proceed) => {
          const descriptor = proceed()
          open += 1
          most = Math.max(most, open)
          return descriptor
        }),
        closeSync: around(Fs.closeSync, (_descriptor, proceed) => {
          open -= 1
          return proceed()
        })
      })
      const removal = engine.remove(root, everything)
      assert.deepStrictEqual([removal.complete, removal.removedEntries, open], [true, 501, 0])
      assert.isAtMost(most, 70)
    }).pipe(Effect.scoped)
  )

  it.effect("[F-07] is cancelled between any two entries", () =>
    Effect.gen(function* () {
      const root = `${yield* tempFolder}/tree`
      write(root, Object.fromEntries(Array.from({ length: 50 }, (_, at) => [`f${at}`, ""])))
      let looks = 0
      const { engine } = run({}, { cancelled: () => (looks += 1) > 10 })
      codeOf(() => engine.remove(root, everything))
      assert.strictEqual(Fs.readdirSync(root).length, 40)
    }).pipe(Effect.scoped)
  )
})
