import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { spawn } from "node:child_process"
import * as Fs from "node:fs"
import { fileURLToPath } from "node:url"
import { BackupStore } from "../src/BackupStore.ts"
import * as PosixFileSystem from "../src/PosixFileSystem.ts"
import * as Trees from "../src/Trees.ts"
import {
  backupLayer,
  backupNames,
  backupsOf,
  captureOptions,
  hostDigest,
  hostReads,
  makeSession,
  scope
} from "./support/backups.ts"
import { tempFolder, write } from "./support/fixtures.ts"

const script = fileURLToPath(new URL("./support/backupCrash.ts", import.meta.url))

/** With one set of threads for everything that happens in this process. */
const here = <A, E, R>(self: Effect.Effect<A, E, R>) =>
  self.pipe(Effect.provide(Layer.merge(PosixFileSystem.layer, Trees.layer)), Effect.scoped)

/** Runs a process that kills itself; what it printed when it never came to the point. */
const killedAt = Effect.fnUntraced(function* (
  action: string,
  instance: string,
  point: string,
  nth = 1,
  env: NodeJS.ProcessEnv = {}
) {
  const { signal, stderr, stdout } = yield* Effect.callback<{
    signal: NodeJS.Signals | null
    stdout: string
    stderr: string
  }>((resume) => {
    const child = spawn(
      process.execPath,
      ["--conditions=@reclaim/source", script, action, instance, point, String(nth)],
      { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...env } }
    )
    let stdout = ""
    let stderr = ""
    child.stdout.on("data", (chunk: Buffer) => (stdout += chunk.toString()))
    child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()))
    child.on("error", (error) => resume(Effect.succeed({ signal: null, stdout, stderr: String(error) })))
    child.on("close", (_, signal) => resume(Effect.succeed({ signal, stdout, stderr })))
  })
  assert.strictEqual(stderr, "")
  return signal === "SIGKILL" ? "killed" : stdout
})

const capture = (instance: string) =>
  Effect.flatMap(BackupStore, (store) => store.capture(captureOptions(instance))).pipe(
    Effect.provide(backupLayer(instance))
  )

/** What our own restoration makes of it. */
const restored = (instance: string) =>
  Effect.gen(function* () {
    const target = `${instance}/restored`
    const store = yield* BackupStore
    yield* store.restore({ scope: scope(), target })
    const content = Fs.readFileSync(`${target}/codex-home/config.toml`, "utf8")
    Fs.rmSync(target, { recursive: true })
    return content
  }).pipe(Effect.provide(backupLayer(instance)))

const capturePoints = [
  "capture.afterFolder",
  "capture.afterSource",
  "capture.afterManifestTemp",
  "capture.afterManifest",
  "capture.beforeSwap",
  "capture.afterPreviousAside",
  "capture.afterCurrentAside",
  "capture.afterSwap",
  "capture.afterOldExpired",
  "capture.afterDelete"
]
const swapPoints = [
  "capture.afterPreviousAside",
  "capture.afterCurrentAside",
  "capture.afterSwap",
  "capture.afterOldExpired"
]
/** From here on the new backup is the one that is found. */
const swapped = capturePoints.indexOf("capture.afterSwap")

describe("a backup of a process that is killed", () => {
  it.live(
    "[B-01] [Q-01] is the old one or the new one, whole, and the next capture converges",
    () =>
      Effect.gen(function* () {
        const folder = yield* tempFolder
        for (const [at, point] of capturePoints.entries()) {
          const instance = `${folder}/${point}`
          makeSession(instance, "old")
          yield* capture(instance)
          makeSession(instance, "new")
          assert.strictEqual(yield* killedAt("capture", instance, point), "killed", point)
          const expected = at < swapped ? "old" : "new"
          assert.strictEqual(hostReads(instance), expected, point)
          assert.strictEqual(yield* restored(instance), expected, point)
          makeSession(instance, "next")
          yield* capture(instance)
          assert.strictEqual(hostReads(instance), "next", point)
          // What the killed one was writing stays for the sweep; the old backup is gone.
          const kept = backupNames(instance).filter((name) => name !== ".pending" && name !== ".expired")
          assert.deepStrictEqual(kept, ["current"], point)
        }
      }).pipe(here),
    120_000
  )

  it.live(
    "[B-01] [Q-01] is the old one while a thread copies",
    () =>
      Effect.gen(function* () {
        const instance = yield* tempFolder
        makeSession(instance, "old")
        yield* capture(instance)
        makeSession(instance, "new")
        const path = "sessions/2026/11/30"
        assert.strictEqual(yield* killedAt("copying", instance, path), "killed")
        assert.deepStrictEqual(backupNames(instance), [".pending", "current"])
        assert.strictEqual(hostReads(instance), "old")
        assert.strictEqual(yield* restored(instance), "old")
      }).pipe(here),
    60_000
  )

  it.live(
    "[B-01] [Q-01] is never lost from what an earlier crash left: current and previous, previous alone, damaged ones",
    () =>
      Effect.gen(function* () {
        const folder = yield* tempFolder
        const states: Record<string, (backups: string) => void> = {
          both: (backups) => Fs.cpSync(`${backups}/current`, `${backups}/previous`, { recursive: true }),
          "previous alone": (backups) => Fs.renameSync(`${backups}/current`, `${backups}/previous`),
          "current damaged": (backups) => {
            Fs.cpSync(`${backups}/current`, `${backups}/previous`, { recursive: true })
            Fs.appendFileSync(`${backups}/current/codex-home/config.toml`, "!")
          },
          "previous damaged": (backups) => {
            Fs.cpSync(`${backups}/current`, `${backups}/previous`, { recursive: true })
            Fs.appendFileSync(`${backups}/previous/codex-home/config.toml`, "!")
          }
        }
        for (const [state, make] of Object.entries(states)) {
          for (const point of swapPoints) {
            const instance = `${folder}/${state}-${point}`
            makeSession(instance, "old")
            yield* capture(instance)
            make(backupsOf(instance))
            makeSession(instance, "new")
            assert.strictEqual(yield* killedAt("capture", instance, point), "killed", `${state} ${point}`)
            const content = yield* restored(instance)
            const expected = capturePoints.indexOf(point) < swapped ? "old" : "new"
            assert.strictEqual(content, expected, `${state} ${point}`)
          }
        }
      }).pipe(here),
    240_000
  )

  it.live(
    "[B-03] [Q-01] never shows a target that is half restored",
    () =>
      Effect.gen(function* () {
        const folder = yield* tempFolder
        for (const point of [
          "backupRestore.afterFolder",
          "backupRestore.afterDirectory",
          "backupRestore.beforePublish",
          "backupRestore.afterPublish"
        ]) {
          const instance = `${folder}/${point}`
          makeSession(instance, "old")
          yield* capture(instance)
          assert.strictEqual(yield* killedAt("restore", instance, point), "killed", point)
          const whole = Fs.existsSync(`${instance}/target`)
          assert.strictEqual(whole, point === "backupRestore.afterPublish", point)
          assert.strictEqual(yield* restored(instance), "old", point)
        }
      }).pipe(here),
    60_000
  )

  it.live(
    "[B-08] [B-09] [Q-01] comes back from every step of its expiration before it is expired",
    () =>
      Effect.gen(function* () {
        const folder = yield* tempFolder
        for (const point of ["retire.beforeRename", "retire.afterRename", "expire.beforeRename"]) {
          const instance = `${folder}/${point}`
          makeSession(instance, "old")
          yield* capture(instance)
          assert.strictEqual(yield* killedAt("retire", instance, point), "killed", point)
          assert.strictEqual(yield* restored(instance), "old", point)
          yield* Effect.gen(function* () {
            const store = yield* BackupStore
            const { retiring } = yield* store.inspect(scope())
            assert.strictEqual(retiring.length, point === "retire.beforeRename" ? 0 : 1, point)
            for (const leaving of retiring) assert.strictEqual(yield* store.revive(leaving), "moved")
          }).pipe(Effect.provide(backupLayer(instance)))
          assert.deepStrictEqual(backupNames(instance), ["current"])
          assert.strictEqual(hostReads(instance), "old", point)
        }
        const instance = `${folder}/last`
        makeSession(instance, "old")
        yield* capture(instance)
        assert.strictEqual(yield* killedAt("retire", instance, "expire.afterRename"), "killed")
        assert.deepStrictEqual(backupNames(instance), [".expired"])
      }).pipe(here),
    60_000
  )
})

/** Runs a process that sorts as Swedish does: `ä` after `z`. */
const inSwedish = (action: string, instance: string) =>
  killedAt(action, instance, "never", 1, { LC_ALL: "sv_SE.UTF-8" })

describe("locales", () => {
  const makeNames = (instance: string) =>
    write(makeSession(instance, "one"), {
      "codex-home/memories/ä.md": "last in Swedish",
      "codex-home/memories/z.md": "last elsewhere"
    })

  it.live("[B-01] writes the same digests whatever the locale of the process", () =>
    Effect.gen(function* () {
      const instance = yield* tempFolder
      makeNames(instance)
      assert.strictEqual(yield* inSwedish("capture", instance), "done")
      assert.strictEqual(hostReads(instance), "one")
    }).pipe(here)
  )

  it.live("[B-03] takes the digests of a host that sorts in the locale of this process", () =>
    Effect.gen(function* () {
      const instance = yield* tempFolder
      makeNames(instance)
      yield* capture(instance)
      const current = `${backupsOf(instance)}/current`
      const file = `${current}/manifest.json`
      const manifest = Fs.readFileSync(file, "utf8")
      const written = hostDigest(`${current}/codex-home`).sha256
      const swedish = hostDigest(`${current}/codex-home`, "sv").sha256
      assert.notStrictEqual(swedish, written)
      assert.include(manifest, written)
      Fs.writeFileSync(file, manifest.replace(written, swedish))
      assert.strictEqual(yield* inSwedish("verify", instance), "Verified")
      assert.strictEqual(yield* inSwedish("restore", instance), "done")
      assert.strictEqual(Fs.readFileSync(`${instance}/target/codex-home/config.toml`, "utf8"), "one")
      Fs.rmSync(`${instance}/target`, { recursive: true })
      // Neither of the two orders.
      Fs.writeFileSync(file, manifest.replace(written, `sha256:${"0".repeat(64)}`))
      assert.strictEqual(yield* inSwedish("verify", instance), "Damaged")
      assert.strictEqual((yield* Effect.flip(restored(instance)))._tag, "RestoreFailed")
    }).pipe(here)
  )
})
