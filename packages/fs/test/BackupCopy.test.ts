import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { spawnSync } from "node:child_process"
import * as Fs from "node:fs"
import * as SyncQueue from "../src/internal/syncQueue.ts"
import { type Calls, type Environment, make, TreeError } from "../src/internal/treeEngine.ts"
import { hostDigest } from "./support/backups.ts"
import { tempFolder, write } from "./support/fixtures.ts"

/** The engine on this thread, with some calls replaced. */
const engineWith = (calls: Partial<Calls> = {}, environment: Partial<Environment> = {}) =>
  make({
    calls: { ...Fs, ...calls },
    cancelled: () => false,
    breathe: () => undefined,
    emit: () => undefined,
    pause: () => undefined,
    now: () => 0n,
    wallClock: () => Number.MAX_SAFE_INTEGER,
    wake: () => undefined,
    ...environment
  })

const codeOf = (call: () => unknown): string => {
  try {
    call()
    return "none"
  } catch (error) {
    return error instanceof TreeError ? error.code : String(error)
  }
}

const live = { live: true, omits: null }
const still = { live: false, omits: null }

/** Runs an action when a file of that name has been opened, at most `times` times. */
const whenOpened = (name: string, action: (time: number) => void, times = 1): Partial<Calls> => {
  let time = 0
  return {
    openSync: (path, flags, mode) => {
      const descriptor = Fs.openSync(path, flags, mode)
      if (
        String(path).endsWith(`/${name}`) &&
        flags !== undefined &&
        (Number(flags) & 3) === 0 &&
        time < times
      ) {
        time += 1
        action(time)
      }
      return descriptor
    }
  }
}

/** A call that does something first, every time. */
const preceded = <Call extends (...args: never) => unknown>(
  call: Call,
  first: (path: string) => void
): Call =>
  new Proxy(call, {
    apply: (target, self, args) => {
      first(String(args[0]))
      return Reflect.apply(target, self, args)
    }
  })

/** As on a system whose open descriptors cannot be addressed. */
const plain: Partial<Calls> = {
  readlinkSync: preceded(Fs.readlinkSync, (path) => {
    if (path.startsWith("/proc/")) throw Object.assign(new Error("ENOENT"), { code: "ENOENT" })
  })
}

const modeAndTime = (path: string) => {
  const stat = Fs.lstatSync(path, { bigint: true })
  return [stat.mode, stat.mtimeNs / 1000n] as const
}

describe("copyEngine", () => {
  it.effect("[B-01] digests as the host's readers do", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const source = `${folder}/source`
      write(source, {
        "b.txt": "b",
        "B.txt": "B",
        "a-1": "1",
        a1: "2",
        a_1: "3",
        ä: "4",
        z: "5",
        日本: "6",
        "10": "7",
        "9": "8",
        ".hidden": "9",
        "sub/inner/file": "deep",
        "sub/empty/": "",
        "sub.txt": "beside",
        "sub/read-only": "r"
      })
      Fs.chmodSync(`${source}/sub/read-only`, 0o444)
      Fs.chmodSync(`${source}/b.txt`, 0o755)
      Fs.symlinkSync("sub/inner", `${source}/link`)
      Fs.symlinkSync("/nowhere/at all", `${source}/sub/dangling`)
      const expected = hostDigest(source)
      for (const calls of [{}, plain]) {
        const target = `${folder}/target`
        const copied = engineWith(calls).copy(source, target, live)
        assert.strictEqual(`sha256:${copied.sha256}`, expected.sha256)
        assert.strictEqual(Number(copied.bytes), expected.bytes)
        assert.deepStrictEqual(hostDigest(target), expected)
        assert.strictEqual(engineWith(calls).digestTree(target).sha256, copied.sha256)
        assert.strictEqual(engineWith(calls).copy(target, `${folder}/again`, still).sha256, copied.sha256)
        Fs.rmSync(target, { recursive: true })
        Fs.rmSync(`${folder}/again`, { recursive: true })
      }
      // An empty root is a folder without names.
      Fs.mkdirSync(`${folder}/empty`)
      const empty = engineWith().digestTree(`${folder}/empty`)
      assert.strictEqual(`sha256:${empty.sha256}`, hostDigest(`${folder}/empty`).sha256)
    }).pipe(Effect.scoped)
  )

  it.effect("[B-01] keeps modes, times and links, and does not depend on the umask", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const source = `${folder}/source`
      write(source, { "bin/run": "r", "closed/inner/secret": "s", plain: "p" })
      Fs.symlinkSync("plain", `${source}/link`)
      Fs.chmodSync(`${source}/bin/run`, 0o755)
      Fs.chmodSync(`${source}/plain`, 0o664)
      Fs.utimesSync(`${source}/plain`, 1_600_000_000.123456, 1_500_000_000.654321)
      Fs.lutimesSync(`${source}/link`, 1_400_000_000, 1_300_000_000)
      Fs.chmodSync(`${source}/closed/inner/secret`, 0o400)
      Fs.chmodSync(`${source}/closed/inner`, 0o555)
      Fs.chmodSync(`${source}/closed`, 0o500)
      const umask = process.umask(0o077)
      yield* Effect.sync(() => engineWith().copy(source, `${folder}/target`, live)).pipe(
        Effect.ensuring(Effect.sync(() => process.umask(umask)))
      )
      for (const path of [
        "",
        "/bin",
        "/bin/run",
        "/closed",
        "/closed/inner",
        "/closed/inner/secret",
        "/plain",
        "/link"
      ]) {
        const [mode, mtime] = modeAndTime(`${source}${path}`)
        const [copiedMode, copiedMtime] = modeAndTime(`${folder}/target${path}`)
        assert.strictEqual(copiedMode, mode, path)
        assert.isTrue(copiedMtime - mtime <= 1n && mtime - copiedMtime <= 1n, path)
      }
      assert.strictEqual(Fs.readlinkSync(`${folder}/target/link`), "plain")
    }).pipe(Effect.scoped)
  )

  it.effect("[B-02] [F-06] copies names that are not UTF-8, after all others", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const source = `${folder}/source`
      write(source, { plain: "p", "sub/x": "x" })
      const strange = Buffer.concat([Buffer.from(`${source}/sub/`), Buffer.from([0xff, 0x41])])
      Fs.writeFileSync(strange, "strange")
      Fs.symlinkSync(Buffer.from([0xfe]), Buffer.concat([Buffer.from(`${source}/`), Buffer.from([0xe4])]))
      const copied = engineWith().copy(source, `${folder}/target`, live)
      const names = Fs.readdirSync(Buffer.from(`${folder}/target/sub`), { encoding: "buffer" })
      assert.deepStrictEqual(
        names.map((name) => name.toString("latin1")).toSorted(),
        ["x", "\u00ffA"].toSorted()
      )
      const link = Fs.readlinkSync(Buffer.concat([Buffer.from(`${folder}/target/`), Buffer.from([0xe4])]), {
        encoding: "buffer"
      })
      assert.deepStrictEqual([...link], [0xfe])
      assert.strictEqual(engineWith().digestTree(`${folder}/target`).sha256, copied.sha256)
      assert.strictEqual(Number(copied.bytes), 9)
    }).pipe(Effect.scoped)
  )

  it.effect("[B-02] copies a file again that grows, shrinks or is replaced while it is copied", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const source = `${folder}/source`
      const changes: Record<string, (path: string) => void> = {
        grows: (path) => Fs.appendFileSync(path, "more"),
        shrinks: (path) => Fs.truncateSync(path, 1),
        changes: (path) => Fs.writeFileSync(path, "other"),
        "is replaced": (path) => {
          Fs.writeFileSync(`${folder}/new`, "replacement")
          Fs.renameSync(`${folder}/new`, path)
        }
      }
      for (const [what, change] of Object.entries(changes)) {
        write(source, { "a/log": "first", b: "b" })
        const engine = engineWith(whenOpened("log", () => change(`${source}/a/log`)))
        const copied = engine.copy(source, `${folder}/target`, live)
        assert.strictEqual(
          Fs.readFileSync(`${folder}/target/a/log`, "utf8"),
          Fs.readFileSync(`${source}/a/log`, "utf8"),
          what
        )
        assert.strictEqual(`sha256:${copied.sha256}`, hostDigest(`${folder}/target`).sha256, what)
        for (const made of [source, `${folder}/target`]) {
          // An ordinary user removes nothing from a read-only folder.
          if (Fs.existsSync(`${made}/sub/y`)) Fs.chmodSync(`${made}/sub/y`, 0o755)
          Fs.rmSync(made, { recursive: true })
        }
      }
    }).pipe(Effect.scoped)
  )

  it.effect("[B-02] notices a change of a long file between two reads", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const source = `${folder}/source`
      write(source, { long: Buffer.alloc(700_000, 1) })
      let reads = 0
      const readSync = preceded(Fs.readSync, () => {
        reads += 1
        // The same size and place: only the times tell.
        if (reads === 2) Fs.writeFileSync(`${source}/long`, Buffer.alloc(700_000, 2))
      })
      const copied = engineWith({ readSync }).copy(source, `${folder}/target`, live)
      assert.deepStrictEqual(new Set(Fs.readFileSync(`${folder}/target/long`)), new Set([2]))
      assert.strictEqual(`sha256:${copied.sha256}`, hostDigest(source).sha256)
      assert.isAbove(reads, 5)
    }).pipe(Effect.scoped)
  )

  it.effect("[B-02] fails when a file never comes to rest", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const source = `${folder}/source`
      write(source, { log: "first" })
      let opened = 0
      const busy = whenOpened("log", () => Fs.appendFileSync(`${source}/log`, `${(opened += 1)}`), 1000)
      assert.strictEqual(
        codeOf(() => engineWith(busy).copy(source, `${folder}/target`, live)),
        "ECHANGED"
      )
      assert.strictEqual(opened, 5)
      // A backup that changes while it is restored is not waited for.
      Fs.rmSync(`${folder}/target`, { recursive: true })
      opened = 0
      assert.strictEqual(
        codeOf(() => engineWith(busy).copy(source, `${folder}/target`, still)),
        "ECHANGED"
      )
      assert.strictEqual(opened, 1)
    }).pipe(Effect.scoped)
  )

  it.effect("[B-02] looks again after the tick of the clock at what has just changed", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const source = `${folder}/source`
      write(source, { fresh: "1" })
      const pauses: Array<number> = []
      const now = Number(Fs.lstatSync(`${source}/fresh`, { bigint: true }).ctimeNs / 1_000_000n)
      const environment = { pause: (millis: number) => pauses.push(millis), wallClock: () => now + 5 }
      engineWith({}, environment).copy(source, `${folder}/target`, live)
      assert.isAbove(pauses.length, 0)
      pauses.length = 0
      engineWith({}, { ...environment, wallClock: () => now + 60 }).copy(source, `${folder}/later`, live)
      engineWith({}, environment).copy(source, `${folder}/still`, still)
      assert.deepStrictEqual(pauses, [])
    }).pipe(Effect.scoped)
  )

  it.effect("[B-02] copies a folder anew when its names change, so that a renamed file is not lost", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const source = `${folder}/source`
      const changes: Record<string, () => void> = {
        // It was copied under neither name.
        renamed: () => Fs.renameSync(`${source}/sub/z`, `${source}/sub/b`),
        added: () => Fs.writeFileSync(`${source}/sub/late`, "late"),
        vanished: () => Fs.unlinkSync(`${source}/sub/z`),
        "folder added": () => write(source, { "sub/new/file": "n" }),
        "folder vanished": () => {
          Fs.chmodSync(`${source}/sub/y`, 0o755)
          Fs.rmSync(`${source}/sub/y`, { recursive: true })
        }
      }
      for (const [what, change] of Object.entries(changes)) {
        write(source, { "sub/a": "a", "sub/c": "c", "sub/y/inner": "y", "sub/z": "z", top: "t" })
        Fs.chmodSync(`${source}/sub/y`, 0o555)
        const copied = engineWith(whenOpened("c", change)).copy(source, `${folder}/target`, live)
        assert.deepStrictEqual(hostDigest(`${folder}/target`), hostDigest(source), what)
        assert.strictEqual(`sha256:${copied.sha256}`, hostDigest(source).sha256, what)
        for (const made of [source, `${folder}/target`]) {
          // An ordinary user removes nothing from a read-only folder.
          if (Fs.existsSync(`${made}/sub/y`)) Fs.chmodSync(`${made}/sub/y`, 0o755)
          Fs.rmSync(made, { recursive: true })
        }
      }
    }).pipe(Effect.scoped)
  )

  it.effect("[B-02] fails when the names of a folder never come to rest", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const source = `${folder}/source`
      write(source, { a: "a" })
      let added = 0
      const busy = whenOpened("a", () => Fs.writeFileSync(`${source}/b${(added += 1)}`, ""), 1000)
      assert.strictEqual(
        codeOf(() => engineWith(busy).copy(source, `${folder}/target`, live)),
        "ECHANGED"
      )
      assert.strictEqual(added, 3)
    }).pipe(Effect.scoped)
  )

  it.effect("[B-02] does not mind changes of names that are left out", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const source = `${folder}/source`
      write(source, { a: "a", "auth.json": "secret" })
      let opened = 0
      const calls = whenOpened("a", () => {
        opened += 1
        Fs.writeFileSync(`${source}/auth.new`, "newer")
        Fs.renameSync(`${source}/auth.new`, `${source}/auth.json`)
        Fs.mkdirSync(`${source}/tmp`)
      })
      const omits = (paths: ReadonlyArray<string>) =>
        paths.map((path) => path === "auth.json" || path === "tmp")
      engineWith(calls).copy(source, `${folder}/target`, { live: true, omits })
      assert.deepStrictEqual(Fs.readdirSync(`${folder}/target`), ["a"])
      assert.strictEqual(opened, 1)
    }).pipe(Effect.scoped)
  )

  it.effect("[B-02] copies a database with its side files in one state", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const source = `${folder}/source`
      const names = ["state_5.sqlite", "state_5.sqlite-shm", "state_5.sqlite-wal"]
      const changes: Record<string, (time: number) => void> = {
        // A checkpoint after the database was copied and before its log is.
        checkpoint: () => {
          Fs.appendFileSync(`${source}/state_5.sqlite`, "2")
          Fs.truncateSync(`${source}/state_5.sqlite-wal`, 0)
        },
        "a transaction": () => Fs.appendFileSync(`${source}/state_5.sqlite-wal`, "2"),
        closed: () => {
          for (const name of names.slice(1)) Fs.rmSync(`${source}/${name}`)
        },
        "a journal begun": () => Fs.writeFileSync(`${source}/state_5.sqlite-journal`, "j")
      }
      for (const [what, change] of Object.entries(changes)) {
        write(source, Object.fromEntries(names.map((name) => [name, name])))
        write(source, { "state_5.sqlite-other": "o", a: "a", z: "z" })
        for (const at of ["state_5.sqlite", "state_5.sqlite-wal"]) {
          if (at.endsWith("-wal") && what === "closed") continue
          const copied = engineWith(whenOpened(at, change)).copy(source, `${folder}/target`, live)
          assert.deepStrictEqual(hostDigest(`${folder}/target`), hostDigest(source), `${what} ${at}`)
          assert.strictEqual(`sha256:${copied.sha256}`, hostDigest(source).sha256, `${what} ${at}`)
          Fs.rmSync(`${folder}/target`, { recursive: true })
        }
        Fs.rmSync(source, { recursive: true })
      }
    }).pipe(Effect.scoped)
  )

  it.effect("[B-02] fails when a database never comes to rest", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const source = `${folder}/source`
      write(source, { "x.db": "1", "x.db-wal": "2" })
      let times = 0
      const busy = whenOpened("x.db-wal", () => Fs.appendFileSync(`${source}/x.db`, `${(times += 1)}`), 1000)
      assert.strictEqual(
        codeOf(() => engineWith(busy).copy(source, `${folder}/target`, live)),
        "ECHANGED"
      )
      assert.strictEqual(times, 5)
    }).pipe(Effect.scoped)
  )

  it.effect("[B-02] [F-01] never follows a link that takes the place of a file or a folder", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      write(`${folder}/outside`, { precious: "p" })
      for (const calls of [{}, plain]) {
        for (const name of ["file", "sub"]) {
          const source = `${folder}/source`
          write(source, { file: "f", "sub/inner": "i" })
          const swap = () => {
            Fs.renameSync(`${source}/${name}`, `${folder}/moved`)
            Fs.symlinkSync(
              name === "file" ? `${folder}/outside/precious` : `${folder}/outside`,
              `${source}/${name}`
            )
          }
          let swapped = false
          const openSync: Calls["openSync"] = (path, flags, mode) => {
            const plainOpen =
              !swapped && String(path).endsWith(`/${name}`) && !String(path).includes("target")
            if (plainOpen) {
              swapped = true
              swap()
            }
            return Fs.openSync(path, flags, mode)
          }
          engineWith({ ...calls, openSync }).copy(source, `${folder}/target`, live)
          assert.isTrue(Fs.lstatSync(`${folder}/target/${name}`).isSymbolicLink())
          assert.isTrue(swapped)
          for (const path of [source, `${folder}/moved`, `${folder}/target`])
            Fs.rmSync(path, { recursive: true })
        }
      }
    }).pipe(Effect.scoped)
  )

  it.effect("[B-02] clones files where the file system can, and digests the clone", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const source = `${folder}/source`
      write(source, { a: "a", "b/c": "c", "x.db": "1", "x.db-wal": "2" })
      Fs.chmodSync(`${source}/a`, 0o440)
      let cloned = 0
      const copyFileSync: Calls["copyFileSync"] = (from, to, mode) => {
        assert.strictEqual(mode, Fs.constants.COPYFILE_EXCL | Fs.constants.COPYFILE_FICLONE_FORCE)
        cloned += 1
        Fs.copyFileSync(from, to, Fs.constants.COPYFILE_EXCL)
      }
      const copied = engineWith({ copyFileSync }).copy(source, `${folder}/target`, live)
      assert.strictEqual(cloned, 4)
      assert.strictEqual(`sha256:${copied.sha256}`, hostDigest(source).sha256)
      assert.deepStrictEqual(hostDigest(`${folder}/target`), hostDigest(source))
      // One refusal is enough, whatever it leaves behind.
      let refused = 0
      const refuse: Calls["copyFileSync"] = (_, to) => {
        refused += 1
        Fs.writeFileSync(to, "")
        throw Object.assign(new Error("ENOTSUP"), { code: "ENOTSUP" })
      }
      engineWith({ copyFileSync: refuse }).copy(source, `${folder}/other`, live)
      assert.strictEqual(refused, 1)
      assert.deepStrictEqual(hostDigest(`${folder}/other`), hostDigest(source))
    }).pipe(Effect.scoped)
  )

  it.effect("[B-01] refuses what is neither a file, a folder nor a link, and never opens it", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const source = `${folder}/source`
      write(source, { a: "a" })
      assert.strictEqual(spawnSync("mkfifo", [`${source}/pipe`]).status, 0)
      const { copy, digestTree } = engineWith()
      assert.strictEqual(
        codeOf(() => copy(source, `${folder}/target`, live)),
        "EUNSUPPORTED"
      )
      assert.strictEqual(
        codeOf(() => digestTree(source)),
        "EUNSUPPORTED"
      )
      const omits = (paths: ReadonlyArray<string>) => paths.map((path) => path === "pipe")
      assert.strictEqual(Number(copy(source, `${folder}/without`, { live: true, omits }).bytes), 1)
    }).pipe(Effect.scoped)
  )

  it.effect("[B-01] refuses a target that exists, and a root that is a link", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      write(folder, { "source/a": "a", "target/": "" })
      Fs.symlinkSync("source", `${folder}/link`)
      assert.strictEqual(
        codeOf(() => engineWith().copy(`${folder}/source`, `${folder}/target`, live)),
        "EEXIST"
      )
      assert.strictEqual(
        codeOf(() => engineWith().copy(`${folder}/link`, `${folder}/new`, live)),
        "ELOOP"
      )
      assert.strictEqual(
        codeOf(() => engineWith().digestTree(`${folder}/link`)),
        "ELOOP"
      )
      assert.isFalse(Fs.existsSync(`${folder}/new`))
    }).pipe(Effect.scoped)
  )

  it.effect("[B-03] [F-08] notices another file under the name while it digests", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      write(folder, { "source/a": "a", other: "b" })
      const openSync: Calls["openSync"] = (path, flags, mode) => {
        if (String(path).endsWith("/a") && Fs.existsSync(`${folder}/other`)) {
          Fs.renameSync(`${folder}/other`, `${folder}/source/a`)
        }
        return Fs.openSync(path, flags, mode)
      }
      assert.strictEqual(
        codeOf(() => engineWith({ openSync }).digestTree(`${folder}/source`)),
        "ECHANGED"
      )
    }).pipe(Effect.scoped)
  )

  it.effect("[B-01] a copy that returned is on the disk, every entry of it as it is", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const many = Array.from({ length: 150 }, (_, at) => `many/${at}`)
      write(`${folder}/source`, {
        ...Object.fromEntries(many.map((path) => [path, path])),
        "b/c": "c",
        "b/d/e": "e",
        "f/": ""
      })
      Fs.symlinkSync("a", `${folder}/source/link`)
      Fs.chmodSync(`${folder}/source/b`, 0o500)
      const picture = ({ ino, mode, mtimeNs, size }: Fs.BigIntStats) => [ino, mode, mtimeNs, size].join(" ")
      const synced: Array<string> = []
      const fsyncSync: Calls["fsyncSync"] = (descriptor) =>
        void synced.push(picture(Fs.fstatSync(descriptor, { bigint: true })))
      engineWith({ fsyncSync }).copy(`${folder}/source`, `${folder}/target`, live)
      const wanted = [
        "",
        "/many",
        ...many.map((path) => `/${path}`),
        "/b",
        "/b/c",
        "/b/d",
        "/b/d/e",
        "/f"
      ].map((path) => picture(Fs.lstatSync(`${folder}/target${path}`, { bigint: true })))
      assert.deepStrictEqual(synced.toSorted(), wanted.toSorted())
    }).pipe(Effect.scoped)
  )

  it.effect("[B-01] fails when something does not reach the disk, and leaves nothing open", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      write(`${folder}/source`, Object.fromEntries(Array.from({ length: 150 }, (_, at) => [`f${at}`, "x"])))
      const open = new Set<number>()
      const counted: Partial<Calls> = {
        openSync: (path, flags, mode) => {
          const descriptor = Fs.openSync(path, flags, mode)
          open.add(descriptor)
          return descriptor
        },
        closeSync: (descriptor) => {
          open.delete(descriptor)
          Fs.closeSync(descriptor)
        }
      }
      // One that the queue comes to while it is filled, and one that only the end does.
      for (const nth of [3, 150]) {
        let synced = 0
        const fsyncSync: Calls["fsyncSync"] = () => {
          synced += 1
          if (synced === nth) throw Object.assign(new Error("EIO"), { code: "EIO", errno: -5 })
        }
        const { copy } = engineWith({ ...counted, fsyncSync })
        assert.strictEqual(
          codeOf(() => copy(`${folder}/source`, `${folder}/target-${nth}`, still)),
          "EIO"
        )
        assert.deepStrictEqual([...open], [])
      }
    }).pipe(Effect.scoped)
  )

  it.live("[B-01] syncs beside the writer, and tells it what was lost", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const shared: Array<SyncQueue.Cells> = []
      const alone: Array<number> = []
      const writer = SyncQueue.writer({
        calls: { ...Fs, fsyncSync: (descriptor) => void alone.push(descriptor) },
        failed: (path, code) => new TreeError("copy", path, code),
        wake: (cells) => {
          shared.push(cells)
          SyncQueue.server(cells)()
        }
      })
      writer.add(Fs.openSync(`${folder}/written`, "w"), "written")
      // Nothing in /proc can be synced.
      writer.add(Fs.openSync("/proc/self/status", "r"), "lost")
      yield* Effect.sleep("1 millis").pipe(
        Effect.repeat({ until: () => shared[0]?.some((cell) => cell < 0) === true })
      )
      assert.strictEqual(
        codeOf(() => writer.finish()),
        "EINVAL"
      )
      assert.deepStrictEqual([shared.length, alone], [1, []])
    }).pipe(Effect.scoped)
  )
})
