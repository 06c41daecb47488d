/**
 * The model: what a host's tables say, as little as decides about copies and backups, and what follows from it.
 * It errs on one side only: what it calls kept is kept for certain.
 */
import type { Ids } from "@reclaim/core"
import type { CopyRef } from "@reclaim/fs"
import { Duration } from "effect"

const millis = (duration: Duration.Input) => Duration.toMillis(Duration.fromInputUnsafe(duration))

const grace = millis("60 minutes")
const window = millis("7 days")
const runlessPin = millis("24 hours")

/** A path in a copy and what is there, as `Disk.read` tells it. */
export type Files = Readonly<Record<string, string>>

export interface Version extends CopyRef.CopyRef {
  readonly skill: Skill
  readonly revision: number
  /** What the database would rebuild; undefined when its snapshot cannot be used. */
  files: Files | undefined
}

export interface Skill {
  readonly company: Company
  readonly skillId: Ids.SkillId
  readonly versions: Array<Version>
  current: Version | undefined
}

export interface Company {
  readonly companyId: Ids.CompanyId
  readonly agentId: Ids.AgentId
  /** What the agent's configuration asks for. */
  agent: ReadonlyArray<Version> | "unreadable"
}

export interface Run {
  readonly id: Ids.RunId
  readonly company: Company
  readonly retryOf: Run | undefined
  /** Undefined while the run has no row. */
  row:
    | {
        status: string
        readonly native: boolean
        started: boolean
        finalization: "none" | "committed" | "recovering"
      }
    | undefined
  /** Whether a selection is recorded; unknown when nobody heard of it. */
  recorded: "no" | "unknown" | "yes"
  /** What a preparation returned for, and when it was asked for the last time. */
  readonly pins: Map<Version, number>
}

export interface Session {
  readonly scope: Ids.ScopeId
  readonly sessionId: string
  readonly issueId: Ids.IssueId
  readonly owner: { readonly companyId: Ids.CompanyId; readonly agentId: Ids.AgentId }
  readonly runId: Ids.RunId
  closedAt: number | undefined
  /** Runs of the session that are not over. */
  unfinished: number
  settled: boolean
  leased: boolean
  working: boolean
  cleanup: boolean
  held: boolean
  writtenAt: number
  /** What its backup may say; none when it has none. */
  notes: ReadonlyArray<string>
}

const terminal = new Set(["succeeded", "failed"])
const waiting = new Set(["queued", "scheduled_retry"])

export class Model {
  now = 0
  readonly companies: Array<Company> = []
  readonly skills: Array<Skill> = []
  readonly runs: Array<Run> = []
  readonly sessions: Array<Session> = []
  readonly held = new Set<Version>()
  /** The earliest instant at which a copy can have been used for the last time. */
  readonly used = new Map<Version, number>()

  get versions(): ReadonlyArray<Version> {
    return this.skills.flatMap(({ versions }) => versions)
  }

  private isRetried(run: Run): boolean {
    return this.runs.some(
      ({ retryOf, row }) => retryOf === run && row !== undefined && waiting.has(row.status)
    )
  }

  private isResumable({ row }: Run): boolean {
    if (row === undefined) return false
    return row.finalization === "none" ? row.native : row.finalization === "recovering"
  }

  /** What a run does with something that was recorded for it at an instant. */
  private useOf(run: Run, recordedAt: number): "active" | "unsettled" | "none" {
    if (run.row === undefined) return this.now - recordedAt < runlessPin ? "active" : "none"
    if (!terminal.has(run.row.status)) return "active"
    return this.isRetried(run) || this.isResumable(run) ? "unsettled" : "none"
  }

  /** Whether a run has an unknown selection, which keeps its whole company. */
  private isUnknown(run: Run): boolean {
    if (run.row === undefined || run.recorded !== "no") return false
    return terminal.has(run.row.status)
      ? this.isRetried(run) || this.isResumable(run)
      : run.row.started || !waiting.has(run.row.status)
  }

  private pinned(uses: ReadonlyArray<string>): ReadonlySet<Version> {
    return new Set(
      this.runs.flatMap((run) =>
        [...run.pins].flatMap(([version, at]) => (uses.includes(this.useOf(run, at)) ? [version] : []))
      )
    )
  }

  /** Versions that active runs pin: a sweep brings them back. */
  get activelyPinned(): ReadonlySet<Version> {
    return this.pinned(["active"])
  }

  /** Why a copy must stay. */
  keeps(version: Version): ReadonlyArray<string> {
    const { company } = version.skill
    const usedAt = this.used.get(version)
    return [
      ...(version.skill.current === version ? ["current"] : []),
      ...(this.pinned(["active", "unsettled"]).has(version) ? ["pinned"] : []),
      ...(company.agent === "unreadable" ? ["agent unreadable"] : []),
      ...(company.agent !== "unreadable" && company.agent.includes(version) ? ["agent"] : []),
      ...(this.held.has(version) ? ["held"] : []),
      ...(this.runs.some((run) => run.company === company && this.isUnknown(run))
        ? ["selection unknown"]
        : []),
      ...(usedAt !== undefined && this.now - usedAt < grace ? ["used"] : [])
    ]
  }

  /** A sweep may forget the runs that are over, and their pins with them. */
  forget(): void {
    for (const run of this.runs) {
      for (const [version, at] of run.pins) if (this.useOf(run, at) === "none") run.pins.delete(version)
      if (run.pins.size === 0 && run.recorded === "yes") run.recorded = "unknown"
    }
  }

  /** Whether all conditions hold under which a backup may go. */
  mayExpire(session: Session): boolean {
    return (
      session.closedAt !== undefined &&
      this.now - session.closedAt >= window &&
      this.now - session.writtenAt >= window &&
      session.unfinished === 0 &&
      session.settled &&
      !session.leased &&
      !session.working &&
      !session.cleanup &&
      !session.held
    )
  }
}
