import { assert, describe, it } from "@effect/vitest"
import { BackupManifest, ControlPlaneState } from "@reclaim/core"
import { Cause, DateTime, Effect, Exit, Fiber, Option, Result, Stream } from "effect"
import { spawnSync } from "node:child_process"
import { randomUUID } from "node:crypto"
import * as Fs from "node:fs"
import { BackupStore, type CaptureOptions, type LeftoverRef, type ScopeEntry } from "../src/BackupStore.ts"
import { scopes as scopesOf } from "../src/internal/backupEntries.ts"
import { PosixFileSystem } from "../src/PosixFileSystem.ts"
import { layerFaulty } from "../src/testing.ts"
import {
  backupLayer,
  backupNames,
  backupsOf,
  captureOptions,
  hostDigest,
  hostReads,
  identity,
  makeSession,
  scope,
  scopeFolder,
  sessionsOf
} from "./support/backups.ts"
import { atPoint, hold, snapshot, tempFolder, write } from "./support/fixtures.ts"

type Faults = Parameters<typeof layerFaulty>[0]

const withStore = <A, E>(
  instance: string,
  body: Effect.Effect<A, E, BackupStore | PosixFileSystem>,
  faults?: Faults
) => Effect.provide(body, backupLayer(instance, faults === undefined ? undefined : layerFaulty(faults)))

const test = <A, E>(
  body: (instance: string) => Effect.Effect<A, E, BackupStore | PosixFileSystem>,
  faults?: (instance: string) => Faults
) =>
  Effect.gen(function* () {
    const instance = yield* tempFolder
    yield* withStore(instance, body(instance), faults?.(instance))
  }).pipe(Effect.scoped)

const capture = (options: CaptureOptions) => Effect.flatMap(BackupStore, (store) => store.capture(options))

const made = Effect.fnUntraced(function* (instance: string, content: string) {
  makeSession(instance, content)
  return yield* capture(captureOptions(instance))
})

const restore = (target: string) =>
  Effect.flatMap(BackupStore, (store) => store.restore({ scope: scope(), target }))

const inspect = Effect.flatMap(BackupStore, (store) => store.inspect(scope()))

const isStaging = (name: string) => name.startsWith(".restoring-")

const copyBackup = (instance: string, from: string, to: string) =>
  Fs.cpSync(`${backupsOf(instance)}/${from}`, `${backupsOf(instance)}/${to}`, {
    recursive: true,
    preserveTimestamps: true,
    verbatimSymlinks: true
  })

/** Gives a backup another content, consistent with its manifest, and another time. */
const rewrite = (instance: string, name: string, content: string, completedAt: string) => {
  const path = `${backupsOf(instance)}/${name}`
  Fs.writeFileSync(`${path}/codex-home/config.toml`, content)
  const file = `${path}/manifest.json`
  const manifest = Result.getOrThrow(BackupManifest.decode(Fs.readFileSync(file, "utf8")))
  const [first, ...rest] = manifest.directories
  const renewed = (directory: BackupManifest.Directory) => ({
    ...directory,
    ...hostDigest(`${path}/${directory.name}`)
  })
  const changed = BackupManifest.encode({
    ...manifest,
    directories: [renewed(first), ...rest.map(renewed)],
    completedAt: DateTime.makeUnsafe(completedAt)
  })
  Fs.writeFileSync(file, Result.getOrThrow(changed))
}

describe("BackupStore.capture", () => {
  it.effect("[B-01] writes a backup that the host's readers accept, and replaces it", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        const first = yield* made(instance, "one")
        assert.strictEqual(first.path, `${backupsOf(instance)}/current`)
        assert.strictEqual(hostReads(instance), "one")
        const manifest = JSON.parse(Fs.readFileSync(`${first.path}/manifest.json`, "utf8")) as unknown
        assert.deepInclude(manifest, {
          schema: "paperclip.native-harness-backup.v1",
          normalizedSessionId: identity.normalizedSessionId,
          providerKind: "codex",
          sourceProviderLeaseId: null,
          runnerContractVersion: null
        })
        const sources = ["runner", "codex-home"].map((name) => ({
          name,
          ...hostDigest(`${scopeFolder(instance)}/${name}`)
        }))
        assert.deepInclude(manifest, { directories: sources })
        assert.strictEqual(
          Number(first.bytes),
          sources.reduce((sum, { bytes }) => sum + bytes, 0)
        )
        assert.deepStrictEqual(first.omitted, [])
        assert.strictEqual(Fs.lstatSync(first.path).mode & 0o777, 0o700)
        assert.strictEqual(Fs.lstatSync(`${first.path}/manifest.json`).mode & 0o777, 0o600)
        yield* made(instance, "two")
        assert.strictEqual(hostReads(instance), "two")
        assert.deepStrictEqual(backupNames(instance), ["current"])
      })
    )
  )

  it.effect("[B-01] writes where there is neither a scope nor a session folder yet", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        write(`${instance}/elsewhere`, { a: "a" })
        const { path } = yield* capture({
          scope: scope("b"),
          identity,
          sources: [{ name: "runner", path: `${instance}/elsewhere` }]
        })
        assert.strictEqual(path, `${backupsOf(instance, scope("b"))}/current`)
        assert.deepStrictEqual(Fs.readdirSync(path).toSorted(), ["manifest.json", "runner"])
      })
    )
  )

  it.effect("[B-02] leaves out what CodexHome says, and only there", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        makeSession(instance, "one")
        const home = `${scopeFolder(instance)}/codex-home`
        write(home, {
          "auth.json": "secret",
          ".credentials.json": "secret",
          "tmp/scratch": "s",
          ".tmp/plugins/x": "s",
          "cache/remote_plugin_catalog/0123.json": "c",
          "cache/other/file": "keep",
          "plugins/.remote-plugin-install-staging/x": "s",
          "plugins/cache/openai-curated-remote/p/1/f": "remote",
          "plugins/cache/my-market/local/1/f": "keep",
          "plugins/cache/my-market/remote/1/f": "marked",
          "plugins/cache/my-market/remote/.codex-remote-plugin-install.json": "{}",
          "plugins/cache/my-market/linked/1/f": "keep",
          "plugins/data/p/auth.json": "keep",
          "skills/auth.json": "keep",
          "sessions/tmp/f": "keep",
          "state_5.sqlite": "db",
          "state_5.sqlite-wal": "wal",
          "state_5.sqlite-shm": "shm"
        })
        // A link of the marker's name marks nothing.
        Fs.symlinkSync("1/f", `${home}/plugins/cache/my-market/linked/.codex-remote-plugin-install.json`)
        write(`${scopeFolder(instance)}/runner`, { "auth.json": "the runner's own" })
        const { omitted, path } = yield* capture(captureOptions(instance))
        assert.deepStrictEqual(
          omitted.toSorted(),
          [
            ".credentials.json",
            ".tmp",
            "auth.json",
            "cache/remote_plugin_catalog",
            "plugins/.remote-plugin-install-staging",
            "plugins/cache/my-market/remote",
            "plugins/cache/openai-curated-remote",
            "tmp"
          ]
            .map((name) => `codex-home/${name}`)
            .toSorted()
        )
        const kept = snapshot(`${path}/codex-home`).map((line) =>
          line.split(" ", 1)[0]!.slice(`${path}/codex-home/`.length)
        )
        for (const name of [
          "cache/other/file",
          "plugins/cache/my-market/local/1/f",
          "plugins/cache/my-market/linked/1/f",
          "plugins/data/p/auth.json",
          "skills/auth.json",
          "sessions/tmp/f",
          "state_5.sqlite",
          "state_5.sqlite-wal",
          "state_5.sqlite-shm"
        ]) {
          assert.include(kept, name)
        }
        assert.deepStrictEqual(
          kept.filter((name) => omitted.some((path) => `codex-home/${name}/`.startsWith(`${path}/`))),
          []
        )
        assert.isTrue(Fs.existsSync(`${path}/runner/auth.json`))
        assert.strictEqual(hostReads(instance), "one")
      })
    )
  )

  it.effect("[B-02] leaves out a credential that appears while the home is copied", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        makeSession(instance, "one")
        const home = `${scopeFolder(instance)}/codex-home`
        // The runner is copied, the home is not.
        const appear = Effect.sync(() => Fs.writeFileSync(`${home}/auth.json`, "secret"))
        const { path } = yield* capture(captureOptions(instance)).pipe(atPoint("capture.afterSource", appear))
        assert.isFalse(Fs.existsSync(`${path}/codex-home/auth.json`))
      })
    )
  )

  it.effect("[B-02] asks a selection of the host's about every entry, and survives one that throws", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        makeSession(instance, "one")
        const asked: Array<string> = []
        const options = captureOptions(instance)
        const source = options.sources[1]!
        const { omitted } = yield* capture({
          ...options,
          sources: [
            {
              ...source,
              select: (path) => {
                asked.push(String(path))
                return path === "sessions" ? { _tag: "Omit", reason: "scratch" } : { _tag: "Copy" }
              }
            }
          ]
        })
        assert.deepStrictEqual(asked.toSorted(), ["config.toml", "memories", "sessions"])
        assert.deepStrictEqual(omitted, ["codex-home/sessions"])
        const exit = yield* Effect.exit(
          capture({
            ...options,
            sources: [
              {
                ...source,
                select: () => {
                  throw new Error("a mistake of the host")
                }
              }
            ]
          })
        )
        assert.isTrue(Exit.isFailure(exit) && Cause.hasDies(exit.cause))
        assert.deepStrictEqual(backupNames(instance), ["current"])
        // The thread works on.
        yield* made(instance, "two")
        assert.strictEqual(hostReads(instance), "two")
      })
    )
  )

  it.effect("[B-02] refuses sources that are links, are missing, or cannot be told apart", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        yield* made(instance, "one")
        const before = snapshot(backupsOf(instance))
        const folder = scopeFolder(instance)
        Fs.symlinkSync("codex-home", `${folder}/link`)
        Fs.writeFileSync(`${folder}/file`, "")
        const good = { name: "runner", path: `${folder}/runner` }
        const refused: Record<string, CaptureOptions["sources"]> = {
          "it is a link": [{ name: "codex-home", path: `${folder}/link` }],
          "it is a link ": [good, { name: "codex-home", path: `${folder}/link/` }],
          "it is a link  ": [{ name: "codex-home", path: `${folder}/link/.` }],
          "it is no folder": [{ name: "codex-home", path: `${folder}/file` }],
          "it does not exist": [{ name: "codex-home", path: `${folder}/nothing` }],
          "the path is not absolute": [{ name: "codex-home", path: "codex-home" }],
          "it holds the backups of the session, or lies in them": [{ name: "all", path: folder }],
          "it holds the backups of the session, or lies in them ": [
            { name: "all", path: `${backupsOf(instance)}/current/codex-home` }
          ],
          "two sources have the same name": [good, { ...good, name: "Runner" }],
          "there is nothing to back up": [],
          "more than 4 sources": ["a", "b", "c", "d", "e"].map((name) => ({ ...good, name })),
          'it cannot be named "../x"': [{ ...good, name: "../x" }],
          'it cannot be named "manifest.json"': [{ ...good, name: "manifest.json" }]
        }
        for (const [detail, sources] of Object.entries(refused)) {
          const error = yield* Effect.flip(capture({ scope: scope(), identity, sources }))
          assert.strictEqual(error._tag === "RefusedSource" ? error.detail : error._tag, detail.trim())
        }
        assert.deepStrictEqual(snapshot(backupsOf(instance)), before)
      })
    )
  )

  it.effect(
    "[B-01] [F-01] refuses a link or a file where the scope or a backup belongs, before it copies",
    () =>
      test(
        Effect.fnUntraced(function* (instance) {
          write(`${instance}/source`, { a: "a" })
          write(`${instance}/outside`, { precious: "p" })
          const options = { identity, sources: [{ name: "runner", path: `${instance}/source` }] }
          const places: Record<string, string> = {
            a: "",
            b: "/failover-backups",
            c: "/failover-backups/current",
            d: "/failover-backups/previous"
          }
          for (const [digit, place] of Object.entries(places)) {
            const path = `${scopeFolder(instance, scope(digit))}${place}`
            for (const make of [
              () => Fs.symlinkSync(`${instance}/outside`, path),
              () => Fs.writeFileSync(path, "")
            ]) {
              Fs.mkdirSync(path.replace(/\/[^/]*$/, ""), { recursive: true })
              make()
              const error = yield* Effect.flip(capture({ ...options, scope: scope(digit) }))
              assert.strictEqual(error._tag, "FileError", place)
              Fs.unlinkSync(path)
            }
          }
          assert.deepStrictEqual(Fs.readdirSync(`${instance}/outside`), ["precious"])
        })
      )
  )

  it.effect(
    "[B-01] [F-09] leaves the old backup and no staging when it fails or is interrupted at any point",
    () =>
      test(
        Effect.fnUntraced(function* (instance) {
          yield* made(instance, "old")
          makeSession(instance, "new")
          const before = snapshot(backupsOf(instance))
          const points = [
            "capture.afterFolder",
            "capture.afterSource",
            "capture.afterManifestTemp",
            "capture.afterManifest",
            "capture.beforeSwap",
            "capture.afterPreviousAside",
            "capture.afterCurrentAside"
          ]
          for (const point of points) {
            const died = yield* Effect.exit(
              capture(captureOptions(instance)).pipe(atPoint(point, Effect.die("crash")))
            )
            assert.isTrue(Exit.isFailure(died), point)
            assert.deepStrictEqual(snapshot(backupsOf(instance)), before, point)
          }
          for (const point of points.slice(0, 4)) {
            const { held, interruptHeld } = yield* hold
            const fiber = yield* Effect.forkChild(capture(captureOptions(instance)).pipe(held(point)))
            yield* interruptHeld(fiber)
            const exit = yield* Fiber.await(fiber)
            assert.isTrue(Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause), point)
            assert.deepStrictEqual(snapshot(backupsOf(instance)), before, point)
          }
          // The swap itself is not interrupted half way.
          for (const point of points.slice(4)) {
            const { held, interruptHeld } = yield* hold
            const fiber = yield* Effect.forkChild(capture(captureOptions(instance)).pipe(held(point)))
            yield* interruptHeld(fiber)
            yield* Fiber.await(fiber)
            assert.strictEqual(hostReads(instance), "new", point)
            assert.include(backupNames(instance), "current", point)
            assert.notInclude(backupNames(instance), ".pending", point)
          }
        })
      )
  )

  it.effect("[B-01] what was captured becomes the backup although a sweep moves the old one meanwhile", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        yield* made(instance, "old")
        makeSession(instance, "new")
        const retired = `${backupsOf(instance)}/.retiring-aaaaaaaa-0000-4000-8000-000000000001`
        const sweep = Effect.sync(() => Fs.renameSync(`${backupsOf(instance)}/current`, retired))
        yield* capture(captureOptions(instance)).pipe(atPoint("capture.afterPreviousAside", sweep))
        assert.strictEqual(hostReads(instance), "new")
        assert.isTrue(Fs.existsSync(retired))
      })
    )
  )

  it.effect("[B-01] [F-09] stops a copy between two entries when it is interrupted", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        yield* made(instance, "old")
        const before = snapshot(backupsOf(instance))
        write(
          `${instance}/many`,
          Object.fromEntries(Array.from({ length: 3000 }, (_, at) => [`f${at}`, "x"]))
        )
        let interrupt: () => void = () => undefined
        const asked = yield* Effect.forkChild(
          Effect.callback<void>((resume) => {
            interrupt = () => resume(Effect.void)
          }),
          { startImmediately: true }
        )
        let questions = 0
        const fiber = yield* Effect.forkChild(
          capture({
            ...captureOptions(instance),
            sources: [
              {
                name: "many",
                path: `${instance}/many`,
                select: () => {
                  questions += 1
                  interrupt()
                  return { _tag: "Copy" }
                }
              }
            ]
          })
        )
        yield* Fiber.join(asked)
        yield* Fiber.interrupt(fiber)
        assert.isBelow(questions, 3000)
        assert.deepStrictEqual(snapshot(backupsOf(instance)), before)
      })
    )
  )

  it.effect("[B-01] moves the old backup back when a rename of the swap fails", () =>
    Effect.gen(function* () {
      const instance = yield* tempFolder
      yield* withStore(instance, made(instance, "old"))
      copyBackup(instance, "current", "previous")
      rewrite(instance, "previous", "older", "2020-01-01T00:00:00.000Z")
      makeSession(instance, "new")
      const before = snapshot(backupsOf(instance))
      for (const matches of [/\/previous$/, /\/current$/, /\/\.pending-[^/]*$/]) {
        const fault = {
          method: "rename",
          matches: (path: string) => matches.test(path),
          times: 1,
          code: "EIO"
        } as const
        const error = yield* Effect.flip(withStore(instance, capture(captureOptions(instance)), [fault]))
        assert.strictEqual(error._tag === "FileError" ? error.code : error._tag, "EIO")
        assert.deepStrictEqual(snapshot(backupsOf(instance)), before, String(matches))
      }
    }).pipe(Effect.scoped)
  )

  it.effect("[B-01] keeps both backups when a full disk or an unreadable file stops it", () =>
    Effect.gen(function* () {
      const instance = yield* tempFolder
      yield* withStore(instance, made(instance, "old"))
      const before = snapshot(backupsOf(instance))
      const full = { method: "writeNew", code: "ENOSPC" } as const
      const error = yield* Effect.flip(withStore(instance, capture(captureOptions(instance)), [full]))
      assert.strictEqual(error._tag === "FileError" ? error.code : error._tag, "ENOSPC")
      spawnSync("mkfifo", [`${scopeFolder(instance)}/codex-home/pipe`])
      const unsupported = yield* Effect.flip(withStore(instance, capture(captureOptions(instance))))
      assert.strictEqual(unsupported._tag === "FileError" ? unsupported.code : "", "EUNSUPPORTED")
      assert.deepStrictEqual(snapshot(backupsOf(instance)), before)
    }).pipe(Effect.scoped)
  )

  it.effect("[B-01] two captures of a scope at once leave one whole backup", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        yield* made(instance, "old")
        makeSession(instance, "new")
        yield* Effect.all(
          Array.from({ length: 4 }, () => capture(captureOptions(instance))),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(hostReads(instance), "new")
        assert.deepStrictEqual(backupNames(instance), ["current"])
      })
    )
  )
})

describe("BackupStore.restore", () => {
  const read = (target: string) => Fs.readFileSync(`${target}/codex-home/config.toml`, "utf8")

  it.effect("[B-03] restores byte for byte, with modes and links, to a new or an empty folder", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        const home = `${makeSession(instance, "one")}/codex-home`
        Fs.symlinkSync("config.toml", `${home}/link`)
        Fs.chmodSync(`${home}/config.toml`, 0o440)
        Fs.chmodSync(`${home}/memories`, 0o555)
        const captured = yield* capture(captureOptions(instance))
        Fs.mkdirSync(`${instance}/empty`, { mode: 0o750 })
        for (const target of [`${instance}/new`, `${instance}/empty`, `${instance}/slash/`]) {
          const restored = yield* restore(target)
          assert.deepStrictEqual(
            [restored.from, restored.bytes, `${restored.path}/`],
            ["current", captured.bytes, `${target.replace(/\/$/, "")}/`]
          )
          assert.deepStrictEqual(Fs.readdirSync(target).toSorted(), ["codex-home", "runner"])
          for (const name of ["codex-home", "runner"]) {
            assert.deepStrictEqual(
              hostDigest(`${target}/${name}`),
              hostDigest(`${scopeFolder(instance)}/${name}`)
            )
          }
          assert.strictEqual(Fs.lstatSync(`${restored.path}/codex-home/config.toml`).mode & 0o777, 0o440)
        }
        assert.strictEqual(Fs.lstatSync(`${instance}/empty`).mode & 0o777, 0o750)
        assert.strictEqual(Fs.lstatSync(`${instance}/new`).mode & 0o777, 0o700)
        assert.isFalse(Fs.readdirSync(instance).some(isStaging))
      })
    )
  )

  it.effect("[B-03] refuses a target that is not empty, is no folder, or is a link", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        yield* made(instance, "one")
        write(instance, { "full/file": "f", file: "f", "empty/": "" })
        Fs.symlinkSync("empty", `${instance}/link`)
        const before = snapshot(instance)
        const refused: Record<string, string> = {
          [`${instance}/full`]: "it is not empty",
          [`${instance}/file`]: "it is no folder",
          [`${instance}/link`]: "it is a link",
          [`${instance}/link/`]: "it is a link",
          [`${instance}/nowhere/deep`]: "its folder does not exist",
          [`${instance}/file/deep`]: "its folder does not exist",
          relative: "the path is not absolute",
          [`${backupsOf(instance)}/new`]: "it lies in the backups of the session",
          [backupsOf(instance)]: "it lies in the backups of the session"
        }
        for (const [target, detail] of Object.entries(refused)) {
          const error = yield* Effect.flip(restore(target))
          assert.strictEqual(error._tag === "RefusedTarget" ? error.detail : error.message, detail, target)
        }
        assert.deepStrictEqual(snapshot(instance), before)
      })
    )
  )

  it.effect("[B-03] refuses a target that somebody takes meanwhile, and overwrites nothing", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        yield* made(instance, "one")
        const target = `${instance}/target`
        for (const take of [
          () => write(target, { theirs: "t" }),
          () => Fs.writeFileSync(target, "file"),
          () => Fs.symlinkSync("/nowhere", target)
        ]) {
          const error = yield* Effect.flip(
            restore(target).pipe(atPoint("backupRestore.beforePublish", Effect.sync(take)))
          )
          assert.strictEqual(error._tag, "RefusedTarget")
          assert.isFalse(Fs.readdirSync(instance).some(isStaging))
          Fs.rmSync(target, { recursive: true })
        }
      })
    )
  )

  const damages: Record<string, (backup: string) => void> = {
    "a flipped byte": (backup) => {
      const path = `${backup}/codex-home/sessions/2026/11/30/rollout-1.jsonl`
      const content = Fs.readFileSync(path)
      content[3]! ^= 1
      Fs.writeFileSync(path, content)
    },
    "a missing file": (backup) => Fs.rmSync(`${backup}/codex-home/config.toml`),
    "an extra file": (backup) => Fs.writeFileSync(`${backup}/runner/extra`, ""),
    "an extra folder": (backup) => Fs.mkdirSync(`${backup}/codex-home/memories/extra`),
    "another mode": (backup) => Fs.chmodSync(`${backup}/codex-home/config.toml`, 0o600),
    "a renamed file": (backup) =>
      Fs.renameSync(`${backup}/runner/runner-state.json`, `${backup}/runner/runner-state`),
    "a link for a file": (backup) => {
      Fs.renameSync(`${backup}/codex-home/config.toml`, `${backup}/config.toml`)
      Fs.symlinkSync("../config.toml", `${backup}/codex-home/config.toml`)
    },
    "a missing folder": (backup) => Fs.rmSync(`${backup}/runner`, { recursive: true }),
    "a link for a folder": (backup) => {
      Fs.renameSync(`${backup}/runner`, `${backup}/moved`)
      Fs.symlinkSync("moved", `${backup}/runner`)
    },
    "no manifest": (backup) => Fs.rmSync(`${backup}/manifest.json`),
    "half a manifest": (backup) => Fs.truncateSync(`${backup}/manifest.json`, 100),
    "a manifest that is a link": (backup) => {
      Fs.renameSync(`${backup}/manifest.json`, `${backup}/moved.json`)
      Fs.symlinkSync("moved.json", `${backup}/manifest.json`)
    },
    "a manifest too large": (backup) =>
      Fs.appendFileSync(`${backup}/manifest.json`, " ".repeat(BackupManifest.maxBytes))
  }

  it.effect("[B-03] falls back from a damaged current to previous, then to the newest that is leaving", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        yield* made(instance, "current")
        const retiring = [randomUUID(), randomUUID(), randomUUID()].map((token) => `.retiring-${token}`)
        const expired = `.expired-${randomUUID()}`
        for (const name of ["previous", ...retiring, expired]) copyBackup(instance, "current", name)
        rewrite(instance, "previous", "previous", "2025-01-01T00:00:00.000Z")
        rewrite(instance, retiring[0]!, "oldest", "2023-01-01T00:00:00.000Z")
        rewrite(instance, retiring[1]!, "newest", "2024-01-01T00:00:00.000Z")
        rewrite(instance, retiring[2]!, "middle", "2023-06-01T00:00:00.000Z")
        rewrite(instance, expired, "expired", "2026-01-01T00:00:00.000Z")
        const target = `${instance}/target`
        const tried = Effect.fnUntraced(function* () {
          const { from } = yield* restore(target)
          const content = read(target)
          Fs.rmSync(target, { recursive: true })
          return [from, content]
        })
        const flip = damages["a flipped byte"]!
        assert.deepStrictEqual(yield* tried(), ["current", "current"])
        flip(`${backupsOf(instance)}/current`)
        assert.deepStrictEqual(yield* tried(), ["previous", "previous"])
        flip(`${backupsOf(instance)}/previous`)
        assert.deepStrictEqual(yield* tried(), ["retiring", "newest"])
        flip(`${backupsOf(instance)}/${retiring[1]!}`)
        assert.deepStrictEqual(yield* tried(), ["retiring", "middle"])
        flip(`${backupsOf(instance)}/${retiring[2]!}`)
        damages["no manifest"]!(`${backupsOf(instance)}/${retiring[0]!}`)
        const error = yield* Effect.flip(restore(target))
        assert.strictEqual(error._tag, "RestoreFailed")
        if (error._tag !== "RestoreFailed") return
        assert.deepStrictEqual(
          error.attempts.map(({ name }) => name),
          ["current", "previous", retiring[1], retiring[2]]
        )
        assert.include(error.message, "codex-home is not what its manifest says")
        assert.isFalse(Fs.existsSync(target))
        assert.isFalse(Fs.readdirSync(instance).some(isStaging))
      })
    )
  )

  for (const [what, code, times, expected] of [
    ["fails once", "EIO", 1, "current"],
    ["cannot be read at all", "EIO", undefined, "previous"],
    ["is not allowed", "EACCES", undefined, "EACCES"],
    ["finds no descriptor left", "EMFILE", 1, "EMFILE"]
  ] as const) {
    it.effect(`[B-03] gives an older backup only for damage: a call that ${what}`, () =>
      test(
        Effect.fnUntraced(function* (instance) {
          yield* made(instance, "current")
          copyBackup(instance, "current", "previous")
          rewrite(instance, "previous", "previous", "2025-01-01T00:00:00.000Z")
          const target = `${instance}/target`
          const outcome = yield* Effect.result(restore(target))
          assert.strictEqual(
            Result.match(outcome, {
              onSuccess: ({ from }) => from,
              onFailure: (error) => (error._tag === "FileError" ? error.code : error._tag)
            }),
            expected
          )
          assert.strictEqual(Fs.existsSync(target), Result.isSuccess(outcome))
          assert.isFalse(Fs.readdirSync(instance).some(isStaging))
        }),
        () => [
          {
            method: "readSmall",
            code,
            matches: (path) => path.includes("/current/"),
            ...(times === undefined ? {} : { times })
          }
        ]
      )
    )
  }

  it.effect("[B-03] fails whole on every kind of damage, and verify tells it too", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      for (const [what, damage] of Object.entries(damages)) {
        const instance = `${folder}/${what}`
        Fs.mkdirSync(instance)
        yield* withStore(
          instance,
          Effect.gen(function* () {
            const store = yield* BackupStore
            const { manifest, path } = yield* made(instance, "one")
            assert.strictEqual((yield* store.verify(path, manifest))._tag, "Verified", what)
            damage(path)
            const error = yield* Effect.flip(restore(`${instance}/target`))
            assert.strictEqual(error._tag, "RestoreFailed", what)
            assert.isFalse(Fs.existsSync(`${instance}/target`), what)
            assert.isFalse(Fs.readdirSync(instance).some(isStaging), what)
            const state = yield* store.inspect(scope())
            const known = Option.getOrThrow(state.current).manifest
            if (what.includes("manifest")) assert.isTrue(Result.isFailure(known), what)
            else assert.strictEqual((yield* store.verify(path, manifest))._tag, "Damaged", what)
          })
        )
      }
    }).pipe(Effect.scoped)
  )

  it.effect(
    "[B-03] says that there is no backup where there is none, expired or unfinished ones not counted",
    () =>
      test(
        Effect.fnUntraced(function* (instance) {
          const none = yield* Effect.flip(restore(`${instance}/target`))
          assert.strictEqual(none.message, `${scope()}: there is no backup`)
          yield* made(instance, "one")
          Fs.renameSync(`${backupsOf(instance)}/current`, `${backupsOf(instance)}/.expired-${randomUUID()}`)
          write(`${backupsOf(instance)}/.pending-${randomUUID()}`, { a: "a" })
          const left = yield* Effect.flip(restore(`${instance}/target`))
          assert.strictEqual(left.message, `${scope()}: there is no backup`)
        })
      )
  )

  it.effect("[B-03] finds a backup again that is moved while it is restored", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        yield* made(instance, "one")
        const backups = backupsOf(instance)
        const move = (from: string, to: string) =>
          Effect.sync(() => Fs.renameSync(`${backups}/${from}`, `${backups}/${to}`))
        const retiring = `.retiring-${randomUUID()}`
        const restored = yield* restore(`${instance}/target`).pipe(
          atPoint("backupRestore.afterDirectory", move("current", retiring))
        )
        assert.strictEqual(restored.from, "retiring")
        assert.strictEqual(read(`${instance}/target`), "one")
        // And one that is replaced meanwhile: the new one is restored, not a mixture.
        yield* move(retiring, "current")
        makeSession(instance, "two")
        const again = yield* restore(`${instance}/again`).pipe(
          atPoint(
            "backupRestore.afterDirectory",
            Effect.asVoid(Effect.orDie(withStore(instance, capture(captureOptions(instance)))))
          )
        )
        assert.strictEqual(again.from, "current")
        assert.strictEqual(read(`${instance}/again`), "two")
        assert.isFalse(Fs.readdirSync(instance).some(isStaging))
      })
    )
  )

  it.effect("[B-03] leaves no staging and no target when it fails or is interrupted at any point", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        yield* made(instance, "one")
        const before = snapshot(instance)
        for (const point of [
          "backupRestore.afterFolder",
          "backupRestore.afterDirectory",
          "backupRestore.beforePublish"
        ]) {
          const died = yield* Effect.exit(
            restore(`${instance}/target`).pipe(atPoint(point, Effect.die("crash")))
          )
          assert.isTrue(Exit.isFailure(died), point)
          assert.deepStrictEqual(snapshot(instance), before, point)
          const { held, interruptHeld } = yield* hold
          const fiber = yield* Effect.forkChild(restore(`${instance}/target`).pipe(held(point)))
          yield* interruptHeld(fiber)
          const exit = yield* Fiber.await(fiber)
          assert.isTrue(Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause), point)
          assert.deepStrictEqual(snapshot(instance), before, point)
        }
      })
    )
  )
})

describe("BackupStore moves", () => {
  const currentInfo = Effect.map(inspect, ({ current }) => Option.getOrThrow(current).info)

  it.effect("[B-08] moves current and previous aside, each under a name of its own, and expires them", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        yield* made(instance, "one")
        copyBackup(instance, "current", "previous")
        const store = yield* BackupStore
        const state = yield* inspect
        const expired = yield* Effect.gen(function* () {
          const current = yield* store.retire(scope(), "current", Option.getOrThrow(state.current).info)
          const previous = yield* store.retire(scope(), "previous", Option.getOrThrow(state.previous).info)
          assert.deepStrictEqual(backupNames(instance), [".retiring", ".retiring"])
          assert.strictEqual(current.name, `.retiring-${current.token}`)
          yield* current.confirm
          yield* previous.confirm
          return [yield* store.expire(current), yield* store.expire(previous)]
        }).pipe(Effect.scoped)
        assert.deepStrictEqual(backupNames(instance), [".expired", ".expired"])
        assert.isTrue(expired.every(Option.isSome))
        assert.deepStrictEqual(
          expired.map((moved) => Option.getOrThrow(moved).path).toSorted(),
          Fs.readdirSync(backupsOf(instance))
            .map((name) => `${backupsOf(instance)}/${name}`)
            .toSorted()
        )
      })
    )
  )

  it.effect(
    "[B-08] [F-09] undoes the move when the scope fails, dies, is interrupted or ends unconfirmed",
    () =>
      test(
        Effect.fnUntraced(function* (instance) {
          yield* made(instance, "one")
          const store = yield* BackupStore
          const before = snapshot(backupsOf(instance))
          for (const end of [Effect.fail("failed"), Effect.die("died"), Effect.void]) {
            const info = yield* currentInfo
            const exit = yield* Effect.exit(
              Effect.scoped(Effect.andThen(store.retire(scope(), "current", info), end))
            )
            assert.strictEqual(Exit.isSuccess(exit), end === Effect.void)
            assert.deepStrictEqual(snapshot(backupsOf(instance)), before)
          }
          for (const point of ["retire.beforeRename", "retire.afterRename", "retire.beforeUndo"]) {
            const info = yield* currentInfo
            const { held, interruptHeld } = yield* hold
            const leaving = store.retire(scope(), "current", info)
            const fiber = yield* Effect.forkChild(
              Effect.scoped(
                Effect.andThen(leaving, point === "retire.beforeUndo" ? Effect.void : Effect.never)
              ).pipe(held(point))
            )
            yield* interruptHeld(fiber)
            yield* Fiber.await(fiber)
            assert.deepStrictEqual(snapshot(backupsOf(instance)), before, point)
          }
        })
      )
  )

  it.effect("[B-08] overwrites nothing when the name is taken again", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        yield* made(instance, "one")
        const store = yield* BackupStore
        const current = `${backupsOf(instance)}/current`
        const takers: Record<string, () => void> = {
          backup: () => write(current, { other: "new" }),
          empty: () => Fs.mkdirSync(current),
          file: () => Fs.writeFileSync(current, "file"),
          link: () => Fs.symlinkSync("/nowhere", current)
        }
        for (const [what, take] of Object.entries(takers)) {
          const info = yield* currentInfo
          const retiring = yield* Effect.scoped(
            Effect.tap(store.retire(scope(), "current", info), () => Effect.sync(take))
          )
          assert.strictEqual(yield* store.revive(retiring), "taken", what)
          assert.deepStrictEqual(backupNames(instance), [".retiring", "current"], what)
          Fs.rmSync(current, { recursive: true })
          assert.strictEqual(yield* store.revive(retiring), "moved", what)
          assert.strictEqual(yield* store.revive(retiring), "gone", what)
          assert.strictEqual(hostReads(instance), "one", what)
        }
      })
    )
  )

  it.effect("[B-08] undo moves back once, to the name that it came from", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        yield* made(instance, "one")
        Fs.renameSync(`${backupsOf(instance)}/current`, `${backupsOf(instance)}/previous`)
        const store = yield* BackupStore
        const { previous } = yield* inspect
        yield* Effect.gen(function* () {
          const retiring = yield* store.retire(scope(), "previous", Option.getOrThrow(previous).info)
          assert.strictEqual(yield* retiring.undo, "moved")
          assert.strictEqual(yield* retiring.undo, "gone")
        }).pipe(Effect.scoped)
        assert.deepStrictEqual(backupNames(instance), ["previous"])
      })
    )
  )

  it.effect("[B-08] [F-02] does not move what changed since it was looked at, or is gone", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        yield* made(instance, "one")
        const store = yield* BackupStore
        const current = `${backupsOf(instance)}/current`
        const changes: Record<string, () => void> = {
          entry: () => Fs.writeFileSync(`${current}/late`, ""),
          "change time": () => Fs.chmodSync(current, 0o700),
          mode: () => Fs.chmodSync(current, 0o750),
          replaced: () => {
            Fs.renameSync(current, `${instance}/elsewhere`)
            Fs.mkdirSync(current)
          },
          gone: () => Fs.rmdirSync(current)
        }
        for (const [what, change] of Object.entries(changes)) {
          const info = yield* currentInfo
          change()
          const before = backupNames(instance)
          const error = yield* Effect.flip(Effect.scoped(store.retire(scope(), "current", info)))
          assert.strictEqual(error._tag, "Changed", what)
          assert.deepStrictEqual(backupNames(instance), before, what)
        }
      })
    )
  )

  it.effect("[B-08] [F-02] looks again after the rename, whose change time is the rename's", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        yield* made(instance, "one")
        const store = yield* BackupStore
        const retiring = yield* store.retire(scope(), "current", yield* currentInfo)
        yield* retiring.recheck
        Fs.chmodSync(retiring.path, 0o750)
        assert.strictEqual((yield* Effect.flip(retiring.recheck))._tag, "Changed")
        Fs.rmSync(retiring.path, { recursive: true })
        assert.include((yield* Effect.flip(retiring.recheck)).message, "it is gone")
      }, Effect.scoped)
    )
  )

  it.effect("[B-08] tries to move back again at the end when that failed", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        yield* made(instance, "one")
        const store = yield* BackupStore
        yield* Effect.gen(function* () {
          const retiring = yield* store.retire(scope(), "current", yield* currentInfo)
          assert.strictEqual((yield* Effect.flip(retiring.undo)).message, `rename ${retiring.path}: EIO`)
          assert.deepStrictEqual(backupNames(instance), [".retiring"])
        }).pipe(Effect.scoped)
        assert.deepStrictEqual(backupNames(instance), ["current"])
      }),
      () => [{ method: "rename", code: "EIO", times: 1, matches: (path) => path.includes("/.retiring-") }]
    )
  )

  it.effect("[B-08] moves back what was swapped between the look and the rename", () =>
    Effect.gen(function* () {
      const instance = yield* tempFolder
      yield* withStore(instance, made(instance, "one"))
      const current = `${backupsOf(instance)}/current`
      const swap = {
        method: "rename",
        matches: (path: string) => path === current,
        times: 1,
        before: Effect.sync(() => {
          Fs.renameSync(current, `${instance}/elsewhere`)
          write(current, { theirs: "t" })
        })
      } as const
      const error = yield* Effect.flip(
        withStore(
          instance,
          Effect.gen(function* () {
            const store = yield* BackupStore
            const retiring = yield* store.retire(scope(), "current", yield* currentInfo)
            // Whoever moved it has it in hand by now, and can undo it.
            assert.isFalse(Fs.existsSync(current))
            return yield* retiring.recheck
          }).pipe(Effect.scoped),
          [swap]
        )
      )
      assert.strictEqual(error._tag, "Changed")
      assert.deepStrictEqual(Fs.readdirSync(current), ["theirs"])
    }).pipe(Effect.scoped)
  )

  it.effect("[B-09] revives, expires and drops leftovers, and nothing with another name", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        yield* made(instance, "one")
        const backups = backupsOf(instance)
        const store = yield* BackupStore
        const ref = <Kind extends LeftoverRef["kind"]>(kind: Kind) => ({
          scope: scope(),
          kind,
          name: `.${kind.toLowerCase()}-${randomUUID()}`
        })
        const [retiring, expired, pending] = [ref("Retiring"), ref("Expired"), ref("Pending")]
        assert.strictEqual(yield* store.revive(retiring), "gone")
        assert.isTrue(Option.isNone(yield* store.expire(retiring)))
        assert.isTrue(Option.isNone(yield* store.drop(pending)))
        Fs.renameSync(`${backups}/current`, `${backups}/${expired.name}`)
        assert.strictEqual(yield* store.revive(expired), "moved")
        write(`${backups}/${pending.name}`, { half: "h" })
        const claimed = Option.getOrThrow(yield* store.drop(pending))
        assert.strictEqual(claimed.kind, "Expired")
        assert.deepStrictEqual(Fs.readdirSync(claimed.path), ["half"])
        assert.strictEqual(hostReads(instance), "one")
        const before = snapshot(backups)
        for (const name of [
          "current",
          "../current",
          ".retiring-",
          `.retiring-${randomUUID()}/x`,
          ".pending-x",
          pending.name
        ]) {
          const wrong = { scope: scope(), kind: "Retiring" as const, name }
          assert.strictEqual((yield* Effect.flip(store.expire(wrong))).code, "EINVAL", name)
          assert.strictEqual((yield* Effect.flip(store.revive(wrong))).code, "EINVAL", name)
        }
        // A link of a leftover's name is not moved.
        Fs.symlinkSync("current", `${backups}/${retiring.name}`)
        assert.strictEqual((yield* Effect.flip(store.expire(retiring))).code, "ELOOP")
        Fs.unlinkSync(`${backups}/${retiring.name}`)
        assert.deepStrictEqual(snapshot(backups), before)
      })
    )
  )
})

describe("BackupStore listings", () => {
  const label = (entry: ScopeEntry) =>
    entry._tag === "Scope"
      ? `${entry.scope.slice(0, 2)} scope`
      : `${entry.name.slice(0, 2)} ${entry.reason._tag === "Unexpected" ? entry.reason.what : entry.reason.code}`

  it.effect("[B-04] [B-10] lists the scopes in order after any position, and enters no sibling", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        const store = yield* BackupStore
        assert.deepStrictEqual(yield* Stream.runCollect(store.scopes()), [])
        const sessions = sessionsOf(instance)
        for (const digit of ["c", "a", "0", "f"])
          Fs.mkdirSync(scopeFolder(instance, scope(digit)), { recursive: true })
        Fs.symlinkSync(scope("a"), `${sessions}/${scope("b")}`)
        Fs.writeFileSync(`${sessions}/${scope("d")}`, "")
        for (const name of [
          "quarantine",
          `${scope("a")}.cleanup-AbCdEf`,
          scope("a").toUpperCase(),
          "short"
        ]) {
          Fs.mkdirSync(`${sessions}/${name}`, { recursive: true, mode: 0o000 })
        }
        const expected = [
          "00 scope",
          "aa scope",
          "bb a link where a folder belongs",
          "cc scope",
          "dd a file where a folder belongs",
          "ff scope"
        ]
        const all = yield* Stream.runCollect(store.scopes())
        assert.deepStrictEqual(all.map(label), expected)
        for (const [at, { position }] of all.entries()) {
          const rest = yield* Stream.runCollect(store.scopes(position))
          assert.deepStrictEqual(rest.map(label), expected.slice(at + 1))
        }
        // With a window of one name, each step reads the folder anew.
        const posix = yield* PosixFileSystem
        const windowed = yield* Stream.runCollect(scopesOf({ posix, sessions, window: 1 })())
        assert.deepStrictEqual(windowed.map(label), expected)
      })
    )
  )

  it.effect("[B-04] reports a scope that cannot be looked at, and passes over one that vanishes", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        for (const digit of ["a", "b", "c"])
          Fs.mkdirSync(scopeFolder(instance, scope(digit)), { recursive: true })
        const store = yield* BackupStore
        const all = yield* Stream.runCollect(store.scopes())
        assert.deepStrictEqual(all.map(label), ["aa EACCES", "cc scope"])
      }),
      (instance) => [
        { method: "lstat", matches: (path) => path === scopeFolder(instance, scope("a")), code: "EACCES" },
        { method: "lstat", matches: (path) => path === scopeFolder(instance, scope("b")), code: "ENOENT" }
      ]
    )
  )

  it.effect("[B-06] tells what a state file is, without opening one that is too large", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        const folder = scopeFolder(instance)
        const file = `${folder}/control-plane/control-plane-state.json`
        const look = Effect.map(inspect, ({ controlPlane }) => controlPlane)
        assert.deepStrictEqual(yield* look, { _tag: "Missing" })
        write(folder, { "control-plane/": "" })
        assert.deepStrictEqual(yield* look, { _tag: "Missing" })
        Fs.writeFileSync(file, '{"a":1}')
        assert.deepStrictEqual(yield* look, { _tag: "Found", text: '{"a":1}' })
        Fs.writeFileSync(file, Buffer.from([0xff]))
        assert.deepStrictEqual(yield* look, { _tag: "Unreadable", detail: "it is not UTF-8" })
        Fs.writeFileSync(file, " ".repeat(ControlPlaneState.maxBytes))
        assert.strictEqual((yield* look)._tag, "Found")
        Fs.truncateSync(file, ControlPlaneState.maxBytes + 1)
        assert.deepStrictEqual(yield* look, {
          _tag: "TooLarge",
          bytes: BigInt(ControlPlaneState.maxBytes + 1)
        })
        Fs.rmSync(file)
        for (const make of [
          () => Fs.symlinkSync("/etc/hostname", file),
          () => Fs.mkdirSync(file),
          () => void spawnSync("mkfifo", [file])
        ]) {
          make()
          assert.strictEqual((yield* look)._tag, "Unreadable")
          Fs.rmSync(file, { recursive: true })
        }
        Fs.rmSync(`${folder}/control-plane`, { recursive: true })
        Fs.mkdirSync(`${instance}/elsewhere`)
        Fs.symlinkSync(`${instance}/elsewhere`, `${folder}/control-plane`)
        assert.strictEqual((yield* look)._tag, "Unreadable")
      })
    )
  )

  it.effect("[B-05] sees a pending cleanup, also where it cannot be told", () =>
    Effect.gen(function* () {
      const instance = yield* tempFolder
      const file = `${scopeFolder(instance)}/cleanup-activation.json`
      write(scopeFolder(instance), { "x/": "" })
      const pending = Effect.map(inspect, ({ cleanupActivation }) => cleanupActivation)
      assert.isFalse(yield* withStore(instance, pending))
      const fault = { method: "lstat", matches: (path: string) => path === file, code: "EACCES" } as const
      assert.isTrue(yield* withStore(instance, pending, [fault]))
      Fs.symlinkSync("/nowhere", file)
      assert.isTrue(yield* withStore(instance, pending))
    }).pipe(Effect.scoped)
  )

  it.effect("[B-08] [B-09] finds every backup of a scope, and reports everything else", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        yield* made(instance, "one")
        const backups = backupsOf(instance)
        Fs.renameSync(`${backups}/current`, `${backups}/previous`)
        const named = (kind: string) => `.${kind}-${randomUUID()}`
        const [retiring, expired, pending] = [named("retiring"), named("expired"), named("pending")]
        copyBackup(instance, "previous", retiring)
        copyBackup(instance, "previous", expired)
        write(`${backups}/${pending}`, { half: "h" })
        const clean = yield* inspect
        assert.deepStrictEqual(clean.obstacles, [])
        assert.isTrue(Option.isNone(clean.current))
        assert.isTrue(Result.isSuccess(Option.getOrThrow(clean.previous).manifest))
        assert.deepStrictEqual(
          [clean.retiring, clean.expired, clean.pending].map((all) => all.map(({ name }) => name)),
          [[retiring], [expired], [pending]]
        )
        assert.isTrue(Result.isFailure(clean.pending[0]!.manifest))
        Fs.symlinkSync("previous", `${backups}/current`)
        Fs.symlinkSync("previous", `${backups}/${named("expired")}`)
        Fs.writeFileSync(`${backups}/${named("retiring")}`, "")
        write(backups, { ".expired-nothing/": "", "notes.txt": "n" })
        const { current, expired: stillOne, obstacles, retiring: stillOneToo } = yield* inspect
        assert.strictEqual(Option.getOrThrow(current).info.kind, "symlink")
        assert.isTrue(Result.isFailure(Option.getOrThrow(current).manifest))
        assert.deepStrictEqual([stillOne.length, stillOneToo.length], [1, 1])
        assert.deepStrictEqual(
          obstacles
            .map((obstacle) => (obstacle._tag === "Unexpected" ? obstacle.what : obstacle.code))
            .toSorted(),
          [
            "a file where a folder belongs",
            "a link where a folder belongs",
            "a link where a folder belongs",
            "a name that is not ours",
            "a name that is not ours"
          ]
        )
      })
    )
  )

  it.effect("[F-01] looks at nothing below a scope or a backups folder that is a link", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        write(`${instance}/outside/failover-backups/current`, { "manifest.json": "{}" })
        Fs.mkdirSync(sessionsOf(instance), { recursive: true })
        Fs.symlinkSync(`${instance}/outside`, scopeFolder(instance))
        const linked = yield* inspect
        assert.deepStrictEqual(linked.obstacles, [
          { _tag: "Unexpected", what: "a link where a folder belongs", path: scopeFolder(instance) }
        ])
        assert.isTrue(Option.isNone(linked.current))
        Fs.unlinkSync(scopeFolder(instance))
        Fs.mkdirSync(scopeFolder(instance))
        Fs.symlinkSync(`${instance}/outside/failover-backups`, backupsOf(instance))
        const inner = yield* inspect
        assert.strictEqual(inner.obstacles.length, 1)
        assert.isTrue(Option.isNone(inner.current))
        assert.strictEqual((yield* Effect.flip(restore(`${instance}/target`)))._tag, "FileError")
      })
    )
  )
})
