import { expect, layer } from "@effect/vitest"
import { ExpirationSettings, Ids, RetentionSettings } from "@reclaim/core"
import { HostControls, SkillVersionRetention } from "@reclaim/runtime"
import { ConfigProvider, Duration, Effect, FileSystem, Logger, Option, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { fileURLToPath } from "node:url"
import { Reclaim, endRun, startRun } from "../../../examples/paperclip.ts"
import { eventually } from "../../db/test/support/database.ts"
import * as Fixture from "./support/fixture.ts"

const file = (name: string) => fileURLToPath(new URL(`../../../${name}`, import.meta.url))

// With the real clock: the policy compares the records of use with it.
layer(Fixture.layer, { timeout: 60_000, excludeTestServices: true })("the README", (it) => {
  it.effect("[W-01] shows the example that a host can compose", () =>
    Effect.gen(function* () {
      const files = yield* FileSystem.FileSystem
      const readme = yield* files.readFileString(file("README.md"))
      const example = yield* files.readFileString(file("examples/paperclip.ts"))
      const shown = /<!-- examples\/paperclip\.ts -->\n\n```ts\n([\s\S]*?)```\n/.exec(readme)?.[1]
      expect(shown).toBe(example)
    })
  )

  it.effect(
    "[W-01] its example prepares a run, tells what it lacks, keeps its copies while it lasts, and lets them go",
    () =>
      Effect.gen(function* () {
        const { agentId, companyId, instance, oldCopy, url, versions } = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        const sql = yield* SqlClient.SqlClient
        const [runId, nothing] = [
          Ids.RunId.make(crypto.randomUUID()),
          Ids.VersionId.make(crypto.randomUUID())
        ]
        yield* sql`insert into heartbeat_runs (id, company_id, agent_id, status, started_at)
        values (${runId}::uuid, ${companyId}::uuid, ${agentId}::uuid, 'running', now())`
        const logged: Array<string> = []
        const logger = Logger.make(({ logLevel, message }) => {
          if (logLevel === "Error") logged.push(JSON.stringify(message))
        })
        yield* Effect.gen(function* () {
          const retention = yield* SkillVersionRetention.SkillVersionRetention
          const paths = yield* startRun({ companyId, runId, versions: [versions[0], nothing] })
          expect(paths).toHaveLength(1)
          expect(logged).toHaveLength(1)
          expect(logged[0]).toContain(nothing)
          expect(logged[0]).toContain("NotRecoverable")
          yield* oldCopy(versions[0])
          yield* Stream.runDrain(retention.sweep())
          expect(yield* files.exists(paths[0]!)).toBe(true)
          expect(yield* endRun(runId)).toBe(1)
          yield* (yield* HostControls.HostSwitch).ready
          yield* eventually(Effect.map(files.exists(paths[0]!), (is) => !is))
        }).pipe(
          Effect.provide([Reclaim, Logger.layer([logger])]),
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
