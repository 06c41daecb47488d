import { describe, expect, layer } from "@effect/vitest"
import { Ids, Manifest } from "@reclaim/core"
import { Effect, Option, Result, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { createHash } from "node:crypto"
import { DatabaseError, HostTables, SkillCatalog, Transactions } from "../src/index.ts"
import { adopted, statementsOf } from "./support/database.ts"
import * as Make from "./support/fixtures.ts"

const sha256 = (bytes: string | Uint8Array) => createHash("sha256").update(bytes).digest("hex")

const text = { path: "a.md", content: "ä€\u{1f600}\n" }
const good = [{ path: "SKILL.md", content: "good" }]

const owner = Effect.gen(function* () {
  const { companyId } = yield* Make.company
  return { companyId, skillId: yield* Make.skill(companyId) }
})

/** The manifests of versions made from inventories, in their order. */
const manifestsOf = Effect.fnUntraced(function* (
  inventories: ReadonlyArray<unknown>,
  options: { readonly caseInsensitive: boolean } = { caseInsensitive: false }
) {
  const catalog = yield* SkillCatalog.SkillCatalog
  const { companyId, skillId } = yield* owner
  const ids: Array<Ids.VersionId> = []
  for (const [revision, files] of inventories.entries()) {
    ids.push(yield* Make.version({ companyId, skillId, revision, files }))
  }
  const found = yield* catalog.manifests(companyId, ids, options)
  expect(found.size).toBe(ids.length)
  return ids.map(
    (id) => found.get(id) ?? Result.fail(new Manifest.UnusableSnapshot({ detail: "not answered" }))
  )
})

const detail = (result: Result.Result<unknown, Manifest.UnusableSnapshot> | undefined) =>
  result !== undefined && Result.isFailure(result) ? result.failure.detail : "usable"

const contentsOf = Effect.fnUntraced(function* (
  companyId: Ids.CompanyId,
  versionId: Ids.VersionId,
  manifest: Manifest.Manifest,
  each: (chunk: Uint8Array) => void = () => {}
) {
  const catalog = yield* SkillCatalog.SkillCatalog
  const chunks = yield* Stream.runCollect(catalog.contents(companyId, versionId, manifest))
  const files = new Map<number, Array<Uint8Array>>()
  for (const { bytes, ordinal } of chunks) {
    each(bytes)
    files.set(ordinal, [...(files.get(ordinal) ?? []), bytes])
  }
  return new Map([...files].map(([ordinal, parts]) => [ordinal, Buffer.concat(parts)]))
})

layer(adopted())("SkillCatalog", (it) => {
  describe("describing", () => {
    it.effect("[S-10] [S-15] tells current versions and ranks over all versions of the database", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const catalog = yield* SkillCatalog.SkillCatalog
        const { companyId, skillId } = yield* owner
        const [one, two, three] = [
          yield* Make.version({ companyId, skillId, revision: 1 }),
          yield* Make.version({ companyId, skillId, revision: 7 }),
          yield* Make.version({ companyId, skillId, revision: 3 })
        ]
        yield* sql`update company_skills set current_version_id = ${one}::uuid where id = ${skillId}::uuid`
        const rows = yield* catalog.describe([
          { companyId, skillId, versionId: one },
          { companyId, skillId, versionId: three }
        ])
        expect([...rows.keys()].toSorted()).toEqual([one, three].toSorted())
        expect(rows.get(one)).toEqual({
          companyId,
          skillId,
          versionId: one,
          revisionNumber: 1,
          current: true,
          rank: 2,
          revision: expect.any(String)
        })
        expect(rows.get(three)).toMatchObject({ current: false, rank: 1 })
        expect((yield* catalog.describe([{ companyId, skillId, versionId: two }])).get(two)?.rank).toBe(0)
      })
    )

    it.effect("[S-10] a version that another skill of the company names as current is current", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const catalog = yield* SkillCatalog.SkillCatalog
        const { companyId, skillId } = yield* owner
        const other = yield* Make.skill(companyId)
        const versionId = yield* Make.version({ companyId, skillId, revision: 1 })
        yield* sql`update company_skills set current_version_id = ${versionId}::uuid where id = ${other}::uuid`
        expect((yield* catalog.describe([{ companyId, skillId, versionId }])).get(versionId)?.current).toBe(
          true
        )
      })
    )

    it.effect("[S-17] a version whose company or skill is not the copy's is as if absent", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const catalog = yield* SkillCatalog.SkillCatalog
        const [a, b] = [yield* owner, yield* owner]
        const versionId = yield* Make.version({ ...a, revision: 1 })
        const right = { ...a, versionId }
        const elsewhere = [
          { ...b, versionId },
          { companyId: a.companyId, skillId: b.skillId, versionId },
          { companyId: b.companyId, skillId: a.skillId, versionId }
        ]
        expect((yield* catalog.describe(elsewhere)).size).toBe(0)
        const rows = yield* catalog.describe([right, ...elsewhere])
        expect(Option.isSome(SkillCatalog.rowOf(rows, right))).toBe(true)
        for (const copy of elsewhere) expect(Option.isNone(SkillCatalog.rowOf(rows, copy))).toBe(true)
        // A version whose row contradicts its skill's.
        const torn = yield* Make.version({ companyId: b.companyId, skillId: a.skillId, revision: 2 })
        expect((yield* catalog.describe([{ ...a, versionId: torn }])).size).toBe(0)
        expect(
          (yield* catalog.describe([{ companyId: b.companyId, skillId: a.skillId, versionId: torn }])).size
        ).toBe(0)
        expect((yield* catalog.manifests(b.companyId, [torn], { caseInsensitive: false })).size).toBe(0)
        yield* sql`delete from company_skill_versions where id = ${torn}::uuid`
      })
    )

    it.effect("[D-08] one statement describes copies of many companies", () =>
      Effect.gen(function* () {
        const catalog = yield* SkillCatalog.SkillCatalog
        const copies = yield* Effect.replicateEffect(
          Effect.gen(function* () {
            const own = yield* owner
            return { ...own, versionId: yield* Make.version({ ...own, revision: 1 }) }
          }),
          4
        )
        expect((yield* statementsOf(catalog.describe(copies))).length).toBe(1)
        expect((yield* catalog.describe(copies)).size).toBe(4)
        expect((yield* catalog.describe([])).size).toBe(0)
      })
    )

    it.effect("finds the skills of versions, and names for people", () =>
      Effect.gen(function* () {
        const catalog = yield* SkillCatalog.SkillCatalog
        const [a, b] = [yield* owner, yield* owner]
        const own = yield* Make.version({ ...a, revision: 1 })
        const foreign = yield* Make.version({ ...b, revision: 1 })
        expect(yield* catalog.lookup(a.companyId, [own, foreign])).toEqual(new Map([[own, a.skillId]]))
        expect((yield* catalog.names(a.companyId)).get(a.skillId)?.name).toBe("Name")
      })
    )
  })

  describe("manifests", () => {
    it.effect("[S-17] sizes and digests are those of the bytes, computed by the database", () =>
      Effect.gen(function* () {
        const binary = Buffer.from([0, 255, 128, 10, 13])
        const [manifest] = yield* manifestsOf([
          [
            text,
            { path: "d/b.bin", content: binary.toString("base64"), encoding: "base64", executable: true },
            { path: "empty", content: "" },
            { path: "empty.bin", content: "", encoding: "base64" },
            { path: "kind", content: "x", kind: "script", encoding: null, executable: null },
            { path: "plain", content: "x", encoding: "utf8", executable: false }
          ]
        ])
        const bytes = Buffer.from(text.content, "utf8")
        expect(manifest).toEqual(
          Result.succeed([
            { path: "a.md", ordinal: 0, size: bytes.length, sha256: sha256(bytes), executable: false },
            { path: "d/b.bin", ordinal: 1, size: 5, sha256: sha256(binary), executable: true },
            { path: "empty", ordinal: 2, size: 0, sha256: sha256(""), executable: false },
            { path: "empty.bin", ordinal: 3, size: 0, sha256: sha256(""), executable: false },
            { path: "kind", ordinal: 4, size: 1, sha256: sha256("x"), executable: false },
            { path: "plain", ordinal: 5, size: 1, sha256: sha256("x"), executable: false }
          ])
        )
      })
    )

    it.effect("[S-17] one bad version spoils none of the good ones, and one statement reads them all", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const catalog = yield* SkillCatalog.SkillCatalog
        const bad: ReadonlyArray<readonly [string, unknown, string]> = [
          ["no padding", [{ path: "a", content: "YQ", encoding: "base64" }], "no base64"],
          ["URL alphabet", [{ path: "a", content: "_-8=", encoding: "base64" }], "no base64"],
          ["not in the alphabet", [{ path: "a", content: "Y!==", encoding: "base64" }], "no base64"],
          ["not ASCII", [{ path: "a", content: "YQ=ä", encoding: "base64" }], "no base64"],
          ["padding too early", [{ path: "a", content: "Y===", encoding: "base64" }], "no base64"],
          ["only padding", [{ path: "a", content: "====", encoding: "base64" }], "no base64"],
          ["padding inside", [{ path: "a", content: "YQ=Q", encoding: "base64" }], "no base64"],
          ["more after padding", [{ path: "a", content: "YQ==YQ==", encoding: "base64" }], "no base64"],
          ["form feed", [{ path: "a", content: "YQ\f==", encoding: "base64" }], "no base64"],
          ["one character", [{ path: "a", content: "Y", encoding: "base64" }], "no base64"],
          ["unknown encoding", [{ path: "a", content: "x", encoding: "latin1" }], "encoding"],
          ["encoding in capitals", [{ path: "a", content: "x", encoding: "UTF8" }], "encoding"],
          ["encoding that is no text", [{ path: "a", content: "x", encoding: 1 }], "encoding"],
          ["null content", [{ path: "a", content: null }], "content"],
          ["no content", [{ path: "a" }], "content"],
          ["content that is no text", [{ path: "a", content: { a: 1 } }], "content"],
          ["executable as text", [{ path: "a", content: "x", executable: "true" }], "executable"],
          ["executable as a number", [{ path: "a", content: "x", executable: 1 }], "executable"],
          ["no path", [{ content: "x" }], "path"],
          ["a path that is no text", [{ path: 1, content: "x" }], "path"],
          ["an endless path", [{ path: "x".repeat(17 * 1024 * 1024), content: "x" }], "path"],
          ["an entry that is text", ["a"], "path"],
          ["an entry that is null", [null], "path"],
          ["an entry that is a list", [[]], "path"],
          ["an object", { path: "a", content: "x" }, "no list"],
          ["text", "[]", "no list"],
          ["JSON null", null, "no list"],
          ["a number", 7, "no list"],
          ["nothing", [], "no file"],
          ["a path that climbs", [{ path: "../a", content: "x" }], "path"],
          ["an absolute path", [{ path: "/a", content: "x" }], "path"],
          ["a path twice", [...good, ...good], "collides"]
        ]
        const { companyId, skillId } = yield* owner
        const ids: Array<Ids.VersionId> = []
        for (const [revision, [, files]] of bad.entries()) {
          ids.push(yield* Make.version({ companyId, skillId, revision, files }))
        }
        const first = yield* Make.version({ companyId, skillId, revision: 1000, files: good })
        const last = yield* Make.version({ companyId, skillId, revision: 1001, files: good })
        const read = catalog.manifests(companyId, [first, ...ids, last], { caseInsensitive: false })
        expect((yield* statementsOf(read)).length).toBe(1)
        const found = yield* read
        for (const [index, [name, , expected]] of bad.entries()) {
          expect([name, detail(found.get(ids[index] ?? first))]).toEqual([
            name,
            expect.stringContaining(expected)
          ])
        }
        for (const id of [first, last]) {
          expect(found.get(id)).toEqual(
            Result.succeed([
              { path: "SKILL.md", ordinal: 0, size: 4, sha256: sha256("good"), executable: false }
            ])
          )
        }
        expect((yield* sql`select 1`).length).toBe(1)
      })
    )

    it.effect("[S-17] whatever base64 the manifest accepts, PostgreSQL accepts, and means the same", () =>
      Effect.gen(function* () {
        const [manifest] = yield* manifestsOf([
          [
            { path: "white space", content: " YW\tJ\r\nj\n", encoding: "base64" },
            { path: "one byte", content: "YQ==", encoding: "base64" },
            { path: "two bytes", content: "YWI=", encoding: "base64" },
            { path: "loose bits", content: "YR==", encoding: "base64" },
            { path: "signs", content: "+/+/", encoding: "base64" }
          ]
        ])
        expect(
          manifest !== undefined && Result.isSuccess(manifest) && manifest.success.map((file) => file.sha256)
        ).toEqual(["abc", "a", "ab", "a", Buffer.from("+/+/", "base64")].map(sha256))
      })
    )

    it.effect("[S-01] the case of paths matters exactly where the volume says so", () =>
      Effect.gen(function* () {
        const files = [
          { path: "a", content: "1" },
          { path: "A", content: "2" }
        ]
        expect(detail((yield* manifestsOf([files]))[0])).toBe("usable")
        expect(detail((yield* manifestsOf([files], { caseInsensitive: true }))[0])).toContain("collides")
      })
    )

    it.effect("[S-01] a repository snapshot counts under the skill's path only", () =>
      Effect.gen(function* () {
        const catalog = yield* SkillCatalog.SkillCatalog
        const { companyId, skillId } = yield* owner
        const snapshotId = yield* Make.snapshot(companyId, [
          { path: "README.md", content: "root" },
          { path: "skills/a/SKILL.md", content: "a" },
          { path: "skills/ab/SKILL.md", content: "ab" },
          { path: "skills/b/SKILL.md", content: "b" },
          { path: "skills/b/broken", content: "YQ", encoding: "base64" },
          { path: "elsewhere//x", content: 7 },
          { path: "skills/a/run.sh", content: "#!", executable: true }
        ])
        const clean = yield* Make.snapshot(companyId, [{ path: "SKILL.md", content: "whole" }])
        const make = (revision: number, skillPath: string | null, id = snapshotId) =>
          Make.version({ companyId, skillId, revision, skillPath, snapshotId: id, files: good })
        const a = yield* make(1, "skills/a")
        const b = yield* make(2, "skills/b")
        const missing = yield* make(3, "skills/c")
        const climbing = yield* make(4, "skills/../skills/a")
        const wholes = [yield* make(5, null, clean), yield* make(6, "", clean), yield* make(7, ".", clean)]
        const root = yield* make(8, null)
        const all = [a, b, missing, climbing, ...wholes, root]
        const read = catalog.manifests(companyId, all, { caseInsensitive: false })
        expect((yield* statementsOf(read)).length).toBe(1)
        const found = yield* read
        expect(found.get(a)).toEqual(
          Result.succeed([
            { path: "SKILL.md", ordinal: 1, size: 1, sha256: sha256("a"), executable: false },
            { path: "run.sh", ordinal: 6, size: 2, sha256: sha256("#!"), executable: true }
          ])
        )
        expect(detail(found.get(b))).toContain("broken")
        expect(detail(found.get(missing))).toContain("no file")
        expect(detail(found.get(climbing))).toContain("plain relative path")
        for (const id of wholes) expect(detail(found.get(id))).toBe("usable")
        expect(detail(found.get(root))).not.toBe("usable")
        const files = found.get(a)
        if (files === undefined || Result.isFailure(files)) return expect.unreachable()
        const contents = yield* contentsOf(companyId, a, files.success)
        expect(contents.get(1)?.toString()).toBe("a")
        expect(contents.get(6)?.toString()).toBe("#!")
      })
    )

    it.effect(
      "[S-17] [S-20] very many files come in several answers, and once for all versions of a snapshot",
      () =>
        Effect.gen(function* () {
          const catalog = yield* SkillCatalog.SkillCatalog
          const { companyId, skillId } = yield* owner
          const many = (count: number, folder: string) =>
            Array.from({ length: count }, (_, index) => ({ path: `${folder}/${index}`, content: `${index}` }))
          const snapshotId = yield* Make.snapshot(companyId, [...many(2000, "a"), ...many(1000, "b")])
          const make = (revision: number, files: ReturnType<typeof many>) =>
            Make.version({ companyId, skillId, revision, files })
          const share = (revision: number, skillPath: string) =>
            Make.version({ companyId, skillId, revision, skillPath, snapshotId, files: [] })
          const first = yield* make(1, many(6000, "x"))
          const second = yield* make(2, many(6000, "y"))
          const [a, alsoA, b] = [yield* share(3, "a"), yield* share(4, "a"), yield* share(5, "b")]
          const all = [first, second, a, alsoA, b]
          const read = catalog.manifests(companyId, all, { caseInsensitive: false })
          // 6,000; then 6,000 and the 3,000 of the snapshot.
          expect((yield* statementsOf(read)).length).toBe(2)
          const found = yield* read
          expect(found.size).toBe(all.length)
          const filesOf = (versionId: Ids.VersionId) => {
            const manifest = found.get(versionId)
            return manifest !== undefined && Result.isSuccess(manifest) ? manifest.success : []
          }
          expect(all.map((id) => filesOf(id).length)).toEqual([6000, 6000, 2000, 2000, 1000])
          expect(filesOf(alsoA)).toBe(filesOf(a))
          for (const id of all) {
            for (const { path, sha256: digest } of [filesOf(id)[0], filesOf(id).at(-1)].filter(
              (file) => file !== undefined
            )) {
              expect(digest).toBe(sha256(path.replace(/^.*[/]/, "")))
            }
          }
        })
    )

    it.effect("[S-01] a path that could reach into the skill makes it unusable", () =>
      Effect.gen(function* () {
        const catalog = yield* SkillCatalog.SkillCatalog
        const { companyId, skillId } = yield* owner
        const results: Array<string> = []
        for (const [revision, path] of [
          "skills/a//x",
          "skills/./a/x",
          "b/../skills/a/x",
          "/skills/a/x"
        ].entries()) {
          const snapshotId = yield* Make.snapshot(companyId, [
            { path: "skills/a/SKILL.md", content: "a" },
            { path, content: "x" }
          ])
          const id = yield* Make.version({ companyId, skillId, revision, snapshotId, skillPath: "skills/a" })
          const found = yield* catalog.manifests(companyId, [id], { caseInsensitive: false })
          results.push(detail(found.get(id)))
        }
        for (const result of results) expect(result).toContain("plain relative path")
      })
    )

    it.effect("[S-17] a snapshot of another company is not there", () =>
      Effect.gen(function* () {
        const catalog = yield* SkillCatalog.SkillCatalog
        const { companyId, skillId } = yield* owner
        const foreign = yield* Make.snapshot((yield* Make.company).companyId, good)
        const id = yield* Make.version({ companyId, skillId, revision: 1, snapshotId: foreign, files: good })
        const found = yield* catalog.manifests(companyId, [id], { caseInsensitive: false })
        expect(detail(found.get(id))).toContain("not there")
        const error = yield* Effect.flip(
          Stream.runDrain(catalog.contents(companyId, id, [{ ordinal: 0, size: 4 }]))
        )
        expect(error).toBeInstanceOf(DatabaseError.DatabaseError)
      })
    )

    it.effect("[S-17] versions of other companies are left out", () =>
      Effect.gen(function* () {
        const catalog = yield* SkillCatalog.SkillCatalog
        const [a, b] = [yield* owner, yield* owner]
        const foreign = yield* Make.version({ ...b, revision: 1 })
        expect((yield* catalog.manifests(a.companyId, [foreign], { caseInsensitive: false })).size).toBe(0)
      })
    )
  })

  describe("contents", () => {
    it.effect("[S-01] come byte for byte, large files in parts and small ones together", () =>
      Effect.gen(function* () {
        const catalog = yield* SkillCatalog.SkillCatalog
        const { companyId, skillId } = yield* owner
        const large = Buffer.alloc(9 * 1024 * 1024 + 17, "0123456789abcdef")
        const files = [
          text,
          { path: "large", content: large.toString("base64"), encoding: "base64" },
          { path: "empty", content: "" },
          { path: "wide", content: "€".repeat(2 * 1024 * 1024) },
          ...Array.from({ length: 5000 }, (_, index) => ({ path: `small/${index}`, content: `${index}` }))
        ]
        const versionId = yield* Make.version({ companyId, skillId, revision: 1, files })
        const manifest = (yield* catalog.manifests(companyId, [versionId], { caseInsensitive: false })).get(
          versionId
        )
        if (manifest === undefined || Result.isFailure(manifest)) return expect.unreachable()
        let largest = 0
        let contents = new Map<number, Buffer>()
        const statements = yield* statementsOf(
          contentsOf(
            companyId,
            versionId,
            manifest.success,
            (chunk) => (largest = Math.max(largest, chunk.length))
          ).pipe(Effect.tap((found) => Effect.sync(() => void (contents = found))))
        )
        expect(largest).toBe(8 * 1024 * 1024)
        expect(contents.size).toBe(files.length)
        for (const file of manifest.success) {
          const bytes = contents.get(file.ordinal) ?? Buffer.alloc(0)
          expect([file.path, bytes.length, sha256(bytes)]).toEqual([file.path, file.size, file.sha256])
        }
        expect(statements.length).toBe(1 + 2 + 2)
      })
    )

    it.effect("[S-01] come in the order in which they are asked for, from anywhere in the snapshot", () =>
      Effect.gen(function* () {
        const catalog = yield* SkillCatalog.SkillCatalog
        const { companyId, skillId } = yield* owner
        const files = Array.from({ length: 20 }, (_, index) => ({ path: `${index}`, content: `${index}` }))
        const versionId = yield* Make.version({ companyId, skillId, revision: 1, files })
        const wanted = [17, 3, 11].map((ordinal) => ({ ordinal, size: `${ordinal}`.length }))
        const chunks = yield* Stream.runCollect(catalog.contents(companyId, versionId, wanted))
        expect(chunks.map(({ bytes, ordinal }) => [ordinal, new TextDecoder().decode(bytes)])).toEqual([
          [17, "17"],
          [3, "3"],
          [11, "11"]
        ])
      })
    )

    it.effect("[S-02] a version that vanished meanwhile is a failure, not a shorter copy", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const catalog = yield* SkillCatalog.SkillCatalog
        const { companyId, skillId } = yield* owner
        const versionId = yield* Make.version({ companyId, skillId, revision: 1, files: good })
        yield* sql`delete from company_skill_versions where id = ${versionId}::uuid`
        const error = yield* Effect.flip(
          Stream.runDrain(catalog.contents(companyId, versionId, [{ ordinal: 0, size: 4 }]))
        )
        expect(error.message).toContain("no longer has the files")
      })
    )
  })
})

layer(adopted())("SkillCatalog over a view that fails for one version", (it) => {
  it.effect("[S-17] what the server cannot even read spoils that version only", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const catalog = yield* SkillCatalog.SkillCatalog
      const { companyId, skillId } = yield* owner
      const [first, broken, last] = [
        yield* Make.version({ companyId, skillId, revision: 1, files: good }),
        yield* Make.version({ companyId, skillId, revision: 666, files: good }),
        yield* Make.version({ companyId, skillId, revision: 3, files: good })
      ]
      yield* sql`alter table company_skill_versions rename to all_versions`
      yield* sql`create view company_skill_versions as
        select id, company_id, company_skill_id, revision_number, repository_snapshot_id, repository_skill_path,
          created_at, case when revision_number = 666 then to_jsonb(1 / (revision_number - 666)) else file_inventory end
            as file_inventory
        from all_versions`
      const found = yield* catalog.manifests(companyId, [first, broken, last], { caseInsensitive: false })
      expect(detail(found.get(first))).toBe("usable")
      expect(detail(found.get(broken))).toContain("division by zero")
      expect(detail(found.get(last))).toBe("usable")
      // One that is too large for the server's memory.
      yield* sql`create function too_large(n int, files jsonb) returns jsonb immutable language plpgsql as $$
        begin
          if n = 666 then raise exception 'out of memory' using errcode = '53200'; end if;
          return files;
        end $$`
      yield* sql`create or replace view company_skill_versions as
        select id, company_id, company_skill_id, revision_number, repository_snapshot_id, repository_skill_path,
          created_at, too_large(revision_number, file_inventory) as file_inventory
        from all_versions`
      const large = yield* catalog.manifests(companyId, [first, broken, last], { caseInsensitive: false })
      expect(detail(large.get(first))).toBe("usable")
      expect(detail(large.get(broken))).toContain("out of memory")
      expect(detail(large.get(last))).toBe("usable")
      expect(yield* Effect.map(HostTables.create, (made) => made.length)).toBe(0)
      expect(
        yield* Effect.flatMap(Transactions.Transactions, ({ run }) => run(() => Effect.succeed(1)))
      ).toBe(1)
    })
  )
})
