/** `reclaim backups`. */
import { BackupReport, ExpirationSettings, type Ids, VersionReport } from "@reclaim/core"
import {
  BackupExpiration,
  FailoverBackups,
  ServerName,
  SessionActivity,
  SessionBackups
} from "@reclaim/runtime"
import { Effect, Layer, Option, Path, Stream } from "effect"
import { Command, Flag } from "effect/cli"
import * as Output from "../Output.ts"
import { layerClient, layerRoots } from "./connection.ts"
import { BadUsage, Unsuccessful } from "./failure.ts"
import * as Flags from "./flags.ts"
import type { Subcommand } from "./flags.ts"
import * as Pass from "./pass.ts"
import { Printer } from "./printer.ts"
import { server } from "./process.ts"
import { sentences } from "./reasons.ts"
import { type Column, row } from "./table.ts"
import { count, formatBytes, formatMillis } from "./units.ts"

/** What is wrong with the settings and the folders is told before anything is connected. */
const layer = SessionBackups.layerServices.pipe(
  Layer.provideMerge(Layer.merge(SessionBackups.layerDisk, SessionBackups.layerDatabase)),
  Layer.provideMerge(SessionActivity.layerNone),
  Layer.provideMerge(layerClient),
  Layer.provideMerge(layerRoots),
  Layer.provideMerge(ExpirationSettings.layerFromEnv()),
  Layer.provideMerge(Layer.succeed(ServerName.ServerName, server))
)

const layerFiles = FailoverBackups.layer.pipe(
  Layer.provide(SessionBackups.layerDisk),
  Layer.provide(layerRoots)
)

const unseen =
  "A command sees runs, leases and tables, but not that a server keeps a session warm without them."

// --- diagnose

type BackupDiagnosis = Extract<BackupExpiration.Diagnosis, { readonly _tag: "Backup" }>

/** A diagnosis of a session's backup as a document. */
export const toBackup = ({ _tag, ...backup }: BackupDiagnosis): Output.Backup => ({
  type: "backup",
  ...backup
})

export const emptyDiagnosis: Output.BackupSummary = {
  type: "summary",
  backups: 0,
  candidates: 0,
  candidateAllocatedBytes: 0n,
  allocatedBytes: 0n,
  retained: {},
  leftovers: 0
}

/** Adds a diagnosis to the figures. A backup counts under every reason it has. */
export const addDiagnosis = (
  sum: Output.BackupSummary,
  diagnosis: BackupExpiration.Diagnosis
): Output.BackupSummary => {
  if (diagnosis._tag === "Leftover") return { ...sum, leftovers: sum.leftovers + 1 }
  const { allocatedBytes, decision, reasons } = diagnosis
  const expire = decision === "expire"
  return {
    ...sum,
    backups: sum.backups + 1,
    allocatedBytes: sum.allocatedBytes + allocatedBytes,
    candidates: sum.candidates + (expire ? 1 : 0),
    candidateAllocatedBytes: sum.candidateAllocatedBytes + (expire ? allocatedBytes : 0n),
    retained: VersionReport.addCounts(sum.retained, Object.fromEntries(reasons.map(({ _tag }) => [_tag, 1])))
  }
}

const backupColumns: ReadonlyArray<Column> = [
  { title: "SCOPE", width: 64 },
  { title: "DECISION", width: 8 },
  { title: "SIZE", width: 8, align: "right" },
  { title: "WHY" }
]

const backupCells = ({
  allocatedBytes,
  decision,
  reasons,
  scope
}: BackupDiagnosis): ReadonlyArray<string> => [
  scope,
  decision,
  formatBytes(allocatedBytes),
  decision === "expire" ? "nothing keeps it" : sentences(reasons)
]

const diagnoseAll = Effect.fnUntraced(function* (options: BackupExpiration.DiagnoseOptions) {
  const printer = yield* Printer
  const expiration = yield* BackupExpiration.BackupExpiration
  const summary = yield* expiration.diagnose(options).pipe(
    Stream.runFoldEffect(
      () => emptyDiagnosis,
      Effect.fnUntraced(function* (sum, diagnosis) {
        if (sum.backups + sum.leftovers === 0) {
          yield* printer.lines(
            row(
              backupColumns,
              backupColumns.map(({ title }) => title)
            )
          )
        }
        if (diagnosis._tag === "Leftover") {
          const { _tag, ...leftover } = diagnosis
          yield* printer.document(Output.BackupLeftover, { type: "leftover", ...leftover })
          yield* printer.lines(
            `  ${leftover.kind.toLowerCase()} left over, a sweep settles it: ${leftover.path}`
          )
        } else {
          yield* printer.document(Output.Backup, toBackup(diagnosis))
          yield* printer.lines(row(backupColumns, backupCells(diagnosis)))
        }
        const next = addDiagnosis(sum, diagnosis)
        yield* printer.progress(`looked at ${count(next.backups, "backup")}`)
        return next
      })
    )
  )
  yield* printer.document(Output.BackupSummary, summary)
  if (summary.backups + summary.leftovers === 0) {
    return yield* printer.lines("there is no such backup on disk")
  }
  yield* printer.lines("")
  if (Object.keys(summary.retained).length > 0) {
    yield* printer.table(Pass.reasonColumns, Pass.reasonRows(summary.retained))
    yield* printer.lines("")
  }
  yield* printer.lines(
    `${count(summary.backups, "backup")} on disk, ${formatBytes(summary.allocatedBytes)}; ` +
      `${summary.candidates.toLocaleString("en-US")} could go, ${formatBytes(summary.candidateAllocatedBytes)}`
  )
})

const diagnose = Command.make(
  "diagnose",
  { scope: Flags.scope.pipe(Flag.optional), company: Flags.company.pipe(Flag.optional) },
  ({ company, scope }) =>
    diagnoseAll({
      ...(Option.isSome(scope) ? { scope: scope.value } : {}),
      ...(Option.isSome(company) ? { companyId: company.value } : {})
    }).pipe(Effect.provide(layer))
).pipe(
  Command.withDescription(
    `Tell for every session's backup whether it would go, and every reason why not. ${unseen}`
  ),
  Command.withExamples([
    { command: "reclaim backups diagnose", description: "Look at every session" },
    { command: "reclaim backups diagnose --scope HEX", description: "Ask why one backup stays" }
  ])
)

// --- sweep

const toTotals = (report: BackupReport.BackupReport, dryRun: boolean, continuation: string | null) => ({
  worker: "backups" as const,
  dryRun,
  checked: report.checked,
  candidates: report.candidates,
  candidateAllocatedBytes: report.candidateAllocatedBytes,
  expired: report.expired,
  reclaimedAllocatedBytes: report.reclaimedAllocatedBytes,
  clearedTaskSessions: report.clearedTaskSessions,
  recovered: report.recovered,
  skipped: report.skipped,
  errors: report.errors,
  durationMillis: report.durationMillis,
  continuation
})

const batchColumns: ReadonlyArray<Column> = [
  { title: "BATCH", width: 5, align: "right" },
  { title: "CHECKED", width: 7, align: "right" },
  { title: "CANDIDATES", width: 10, align: "right" },
  { title: "SIZE", width: 8, align: "right" },
  { title: "EXPIRED", width: 7, align: "right" },
  { title: "RECLAIMED", width: 9, align: "right" },
  { title: "TASK SESSIONS", width: 13, align: "right" },
  { title: "RECOVERED", width: 9, align: "right" },
  { title: "ERRORS", width: 6, align: "right" },
  { title: "TIME", width: 8, align: "right" }
]

const batchCells = (number: number, report: BackupReport.BackupReport): ReadonlyArray<string> => [
  String(number),
  String(report.checked),
  String(report.candidates),
  formatBytes(report.candidateAllocatedBytes),
  String(report.expired),
  formatBytes(report.reclaimedAllocatedBytes),
  String(report.clearedTaskSessions),
  String(report.recovered),
  String(report.errors),
  formatMillis(report.durationMillis)
]

/** Prints each batch of a pass as it ends, then the whole. */
export const printPass = Effect.fnUntraced(function* <E, R>(
  batches: Stream.Stream<BackupExpiration.Batch, E, R>,
  start: { readonly dryRun: boolean; readonly continuation: string | null }
) {
  const printer = yield* Printer
  return yield* Pass.printPass(batches, start, {
    empty: BackupReport.empty,
    combine: BackupReport.combine,
    columns: batchColumns,
    cells: batchCells,
    document: (report, dryRun, continuation) =>
      printer.document(Output.BackupBatch, { type: "batch", ...toTotals(report, dryRun, continuation) }),
    progress: (report) =>
      `checked ${count(report.checked, "session")}, reclaimed ${formatBytes(report.reclaimedAllocatedBytes)}`,
    summary: ({ batches: number, continuation, dryRun, report }) =>
      printer.document(Output.BackupSweepSummary, {
        type: "summary",
        batches: number,
        ...toTotals(report, dryRun, continuation)
      }),
    told: ({ dryRun, report }) => [
      dryRun
        ? `dry run: ${count(report.candidates, "backup")} could go, ${formatBytes(report.candidateAllocatedBytes)}; nothing was changed`
        : `expired ${count(report.expired, "backup")} and reclaimed ${formatBytes(report.reclaimedAllocatedBytes)} in ${formatMillis(report.durationMillis)}`,
      ...(report.clearedTaskSessions > 0
        ? [
            `removed ${count(report.clearedTaskSessions, "task session")}, so that reopened work starts afresh`
          ]
        : []),
      ...(report.recovered > 0
        ? [`brought back ${count(report.recovered, "backup")} that an interrupted expiration had moved`]
        : [])
    ]
  })
})

/** What the flags of `sweep` say. */
export interface SweepFlags {
  readonly dryRun: boolean
  readonly maxBatches: Option.Option<number>
  readonly continuation: Option.Option<string>
}

/** Sweeps as far as the flags say. Fails when anything could not be done. */
export const sweepAll = Effect.fnUntraced(function* (flags: SweepFlags) {
  const settings = yield* ExpirationSettings.ExpirationSettings
  const expiration = yield* BackupExpiration.BackupExpiration
  const report = yield* printPass(
    expiration
      .sweep({
        dryRun: flags.dryRun,
        ...(Option.isSome(flags.continuation) ? { continuation: flags.continuation.value } : {})
      })
      .pipe(Stream.take(Option.getOrElse(flags.maxBatches, () => Number.POSITIVE_INFINITY))),
    {
      dryRun: flags.dryRun || settings.dryRun,
      continuation: Option.getOrNull(flags.continuation)
    }
  )
  if (report.errors > 0) return yield* new Unsuccessful()
})

const sweep = Command.make(
  "sweep",
  { dryRun: Flags.dryRun, maxBatches: Flags.maxBatches, continuation: Flags.continuation },
  Effect.fnUntraced(function* (flags) {
    const printer = yield* Printer
    const settings = yield* ExpirationSettings.ExpirationSettings.pipe(
      Effect.provide(ExpirationSettings.layerFromEnv())
    )
    if (!settings.enabled) {
      yield* printer.document(Output.Disabled, { type: "disabled" })
      return yield* printer.lines("nothing done: PAPERCLIP_NATIVE_HARNESS_BACKUP_EXPIRATION_ENABLED is false")
    }
    yield* Effect.provide(sweepAll(flags), layer)
  })
).pipe(
  Command.withDescription(
    `Expire the backups of sessions whose work has long been closed, until one pass is done. ${unseen}`
  ),
  Command.withExamples([
    { command: "reclaim backups sweep --dry-run", description: "See what would go" },
    { command: "reclaim backups sweep --max-batches 1", description: "Check at most 200 sessions" }
  ])
)

// --- capture, restore

const providers = ["codex", "opencode", "acpx", "none"] as const

/** Under which name the host looks for the session home of a provider. */
const homes: Readonly<Record<Exclude<(typeof providers)[number], "none">, string>> = {
  codex: "codex-home",
  opencode: "opencode",
  acpx: "acpx"
}

const capture = Command.make(
  "capture",
  {
    scope: Flags.scope,
    session: Flags.session,
    runnerInstance: Flags.opaqueId("runner-instance", "The runner that the folders come from"),
    lease: Flags.opaqueId("lease", "The provider's lease of the environment they come from"),
    provider: Flag.Literals("provider", providers).pipe(
      Flag.withDescription("Whose session home is among the folders")
    ),
    // 4: as many folders as a backup can hold.
    sources: Flags.source.pipe(Flag.between(1, 4))
  },
  Effect.fnUntraced(function* ({ lease, provider, runnerInstance, scope, session, sources }) {
    const printer = yield* Printer
    const path = yield* Path.Path
    const known = provider === "none" ? undefined : ["runner", homes[provider]]
    const stray = sources.find(({ name }) => known !== undefined && !known.includes(name))
    // A Codex home under another name would be copied with its credentials, and no host would look for it.
    if (known !== undefined && stray !== undefined) {
      return yield* new BadUsage({
        message: `a backup for ${provider} holds ${known.join(" and ")}, not ${stray.name}`
      })
    }
    yield* printer.progress("copying")
    const { bytes, omitted, ...captured } = yield* FailoverBackups.FailoverBackups.pipe(
      Effect.flatMap((backups) =>
        backups.capture({
          scope,
          identity: {
            normalizedSessionId: session,
            runnerInstanceId: runnerInstance,
            sourceProviderLeaseId: lease,
            providerKind: provider === "none" ? null : provider
          },
          sources: sources.map((source) => ({ name: source.name, path: path.resolve(source.path) }))
        })
      ),
      Effect.provide(layerFiles)
    )
    yield* printer.document(Output.Captured, {
      type: "captured",
      scope,
      path: captured.path,
      bytes,
      omitted
    })
    yield* printer.lines(`captured ${formatBytes(bytes)} to ${captured.path}`)
    if (omitted.length > 0) yield* printer.lines("left out:", ...omitted.map((name) => `  ${name}`))
  })
).pipe(
  Command.withDescription(
    "Replace a session's one backup by what its folders hold now. Of a codex-home, credentials, scratch and " +
      "what Codex downloads again are left out. Needs no database"
  ),
  Command.withExamples([
    {
      command:
        "reclaim backups capture --scope HEX --session UUID --runner-instance ID --lease ID --provider codex " +
        "--source runner=DIR --source codex-home=DIR",
      description: "Back up a Codex session"
    }
  ])
)

const restoreBackup = Effect.fnUntraced(function* (request: {
  readonly scope: Ids.ScopeId
  readonly target: string
}) {
  const printer = yield* Printer
  const backups = yield* FailoverBackups.FailoverBackups
  yield* printer.progress("copying")
  const { bytes, from, path, scope } = yield* backups.restore(request)
  yield* printer.document(Output.Restored, { type: "restored", scope, from, path, bytes })
  yield* printer.lines(`restored ${formatBytes(bytes)} from ${from} to ${path}`)
})

const restore = Command.make(
  "restore",
  {
    scope: Flags.scope,
    target: Flags.folder("target", "Where to: a folder that is empty or not there yet")
  },
  Effect.fnUntraced(function* ({ scope, target }) {
    const path = yield* Path.Path
    yield* Effect.provide(restoreBackup({ scope, target: path.resolve(target) }), layerFiles)
  })
).pipe(
  Command.withDescription(
    "Write a session's backup to a folder, whole and with every digest right, or not at all. Needs no database"
  ),
  Command.withExamples([
    { command: "reclaim backups restore --scope HEX --target DIR", description: "Restore to a new folder" }
  ])
)

export const backups: Subcommand<"backups"> = Command.make("backups").pipe(
  Command.withDescription("Take, restore, look at and expire the failover backups of native sessions"),
  Command.withExamples([{ command: "reclaim backups diagnose", description: "See which backups could go" }]),
  Command.withSubcommands([diagnose, sweep, capture, restore])
)
