/**
 * Which releases the farm's jobs need.
 *
 * A job has its row before it is prepared and never runs again once it has finished, so a pin is of a job that
 * is not finished, or of none. Nothing resumes a finished job here, and neither workers nor tests name releases.
 */
import { Ids } from "@reclaim/core"
import { DatabaseError, Holds, SkillPins, Transactions } from "@reclaim/db"
import { Effect, Layer, Schema } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { Fragment } from "effect/sql/Statement"
import * as Rows from "./Rows.ts"

const Fact = Schema.Struct({
  companyId: Ids.CompanyId,
  runId: Ids.RunId,
  unknown: Schema.Boolean,
  versionId: Schema.NullOr(Ids.VersionId)
})
const Pin = Schema.Struct({
  companyId: Ids.CompanyId,
  runId: Ids.RunId,
  skillId: Ids.SkillId,
  versionId: Ids.VersionId
})
const Count = Schema.Struct({ count: Schema.Finite })
const countOf = (rows: ReadonlyArray<typeof Count.Type>) => rows[0]?.count ?? 0

const none = () => ({
  activeRuns: new Map<Ids.VersionId, Array<Ids.RunId>>(),
  unsettledRecovery: new Map(),
  agents: new Map(),
  testRuns: new Map(),
  selectionUnknown: new Array<Ids.RunId>(),
  agentsUnreadable: [],
  held: new Map<Ids.VersionId, { readonly by: string; readonly note: string }>()
})

export const layer: Layer.Layer<
  SkillPins.SkillPins,
  never,
  SqlClient.SqlClient | Transactions.Transactions | Holds.Holds
> = Layer.effect(
  SkillPins.SkillPins,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const transactions = yield* Transactions.Transactions
    const holds = yield* Holds.Holds
    const read = yield* Rows.reader

    /** Every tenant that is asked for has an answer: one that had none would keep everything. */
    const facts = Effect.fnUntraced(function* (
      companyIds: ReadonlyArray<Ids.CompanyId>,
      ofReleases: Fragment
    ) {
      const found = new Map(companyIds.map((companyId) => [companyId, none()]))
      const rows = yield* read(
        Fact,
        "reading jobs",
        // A job that runs without having been prepared uses nobody knows what.
        sql`select j.tenant_id as "companyId", j.id as "runId", p.release_id as "versionId",
              j.state <> 'queued' and j.prepared_at is null as "unknown"
            from jobs j left join job_releases p on p.job_id = j.id and ${ofReleases}
            where j.finished_at is null and j.tenant_id = any(${companyIds}::uuid[])
            order by j.id`
      )
      for (const { companyId, runId, unknown, versionId } of rows) {
        const pins = found.get(companyId)
        if (unknown) pins?.selectionUnknown.push(runId)
        if (versionId !== null) {
          pins?.activeRuns.set(versionId, [...(pins.activeRuns.get(versionId) ?? []), runId])
        }
      }
      for (const hold of yield* holds.list) {
        if (hold._tag === "Version") found.get(hold.companyId)?.held.set(hold.versionId, hold)
      }
      return found
    })

    return SkillPins.SkillPins.of({
      facts: (companyIds) => transactions.join("reading jobs", facts(companyIds, sql`true`)),
      factsOf: (companyId, versionId) =>
        Effect.map(
          transactions.join("reading jobs", facts([companyId], sql`p.release_id = ${versionId}::uuid`)),
          (found) => found.get(companyId) ?? none()
        ),

      // Called under the tenant's shared lock: whoever holds it exclusively sees what was recorded.
      record: (companyId, runId, pins) => {
        const operation = "recording what a job uses"
        return transactions.join(
          operation,
          Effect.gen(function* () {
            const jobs = yield* read(
              Schema.Struct({ id: Ids.RunId }),
              operation,
              sql`update jobs set prepared_at = coalesce(prepared_at, clock_timestamp())
                  where id = ${runId}::uuid and tenant_id = ${companyId}::uuid and finished_at is null
                  returning id`
            )
            // Its pins would count for nobody.
            if (jobs.length === 0) {
              return yield* DatabaseError.make(
                { _tag: "Other", detail: `the tenant has no unfinished job ${runId}` },
                operation
              )
            }
            yield* read(
              Schema.Unknown,
              operation,
              sql`insert into job_releases (job_id, release_id)
                  select ${runId}::uuid, unnest(${pins.map(({ versionId }) => versionId)}::uuid[])
                  on conflict do nothing`
            )
          })
        )
      },

      release: (runId) =>
        Effect.map(
          read(
            Count,
            "releasing a job",
            sql`with gone as (delete from job_releases where job_id = ${runId}::uuid returning 1)
                select count(*)::int as "count" from gone`
          ),
          countOf
        ),

      activePins: (companyId) =>
        read(
          Pin,
          "reading jobs",
          sql`select j.tenant_id as "companyId", j.id as "runId", r.tool_id as "skillId", r.id as "versionId"
              from jobs j join job_releases p on p.job_id = j.id join releases r on r.id = p.release_id
              where j.finished_at is null
                and ${companyId === undefined ? sql`true` : sql`j.tenant_id = ${companyId}::uuid`}`
        ),

      forget: (limit) =>
        Effect.map(
          read(
            Count,
            "forgetting jobs",
            sql`with gone as (delete from job_releases where job_id in (
                  select p.job_id from job_releases p join jobs j on j.id = p.job_id
                  where j.finished_at is not null group by p.job_id limit ${limit}::int) returning 1)
                select count(*)::int as "count" from gone`
          ),
          countOf
        )
    })
  })
)
