import { describe, expect, layer } from "@effect/vitest"
import { FaultPoint, Ids } from "@reclaim/core"
import { DateTime, Deferred, Duration, Effect, Fiber } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { DatabaseClock, DatabaseError, HostSchema, SkillPins, Transactions } from "../src/index.ts"
import { adopted, at, eventually, host, noon, statementsOf } from "./support/database.ts"
import * as Make from "./support/fixtures.ts"

const later = (duration: Duration.Input) => DateTime.addDuration(noon, Duration.fromInputUnsafe(duration))
const earlier = (duration: Duration.Input) =>
  DateTime.subtractDuration(noon, Duration.fromInputUnsafe(duration))

/** The pins of a company. What the look under the lock says about each of its versions must be the same. */
const factsOf = Effect.fnUntraced(function* (companyId: Ids.CompanyId) {
  const pins = yield* SkillPins.SkillPins
  const { now } = yield* DatabaseClock.DatabaseClock
  const company = (yield* pins.facts([companyId])).get(companyId)
  if (company === undefined) return yield* Effect.die("no facts")
  const { activeRuns, agents, held, testRuns, unsettledRecovery } = company
  const pinned = [activeRuns, agents, held, testRuns, unsettledRecovery].flatMap((map) => [...map.keys()])
  for (const versionId of new Set([...pinned, yield* Make.versionId])) {
    const only = <A>(map: ReadonlyMap<Ids.VersionId, A>) =>
      new Map([...map].filter(([id]) => id === versionId))
    const one = yield* pins.factsOf(companyId, versionId, yield* now)
    expect({ ...one, agents: only(one.agents) }).toEqual({
      ...company,
      activeRuns: only(activeRuns),
      agents: only(agents),
      held: only(held),
      testRuns: only(testRuns),
      unsettledRecovery: only(unsettledRecovery)
    })
  }
  return company
})

const record = Effect.fnUntraced(function* (
  companyId: Ids.CompanyId,
  runId: Ids.RunId,
  versionIds: ReadonlyArray<Ids.VersionId>
) {
  const pins = yield* SkillPins.SkillPins
  const { companyShared } = yield* Transactions.Transactions
  const skillId = yield* Make.skillId
  yield* companyShared(companyId, () =>
    pins.record(
      companyId,
      runId,
      versionIds.map((versionId) => ({ skillId, versionId }))
    )
  )
})

const noPins = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`delete from reclaim.run_pins`
  yield* sql`delete from reclaim.run_selections`
})

/** The runs that are named in a table of `reclaim`. */
const runsIn = Effect.fnUntraced(function* (table: "run_pins" | "run_selections") {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly id: string }>`
    select run_id::text as id from ${sql(`reclaim.${table}`)} order by 1`
  return rows.map((row) => row.id)
})

/** Stops an effect at a named point, does something else meanwhile, on another connection, and goes on. */
const meanwhile = <A, E, R, E2, R2>(
  point: string,
  self: Effect.Effect<A, E, R>,
  other: Effect.Effect<unknown, E2, R2>
) =>
  Effect.gen(function* () {
    const entered = yield* Deferred.make<void>()
    const gate = yield* Deferred.make<void>()
    const fiber = yield* Effect.forkChild(
      Effect.provideService(self, FaultPoint.FaultHandler, (name) =>
        name === point
          ? Effect.andThen(Deferred.succeed(entered, undefined), Deferred.await(gate))
          : Effect.void
      )
    )
    yield* Effect.raceFirst(Deferred.await(entered), Effect.andThen(Fiber.join(fiber), Effect.die("passed")))
    yield* other
    yield* Deferred.succeed(gate, undefined)
    return yield* Fiber.join(fiber)
  })

/** Prepares at an instant, and does not commit before something else waits for the rows. */
const uncommitted = <A, E, R>(
  instant: DateTime.Utc,
  [companyId, runId, pins]: readonly [Ids.CompanyId, Ids.RunId, ReadonlyArray<SkillPins.Pin>],
  self: Effect.Effect<A, E, R>
) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { companyShared } = yield* Transactions.Transactions
    const { record } = yield* SkillPins.SkillPins
    const entered = yield* Deferred.make<void>()
    const gate = yield* Deferred.make<void>()
    const preparing = yield* Effect.forkChild(
      companyShared(companyId, () =>
        at(instant)(record(companyId, runId, pins)).pipe(
          Effect.andThen(Deferred.succeed(entered, undefined)),
          Effect.andThen(Deferred.await(gate))
        )
      )
    )
    yield* Effect.raceFirst(Deferred.await(entered), Effect.asVoid(Fiber.join(preparing)))
    const waiting = yield* Effect.forkChild(self)
    yield* eventually(
      Effect.map(
        sql`select 1 from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`,
        (rows) => rows.length > 0
      )
    )
    yield* Deferred.succeed(gate, undefined)
    yield* Fiber.join(preparing)
    return yield* Fiber.join(waiting)
  })

layer(adopted())("SkillPins", (it) => {
  describe("active runs", () => {
    for (const status of ["queued", "scheduled_retry", "running", "paused by a later version", ""]) {
      it.effect(`[S-11] a run with status "${status}" keeps what it selected`, () =>
        Effect.gen(function* () {
          const owner = yield* Make.company
          const run = yield* Make.run(owner, { status })
          const version = yield* Make.versionId
          yield* record(owner.companyId, run, [version])
          const facts = yield* factsOf(owner.companyId)
          expect(facts.activeRuns).toEqual(new Map([[version, [run]]]))
          expect(facts.unsettledRecovery).toEqual(new Map())
          expect(facts.selectionUnknown).toEqual([])
        })
      )
    }

    for (const status of ["succeeded", "failed", "cancelled", "timed_out", "interrupted"]) {
      it.effect(`[S-11] a legacy run with status "${status}" keeps nothing`, () =>
        Effect.gen(function* () {
          const owner = yield* Make.company
          const run = yield* Make.run(owner, { status })
          yield* record(owner.companyId, run, [yield* Make.versionId])
          const facts = yield* factsOf(owner.companyId)
          expect(facts.activeRuns).toEqual(new Map())
          expect(facts.unsettledRecovery).toEqual(new Map())
          expect(facts.selectionUnknown).toEqual([])
        })
      )
    }

    it.effect("[S-11] a status that is null counts as active", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const owner = yield* Make.company
        const run = yield* Make.run(owner, { status: "running" })
        yield* sql`alter table heartbeat_runs alter column status drop not null`
        yield* sql`update heartbeat_runs set status = null where id = ${run}::uuid`
        const facts = yield* factsOf(owner.companyId)
        expect(facts.selectionUnknown).toEqual([run])
        yield* sql`delete from heartbeat_runs where id = ${run}::uuid`
      })
    )

    it.effect("[S-05] a run without a row that prepares again begins its day anew", () =>
      Effect.gen(function* () {
        const owner = yield* Make.company
        const pins = yield* SkillPins.SkillPins
        const run = yield* Make.runId
        const [skillId, versionId] = [yield* Make.skillId, yield* Make.versionId]
        const { companyShared } = yield* Transactions.Transactions
        const prepare = companyShared(owner.companyId, () =>
          pins.record(owner.companyId, run, [{ skillId, versionId }])
        )
        yield* prepare
        yield* at(later("25 hours"))(prepare)
        yield* at(later("26 hours"))(pins.forget(1000))
        const facts = yield* at(later("26 hours"))(factsOf(owner.companyId))
        expect(facts.activeRuns).toEqual(new Map([[versionId, [run]]]))
      })
    )

    it.effect("[S-05] a pin whose run has no row counts as active for 24 hours", () =>
      Effect.gen(function* () {
        const owner = yield* Make.company
        const run = yield* Make.runId
        const version = yield* Make.versionId
        yield* record(owner.companyId, run, [version])
        const before = yield* at(later("23 hours"))(factsOf(owner.companyId))
        expect(before.activeRuns).toEqual(new Map([[version, [run]]]))
        const after = yield* at(later("24 hours"))(factsOf(owner.companyId))
        expect(after.activeRuns).toEqual(new Map())
      })
    )

    it.effect("[S-05] selections of a run add up until it is released, then it is still known", () =>
      Effect.gen(function* () {
        const pins = yield* SkillPins.SkillPins
        const owner = yield* Make.company
        const run = yield* Make.run(owner, { status: "running" })
        const [a, b] = [yield* Make.versionId, yield* Make.versionId]
        yield* record(owner.companyId, run, [a])
        yield* record(owner.companyId, run, [b])
        yield* record(owner.companyId, run, [])
        expect([...(yield* factsOf(owner.companyId)).activeRuns.keys()].toSorted()).toEqual([a, b].toSorted())
        expect(yield* pins.release(run)).toBe(2)
        expect(yield* pins.release(run)).toBe(0)
        const facts = yield* factsOf(owner.companyId)
        expect(facts.activeRuns).toEqual(new Map())
        expect(facts.selectionUnknown).toEqual([])
      })
    )

    it.effect("[S-05] preparing again and again is the same as once", () =>
      Effect.gen(function* () {
        const pins = yield* SkillPins.SkillPins
        const { companyShared } = yield* Transactions.Transactions
        const owner = yield* Make.company
        const run = yield* Make.run(owner, { status: "running" })
        const pin = { skillId: yield* Make.skillId, versionId: yield* Make.versionId }
        yield* companyShared(owner.companyId, () =>
          Effect.andThen(
            pins.record(owner.companyId, run, [pin, pin]),
            pins.record(owner.companyId, run, [pin])
          )
        )
        expect((yield* factsOf(owner.companyId)).activeRuns).toEqual(new Map([[pin.versionId, [run]]]))
        expect(yield* pins.release(run)).toBe(1)
      })
    )

    it.effect("[S-05] what the transaction did not commit is not recorded", () =>
      Effect.gen(function* () {
        const pins = yield* SkillPins.SkillPins
        const { companyShared } = yield* Transactions.Transactions
        const owner = yield* Make.company
        const run = yield* Make.run(owner, { status: "running" })
        yield* Effect.flip(
          companyShared(owner.companyId, () =>
            Effect.andThen(pins.record(owner.companyId, run, []), Effect.fail("no"))
          )
        )
        expect((yield* factsOf(owner.companyId)).selectionUnknown).toEqual([run])
      })
    )

    it.effect("[S-07] the pins of active runs can be listed, of one company and of all", () =>
      Effect.gen(function* () {
        const pins = yield* SkillPins.SkillPins
        const [one, two] = [yield* Make.company, yield* Make.company]
        const running = yield* Make.run(one, { status: "running" })
        const over = yield* Make.run(one, { status: "succeeded" })
        const unsettled = yield* Make.run(one, { status: "failed", mode: "native" })
        const elsewhere = yield* Make.runId
        const version = yield* Make.versionId
        for (const run of [running, over, unsettled]) yield* record(one.companyId, run, [version])
        yield* record(two.companyId, elsewhere, [version])
        const ofOne = yield* pins.activePins(one.companyId)
        expect(ofOne.map((pin) => pin.runId)).toEqual([running])
        const all = (yield* pins.activePins()).map((pin) => pin.runId)
        expect(all).toContain(running)
        expect(all).toContain(elsewhere)
        expect(all).not.toContain(over)
        expect(all).not.toContain(unsettled)
      })
    )
  })

  describe("recovery", () => {
    const settled: ReadonlyArray<readonly [string, Omit<Make.RunOptions, "status">]> = [
      ["a legacy run", {}],
      ["a committed native run", { mode: "native", finalization: { phase: "committed" } }],
      ["a native run that failed for good", { mode: "native", finalization: { phase: "terminal_failure" } }],
      [
        "a committed native run whose lease has ended",
        { mode: "native", finalization: { phase: "committed", lease: earlier("1 millis") } }
      ]
    ]
    const unsettled: ReadonlyArray<readonly [string, Omit<Make.RunOptions, "status">]> = [
      ["a native run without a finalization", { mode: "native" }],
      ["a run of an unknown mode without a finalization", { mode: "something new" }],
      ["an observed finalization", { mode: "native", finalization: { phase: "observed" } }],
      ["a retryable failure", { mode: "native", finalization: { phase: "retryable_failure" } }],
      ["an unknown phase", { mode: "native", finalization: { phase: "something new" } }],
      ["a legacy run with an unsettled finalization", { finalization: { phase: "observed" } }],
      [
        "a committed run whose lease ends in this very millisecond",
        { mode: "native", finalization: { phase: "committed", lease: noon } }
      ],
      [
        "a committed run with a live lease",
        { mode: "native", finalization: { phase: "committed", lease: later("1 second") } }
      ],
      [
        "a committed run with a lease without an end",
        { mode: "native", finalization: { phase: "committed", lease: "infinity" } }
      ],
      [
        "a committed run in recovery",
        { mode: "native", finalization: { phase: "committed", recovery: "blocked" } }
      ]
    ]
    for (const [name, options] of settled) {
      it.effect(`[S-12] ${name} that is over keeps nothing`, () =>
        Effect.gen(function* () {
          const owner = yield* Make.company
          const run = yield* Make.run(owner, { status: "failed", ...options })
          yield* record(owner.companyId, run, [yield* Make.versionId])
          const facts = yield* factsOf(owner.companyId)
          expect(facts.unsettledRecovery).toEqual(new Map())
          expect(facts.selectionUnknown).toEqual([])
          const unrecorded = yield* Make.run(owner, { status: "failed", ...options })
          expect((yield* factsOf(owner.companyId)).selectionUnknown).not.toContain(unrecorded)
        })
      )
    }
    for (const [name, options] of unsettled) {
      it.effect(`[S-12] [S-13] ${name}: what a run that is over selected stays, else the whole company`, () =>
        Effect.gen(function* () {
          const owner = yield* Make.company
          const version = yield* Make.versionId
          const run = yield* Make.run(owner, { status: "failed", ...options })
          yield* record(owner.companyId, run, [version])
          const facts = yield* factsOf(owner.companyId)
          expect(facts.unsettledRecovery).toEqual(new Map([[version, [run]]]))
          expect(facts.activeRuns).toEqual(new Map())
          expect(facts.selectionUnknown).toEqual([])
          const unrecorded = yield* Make.run(owner, { status: "failed", ...options, created: later("1 day") })
          const old = yield* Make.run(owner, { status: "failed", ...options, created: earlier("1 day") })
          const unknown = (yield* factsOf(owner.companyId)).selectionUnknown
          expect(unknown).toContain(unrecorded)
          expect(unknown).not.toContain(old)
        })
      )
    }

    for (const [status, keeps] of [
      ["queued", true],
      ["scheduled_retry", true],
      ["running", false],
      ["succeeded", false]
    ] as const) {
      it.effect(
        `[S-12] [S-13] a run that a ${status} run retries is ${keeps ? "kept" : "not kept by that"}`,
        () =>
          Effect.gen(function* () {
            const owner = yield* Make.company
            const version = yield* Make.versionId
            const run = yield* Make.run(owner, { status: "failed" })
            yield* record(owner.companyId, run, [version])
            const retry = yield* Make.run(owner, { status, retryOf: run })
            yield* record(owner.companyId, retry, [])
            const facts = yield* factsOf(owner.companyId)
            expect(facts.unsettledRecovery).toEqual(keeps ? new Map([[version, [run]]]) : new Map())
            const unrecorded = yield* Make.run(owner, { status: "failed", created: later("1 day") })
            const old = yield* Make.run(owner, { status: "failed", created: earlier("1 day") })
            for (const retryOf of [unrecorded, old]) {
              yield* record(owner.companyId, yield* Make.run(owner, { status, retryOf }), [])
            }
            const unknown = (yield* factsOf(owner.companyId)).selectionUnknown
            expect(unknown).toEqual(keeps ? [unrecorded] : [])
          })
      )
    }
  })

  describe("unknown selections", () => {
    for (const [name, options, blocks] of [
      ["a running run", { status: "running" }, true],
      ["a run with an unknown status", { status: "something new" }, true],
      ["a queued run", { status: "queued" }, false],
      ["a queued run that was started before", { status: "queued", started: true }, true],
      ["a scheduled retry", { status: "scheduled_retry" }, false],
      ["a scheduled retry that was started before", { status: "scheduled_retry", started: true }, true],
      ["a running run from before the adoption", { status: "running", created: earlier("1 day") }, true]
    ] as const) {
      it.effect(`[S-13] ${name} without a selection ${blocks ? "keeps the company" : "blocks nothing"}`, () =>
        Effect.gen(function* () {
          const owner = yield* Make.company
          const stranger = yield* Make.company
          const run = yield* Make.run(owner, options)
          expect((yield* factsOf(owner.companyId)).selectionUnknown).toEqual(blocks ? [run] : [])
          expect((yield* factsOf(stranger.companyId)).selectionUnknown).toEqual([])
          yield* record(owner.companyId, run, [])
          expect((yield* factsOf(owner.companyId)).selectionUnknown).toEqual([])
        })
      )
    }

    it.effect("[S-13] a selection that was recorded for another company does not count", () =>
      Effect.gen(function* () {
        const [owner, stranger] = [yield* Make.company, yield* Make.company]
        const run = yield* Make.run(owner, { status: "running" })
        yield* record(stranger.companyId, run, [])
        expect((yield* factsOf(owner.companyId)).selectionUnknown).toEqual([run])
        yield* record(owner.companyId, run, [])
        expect((yield* factsOf(owner.companyId)).selectionUnknown).toEqual([])
      })
    )
  })

  describe("agents", () => {
    const a = "0b1e3d5c-7a9f-4c2e-8d1b-6f3a5e7c9d20"
    const b = "5d2c7f1e-3a4b-4c6d-9e8f-1a2b3c4d5e6f"
    const sync = (desiredSkills: unknown) => ({ paperclipSkillSync: { desiredSkills } })
    const readable: ReadonlyArray<readonly [string, unknown, ReadonlyArray<string>]> = [
      ["nothing", {}, []],
      ["null", null, []],
      ["no selection", { paperclipSkillSync: null }, []],
      ["a null list", sync(null), []],
      ["an absent list", { paperclipSkillSync: { other: 1 } }, []],
      ["keys of skills, the older shape", sync(["a", "b"]), []],
      ["entries without a version", sync([{ key: "a" }, { key: "b", versionId: null }]), []],
      ["an entry with a version", sync([{ key: "a", versionId: a }]), [a]],
      ["a version in capitals", sync([{ key: "a", versionId: a.toUpperCase() }]), [a]],
      ["a version where a key belongs", sync([a]), [a]],
      ["a version within a key", sync([`owner/skill@${a.toUpperCase()}`]), [a]],
      ["a version under another name", sync([{ key: "a", version: { id: a } }]), [a]],
      ["versions beside the list", { paperclipSkillSync: { pinned: [[a]], [b]: 1 } }, [a, b]],
      ["both shapes in one list", sync(["b", { key: "a", versionId: a }, { key: "a", versionId: a }]), [a]]
    ]
    for (const [name, config, versions] of readable) {
      it.effect(`[S-14] an agent that names ${name} pins ${versions.length}`, () =>
        Effect.gen(function* () {
          const owner = yield* Make.company
          const agent = yield* Make.agent(owner.companyId, config)
          const facts = yield* factsOf(owner.companyId)
          expect(facts.agentsUnreadable).toEqual([])
          expect(facts.agents).toEqual(new Map(versions.map((version) => [version, [agent]])))
        })
      )
    }
    for (const [name, config] of [
      ["a configuration that is a list", []],
      ["a configuration that is text", '{"paperclipSkillSync": {}}'],
      ["a selection that is text", { paperclipSkillSync: "x" }],
      ["a list that is an object", sync({})],
      ["a list that is text", sync("a")],
      ["a number in the list", sync([1])],
      ["a null in the list", sync([null])],
      ["a list in the list", sync([["a"]])],
      ["a list that is endless", sync(["x".repeat(17 * 1024 * 1024)])],
      ["a version that is no id", sync([{ key: "a", versionId: "latest" }])],
      ["a version that is empty", sync([{ key: "a", versionId: "" }])],
      ["a version that is a number", sync([{ key: "a", versionId: 1 }])]
    ] as const) {
      it.effect(`[S-14] [D-07] ${name} keeps the company`, () =>
        Effect.gen(function* () {
          const owner = yield* Make.company
          const stranger = yield* Make.company
          const agent = yield* Make.agent(owner.companyId, config)
          expect((yield* factsOf(owner.companyId)).agentsUnreadable).toEqual([agent])
          expect((yield* factsOf(stranger.companyId)).agentsUnreadable).toEqual([])
        })
      )
    }
  })

  describe("skill tests", () => {
    for (const [name, status, column, keeps] of [
      ["queued", "queued", null, true],
      ["running", "running", null, true],
      ["unknown", "something new", null, true],
      ["succeeded", "succeeded", null, false],
      ["failed", "failed", null, false],
      ["cancelled", "cancelled", null, false],
      ["deleted", "running", "deleted_at", false],
      ["superseded", "running", "superseded_at", false]
    ] as const) {
      it.effect(`[S-14] a test run that is ${name} ${keeps ? "keeps its version" : "keeps nothing"}`, () =>
        Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          const { companyId } = yield* Make.company
          const skillId = yield* Make.skill(companyId)
          const version = yield* Make.version({ companyId, skillId, revision: 1 })
          const id = crypto.randomUUID()
          yield* sql`insert into company_skill_test_runs (id, company_id, skill_version_id, status)
            values (${id}::uuid, ${companyId}::uuid, ${version}::uuid, ${status})`
          if (column !== null) {
            yield* sql`update company_skill_test_runs set ${sql(column)} = now() where id = ${id}::uuid`
          }
          const facts = yield* factsOf(companyId)
          expect([...facts.testRuns.entries()]).toEqual(keeps ? [[version, [id]]] : [])
        })
      )
    }
  })

  describe("forgetting", () => {
    it.effect("[S-05] drops pins of runs that are over and settled, and of runs that never came", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const pins = yield* SkillPins.SkillPins
        yield* sql`delete from reclaim.run_pins`
        yield* sql`delete from reclaim.run_selections`
        const owner = yield* Make.company
        const version = yield* Make.versionId
        const keep = [
          yield* Make.run(owner, { status: "running" }),
          yield* Make.run(owner, { status: "failed", mode: "native" }),
          yield* Make.run(owner, {
            status: "failed",
            mode: "native",
            finalization: { phase: "committed", lease: later("30 days") }
          })
        ]
        const retried = yield* Make.run(owner, { status: "failed" })
        yield* Make.run(owner, { status: "queued", retryOf: retried })
        keep.push(retried)
        const drop = [
          yield* Make.run(owner, { status: "succeeded" }),
          yield* Make.run(owner, { status: "failed", mode: "native", finalization: { phase: "committed" } }),
          yield* Make.runId
        ]
        for (const run of [...keep, ...drop]) yield* record(owner.companyId, run, [version])
        expect(yield* pins.forget(100)).toBe(2)
        expect(yield* at(later("25 hours"))(pins.forget(100))).toBe(1)
        const left = yield* sql<{ readonly id: string }>`select run_id::text as id from reclaim.run_pins`
        expect(left.map((row) => row.id).toSorted()).toEqual(keep.toSorted())
      })
    )

    const again: ReadonlyArray<
      readonly [string, (run: Ids.RunId) => Effect.Effect<unknown, unknown, SqlClient.SqlClient>]
    > = [
      [
        "runs again",
        (run) =>
          Effect.flatMap(
            SqlClient.SqlClient,
            (sql) => sql`update heartbeat_runs set status = 'running' where id = ${run}::uuid`
          )
      ],
      [
        "is leased again",
        (run) =>
          Effect.flatMap(
            SqlClient.SqlClient,
            (sql) => sql`update native_run_finalizations set lease_expires_at = 'infinity'
              where run_id = ${run}::uuid`
          )
      ],
      [
        "is retried late",
        (run) =>
          Effect.flatMap(
            SqlClient.SqlClient,
            (sql) => sql`insert into heartbeat_runs
                (id, company_id, agent_id, status, runtime_mode, created_at, retry_of_run_id)
              select gen_random_uuid(), company_id, agent_id, 'queued', 'native', created_at, id
              from heartbeat_runs where id = ${run}::uuid`
          )
      ]
    ]
    for (const [name, change] of again) {
      it.effect(`[S-12] [S-13] a run that was forgotten and ${name} keeps the company`, () =>
        Effect.gen(function* () {
          const pins = yield* SkillPins.SkillPins
          yield* noPins
          const owner = yield* Make.company
          const [run, released] = yield* Effect.replicateEffect(
            Make.run(owner, {
              status: "failed",
              mode: "native",
              started: true,
              finalization: { phase: "committed" }
            }),
            2
          )
          if (run === undefined || released === undefined) return yield* Effect.die("no runs")
          for (const each of [run, released]) yield* record(owner.companyId, each, [yield* Make.versionId])
          yield* pins.release(released)
          expect(yield* pins.forget(100)).toBe(1)
          expect((yield* factsOf(owner.companyId)).selectionUnknown).toEqual([])
          for (const each of [run, released]) yield* change(each)
          expect((yield* factsOf(owner.companyId)).selectionUnknown).toEqual([run])
          expect(yield* runsIn("run_selections")).toEqual([released])
        })
      )
    }

    it.effect("[S-11] [S-13] a run whose row comes after its pins were forgotten keeps the company", () =>
      Effect.gen(function* () {
        const pins = yield* SkillPins.SkillPins
        yield* noPins
        const owner = yield* Make.company
        const run = yield* Make.runId
        yield* record(owner.companyId, run, [yield* Make.versionId])
        expect(yield* at(later("25 hours"))(pins.forget(100))).toBe(1)
        yield* Make.run(owner, { id: run, status: "running", started: true })
        const facts = yield* at(later("25 hours"))(factsOf(owner.companyId))
        expect(facts.selectionUnknown).toEqual([run])
      })
    )

    it.effect(
      "[S-05] [S-13] forgetting pins leaves what was released of the same run in another company",
      () =>
        Effect.gen(function* () {
          const pins = yield* SkillPins.SkillPins
          const sql = yield* SqlClient.SqlClient
          yield* noPins
          const owner = yield* Make.company
          const stranger = yield* Make.company
          const run = yield* Make.run(owner, { status: "failed" })
          yield* record(stranger.companyId, run, [])
          yield* pins.release(run)
          yield* record(owner.companyId, run, [yield* Make.versionId])
          expect(yield* pins.forget(100)).toBe(1)
          const left = yield* sql<{ readonly id: string }>`
          select company_id::text as id from reclaim.run_selections`
          expect(left.map((row) => row.id)).toEqual([stranger.companyId])
        })
    )

    it.effect("[S-05] [S-13] a later selection of nothing goes with the pins before it", () =>
      Effect.gen(function* () {
        const pins = yield* SkillPins.SkillPins
        yield* noPins
        const owner = yield* Make.company
        const run = yield* Make.run(owner, { status: "failed" })
        yield* record(owner.companyId, run, [yield* Make.versionId])
        yield* at(later("1 hour"))(record(owner.companyId, run, []))
        expect(yield* at(later("2 hours"))(pins.forget(100))).toBe(1)
        expect(yield* runsIn("run_pins")).toEqual([])
        expect(yield* runsIn("run_selections")).toEqual([])
      })
    )

    it.effect("[S-05] [S-13] a run without pins stays known, and its row goes after 30 days", () =>
      Effect.gen(function* () {
        const pins = yield* SkillPins.SkillPins
        yield* noPins
        const owner = yield* Make.company
        const over = { status: "succeeded", mode: "native" } as const
        const [empty, released] = [
          yield* Make.run(owner, { ...over, finalization: { phase: "committed" } }),
          yield* Make.run(owner, { ...over, finalization: { phase: "committed" } })
        ]
        yield* record(owner.companyId, empty, [])
        yield* record(owner.companyId, released, [yield* Make.versionId])
        yield* pins.release(released)
        expect(yield* at(later("29 days"))(pins.forget(100))).toBe(0)
        expect(yield* runsIn("run_selections")).toEqual([empty, released].toSorted())
        const leased = yield* Make.run(owner, {
          ...over,
          finalization: { phase: "committed", lease: "infinity" }
        })
        yield* record(owner.companyId, leased, [])
        yield* at(later("31 days"))(pins.forget(100))
        expect(yield* runsIn("run_selections")).toEqual([leased])
      })
    )

    it.effect("[S-05] takes the runs with pins first, at most as many as it is told", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const pins = yield* SkillPins.SkillPins
        yield* sql`delete from reclaim.run_pins`
        yield* sql`delete from reclaim.run_selections`
        const owner = yield* Make.company
        // The oldest pins stay: they must not stand in the way of the others.
        const retried = yield* Make.run(owner, { status: "failed" })
        yield* Make.run(owner, { status: "queued", retryOf: retried })
        yield* at(earlier("1 day"))(record(owner.companyId, retried, [yield* Make.versionId]))
        for (const versions of [[], [], [yield* Make.versionId], [yield* Make.versionId]]) {
          yield* record(owner.companyId, yield* Make.run(owner, { status: "succeeded" }), versions)
        }
        expect(yield* pins.forget(1)).toBe(1)
        expect(yield* pins.forget(1)).toBe(1)
        expect(yield* pins.forget(1)).toBe(0)
      })
    )
  })

  describe("forgetting while a run is taken up again", () => {
    const changes: ReadonlyArray<
      readonly [
        string,
        (
          owner: Effect.Success<typeof Make.company>,
          run: Ids.RunId,
          now: DateTime.Utc
        ) => Effect.Effect<unknown, unknown, SqlClient.SqlClient>
      ]
    > = [
      ["a retry of it is queued", (owner, run) => Make.run(owner, { status: "queued", retryOf: run })],
      [
        "a retry of it is scheduled",
        (owner, run) => Make.run(owner, { status: "scheduled_retry", retryOf: run })
      ],
      [
        "a lease is taken",
        (_, run, now) =>
          Effect.flatMap(
            SqlClient.SqlClient,
            (sql) => sql`update native_run_finalizations set lease_expires_at = ${DateTime.toDateUtc(now)}
              where run_id = ${run}::uuid`
          )
      ],
      [
        "its recovery begins",
        (_, run) =>
          Effect.flatMap(
            SqlClient.SqlClient,
            (sql) => sql`update native_run_finalizations set recovery_state = 'blocked'
              where run_id = ${run}::uuid`
          )
      ],
      [
        "its finalization is reopened",
        (_, run) =>
          Effect.flatMap(
            SqlClient.SqlClient,
            (sql) => sql`update native_run_finalizations set phase = 'observed' where run_id = ${run}::uuid`
          )
      ],
      [
        "it runs again",
        (_, run) =>
          Effect.flatMap(
            SqlClient.SqlClient,
            (sql) => sql`update heartbeat_runs set status = 'running' where id = ${run}::uuid`
          )
      ]
    ]
    for (const [name, change] of changes) {
      it.effect(`[S-12] [S-05] ${name}: its pins and its selection stay`, () =>
        Effect.gen(function* () {
          const pins = yield* SkillPins.SkillPins
          yield* noPins
          const owner = yield* Make.company
          const over = {
            status: "failed",
            mode: "native",
            finalization: { phase: "committed" }
          } as const
          const [run, other] = [yield* Make.run(owner, over), yield* Make.run(owner, over)]
          for (const each of [run, other]) yield* record(owner.companyId, each, [yield* Make.versionId])
          expect(yield* meanwhile("forget.beforePins", pins.forget(100), change(owner, run, noon))).toBe(1)
          expect(yield* runsIn("run_pins")).toEqual([run])
          expect(yield* runsIn("run_selections")).toEqual([run])

          yield* noPins
          const [known, gone] = [yield* Make.run(owner, over), yield* Make.run(owner, over)]
          for (const each of [known, gone]) yield* record(owner.companyId, each, [])
          yield* meanwhile(
            "forget.beforeSelections",
            at(later("31 days"))(pins.forget(100)),
            change(owner, known, later("31 days"))
          )
          expect(yield* runsIn("run_selections")).toEqual([known])
        })
      )
    }

    it.effect("[S-05] its row is removed: its pins stay for the rest of the day", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const pins = yield* SkillPins.SkillPins
        yield* noPins
        const owner = yield* Make.company
        const run = yield* Make.run(owner, { status: "failed" })
        yield* record(owner.companyId, run, [yield* Make.versionId])
        const removal = sql`delete from heartbeat_runs where id = ${run}::uuid`
        expect(yield* meanwhile("forget.beforePins", pins.forget(100), removal)).toBe(0)
        expect(yield* at(later("24 hours"))(pins.forget(100))).toBe(1)
      })
    )

    it.effect("[S-05] a lease that ends before the look leaves nothing behind", () =>
      Effect.gen(function* () {
        const pins = yield* SkillPins.SkillPins
        yield* noPins
        const owner = yield* Make.company
        const run = yield* Make.run(owner, {
          status: "failed",
          mode: "native",
          finalization: { phase: "committed", lease: later("1 hour") }
        })
        yield* record(owner.companyId, run, [yield* Make.versionId])
        expect(yield* at(later("1 hour"))(pins.forget(100))).toBe(0)
        expect(yield* at(DateTime.addDuration(later("1 hour"), "1 millis"))(pins.forget(100))).toBe(1)
      })
    )

    it.effect("[S-05] it prepares again in a transaction that is still open: its pins stay", () =>
      Effect.gen(function* () {
        const pins = yield* SkillPins.SkillPins
        yield* noPins
        const owner = yield* Make.company
        const run = yield* Make.run(owner, { status: "failed" })
        const pin = { skillId: yield* Make.skillId, versionId: yield* Make.versionId }
        // One that it does not select again: what a run selected adds up.
        const other = { skillId: yield* Make.skillId, versionId: yield* Make.versionId }
        const { companyShared } = yield* Transactions.Transactions
        yield* companyShared(owner.companyId, () => pins.record(owner.companyId, run, [pin, other]))
        const dropped = yield* uncommitted(
          later("1 hour"),
          [owner.companyId, run, [pin]],
          at(later("2 hours"))(pins.forget(100))
        )
        expect(dropped).toBe(0)
        expect(yield* runsIn("run_pins")).toEqual([run, run])
        expect(yield* runsIn("run_selections")).toEqual([run])
      })
    )

    it.effect("[S-05] [S-13] likewise with an empty selection: the run stays known for 30 days more", () =>
      Effect.gen(function* () {
        const pins = yield* SkillPins.SkillPins
        yield* noPins
        const owner = yield* Make.company
        const run = yield* Make.run(owner, { status: "failed" })
        yield* record(owner.companyId, run, [])
        yield* uncommitted(
          later("31 days"),
          [owner.companyId, run, []],
          at(later("32 days"))(pins.forget(100))
        )
        expect(yield* runsIn("run_selections")).toEqual([run])
        yield* at(later("60 days"))(pins.forget(100))
        expect(yield* runsIn("run_selections")).toEqual([run])
        yield* at(later("62 days"))(pins.forget(100))
        expect(yield* runsIn("run_selections")).toEqual([])
      })
    )
  })

  it.effect("[D-08] the number of statements depends on neither companies nor runs nor agents", () =>
    Effect.gen(function* () {
      const pins = yield* SkillPins.SkillPins
      const owners = [yield* Make.company, ...(yield* Effect.replicateEffect(Make.company, 4))] as const
      for (const owner of owners) {
        for (let index = 0; index < 4; index++) {
          const run = yield* Make.run(owner, { status: "running" })
          yield* record(owner.companyId, run, [yield* Make.versionId, yield* Make.versionId])
          yield* Make.agent(owner.companyId, {})
        }
      }
      const [{ companyId }] = owners
      const one = yield* statementsOf(pins.facts([companyId]))
      const all = yield* statementsOf(pins.facts(owners.map((owner) => owner.companyId)))
      expect(one.length).toBe(1)
      expect(all).toEqual(one)
      const { now } = yield* DatabaseClock.DatabaseClock
      const underTheLock = pins.factsOf(companyId, yield* Make.versionId, yield* now)
      expect((yield* statementsOf(underTheLock)).length).toBe(1)
    })
  )

  it.effect("[D-03] refuses inside a transaction of the caller", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const pins = yield* SkillPins.SkillPins
      const { companyId } = yield* Make.company
      for (const attempt of [
        Effect.asVoid(pins.facts([companyId])),
        Effect.asVoid(pins.activePins()),
        Effect.asVoid(pins.forget(1)),
        pins.record(companyId, yield* Make.runId, [])
      ]) {
        const error = yield* Effect.flip(sql.withTransaction(attempt))
        expect(error instanceof DatabaseError.DatabaseError && error.reason._tag).toBe("NestedTransaction")
      }
    })
  )
})

layer(host())("SkillPins without the schema reclaim", (it) => {
  it.effect("[O-02] [S-13] takes every selection as unrecorded, and what writes says what to do", () =>
    Effect.gen(function* () {
      const pins = yield* SkillPins.SkillPins
      const owner = yield* Make.company
      const running = yield* Make.run(owner, { status: "running" })
      yield* Make.run(owner, { status: "queued" })
      yield* Make.run(owner, { status: "failed", mode: "native" })
      expect((yield* factsOf(owner.companyId)).selectionUnknown).toEqual([running])
      expect(yield* pins.activePins()).toEqual([])
      for (const attempt of [
        Effect.asVoid(pins.forget(1)),
        Effect.asVoid(pins.release(running)),
        pins.record(owner.companyId, running, [])
      ]) {
        const error = yield* Effect.flip(attempt)
        expect(error).toBeInstanceOf(HostSchema.NotAdopted)
        expect(error.message).toContain("reclaim migrate")
      }
    })
  )
})
