/** Tells an operator what to do about what stays, and whether anything has to be done at all. */
import type { Reason } from "../reasons.ts"

const nothing = "Nothing to do."
const later = "Nothing to do: the next sweep tries again."
const look = "`reclaim skills diagnose` names it."
const lookBackups = "`reclaim backups diagnose` names it."

const advices: Readonly<Record<Reason["_tag"], string>> = {
  Current: nothing,
  NewestKept: "Fewer stay with a lower `PAPERCLIP_SKILL_VERSION_RETENTION_KEEP`.",
  ActiveRun: "Nothing to do: it may go once the run has ended.",
  UnsettledRecovery: "Nothing to do unless the run will never be resumed; then settle it in the host.",
  AgentPin: "Remove the version from the agent's configuration if it is not needed.",
  TestRun: "Nothing to do: it may go once the test run is settled.",
  SelectionUnknown:
    "A server without this release started the run. Its company stays whole until the run has ended.",
  AgentPinsUnreadable: "Put the agent's configuration right; until then its company's copies stay.",
  RecentlyUsed: nothing,
  Observing: "Nothing to do: a full window without use starts with the first sweep that saw it.",
  Held: "`reclaim unhold` releases it.",
  NotRecoverable: `Keep it safe: the database has no whole copy of it. ${look}`,
  Differs:
    "Somebody changed files in place. Save what is wanted, then let `reclaim skills audit --company ID --repair` put it right.",
  Unexpected: "Somebody put something there. Look at it, and move or remove it by hand.",
  Unreadable: "Put owner and permissions right, and check the disk.",
  ChangedMeanwhile: later,
  CompanyBusy: later,
  LockLost: `${later} If it stays so, look at the database's log and load.`,
  CrossDevice: "A mount point or a link lies between the copy and its folder; keep them on one file system.",
  IssueOpen: nothing,
  IssueClosedRecently: "Nothing to do: it may go when the window has passed.",
  IssueUnknown: `The rows that would tell are gone or incomplete. ${lookBackups}`,
  CopyRecent: "Nothing to do: it may go when the window has passed.",
  RunUnfinished: "Nothing to do: it may go once the run has ended.",
  RunUnknown: `The run's row is gone, so what it worked on is not known. ${lookBackups}`,
  FinalizationUnsettled: "Nothing to do unless the run will never be resumed; then settle it in the host.",
  LeaseReferences: "Nothing to do: it may go once the lease has ended and is cleaned up.",
  ActiveInProcess: nothing,
  CleanupActivationPending: nothing,
  ControlPlaneMissing: `Without its state file nobody knows what the session worked on. ${lookBackups}`,
  ControlPlaneUnreadable: `Put the session's state file right. ${lookBackups}`,
  ControlPlaneTooLarge: `Look at the session's state file. ${lookBackups}`,
  ManifestUnreadable: `The backup's manifest is damaged; it cannot be restored as it is. ${lookBackups}`,
  RowsBusy: later,
  RunAppeared: later
}

const isReason = (tag: string): tag is Reason["_tag"] => Object.hasOwn(advices, tag)

/** What to do about a count of what stayed, with commands in backticks; nothing for one that this release does not know. */
export const advice = (tag: string): string => (isReason(tag) ? advices[tag] : "")
