/**
 * Knows who still needs a copy: runs, recoveries, agents, skill tests and operators.
 *
 * **Details**
 *
 * Host and library each hold a part. The host has runs, their finalizations, agents and test runs; the
 * schema `reclaim` has what each run selected and what operators hold. A run is over only when its status
 * is one of the known ends; every other value, also one that does not exist yet, is active. Leases and ages
 * are judged here, with an instant of `DatabaseClock`. Only what removes rows compares them in SQL, with that
 * same instant, because what was judged must still be so when it is removed.
 *
 * A pin is written in the same transaction in which the lock of the company is held shared, so whoever
 * holds it exclusively sees all pins. A host with other tables supplies its own layer.
 *
 * @since 0.1.0
 */
import { FaultPoint, Ids, NativeSession } from "@reclaim/core"
import { Context, DateTime, Duration, Effect, Layer, Option, Schema } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { Fragment } from "effect/sql/Statement"
import { DatabaseClock } from "./DatabaseClock.ts"
import type { DatabaseError } from "./DatabaseError.ts"
import { HostSchema, type MissingTables, type NotAdopted } from "./HostSchema.ts"
import { agentPins } from "./internal/agentPins.ts"
import { millis, push, query, run } from "./internal/rows.ts"
import { Transactions } from "./Transactions.ts"

/**
 * Everything that pins copies of one company.
 *
 * @category models
 * @since 0.1.0
 */
export interface CompanyPins {
  /** Runs that are not over, by the versions that they selected. */
  readonly activeRuns: ReadonlyMap<Ids.VersionId, ReadonlyArray<Ids.RunId>>
  /** Runs that are over but can be resumed, by the versions that they selected. */
  readonly unsettledRecovery: ReadonlyMap<Ids.VersionId, ReadonlyArray<Ids.RunId>>
  /** Agents that name a version in their configuration. */
  readonly agents: ReadonlyMap<Ids.VersionId, ReadonlyArray<Ids.AgentId>>
  /** Skill test runs that are not finished. */
  readonly testRuns: ReadonlyMap<Ids.VersionId, ReadonlyArray<Ids.TestRunId>>
  /** Runs whose selection is not recorded: each keeps every copy of the company. */
  readonly selectionUnknown: ReadonlyArray<Ids.RunId>
  /** Agents whose configuration cannot be read: each keeps every copy of the company. */
  readonly agentsUnreadable: ReadonlyArray<Ids.AgentId>
  /** What operators hold. */
  readonly held: ReadonlyMap<Ids.VersionId, { readonly by: string; readonly note: string }>
}

/** One version that a run selected. @category models @since 0.1.0 */
export interface Pin {
  readonly skillId: Ids.SkillId
  readonly versionId: Ids.VersionId
}

/** A version that an active run selected. @category models @since 0.1.0 */
export interface ActivePin extends Pin {
  readonly companyId: Ids.CompanyId
  readonly runId: Ids.RunId
}

/**
 * The pins of companies.
 *
 * @category services
 * @since 0.1.0
 */
export class SkillPins extends Context.Service<
  SkillPins,
  {
    /**
     * Reads the pins of companies, in a number of statements that depends on neither companies nor copies.
     * Every company that is asked for has an entry. A failure means that nothing is known: keep.
     */
    readonly facts: (
      companyIds: ReadonlyArray<Ids.CompanyId>
    ) => Effect.Effect<ReadonlyMap<Ids.CompanyId, CompanyPins>, DatabaseError>
    /**
     * Records what a run selected, in the transaction that is open, which should hold the company's lock
     * shared. Selections add up until the run is released; none at all makes the run known.
     */
    readonly record: (
      companyId: Ids.CompanyId,
      runId: Ids.RunId,
      pins: ReadonlyArray<Pin>
    ) => Effect.Effect<void, DatabaseError | NotAdopted>
    /** Drops the pins of a run, which stays known. Returns how many there were. */
    readonly release: (runId: Ids.RunId) => Effect.Effect<number, DatabaseError | NotAdopted>
    /** The pins of active runs, of one company or of all. */
    readonly activePins: (companyId?: Ids.CompanyId) => Effect.Effect<ReadonlyArray<ActivePin>, DatabaseError>
    /**
     * Drops what is no longer needed, for at most `limit` runs: pins of runs that are over and settled, and
     * pins older than 24 hours whose run never appeared. A run whose pins go is no longer known: if it is
     * taken up again after all, it keeps the company. Runs without pins, and those that were released, stay
     * known for 30 days. Returns the number of pins dropped.
     */
    readonly forget: (limit: number) => Effect.Effect<number, DatabaseError | NotAdopted>
  }
>()("@reclaim/db/SkillPins") {}

const beforePins = FaultPoint.make("forget.beforePins")
const beforeSelections = FaultPoint.make("forget.beforeSelections")

// 24 hours: a preparation comes before its run's row; a row that has not come in a day never will.
const runlessPin = Duration.hours(24)

// 30 days: nothing resumes a run that old, and the row of a run that is known costs little.
const knownFor = Duration.days(30)

/** A run that waits has prepared nothing. */
const waiting = ["queued", "scheduled_retry"]

/** What decides about a run. */
const Standing = {
  status: Schema.NullOr(Schema.String),
  runtimeMode: Schema.NullOr(Schema.String),
  finalized: Schema.Boolean,
  phase: Schema.NullOr(Schema.String),
  leaseExpiresAt: Schema.NullOr(Schema.Finite),
  recoveryState: Schema.NullOr(Schema.String)
}
const StandingStruct = Schema.Struct(Standing)
type Standing = typeof StandingStruct.Type

const isActive = (run: Standing): boolean => run.status === null || !NativeSession.isTerminal(run.status)

/** True for a run that its own recovery can resume. A retry that names it is looked at apart. */
const isResumable = (run: Standing, now: DateTime.Utc): boolean => {
  const { finalized, leaseExpiresAt, phase, recoveryState } = run
  const finalization = {
    phase: phase ?? "",
    leaseExpiresAt: leaseExpiresAt === null ? null : DateTime.makeUnsafe(Math.floor(leaseExpiresAt)),
    recoveryState
  }
  return !NativeSession.isSettled(run, finalized ? [finalization] : [], now)
}

const RunRow = Schema.Struct({
  ...Standing,
  runId: Ids.RunId,
  companyId: Ids.CompanyId,
  started: Schema.Boolean,
  recorded: Schema.Boolean,
  retryOf: Schema.NullOr(Ids.RunId)
})

const RetriedRow = Schema.Struct({ runId: Ids.RunId, companyId: Ids.CompanyId })

const PinRow = Schema.Struct({
  ...Standing,
  runId: Ids.RunId,
  companyId: Ids.CompanyId,
  skillId: Ids.SkillId,
  versionId: Ids.VersionId,
  recordedAt: Schema.Finite,
  runExists: Schema.Boolean
})
type PinRow = typeof PinRow.Type

const AgentRow = Schema.Struct({
  agentId: Ids.AgentId,
  companyId: Ids.CompanyId,
  shape: Schema.NullOr(Schema.String),
  sync: Schema.Unknown
})

const TestRunRow = Schema.Struct({
  testRunId: Ids.TestRunId,
  companyId: Ids.CompanyId,
  versionId: Ids.VersionId
})

const HoldRow = Schema.Struct({
  companyId: Ids.CompanyId,
  versionId: Ids.VersionId,
  by: Schema.String,
  note: Schema.String
})

const OldRow = Schema.Struct({
  ...Standing,
  runId: Ids.RunId,
  recordedAt: Schema.Finite,
  runExists: Schema.Boolean
})

const Count = Schema.Struct({ count: Schema.Finite })

type Use = "active" | "unsettled" | "none"

interface Pinning extends Standing {
  readonly runId: Ids.RunId
  readonly runExists: boolean
  readonly recordedAt: number
}

const useOf = (row: Pinning, retried: ReadonlySet<Ids.RunId>, now: DateTime.Utc): Use => {
  if (!row.runExists) {
    return DateTime.toEpochMillis(now) - row.recordedAt < Duration.toMillis(runlessPin) ? "active" : "none"
  }
  if (isActive(row)) return "active"
  return retried.has(row.runId) || isResumable(row, now) ? "unsettled" : "none"
}

/**
 * The pins in the host's tables and in the schema `reclaim`.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<
  SkillPins,
  MissingTables,
  SqlClient.SqlClient | Transactions | HostSchema | DatabaseClock
> = Layer.effect(
  SkillPins,
  Effect.gen(function* () {
    const sql = (yield* SqlClient.SqlClient).withoutTransforms()
    const transactions = yield* Transactions
    const host = yield* HostSchema
    const clock = yield* DatabaseClock
    yield* host.requireSkills

    const native: Fragment = sql`coalesce(r.runtime_mode::text, '') <> 'legacy'`

    const standing: Fragment = sql`
      r.status::text as "status",
      r.runtime_mode::text as "runtimeMode",
      f.run_id is not null as "finalized",
      f.phase::text as "phase",
      ${millis(sql, sql`f.lease_expires_at`)} as "leaseExpiresAt",
      f.recovery_state::text as "recoveryState"`

    const ended: Fragment = sql`coalesce(r.status::text, '') in ${sql.in(NativeSession.terminalStatuses)}`

    const recorded: Fragment = sql`
      exists (select from reclaim.run_selections s where s.run_id = r.id and s.company_id = r.company_id)`

    const after = (adopted: DateTime.Utc): Fragment =>
      sql`(r.created_at is null or r.created_at >= ${DateTime.toDateUtc(adopted)})`

    /**
     * Active runs, and those that are over but may be resumable and have recorded nothing. Two selections,
     * not one with "or": a company has few active runs and very many that are over.
     */
    const readRuns = (companyIds: ReadonlyArray<Ids.CompanyId>, adopted: Option.Option<DateTime.Utc>) => {
      const columns = (known: Fragment) => sql`
        r.id::text as "runId", r.company_id::text as "companyId", r.retry_of_run_id::text as "retryOf",
        (coalesce(r.status::text, '') not in ${sql.in(waiting)} or r.started_at is not null) as "started",
        ${known} as "recorded", ${standing}`
      const source = sql`
        from heartbeat_runs r left join native_run_finalizations f on f.run_id = r.id
        where r.company_id = any(${companyIds}::uuid[])`
      // A superset: leases are judged by the database's clock, not by SQL.
      const resumable = sql`
        ((f.run_id is null and ${native})
          or (f.run_id is not null and (coalesce(f.phase::text, '') not in ${sql.in(NativeSession.settledPhases)}
              or f.recovery_state is not null or f.lease_expires_at is not null)))`
      return query(
        RunRow,
        "reading runs",
        Option.match(adopted, {
          // Before the adoption nothing is recorded, and no run was created after it.
          onNone: () => sql`select ${columns(sql`false`)} ${source} and not ${ended} order by "runId"`,
          onSome: (at) => sql`
            select ${columns(recorded)} ${source} and not ${ended}
            union all
            select ${columns(sql`false`)} ${source}
              and ${ended} and ${after(at)} and not ${recorded} and ${resumable}
            order by "runId"`
        })
      )
    }

    /** Those among the runs that have recorded nothing, were created after the adoption, and are over. */
    const readRetried = (
      companyIds: ReadonlyArray<Ids.CompanyId>,
      runIds: ReadonlyArray<Ids.RunId>,
      adopted: DateTime.Utc
    ) =>
      query(
        RetriedRow,
        "reading retried runs",
        sql`select r.id::text as "runId", r.company_id::text as "companyId" from heartbeat_runs r
            where r.id = any(${runIds}::uuid[]) and r.company_id = any(${companyIds}::uuid[])
              and ${ended} and ${after(adopted)} and not ${recorded}
            order by r.id`
      )

    const readPins = (companyIds: Option.Option<ReadonlyArray<Ids.CompanyId>>) =>
      query(
        PinRow,
        "reading pins",
        sql`select p.run_id::text as "runId", p.company_id::text as "companyId", p.skill_id::text as "skillId",
              p.version_id::text as "versionId", ${millis(sql, sql`p.recorded_at`)} as "recordedAt",
              r.id is not null as "runExists", ${standing}
            from reclaim.run_pins p
            left join heartbeat_runs r on r.id = p.run_id
            left join native_run_finalizations f on f.run_id = r.id
            where ${Option.match(companyIds, {
              onNone: () => sql`true`,
              onSome: (ids) => sql`p.company_id = any(${ids}::uuid[])`
            })}
            order by p.recorded_at, p.run_id, p.version_id`
      )

    // 1 MiB: a list of skills is a few kilobytes, and the driver refuses messages over 16 MiB, with which the
    // pins of all others would be lost.
    const readAgents = (companyIds: ReadonlyArray<Ids.CompanyId>) =>
      query(
        AgentRow,
        "reading agents",
        sql`select a.id::text as "agentId", a.company_id::text as "companyId",
              jsonb_typeof(a.adapter_config) as "shape",
              case when length((a.adapter_config -> 'paperclipSkillSync')::text) <= 1048576
                then a.adapter_config -> 'paperclipSkillSync' else '"too large"'::jsonb end as "sync"
            from agents a
            where a.company_id = any(${companyIds}::uuid[])
              and (a.adapter_config -> 'paperclipSkillSync' is not null
                   or jsonb_typeof(a.adapter_config) not in ('object', 'null'))
            order by a.id`
      )

    const readTestRuns = (companyIds: ReadonlyArray<Ids.CompanyId>) =>
      query(
        TestRunRow,
        "reading skill test runs",
        sql`select t.id::text as "testRunId", t.company_id::text as "companyId",
              t.skill_version_id::text as "versionId"
            from company_skill_test_runs t
            where t.company_id = any(${companyIds}::uuid[]) and t.skill_version_id is not null
              and t.deleted_at is null and t.superseded_at is null
              and coalesce(t.status::text, '') not in ${sql.in(NativeSession.terminalStatuses)}
            order by t.id`
      )

    const readHolds = (companyIds: ReadonlyArray<Ids.CompanyId>) =>
      query(
        HoldRow,
        "reading holds",
        sql`select h.company_id::text as "companyId", h.version_id::text as "versionId",
              h.held_by as "by", h.note as "note"
            from reclaim.holds h where h.kind = 'version' and h.company_id = any(${companyIds}::uuid[])`
      )

    const facts = Effect.fnUntraced(function* (companyIds: ReadonlyArray<Ids.CompanyId>) {
      const result = new Map(
        companyIds.map((companyId) => [
          companyId,
          {
            activeRuns: new Map<Ids.VersionId, Array<Ids.RunId>>(),
            unsettledRecovery: new Map<Ids.VersionId, Array<Ids.RunId>>(),
            agents: new Map<Ids.VersionId, Array<Ids.AgentId>>(),
            testRuns: new Map<Ids.VersionId, Array<Ids.TestRunId>>(),
            selectionUnknown: new Array<Ids.RunId>(),
            agentsUnreadable: new Array<Ids.AgentId>(),
            held: new Map<Ids.VersionId, { readonly by: string; readonly note: string }>()
          }
        ])
      )
      if (companyIds.length === 0) return result
      const adopted = yield* host.adopted
      const now = yield* clock.now
      const runs = yield* readRuns(companyIds, adopted)
      const retried = new Set(
        runs.flatMap(({ retryOf, status }) =>
          retryOf !== null && status !== null && waiting.includes(status) ? [retryOf] : []
        )
      )
      for (const row of runs) {
        const unknown = isActive(row) ? row.started && !row.recorded : isResumable(row, now)
        if (unknown) result.get(row.companyId)?.selectionUnknown.push(row.runId)
      }
      if (Option.isSome(adopted) && retried.size > 0) {
        for (const row of yield* readRetried(companyIds, [...retried], adopted.value)) {
          const unknown = result.get(row.companyId)?.selectionUnknown
          if (unknown?.includes(row.runId) === false) unknown.push(row.runId)
        }
      }
      const pins = Option.isSome(adopted) ? yield* readPins(Option.some(companyIds)) : []
      for (const row of pins) {
        const company = result.get(row.companyId)
        const use = useOf(row, retried, now)
        if (company === undefined || use === "none") continue
        push(use === "active" ? company.activeRuns : company.unsettledRecovery, row.versionId, row.runId)
      }
      for (const row of yield* readAgents(companyIds)) {
        const company = result.get(row.companyId)
        const named = agentPins(row.shape, row.sync)
        if (company === undefined) continue
        if (Option.isNone(named)) company.agentsUnreadable.push(row.agentId)
        else for (const versionId of named.value) push(company.agents, versionId, row.agentId)
      }
      const testRuns = host.testRuns ? yield* readTestRuns(companyIds) : []
      for (const row of testRuns) {
        const company = result.get(row.companyId)
        if (company !== undefined) push(company.testRuns, row.versionId, row.testRunId)
      }
      const holds = Option.isSome(adopted) ? yield* readHolds(companyIds) : []
      for (const { by, companyId, note, versionId } of holds)
        result.get(companyId)?.held.set(versionId, { by, note })
      return result
    })

    const record = Effect.fnUntraced(function* (
      companyId: Ids.CompanyId,
      runId: Ids.RunId,
      pins: ReadonlyArray<Pin>
    ) {
      const operation = "recording a selection"
      yield* host.requireAdopted(operation)
      const now = DateTime.toDateUtc(yield* clock.now)
      yield* run(
        operation,
        sql`insert into reclaim.run_selections (run_id, company_id, recorded_at)
            values (${runId}::uuid, ${companyId}::uuid, ${now})
            on conflict (run_id, company_id) do update
              set released_at = null, recorded_at = greatest(run_selections.recorded_at, excluded.recorded_at)`
      )
      if (pins.length === 0) return
      yield* run(
        operation,
        sql`insert into reclaim.run_pins (run_id, company_id, skill_id, version_id, recorded_at)
            select distinct ${runId}::uuid, ${companyId}::uuid, p.skill_id, p.version_id, ${now}::timestamptz
            from unnest(${pins.map((pin) => pin.skillId)}::uuid[], ${pins.map((pin) => pin.versionId)}::uuid[])
              as p (skill_id, version_id)
            -- A run that prepares again before it has a row begins its day anew.
            on conflict (run_id, version_id, company_id, skill_id)
              do update set recorded_at = greatest(run_pins.recorded_at, excluded.recorded_at)`
      )
    })

    const release = Effect.fnUntraced(function* (runId: Ids.RunId) {
      const operation = "releasing a run"
      yield* host.requireAdopted(operation)
      const now = DateTime.toDateUtc(yield* clock.now)
      yield* run(
        operation,
        sql`update reclaim.run_selections set released_at = ${now} where run_id = ${runId}::uuid`
      )
      const rows = yield* query(
        Count,
        operation,
        sql`with gone as (delete from reclaim.run_pins where run_id = ${runId}::uuid returning 1)
            select count(*)::float8 as "count" from gone`
      )
      return rows[0]?.count ?? 0
    })

    const activePins = Effect.fnUntraced(function* (companyId?: Ids.CompanyId) {
      if (Option.isNone(yield* host.adopted)) return []
      const now = yield* clock.now
      const rows = yield* readPins(companyId === undefined ? Option.none() : Option.some([companyId]))
      return (
        rows
          // Whether a run that is over is retried does not make it active.
          .filter((row: PinRow) => useOf(row, new Set(), now) === "active")
          .map(({ companyId, runId, skillId, versionId }): ActivePin => ({
            companyId,
            runId,
            skillId,
            versionId
          }))
      )
    })

    /**
     * What may be over: a lease that lives, and a run whose row may still come, are judged with the clock.
     * "not in", because with "not exists" the planner looks for the retries of each run anew.
     */
    const over: Fragment = sql`
      (r.id is null
        or (${ended}
          and case when f.run_id is null then not ${native}
                   else f.phase::text in ${sql.in(NativeSession.settledPhases)} and f.recovery_state is null end
          and r.id not in (select q.retry_of_run_id from heartbeat_runs q
                           where q.retry_of_run_id is not null and q.status::text in ${sql.in(waiting)})))`

    /**
     * The runs that were judged, as they are when a statement removes their rows: one that was taken up again
     * in between is not among them. `seen` is the newest row that was judged. A run that prepares at this
     * very moment gives its rows a later instant, which PostgreSQL looks at once more after it waited for
     * them; of other tables it sees no more than before.
     */
    const stillOver = (judged: ReadonlyArray<typeof OldRow.Type>, now: DateTime.Utc): Fragment => sql`
      (select j.run_id, j.seen
       from unnest(
         ${judged.map((row) => row.runId)}::uuid[],
         ${judged.map((row) => DateTime.formatIso(DateTime.makeUnsafe(Math.ceil(row.recordedAt))))}::timestamptz[]
       ) as j (run_id, seen)
       left join heartbeat_runs r on r.id = j.run_id
       left join native_run_finalizations f on f.run_id = r.id
       where ${over} and (f.lease_expires_at is null or f.lease_expires_at < ${DateTime.toDateUtc(now)})
         and (r.id is not null
              or j.seen <= ${DateTime.toDateUtc(DateTime.subtractDuration(now, runlessPin))}))`

    /**
     * Pins and selection go in one transaction: a selection without its pins would read as one of nothing. The
     * selection goes first, as in `record`, so that the two do not wait for each other, and the pins only
     * where it went: one that was recorded meanwhile keeps all of them. Two statements, because PostgreSQL
     * cannot look again at a changed row with a condition on what the same statement deletes.
     */
    const forgetPins = Effect.fnUntraced(function* (
      operation: string,
      judged: ReadonlyArray<typeof OldRow.Type>,
      now: DateTime.Utc
    ) {
      yield* run(
        operation,
        sql`delete from reclaim.run_selections s using ${stillOver(judged, now)} o
            where s.run_id = o.run_id and s.recorded_at <= o.seen and s.released_at is null`
      )
      const rows = yield* query(
        Count,
        operation,
        sql`with gone as (
              delete from reclaim.run_pins p using ${stillOver(judged, now)} o
              where p.run_id = o.run_id and p.recorded_at <= o.seen
                and not exists (select from reclaim.run_selections s
                                where s.run_id = p.run_id and s.company_id = p.company_id
                                  and s.released_at is null)
              returning 1)
            select count(*)::float8 as "count" from gone`
      )
      return rows[0]?.count ?? 0
    })

    const forget = Effect.fnUntraced(function* (limit: number) {
      const operation = "forgetting runs"
      yield* host.requireAdopted(operation)
      const now = yield* clock.now
      const isOver = (row: typeof OldRow.Type) => useOf(row, new Set(), now) === "none"
      const pinning = yield* query(
        OldRow,
        operation,
        sql`select p.run_id::text as "runId", ${millis(sql, sql`p.recorded_at`)} as "recordedAt",
              r.id is not null as "runExists", ${standing}
            from (select q.run_id, greatest(max(q.recorded_at), (
                    select max(s.recorded_at) from reclaim.run_selections s where s.run_id = q.run_id
                  )) as recorded_at
                  from reclaim.run_pins q group by q.run_id) p
            left join heartbeat_runs r on r.id = p.run_id
            left join native_run_finalizations f on f.run_id = r.id
            where ${over}
            order by p.recorded_at, p.run_id
            limit ${limit}::int`
      )
      const done = pinning.filter(isOver)
      yield* beforePins
      const dropped = done.length === 0 ? 0 : yield* forgetPins(operation, done, now)
      const known = yield* query(
        OldRow,
        operation,
        sql`select s.run_id::text as "runId", ${millis(sql, sql`s.recorded_at`)} as "recordedAt",
              r.id is not null as "runExists", ${standing}
            from reclaim.run_selections s
            left join heartbeat_runs r on r.id = s.run_id
            left join native_run_finalizations f on f.run_id = r.id
            where ${over}
            order by s.recorded_at, s.run_id
            limit ${limit}::int`
      )
      const young = DateTime.subtractDuration(now, knownFor)
      const old = known.filter((row) => row.recordedAt < DateTime.toEpochMillis(young) && isOver(row))
      yield* beforeSelections
      if (old.length > 0) {
        yield* run(
          operation,
          sql`delete from reclaim.run_selections s using ${stillOver(old, now)} o
              where s.run_id = o.run_id and s.recorded_at < ${DateTime.toDateUtc(young)}
                and not exists (select from reclaim.run_pins p where p.run_id = s.run_id)`
        )
      }
      return dropped
    })

    return SkillPins.of({
      facts: Effect.fn("SkillPins.facts")((companyIds) =>
        transactions.join("reading pins", facts(companyIds))
      ),
      record: Effect.fn("SkillPins.record")((companyId, runId, pins) =>
        transactions.join("recording a selection", record(companyId, runId, pins))
      ),
      release: Effect.fn("SkillPins.release")((runId) =>
        transactions.join("releasing a run", release(runId))
      ),
      activePins: Effect.fn("SkillPins.activePins")((companyId) =>
        transactions.join("reading pins", activePins(companyId))
      ),
      forget: Effect.fn("SkillPins.forget")((limit) => transactions.join("forgetting runs", forget(limit)))
    })
  })
)
