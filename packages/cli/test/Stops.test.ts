/**
 * Stops the command at random moments of its sweeps, politely and not. `npm run test:stops` does it 200 times
 * each; `RECLAIM_SEED` repeats a run, as far as the machine's timing allows.
 */
import { expect, layer } from "@effect/vitest"
import { Ids } from "@reclaim/core"
import { BackupExpiration, SkillVersionCache, SkillVersionRetention } from "@reclaim/runtime"
import { MovableClock } from "@reclaim/runtime/testing"
import {
  Array as Arr,
  Config,
  Console,
  DateTime,
  Deferred,
  Duration,
  Effect,
  Fiber,
  FileSystem,
  Layer,
  Option,
  Random,
  Stream
} from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as ServerProcess from "../../runtime/test/support/serverProcess.ts"
import * as Fixture from "./support/fixture.ts"
import { start } from "./support/reclaim.ts"
import * as Sessions from "./support/sessions.ts"

const versionCount = 12

/** The services of another server, some time later: what a crash left is old enough to be settled. */
const later = Effect.fnUntraced(function* <A, E, R>(self: Effect.Effect<A, E, R>) {
  const { instance, url } = yield* Fixture.Fixture
  const now = DateTime.add(DateTime.nowUnsafe(), { minutes: 2 })
  const services = ServerProcess.layer({ instance, url, clock: MovableClock.layer(now) })
  return yield* Effect.provide(self, Layer.fresh(services), { local: true })
})

interface Stop {
  readonly signal: "SIGKILL" | "SIGTERM"
  /** In milliseconds. */
  readonly after: number
}

/**
 * Runs a sweep, stopped or not, and returns how long it took: from its start, or from its first line, which
 * leaves out how long Node takes to load it.
 */
const sweep = Effect.fnUntraced(function* (
  args: ReadonlyArray<string>,
  from: "first line" | "start",
  stop?: Stop
) {
  const { instance, url } = yield* Fixture.Fixture
  const child = yield* start([...args, "--json"], {
    env: { DATABASE_URL: url, RECLAIM_INSTANCE: instance }
  })
  const began = yield* Deferred.make<number>()
  const output = yield* child.stdout.pipe(
    Stream.runForEach(() => Deferred.succeed(began, performance.now())),
    Effect.ensuring(Deferred.succeed(began, performance.now())),
    Effect.forkChild
  )
  const at = from === "start" ? performance.now() : yield* Deferred.await(began)
  if (stop !== undefined) {
    yield* Effect.sleep(Duration.millis(stop.after))
    // A process that has ended by itself cannot be stopped.
    yield* Effect.ignore(child.kill({ killSignal: stop.signal }))
  }
  // One that a signal ended has no exit code.
  const code = yield* Effect.option(child.exitCode)
  yield* Fiber.join(output)
  return { code: Option.getOrUndefined(code), millis: performance.now() - at }
}, Effect.scoped)

const inventory = (revision: number) =>
  JSON.stringify([
    { path: "SKILL.md", content: `# Revision ${revision}\n` },
    { path: "scripts/run.sh", content: "#!/bin/sh\n", executable: true },
    { path: "assets/dot.bin", content: "AAECAwT//g==", encoding: "base64" }
  ])

/** Versions that nothing needs. */
const versions = Effect.gen(function* () {
  const { companyId, skillId } = yield* Fixture.Fixture
  const sql = yield* SqlClient.SqlClient
  return yield* Effect.forEach(Arr.range(10, 9 + versionCount), (revision) => {
    const versionId = Ids.VersionId.make(crypto.randomUUID())
    return Effect.as(
      sql`insert into company_skill_versions (id, company_id, company_skill_id, revision_number, file_inventory)
        values (${versionId}::uuid, ${companyId}::uuid, ${skillId}::uuid, ${revision}::int,
          ${inventory(revision)}::text::jsonb)`,
      versionId
    )
  })
})

/** Makes every copy that is missing, looks at each byte of all, and lets them look unused for years. */
const restoreAll = Effect.fnUntraced(function* (versionIds: ReadonlyArray<Ids.VersionId>) {
  const { companyId, instance, skillId } = yield* Fixture.Fixture
  const files = yield* FileSystem.FileSystem
  const cache = yield* SkillVersionCache.SkillVersionCache
  for (const versionId of versionIds) {
    expect(yield* cache.restore({ companyId, versionId, verify: "digest" })).toMatchObject({ _tag: "Ready" })
    yield* files.writeFileString(
      `${instance}/skills/${companyId}/__version_access__/${skillId}/${versionId}.json`,
      JSON.stringify({ schema: "reclaim.access.v1", lastUsedAt: "2020-01-01T00:00:00.000Z" })
    )
  }
})

/** Names that no copy and no backup has: what the protocols leave while they are at work. */
const leftovers = Effect.fnUntraced(function* (folder: string) {
  const files = yield* FileSystem.FileSystem
  return (yield* files.readDirectory(folder)).filter((name) => name.startsWith("."))
})

/** Connections of commands that are in a transaction. */
const open = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql`select 1 from pg_stat_activity
    where datname = current_database() and application_name = 'reclaim' and xact_start is not null`
  return rows.length
})

const Stops = Config.Int("RECLAIM_STOPS").pipe(Config.withDefault(1))
const Seed = Config.String("RECLAIM_SEED").pipe(Config.withDefault(crypto.randomUUID()))

/** The stops of a run: half of them polite, at moments between two of a whole sweep. */
const stops = Effect.fnUntraced(function* (count: number, first: number, last: number) {
  const both: ReadonlyArray<Stop["signal"]> = ["SIGTERM", "SIGKILL"]
  return yield* Effect.forEach(
    Arr.range(1, count).flatMap(() => both),
    (signal) => Effect.map(Random.nextBetween(first, last), (after): Stop => ({ signal, after }))
  )
})

// With the real clock: only a moment of the real time says where a process is.
layer(Fixture.layer, { timeout: 60_000, excludeTestServices: true })("stopping anywhere", (it) => {
  it.effect(
    "[Q-01] [S-23] [O-04] a sweep of skill versions that is stopped anywhere is put right by the next one",
    () =>
      Effect.gen(function* () {
        const { companyId, instance, skillId } = yield* Fixture.Fixture
        const count = yield* Stops
        const seed = yield* Seed
        yield* Console.log(`stopping sweeps of skill versions ${2 * count} times, seed ${seed}`)
        const versionIds = yield* versions
        const folder = `${instance}/skills/${companyId}/__versions__/${skillId}`
        const args = ["skills", "sweep", "--batch-limit", "1"]
        yield* later(restoreAll(versionIds))
        const { millis } = yield* sweep(args, "first line")
        expect(yield* leftovers(folder)).toEqual([])
        let evicted = 0
        for (const stop of yield* Random.withSeed(stops(count, 0, millis), seed)) {
          yield* later(restoreAll(versionIds))
          const { code } = yield* sweep(args, "first line", stop)
          if (stop.signal === "SIGTERM") {
            // 0: it was done already.
            expect([0, 130]).toContain(code)
            // The entry in hand was finished or undone; trash alone may wait.
            expect((yield* leftovers(folder)).filter((name) => !name.startsWith(".trash-"))).toEqual([])
            expect(yield* open).toBe(0)
          }
          const [batch] = yield* later(
            Effect.flatMap(SkillVersionRetention.SkillVersionRetention, (retention) =>
              Stream.runCollect(retention.sweep())
            )
          )
          expect(batch?.report.errors).toBe(0)
          evicted += batch?.report.evicted ?? 0
          expect(yield* leftovers(folder)).toEqual([])
        }
        // With enough of them some came in the middle, and left something to do.
        if (count >= 20) expect(evicted).toBeGreaterThan(0)
        yield* later(restoreAll(versionIds))
      }),
    3_600_000
  )

  it.effect(
    "[Q-01] [B-08] an expiration that is stopped anywhere is put right by the next one",
    () =>
      Effect.gen(function* () {
        const files = yield* FileSystem.FileSystem
        const count = Math.ceil((yield* Stops) / 4)
        const seed = yield* Seed
        yield* Console.log(`stopping sweeps of session backups ${2 * count} times, seed ${seed}`)
        const args = ["backups", "sweep"]
        const some = Effect.forEach(Arr.range(1, 2), () => Sessions.make())
        yield* some
        const { millis } = yield* sweep(args, "start")
        // Before the middle Node mostly is still loading the command.
        for (const stop of yield* Random.withSeed(stops(count, millis / 2, millis), seed)) {
          const sessions = yield* some
          const { code } = yield* sweep(args, "start", stop)
          if (stop.signal === "SIGTERM" && code === undefined) {
            // Node was still loading the command: it has not begun.
            for (const session of sessions) {
              expect(yield* files.readDirectory(session.folder)).toEqual(["current"])
            }
          } else if (stop.signal === "SIGTERM") {
            expect([0, 130]).toContain(code)
          }
          yield* later(
            Effect.flatMap(BackupExpiration.BackupExpiration, (expiration) =>
              // Twice: what the first one puts right, the second one expires.
              Effect.andThen(Stream.runDrain(expiration.sweep()), Stream.runDrain(expiration.sweep()))
            )
          )
          for (const session of sessions) {
            expect(yield* files.readDirectory(session.folder)).toEqual([])
            expect(yield* Sessions.taskSessions(session)).toBe(0)
          }
        }
      }),
    3_600_000
  )
})
