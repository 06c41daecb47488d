/** Runs one scenario as the user that the process belongs to, and prints what came of it as JSON. */
import { Effect, Option, Stream } from "effect"
import * as Fs from "node:fs"
import { make } from "../../src/internal/treeEngine.ts"
import * as PosixFileSystem from "../../src/PosixFileSystem.ts"
import * as Trees from "../../src/Trees.ts"
import * as VersionStore from "../../src/VersionStore.ts"
import { copy, copyPath, manifestOf, storeLayer, write } from "./fixtures.ts"

const [scenario = "", folder = ""] = process.argv.slice(2)

const removal = (root: string) =>
  Effect.flatMap(Trees.Trees, (trees) => trees.remove(root)).pipe(
    Effect.map(({ complete, failures, removedEntries }) => ({
      complete,
      removedEntries,
      failures: failures.map(({ code, path }) => `${path.slice(folder.length)} ${code}`)
    })),
    Effect.provide(Trees.layer)
  )

const readOnlyTree = (root: string) => {
  write(root, {
    "plain/file": "1",
    "closed/file": "2",
    "closed/inner/file": "3",
    "readable/file": "4",
    "listed/file": "5",
    "listed/closed/deep/file": "6"
  })
  Fs.chmodSync(`${root}/closed/inner`, 0o000)
  Fs.chmodSync(`${root}/closed`, 0o000)
  Fs.chmodSync(`${root}/readable`, 0o500)
  Fs.chmodSync(`${root}/listed/closed/deep`, 0o555)
  Fs.chmodSync(`${root}/listed/closed`, 0o000)
  Fs.chmodSync(`${root}/listed`, 0o555)
}

const scenarios: Record<string, Effect.Effect<unknown, unknown>> = {
  /** Folders that even their owner cannot open, the top one too. */
  modes: Effect.suspend(() => {
    const root = `${folder}/tree`
    readOnlyTree(root)
    Fs.chmodSync(root, 0o000)
    return Effect.map(removal(root), (result) => ({ ...result, left: Fs.readdirSync(folder) }))
  }),
  /** A link to a folder of mode 0700 outside must not be made accessible through it. */
  links: Effect.suspend(() => {
    write(`${folder}/outside`, { precious: "p" })
    Fs.chmodSync(`${folder}/outside`, 0o500)
    write(`${folder}/tree`, { "a/file": "" })
    Fs.symlinkSync(`${folder}/outside`, `${folder}/tree/a/link`)
    Fs.chmodSync(`${folder}/tree/a`, 0o500)
    return Effect.map(removal(`${folder}/tree`), (result) => ({
      ...result,
      mode: Fs.statSync(`${folder}/outside`).mode & 0o777,
      left: Fs.readdirSync(`${folder}/outside`)
    }))
  }),
  /** `tree/theirs` belongs to somebody else; the caller made it. */
  foreign: removal(`${folder}/tree`),
  /** As on a system whose open descriptors cannot be addressed. */
  plain: Effect.sync(() => {
    const root = `${folder}/tree`
    readOnlyTree(root)
    const { complete, failures, removedEntries } = make({
      calls: {
        ...Fs,
        readlinkSync: () => {
          throw new Error("there is no /proc")
        }
      },
      cancelled: () => false,
      breathe: () => undefined,
      emit: () => undefined,
      pause: () => undefined,
      now: () => 0n,
      wallClock: () => 0,
      wake: () => undefined
    }).remove(root, { deadline: null, maxEntries: null })
    return {
      complete,
      removedEntries,
      failures: failures.map(({ code, path }) => `${path.slice(folder.length)} ${code}`).toSorted()
    }
  }),
  /** Deeper than the levels that stay open, with folders that cannot be written. */
  deep: Effect.suspend(() => {
    const root = `${folder}/tree`
    let path = root
    Fs.mkdirSync(path)
    const made: Array<string> = []
    for (let at = 0; at < 200; at += 1) {
      path += "/d"
      Fs.mkdirSync(path)
      made.push(path)
    }
    Fs.writeFileSync(`${path}/file`, "")
    for (const folder of made.toReversed()) Fs.chmodSync(folder, 0o555)
    return removal(root)
  }),
  unreadable: Effect.gen(function* () {
    const trees = yield* Trees.Trees
    write(`${folder}/one`, { "a/file": "" })
    write(`${folder}/two`, { file: "" })
    Fs.chmodSync(`${folder}/one/a`, 0o000)
    Fs.chmodSync(`${folder}/two/file`, 0o000)
    return [
      (yield* Effect.flip(trees.usage(`${folder}/one`))).code,
      (yield* Effect.flip(trees.scan(`${folder}/two`, { digests: true }))).code,
      (yield* trees.scan(`${folder}/two`, { digests: false })).entries
    ]
  }).pipe(Effect.provide(Trees.layer)),
  /** The life of a copy whose top folder is read-only, under a umask that hides everything. */
  copy: Effect.suspend(() => {
    process.umask(0o077)
    return Effect.gen(function* () {
      const store = yield* VersionStore.VersionStore
      const { contents, manifest } = manifestOf({ "SKILL.md": "s", "bin/run": "r" }, ["bin/run"])
      const staged = yield* store.stage(copy(), manifest, Stream.fromIterable(contents))
      const published = yield* store.publish(staged)
      const path = store.pathOf(copy())
      const mode = (of: string) => (Fs.statSync(`${path}${of}`).mode & 0o7777).toString(8)
      const modes = ["", "/bin", "/SKILL.md", "/bin/run"].map(mode)
      Fs.chmodSync(path, 0o555)
      const info = Option.getOrThrow(yield* store.inspect(copy()))
      const evicting = yield* store.evict(copy(), info)
      yield* evicting.confirm
      const trash = Option.getOrThrow(yield* store.toTrash(evicting))
      const result = yield* removal(trash.path)
      return { published, modes, complete: result.complete }
    }).pipe(Effect.scoped, Effect.provide(storeLayer(folder)))
  }),
  entries: Effect.gen(function* () {
    const store = yield* VersionStore.VersionStore
    write(copyPath(folder, copy(1, 1)), { file: "" })
    write(copyPath(folder, copy(1, 2)), { file: "" })
    write(copyPath(folder, copy(1, 3)), { file: "" })
    const skill = (number: number) => copyPath(folder, copy(1, number)).replace(/\/[^/]*$/, "")
    Fs.chmodSync(skill(1), 0o000)
    Fs.chmodSync(skill(2), 0o600)
    const entries = yield* Stream.runCollect(store.entries())
    return entries.map((entry) =>
      entry._tag === "Obstacle" && entry.reason._tag === "Unreadable"
        ? `${entry._tag} ${entry.reason.code}`
        : entry._tag
    )
  }).pipe(Effect.provide(storeLayer(folder))),
  posix: Effect.gen(function* () {
    const posix = yield* PosixFileSystem.PosixFileSystem
    Fs.writeFileSync(`${folder}/closed`, "", { mode: 0 })
    return (yield* Effect.flip(posix.readSmall(`${folder}/closed`, 10))).code
  }).pipe(Effect.provide(PosixFileSystem.layer))
}

Effect.runPromise(scenarios[scenario]!.pipe(Effect.map((result) => JSON.stringify(result)))).then(
  (line) => process.stdout.write(line),
  (error: unknown) => {
    process.stderr.write(String(error))
    process.exitCode = 1
  }
)
