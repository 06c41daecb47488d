/** Sessions with backups in every state that a crash, a run or a capture can have left. */
import { Ids } from "@reclaim/core"
import { DateTime, Effect } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { execFileSync } from "node:child_process"
import * as Fs from "node:fs"
import { FailoverBackups } from "../../src/index.ts"
import * as Sessions from "../support/SessionsWorld.ts"
import * as World from "../support/World.ts"
import * as Operations from "./Operations.ts"
import { Broken, type Check, portrait, type Scenario } from "./Scenario.ts"

const { Make } = Sessions
type Session = Sessions.Make.Session

const older = DateTime.subtractDuration(Make.longAgo, "1 day")
const leftover = (kind: string) => `.${kind}-${crypto.randomUUID()}`

/** The kinds of folders from which a backup can still come back. */
const living = /^(current|previous|\.retiring-.*)$/

/** Whether a folder is a backup as `Sessions.backup` writes it. */
const isWhole = (folder: string): boolean => {
  const state = `${folder}/runner/state.json`
  const log = `${folder}/runner/turn.log`
  if (![`${folder}/manifest.json`, state, log].every((file) => Fs.existsSync(file))) return false
  const note = /"note":"(.*)"/.exec(Fs.readFileSync(state, "utf8"))?.[1]
  return Fs.readFileSync(log, "utf8") === `turn of ${note}\n`
}

const whole = Effect.fnUntraced(function* ({ scope }: Session, names: RegExp = living) {
  const folder = `${yield* Sessions.pathOf(scope)}/failover-backups`
  return Fs.readdirSync(folder).filter((name) => names.test(name) && isWhole(`${folder}/${name}`))
})

const queued = ({ agentId, companyId, sessionId }: Session) =>
  `insert into heartbeat_runs (company_id, agent_id, status, native_session_id)
   values ('${companyId}', '${agentId}', 'queued', '${sessionId}')`

const hasRun = Effect.fnUntraced(function* ({ sessionId }: Session) {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql`select from heartbeat_runs
    where status = 'queued' and native_session_id = ${sessionId}::uuid`
  return rows.length > 0
})

/** What lies beside backups and must stay as it is. */
const makeTheirs = Effect.fnUntraced(function* (sessions: ReadonlyArray<Session>) {
  const { path: instance } = yield* World.Instance
  const outside = `${instance}-outside`
  Fs.mkdirSync(outside)
  Fs.writeFileSync(`${outside}/theirs`, "theirs")
  const theirs = [outside]
  for (const { scope } of sessions) {
    const folder = yield* Sessions.pathOf(scope)
    Fs.symlinkSync(outside, `${folder}/link`)
    theirs.push(`${folder}/control-plane`, `${folder}/link`)
    if (theirs.length > 3) continue
    Fs.mkdirSync(`${folder}/../quarantine`)
    Fs.writeFileSync(`${folder}/../quarantine/theirs`, "theirs")
    theirs.push(`${folder}/../quarantine`)
  }
  const before = portrait(theirs)
  const untouched: Check = Effect.gen(function* () {
    const now = portrait(theirs)
    if (JSON.stringify(now) === JSON.stringify(before)) return
    return yield* new Broken({
      what: `files of others were touched:\n${before.join("\n")}\n${now.join("\n")}`
    })
  })
  return { untouched }
})

const roles = [
  "two backups",
  "leaving alone",
  "leaving, and replaced",
  "half captured",
  "of a run",
  "of a run that comes at the final look",
  "of a run that comes at the last look"
] as const

const expiring: Scenario = {
  name: "expire",
  make: Effect.gen(function* () {
    const owner = yield* Make.owner
    const backups: ReadonlyArray<ReadonlyArray<Sessions.BackupOptions>> = [
      [{}, { name: "previous", completedAt: older }],
      [{ name: leftover("retiring"), note: "current" }],
      [{}, { name: leftover("retiring"), completedAt: older }],
      [{}, { name: leftover("pending"), manifest: false }],
      [{}],
      [{}, { name: "previous", completedAt: older }],
      [{}, { name: "previous", completedAt: older }]
    ]
    const sessions = yield* Effect.forEach(backups, (each) => Sessions.expirable({ owner, backups: each }))
    const sql = yield* SqlClient.SqlClient
    const [, , , , , atFinal, atLast] = sessions
    yield* sql.unsafe(queued(sessions[4]!))
    const { untouched } = yield* makeTheirs(sessions)
    /** Those of which something whole was left when the operation had ended, whatever its name. */
    let savable: ReadonlyArray<Session> = []

    const always: Check = Effect.gen(function* () {
      for (const [index, session] of sessions.entries()) {
        if ((yield* whole(session)).length > 0) continue
        if ((yield* Sessions.events(session)).includes("expired")) continue
        return yield* new Broken({ what: `the backup "${roles[index]}" is gone, and nothing tells` })
      }
      yield* untouched
    })
    const swept: Check = Effect.gen(function* () {
      for (const [index, session] of sessions.entries()) {
        if (!savable.includes(session) || !(yield* hasRun(session))) continue
        if ((yield* Sessions.restored(session)) === "current") continue
        return yield* new Broken({ what: `the backup "${roles[index]}", which a run needs, is not restored` })
      }
      yield* always
    })
    const end: Check = Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`delete from heartbeat_runs where status = 'queued' and company_id = ${owner.companyId}::uuid`
      for (let times = 0; times < 4; times++) {
        yield* World.advance("25 hours")
        yield* Sessions.sweep()
      }
      for (const [index, session] of sessions.entries()) {
        const names = yield* Sessions.names(session)
        const taskSessions = yield* Sessions.taskSessions(session)
        if (names.length + taskSessions === 0) continue
        return yield* new Broken({
          what: `of "${roles[index]}" the sweeps leave ${names.join(", ")} and ${taskSessions} task sessions`
        })
      }
      yield* untouched
    })
    const sweep: Check = Effect.gen(function* () {
      const found = yield* Effect.forEach(sessions, (session) =>
        Effect.map(whole(session, /./), (names) => (names.length > 0 ? [session] : []))
      )
      savable = found.flat()
      yield* Sessions.sweep()
    })
    return {
      task: {
        operation: { _tag: "Expire" },
        meanwhile: [
          { _tag: "Statement", at: "expiration.beforeFinalLook", statement: queued(atFinal!) },
          { _tag: "Statement", at: "expiration.beforeLastLook", statement: queued(atLast!) }
        ]
      },
      always,
      sweep,
      swept,
      end
    }
  })
}

const writeSource = (folder: string, note: string) => {
  Fs.mkdirSync(folder, { recursive: true })
  Fs.writeFileSync(`${folder}/state.json`, JSON.stringify({ note }))
  Fs.writeFileSync(`${folder}/turn.log`, `turn of ${note}\n`)
}

/** A session whose issue is open, so that its backup stays; with two backups. */
const open = Effect.gen(function* () {
  const session = yield* Sessions.expirable({
    issue: { status: "todo" },
    backups: [{}, { name: "previous", completedAt: older }]
  })
  return { session, ...(yield* makeTheirs([session])) }
})

const expectRestored = (session: Session, ...notes: ReadonlyArray<string>): Check =>
  Effect.gen(function* () {
    const note = yield* Sessions.restored(session)
    if (note !== undefined && notes.includes(note)) return
    return yield* new Broken({ what: `what is restored is ${note}, not ${notes.join(" or ")}` })
  })

const capturing = (
  name: string,
  spoil: (source: string) => void,
  ...after: ReadonlyArray<string>
): Scenario => ({
  name,
  offline: true,
  make: Effect.gen(function* () {
    const { session, untouched } = yield* open
    const { path: instance } = yield* World.Instance
    const source = `${instance}/work`
    writeSource(source, "new")
    spoil(source)
    const operation: Operations.Operation = {
      _tag: "Capture",
      scope: session.scope,
      sessionId: Ids.NativeSessionId.make(session.sessionId),
      source
    }
    const always = Effect.andThen(untouched, expectRestored(session, ...after))
    return {
      task: { operation, meanwhile: [] },
      always,
      sweep: Effect.asVoid(Sessions.sweep()),
      swept: always,
      end: Effect.gen(function* () {
        Fs.rmSync(source, { recursive: true })
        writeSource(source, "next")
        yield* Operations.run(operation)
        yield* expectRestored(session, "next")
        for (let times = 0; times < 3; times++) {
          yield* World.advance("25 hours")
          yield* Sessions.sweep()
        }
        const names = yield* Sessions.names(session)
        if (names.join() !== "current") {
          return yield* new Broken({ what: `the sweeps leave ${names.join(", ")}` })
        }
        yield* expectRestored(session, "next")
        yield* untouched
      })
    }
  })
})

const restoring: Scenario = {
  name: "restore a backup",
  offline: true,
  make: Effect.gen(function* () {
    const { session, untouched } = yield* open
    const { path: instance } = yield* World.Instance
    const parent = `${instance}-targets`
    Fs.mkdirSync(parent)
    const target = `${parent}/target`
    const always: Check = Effect.gen(function* () {
      yield* untouched
      const names = Fs.existsSync(target) ? Fs.readdirSync(target) : []
      const log = `${target}/runner/turn.log`
      if (names.length > 0 && !(Fs.existsSync(log) && Fs.readFileSync(log, "utf8") === "turn of current\n")) {
        return yield* new Broken({ what: "the target is there, and not whole" })
      }
      yield* expectRestored(session, "current")
    })
    return {
      task: { operation: { _tag: "Restore", scope: session.scope, target }, meanwhile: [] },
      always,
      sweep: Effect.asVoid(Sessions.sweep()),
      swept: always,
      end: Effect.gen(function* () {
        if (!Fs.existsSync(target) || Fs.readdirSync(target).length === 0) {
          const backups = yield* FailoverBackups.FailoverBackups
          yield* backups.restore({ scope: session.scope, target })
        }
        yield* always
        const names = Fs.readdirSync(parent)
        if (names.join() !== "target") return yield* new Broken({ what: `it leaves ${names.join(", ")}` })
      })
    }
  })
}

export const scenarios: ReadonlyArray<Scenario> = [
  expiring,
  capturing("capture", () => undefined, "current", "new"),
  capturing("a capture that fails", (source) => execFileSync("mkfifo", [`${source}/fifo`]), "current"),
  restoring
]
