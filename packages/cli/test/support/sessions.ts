/** Native sessions as a host leaves them: rows, a state file, and a backup that the command captured. */
import { ControlPlaneState, Ids } from "@reclaim/core"
import { DateTime, Effect, FileSystem } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { dirname } from "node:path"
import { Fixture } from "./fixture.ts"

export interface Session {
  readonly id: string
  readonly scope: Ids.ScopeId
  readonly runId: string
  readonly issueId: string
  /** `<scope>/failover-backups`. */
  readonly folder: string
}

export interface SessionOptions {
  readonly status?: "done" | "in_progress"
  /** How long ago the issue was closed and the backup written. */
  readonly daysAgo?: number
  /** Where the scopes are, instead of the instance's own place. */
  readonly state?: string
}

export const write = Effect.fnUntraced(function* (path: string, content: string) {
  const files = yield* FileSystem.FileSystem
  yield* files.makeDirectory(dirname(path), { recursive: true })
  yield* files.writeFileString(path, content)
})

/** A Codex home and a runner's folder, and what a backup of them must not hold. */
export const sandbox = Effect.gen(function* () {
  const files = yield* FileSystem.FileSystem
  const folder = yield* files.makeTempDirectoryScoped({ prefix: "reclaim-sandbox-" })
  const home = `${folder}/codex-home`
  yield* write(`${folder}/runner/runner-state.json`, "{}")
  yield* write(`${home}/config.toml`, "model = 1\n")
  yield* write(`${home}/sessions/2026/11/30/rollout-1.jsonl`, "{}\n")
  yield* write(`${home}/auth.json`, "secret")
  yield* write(`${home}/tmp/scratch`, "x")
  yield* write(`${home}/plugins/cache/openai-curated-remote/p/1/f`, "x")
  yield* write(`${home}/plugins/cache/mine/p/1/f`, "x")
  yield* files.chmod(`${home}/config.toml`, 0o640)
  yield* files.symlink("config.toml", `${home}/link`)
  return { runner: `${folder}/runner`, home, folder }
})

export const newScope = (): Ids.ScopeId =>
  Ids.ScopeId.make((crypto.randomUUID() + crypto.randomUUID()).replaceAll("-", ""))

/** The arguments of a capture. */
export const captureArgs = (
  { id, scope }: { readonly id: string; readonly scope: string },
  ...sources: ReadonlyArray<string>
): ReadonlyArray<string> => [
  "backups",
  "capture",
  "--scope",
  scope,
  "--session",
  id,
  "--runner-instance",
  "runner-1",
  "--lease",
  "lease-1",
  "--provider",
  "codex",
  ...sources.flatMap((source) => ["--source", source])
]

const schema = "paperclip.native-harness-backup.v1"

/** Dates a backup back, as time does. */
export const age = Effect.fnUntraced(function* (backup: string, daysAgo: number) {
  const files = yield* FileSystem.FileSystem
  // The system's clock, not the test's.
  const now = yield* Effect.sync(() => DateTime.nowUnsafe())
  const at = DateTime.subtract(now, { days: daysAgo })
  const manifest: unknown = JSON.parse(yield* files.readFileString(`${backup}/manifest.json`))
  yield* files.writeFileString(
    `${backup}/manifest.json`,
    JSON.stringify({ ...Object(manifest), schema, completedAt: DateTime.formatIso(at) })
  )
  yield* files.utimes(backup, DateTime.toDate(at), DateTime.toDate(at))
})

const build = Effect.fnUntraced(function* (options: SessionOptions) {
  const { agentId, companyId, instance, run } = yield* Fixture
  const sql = yield* SqlClient.SqlClient
  const daysAgo = options.daysAgo ?? 30
  const status = options.status ?? "done"
  const state = options.state ?? `${instance}/runtime/paperclip-runner/durable-sessions`
  const scope = newScope()
  const session: Session = {
    id: crypto.randomUUID(),
    scope,
    runId: crypto.randomUUID(),
    issueId: crypto.randomUUID(),
    folder: `${state}/${scope}/failover-backups`
  }
  const { id, issueId, runId } = session
  yield* sql`insert into issues (id, company_id, status, completed_at)
    values (${issueId}::uuid, ${companyId}::uuid, ${status},
      case when ${status} = 'done' then now() - make_interval(days => ${daysAgo}::int) end)`
  yield* sql`insert into heartbeat_runs
      (id, company_id, agent_id, status, runtime_mode, native_session_id, native_issue_id, finished_at)
    values (${runId}::uuid, ${companyId}::uuid, ${agentId}::uuid, 'succeeded', 'native', ${id}::uuid,
      ${issueId}::uuid, now() - make_interval(days => ${daysAgo}::int))`
  yield* sql`insert into native_run_finalizations (run_id, company_id, issue_id, phase)
    values (${runId}::uuid, ${companyId}::uuid, ${issueId}::uuid, 'committed')`
  yield* sql`insert into agent_task_sessions
      (company_id, agent_id, adapter_type, task_key, session_params_json, last_run_id)
    values (${companyId}::uuid, ${agentId}::uuid, 'paperclip_runner', ${issueId},
      ${JSON.stringify({ sessionId: id })}::text::jsonb, ${runId}::uuid)`
  yield* write(
    `${dirname(session.folder)}/control-plane/control-plane-state.json`,
    JSON.stringify({
      schema: ControlPlaneState.schema,
      identity: {
        runnerInstanceId: crypto.randomUUID(),
        environmentLeaseId: null,
        runId,
        normalizedSessionId: id,
        turnId: "turn-1",
        itemId: null
      }
    })
  )
  const { home, runner } = yield* sandbox
  const captured = yield* run(
    captureArgs(session, `runner=${runner}`, `codex-home=${home}`),
    options.state === undefined ? {} : { PAPERCLIP_RUNNER_STATE_DIR: options.state }
  )
  if (captured.code !== 0) throw new Error(captured.stderr + captured.stdout)
  yield* age(`${session.folder}/current`, daysAgo)
  return session
})

/** A session whose work was done long ago, and its backup: nothing keeps it unless something else is said. */
export const make = (options: SessionOptions = {}) => Effect.scoped(build(options))

/** How many task sessions name the session. */
export const taskSessions = Effect.fnUntraced(function* ({ id }: Session) {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql`select 1 from agent_task_sessions where session_params_json ->> 'sessionId' = ${id}`
  return rows.length
})
