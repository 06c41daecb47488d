import { assert, describe, it } from "@effect/vitest"
import { FaultPoint } from "@reclaim/core"
import { DateTime, Effect, Result } from "effect"
import * as Fs from "node:fs"
import { AccessRecords } from "../src/AccessRecords.ts"
import { layerFaulty } from "../src/testing.ts"
import {
  companyId,
  copy,
  hold,
  skillId,
  snapshot,
  storeLayer,
  tempFolder,
  token,
  versionId,
  write
} from "./support/fixtures.ts"

const at = (minutes: number) => DateTime.makeUnsafe(1_800_000_000_000 + minutes * 60_000)
const folderOf = (instance: string) => `${instance}/skills/${companyId()}/__version_access__/${skillId()}`
const recordOf = (instance: string) => `${folderOf(instance)}/${versionId()}.json`

const recordedAt = Effect.fnUntraced(function* () {
  const lastUse = yield* (yield* AccessRecords).read(copy())
  return lastUse._tag === "Recorded" ? DateTime.formatIso(lastUse.at) : "absent"
})

const test = <A, E>(
  body: (instance: string) => Effect.Effect<A, E, AccessRecords>,
  faults?: Parameters<typeof layerFaulty>[0]
) =>
  Effect.gen(function* () {
    const instance = yield* tempFolder
    yield* Effect.provide(
      body(instance),
      storeLayer(instance, faults === undefined ? undefined : layerFaulty(faults))
    )
  }).pipe(Effect.scoped)

describe("AccessRecords", () => {
  it.effect("[S-16] writes the documented record and reads it back", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        const records = yield* AccessRecords
        assert.strictEqual(yield* recordedAt(), "absent")
        yield* records.touch(copy(), at(0))
        assert.strictEqual(
          Fs.readFileSync(recordOf(instance), "utf8").trim(),
          '{"schema":"reclaim.access.v1","lastUsedAt":"2027-01-15T08:00:00.000Z"}'
        )
        assert.strictEqual(yield* recordedAt(), "2027-01-15T08:00:00.000Z")
        assert.deepStrictEqual(Fs.readdirSync(folderOf(instance)), [`${versionId()}.json`])
        yield* records.remove(copy())
        yield* records.remove(copy())
        assert.strictEqual(yield* recordedAt(), "absent")
      })
    )
  )

  it.effect("[S-16] [S-18] reads many records as it reads each, whatever is in the place of a folder", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        const records = yield* AccessRecords
        const copies = [copy(1, 1), copy(2, 2), copy(3, 1), copy(4, 3), copy(5, 3), copy(6, 4)]
        yield* records.touch(copy(1, 1), at(1))
        yield* records.touch(copy(2, 2), at(2))
        yield* records.touch(copy(3, 1), at(3))
        const access = `${instance}/skills/${companyId()}/__version_access__`
        Fs.symlinkSync(skillId(1), `${access}/${skillId(3)}`)
        const each = yield* Effect.forEach(copies, (one) => Effect.result(records.read(one)))
        assert.deepStrictEqual(yield* records.readAll(copies), each)
        assert.deepStrictEqual(
          each.map((read) => (Result.isFailure(read) ? read.failure.code : read.success._tag)),
          ["Recorded", "Recorded", "Recorded", "ELOOP", "ELOOP", "Absent"]
        )
      })
    )
  )

  it.effect("[S-05] [S-16] never takes a record back to an earlier instant", () =>
    test(
      Effect.fnUntraced(function* () {
        const records = yield* AccessRecords
        yield* records.touch(copy(), at(10))
        yield* records.touch(copy(), at(5))
        assert.strictEqual(yield* recordedAt(), DateTime.formatIso(at(10)))
        yield* records.touch(copy(), at(11))
        assert.strictEqual(yield* recordedAt(), DateTime.formatIso(at(11)))
        // A hundred at once, in any order.
        yield* Effect.forEach(
          Array.from({ length: 100 }, (_, index) => (index * 37) % 100),
          (minutes) => records.touch(copy(), at(20 + minutes)),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(yield* recordedAt(), DateTime.formatIso(at(119)))
      })
    )
  )

  it.effect("[S-16] observes only where no record can be read, and never over a later use", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        const records = yield* AccessRecords
        assert.isTrue(yield* records.observe(copy(), at(0)))
        assert.isFalse(yield* records.observe(copy(), at(30)))
        assert.strictEqual(yield* recordedAt(), DateTime.formatIso(at(0)))
        for (const unreadable of [
          "",
          "{",
          '{"schema":"reclaim.access.v2","lastUsedAt":"2027-01-15T08:00:00.000Z"}',
          '{"schema":"reclaim.access.v1","lastUsedAt":"2027-01-15T08:00:00"}',
          '{"schema":"reclaim.access.v1","lastUsedAt":"2027-13-15T08:00:00Z"}',
          '{"schema":"reclaim.access.v1","lastUsedAt":1800000000}',
          `{"schema":"reclaim.access.v1","lastUsedAt":"2027-01-15T08:00:00.000Z","more":"${"m".repeat(5000)}"}`,
          new Uint8Array([0xff, 0xfe])
        ]) {
          Fs.writeFileSync(recordOf(instance), unreadable)
          assert.strictEqual(yield* recordedAt(), "absent", String(unreadable))
          assert.isTrue(yield* records.observe(copy(), at(40)))
          assert.strictEqual(yield* recordedAt(), DateTime.formatIso(at(40)))
        }
      })
    )
  )

  it.effect("[C-05] replaces a record from a clock that was ahead, but not by a touch", () =>
    test(
      Effect.fnUntraced(function* () {
        const records = yield* AccessRecords
        yield* records.touch(copy(), at(100))
        yield* records.touch(copy(), at(0))
        assert.strictEqual(yield* recordedAt(), DateTime.formatIso(at(100)))
        assert.isFalse(yield* records.observe(copy(), at(95)))
        assert.isTrue(yield* records.observe(copy(), at(94)))
        assert.strictEqual(yield* recordedAt(), DateTime.formatIso(at(94)))
      })
    )
  )

  it.effect("[S-16] a touch that comes while an observation is written wins", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        const records = yield* AccessRecords
        // Another server's touch, between this one's look and its write.
        const created = yield* records.observe(copy(), at(0)).pipe(
          Effect.provideService(FaultPoint.FaultHandler, (point) =>
            Effect.sync(() => {
              if (point !== "access.afterTemp") return
              Fs.writeFileSync(
                recordOf(instance),
                JSON.stringify({ schema: "reclaim.access.v1", lastUsedAt: DateTime.formatIso(at(3)) })
              )
            })
          )
        )
        assert.isFalse(created)
        assert.strictEqual(yield* recordedAt(), DateTime.formatIso(at(3)))
        assert.deepStrictEqual(Fs.readdirSync(folderOf(instance)), [`${versionId()}.json`])
      })
    )
  )

  it.effect("[F-01] refuses a link at each level, and writes nothing through one", () =>
    Effect.gen(function* () {
      const relative = ["", "/__version_access__", `/__version_access__/${skillId()}`]
      for (const [index, level] of relative.entries()) {
        yield* test(
          Effect.fnUntraced(function* (instance) {
            const company = `${instance}/skills/${companyId()}`
            const outside = `${instance}/outside`
            write(`${outside}${relative.at(-1)!.slice(level.length)}`, {
              [`${versionId()}.json`]:
                '{"schema":"reclaim.access.v1","lastUsedAt":"2027-01-15T08:00:00.000Z"}'
            })
            Fs.mkdirSync(`${company}${level}`.replace(/\/[^/]*$/, ""), { recursive: true })
            Fs.symlinkSync(outside, `${company}${level}`)
            const before = snapshot(outside)
            const records = yield* AccessRecords
            for (const attempt of [
              Effect.asVoid(records.read(copy())),
              records.touch(copy(), at(0)),
              Effect.asVoid(records.observe(copy(), at(0))),
              records.remove(copy()),
              Effect.asVoid(records.removeTemporaries(companyId(), skillId(), at(0)))
            ]) {
              assert.strictEqual((yield* Effect.flip(attempt)).code, "ELOOP", String(index))
            }
            assert.deepStrictEqual(snapshot(outside), before)
          })
        )
      }
      yield* test(
        Effect.fnUntraced(function* (instance) {
          const records = yield* AccessRecords
          write(`${instance}/outside`, {
            file: '{"schema":"reclaim.access.v1","lastUsedAt":"2027-01-15T08:00:00.000Z"}'
          })
          Fs.mkdirSync(folderOf(instance), { recursive: true })
          Fs.symlinkSync(`${instance}/outside/file`, recordOf(instance))
          const before = snapshot(`${instance}/outside`)
          // A record that is a link is as good as none, and is replaced as a link.
          assert.strictEqual(yield* recordedAt(), "absent")
          assert.isTrue(yield* records.observe(copy(), at(0)))
          assert.isTrue(Fs.lstatSync(recordOf(instance)).isFile())
          assert.deepStrictEqual(snapshot(`${instance}/outside`), before)
        })
      )
    })
  )

  it.effect("[S-16] fails, and leaves nothing, where the disk is full", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        const records = yield* AccessRecords
        assert.strictEqual((yield* Effect.flip(records.observe(copy(), at(0)))).code, "ENOSPC")
        assert.strictEqual((yield* Effect.flip(records.touch(copy(), at(0)))).code, "ENOSPC")
        assert.deepStrictEqual(Fs.readdirSync(folderOf(instance)), [])
      }),
      [{ method: "writeNew", code: "ENOSPC" }]
    )
  )

  it.effect("[S-16] writes the record though the empty folder is removed just then", () =>
    test(
      Effect.fnUntraced(function* () {
        yield* (yield* AccessRecords).touch(copy(), at(0))
        assert.strictEqual(yield* recordedAt(), DateTime.formatIso(at(0)))
      }),
      [{ method: "writeNew", code: "ENOENT", times: 2 }]
    )
  )

  it.effect("[Q-01] a crash beside a record leaves the record and a temporary that goes after an hour", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        const records = yield* AccessRecords
        yield* records.touch(copy(), at(0))
        const stray = `${folderOf(instance)}/.${versionId()}-${token()}.tmp`
        Fs.writeFileSync(stray, "{")
        Fs.writeFileSync(`${folderOf(instance)}/not ours`, "")
        assert.strictEqual(yield* recordedAt(), DateTime.formatIso(at(0)))
        const written = DateTime.makeUnsafe(Fs.statSync(stray).mtimeMs)
        const sweep = (before: DateTime.Utc) => records.removeTemporaries(companyId(), skillId(), before)
        assert.strictEqual(yield* sweep(DateTime.subtract(written, { seconds: 1 })), 0)
        assert.strictEqual(yield* sweep(DateTime.add(written, { seconds: 1 })), 1)
        assert.deepStrictEqual(Fs.readdirSync(folderOf(instance)).toSorted(), [
          `${versionId()}.json`,
          "not ours"
        ])
        assert.strictEqual(yield* records.removeTemporaries(companyId(2), skillId(), at(0)), 0)
      })
    )
  )

  it.effect("[S-23] an interruption while a record is written leaves a whole one", () =>
    test(
      Effect.fnUntraced(function* (instance) {
        const records = yield* AccessRecords
        const { held, interruptHeld } = yield* hold
        const fiber = yield* records.touch(copy(), at(0)).pipe(held("access.afterTemp"), Effect.forkChild)
        yield* interruptHeld(fiber)
        assert.strictEqual(yield* recordedAt(), DateTime.formatIso(at(0)))
        assert.deepStrictEqual(Fs.readdirSync(folderOf(instance)), [`${versionId()}.json`])
      })
    )
  )
})
