import * as NodeServices from "@effect/platform-node/NodeServices"
import { describe, expect, it, layer } from "@effect/vitest"
import { Effect, FileSystem, Schema, Stream } from "effect"
import { Output } from "../src/index.ts"
import * as Plan from "../src/internal/demo/plan.ts"
import { reclaim, start } from "./support/reclaim.ts"

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
    "[O-01] shows what is there, what stays, what goes and how it comes back, and cleans up",
    () =>
      Effect.gen(function* () {
        const folder = yield* temporary
        const shown = yield* reclaim(["demo"], { env: { TMPDIR: folder } })
        expect(shown.stderr).toBe("")
        expect(shown.code).toBe(0)
        for (const heading of [
          "1. What is on disk",
          "2. What stays, and why",
          "3. What a dry run would free",
          "4. The sweep",
          "5. What remains",
          "6. What the journal says",
          "7. Bringing"
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
      }).pipe(Effect.scoped),
    120_000
  )

  it.effect(
    "[O-01] keeps the instance for trials until Ctrl-C, and then cleans up all the same",
    () =>
      Effect.gen(function* () {
        const folder = yield* temporary
        const demo = yield* start(["demo", "--keep", "--json"], { env: { TMPDIR: folder } })
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
        yield* demo.kill({ killSignal: "SIGINT" })
        expect(yield* demo.exitCode).toBe(130)
        expect(yield* leftBehind(folder)).toEqual([])
      }).pipe(Effect.scoped),
    120_000
  )
})
