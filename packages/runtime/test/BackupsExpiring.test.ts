import { assert, describe, layer } from "@effect/vitest"
import { Holds, Journal } from "@reclaim/db"
import { DateTime, Duration, Effect, Option, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Fs from "node:fs"
import { BackupExpiration, SessionActivity } from "../src/index.ts"
import * as World from "./support/SessionsWorld.ts"

const { Make } = World
const within = DateTime.subtractDuration(World.noon, Duration.days(3))

layer(World.layer(), { excludeTestServices: true })("expiring", (it) => {
  it.effect(
    "[B-05] when all hold, the backup goes, and with it the task sessions that name the session",
    () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* World.expirable()
        const other = yield* World.expirable({ issue: { status: "in_progress" } })
        const report = yield* World.sweepOnce()
        assert.deepInclude(report, {
          checked: 2,
          candidates: 1,
          expired: 1,
          clearedTaskSessions: 1,
          recovered: 0,
          errors: 0
        })
        assert.isAbove(Number(report.candidateAllocatedBytes), 0)
        assert.strictEqual(report.reclaimedAllocatedBytes, report.candidateAllocatedBytes)
        assert.deepStrictEqual(report.skipped, { IssueOpen: 1 })
        assert.deepStrictEqual(yield* World.names(session), [])
        assert.deepStrictEqual(yield* World.names(other), ["current"])
        assert.strictEqual(yield* World.taskSessions(session), 0)
        assert.strictEqual(yield* World.taskSessions(other), 1)
        assert.deepStrictEqual(yield* World.events(session), ["expired"])
        assert.deepStrictEqual(yield* World.events(other), [])
      })
  )

  describe("each condition alone keeps", () => {
    type Case = readonly [
      promise: string,
      what: string,
      reason: string,
      prepare: Effect.Effect<{ readonly scope: World.Scope }, unknown, World.Services>
    ]
    const cases: ReadonlyArray<Case> = [
      ["B-05", "an issue that is open", "IssueOpen", World.expirable({ issue: { status: "in_review" } })],
      [
        "B-05",
        "an issue closed within the window",
        "IssueClosedRecently",
        World.expirable({ issue: { completedAt: within } })
      ],
      [
        "B-05",
        "a cancelled issue whose other instant is old",
        "IssueClosedRecently",
        World.expirable({ issue: { status: "cancelled", completedAt: Make.longAgo, cancelledAt: within } })
      ],
      [
        "B-05",
        "a done issue without its instant",
        "IssueUnknown",
        World.expirable({ issue: { completedAt: null } })
      ],
      [
        "B-05",
        "a done issue that is done for ever",
        "IssueClosedRecently",
        World.expirable({ issue: { completedAt: "infinity" } })
      ],
      ["B-05", "no issue at all", "IssueUnknown", World.expirable({ issue: null, run: { mode: "legacy" } })],
      [
        "B-05",
        "a second issue that is open, of an older run",
        "IssueOpen",
        Effect.tap(World.expirable(), (session) =>
          Effect.flatMap(Make.issue(session, { status: "todo" }), (issueId) =>
            Effect.flatMap(
              Make.run(session, { sessionId: session.sessionId, context: { issueId } }),
              (runId) => Make.finalization(session, runId, { issueId: session.issueId! })
            )
          )
        )
      ],
      [
        "B-05",
        "a backup written within the window",
        "CopyRecent",
        World.expirable({ backups: [{ completedAt: within }] })
      ],
      [
        "B-05",
        "a previous written within the window",
        "CopyRecent",
        World.expirable({ backups: [{}, { name: "previous", completedAt: within }] })
      ],
      [
        "B-05",
        "a folder touched within the window",
        "CopyRecent",
        Effect.tap(World.expirable(), (session) =>
          Effect.map(World.pathOf(session.scope), (path) =>
            Fs.utimesSync(`${path}/failover-backups/current`, new Date(), DateTime.toDateUtc(within))
          )
        )
      ],
      [
        "B-05",
        "a run of the session that is queued",
        "RunUnfinished",
        Effect.tap(World.expirable(), (session) =>
          Make.run(session, { status: "queued", finishedAt: null, sessionId: session.sessionId })
        )
      ],
      ["B-05", "a run without an end", "RunUnfinished", World.expirable({ run: { finishedAt: null } })],
      ["B-05", "a run of an unknown status", "RunUnfinished", World.expirable({ run: { status: "parked" } })],
      [
        "B-05",
        "a scheduled retry of one of its runs",
        "RunUnfinished",
        Effect.tap(World.expirable(), (session) =>
          Make.run(session, {
            status: "scheduled_retry",
            finishedAt: null,
            retryOf: session.runId,
            mode: "legacy"
          })
        )
      ],
      [
        "B-05",
        "another run on its issue",
        "RunUnfinished",
        Effect.tap(World.expirable(), (session) =>
          Make.run(session, { status: "running", finishedAt: null, context: { taskId: session.issueId } })
        )
      ],
      [
        "B-05",
        "a finalization that is not over",
        "FinalizationUnsettled",
        World.expirable({ finalization: { phase: "observed" } })
      ],
      ["B-05", "no finalization", "FinalizationUnsettled", World.expirable({ finalization: null })],
      [
        "B-05",
        "a recovery that goes on",
        "FinalizationUnsettled",
        World.expirable({ finalization: { recovery: "resuming_session" } })
      ],
      [
        "B-05",
        "a live lease of a finalization",
        "FinalizationUnsettled",
        World.expirable({ finalization: { lease: World.noon } })
      ],
      ...(["active", "released", "retained", "pending_cleanup"] as const).map((status): Case => [
        "B-05",
        `a lease that is ${status}`,
        "LeaseReferences",
        Effect.tap(World.expirable(), (session) =>
          Make.lease(session, { status, metadata: { nativeHarnessBackup: { scope: session.scope } } })
        )
      ]),
      [
        "B-05",
        "an expired lease whose cleanup is pending",
        "LeaseReferences",
        Effect.tap(World.expirable(), (session) =>
          Make.lease(session, { status: "expired", cleanup: "pending", metadata: [session.sessionId] })
        )
      ],
      [
        "B-05",
        "a cleanup activation",
        "CleanupActivationPending",
        Effect.tap(World.expirable(), (session) =>
          Effect.map(World.pathOf(session.scope), (path) =>
            Fs.symlinkSync("/none", `${path}/cleanup-activation.json`)
          )
        )
      ],
      [
        "B-06",
        "a run of another company",
        "Unexpected",
        Effect.tap(World.expirable(), ({ sessionId }) =>
          Effect.flatMap(Make.owner, (stranger) =>
            Effect.flatMap(Make.issue(stranger), (issueId) =>
              Effect.flatMap(Make.run(stranger, { sessionId, issueId }), (runId) =>
                Make.finalization(stranger, runId, { issueId })
              )
            )
          )
        )
      ],
      [
        "B-06",
        "a run of another agent",
        "Unexpected",
        Effect.tap(World.expirable(), (session) =>
          Effect.flatMap(Make.agent(session.companyId), (agentId) =>
            Effect.flatMap(
              Make.run({ ...session, agentId }, { sessionId: session.sessionId, issueId: session.issueId }),
              (runId) => Make.finalization(session, runId, { issueId: session.issueId! })
            )
          )
        )
      ],
      [
        "B-06",
        "a task session of another company",
        "Unexpected",
        Effect.tap(World.expirable(), ({ sessionId }) =>
          Effect.flatMap(Make.owner, (stranger) => Make.taskSession(stranger, { params: { sessionId } }))
        )
      ],
      [
        "B-06",
        "a manifest of another session",
        "Unexpected",
        World.expirable({ backups: [{ sessionId: crypto.randomUUID() }] })
      ],
      [
        "B-06",
        "a run that cannot be found",
        "RunUnknown",
        Effect.tap(World.expirable(), (session) => World.state({ ...session, runId: crypto.randomUUID() }))
      ],
      [
        "B-06",
        "an issue that cannot be found",
        "IssueUnknown",
        World.expirable({ run: { context: { issueId: crypto.randomUUID() } } })
      ],
      [
        "B-06",
        "a state file of an unknown schema",
        "ControlPlaneUnreadable",
        Effect.tap(World.expirable(), (session) => World.state(session, `{"schema":"x"}`))
      ],
      [
        "B-06",
        "a state file that is no JSON",
        "ControlPlaneUnreadable",
        Effect.tap(World.expirable(), (session) => World.state(session, "{"))
      ],
      [
        "B-06",
        "a state file over 4 MiB",
        "ControlPlaneTooLarge",
        Effect.tap(World.expirable(), (session) =>
          World.state(session, Make.stateText(session.sessionId, session.runId).padEnd(4 * 1024 * 1024 + 1))
        )
      ],
      [
        "B-06",
        "a state file that is missing",
        "ControlPlaneMissing",
        Effect.tap(World.expirable(), (session) =>
          Effect.map(World.pathOf(session.scope), (path) =>
            Fs.rmSync(`${path}/control-plane`, { recursive: true })
          )
        )
      ],
      [
        "B-06",
        "a state file that is a link",
        "ControlPlaneUnreadable",
        Effect.tap(World.expirable(), (session) =>
          Effect.map(World.pathOf(session.scope), (path) => {
            const file = `${path}/control-plane/control-plane-state.json`
            Fs.renameSync(file, `${path}/real.json`)
            Fs.symlinkSync("../real.json", file)
          })
        )
      ],
      [
        "C-04",
        "a manifest that is missing",
        "ManifestUnreadable",
        World.expirable({ backups: [{ manifest: false }] })
      ],
      [
        "C-04",
        "a manifest that is no JSON",
        "ManifestUnreadable",
        World.expirable({ backups: [{ manifest: "{" }] })
      ],
      [
        "F-01",
        "a link where the backup belongs",
        "Unexpected",
        Effect.tap(World.expirable({ backups: [{ name: "elsewhere" }] }), (session) =>
          Effect.map(World.pathOf(session.scope), (path) => {
            Fs.renameSync(`${path}/failover-backups/elsewhere`, `${path}/elsewhere`)
            Fs.symlinkSync("../elsewhere", `${path}/failover-backups/current`)
          })
        )
      ],
      [
        "F-01",
        "a link where the folder of the backups belongs",
        "Unexpected",
        Effect.tap(World.expirable(), (session) =>
          Effect.map(World.pathOf(session.scope), (path) => {
            Fs.renameSync(`${path}/failover-backups`, `${path}/elsewhere`)
            Fs.symlinkSync("elsewhere", `${path}/failover-backups`)
          })
        )
      ],
      [
        "F-01",
        "a link where the session's folder belongs",
        "Unexpected",
        Effect.tap(World.expirable(), (session) =>
          Effect.map(World.pathOf(session.scope), (path) => {
            Fs.renameSync(path, `${path}.elsewhere`)
            Fs.symlinkSync(`${path}.elsewhere`, path)
          })
        )
      ],
      [
        "O-07",
        "an operator",
        "Held",
        Effect.tap(World.expirable(), ({ scope }) =>
          Effect.flatMap(Holds.Holds, (holds) => holds.holdScope(scope, "ops", "look at it"))
        )
      ]
    ]
    for (const [promise, what, reason, prepare] of cases) {
      it.effect(`[${promise}] ${what} keeps it: ${reason}`, () =>
        Effect.gen(function* () {
          yield* World.begin
          const session = yield* prepare
          const before = yield* World.picture
          const told = yield* World.reasons(session)
          assert.isTrue(
            told?.some(({ _tag }) => _tag === reason),
            JSON.stringify(told)
          )
          const report = yield* World.sweepOnce()
          assert.strictEqual(report.candidates, 0)
          assert.strictEqual(report.skipped[reason], 1)
          assert.strictEqual(yield* World.picture, before)
        })
      )
    }

    for (const activity of ["executing", "initializing", "warm", "closing", "unknown"] as const) {
      it.effect(`[B-05] a session that is ${activity} in this process keeps it, until it is not`, () =>
        Effect.gen(function* () {
          yield* World.begin
          const session = yield* World.expirable()
          const tracker = yield* SessionActivity.SessionTracker
          yield* Effect.scoped(
            Effect.gen(function* () {
              yield* tracker.track(session.scope, activity)
              yield* Effect.scoped(tracker.track(session.scope, activity))
              assert.deepStrictEqual(yield* World.reasons(session), [
                { _tag: "ActiveInProcess", state: activity }
              ])
              assert.deepStrictEqual((yield* World.sweepOnce()).skipped, { ActiveInProcess: 1 })
            })
          )
          assert.strictEqual((yield* World.sweepOnce()).expired, 1)
        })
      )
    }
  })

  it.effect("[B-05] the window is exact: a millisecond before it the backup stays, then it goes", () =>
    Effect.gen(function* () {
      yield* World.begin
      const session = yield* World.expirable({ issue: { completedAt: World.noon } })
      yield* World.advance(Duration.subtract(Duration.days(7), Duration.millis(1)))
      assert.deepStrictEqual(yield* World.reasons(session), [
        {
          _tag: "IssueClosedRecently",
          issueIds: [session.issueId!],
          eligibleAt: DateTime.addDuration(World.noon, Duration.days(7))
        }
      ])
      assert.strictEqual((yield* World.sweepOnce()).expired, 0)
      yield* World.advance(Duration.millis(1))
      assert.strictEqual((yield* World.sweepOnce()).expired, 1)
    })
  )

  it.effect("[O-07] a scope that is no longer held goes", () =>
    Effect.gen(function* () {
      yield* World.begin
      const session = yield* World.expirable()
      const holds = yield* Holds.Holds
      yield* holds.holdScope(session.scope, "ops", "first")
      yield* holds.holdScope(session.scope, "night shift", "second")
      assert.deepStrictEqual(yield* World.reasons(session), [
        { _tag: "Held", by: "night shift", note: "second" }
      ])
      yield* holds.unholdScope(session.scope)
      assert.strictEqual((yield* World.sweepOnce()).expired, 1)
    })
  )

  it.effect("[B-10] nothing else of the session or beside it changes", () =>
    Effect.gen(function* () {
      yield* World.begin
      const session = yield* World.expirable({ backups: [{}, { name: "previous" }] })
      const { path } = yield* World.Instance
      const folder = yield* World.pathOf(session.scope)
      const root = folder.slice(0, folder.lastIndexOf("/"))
      const write = (file: string) => {
        Fs.mkdirSync(file.slice(0, file.lastIndexOf("/")), { recursive: true })
        Fs.writeFileSync(file, file)
      }
      write(`${folder}/runner/runner-state.json`)
      write(`${folder}/codex-home/sessions/x.jsonl`)
      write(`${folder}/runtime-context.json`)
      write(`${root}/quarantine/${session.scope}.broken.1.2.x/failover-backups/current/manifest.json`)
      write(`${root}/${session.scope}.cleanup-XXXXXX/failover-backups/.expired-${crypto.randomUUID()}/x`)
      write(`${root}/${session.scope.toUpperCase()}/failover-backups/.expired-${crypto.randomUUID()}/x`)
      write(`${path}/runtime/paperclip-runner/sessions/${session.scope}.json`)
      write(`${path}/skills/${session.companyId}/__versions__/x/y/SKILL.md`)
      const before = (yield* World.picture).split("\n")
      const report = yield* World.sweepOnce()
      assert.deepInclude(report, { checked: 1, expired: 1 })
      const after = new Set((yield* World.picture).split("\n"))
      const gone = before.filter((line) => !after.has(line))
      const prefix = `${folder.slice(path.length + 1)}/failover-backups`
      assert.isAbove(gone.length, 0)
      for (const line of gone) assert.include(line, prefix)
      assert.strictEqual(after.size + gone.length - 1, before.length)
    })
  )

  it.effect("[B-11] a dry run reports the same and changes nothing, on disk or in tables", () =>
    Effect.gen(function* () {
      yield* World.begin
      const session = yield* World.expirable({ backups: [{}, { name: "previous" }] })
      yield* World.expirable({ issue: { status: "todo" } })
      for (const name of [".retiring-", ".expired-", ".pending-"]) {
        yield* World.backup(session, { name: `${name}${crypto.randomUUID()}` })
      }
      const disk = yield* World.picture
      const rows = yield* World.tables
      const [batch] = yield* World.sweep({ dryRun: true })
      assert.deepInclude(batch!.report, {
        checked: 2,
        candidates: 1,
        expired: 0,
        reclaimedAllocatedBytes: 0n,
        clearedTaskSessions: 0,
        recovered: 0
      })
      assert.isTrue(batch!.dryRun)
      assert.strictEqual(yield* World.picture, disk)
      assert.deepStrictEqual(yield* World.tables, rows)
      const real = yield* World.sweepOnce()
      assert.strictEqual(real.candidates, 1)
      assert.strictEqual(real.candidateAllocatedBytes, batch!.report.candidateAllocatedBytes)
    })
  )

  it.effect("[B-11] one line tells of a batch with candidates, and none of a batch without", () =>
    Effect.gen(function* () {
      yield* World.begin
      yield* World.expirable({ issue: { status: "todo" } })
      const quiet = yield* World.logged(World.sweepOnce())
      assert.deepStrictEqual(quiet, [])
      yield* World.expirable()
      const [line, ...more] = yield* World.logged(World.sweepOnce())
      assert.deepStrictEqual(more, [])
      assert.deepInclude(line!.annotations, {
        worker: "backups",
        candidates: 1,
        expired: 1,
        clearedTaskSessions: 1,
        dryRun: false,
        skipped: { IssueOpen: 1 }
      })
      assert.strictEqual(
        line!.annotations["reclaimedAllocatedBytes"],
        line!.annotations["candidateAllocatedBytes"]
      )
    })
  )

  it.effect("[S-29] the journal tells what went, when, how much and where from", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, scope } = yield* World.expirable()
      const report = yield* World.sweepOnce()
      const journal = yield* Journal.Journal
      const [row, ...more] = yield* Stream.runCollect(journal.since(DateTime.makeUnsafe(0)))
      assert.deepStrictEqual(more, [])
      assert.deepInclude(row, {
        worker: "backups",
        event: "expired",
        companyId,
        scope,
        at: World.noon,
        allocatedBytes: report.candidateAllocatedBytes,
        server: "server-a"
      })
    })
  )

  it.effect("[B-04] a second sweep of this process is refused while the first one runs", () =>
    Effect.gen(function* () {
      yield* World.begin
      yield* World.expirable()
      const expiration = yield* BackupExpiration.BackupExpiration
      const refused = yield* Stream.runHead(
        expiration.sweep().pipe(Stream.mapEffect(() => Effect.flip(World.sweep())))
      )
      assert.deepStrictEqual(refused, Option.some(new BackupExpiration.ExpirationInProgress({})))
      assert.strictEqual((yield* World.sweep()).length, 1)
    })
  )

  it.effect("[D-05] a role that may not delete task sessions expires nothing, and can still look", () =>
    Effect.gen(function* () {
      yield* World.begin
      const session = yield* World.expirable()
      const sql = yield* SqlClient.SqlClient
      const role = `looker_${crypto.randomUUID().replaceAll("-", "")}`
      yield* Effect.acquireRelease(sql`create role ${sql(role)} login`, () =>
        Effect.ignore(Effect.andThen(sql`drop owned by ${sql(role)}`, sql`drop role ${sql(role)}`))
      )
      for (const grant of [
        `usage on schema reclaim`,
        `select, insert, update, delete on all tables in schema reclaim`,
        `usage on all sequences in schema reclaim`,
        `select, update on all tables in schema public`
      ]) {
        yield* sql.unsafe(`grant ${grant} to ${role}`)
      }
      yield* Effect.gen(function* () {
        assert.strictEqual((yield* World.sweepOnce({ dryRun: true })).candidates, 1)
        const failure = yield* Effect.flip(World.sweep())
        assert.strictEqual(failure._tag === "DatabaseError" ? failure.reason._tag : "", "PermissionDenied")
      }).pipe(World.elsewhere({ user: role }))
      assert.deepStrictEqual(yield* World.names(session), ["current"])
      assert.strictEqual(yield* World.taskSessions(session), 1)
      assert.deepStrictEqual(yield* World.events(session), [])
    }).pipe(Effect.scoped)
  )

  it.effect("[D-02] a server that lacks the reclaim schema is told to adopt it; a dry run works", () =>
    Effect.gen(function* () {
      yield* World.begin
      yield* World.expirable()
      const sql = yield* SqlClient.SqlClient
      yield* Effect.acquireUseRelease(
        sql`alter schema reclaim rename to reclaim_away`,
        () =>
          Effect.gen(function* () {
            const failure = yield* Effect.flip(World.sweep())
            assert.strictEqual(failure._tag, "NotAdopted")
            assert.strictEqual((yield* World.sweepOnce({ dryRun: true })).candidates, 1)
          }).pipe(World.elsewhere()),
        () => sql`alter schema reclaim_away rename to reclaim`
      )
    })
  )
})

layer(World.layer({ settings: { enabled: false } }), { excludeTestServices: true })("disabled", (it) => {
  it.effect("[C-07] nothing expires when the setting says so", () =>
    Effect.gen(function* () {
      yield* World.begin
      yield* World.expirable()
      const before = yield* World.picture
      assert.deepStrictEqual(yield* World.sweep(), [])
      assert.strictEqual(yield* World.picture, before)
    })
  )
})

layer(World.layer({ settings: { dryRun: true } }), { excludeTestServices: true })("dry by setting", (it) => {
  it.effect("[B-11] the setting makes every sweep dry", () =>
    Effect.gen(function* () {
      yield* World.begin
      yield* World.expirable()
      const before = yield* World.picture
      const [batch] = yield* World.sweep({ dryRun: false })
      assert.deepInclude(batch!.report, { candidates: 1, expired: 0 })
      assert.strictEqual(yield* World.picture, before)
    })
  )
})
