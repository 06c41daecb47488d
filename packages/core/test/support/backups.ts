/** Generates the facts about native sessions and their backups, with one keeper for every way to stay. */
import type { BackupManifest } from "../../src/BackupManifest.ts"
import type { BackupReason } from "../../src/BackupReason.ts"
import type { Backup, BackupFacts, ControlPlane } from "../../src/ExpirationPolicy.ts"
import { AgentId, CompanyId, IssueId, NativeSessionId, RunId, ScopeId } from "../../src/Ids.ts"
import {
  type FinalizationRow,
  type IssueRow,
  LeaseId,
  type LeaseRow,
  type RunRow,
  type SessionRows,
  TaskSessionId,
  type TaskSessionRow
} from "../../src/NativeSession.ts"
import * as Manifest from "../../src/BackupManifest.ts"
import type { Now } from "../../src/RetentionPolicy.ts"
import { clocks, int, now, oneOf, union } from "./arbitraries.ts"
import { Arbitrary, DateTime, Duration, Option } from "effect"

export const uuid = (kind: number, n: number) =>
  `00000000-0000-4000-8${kind.toString(16).padStart(3, "0")}-${n.toString(16).padStart(12, "0")}`
export const companyId = (n: number): CompanyId => CompanyId.make(uuid(1, n))
export const agentId = (n: number): AgentId => AgentId.make(uuid(2, n))
export const runId = (n: number): RunId => RunId.make(uuid(3, n))
export const issueId = (n: number): IssueId => IssueId.make(uuid(4, n))
export const leaseId = (n: number): LeaseId => LeaseId.make(uuid(5, n))
export const taskSessionId = (n: number): TaskSessionId => TaskSessionId.make(uuid(6, n))
export const sessionId = (n: number): NativeSessionId => NativeSessionId.make(uuid(0xabc, n))
export const scopeId = (n: number): ScopeId => ScopeId.make(n.toString(16).padStart(64, "f"))

export interface Settings {
  readonly window: Duration.Duration
}

export interface Case {
  readonly settings: Settings
  readonly now: Now
  readonly facts: BackupFacts
}

/** The session that everything here is about is number 1. */
export const run = (n: number, change: Partial<RunRow> = {}): RunRow => ({
  id: runId(n),
  companyId: companyId(1),
  agentId: agentId(1),
  status: "succeeded",
  runtimeMode: "native",
  nativeSessionId: sessionId(1),
  nativeIssueId: issueId(1),
  contextSnapshot: { issueId: issueId(1) },
  retryOfRunId: null,
  finishedAt: DateTime.makeUnsafe(0),
  ...change
})

export const finalization = (n: number, change: Partial<FinalizationRow> = {}): FinalizationRow => ({
  runId: runId(n),
  companyId: companyId(1),
  issueId: issueId(1),
  phase: "committed",
  leaseExpiresAt: null,
  recoveryState: null,
  ...change
})

export const issue = (n: number, change: Partial<IssueRow> = {}): IssueRow => ({
  id: issueId(n),
  companyId: companyId(1),
  status: "done",
  completedAt: DateTime.makeUnsafe(0),
  cancelledAt: null,
  ...change
})

export const lease = (n: number, change: Partial<LeaseRow> = {}): LeaseRow => ({
  id: leaseId(n),
  status: "active",
  cleanupStatus: null,
  metadata: { nativeHarnessBackup: { sessionScopeSha256: scopeId(1) } },
  ...change
})

export const taskSession = (n: number, change: Partial<TaskSessionRow> = {}): TaskSessionRow => ({
  id: taskSessionId(n),
  companyId: companyId(1),
  agentId: agentId(1),
  sessionParams: { sessionId: sessionId(1) },
  lastRunId: runId(1),
  ...change
})

export const manifest = (completedAt: DateTime.Utc, session = sessionId(1)): BackupManifest => ({
  schema: Manifest.schema,
  normalizedSessionId: session,
  runnerInstanceId: "runner-1",
  providerKind: "codex",
  driverKind: null,
  providerSessionIdentity: null,
  sourceProviderLeaseId: "lease-1",
  environmentFingerprint: null,
  runnerContractVersion: null,
  directories: [
    { name: Manifest.DirectoryName.make("runner"), sha256: `sha256:${"0".repeat(64)}`, bytes: 1 }
  ],
  completedAt
})

export const backup = (completedAt: DateTime.Utc, modifiedAt = completedAt): Backup => ({
  path: "failover-backups/current",
  manifest: { _tag: "Known", manifest: manifest(completedAt) },
  modifiedAt
})

export const known = (...others: ReadonlyArray<RunId>): ControlPlane => ({
  _tag: "Known",
  state: { sessionId: sessionId(1), currentRunId: runId(1), runIds: [runId(1), ...others] }
})

/** A session that nothing keeps: one finished run, a closed issue, an expired lease, all at `at`. */
export const free = (at: DateTime.Utc): BackupFacts => ({
  scope: scopeId(1),
  backups: [backup(at)],
  controlPlane: known(),
  cleanupActivation: false,
  activity: [],
  held: Option.none(),
  obstacles: [],
  rows: {
    runs: [run(1)],
    finalizations: [finalization(1)],
    issues: [issue(1, { completedAt: at })],
    leases: [lease(1, { status: "expired", cleanupStatus: "success" }), lease(2, { metadata: {} })],
    taskSessions: [taskSession(1)]
  }
})

type Rows = { readonly [Table in keyof SessionRows]?: SessionRows[Table] }

export const withRows = (facts: BackupFacts, rows: Rows): BackupFacts => ({
  ...facts,
  rows: {
    runs: [...facts.rows.runs, ...(rows.runs ?? [])],
    finalizations: [...facts.rows.finalizations, ...(rows.finalizations ?? [])],
    issues: [...facts.rows.issues, ...(rows.issues ?? [])],
    leases: [...facts.rows.leases, ...(rows.leases ?? [])],
    taskSessions: [...facts.rows.taskSessions, ...(rows.taskSessions ?? [])]
  }
})

/** Something that keeps a backup whatever else is known; `n` from 10 on makes it a new one. */
export interface Keeper {
  readonly reason: BackupReason["_tag"]
  /** The number of the condition in B-05; 0 for what keeps beside them. */
  readonly condition: number
  /** It shows only where the state file tells which session this is. */
  readonly needsState: boolean
  readonly add: (given: Case, n: number) => BackupFacts
}

const keeper = (
  condition: number,
  reason: BackupReason["_tag"],
  add: Keeper["add"],
  needsState = true
): Keeper => ({ condition, reason, add, needsState })

const rows = (condition: number, reason: BackupReason["_tag"], add: (n: number, given: Case) => Rows) =>
  keeper(condition, reason, (given, n) => withRows(given.facts, add(n, given)))

/** A further run of the session, with an issue of its own. */
const onIssue = (
  n: number,
  row: IssueRow | undefined,
  change: Partial<RunRow> = {},
  settled: Partial<FinalizationRow> = {}
): Rows => ({
  runs: [run(n, { nativeIssueId: issueId(n), contextSnapshot: null, ...change })],
  finalizations: [finalization(n, { issueId: null, ...settled })],
  issues: row === undefined ? [] : [row]
})

const unfinished = (change: Partial<RunRow>) =>
  rows(3, "RunUnfinished", (n) => ({ runs: [run(n, change)], finalizations: [finalization(n)] }))

/** An unfinished run of another session, agent and issue, but for one thing. */
const elsewhere = (change: Partial<RunRow>, finalizations: (n: number) => ReadonlyArray<FinalizationRow>) =>
  rows(3, "RunUnfinished", (n) => ({
    runs: [
      run(n, {
        agentId: agentId(9),
        status: "queued",
        finishedAt: null,
        nativeSessionId: sessionId(9),
        nativeIssueId: issueId(999),
        contextSnapshot: null,
        ...change
      })
    ],
    finalizations: finalizations(n)
  }))

const unsettled = (...finalizations: ReadonlyArray<Partial<FinalizationRow>>) =>
  rows(4, "FinalizationUnsettled", (n) => ({
    runs: [run(n)],
    finalizations: finalizations.map((change) => finalization(n, change))
  }))

const leases = (change: Partial<LeaseRow>) =>
  rows(5, "LeaseReferences", (n) => ({ leases: [lease(n, change)] }))

const also = (given: Case, backup: Backup): BackupFacts => ({
  ...given.facts,
  backups: [...given.facts.backups, { ...backup, path: "failover-backups/previous" }]
})

const old = DateTime.makeUnsafe(-8.64e15)
const ago = (clock: DateTime.Utc, { settings }: Case) =>
  DateTime.makeUnsafe(DateTime.toEpochMillis(clock) - Duration.toMillis(settings.window) + 1)
const earlier = ({ now }: Case) => DateTime.min(now.database, now.local)

export const keepers: Readonly<Record<string, Keeper>> = {
  "an open issue": rows(1, "IssueOpen", (n) => onIssue(n, issue(n, { status: "in_review" }))),
  "an issue of an unknown status": rows(1, "IssueOpen", (n) => onIssue(n, issue(n, { status: "archived" }))),
  "an open issue that only the context names": rows(1, "IssueOpen", (n) =>
    onIssue(n, issue(n, { status: "todo" }), {
      nativeIssueId: null,
      contextSnapshot: { issueId: issueId(n) }
    })
  ),
  "an open issue that only the context's task names, in upper case": rows(1, "IssueOpen", (n) =>
    onIssue(n, issue(n, { status: "todo" }), {
      nativeIssueId: issueId(1),
      contextSnapshot: { taskId: issueId(n).toUpperCase(), issueId: null }
    })
  ),
  "an open issue that only the finalization names": rows(1, "IssueOpen", (n) =>
    onIssue(n, issue(n, { status: "blocked" }), { nativeIssueId: issueId(1) }, { issueId: issueId(n) })
  ),
  "an issue done within the window": rows(1, "IssueClosedRecently", (n, given) =>
    onIssue(n, issue(n, { completedAt: ago(given.now.database, given), cancelledAt: old }))
  ),
  "an issue cancelled within the window": rows(1, "IssueClosedRecently", (n, given) =>
    onIssue(
      n,
      issue(n, { status: "cancelled", completedAt: old, cancelledAt: ago(given.now.database, given) })
    )
  ),
  "an issue done at no known time": rows(1, "IssueUnknown", (n) =>
    onIssue(n, issue(n, { completedAt: null, cancelledAt: old }))
  ),
  "an issue cancelled at no known time": rows(1, "IssueUnknown", (n) =>
    onIssue(n, issue(n, { status: "cancelled", completedAt: old }))
  ),
  "an issue that cannot be found": rows(1, "IssueUnknown", (n) => onIssue(n, undefined)),
  "a run without an issue": rows(1, "IssueUnknown", (n) => onIssue(n, undefined, { nativeIssueId: null })),
  "an issue that is no id": rows(1, "IssueUnknown", (n) =>
    onIssue(n, undefined, { nativeIssueId: issueId(1), contextSnapshot: { taskId: "PAP-12" } })
  ),
  "an issue that is no text": rows(1, "IssueUnknown", (n) =>
    onIssue(n, undefined, { nativeIssueId: issueId(1), contextSnapshot: { issueId: [issueId(1)] } })
  ),
  "a context that is no object": rows(1, "IssueUnknown", (n) =>
    onIssue(n, undefined, { nativeIssueId: issueId(1), contextSnapshot: [] })
  ),

  "a backup completed within the window": keeper(
    2,
    "CopyRecent",
    (given) => also(given, backup(ago(earlier(given), given), old)),
    false
  ),
  "a backup whose folder changed within the window": keeper(
    2,
    "CopyRecent",
    (given) => also(given, backup(old, ago(earlier(given), given))),
    false
  ),
  "a folder that changed within the window, without a manifest": keeper(
    2,
    "CopyRecent",
    (given) =>
      also(given, {
        ...backup(old, ago(earlier(given), given)),
        manifest: { _tag: "Unreadable", detail: "" }
      }),
    false
  ),

  "a queued run": unfinished({ status: "queued", finishedAt: null }),
  "a scheduled run": unfinished({ status: "scheduled_retry", finishedAt: null }),
  "a running run": unfinished({ status: "running", finishedAt: null }),
  "a run of an unknown status": unfinished({ status: "Succeeded" }),
  "a run without an end": unfinished({ finishedAt: null }),
  "a run that retries the session's": elsewhere({ retryOfRunId: runId(1) }, () => []),
  "a run on the session's issue": elsewhere({ nativeIssueId: issueId(1) }, () => []),
  "a run whose context names the session's issue": elsewhere(
    { nativeIssueId: null, contextSnapshot: { taskId: issueId(1) } },
    () => []
  ),
  "a run whose finalization names the session's issue": elsewhere({}, (n) => [finalization(n)]),

  "an observed finalization": unsettled({ phase: "observed" }),
  "a finalization to be tried again": unsettled({ phase: "retryable_failure" }),
  "a finalization in an unknown phase": unsettled({ phase: "Committed" }),
  "a finalization with a live lease": keeper(4, "FinalizationUnsettled", (given, n) =>
    withRows(given.facts, {
      runs: [run(n)],
      finalizations: [finalization(n, { leaseExpiresAt: given.now.database })]
    })
  ),
  "a finalization in recovery": unsettled({ phase: "terminal_failure", recoveryState: "blocked" }),
  "a native run without a finalization": unsettled(),
  "a second finalization that is not settled": unsettled({}, { phase: "observed" }),
  "a legacy run with an unsettled finalization": rows(4, "FinalizationUnsettled", (n) => ({
    runs: [run(n, { runtimeMode: "legacy" })],
    finalizations: [finalization(n, { phase: "observed" })]
  })),
  "a run of an unknown mode without a finalization": rows(4, "FinalizationUnsettled", (n) => ({
    runs: [run(n, { runtimeMode: null })]
  })),

  "an active lease": leases({}),
  "a released lease": leases({ status: "released", cleanupStatus: "success" }),
  "a retained lease": leases({ status: "retained" }),
  "a lease of an unknown status": leases({ status: "pending_cleanup" }),
  "an expired lease to be cleaned up": leases({ status: "expired", cleanupStatus: "pending" }),
  "a failed lease with an unknown cleanup": leases({ status: "failed", cleanupStatus: "running" }),
  "a lease that names the session, deep inside": leases({
    metadata: [{ a: [null, 1, { b: `x-${sessionId(1).toUpperCase()}-y` }] }]
  }),
  "a lease that mentions the scope in a key": leases({ metadata: { [scopeId(1)]: true } }),

  "an executing session": keeper(6, "ActiveInProcess", ({ facts }) => active(facts, "executing"), false),
  "an initializing session": keeper(
    6,
    "ActiveInProcess",
    ({ facts }) => active(facts, "initializing"),
    false
  ),
  "a warm session": keeper(6, "ActiveInProcess", ({ facts }) => active(facts, "warm"), false),
  "a closing session": keeper(6, "ActiveInProcess", ({ facts }) => active(facts, "closing"), false),
  "a session of which the host cannot tell": keeper(
    6,
    "ActiveInProcess",
    ({ facts }) => active(facts, "unknown"),
    false
  ),
  "a pending cleanup": keeper(
    6,
    "CleanupActivationPending",
    ({ facts }) => ({ ...facts, cleanupActivation: true }),
    false
  ),

  "a run of the state file that cannot be found": keeper(0, "RunUnknown", ({ facts }, n) => ({
    ...facts,
    controlPlane:
      facts.controlPlane._tag === "Known"
        ? {
            _tag: "Known",
            state: {
              ...facts.controlPlane.state,
              runIds: [...facts.controlPlane.state.runIds, runId(n)]
            }
          }
        : facts.controlPlane
  })),
  "a last run of a task session that cannot be found": rows(0, "RunUnknown", (n) => ({
    taskSessions: [taskSession(n, { lastRunId: runId(n) })]
  })),
  "a run of another company": rows(0, "Unexpected", (n) => ({
    runs: [run(n, { companyId: companyId(2) })],
    finalizations: [finalization(n)]
  })),
  "a run of another agent": rows(0, "Unexpected", (n) => ({
    runs: [run(n, { agentId: agentId(2) })],
    finalizations: [finalization(n)]
  })),
  "a finalization of another company": rows(0, "Unexpected", (n) => ({
    runs: [run(n)],
    finalizations: [finalization(n, { companyId: companyId(2) })]
  })),
  "an issue of another company": rows(0, "Unexpected", (n) =>
    onIssue(n, issue(n, { companyId: companyId(2), completedAt: old }))
  ),
  "a task session of another company": rows(0, "Unexpected", (n) => ({
    taskSessions: [taskSession(n, { companyId: companyId(2), lastRunId: null })]
  })),
  "a task session of another agent": rows(0, "Unexpected", (n) => ({
    taskSessions: [taskSession(n, { agentId: agentId(2), lastRunId: null })]
  })),
  "a manifest of another session": keeper(0, "Unexpected", (given) =>
    also(given, { ...backup(old), manifest: { _tag: "Known", manifest: manifest(old, sessionId(2)) } })
  ),
  "a manifest that cannot be read": keeper(
    0,
    "ManifestUnreadable",
    (given) => also(given, { ...backup(old), manifest: { _tag: "Unreadable", detail: "it is missing" } }),
    false
  ),
  "a hold": keeper(
    0,
    "Held",
    ({ facts }, n) => ({ ...facts, held: Option.some({ by: "operator", note: `case ${n}` }) }),
    false
  ),
  "something unexpected": keeper(
    0,
    "Unexpected",
    ({ facts }, n) => ({
      ...facts,
      obstacles: [...facts.obstacles, { _tag: "Unexpected", what: "a link", path: `${n}` }]
    }),
    false
  ),
  "something unreadable": keeper(
    0,
    "Unreadable",
    ({ facts }, n) => ({
      ...facts,
      obstacles: [...facts.obstacles, { _tag: "Unreadable", code: "EACCES", path: `${n}` }]
    }),
    false
  )
}

/** What takes the place of a state file; nothing is known of the session's runs then. */
export const unknownStates: Readonly<Record<string, Keeper>> = {
  "a missing state file": keeper(
    0,
    "ControlPlaneMissing",
    ({ facts }) => ({ ...facts, controlPlane: { _tag: "Missing" } }),
    false
  ),
  "an unreadable state file": keeper(
    0,
    "ControlPlaneUnreadable",
    ({ facts }) => ({ ...facts, controlPlane: { _tag: "Unreadable", detail: "no JSON" } }),
    false
  ),
  "a state file that is too large": keeper(
    0,
    "ControlPlaneTooLarge",
    ({ facts }) => ({ ...facts, controlPlane: { _tag: "TooLarge", bytes: 2n ** 63n } }),
    false
  )
}

const active = (facts: BackupFacts, state: BackupFacts["activity"][number]): BackupFacts => ({
  ...facts,
  activity: [...facts.activity, state]
})

export const window: Arbitrary.Arbitrary<Duration.Duration> = union(
  oneOf([Duration.days(1), Duration.days(7), Duration.days(36_500)]),
  Arbitrary.map(int(86_400_000, 1_000_000_000), Duration.millis)
)
export const settings: Arbitrary.Arbitrary<Settings> = Arbitrary.all({ window })

const oldEnough = (situation: { readonly settings: Settings; readonly now: Now }, more = 0) =>
  DateTime.makeUnsafe(
    Math.min(DateTime.toEpochMillis(situation.now.database), DateTime.toEpochMillis(situation.now.local)) -
      Duration.toMillis(situation.settings.window) -
      more
  )

/** A case in which nothing keeps the backup, by `more` milliseconds. */
export const freeCase = (situation: { readonly settings: Settings; readonly now: Now }, more = 0): Case => ({
  ...situation,
  facts: free(oldEnough(situation, more))
})

export const week: Case = freeCase({ settings: { window: Duration.days(7) }, now: clocks(0) })

export const anyKeeper: Arbitrary.Arbitrary<Keeper> = union(
  oneOf(Object.values(keepers)),
  oneOf(Object.values(keepers)),
  oneOf(Object.values(unknownStates))
)

/** Any session at all; about half of them may go. */
export const anyCase: Arbitrary.Arbitrary<Case> = Arbitrary.map(
  Arbitrary.all({
    settings,
    now,
    more: union(Arbitrary.Constant(0), int(0, 10_000_000)),
    keepers: union(
      Arbitrary.Constant<ReadonlyArray<Keeper>>([]),
      Arbitrary.array(anyKeeper, { maxLength: 3 })
    )
  }),
  ({ keepers, more, now, settings }) =>
    keepers.reduce<Case>(
      (given, { add }, index) => ({ ...given, facts: add(given, 10 + index) }),
      freeCase({ settings, now }, more)
    )
)
