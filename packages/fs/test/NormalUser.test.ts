import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Fs from "node:fs"
import { fileURLToPath } from "node:url"
import { asNobody, isReadable, isRoot, nobody } from "./support/asNobody.ts"
import { tempFolder } from "./support/fixtures.ts"

const script = fileURLToPath(new URL("./support/normalUser.ts", import.meta.url))

interface Options {
  readonly prepare?: (folder: string) => void
}

/** Runs a scenario as a user without rights. */
const asNormalUser = Effect.fnUntraced(function* (scenario: string, options: Options = {}) {
  const folder = yield* tempFolder
  options.prepare?.(folder)
  if (isRoot) Fs.chownSync(folder, nobody, nobody)
  const { code, stderr, stdout } = yield* asNobody(script, [scenario, folder], folder)
  assert.strictEqual(code, 0, stderr)
  return JSON.parse(stdout) as unknown
})

describe.skipIf(!isReadable(script))("as a normal user", () => {
  it.live("[F-07] [Q-04] deletes folders of mode 0000, 0500 and 0555", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* asNormalUser("modes"), {
        complete: true,
        removedEntries: 14,
        failures: [],
        left: []
      })
    }).pipe(Effect.scoped)
  )

  it.live("[F-01] [Q-04] changes no mode through a link", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* asNormalUser("links"), {
        complete: true,
        removedEntries: 4,
        failures: [],
        mode: 0o500,
        left: ["precious"]
      })
    }).pipe(Effect.scoped)
  )

  it.live("[F-07] [Q-04] deletes read-only folders deeper than those that it keeps open", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* asNormalUser("deep"), {
        complete: true,
        removedEntries: 202,
        failures: []
      })
    }).pipe(Effect.scoped)
  )

  it.live.skipIf(!isRoot)(
    "[F-07] [Q-04] keeps what belongs to others, with the reason, and deletes the rest",
    () =>
      Effect.gen(function* () {
        const result = yield* asNormalUser("foreign", {
          prepare: (folder) => {
            for (const part of ["/tree", "/tree/mine", "/tree/theirs"]) Fs.mkdirSync(`${folder}${part}`)
            for (const file of ["/tree/mine/1", "/tree/theirs/2"]) Fs.writeFileSync(`${folder}${file}`, "")
            for (const part of ["/tree", "/tree/mine", "/tree/mine/1"]) {
              Fs.chownSync(`${folder}${part}`, nobody, nobody)
            }
          }
        })
        assert.deepStrictEqual(result, {
          complete: false,
          removedEntries: 2,
          failures: ["/tree/theirs/2 EACCES"]
        })
      }).pipe(Effect.scoped)
  )

  it.live.skipIf(!isRoot)(
    "[F-07] [Q-04] keeps an unreadable folder where descriptors cannot be addressed",
    () =>
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* asNormalUser("plain"), {
          complete: false,
          removedEntries: 5,
          failures: ["/tree/closed EACCES", "/tree/listed/closed EACCES"]
        })
      }).pipe(Effect.scoped)
  )

  it.live("[S-18] [Q-04] reports what it may not read", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* asNormalUser("unreadable"), ["EACCES", "EACCES", 1])
      assert.deepStrictEqual(yield* asNormalUser("entries"), [
        "Obstacle EACCES",
        "SkillEnd",
        "Obstacle EACCES",
        "SkillEnd",
        "Entry",
        "SkillEnd"
      ])
      assert.strictEqual(yield* asNormalUser("posix"), "EACCES")
    }).pipe(Effect.scoped)
  )

  it.live("[S-04] [F-04] [Q-04] stages exact modes under any umask and moves a read-only copy", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* asNormalUser("copy"), {
        published: "published",
        modes: ["755", "755", "444", "555"],
        complete: true
      })
    }).pipe(Effect.scoped)
  )
})
