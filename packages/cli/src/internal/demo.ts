/** `reclaim demo`: everything there is to see, on an instance that is made up and gone again. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { type CopyComparison, ExpirationSettings, RetentionSettings } from "@reclaim/core"
import { DatabaseClock, HostTables, Journal, Migrations, Transactions } from "@reclaim/db"
import { type CopyRef, InstanceRoots, PosixFileSystem, Trees, VersionStore } from "@reclaim/fs"
import { EmbeddedPostgres } from "@reclaim/postgres"
import {
  ServerName,
  SessionActivity,
  SessionBackups,
  SkillVersionCache,
  SkillVersionRetention,
  SkillVersions
} from "@reclaim/runtime"
import { DateTime, Effect, FileSystem, Layer, Redacted, Stream } from "effect"
import { Command, Flag } from "effect/cli"
import * as Output from "../Output.ts"
import * as Instance from "./demo/instance.ts"
import * as Plan from "./demo/plan.ts"
import { section } from "./demo/section.ts"
import * as SessionStory from "./demo/sessionStory.ts"
import { Unsuccessful } from "./failure.ts"
import type { Subcommand } from "./flags.ts"
import { Printer } from "./printer.ts"
import { server } from "./process.ts"
import { sentence } from "./reasons.ts"
import * as Pass from "./pass.ts"
import * as Skills from "./skills.ts"
import { count, formatBytes } from "./units.ts"

type Diagnosis = SkillVersionRetention.Diagnosis

const layer = (instance: string) =>
  Layer.merge(SkillVersions.layerServices, SessionBackups.layerServices).pipe(
    Layer.provideMerge(Layer.merge(SkillVersions.layerDisk, SessionBackups.layerDisk)),
    Layer.provideMerge(Layer.merge(SkillVersions.layerDatabase, SessionBackups.layerDatabase)),
    Layer.provideMerge(SessionActivity.layerNone),
    Layer.provideMerge(InstanceRoots.layer({ instance })),
    Layer.provide(PosixFileSystem.layer),
    // The defaults, whatever the environment says: this instance is nobody's.
    Layer.provideMerge(Layer.merge(RetentionSettings.layer(), ExpirationSettings.layer())),
    Layer.provideMerge(Layer.succeed(ServerName.ServerName, server))
  )

/** Where each company's copies are and what they occupy, as `du` counts it. */
const showDisk = Effect.fnUntraced(function* (companies: ReadonlyArray<Plan.DemoCompany>) {
  const printer = yield* Printer
  const trees = yield* Trees.Trees
  const roots = yield* InstanceRoots.InstanceRoots
  const diagnoses = yield* currentDiagnoses
  const rows = yield* Effect.forEach(companies, (company) =>
    Effect.map(trees.usage(`${roots.skills}/${company.id}`), (usage) => ({
      name: company.name,
      skills: company.skills.length,
      versions: company.skills.reduce((sum, { versions }) => sum + versions.length, 0),
      copies: diagnoses.filter(({ _tag, companyId }) => _tag === "Copy" && companyId === company.id).length,
      entries: usage.entries,
      allocatedBytes: usage.allocatedBytes
    }))
  )
  const total = rows.reduce((sum, { allocatedBytes }) => sum + allocatedBytes, 0n)
  const copies = rows.reduce((sum, { copies }) => sum + copies, 0)
  yield* printer.table(
    [
      { title: "COMPANY" },
      { title: "SKILLS", align: "right" },
      { title: "VERSIONS", align: "right" },
      { title: "COPIES", align: "right" },
      { title: "FILES AND FOLDERS", align: "right" },
      { title: "ON DISK", align: "right" }
    ],
    rows.map((row) => [
      row.name,
      String(row.skills),
      String(row.versions),
      String(row.copies),
      String(row.entries),
      formatBytes(row.allocatedBytes)
    ])
  )
  yield* printer.lines("", `${formatBytes(total)} in all`)
  return { copies, allocatedBytes: total }
})

const currentDiagnoses = SkillVersionRetention.SkillVersionRetention.pipe(
  Effect.flatMap((retention) => Stream.runCollect(retention.diagnose()))
)

/**
 * One example for every reason, in the words an operator gets. A copy with few reasons is the clearer one.
 */
const examples = (
  diagnoses: ReadonlyArray<Diagnosis>,
  label: (diagnosis: Diagnosis) => string,
  readable: (text: string) => string
): ReadonlyArray<ReadonlyArray<string>> => {
  const found = new Map<string, { readonly others: number; readonly cells: ReadonlyArray<string> }>()
  for (const diagnosis of diagnoses) {
    if (diagnosis._tag === "Leftover") continue
    const reasons = diagnosis._tag === "Copy" ? diagnosis.reasons : [diagnosis.reason]
    for (const reason of reasons) {
      const others = reasons.length - 1
      if (others < (found.get(reason._tag)?.others ?? Number.POSITIVE_INFINITY)) {
        found.set(reason._tag, {
          others,
          cells: [reason._tag, label(diagnosis), readable(sentence(reason))]
        })
      }
    }
  }
  return [...found.values()]
    .map(({ cells }) => cells)
    .toSorted(([left = ""], [right = ""]) => (left < right ? -1 : 1))
}

/** Every file of a copy with its digest, to be compared with what comes back. */
const contentsOf = Effect.fnUntraced(function* (copy: CopyRef.CopyRef) {
  const trees = yield* Trees.Trees
  const store = yield* VersionStore.VersionStore
  const entries: Array<CopyComparison.DiskEntry> = []
  yield* trees.scan(store.pathOf(copy), { digests: true, onEntries: (some) => entries.push(...some) })
  return entries
    .filter(({ kind }) => kind === "file")
    .toSorted((left, right) => (left.shownPath < right.shownPath ? -1 : 1))
})

const story = Effect.fnUntraced(function* (instance: string, url: string, keep: boolean) {
  const printer = yield* Printer
  const cache = yield* SkillVersionCache.SkillVersionCache
  const retention = yield* SkillVersionRetention.SkillVersionRetention
  const journal = yield* Journal.Journal
  const companies = Plan.make()
  const labels = new Map<string, string>()
  for (const company of companies) {
    labels.set(company.id, company.name)
    for (const agent of company.agents) labels.set(agent.id, agent.name)
    for (const skill of company.skills) {
      labels.set(skill.id, skill.sketch.slug)
      for (const version of skill.versions)
        labels.set(version.id, `${skill.sketch.slug} r${version.revision}`)
    }
  }
  const label = (diagnosis: Diagnosis) =>
    diagnosis._tag === "Copy"
      ? (labels.get(diagnosis.versionId) ?? `${labels.get(diagnosis.skillId) ?? ""}, unknown version`)
      : (labels.get(diagnosis.companyId) ?? "")

  const readable = (text: string) =>
    text
      .replaceAll(`${instance}/skills/`, "")
      .replaceAll(/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, (id) => labels.get(id) ?? id)

  yield* Instance.lay(companies, printer.progress)

  yield* section("1. What is on disk", `instance ${instance}`)
  const before = yield* showDisk(companies)

  yield* section("2. What stays, and why")
  const diagnoses = yield* currentDiagnoses
  const summary = diagnoses.reduce(Skills.addDiagnosis, Skills.emptyDiagnosis)
  for (const diagnosis of diagnoses) {
    if (diagnosis._tag === "Copy") yield* printer.document(Output.Copy, Skills.toCopy(diagnosis))
  }
  yield* printer.document(Output.DiagnosisSummary, summary)
  yield* printer.table(Pass.reasonColumns, Pass.reasonRows(summary.retained))
  yield* printer.lines("", "An example of each:", "")
  yield* printer.table(
    [{ title: "REASON" }, { title: "WHAT" }, { title: "WHY" }],
    examples(diagnoses, label, readable)
  )
  yield* printer.lines(
    "",
    `${count(summary.copies, "copy", "copies")} and ${count(summary.leftovers, "leftover")} of servers that were killed; nothing keeps ${count(summary.candidates, "copy", "copies")}`
  )

  yield* section("3. What a dry run would free")
  yield* Skills.printPass(retention.sweep({ dryRun: true }), { dryRun: true, continuation: null })

  // The one that comes back later: it has a picture and scripts, and its files lie in a repository snapshot.
  const chosen = diagnoses.find(
    (diagnosis) =>
      diagnosis._tag === "Copy" &&
      diagnosis.decision === "evict" &&
      companies.some(({ skills }) =>
        skills.some(({ versions }) =>
          versions.some(
            ({ files, id, snapshotId }) =>
              id === diagnosis.versionId &&
              snapshotId !== undefined &&
              files.some(({ path }) => path.endsWith(".png"))
          )
        )
      )
  )
  if (chosen?._tag !== "Copy") return yield* new Unsuccessful()
  const original = yield* contentsOf(chosen)

  yield* section("4. The sweep")
  const report = yield* Skills.printPass(retention.sweep(), { dryRun: false, continuation: null })

  yield* section("5. What remains")
  const after = yield* showDisk(companies)
  const freed = before.allocatedBytes - after.allocatedBytes
  yield* printer.lines(
    `${formatBytes(before.allocatedBytes)} before, ${formatBytes(after.allocatedBytes)} after: ${formatBytes(freed)} less, and the sweep reported ${formatBytes(report.reclaimedAllocatedBytes)}`
  )

  for (const diagnosis of yield* currentDiagnoses) {
    if (diagnosis._tag !== "Leftover") continue
    yield* printer.lines(
      `A folder that is ${diagnosis.kind.toLowerCase()} is left until it is 60 s old, in case its server lives: ${readable(diagnosis.path)}`
    )
  }

  yield* section("6. What the journal says")
  const now = yield* Effect.flatMap(DatabaseClock.DatabaseClock, (clock) => clock.now)
  const entries = yield* Stream.runCollect(journal.since(DateTime.subtract(now, { hours: 1 })))
  yield* printer.table(
    [{ title: "EVENT" }, { title: "WHAT" }, { title: "SIZE", align: "right" }, { title: "BY" }],
    entries
      .slice(-5)
      .map((entry) => [
        entry.event,
        `${labels.get(entry.companyId ?? "") ?? ""}: ${labels.get(entry.versionId ?? "") ?? ""}`,
        formatBytes(entry.allocatedBytes),
        `${entry.worker} on ${entry.server}`
      ])
  )
  yield* printer.lines("", `the last 5 of ${count(entries.length, "entry", "entries")}`)

  const name = label(chosen)
  yield* section(`7. Bringing ${name} back`)
  const restored = yield* cache.restore({ companyId: chosen.companyId, versionId: chosen.versionId })
  if (restored._tag === "Missing") {
    yield* printer.lines(`it did not come back: ${sentence(restored.reason)}`)
    return yield* new Unsuccessful()
  }
  const returned = yield* contentsOf(chosen)
  const same = (left: CopyComparison.DiskEntry | undefined, right: CopyComparison.DiskEntry | undefined) =>
    left !== undefined &&
    right !== undefined &&
    left.shownPath === right.shownPath &&
    left.size === right.size &&
    left.sha256 === right.sha256 &&
    left.executable === right.executable
  const identical =
    original.length === returned.length && original.every((file, index) => same(file, returned[index]))
  yield* printer.table(
    [
      { title: "FILE" },
      { title: "SIZE", align: "right" },
      { title: "MODE" },
      { title: "SHA-256" },
      { title: "AS BEFORE" }
    ],
    returned.map((file, index) => [
      file.shownPath,
      formatBytes(file.size),
      file.executable ? "r-x" : "r--",
      `${file.sha256?.slice(0, 16) ?? ""}...`,
      same(original[index], file) ? "yes" : "NO"
    ])
  )
  yield* printer.lines(
    "",
    restored.restored && identical
      ? `${count(returned.length, "file")}, byte for byte what was evicted, from the database alone`
      : "it is not what was evicted"
  )

  const { right, ...told } = yield* SessionStory.tell(companies, 8, readable)
  yield* printer.document(Output.Demo, {
    type: "demo",
    instance,
    databaseUrl: url,
    copiesBefore: before.copies,
    copiesAfter: after.copies,
    allocatedBytesBefore: before.allocatedBytes,
    allocatedBytesAfter: after.allocatedBytes,
    evicted: report.evicted,
    reclaimedAllocatedBytes: report.reclaimedAllocatedBytes,
    restoredVersionId: chosen.versionId,
    restoredFiles: returned.length,
    identical,
    ...told
  })
  if (!identical || !restored.restored || !right || report.errors > 0) return yield* new Unsuccessful()
  if (!keep) return
  const flags = `--instance ${instance} --database-url '${url}'`
  yield* section("Try it yourself", "The instance and its server stay until Ctrl-C. In another terminal:")
  yield* printer.lines(
    `npx reclaim skills diagnose --top 10 ${flags}`,
    `npx reclaim skills sweep --grace-minutes 10 --dry-run ${flags}`,
    `npx reclaim skills restore --company ${chosen.companyId} --version ${chosen.versionId} ${flags}`,
    `npx reclaim backups diagnose ${flags}`,
    `npx reclaim backups restore --scope ${told.restoredScope} --target ./restored ${flags}`,
    `npx reclaim journal --since '1 hour' ${flags}`
  )
  return yield* Effect.never
})

const run = Effect.fnUntraced(function* (keep: boolean) {
  const printer = yield* Printer
  const files = yield* FileSystem.FileSystem
  yield* printer.lines(
    "A made-up server with four companies, in a folder and a database of its own; both are gone when this ends."
  )
  yield* printer.progress("starting PostgreSQL")
  const { url } = yield* EmbeddedPostgres.make()
  const instance = yield* files.makeTempDirectoryScoped({ prefix: "reclaim-demo-" })
  // 8: the copies are restored four at a time, and each restoration streams while it asks.
  const client = PgClient.layer({ url: Redacted.make(url), prepare: false, maxConnections: 8 })
  yield* HostTables.create.pipe(
    Effect.andThen(Migrations.migrate),
    Effect.provide(DatabaseClock.layer.pipe(Layer.provideMerge(Transactions.layer))),
    Effect.andThen(Effect.provide(story(instance, url, keep), layer(instance))),
    Effect.provide(client)
  )
})

export const demo: Subcommand<"demo"> = Command.make(
  "demo",
  {
    keep: Flag.Boolean("keep").pipe(
      Flag.withDescription("Keep the instance and its server until Ctrl-C, to try commands on"),
      Flag.withoutNegation,
      Flag.withDefault(false)
    )
  },
  ({ keep }) => Effect.scoped(run(keep))
).pipe(
  Command.withDescription("Show everything on a made-up instance, with nothing but Node installed"),
  Command.withExamples([
    { command: "reclaim demo", description: "See the whole story, which cleans up after itself" },
    { command: "reclaim demo --keep", description: "Have something to try commands on" }
  ])
)
