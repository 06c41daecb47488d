/**
 * A server process that prepares, restores and sweeps at random until it is killed, and tells its parent what its
 * runs were promised. With an instant in place of a seed it sweeps once at that instant and ends.
 */
import { Ids } from "@reclaim/core"
import { DatabaseClock } from "@reclaim/db"
import { Cause, Effect, Random, Schema, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { BackupExpiration, SkillVersionCache, SkillVersionRetention } from "../../src/index.ts"
import { MovableClock } from "../../src/testing.ts"
import * as ServerProcess from "../support/serverProcess.ts"
import * as Disk from "./Disk.ts"

const Task = Schema.fromJsonString(
  Schema.Struct({
    instance: Schema.String,
    url: Schema.String,
    companyId: Ids.CompanyId,
    agentId: Ids.AgentId,
    versions: Schema.Array(
      Schema.Struct({ versionId: Ids.VersionId, files: Schema.Record(Schema.String, Schema.String) })
    ),
    mode: Schema.Union([
      Schema.Struct({ seed: Schema.String }),
      Schema.Struct({ settleAt: Schema.DateTimeUtcFromString })
    ])
  })
)
type Task = typeof Task.Type

/** What a process tells its parent. */
export type Message =
  | { readonly type: "done" }
  | { readonly type: "violation"; readonly what: string }
  | { readonly type: "ready"; readonly runId: string; readonly versionIds: ReadonlyArray<string> }
  | { readonly type: "over"; readonly runId: string }

/** Returns when the parent's pipe has it: what was promised must be known before anything depends on it. */
const tell = (message: Message) =>
  Effect.callback<void>((resume) => {
    process.send?.(message, () => resume(Effect.void))
  })

const some = <A>(all: ReadonlyArray<A>) =>
  Effect.map(Random.nextIntBetween(0, all.length - 1), (index) => all[index]!)

const prepare = Effect.fnUntraced(function* ({ agentId, companyId, versions }: Task) {
  const cache = yield* SkillVersionCache.SkillVersionCache
  const sql = yield* SqlClient.SqlClient
  const runId = Ids.RunId.make(crypto.randomUUID())
  const wanted = [yield* some(versions), yield* some(versions)]
  yield* sql`insert into heartbeat_runs (id, company_id, agent_id, status)
    values (${runId}::uuid, ${companyId}::uuid, ${agentId}::uuid, 'queued')`
  const answers = yield* cache.prepare({
    companyId,
    runId,
    versions: wanted.map(({ versionId }) => versionId),
    verify: "digest"
  })
  const missing = answers.find(({ _tag }) => _tag === "Missing")
  if (missing !== undefined) return yield* tell({ type: "violation", what: JSON.stringify(missing) })
  yield* tell({ type: "ready", runId, versionIds: wanted.map(({ versionId }) => versionId) })
  yield* sql`update heartbeat_runs set status = 'running', started_at = now() where id = ${runId}::uuid`
  for (let look = 0; look < 50; look++) {
    for (const answer of answers) {
      if (answer._tag === "Missing") continue
      const version = versions.find(({ versionId }) => versionId === answer.versionId)
      if (version === undefined || Disk.isSame(Disk.read(answer.path), version.files)) continue
      return yield* tell({ type: "violation", what: `${answer.path} is not what was promised` })
    }
    yield* Effect.sleep("2 millis")
  }
  yield* tell({ type: "over", runId })
  yield* sql`update heartbeat_runs set status = 'succeeded', finished_at = now() where id = ${runId}::uuid`
  if (yield* Random.nextBoolean) yield* cache.release(runId)
})

const restore = Effect.fnUntraced(function* ({ companyId, versions }: Task) {
  const cache = yield* SkillVersionCache.SkillVersionCache
  const { versionId } = yield* some(versions)
  const prepared = yield* cache.restore({ companyId, versionId })
  if (prepared._tag === "Missing" && prepared.reason._tag !== "ChangedMeanwhile") {
    yield* tell({ type: "violation", what: JSON.stringify(prepared) })
  }
})

const sweep = Effect.flatMap(SkillVersionRetention.SkillVersionRetention, (retention) =>
  Stream.runDrain(retention.sweep())
)

const expire = Effect.flatMap(BackupExpiration.BackupExpiration, (expiration) =>
  Stream.runDrain(expiration.sweep())
)

const live = (task: Task) =>
  Effect.gen(function* () {
    while (true) {
      yield* tell({ type: "done" })
      const drawn = yield* Random.nextIntBetween(0, 9)
      yield* drawn < 4 ? prepare(task) : drawn < 6 ? restore(task) : drawn < 9 ? sweep : expire
    }
  })

const main = Effect.gen(function* () {
  const task = yield* Schema.decodeUnknownEffect(Task)(process.argv[2])
  const { mode } = task
  const services = ServerProcess.layer({
    instance: task.instance,
    url: task.url,
    clock: "settleAt" in mode ? MovableClock.layer(mode.settleAt) : DatabaseClock.layer,
    // Without a grace nothing but its pin keeps a copy.
    retention: { grace: 0 },
    pool: { maxConnections: 3 }
  })
  const work =
    "settleAt" in mode ? Effect.andThen(sweep, expire) : live(task).pipe(Random.withSeed(mode.seed))
  yield* Effect.provide(work, services)
  // The channel would keep the process alive.
  process.disconnect?.()
})

Effect.runFork(main.pipe(Effect.tapCause((cause) => tell({ type: "violation", what: Cause.pretty(cause) }))))
