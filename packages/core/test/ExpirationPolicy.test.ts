import { BackupReason, undecodableRow } from "../src/BackupReason.ts"
import * as ExpirationPolicy from "../src/ExpirationPolicy.ts"
import type { Now } from "../src/RetentionPolicy.ts"
import { clocks, int, now, oneOf, union } from "./support/arbitraries.ts"
import {
  anyCase,
  anyKeeper,
  backup,
  type Case,
  finalization,
  freeCase,
  issue,
  issueId,
  type Keeper,
  keepers,
  known,
  lease,
  leaseId,
  manifest,
  run,
  runId,
  sessionId,
  settings,
  taskSession,
  unknownStates,
  week,
  window,
  withRows
} from "./support/backups.ts"
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, DateTime, Duration, Effect, Option, Schema } from "effect"

type Decide = typeof ExpirationPolicy.decide
type Facts = ExpirationPolicy.BackupFacts
type Rows = Facts["rows"]

const { decide } = ExpirationPolicy

const tags = (decision: ExpirationPolicy.Decision): ReadonlyArray<BackupReason["_tag"]> =>
  decision._tag === "Expire" ? [] : decision.reasons.map(({ _tag }) => _tag)
const tagsOf = ({ facts, now, settings }: Case) => tags(decide(facts, settings, now))
const retains = (decision: ExpirationPolicy.Decision) => decision._tag === "Retain"

/** A law that every implementation of `decide` must keep, with implementations that break it. */
const law = <A>(options: {
  readonly name: string
  readonly input: Arbitrary.Arbitrary<A>
  readonly holds: (decide: Decide) => (input: A) => boolean
  readonly mutants: Readonly<Record<string, Decide>>
}) => {
  it.prop(`[C-04] ${options.name}`, { input: options.input }, ({ input }) => options.holds(decide)(input), {
    arbitrary: { runs: 500 }
  })
  for (const [name, mutant] of Object.entries(options.mutants)) {
    it.effect(`[C-04] ${options.name}: refutes ${name}`, () =>
      Effect.gen(function* () {
        const result = yield* Arbitrary.checkEffect(options.input, options.holds(mutant), {
          runs: 3_000,
          seed: "mutants"
        })
        assert.strictEqual(result._tag, "Falsified")
      })
    )
  }
}

/** The real policy over facts that a mutant misread. */
const misreading =
  (change: (facts: Facts, now: Now) => Partial<Facts>): Decide =>
  (facts, settings, now) =>
    decide({ ...facts, ...change(facts, now) }, settings, now)

const misreadingRows = (change: (rows: Rows, facts: Facts) => Partial<Rows>): Decide =>
  misreading((facts) => ({ rows: { ...facts.rows, ...change(facts.rows, facts) } }))

const longAgo = DateTime.makeUnsafe(-8.64e15)

const latestWriting = ({ manifest, modifiedAt }: ExpirationPolicy.Backup) =>
  manifest._tag === "Known" ? DateTime.max(modifiedAt, manifest.manifest.completedAt) : modifiedAt

const twoInstants = Arbitrary.flatMap(anyCase, (given) => {
  const database = DateTime.toEpochMillis(given.now.database)
  const edge = database - Duration.toMillis(given.settings.window)
  const near = Arbitrary.map(
    Arbitrary.all([oneOf([edge, database]), union(int(-2, 2), int(-2_000_000, 2_000_000))]),
    ([mark, offset]) => DateTime.makeUnsafe(mark + offset)
  )
  return Arbitrary.map(Arbitrary.all({ one: near, other: near }), (instants) => ({ ...instants, given }))
})

const neverGoesWhenNewer =
  (at: (facts: Facts, instant: DateTime.Utc) => Facts) =>
  (decide: Decide) =>
  ({
    given,
    one,
    other
  }: {
    readonly given: Case
    readonly one: DateTime.Utc
    readonly other: DateTime.Utc
  }) => {
    const decided = (instant: DateTime.Utc) => decide(at(given.facts, instant), given.settings, given.now)
    return !retains(decided(DateTime.min(one, other))) || retains(decided(DateTime.max(one, other)))
  }

describe("ExpirationPolicy", () => {
  law({
    name: "what keeps a backup keeps it whatever else is known, and hides no other reason",
    input: Arbitrary.all({ given: anyCase, keeper: anyKeeper, n: int(20, 25) }),
    holds:
      (decide) =>
      ({ given, keeper, n }) => {
        const { facts, now, settings } = given
        if (keeper.needsState && facts.controlPlane._tag !== "Known") return true
        const after = tags(decide(keeper.add(given, n), settings, now))
        // Without a state file the runs are not known, and what they say is not, either.
        const hides = keeper.reason.startsWith("ControlPlane")
        return (
          after.includes(keeper.reason) &&
          (hides || tags(decide(facts, settings, now)).every((tag) => after.includes(tag)))
        )
      },
    mutants: {
      "a policy that looks past obstacles": misreading(() => ({ obstacles: [] })),
      "a policy without holds": misreading(() => ({ held: Option.none() })),
      "a policy that does not ask the host": misreading(() => ({ activity: [] })),
      "a policy that lets warm sessions go": misreading(({ activity }) => ({
        activity: activity.filter((state) => state !== "warm")
      })),
      "a policy that ignores cleanups": misreading(() => ({ cleanupActivation: false })),
      "a policy that looks at current only": misreading(({ backups }) => ({ backups: [backups[0]] })),
      "a policy without folder times": misreading(({ backups: [first, ...rest] }) => ({
        backups: [
          { ...first, modifiedAt: longAgo },
          ...rest.map((other) => ({ ...other, modifiedAt: longAgo }))
        ]
      })),
      "a policy that takes a missing state for an empty one": misreading(({ controlPlane }) => ({
        controlPlane: controlPlane._tag === "Known" ? controlPlane : known()
      })),
      "a policy without leases": misreadingRows(() => ({ leases: [] })),
      "a policy for which released leases are gone": misreadingRows(({ leases }) => ({
        leases: leases.filter(({ status }) => status !== "released")
      })),
      "a policy without finalizations": misreadingRows(({ finalizations }) => ({
        finalizations: finalizations.map((row) => ({ ...row, phase: "committed", recoveryState: null }))
      })),
      "a policy without finalization leases": misreadingRows(({ finalizations }) => ({
        finalizations: finalizations.map((row) => ({ ...row, leaseExpiresAt: null }))
      })),
      "a policy for which a native run needs no finalization": misreadingRows(({ finalizations, runs }) => ({
        finalizations: [
          ...finalizations,
          ...runs.flatMap(({ id }) =>
            finalizations.some((row) => row.runId === id)
              ? []
              : [finalization(1, { runId: id, issueId: null })]
          )
        ]
      })),
      "a policy that looks at the current run only": misreadingRows(({ runs }) => ({
        runs: runs.filter(({ id }) => id === runId(1))
      })),
      "a policy that sees no retries": misreadingRows(({ runs }) => ({
        runs: runs.map((row) => ({ ...row, retryOfRunId: null }))
      })),
      "a policy that trusts the status without the end": misreadingRows(({ runs }) => ({
        runs: runs.map((row) => ({ ...row, finishedAt: longAgo }))
      })),
      "a policy that trusts the end without the status": misreadingRows(({ runs }) => ({
        runs: runs.map((row) => (row.finishedAt === null ? row : { ...row, status: "failed" }))
      })),
      "a policy without contexts": misreadingRows(({ runs }) => ({
        runs: runs.map((row) => ({ ...row, contextSnapshot: null }))
      })),
      "a policy that closes issues at either time": misreadingRows(({ issues }) => ({
        issues: issues.map((row) => ({
          ...row,
          completedAt: row.completedAt ?? row.cancelledAt,
          cancelledAt: row.cancelledAt ?? row.completedAt
        }))
      })),
      "a policy that closes what is in review": misreadingRows(({ issues }) => ({
        issues: issues.map((row) => (row.status === "in_review" ? { ...row, status: "done" } : row))
      })),
      "a policy that lets foreign runs be": misreadingRows(({ runs }) => ({
        runs: runs.filter((row) => row.companyId === runs[0]!.companyId && row.agentId === runs[0]!.agentId)
      })),
      "a policy that takes foreign task sessions along": misreadingRows(({ runs, taskSessions }) => ({
        taskSessions: taskSessions.map((row) => ({
          ...row,
          companyId: runs[0]!.companyId,
          agentId: runs[0]!.agentId
        }))
      })),
      "a policy that invents what it cannot find": misreadingRows(({ finalizations, runs }, facts) => {
        const wanted =
          facts.controlPlane._tag === "Known"
            ? facts.controlPlane.state.runIds.filter((id) => runs.every((row) => row.id !== id))
            : []
        return {
          runs: [...runs, ...wanted.map((id) => run(1, { id }))],
          finalizations: [...finalizations, ...wanted.map((id) => finalization(1, { runId: id }))]
        }
      }),
      "a policy that stops at the first reason": (facts, settings, now) => {
        const decision = decide(facts, settings, now)
        return decision._tag === "Expire" ? decision : { _tag: "Retain", reasons: [decision.reasons[0]] }
      }
    }
  })

  law({
    name: "a later closing never makes a backup go",
    input: twoInstants,
    holds: neverGoesWhenNewer((facts, at) =>
      withRows(facts, {
        runs: [run(7, { nativeIssueId: issueId(7) })],
        finalizations: [finalization(7)],
        issues: [issue(7, { status: "cancelled", cancelledAt: at })]
      })
    ),
    mutants: {
      "a policy that takes a closing in the future for an old one": misreading(({ rows }, now) => ({
        rows: {
          ...rows,
          issues: rows.issues.map((row) =>
            row.cancelledAt !== null && DateTime.isGreaterThan(row.cancelledAt, now.database)
              ? { ...row, cancelledAt: longAgo }
              : row
          )
        }
      }))
    }
  })

  law({
    name: "a later writing never makes a backup go",
    input: twoInstants,
    holds: (decide) => (input) =>
      [
        neverGoesWhenNewer((facts, at) => ({ ...facts, backups: [...facts.backups, backup(at, longAgo)] })),
        neverGoesWhenNewer((facts, at) => ({ ...facts, backups: [...facts.backups, backup(longAgo, at)] }))
      ].every((holds) => holds(decide)(input)),
    mutants: {
      "a policy that takes a writing in the future for an old one": misreading(({ backups }, now) => ({
        backups: [
          backups[0],
          ...backups.slice(1).filter((other) => !DateTime.isGreaterThan(latestWriting(other), now.database))
        ]
      }))
    }
  })

  law({
    name: "a longer window never makes a backup go",
    input: Arbitrary.all({ given: anyCase, other: window }),
    holds:
      (decide) =>
      ({ given: { facts, now, settings }, other }) => {
        const under = (window: Duration.Duration) => decide(facts, { window }, now)
        return (
          !retains(under(Duration.min(settings.window, other))) ||
          retains(under(Duration.max(settings.window, other)))
        )
      },
    mutants: {
      "a policy whose window overflows": (facts, settings, now) =>
        decide(
          facts,
          {
            window: Duration.isGreaterThan(settings.window, Duration.days(10_000))
              ? Duration.zero
              : settings.window
          },
          now
        )
    }
  })

  law({
    name: "with nothing that keeps it, a backup goes exactly when the window is over",
    input: Arbitrary.all({ settings, now, more: union(int(-1, 1), int(-1_000, 1_000)) }),
    holds:
      (decide) =>
      ({ more, now, settings }) => {
        const { facts } = freeCase({ settings, now }, more)
        return retains(decide(facts, settings, now)) === more < 0
      },
    mutants: {
      "a policy with > for >= at the end of the window": (facts, settings, now) =>
        decide(facts, { window: Duration.sum(settings.window, Duration.millis(1)) }, now),
      "a policy whose window ends early": (facts, settings, now) =>
        decide(facts, { window: Duration.subtract(settings.window, Duration.millis(1)) }, now),
      "a policy on the local clock alone": (facts, settings, now) =>
        decide(facts, settings, { database: now.local, local: now.local }),
      "a policy on the database's clock alone": (facts, settings, now) =>
        decide(facts, settings, { database: now.database, local: now.database }),
      "a policy that keeps everything": () => ({ _tag: "Retain", reasons: [{ _tag: "ControlPlaneMissing" }] })
    }
  })

  it("[B-05] expires a backup when all six conditions hold", () => {
    assert.deepStrictEqual(decide(week.facts, week.settings, week.now), { _tag: "Expire" })
  })

  for (const [name, keeper] of Object.entries(keepers)) {
    const { condition, reason } = keeper
    it(`[${condition === 0 ? "B-06" : "B-05"}] ${condition === 0 ? "" : `${condition}: `}${name} keeps a backup`, () => {
      const expected = new Set([reason])
      if (name === "a folder that changed within the window, without a manifest") {
        expected.add("ManifestUnreadable")
      }
      assert.deepStrictEqual(new Set(tagsOf({ ...week, facts: keeper.add(week, 10) })), expected)
    })
  }

  for (const [name, keeper] of Object.entries(unknownStates)) {
    it(`[B-06] ${name} keeps a backup`, () => {
      assert.deepStrictEqual(tagsOf({ ...week, facts: keeper.add(week, 10) }), [keeper.reason])
    })
  }

  it("[B-05] settles what is over: legacy runs, last phases, lapsed leases, ended environment leases", () => {
    const lapsed = DateTime.subtractDuration(week.now.database, Duration.millis(1))
    const facts = withRows(week.facts, {
      runs: [
        run(2, { runtimeMode: "legacy" }),
        ...["failed", "cancelled", "timed_out", "interrupted"].map((status, index) =>
          run(3 + index, { status })
        )
      ],
      finalizations: [3, 4, 5, 6].map((n) =>
        finalization(n, { phase: "terminal_failure", leaseExpiresAt: lapsed })
      ),
      leases: [lease(3, { status: "failed", cleanupStatus: "failed" }), lease(4, { status: "expired" })]
    })
    assert.deepStrictEqual(tagsOf({ ...week, facts }), [])
  })

  it("[B-05] counts a cancelled issue from its cancelling, a done one from its completion", () => {
    const recent = week.now.database
    const at = (row: Parameters<typeof issue>[1]) =>
      tagsOf({
        ...week,
        facts: withRows(week.facts, {
          runs: [run(2, { nativeIssueId: issueId(2) })],
          finalizations: [finalization(2)],
          issues: [issue(2, row)]
        })
      })
    assert.deepStrictEqual(at({ status: "done", completedAt: longAgo, cancelledAt: recent }), [])
    assert.deepStrictEqual(at({ status: "cancelled", completedAt: recent, cancelledAt: longAgo }), [])
    assert.deepStrictEqual(at({ status: "cancelled", completedAt: longAgo, cancelledAt: recent }), [
      "IssueClosedRecently"
    ])
  })

  it("[B-05] looks at every backup, whatever is wrong with the first", () => {
    const [first] = week.facts.backups
    const unreadable = { ...first, manifest: { _tag: "Unreadable" as const, detail: "no JSON" } }
    const facts: Facts = { ...week.facts, backups: [unreadable, backup(week.now.database)] }
    assert.deepStrictEqual(tagsOf({ ...week, facts }), ["ManifestUnreadable", "CopyRecent"])
  })

  it("[C-05] measures issues with the database's clock, files with the earlier of the two", () => {
    const under = (drift: number) => tagsOf({ ...week, now: clocks(0, drift) })
    assert.deepStrictEqual(under(0), [])
    assert.deepStrictEqual(under(1_000), [])
    assert.deepStrictEqual(under(-1), ["CopyRecent"], "a local clock that is behind may only veto")
    assert.deepStrictEqual(tagsOf({ ...week, now: clocks(-1, 1_000_000) }), [
      "IssueClosedRecently",
      "CopyRecent"
    ])
  })

  it("[C-04] carries the details of every reason", () => {
    const at = week.now.database
    const given = Object.values(keepers)
      .filter(({ condition }) => condition === 6)
      .reduce<Case>((given, { add }) => ({ ...given, facts: add(given, 7) }), week)
    const facts: Facts = {
      ...withRows(given.facts, {
        runs: [
          run(2, { status: "queued", finishedAt: null, nativeIssueId: issueId(2) }),
          run(3, { nativeIssueId: issueId(3), contextSnapshot: null }),
          run(4, { nativeIssueId: null, contextSnapshot: null })
        ],
        finalizations: [finalization(3), finalization(4, { issueId: null })],
        issues: [issue(2, { status: "todo" }), issue(3, { completedAt: at })],
        leases: [lease(7)],
        taskSessions: [taskSession(7, { lastRunId: runId(5) })]
      }),
      backups: [
        { ...backup(at), manifest: { _tag: "Known", manifest: manifest(at, sessionId(2)) } },
        {
          ...backup(longAgo),
          path: "failover-backups/previous",
          manifest: { _tag: "Unreadable", detail: "no JSON" }
        }
      ],
      held: Option.some({ by: "operator", note: "mine" }),
      obstacles: [undecodableRow("issues", "9")]
    }
    const eligibleAt = DateTime.addDuration(at, Duration.days(7))
    assert.deepStrictEqual(decide(facts, week.settings, week.now), {
      _tag: "Retain",
      reasons: [
        { _tag: "Unreadable", code: "undecodable row", path: "issues/9" },
        { _tag: "Unexpected", what: "a manifest of another session", path: "failover-backups/current" },
        { _tag: "ManifestUnreadable", detail: "failover-backups/previous: no JSON" },
        { _tag: "Held", by: "operator", note: "mine" },
        { _tag: "RunUnknown", runIds: [runId(5)] },
        { _tag: "RunUnfinished", runIds: [runId(2)] },
        { _tag: "FinalizationUnsettled", runIds: [runId(2)] },
        { _tag: "IssueUnknown", runIds: [runId(4)] },
        { _tag: "IssueOpen", issueIds: [issueId(2)] },
        { _tag: "IssueClosedRecently", issueIds: [issueId(3)], eligibleAt },
        { _tag: "CopyRecent", writtenAt: at, eligibleAt },
        { _tag: "LeaseReferences", leaseIds: [leaseId(7)] },
        { _tag: "ActiveInProcess", state: "executing" },
        { _tag: "ActiveInProcess", state: "initializing" },
        { _tag: "ActiveInProcess", state: "warm" },
        { _tag: "ActiveInProcess", state: "closing" },
        { _tag: "ActiveInProcess", state: "unknown" },
        { _tag: "CleanupActivationPending" }
      ]
    })
  })

  it("[C-04] keeps what leases say of the scope when the session is not known", () => {
    const facts = withRows(unknownStates["a missing state file"]!.add(week, 1), {
      leases: [lease(3), lease(4, { metadata: { id: sessionId(1) } })]
    })
    assert.deepStrictEqual(decide(facts, week.settings, week.now), {
      _tag: "Retain",
      reasons: [{ _tag: "ControlPlaneMissing" }, { _tag: "LeaseReferences", leaseIds: [leaseId(3)] }]
    })
  })

  it.prop(
    "[C-04] decides every case, with reasons that can be written down",
    {
      given: anyCase,
      keeper: anyKeeper,
      window: union(window, Arbitrary.Constant(Duration.infinity)),
      at: int(-8.64e15, 8.64e15),
      json: Arbitrary.schema(Schema.Json),
      texts: Arbitrary.array(Arbitrary.schema(Schema.String), { minLength: 4, maxLength: 4 })
    },
    ({ at, given, json, keeper, texts, window }) => {
      const instant = DateTime.makeUnsafe(at)
      const [status, phase, mode, cleanupStatus] = texts
      const facts = withRows(keeper.add(given, 30), {
        runs: [run(40, { status: status!, runtimeMode: mode!, contextSnapshot: json, finishedAt: instant })],
        finalizations: [finalization(40, { phase: phase!, leaseExpiresAt: instant })],
        issues: [issue(40, { status: status!, completedAt: instant, cancelledAt: instant })],
        leases: [lease(40, { status: status!, cleanupStatus: cleanupStatus!, metadata: json })],
        taskSessions: [taskSession(40, { sessionParams: json })]
      })
      const backups: Facts["backups"] = [backup(instant), ...facts.backups]
      const decision = decide({ ...facts, backups }, { window }, given.now)
      if (decision._tag === "Expire") return assert.fail("a hostile run let its backup go")
      const written = Schema.encodeSync(Schema.Array(BackupReason))(decision.reasons)
      const text = JSON.stringify(written)
      assert.deepStrictEqual(Schema.decodeUnknownSync(Schema.Array(BackupReason))(JSON.parse(text)), [
        ...decision.reasons
      ])
    },
    { arbitrary: { runs: 500 } }
  )

  it("[C-04] has a keeper for every reason", () => {
    const all: ReadonlyArray<Keeper> = [...Object.values(keepers), ...Object.values(unknownStates)]
    assert.deepStrictEqual(
      [...new Set(all.map(({ reason }) => reason))].toSorted(),
      Object.keys(BackupReason.cases).toSorted()
    )
  })
})
