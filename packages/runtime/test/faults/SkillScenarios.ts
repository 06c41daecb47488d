/** One company with a version in every state that a crash, a run, an operator or a user can have left. */
import { Holds, SkillPins } from "@reclaim/db"
import { AccessRecords, type CopyRef } from "@reclaim/fs"
import { DateTime, Effect } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Fs from "node:fs"
import { SkillVersionCache } from "../../src/index.ts"
import { contentsOf, pathOf, standard } from "../support/Copies.ts"
import * as Sweeping from "../support/Sweeping.ts"
import * as World from "../support/World.ts"
import type * as Operations from "./Operations.ts"
import { Broken, type Check, portrait, type Scenario } from "./Scenario.ts"

const roles = [
  "current",
  "pinned, and lost",
  "held",
  "idle",
  "without a record",
  "leaving",
  "leaving, and there again",
  "leaving altered, and there again",
  "staged",
  "set aside",
  "trashed",
  "changed while it leaves",
  "altered",
  "good",
  "idle too"
] as const
type Role = (typeof roles)[number]

/** Contents that only the disk has. */
const precious = "written by a user"

const build = Effect.gen(function* () {
  const made = yield* World.skill({ versions: roles.length })
  const { companyId, copies, skillId } = made
  const { path: instance } = yield* World.Instance
  const copy = (role: Role): CopyRef.CopyRef => copies[roles.indexOf(role)]!
  const at = (role: Role) => pathOf(copy(role))
  const company = `${instance}/skills/${companyId}`
  const skillFolder = `${company}/__versions__/${skillId}`
  yield* Sweeping.place(copies)

  const runId = yield* World.Fixtures.run(made, { status: "running", started: true })
  yield* (yield* SkillPins.SkillPins).record(companyId, runId, [copy("pinned, and lost")])
  yield* Sweeping.setCurrent(copy("current"))
  yield* (yield* Holds.Holds).holdVersion(companyId, copy("held").versionId, "operations", "an incident")
  yield* World.advance("1 hour")
  const records = yield* AccessRecords.AccessRecords
  for (const role of ["leaving, and there again", "leaving altered, and there again"] as const) {
    yield* records.touch(copy(role), DateTime.add(World.noon, { hours: 1 }))
  }
  yield* records.remove(copy("without a record"))

  const leave = Effect.fnUntraced(function* (
    role: Role,
    kind: "evicting" | "staging" | "replaced" | "trash",
    keep = false
  ) {
    const target = yield* Sweeping.leftoverPath(copy(role), kind)
    if (keep) Fs.cpSync(yield* at(role), target, { recursive: true })
    else Fs.renameSync(yield* at(role), target)
    return target
  })
  Fs.rmSync(yield* at("pinned, and lost"), { recursive: true })
  yield* leave("leaving", "evicting")
  yield* leave("leaving, and there again", "evicting", true)
  World.overwrite(`${yield* leave("leaving altered, and there again", "evicting", true)}/SKILL.md`, precious)
  yield* leave("staged", "staging")
  yield* leave("set aside", "replaced")
  const outside = `${instance}-outside`
  Fs.mkdirSync(outside)
  Fs.writeFileSync(`${outside}/theirs`, "theirs", { mode: 0o400 })
  Fs.symlinkSync(outside, `${yield* leave("trashed", "trash")}/link`)
  World.overwrite(`${yield* at("altered")}/SKILL.md`, precious)

  const theirs = [outside, `${company}/__runtime__`, `${skillFolder}/notes`, `${skillFolder}/link`]
  Fs.mkdirSync(theirs[1]!)
  Fs.writeFileSync(`${theirs[1]}/theirs`, "theirs")
  Fs.mkdirSync(theirs[2]!)
  Fs.writeFileSync(`${theirs[2]}/theirs`, "theirs")
  Fs.symlinkSync(outside, theirs[3]!)
  return { ...made, copy, skillFolder, company, theirs, mark: `${outside}.mark` }
})

type Built = Effect.Success<typeof build>

/** What must be served: what the database pins, the current version and the one that is held. */
const kept = Effect.fnUntraced(function* ({ companyId, copies, copy }: Built) {
  const pins = yield* SkillPins.SkillPins
  const active = new Set((yield* pins.activePins(companyId)).map(({ versionId }) => versionId))
  for (const role of ["current", "held"] as const) active.add(copy(role).versionId)
  return copies.filter(({ versionId }) => active.has(versionId))
})

const namesIn = ({ skillFolder }: Built) => Fs.readdirSync(skillFolder)

/** The names under which something lies that only the disk has. */
const treasures = (built: Built) =>
  namesIn(built).filter((name) => {
    if (!/^[.0-9a-f]/.test(name)) return false
    const folder = `${built.skillFolder}/${name}`
    const text = `${folder}/SKILL.md`
    return (
      (Fs.existsSync(text) && Fs.readFileSync(text, "utf8") === precious) || Fs.existsSync(`${folder}/mine`)
    )
  })

const checks = (built: Built, before: ReadonlyArray<string>) => {
  const { company, copies, copy, mark, skillId, theirs } = built
  const startedWithoutCopy = (["pinned, and lost", "staged", "set aside", "trashed"] as const).map(
    (role) => copy(role).versionId
  )

  const always: Check = Effect.gen(function* () {
    const names = namesIn(built)
    for (const each of copies) {
      if (startedWithoutCopy.includes(each.versionId)) continue
      const there = names.some(
        (name) =>
          name === each.versionId ||
          name.startsWith(`.evicting-${each.versionId}`) ||
          name.startsWith(`.replaced-${each.versionId}`)
      )
      if (there || (yield* Sweeping.events(each)).includes("evicted")) continue
      return yield* new Broken({
        what: `the copy "${roles[copies.indexOf(each)]}" is gone, and nothing tells`
      })
    }
    const found = treasures(built)
    const expected: ReadonlyArray<Role> = [
      "leaving altered, and there again",
      "altered",
      ...(Fs.existsSync(mark) ? (["changed while it leaves"] as const) : [])
    ]
    for (const role of expected) {
      if (found.some((name) => name.includes(copy(role).versionId))) continue
      return yield* new Broken({ what: `what was written into "${role}" is lost` })
    }
    const now = portrait(theirs)
    if (JSON.stringify(now) !== JSON.stringify(before)) {
      return yield* new Broken({
        what: `files of others were touched:\n${before.join("\n")}\n${now.join("\n")}`
      })
    }
  })

  const isWhole = Effect.fnUntraced(function* (each: CopyRef.CopyRef) {
    const path = yield* pathOf(each)
    const expected = standard(copies.indexOf(each) + 1)
    return Fs.existsSync(path) && JSON.stringify(contentsOf(path)) === JSON.stringify(expected)
  })

  const swept: Check = Effect.gen(function* () {
    yield* always
    for (const each of yield* kept(built)) {
      const role = roles[copies.indexOf(each)]!
      // A sweep heals what is missing; what a user wrote into a copy waits for the next preparation.
      const there = role === "altered" ? yield* World.isThere(each) : yield* isWhole(each)
      if (!there) return yield* new Broken({ what: `the copy "${role}", which is needed, is missing` })
    }
  })

  const sweep: Check = World.sweep({ companyId: built.companyId })

  const end: Check = Effect.gen(function* () {
    for (let times = 0; times < 4; times++) {
      yield* sweep
      yield* World.advance("90 minutes")
    }
    yield* swept
    const needed = new Set((yield* kept(built)).map(({ versionId }) => String(versionId)))
    const explained = new Set([...needed, ...treasures(built), "notes", "link"])
    const unexplained = namesIn(built).filter((name) => !explained.has(name))
    if (unexplained.length > 0) {
      return yield* new Broken({ what: `the sweeps leave ${unexplained.join(", ")}` })
    }
    const left = Fs.readdirSync(`${company}/__version_access__/${skillId}`).filter((name) =>
      name.endsWith(".tmp")
    )
    if (left.length > 0) return yield* new Broken({ what: `the sweeps leave ${left.join(", ")}` })
    // Whatever went can be had again.
    const cache = yield* SkillVersionCache.SkillVersionCache
    const prepared = yield* cache.prepare({
      companyId: built.companyId,
      runId: yield* World.Fixtures.runId,
      versions: copies.map(({ versionId }) => versionId),
      verify: "digest"
    })
    for (const [index, each] of copies.entries()) {
      if (prepared[index]?._tag === "Ready" && (yield* isWhole(each))) continue
      return yield* new Broken({ what: `the copy "${roles[index]}" cannot be had again` })
    }
    yield* always
  })
  return { always, swept, sweep: Effect.asVoid(sweep), end }
}

const scenario = (
  name: string,
  task: (built: Built) => Effect.Effect<Operations.Task, unknown, SqlClient.SqlClient>
): Scenario => ({
  name,
  make: Effect.gen(function* () {
    const built = yield* build
    return { task: yield* task(built), ...checks(built, portrait(built.theirs)) }
  })
})

/** A user who has a copy open writes into it while it leaves. */
const writes = ({ copy, mark, skillFolder }: Built): Operations.Meanwhile => ({
  _tag: "File",
  at: "evict.afterRename",
  parent: skillFolder,
  folder: `.evicting-${copy("changed while it leaves").versionId}`,
  file: "mine",
  mark
})

export const scenarios = (disconnect: string): ReadonlyArray<Scenario> => [
  scenario("sweep", (built) =>
    Effect.succeed({
      operation: { _tag: "Sweep", companyId: built.companyId },
      meanwhile: [writes(built)]
    })
  ),
  scenario("sweep, a commit without an answer", (built) =>
    Effect.succeed({
      operation: { _tag: "Sweep", companyId: built.companyId },
      meanwhile: [{ _tag: "Statement", at: "evict.beforeCommit", statement: disconnect }]
    })
  ),
  scenario("prepare", (built) =>
    Effect.gen(function* () {
      const runId = yield* World.Fixtures.run(built, { status: "queued" })
      const versions = (["pinned, and lost", "altered", "good"] as const).map(
        (role) => built.copy(role).versionId
      )
      return { operation: { _tag: "Prepare", companyId: built.companyId, runId, versions }, meanwhile: [] }
    })
  ),
  scenario("audit with repair", (built) =>
    Effect.succeed({ operation: { _tag: "Repair", companyId: built.companyId }, meanwhile: [] })
  )
]
