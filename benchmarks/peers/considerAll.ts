/** Looks at all copies and asks what keeps them, with nothing but what that takes. */
import { Effect } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { lstat, readdir, readFile } from "node:fs/promises"

// 50: as many as a batch of ours has.
const batch = 50

interface Copy {
  readonly company: string
  readonly skill: string
  readonly version: string
}

/** All copies there are, in the order of their paths. */
async function* copiesIn(skills: string): AsyncGenerator<Copy> {
  for (const company of (await readdir(skills)).toSorted()) {
    for (const skill of (await readdir(`${skills}/${company}/__versions__`)).toSorted()) {
      for (const version of (await readdir(`${skills}/${company}/__versions__/${skill}`)).toSorted()) {
        yield { company, skill, version }
      }
    }
  }
}

/** When a copy was last used; undefined where it is no folder. */
const lastUse = async (skills: string, { company, skill, version }: Copy): Promise<number | undefined> => {
  const [info, record] = await Promise.all([
    lstat(`${skills}/${company}/__versions__/${skill}/${version}`),
    readFile(`${skills}/${company}/__version_access__/${skill}/${version}.json`, "utf8")
  ])
  const { lastUsedAt }: { readonly lastUsedAt: string } = JSON.parse(record)
  return info.isDirectory() ? Date.parse(lastUsedAt) : undefined
}

/** How many copies there are, and how many of them neither the database nor their last use keeps. */
export const considerAll = Effect.fnUntraced(function* (skills: string, graceMillis: number) {
  const sql = yield* SqlClient.SqlClient
  let considered = 0
  let leaving = 0
  const consider = Effect.fnUntraced(function* (copies: ReadonlyArray<Copy>) {
    const used = yield* Effect.promise(() => Promise.all(copies.map((copy) => lastUse(skills, copy))))
    const kept = yield* sql<{ readonly id: string }>`
      select v.id::text as id from company_skill_versions v
      where v.id = any(${copies.map(({ version }) => version)}::uuid[])
        and (exists (select from company_skills s where s.id = v.company_skill_id and s.current_version_id = v.id)
          or exists (select from reclaim.run_pins p join heartbeat_runs r on r.id = p.run_id
                     where p.version_id = v.id and p.company_id = v.company_id
                       and r.status not in ('succeeded', 'failed', 'cancelled', 'timed_out', 'interrupted')))`
    const pinned = new Set(kept.map(({ id }) => id))
    const oldest = Date.now() - graceMillis
    considered += copies.length
    leaving += copies.filter(({ version }, index) => {
      const at = used[index]
      return at !== undefined && at <= oldest && !pinned.has(version)
    }).length
  })
  const copies = copiesIn(skills)
  for (;;) {
    const some: Array<Copy> = []
    yield* Effect.promise(async () => {
      while (some.length < batch) {
        const next = await copies.next()
        if (next.done === true) return
        some.push(next.value)
      }
    })
    if (some.length === 0) return { considered, leaving }
    yield* consider(some)
  }
})
