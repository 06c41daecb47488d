import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { randomUUID } from "node:crypto"
import * as Fs from "node:fs"
import { BackupStore } from "../src/BackupStore.ts"
import { fresh } from "../src/internal/restoring.ts"
import { atPoint, tempFolder, write } from "./support/fixtures.ts"
import { backupLayer, captureOptions, makeSession, scope } from "./support/backups.ts"

const hour = 3_600_000

it.effect(
  "[B-03] restoring again removes what a killed restoration to the same target left, after a day",
  () =>
    Effect.gen(function* () {
      const instance = yield* tempFolder
      const target = `${instance}/target`
      const abandoned = fresh(target)
      write(abandoned, { "codex-home/config.toml": "half" })
      Fs.chmodSync(`${abandoned}/codex-home`, 0o555)
      // What is not ours for this target, or no folder, stays.
      const others = [fresh(`${instance}/other`), `${instance}/.restoring-${randomUUID()}`, `${abandoned}x`]
      for (const path of others) Fs.mkdirSync(path)
      const file = fresh(target)
      Fs.writeFileSync(file, "")
      const link = fresh(target)
      Fs.symlinkSync(others[0]!, link)
      const made = Fs.statSync(abandoned).ctimeMs

      yield* Effect.gen(function* () {
        const store = yield* BackupStore
        makeSession(instance, "content")
        yield* store.capture(captureOptions(instance))
        const restore = Effect.suspend(() => {
          Fs.rmSync(target, { recursive: true, force: true })
          return store.restore({ scope: scope(), target })
        })
        yield* TestClock.setTime(made + 23 * hour)
        yield* restore
        assert.isTrue(Fs.existsSync(abandoned))
        yield* TestClock.setTime(made + 25 * hour)
        yield* restore
        assert.isFalse(Fs.existsSync(abandoned))
        const left = Fs.readdirSync(instance).filter((name) => name.startsWith(".restoring-"))
        assert.deepStrictEqual(
          left.map((name) => `${instance}/${name}`).toSorted(),
          [...others, file, link].toSorted()
        )
      }).pipe(Effect.provide(backupLayer(instance)))
    }).pipe(Effect.scoped)
)

it.effect("[B-03] a restoration that was taken for abandoned fails, and publishes nothing", () =>
  Effect.gen(function* () {
    const instance = yield* tempFolder
    const target = `${instance}/target`
    yield* Effect.gen(function* () {
      const store = yield* BackupStore
      makeSession(instance, "content")
      yield* store.capture(captureOptions(instance))
      const slow = yield* Effect.flip(
        store
          .restore({ scope: scope(), target })
          .pipe(
            atPoint(
              "backupRestore.beforePublish",
              TestClock.setTime(Fs.statSync(instance).ctimeMs + 25 * hour).pipe(
                Effect.andThen(store.restore({ scope: scope(), target })),
                Effect.andThen(Effect.sync(() => Fs.rmSync(target, { recursive: true }))),
                Effect.orDie
              )
            )
          )
      )
      assert.strictEqual(slow._tag, "FileError")
      assert.isFalse(Fs.existsSync(target))
    }).pipe(Effect.provide(backupLayer(instance)))
  }).pipe(Effect.scoped)
)
