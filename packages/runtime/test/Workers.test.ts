import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { FaultPoint } from "@reclaim/core"
import { Holds } from "@reclaim/db"
import { TestDatabase } from "@reclaim/postgres/testing"
import {
  DateTime,
  Deferred,
  Duration,
  Effect,
  Exit,
  Fiber,
  Layer,
  Logger,
  Metric,
  Option,
  Random,
  Redacted,
  References,
  Scope,
  Stream,
  Tracer
} from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { inject } from "vitest"
import { HostControls, Workers } from "../src/index.ts"
import { FaultPoints } from "../src/testing.ts"
import * as Sweeping from "./support/Sweeping.ts"
import * as Working from "./support/Working.ts"
import * as World from "./support/World.ts"

const theSwitch = HostControls.HostSwitch
const skills = Workers.SkillVersionWorker
const backups = Workers.BackupWorker

/** The worker has swept and waits again; when `after` is given, its last sweep began later than that. */
const swept = Effect.fnUntraced(function* <Report>(worker: Workers.Worker<Report>, after = -1) {
  return yield* Working.until(
    worker,
    (status) => status.activity === "waiting" && (Working.startedAt(status) ?? -1) > after
  )
})

/** Copies that may go; the host is not ready yet. */
const idle = Effect.fnUntraced(function* (versions: number) {
  const { copies } = yield* World.skill({ versions })
  yield* Sweeping.place(copies)
  yield* Working.pass("1 hour")
  return copies
})

const there = Effect.fnUntraced(function* (copies: Parameters<typeof Sweeping.place>[0]) {
  return (yield* Effect.forEach(copies, World.isThere)).filter((is) => is).length
})

/** A gate at the nth time that a point is reached. */
const nth = Effect.fnUntraced(function* (point: string, times: number) {
  const reached = yield* Deferred.make<void>()
  const opened = yield* Deferred.make<void>()
  let count = 0
  return {
    reached: Deferred.await(reached),
    open: Deferred.succeed(opened, undefined),
    guard: Effect.provideService(FaultPoint.FaultHandler, (name) =>
      name === point && ++count === times
        ? Effect.andThen(Deferred.succeed(reached, undefined), Deferred.await(opened))
        : Effect.void
    )
  }
})

/** Lets nobody connect to the test's database any more, and ends the connections that there are. */
const database = Effect.gen(function* () {
  const { url } = yield* TestDatabase.TestDatabase
  const name = new URL(url).pathname.slice(1)
  const admin = <A, E>(use: (sql: SqlClient.SqlClient) => Effect.Effect<A, E>) =>
    Effect.flatMap(SqlClient.SqlClient, use).pipe(
      Effect.provide(Layer.fresh(PgClient.layer({ url: Redacted.make(inject("databaseUrl")) })), {
        local: true
      })
    )
  return {
    goAway: admin((sql) =>
      Effect.andThen(
        sql`alter database ${sql(name)} allow_connections false`,
        sql`select pg_terminate_backend(pid) from pg_stat_activity where datname = ${name}`
      )
    ),
    comeBack: admin((sql) => sql`alter database ${sql(name)} allow_connections true`)
  }
})

describe("workers", () => {
  it.live("[W-02] nothing is swept while readiness does not come, however long that takes", () =>
    Effect.gen(function* () {
      const copies = yield* idle(1)
      yield* Effect.gen(function* () {
        yield* Working.pass("40 hours")
        assert.strictEqual((yield* (yield* skills).status).activity, "starting")
        assert.strictEqual((yield* (yield* backups).status).activity, "starting")
        assert.strictEqual(yield* there(copies), 1)
      }).pipe(Effect.provide(Working.layer))
    }).pipe(Working.inWorld())
  )

  it.live("[W-02] [W-04] skill versions are swept at readiness, backups exactly two minutes after it", () =>
    Effect.gen(function* () {
      const copies = yield* idle(2)
      yield* Effect.gen(function* () {
        yield* Working.pass("17 minutes")
        yield* (yield* theSwitch).ready
        assert.strictEqual(Working.startedAt(yield* swept(yield* skills)), 77)
        assert.strictEqual(yield* there(copies), 0)
        yield* Working.pass(Duration.millis(119_999))
        assert.strictEqual(Working.startedAt(yield* (yield* backups).status), undefined)
        yield* Working.pass(Duration.millis(1))
        assert.strictEqual(Working.startedAt(yield* swept(yield* backups)), 79)
      }).pipe(Effect.provide(Working.layer))
    }).pipe(Working.inWorld())
  )

  it.live(
    "[W-02] after the first sweep the period is between 0.9 and 1.1 hours, and not always the same",
    () =>
      Effect.gen(function* () {
        yield* (yield* theSwitch).ready
        const worker = yield* skills
        let last = Working.startedAt(yield* swept(worker)) ?? 0
        const periods: Array<number> = []
        for (let times = 0; times < 25; times++) {
          const { nextAt } = yield* worker.status
          const due = DateTime.toEpochMillis(yield* Effect.fromOption(nextAt))
          const now = DateTime.toEpochMillis(yield* DateTime.now)
          yield* Working.pass(Duration.millis(due - now - 1))
          assert.strictEqual(Working.startedAt(yield* worker.status), last)
          yield* Working.pass(Duration.millis(1))
          const started = Working.startedAt(yield* swept(worker, last)) ?? 0
          periods.push(started - last)
          last = started
        }
        assert.isTrue(periods.every((minutes) => minutes >= 53.999 && minutes <= 66.001))
        assert.isTrue(Math.max(...periods) - Math.min(...periods) > 3)
      }).pipe(Random.withSeed("periods"), Effect.provide(Working.layer), Working.inWorld())
  )

  it.live("[W-02] two servers that were started together drift apart", () =>
    Effect.gen(function* () {
      const nextOf = (seed: string) =>
        Effect.gen(function* () {
          yield* (yield* theSwitch).ready
          return (yield* swept(yield* skills)).nextAt
        }).pipe(Random.withSeed(seed), Effect.provide(Layer.fresh(Working.layer)))
      assert.notDeepEqual(yield* nextOf("one"), yield* nextOf("another"))
    }).pipe(Working.inWorld())
  )

  it.live("[W-02] a sweep longer than its period is followed by one more at once, not by all it missed", () =>
    Effect.gen(function* () {
      yield* idle(1)
      const gate = yield* FaultPoints.gate("evict.beforeLock")
      yield* Effect.gen(function* () {
        yield* (yield* theSwitch).ready
        const worker = yield* skills
        yield* gate.reached
        yield* Working.pass("200 minutes")
        yield* gate.open
        const status = yield* swept(worker, 60)
        assert.strictEqual(Working.startedAt(status), 260)
        yield* Working.pass("53 minutes")
        assert.strictEqual(Working.startedAt(yield* worker.status), 260)
      }).pipe(Effect.provide(Working.layer), gate.guard)
    }).pipe(Working.inWorld())
  )

  it.live(
    "[W-02] a database that is away for three periods fails three sweeps, and the next one sweeps",
    () =>
      Effect.gen(function* () {
        const copies = yield* idle(1)
        const logged: Array<unknown> = []
        const logger = Logger.make(({ fiber, logLevel, message }) => {
          const { worker } = fiber.getRef(References.CurrentLogAnnotations)
          if (logLevel === "Error" && worker === "skill-versions") logged.push(message)
        })
        const { comeBack, goAway } = yield* database
        yield* goAway
        yield* Effect.gen(function* () {
          yield* (yield* theSwitch).ready
          const worker = yield* skills
          let last = -1
          for (let times = 0; times < 3; times++) {
            const status = yield* swept(worker, last)
            last = Working.startedAt(status) ?? -1
            assert.isTrue(Option.exists(status.lastSweep, ({ outcome }) => outcome === "failed"))
            assert.isTrue(Option.isNone(status.lastSuccessAt))
            yield* Working.pass("66 minutes")
          }
          yield* swept(worker, last)
          yield* comeBack
          assert.strictEqual(logged.length, 4)
          const before = Working.startedAt(yield* worker.status)
          yield* Working.pass("66 minutes")
          const status = yield* swept(worker, before)
          assert.isTrue(Option.exists(status.lastSweep, ({ outcome }) => outcome === "completed"))
          assert.strictEqual(yield* there(copies), 0)
        }).pipe(Effect.provide(Layer.provideMerge(Working.layer, Logger.layer([logger]))))
      }).pipe(Working.inWorld())
  )

  it.live("[W-03] standby in the middle of a batch finishes the entry in hand and begins no other", () =>
    Effect.gen(function* () {
      const copies = yield* idle(3)
      const gate = yield* FaultPoints.gate("evict.beforeCommit")
      yield* Effect.gen(function* () {
        const host = yield* theSwitch
        const worker = yield* skills
        yield* host.ready
        yield* gate.reached
        yield* host.standby
        const idled = yield* Effect.forkChild(worker.awaitIdle)
        yield* Effect.yieldNow
        assert.isUndefined(idled.pollUnsafe())
        assert.strictEqual((yield* worker.status).activity, "sweeping")
        yield* gate.open
        yield* Fiber.join(idled)
        assert.strictEqual(yield* there(copies), 2)
        const status = yield* Working.until(worker, ({ activity }) => activity === "standby")
        assert.isTrue(Option.exists(status.lastSweep, ({ outcome }) => outcome === "stopped"))
        yield* Working.pass("5 hours")
        assert.strictEqual(yield* there(copies), 2)
        assert.deepStrictEqual(yield* Sweeping.unfinished, { locks: 0, transactions: 0 })
        yield* host.resume
        assert.strictEqual(Working.startedAt(yield* swept(worker, 60)), 360)
        assert.strictEqual(yield* there(copies), 0)
      }).pipe(Effect.provide(Working.layer), gate.guard)
    }).pipe(Working.inWorld())
  )

  it.live("[W-03] after a standby a pass goes on with the batch where it stopped", () =>
    Effect.gen(function* () {
      const copies = yield* idle(52)
      // The 51st and the 52nd copy are the second batch.
      const gate = yield* nth("evict.beforeLock", 51)
      yield* Effect.gen(function* () {
        const host = yield* theSwitch
        const worker = yield* skills
        yield* host.ready
        yield* gate.reached
        yield* host.standby
        yield* gate.open
        yield* worker.awaitIdle
        assert.strictEqual(yield* there(copies), 1)
        yield* host.resume
        const { lastSweep } = yield* Working.until(
          worker,
          (status) =>
            status.activity === "waiting" &&
            Option.exists(status.lastSweep, ({ outcome }) => outcome === "completed")
        )
        assert.deepStrictEqual(
          Option.map(lastSweep, ({ report }) => [report.considered, report.evicted]),
          Option.some([1, 1])
        )
        assert.strictEqual(yield* there(copies), 0)
      }).pipe(Effect.provide(Working.layer), gate.guard)
    }).pipe(Working.inWorld())
  )

  it.live("[W-03] a host that is on standby when a sweep is due sweeps when it comes back", () =>
    Effect.gen(function* () {
      const copies = yield* idle(1)
      const host = yield* theSwitch
      const worker = yield* skills
      yield* host.standby
      yield* host.ready
      yield* Working.pass("3 hours")
      assert.strictEqual((yield* worker.status).activity, "standby")
      assert.strictEqual(yield* there(copies), 1)
      yield* host.resume
      assert.strictEqual(Working.startedAt(yield* swept(worker)), 240)
      assert.strictEqual(yield* there(copies), 0)
    }).pipe(Effect.provide(Working.layer), Working.inWorld())
  )

  it.live("[W-03] draining while trash is deleted stops between two entries and is final", () =>
    Effect.gen(function* () {
      const copies = yield* idle(2)
      const gate = yield* FaultPoints.gate("trash.betweenEntries")
      yield* Effect.gen(function* () {
        const host = yield* theSwitch
        const worker = yield* skills
        yield* host.ready
        yield* gate.reached
        yield* host.drain
        const idled = yield* Effect.forkChild(worker.awaitIdle)
        yield* Effect.yieldNow
        yield* gate.open
        yield* Fiber.join(idled)
        assert.strictEqual(yield* there(copies), 0)
        const left = (yield* World.listing).filter((path) => path.includes("/.trash-"))
        assert.isAbove(left.length, 0)
        assert.deepStrictEqual(yield* Sweeping.unfinished, { locks: 0, transactions: 0 })
        yield* host.resume
        yield* Working.pass("5 hours")
        yield* Working.until(worker, ({ activity }) => activity === "drained")
        yield* Working.until(yield* backups, ({ activity }) => activity === "drained")
        assert.deepStrictEqual(
          (yield* World.listing).filter((path) => path.includes("/.trash-")),
          left
        )
      }).pipe(Effect.provide(Working.layer), gate.guard)
      const report = yield* World.sweepOnce()
      assert.strictEqual(report.trashWaiting, 0)
      assert.deepStrictEqual(
        (yield* World.listing).filter((path) => path.includes("/.trash-")),
        []
      )
    }).pipe(Working.inWorld())
  )

  it.live(
    "[W-03] [S-23] closing the scope waits for the entry in its critical section, and for no other",
    () =>
      Effect.gen(function* () {
        const copies = yield* idle(2)
        const gate = yield* FaultPoints.gate("evict.beforeCommit")
        yield* Effect.gen(function* () {
          const scope = yield* Scope.make()
          const host = yield* Layer.buildWithScope(Working.layer, scope)
          yield* Effect.provide(
            Effect.flatMap(theSwitch, ({ ready }) => ready),
            host
          )
          yield* gate.reached
          const closing = yield* Effect.forkChild(Scope.close(scope, Exit.void))
          yield* Effect.yieldNow
          assert.isUndefined(closing.pollUnsafe())
          assert.deepStrictEqual(yield* Sweeping.unfinished, { locks: 1, transactions: 1 })
          yield* gate.open
          yield* Fiber.join(closing)
          assert.strictEqual(yield* there(copies), 1)
          assert.deepStrictEqual(yield* Sweeping.unfinished, { locks: 0, transactions: 0 })
          assert.strictEqual((yield* (yield* Effect.provide(skills, host)).status).activity, "drained")
        }).pipe(gate.guard)
      }).pipe(Working.inWorld())
  )

  it.live("[W-03] a host whose phases end counts as draining", () =>
    Effect.gen(function* () {
      const worker = yield* skills
      yield* Working.until(worker, ({ activity }) => activity === "drained")
      yield* worker.awaitIdle
    }).pipe(
      Effect.provide(
        Working.layerOn(
          Layer.succeed(HostControls.HostControls, {
            phase: Effect.succeed<HostControls.HostPhase>("active"),
            changes: Stream.succeed<HostControls.HostPhase>("starting")
          })
        )
      ),
      Working.inWorld()
    )
  )

  it.live("[W-03] a phase that says otherwise in the last moment stops the sweep that was due", () =>
    Effect.gen(function* () {
      const copies = yield* idle(1)
      let phase: HostControls.HostPhase = "standby"
      yield* Effect.gen(function* () {
        const worker = yield* skills
        yield* Working.until(
          worker,
          (status) => status.activity === "standby" || Option.isSome(status.lastSweep)
        )
        yield* worker.awaitIdle
        assert.strictEqual(yield* there(copies), 1)
        phase = "active"
        yield* Working.pass("1 second")
        yield* swept(worker)
        assert.strictEqual(yield* there(copies), 0)
      }).pipe(
        Effect.provide(
          Working.layerOn(
            Layer.succeed(HostControls.HostControls, {
              phase: Effect.sync(() => phase),
              changes: Stream.concat(Stream.succeed<HostControls.HostPhase>("active"), Stream.never)
            })
          )
        )
      )
    }).pipe(Working.inWorld())
  )

  it.live("[W-02] what the settings disable never sweeps, and says so", () =>
    Effect.gen(function* () {
      const copies = yield* idle(1)
      yield* Effect.gen(function* () {
        yield* (yield* theSwitch).ready
        yield* Working.pass("3 hours")
        const worker = yield* skills
        assert.strictEqual((yield* worker.status).activity, "disabled")
        yield* worker.awaitIdle
        assert.strictEqual(yield* there(copies), 1)
      }).pipe(Effect.provide(Working.layer))
    }).pipe(Working.inWorld({ settings: { enabled: false } }))
  )

  it.live("[W-05] [S-26] one batch is one log line, and its figures are in the metrics, by reason", () =>
    Effect.gen(function* () {
      const copies = yield* idle(3)
      const { companyId, versionId } = copies[0] ?? (yield* Effect.die("no copy"))
      yield* (yield* Holds.Holds).holdVersion(companyId, versionId, "operator", "kept")
      const lines: Array<Readonly<Record<string, unknown>>> = []
      const logger = Logger.make(({ fiber, message }) => {
        if (String(message) === "swept skill versions") {
          lines.push(fiber.getRef(References.CurrentLogAnnotations))
        }
      })
      yield* Effect.gen(function* () {
        yield* (yield* theSwitch).ready
        yield* swept(yield* skills)
        const figures = yield* Metric.snapshot
        const of = (id: string, attributes: Readonly<Record<string, string>>) =>
          figures.find(
            (metric) =>
              metric.id === id &&
              Object.entries(attributes).every(([name, value]) => metric.attributes?.[name] === value)
          )?.state
        const wet = { "reclaim.worker": "skill-versions", "reclaim.dry_run": "false" }
        assert.deepInclude(of("reclaim.sweep.considered", wet), { count: 3 })
        assert.deepInclude(of("reclaim.sweep.candidates", wet), { count: 2 })
        assert.deepInclude(of("reclaim.sweep.removed", wet), { count: 2 })
        assert.deepInclude(of("reclaim.sweep.skipped", { ...wet, "reclaim.reason": "Held" }), { count: 1 })
        assert.deepInclude(of("reclaim.sweep.errors", wet), { count: 0 })
        assert.deepInclude(of("reclaim.sweep.batch.duration", wet), { count: 1 })
        assert.deepInclude(of("reclaim.trash.waiting", {}), { value: 0 })
        assert.deepInclude(of("reclaim.sweep.last_success", { "reclaim.worker": "skill-versions" }), {
          value: DateTime.toEpochMillis(DateTime.addDuration(World.noon, "1 hour")) / 1000
        })
        for (const lock of ["exclusive", "trash"]) {
          const held = of("reclaim.lock.hold.duration", { "reclaim.lock": lock })
          assert.isDefined(held)
          assert.isDefined(of("reclaim.lock.wait.duration", { "reclaim.lock": lock }))
        }
        assert.strictEqual(lines.length, 1)
        assert.deepInclude(lines[0], { considered: 3, candidates: 2, evicted: 2, errors: 0, dryRun: false })
        assert.deepStrictEqual(lines[0]?.["skipped"], { Held: 1 })
      }).pipe(
        Effect.provide(Layer.provideMerge(Working.layer, Logger.layer([logger]))),
        Effect.provideService(Metric.MetricRegistry, new Map())
      )
    }).pipe(Working.inWorld())
  )

  it.live("[W-05] a sweep, its batches and its evictions are spans that tell what became of whom", () =>
    Effect.gen(function* () {
      const copies = yield* idle(1)
      const spans: Array<Tracer.Span> = []
      const tracer = Tracer.make({
        span: (options) => {
          const span = new Tracer.NativeSpan(options)
          spans.push(span)
          return span
        }
      })
      yield* Effect.gen(function* () {
        yield* (yield* theSwitch).ready
        yield* swept(yield* skills)
        const named = (name: string) => spans.find((span) => span.name === name)
        const sweep = named("SkillVersionRetention.sweep")
        const batch = named("SkillVersionRetention.batch")
        const evict = named("SkillVersionRetention.evict")
        assert.isDefined(sweep)
        assert.strictEqual(Option.getOrUndefined(batch?.parent ?? Option.none())?.spanId, sweep?.spanId)
        assert.strictEqual(Option.getOrUndefined(evict?.parent ?? Option.none())?.spanId, batch?.spanId)
        assert.deepInclude(Object.fromEntries(evict?.attributes ?? []), {
          "reclaim.company.id": copies[0]?.companyId,
          "reclaim.version.id": copies[0]?.versionId,
          "reclaim.outcome": "Evicted"
        })
        assert.isDefined(named("exclusive lock"))
      }).pipe(Effect.provide(Working.layer), Effect.provideService(Tracer.Tracer, tracer))
    }).pipe(Working.inWorld())
  )
})

describe("host controls in memory", () => {
  it.effect("[W-03] readiness and standby are independent, and draining is final", () =>
    Effect.gen(function* () {
      const { phase } = yield* HostControls.HostControls
      const host = yield* theSwitch
      const phases: Array<HostControls.HostPhase> = []
      for (const step of [host.standby, host.ready, host.resume, host.standby, host.drain, host.resume]) {
        yield* step
        phases.push(yield* phase)
      }
      assert.deepStrictEqual(phases, ["starting", "standby", "active", "standby", "draining", "draining"])
    }).pipe(Effect.provide(HostControls.layerMemory))
  )
})
