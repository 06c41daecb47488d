import { Ids } from "@reclaim/core"
import { DateTime, Effect } from "effect"
import * as SqlClient from "effect/sql/SqlClient"

export const companyId = Effect.sync(() => Ids.CompanyId.make(crypto.randomUUID()))
export const runId = Effect.sync(() => Ids.RunId.make(crypto.randomUUID()))
export const versionId = Effect.sync(() => Ids.VersionId.make(crypto.randomUUID()))
export const skillId = Effect.sync(() => Ids.SkillId.make(crypto.randomUUID()))

const json = (value: unknown) => JSON.stringify(value)

/** A tenant with an agent. */
export const company = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const id = yield* companyId
  yield* sql`insert into companies (id, name) values (${id}::uuid, 'test')`
  return { companyId: id, agentId: yield* agent(id, {}) }
})

export const agent = Effect.fnUntraced(function* (companyId: Ids.CompanyId, adapterConfig: unknown) {
  const sql = yield* SqlClient.SqlClient
  const id = Ids.AgentId.make(crypto.randomUUID())
  yield* sql`insert into agents (id, company_id, name, adapter_config)
    values (${id}::uuid, ${companyId}::uuid, 'agent', ${json(adapterConfig)}::jsonb)`
  return id
})

export const skill = Effect.fnUntraced(function* (companyId: Ids.CompanyId) {
  const sql = yield* SqlClient.SqlClient
  const id = yield* skillId
  yield* sql`insert into company_skills (id, company_id, key, slug, name)
    values (${id}::uuid, ${companyId}::uuid, ${`key-${id}`}, 'slug', 'Name')`
  return id
})

export const version = Effect.fnUntraced(function* (options: {
  readonly companyId: Ids.CompanyId
  readonly skillId: Ids.SkillId
  readonly revision: number
  readonly files?: unknown
  readonly snapshotId?: string
  readonly skillPath?: string | null
}) {
  const sql = yield* SqlClient.SqlClient
  const id = yield* versionId
  yield* sql`insert into company_skill_versions
      (id, company_id, company_skill_id, revision_number, file_inventory, repository_snapshot_id, repository_skill_path)
    values (${id}::uuid, ${options.companyId}::uuid, ${options.skillId}::uuid, ${options.revision},
      ${json("files" in options ? options.files : [{ path: "SKILL.md", content: "hello" }])}::jsonb,
      ${options.snapshotId ?? null}::uuid, ${options.skillPath ?? null})`
  return id
})

export const snapshot = Effect.fnUntraced(function* (companyId: Ids.CompanyId, files: unknown) {
  const sql = yield* SqlClient.SqlClient
  const id = crypto.randomUUID()
  yield* sql`insert into company_skill_repository_snapshots (id, company_id, content_hash, file_inventory)
    values (${id}::uuid, ${companyId}::uuid, ${id}, ${json(files)}::jsonb)`
  return id
})

export interface RunOptions {
  readonly id?: Ids.RunId
  readonly status: string
  readonly mode?: string
  readonly started?: boolean
  readonly created?: DateTime.Utc
  readonly retryOf?: Ids.RunId
  readonly finalization?: {
    readonly phase: string
    readonly lease?: DateTime.Utc | "infinity"
    readonly recovery?: string
  }
}

export const run = Effect.fnUntraced(function* (
  owner: { readonly companyId: Ids.CompanyId; readonly agentId: Ids.AgentId },
  options: RunOptions
) {
  const sql = yield* SqlClient.SqlClient
  const id = options.id ?? (yield* runId)
  const created = DateTime.toDateUtc(options.created ?? DateTime.makeUnsafe("2031-01-01T00:00:00Z"))
  yield* sql`insert into heartbeat_runs
      (id, company_id, agent_id, status, runtime_mode, started_at, created_at, retry_of_run_id)
    values (${id}::uuid, ${owner.companyId}::uuid, ${owner.agentId}::uuid, ${options.status},
      ${options.mode ?? "legacy"}, ${options.started === true ? created : null}::timestamptz, ${created},
      ${options.retryOf ?? null}::uuid)`
  if (options.finalization !== undefined) {
    const { lease, phase, recovery } = options.finalization
    const issue = crypto.randomUUID()
    yield* sql`insert into issues (id, company_id) values (${issue}::uuid, ${owner.companyId}::uuid)`
    const expires = lease === undefined ? null : lease === "infinity" ? lease : DateTime.formatIso(lease)
    yield* sql`insert into native_run_finalizations
        (run_id, company_id, issue_id, phase, lease_expires_at, recovery_state)
      values (${id}::uuid, ${owner.companyId}::uuid, ${issue}::uuid, ${phase}, ${expires}::timestamptz,
        ${recovery ?? null})`
  }
  return id
})
