import { assert, layer } from "@effect/vitest"
import { Journal } from "@reclaim/db"
import { TestDatabase } from "@reclaim/postgres/testing"
import { DateTime, Effect, Schema, Stream } from "effect"
import { spawn } from "node:child_process"
import { fileURLToPath } from "node:url"
import { SkillVersionCache, SkillVersionRetention } from "../src/index.ts"
import * as Sweeping from "./support/Sweeping.ts"
import * as World from "./support/World.ts"

const Told = Schema.fromJsonString(Schema.Struct({ name: Schema.String, evicted: Schema.Int }))

/** Runs a server process to its end. */
const server = Effect.fnUntraced(function* (name: string, now: DateTime.Utc) {
  const { path: instance } = yield* World.Instance
  const { url } = yield* TestDatabase.TestDatabase
  const script = fileURLToPath(new URL("./support/sweepUntilDone.ts", import.meta.url))
  const task = JSON.stringify({ name, instance, url, now: DateTime.formatIso(now) })
  const text = yield* Effect.callback<string>((resume) => {
    const child = spawn(process.execPath, ["--conditions=@reclaim/source", script, task], {
      stdio: ["ignore", "pipe", "inherit"]
    })
    let said = ""
    child.stdout.setEncoding("utf8").on("data", (chunk: string) => (said += chunk))
    child.on("exit", () => resume(Effect.succeed(said)))
    return Effect.sync(() => void child.kill("SIGKILL"))
  })
  return yield* Schema.decodeEffect(Told)(text.trim())
})

layer(World.layer(), { excludeTestServices: true })("many servers", (it) => {
  it.effect(
    "[S-24] [W-02] four processes evict together exactly what one would have evicted, each copy once",
    () =>
      Effect.gen(function* () {
        yield* World.begin
        const cache = yield* SkillVersionCache.SkillVersionCache
        const retention = yield* SkillVersionRetention.SkillVersionRetention
        for (let company = 0; company < 3; company++) {
          const owner = yield* World.Fixtures.company
          for (let skill = 0; skill < 4; skill++) {
            const { copies, skillId } = yield* World.skill({ versions: 12, company: owner })
            yield* Sweeping.place(copies)
            const [altered, pinned, current] = copies
            if (altered === undefined || pinned === undefined || current === undefined) {
              return yield* Effect.die("no copies")
            }
            World.overwrite(`${yield* Sweeping.pathOf(altered)}/SKILL.md`, "edited")
            yield* Sweeping.setCurrent({ companyId: owner.companyId, skillId, versionId: current.versionId })
            const runId = yield* World.Fixtures.run(owner, { status: "running" })
            yield* cache.prepare({ companyId: owner.companyId, runId, versions: [pinned.versionId] })
          }
        }
        yield* World.advance("1 hour")
        const diagnosed = yield* Stream.runCollect(retention.diagnose())
        const expected = diagnosed.flatMap((each) =>
          each._tag === "Copy" && each.decision === "evict" ? [each.versionId] : []
        )
        assert.strictEqual(expected.length, 3 * 4 * 9)

        const now = DateTime.add(World.noon, { hours: 1 })
        const told = yield* Effect.forEach(["one", "two", "three", "four"], (name) => server(name, now), {
          concurrency: "unbounded"
        })

        const journal = yield* Journal.Journal
        const rows = yield* Stream.runCollect(journal.since(DateTime.makeUnsafe("2000-01-01T00:00:00Z")))
        const evicted = rows.flatMap(({ event, versionId }) =>
          event === "evicted" ? [String(versionId)] : []
        )
        assert.deepStrictEqual(evicted.toSorted(), expected.map(String).toSorted())
        assert.strictEqual(
          told.reduce((sum, each) => sum + each.evicted, 0),
          expected.length
        )
        assert.deepStrictEqual(
          rows.filter(({ event }) => event !== "evicted").map(({ event }) => event),
          []
        )
        const kept = diagnosed.flatMap((each) =>
          each._tag === "Copy" && each.decision === "retain" ? [each] : []
        )
        for (const copy of kept) assert.isTrue(yield* World.isThere(copy))
        assert.deepStrictEqual(
          (yield* World.listing).filter((path) => /\/\.(?:trash|evicting|replaced)-/.test(path)),
          []
        )
        // The journal says who evicted what, and agrees with what each of them says of itself.
        for (const { evicted: count, name } of told) {
          assert.strictEqual(rows.filter((row) => row.server === name).length, count)
        }
      }),
    120_000
  )
})
