/** A host in miniature: a real database, a real folder, every service, and time that a test moves. */
import { PgClient } from "@effect/sql-pg"
import { type Ids, RetentionSettings } from "@reclaim/core"
import {
  Holds,
  HostSchema,
  HostTables,
  Journal,
  Migrations,
  SkillCatalog,
  SkillPins,
  Transactions
} from "@reclaim/db"
import { AccessRecords, InstanceRoots, type PosixFileSystem, VersionStore } from "@reclaim/fs"
import { TestDatabase } from "@reclaim/postgres/testing"
import { Context, DateTime, type Duration, Effect, Layer, Logger, Redacted, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { execFileSync } from "node:child_process"
import * as Fs from "node:fs"
import * as Os from "node:os"
import { inject } from "vitest"
import { hooked } from "../../../db/test/support/backend.ts"
import * as Fixtures from "../../../db/test/support/fixtures.ts"
import { SkillVersionRetention, SkillVersions } from "../../src/index.ts"
import { MovableClock } from "../../src/testing.ts"
import * as Threads from "./threads.ts"

export { Fixtures }

/** Where the test's instance is. */
export class Instance extends Context.Service<Instance, { readonly path: string }>()("test/Instance") {}

const instance = Layer.effect(
  Instance,
  Effect.acquireRelease(
    Effect.sync(() => ({ path: Fs.realpathSync(Fs.mkdtempSync(`${Os.tmpdir()}/reclaim-runtime-`)) })),
    ({ path }) =>
      Effect.sync(() => {
        execFileSync("chmod", ["-R", "u+rwx", path])
        Fs.rmSync(path, { recursive: true, force: true })
      })
  )
)

const roots = Layer.unwrap(Effect.map(Instance, ({ path }) => InstanceRoots.layer({ instance: path })))

/** 2030-01-01: after every real time that the file system gives to what the tests write. */
export const noon = DateTime.makeUnsafe("2030-01-01T12:00:00Z")

export interface Options {
  readonly settings?: RetentionSettings.Options
  readonly pool?: Omit<PgClient.PgPoolConfig, "url">
  /** In place of the system's calls, to make some of them fail. */
  readonly posix?: Layer.Layer<PosixFileSystem.PosixFileSystem>
  /** False leaves the schema `reclaim` out. */
  readonly adopted?: boolean
  /** Bounds of the transactions, for servers that do not answer. */
  readonly bounds?: Omit<Transactions.Options, "operation">
}

/**
 * Everything on an empty instance and an empty database. Use it with `excludeTestServices`: time is moved by
 * `MovableClock`, and waiting for the database takes real time.
 */
export const layer = (options: Options = {}) =>
  server(options).pipe(
    Layer.provideMerge(
      Layer.effectDiscard(
        Effect.andThen(HostTables.create, options.adopted === false ? Effect.void : Migrations.migrate)
      ).pipe(Layer.provide(Transactions.layer))
    ),
    Layer.provideMerge(MovableClock.layer(noon)),
    Layer.provideMerge(client(options)),
    Layer.provideMerge(TestDatabase.layer(inject("databaseUrl"))),
    Layer.provideMerge(instance),
    Layer.provideMerge(Threads.layer)
  )

/** What one server process consists of, but for its threads. */
const server = (options: Options) => {
  const disk = VersionStore.layer.pipe(
    Layer.provideMerge(AccessRecords.layer),
    Layer.provideMerge(options.posix ?? Threads.posix),
    Layer.provideMerge(roots)
  )
  const database = Layer.mergeAll(SkillCatalog.layer, SkillPins.layer, Holds.layer, Journal.layer).pipe(
    Layer.provideMerge(HostSchema.layer),
    Layer.provideMerge(Transactions.layerWith(options.bounds ?? {}))
  )
  return SkillVersions.layerServices.pipe(
    Layer.provideMerge(Layer.mergeAll(disk, database, RetentionSettings.layer(options.settings ?? {}))),
    Layer.provideMerge(Logger.layer([]))
  )
}

/** A client whose statements are noted. */
const client = (options: Options) =>
  Layer.effect(
    SqlClient.SqlClient,
    Effect.map(SqlClient.SqlClient, (sql) => hooked(sql, (text) => Effect.sync(() => void sent.push(text))))
  ).pipe(
    Layer.provideMerge(
      Layer.unwrap(
        Effect.map(TestDatabase.TestDatabase, ({ url }) =>
          PgClient.layer({ ...options.pool, url: Redacted.make(url) })
        )
      )
    )
  )

/**
 * Runs an effect in another server process on the same disk, the same database and the same time: all
 * services anew, with a pool of their own.
 */
export const elsewhere =
  (options: Options = {}) =>
  <A, E, R>(self: Effect.Effect<A, E, R>) =>
    Effect.provide(self, Layer.fresh(server(options).pipe(Layer.provideMerge(client(options)))), {
      local: true
    })

const sent: Array<string> = []

/** The statements that an effect sends, those that every transaction has included. */
export const statementsOf = <A, E, R>(self: Effect.Effect<A, E, R>) =>
  Effect.suspend(() => {
    sent.length = 0
    return Effect.map(self, (value) => ({ value, statements: [...sent] }))
  })

/** Sets both clocks to noon. Every test begins with it. */
export const begin = Effect.gen(function* () {
  yield* (yield* MovableClock.MovableClock).set(noon)
})

/** Moves both clocks on. */
export const advance = Effect.fnUntraced(function* (duration: Duration.Input) {
  yield* (yield* MovableClock.MovableClock).adjust(duration)
})

/** A company with one skill that has as many versions as are asked for, the last one current. */
export const skill = Effect.fnUntraced(function* (options: {
  readonly versions: number
  readonly files?: unknown
  readonly company?: { readonly companyId: Ids.CompanyId; readonly agentId: Ids.AgentId }
}) {
  const owner = options.company ?? (yield* Fixtures.company)
  const skillId = yield* Fixtures.skill(owner.companyId)
  const copies: Array<VersionStore.CopyRef> = []
  for (let revision = 1; revision <= options.versions; revision++) {
    const versionId = yield* Fixtures.version({
      companyId: owner.companyId,
      skillId,
      revision,
      files: options.files ?? [
        { path: "SKILL.md", content: `revision ${revision}` },
        { path: "scripts/run.sh", content: "#!/bin/sh\n", executable: true },
        { path: "assets/logo.bin", content: "AAECAwQF", encoding: "base64" }
      ]
    })
    copies.push({ companyId: owner.companyId, skillId, versionId })
  }
  return { ...owner, skillId, copies }
})

/** All batches of a sweep, added up by hand: the tests of the monoid are elsewhere. */
export const sweep = Effect.fnUntraced(function* (options?: SkillVersionRetention.SweepOptions) {
  const retention = yield* SkillVersionRetention.SkillVersionRetention
  return yield* Stream.runCollect(retention.sweep(options))
})

/** The one report of a sweep that has one batch. */
export const sweepOnce = Effect.fnUntraced(function* (options?: SkillVersionRetention.SweepOptions) {
  const batches = yield* sweep(options)
  if (batches.length !== 1) return yield* Effect.die(`${batches.length} batches`)
  return batches[0]!.report
})

/** Every entry below the instance's skills, as relative paths. */
export const listing = Effect.map(Instance, ({ path }) =>
  Fs.existsSync(`${path}/skills`)
    ? Fs.readdirSync(`${path}/skills`, { recursive: true, encoding: "utf8" }).toSorted()
    : []
)

/** Whether a copy is there. */
export const isThere = (copy: VersionStore.CopyRef) =>
  Effect.map(VersionStore.VersionStore, (store) => Fs.existsSync(store.pathOf(copy)))

/** Everything below the instance with modes, times and contents: two equal ones mean that nothing changed. */
export const picture = Effect.map(Instance, ({ path }) =>
  execFileSync(
    "sh",
    [
      "-c",
      `cd "$1" && find . -printf '%p %y %m %T@ %C@ %s\\n' | sort && find . -type f -exec sha256sum {} +`,
      "sh",
      path
    ],
    { encoding: "utf8" }
  )
)

/** Writes over a file of a copy, which is read-only, and leaves its mode as it was. */
export const overwrite = (path: string, content: string): void => {
  const { mode } = Fs.statSync(path)
  Fs.chmodSync(path, 0o600)
  Fs.writeFileSync(path, content)
  Fs.chmodSync(path, mode & 0o777)
}
