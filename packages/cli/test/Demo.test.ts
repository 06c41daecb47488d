import * as NodeServices from "@effect/platform-node/NodeServices"
import { describe, expect, it, layer } from "@effect/vitest"
import { Effect, FileSystem, Schema, Stream } from "effect"
import { Output } from "../src/index.ts"
import * as Plan from "../src/internal/demo/plan.ts"
import { binary, reclaim, start } from "./support/reclaim.ts"

describe("the made-up instance", () => {
  it("[O-01] is realistic, and the same each time", () => {
    const companies = Plan.make()
    const skills = companies.flatMap((company) => company.skills)
    const versions = skills.flatMap((skill) => skill.versions)
    const files = versions.flatMap((version) => version.files)
    expect(companies.length).toBeGreaterThanOrEqual(3)
    expect(skills.length).toBeGreaterThanOrEqual(40)
    expect(versions.length).toBeGreaterThanOrEqual(200)
    expect(files.length).toBeGreaterThan(500)
    expect(files.filter(({ executable }) => executable).length).toBeGreaterThan(100)
    expect(files.filter(({ path }) => path.endsWith(".png")).length).toBeGreaterThan(50)
    const size = files.reduce((sum, { bytes }) => sum + bytes.length, 0)
    expect(size).toBeGreaterThan(4 * 1024 * 1024)
    expect(Plan.make()).toEqual(companies)
  })
})

layer(NodeServices.layer, { timeout: 120_000 })("demo", (it) => {
  const leftBehind = Effect.fnUntraced(function* (folder: string) {
    const files = yield* FileSystem.FileSystem
    return yield* files.readDirectory(folder)
  })
  const temporary = Effect.gen(function* () {
    const files = yield* FileSystem.FileSystem
    // Short and open to all: a socket's path is bounded, and as root the server runs as another user.
    const folder = yield* files.makeTempDirectoryScoped({ prefix: "rd-" })
    yield* files.chmod(folder, 0o777)
    return folder
  })

  it.effect(
    "[O-01] [B-02] [B-05] shows what is there, what stays, what goes and how it comes back, and cleans up",
    () =>
      Effect.gen(function* () {
        const folder = yield* temporary
        const shown = yield* reclaim(["demo"], { env: { TMPDIR: folder }, file: binary })
        expect(shown.stderr).toBe("")
        expect(shown.code).toBe(0)
        for (const heading of [
          "1. What is on disk",
          "2. What stays, and why",
          "3. What a dry run would free",
          "4. The sweep",
          "5. What remains",
          "6. What the journal says",
          "7. Bringing",
          "8. What a session's backup holds",
          "9. Which backups stay, and why",
          "10. The expiration",
          "11. When closed work is reopened",
          "12. Restoring"
        ]) {
          expect(shown.stdout).toContain(heading)
        }
        for (const reason of [
          "ActiveRun",
          "AgentPin",
          "Current",
          "Differs",
          "Held",
          "NotRecoverable",
          "Observing",
          "RecentlyUsed",
          "SelectionUnknown",
          "TestRun",
          "Unexpected",
          "UnsettledRecovery"
        ]) {
          expect(shown.stdout).toMatch(new RegExp(`^${reason} .*\\S`, "m"))
        }
        expect(shown.stdout).toMatch(/byte for byte what was evicted, from the database alone/)
        expect(yield* leftBehind(folder)).toEqual([])
        // What the capture leaves out of a Codex home, and why.
        for (const [path, why] of [
          ["codex-home/auth.json", "credentials"],
          ["codex-home/tmp", "scratch"],
          ["codex-home/cache/remote_plugin_catalog", "remote plugin catalog"],
          ["codex-home/plugins/cache/openai-curated-remote", "remote plugin bundle"],
          ["codex-home/plugins/cache/acme-store/calendar", "remote plugin bundle"]
        ] as const) {
          expect(shown.stdout).toMatch(new RegExp(`^${path} +${why}$`, "m"))
        }
        for (const line of [
          /^Sign firmware 4\.2 +expire +\d+ KiB +nothing keeps it$/m,
          /^Reconcile the September invoices +retain +\d+ KiB +issue "Reconcile .*" is open$/m,
          /^Declare consignment 7741 +retain +\d+ KiB +referred to by environment lease /m,
          /^Roll 4\.1 out to the fleet +retain +\d+ KiB +run .* is not finished$/m,
          /^Subtitle the winter film +retain +\d+ KiB +issue .* closed within the window, may go from /m,
          /^Recall patients, week 44 +retain +\d+ KiB +held by ops@console: /m,
          /^Plan the Christmas routes +a killed server left \.retiring-/m,
          /^Sign firmware 4\.2 +current +\(none\)$/m,
          /^Plan the Christmas routes +\.retiring-\S+ +current$/m,
          /^Sign firmware 4\.2 +starts a fresh session/m,
          /^Declare consignment 7741 +resumes session /m,
          /^\d+ KiB from current: 12 files, byte for byte what the sandbox had, and no credentials$/m
        ]) {
          expect(shown.stdout).toMatch(line)
        }
      }).pipe(Effect.scoped),
    120_000
  )

  it.effect(
    "[O-01] keeps the instance for trials until Ctrl-C, and then cleans up all the same",
    () =>
      Effect.gen(function* () {
        const folder = yield* temporary
        const demo = yield* start(["demo", "--keep", "--json"], { env: { TMPDIR: folder }, file: binary })
        const line = yield* demo.stdout.pipe(
          Stream.decodeText(),
          Stream.splitLines,
          Stream.filter((line) => line.startsWith('{"type":"demo"')),
          Stream.runHead,
          Effect.flatMap(Effect.fromOption)
        )
        const document = yield* Schema.decodeEffect(Schema.fromJsonString(Output.Demo))(line)
        expect(document.identical).toBe(true)
        expect(document.evicted).toBe(document.copiesBefore - document.copiesAfter)
        expect(document).toMatchObject({
          backupsBefore: 8,
          backupsAfter: 6,
          expiredBackups: 2,
          recoveredBackups: 1,
          clearedTaskSessions: 2
        })
        expect(document.allocatedBytesBefore - document.allocatedBytesAfter).toBeGreaterThan(0n)
        const tried = yield* reclaim([
          "skills",
          "diagnose",
          "--json",
          "--instance",
          document.instance,
          "--database-url",
          document.databaseUrl
        ])
        expect(tried.code).toBe(0)
        // The restored copy is there, beside those that stayed.
        expect(tried.documents.at(-1)).toMatchObject({ type: "summary", copies: document.copiesAfter + 1 })
        const backups = yield* reclaim([
          "backups",
          "diagnose",
          "--json",
          "--instance",
          document.instance,
          "--database-url",
          document.databaseUrl
        ])
        expect(backups.documents.at(-1)).toMatchObject({ type: "summary", backups: document.backupsAfter })
        yield* demo.kill({ killSignal: "SIGINT" })
        expect(yield* demo.exitCode).toBe(130)
        expect(yield* leftBehind(folder)).toEqual([])
      }).pipe(Effect.scoped),
    120_000
  )
})
