/**
 * Reads what the database can rebuild: versions, their manifests and their contents.
 *
 * **Details**
 *
 * A host with other tables supplies its own layer. The number of statements never depends on the number of
 * versions asked for. Contents do not travel to be compared: sizes and digests are computed by the server,
 * and an entry that it could not decode is described as a problem instead of failing the statement.
 *
 * @since 0.1.0
 */
import { type CopyRef, Ids, Manifest } from "@reclaim/core"
import { Array as Arr, Context, Effect, Layer, Option, Result, Schema, Stream } from "effect"
import * as Hex from "effect/encoding/Hex"
import * as SqlClient from "effect/sql/SqlClient"
import type { Fragment } from "effect/sql/Statement"
import { type DatabaseError, make as makeError } from "./DatabaseError.ts"
import { HostSchema, type MissingTables } from "./HostSchema.ts"
import { hasCompany } from "./internal/hasCompany.ts"
import { query } from "./internal/rows.ts"
import { Transactions } from "./Transactions.ts"

/**
 * A version of the database. `rank` counts from 0, the newest revision of its skill. `revision` is opaque and
 * another one whenever the row, or the snapshot that it takes its files from, was written: what was proven
 * with one revision says nothing about the next.
 *
 * @category models
 * @since 0.1.0
 */
export const VersionRow = Schema.Struct({
  companyId: Ids.CompanyId,
  skillId: Ids.SkillId,
  versionId: Ids.VersionId,
  revisionNumber: Schema.Finite,
  current: Schema.Boolean,
  rank: Schema.Finite,
  revision: Schema.String
})
/** @category models @since 0.1.0 */
export type VersionRow = typeof VersionRow.Type

/** What people call a skill. @category models @since 0.1.0 */
export const SkillName = Schema.Struct({
  skillId: Ids.SkillId,
  key: Schema.String,
  slug: Schema.String,
  name: Schema.String
})
/** @category models @since 0.1.0 */
export type SkillName = typeof SkillName.Type

/**
 * A part of a file: chunks of a file follow each other, in order, and every file has at least one.
 *
 * @category models
 * @since 0.1.0
 */
export interface Content {
  readonly ordinal: number
  readonly bytes: Uint8Array
}

/**
 * The skill versions of the database.
 *
 * @category services
 * @since 0.1.0
 */
export class SkillCatalog extends Context.Service<
  SkillCatalog,
  {
    /**
     * Describes the versions of copies, of any number of companies, in one statement. A version whose
     * company or skill is not the copy's is as if absent.
     */
    readonly describe: (
      copies: ReadonlyArray<CopyRef.CopyRef>
    ) => Effect.Effect<ReadonlyMap<Ids.VersionId, VersionRow>, DatabaseError>
    /** Whether the database has the company. */
    readonly hasCompany: (companyId: Ids.CompanyId) => Effect.Effect<boolean, DatabaseError>
    /** Finds the skills of versions; those that the company does not have are left out. */
    readonly lookup: (
      companyId: Ids.CompanyId,
      versionIds: ReadonlyArray<Ids.VersionId>
    ) => Effect.Effect<ReadonlyMap<Ids.VersionId, Ids.SkillId>, DatabaseError>
    /**
     * Builds the manifests of versions, in one statement, or in some where they have very many files. A version
     * that the company does not have is left out; one whose snapshot cannot be used fails alone.
     */
    readonly manifests: (
      companyId: Ids.CompanyId,
      versionIds: ReadonlyArray<Ids.VersionId>,
      options: { readonly caseInsensitive: boolean }
    ) => Effect.Effect<
      ReadonlyMap<Ids.VersionId, Result.Result<Manifest.Manifest, Manifest.UnusableSnapshot>>,
      DatabaseError
    >
    /**
     * Streams the contents of files of a version, as its manifest describes them, in chunks of at most 8
     * MiB. The bytes are not verified here: sizes and digests of the manifest are the reader's to check.
     */
    readonly contents: (
      companyId: Ids.CompanyId,
      versionId: Ids.VersionId,
      files: ReadonlyArray<Pick<Manifest.ManifestFile, "ordinal" | "size">>
    ) => Stream.Stream<Content, DatabaseError>
    /** The names of a company's skills, for people; empty where the host has none. */
    readonly names: (
      companyId: Ids.CompanyId
    ) => Effect.Effect<ReadonlyMap<Ids.SkillId, SkillName>, DatabaseError>
  }
>()("@reclaim/db/SkillCatalog") {}

/**
 * The row of a copy, if there is one. Two folders may bear the id of one version; only the right one has it.
 *
 * @category queries
 * @since 0.1.0
 */
export const rowOf = (
  rows: ReadonlyMap<Ids.VersionId, VersionRow>,
  copy: CopyRef.CopyRef
): Option.Option<VersionRow> => {
  const row = rows.get(copy.versionId)
  return row !== undefined && row.companyId === copy.companyId && row.skillId === copy.skillId
    ? Option.some(row)
    : Option.none()
}

// 8 MiB: the driver refuses messages over 16 MiB, and a stage holds one chunk in memory. A part of a large
// file costs the server the decoding of all of it, so parts should not be small.
const chunkBytes = 8 * 1024 * 1024

// 4,096: each statement takes the whole snapshot out of its storage, so small files travel together until the
// chunk is full; this bounds how many rows are in memory.
const filesPerStatement = 4096

// 10,000: some megabytes and some 50 ms of decoding. An ordinary batch has far fewer in all.
const entriesPerStatement = 10_000

// 2 minutes: a snapshot may hold a quarter of a gigabyte, and nobody waits for a lock meanwhile.
const patient = { statementTimeout: "2 minutes", answerTimeout: "125 seconds" } as const

/** What one statement fetches: whole small files, or a part of a large one. */
type Fetch =
  | { readonly _tag: "Files"; readonly ordinals: ReadonlyArray<number> }
  | { readonly _tag: "Part"; readonly ordinal: number; readonly from: number }

const plan = (
  files: ReadonlyArray<Pick<Manifest.ManifestFile, "ordinal" | "size">>
): ReadonlyArray<Fetch> => {
  const fetches: Array<Fetch> = []
  let ordinals: Array<number> = []
  let size = 0
  const flush = () => {
    if (ordinals.length > 0) fetches.push({ _tag: "Files", ordinals })
    ordinals = []
    size = 0
  }
  for (const file of files) {
    if (file.size > chunkBytes) {
      flush()
      for (let from = 0; from < file.size; from += chunkBytes) {
        fetches.push({ _tag: "Part", ordinal: file.ordinal, from })
      }
      continue
    }
    if (size + file.size > chunkBytes || ordinals.length === filesPerStatement) flush()
    ordinals.push(file.ordinal)
    size += file.size
  }
  flush()
  return fetches
}

const LookupRow = Schema.Struct({ versionId: Ids.VersionId, skillId: Ids.SkillId })

const ManifestRow = Schema.Struct({
  /** Which of the versions that were asked for, from 1; for a file, whose files it is one of. */
  place: Schema.Finite,
  /** -1 for the row that describes the version itself. */
  ordinal: Schema.Finite,
  /** Whose files a version has: versions of one snapshot and path share them. Null: not in this answer. */
  source: Schema.NullOr(Schema.Finite),
  root: Schema.NullOr(Schema.String),
  path: Schema.NullOr(Schema.String),
  size: Schema.NullOr(Schema.Finite),
  sha256: Schema.NullOr(Schema.Uint8Array),
  executable: Schema.NullOr(Schema.Boolean),
  problem: Schema.NullOr(Schema.String)
})
type ManifestRow = typeof ManifestRow.Type

const ContentRow = Schema.Struct({ ordinal: Schema.Finite, bytes: Schema.NullOr(Schema.Uint8Array) })

/** True for failures that one version's rows can cause, as opposed to the database as a whole. */
const isAboutContents = ({ reason }: DatabaseError): boolean =>
  reason._tag === "Other" || reason._tag === "Undecodable" || reason._tag === "StatementTimeout"

const readManifest = (
  header: ManifestRow,
  rows: ReadonlyArray<ManifestRow>,
  caseInsensitive: boolean
): Result.Result<Manifest.Manifest, Manifest.UnusableSnapshot> => {
  if (header.problem !== null) {
    return Result.fail(new Manifest.UnusableSnapshot({ detail: header.problem }))
  }
  const entries = rows
    .map((row) => ({ ...row, sha256: row.sha256 === null ? null : Hex.encode(row.sha256) }))
    .toSorted((a, b) => a.ordinal - b.ordinal)
  return Manifest.fromEntries(entries, { root: header.root, caseInsensitive })
}

/**
 * The manifests of some versions by one answer, and the versions that it left for the next. Versions that
 * have the same files share one manifest.
 */
const readAnswer = (
  versionIds: ReadonlyArray<Ids.VersionId>,
  rows: ReadonlyArray<ManifestRow>,
  caseInsensitive: boolean
) => {
  const found = new Map<Ids.VersionId, Result.Result<Manifest.Manifest, Manifest.UnusableSnapshot>>()
  const rest: Array<Ids.VersionId> = []
  const files = Map.groupBy(
    rows.filter(({ ordinal }) => ordinal >= 0),
    ({ place }) => place
  )
  const read = new Map<number, Result.Result<Manifest.Manifest, Manifest.UnusableSnapshot>>()
  for (const header of rows) {
    const versionId = versionIds[header.place - 1]
    if (header.ordinal !== -1 || versionId === undefined) continue
    if (header.source === null) {
      rest.push(versionId)
      continue
    }
    const manifest =
      read.get(header.source) ?? readManifest(header, files.get(header.source) ?? [], caseInsensitive)
    read.set(header.source, manifest)
    found.set(versionId, manifest)
  }
  return { found, rest }
}

/**
 * The catalog in the host's tables.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<
  SkillCatalog,
  MissingTables,
  SqlClient.SqlClient | Transactions | HostSchema
> = Layer.effect(
  SkillCatalog,
  Effect.gen(function* () {
    const sql = (yield* SqlClient.SqlClient).withoutTransforms()
    const transactions = yield* Transactions
    const host = yield* HostSchema
    yield* host.requireSkills

    const snapshotOf = host.repositorySnapshots ? sql`v.repository_snapshot_id` : sql`null::uuid`
    const snapshotWritten = host.repositorySnapshots
      ? sql`(select n.xmin::text from company_skill_repository_snapshots n where n.id = v.repository_snapshot_id)`
      : sql`null::text`

    const describe = Effect.fn("SkillCatalog.describe")(function* (copies: ReadonlyArray<CopyRef.CopyRef>) {
      if (copies.length === 0) return new Map<Ids.VersionId, VersionRow>()
      const operation = "describing versions"
      const rows = yield* transactions.join(
        operation,
        query(
          VersionRow,
          operation,
          sql`
            select v.company_id::text as "companyId", v.company_skill_id::text as "skillId",
              v.id::text as "versionId", v.revision_number::float8 as "revisionNumber",
              (select count(*) from company_skill_versions n
               where n.company_skill_id = v.company_skill_id and n.company_id = v.company_id
                 and n.revision_number > v.revision_number)::float8 as "rank",
              exists (select from company_skills s
                      where s.company_id = v.company_id and s.current_version_id = v.id) as "current",
              concat_ws('/', v.xmin::text, ${snapshotOf}, ${snapshotWritten}) as "revision"
            from (
              select distinct company_id, skill_id, version_id
              from unnest(${copies.map((copy) => copy.companyId)}::uuid[],
                          ${copies.map((copy) => copy.skillId)}::uuid[],
                          ${copies.map((copy) => copy.versionId)}::uuid[]) as u (company_id, skill_id, version_id)
            ) w
            join company_skill_versions v
              on v.id = w.version_id and v.company_id = w.company_id and v.company_skill_id = w.skill_id
            join company_skills s on s.id = v.company_skill_id and s.company_id = v.company_id`
        )
      )
      return new Map(rows.map((row) => [row.versionId, row]))
    })

    const lookup = Effect.fn("SkillCatalog.lookup")(function* (
      companyId: Ids.CompanyId,
      versionIds: ReadonlyArray<Ids.VersionId>
    ) {
      if (versionIds.length === 0) return new Map<Ids.VersionId, Ids.SkillId>()
      const operation = "finding skills of versions"
      const rows = yield* transactions.join(
        operation,
        query(
          LookupRow,
          operation,
          sql`select v.id::text as "versionId", v.company_skill_id::text as "skillId"
              from company_skill_versions v
              join company_skills s on s.id = v.company_skill_id and s.company_id = v.company_id
              where v.company_id = ${companyId}::uuid and v.id = any(${versionIds}::uuid[])`
        )
      )
      return new Map(rows.map((row) => [row.versionId, row.skillId]))
    })

    /** A member of a JSON object that is text, else null. */
    const text = (value: Fragment, name: Fragment): Fragment =>
      sql`case when jsonb_typeof(${value} -> ${name}) = 'string' then ${value} ->> ${name} end`

    // Absent and JSON null are the same; anything else that is no known text is a problem.
    const encodingOf = (entry: Fragment): Fragment => sql`
      case when coalesce(jsonb_typeof(${entry} -> 'encoding'), 'null') = 'null' then 'utf8'
           when jsonb_typeof(${entry} -> 'encoding') = 'string' and ${entry} ->> 'encoding' in ('utf8', 'base64')
             then ${entry} ->> 'encoding' end`

    // The server skips white space. What remains must be whole groups of four with at most two "=" at the
    // very end: the server's decoder takes a little more, but not unambiguously, and fails the statement on
    // everything else.
    const isBase64 = (packed: Fragment): Fragment =>
      sql`length(${packed}) % 4 = 0 and ${packed} ~ '^[A-Za-z0-9+/]*={0,2}$'`

    // Nested, because one `translate` is eight times slower.
    const packed = (content: Fragment): Fragment =>
      sql`replace(replace(replace(replace(${content}, E'\n', ''), E'\r', ''), E'\t', ''), ' ', '')`

    /**
     * Decodes entries, a selection of `place`, `ordinal` and `entry`: `path`, `encoding`, `content` and `bytes`
     * are null where they cannot be had. Nested, with `offset 0`, so that each step is computed once: side by
     * side the planner caches each step under all that it is computed from, which it computes for that again.
     */
    const decoded = (entries: Fragment): Fragment => sql`(
        select k.place, k.ordinal, k.entry, k.path, k.encoding, k.content is not null as readable,
          case when k.encoding = 'utf8' then convert_to(k.content, 'UTF8')
               when ${isBase64(sql`k.packed`)} then decode(k.packed, 'base64') end as bytes
        from (
          select c.*, case when c.encoding = 'base64' then ${packed(sql`c.content`)} end as packed
          from (
            select e.*, ${text(sql`e.entry`, sql`'path'`)} as path,
              ${text(sql`e.entry`, sql`'content'`)} as content, ${encodingOf(sql`e.entry`)} as encoding
            from (${entries}) e offset 0
          ) c offset 0
        ) k offset 0
      )`

    /** The entries of a snapshot; `array` guards the function, which fails on anything else. */
    const elements = (inventory: Fragment): Fragment => sql`
      jsonb_array_elements(case when jsonb_typeof(${inventory}) = 'array' then ${inventory} else '[]'::jsonb end)
        with ordinality as x (entry, number)`

    // Only what lies under the skill's path is digested. Unclean paths come along, undigested by their
    // problem: whether one of them reaches into the skill is for the manifest to say.
    const concerns = (root: Fragment): Fragment => sql`(
      ${root} = '' or jsonb_typeof(x.entry -> 'path') is distinct from 'string'
      or starts_with(x.entry ->> 'path', ${root} || '/')
      or x.entry ->> 'path' ~ '(^|/)[.]{0,2}(/|$)')`

    // One look at the snapshot: nothing for what is no array.
    const lengthOf = (inventory: Fragment): Fragment =>
      sql`jsonb_path_query_first(${inventory}, 'strict $ ? (@.type() == "array").size()')::int`

    /**
     * Describes each version and its files, as far as they fit: versions that share a snapshot come together,
     * and the first that was asked for is always in the answer.
     *
     * Paths are cut at 4,096 characters, more than any system takes: the driver refuses messages over 16 MiB,
     * and one endless path would take the other versions' answers with it.
     */
    const manifestStatement = (companyId: Ids.CompanyId, versionIds: ReadonlyArray<Ids.VersionId>) => {
      const ofVersion = host.repositorySnapshots
        ? sql`
            v.repository_snapshot_id as snapshot_id,
            case when v.repository_snapshot_id is null or v.repository_skill_path is null
                   or v.repository_skill_path = '.' then '' else v.repository_skill_path end as root`
        : sql`null::uuid as snapshot_id, '' as root`
      const countsOfSnapshots = host.repositorySnapshots
        ? sql`
            union all
            select w.*, min(w.place) over (partition by w.snapshot_id, w.root), r.there, r.entries
            from wanted w
            left join (
              select d.snapshot_id, n.file_inventory is not null as there,
                ${lengthOf(sql`n.file_inventory`)} as entries
              from (select distinct snapshot_id from wanted where snapshot_id is not null) d
              join company_skill_repository_snapshots n
                on n.id = d.snapshot_id and n.company_id = ${companyId}::uuid
              offset 0
            ) r on r.snapshot_id = w.snapshot_id
            where w.snapshot_id is not null`
        : sql``
      const ofSnapshots = host.repositorySnapshots
        ? sql`
            union all
            select a.place, (x.number - 1)::int, x.entry
            from (select distinct snapshot_id from answered where snapshot_id is not null) d
            join company_skill_repository_snapshots r
              on r.id = d.snapshot_id and r.company_id = ${companyId}::uuid
            cross join lateral ${elements(sql`r.file_inventory`)}
            join answered a
              on a.snapshot_id = d.snapshot_id and a.place = a.source and ${concerns(sql`a.root`)}`
        : sql``
      return sql`
        with wanted as materialized (
          select u.place::int as place, v.id, ${ofVersion}
          from unnest(${versionIds}::uuid[]) with ordinality as u (id, place)
          join company_skill_versions v on v.id = u.id and v.company_id = ${companyId}::uuid
          join company_skills s on s.id = v.company_skill_id and s.company_id = v.company_id
        ), counted as materialized (
          select w.*, w.place as source, v.file_inventory is not null as there,
            ${lengthOf(sql`v.file_inventory`)} as entries
          from wanted w join company_skill_versions v on v.id = w.id
          where w.snapshot_id is null
          ${countsOfSnapshots}
        ), grouped as materialized (
          select c.*, min(c.place) over (partition by coalesce(c.snapshot_id, c.id)) as first from counted c
        ), fitting as materialized (
          select g.*, g.first = min(g.first) over ()
              or sum(case when g.place = g.first then coalesce(g.entries, 0) else 0 end) over (order by g.first)
                <= ${entriesPerStatement}::int as fits
          from grouped g
        ), answered as materialized (
          select * from fitting where fits
        )
        select f.place as "place", -1 as "ordinal", case when f.fits then f.source end as "source",
          left(f.root, 4097) as "root", null::text as "path", null::int as "size", null::bytea as "sha256",
          null::boolean as "executable",
          case when f.there is not true then 'its snapshot is not there'
               when f.entries is null then 'its snapshot is no list of files' end as "problem"
        from fitting f
        union all
        select d.place, d.ordinal, null, null, case when length(d.path) <= 4096 then d.path end,
          octet_length(d.bytes), sha256(d.bytes), f.executable,
          case when d.path is null then 'the path is no text'
               when length(d.path) > 4096 then 'the path is too long'
               when not d.readable then 'the content is no text'
               when d.encoding is null then 'the encoding is neither utf8 nor base64'
               when d.bytes is null then 'the content is no base64'
               when f.executable is null then 'executable is neither true nor false' end
        from ${decoded(sql`
          select a.place, (x.number - 1)::int as ordinal, x.entry
          from answered a
          join company_skill_versions v on v.id = a.id
          cross join lateral ${elements(sql`v.file_inventory`)}
          where a.snapshot_id is null
          ${ofSnapshots}`)} d
        cross join lateral (
          select case when coalesce(jsonb_typeof(d.entry -> 'executable'), 'null') = 'null' then false
                      when jsonb_typeof(d.entry -> 'executable') = 'boolean'
                        then (d.entry ->> 'executable')::boolean end as executable
        ) f`
    }

    const readManifests = (companyId: Ids.CompanyId, versionIds: ReadonlyArray<Ids.VersionId>) => {
      const operation = "digesting snapshots"
      return transactions.join(
        operation,
        query(ManifestRow, operation, manifestStatement(companyId, versionIds)),
        patient
      )
    }

    const manifests = Effect.fn("SkillCatalog.manifests")(function* (
      companyId: Ids.CompanyId,
      versionIds: ReadonlyArray<Ids.VersionId>,
      options: { readonly caseInsensitive: boolean }
    ) {
      const result = new Map<Ids.VersionId, Result.Result<Manifest.Manifest, Manifest.UnusableSnapshot>>()
      let open: ReadonlyArray<Ids.VersionId> = Arr.dedupe(versionIds)
      const read = Effect.fnUntraced(function* (wanted: ReadonlyArray<Ids.VersionId>) {
        const answer = readAnswer(wanted, yield* readManifests(companyId, wanted), options.caseInsensitive)
        for (const [versionId, manifest] of answer.found) result.set(versionId, manifest)
        return answer.rest
      })
      while (open.length > 0) {
        const answer = yield* Effect.result(read(open))
        if (Result.isSuccess(answer)) {
          open = answer.success
          continue
        }
        // Whatever the server could not digest in spite of all the care above must not spoil the others: then,
        // and only then, each version is asked for alone.
        if (!isAboutContents(answer.failure)) return yield* answer.failure
        for (const versionId of open) {
          const single = yield* Effect.result(read([versionId]))
          if (Result.isSuccess(single)) continue
          if (!isAboutContents(single.failure)) return yield* single.failure
          result.set(
            versionId,
            Result.fail(new Manifest.UnusableSnapshot({ detail: single.failure.message }))
          )
        }
        return result
      }
      return result
    })

    const contentStatement = (companyId: Ids.CompanyId, versionId: Ids.VersionId, fetch: Fetch) => {
      const ordinals = fetch._tag === "Files" ? fetch.ordinals : [fetch.ordinal]
      const source = host.repositorySnapshots
        ? sql`
            select case when v.repository_snapshot_id is null then v.file_inventory else r.file_inventory end as inventory
            from company_skill_versions v
            left join company_skill_repository_snapshots r
              on r.id = v.repository_snapshot_id and r.company_id = v.company_id
            where v.company_id = ${companyId}::uuid and v.id = ${versionId}::uuid offset 0`
        : sql`
            select v.file_inventory as inventory from company_skill_versions v
            where v.company_id = ${companyId}::uuid and v.id = ${versionId}::uuid offset 0`
      const bytes =
        fetch._tag === "Files"
          ? sql`d.bytes`
          : sql`substring(d.bytes from ${fetch.from + 1}::int for ${chunkBytes}::int)`
      // Only from the first to the last that is wanted: taking apart a snapshot of very many files for each of
      // many statements would cost the square of their number.
      const first = Math.min(...ordinals)
      const range = JSON.stringify({ from: first, to: Math.max(...ordinals) })
      return sql`
        select d.ordinal::float8 as "ordinal", ${bytes} as "bytes"
        from ${decoded(sql`
          select o.place, o.ordinal, x.entry
          from (${source}) s
          cross join lateral jsonb_path_query(
            case when jsonb_typeof(s.inventory) = 'array' then s.inventory else '[]'::jsonb end,
            '$[$from to $to]', ${range}::jsonb
          ) with ordinality as x (entry, number)
          join unnest(${ordinals}::int[]) with ordinality as o (ordinal, place)
            on o.ordinal = x.number - 1 + ${first}::int`)} d
        order by d.place`
    }

    const fetchContents = Effect.fn("SkillCatalog.contents")(function* (
      companyId: Ids.CompanyId,
      versionId: Ids.VersionId,
      fetch: Fetch
    ) {
      const operation = "reading contents"
      const expected = fetch._tag === "Files" ? fetch.ordinals.length : 1
      const rows = yield* transactions.join(
        operation,
        query(ContentRow, operation, contentStatement(companyId, versionId, fetch)),
        patient
      )
      const chunks = rows.flatMap(({ bytes, ordinal }): ReadonlyArray<Content> =>
        bytes === null ? [] : [{ ordinal, bytes }]
      )
      if (chunks.length !== expected) {
        return yield* makeError(
          { _tag: "Other", detail: `version ${versionId} no longer has the files of its manifest` },
          operation
        )
      }
      return chunks
    })

    const names = Effect.fn("SkillCatalog.names")(function* (companyId: Ids.CompanyId) {
      if (!host.skillNames) return new Map<Ids.SkillId, SkillName>()
      const operation = "reading names of skills"
      const rows = yield* transactions.join(
        operation,
        query(
          SkillName,
          operation,
          sql`select id::text as "skillId", coalesce(key::text, '') as "key", coalesce(slug::text, '') as "slug",
                coalesce(name::text, '') as "name"
              from company_skills where company_id = ${companyId}::uuid`
        )
      )
      return new Map(rows.map((row) => [row.skillId, row]))
    })

    return SkillCatalog.of({
      describe,
      hasCompany: Effect.fn("SkillCatalog.hasCompany")(hasCompany(sql, transactions)),
      lookup,
      manifests,
      contents: (companyId, versionId, files) =>
        Stream.fromIterable(plan(files)).pipe(
          Stream.mapEffect((fetch) => fetchContents(companyId, versionId, fetch)),
          Stream.flatMap(Stream.fromIterable)
        ),
      names
    })
  })
)
