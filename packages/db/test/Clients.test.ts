import { PgClient } from "@effect/sql-pg"
import { expect, layer } from "@effect/vitest"
import { Ids } from "@reclaim/core"
import { TestDatabase } from "@reclaim/postgres/testing"
import { DateTime, Effect, Layer, Redacted, Result, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { inject } from "vitest"
import {
  Holds,
  HostSchema,
  HostTables,
  Journal,
  Migrations,
  SkillCatalog,
  SkillPins,
  Transactions
} from "../src/index.ts"
import { clock, noon } from "./support/database.ts"
import * as Make from "./support/fixtures.ts"
import * as PgBouncer from "./support/pgBouncer.ts"

const direct = (config: Omit<PgClient.PgPoolConfig, "url">) =>
  Layer.unwrap(
    Effect.map(TestDatabase.TestDatabase, ({ url }) => PgClient.layer({ ...config, url: Redacted.make(url) }))
  )

const pooled = Layer.unwrap(
  Effect.flatMap(TestDatabase.TestDatabase, ({ url }) =>
    Effect.map(PgBouncer.through(url), (through) =>
      PgClient.layer({ url: Redacted.make(through), prepare: false })
    )
  )
)

/** Every service, once. */
const everything = Effect.gen(function* () {
  const catalog = yield* SkillCatalog.SkillCatalog
  const pins = yield* SkillPins.SkillPins
  const holds = yield* Holds.Holds
  const journal = yield* Journal.Journal
  const { companyExclusive, companyShared } = yield* Transactions.Transactions
  const owner = yield* Make.company
  const { companyId } = owner
  const skillId = yield* Make.skill(companyId)
  const versionId = yield* Make.version({ companyId, skillId, revision: 1 })
  const runId = yield* Make.run(owner, { status: "running" })
  yield* companyShared(companyId, () => pins.record(companyId, runId, [{ skillId, versionId }]))
  yield* holds.holdVersion(companyId, versionId, "ann", "note")
  const facts = yield* companyExclusive(companyId, () =>
    Effect.tap(pins.facts([companyId]), () =>
      journal.append({
        worker: "skill-versions",
        event: "evicted",
        companyId,
        skillId,
        versionId,
        scope: null,
        allocatedBytes: 1n,
        digest: null,
        server: "s",
        detail: { keyInJson: 1 }
      })
    )
  )
  expect(facts.get(companyId)?.activeRuns).toEqual(new Map([[versionId, [runId]]]))
  expect(facts.get(companyId)?.held.size).toBe(1)
  expect((yield* catalog.describe([{ companyId, skillId, versionId }])).get(versionId)?.rank).toBe(0)
  const manifest = (yield* catalog.manifests(companyId, [versionId], { caseInsensitive: false })).get(
    versionId
  )
  if (manifest === undefined || Result.isFailure(manifest)) return expect.unreachable()
  const chunks = yield* Stream.runCollect(catalog.contents(companyId, versionId, manifest.success))
  expect(chunks.map((chunk) => Buffer.from(chunk.bytes).toString())).toEqual(["hello"])
  const [entry] = yield* Stream.runCollect(journal.since(noon, companyId))
  expect(entry?.detail).toEqual({ keyInJson: 1 })
  expect(yield* pins.release(runId)).toBe(1)
  expect(yield* pins.forget(10)).toBe(0)
  expect(yield* journal.prune(DateTime.addDuration(noon, "1 day"))).toBe(1)
})

const services = Layer.mergeAll(SkillCatalog.layer, SkillPins.layer, Holds.layer, Journal.layer).pipe(
  Layer.provideMerge(HostSchema.layer),
  Layer.provideMerge(Layer.effectDiscard(Effect.andThen(HostTables.create, Migrations.migrate))),
  Layer.provideMerge(clock),
  Layer.provideMerge(Transactions.layer)
)

layer(TestDatabase.layer(inject("databaseUrl")), { excludeTestServices: true })("clients of hosts", (it) => {
  it.effect("[D-03] a pool of one is enough for everything", () =>
    everything.pipe(Effect.provide(services.pipe(Layer.provideMerge(direct({ maxConnections: 1 })))))
  )

  it.effect("[W-01] a client that renames columns and keys changes nothing", () =>
    everything.pipe(
      Effect.provide(
        services.pipe(
          Layer.provideMerge(
            direct({
              transformResultNames: (name) => name.toUpperCase(),
              transformQueryNames: (name) => name.toLowerCase(),
              transformJson: true
            })
          )
        )
      )
    )
  )

  it.effect("[D-04] leaves no lock on a connection that a pooler would give to somebody else", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { companyExclusive, companyShared, trash } = yield* Transactions.Transactions
      const companyId = Ids.CompanyId.make(crypto.randomUUID())
      const locks = Effect.map(
        sql<{ readonly mode: string }>`
          select mode from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()`,
        (rows) => rows.map(({ mode }) => mode)
      )
      for (const [take, mode] of [
        [companyShared, "ShareLock"],
        [companyExclusive, "ExclusiveLock"],
        [trash, "ExclusiveLock"]
      ] as const) {
        expect(yield* take(companyId, () => locks)).toEqual([mode])
        expect(yield* locks).toEqual([])
      }
    }).pipe(Effect.provide(services.pipe(Layer.provideMerge(direct({ maxConnections: 1 })))))
  )

  if (PgBouncer.binary === undefined)
    console.log("PgBouncer is not installed: its test in Clients.test.ts is skipped")
  else {
    it.effect("[D-04] everything works through PgBouncer in transaction mode", () =>
      everything.pipe(Effect.provide(services.pipe(Layer.provideMerge(pooled))))
    )
  }
})
