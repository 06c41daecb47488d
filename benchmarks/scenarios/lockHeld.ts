/** P-07: holds the exclusive lock of a company while a copy is moved, against the least that a move takes. */
import { FaultPoint, Ids } from "@reclaim/core"
import { LockKey, SkillCatalog, SkillPins } from "@reclaim/db"
import { AccessRecords, Trees } from "@reclaim/fs"
import { Array as Arr, DateTime, Effect, Option } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { evict } from "../../packages/runtime/src/internal/eviction.ts"
import * as Corpus from "../Corpus.ts"
import * as Harness from "../Harness.ts"
import * as Instance from "../Instance.ts"
import { moveUnderLock } from "../peers/moveUnderLock.ts"
import * as Statistics from "../Statistics.ts"
import * as System from "../System.ts"

const median: Harness.Figure = { name: "lock held, median", unit: "milliseconds" }
const p99: Harness.Figure = { name: "lock held, p99", unit: "milliseconds" }

const longAgo = DateTime.makeUnsafe("2020-01-01T00:00:00Z")

/** Agents that name a version, runs that are over, and runs that are not over and hold a version each. */
const busyCompany = Effect.fnUntraced(function* (corpus: Corpus.Corpus, inUse: Corpus.Corpus["copies"]) {
  const sql = yield* SqlClient.SqlClient
  const pins = yield* SkillPins.SkillPins
  const { companyId } = corpus
  const named = inUse.slice(0, 20)
  yield* sql`
    insert into agents (company_id, name, adapter_config)
    select ${companyId}::uuid, 'agent',
      jsonb_build_object('paperclipSkillSync', jsonb_build_object('desiredSkills',
        jsonb_build_array(jsonb_build_object('key', 'a-skill', 'versionId', version_id))))
    from unnest(${named.map(({ versionId }) => versionId)}::text[]) as v (version_id)`
  yield* sql`
    insert into heartbeat_runs (company_id, agent_id, status, started_at, finished_at)
    select ${companyId}::uuid, (select id from agents order by id limit 1), 'succeeded', now(), now()
    from generate_series(1, 2000)`
  for (const { skillId, versionId } of inUse) {
    const runId = Ids.RunId.make(crypto.randomUUID())
    yield* sql`
      insert into heartbeat_runs (id, company_id, agent_id, status, started_at)
      select ${runId}::uuid, ${companyId}::uuid, (select id from agents order by id limit 1), 'running', now()`
    yield* pins.record(companyId, runId, [{ skillId, versionId }])
  }
  yield* sql`analyze`
})

const make = Effect.fnUntraced(function* (size: Harness.Size) {
  const workspace = yield* Harness.Workspace
  const { context, skills } = yield* Instance.make
  const corpus = Corpus.make(size === "full" ? 400 : 40)
  // Half of the copies go; the others are in use.
  const [leaving, inUse] = Arr.splitAt(corpus.copies, corpus.copies.length / 2)
  const template = yield* System.temporaryFolder(workspace.path)
  yield* Corpus.write({ ...corpus, copies: leaving }, template)
  yield* Effect.andThen(Corpus.insert(corpus), busyCompany(corpus, inUse)).pipe(
    Effect.provideContext(context)
  )

  const fresh = Effect.acquireRelease(
    Effect.gen(function* () {
      const records = yield* AccessRecords.AccessRecords
      yield* System.command("mkdir", ["-p", skills])
      yield* System.command("cp", ["-a", `${template}/.`, skills])
      yield* Effect.forEach(leaving, (copy) => records.touch(copy, longAgo), { discard: true })
      yield* Harness.settle(size, skills)
    }),
    () => Effect.ignore(System.command("rm", ["-rf", "--", skills]))
  )
  const verify = (_: unknown, held: ReadonlyArray<bigint>) =>
    Effect.sync((): Harness.Verdict => {
      const left = leaving.filter((copy) => System.exists(`${skills}/${Corpus.relativePath(copy)}`))
      const millis = held.map((nanos) => Number(nanos) / 1e6)
      return {
        outcome: `${held.length} moved, ${left.length} of ${leaving.length} left`,
        figures: {
          [median.name]: Statistics.median(millis),
          [p99.name]: Statistics.quantile(millis, 0.99)
        }
      }
    })

  const moveAll = Effect.fnUntraced(function* (journal: boolean) {
    const sql = yield* SqlClient.SqlClient
    const connection = yield* sql.reserve
    return yield* Effect.forEach(leaving, (copy) => {
      const from = `${skills}/${Corpus.relativePath(copy)}`
      return moveUnderLock(connection, {
        key: LockKey.lockKey("company", copy.companyId),
        versionId: copy.versionId,
        from,
        to: `${from}.gone`,
        journal
      })
    })
  }, Effect.scoped)
  const byHand = (name: string, journal: boolean) =>
    Harness.side({ name, prepare: fresh, work: () => moveAll(journal), verify }).pipe(
      Effect.provideContext(context)
    )
  const bare = yield* byHand("by hand", false)
  const told = yield* byHand("by hand, journal", true)

  const scanAll = Effect.gen(function* () {
    const trees = yield* Trees.Trees
    const catalog = yield* SkillCatalog.SkillCatalog
    const rows = yield* catalog.describe(leaving)
    return yield* Effect.forEach(leaving, (copy) =>
      Effect.map(trees.scan(`${skills}/${Corpus.relativePath(copy)}`, { digests: false }), (scan) => ({
        copy,
        revision: Option.map(SkillCatalog.rowOf(rows, copy), ({ revision }) => revision),
        scan
      }))
    )
  })
  const evictAll = Effect.fnUntraced(function* (candidates: Effect.Success<typeof scanAll>) {
    const held: Array<bigint> = []
    let granted = 0n
    const handler = (point: string) =>
      Effect.sync(() => {
        if (point === "transaction.afterLock") granted = System.nanoseconds()
        else if (point === "transaction.afterCommit" && granted > 0n) {
          held.push(System.nanoseconds() - granted)
          granted = 0n
        }
      })
    yield* Effect.forEach(candidates, evict, { discard: true }).pipe(
      Effect.provideService(FaultPoint.FaultHandler, handler)
    )
    return held
  })
  const eviction = yield* Harness.side({
    name: "evict",
    prepare: Effect.andThen(fresh, scanAll),
    work: evictAll,
    verify
  }).pipe(Effect.provideContext(context))

  const contest: Harness.Contest = {
    amount: `${leaving.length} evictions, ${inUse.length} copies in use, 2,000 runs that are over`,
    comparisons: [bare, told].flatMap((peer) => [
      { figure: median, ours: eviction, peer },
      { figure: p99, ours: eviction, peer }
    ])
  }
  return contest
}, Effect.orDie)

export const lockHeld: Harness.Scenario = { id: "P-07", title: "holding the exclusive lock", make }
