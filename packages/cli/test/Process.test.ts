import { expect, layer } from "@effect/vitest"
import { Effect, FileSystem, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { Cli } from "../src/index.ts"
import packageJson from "../package.json" with { type: "json" }
import * as Fixture from "./support/fixture.ts"
import { interrupted } from "./support/interrupted.ts"
import { binary, reclaim, start } from "./support/reclaim.ts"

layer(Fixture.layer, { timeout: 60_000 })("the process", (it) => {
  it.effect("[O-02] runs from a checkout without a build, through a link as npm makes one", () =>
    Effect.gen(function* () {
      const { run } = yield* Fixture.Fixture
      const files = yield* FileSystem.FileSystem
      const folder = yield* files.makeTempDirectoryScoped()
      yield* files.symlink(binary, `${folder}/reclaim`)
      const linked = yield* run(["--version"], {}, { cwd: folder, file: `${folder}/reclaim` })
      expect(linked.stdout).toBe(`${packageJson.version}\n`)
      expect(Cli.version).toBe(packageJson.version)
    }).pipe(Effect.scoped)
  )

  it.effect("[O-02] says in one line when Node is too old", () =>
    Effect.gen(function* () {
      const pretend =
        "data:text/javascript,Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '20.1.0' } })"
      const old = yield* reclaim(["holds", "--json"], { file: binary, node: ["--import", pretend] })
      expect(old.code).toBe(1)
      expect(old.stderr).toMatch(/^reclaim: reclaim needs Node 22\.19 or newer[^\n]*\n$/)
      expect(old.documents).toEqual([expect.objectContaining({ type: "error", _tag: "UnsupportedNode" })])
    })
  )

  it.effect("[O-02] shows help for the command, and for each of its commands", () =>
    Effect.gen(function* () {
      const bare = yield* reclaim([])
      expect(bare.code).toBe(0)
      for (const command of ["skills", "backups", "hold", "unhold", "holds", "journal", "migrate", "demo"]) {
        expect(bare.stdout).toMatch(new RegExp(`^ +${command} `, "m"))
      }
      const sweep = yield* reclaim(["skills", "sweep", "--help"])
      expect(sweep.code).toBe(0)
      for (const flag of [
        "--dry-run",
        "--until-free SIZE",
        "--instance DIR",
        "--database-url URL",
        "--json"
      ]) {
        expect(sweep.stdout).toContain(flag)
      }
    })
  )

  it.effect("[O-02] without the schema what looks works, and what writes advises migrate", () =>
    Effect.gen(function* () {
      const { companyId, run, versions } = yield* Fixture.Fixture
      const sql = yield* SqlClient.SqlClient
      yield* run(["skills", "restore", "--company", companyId, "--version", versions[0]])
      yield* sql`alter schema reclaim rename to aside`
      const version = ["--company", companyId, "--version", versions[0]]
      const run1 = crypto.randomUUID()
      for (const args of [
        ["skills", "sweep"],
        ["skills", "prepare", "--run", run1, ...version],
        ["hold", ...version, "--note", "x"]
      ]) {
        const refused = yield* run([...args, "--json"])
        expect(refused.code, args.join(" ")).toBe(1)
        expect(refused.documents.at(-1)).toMatchObject({ type: "error", _tag: "NotAdopted" })
        expect(String(refused.documents.at(-1)?.["message"])).toContain("reclaim migrate")
      }
      const looked = yield* run(["skills", "diagnose", "--json"])
      expect(looked.code).toBe(0)
      const dry = yield* run(["skills", "sweep", "--dry-run", "--json"])
      expect(dry.code).toBe(0)
      expect((yield* run(["holds"])).code).toBe(0)
      yield* sql`alter schema aside rename to reclaim`
    })
  )

  it.effect("[O-04] Ctrl-C ends a sweep that waits, with 130 and nothing left open", () =>
    Effect.gen(function* () {
      const { oldCopy, versions } = yield* Fixture.Fixture
      const files = yield* FileSystem.FileSystem
      const path = yield* oldCopy(versions[0])
      const { code, documents } = yield* interrupted(["skills", "sweep"], "heartbeat_runs")
      expect(code).toBe(130)
      expect(documents).toMatchObject([{ type: "error", _tag: "Interrupted" }])
      expect(yield* files.exists(path)).toBe(true)
    })
  )

  it.effect("[O-03] a reader that goes away ends the command without a stack trace", () =>
    Effect.gen(function* () {
      const { instance, oldCopy, url, versions } = yield* Fixture.Fixture
      for (const versionId of versions) yield* oldCopy(versionId)
      const diagnose = yield* start(["skills", "diagnose", "--json"], {
        env: { DATABASE_URL: url, RECLAIM_INSTANCE: instance }
      })
      // Closes the pipe before anything was printed.
      yield* Stream.runDrain(Stream.take(diagnose.stdout, 0))
      const stderr = yield* diagnose.stderr.pipe(Stream.decodeText(), Stream.mkString)
      expect(stderr).toBe("")
      expect([0, 1]).toContain(yield* diagnose.exitCode)
    }).pipe(Effect.scoped)
  )
})
