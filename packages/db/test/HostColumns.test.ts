import { expect, layer } from "@effect/vitest"
import { Effect } from "effect"
import { HostSchema } from "../src/index.ts"
import { bare } from "./support/database.ts"

const runs = ["id", "company_id", "status", "runtime_mode", "retry_of_run_id", "started_at", "created_at"]
const finalizations = ["run_id", "phase", "lease_expires_at", "recovery_state"]

/** The columns that each purpose reads. */
const skills = {
  companies: ["id"],
  company_skills: ["id", "company_id", "current_version_id"],
  company_skill_versions: [
    "id",
    "company_id",
    "company_skill_id",
    "revision_number",
    "file_inventory",
    "created_at"
  ],
  agents: ["id", "company_id", "adapter_config"],
  heartbeat_runs: runs,
  native_run_finalizations: finalizations
}

const backups = {
  companies: ["id"],
  agents: ["id", "company_id"],
  heartbeat_runs: [
    ...runs,
    "agent_id",
    "native_session_id",
    "native_issue_id",
    "context_snapshot",
    "finished_at"
  ],
  native_run_finalizations: [...finalizations, "company_id", "issue_id"],
  agent_task_sessions: ["id", "company_id", "agent_id", "adapter_type", "session_params_json", "last_run_id"],
  environment_leases: ["id", "company_id", "status", "cleanup_status", "metadata"],
  issues: ["id", "company_id", "status", "completed_at", "cancelled_at"]
}

const names = (tables: Readonly<Record<string, ReadonlyArray<string>>>) =>
  Object.entries(tables)
    .flatMap(([table, columns]) => columns.map((column) => `${table}.${column}`))
    .toSorted()

layer(bare())("a database without the host's tables", (it) => {
  it.effect("[D-06] lacks every column that is read, and none besides", () =>
    Effect.gen(function* () {
      const host = yield* Effect.provide(HostSchema.HostSchema, HostSchema.layer)
      expect((yield* Effect.flip(host.requireSkills)).missing.toSorted()).toEqual(names(skills))
      expect((yield* Effect.flip(host.requireBackups)).missing.toSorted()).toEqual(names(backups))
    })
  )
})
