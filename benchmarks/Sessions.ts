/**
 * Makes up a server with many native sessions: the same one on every machine, on disk and in the database.
 *
 * Of forty sessions one may go. The others have an open issue, one that was closed today, a run that is not
 * over, or a lease that names them. Most rows of the tables concern none of them.
 */
import { ControlPlaneState, Ids } from "@reclaim/core"
import { Effect } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Corpus from "./Corpus.ts"
import * as System from "./System.ts"

export interface Sessions {
  readonly sessions: number
  readonly runs: number
  readonly leases: number
}

const runsPerSession = 10
const oneGoesOf = 40

const grouped = (count: number) => count.toLocaleString("en-US")

/** How much that is, for people. */
export const amount = ({ leases, runs, sessions }: Sessions): string =>
  `${grouped(sessions)} sessions, ${grouped(runs)} runs, ${grouped(leases)} leases`

/** The scope of the session with this number. */
export const scopeAt = (number: number): Ids.ScopeId =>
  Ids.ScopeId.make(number.toString(16).padStart(64, "0"))

const sessionAt = (number: number) => Corpus.uuid(7, number)
/** Its current run; the others were before. */
const runAt = (number: number) => Corpus.uuid(8, number * runsPerSession)

const longAgo = new Date("2020-01-01T00:00:00Z")

/** Writes the folders of the sessions: a state file and a backup with one small file. */
export const write = Effect.fnUntraced(function* ({ sessions }: Sessions, folder: string) {
  for (let number = 0; number < sessions; number += 1) {
    const scope = `${folder}/${scopeAt(number)}`
    const current = `${scope}/failover-backups/current`
    const state = {
      schema: ControlPlaneState.schema,
      identity: {
        runnerInstanceId: Corpus.uuid(9, number),
        environmentLeaseId: null,
        runId: runAt(number),
        normalizedSessionId: sessionAt(number),
        turnId: "turn-1",
        itemId: null
      },
      commands: [],
      leases: []
    }
    const manifest = {
      schema: "paperclip.native-harness-backup.v1",
      normalizedSessionId: sessionAt(number),
      runnerInstanceId: null,
      providerKind: "codex",
      driverKind: null,
      providerSessionIdentity: null,
      sourceProviderLeaseId: null,
      environmentFingerprint: null,
      runnerContractVersion: null,
      directories: [{ name: "runner", sha256: `sha256:${"0".repeat(64)}`, bytes: 0 }],
      completedAt: longAgo.toISOString()
    }
    System.makeFolder(`${scope}/control-plane`)
    System.makeFolder(current)
    System.writeFile(
      `${scope}/control-plane/control-plane-state.json`,
      Buffer.from(JSON.stringify(state)),
      0o600
    )
    System.writeFile(`${current}/manifest.json`, Buffer.from(JSON.stringify(manifest)), 0o600)
    System.setTime(current, longAgo)
    if (number % 100 === 0) yield* Effect.yieldNow
  }
})

/** Puts the rows into the host's tables. */
export const insert = Effect.fnUntraced(function* ({ leases, runs, sessions }: Sessions) {
  const sql = yield* SqlClient.SqlClient
  const id = Corpus.sqlUuid(sql)
  const company = id(1, "0")
  const agent = id(4, "0")
  const each = sql`generate_series(0, ${sessions - 1}::int) as s (n)`
  const perSession = sql.literal(String(runsPerSession))
  const kind = sql.literal(`s.n % ${oneGoesOf}`)
  yield* sql`insert into companies (id, name) values (${company}, 'benchmark')`
  yield* sql`insert into agents (id, company_id, name) values (${agent}, ${company}, 'agent')`
  yield* sql`insert into environments (id, company_id) values (${id(6, "0")}, ${company})`
  // 0 goes; 1 has a run that is not over, 2 a lease; of the rest half was closed today and half is open.
  yield* sql`
    insert into issues (id, company_id, status, completed_at)
    select ${id(10, "s.n")}, ${company},
      case when ${kind} > 2 and s.n % 2 = 0 then 'in_progress' else 'done' end,
      case when ${kind} > 2 then now() else ${longAgo} end
    from ${each}`
  yield* sql`
    insert into heartbeat_runs (id, company_id, agent_id, status, runtime_mode, native_session_id,
      native_issue_id, context_snapshot, started_at, finished_at)
    select ${id(8, `s.n * ${runsPerSession} + r.n`)}, ${company}, ${agent},
      case when ${kind} = 1 and r.n = 0 then 'running' else 'succeeded' end, 'native', ${id(7, "s.n")},
      ${id(10, "s.n")}, jsonb_build_object('issueId', ${id(10, "s.n")}), ${longAgo},
      case when not (${kind} = 1 and r.n = 0) then ${longAgo}::timestamptz end
    from ${each}, generate_series(0, ${perSession} - 1) as r (n)`
  yield* sql`
    insert into native_run_finalizations (run_id, company_id, issue_id, phase)
    select id, company_id, native_issue_id, 'committed' from heartbeat_runs where finished_at is not null`
  yield* sql`
    insert into agent_task_sessions (company_id, agent_id, adapter_type, task_key, session_params_json, last_run_id)
    select ${company}, ${agent}, 'paperclip_runner', s.n::text, jsonb_build_object('sessionId', ${id(7, "s.n")}),
      ${id(8, `s.n * ${runsPerSession}`)}
    from ${each}`
  // Runs, nine of ten native, and leases that concern no session that still has a folder.
  yield* sql`
    insert into heartbeat_runs (company_id, agent_id, status, runtime_mode, native_session_id, native_issue_id,
      context_snapshot, started_at, finished_at)
    select ${company}, ${agent}, 'succeeded', case when o.n % 10 = 0 then 'legacy' else 'native' end,
      case when o.n % 10 > 0 then gen_random_uuid() end, case when o.n % 10 > 0 then gen_random_uuid() end,
      jsonb_build_object('issueId', gen_random_uuid(), 'wakeReason', 'an issue was assigned to the agent'),
      ${longAgo}, ${longAgo}
    from generate_series(1, ${runs - sessions * runsPerSession}::int) as o (n)`
  yield* sql`
    insert into environment_leases (company_id, environment_id, status, cleanup_status, metadata)
    select ${company}, ${id(6, "0")}, case when l.n % 50 = 0 then 'active' else 'expired' end, 'success',
      jsonb_build_object('provider', 'local', 'cwd', '/srv/workspaces/project-' || l.n,
        'session', jsonb_build_object('id', gen_random_uuid(), 'scope', md5(l.n::text) || md5((-l.n)::text)))
    from generate_series(1, ${leases - sessions / oneGoesOf}::int) as l (n)`
  yield* sql`
    insert into environment_leases (company_id, environment_id, status, metadata)
    select ${company}, ${id(6, "0")}, 'active',
      jsonb_build_object('provider', 'local', 'session', jsonb_build_object('id', ${id(7, "s.n")}))
    from ${each} where ${kind} = 2`
  yield* sql`vacuum analyze`
})
