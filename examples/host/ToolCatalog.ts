/** What the farm can make again: the releases of its tools. */
import { Ids, Manifest } from "@reclaim/core"
import { DatabaseError, SkillCatalog, type Transactions } from "@reclaim/db"
import { Effect, Layer, Schema, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Rows from "./Rows.ts"

const Id = Schema.Struct({ id: Schema.String })
const Tool = Schema.Struct({ skillId: Ids.SkillId, name: Schema.String })
const Release = Schema.Struct({ versionId: Ids.VersionId, skillId: Ids.SkillId })
const Part = Schema.Struct({ bytes: Schema.Uint8Array })
const File = Schema.Struct({
  ordinal: Schema.Finite,
  path: Schema.String,
  size: Schema.Finite,
  sha256: Schema.String,
  executable: Schema.Boolean
})
/** The files are null for a release that has none. */
const Listed = Schema.Struct({ versionId: Ids.VersionId, files: Schema.NullOr(Schema.Array(File)) })

// 8 MiB: no part may be larger, and the driver refuses answers over 16 MiB.
const partBytes = 8 * 1024 * 1024

/** Where the parts of a file begin; an empty file has one, too. */
const partsOf = ({ ordinal, size }: Pick<Manifest.ManifestFile, "ordinal" | "size">) =>
  Array.from({ length: Math.max(1, Math.ceil(size / partBytes)) }, (_, part) => ({
    ordinal,
    from: part * partBytes
  }))

export const layer: Layer.Layer<
  SkillCatalog.SkillCatalog,
  never,
  SqlClient.SqlClient | Transactions.Transactions
> = Layer.effect(
  SkillCatalog.SkillCatalog,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const read = yield* Rows.reader

    const readPart = Effect.fnUntraced(function* (
      companyId: Ids.CompanyId,
      versionId: Ids.VersionId,
      { from, ordinal }: ReturnType<typeof partsOf>[number]
    ) {
      const operation = "reading a file"
      const [part] = yield* read(
        Part,
        operation,
        sql`select substring(f.content from ${from + 1}::int for ${partBytes}::int) as "bytes"
            from releases r join release_files f on f.release_id = r.id
            where r.tenant_id = ${companyId}::uuid and r.id = ${versionId}::uuid and f.ordinal = ${ordinal}::int`
      )
      if (part === undefined) {
        return yield* DatabaseError.make({ _tag: "Other", detail: `${versionId} lost a file` }, operation)
      }
      return { ordinal, bytes: part.bytes }
    })

    return SkillCatalog.SkillCatalog.of({
      // `xmin` is another one after every write, so the revision is too, also when only a file was written.
      describe: (copies) =>
        Effect.map(
          read(
            SkillCatalog.VersionRow,
            "describing releases",
            sql`select r.tenant_id as "companyId", r.tool_id as "skillId", r.id as "versionId",
                  r.number as "revisionNumber", coalesce(t.current_release_id = r.id, false) as "current",
                  (select count(*)::int from releases n
                   where n.tool_id = r.tool_id and n.number > r.number) as "rank",
                  md5(concat_ws('/', r.xmin, (
                    select string_agg(f.ordinal || ':' || f.xmin::text, ',' order by f.ordinal)
                    from release_files f where f.release_id = r.id))) as "revision"
                from unnest(${copies.map((copy) => copy.companyId)}::uuid[],
                            ${copies.map((copy) => copy.skillId)}::uuid[],
                            ${copies.map((copy) => copy.versionId)}::uuid[]) as c (tenant_id, tool_id, id)
                join releases r using (tenant_id, tool_id, id)
                join tools t on t.id = r.tool_id`
          ),
          (rows) => new Map(rows.map((row) => [row.versionId, row]))
        ),

      hasCompany: (companyId) =>
        Effect.map(
          read(Id, "finding a tenant", sql`select id from tenants where id = ${companyId}::uuid`),
          (rows) => rows.length > 0
        ),

      lookup: (companyId, versionIds) =>
        Effect.map(
          read(
            Release,
            "finding releases",
            sql`select id as "versionId", tool_id as "skillId" from releases
                where tenant_id = ${companyId}::uuid and id = any(${versionIds}::uuid[])`
          ),
          (rows) => new Map(rows.map(({ skillId, versionId }) => [versionId, skillId]))
        ),

      // Digested where the contents are, so that they need not travel. What two paths could mean is not
      // decided here: `Manifest` refuses it.
      manifests: (companyId, versionIds, { caseInsensitive }) =>
        Effect.map(
          read(
            Listed,
            "digesting releases",
            sql`select r.id as "versionId", (
                  select jsonb_agg(jsonb_build_object('ordinal', f.ordinal, 'path', f.path,
                    'size', octet_length(f.content), 'sha256', encode(sha256(f.content), 'hex'),
                    'executable', f.executable) order by f.ordinal)
                  from release_files f where f.release_id = r.id) as "files"
                from releases r
                where r.tenant_id = ${companyId}::uuid and r.id = any(${versionIds}::uuid[])`
          ),
          (rows) =>
            new Map(
              rows.map(({ files, versionId }) => [
                versionId,
                Manifest.fromEntries(
                  (files ?? []).map((file) => ({ ...file, problem: null })),
                  { root: null, caseInsensitive }
                )
              ])
            )
        ),

      contents: (companyId, versionId, files) =>
        Stream.mapEffect(Stream.fromIterable(files.flatMap(partsOf)), (part) =>
          readPart(companyId, versionId, part)
        ),

      names: (companyId) =>
        Effect.map(
          read(
            Tool,
            "naming tools",
            sql`select id as "skillId", name from tools where tenant_id = ${companyId}::uuid`
          ),
          (rows) => new Map(rows.map((row) => [row.skillId, { ...row, key: row.name, slug: row.name }]))
        )
    })
  })
)
