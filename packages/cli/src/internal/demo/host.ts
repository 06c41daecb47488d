/** Writes what a host would have written: companies, agents, skills, versions and runs. */
import type { Ids } from "@reclaim/core"
import { DateTime, Effect } from "effect"
import { Base64 } from "effect/encoding"
import * as SqlClient from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import type { DemoFile } from "./contents.ts"
import type { DemoCompany, DemoSkill, DemoVersion } from "./plan.ts"

const utf8 = new TextDecoder()

const kinds: Readonly<Record<string, string>> = {
  SKILL: "skill",
  assets: "asset",
  data: "asset",
  references: "reference",
  scripts: "script"
}

/** One entry of a `file_inventory`. What is text stays readable in the database; pictures are base64. */
const entry = (file: DemoFile, prefix = "") => ({
  path: prefix + file.path,
  kind: kinds[file.path.split(/[./]/)[0] ?? ""] ?? "other",
  ...(file.path.endsWith(".png")
    ? { content: Base64.encode(file.bytes), encoding: "base64" }
    : { content: utf8.decode(file.bytes) }),
  ...(file.executable ? { executable: true } : {})
})

const folder = (skill: DemoSkill) => `skills/${skill.sketch.slug}`

/** A snapshot holds a whole repository: the skill in its folder, and what lies beside it. */
const snapshot = (company: DemoCompany, skill: DemoSkill, version: DemoVersion) => ({
  id: version.snapshotId,
  company_id: company.id,
  content_hash: version.id.replaceAll("-", ""),
  file_inventory: [
    {
      path: "README.md",
      kind: "other",
      content: `Skills of ${company.name}, revision ${version.revision}.\n`
    },
    ...version.files.map((file) => entry(file, `${folder(skill)}/`))
  ]
})

type Insert = (
  table: string,
  columns: Readonly<Record<string, string>>,
  rows: ReadonlyArray<object>
) => Effect.Effect<void, SqlError>

/** One statement per table and company, whatever the number of rows. */
const makeInsert =
  (sql: SqlClient.SqlClient): Insert =>
  (table, columns, rows) => {
    const names = Object.keys(columns).join(", ")
    const types = Object.entries(columns)
      .map(([name, type]) => `${name} ${type}`)
      .join(", ")
    return sql
      .unsafe(
        `insert into ${table} (${names}) select ${names} from jsonb_to_recordset($1::text::jsonb) as r(${types})`,
        [JSON.stringify(rows)]
      )
      .pipe(Effect.asVoid)
  }

/** Writes a company with all that is known about its skills. */
export const writeCompany = Effect.fnUntraced(function* (company: DemoCompany) {
  const sql = yield* SqlClient.SqlClient
  const insert = makeInsert(sql)
  const now = yield* DateTime.now
  yield* insert("companies", { id: "uuid", name: "text" }, [{ id: company.id, name: company.name }])
  yield* insert(
    "agents",
    { id: "uuid", company_id: "uuid", name: "text", adapter_type: "text" },
    company.agents.map(({ id, name }) => ({ id, name, company_id: company.id, adapter_type: "claude_local" }))
  )
  yield* insert(
    "company_skill_repository_snapshots",
    { id: "uuid", company_id: "uuid", content_hash: "text", file_inventory: "jsonb" },
    company.skills.flatMap((skill) =>
      skill.versions
        .filter(({ snapshotId }) => snapshotId !== undefined)
        .map((version) => snapshot(company, skill, version))
    )
  )
  yield* insert(
    "company_skills",
    { id: "uuid", company_id: "uuid", key: "text", slug: "text", name: "text", description: "text" },
    company.skills.map(({ id, sketch }) => ({
      id,
      company_id: company.id,
      key: `local/${sketch.slug}`,
      slug: sketch.slug,
      name: sketch.slug,
      description: sketch.purpose
    }))
  )
  yield* insert(
    "company_skill_versions",
    {
      id: "uuid",
      company_id: "uuid",
      company_skill_id: "uuid",
      revision_number: "int",
      file_inventory: "jsonb",
      repository_snapshot_id: "uuid",
      repository_skill_path: "text",
      created_at: "timestamptz"
    },
    company.skills.flatMap((skill) =>
      skill.versions.map((version) => ({
        id: version.id,
        company_id: company.id,
        company_skill_id: skill.id,
        revision_number: version.revision,
        file_inventory: version.snapshotId === undefined ? version.files.map((file) => entry(file)) : [],
        repository_snapshot_id: version.snapshotId,
        repository_skill_path: version.snapshotId === undefined ? undefined : folder(skill),
        created_at: DateTime.formatIso(DateTime.subtract(now, { days: version.createdDaysAgo }))
      }))
    )
  )
  yield* sql`
    update company_skills set current_version_id = (
      select v.id from company_skill_versions v where v.company_skill_id = company_skills.id
      order by v.revision_number desc limit 1)
    where company_id = ${company.id}::uuid`
})

/** What an agent's configuration says about skills: the older form names them, the newer one can pin. */
export const writeAgentSkills = Effect.fnUntraced(function* (
  agentId: Ids.AgentId,
  desiredSkills: ReadonlyArray<string | { readonly key: string; readonly versionId: Ids.VersionId | null }>
) {
  const sql = yield* SqlClient.SqlClient
  const config = JSON.stringify({ paperclipSkillSync: { desiredSkills } })
  yield* sql`update agents set adapter_config = ${config}::text::jsonb where id = ${agentId}::uuid`
})

export interface DemoRun {
  readonly id: Ids.RunId
  readonly companyId: Ids.CompanyId
  readonly agentId: Ids.AgentId
  readonly status: string
  readonly native?: boolean
  readonly startedMinutesAgo?: number
  readonly finishedMinutesAgo?: number
}

export const writeRun = Effect.fnUntraced(function* (run: DemoRun) {
  const sql = yield* SqlClient.SqlClient
  const now = yield* DateTime.now
  const ago = (minutes: number | undefined) =>
    minutes === undefined ? null : DateTime.formatIso(DateTime.subtract(now, { minutes }))
  yield* makeInsert(sql)(
    "heartbeat_runs",
    {
      id: "uuid",
      company_id: "uuid",
      agent_id: "uuid",
      status: "text",
      runtime_mode: "text",
      started_at: "timestamptz",
      finished_at: "timestamptz",
      created_at: "timestamptz"
    },
    [
      {
        id: run.id,
        company_id: run.companyId,
        agent_id: run.agentId,
        status: run.status,
        runtime_mode: run.native === true ? "native" : "legacy",
        started_at: ago(run.startedMinutesAgo),
        finished_at: ago(run.finishedMinutesAgo),
        created_at: ago((run.startedMinutesAgo ?? 0) + 1)
      }
    ]
  )
})

export const finishRun = Effect.fnUntraced(function* (id: Ids.RunId) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`update heartbeat_runs set status = 'succeeded', finished_at = now() where id = ${id}::uuid`
})

/** Ends a native run the way a lost sandbox does: terminal, and its recovery still to come. */
export const failNativeRun = Effect.fnUntraced(function* (
  run: DemoRun,
  issue: { readonly id: string; readonly title: string }
) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`update heartbeat_runs set status = 'failed', finished_at = now() where id = ${run.id}::uuid`
  yield* sql`
    insert into issues (id, company_id, title, status)
    values (${issue.id}::uuid, ${run.companyId}::uuid, ${issue.title}, 'in_progress')`
  yield* sql`
    insert into native_run_finalizations (run_id, company_id, issue_id, phase, recovery_state)
    values (${run.id}::uuid, ${run.companyId}::uuid, ${issue.id}::uuid, 'retryable_failure', 'awaiting_runner_reattach')`
})

/** A test of a skill's version that has not started yet. */
export const writeTestRun = Effect.fnUntraced(function* (
  id: Ids.TestRunId,
  companyId: Ids.CompanyId,
  versionId: Ids.VersionId
) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    insert into company_skill_test_runs (id, company_id, skill_version_id)
    values (${id}::uuid, ${companyId}::uuid, ${versionId}::uuid)`
})
