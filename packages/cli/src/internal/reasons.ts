/** One sentence per reason, for a person. */
import type { CopyComparison, VersionReason } from "@reclaim/core"
import type { Reason } from "../Output.ts"
import { formatInstant } from "./units.ts"

// 3: a line that names more is not read; the JSON document names all.
const shown = 3

const list = (items: ReadonlyArray<string>): string =>
  items.length <= shown
    ? items.join(", ")
    : `${items.slice(0, shown).join(", ")} and ${items.length - shown} more`

const these = (one: string, ids: ReadonlyArray<string>): string =>
  `${ids.length === 1 ? one : `${one}s`} ${list(ids)}`

const problems: Readonly<Record<CopyComparison.FileProblem["problem"], string>> = {
  missing: "is missing",
  extra: "is not in the database",
  kind: "is of another kind",
  size: "has another size",
  content: "has other content",
  executable: "is executable and should not be"
}

/**
 * Completes "this copy stays because it is ...", or "is missing because ...".
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
      return `differs from the database: ${list(reason.files.map(({ path, problem }) => `${path} ${problems[problem]}`))}`
    case "Unexpected":
      return `unexpected ${reason.what}: ${reason.path}`
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
  }
}

/** The reasons a copy has, in one line. */
export const sentences = (reasons: ReadonlyArray<VersionReason.VersionReason>): string =>
  reasons.map(sentence).join("; ")

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
  CrossDevice: "other file system"
}

const isReason = (tag: string): tag is Reason["_tag"] => Object.hasOwn(headings, tag)

/** Explains a count of copies that stayed; nothing for a count that this release does not know. */
export const heading = (tag: string): string => (isReason(tag) ? headings[tag] : "")
