/** One sentence per reason, for a person. */
import type { BackupReason, CopyComparison } from "@reclaim/core"
import type { Reason as VersionReason } from "../Output.ts"
import { formatBytes, formatInstant } from "./units.ts"

/** Why a copy of a version or the backup of a session stays, or a version is missing. */
export type Reason = VersionReason | BackupReason.BackupReason | BackupReason.BackupSkip

// 3: a line that names more is not read; the JSON document names all.
const shown = 3

const list = (items: ReadonlyArray<string>, count = items.length): string =>
  count <= shown ? items.join(", ") : `${items.slice(0, shown).join(", ")} and ${count - shown} more`

const these = (one: string, ids: ReadonlyArray<string>): string =>
  `${ids.length === 1 ? one : `${one}s`} ${list(ids)}`

const problems: Readonly<Record<CopyComparison.FileProblem["problem"], string>> = {
  missing: "is missing",
  extra: "is not in the database",
  kind: "is of another kind",
  size: "has another size",
  content: "has other content",
  executable: "has the wrong executable bit"
}

/** What is wrong with a copy; `count` says how many problems there are, of which some may not be listed. */
export const differences = (files: ReadonlyArray<CopyComparison.FileProblem>, count = files.length): string =>
  list(
    files.map(({ path, problem }) => `${path} ${problems[problem]}`),
    count
  )

const activities: Readonly<Record<BackupReason.SessionActivity, string>> = {
  executing: "its session is executing",
  initializing: "its session is starting",
  warm: "its session is kept warm",
  closing: "its session is closing",
  unknown: "what its session is doing is not known"
}

/**
 * Completes "this copy stays because it is ...", or "is missing because ...". Of a backup it tells what keeps it.
 */
export const sentence = (reason: Reason): string => {
  switch (reason._tag) {
    case "Current":
      return "the current version of its skill"
    case "NewestKept":
      return "among the newest versions that the settings keep"
    case "ActiveRun":
      return `pinned by ${these("run", reason.runIds)}`
    case "UnsettledRecovery":
      return `needed to resume ${these("run", reason.runIds)}`
    case "AgentPin":
      return `pinned by ${these("agent", reason.agentIds)}`
    case "TestRun":
      return `used by ${these("test run", reason.testRunIds)}`
    case "SelectionUnknown":
      return `what ${these("run", reason.runIds)} selected is not recorded`
    case "AgentPinsUnreadable":
      return `the pins of ${these("agent", reason.agentIds)} cannot be read`
    case "RecentlyUsed":
      return `used at ${formatInstant(reason.lastUsedAt)}, may go from ${formatInstant(reason.eligibleAt)}`
    case "Observing":
      return `without a record of use, observed until ${formatInstant(reason.eligibleAt)}`
    case "Held":
      return `held by ${reason.by}: ${reason.note}`
    case "NotRecoverable":
      return `the database cannot rebuild it: ${reason.detail}`
    case "Differs":
      return `differs from the database: ${differences(reason.files)}`
    case "Unexpected":
      // Of a session's rows it says what is there, of a folder what kind of thing.
      return `${/^an? /.test(reason.what) ? "" : "unexpected "}${reason.what}: ${reason.path}`
    case "Unreadable":
      return `cannot be read (${reason.code}): ${reason.path}`
    case "ChangedMeanwhile":
      return `changed meanwhile: ${reason.what}`
    case "CompanyBusy":
      return "the company is busy; try again"
    case "LockLost":
      return "the lock was lost, or may have been; a later sweep decides"
    case "CrossDevice":
      return "on another file system than its folder"
    case "IssueOpen":
      return `${these("issue", reason.issueIds)} ${reason.issueIds.length === 1 ? "is" : "are"} open`
    case "IssueClosedRecently":
      return `${these("issue", reason.issueIds)} closed within the window, may go from ${formatInstant(reason.eligibleAt)}`
    case "IssueUnknown":
      return `which issue ${these("run", reason.runIds)} worked on, or when it was closed, is not known`
    case "CopyRecent":
      return `written at ${formatInstant(reason.writtenAt)}, may go from ${formatInstant(reason.eligibleAt)}`
    case "RunUnfinished":
      return `${these("run", reason.runIds)} ${reason.runIds.length === 1 ? "is" : "are"} not finished`
    case "RunUnknown":
      return `${these("run", reason.runIds)} cannot be found`
    case "FinalizationUnsettled":
      return `${these("run", reason.runIds)} can still be resumed`
    case "LeaseReferences":
      return `referred to by environment ${these("lease", reason.leaseIds)}`
    case "ActiveInProcess":
      return activities[reason.state]
    case "CleanupActivationPending":
      return "a cleanup of its session's folder is about to run"
    case "ControlPlaneMissing":
      return "its session has no state file, so its runs are not known"
    case "ControlPlaneUnreadable":
      return `its session's state file cannot be understood: ${reason.detail}`
    case "ControlPlaneTooLarge":
      return `its session's state file is too large to be read (${formatBytes(BigInt(Math.round(reason.bytes)))})`
    case "ManifestUnreadable":
      return `its manifest cannot be understood: ${reason.detail}`
    case "RowsBusy":
      return "rows of its session are locked by somebody else; try again"
    case "RunAppeared":
      return `${these("run", reason.runIds)} appeared meanwhile`
  }
}

/** The reasons something has, in one line. */
export const sentences = (reasons: ReadonlyArray<Reason>): string => reasons.map(sentence).join("; ")

const headings: Readonly<Record<Reason["_tag"], string>> = {
  Current: "current version",
  NewestKept: "newest versions kept",
  ActiveRun: "pinned by an active run",
  UnsettledRecovery: "needed by a recovery",
  AgentPin: "pinned by an agent",
  TestRun: "used by a test run",
  SelectionUnknown: "a run's selection is unknown",
  AgentPinsUnreadable: "an agent's pins cannot be read",
  RecentlyUsed: "used recently",
  Observing: "no record of use, observed",
  Held: "held by an operator",
  NotRecoverable: "the database cannot rebuild it",
  Differs: "differs from the database",
  Unexpected: "unexpected on disk",
  Unreadable: "cannot be read",
  ChangedMeanwhile: "changed meanwhile",
  CompanyBusy: "company busy",
  LockLost: "lock lost",
  CrossDevice: "other file system",
  IssueOpen: "issues are open",
  IssueClosedRecently: "issues closed recently",
  IssueUnknown: "issues are not known",
  CopyRecent: "written recently",
  RunUnfinished: "runs are not finished",
  RunUnknown: "runs cannot be found",
  FinalizationUnsettled: "runs can still be resumed",
  LeaseReferences: "an environment lease refers to it",
  ActiveInProcess: "session in use",
  CleanupActivationPending: "cleanup about to run",
  ControlPlaneMissing: "no state file",
  ControlPlaneUnreadable: "state file not understood",
  ControlPlaneTooLarge: "state file too large",
  ManifestUnreadable: "manifest not understood",
  RowsBusy: "rows locked by somebody else",
  RunAppeared: "a run appeared meanwhile"
}

const isReason = (tag: string): tag is Reason["_tag"] => Object.hasOwn(headings, tag)

/** Explains a count of what stayed; nothing for a count that this release does not know. */
export const heading = (tag: string): string => (isReason(tag) ? headings[tag] : "")
