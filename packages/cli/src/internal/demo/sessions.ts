/** Lays the sessions of the demonstration out: a backup for each, and every state that one can be in. */
import { ControlPlaneState, Ids } from "@reclaim/core"
import { type DatabaseError, Holds, type HostSchema } from "@reclaim/db"
import { BackupStore, type FileError, InstanceRoots } from "@reclaim/fs"
import { FailoverBackups } from "@reclaim/runtime"
import { Clock, DateTime, Duration, Effect, FileSystem, Option, type PlatformError } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type * as SqlError from "effect/sql/SqlError"
import { createHash } from "node:crypto"
import { dirname } from "node:path"
import * as CodexHome from "./codexHome.ts"
import * as Dice from "./dice.ts"
import type { DemoCompany } from "./plan.ts"

/**
 * What happened to a session besides its work. `crash`: its server was killed while it moved the backup away.
 */
type Twist = "none" | "lease" | "retry" | "hold" | "crash"

interface Sketch {
  readonly title: string
  readonly company: number
  readonly agent: number
  readonly status: "done" | "cancelled" | "in_progress" | "todo"
  /** How long the issue is closed, or its last turn is over. */
  readonly daysAgo: number
  readonly twist: Twist
}

const sketch = (
  title: string,
  company: number,
  agent: number,
  status: Sketch["status"],
  daysAgo: number,
  twist: Twist = "none"
): Sketch => ({ title, company, agent, status, daysAgo, twist })

const sketches: ReadonlyArray<Sketch> = [
  sketch("Sign firmware 4.2", 0, 0, "done", 24),
  sketch("Order joint motors for spring", 0, 2, "cancelled", 17),
  sketch("Reconcile the September invoices", 1, 1, "in_progress", 11),
  sketch("Declare consignment 7741", 2, 1, "done", 15, "lease"),
  sketch("Roll 4.1 out to the fleet", 0, 1, "done", 12, "retry"),
  sketch("Subtitle the winter film", 3, 1, "cancelled", 3),
  sketch("Recall patients, week 44", 1, 2, "done", 29, "hold"),
  sketch("Plan the Christmas routes", 2, 0, "todo", 14, "crash")
]

export interface DemoSession {
  readonly sketch: Sketch
  readonly id: Ids.NativeSessionId
  readonly scope: Ids.ScopeId
  readonly issueId: string
  readonly runId: string
  readonly companyId: Ids.CompanyId
  readonly agentId: string
  /** What its sandbox held when the backup was taken. */
  readonly files: ReadonlyArray<CodexHome.HomeFile>
  readonly captured: BackupStore.Captured
}

// Any number but those of the plan and the instance, so that the ids differ.
const seed = 11

/** The whole of an effect as it would have been so many days ago. */
const past =
  (days: number) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.clockWith((clock) => {
      const millis = Duration.toMillis(Duration.days(days))
      const now = () => clock.currentTimeMillisUnsafe() - millis
      const nanos = () => clock.currentTimeNanosUnsafe() - BigInt(millis) * 1_000_000n
      return Effect.provideService(effect, Clock.Clock, {
        currentTimeMillisUnsafe: now,
        currentTimeMillis: Effect.sync(now),
        currentTimeNanosUnsafe: nanos,
        currentTimeNanos: Effect.sync(nanos),
        monotonicTimeNanosUnsafe: () => clock.monotonicTimeNanosUnsafe(),
        monotonicTimeNanos: clock.monotonicTimeNanos,
        sleep: (duration) => clock.sleep(duration)
      })
    })

/** What the host's tables say of a session. */
const writeRows = Effect.fnUntraced(function* (dice: Dice.Dice, session: Omit<DemoSession, "captured">) {
  const sql = yield* SqlClient.SqlClient
  const { agentId, companyId, issueId, runId, scope } = session
  const { daysAgo, status, title, twist } = session.sketch
  const now = yield* DateTime.now
  const ended = DateTime.formatIso(DateTime.subtract(now, { days: daysAgo }))
  const started = DateTime.formatIso(DateTime.subtract(now, { days: daysAgo, hours: 2 }))
  yield* sql`
    insert into issues (id, company_id, title, status, completed_at, cancelled_at)
    values (${issueId}::uuid, ${companyId}::uuid, ${title}, ${status},
      ${status === "done" ? ended : null}::timestamptz, ${status === "cancelled" ? ended : null}::timestamptz)`
  yield* sql`
    insert into heartbeat_runs
      (id, company_id, agent_id, status, runtime_mode, native_session_id, native_issue_id, context_snapshot,
       started_at, finished_at, created_at)
    values (${runId}::uuid, ${companyId}::uuid, ${agentId}::uuid, 'succeeded', 'native', ${session.id}::uuid,
      ${issueId}::uuid, ${JSON.stringify({ issueId })}::text::jsonb, ${started}::timestamptz,
      ${ended}::timestamptz, ${started}::timestamptz)`
  yield* sql`
    insert into native_run_finalizations (run_id, company_id, issue_id, phase)
    values (${runId}::uuid, ${companyId}::uuid, ${issueId}::uuid, 'committed')`
  yield* sql`
    insert into agent_task_sessions
      (company_id, agent_id, adapter_type, task_key, session_params_json, last_run_id)
    values (${companyId}::uuid, ${agentId}::uuid, 'paperclip_runner', ${issueId},
      ${JSON.stringify({ sessionId: session.id })}::text::jsonb, ${runId}::uuid)`
  if (twist === "retry") {
    yield* sql`
      insert into heartbeat_runs (company_id, agent_id, status, runtime_mode, retry_of_run_id)
      values (${companyId}::uuid, ${agentId}::uuid, 'scheduled_retry', 'native', ${runId}::uuid)`
  }
  if (twist === "lease") {
    const environment = dice.uuid()
    const stamp = { nativeHarnessBackup: { sessionScopeSha256: scope, normalizedSessionId: session.id } }
    yield* sql`
      insert into environments (id, company_id, driver)
      values (${environment}::uuid, ${companyId}::uuid, 'sandbox')`
    yield* sql`
      insert into environment_leases (company_id, environment_id, status, metadata)
      values (${companyId}::uuid, ${environment}::uuid, 'retained', ${JSON.stringify(stamp)}::text::jsonb)`
  }
  if (twist === "hold") {
    yield* Effect.flatMap(Holds.Holds, (holds) =>
      holds.holdScope(scope, "ops@console", "the insurer asked for the transcript")
    )
  }
})

const writeFile = Effect.fnUntraced(function* (path: string, bytes: Uint8Array) {
  const files = yield* FileSystem.FileSystem
  yield* files.makeDirectory(dirname(path), { recursive: true })
  yield* files.writeFile(path, bytes)
})

/** The state file by which a sweep learns whose session a scope is. */
const writeState = Effect.fnUntraced(function* (dice: Dice.Dice, session: Omit<DemoSession, "captured">) {
  const roots = yield* InstanceRoots.InstanceRoots
  yield* writeFile(
    `${roots.sessions}/${session.scope}/control-plane/control-plane-state.json`,
    new TextEncoder().encode(
      JSON.stringify({
        schema: ControlPlaneState.schema,
        identity: {
          runnerInstanceId: dice.uuid(),
          environmentLeaseId: dice.uuid(),
          runId: session.runId,
          normalizedSessionId: session.id,
          turnId: "turn-1",
          itemId: null
        },
        commands: [],
        leases: []
      })
    )
  )
})

const laySession = Effect.fnUntraced(function* (
  dice: Dice.Dice,
  companies: ReadonlyArray<DemoCompany>,
  sketch: Sketch
) {
  const files = yield* FileSystem.FileSystem
  const roots = yield* InstanceRoots.InstanceRoots
  const store = yield* BackupStore.BackupStore
  const backups = yield* FailoverBackups.FailoverBackups
  const company = companies[sketch.company]
  const agent = company?.agents[sketch.agent]
  if (company === undefined || agent === undefined) {
    throw new Error(`the demonstration has no agent for ${sketch.title}`)
  }
  const id = Ids.NativeSessionId.make(dice.uuid())
  const runId = dice.uuid()
  const session = {
    sketch,
    id,
    scope: Ids.ScopeId.make(createHash("sha256").update(`${company.id}/${agent.id}/${id}`).digest("hex")),
    issueId: dice.uuid(),
    runId,
    companyId: company.id,
    agentId: agent.id,
    files: CodexHome.filesOf(dice, { id, title: sketch.title, runId })
  }
  yield* writeRows(dice, session)
  yield* writeState(dice, session)
  const sandbox = `${roots.instance}/runtime/sandboxes/${id}`
  for (const { bytes, path } of session.files) yield* writeFile(`${sandbox}/${path}`, bytes)
  const captured = yield* backups
    .capture({
      scope: session.scope,
      identity: {
        normalizedSessionId: id,
        runnerInstanceId: dice.uuid(),
        sourceProviderLeaseId: dice.uuid(),
        providerKind: "codex"
      },
      sources: ["runner", "codex-home"].map((name) => ({ name, path: `${sandbox}/${name}` }))
    })
    .pipe(past(sketch.daysAgo))
  // The sandbox was thrown away after the turn, and nobody has touched the backup since.
  yield* files.remove(`${roots.instance}/runtime/sandboxes`, { recursive: true })
  const written = DateTime.toDate(captured.manifest.completedAt)
  yield* files.utimes(captured.path, written, written)
  if (sketch.twist === "crash") {
    yield* files.rename(captured.path, `${store.pathOf(session.scope)}/.retiring-${dice.uuid()}`)
  }
  return { ...session, captured } satisfies DemoSession
})

/** What laying the sessions can fail with. */
export type Failed =
  | BackupStore.RefusedSource
  | DatabaseError.DatabaseError
  | FileError.FileError
  | HostSchema.NotAdopted
  | PlatformError.PlatformError
  | SqlError.SqlError

/** What laying the sessions takes. */
export type Needs =
  | BackupStore.BackupStore
  | FailoverBackups.FailoverBackups
  | FileSystem.FileSystem
  | Holds.Holds
  | InstanceRoots.InstanceRoots
  | SqlClient.SqlClient

/** Fills the tables and the folders of the sessions. `progress` hears what is being done. */
export const lay = Effect.fnUntraced(function* (
  companies: ReadonlyArray<DemoCompany>,
  progress: (text: string) => Effect.Effect<void>
): Effect.fn.Return<ReadonlyArray<DemoSession>, Failed, Needs> {
  const dice = Dice.make(seed)
  yield* progress("letting sessions work, and backing each up after its last turn")
  return yield* Effect.forEach(sketches, (sketch) => laySession(dice, companies, sketch))
})

/** The names among a scope's backups. */
export const namesOf = Effect.fnUntraced(function* (scope: Ids.ScopeId) {
  const files = yield* FileSystem.FileSystem
  const store = yield* BackupStore.BackupStore
  return (yield* files.readDirectory(store.pathOf(scope))).toSorted()
})

/** The session that an agent resumes when the issue is reopened, as a host looks it up. None: a fresh one. */
export const resumed = Effect.fnUntraced(function* (session: DemoSession) {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly id: string }>`
    select session_params_json ->> 'sessionId' as id from agent_task_sessions
    where company_id = ${session.companyId}::uuid and agent_id = ${session.agentId}::uuid
      and adapter_type = 'paperclip_runner' and task_key = ${session.issueId}`
  return Option.map(Option.fromUndefinedOr(rows[0]), ({ id }) => id)
})

/** Opens the issue of a session again, as somebody does who is not satisfied after all. */
export const reopen = Effect.fnUntraced(function* (session: DemoSession) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    update issues set status = 'todo', completed_at = null, cancelled_at = null
    where id = ${session.issueId}::uuid`
})
