import { expect, it, layer } from "@effect/vitest"
import { Ids, VersionAudit } from "@reclaim/core"
import { HostSchema, SkillCatalog } from "@reclaim/db"
import { SkillVersionAudit } from "@reclaim/runtime"
import { Effect, Exit, FileSystem, Layer, Option, Ref, Schema, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { Output } from "../src/index.ts"
import { auditCompany } from "../src/internal/audit.ts"
import { Printer } from "../src/internal/printer.ts"
import * as Fixture from "./support/fixture.ts"
import { interrupted } from "./support/interrupted.ts"

const decodeAudit = Schema.decodeUnknownEffect(Output.Audit)
const decodeSummary = Schema.decodeUnknownEffect(Output.AuditSummary)

/** A company with an intact copy, an altered one, and one that a run pins and that is missing. */
const broken = Effect.gen(function* () {
  const fixture = yield* Fixture.Fixture
  const { agentId, companyId, oldCopy, pathOf, run, versions } = fixture
  const files = yield* FileSystem.FileSystem
  const sql = yield* SqlClient.SqlClient
  const runId = crypto.randomUUID()
  yield* sql`insert into heartbeat_runs (id, company_id, agent_id, status, started_at)
    values (${runId}::uuid, ${companyId}::uuid, ${agentId}::uuid, 'running', now())`
  yield* run(["skills", "prepare", "--company", companyId, "--run", runId, "--version", versions[0]])
  yield* files.remove(pathOf(versions[0]), { recursive: true })
  const altered = yield* oldCopy(versions[1])
  yield* files.chmod(`${altered}/SKILL.md`, 0o644)
  yield* files.writeFileString(`${altered}/SKILL.md`, "# Skill, edited by me\n")
  yield* files.writeFileString(`${altered}/notes`, "mine")
  yield* oldCopy(versions[2])
  return { ...fixture, altered }
})

layer(Fixture.layer, { timeout: 60_000 })("skills audit", (it) => {
  it.effect("[O-03] tells every copy in a document, then the whole, and [O-04] exits with 1", () =>
    Effect.gen(function* () {
      const { altered, companyId, pathOf, run, skillId, versions } = yield* broken
      const found = yield* run(["skills", "audit", "--company", companyId, "--json"])
      expect(found.code).toBe(1)
      expect(found.stderr).toBe("")
      const audits = yield* Effect.forEach(found.documents.slice(0, -1), (each) => decodeAudit(each))
      expect(audits).toHaveLength(3)
      const by = (versionId: string) => found.documents.find((each) => each["versionId"] === versionId)
      expect(by(versions[0])).toEqual({
        type: "audit",
        companyId,
        skillId,
        versionId: versions[0],
        path: pathOf(versions[0]),
        status: "missing",
        files: [],
        problemCount: 0,
        reason: null,
        repaired: false
      })
      expect(by(versions[1])).toMatchObject({
        status: "altered",
        path: altered,
        files: expect.arrayContaining([
          { path: "SKILL.md", problem: "size" },
          { path: "notes", problem: "extra" }
        ]),
        problemCount: 2,
        repaired: false
      })
      expect(by(versions[2])).toMatchObject({ status: "intact", files: [], repaired: false })
      const summary = yield* decodeSummary(found.documents.at(-1))
      expect(summary).toEqual({
        type: "summary",
        companyId,
        audited: 3,
        found: { intact: 1, missing: 1, altered: 1, incomplete: 0, unprovable: 0, unexpected: 0 },
        repaired: 0,
        unrepaired: 2,
        selectionsRecorded: true
      })
    })
  )

  it.effect("[O-02] repairs on request, [O-04] exits with 0 then, and the journal tells", () =>
    Effect.gen(function* () {
      const { altered, companyId, pathOf, run, versions } = yield* broken
      const files = yield* FileSystem.FileSystem
      const command = ["skills", "audit", "--company", companyId]
      const repaired = yield* run([...command, "--repair", "--json"])
      expect(repaired.code).toBe(0)
      expect(repaired.documents.at(-1)).toMatchObject({
        type: "summary",
        found: { missing: 1, altered: 1 },
        repaired: 2,
        unrepaired: 0
      })
      expect(yield* files.readFileString(`${altered}/SKILL.md`)).toBe("# Skill, revision 2\n")
      expect(yield* files.exists(pathOf(versions[0]))).toBe(true)
      const again = yield* run([...command, "--json"])
      expect(again.code).toBe(0)
      expect(again.documents.at(-1)).toMatchObject({ audited: 3, found: { intact: 3 } })
      const journal = yield* run(["journal", "--company", companyId, "--json"])
      const events = journal.documents.map(({ event, versionId }) => [versionId, event])
      expect(events).toContainEqual([versions[0], "healed"])
      expect(events).toContainEqual([versions[1], "repaired"])
    })
  )

  it.effect("[O-03] lists for a person what is wrong with what", () =>
    Effect.gen(function* () {
      const { companyId, run, skillId, versions } = yield* broken
      const found = yield* run(["skills", "audit", "--company", companyId])
      expect(found.code).toBe(1)
      expect(found.stderr).toBe("")
      const lines = found.stdout.split("\n")
      expect(lines[0]).toBe(`company ${companyId}`)
      expect(lines[1]).toMatch(/^VERSION +STATUS +REPAIRED +WHAT$/)
      expect(lines[2]).toBe(`skill ${skillId} greeting`)
      const what = (versionId: string) =>
        lines.find((line) => line.startsWith(versionId))?.slice(lines[1]!.indexOf("STATUS"))
      expect(what(versions[0])).toMatch(/^missing +no +an active run pins it, and there is no copy$/)
      expect(what(versions[1])).toMatch(/^altered +no +.*SKILL\.md has another size/)
      expect(what(versions[1])).toMatch(/notes is not in the database/)
      expect(what(versions[2])).toBe("intact")
      expect(lines).toContain("audited 3 copies, 1 intact, 1 missing, 1 altered, 0 repaired, 2 left")
    })
  )

  it.effect("[O-03] [O-04] of what is unexpected it says what and where, and leaves it", () =>
    Effect.gen(function* () {
      const { companyId, pathOf, run, skillId, versions } = yield* Fixture.Fixture
      const files = yield* FileSystem.FileSystem
      const command = ["skills", "audit", "--company", companyId, "--repair"]
      yield* run(command)
      const strange = `${pathOf(versions[0]).slice(0, -36)}notes`
      yield* files.makeDirectory(strange)
      const found = yield* run([...command, "--json"])
      expect(found.code).toBe(1)
      expect(found.documents.find(({ status }) => status === "unexpected")).toEqual({
        type: "audit",
        companyId,
        skillId,
        versionId: null,
        path: strange,
        status: "unexpected",
        files: [],
        problemCount: 0,
        reason: { _tag: "Unexpected", what: "a name that is no id", path: strange },
        repaired: false
      })
      const told = yield* run(command)
      expect(told.stdout).toMatch(new RegExp(`^- +unexpected +no +a name that is no id: ${strange}$`, "m"))
      yield* files.remove(strange, { recursive: true })
    })
  )

  it.effect("[O-04] a company that does not exist is one clear error", () =>
    Effect.gen(function* () {
      const { run, skillId } = yield* Fixture.Fixture
      const found = yield* run(["skills", "audit", "--company", skillId, "--json"])
      expect(found.code).toBe(1)
      expect(found.documents).toEqual([expect.objectContaining({ type: "error", _tag: "UnknownCompany" })])
      const missing = yield* run(["skills", "audit", "--json"])
      expect(missing.code).toBe(2)
    })
  )

  it.effect(
    "[O-02] without the schema it looks, and says what it cannot know; a repair advises migrate",
    () =>
      Effect.gen(function* () {
        const { companyId, run } = yield* broken
        const sql = yield* SqlClient.SqlClient
        const command = ["skills", "audit", "--company", companyId]
        yield* sql`alter schema reclaim rename to aside`
        const looked = yield* run([...command, "--json"])
        const told = yield* run(command)
        const refused = yield* run([...command, "--repair", "--json"])
        yield* sql`alter schema aside rename to reclaim`
        expect(looked.code).toBe(1)
        expect(looked.documents.at(-1)).toMatchObject({
          audited: 2,
          found: { missing: 0, altered: 1, intact: 1 },
          selectionsRecorded: false
        })
        expect(told.stdout).toMatch(/what is missing is not known: run reclaim migrate\n$/)
        expect(refused.code).toBe(1)
        expect(refused.documents).toMatchObject([{ type: "error", _tag: "NotAdopted" }])
        expect(String(refused.documents[0]?.["message"])).toContain("reclaim migrate")
      })
  )

  it.effect("[O-04] Ctrl-C ends an audit that waits for a lock, with 130 and nothing left open", () =>
    Effect.gen(function* () {
      const { companyId } = yield* broken
      const { code, documents } = yield* interrupted(
        ["skills", "audit", "--company", companyId, "--repair"],
        "company_skill_versions"
      )
      expect(code).toBe(130)
      expect(documents).toMatchObject([{ type: "error", _tag: "Interrupted" }])
    })
  )

  it.effect("[O-02] its help shows how to use it", () =>
    Effect.gen(function* () {
      const { run } = yield* Fixture.Fixture
      const help = yield* run(["skills", "audit", "--help"])
      expect(help.code).toBe(0)
      expect(help.stdout).toContain("--repair")
      expect(help.stdout).toContain("reclaim skills audit --company ID --repair")
    })
  )
})

it.effect("[O-03] tells a person how far it is, and of many differences the first few and how many", () =>
  Effect.gen(function* () {
    const companyId = Ids.CompanyId.make(crypto.randomUUID())
    const skillId = Ids.SkillId.make(crypto.randomUUID())
    const progress = yield* Ref.make<ReadonlyArray<string>>([])
    const printed = yield* Ref.make<ReadonlyArray<string>>([])
    const audited = (verdict: Partial<VersionAudit.Verdict>): SkillVersionAudit.Audited => ({
      ...VersionAudit.missing,
      status: "altered",
      companyId,
      skillId: Option.some(skillId),
      versionId: Option.some(Ids.VersionId.make(crypto.randomUUID())),
      path: "/somewhere",
      repaired: false,
      ...verdict
    })
    const files = ["a", "b", "c", "d"].map((path) => ({ path, problem: "extra" as const }))
    const exit = yield* auditCompany({ companyId }).pipe(
      Effect.provide(
        Layer.mergeAll(
          Layer.mock(SkillVersionAudit.SkillVersionAudit, {
            audit: () =>
              Stream.make(
                audited({ files, problemCount: 300 }),
                audited({ status: "unprovable", reason: Option.some({ _tag: "CompanyBusy" }) })
              )
          }),
          Layer.mock(SkillCatalog.SkillCatalog, { names: () => Effect.succeed(new Map()) }),
          Layer.mock(HostSchema.HostSchema, {
            repositorySnapshots: false,
            testRuns: false,
            skillNames: false,
            adopted: Effect.succeedNone
          }),
          Layer.mock(Printer, {
            json: false,
            document: () => Effect.void,
            lines: (...lines) => Ref.update(printed, (all) => [...all, ...lines]),
            progress: (text) => Ref.update(progress, (all) => [...all, text])
          })
        )
      ),
      Effect.exit
    )
    expect(Exit.isFailure(exit)).toBe(true)
    expect(yield* Ref.get(progress)).toEqual(["audited 1 copy", "audited 2 copies"])
    const lines = yield* Ref.get(printed)
    expect(lines.some((line) => line.endsWith("c is not in the database and 297 more"))).toBe(true)
    expect(lines.some((line) => line.endsWith("the company is busy; try again"))).toBe(true)
  })
)
