import { assert, layer } from "@effect/vitest"
import { FaultPoint } from "@reclaim/core"
import { TestDatabase } from "@reclaim/postgres/testing"
import type { Journal } from "@reclaim/db"
import { AccessRecords, type VersionStore } from "@reclaim/fs"
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
  yield* World.begin
  const [current, pinned, , unrecorded, back, same, other, staged, replaced, trashed] = copies
  const { path: instance } = yield* World.Instance
  const skillFolder = `${instance}/skills/${companyId}/__versions__/${skillId}`
  yield* Sweeping.place(copies)
  const cache = yield* SkillVersionCache.SkillVersionCache
  const runId = yield* World.Fixtures.run(made, { status: "running", started: true })
  yield* cache.prepare({ companyId, runId, versions: [pinned!.versionId] })
  yield* Sweeping.setCurrent(current!)
  yield* World.advance("1 hour")
  const records = yield* AccessRecords.AccessRecords
  for (const copy of [same!, other!]) yield* records.touch(copy, DateTime.add(World.noon, { hours: 1 }))
  const path = Sweeping.pathOf
  const leave = Effect.fnUntraced(function* (
    copy: VersionStore.CopyRef | undefined,
    kind: "evicting" | "staging" | "replaced" | "trash",
    keep: boolean
  ) {
    const target = yield* Sweeping.leftoverPath(copy!, kind)
    if (keep) Fs.cpSync(yield* path(copy!), target, { recursive: true })
    else Fs.renameSync(yield* path(copy!), target)
    return target
  })
  Fs.rmSync(yield* path(pinned!), { recursive: true })
  yield* records.remove(unrecorded!)
  yield* leave(back, "evicting", false)
  yield* leave(same, "evicting", true)
  World.overwrite(`${yield* leave(other, "evicting", true)}/SKILL.md`, "somebody's")
  yield* leave(staged, "staging", false)
  yield* leave(replaced, "replaced", false)
  yield* leave(trashed, "trash", false)
  Fs.mkdirSync(`${instance}/skills/${companyId}/__runtime__`)
  Fs.writeFileSync(`${instance}/skills/${companyId}/__runtime__/theirs`, "theirs")
  Fs.mkdirSync(`${skillFolder}/notes`)
  Fs.writeFileSync(`${skillFolder}/notes/theirs`, "theirs")
  return { ...made, skillFolder, changing: copies[10]!.versionId }
})

type Built = Effect.Success<typeof build>

type Context = Journal.Journal | VersionStore.VersionStore

/** A copy may be missing only where the account tells that it went. */
const assertNothingLost = Effect.fnUntraced(function* ({ copies }: Built) {
  const [current, , idle, unrecorded, back, same, other, , , , changing] = copies
  const names = yield* Sweeping.siblings(current!)
  for (const copy of [current, idle, unrecorded, back, same, other, changing]) {
    const { versionId } = copy!
    const there = names.some((name) => name === versionId || name.startsWith(`.evicting-${versionId}`))
    const told = (yield* Sweeping.events(copy!)).includes("evicted")
    assert.isTrue(there || told, `${copies.indexOf(copy!)} is lost`)
  }
})

const assertUsable = Effect.fnUntraced(function* ({ copies }: Built) {
  for (const revision of [1, 2]) {
    const path = yield* Sweeping.pathOf(copies[revision - 1]!)
    assert.strictEqual(Fs.readFileSync(`${path}/SKILL.md`, "utf8"), `revision ${revision}`)
  }
})

/** What is left in the end: what something keeps, what was altered, and what is not ours. */
const assertClean = Effect.fnUntraced(function* ({ changing, copies, skillFolder, skillId }: Built) {
  const [current, pinned, , , , , other] = copies.map(({ versionId }) => versionId)
  const names = Fs.readdirSync(skillFolder)
  const aside = names.filter((name) => name.startsWith(".replaced-"))
  assert.strictEqual(aside.length, 1)
  assert.isTrue(aside[0]!.includes(other!))
  assert.strictEqual(Fs.readFileSync(`${skillFolder}/${aside[0]!}/SKILL.md`, "utf8"), "somebody's")
  const kept = [current, pinned, aside[0], "notes"]
  // The change was made only where the crash came after it; from then on the copy differs.
  const changed = `${skillFolder}/${changing}`
  if (Fs.existsSync(changed)) {
    assert.isTrue(Fs.existsSync(`${changed}/mine`))
    kept.push(changing)
  }
  assert.sameMembers(names, kept)
  assert.strictEqual(Fs.readFileSync(`${skillFolder}/notes/theirs`, "utf8"), "theirs")
  const company = skillFolder.split("/").slice(0, -2).join("/")
  assert.strictEqual(Fs.readFileSync(`${company}/__runtime__/theirs`, "utf8"), "theirs")
  const records = Fs.readdirSync(`${company}/__version_access__/${skillId}`)
  assert.isUndefined(records.find((name) => name.endsWith(".tmp")))
})

interface Crashed {
  readonly built: Built
  readonly after: string
}

/** The next sweeps of another server, over everything that crashed. */
const converge = Effect.fnUntraced(function* (crashed: ReadonlyArray<Crashed>) {
  const each = (check: (built: Built) => Effect.Effect<void, unknown, Context>) =>
    Effect.forEach(
      crashed,
      ({ after, built }) =>
        Effect.tapCause(check(built), () => Effect.sync(() => console.log(`after a crash at ${after}`))),
      { discard: true }
    )
  yield* each(assertNothingLost)
  // The server notices a little later that a process is gone, and frees its lock then.
  yield* eventually(Effect.map(Sweeping.unfinished, ({ locks }) => locks === 0))
  yield* World.sweep()
  yield* each(assertNothingLost)
  yield* each(assertUsable)
  for (let times = 0; times < 4; times++) {
    yield* World.sweep()
    yield* World.advance("90 minutes")
  }
  yield* each(assertUsable)
  yield* each(assertClean)
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
  yield* converge([{ after: "no crash at all", built }])
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
        // The first time; of those that many transactions share, once in the middle and the last time.
        const crashes = [...reached].flatMap(([point, count]) =>
          (point.startsWith("transaction.") ? [Math.ceil(count / 2), count] : [1]).map(
            (occurrence) => [point, occurrence] as const
          )
        )
        const worlds = yield* Effect.forEach(crashes, () => build)
        const crashed = yield* Effect.forEach(
          crashes,
          Effect.fnUntraced(function* ([point, occurrence], index) {
            const built = worlds[index]!
            const { said, signal } = yield* crashAt(built, point, occurrence)
            const after = `${point}, time ${occurrence}`
            assert.strictEqual(signal, "SIGKILL", `${after}: ${said}`)
            return { built, after }
          }),
          { concurrency: 3 }
        )
        yield* converge(crashed)
      }),
    300_000
  )
})
