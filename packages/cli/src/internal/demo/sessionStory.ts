/** The part of the demonstration that is about sessions and their backups. */
import { CodexHome, type Ids } from "@reclaim/core"
import { type BackupStore, InstanceRoots } from "@reclaim/fs"
import { BackupExpiration, FailoverBackups } from "@reclaim/runtime"
import { Effect, FileSystem, Option, Stream } from "effect"
import * as Output from "../../Output.ts"
import * as Backups from "../backups.ts"
import { Printer } from "../printer.ts"
import type { OutputClosed } from "../process.ts"
import { sentences } from "../reasons.ts"
import { reasonColumns, reasonRows } from "../pass.ts"
import { count, formatBytes } from "../units.ts"
import type { DemoCompany } from "./plan.ts"
import { section } from "./section.ts"
import * as Sessions from "./sessions.ts"

export interface Told {
  readonly backupsBefore: number
  readonly backupsAfter: number
  readonly expiredBackups: number
  readonly recoveredBackups: number
  readonly clearedTaskSessions: number
  readonly restoredScope: Ids.ScopeId
  /** Whether all came as it had to. */
  readonly right: boolean
}

const prefix = "codex-home/"

/** Why the capture left a path out. */
const omission = (session: Sessions.DemoSession, path: string): string => {
  const below = (name: string) => name.slice(prefix.length)
  const select = CodexHome.selector(session.files.map((file) => below(file.path)))
  const selection = select(below(path))
  return selection._tag === "Omit" ? selection.reason : ""
}

/** What of a session's files its backup holds. */
const copiedOf = ({ captured, files }: Sessions.DemoSession) =>
  files.filter(({ path }) => !captured.omitted.some((name) => path === name || path.startsWith(`${name}/`)))

const showCapture = Effect.fnUntraced(function* (session: Sessions.DemoSession) {
  const printer = yield* Printer
  const size = session.files.reduce((sum, { bytes }) => sum + BigInt(bytes.length), 0n)
  yield* printer.lines(
    `"${session.sketch.title}" had ${count(session.files.length, "file")} and ${formatBytes(size)} in its sandbox.`,
    `Its backup has ${count(copiedOf(session).length, "file")} and ${formatBytes(session.captured.bytes)}. Left out:`,
    ""
  )
  yield* printer.table(
    [{ title: "PATH" }, { title: "IS" }],
    session.captured.omitted.toSorted().map((path) => [path, omission(session, path)])
  )
})

const currentDiagnoses = BackupExpiration.BackupExpiration.pipe(
  Effect.flatMap((expiration) => Stream.runCollect(expiration.diagnose()))
)

const showDiagnoses = Effect.fnUntraced(function* (
  sessions: ReadonlyArray<Sessions.DemoSession>,
  readable: (text: string) => string
) {
  const printer = yield* Printer
  const diagnoses = yield* currentDiagnoses
  const backups = diagnoses.filter((diagnosis) => diagnosis._tag === "Backup")
  for (const diagnosis of backups) yield* printer.document(Output.Backup, Backups.toBackup(diagnosis))
  const summary = diagnoses.reduce(Backups.addDiagnosis, Backups.emptyDiagnosis)
  yield* printer.document(Output.BackupSummary, summary)
  yield* printer.table(reasonColumns, reasonRows(summary.retained))
  yield* printer.lines("")
  const byScope = new Map(backups.map((diagnosis) => [diagnosis.scope, diagnosis]))
  const rows = yield* Effect.forEach(sessions, ({ scope, sketch }) =>
    Effect.gen(function* () {
      const diagnosis = byScope.get(scope)
      if (diagnosis === undefined) {
        const [name = ""] = yield* Sessions.namesOf(scope)
        return [sketch.title, "", "", `a killed server left ${name.slice(0, 18)}...`]
      }
      return [
        sketch.title,
        diagnosis.decision,
        formatBytes(diagnosis.allocatedBytes),
        diagnosis.decision === "expire" ? "nothing keeps it" : readable(sentences(diagnosis.reasons))
      ]
    })
  )
  yield* printer.table(
    [{ title: "SESSION" }, { title: "DECISION" }, { title: "SIZE", align: "right" }, { title: "WHY" }],
    rows
  )
})

/** The name as a person compares it. */
const short = (name: string): string => (name.startsWith(".retiring-") ? `${name.slice(0, 18)}...` : name)

const equal = (left: Uint8Array, right: Uint8Array): boolean =>
  left.length === right.length && left.every((byte, at) => byte === right[at])

const restoreOne = Effect.fnUntraced(function* (session: Sessions.DemoSession) {
  const printer = yield* Printer
  const files = yield* FileSystem.FileSystem
  const roots = yield* InstanceRoots.InstanceRoots
  const backups = yield* FailoverBackups.FailoverBackups
  const target = `${roots.instance}/runtime/replacement-sandbox`
  const { bytes, from } = yield* backups.restore({ scope: session.scope, target })
  const expected = copiedOf(session)
  const found = new Set(yield* files.readDirectory(target, { recursive: true }))
  const same = yield* Effect.forEach(expected, ({ bytes, path }) =>
    Effect.map(files.readFile(`${target}/${path}`), (read) => equal(bytes, read))
  )
  const right = same.every((it) => it) && !session.captured.omitted.some((path) => found.has(path))
  yield* printer.lines(
    right
      ? `${formatBytes(bytes)} from ${from}: ${count(expected.length, "file")}, byte for byte what the sandbox had, and no credentials`
      : "it is not what was captured"
  )
  return right
})

/** What telling it can fail with. */
export type Failed =
  | BackupExpiration.DiagnosisError
  | BackupExpiration.ExpirationError
  | BackupStore.RefusedTarget
  | BackupStore.RestoreFailed
  | OutputClosed
  | Sessions.Failed

/** Tells it, from section `first` on. */
export const tell: (
  companies: ReadonlyArray<DemoCompany>,
  first: number,
  readableIds: (text: string) => string
) => Effect.Effect<Told, Failed, BackupExpiration.BackupExpiration | Printer | Sessions.Needs> =
  Effect.fnUntraced(function* (companies, first, readableIds) {
    const printer = yield* Printer
    const expiration = yield* BackupExpiration.BackupExpiration
    const sessions = yield* Sessions.lay(companies, printer.progress)
    const titles = new Map(sessions.map(({ issueId, sketch }) => [issueId, `"${sketch.title}"`]))
    const readable = (text: string) =>
      readableIds(
        text.replaceAll(/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, (id) => titles.get(id) ?? id)
      )
    const [example, , , kept] = sessions
    if (example === undefined || kept === undefined)
      return yield* Effect.die("the demonstration has no sessions")

    yield* section(`${first}. What a session's backup holds`)
    yield* showCapture(example)

    yield* section(`${first + 1}. Which backups stay, and why`)
    yield* showDiagnoses(sessions, readable)

    yield* section(`${first + 2}. The expiration`)
    const before = yield* Effect.forEach(sessions, ({ scope }) => Sessions.namesOf(scope))
    const report = yield* Backups.printPass(expiration.sweep(), { dryRun: false, continuation: null })
    const after = yield* Effect.forEach(sessions, ({ scope }) => Sessions.namesOf(scope))
    yield* printer.lines("")
    yield* printer.table(
      [{ title: "SESSION" }, { title: "BEFORE" }, { title: "AFTER" }],
      sessions.map(({ sketch }, index) => [
        sketch.title,
        (before[index] ?? []).map(short).join(", "),
        (after[index] ?? []).map(short).join(", ") || "(none)"
      ])
    )

    yield* section(`${first + 3}. When closed work is reopened`)
    const reopened = [example, kept]
    yield* Effect.forEach(reopened, Sessions.reopen, { discard: true })
    const resumed = yield* Effect.forEach(reopened, Sessions.resumed)
    yield* printer.table(
      [{ title: "SESSION" }, { title: "ITS AGENT" }],
      reopened.map(({ sketch }, index) => [
        sketch.title,
        Option.match(resumed[index] ?? Option.none(), {
          onNone: () => "starts a fresh session, because no task session names the old one",
          onSome: (id) => `resumes session ${id}`
        })
      ])
    )

    yield* section(`${first + 4}. Restoring "${kept.sketch.title}" for a replacement sandbox`)
    const restored = yield* restoreOne(kept)
    const backupsAfter = after.filter((names) => names.length > 0).length
    return {
      backupsBefore: sessions.length,
      backupsAfter,
      expiredBackups: report.expired,
      recoveredBackups: report.recovered,
      clearedTaskSessions: report.clearedTaskSessions,
      restoredScope: kept.scope,
      right:
        restored &&
        report.errors === 0 &&
        report.recovered === 1 &&
        report.expired === sessions.length - backupsAfter &&
        resumed[0] !== undefined &&
        Option.isNone(resumed[0]) &&
        Option.contains(resumed[1] ?? Option.none(), String(kept.id))
    }
  })
