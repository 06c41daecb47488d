import { assert, describe, it } from "@effect/vitest"
import { VersionName } from "@reclaim/core"
import { Cause, Effect, Exit, Fiber, Option, Stream } from "effect"
import * as Fs from "node:fs"
import { layerFaulty } from "../src/testing.ts"
import * as Trees from "../src/Trees.ts"
import { afterRename, type ExpectedTop, type MoveBack, sameTop, VersionStore } from "../src/VersionStore.ts"
import {
  atPoint,
  copy,
  copyPath,
  encode,
  hold,
  manifestOf,
  skillId,
  snapshot,
  storeLayer,
  tempFolder,
  token,
  versionId,
  write
} from "./support/fixtures.ts"

const test = <A, E>(
  body: (instance: string, skill: string) => Effect.Effect<A, E, VersionStore | Trees.Trees>,
  faults?: Parameters<typeof layerFaulty>[0]
) =>
  Effect.gen(function* () {
    const instance = yield* tempFolder
    return yield* Effect.provide(
      body(instance, copyPath(instance).replace(/\/[^/]*$/, "")),
      storeLayer(instance, faults === undefined ? undefined : layerFaulty(faults))
    )
  }).pipe(Effect.scoped)

const made = (instance: string) => {
  write(copyPath(instance), { "SKILL.md": "s", "bin/run": "r" })
  return copyPath(instance)
}

const topOf = Effect.flatMap(VersionStore, (store) => store.inspect(copy())).pipe(
  Effect.map(Option.getOrThrow)
)

const files = {
  "SKILL.md": "skill",
  "scripts/run.sh": "#!/bin/sh\n",
  "scripts/deep/er/data.bin": "\u0000\u0001"
}
const { contents, manifest } = manifestOf(files, ["scripts/run.sh"])

const isStaging = (name: string) => VersionName.parse(name)._tag === "Staging"

describe("VersionStore trash", () => {
  const trash = `.trash-${token()}`
  const other = skillId(2)

  it.effect("[F-07] deletes trash, and what is gone is complete", () =>
    test(
      Effect.fnUntraced(function* (_instance, skill) {
        write(`${skill}/${trash}`, { "a/file": "x" })
        const store = yield* VersionStore
        const removal = yield* store.removeTrash(`${skill}/${trash}`)
        assert.deepStrictEqual([removal.complete, removal.removedEntries], [true, 3])
        // As it is listed.
        write(`${skill}/${trash}`, { file: "x" })
        assert.strictEqual((yield* store.removeTrash(encode(`${skill}/${trash}`))).removedEntries, 2)
        const gone = yield* store.removeTrash(`${skill}/${trash}`)
        assert.deepStrictEqual([gone.complete, gone.removedEntries], [true, 0])
        Fs.rmdirSync(skill)
        assert.isTrue((yield* store.removeTrash(`${skill}/${trash}`)).complete)
      })
    )
  )

  it.effect("[F-01] deletes no trash through a folder that became a link", () =>
    test(
      Effect.fnUntraced(function* (instance, skill) {
        const versions = skill.replace(/\/[^/]*$/, "")
        const company = versions.replace(/\/[^/]*$/, "")
        for (const folder of [skill, versions, company]) {
          write(`${skill}/${trash}`, { precious: "p" })
          Fs.renameSync(folder, `${instance}/outside`)
          const before = snapshot(`${instance}/outside`)
          Fs.symlinkSync(`${instance}/outside`, folder)
          const error = yield* Effect.flip((yield* VersionStore).removeTrash(`${skill}/${trash}`))
          assert.deepStrictEqual([error.code, error.path], ["ELOOP", folder])
          assert.deepStrictEqual(snapshot(`${instance}/outside`), before)
          Fs.unlinkSync(folder)
          Fs.rmSync(`${instance}/outside`, { recursive: true })
        }
        Fs.mkdirSync(skill, { recursive: true })
        write(`${instance}/outside`, { precious: "p" })
        Fs.symlinkSync(`${instance}/outside`, `${skill}/${trash}`)
        const error = yield* Effect.flip((yield* VersionStore).removeTrash(`${skill}/${trash}`))
        assert.strictEqual(error.code, "ELOOP")
        assert.deepStrictEqual(Fs.readdirSync(`${instance}/outside`), ["precious"])
      })
    )
  )

  it.effect("[F-01] deletes no other trash when a link takes the place of a folder meanwhile", () => {
    // Before the look at the trash, and after the deletion of its first entry.
    let swap: () => void = () => undefined
    const faults = [
      {
        method: "lstat",
        matches: (path: string) => path.endsWith(trash),
        times: 1,
        before: Effect.sync(() => swap())
      }
    ] as const
    const attempt = (point: string | undefined) =>
      test(
        Effect.fnUntraced(function* (instance, skill) {
          write(`${skill}/${trash}`, { one: "1", two: "2" })
          write(`${instance}/outside/${trash}`, { precious: "p" })
          const replace = () => {
            Fs.renameSync(skill, `${skill}.moved`)
            Fs.symlinkSync(`${instance}/outside`, skill)
          }
          swap = point === undefined ? replace : () => undefined
          const error = yield* Effect.flip((yield* VersionStore).removeTrash(`${skill}/${trash}`)).pipe(
            point === undefined ? (self) => self : atPoint(point, Effect.sync(replace))
          )
          assert.deepStrictEqual(Fs.readdirSync(`${instance}/outside/${trash}`), ["precious"])
          return error.code
        }),
        faults
      )
    return Effect.gen(function* () {
      assert.strictEqual(yield* attempt(undefined), "ELOOP")
      assert.strictEqual(yield* attempt("trash.betweenEntries"), "ECHANGED")
    })
  })

  it.effect("[F-07] deletes only trash of the store", () =>
    test(
      Effect.fnUntraced(function* (instance, skill) {
        const path = made(instance)
        const versions = skill.replace(/\/[^/]*$/, "")
        const names = [
          path,
          skill,
          `${skill}/.evicting-${versionId()}-${token()}`,
          `${skill}/../${other}/${trash}`,
          `${skill}/deeper/${trash}`,
          `${versions}/${trash}`,
          `${versions}/no-id/${trash}`,
          `${versions.replace("__versions__", "__elsewhere__")}/${skillId()}/${trash}`,
          `${instance}/${trash}`,
          Buffer.concat([encode(`${skill}/${trash}`), Buffer.from([0xff])])
        ]
        for (const name of names) {
          if (typeof name === "string" && name !== path && name !== skill) write(name, { precious: "p" })
        }
        const before = snapshot(instance)
        const store = yield* VersionStore
        for (const name of names) {
          assert.strictEqual((yield* Effect.flip(store.removeTrash(name))).code, "EINVAL", String(name))
        }
        assert.deepStrictEqual(snapshot(instance), before)
      })
    )
  )
})

describe("VersionStore evictions", () => {
  it.effect("[F-09] moves a copy aside and leaves it there once confirmed", () =>
    test(
      Effect.fnUntraced(function* (instance, skill) {
        const path = made(instance)
        const store = yield* VersionStore
        const top = yield* topOf
        const moved = yield* Effect.scoped(
          Effect.gen(function* () {
            const evicting = yield* store.evict(copy(), top)
            assert.isFalse(Fs.existsSync(path))
            assert.strictEqual(Fs.readFileSync(`${evicting.path}/SKILL.md`, "utf8"), "s")
            yield* evicting.confirm
            return evicting
          })
        )
        assert.deepStrictEqual(Fs.readdirSync(skill), [VersionName.format(moved.name)])
        assert.match(Fs.readdirSync(skill)[0]!, new RegExp(`^\\.evicting-${versionId()}-[0-9a-f-]{36}$`))
        assert.isTrue(Option.isNone(yield* store.inspect(copy())))
      })
    )
  )

  it.effect("[F-09] undoes the move when the scope fails, dies, or ends unconfirmed", () =>
    test(
      Effect.fnUntraced(function* (instance, skill) {
        const path = made(instance)
        const store = yield* VersionStore
        const before = snapshot(skill)
        for (const end of [Effect.fail("failed"), Effect.die("died"), Effect.void]) {
          const top = yield* topOf
          const exit = yield* Effect.exit(Effect.scoped(Effect.andThen(store.evict(copy(), top), end)))
          assert.strictEqual(Exit.isSuccess(exit), end === Effect.void)
          assert.deepStrictEqual(snapshot(skill), before)
        }
        // A crash handler that dies at a point of the move itself.
        for (const point of ["evict.afterRename", "evict.beforeRename"]) {
          const top = yield* topOf
          const exit = yield* Effect.exit(
            Effect.scoped(store.evict(copy(), top)).pipe(atPoint(point, Effect.die("crash")))
          )
          assert.isTrue(Exit.isFailure(exit))
          assert.deepStrictEqual(snapshot(skill), before)
        }
        assert.isTrue(Fs.existsSync(path))
      })
    )
  )

  it.effect("[F-09] [S-23] undoes the move when it is interrupted in its critical section", () =>
    test(
      Effect.fnUntraced(function* (instance, skill) {
        made(instance)
        const store = yield* VersionStore
        const before = snapshot(skill)
        for (const point of ["evict.beforeRename", "evict.afterRename", "evict.beforeUndo"]) {
          const top = yield* topOf
          const { held, interruptHeld } = yield* hold
          const fiber = yield* Effect.forkChild(
            Effect.scoped(
              Effect.andThen(
                store.evict(copy(), top),
                point === "evict.beforeUndo" ? Effect.void : Effect.never
              )
            ).pipe(held(point))
          )
          yield* interruptHeld(fiber)
          const exit = yield* Fiber.await(fiber)
          assert.isTrue(Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause))
          assert.deepStrictEqual(snapshot(skill), before, point)
        }
      })
    )
  )

  it.effect("[F-09] overwrites nothing when the name is taken again", () =>
    test(
      Effect.fnUntraced(function* (instance, skill) {
        const path = made(instance)
        const store = yield* VersionStore
        const takers: Record<string, () => void> = {
          copy: () => write(path, { other: "new" }),
          empty: () => Fs.mkdirSync(path),
          file: () => Fs.writeFileSync(path, "file"),
          link: () => Fs.symlinkSync("/nowhere", path)
        }
        for (const [what, take] of Object.entries(takers)) {
          const top = yield* topOf
          const evicting = yield* Effect.scoped(Effect.tap(store.evict(copy(), top), () => Effect.sync(take)))
          assert.strictEqual(Fs.readFileSync(`${evicting.path}/SKILL.md`, "utf8"), "s", what)
          assert.strictEqual(yield* store.moveBack(evicting), "taken", what)
          assert.strictEqual(Fs.readdirSync(skill).length, 2, what)
          if (what === "copy") assert.deepStrictEqual(Fs.readdirSync(path), ["other"])
          Fs.rmSync(path, { recursive: true })
          assert.strictEqual(yield* store.moveBack(evicting), "moved", what)
          assert.strictEqual(yield* store.moveBack(evicting), "gone", what)
        }
      })
    )
  )

  it.effect("[F-09] overwrites nothing that is published between the look and the rename", () =>
    Effect.gen(function* () {
      const instance = yield* tempFolder
      const path = made(instance)
      let undoing = false
      // The rename that undoes starts from the leaving name.
      const publishFirst = {
        method: "rename",
        matches: (from: string) => undoing && from.includes(".evicting-"),
        before: Effect.sync(() => write(path, { other: "new" }))
      } as const
      yield* Effect.gen(function* () {
        const store = yield* VersionStore
        const top = yield* topOf
        const outcome: MoveBack = yield* Effect.scoped(
          Effect.flatMap(store.evict(copy(), top), (evicting) =>
            Effect.suspend(() => {
              undoing = true
              return evicting.undo
            })
          )
        )
        assert.strictEqual(outcome, "taken")
        assert.deepStrictEqual(Fs.readdirSync(path), ["other"])
      }).pipe(Effect.provide(storeLayer(instance, layerFaulty([publishFirst]))))
    }).pipe(Effect.scoped)
  )

  it.effect("[F-02] refuses a copy whose top folder is not what was proven", () =>
    test(
      Effect.fnUntraced(function* (instance, skill) {
        const path = made(instance)
        const store = yield* VersionStore
        const changes: ReadonlyArray<readonly [string, () => void]> = [
          ["ctimeNs", () => Fs.chmodSync(path, 0o755)],
          ["mode", () => Fs.chmodSync(path, 0o700)],
          [
            "mtimeNs",
            () => {
              const { atime, mtime } = Fs.statSync(path)
              Fs.utimesSync(path, atime, new Date(mtime.getTime() + 1000))
            }
          ],
          [
            "ino",
            () => {
              Fs.cpSync(path, `${instance}/swap`, { recursive: true, preserveTimestamps: true })
              Fs.renameSync(path, `${instance}/old`)
              Fs.renameSync(`${instance}/swap`, path)
            }
          ]
        ]
        for (const [field, change] of changes) {
          const top = yield* topOf
          change()
          assert.isFalse(sameTop(top, yield* topOf), field)
          const error = yield* Effect.flip(Effect.scoped(store.evict(copy(), top)))
          assert.strictEqual(error._tag, "Changed")
          assert.deepStrictEqual(Fs.readdirSync(skill), [versionId()])
        }
        const top = yield* topOf
        Fs.rmSync(path, { recursive: true })
        assert.strictEqual(
          (yield* Effect.flip(Effect.scoped(store.evict(copy(), top)))).message,
          `${path}: it is gone`
        )
      })
    )
  )

  it.effect("[F-02] undoes the move when another folder was renamed than the one that was compared", () =>
    Effect.gen(function* () {
      const instance = yield* tempFolder
      const path = made(instance)
      // Between the last look and the rename itself.
      const swap = {
        method: "rename",
        times: 1,
        before: Effect.sync(() => {
          Fs.renameSync(path, `${instance}/old`)
          write(path, { precious: "p" })
        })
      } as const
      yield* Effect.gen(function* () {
        const store = yield* VersionStore
        const top = yield* topOf
        const error = yield* store.evict(copy(), top).pipe(
          Effect.flatMap((evicting) => {
            // Whoever moved it has it in hand by now, and can undo it.
            assert.isFalse(Fs.existsSync(path))
            return evicting.recheck
          }),
          Effect.scoped,
          Effect.flip
        )
        assert.strictEqual(error._tag, "Changed")
        assert.deepStrictEqual(Fs.readdirSync(path), ["precious"])
      }).pipe(Effect.provide(storeLayer(instance, layerFaulty([swap]))))
    }).pipe(Effect.scoped)
  )

  it.effect("[F-02] looks at the folder again after the rename, whose change time is the rename's", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        made(instance)
        const store = yield* VersionStore
        const top = yield* topOf
        const evicting = yield* store.evict(copy(), top)
        yield* evicting.recheck
        Fs.chmodSync(evicting.path, 0o700)
        assert.strictEqual((yield* Effect.flip(evicting.recheck))._tag, "Changed")
        Fs.rmSync(evicting.path, { recursive: true })
        assert.include((yield* Effect.flip(evicting.recheck)).message, "it is gone")
      }, Effect.scoped)
    )
  )

  it.effect("[F-09] tries to move back again at the end when that failed", () =>
    test(
      Effect.fnUntraced(function* (instance, skill) {
        made(instance)
        const before = snapshot(skill)
        const store = yield* VersionStore
        const top = yield* topOf
        yield* Effect.scoped(
          Effect.gen(function* () {
            const evicting = yield* store.evict(copy(), top)
            const error = yield* Effect.flip(evicting.undo)
            assert.strictEqual(error.code, "EIO")
            assert.deepStrictEqual(Fs.readdirSync(skill), [VersionName.format(evicting.name)])
          })
        )
        assert.deepStrictEqual(snapshot(skill), before)
      }),
      [{ method: "rename", code: "EIO", times: 1, matches: (from) => from.includes(".evicting-") }]
    )
  )

  it.effect("[F-02] renames a leftover only while it is what was looked at", () =>
    test(
      Effect.fnUntraced(function* (_instance, skill) {
        const store = yield* VersionStore
        const evicting = {
          ...copy(),
          name: { _tag: "Evicting", versionId: versionId(), token: token() }
        } as const
        const path = `${skill}/${VersionName.format(evicting.name)}`
        const moves: ReadonlyArray<
          (
            expected: ExpectedTop
          ) => Effect.Effect<unknown, { readonly _tag: string; readonly message: string }>
        > = [
          (expected) => store.toTrash(evicting, expected),
          (expected) => store.setAside(evicting, expected),
          (expected) => store.moveBack(evicting, expected)
        ]
        for (const move of moves) {
          write(path, { a: "1" })
          const listed = yield* topAt(path)
          Fs.chmodSync(path, 0o750)
          const before = snapshot(skill)
          const error = yield* Effect.flip(move(listed))
          assert.deepStrictEqual(
            [error._tag, error.message],
            ["Changed", `${path}: its folder has another mode`]
          )
          assert.deepStrictEqual(snapshot(skill), before)
          // Another change time alone is what a rename leaves.
          const proven = yield* topAt(path)
          Fs.chmodSync(path, 0o750)
          assert.strictEqual((yield* Effect.flip(move(proven)))._tag, "Changed")
          yield* move(afterRename(proven))
          assert.isFalse(Fs.existsSync(path))
        }
        assert.deepStrictEqual(Fs.readdirSync(skill).length, 3)
      })
    )
  )

  it.effect(
    "[F-04] [S-28] moves with renames alone: a full disk does not matter, another file system does",
    () =>
      Effect.gen(function* () {
        for (const [code, outcome] of [
          [undefined, "trash"],
          ["EXDEV", "EXDEV"]
        ] as const) {
          yield* test(
            Effect.fnUntraced(function* (instance, skill) {
              const path = made(instance)
              const store = yield* VersionStore
              const top = yield* topOf
              const result = yield* Effect.scoped(
                Effect.gen(function* () {
                  const evicting = yield* store.evict(copy(), top)
                  yield* evicting.confirm
                  const trash = Option.getOrThrow(yield* store.toTrash(evicting))
                  assert.isTrue((yield* (yield* Trees.Trees).remove(trash.path)).complete)
                  return "trash"
                })
              ).pipe(
                Effect.catchTag("FileError", (error) => Effect.succeed(error.code)),
                Effect.orDie
              )
              assert.strictEqual(result, outcome)
              assert.deepStrictEqual(Fs.readdirSync(skill), code === undefined ? [] : [versionId()])
              assert.strictEqual(Fs.existsSync(`${path}/SKILL.md`), code !== undefined)
            }),
            [
              { method: "writeNew", code: "ENOSPC" },
              { method: "makeDirectory", code: "ENOSPC" },
              { method: "link", code: "ENOSPC" },
              ...(code === undefined ? [] : [{ method: "rename" as const, code }])
            ]
          )
        }
      })
  )

  it.effect("[S-22] gives each leftover its next name, and is told when somebody else did", () =>
    test(
      Effect.fnUntraced(function* (instance, skill) {
        const path = made(instance)
        const store = yield* VersionStore
        const aside = Option.getOrThrow(yield* store.setAsideCopy(copy()))
        assert.deepStrictEqual(Fs.readdirSync(skill), [VersionName.format(aside.name)])
        assert.strictEqual(aside.name._tag, "Replaced")
        assert.isTrue(Option.isNone(yield* store.setAsideCopy(copy())))
        const trash = Option.getOrThrow(yield* store.toTrash(aside))
        assert.match(trash.path, /\/\.trash-[0-9a-f-]{36}$/)
        assert.isTrue(Option.isNone(yield* store.toTrash(aside)))

        const evicting = {
          ...copy(),
          name: { _tag: "Evicting", versionId: versionId(), token: token() }
        } as const
        write(`${skill}/${VersionName.format(evicting.name)}`, { a: "1" })
        const replaced = Option.getOrThrow(yield* store.setAside(evicting))
        assert.strictEqual(Fs.readFileSync(`${replaced.path}/a`, "utf8"), "1")
        assert.isTrue(Option.isNone(yield* store.setAside(evicting)))
        assert.strictEqual(yield* store.moveBack(evicting), "gone")
        assert.isFalse(Fs.existsSync(path))
      })
    )
  )

  it.effect("[F-01] moves nothing through or in place of a link, at any level", () =>
    Effect.gen(function* () {
      for (let level = 0; level < 4; level += 1) {
        yield* test(
          Effect.fnUntraced(function* (instance) {
            const parts = [copy().companyId, "__versions__", copy().skillId, copy().versionId]
            const evicting = {
              ...copy(),
              name: { _tag: "Evicting", versionId: versionId(), token: token() }
            } as const
            const outside = `${instance}/outside`
            write(`${outside}/${parts.slice(level + 1).join("/")}`, { "SKILL.md": "precious" })
            const skillOutside = `${outside}/${parts.slice(level + 1, 3).join("/")}`
            if (level < 3) write(`${skillOutside}/${VersionName.format(evicting.name)}`, { file: "precious" })
            const planted = `${instance}/skills/${parts.slice(0, level + 1).join("/")}`
            Fs.mkdirSync(planted.replace(/\/[^/]*$/, ""), { recursive: true })
            Fs.symlinkSync(outside, planted)
            const before = snapshot(instance)

            const store = yield* VersionStore
            const top = yield* topAt(copyPath(instance))
            const { contents, manifest } = manifestOf({ a: "1" })
            const stageAndPublish = Effect.flatMap(
              store.stage(copy(), manifest, Stream.fromIterable(contents)),
              store.publish
            ).pipe(Effect.scoped)
            const attempts: ReadonlyArray<Effect.Effect<unknown, { readonly _tag: string }>> = [
              Effect.scoped(store.evict(copy(), top)),
              store.setAsideCopy(copy()),
              stageAndPublish,
              ...(level < 3
                ? [store.moveBack(evicting), store.toTrash(evicting), store.setAside(evicting)]
                : [])
            ]
            for (const attempt of attempts) yield* Effect.flip(attempt)
            if (level < 3) yield* Effect.flip(store.removeEmptySkill(copy().companyId, copy().skillId))
            assert.deepStrictEqual(
              snapshot(instance).filter(
                (line) =>
                  !line.startsWith(`${instance}/skills/${copy().companyId}/__versions__/${skillId()} `)
              ),
              before.filter(
                (line) =>
                  !line.startsWith(`${instance}/skills/${copy().companyId}/__versions__/${skillId()} `)
              ),
              String(level)
            )
          })
        )
      }
    })
  )

  it.effect("[S-22] removes a skill's folders only when they are empty", () =>
    test(
      Effect.fnUntraced(function* (instance, skill) {
        made(instance)
        const store = yield* VersionStore
        const { companyId, skillId } = copy()
        const access = `${instance}/skills/${companyId}/__version_access__/${skillId}`
        Fs.mkdirSync(access, { recursive: true })
        assert.isFalse(yield* store.removeEmptySkill(companyId, skillId))
        assert.isTrue(Fs.existsSync(skill))
        assert.isFalse(Fs.existsSync(access))
        Fs.rmSync(copyPath(instance), { recursive: true })
        assert.isTrue(yield* store.removeEmptySkill(companyId, skillId))
        assert.isFalse(Fs.existsSync(skill))
        assert.isFalse(yield* store.removeEmptySkill(companyId, skillId))
      })
    )
  )

  it.effect("[F-03] tells the space of the volume, also before there are skills", () =>
    test(
      Effect.fnUntraced(function* () {
        const { available, free, total } = yield* (yield* VersionStore).volume
        assert.isTrue(total > 0n && free <= total && available <= free)
      })
    )
  )
})

const topAt = (path: string) =>
  Effect.sync(() => {
    const stat = Fs.statSync(path, { bigint: true })
    return {
      kind: "directory" as const,
      dev: stat.dev,
      ino: stat.ino,
      nlink: stat.nlink,
      mode: Number(stat.mode),
      size: stat.size,
      blocks: stat.blocks,
      mtimeNs: stat.mtimeNs,
      ctimeNs: stat.ctimeNs,
      birthtimeNs: stat.birthtimeNs
    }
  })

describe("VersionStore restorations", () => {
  const stream = Stream.fromIterable(contents)

  it.effect("[F-04] leaves no staging folder when it fails right after it was made", () =>
    Effect.forEach(["EIO", "ENOENT"], (code) =>
      test(
        Effect.fnUntraced(function* (_instance, skill) {
          const store = yield* VersionStore
          const stage = Effect.scoped(store.stage(copy(), manifest, stream))
          const error = yield* Effect.flip(stage)
          assert.strictEqual(error._tag, code === "EIO" ? "FileError" : "StagingLost")
          assert.deepStrictEqual(Fs.readdirSync(skill), [])
          yield* stage
        }),
        [{ method: "lstat", code, times: 1, matches: (path) => path.includes("/.staging-") }]
      )
    )
  )

  it.effect("[S-02] [S-04] stages a copy whole and verified, then gives it its name", () =>
    test(
      Effect.fnUntraced(function* (instance, skill) {
        const store = yield* VersionStore
        yield* Effect.scoped(
          Effect.gen(function* () {
            const staged = yield* store.stage(copy(), manifest, stream)
            assert.isTrue(Fs.readdirSync(skill).every(isStaging))
            assert.isTrue(Option.isNone(yield* store.inspect(copy())))
            assert.strictEqual(yield* store.publish(staged), "published")
          })
        )
        assert.deepStrictEqual(Fs.readdirSync(skill), [versionId()])
        const path = copyPath(instance)
        for (const [file, content] of Object.entries(files)) {
          assert.strictEqual(Fs.readFileSync(`${path}/${file}`, "utf8"), content)
        }
        const modes = ["", "/SKILL.md", "/scripts", "/scripts/run.sh", "/scripts/deep/er"].map((of) =>
          (Fs.statSync(path + of).mode & 0o7777).toString(8)
        )
        assert.deepStrictEqual(modes, ["755", "444", "755", "555", "755"])
      })
    )
  )

  it.effect("[S-02] two publishers both succeed and one copy results", () =>
    test(
      Effect.fnUntraced(function* (_instance, skill) {
        const store = yield* VersionStore
        const outcomes = yield* Effect.forEach(
          Array.from({ length: 6 }),
          () => Effect.scoped(Effect.flatMap(store.stage(copy(), manifest, stream), store.publish)),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(outcomes.toSorted(), [
          "exists",
          "exists",
          "exists",
          "exists",
          "exists",
          "published"
        ])
        assert.deepStrictEqual(Fs.readdirSync(skill), [versionId()])
      })
    )
  )

  it.effect("[S-02] publishes onto an empty folder, never onto a file or a link", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        const store = yield* VersionStore
        const path = copyPath(instance)
        const attempt = Effect.scoped(Effect.flatMap(store.stage(copy(), manifest, stream), store.publish))
        Fs.mkdirSync(path, { recursive: true })
        assert.strictEqual(yield* attempt, "published")
        Fs.rmSync(path, { recursive: true })
        Fs.writeFileSync(path, "file")
        const file = yield* Effect.flip(attempt)
        assert.deepStrictEqual([file._tag, Fs.readFileSync(path, "utf8")], ["NameTaken", "file"])
        Fs.rmSync(path)
        Fs.mkdirSync(`${instance}/outside`)
        Fs.symlinkSync(`${instance}/outside`, path)
        const link = yield* Effect.flip(attempt)
        assert.deepStrictEqual([link._tag, Fs.readdirSync(`${instance}/outside`)], ["NameTaken", []])
      })
    )
  )

  it.effect("[S-02] writes nothing but what the manifest says", () =>
    test(
      Effect.fnUntraced(function* (_instance, skill) {
        const store = yield* VersionStore
        const [first, ...rest] = contents
        const altered = (bytes: string) => [{ ordinal: first!.ordinal, bytes: encode(bytes) }, ...rest]
        for (const [problem, wrong] of [
          ["content", altered("sk1ll")],
          ["size", altered("skill ")],
          ["missing", rest],
          ["extra", [...contents, { ordinal: 99, bytes: encode("") }]],
          ["extra", [...contents, first!]]
        ] as const) {
          const error = yield* Effect.flip(
            Effect.scoped(store.stage(copy(), manifest, Stream.fromIterable(wrong)))
          )
          assert.strictEqual(error._tag === "WrongContents" ? error.problem : error._tag, problem)
          assert.deepStrictEqual(Fs.readdirSync(skill), [])
        }
      })
    )
  )

  it.effect("[S-02] leaves nothing when the contents fail, the disk fills up, or it is interrupted", () =>
    Effect.gen(function* () {
      yield* test(
        Effect.fnUntraced(function* (_instance, skill) {
          const store = yield* VersionStore
          const broken = Stream.concat(Stream.take(stream, 2), Stream.fail("lost connection"))
          assert.strictEqual(
            yield* Effect.flip(Effect.scoped(store.stage(copy(), manifest, broken))),
            "lost connection"
          )
          assert.deepStrictEqual(Fs.readdirSync(skill), [])
          for (const point of ["restore.afterFolder", "restore.afterFile", "restore.afterStaging"]) {
            const { held, interruptHeld } = yield* hold
            const fiber = yield* Effect.forkChild(
              Effect.scoped(store.stage(copy(), manifest, stream)).pipe(held(point))
            )
            yield* interruptHeld(fiber)
            assert.deepStrictEqual(Fs.readdirSync(skill), [], point)
          }
          // Interrupted between staging and publishing.
          const { held, interruptHeld } = yield* hold
          const fiber = yield* Effect.forkChild(
            Effect.scoped(Effect.flatMap(store.stage(copy(), manifest, stream), store.publish)).pipe(
              held("restore.beforePublish")
            )
          )
          yield* interruptHeld(fiber)
          assert.deepStrictEqual(Fs.readdirSync(skill), [versionId()])
        })
      )
      yield* test(
        Effect.fnUntraced(function* (_instance, skill) {
          const error = yield* Effect.flip(
            Effect.scoped((yield* VersionStore).stage(copy(), manifest, stream))
          )
          assert.strictEqual(error._tag === "FileError" ? error.code : error._tag, "ENOSPC")
          assert.deepStrictEqual(Fs.readdirSync(skill), [])
        }),
        [{ method: "writeNew", code: "ENOSPC", matches: (path) => path.endsWith("data.bin") }]
      )
    })
  )

  it.effect("[S-02] notices that its staging was claimed, while writing, after it, and at publishing", () =>
    test(
      Effect.fnUntraced(function* (_instance, skill) {
        const store = yield* VersionStore
        const claim = Effect.sync(() => {
          for (const name of Fs.readdirSync(skill).filter(isStaging)) {
            Fs.renameSync(`${skill}/${name}`, `${skill}/.trash-${token(Fs.readdirSync(skill).length)}`)
          }
        })
        for (const point of [
          "restore.afterFolder",
          "restore.afterFile",
          "restore.afterStaging",
          "restore.beforePublish"
        ]) {
          const error = yield* Effect.scoped(
            Effect.flatMap(store.stage(copy(), manifest, stream), store.publish)
          ).pipe(atPoint(point, claim), Effect.flip)
          assert.strictEqual(error._tag, "StagingLost", point)
        }
        assert.isTrue(Fs.readdirSync(skill).every((name) => name.startsWith(".trash-")))
      })
    )
  )

  it.effect("[S-02] notices before its copy is whole that its staging was claimed after the last file", () =>
    test(
      Effect.fnUntraced(function* (_instance, skill) {
        const store = yield* VersionStore
        const claim = Effect.sync(() => {
          for (const name of Fs.readdirSync(skill))
            Fs.renameSync(`${skill}/${name}`, `${skill}/.trash-${token()}`)
        })
        const single = manifestOf({ "SKILL.md": "skill" })
        const error = yield* Effect.scoped(
          store.stage(copy(), single.manifest, Stream.fromIterable(single.contents))
        ).pipe(atPoint("restore.afterFile", claim), Effect.flip)
        assert.strictEqual(error._tag, "StagingLost")
      })
    )
  )

  it.effect("[S-22] stages though the empty skill folder is removed just then", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        const store = yield* VersionStore
        const staged = Effect.flatMap(store.stage(copy(), manifest, stream), store.publish)
        assert.strictEqual(yield* Effect.scoped(staged), "published")
        assert.isTrue(Fs.existsSync(copyPath(instance)))
      }),
      [{ method: "makeDirectory", code: "ENOENT", times: 2, matches: (path) => path.includes(".staging-") }]
    )
  )
})
