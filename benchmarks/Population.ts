/**
 * Makes up a server with many companies: the same one on every machine, on disk and in the database.
 *
 * A company has 100 copies of five skills, an agent, 20 runs that are over and one that runs and holds a
 * version. A copy has one small file, because nobody reads what is in it.
 */
import { Ids } from "@reclaim/core"
import type { CopyRef } from "@reclaim/fs"
import { Effect } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Corpus from "./Corpus.ts"
import * as System from "./System.ts"

export const copiesPerCompany = 100
const copiesPerSkill = 20

export interface Population {
  readonly companies: number
  readonly copies: number
}

export const make = (companies: number): Population => ({ companies, copies: companies * copiesPerCompany })

/** How much that is, for people. */
export const amount = ({ companies, copies }: Population): string =>
  `${copies.toLocaleString("en-US")} copies of ${companies.toLocaleString("en-US")} companies`

/** The copy at a place, counted from 0; the last one of a skill is current. */
export const copyAt = (place: number): CopyRef.CopyRef => ({
  companyId: Ids.CompanyId.make(Corpus.uuid(1, Math.floor(place / copiesPerCompany))),
  skillId: Ids.SkillId.make(Corpus.uuid(2, Math.floor(place / copiesPerSkill))),
  versionId: Ids.VersionId.make(Corpus.uuid(3, place))
})

/** Where the record of a copy's last use lies below the folder of all skills. */
export const recordPath = ({ companyId, skillId, versionId }: CopyRef.CopyRef): string =>
  `${companyId}/__version_access__/${skillId}/${versionId}.json`

/** Writes the record of a copy. Its file is as old as it says, for those who go by that. */
export const writeRecord = (skills: string, copy: CopyRef.CopyRef, at: Date): void => {
  const path = `${skills}/${recordPath(copy)}`
  const record = { schema: "reclaim.access.v1", lastUsedAt: at.toISOString() }
  System.writeFile(path, Buffer.from(`${JSON.stringify(record)}\n`), 0o644)
  System.setTime(path, at)
}

// 1,000: some tens of milliseconds, between which a Ctrl-C is seen.
const writtenAtOnce = 1000

/** Writes the copies and their records. */
export const write = Effect.fnUntraced(function* (
  { copies }: Population,
  skills: string,
  usedAt: (place: number) => Date
) {
  const content = Buffer.from("# A skill\n")
  for (let place = 0; place < copies; place += 1) {
    const copy = copyAt(place)
    const folder = `${skills}/${Corpus.relativePath(copy)}`
    System.makeFolder(folder)
    System.writeFile(`${folder}/SKILL.md`, content, 0o444)
    if (place % copiesPerSkill === 0) {
      System.makeFolder(`${skills}/${copy.companyId}/__version_access__/${copy.skillId}`)
    }
    writeRecord(skills, copy, usedAt(place))
    if (place % writtenAtOnce === 0) yield* Effect.yieldNow
  }
})

/** Puts all of it into the host's tables, and what the runs selected into those of Reclaim. */
export const insert = Effect.fnUntraced(function* ({ companies, copies }: Population) {
  const sql = yield* SqlClient.SqlClient
  const id = Corpus.sqlUuid(sql)
  const places = sql`generate_series(0, ${copies - 1}::int) as g (n)`
  const each = sql`generate_series(0, ${companies - 1}::int) as c (n)`
  const perSkill = sql.literal(String(copiesPerSkill))
  yield* sql`insert into companies (id, name) select ${id(1, "c.n")}, 'benchmark' from ${each}`
  yield* sql`
    insert into agents (id, company_id, name)
    select ${id(4, "c.n")}, ${id(1, "c.n")}, 'agent' from ${each}`
  yield* sql`
    insert into company_skills (id, company_id, key, slug, name)
    select ${id(2, `g.n / ${copiesPerSkill}`)}, ${id(1, `g.n / ${copiesPerCompany}`)}, g.n::text, 'slug', 'Name'
    from ${places} where g.n % ${perSkill} = 0`
  yield* sql`
    insert into company_skill_versions (id, company_id, company_skill_id, revision_number)
    select ${id(3, "g.n")}, ${id(1, `g.n / ${copiesPerCompany}`)}, ${id(2, `g.n / ${copiesPerSkill}`)}, g.n % ${perSkill} + 1
    from ${places}`
  yield* sql`
    update company_skills s set current_version_id = v.id
    from company_skill_versions v where v.company_skill_id = s.id and v.revision_number = ${perSkill}`
  yield* sql`
    insert into heartbeat_runs (id, company_id, agent_id, status, started_at, finished_at)
    select case when r.n = 0 then ${id(5, "c.n")} else gen_random_uuid() end, ${id(1, "c.n")}, ${id(4, "c.n")},
      case when r.n = 0 then 'running' else 'succeeded' end, now(), case when r.n > 0 then now() end
    from ${each}, generate_series(0, 20) as r (n)`
  yield* sql`
    insert into reclaim.run_selections (run_id, company_id, recorded_at)
    select ${id(5, "c.n")}, ${id(1, "c.n")}, now() from ${each}`
  yield* sql`
    insert into reclaim.run_pins (run_id, company_id, skill_id, version_id, recorded_at)
    select r.run_id, r.company_id, v.company_skill_id, v.id, now()
    from reclaim.run_selections r join company_skill_versions v on v.company_id = r.company_id
    where v.revision_number = 1 and v.company_skill_id = (
      select s.id from company_skills s where s.company_id = r.company_id order by s.id limit 1)`
  yield* sql`analyze`
})
