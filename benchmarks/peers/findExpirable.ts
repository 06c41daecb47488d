/** Finds the sessions whose backups may go, with one query for all of them. */
import { Effect } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { readdir, readFile } from "node:fs/promises"

interface State {
  readonly identity: { readonly runId: string; readonly normalizedSessionId: string }
}

// 50: some at once, so that reading is not all waiting.
const readAtOnce = 50

const sessionsIn = async (folder: string) => {
  const scopes = (await readdir(folder)).toSorted()
  const found: Array<{ readonly scope: string; readonly session: string; readonly run: string }> = []
  for (let from = 0; from < scopes.length; from += readAtOnce) {
    const some = scopes.slice(from, from + readAtOnce).map(async (scope) => {
      const text = await readFile(`${folder}/${scope}/control-plane/control-plane-state.json`, "utf8")
      const { identity }: State = JSON.parse(text)
      return { scope, session: identity.normalizedSessionId, run: identity.runId }
    })
    found.push(...(await Promise.all(some)))
  }
  return found
}

/** The scopes whose issues were all closed for so many days, and that neither a run nor a lease needs. */
export const findExpirable = Effect.fnUntraced(function* (folder: string, days: number) {
  const sql = yield* SqlClient.SqlClient
  const sessions = yield* Effect.promise(() => sessionsIn(folder))
  const rows = yield* sql<{ readonly scope: string }>`
    with session as materialized (
      select * from unnest(${sessions.map(({ scope }) => scope)}::text[],
        ${sessions.map(({ session }) => session)}::uuid[], ${sessions.map(({ run }) => run)}::uuid[])
        as s (scope, id, run_id)
    ), run as materialized (
      select s.scope, r.id, r.native_issue_id, r.status, r.finished_at, r.runtime_mode
      from heartbeat_runs r join session s on s.id = r.native_session_id
    ), busy as (
      select r.native_issue_id, r.retry_of_run_id from heartbeat_runs r
      where r.status not in ('succeeded', 'failed', 'cancelled', 'timed_out', 'interrupted') or r.finished_at is null
    ), blocked as (
      select r.scope from run r left join issues i on i.id = r.native_issue_id
      where i.id is null or not (i.status = 'done' and i.completed_at < now() - ${days}::int * interval '1 day'
        or i.status = 'cancelled' and i.cancelled_at < now() - ${days}::int * interval '1 day')
      union select r.scope from run r left join native_run_finalizations f on f.run_id = r.id
      where r.runtime_mode <> 'legacy' and (f.run_id is null or f.phase not in ('committed', 'terminal_failure')
        or f.recovery_state is not null or f.lease_expires_at >= now())
      union select r.scope from run r join busy b on b.native_issue_id = r.native_issue_id
      union select r.scope from run r join busy b on b.retry_of_run_id = r.id
      union select s.scope from (
        select distinct m.word[1] as word from environment_leases l,
          regexp_matches(lower(l.metadata::text), '[0-9a-f-]{36,}', 'g') as m (word)
        where l.status not in ('expired', 'failed') or l.cleanup_status not in ('success', 'failed')
      ) l join session s on l.word in (s.scope, s.id::text)
    )
    select s.scope from session s
    where exists (select from run r where r.scope = s.scope and r.id = s.run_id)
      and s.scope not in (select scope from blocked)
    order by s.scope`
  return rows.map(({ scope }) => scope)
})
