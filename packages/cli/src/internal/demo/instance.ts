/** Lays the demonstration's instance out: a server that has run for a while, with all that happens to one. */
import { Ids } from "@reclaim/core"
import { type DatabaseError, Holds, type HostSchema } from "@reclaim/db"
import { AccessRecords, type CopyRef, type FileError, PosixFileSystem, VersionStore } from "@reclaim/fs"
import { SkillVersionCache } from "@reclaim/runtime"
import { Array as Arr, DateTime, Effect, FileSystem } from "effect"
import type { PlatformError } from "effect/PlatformError"
import type { SqlClient } from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import { dirname } from "node:path"
import * as Dice from "./dice.ts"
import * as Host from "./host.ts"
import type { DemoCompany, DemoSkill } from "./plan.ts"

// 12: as many skills as an agent is given.
const runSize = 12

// Any number but the plan's, so that the ids differ.
const seed = 7

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)

/** A skill of the plan; the demonstration's own names are always found. */
const skillOf = (company: DemoCompany, slug: string): DemoSkill => {
  const found = company.skills.find(({ sketch }) => sketch.slug === slug)
  if (found === undefined) throw new Error(`the demonstration has no skill ${slug}`)
  return found
}

const copyOf = (company: DemoCompany, slug: string, revision: number): CopyRef.CopyRef => {
  const skill = skillOf(company, slug)
  const version = skill.versions[revision - 1]
  if (version === undefined) throw new Error(`the demonstration has no ${slug} r${revision}`)
  return { companyId: company.id, skillId: skill.id, versionId: version.id }
}

/** The copies that a server in use has: nearly all old versions, and a third of the current ones. */
const copiesOf = (company: DemoCompany): ReadonlyArray<CopyRef.CopyRef> =>
  company.skills.flatMap((skill, number) =>
    skill.versions
      .filter((version) => version.revision < skill.versions.length || number % 3 === 0)
      .map((version) => ({ companyId: company.id, skillId: skill.id, versionId: version.id }))
  )

/** Dates a copy's last use back, as the days do on a real server. */
const lastUsed = Effect.fnUntraced(function* (copy: CopyRef.CopyRef, minutesAgo: number) {
  const records = yield* AccessRecords.AccessRecords
  const now = yield* DateTime.now
  yield* records.remove(copy)
  yield* records.touch(copy, DateTime.subtract(now, { minutes: minutesAgo }))
})

const companyOf = (companies: ReadonlyArray<DemoCompany>, index: number): DemoCompany => {
  const company = companies[index]
  if (company === undefined) throw new Error(`the demonstration has no company ${index}`)
  return company
}
const agentOf = (company: DemoCompany, index: number): Ids.AgentId => {
  const agent = company.agents[index]
  if (agent === undefined) throw new Error(`the demonstration has no agent ${index} in ${company.name}`)
  return agent.id
}

/** Fills the database and the disk. `progress` hears what is being done. */
export const lay: (
  companies: ReadonlyArray<DemoCompany>,
  progress: (text: string) => Effect.Effect<void>
) => Effect.Effect<
  void,
  | DatabaseError.DatabaseError
  | DatabaseError.NestedTransaction
  | FileError.FileError
  | HostSchema.MissingTables
  | HostSchema.NotAdopted
  | PlatformError
  | SkillVersionCache.UnknownCompany
  | SqlError,
  | AccessRecords.AccessRecords
  | FileSystem.FileSystem
  | Holds.Holds
  | PosixFileSystem.PosixFileSystem
  | SkillVersionCache.SkillVersionCache
  | SqlClient
  | VersionStore.VersionStore
> = Effect.fnUntraced(function* (
  companies: ReadonlyArray<DemoCompany>,
  progress: (text: string) => Effect.Effect<void>
) {
  const dice = Dice.make(seed)
  const cache = yield* SkillVersionCache.SkillVersionCache
  const holds = yield* Holds.Holds
  const store = yield* VersionStore.VersionStore
  const records = yield* AccessRecords.AccessRecords
  const posix = yield* PosixFileSystem.PosixFileSystem
  const files = yield* FileSystem.FileSystem
  const northwind = companyOf(companies, 0)
  const halcyon = companyOf(companies, 1)
  const tidewater = companyOf(companies, 2)
  const ember = companyOf(companies, 3)

  yield* progress("writing companies, skills and versions into the database")
  yield* Effect.forEach(companies, Host.writeCompany, { discard: true })

  const run = (
    company: DemoCompany,
    agent: number,
    status: string,
    native: boolean,
    startedMinutesAgo?: number
  ) => ({
    id: Ids.RunId.make(dice.uuid()),
    companyId: company.id,
    agentId: agentOf(company, agent),
    status,
    native,
    ...(startedMinutesAgo === undefined ? {} : { startedMinutesAgo })
  })
  const select = (from: Host.DemoRun, versions: ReadonlyArray<CopyRef.CopyRef>) =>
    Host.writeRun(from).pipe(
      Effect.andThen(
        cache.prepare({
          companyId: from.companyId,
          runId: from.id,
          versions: versions.map(({ versionId }) => versionId)
        })
      )
    )

  yield* progress("letting runs of the past restore their copies")
  const copies = companies.flatMap(copiesOf)
  const past = companies.flatMap((company) =>
    Arr.chunksOf(copiesOf(company), runSize).map((selection, number) => ({
      run: run(company, number % company.agents.length, "running", false, 90_000),
      selection
    }))
  )
  yield* Effect.forEach(
    past,
    ({ run, selection }) => Effect.andThen(select(run, selection), Host.finishRun(run.id)),
    { concurrency: 2, discard: true }
  )

  yield* progress("letting agents, runs and operators use them")
  // Runs that are going on, each with what it selected.
  yield* select(run(northwind, 0, "running", false, 190), [
    copyOf(northwind, "firmware-release", 3),
    copyOf(northwind, "motor-calibration", 2),
    copyOf(northwind, "incident-triage", 2)
  ])
  yield* select(run(halcyon, 2, "running", true, 75), [
    copyOf(halcyon, "formulary-lookup", 2),
    copyOf(halcyon, "discharge-summary", 1)
  ])
  // One that is only queued has prepared nothing yet, so it keeps nothing.
  yield* Host.writeRun(run(tidewater, 0, "queued", false))
  // A native run that failed and can still be resumed.
  const lost = run(halcyon, 1, "running", true, 400)
  yield* select(lost, [copyOf(halcyon, "claim-coding", 3), copyOf(halcyon, "lab-results", 1)])
  yield* Host.failNativeRun(lost, { id: dice.uuid(), title: "Recode the October claims" })
  // A run of a server that does not record selections: nobody knows what it uses.
  yield* Host.writeRun(run(ember, 0, "running", false, 55))

  // Agents name skills in the older form, and versions in the newer one.
  yield* Host.writeAgentSkills(agentOf(northwind, 1), ["local/changelog-writer", "local/bom-check"])
  yield* Host.writeAgentSkills(agentOf(northwind, 2), [
    { key: "local/changelog-writer", versionId: copyOf(northwind, "changelog-writer", 2).versionId },
    { key: "local/log-bisect", versionId: null }
  ])
  yield* Host.writeTestRun(
    Ids.TestRunId.make(dice.uuid()),
    northwind.id,
    copyOf(northwind, "log-bisect", 2).versionId
  )
  const held = copyOf(northwind, "safety-review", 1)
  yield* holds.holdVersion(held.companyId, held.versionId, "ops@console", "evidence for the March recall")

  yield* progress("letting two months pass")
  // Two hours to sixty days, but for what was used a moment ago.
  yield* Effect.forEach(copies, (copy) => lastUsed(copy, dice.between(120, 86_400)), { discard: true })
  yield* lastUsed(copyOf(northwind, "fleet-health", 1), 12)
  yield* lastUsed(copyOf(tidewater, "container-tracking", 1), 31)
  // Older servers kept no records.
  yield* records.remove(copyOf(halcyon, "bed-planning", 1))
  yield* records.remove(copyOf(halcyon, "bed-planning", 2))

  yield* progress("letting things go wrong")
  const pathOf = (company: DemoCompany, slug: string, revision: number) =>
    store.pathOf(copyOf(company, slug, revision))
  const folderOf = (company: DemoCompany, slug: string) => dirname(pathOf(company, slug, 1))
  // Somebody edited a copy in place.
  const edited = `${pathOf(northwind, "test-bench", 1)}/SKILL.md`
  yield* files.chmod(edited, 0o644)
  yield* files.writeFileString(edited, "\nRemember: bench 3 needs the old cable.\n", { flag: "a" })
  // A version was deleted from the database, its copy was not.
  const gone = { ...copyOf(northwind, "release-notes", 1), versionId: Ids.VersionId.make(dice.uuid()) }
  const orphan = store.pathOf(gone)
  yield* posix.makeDirectory(orphan, 0o755)
  yield* posix.writeNew(`${orphan}/SKILL.md`, bytes("# Release notes, from before the database\n"), {
    mode: 0o444,
    sync: false
  })
  yield* lastUsed(gone, 100_000)
  // A note and a link, left where copies belong.
  yield* posix.writeNew(
    `${folderOf(northwind, "supplier-mail")}/notes.txt`,
    bytes("ask Jo about this one\n"),
    {
      mode: 0o644,
      sync: false
    }
  )
  yield* posix.makeLink("/etc", `${folderOf(tidewater, "driver-roster")}/${dice.uuid()}`)
  // Servers that were killed: while they deleted trash, and between a move and its undo.
  yield* posix.rename(
    pathOf(northwind, "warranty-claims", 1),
    `${folderOf(northwind, "warranty-claims")}/.trash-${dice.uuid()}`
  )
  const leaving = copyOf(northwind, "spare-parts", 1)
  yield* posix.rename(
    store.pathOf(leaving),
    `${dirname(store.pathOf(leaving))}/.evicting-${leaving.versionId}-${dice.uuid()}`
  )
})
