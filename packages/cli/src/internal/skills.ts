/** `reclaim skills`. */
import { type Ids, RetentionSettings, VersionReport } from "@reclaim/core"
import { InstanceRoots, PosixFileSystem } from "@reclaim/fs"
import { ServerName, SkillVersionCache, SkillVersionRetention, SkillVersions } from "@reclaim/runtime"
import { Duration, Effect, Layer, Option, Stream } from "effect"
import { Command, Flag } from "effect/cli"
import * as Output from "../Output.ts"
import { auditCompany } from "./audit.ts"
import { layerClient, layerRoots } from "./connection.ts"
import { Unsuccessful } from "./failure.ts"
import * as Flags from "./flags.ts"
import type { Subcommand } from "./flags.ts"
import { makeListing } from "./listing.ts"
import * as Pass from "./pass.ts"
import { Printer } from "./printer.ts"
import { server } from "./process.ts"
import { sentence, sentences } from "./reasons.ts"
import type { Column } from "./table.ts"
import { count, formatBytes, formatInstant, formatMillis } from "./units.ts"

/** What is wrong with the settings and the folders is told before anything is connected. */
const layerWith = (options: RetentionSettings.Options = {}) =>
  SkillVersions.layerServices.pipe(
    Layer.provideMerge(Layer.merge(SkillVersions.layerDisk, SkillVersions.layerDatabase)),
    Layer.provideMerge(layerClient),
    Layer.provideMerge(layerRoots),
    Layer.provideMerge(RetentionSettings.layerFromEnv(options)),
    Layer.provideMerge(Layer.succeed(ServerName.ServerName, server))
  )

const layer = layerWith()

const company = Flags.company.pipe(Flag.optional)

// --- diagnose

/** A diagnosis of a copy as a document. */
export const toCopy = ({
  _tag,
  ...copy
}: Extract<SkillVersionRetention.Diagnosis, { readonly _tag: "Copy" }>): Output.Copy => ({
  type: "copy",
  ...copy
})

/** Adds a diagnosis to the figures. A copy counts under every reason it has. */
export const addDiagnosis = (
  sum: Output.DiagnosisSummary,
  diagnosis: SkillVersionRetention.Diagnosis
): Output.DiagnosisSummary => {
  if (diagnosis._tag === "Leftover") return { ...sum, leftovers: sum.leftovers + 1 }
  if (diagnosis._tag === "Obstacle") {
    return {
      ...sum,
      obstacles: sum.obstacles + 1,
      retained: VersionReport.addCounts(sum.retained, { [diagnosis.reason._tag]: 1 })
    }
  }
  const evict = diagnosis.decision === "evict"
  return {
    ...sum,
    copies: sum.copies + 1,
    allocatedBytes: sum.allocatedBytes + diagnosis.allocatedBytes,
    candidates: sum.candidates + (evict ? 1 : 0),
    candidateAllocatedBytes: sum.candidateAllocatedBytes + (evict ? diagnosis.allocatedBytes : 0n),
    retained: VersionReport.addCounts(
      sum.retained,
      Object.fromEntries(diagnosis.reasons.map(({ _tag }) => [_tag, 1]))
    )
  }
}

export const emptyDiagnosis: Output.DiagnosisSummary = {
  type: "summary",
  copies: 0,
  candidates: 0,
  candidateAllocatedBytes: 0n,
  allocatedBytes: 0n,
  retained: {},
  leftovers: 0,
  obstacles: 0
}

const copyColumns: ReadonlyArray<Column> = [
  { title: "VERSION", width: 36 },
  { title: "DECISION", width: 8 },
  { title: "SIZE", width: 8, align: "right" },
  { title: "LAST USE (UTC)", width: 16 },
  { title: "WHY" }
]

const copyCells = (copy: Output.Copy): ReadonlyArray<string> => [
  copy.versionId,
  copy.decision,
  formatBytes(copy.allocatedBytes),
  Option.match(copy.lastUsedAt, { onNone: () => "unknown", onSome: formatInstant }),
  copy.decision === "evict" ? "nothing keeps it" : sentences(copy.reasons)
]

const diagnoseAll = Effect.fnUntraced(function* (
  options: SkillVersionRetention.DiagnoseOptions,
  top: number | undefined
) {
  const printer = yield* Printer
  const retention = yield* SkillVersionRetention.SkillVersionRetention
  const list = yield* makeListing(copyColumns)
  const print = Effect.fnUntraced(function* (diagnosis: SkillVersionRetention.Diagnosis) {
    switch (diagnosis._tag) {
      case "Copy": {
        const copy = toCopy(diagnosis)
        yield* printer.document(Output.Copy, copy)
        return yield* list({ ...copy, cells: copyCells(copy) })
      }
      case "Leftover": {
        const { _tag, ...leftover } = diagnosis
        yield* printer.document(Output.Leftover, { type: "leftover", ...leftover })
        return yield* list({
          ...leftover,
          cells: `  ${leftover.kind.toLowerCase()} left over, a sweep settles it: ${leftover.path}`
        })
      }
      case "Obstacle": {
        const { _tag, ...obstacle } = diagnosis
        yield* printer.document(Output.Obstacle, { type: "obstacle", ...obstacle })
        return yield* list({
          ...obstacle,
          skillId: undefined,
          cells: `  stays: ${sentence(obstacle.reason)}`
        })
      }
    }
  })
  const largest: Array<Output.Copy> = []
  const summary = yield* retention.diagnose(options).pipe(
    Stream.runFoldEffect(
      () => emptyDiagnosis,
      Effect.fnUntraced(function* (sum, diagnosis) {
        if (top === undefined) {
          yield* print(diagnosis)
        } else if (diagnosis._tag === "Copy") {
          largest.push(toCopy(diagnosis))
          largest.sort((left, right) => (left.allocatedBytes < right.allocatedBytes ? 1 : -1))
          largest.length = Math.min(largest.length, top)
        }
        const next = addDiagnosis(sum, diagnosis)
        yield* printer.progress(`looked at ${count(next.copies, "copy", "copies")}`)
        return next
      })
    )
  )
  for (const copy of largest) yield* printer.document(Output.Copy, copy)
  if (largest.length > 0) {
    yield* printer.table(
      [{ title: "COMPANY" }, ...copyColumns],
      largest.map((copy) => [copy.companyId, ...copyCells(copy)])
    )
  }
  yield* printer.document(Output.DiagnosisSummary, summary)
  if (summary.copies + summary.leftovers + summary.obstacles === 0) {
    return yield* printer.lines("there is no such copy on disk")
  }
  yield* printer.lines("")
  if (Object.keys(summary.retained).length > 0)
    yield* printer.table(Pass.reasonColumns, Pass.reasonRows(summary.retained))
  yield* printer.lines(
    "",
    `${count(summary.copies, "copy", "copies")} on disk, ${formatBytes(summary.allocatedBytes)}; ` +
      `${summary.candidates.toLocaleString("en-US")} could go, ${formatBytes(summary.candidateAllocatedBytes)}`
  )
})

const diagnose = Command.make(
  "diagnose",
  {
    company,
    version: Flags.version.pipe(Flag.optional),
    top: Flags.whole("top", "Only the largest copies, largest first", 1, 100_000).pipe(Flag.optional)
  },
  ({ company, top, version }) =>
    diagnoseAll(
      {
        ...(Option.isSome(company) ? { companyId: company.value } : {}),
        ...(Option.isSome(version) ? { versionId: version.value } : {})
      },
      Option.getOrUndefined(top)
    ).pipe(Effect.provide(layer))
).pipe(
  Command.withDescription("Tell for every copy whether it would go, and every reason why not"),
  Command.withExamples([
    { command: "reclaim skills diagnose --top 10", description: "See what takes the most room" },
    { command: "reclaim skills diagnose --company ID --version ID", description: "Ask why one copy stays" }
  ])
)

// --- sweep

const toTotals = (report: VersionReport.VersionReport, dryRun: boolean, continuation: string | null) => ({
  worker: "skill-versions" as const,
  dryRun,
  considered: report.considered,
  candidates: report.candidates,
  candidateAllocatedBytes: report.candidateAllocatedBytes,
  evicted: report.evicted,
  undone: report.undone,
  reclaimedAllocatedBytes: report.reclaimedAllocatedBytes,
  trashFinished: report.trashFinished,
  trashWaiting: report.trashWaiting,
  settled: report.settled,
  healed: report.healed,
  skipped: report.skipped,
  errors: report.errors,
  durationMillis: report.durationMillis,
  freeBytesBefore: report.freeBytesBefore,
  freeBytesAfter: report.freeBytesAfter,
  continuation
})

const batchColumns: ReadonlyArray<Column> = [
  { title: "BATCH", width: 5, align: "right" },
  { title: "CONSIDERED", width: 10, align: "right" },
  { title: "CANDIDATES", width: 10, align: "right" },
  { title: "SIZE", width: 8, align: "right" },
  { title: "EVICTED", width: 7, align: "right" },
  { title: "RECLAIMED", width: 9, align: "right" },
  { title: "TRASH GONE", width: 10, align: "right" },
  { title: "ERRORS", width: 6, align: "right" },
  { title: "TIME", width: 8, align: "right" }
]

const batchCells = (number: number, report: VersionReport.VersionReport): ReadonlyArray<string> => [
  String(number),
  String(report.considered),
  String(report.candidates),
  formatBytes(report.candidateAllocatedBytes),
  String(report.evicted),
  formatBytes(report.reclaimedAllocatedBytes),
  String(report.trashFinished),
  String(report.errors),
  formatMillis(report.durationMillis)
]

const told = ({
  dryRun,
  report
}: {
  readonly dryRun: boolean
  readonly report: VersionReport.VersionReport
}): ReadonlyArray<string> => {
  const free = Option.match(report.freeBytesAfter, {
    onNone: () => "",
    onSome: (bytes) => `; the volume has ${formatBytes(bytes)} free`
  })
  return [
    dryRun
      ? `dry run: ${count(report.candidates, "copy", "copies")} could go, ${formatBytes(report.candidateAllocatedBytes)}; nothing was changed`
      : `evicted ${count(report.evicted, "copy", "copies")} and reclaimed ${formatBytes(report.reclaimedAllocatedBytes)} in ${formatMillis(report.durationMillis)}${free}`,
    ...(report.healed > 0
      ? [`restored ${count(report.healed, "copy", "copies")} that active runs had lost`]
      : []),
    ...(report.settled > 0 ? [`settled ${count(report.settled, "leftover")}`] : [])
  ]
}

/** Prints each batch of a pass as it ends, then the whole. */
export const printPass = Effect.fnUntraced(function* <E, R>(
  batches: Stream.Stream<SkillVersionRetention.Batch, E, R>,
  start: { readonly dryRun: boolean; readonly continuation: string | null }
) {
  const printer = yield* Printer
  return yield* Pass.printPass(batches, start, {
    empty: VersionReport.empty,
    combine: VersionReport.combine,
    columns: batchColumns,
    cells: batchCells,
    document: (report, dryRun, continuation) =>
      printer.document(Output.Batch, { type: "batch", ...toTotals(report, dryRun, continuation) }),
    progress: (report) =>
      `looked at ${count(report.considered, "entry", "entries")}, reclaimed ${formatBytes(report.reclaimedAllocatedBytes)}`,
    summary: ({ batches: number, continuation, dryRun, report }) =>
      printer.document(Output.SweepSummary, {
        type: "summary",
        batches: number,
        ...toTotals(report, dryRun, continuation)
      }),
    told
  })
})

const freeNow = Effect.gen(function* () {
  const roots = yield* InstanceRoots.InstanceRoots
  const posix = yield* PosixFileSystem.PosixFileSystem
  return (yield* posix.volume(roots.skills).pipe(Effect.catch(() => posix.volume(roots.instance)))).available
})

/** What the flags of `sweep` say, but for the grace, which is a setting. */
export interface SweepFlags {
  readonly dryRun: boolean
  readonly company: Option.Option<Ids.CompanyId>
  readonly untilFree: Option.Option<bigint>
  readonly batchLimit: number
  readonly maxBatches: Option.Option<number>
  readonly continuation: Option.Option<string>
}

/** Sweeps as far as the flags say. Fails when anything could not be done. */
export const sweepAll = Effect.fnUntraced(function* (flags: SweepFlags) {
  const printer = yield* Printer
  const settings = yield* RetentionSettings.RetentionSettings
  const retention = yield* SkillVersionRetention.SkillVersionRetention
  const enough = (free: bigint) => Option.exists(flags.untilFree, (wanted) => free >= wanted)
  const batches = retention
    .sweep({
      dryRun: flags.dryRun,
      batchLimit: flags.batchLimit,
      ...(Option.isSome(flags.company) ? { companyId: flags.company.value } : {}),
      ...(Option.isSome(flags.continuation) ? { continuation: flags.continuation.value } : {})
    })
    .pipe(
      Stream.take(Option.getOrElse(flags.maxBatches, () => Number.POSITIVE_INFINITY)),
      Stream.takeUntil(({ report }) => Option.exists(report.freeBytesAfter, enough))
    )
  const already = Option.isSome(flags.untilFree) && enough(yield* freeNow)
  if (already) yield* printer.lines("the volume has that much free already")
  const report = yield* printPass(already ? Stream.empty : batches, {
    dryRun: flags.dryRun || settings.dryRun,
    continuation: Option.getOrNull(flags.continuation)
  })
  if (report.errors > 0) return yield* new Unsuccessful()
})

const sweep = Command.make(
  "sweep",
  {
    dryRun: Flags.dryRun,
    company,
    graceMinutes: Flags.whole(
      "grace-minutes",
      "Minutes without use before a copy may go, instead of the setting",
      0,
      52_560_000
    ).pipe(Flag.optional),
    untilFree: Flags.size("until-free", "Stop when the volume has that much free").pipe(Flag.optional),
    batchLimit: Flags.whole("batch-limit", "Entries per batch", 1, 50).pipe(Flag.withDefault(50)),
    maxBatches: Flags.maxBatches,
    continuation: Flags.continuation
  },
  Effect.fnUntraced(function* ({ graceMinutes, ...flags }) {
    const printer = yield* Printer
    const options = Option.isSome(graceMinutes) ? { grace: Duration.minutes(graceMinutes.value) } : {}
    const settings = yield* RetentionSettings.RetentionSettings.pipe(
      Effect.provide(RetentionSettings.layerFromEnv(options))
    )
    if (!settings.enabled) {
      yield* printer.document(Output.Disabled, { type: "disabled" })
      return yield* printer.lines("nothing done: PAPERCLIP_SKILL_VERSION_RETENTION_ENABLED is false")
    }
    yield* Effect.provide(sweepAll(flags), layerWith(options))
  })
).pipe(
  Command.withDescription("Remove the copies that nothing keeps, in batches, until one pass is done"),
  Command.withExamples([
    { command: "reclaim skills sweep --dry-run", description: "See what would go" },
    { command: "reclaim skills sweep --until-free 10GB", description: "Stop as soon as there is room" }
  ])
)

// --- audit

const audit = Command.make(
  "audit",
  {
    company: Flags.company,
    repair: Flag.Boolean("repair").pipe(
      Flag.withDescription("Put right what the database can rebuild; altered copies are kept aside"),
      Flag.withoutNegation,
      Flag.withDefault(false)
    )
  },
  ({ company, repair }) => Effect.provide(auditCompany({ companyId: company, repair }), layer)
).pipe(
  Command.withDescription("Compare every copy of a company with the database, file by file"),
  Command.withExamples([
    { command: "reclaim skills audit --company ID", description: "See whether runs get what they should" },
    { command: "reclaim skills audit --company ID --repair", description: "Put right what is not" }
  ])
)

// --- prepare, restore, release

const printPrepared = Effect.fnUntraced(function* (prepared: SkillVersionCache.Prepared) {
  const printer = yield* Printer
  const { versionId } = prepared
  if (prepared._tag === "Missing") {
    const { reason, skillId } = prepared
    yield* printer.document(Output.Prepared, {
      type: "prepared",
      skillId,
      versionId,
      status: "missing",
      reason
    })
    return yield* printer.lines(`missing   ${versionId}  ${sentence(reason)}`)
  }
  const { path, restored, skillId } = prepared
  yield* printer.document(Output.Prepared, {
    type: "prepared",
    skillId,
    versionId,
    status: "ready",
    path,
    restored
  })
  yield* printer.lines(`${restored ? "restored" : "ready   "}  ${versionId}  ${path}`)
})

const printAll = Effect.fnUntraced(function* (all: ReadonlyArray<SkillVersionCache.Prepared>) {
  yield* Effect.forEach(all, printPrepared, { discard: true })
  if (all.some(({ _tag }) => _tag === "Missing")) return yield* new Unsuccessful()
})

const prepare = Command.make(
  "prepare",
  {
    company: Flags.company,
    run: Flags.run,
    // 10,000: no run selects as many, and a number has to stand here.
    versions: Flags.version.pipe(
      Flag.withDescription("A skill version that it selected (may be repeated)"),
      Flag.between(0, 10_000)
    )
  },
  ({ company, run, versions }) =>
    SkillVersionCache.SkillVersionCache.pipe(
      Effect.flatMap((cache) => cache.prepare({ companyId: company, runId: run, versions })),
      Effect.flatMap(printAll),
      Effect.provide(layer)
    )
).pipe(
  Command.withDescription(
    "Record what a run selected and make those copies ready; no version makes it known"
  ),
  Command.withExamples([
    {
      command: "reclaim skills prepare --company ID --run ID --version ID --version ID",
      description: "Prepare two versions"
    }
  ])
)

const restore = Command.make(
  "restore",
  { company: Flags.company, version: Flags.version },
  ({ company, version }) =>
    SkillVersionCache.SkillVersionCache.pipe(
      Effect.flatMap((cache) => cache.restore({ companyId: company, versionId: version })),
      Effect.flatMap((prepared) => printAll([prepared])),
      Effect.provide(layer)
    )
).pipe(
  Command.withDescription("Make one copy ready, pinning nothing"),
  Command.withExamples([
    { command: "reclaim skills restore --company ID --version ID", description: "Bring a copy back" }
  ])
)

const releaseRun = Effect.fnUntraced(function* (runId: Ids.RunId) {
  const printer = yield* Printer
  const cache = yield* SkillVersionCache.SkillVersionCache
  const pins = yield* cache.release(runId)
  yield* printer.document(Output.Released, { type: "released", runId, pins })
  yield* printer.lines(`released ${count(pins, "pin")} of run ${runId}`)
})

const release = Command.make("release", { run: Flags.run }, ({ run }) =>
  Effect.provide(releaseRun(run), layer)
).pipe(
  Command.withDescription("Drop the pins of a run that is done with its copies"),
  Command.withExamples([
    { command: "reclaim skills release --run ID", description: "Let go of a run's copies" }
  ])
)

export const skills: Subcommand<"skills"> = Command.make("skills").pipe(
  Command.withDescription("Look at, remove and bring back the copies of skill versions"),
  Command.withExamples([
    { command: "reclaim skills diagnose", description: "See which copies could go" },
    { command: "reclaim skills sweep --dry-run", description: "Rehearse removing them" }
  ]),
  Command.withSubcommands([diagnose, sweep, audit, prepare, restore, release])
)
