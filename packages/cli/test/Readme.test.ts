import { expect, layer } from "@effect/vitest"
import { ExpirationSettings, Ids, RetentionSettings } from "@reclaim/core"
import { ConfigProvider, Duration, Effect, FileSystem, Option } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { fileURLToPath } from "node:url"
import { Copies, endRun, startRun, sweep } from "../../../examples/host.ts"
import * as Fixture from "./support/fixture.ts"

const file = (name: string) => fileURLToPath(new URL(`../../../${name}`, import.meta.url))

// With the real clock: the policy compares the records of use with it.
layer(Fixture.layer, { timeout: 60_000, excludeTestServices: true })("the README", (it) => {
  it.effect("[W-01] shows the example that a host can compose", () =>
    Effect.gen(function* () {
      const files = yield* FileSystem.FileSystem
      const readme = yield* files.readFileString(file("README.md"))
      const example = yield* files.readFileString(file("examples/host.ts"))
      const shown = /<!-- examples\/host\.ts -->\n\n```ts\n([\s\S]*?)```\n/.exec(readme)?.[1]
      expect(shown).toBe(example)
    })
  )

  it.effect("[W-01] its example prepares a run, keeps its copies while it lasts, and lets them go", () =>
    Effect.gen(function* () {
      const { agentId, companyId, instance, oldCopy, url, versions } = yield* Fixture.Fixture
      const files = yield* FileSystem.FileSystem
      const sql = yield* SqlClient.SqlClient
      const runId = Ids.RunId.make(crypto.randomUUID())
      yield* sql`insert into heartbeat_runs (id, company_id, agent_id, status, started_at)
        values (${runId}::uuid, ${companyId}::uuid, ${agentId}::uuid, 'running', now())`
      yield* Effect.gen(function* () {
        const paths = yield* startRun({ companyId, runId, versions: [versions[0]] })
        expect(paths).toHaveLength(1)
        yield* oldCopy(versions[0])
        yield* sweep
        expect(yield* files.exists(paths[0]!)).toBe(true)
        expect(yield* endRun(runId)).toBe(1)
        yield* sweep
        expect(yield* files.exists(paths[0]!)).toBe(false)
      }).pipe(
        Effect.provide(Copies),
        Effect.provideService(
          ConfigProvider.ConfigProvider,
          ConfigProvider.fromEnv({ env: { INSTANCE: instance, DATABASE_URL: url } })
        )
      )
    })
  )

  it.effect("[C-07] lists every setting with its default", () =>
    Effect.gen(function* () {
      const files = yield* FileSystem.FileSystem
      // Without the blanks that align the columns.
      const readme = (yield* files.readFileString(file("README.md"))).replaceAll(/ +/g, " ")
      const { dryRun, enabled, keep } = RetentionSettings.defaults
      const defaults = { ENABLED: enabled, DRY_RUN: dryRun, KEEP: keep, GRACE_MINUTES: 60 }
      for (const [name, value] of Object.entries(defaults)) {
        expect(readme).toContain(`| \`PAPERCLIP_SKILL_VERSION_RETENTION_${name}\` | \`${value}\` |`)
      }
      const expiration = {
        ENABLED: ExpirationSettings.defaults.enabled,
        DRY_RUN: ExpirationSettings.defaults.dryRun,
        DAYS: Duration.toDays(ExpirationSettings.defaults.window)
      }
      for (const [name, value] of Object.entries(expiration)) {
        expect(readme).toContain(`| \`PAPERCLIP_NATIVE_HARNESS_BACKUP_EXPIRATION_${name}\` | \`${value}\` |`)
      }
      const given = yield* RetentionSettings.config.parse(ConfigProvider.fromEnv({ env: {} }))
      expect(Option.some(given)).toEqual(Option.some(RetentionSettings.defaults))
    })
  )
})
