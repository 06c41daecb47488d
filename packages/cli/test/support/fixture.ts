/** A small host: one company, one skill, three versions of it, and an instance folder without copies. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Ids } from "@reclaim/core"
import { TestDatabase } from "@reclaim/postgres/testing"
import { Context, Effect, FileSystem, Layer } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { inject } from "vitest"
import { type Finished, type RunOptions, reclaim } from "./reclaim.ts"

export class Fixture extends Context.Service<
  Fixture,
  {
    readonly url: string
    readonly instance: string
    readonly companyId: Ids.CompanyId
    readonly agentId: Ids.AgentId
    readonly skillId: Ids.SkillId
    /** Oldest first; the third is the current one. */
    readonly versions: readonly [Ids.VersionId, Ids.VersionId, Ids.VersionId]
    /** Runs the command on this database and instance. */
    readonly run: (
      args: ReadonlyArray<string>,
      env?: Readonly<Record<string, string>>,
      options?: RunOptions
    ) => Effect.Effect<Finished>
    /** Makes a version's copy, unused for years. */
    readonly oldCopy: (versionId: Ids.VersionId) => Effect.Effect<string>
    /** Where a version's copy is. */
    readonly pathOf: (versionId: Ids.VersionId) => string
  }
>()("@reclaim/cli/test/Fixture") {}

const inventory = (revision: number) =>
  JSON.stringify([
    { path: "SKILL.md", kind: "skill", content: `# Skill, revision ${revision}\n` },
    { path: "assets/dot.bin", kind: "asset", content: "AAECAwT//g==", encoding: "base64" },
    { path: "scripts/run.sh", kind: "script", content: "#!/bin/sh\necho ok\n", executable: true }
  ])

const uuid = () => crypto.randomUUID()

const make = Effect.gen(function* () {
  const { url } = yield* TestDatabase.TestDatabase
  const files = yield* FileSystem.FileSystem
  const sql = yield* SqlClient.SqlClient
  const services = yield* Effect.context<NodeServices.NodeServices>()
  const instance = yield* files.makeTempDirectoryScoped({ prefix: "reclaim-cli-" })
  const run: Fixture["Service"]["run"] = (args, env = {}, options = {}) =>
    Effect.provideContext(
      reclaim(args, { ...options, env: { DATABASE_URL: url, RECLAIM_INSTANCE: instance, ...env } }),
      services
    )
  const migrated = yield* run(["migrate", "--with-host-tables"])
  if (migrated.code !== 0) throw new Error(migrated.stderr)
  const companyId = Ids.CompanyId.make(uuid())
  const agentId = Ids.AgentId.make(uuid())
  const skillId = Ids.SkillId.make(uuid())
  const versions = [
    Ids.VersionId.make(uuid()),
    Ids.VersionId.make(uuid()),
    Ids.VersionId.make(uuid())
  ] as const
  yield* sql`insert into companies (id, name) values (${companyId}::uuid, 'Acme')`
  yield* sql`insert into agents (id, company_id, name) values (${agentId}::uuid, ${companyId}::uuid, 'Bob')`
  yield* sql`insert into company_skills (id, company_id, key, slug, name)
    values (${skillId}::uuid, ${companyId}::uuid, 'local/greeting', 'greeting', 'Greeting')`
  for (const [index, versionId] of versions.entries()) {
    yield* sql`insert into company_skill_versions (id, company_id, company_skill_id, revision_number, file_inventory)
      values (${versionId}::uuid, ${companyId}::uuid, ${skillId}::uuid, ${index + 1}::int,
        ${inventory(index + 1)}::text::jsonb)`
  }
  yield* sql`update company_skills set current_version_id = ${versions[2]}::uuid where id = ${skillId}::uuid`
  const skills = `${instance}/skills/${companyId}`
  const pathOf = (versionId: Ids.VersionId) => `${skills}/__versions__/${skillId}/${versionId}`
  return Fixture.of({
    url,
    instance,
    companyId,
    agentId,
    skillId,
    versions,
    run,
    pathOf,
    oldCopy: Effect.fnUntraced(function* (versionId) {
      const restored = yield* run(["skills", "restore", "--company", companyId, "--version", versionId])
      if (restored.code !== 0) throw new Error(restored.stderr + restored.stdout)
      yield* Effect.orDie(
        files.writeFileString(
          `${skills}/__version_access__/${skillId}/${versionId}.json`,
          JSON.stringify({ schema: "reclaim.access.v1", lastUsedAt: "2020-01-01T00:00:00.000Z" })
        )
      )
      return pathOf(versionId)
    })
  })
})

/** With a database of its own for the test file. */
export const layer = Layer.effect(Fixture, make).pipe(
  Layer.provideMerge(TestDatabase.layerClient(inject("databaseUrl"), { prepare: false })),
  Layer.provideMerge(NodeServices.layer),
  Layer.orDie
)
