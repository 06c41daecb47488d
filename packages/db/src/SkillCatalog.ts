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
import { Context, Effect, Layer, Option, Result, Schema, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { Fragment } from "effect/sql/Statement"
import { type DatabaseError, make as makeError } from "./DatabaseError.ts"
import { HostSchema, type MissingTables } from "./HostSchema.ts"
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
     * Builds the manifests of versions, in one statement. A version that the company does not have is left
     * out; one whose snapshot cannot be used fails alone.
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

// 256: bounds one statement's work; small files travel together until the chunk is full.
const filesPerStatement = 256

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

const Found = Schema.Struct({ found: Schema.Boolean })
const LookupRow = Schema.Struct({ versionId: Ids.VersionId, skillId: Ids.SkillId })

const ManifestRow = Schema.Struct({
  versionId: Ids.VersionId,
  /** -1 for the row that describes the version itself. */
  ordinal: Schema.Finite,
  path: Schema.NullOr(Schema.String),
  root: Schema.NullOr(Schema.String),
  size: Schema.NullOr(Schema.Finite),
  sha256: Schema.NullOr(Schema.String),
  executable: Schema.NullOr(Schema.Boolean),
  problem: Schema.NullOr(Schema.String)
})
type ManifestRow = typeof ManifestRow.Type

const ContentRow = Schema.Struct({ ordinal: Schema.Finite, bytes: Schema.NullOr(Schema.Uint8Array) })

/** True for failures that one version's rows can cause, as opposed to the database as a whole. */
const isAboutContents = ({ reason }: DatabaseError): boolean =>
  reason._tag === "Other" || reason._tag === "Undecodable" || reason._tag === "StatementTimeout"

const readManifest = (
  rows: ReadonlyArray<ManifestRow>,
  caseInsensitive: boolean
): Result.Result<Manifest.Manifest, Manifest.UnusableSnapshot> => {
  const header = rows.find((row) => row.ordinal === -1)
  if (header === undefined || header.problem !== null) {
    return Result.fail(new Manifest.UnusableSnapshot({ detail: header?.problem ?? "it has no snapshot" }))
  }
  const entries = rows.filter((row) => row.ordinal >= 0).toSorted((a, b) => a.ordinal - b.ordinal)
  return Manifest.fromEntries(entries, { root: header.root, caseInsensitive })
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
      ? sql`(select n.xmin::text from company_skill_repository_snapshots n where n.id = r.snapshot_id)`
      : sql`null::text`

    const describe = Effect.fn("SkillCatalog.describe")(function* (copies: ReadonlyArray<CopyRef.CopyRef>) {
      if (copies.length === 0) return new Map<Ids.VersionId, VersionRow>()
      const operation = "describing versions"
      const rows = yield* transactions.join(
        operation,
        query(
          VersionRow,
          operation,
          // Ranks count every version of a skill, so they are computed before the copies are picked.
          sql`
            with wanted as (
              select distinct company_id, skill_id, version_id
              from unnest(${copies.map((copy) => copy.companyId)}::uuid[],
                          ${copies.map((copy) => copy.skillId)}::uuid[],
                          ${copies.map((copy) => copy.versionId)}::uuid[]) as w (company_id, skill_id, version_id)
            ), ranked as (
              select v.xmin::text as written, ${snapshotOf} as snapshot_id, v.id, v.company_id, v.company_skill_id, v.revision_number,
                rank() over (partition by v.company_skill_id order by v.revision_number desc) - 1 as rank
              from company_skill_versions v
              join company_skills s on s.id = v.company_skill_id and s.company_id = v.company_id
              where (v.company_id, v.company_skill_id) in (select company_id, skill_id from wanted)
            )
            select r.company_id::text as "companyId", r.company_skill_id::text as "skillId",
              r.id::text as "versionId", r.revision_number::float8 as "revisionNumber", r.rank::float8 as "rank",
              exists (select from company_skills s
                      where s.company_id = r.company_id and s.current_version_id = r.id) as "current",
              concat_ws('/', r.written, r.snapshot_id, ${snapshotWritten}) as "revision"
            from ranked r
            join wanted w on w.company_id = r.company_id and w.skill_id = r.company_skill_id and w.version_id = r.id`
        )
      )
      return new Map(rows.map((row) => [row.versionId, row]))
    })

    const hasCompany = Effect.fn("SkillCatalog.hasCompany")((companyId: Ids.CompanyId) => {
      const operation = "finding a company"
      return transactions.join(
        operation,
        Effect.map(
          query(Found, operation, sql`select true as "found" from companies where id = ${companyId}::uuid`),
          (rows) => rows.length > 0
        )
      )
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

    /** A JSON value that is text, else null. */
    const text = (value: Fragment): Fragment =>
      sql`case when jsonb_typeof(${value}) = 'string' then ${value} #>> '{}' end`

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
     * The content (`c`), without white space (`k`), and the bytes (`b`) of the entry `e`; null where they
     * cannot be had. Each step is computed once: `offset 0` keeps the planner from repeating it.
     */
    const decoded: Fragment = sql`cross join lateral (
        select ${text(sql`e.entry -> 'content'`)} as content, ${encodingOf(sql`e.entry`)} as encoding offset 0
      ) c
      cross join lateral (
        select case when c.encoding = 'base64' then ${packed(sql`c.content`)} end as packed offset 0
      ) k
      cross join lateral (
        select case when c.encoding = 'utf8' then convert_to(c.content, 'UTF8')
                    when ${isBase64(sql`k.packed`)} then decode(k.packed, 'base64') end as bytes offset 0
      ) b`

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

    // Paths are cut at 4,096 characters, more than any system takes: the driver refuses messages over 16 MiB,
    // and one endless path would take the other versions' answers with it.
    const manifestStatement = (companyId: Ids.CompanyId, versionIds: ReadonlyArray<Ids.VersionId>) => {
      const wanted = host.repositorySnapshots
        ? sql`
            select v.id, v.repository_snapshot_id as snapshot_id,
              case when v.repository_snapshot_id is null or v.repository_skill_path is null
                     or v.repository_skill_path = '.' then '' else v.repository_skill_path end as root`
        : sql`select v.id, null::uuid as snapshot_id, '' as root`
      const ofSnapshots = host.repositorySnapshots
        ? sql`
            union all
            select w.id, (x.number - 1)::int, x.entry
            from (select distinct snapshot_id from wanted where snapshot_id is not null) d
            join company_skill_repository_snapshots r on r.id = d.snapshot_id and r.company_id = ${companyId}::uuid
            cross join lateral ${elements(sql`r.file_inventory`)}
            join wanted w on w.snapshot_id = d.snapshot_id and ${concerns(sql`w.root`)}`
        : sql``
      const kindOfSnapshot = host.repositorySnapshots
        ? sql`case when w.snapshot_id is null then jsonb_typeof(v.file_inventory)
                   else (select jsonb_typeof(r.file_inventory) from company_skill_repository_snapshots r
                         where r.id = w.snapshot_id and r.company_id = v.company_id) end`
        : sql`jsonb_typeof(v.file_inventory)`
      return sql`
        with wanted as materialized (
          ${wanted}
          from company_skill_versions v
          join company_skills s on s.id = v.company_skill_id and s.company_id = v.company_id
          where v.company_id = ${companyId}::uuid and v.id = any(${versionIds}::uuid[])
        ), entries as (
          select w.id, (x.number - 1)::int as ordinal, x.entry
          from wanted w
          join company_skill_versions v on v.id = w.id
          cross join lateral ${elements(sql`v.file_inventory`)}
          where w.snapshot_id is null
          ${ofSnapshots}
        )
        select w.id::text as "versionId", -1 as "ordinal", null::text as "path", left(w.root, 4097) as "root",
          null::float8 as "size", null::text as "sha256", null::boolean as "executable",
          case when kind.kind is null then 'its snapshot is not there'
               when kind.kind <> 'array' then 'its snapshot is no list of files' end as "problem"
        from wanted w
        join company_skill_versions v on v.id = w.id
        cross join lateral (select ${kindOfSnapshot} as kind) kind
        union all
        select e.id::text, e.ordinal,
          case when length(p.path) <= 4096 then p.path end, null,
          octet_length(b.bytes)::float8, encode(sha256(b.bytes), 'hex'), f.executable,
          case when p.path is null then 'the path is no text'
               when length(p.path) > 4096 then 'the path is too long'
               when c.content is null then 'the content is no text'
               when c.encoding is null then 'the encoding is neither utf8 nor base64'
               when b.bytes is null then 'the content is no base64'
               when f.executable is null then 'executable is neither true nor false' end
        from entries e
        cross join lateral (select ${text(sql`e.entry -> 'path'`)} as path offset 0) p
        ${decoded}
        cross join lateral (
          select case when coalesce(jsonb_typeof(e.entry -> 'executable'), 'null') = 'null' then false
                      when jsonb_typeof(e.entry -> 'executable') = 'boolean'
                        then (e.entry ->> 'executable')::boolean end as executable offset 0
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
      if (versionIds.length === 0) return result
      const add = (rows: ReadonlyArray<ManifestRow>) => {
        for (const [versionId, list] of Map.groupBy(rows, (row) => row.versionId)) {
          result.set(versionId, readManifest(list, options.caseInsensitive))
        }
      }
      const whole = yield* Effect.result(readManifests(companyId, versionIds))
      if (Result.isSuccess(whole)) {
        add(whole.success)
        return result
      }
      // Whatever the server could not digest in spite of all the care above must not spoil the others: then,
      // and only then, each version is asked for alone.
      if (!isAboutContents(whole.failure)) return yield* whole.failure
      for (const versionId of versionIds) {
        const single = yield* Effect.result(readManifests(companyId, [versionId]))
        if (Result.isSuccess(single)) add(single.success)
        else if (isAboutContents(single.failure)) {
          result.set(
            versionId,
            Result.fail(new Manifest.UnusableSnapshot({ detail: single.failure.message }))
          )
        } else return yield* single.failure
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
          ? sql`b.bytes`
          : sql`substring(b.bytes from ${fetch.from + 1}::int for ${chunkBytes}::int)`
      return sql`
        select o.ordinal::float8 as "ordinal", ${bytes} as "bytes"
        from (${source}) s
        cross join lateral ${elements(sql`s.inventory`)}
        join unnest(${ordinals}::int[]) with ordinality as o (ordinal, place) on o.ordinal = x.number - 1
        cross join lateral (select x.entry offset 0) e
        ${decoded}
        order by o.place`
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
      hasCompany,
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
