import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, DateTime, Effect, Exit, Option, Result, Schema, Stream } from "effect"
import * as Fs from "node:fs"
import { AccessRecords } from "../src/AccessRecords.ts"
import { BackupStore } from "../src/BackupStore.ts"
import { layer, Trees } from "../src/Trees.ts"
import { VersionStore } from "../src/VersionStore.ts"
import { Ids } from "@reclaim/core"
import { backupLayer, backupsOf, scopeFolder } from "./support/backups.ts"
import {
  companyId,
  copy,
  skillId,
  snapshot,
  storeLayer,
  tempFolder,
  versionId,
  write
} from "./support/fixtures.ts"
import * as Hostile from "./support/hostile.ts"

/** Checks a property, each time with another number for what it makes. */
const holds = Effect.fnUntraced(function* <A, E, R>(
  input: Arbitrary.Arbitrary<A>,
  property: (value: A, count: number) => Effect.Effect<unknown, E, R>,
  runs: number
) {
  let count = 0
  const result = yield* Arbitrary.checkEffect(
    input,
    (value) => Effect.as(property(value, (count += 1)), true),
    { runs }
  )
  const failure = Arbitrary.formatCheckFailure(result)
  if (failure !== undefined) assert.fail(failure)
})

/** A folder for each run, with the folder outside that its links lead to. */
const inFolders = Effect.gen(function* () {
  const parent = yield* tempFolder
  const out = yield* Hostile.outside(`${parent}/outside`)
  return {
    out,
    folder: (count: number) => {
      Fs.mkdirSync(`${parent}/${count}/tree`, { recursive: true })
      return `${parent}/${count}`
    }
  }
})

/** It may fail, but only as it says. */
const expectOrderly = (exit: Exit.Exit<unknown, unknown>) =>
  assert.isFalse(Exit.hasDies(exit) || Exit.hasInterrupts(exit), String(exit))

describe("a hostile folder", () => {
  it.live(
    "[F-01] [F-07] [S-18] is read without a change and deleted without touching what it leads to",
    () =>
      Effect.gen(function* () {
        const { folder, out } = yield* inFolders
        const trees = yield* Trees
        // A FIFO and a socket get more names and lose them again, which only their change times tell.
        const before = snapshot(out)
        yield* holds(
          Hostile.nodes,
          Effect.fnUntraced(function* (nodes, count) {
            const at = folder(count)
            Hostile.make(Buffer.from(`${at}/tree`), nodes, out)
            const made = snapshot(`${at}/tree`)
            expectOrderly(
              yield* Effect.exit(trees.scan(`${at}/tree`, { digests: true, maxDigestBytes: 1024 }))
            )
            expectOrderly(yield* Effect.exit(trees.scan(`${at}/tree`, { digests: false })))
            expectOrderly(yield* Effect.exit(trees.usage(`${at}/tree`)))
            assert.deepStrictEqual(snapshot(`${at}/tree`), made)
            const removal = yield* trees.remove(`${at}/tree`)
            assert.strictEqual(removal.complete, !Fs.existsSync(`${at}/tree`))
            assert.deepStrictEqual(removal.failures, [])
            assert.deepStrictEqual(snapshot(out), before)
          }),
          60
        )
      }).pipe(Effect.scoped, Effect.provide(layer)),
    120_000
  )

  it.live(
    "[B-02] [F-01] is copied whole or not at all, and stays as it was",
    () =>
      Effect.gen(function* () {
        const { folder, out } = yield* inFolders
        const trees = yield* Trees
        const before = snapshot(out)
        const small = Arbitrary.map(Hostile.nodes, (nodes) =>
          nodes.filter(({ leaf }) => leaf !== "sparse file of a terabyte")
        )
        const hasLarge = (nodes: ReadonlyArray<Hostile.Node>): boolean =>
          nodes.some(({ children, leaf }) => leaf === "sparse file of a terabyte" || hasLarge(children ?? []))
        yield* holds(
          Arbitrary.filter(small, (nodes) => !hasLarge(nodes)),
          Effect.fnUntraced(function* (nodes, count) {
            const at = folder(count)
            Hostile.make(Buffer.from(`${at}/tree`), nodes, out)
            const made = snapshot(`${at}/tree`)
            const exit = yield* Effect.exit(trees.copy(`${at}/tree`, `${at}/copy`, { live: true }))
            expectOrderly(exit)
            if (Exit.isSuccess(exit)) {
              assert.deepStrictEqual(yield* trees.digest(`${at}/copy`), exit.value)
            }
            assert.deepStrictEqual(snapshot(`${at}/tree`), made)
            assert.deepStrictEqual(snapshot(out), before)
          }),
          40
        )
      }).pipe(Effect.scoped, Effect.provide(layer)),
    120_000
  )

  it.live(
    "[S-18] [S-20] among the copies of a skill is told entry by entry, and no two entries are one",
    () =>
      Effect.gen(function* () {
        const at = yield* tempFolder
        const out = yield* Hostile.outside(`${at}/outside`)
        const property = Effect.fnUntraced(function* (nodes: ReadonlyArray<Hostile.Node>, count: number) {
          const company = companyId(count)
          const folder = `${at}/skills/${company}/__versions__/${skillId()}`
          Fs.mkdirSync(folder, { recursive: true })
          const names = Hostile.make(Buffer.from(folder), nodes, out)
          const store = yield* VersionStore
          const entries = yield* Stream.runCollect(store.entries({ company }))
          const own = entries.filter(({ _tag }) => _tag !== "SkillEnd")
          assert.strictEqual(own.length, names.length)
          assert.strictEqual(new Set(own.map(({ position }) => position)).size, names.length)
          for (const entry of own) {
            // The one name among them that is a version's can be a folder.
            if (entry._tag === "Entry") assert.include(entry.shownPath, versionId(9))
            else assert.strictEqual(entry._tag, "Obstacle")
          }
        })
        yield* Effect.provide(holds(Hostile.nodes, property, 60), storeLayer(at))
      }).pipe(Effect.scoped),
    120_000
  )

  it.live("[F-07] [F-08] of two thousand levels is refused by a look and deleted whole", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const trees = yield* Trees
      Hostile.nest(`${folder}/tree`, 2000)
      const refused = yield* Effect.flip(trees.scan(`${folder}/tree`, { digests: true }))
      assert.strictEqual(refused.code, "ETOODEEP")
      const { complete, removedEntries } = yield* trees.remove(`${folder}/tree`)
      assert.deepStrictEqual({ complete, removedEntries }, { complete: true, removedEntries: 2001 })
    }).pipe(Effect.scoped, Effect.provide(layer))
  )
})

const text = Arbitrary.flatMap(
  Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 3 }))),
  (kind) =>
    kind === 0
      ? Arbitrary.schema(Schema.String)
      : kind === 1
        ? Arbitrary.map(Arbitrary.schema(Schema.Json), (json) => JSON.stringify(json))
        : Arbitrary.map(Arbitrary.schema(Schema.Json), (json) =>
            JSON.stringify({ schema: "reclaim.access.v1", lastUsedAt: json })
          )
)

/** Bytes, text or not, under a name where a file of ours or of the host's is looked for. */
const bytes: Arbitrary.Arbitrary<Buffer> = Arbitrary.flatMap(Arbitrary.schema(Schema.Boolean), (raw) =>
  raw
    ? Arbitrary.map(
        Arbitrary.array(Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 255 })))),
        (values) => Buffer.from(values)
      )
    : Arbitrary.map(text, (written) => Buffer.from(written))
)

describe("hostile contents", () => {
  it.live(
    "[S-16] [D-07] of an access record are as good as none, and are replaced by a use",
    () =>
      Effect.gen(function* () {
        const at = yield* tempFolder
        const now = DateTime.makeUnsafe("2030-01-01T00:00:00Z")
        const property = Effect.fnUntraced(function* (content: Buffer, count: number) {
          const its = copy(1, 1, count)
          const folder = `${at}/skills/${its.companyId}/__version_access__/${its.skillId}`
          Fs.mkdirSync(folder, { recursive: true })
          Fs.writeFileSync(`${folder}/${its.versionId}.json`, content)
          const records = yield* AccessRecords
          assert.deepStrictEqual(yield* records.read(its), { _tag: "Absent" })
          yield* records.touch(its, now)
          assert.deepStrictEqual(yield* records.read(its), { _tag: "Recorded", at: now })
        })
        yield* Effect.provide(holds(bytes, property, 100), storeLayer(at))
      }).pipe(Effect.scoped),
    120_000
  )

  it.live(
    "[B-06] [B-09] of a session's files are told, and nothing of it is restored, moved or changed",
    () =>
      Effect.gen(function* () {
        const at = yield* tempFolder
        const property = Effect.fnUntraced(function* (
          { manifest, state }: { readonly manifest: Buffer; readonly state: Buffer },
          count: number
        ) {
          const its = Ids.ScopeId.make(count.toString(16).padStart(64, "0"))
          write(`${backupsOf(at, its)}/current`, { "manifest.json": manifest, "runner/turn.log": "a turn" })
          write(`${scopeFolder(at, its)}/control-plane`, { "control-plane-state.json": state })
          const before = snapshot(scopeFolder(at, its))
          const store = yield* BackupStore
          const found = yield* store.inspect(its)
          assert.isTrue(Option.exists(found.current, (backup) => Result.isFailure(backup.manifest)))
          assert.include(["Found", "Unreadable"], found.controlPlane._tag)
          const restored = yield* Effect.exit(store.restore({ scope: its, target: `${at}/target` }))
          expectOrderly(restored)
          assert.isTrue(Exit.isFailure(restored))
          assert.isFalse(Fs.existsSync(`${at}/target`))
          assert.deepStrictEqual(snapshot(scopeFolder(at, its)), before)
        })
        const both = Arbitrary.all({ state: bytes, manifest: bytes })
        yield* Effect.provide(holds(both, property, 100), backupLayer(at))
      }).pipe(Effect.scoped),
    120_000
  )
})
