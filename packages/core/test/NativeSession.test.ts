import type { ControlPlaneState } from "../src/ControlPlaneState.ts"
import { NativeSessionId, type RunId } from "../src/Ids.ts"
import * as NativeSession from "../src/NativeSession.ts"
import { int, oneOf } from "./support/arbitraries.ts"
import {
  agentId,
  anyCase,
  companyId,
  finalization,
  issue,
  issueId,
  known,
  lease,
  leaseId,
  run,
  runId,
  scopeId,
  sessionId,
  taskSession,
  taskSessionId,
  week,
  withRows
} from "./support/backups.ts"
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, DateTime, Option, Schema } from "effect"

const state = (...others: ReadonlyArray<RunId>): Option.Option<ControlPlaneState> => {
  const controlPlane = known(...others)
  return controlPlane._tag === "Known" ? Option.some(controlPlane.state) : Option.none()
}

const now = week.now.database
const rows: NativeSession.SessionRows = {
  runs: [],
  finalizations: [],
  issues: [],
  leases: [],
  taskSessions: []
}
const none: NativeSession.NativeSession = {
  runIds: [],
  unknownRuns: [],
  unfinishedRuns: [],
  unsettledRuns: [],
  issueIds: [],
  openIssues: [],
  closedIssues: [],
  issueUnknown: [],
  leases: [],
  taskSessions: [],
  foreign: []
}

/** Rows that have nothing to do with session 1, in any state. */
const unrelated: Arbitrary.Arbitrary<NativeSession.SessionRows> = Arbitrary.map(
  Arbitrary.all({
    n: int(500, 505),
    company: int(1, 2),
    status: oneOf(["queued", "running", "succeeded", "no such status"]),
    phase: oneOf(["observed", "committed"]),
    json: Arbitrary.schema(Schema.Json),
    legacy: oneOf(["legacy", "native", null])
  }),
  ({ company, json, legacy, n, phase, status }) => {
    const owner = { companyId: companyId(company), agentId: agentId(company) }
    return {
      runs: [
        run(n, {
          ...owner,
          status,
          runtimeMode: legacy,
          finishedAt: null,
          nativeSessionId: n % 2 === 0 ? null : sessionId(n),
          nativeIssueId: issueId(n),
          contextSnapshot: json,
          retryOfRunId: runId(n + 1)
        })
      ],
      finalizations: [finalization(n, { companyId: owner.companyId, issueId: issueId(n), phase })],
      issues: [issue(n, { companyId: owner.companyId, status, completedAt: null })],
      leases: [lease(n, { status, metadata: [json, { sessionScopeSha256: scopeId(n) }] })],
      taskSessions: [
        taskSession(n, { ...owner, sessionParams: { sessionId: sessionId(n) }, lastRunId: runId(n) }),
        taskSession(n, { ...owner, sessionParams: json, lastRunId: runId(n) })
      ]
    }
  }
)

describe("NativeSession", () => {
  it("[B-06] finds the session's runs by the state file, the native session and the task sessions", () => {
    const session = NativeSession.fromRows(
      scopeId(1),
      state(runId(2), runId(8)),
      {
        ...rows,
        runs: [
          run(1),
          run(2, { nativeSessionId: null }),
          run(3),
          run(4, { nativeSessionId: sessionId(2) }),
          run(5, { nativeSessionId: null })
        ],
        taskSessions: [
          taskSession(1, { lastRunId: runId(5) }),
          taskSession(2, { lastRunId: runId(9) }),
          taskSession(3, { lastRunId: null }),
          taskSession(4, { sessionParams: { sessionId: sessionId(2) }, lastRunId: runId(4) })
        ]
      },
      now
    )
    assert.deepStrictEqual(session.runIds.toSorted(), [1, 2, 3, 5, 8, 9].map(runId))
    assert.deepStrictEqual(session.unknownRuns.toSorted(), [runId(8), runId(9)])
    assert.deepStrictEqual(session.taskSessions, [1, 2, 3].map(taskSessionId))
  })

  it("[B-06] names a task session by its parameters' session, whatever its spelling", () => {
    const names = (sessionParams: Schema.Json, id = sessionId(1)) =>
      NativeSession.names({ sessionParams }, id)
    const upper = NativeSessionId.make(sessionId(1).toUpperCase())
    assert.isTrue(names({ sessionId: sessionId(1), cwd: "/" }))
    assert.isTrue(names({ sessionId: upper }))
    assert.isTrue(names({ sessionId: sessionId(1) }, upper))
    for (const other of [
      null,
      [],
      sessionId(1),
      { sessionId: null },
      { sessionID: sessionId(1) },
      { a: 1 }
    ]) {
      assert.isFalse(names(other), JSON.stringify(other))
    }
    assert.isFalse(names({ sessionId: "Session-1" }, NativeSessionId.make("session-1")))
  })

  it("[B-05] gathers the issues of runs, their contexts and their finalizations", () => {
    const session = NativeSession.fromRows(
      scopeId(1),
      state(),
      {
        ...rows,
        runs: [
          run(1, {
            nativeIssueId: issueId(1),
            contextSnapshot: { issueId: issueId(2), taskId: issueId(3).toUpperCase(), paperclipWake: null }
          })
        ],
        finalizations: [finalization(1, { issueId: issueId(4) }), finalization(2, { issueId: issueId(5) })],
        issues: [issue(1), issue(2, { status: "todo" }), issue(3), issue(4), issue(5, { status: "todo" })]
      },
      now
    )
    assert.deepStrictEqual(session.issueIds.toSorted(), [1, 2, 3, 4].map(issueId))
    assert.deepStrictEqual(session.openIssues, [issueId(2)])
    assert.deepStrictEqual(session.closedIssues.map(({ id }) => id).toSorted(), [1, 3, 4].map(issueId))
    assert.deepStrictEqual(session.issueUnknown, [])
  })

  it("[B-05] takes an issue twice read for both that it says", () => {
    const session = NativeSession.fromRows(
      scopeId(1),
      state(),
      {
        ...rows,
        runs: [run(1), run(1, { status: "queued" })],
        issues: [issue(1), issue(1, { status: "todo" })]
      },
      now
    )
    assert.deepStrictEqual([session.openIssues, session.unfinishedRuns], [[issueId(1)], [runId(1)]])
  })

  it("[B-05] follows retries and issues to runs of other sessions, but only to unfinished ones", () => {
    const other = { nativeSessionId: sessionId(2), nativeIssueId: issueId(2), contextSnapshot: null }
    const session = NativeSession.fromRows(
      scopeId(1),
      state(),
      {
        ...rows,
        runs: [
          run(1),
          run(2, { ...other, retryOfRunId: runId(1) }),
          run(3, { ...other, retryOfRunId: runId(1), status: "scheduled_retry", finishedAt: null }),
          run(4, { ...other, contextSnapshot: { issueId: issueId(1) }, status: "queued", finishedAt: null }),
          run(5, { ...other, retryOfRunId: runId(3), status: "queued", finishedAt: null })
        ]
      },
      now
    )
    assert.deepStrictEqual(session.unfinishedRuns, [runId(3), runId(4)])
    assert.deepStrictEqual(session.runIds, [runId(1)])
  })

  it("[B-06] measures what is foreign by the state file's current run", () => {
    const session = NativeSession.fromRows(
      scopeId(1),
      state(),
      { ...rows, runs: [run(2, { companyId: companyId(2), agentId: agentId(2) }), run(1)] },
      now
    )
    assert.deepStrictEqual(session.foreign, [
      { what: "a run of another company", path: `heartbeat_runs/${runId(2)}` }
    ])
  })

  it("[B-05] finds a lease at any depth, in any case, and only one that mentions the session", () => {
    const refers = (metadata: Schema.Json) =>
      NativeSession.refersTo(
        { status: "active", cleanupStatus: null, metadata },
        scopeId(1),
        Option.some(sessionId(1))
      )
    let deep: Schema.Json = [scopeId(1).toUpperCase()]
    let harmless: Schema.Json = [scopeId(2)]
    for (let depth = 0; depth < 50_000; depth++) {
      deep = depth % 2 === 0 ? [deep] : { deep }
      harmless = depth % 2 === 0 ? [harmless] : { harmless }
    }
    assert.isTrue(refers(deep))
    assert.isFalse(refers(harmless))
    const context = run(1, { contextSnapshot: { issueId: issueId(1), taskId: deep } })
    const session = NativeSession.fromRows(scopeId(1), state(), { ...rows, runs: [context] }, now)
    assert.deepStrictEqual(session.issueUnknown, [runId(1)])
    for (const metadata of [null, {}, [], "", 1, true, { sessionScopeSha256: scopeId(2) }]) {
      assert.isFalse(refers(metadata), JSON.stringify(metadata))
    }
  })

  it("[B-05] knows leases of every status and cleanup", () => {
    const refers = (status: string, cleanupStatus: string | null) =>
      NativeSession.refersTo({ status, cleanupStatus, metadata: scopeId(1) }, scopeId(1), Option.none())
    for (const status of ["active", "released", "retained", "pending_cleanup", "Expired", ""]) {
      for (const cleanup of [null, "success", "failed", "pending", "?"])
        assert.isTrue(refers(status, cleanup))
    }
    for (const status of ["expired", "failed"]) {
      for (const cleanup of [null, "success", "failed"]) assert.isFalse(refers(status, cleanup))
      for (const cleanup of ["pending", "?", ""]) assert.isTrue(refers(status, cleanup))
    }
  })

  it("[B-05] takes only a last status with an end for finished", () => {
    for (const status of ["succeeded", "failed", "cancelled", "timed_out", "interrupted"]) {
      assert.isTrue(NativeSession.isTerminal(status))
      assert.isFalse(NativeSession.isUnfinished({ status, finishedAt: now }))
      assert.isTrue(NativeSession.isUnfinished({ status, finishedAt: null }))
    }
    for (const status of ["queued", "scheduled_retry", "running", "", "FAILED", "done"]) {
      assert.isFalse(NativeSession.isTerminal(status))
      assert.isTrue(NativeSession.isUnfinished({ status, finishedAt: now }))
    }
  })

  it("[S-12] settles a finalization of a last phase without recovery and without a live lease", () => {
    const settled = (change: Parameters<typeof finalization>[1], runtimeMode: string | null = "native") =>
      NativeSession.isSettled({ runtimeMode }, [finalization(1, change)], now)
    assert.isTrue(settled({ phase: "committed" }))
    assert.isTrue(settled({ phase: "terminal_failure" }))
    for (const phase of ["observed", "retryable_failure", "", "COMMITTED"]) assert.isFalse(settled({ phase }))
    for (const recoveryState of ["awaiting_evidence", "blocked", ""])
      assert.isFalse(settled({ recoveryState }))
    const expiresIn = (millis: number) =>
      settled({ leaseExpiresAt: DateTime.add(now, { milliseconds: millis }) })
    assert.deepStrictEqual([-1, 0, 1].map(expiresIn), [true, false, false])
    const without = (runtimeMode: string | null) => NativeSession.isSettled({ runtimeMode }, [], now)
    assert.deepStrictEqual(["legacy", "native", "Legacy", null].map(without), [true, false, false, false])
  })

  it.prop(
    "[B-06] a row that has nothing to do with the session changes nothing",
    { given: anyCase, others: Arbitrary.array(unrelated, { maxLength: 4 }) },
    ({ given: { facts }, others }) => {
      const known =
        facts.controlPlane._tag === "Known" ? Option.some(facts.controlPlane.state) : Option.none()
      const draw = (rows: NativeSession.SessionRows) => NativeSession.fromRows(facts.scope, known, rows, now)
      const more = others.reduce((all, rows) => withRows(all, rows), facts)
      assert.deepStrictEqual(draw(more.rows), draw(facts.rows))
    },
    { arbitrary: { runs: 300 } }
  )

  it("[B-06] of the rows that may concern a session are runs by every name, found or not, and their retries", () => {
    const nowhere = { nativeSessionId: null, nativeIssueId: null, contextSnapshot: null }
    const retry = (n: number, of: number) =>
      run(n, { ...nowhere, status: "queued", finishedAt: null, retryOfRunId: runId(of) })
    const known = state(runId(2), runId(8))
    const all = {
      ...rows,
      runs: [
        run(1),
        run(2, nowhere),
        run(3),
        run(5, nowhere),
        retry(20, 1),
        retry(21, 8),
        retry(22, 9),
        retry(24, 3),
        retry(23, 7)
      ],
      taskSessions: [taskSession(1, { lastRunId: runId(5) }), taskSession(2, { lastRunId: runId(9) })]
    }
    const concerning = NativeSession.bySession(all)(known)
    assert.deepStrictEqual(concerning.runs, all.runs.slice(0, -1))
    assert.deepStrictEqual(
      NativeSession.fromRows(scopeId(1), known, concerning, now),
      NativeSession.fromRows(scopeId(1), known, all, now)
    )
  })

  it.prop(
    "[B-06] the rows that may concern a session tell the same of it as the rows of all",
    { given: anyCase, others: Arbitrary.array(anyCase, { maxLength: 4 }) },
    ({ given, others }) => {
      const all = others.reduce((rows, { facts }) => withRows(rows, facts.rows), given.facts).rows
      const rowsOf = NativeSession.bySession(all)
      for (const { facts } of [given, ...others]) {
        const known =
          facts.controlPlane._tag === "Known" ? Option.some(facts.controlPlane.state) : Option.none()
        const draw = (rows: NativeSession.SessionRows) =>
          NativeSession.fromRows(facts.scope, known, rows, now)
        assert.deepStrictEqual(draw(rowsOf(known)), draw(all))
      }
    },
    { arbitrary: { runs: 300 } }
  )

  it("[B-06] knows nothing but the leases of a session without a state", () => {
    const { facts } = week
    const found = NativeSession.fromRows(
      scopeId(1),
      Option.none(),
      { ...facts.rows, leases: [lease(1), lease(2, { metadata: sessionId(1) })] },
      now
    )
    assert.deepStrictEqual(found, { ...none, leases: [leaseId(1)] })
  })
})
