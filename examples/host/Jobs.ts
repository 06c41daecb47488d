/** Starts and ends jobs. A job runs only with all of its releases at hand. */
import { Ids } from "@reclaim/core"
import { SkillVersionCache } from "@reclaim/runtime"
import { Effect, Schema } from "effect"
import * as SqlClient from "effect/sql/SqlClient"

export const Job = Schema.Struct({
  id: Ids.RunId,
  tenantId: Ids.CompanyId,
  workerId: Ids.AgentId,
  ticketId: Ids.IssueId,
  sessionId: Schema.NullOr(Ids.NativeSessionId),
  releases: Schema.Array(Ids.VersionId)
})

export const Outcome = Schema.Literals(["succeeded", "failed"])

/** Some of the releases cannot be had; or none is missing, and the job was ended while it was prepared. */
export class CannotStart extends Schema.TaggedError<CannotStart>()("CannotStart", {
  missing: Schema.Array(Ids.VersionId)
}) {}

/** Returns the folders of its releases. They stay until it has ended. */
export const start = Effect.fn("Jobs.start")(function* (job: typeof Job.Type) {
  const sql = yield* SqlClient.SqlClient
  const cache = yield* SkillVersionCache.SkillVersionCache
  yield* sql`insert into jobs (id, tenant_id, worker_id, ticket_id, session_id, state)
    values (${job.id}::uuid, ${job.tenantId}::uuid, ${job.workerId}::uuid, ${job.ticketId}::uuid,
      ${job.sessionId}::uuid, 'queued')`
  return yield* Effect.gen(function* () {
    const prepared = yield* cache.prepare({
      companyId: job.tenantId,
      runId: job.id,
      versions: job.releases
    })
    const missing = prepared.filter((version) => version._tag === "Missing")
    for (const { reason, versionId } of missing) {
      yield* Effect.logWarning("a release cannot be had", { job: job.id, versionId, reason })
    }
    if (missing.length > 0) {
      return yield* new CannotStart({ missing: missing.map(({ versionId }) => versionId) })
    }
    const running = yield* sql`
      update jobs set state = 'running' where id = ${job.id}::uuid and state = 'queued' returning id`
    if (running.length === 0) return yield* new CannotStart({ missing: [] })
    return prepared.flatMap((version) => (version._tag === "Ready" ? [version.path] : []))
  }).pipe(Effect.onError(() => Effect.ignore(end(job.id, "failed"), { log: "Warn" })))
})

/** Finished first: where the process dies in between, the next sweep drops the pins. */
export const end = Effect.fn("Jobs.end")(function* (id: Ids.RunId, outcome: typeof Outcome.Type) {
  const sql = yield* SqlClient.SqlClient
  const cache = yield* SkillVersionCache.SkillVersionCache
  yield* sql`update jobs set state = ${outcome}, finished_at = clock_timestamp()
    where id = ${id}::uuid and finished_at is null`
  yield* cache.release(id)
})
