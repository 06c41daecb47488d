import { describe, expect, layer } from "@effect/vitest"
import { Effect, FileSystem, Schema } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { Output } from "../src/index.ts"
import * as Fixture from "./support/fixture.ts"

const Hold = Schema.decodeUnknownSync(Output.Hold)

const scope = "ab".repeat(32)

layer(Fixture.layer, { timeout: 60_000 })("operators", (it) => {
  describe("holds", () => {
    it.effect("[O-07] holds a version, says so everywhere, and lets go", () =>
      Effect.gen(function* () {
        const { companyId, oldCopy, run, versions } = yield* Fixture.Fixture
        const [versionId] = versions
        yield* oldCopy(versionId)
        const version = ["--company", companyId, "--version", versionId]
        const held = yield* run(["hold", ...version, "--note", "legal review", "--json"])
        expect(held.code).toBe(0)
        expect(held.documents).toEqual([
          expect.objectContaining({
            type: "held",
            kind: "version",
            companyId,
            versionId,
            note: "legal review"
          })
        ])
        // Holding again replaces the note.
        yield* run(["hold", ...version, "--note", "second look"])
        const listed = yield* run(["holds", "--json"])
        expect(listed.documents.map((document) => Hold(document))).toEqual([
          expect.objectContaining({ kind: "version", versionId, note: "second look" })
        ])
        const table = yield* run(["holds"])
        expect(table.stdout).toContain("second look")
        expect(table.stdout.split("\n")[0]).toMatch(/^HELD +COMPANY +SINCE \(UTC\) +BY +NOTE$/)

        const why = yield* run(["skills", "diagnose", "--json", ...version])
        expect(why.documents[0]).toMatchObject({
          type: "copy",
          decision: "retain",
          reasons: [{ _tag: "Held", note: "second look" }]
        })
        const swept = yield* run(["skills", "sweep", "--json"])
        expect(swept.code).toBe(0)
        expect(swept.documents.at(-1)).toMatchObject({ type: "summary", evicted: 0, skipped: { Held: 1 } })

        const undone = yield* run(["unhold", ...version, "--json"])
        expect(undone.documents).toEqual([
          expect.objectContaining({ type: "unheld", versionId, removed: true })
        ])
        const again = yield* run(["unhold", ...version, "--json"])
        expect(again.code).toBe(0)
        expect(again.documents[0]).toMatchObject({ removed: false })
        expect((yield* run(["holds"])).stdout).toBe("nothing is held\n")
      })
    )

    it.effect("[O-07] holds a session scope, whatever the case it is written in", () =>
      Effect.gen(function* () {
        const { run } = yield* Fixture.Fixture
        const held = yield* run(["hold", "--scope", scope.toUpperCase(), "--note", "incident 7", "--json"])
        expect(held.documents[0]).toMatchObject({ type: "held", kind: "scope", scope })
        expect((yield* run(["holds", "--json"])).documents[0]).toMatchObject({ kind: "scope", scope })
        expect((yield* run(["unhold", "--scope", scope])).code).toBe(0)
      })
    )

    it.effect("[O-07] refuses to hold a version that does not exist", () =>
      Effect.gen(function* () {
        const { companyId, run, skillId } = yield* Fixture.Fixture
        const held = yield* run([
          "hold",
          "--company",
          companyId,
          "--version",
          skillId,
          "--note",
          "x",
          "--json"
        ])
        expect(held.code).toBe(1)
        expect(held.documents).toEqual([expect.objectContaining({ type: "error", _tag: "UnknownVersion" })])
        const company = yield* run([
          "hold",
          "--company",
          skillId,
          "--version",
          skillId,
          "--note",
          "x",
          "--json"
        ])
        expect(company.code).toBe(1)
        expect(company.documents[0]).toMatchObject({ _tag: "UnknownCompany" })
      })
    )
  })

  describe("the journal", () => {
    it.effect("[O-07] answers what went, when and by whom, newest last", () =>
      Effect.gen(function* () {
        const { companyId, oldCopy, run, versions } = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        yield* oldCopy(versions[0])
        const second = yield* oldCopy(versions[1])
        const swept = yield* run(["skills", "sweep", "--json"])
        expect(swept.code).toBe(0)
        expect(yield* files.exists(second)).toBe(false)
        const journal = yield* run(["journal", "--json"])
        const evictions = journal.documents.filter(({ versionId }) => versions.some((id) => id === versionId))
        expect(new Set(evictions.map(({ versionId }) => versionId))).toEqual(
          new Set([versions[0], versions[1]])
        )
        expect(evictions).toHaveLength(2)
        for (const entry of journal.documents) {
          expect(() => Schema.decodeUnknownSync(Output.JournalEntry)(entry)).not.toThrow()
        }
        expect(evictions[0]).toMatchObject({ companyId, worker: "skill-versions" })
        expect(evictions[0]?.["server"]).toMatch(/ pid \d+$/)
        const instants = journal.documents.map(({ at }) => String(at))
        expect(instants).toEqual(instants.toSorted((left, right) => left.localeCompare(right)))
      })
    )

    it.effect("[O-07] goes back as far as it is told, for one company", () =>
      Effect.gen(function* () {
        const { companyId, run, skillId } = yield* Fixture.Fixture
        const sql = yield* SqlClient.SqlClient
        const insert = (event: string, hours: number, company: string) =>
          sql`insert into reclaim.journal (at, worker, event, company_id, allocated_bytes, server)
              values (clock_timestamp() - make_interval(hours => ${hours}::int), 'test', ${event},
                ${company}::uuid, 0, 'here')`
        yield* insert("old", 20, companyId)
        yield* insert("new", 2, companyId)
        yield* insert("other", 2, skillId)
        const events = Effect.fnUntraced(function* (...args: ReadonlyArray<string>) {
          const { documents } = yield* run(["journal", "--json", ...args])
          return documents.filter(({ worker }) => worker === "test").map(({ event }) => event)
        })
        expect(yield* events()).toEqual(["old", "new", "other"])
        expect(yield* events("--since", "12 hours")).toEqual(["new", "other"])
        expect(yield* events("--since", "1 hour")).toEqual([])
        expect(yield* events("--company", companyId)).toEqual(["old", "new"])
      })
    )
  })
})
