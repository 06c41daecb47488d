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
     * What `facts` says about one version, as of `now`, in one statement: the pins of other versions are left
     * out, whatever keeps all copies of the company is not. For the look under the lock.
     */
    readonly factsOf: (
      companyId: Ids.CompanyId,
      versionId: Ids.VersionId,
      now: DateTime.Utc
    ) => Effect.Effect<CompanyPins, DatabaseError>
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
  retried: Schema.Boolean
})

const PinRow = Schema.Struct({
  ...Standing,
  runId: Ids.RunId,
  companyId: Ids.CompanyId,
  skillId: Ids.SkillId,
  versionId: Ids.VersionId,
  recordedAt: Schema.Finite,
  runExists: Schema.Boolean,
  retried: Schema.Boolean
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

/** A row of one of the tables that keep copies, named after what it is. */
const FactRow = Schema.Union([
  Schema.Struct({ kind: Schema.tag("run"), row: RunRow }),
  Schema.Struct({ kind: Schema.tag("pin"), row: PinRow }),
  Schema.Struct({ kind: Schema.tag("agent"), row: AgentRow }),
  Schema.Struct({ kind: Schema.tag("test run"), row: TestRunRow }),
  Schema.Struct({ kind: Schema.tag("hold"), row: HoldRow })
])

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
  readonly retried?: boolean
}

const useOf = (row: Pinning, now: DateTime.Utc): Use => {
  if (!row.runExists) {
    return DateTime.toEpochMillis(now) - row.recordedAt < Duration.toMillis(runlessPin) ? "active" : "none"
  }
  if (isActive(row)) return "active"
  return row.retried === true || isResumable(row, now) ? "unsettled" : "none"
}

const none = () => ({
  activeRuns: new Map<Ids.VersionId, Array<Ids.RunId>>(),
  unsettledRecovery: new Map<Ids.VersionId, Array<Ids.RunId>>(),
  agents: new Map<Ids.VersionId, Array<Ids.AgentId>>(),
  testRuns: new Map<Ids.VersionId, Array<Ids.TestRunId>>(),
  selectionUnknown: new Array<Ids.RunId>(),
  agentsUnreadable: new Array<Ids.AgentId>(),
  held: new Map<Ids.VersionId, { readonly by: string; readonly note: string }>()
})

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

    // In the text, not as parameters: none of them varies, and the look under the lock would send fifty.
    const oneOf = (words: ReadonlyArray<string>): Fragment =>
      sql`(${sql.literal(words.map((word) => `'${word}'`).join(", "))})`
    const statuses = {
      terminal: oneOf(NativeSession.terminalStatuses),
      settled: oneOf(NativeSession.settledPhases),
      waiting: oneOf(waiting)
    }

    const native: Fragment = sql`coalesce(r.runtime_mode::text, '') <> 'legacy'`

    const standing: Fragment = sql`
      r.status::text as "status",
      r.runtime_mode::text as "runtimeMode",
      f.run_id is not null as "finalized",
      f.phase::text as "phase",
      ${millis(sql, sql`f.lease_expires_at`)} as "leaseExpiresAt",
      f.recovery_state::text as "recoveryState"`

    const ended: Fragment = sql`coalesce(r.status::text, '') in ${statuses.terminal}`

    const recorded: Fragment = sql`
      exists (select from reclaim.run_selections s where s.run_id = r.id and s.company_id = r.company_id)`

    const pinColumns: Fragment = sql`
      p.run_id::text as "runId", p.company_id::text as "companyId", p.skill_id::text as "skillId",
      p.version_id::text as "versionId", ${millis(sql, sql`p.recorded_at`)} as "recordedAt",
      r.id is not null as "runExists", ${standing}`

    const pinTables: Fragment = sql`
      reclaim.run_pins p
      left join heartbeat_runs r on r.id = p.run_id
      left join native_run_finalizations f on f.run_id = r.id`

    // A superset: leases are judged by the database's clock, not by SQL.
    const resumable: Fragment = sql`
      case when f.run_id is null then ${native}
           else coalesce(f.phase::text, '') not in ${statuses.settled}
             or f.recovery_state is not null or f.lease_expires_at is not null end`

    /**
     * The runs that matter, in one pass over those of the companies, of which very many are over: all that are
     * not, and those that are but may be resumable. `offset 0` keeps the planner from looking for the
     * selections of all runs before it has sorted out the few.
     */
    const relevantRuns = (ofCompanies: Fragment, after: Fragment): Fragment => sql`
      relevant as materialized (
        select r.id, r.company_id, r.retry_of_run_id, r.started_at, ${ended} as over, ${standing}
        from heartbeat_runs r left join native_run_finalizations f on f.run_id = r.id
        where ${ofCompanies} and case when ${ended} then ${after} and ${resumable} else true end
        offset 0
      ), retried as materialized (
        select distinct q.retry_of_run_id as id from relevant q
        where q.status in ${statuses.waiting} and q.retry_of_run_id is not null
      )`

    /**
     * The runs that keep every copy. One that is only queued has prepared nothing. Of those that are over, the
     * ones that a waiting run retries are looked up by their ids.
     */
    const unknownRuns = (ofCompanies: Fragment, after: Fragment, recorded: Fragment): Fragment => {
      const columns = sql`
        r.id::text as "runId", r.company_id::text as "companyId",
        r.id in (select id from retried) as "retried"`
      return sql`
        select ${columns}, r."status", r."runtimeMode", r."finalized", r."phase", r."leaseExpiresAt", r."recoveryState"
        from relevant r
        where (r.over or coalesce(r.status, '') not in ${statuses.waiting} or r.started_at is not null)
          and not ${recorded}
        union
        select ${columns}, ${standing}
        from retried t join heartbeat_runs r on r.id = t.id
        left join native_run_finalizations f on f.run_id = r.id
        where ${ofCompanies} and ${ended} and ${after} and not ${recorded}
        order by "runId"`
    }

    // 1 MiB: a list of skills is a few kilobytes, and the driver refuses messages over 16 MiB, with which the
    // pins of all others would be lost.
    const agentsWith = (ofCompanies: Fragment): Fragment => sql`
      select a.id::text as "agentId", a.company_id::text as "companyId",
        jsonb_typeof(a.adapter_config) as "shape",
        case when length((a.adapter_config -> 'paperclipSkillSync')::text) <= 1048576
          then a.adapter_config -> 'paperclipSkillSync' else '"too large"'::jsonb end as "sync"
      from agents a
      where ${ofCompanies}
        and (a.adapter_config -> 'paperclipSkillSync' is not null
             or jsonb_typeof(a.adapter_config) not in ('object', 'null'))
      order by a.id`

    /**
     * Everything that keeps copies of companies, or one of their versions, in one statement: a look under the
     * lock costs one answer, and all of it is as of the same instant. Columns are named by the table's alias.
     */
    const readFacts = (
      ofCompanies: (column: Fragment) => Fragment,
      ofVersions: (column: Fragment) => Fragment,
      adopted: Option.Option<DateTime.Utc>
    ) => {
      const part = (kind: string, rows: Fragment) =>
        sql`select ${sql.literal(`'${kind}'`)} as "kind", to_jsonb(t) as "row" from (${rows}) t`
      const runs = ofCompanies(sql`r.company_id`)
      // Before the adoption nothing is recorded, and no run was created after it.
      const after = Option.match(adopted, {
        onNone: () => sql`false`,
        onSome: (at) => sql`(r.created_at is null or r.created_at >= ${DateTime.toDateUtc(at)})`
      })
      const parts = [
        part("run", unknownRuns(runs, after, Option.isSome(adopted) ? recorded : sql`false`)),
        part("agent", agentsWith(ofCompanies(sql`a.company_id`)))
      ]
      if (Option.isSome(adopted)) {
        parts.push(
          part(
            "pin",
            sql`select ${pinColumns}, p.run_id in (select id from retried) as "retried"
                from ${pinTables}
                where ${ofCompanies(sql`p.company_id`)} and ${ofVersions(sql`p.version_id`)}
                order by p.recorded_at, p.run_id, p.version_id`
          ),
          part(
            "hold",
            sql`select h.company_id::text as "companyId", h.version_id::text as "versionId",
                  h.held_by as "by", h.note as "note"
                from reclaim.holds h
                where h.kind = 'version' and ${ofCompanies(sql`h.company_id`)} and ${ofVersions(sql`h.version_id`)}`
          )
        )
      }
      if (host.testRuns) {
        parts.push(
          part(
            "test run",
            sql`select t.id::text as "testRunId", t.company_id::text as "companyId",
                  t.skill_version_id::text as "versionId"
                from company_skill_test_runs t
                where ${ofCompanies(sql`t.company_id`)} and t.skill_version_id is not null
                  and ${ofVersions(sql`t.skill_version_id`)}
                  and t.deleted_at is null and t.superseded_at is null
                  and coalesce(t.status::text, '') not in ${statuses.terminal}
                order by t.id`
          )
        )
      }
      return query(
        FactRow,
        "reading pins",
        sql`with ${relevantRuns(runs, after)} ${sql.join(" union all ", false)(parts)}`
      )
    }

    const gather = (
      companyIds: ReadonlyArray<Ids.CompanyId>,
      rows: ReadonlyArray<typeof FactRow.Type>,
      now: DateTime.Utc
    ) => {
      const result = new Map(companyIds.map((companyId) => [companyId, none()]))
      for (const { kind, row } of rows) {
        const company = result.get(row.companyId)
        if (company === undefined) continue
        switch (kind) {
          case "run": {
            if (isActive(row) || row.retried || isResumable(row, now))
              company.selectionUnknown.push(row.runId)
            break
          }
          case "pin": {
            const use = useOf(row, now)
            if (use === "active") push(company.activeRuns, row.versionId, row.runId)
            else if (use === "unsettled") push(company.unsettledRecovery, row.versionId, row.runId)
            break
          }
          case "agent": {
            const named = agentPins(row.shape, row.sync)
            if (Option.isNone(named)) company.agentsUnreadable.push(row.agentId)
            else for (const versionId of named.value) push(company.agents, versionId, row.agentId)
            break
          }
          case "test run":
            push(company.testRuns, row.versionId, row.testRunId)
            break
          case "hold":
            company.held.set(row.versionId, { by: row.by, note: row.note })
        }
      }
      return result
    }

    const facts = Effect.fnUntraced(function* (companyIds: ReadonlyArray<Ids.CompanyId>) {
      if (companyIds.length === 0) return new Map<Ids.CompanyId, CompanyPins>()
      const adopted = yield* host.adopted
      const now = yield* clock.now
      const rows = yield* readFacts(
        (column) => sql`${column} = any(${companyIds}::uuid[])`,
        () => sql`true`,
        adopted
      )
      return gather(companyIds, rows, now)
    })

    const factsOf = Effect.fnUntraced(function* (
      companyId: Ids.CompanyId,
      versionId: Ids.VersionId,
      now: DateTime.Utc
    ) {
      const rows = yield* readFacts(
        (column) => sql`${column} = ${companyId}::uuid`,
        (column) => sql`${column} = ${versionId}::uuid`,
        yield* host.adopted
      )
      return gather([companyId], rows, now).get(companyId) ?? none()
    })

    /** The pins of one company or of all. */
    const readPins = (companyId: Ids.CompanyId | undefined) =>
      query(
        PinRow,
        "reading pins",
        sql`select ${pinColumns}, false as "retried" from ${pinTables}
            where ${companyId === undefined ? sql`true` : sql`p.company_id = ${companyId}::uuid`}
            order by p.recorded_at, p.run_id, p.version_id`
      )

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
      const rows = yield* readPins(companyId)
      return (
        rows
          // Whether a run that is over is retried does not make it active.
          .filter((row: PinRow) => useOf(row, now) === "active")
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
                   else f.phase::text in ${statuses.settled} and f.recovery_state is null end
          and r.id not in (select q.retry_of_run_id from heartbeat_runs q
                           where q.retry_of_run_id is not null and q.status::text in ${statuses.waiting})))`

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
      const isOver = (row: typeof OldRow.Type) => useOf(row, now) === "none"
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
      factsOf: Effect.fn("SkillPins.factsOf")((companyId, versionId, now) =>
        transactions.join("reading pins", factsOf(companyId, versionId, now))
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
