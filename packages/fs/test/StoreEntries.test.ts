import { assert, describe, it } from "@effect/vitest"
import { Ids } from "@reclaim/core"
import { DateTime, Effect, Option, Schema, Stream } from "effect"
import { Arbitrary } from "effect"
import * as Fs from "node:fs"
import * as V8 from "node:v8"
import * as Vm from "node:vm"
import { AccessRecords } from "../src/AccessRecords.ts"
import { encodeName, last, smallest } from "../src/internal/position.ts"
import * as StoreEntries from "../src/internal/storeEntries.ts"
import { PosixFileSystem } from "../src/PosixFileSystem.ts"
import { layerFaulty } from "../src/testing.ts"
import { type StoreEntry, VersionStore } from "../src/VersionStore.ts"
import {
  companyId,
  copy,
  copyPath,
  skillId,
  snapshot,
  storeLayer,
  largeFolder,
  tempFolder,
  token,
  versionId,
  write
} from "./support/fixtures.ts"

const test = <A, E>(
  body: (instance: string) => Effect.Effect<A, E, VersionStore | AccessRecords | PosixFileSystem>,
  folder = tempFolder
) =>
  Effect.gen(function* () {
    const instance = yield* folder
    yield* Effect.provide(body(instance), storeLayer(instance))
  }).pipe(Effect.scoped)

const listed = (options?: { readonly company?: Ids.CompanyId; readonly after?: string }) =>
  Effect.flatMap(VersionStore, (store) => Stream.runCollect(store.entries(options)))

/** Kind and path below the skills folder, with the reason of an obstacle. */
const brief = (instance: string) => (entry: StoreEntry) => {
  const path = entry.shownPath.replace(`${instance}/skills/`, "")
  switch (entry._tag) {
    case "Entry":
      return `${entry.name._tag} ${path}`
    case "Obstacle":
      return `${entry.reason._tag === "Unexpected" ? entry.reason.what : entry.reason.code}: ${path}`
    case "SkillEnd":
      return `${entry.empty ? "Empty" : "End"} ${path}`
    case "Orphan":
      return `Orphan ${path}`
  }
}

const skillPath = (instance: string, skill = 1, company = 1) =>
  `${instance}/skills/${companyId(company)}/__versions__/${skillId(skill)}`
const accessPath = (instance: string, skill = 1, company = 1) =>
  `${instance}/skills/${companyId(company)}/__version_access__/${skillId(skill)}`

describe("VersionStore.entries", () => {
  it.effect("[S-20] lists copies, leftovers, orphans and ends in the order of path bytes", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        const records = yield* AccessRecords
        const skill = skillPath(instance)
        for (const name of [
          versionId(2),
          versionId(1),
          `.trash-${token()}`,
          `.staging-${versionId(3)}-${token()}`,
          `.evicting-${versionId(1)}-${token()}`,
          `.replaced-${versionId(2)}-${token()}`
        ]) {
          write(`${skill}/${name}`, { file: "" })
        }
        yield* records.touch(copy(1), DateTime.makeUnsafe(0))
        yield* records.touch(copy(9), DateTime.makeUnsafe(0))
        yield* records.touch(copy(5, 2), DateTime.makeUnsafe(0))
        Fs.mkdirSync(skillPath(instance, 3))
        write(copyPath(instance, copy(1, 1, 2)), { file: "" })

        const entries = yield* listed()
        const of = (skill: number, company = 1) => `${companyId(company)}/__versions__/${skillId(skill)}`
        const access = (skill: number) => `${companyId()}/__version_access__/${skillId(skill)}`
        assert.deepStrictEqual(entries.map(brief(instance)), [
          `Evicting ${of(1)}/.evicting-${versionId(1)}-${token()}`,
          `Replaced ${of(1)}/.replaced-${versionId(2)}-${token()}`,
          `Staging ${of(1)}/.staging-${versionId(3)}-${token()}`,
          `Trash ${of(1)}/.trash-${token()}`,
          `Copy ${of(1)}/${versionId(1)}`,
          `Copy ${of(1)}/${versionId(2)}`,
          `Orphan ${access(1)}/${versionId(9)}.json`,
          `End ${of(1)}`,
          `Orphan ${access(2)}/${versionId(5)}.json`,
          `End ${access(2)}`,
          `Empty ${of(3)}`,
          `Copy ${of(1, 2)}/${versionId(1)}`,
          `End ${of(1, 2)}`
        ])
        const positions = entries.map(({ position }) => position)
        assert.deepStrictEqual(positions, positions.toSorted())
        assert.strictEqual(new Set(positions).size, positions.length)
        assert.deepStrictEqual((yield* listed({ company: companyId(2) })).map(brief(instance)), [
          `Copy ${of(1, 2)}/${versionId(1)}`,
          `End ${of(1, 2)}`
        ])
        // From any position on, exactly the rest.
        for (const [index, { position }] of entries.entries()) {
          assert.deepStrictEqual(
            (yield* listed({ after: position })).map((entry) => entry.position),
            positions.slice(index + 1)
          )
        }
      })
    )
  )

  it.effect("[S-18] reports what is not ours, and never what lies beside the store", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        const skills = `${instance}/skills`
        const skill = skillPath(instance)
        write(copyPath(instance), { file: "" })
        Fs.writeFileSync(`${skill}/${versionId(2)}`, "a file")
        Fs.symlinkSync("/etc", `${skill}/${versionId(3)}`)
        Fs.mkdirSync(`${skill}/.trash-`)
        Fs.writeFileSync(`${skill}/.trash-${token()}`, "no folder")
        Fs.mkdirSync(`${skill}/${versionId(10).toUpperCase()}`)
        Fs.mkdirSync(Buffer.concat([Buffer.from(`${skill}/`), Buffer.from([0xff, 0x01])]))
        Fs.symlinkSync(skill, skillPath(instance, 2))
        Fs.writeFileSync(skillPath(instance, 3), "")
        Fs.mkdirSync(skillPath(instance, 10).replace(/a$/, "A"))
        Fs.mkdirSync(`${skills}/${companyId()}/__versions__/notes`)
        // Sorts between the skill and what lies in it, if names were compared one by one.
        Fs.mkdirSync(`${skill}-old`)
        Fs.mkdirSync(`${skills}/${companyId(2)}`)
        Fs.symlinkSync(`${skills}/${companyId()}/__versions__`, `${skills}/${companyId(2)}/__versions__`)
        Fs.symlinkSync(`${skills}/${companyId()}`, `${skills}/${companyId(3)}`)
        Fs.writeFileSync(`${skills}/${companyId(4)}`, "")
        write(`${skills}/${companyId(5)}`, { __versions__: "" })
        // Not ours: siblings of the store, and companies that are none.
        write(`${skills}/${companyId()}/__runtime__/x`, { file: "" })
        write(`${skills}/${companyId()}/plain-skill`, { "SKILL.md": "" })
        write(`${skills}/not-a-company/__versions__/${skillId()}/${versionId()}`, { file: "" })
        write(`${skills}/${companyId(11).toUpperCase()}/__versions__/${skillId()}/${versionId()}`, {
          file: ""
        })
        const before = snapshot(instance)

        const entries = yield* listed()
        const base = `${companyId()}/__versions__`
        assert.deepStrictEqual(entries.map(brief(instance)), [
          `a name that is no id: ${base}/${skillId()}-old`,
          `a name that is no id: ${base}/${skillId()}/.trash-`,
          `a file where a folder belongs: ${base}/${skillId()}/.trash-${token()}`,
          `Copy ${base}/${skillId()}/${versionId()}`,
          `a file where a folder belongs: ${base}/${skillId()}/${versionId(2)}`,
          `a link where a folder belongs: ${base}/${skillId()}/${versionId(3)}`,
          `a name that is no id: ${base}/${skillId()}/${versionId(10).toUpperCase()}`,
          `a name that is no id: ${base}/${skillId()}/\\xff\\x01`,
          `End ${base}/${skillId()}`,
          `a link where a folder belongs: ${base}/${skillId(2)}`,
          `a file where a folder belongs: ${base}/${skillId(3)}`,
          `a name that is no id: ${base}/${skillId(10).toUpperCase()}`,
          `a name that is no id: ${base}/notes`,
          `a link where a folder belongs: ${companyId(2)}/__versions__`,
          `a link where a folder belongs: ${companyId(3)}`,
          `a file where a folder belongs: ${companyId(4)}`,
          `a file where a folder belongs: ${companyId(5)}/__versions__`
        ])
        const positions = entries.map(({ position }) => position)
        assert.deepStrictEqual(positions, positions.toSorted())
        for (const [index, { position }] of entries.entries()) {
          assert.deepStrictEqual(
            (yield* listed({ after: position })).map((entry) => entry.position),
            positions.slice(index + 1)
          )
        }
        assert.deepStrictEqual(
          entries.flatMap((entry) =>
            entry._tag === "Obstacle" && Option.isSome(entry.versionId) ? [entry.versionId.value] : []
          ),
          [versionId(2), versionId(3)]
        )
        assert.deepStrictEqual((yield* listed({ company: companyId(3) })).map(brief(instance)), [
          `a link where a folder belongs: ${companyId(3)}`
        ])
        assert.deepStrictEqual(snapshot(instance), before)
      })
    )
  )

  it.effect("[S-18] reports access folders that are links, and trusts no record behind them", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        write(copyPath(instance), { file: "" })
        write(copyPath(instance, copy(1, 1, 2)), { file: "" })
        write(`${instance}/outside`, { [`${versionId(9)}.json`]: "{}" })
        Fs.mkdirSync(accessPath(instance).replace(/\/[^/]*$/, ""))
        Fs.symlinkSync(`${instance}/outside`, accessPath(instance))
        Fs.symlinkSync(`${instance}/outside`, `${instance}/skills/${companyId(2)}/__version_access__`)
        assert.deepStrictEqual((yield* listed()).map(brief(instance)), [
          `a link where a folder belongs: ${companyId()}/__version_access__/${skillId()}`,
          `Copy ${companyId()}/__versions__/${skillId()}/${versionId()}`,
          `End ${companyId()}/__versions__/${skillId()}`,
          `a link where a folder belongs: ${companyId(2)}/__version_access__`,
          `Copy ${companyId(2)}/__versions__/${skillId()}/${versionId()}`,
          `End ${companyId(2)}/__versions__/${skillId()}`
        ])
      })
    )
  )

  it.effect("[S-20] goes on past a folder that became unreadable, from any place in it", () =>
    Effect.gen(function* () {
      const instance = yield* tempFolder
      for (const [version, skill, company] of [
        [1, 1, 1],
        [2, 1, 1],
        [1, 2, 1],
        [1, 1, 2]
      ] as const) {
        write(copyPath(instance, copy(version, skill, company)), { file: "" })
      }
      const base = `${companyId()}/__versions__`
      const end = `End ${base}/${skillId()}`
      const next = [`Copy ${base}/${skillId(2)}/${versionId()}`, `End ${base}/${skillId(2)}`]
      const last = [`Copy ${companyId(2)}/__versions__/${skillId()}/${versionId()}`]
      last.push(`End ${companyId(2)}/__versions__/${skillId()}`)
      const whole = yield* Effect.provide(listed(), storeLayer(instance))
      assert.strictEqual(whole.length, 7)
      for (const [denied, rest] of [
        [`${base}/${skillId()}`, [end, ...next, ...last]],
        [base, last]
      ] as const) {
        const faulty = layerFaulty([
          { method: "names", code: "EACCES", matches: (path) => path.endsWith(denied) }
        ])
        yield* Effect.gen(function* () {
          for (const after of ["", whole[0]!.position, whole[1]!.position]) {
            const entries = yield* listed({ after })
            assert.deepStrictEqual(
              entries.map(brief(instance)).map((line) => line.replace("Empty", "End")),
              [`EACCES: ${denied}`, ...rest]
            )
            const positions = entries.map(({ position }) => position)
            assert.isTrue(positions.every((position) => position > after))
            assert.deepStrictEqual(positions, positions.toSorted())
            for (const [index, position] of positions.entries()) {
              assert.deepStrictEqual(
                (yield* listed({ after: position })).map((entry) => entry.position),
                positions.slice(index + 1)
              )
            }
          }
        }).pipe(Effect.provide(storeLayer(instance, faulty)))
      }
    }).pipe(Effect.scoped)
  )

  it.effect("[S-20] an instance without skills has no entries", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        assert.deepStrictEqual(yield* listed(), [])
        assert.deepStrictEqual(yield* listed({ company: companyId() }), [])
        Fs.mkdirSync(`${instance}/skills/${companyId()}`, { recursive: true })
        assert.deepStrictEqual(yield* listed(), [])
      })
    )
  )

  it.effect("[S-20] meets everything once in windows of any size, while folders come and go", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        for (let at = 0; at < 40; at += 1) {
          write(copyPath(instance, copy(at, at % 3, at % 4)), { file: "" })
          yield* (yield* AccessRecords).touch(
            copy(at + (at % 2) * 100, at % 3, at % 4),
            DateTime.makeUnsafe(0)
          )
        }
        const whole = yield* listed()
        const posix = yield* PosixFileSystem
        const records = yield* AccessRecords
        for (const window of [1, 2, 3, 7]) {
          const entries = StoreEntries.make({ posix, records, skills: `${instance}/skills`, window })
          assert.deepStrictEqual(
            (yield* Stream.runCollect(entries({}))).map(({ position }) => position),
            whole.map(({ position }) => position),
            String(window)
          )
        }
        // What stays is met once, though copies before and after it come and go with every step.
        const entries = StoreEntries.make({ posix, records, skills: `${instance}/skills`, window: 2 })
        const stays = new Set(whole.filter(({ _tag }) => _tag === "Entry").map(({ position }) => position))
        let step = 0
        const met: Array<string> = []
        yield* entries({}).pipe(
          Stream.runForEach(({ position }) =>
            Effect.sync(() => {
              if (stays.has(position)) met.push(position)
              step += 1
              write(copyPath(instance, copy(500 + step, step % 3, step % 4)), { file: "" })
              Fs.rmSync(copyPath(instance, copy(498 + step, (step + 1) % 3, (step + 2) % 4)), {
                recursive: true,
                force: true
              })
            })
          )
        )
        assert.deepStrictEqual(met, [...stays])
      })
    )
  )

  it.live(
    "[S-20] lists 20,000 copies in one folder in bounded memory",
    () =>
      test(
        Effect.fnUntraced(function* (instance) {
          const skill = skillPath(instance)
          Fs.mkdirSync(skill, { recursive: true })
          for (let at = 0; at < 20_000; at += 1) Fs.mkdirSync(`${skill}/${versionId(at)}`)
          V8.setFlagsFromString("--expose-gc")
          const gc: unknown = Vm.runInNewContext("gc")
          if (typeof gc !== "function") return assert.fail("there is no gc to call")
          const used = () => {
            Reflect.apply(gc, undefined, [])
            return process.memoryUsage().heapUsed
          }
          let seen = 0
          const before = used()
          let grown = 0
          yield* (yield* VersionStore).entries().pipe(
            Stream.runForEach(() =>
              Effect.sync(() => {
                seen += 1
                if (seen === 19_000) grown = used() - before
              })
            )
          )
          assert.strictEqual(seen, 20_001)
          // An entry is about a kilobyte: all of them would be 20 MB.
          assert.isBelow(grown, 5_000_000)
        }),
        largeFolder
      ),
    60_000
  )
})

describe("position", () => {
  // The bytes around which the encoding changes, and those that it writes itself.
  const interesting = [
    0x01, 0x1f, 0x20, 0x21, 0x2e, 0x30, 0x32, 0x37, 0x61, 0x66, 0x7d, 0x7e, 0x7f, 0x80, 0xff
  ]
  const bytes = Arbitrary.map(
    Arbitrary.array(Arbitrary.schema(Schema.Literals(interesting)), { minLength: 1, maxLength: 4 }),
    (list) => Uint8Array.from(list)
  )

  it.prop("[S-20] sorts as path bytes do", [bytes, bytes], ([left, right]) => {
    const order = Math.sign(Buffer.compare(left, right))
    const [first, second] = [encodeName(left), encodeName(right)]
    assert.strictEqual(first < second ? -1 : first > second ? 1 : 0, order)
    assert.isTrue(first < last)
    // A folder's entries against the names beside it, as whole paths.
    const inside = Buffer.compare(Buffer.concat([left, Buffer.from("/x")]), right)
    if (inside !== 0) assert.strictEqual(`${first}/x` < second, inside < 0)
  })

  it.prop(
    "[S-20] keeps exactly the smallest keys of any listing",
    [
      Arbitrary.array(Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 99 }))), {
        maxLength: 60
      })
    ],
    ([numbers]) => {
      const collector = smallest<{ readonly key: string }>(5, "20")
      const keys = numbers.map((number) => String(number).padStart(2, "0"))
      for (const key of keys) collector.add({ key })
      const expected = keys.filter((key) => key > "20").toSorted()
      const { items, more } = collector.finish()
      assert.deepStrictEqual(
        items.map(({ key }) => key),
        expected.slice(0, 5)
      )
      if (expected.length > 5) assert.isTrue(more)
    }
  )
})
