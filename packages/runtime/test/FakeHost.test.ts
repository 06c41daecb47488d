import { PgClient } from "@effect/sql-pg"
import { assert, layer } from "@effect/vitest"
import { ExpirationSettings, Ids, NativeSession, RetentionSettings } from "@reclaim/core"
import { Holds, HostSchema, Journal, Migrations, Transactions } from "@reclaim/db"
import { InstanceRoots } from "@reclaim/fs"
import { TestDatabase } from "@reclaim/postgres/testing"
import { DateTime, Effect, Fiber, Layer, Logger, Redacted, Stream } from "effect"
import * as Fs from "node:fs"
import * as Os from "node:os"
import { inject } from "vitest"
import {
  BackupExpiration,
  HostControls,
  SessionActivity,
  SessionBackups,
  SkillVersionCache,
  SkillVersionRetention,
  SkillVersions,
  Workers
} from "../src/index.ts"
import { FakeHost, FaultPoints, MovableClock } from "../src/testing.ts"

const noon = DateTime.makeUnsafe("2030-01-01T12:00:00Z")

const dir = Effect.acquireRelease(
  Effect.sync(() => Fs.realpathSync(Fs.mkdtempSync(`${Os.tmpdir()}/reclaim-fake-`))),
  (path) => Effect.sync(() => Fs.rmSync(path, { recursive: true, force: true }))
)

/** What a host composes, with fakes where its own services would stand, and a database with `reclaim` alone. */
const composed = Workers.layer.pipe(
  Layer.provideMerge(Layer.merge(SkillVersions.layerServices, SessionBackups.layerServices)),
  Layer.provide(Layer.merge(SkillVersions.layerDisk, SessionBackups.layerDisk)),
  Layer.provide(
    Layer.mergeAll(Holds.layer, Journal.layer).pipe(
      Layer.provideMerge(HostSchema.layerOwn),
      Layer.provide(Layer.effectDiscard(Migrations.migrate)),
      Layer.provideMerge(Transactions.layer)
    )
  ),
  Layer.provide(
    Layer.unwrap(
      Effect.map(TestDatabase.TestDatabase, ({ url }) => PgClient.layer({ url: Redacted.make(url) }))
    ).pipe(Layer.provide(TestDatabase.layer(inject("databaseUrl"))))
  ),
  Layer.provideMerge(Layer.unwrap(Effect.map(dir, (instance) => InstanceRoots.layer({ instance })))),
  Layer.provide(Layer.merge(RetentionSettings.layer(), ExpirationSettings.layer())),
  Layer.provideMerge(FakeHost.layer),
  Layer.provideMerge(MovableClock.layer(noon)),
  Layer.provideMerge(Logger.layer([]))
)

const uuid = () => crypto.randomUUID()

const version = (of: Pick<FakeHost.Version, "companyId" | "skillId">, revisionNumber: number) => ({
  ...of,
  versionId: Ids.VersionId.make(uuid()),
  revisionNumber,
  current: false,
  files: [
    { path: "SKILL.md", content: `revision ${revisionNumber}` },
    { path: "run.sh", content: new TextEncoder().encode("#!/bin/sh\n"), executable: true },
    { path: "empty", content: "" }
  ]
})

const company = () => ({ companyId: Ids.CompanyId.make(uuid()), skillId: Ids.SkillId.make(uuid()) })

const prepare = Effect.fnUntraced(function* (runId: Ids.RunId, { companyId, versionId }: FakeHost.Version) {
  const cache = yield* SkillVersionCache.SkillVersionCache
  const [prepared] = yield* cache.prepare({ companyId, runId, versions: [versionId] })
  if (prepared?._tag !== "Ready") return yield* Effect.die(prepared)
  return prepared.path
})

const sweep = Effect.gen(function* () {
  const retention = yield* SkillVersionRetention.SkillVersionRetention
  const [batch] = yield* Stream.runCollect(retention.sweep())
  return batch?.report
})

layer(composed, { timeout: 60_000, excludeTestServices: true })("a host that is a fake", (it) => {
  it.effect("[Q-05] its versions are restored for a run, stay with it, and go after it", () =>
    Effect.gen(function* () {
      const host = yield* FakeHost.FakeHost
      const clock = yield* MovableClock.MovableClock
      const owner = company()
      const [old, current] = [version(owner, 1), { ...version(owner, 2), current: true }]
      const runId = Ids.RunId.make(uuid())
      for (const each of [old, current]) yield* host.putVersion(each)
      yield* host.startRun(owner.companyId, runId)
      const paths = [yield* prepare(runId, old), yield* prepare(runId, current)]
      assert.strictEqual(Fs.readFileSync(`${paths[0]}/SKILL.md`, "utf8"), "revision 1")
      assert.strictEqual(Fs.statSync(`${paths[0]}/run.sh`).mode & 0o777, 0o555)

      Fs.rmSync(paths[1]!, { recursive: true })
      assert.deepInclude(yield* sweep, { healed: 1 })
      yield* clock.adjust("2 hours")
      assert.deepInclude(yield* sweep, { evicted: 0, healed: 0, skipped: { ActiveRun: 2, Current: 1 } })
      yield* host.endRun(runId)
      const retention = yield* SkillVersionRetention.SkillVersionRetention
      const diagnoses = yield* Stream.runCollect(retention.diagnose({ versionId: old.versionId }))
      assert.deepStrictEqual(
        diagnoses.map((each) => each._tag === "Copy" && each.decision),
        ["evict"]
      )
      // Another run starts and tells nobody what it uses.
      const silent = Ids.RunId.make(uuid())
      yield* host.startRun(owner.companyId, silent)
      assert.deepInclude(yield* sweep, { evicted: 0, skipped: { SelectionUnknown: 2, Current: 1 } })
      yield* host.endRun(silent)
      assert.deepInclude(yield* sweep, { evicted: 1, skipped: { Current: 1 } })
      assert.deepStrictEqual(
        paths.map((path) => Fs.existsSync(path)),
        [false, true]
      )
    })
  )

  it.effect("[Q-05] a test takes a copy, or writes its version, in the moment in which it is to go", () =>
    Effect.gen(function* () {
      const host = yield* FakeHost.FakeHost
      const clock = yield* MovableClock.MovableClock
      const cache = yield* SkillVersionCache.SkillVersionCache
      const old = version(company(), 1)
      const [first, second] = [Ids.RunId.make(uuid()), Ids.RunId.make(uuid())]
      yield* host.putVersion(old)
      const path = yield* prepare(first, old)
      assert.strictEqual(yield* cache.release(first), 1)
      yield* clock.adjust("2 hours")

      const write = host.putVersion({ ...old, files: [{ path: "SKILL.md", content: "other" }] })
      const written = yield* FaultPoints.at("evict.beforeLock", write)(sweep)
      assert.deepInclude(written?.skipped, { ChangedMeanwhile: 1 })
      assert.deepInclude((yield* sweep)?.skipped, { Differs: 1 })
      yield* host.putVersion(old)

      const gate = yield* FaultPoints.gate("evict.beforeLock")
      const sweeping = yield* Effect.forkChild(gate.guard(sweep))
      yield* gate.reached
      yield* prepare(second, old)
      yield* gate.open
      const kept = yield* Fiber.join(sweeping)
      assert.deepInclude(kept?.skipped, { ChangedMeanwhile: 1 })
      assert.isTrue(Fs.existsSync(path))
    })
  )

  it.effect(
    "[Q-05] a session's backup stays with the host's rows, locks and activity, and goes without",
    () =>
      Effect.gen(function* () {
        const host = yield* FakeHost.FakeHost
        const roots = yield* InstanceRoots.InstanceRoots
        const expiration = yield* BackupExpiration.BackupExpiration
        const tracker = yield* SessionActivity.SessionTracker
        const scope = Ids.ScopeId.make("cd".repeat(32))
        const sessionId = Ids.NativeSessionId.make(uuid())
        const run = {
          id: Ids.RunId.make(uuid()),
          companyId: Ids.CompanyId.make(uuid()),
          agentId: Ids.AgentId.make(uuid()),
          status: "succeeded",
          runtimeMode: "legacy",
          nativeSessionId: sessionId,
          nativeIssueId: Ids.IssueId.make(uuid()),
          contextSnapshot: null,
          retryOfRunId: null,
          finishedAt: DateTime.makeUnsafe("2020-01-01T00:00:00Z")
        } satisfies NativeSession.RunRow
        const owner = { companyId: run.companyId, agentId: run.agentId }
        const issue = {
          id: run.nativeIssueId,
          companyId: run.companyId,
          status: "done",
          completedAt: run.finishedAt,
          cancelledAt: null
        }
        const rows = {
          runs: [run],
          issues: [issue],
          taskSessions: [
            {
              ...owner,
              id: NativeSession.TaskSessionId.make(uuid()),
              sessionParams: { sessionId },
              lastRunId: run.id
            }
          ]
        }
        const folder = `${roots.sessions}/${scope}`
        Fs.mkdirSync(`${folder}/control-plane`, { recursive: true })
        Fs.mkdirSync(`${folder}/failover-backups/current/runner`, { recursive: true })
        Fs.writeFileSync(
          `${folder}/control-plane/control-plane-state.json`,
          JSON.stringify({
            schema: "paperclip.runner.durable.control-plane-state.v1",
            identity: { runId: run.id, normalizedSessionId: sessionId }
          })
        )
        Fs.writeFileSync(
          `${folder}/failover-backups/current/manifest.json`,
          JSON.stringify({
            schema: "paperclip.native-harness-backup.v1",
            normalizedSessionId: sessionId,
            directories: [{ name: "runner", sha256: `sha256:${"0".repeat(64)}`, bytes: 0 }],
            completedAt: "2020-01-01T00:00:00Z"
          })
        )
        const expire = Effect.map(Stream.runCollect(expiration.sweep()), ([batch]) => batch?.report)
        assert.deepInclude(yield* expire, { expired: 0, skipped: { RunUnknown: 1 } })
        yield* host.setSessions({ ...rows, issues: [{ ...issue, status: "open" }] })
        assert.deepInclude(yield* expire, { expired: 0, skipped: { IssueOpen: 1 } })
        yield* host.setSessions(rows)
        yield* Effect.scoped(
          Effect.gen(function* () {
            yield* tracker.track(scope, "warm")
            assert.deepInclude(yield* expire, { expired: 0, skipped: { ActiveInProcess: 1 } })
          })
        )
        yield* host.setRowsBusy(true)
        assert.deepInclude(yield* expire, { expired: 0, skipped: { RowsBusy: 1 } })
        yield* host.setRowsBusy(false)
        assert.deepInclude(yield* expire, { expired: 1, clearedTaskSessions: 1 })
      })
  )

  it.effect("[Q-05] its workers wait for readiness, give way on standby, and end with the drain", () =>
    Effect.gen(function* () {
      const hostSwitch = yield* HostControls.HostSwitch
      const worker = yield* Workers.SkillVersionWorker
      const until = (activity: Workers.Activity) =>
        Effect.gen(function* () {
          while ((yield* worker.status).activity !== activity) yield* Effect.sleep("5 millis")
        }).pipe(Effect.timeout("20 seconds"))
      yield* until("starting")
      yield* hostSwitch.ready
      yield* until("waiting")
      yield* hostSwitch.standby
      yield* until("standby")
      yield* hostSwitch.drain
      yield* until("drained")
    })
  )
})
