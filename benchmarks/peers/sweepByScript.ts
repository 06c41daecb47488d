/** Sweeps as a shell script would: `find`, one query, `rm`. It takes no lock, and compares no contents. */
import { Effect } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as System from "../System.ts"

const recordPath = /^([^/]+)\/__version_access__\/([^/]+)\/([^/]+)\.json$/

/** Deletes the copies that were not used within the grace and that nothing pins. Returns how many. */
export const sweepByScript = Effect.fnUntraced(function* (skills: string, graceMinutes: number) {
  // Not `psql`, which the npm package of the server lacks: this client asks the same at the same price.
  const sql = yield* SqlClient.SqlClient
  const found = yield* System.command(
    "find",
    `. -mindepth 4 -maxdepth 4 -path */__version_access__/* -name *.json -mmin +${graceMinutes} -printf %P\\n`.split(
      " "
    ),
    { cwd: skills }
  )
  const old = new Map(
    found.split("\n").flatMap((path) => {
      const [, company, skill, version] = recordPath.exec(path) ?? []
      return version === undefined
        ? []
        : [[version, { path, copy: `${company}/__versions__/${skill}/${version}` }]]
    })
  )
  const unused = yield* sql<{ readonly id: string }>`
    select v.id::text as id from company_skill_versions v
    where v.id = any(${[...old.keys()]}::uuid[])
      and not exists (select from company_skills s where s.id = v.company_skill_id and s.current_version_id = v.id)
      and not exists (select from reclaim.run_pins p join heartbeat_runs r on r.id = p.run_id
                      where p.version_id = v.id and p.company_id = v.company_id
                        and r.status not in ('succeeded', 'failed', 'cancelled', 'timed_out', 'interrupted'))
      and not exists (select from agents a, jsonb_array_elements(a.adapter_config -> 'paperclipSkillSync' -> 'desiredSkills') d
                      where a.company_id = v.company_id and d ->> 'versionId' = v.id::text)`
  const paths = unused.flatMap(({ id }) => {
    const one = old.get(id)
    return one === undefined ? [] : [one.copy, one.path]
  })
  yield* System.command("xargs", ["-0", "rm", "-rf", "--"], { cwd: skills, input: paths.join("\0") })
  return unused.length
})
