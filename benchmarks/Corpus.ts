/**
 * Makes up skill version copies: the same ones on every machine, on disk and in the database.
 *
 * A copy has 25 files of 0.2 to 6 KB in three folders: texts, scripts and a few binary files, all of them
 * different from copy to copy.
 */
import { Ids } from "@reclaim/core"
import type { CopyRef } from "@reclaim/fs"
import { Effect } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as System from "./System.ts"

interface File {
  readonly path: string
  readonly bytes: Buffer
  readonly binary: boolean
  readonly executable: boolean
}

export const filesPerCopy = 25

/** Copies of one company, a hundred to a skill. `first` is the place of its first copy among all. */
export interface Corpus {
  readonly companyId: Ids.CompanyId
  readonly copies: ReadonlyArray<CopyRef.CopyRef>
  readonly first: number
}

const copiesPerSkill = 100
// 100,000: more than any scenario writes with contents.
const maxCopies = 100_000

export const uuid = (kind: number, number: number) =>
  `${kind.toString(16).padStart(8, "0")}-0000-4000-8000-${number.toString(16).padStart(12, "0")}`

/** The same in SQL, of a number that is an expression. */
export const sqlUuid = (sql: SqlClient.SqlClient) => (kind: number, number: string) =>
  sql.literal(
    `(lpad(to_hex(${kind}), 8, '0') || '-0000-4000-8000-' || lpad(to_hex(${number}), 12, '0'))::uuid`
  )

/** The copies of the company with this number, no two of which share an id. */
export const make = (copies: number, company = 1): Corpus => {
  const companyId = Ids.CompanyId.make(uuid(1, company))
  const first = (company - 1) * maxCopies
  return {
    companyId,
    first,
    copies: Array.from({ length: copies }, (_, index) => ({
      companyId,
      skillId: Ids.SkillId.make(uuid(2, Math.floor((first + index) / copiesPerSkill))),
      versionId: Ids.VersionId.make(uuid(3, first + index))
    }))
  }
}

/** How much that is, for people. */
export const amount = ({ copies }: Corpus): string =>
  `${copies.length.toLocaleString("en-US")} copies, ${(copies.length * filesPerCopy).toLocaleString("en-US")} files`

/** Small numbers that look random and are the same every time (mulberry32). */
export const randomness = (seed: number) => {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

// Texts of words compress about as well as the texts of real skills do.
const words =
  "the agent reads a file before it runs any script and writes what it found into the report when done; ä ö".split(
    " "
  )

/** A text of at least so many characters. */
export const text = (random: () => number, bytes: number): Buffer => {
  let line = ""
  while (line.length < bytes) {
    line += `${words[Math.floor(random() * words.length)]}${random() < 0.1 ? `-${Math.floor(random() * 1e6)}\n` : " "}`
  }
  return Buffer.from(line)
}

const binary = (random: () => number, bytes: number): Buffer =>
  Buffer.from(Uint8Array.from({ length: bytes }, () => Math.floor(random() * 256)))

/** The files of a copy, by its place in the corpus. */
const files = (index: number): ReadonlyArray<File> => {
  const random = randomness(index + 1)
  const between = (low: number, high: number) => low + Math.floor(random() * (high - low))
  const many = (count: number, make: (number: string) => File) =>
    Array.from({ length: count }, (_, number) => make(String(number + 1).padStart(2, "0")))
  return [
    { path: "SKILL.md", bytes: text(random, between(2000, 6000)), binary: false, executable: false },
    ...many(10, (number) => ({
      path: `references/topic-${number}.md`,
      bytes: text(random, between(800, 6000)),
      binary: false,
      executable: false
    })),
    ...many(8, (number) => ({
      path: `scripts/step-${number}.sh`,
      bytes: text(random, between(300, 1500)),
      binary: false,
      executable: true
    })),
    ...many(6, (number) => ({
      path: `assets/image-${number}.bin`,
      bytes: binary(random, between(200, 3000)),
      binary: true,
      executable: false
    }))
  ]
}

/** Where a copy lies below the folder of all skills. */
export const relativePath = ({ companyId, skillId, versionId }: CopyRef.CopyRef): string =>
  `${companyId}/__versions__/${skillId}/${versionId}`

/** Where it lies once it is trash. */
export const trashPath = ({ companyId, skillId, versionId }: CopyRef.CopyRef): string =>
  `${companyId}/__versions__/${skillId}/.trash-${versionId}`

/** Writes the copies as a restoration would leave them, or under other names. */
export const write = Effect.fnUntraced(function* (corpus: Corpus, skills: string, pathOf = relativePath) {
  for (const [index, copy] of corpus.copies.entries()) {
    const folder = `${skills}/${pathOf(copy)}`
    for (const name of ["assets", "references", "scripts"]) System.makeFolder(`${folder}/${name}`)
    for (const { bytes, executable, path } of files(corpus.first + index)) {
      System.writeFile(`${folder}/${path}`, bytes, executable ? 0o555 : 0o444)
    }
    // A Ctrl-C is seen between two copies.
    yield* Effect.yieldNow
  }
})

/** The files of a copy, by its place in the corpus, as the host's tables have them. */
export const inventory = (place: number): string =>
  JSON.stringify(
    files(place).map(({ binary, bytes, executable, path }) => ({
      path,
      content: bytes.toString(binary ? "base64" : "utf8"),
      encoding: binary ? "base64" : "utf8",
      executable
    }))
  )

// 25 versions: about two megabytes of JSON, far below what the driver takes in one message.
const versionsPerStatement = 25

/** Puts the company, its skills and all versions into the host's tables. */
export const insert = Effect.fnUntraced(function* ({ companyId, copies, first }: Corpus) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`insert into companies (id, name) values (${companyId}::uuid, 'benchmark')`
  const skills = [...new Set(copies.map(({ skillId }) => skillId))]
  yield* sql`
    insert into company_skills (id, company_id, key, slug, name)
    select id, ${companyId}::uuid, id::text, 'slug', 'Name' from unnest(${skills}::uuid[]) as s (id)`
  for (let from = 0; from < copies.length; from += versionsPerStatement) {
    const some = copies.slice(from, from + versionsPerStatement)
    const inventories = some.map((_, offset) => inventory(first + from + offset))
    yield* sql`
      insert into company_skill_versions (id, company_id, company_skill_id, revision_number, file_inventory)
      select v.id, ${companyId}::uuid, v.skill_id, v.number + ${from}, v.inventory::jsonb
      from unnest(${some.map(({ versionId }) => versionId)}::uuid[],
                  ${some.map(({ skillId }) => skillId)}::uuid[],
                  ${inventories}::text[]) with ordinality as v (id, skill_id, inventory, number)`
  }
  yield* sql`analyze`
})
