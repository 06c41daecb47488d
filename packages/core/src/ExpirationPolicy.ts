/**
 * Decides which failover backups of native sessions may go.
 *
 * **Details**
 *
 * Facts in, decision out: nothing here reads a clock, a file or a table. `decide` is total. It returns every
 * reason that holds, and expires a backup only when there is none: when its session can be resumed only by
 * reopening work that has been closed for longer than the window. Adding a fact that speaks for a backup
 * never makes it go.
 *
 * **Gotchas**
 *
 * A process that is not asked about its sessions, and shares neither the database nor the host service that
 * answers for it, may be using one of them.
 *
 * @since 0.1.0
 */
import { DateTime, Option } from "effect"
import type { BackupManifest } from "./BackupManifest.ts"
import type { BackupReason, Obstacle, SessionActivity } from "./BackupReason.ts"
import { canonicalSessionId, type ControlPlaneState } from "./ControlPlaneState.ts"
import type { ExpirationSettings } from "./ExpirationSettings.ts"
import type { ScopeId } from "./Ids.ts"
import { eligibleAt, isOld } from "./internal/age.ts"
import { fromRows, type SessionRows } from "./NativeSession.ts"
import { fileClock, type Now } from "./RetentionPolicy.ts"

/**
 * What is known of a session's `control-plane-state.json`. `TooLarge` is known before the file is opened.
 *
 * @category models
 * @since 0.1.0
 */
export type ControlPlane =
  | { readonly _tag: "Known"; readonly state: ControlPlaneState }
  | { readonly _tag: "Missing" }
  | { readonly _tag: "Unreadable"; readonly detail: string }
  | { readonly _tag: "TooLarge"; readonly bytes: bigint }

/**
 * What is known of a backup's manifest; a missing one is unreadable.
 *
 * @category models
 * @since 0.1.0
 */
export type Manifest =
  | { readonly _tag: "Known"; readonly manifest: BackupManifest }
  | { readonly _tag: "Unreadable"; readonly detail: string }

/**
 * One backup folder. `path` is for people to read, `modifiedAt` is the folder's mtime.
 *
 * @category models
 * @since 0.1.0
 */
export interface Backup {
  readonly path: string
  readonly manifest: Manifest
  readonly modifiedAt: DateTime.Utc
}

/**
 * Everything that is known about the backups of one session scope.
 *
 * - `backups`: `current`, a leftover `previous`, or both; they go together or not at all.
 * - `cleanupActivation`: whether a `cleanup-activation.json` lies in the session's folder.
 * - `activity`: what processes of the host are doing with the session.
 * - `obstacles`: what could not be read, and what lies where it does not belong.
 *
 * @category models
 * @since 0.1.0
 */
export interface BackupFacts {
  readonly scope: ScopeId
  readonly backups: readonly [Backup, ...ReadonlyArray<Backup>]
  readonly controlPlane: ControlPlane
  readonly cleanupActivation: boolean
  readonly activity: ReadonlyArray<SessionActivity>
  readonly held: Option.Option<{ readonly by: string; readonly note: string }>
  readonly obstacles: ReadonlyArray<Obstacle>
  readonly rows: SessionRows
}

/** @category models @since 0.1.0 */
export type Decision =
  | { readonly _tag: "Expire" }
  | { readonly _tag: "Retain"; readonly reasons: readonly [BackupReason, ...ReadonlyArray<BackupReason>] }

const controlPlaneReason = (controlPlane: ControlPlane): ReadonlyArray<BackupReason> => {
  switch (controlPlane._tag) {
    case "Known":
      return []
    case "Missing":
      return [{ _tag: "ControlPlaneMissing" }]
    case "Unreadable":
      return [{ _tag: "ControlPlaneUnreadable", detail: controlPlane.detail }]
    case "TooLarge":
      return [{ _tag: "ControlPlaneTooLarge", bytes: Number(controlPlane.bytes) }]
  }
}

const latest = (instants: ReadonlyArray<DateTime.Utc>): DateTime.Utc | undefined =>
  instants.reduce<DateTime.Utc | undefined>((a, b) => (a === undefined ? b : DateTime.max(a, b)), undefined)

/**
 * Every reason that keeps the backups of a session.
 *
 * @category queries
 * @since 0.1.0
 */
export const reasons = (
  facts: BackupFacts,
  settings: Pick<ExpirationSettings["Service"], "window">,
  now: Now
): ReadonlyArray<BackupReason> => {
  const { window } = settings
  const state = facts.controlPlane._tag === "Known" ? Option.some(facts.controlPlane.state) : Option.none()
  const session = fromRows(facts.scope, state, facts.rows, now.database)
  const found: Array<BackupReason> = [...facts.obstacles, ...controlPlaneReason(facts.controlPlane)]

  const written: Array<DateTime.Utc> = []
  for (const { manifest, modifiedAt, path } of facts.backups) {
    written.push(modifiedAt)
    if (manifest._tag === "Unreadable") {
      found.push({ _tag: "ManifestUnreadable", detail: `${path}: ${manifest.detail}` })
      continue
    }
    written.push(manifest.manifest.completedAt)
    const named = canonicalSessionId(manifest.manifest.normalizedSessionId)
    if (Option.exists(state, ({ sessionId }) => canonicalSessionId(sessionId) !== named)) {
      found.push({ _tag: "Unexpected", what: "a manifest of another session", path })
    }
  }
  for (const foreign of session.foreign) found.push({ _tag: "Unexpected", ...foreign })
  if (Option.isSome(facts.held)) found.push({ ...facts.held.value, _tag: "Held" })

  if (session.unknownRuns.length > 0) found.push({ _tag: "RunUnknown", runIds: session.unknownRuns })
  if (session.unfinishedRuns.length > 0) {
    found.push({ _tag: "RunUnfinished", runIds: session.unfinishedRuns })
  }
  if (session.unsettledRuns.length > 0) {
    found.push({ _tag: "FinalizationUnsettled", runIds: session.unsettledRuns })
  }

  if (session.issueUnknown.length > 0) found.push({ _tag: "IssueUnknown", runIds: session.issueUnknown })
  if (session.openIssues.length > 0) found.push({ _tag: "IssueOpen", issueIds: session.openIssues })
  const recent = session.closedIssues.filter(({ closedAt }) => !isOld(closedAt, window, now.database))
  const lastClosed = latest(recent.map(({ closedAt }) => closedAt))
  if (lastClosed !== undefined) {
    found.push({
      _tag: "IssueClosedRecently",
      issueIds: [...new Set(recent.map(({ id }) => id))],
      eligibleAt: eligibleAt(lastClosed, window)
    })
  }

  // A manifest and a folder's time come from files: another clock than the database's wrote them.
  const writtenAt = latest(written)
  if (writtenAt !== undefined && !isOld(writtenAt, window, fileClock(now))) {
    found.push({ _tag: "CopyRecent", writtenAt, eligibleAt: eligibleAt(writtenAt, window) })
  }

  if (session.leases.length > 0) found.push({ _tag: "LeaseReferences", leaseIds: session.leases })
  for (const state of new Set(facts.activity)) found.push({ _tag: "ActiveInProcess", state })
  if (facts.cleanupActivation) found.push({ _tag: "CleanupActivationPending" })
  return found
}

/**
 * Decides.
 *
 * @category queries
 * @since 0.1.0
 */
export const decide = (
  facts: BackupFacts,
  settings: Pick<ExpirationSettings["Service"], "window">,
  now: Now
): Decision => {
  const [first, ...rest] = reasons(facts, settings, now)
  return first === undefined ? { _tag: "Expire" } : { _tag: "Retain", reasons: [first, ...rest] }
}
