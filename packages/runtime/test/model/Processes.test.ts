import { assert, layer } from "@effect/vitest"
import { TestDatabase } from "@reclaim/postgres/testing"
import { Clock, DateTime, Duration, Effect, Random } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { type ChildProcess, fork } from "node:child_process"
import * as Fs from "node:fs"
import * as SessionsWorld from "../support/SessionsWorld.ts"
import * as Sweeping from "../support/Sweeping.ts"
import * as World from "../support/World.ts"
import * as Disk from "./Disk.ts"
import type { Message } from "./server.ts"

const processes = 3
// Where starting a process takes seconds, the test takes longer.
const least = { kills: 8, prepared: 30, evicted: 30 }
const duration = process.env["RECLAIM_SOAK_HOURS"] === undefined ? "10 seconds" : "2 minutes"
const seed = process.env["RECLAIM_MODEL_SEED"] ?? crypto.randomUUID()

/** A process and what it told. */
interface Server {
  readonly child: ChildProcess
  readonly exited: Effect.Effect<string>
  /** How many operations it has begun. */
  begun: number
}

const start = (task: unknown, hears: (message: Message, child: ChildProcess) => void) =>
  Effect.sync((): Server => {
    const child = fork(new URL("./server.ts", import.meta.url), [JSON.stringify(task)], {
      execArgv: ["--conditions=@reclaim/source"],
      stdio: ["ignore", "inherit", "inherit", "ipc"]
    })
    // What it told last may come after its end, but not after the end of the channel.
    const told = new Promise<void>((resolve) => {
      child.once("disconnect", resolve)
    })
    const over = new Promise<string>((resolve) => {
      child.once("exit", (code, signal) => resolve(signal ?? `exit ${code}`))
    })
    const server: Server = { child, exited: Effect.promise(() => told.then(() => over)), begun: 0 }
    child.on("message", (message: Message) => {
      if (message.type === "done") server.begun += 1
      hears(message, child)
    })
    return server
  })

const kill = ({ child, exited }: Server) =>
  Effect.andThen(
    Effect.sync(() => child.kill("SIGKILL")),
    exited
  )

layer(World.layer(), { excludeTestServices: true, timeout: "60 seconds" })("kill -9", (it) => {
  it.effect(
    "[Q-03] at random moments of real servers breaks no promise, and one sweep of another puts all right",
    () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const clock = yield* Clock.Clock
        const { path: instance } = yield* World.Instance
        const { url } = yield* TestDatabase.TestDatabase
        // The processes have the real clock; so have the rows.
        const now = DateTime.makeUnsafe(Date.now())
        yield* sql`update reclaim.adoption set adopted_at = ${DateTime.toDateUtc(DateTime.subtract(now, { days: 1 }))}`
        const { agentId, companyId, copies, skillId } = yield* World.skill({ versions: 8 })
        yield* Sweeping.materialize(copies)
        const paths = yield* Effect.forEach(copies, Sweeping.pathOf)
        const files = paths.map((path) => Disk.read(path))
        const [current, altered, ...others] = copies
        yield* Sweeping.setCurrent(current!)
        World.overwrite(`${paths[1]}/SKILL.md`, "somebody's")
        const skill = `${instance}/skills/${companyId}/__versions__/${skillId}`
        const note = `${skill}/note`
        Fs.writeFileSync(note, "somebody's")
        const portrait = Disk.portrait(note)
        const monthAgo = DateTime.subtract(now, { days: 30 })
        const closed = { issue: { completedAt: monthAgo }, backups: [{ completedAt: monthAgo }] }
        const idle = yield* Effect.forEach(Array.from({ length: 20 }), () => SessionsWorld.expirable(closed))
        for (const session of idle) {
          const at = DateTime.toDateUtc(monthAgo)
          Fs.utimesSync(`${yield* SessionsWorld.pathOf(session.scope)}/failover-backups/current`, at, at)
        }
        const open = yield* SessionsWorld.expirable({ ...closed, issue: { status: "in_progress" } })

        /** What runs that are not over were promised. */
        const promised = new Map<
          string,
          { readonly child: ChildProcess; readonly versionIds: ReadonlyArray<string> }
        >()
        const violations: Array<string> = []
        let prepared = 0
        const hears = (message: Message, child: ChildProcess) => {
          if (message.type === "ready") prepared += 1
          if (message.type === "ready") promised.set(message.runId, { child, versionIds: message.versionIds })
          else if (message.type === "over") promised.delete(message.runId)
          else if (message.type === "violation") violations.push(message.what)
        }
        const used = [current!, ...others].map((copy) => copies.indexOf(copy))
        const task = {
          instance,
          url,
          companyId,
          agentId,
          versions: used.map((index) => ({ versionId: copies[index]!.versionId, files: files[index]! }))
        }
        let count = 0
        const startOne = Effect.suspend(() => start({ ...task, mode: { seed: `${seed}/${count++}` } }, hears))
        const servers = yield* Effect.forEach(Array.from({ length: processes }), () => startOne)
        const end = clock.monotonicTimeNanosUnsafe() + Duration.toNanosUnsafe(duration)
        let kills = 0
        const evictions = Effect.map(
          sql<{ readonly count: number }>`
            select count(*)::int as count from reclaim.journal where event = 'evicted'`,
          ([row]) => row?.count ?? 0
        )
        yield* Effect.gen(function* () {
          // How much is done in a time is the machine's affair: it goes on until it was enough.
          const isOver = Effect.map(
            evictions,
            (evicted) =>
              clock.monotonicTimeNanosUnsafe() >= end &&
              kills >= least.kills &&
              prepared >= least.prepared &&
              evicted >= least.evicted
          )
          while (!(yield* isOver) && violations.length === 0) {
            const index = yield* Random.nextIntBetween(0, processes - 1)
            const life = yield* Random.nextIntBetween(1, 12)
            const server = servers[index]!
            yield* Effect.sleep("5 millis").pipe(
              Effect.repeat({ until: () => server.begun >= life || violations.length > 0 }),
              Effect.timeout("60 seconds")
            )
            // Somewhere in the operation that has just begun, or the one after it.
            yield* Effect.sleep(Duration.millis(yield* Random.nextIntBetween(0, 250)))
            yield* kill(server)
            kills += 1
            // Now and then the host gives up the run that died with its process; else it stays.
            if ((yield* Random.nextIntBetween(0, 3)) === 0) {
              for (const [runId, { child }] of promised) {
                if (child !== server.child) continue
                promised.delete(runId)
                yield* sql`update heartbeat_runs set status = 'failed', finished_at = now() where id = ${runId}::uuid`
              }
            }
            servers[index] = yield* startOne
          }
        }).pipe(Random.withSeed(seed), Effect.ensuring(Effect.suspend(() => Effect.forEach(servers, kill))))
        const evicted = yield* evictions
        console.log(`seed ${seed}: ${JSON.stringify({ kills, prepared, evicted, promised: promised.size })}`)
        assert.deepStrictEqual(violations, [])
        assert.isAtLeast(evicted, least.evicted)

        yield* SessionsWorld.eventually(
          Effect.map(Sweeping.unfinished, ({ locks, transactions }) => locks + transactions === 0)
        )
        const settleAt = DateTime.formatIso(DateTime.add(DateTime.makeUnsafe(Date.now()), { hours: 25 }))
        const last = yield* start({ ...task, mode: { settleAt } }, hears)
        assert.strictEqual(yield* last.exited, "exit 0")
        assert.deepStrictEqual(violations, [])

        for (const [runId, { versionIds }] of promised) {
          for (const versionId of versionIds) {
            const index = copies.findIndex((copy) => copy.versionId === versionId)
            assert.isTrue(Fs.existsSync(paths[index]!), `the copy of ${runId} is missing`)
            assert.deepStrictEqual(Disk.read(paths[index]!), files[index])
          }
        }
        assert.deepStrictEqual(Disk.read(paths[0]!), files[0])
        assert.strictEqual(
          Fs.readFileSync(`${paths[copies.indexOf(altered!)]}/SKILL.md`, "utf8"),
          "somebody's"
        )
        assert.strictEqual(Disk.portrait(note), portrait)
        assert.deepStrictEqual(
          Disk.list(skill).flatMap(({ kind, name }) => (kind === "copy" ? [] : [name])),
          ["note"]
        )
        for (const session of idle) assert.deepStrictEqual(yield* SessionsWorld.names(session), [])
        assert.deepStrictEqual(yield* SessionsWorld.names(open), ["current"])
      }),
    300_000
  )
})
