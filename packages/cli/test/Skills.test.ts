import { describe, expect, layer } from "@effect/vitest"
import { Effect, FileSystem, Schema } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { Output } from "../src/index.ts"
import * as Fixture from "./support/fixture.ts"

const run = crypto.randomUUID()
const decodeBatch = Schema.decodeUnknownEffect(Output.Batch)

layer(Fixture.layer, { timeout: 60_000 })("skills", (it) => {
  describe("restoring and preparing", () => {
    it.effect("[O-02] restores one version, whole, and says where it is", () =>
      Effect.gen(function* () {
        const fixture = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        const [versionId] = fixture.versions
        const args = [
          "skills",
          "restore",
          "--company",
          fixture.companyId,
          "--version",
          versionId.toUpperCase()
        ]
        const path = fixture.pathOf(versionId)
        const first = yield* fixture.run([...args, "--json"])
        expect(first.code).toBe(0)
        expect(first.documents).toEqual([
          { type: "prepared", skillId: fixture.skillId, versionId, status: "ready", path, restored: true }
        ])
        expect(yield* files.readFileString(`${path}/SKILL.md`)).toBe("# Skill, revision 1\n")
        expect([...(yield* files.readFile(`${path}/assets/dot.bin`))]).toEqual([0, 1, 2, 3, 4, 255, 254])
        expect((yield* files.stat(`${path}/scripts/run.sh`)).mode & 0o777).toBe(0o555)
        const again = yield* fixture.run([...args, "--json"])
        expect(again.documents[0]).toMatchObject({ status: "ready", restored: false })
        expect((yield* fixture.run(args)).stdout).toBe(`ready     ${versionId}  ${path}\n`)
      })
    )

    it.effect("[O-02] prepares what a run selected, pins it, and releases it", () =>
      Effect.gen(function* () {
        const { agentId, companyId, run: command, versions } = yield* Fixture.Fixture
        const sql = yield* SqlClient.SqlClient
        yield* sql`insert into heartbeat_runs (id, company_id, agent_id, status, started_at)
          values (${run}::uuid, ${companyId}::uuid, ${agentId}::uuid, 'running', now())`
        const prepared = yield* command([
          "skills",
          "prepare",
          "--company",
          companyId,
          "--run",
          run,
          "--json",
          "--version",
          versions[0],
          "--version",
          versions[1]
        ])
        expect(prepared.code).toBe(0)
        expect(prepared.documents).toMatchObject([
          { type: "prepared", versionId: versions[0], status: "ready" },
          { type: "prepared", versionId: versions[1], status: "ready" }
        ])
        const why = yield* command(["skills", "diagnose", "--version", versions[0], "--json"])
        expect(why.documents[0]).toMatchObject({
          type: "copy",
          decision: "retain",
          reasons: expect.arrayContaining([{ _tag: "ActiveRun", runIds: [run] }])
        })
        const released = yield* command(["skills", "release", "--run", run, "--json"])
        expect(released.documents).toEqual([{ type: "released", runId: run, pins: 2 }])
        const again = yield* command(["skills", "release", "--run", run])
        expect(again.code).toBe(0)
        expect(again.stdout).toBe(`released 0 pins of run ${run}\n`)
      })
    )

    it.effect("[O-02] an empty selection makes a run known, so that it blocks nothing", () =>
      Effect.gen(function* () {
        const { agentId, companyId, oldCopy, run: command, versions } = yield* Fixture.Fixture
        const sql = yield* SqlClient.SqlClient
        yield* oldCopy(versions[0])
        const silent = crypto.randomUUID()
        yield* sql`insert into heartbeat_runs (id, company_id, agent_id, status, started_at)
          values (${silent}::uuid, ${companyId}::uuid, ${agentId}::uuid, 'running', now())`
        const diagnose = ["skills", "diagnose", "--version", versions[0], "--json"]
        expect((yield* command(diagnose)).documents[0]).toMatchObject({
          decision: "retain",
          reasons: [{ _tag: "SelectionUnknown", runIds: [silent] }]
        })
        const prepared = yield* command([
          "skills",
          "prepare",
          "--company",
          companyId,
          "--run",
          silent,
          "--json"
        ])
        expect(prepared.code).toBe(0)
        expect(prepared.stdout).toBe("")
        expect((yield* command(diagnose)).documents[0]).toMatchObject({ decision: "evict", reasons: [] })
      })
    )

    it.effect("[O-04] a version that cannot be prepared is exit code 1, and loses no other", () =>
      Effect.gen(function* () {
        const { companyId, run: command, skillId, versions } = yield* Fixture.Fixture
        const prepared = yield* command([
          "skills",
          "prepare",
          "--company",
          companyId,
          "--run",
          run,
          "--json",
          "--version",
          skillId,
          "--version",
          versions[1]
        ])
        expect(prepared.code).toBe(1)
        expect(prepared.documents).toMatchObject([
          { versionId: skillId, skillId: null, status: "missing", reason: { _tag: "NotRecoverable" } },
          { versionId: versions[1], status: "ready" }
        ])
        yield* command(["skills", "release", "--run", run])
      })
    )
  })

  describe("sweeping", () => {
    it.effect("[O-03] reports every batch and the whole, in the documents that are promised", () =>
      Effect.gen(function* () {
        const { instance, oldCopy, run: command, versions } = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        const paths = [yield* oldCopy(versions[0]), yield* oldCopy(versions[1])]
        yield* oldCopy(versions[2])

        const diagnosed = yield* command(["skills", "diagnose", "--json", "--top", "1"])
        expect(diagnosed.documents).toHaveLength(2)
        yield* Schema.decodeUnknownEffect(Output.Copy)(diagnosed.documents[0])
        const summary = yield* Schema.decodeUnknownEffect(Output.DiagnosisSummary)(diagnosed.documents[1])
        expect(summary).toMatchObject({ copies: 3, candidates: 2, retained: { Current: 1 } })

        const before = yield* files.readDirectory(instance, { recursive: true })
        const dry = yield* command(["skills", "sweep", "--dry-run", "--json"])
        expect(dry.code).toBe(0)
        expect(dry.documents.at(-1)).toMatchObject({ dryRun: true, candidates: 2, evicted: 0 })
        expect(yield* files.readDirectory(instance, { recursive: true })).toEqual(before)

        const swept = yield* command(["skills", "sweep", "--batch-limit", "1", "--json"])
        expect(swept.code).toBe(0)
        const batches = yield* Effect.forEach(swept.documents.slice(0, -1), (each) => decodeBatch(each))
        const total = yield* Schema.decodeUnknownEffect(Output.SweepSummary)(swept.documents.at(-1))
        expect(batches.length).toBe(total.batches)
        expect(batches.length).toBeGreaterThan(2)
        expect(batches.slice(0, -1).every(({ continuation }) => continuation !== null)).toBe(true)
        expect(batches.at(-1)?.continuation).toBeNull()
        expect(total).toMatchObject({ evicted: 2, errors: 0, skipped: { Current: 1 }, continuation: null })
        expect(total.reclaimedAllocatedBytes).toBe(summary.candidateAllocatedBytes)
        // Bytes are JSON numbers.
        expect(typeof swept.documents[0]?.["reclaimedAllocatedBytes"]).toBe("number")
        for (const path of paths) expect(yield* files.exists(path)).toBe(false)
      })
    )

    it.effect("[O-02] stops after so many batches and goes on where it stopped", () =>
      Effect.gen(function* () {
        const { oldCopy, run: command, versions } = yield* Fixture.Fixture
        yield* oldCopy(versions[0])
        yield* oldCopy(versions[1])
        const sweep = ["skills", "sweep", "--batch-limit", "1", "--max-batches", "1", "--json"]
        const first = yield* command(sweep)
        const token = String(first.documents.at(-1)?.["continuation"])
        expect(first.documents).toHaveLength(2)
        expect(token).toMatch(/^reclaim1\./)
        const rest = yield* command(["skills", "sweep", "--continue", token, "--json"])
        expect(rest.code).toBe(0)
        const evicted = [first, rest].map(({ documents }) => Number(documents.at(-1)?.["evicted"]))
        expect(evicted[0]! + evicted[1]!).toBe(2)
        expect(rest.documents.at(-1)).toMatchObject({ continuation: null })
        const other = yield* command(["skills", "sweep", "--continue", token.slice(0, -1), "--json"])
        expect(other.code).toBe(2)
        expect(other.documents).toEqual([
          expect.objectContaining({ type: "error", _tag: "InvalidContinuation" })
        ])
      })
    )

    it.effect("[O-02] stops as soon as the volume has enough room", () =>
      Effect.gen(function* () {
        const { oldCopy, run: command, versions } = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        const path = yield* oldCopy(versions[0])
        const enough = yield* command(["skills", "sweep", "--until-free", "1MiB", "--json"])
        expect(enough.code).toBe(0)
        expect(enough.documents).toEqual([
          expect.objectContaining({ type: "summary", batches: 0, evicted: 0 })
        ])
        expect(yield* files.exists(path)).toBe(true)
        const never = yield* command(["skills", "sweep", "--until-free", "900000 TiB", "--json"])
        expect(never.documents.at(-1)).toMatchObject({ type: "summary", evicted: 1 })
      })
    )

    it.effect("[O-02] a grace given on the command line replaces the setting", () =>
      Effect.gen(function* () {
        const { companyId, run: command, versions } = yield* Fixture.Fixture
        yield* command(["skills", "restore", "--company", companyId, "--version", versions[0]])
        const kept = yield* command(["skills", "sweep", "--json"])
        expect(kept.documents.at(-1)).toMatchObject({ evicted: 0, skipped: { RecentlyUsed: 1 } })
        const gone = yield* command(["skills", "sweep", "--grace-minutes", "0", "--json"])
        expect(gone.documents.at(-1)).toMatchObject({ evicted: 1 })
      })
    )

    it.effect("[O-04] a database that refuses an eviction is exit code 1, in its own words", () =>
      Effect.gen(function* () {
        const { oldCopy, run: command, versions } = yield* Fixture.Fixture
        const sql = yield* SqlClient.SqlClient
        const path = yield* oldCopy(versions[0])
        // A trigger that fails stands for whatever a database can have against one eviction.
        yield* sql.unsafe(`create function reclaim.refuse() returns trigger language plpgsql
          as $$ begin raise exception 'no more entries'; end $$`)
        yield* sql`create trigger refuse before insert on reclaim.journal for each row execute function reclaim.refuse()`
        const swept = yield* command(["skills", "sweep"])
        yield* sql`drop trigger refuse on reclaim.journal`
        expect(swept.code).toBe(1)
        expect(swept.stderr).toMatch(/no more entries/)
        const files = yield* FileSystem.FileSystem
        expect(yield* files.exists(path)).toBe(true)
      })
    )

    it.effect("[O-03] prints aligned tables and IEC units for a person", () =>
      Effect.gen(function* () {
        const { companyId, oldCopy, run: command, skillId, versions } = yield* Fixture.Fixture
        yield* oldCopy(versions[0])
        yield* oldCopy(versions[2])
        const diagnosed = yield* command(["skills", "diagnose"])
        const lines = diagnosed.stdout.split("\n")
        expect(lines[0]).toBe(`company ${companyId}`)
        expect(lines[2]).toBe(`skill ${skillId} greeting`)
        const header = lines[1]!
        const row = lines.find((line) => line.startsWith(versions[2]))!
        expect(row.slice(header.indexOf("DECISION"))).toMatch(/^retain +\d+ KiB {2}2020-01-01 00:00 {2}/)
        expect(row.slice(header.indexOf("WHY"))).toBe("the current version of its skill")
        const candidate = lines.find((line) => line.startsWith(versions[0]))!
        expect(candidate.slice(header.indexOf("WHY"))).toBe("nothing keeps it")
        const swept = yield* command(["skills", "sweep"])
        expect(swept.stdout).toMatch(/^BATCH {2}CONSIDERED {2}CANDIDATES/)
        expect(swept.stdout).toMatch(/evicted 1 copy and reclaimed \d+ KiB in /)
        expect(swept.stderr).toBe("")
      })
    )
  })

  describe("settings", () => {
    it.effect("[O-02] DRY_RUN in the environment makes every sweep dry", () =>
      Effect.gen(function* () {
        const { oldCopy, run: command, versions } = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        const path = yield* oldCopy(versions[0])
        const swept = yield* command(["skills", "sweep", "--json"], {
          PAPERCLIP_SKILL_VERSION_RETENTION_DRY_RUN: "true"
        })
        expect(swept.documents.at(-1)).toMatchObject({ dryRun: true, candidates: 1, evicted: 0 })
        expect(yield* files.exists(path)).toBe(true)
      })
    )

    it.effect("[O-02] a disabled worker says so, and preparing goes on", () =>
      Effect.gen(function* () {
        const { companyId, run: command, versions } = yield* Fixture.Fixture
        const env = { PAPERCLIP_SKILL_VERSION_RETENTION_ENABLED: "false" }
        const swept = yield* command(["skills", "sweep", "--json"], env)
        expect(swept.code).toBe(0)
        expect(swept.stdout).toBe('{"type":"disabled"}\n')
        const restored = yield* command(
          ["skills", "restore", "--company", companyId, "--version", versions[0]],
          env
        )
        expect(restored.code).toBe(0)
      })
    )

    it.effect("[O-02] KEEP and GRACE_MINUTES in the environment bind, an empty value does not", () =>
      Effect.gen(function* () {
        const { oldCopy, run: command, versions } = yield* Fixture.Fixture
        yield* oldCopy(versions[0])
        const diagnose = ["skills", "diagnose", "--version", versions[0], "--json"]
        const reasons = Effect.fnUntraced(function* (env: Readonly<Record<string, string>>) {
          return (yield* command(diagnose, env)).documents[0]?.["reasons"]
        })
        expect(yield* reasons({ PAPERCLIP_SKILL_VERSION_RETENTION_KEEP: "3" })).toEqual([
          { _tag: "NewestKept" }
        ])
        expect(yield* reasons({ PAPERCLIP_SKILL_VERSION_RETENTION_KEEP: "" })).toEqual([])
        expect(yield* reasons({ PAPERCLIP_SKILL_VERSION_RETENTION_GRACE_MINUTES: "52560000" })).toMatchObject(
          [{ _tag: "RecentlyUsed", lastUsedAt: "2020-01-01T00:00:00.000Z" }]
        )
      })
    )
  })
})
