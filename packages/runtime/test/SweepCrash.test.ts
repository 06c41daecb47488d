import { assert, layer } from "@effect/vitest"
import { FaultPoint } from "@reclaim/core"
import { TestDatabase } from "@reclaim/postgres/testing"
import { AccessRecords } from "@reclaim/fs"
import { DateTime, Effect } from "effect"
import { spawn } from "node:child_process"
import * as Fs from "node:fs"
import { fileURLToPath } from "node:url"
import { eventually } from "../../db/test/support/database.ts"
import { SkillVersionCache } from "../src/index.ts"
import { meddle } from "./support/crash.ts"
import * as Sweeping from "./support/Sweeping.ts"
import * as World from "./support/World.ts"

/** The points of the whole repository, as they stand in its sources. */
const declared = () => {
  const packages = fileURLToPath(new URL("../../", import.meta.url))
  const names = new Set<string>()
  for (const name of Fs.readdirSync(packages)) {
    const source = `${packages}${name}/src`
    if (!Fs.existsSync(source)) continue
    for (const file of Fs.readdirSync(source, { recursive: true, encoding: "utf8" })) {
      if (!file.endsWith(".ts")) continue
      for (const [, point] of Fs.readFileSync(`${source}/${file}`, "utf8").matchAll(
        /FaultPoint\.make\("([^"]+)"\)/g
      )) {
        names.add(point!)
      }
    }
  }
  return names
}

/** What a crash may not harm, and what a crash must not leave. */
const build = Effect.gen(function* () {
  const made = yield* World.skill({ versions: 11 })
  const { companyId, copies, skillId } = made
  const [current, pinned, , unrecorded, back, same, other, staged, replaced, trashed] = copies
  const { path: instance } = yield* World.Instance
  const skillFolder = `${instance}/skills/${companyId}/__versions__/${skillId}`
  yield* Sweeping.materialize(copies)
  const cache = yield* SkillVersionCache.SkillVersionCache
  const runId = yield* World.Fixtures.run(made, { status: "running", started: true })
  yield* cache.prepare({ companyId, runId, versions: [pinned!.versionId] })
  yield* Sweeping.setCurrent(current!)
  yield* World.advance("1 hour")
  const records = yield* AccessRecords.AccessRecords
  for (const copy of [same!, other!]) yield* records.touch(copy, DateTime.add(World.noon, { hours: 1 }))
  const path = Sweeping.pathOf
  const leave = (copy: typeof current, kind: "evicting" | "staging" | "replaced" | "trash", keep: boolean) =>
    Effect.gen(function* () {
      const target = yield* Sweeping.leftoverPath(copy!, kind)
      if (keep) Fs.cpSync(yield* path(copy!), target, { recursive: true })
      else Fs.renameSync(yield* path(copy!), target)
      return target
    })
  Fs.rmSync(yield* path(pinned!), { recursive: true })
  yield* records.remove(unrecorded!)
  yield* leave(back!, "evicting", false)
  yield* leave(same!, "evicting", true)
  Fs.writeFileSync(`${yield* leave(other!, "evicting", true)}/SKILL.md`, "somebody's")
  yield* leave(staged!, "staging", false)
  yield* leave(replaced!, "replaced", false)
  yield* leave(trashed!, "trash", false)
  Fs.mkdirSync(`${instance}/skills/${companyId}/__runtime__`)
  Fs.writeFileSync(`${instance}/skills/${companyId}/__runtime__/theirs`, "theirs")
  Fs.mkdirSync(`${skillFolder}/notes`)
  Fs.writeFileSync(`${skillFolder}/notes/theirs`, "theirs")
  return { ...made, skillFolder, changing: copies[10]!.versionId }
})

type Built = Effect.Success<typeof build>

/** What may be lost: never a copy that the account does not tell of. */
const assertNothingLost = Effect.fnUntraced(function* ({ copies }: Built) {
  const [current, pinned, idle, unrecorded, back, same, other, , , , changing] = copies
  const names = yield* Sweeping.siblings(current!)
  for (const copy of [current, idle, unrecorded, back, same, other, changing]) {
    const { versionId } = copy!
    const there = names.some((name) => name === versionId || name.startsWith(`.evicting-${versionId}`))
    const told = (yield* Sweeping.events(copy!)).includes("evicted")
    assert.isTrue(there || told, `${copies.indexOf(copy!)} is lost`)
  }
  return { current: current!, pinned: pinned!, other: other!, changing: changing! }
})

const converge = Effect.fnUntraced(function* (built: Built) {
  const { companyId, skillFolder } = built
  const { changing, current, other, pinned } = yield* assertNothingLost(built)
  // The server notices a little later that the process is gone, and frees its lock then.
  yield* eventually(
    Effect.map(
      World.sweepOnce({ companyId }),
      ({ skipped }) => skipped["CompanyBusy"] === undefined && skipped["LockLost"] === undefined
    )
  )
  yield* assertNothingLost(built)
  for (const [copy, revision] of [
    [current, 1],
    [pinned, 2]
  ] as const) {
    assert.strictEqual(
      Fs.readFileSync(`${yield* Sweeping.pathOf(copy)}/SKILL.md`, "utf8"),
      `revision ${revision}`
    )
  }
  for (let times = 0; times < 4; times++) {
    yield* World.sweepOnce({ companyId })
    yield* World.advance("90 minutes")
  }
  const names = yield* Sweeping.siblings(current)
  assert.isTrue(names.includes(current.versionId) && names.includes(pinned.versionId))
  const expected = names.filter((name) => !/^\.replaced-|notes/.test(name))
  // What is left are the copies that something keeps: of the one that changed, its change.
  const kept = [current.versionId, pinned.versionId]
  if (Fs.existsSync(`${skillFolder}/${changing.versionId}`)) kept.push(changing.versionId)
  assert.sameMembers(expected, kept)
  const aside = names.filter((name) => name.startsWith(".replaced-"))
  assert.strictEqual(aside.length, 1)
  assert.isTrue(aside[0]!.includes(other.versionId))
  assert.strictEqual(Fs.readFileSync(`${skillFolder}/${aside[0]!}/SKILL.md`, "utf8"), "somebody's")
  assert.strictEqual(Fs.readFileSync(`${skillFolder}/notes/theirs`, "utf8"), "theirs")
  const company = skillFolder.split("/").slice(0, -2).join("/")
  assert.strictEqual(Fs.readFileSync(`${company}/__runtime__/theirs`, "utf8"), "theirs")
  const records = Fs.readdirSync(`${company}/__version_access__/${built.skillId}`)
  assert.deepStrictEqual(
    records.filter((name) => name.endsWith(".tmp")),
    []
  )
})

/** Runs a sweep in a process of its own, which ends at the point. */
const crashAt = Effect.fnUntraced(function* (built: Built, point: string, occurrence: number) {
  const { path: instance } = yield* World.Instance
  const { url } = yield* TestDatabase.TestDatabase
  const { changing, companyId, skillFolder } = built
  const now = DateTime.formatIso(DateTime.add(World.noon, { hours: 1 }))
  const task = { instance, url, now, companyId, skillFolder, changing, point, occurrence }
  const script = fileURLToPath(new URL("./support/sweeper.ts", import.meta.url))
  return yield* Effect.callback<{ readonly signal: string | null; readonly said: string }>((resume) => {
    const child = spawn(process.execPath, ["--conditions=@reclaim/source", script, JSON.stringify(task)], {
      stdio: ["ignore", "ignore", "pipe"]
    })
    let said = ""
    child.stderr.setEncoding("utf8").on("data", (text: string) => (said += text))
    child.on("exit", (_, signal) => resume(Effect.succeed({ signal, said })))
    return Effect.sync(() => void child.kill("SIGKILL"))
  })
})

/** The points that a sweep reaches, each with how often. */
const record = Effect.gen(function* () {
  yield* World.begin
  const built = yield* build
  const reached = new Map<string, number>()
  const handler = (point: string) =>
    Effect.sync(() => {
      reached.set(point, (reached.get(point) ?? 0) + 1)
      meddle(point, built.skillFolder, built.changing)
    })
  yield* World.sweepOnce({ companyId: built.companyId }).pipe(
    Effect.provideService(FaultPoint.FaultHandler, handler)
  )
  yield* converge(built)
  return reached
})

/** Steps of these protocols that a sweep does not take when nothing fails. */
const elsewhere = new Set([
  // Only where a preparation or an audit repairs.
  "repair.afterPublish"
])

layer(World.layer(), { excludeTestServices: true, timeout: "60 seconds" })("kill -9", (it) => {
  it.effect(
    "[Q-01] at every point that a sweep reaches loses nothing, and the next sweeps converge",
    () =>
      Effect.gen(function* () {
        const reached = yield* record
        const ours = [...declared()].filter(
          (name) => /^(access|evict|restore|settle|sweep|trash|repair)\./.test(name) && !elsewhere.has(name)
        )
        assert.deepStrictEqual(
          ours.filter((name) => !reached.has(name)),
          []
        )
        for (const [point, count] of reached) {
          // The first time, and of those that many transactions share also the last.
          for (const occurrence of point.startsWith("transaction.")
            ? [1, Math.ceil(count / 2), count]
            : [1]) {
            yield* World.begin
            const built = yield* build
            const { said, signal } = yield* crashAt(built, point, occurrence)
            assert.strictEqual(signal, "SIGKILL", `${point} ${occurrence}: ${said}`)
            yield* converge(built).pipe(
              Effect.tapCause(() => Effect.sync(() => console.log(`after a crash at ${point} ${occurrence}`)))
            )
          }
        }
      }),
    300_000
  )
})
