/**
 * Runs a sequence of commands on real files, a real database and the real services, tells the model of each, and
 * looks after each whether everything is as the model says.
 */
import { ExpirationSettings, Ids, RetentionSettings } from "@reclaim/core"
import { Holds } from "@reclaim/db"
import { Cause, DateTime, Duration, Effect, Exit, Layer, Schema, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { execFileSync } from "node:child_process"
import * as Fs from "node:fs"
import {
  BackupExpiration,
  FailoverBackups,
  SessionActivity,
  SkillVersionCache,
  SkillVersionRetention
} from "../../src/index.ts"
import { MovableClock } from "../../src/testing.ts"
import * as SessionsWorld from "../support/SessionsWorld.ts"
import * as World from "../support/World.ts"
import type { Action, Command, During, Operation, Simple } from "./Commands.ts"
import * as Disk from "./Disk.ts"
import { type Company, type Files, Model, type Run, type Session, type Skill, type Version } from "./Model.ts"
import * as Servers from "./Servers.ts"

const { Make } = SessionsWorld

/** Something is not as the model says. */
export class Violation extends Schema.TaggedError<Violation>()("Violation", { what: Schema.String }) {
  override get message() {
    return this.what
  }
}

/** What a run of the test came to, by the journal and by count. */
export class Tally {
  commands = 0
  crashes = 0
  evicted = 0
  undone = 0
  healed = 0
  expired = 0
}

const working = new Set<string>()

/** The host's account of its sessions: one for all servers that share the disk. */
const activity = Layer.succeed(SessionActivity.SessionActivity, {
  of: ({ scope }) => Effect.sync(() => (working.has(scope) ? ["warm"] : []))
})

export const layer = Layer.mergeAll(ExpirationSettings.layer({}), activity).pipe(
  Layer.provideMerge(World.layer({ settings: RetentionSettings.defaults }))
)

const serverCount = 3

/** An operation that stands still, and what is known of it. */
interface Flight {
  readonly operation: Operation
  readonly server: number
  /** The last point that it reached. */
  point: string
  /** Whether the version that is leaving was looked at for the last time. */
  blind: boolean
  /** Whether the backups that are leaving were looked at for the last time but one. */
  confirmed: boolean
  readonly lostLock: boolean
  readonly leftovers: ReadonlySet<string>
  /** What was altered when it began: a repair may take it away for a moment. */
  readonly damaged: ReadonlySet<Version>
  /** What the commands meanwhile did something to. */
  readonly touched: Set<Version>
  readonly released: Set<Run>
  readonly captured: Set<Session>
  /** What must be there when it has ended. */
  readonly owed: Set<Version>
  readonly owedBackups: Set<Session>
  readonly mayGo: Set<Session>
  /** What somebody wrote into the database too late for it. */
  readonly tooLate: Set<string>
}

interface Started {
  readonly effect: Effect.Effect<unknown, unknown, Servers.Services>
  /** Looks at how it ended. */
  readonly ended: Effect.Effect<void, Violation>
}

const started = <A, E>(
  effect: Effect.Effect<A, E, Servers.Services>,
  ended: (exit: Exit.Exit<A, E>) => Effect.Effect<void, Violation> = () => Effect.void
): Started => {
  let seen: Exit.Exit<A, E> = Exit.interrupt()
  return {
    effect: Effect.onExit(effect, (exit) =>
      Effect.sync(() => {
        seen = exit
      })
    ),
    ended: Effect.suspend(() => ended(seen))
  }
}

const violation = (what: string) => new Violation({ what })

const pause = Duration.toMillis("61 seconds")

const nameOf = ({ revision, skill, versionId }: Version) =>
  `version ${revision} of ${skill.skillId} (${versionId})`

/** Runs sequences one after the other on servers that live on until one crashes. */
export const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const clock = yield* MovableClock.MovableClock
  const { path: instance } = yield* World.Instance
  yield* sql`update reclaim.adoption set adopted_at = '2020-01-01'`
  const servers = yield* Effect.forEach(Array.from({ length: serverCount }), () => Servers.start)
  const tally = new Tally()
  let unique = 0

  let model = new Model()
  let flight: Flight | undefined
  /** What an operation was, while its end is looked at. */
  let ended: Flight | undefined
  /** Copies that are there and must never be missing. */
  let guaranteed = new Set<Version>()
  /** Copies that a crash may have left under another name, and since when. */
  let broken = new Map<Version, number>()
  /** Contents that the database does not have. */
  let precious = new Map<string, Version>()
  let foreign = new Map<string, string>()

  const folderOf = ({ company, skillId }: Skill) =>
    `${instance}/skills/${company.companyId}/__versions__/${skillId}`
  const pathOf = (version: Version) => `${folderOf(version.skill)}/${version.versionId}`
  const backupsOf = ({ scope }: Session) =>
    `${instance}/runtime/paperclip-runner/durable-sessions/${scope}/failover-backups`
  const isThere = (version: Version) =>
    Fs.lstatSync(pathOf(version), { throwIfNoEntry: false })?.isDirectory() === true
  const isObstructed = (version: Version) =>
    Fs.lstatSync(pathOf(version), { throwIfNoEntry: false })?.isDirectory() === false

  const leftovers = () =>
    new Set(
      model.skills
        .flatMap((skill) => Disk.list(folderOf(skill)))
        .flatMap(({ kind, path }) => (kind === "staging" || kind === "evicting" ? [path] : []))
    )

  /** The version that the operation in flight has renamed. */
  const leaving = () =>
    flight === undefined
      ? undefined
      : model.versions.find((version) =>
          Disk.list(folderOf(version.skill)).some(
            ({ kind, path, versionId }) =>
              kind === "evicting" && versionId === version.versionId && flight?.leftovers.has(path) === false
          )
        )

  const at = <A>(all: ReadonlyArray<A>, index: number): A | undefined => all[index % Math.max(1, all.length)]
  const versionAt = (index: number, all = model.versions) => {
    const first = index % 3 === 0 ? undefined : leaving()
    return first !== undefined && all.includes(first) ? first : at(all, index)
  }
  const versionsOf = (company: Company) =>
    model.skills.flatMap((skill) => (skill.company === company ? skill.versions : []))

  const tick = Effect.map(DateTime.now, (now) => {
    model.now = DateTime.toEpochMillis(now)
  })

  // What the database holds.

  const inventory = (files: Files) =>
    JSON.stringify(
      Object.entries(files).map(([path, content]) => {
        const [kind] = content.split(" ", 1)
        const bytes = Buffer.from(content.slice(kind!.length + 1), "latin1")
        return {
          path,
          content: bytes.toString("base64"),
          encoding: "base64",
          executable: kind === "executable"
        }
      })
    )

  const contents = (skill: Skill, revision: number, note: string): Files => ({
    "SKILL.md": `file ${`revision ${revision} of ${skill.skillId}, ${note}`.padEnd(80)}`,
    "assets/logo.bin": "file \0\u0001\u00ff",
    "scripts/run.sh": "executable #!/bin/sh\n"
  })

  const publish = Effect.fnUntraced(function* (skill: Skill) {
    const revision = skill.versions.length + 1
    const files = contents(skill, revision, "first")
    const { companyId } = skill.company
    const { skillId } = skill
    const versionId = yield* World.Fixtures.version({ companyId, skillId, revision })
    yield* sql`update company_skill_versions set file_inventory = ${inventory(files)}::jsonb where id = ${versionId}::uuid`
    skill.versions.push({ companyId, skillId, versionId, skill, revision, files })
  })

  const begin = Effect.fnUntraced(function* (lagging: boolean) {
    working.clear()
    model = new Model()
    flight = undefined
    guaranteed = new Set()
    broken = new Map()
    precious = new Map()
    foreign = new Map()
    for (const name of Fs.readdirSync(instance)) {
      execFileSync("chmod", ["-R", "u+rwx", `${instance}/${name}`])
      Fs.rmSync(`${instance}/${name}`, { recursive: true })
    }
    yield* sql`truncate companies, reclaim.journal, reclaim.holds, reclaim.run_pins, reclaim.run_selections cascade`
    // Either years after every time that the file system gives, so that no leftover is ever young, or just
    // ahead of it.
    yield* clock.set(lagging ? World.noon : DateTime.makeUnsafe(Date.now() + 30_000))
    yield* tick
    for (let each = 0; each < 2; each++) {
      const company: Company = { ...(yield* World.Fixtures.company), agent: [] }
      model.companies.push(company)
      for (let more = 0; more < 2; more++) {
        const skillId = yield* World.Fixtures.skill(company.companyId)
        const skill: Skill = { company, skillId, versions: [], current: undefined }
        model.skills.push(skill)
        yield* publish(skill)
        yield* publish(skill)
      }
    }
  })

  // Looking.

  /** Everything on disk that is a copy, was one, or is to become one, with what it holds. */
  const survey = () =>
    model.skills.flatMap((skill) =>
      Disk.list(folderOf(skill)).flatMap((entry) => {
        const version = skill.versions.find(({ versionId }) => versionId === entry.versionId)
        return version === undefined || entry.kind === "staging"
          ? []
          : [{ ...entry, version, files: Disk.read(entry.path) }]
      })
    )
  type Survey = ReturnType<typeof survey>

  const keyOf = (version: Version, name: string, content: string) =>
    JSON.stringify([version.versionId, name, content])

  const keysOf = (found: Survey) =>
    new Set(
      found.flatMap(({ files, version }) =>
        Object.entries(files).map(([name, content]) => keyOf(version, name, content))
      )
    )

  /** Notes what the database does not have. */
  const remember = (found: Survey, rewritten: Version | undefined) => {
    for (const { files, kind, path, version } of found) {
      for (const [name, content] of Object.entries(files)) {
        if (version.files?.[name] === content) continue
        const key = keyOf(version, name, content)
        // What was looked at for the last time, or is being settled, may go in spite of it.
        const inTime =
          kind === "copy" || (kind === "evicting" && flight?.blind === false && !flight.leftovers.has(path))
        if (version === rewritten && !inTime) flight?.tooLate.add(key)
        if (flight?.tooLate.has(key) !== true) precious.set(key, version)
      }
    }
  }

  /** What somebody took away himself is not missed. */
  const accept = () => {
    const all = keysOf(survey())
    for (const key of precious.keys()) if (!all.has(key)) precious.delete(key)
  }

  const isRebuildable = (key: string, version: Version) => {
    const [, name, content]: ReadonlyArray<string> = JSON.parse(key)
    return name !== undefined && version.files?.[name] === content
  }

  /** A repair sets an altered copy aside before it publishes a good one. */
  const mayBeAway = (version: Version) =>
    flight !== undefined && (flight.damaged.has(version) || flight.touched.has(version))

  const isKept = (version: Version) => model.keeps(version).length > 0

  const missing = (version: Version, since: string) =>
    violation(
      `${since}: ${nameOf(version)} is missing (${model.keeps(version).join(", ")}); ` +
        `there are ${Disk.list(folderOf(version.skill))
          .map(({ name }) => name)
          .join(", ")}`
    )

  const check = Effect.fnUntraced(function* (rewritten?: Version) {
    yield* tick
    for (const [path, portrait] of foreign) {
      const found =
        Fs.lstatSync(path, { throwIfNoEntry: false }) === undefined ? "nothing" : Disk.portrait(path)
      if (found !== portrait) return yield* violation(`${path} was ${portrait} and is ${found}`)
    }

    const found = survey()
    const all = keysOf(found)
    for (const [key, version] of precious) {
      if (isRebuildable(key, version)) precious.delete(key)
      else if (!all.has(key)) return yield* violation(`nothing holds ${key} any more`)
    }
    remember(found, rewritten)
    const left = leaving()

    for (const version of model.versions) {
      const there = isThere(version)
      if (there) broken.delete(version)
      if (!isKept(version)) {
        guaranteed.delete(version)
        broken.delete(version)
        flight?.owed.delete(version)
      } else if (guaranteed.has(version)) {
        if (!there && !mayBeAway(version)) return yield* missing(version, "it was there")
      } else if (flight === undefined) {
        if (there) guaranteed.add(version)
      } else if (there || (!flight.blind && left === version)) flight.owed.add(version)
    }

    for (const session of model.sessions) {
      if (flight !== undefined && model.mayExpire(session)) {
        flight.mayGo.add(session)
        flight.owedBackups.delete(session)
      }
      if (flight?.mayGo.has(session) === true && !flight.owedBackups.has(session)) continue
      yield* expectBackup(session)
    }
  })

  const expectBackup = Effect.fnUntraced(function* (session: Session) {
    if (session.notes.length === 0) return
    const note = Disk.noteOf(backupsOf(session))
    if (note === undefined || !session.notes.includes(note)) {
      return yield* violation(
        `the backup of ${session.scope} says ${note} and not ${session.notes.join(" or ")}: ` +
          JSON.stringify({ ...session, at: model.now })
      )
    }
  })

  // What the host does.

  const statusOf = (run: Run, status: string) =>
    sql`update heartbeat_runs set status = ${status},
          started_at = coalesce(started_at, case when ${status} in ('queued', 'scheduled_retry') then null
            else ${new Date(model.now)}::timestamptz end)
        where id = ${run.id}::uuid`

  const insertRun = Effect.fnUntraced(function* (run: Run, row: NonNullable<Run["row"]>) {
    const now = new Date(model.now)
    yield* sql`insert into heartbeat_runs
        (id, company_id, agent_id, status, runtime_mode, started_at, created_at, retry_of_run_id)
      values (${run.id}::uuid, ${run.company.companyId}::uuid, ${run.company.agentId}::uuid, ${row.status},
        ${row.native ? "native" : "legacy"}, ${row.started ? now : null}::timestamptz, ${now},
        ${run.retryOf?.id ?? null}::uuid)`
    run.row = row
  })

  const newRun = Effect.fnUntraced(function* (company: Company, retryOf?: Run) {
    const run: Run = {
      id: yield* World.Fixtures.runId,
      company,
      retryOf,
      row: undefined,
      recorded: "no",
      pins: new Map()
    }
    model.runs.push(run)
    return run
  })

  const finalize = Effect.fnUntraced(function* (
    run: Run,
    finalization: NonNullable<Run["row"]>["finalization"]
  ) {
    if (run.row === undefined || finalization === "none") return
    const issueId = yield* Make.issue(run.company)
    const recovery = finalization === "recovering" ? "scheduled" : null
    yield* sql`insert into native_run_finalizations (run_id, company_id, issue_id, phase, recovery_state)
      values (${run.id}::uuid, ${run.company.companyId}::uuid, ${issueId}::uuid, 'committed', ${recovery})
      on conflict (run_id) do update set recovery_state = excluded.recovery_state`
    run.row.finalization = finalization
  })

  const select = Effect.fnUntraced(function* (company: Company, agent: Company["agent"]) {
    const desiredSkills =
      agent === "unreadable" ? "all of them" : agent.map(({ versionId }) => ({ key: "skill", versionId }))
    const config = JSON.stringify({ paperclipSkillSync: { desiredSkills } })
    yield* sql`update agents set adapter_config = ${config}::jsonb where id = ${company.agentId}::uuid`
    company.agent = agent
  })

  const touch = (version: Version) => flight?.touched.add(version)

  const edit = (version: Version, how: Extract<Action, { readonly _tag: "Edit" }>["how"]) => {
    // Also into a copy that is leaving, until it is looked at for the last time.
    const open =
      flight !== undefined &&
      (flight.point === "evict.afterCommit" ||
        (/^evict\.|^transaction\./.test(flight.point) && !flight.blind)) &&
      leaving() === version
    const path = isThere(version)
      ? pathOf(version)
      : Disk.list(folderOf(version.skill)).find(
          ({ kind, versionId }) => open && kind === "evicting" && versionId === version.versionId
        )?.path
    if (path === undefined) return
    touch(version)
    const document = `${path}/SKILL.md`
    if (!Fs.existsSync(document)) return
    unique += 1
    switch (how) {
      case "same size":
        return World.overwrite(document, `somebody's ${unique}`.padEnd(80))
      case "longer":
        return World.overwrite(document, `somebody's ${unique}`.padEnd(90))
      case "missing":
        return Fs.rmSync(`${path}/scripts/run.sh`, { force: true })
      case "link":
        return Fs.symlinkSync(`/nowhere/${unique}`, `${path}/link-${unique}`)
      case "extra":
        return Fs.writeFileSync(`${path}/extra-${unique}`, `somebody's ${unique}`)
    }
  }

  const plant = (
    version: Version,
    where: Extract<Action, { readonly _tag: "Plant" }>["where"],
    link: boolean
  ) => {
    unique += 1
    const company = `${instance}/skills/${version.companyId}`
    if (
      where === "name" &&
      (Fs.lstatSync(pathOf(version), { throwIfNoEntry: false }) !== undefined || isKept(version))
    ) {
      return
    }
    const path = {
      company: `${company}/__runtime__/${unique}`,
      skill: `${folderOf(version.skill)}/note-${unique}`,
      name: pathOf(version)
    }[where]
    Fs.mkdirSync(path.slice(0, path.lastIndexOf("/")), { recursive: true })
    if (link) Fs.symlinkSync(`/nowhere/${unique}`, path)
    else Fs.writeFileSync(path, `somebody's ${unique}`)
    touch(version)
    foreign.set(path, Disk.portrait(path))
  }

  const openSession = Effect.gen(function* () {
    const now = DateTime.makeUnsafe(model.now)
    unique += 1
    const note = `opened ${unique}`
    const made = yield* Make.session({ issue: { completedAt: now } })
    yield* SessionsWorld.state(made)
    yield* SessionsWorld.backup(made, { note, completedAt: now })
    if (made.issueId === null) return
    model.sessions.push({
      scope: made.scope,
      sessionId: made.sessionId,
      issueId: made.issueId,
      runId: made.runId,
      owner: made,
      closedAt: model.now,
      unfinished: 0,
      settled: true,
      leased: false,
      working: false,
      cleanup: false,
      held: false,
      writtenAt: model.now,
      notes: [note]
    })
  })

  const happen = Effect.fnUntraced(function* (
    session: Session,
    event: Extract<Action, { readonly _tag: "Session" }>["event"]
  ) {
    const now = new Date(model.now)
    const { issueId, owner, runId, scope, sessionId } = session
    const activation = `${backupsOf(session)}/../cleanup-activation.json`
    switch (event) {
      case "close":
        yield* sql`update issues set status = 'done', completed_at = ${now} where id = ${issueId}::uuid`
        session.closedAt = model.now
        break
      case "reopen":
        yield* sql`update issues set status = 'in_progress', completed_at = null where id = ${issueId}::uuid`
        session.closedAt = undefined
        break
      case "follow":
        yield* Make.run(owner, { status: "queued", mode: "legacy", sessionId, issueId, finishedAt: null })
        session.unfinished += 1
        break
      case "finish":
        yield* sql`update heartbeat_runs set status = 'succeeded', finished_at = ${now}
          where native_session_id = ${sessionId}::uuid and status = 'queued'`
        session.unfinished = 0
        break
      case "unsettle":
      case "settle":
        yield* sql`update native_run_finalizations set phase = ${event === "settle" ? "committed" : "pending"}
          where run_id = ${runId}::uuid`
        session.settled = event === "settle"
        break
      case "lease":
        yield* Make.lease(owner, { metadata: { scope } })
        session.leased = true
        break
      case "unlease":
        yield* sql`delete from environment_leases where metadata ->> 'scope' = ${scope}`
        session.leased = false
        break
      case "work":
        working.add(scope)
        session.working = true
        break
      case "rest":
        working.delete(scope)
        session.working = false
        break
      case "cleanup":
        Fs.writeFileSync(activation, "{}")
        session.cleanup = true
        break
      case "cleaned":
        Fs.rmSync(activation, { force: true })
        session.cleanup = false
        break
      case "unhold":
        yield* sql`delete from reclaim.holds where scope = ${scope}`
        session.held = false
    }
    if (flight?.operation._tag === "Expire" && !flight.confirmed && !model.mayExpire(session)) {
      const note = Disk.noteOf(backupsOf(session))
      if (note !== undefined && session.notes.includes(note)) flight.owedBackups.add(session)
    }
  })

  /** Returns the version whose row was written. */
  const act = Effect.fnUntraced(function* (action: Action) {
    switch (action._tag) {
      case "Advance":
        yield* clock.adjust(action.by)
        return yield* tick
      case "Publish": {
        const skill = at(model.skills, action.skill)
        if (skill !== undefined && skill.versions.length < 6) yield* publish(skill)
        return
      }
      case "SetCurrent": {
        const version = versionAt(action.version)
        if (version === undefined) return
        const { skill, skillId, versionId } = version
        yield* sql`update company_skills set current_version_id = ${versionId}::uuid where id = ${skillId}::uuid`
        skill.current = version
        return
      }
      case "Rewrite": {
        const version = versionAt(action.version)
        if (version === undefined) return
        touch(version)
        unique += 1
        const note = action.to === "first" ? "first" : `written ${unique}`
        const files = action.to === "unusable" ? undefined : contents(version.skill, version.revision, note)
        const rows = files === undefined ? '"nonsense"' : inventory(files)
        yield* sql`update company_skill_versions set file_inventory = ${rows}::jsonb
          where id = ${version.versionId}::uuid`
        version.files = files
        return version
      }
      case "Start": {
        const known = at(model.runs, action.run)
        const company = at(model.companies, action.run)
        if (company === undefined) return
        const started = action.status !== "queued"
        if (known === undefined || (known.row !== undefined && action.run % 2 === 0)) {
          const run = yield* newRun(company)
          yield* insertRun(run, {
            status: action.status,
            native: action.native,
            started,
            finalization: "none"
          })
        } else if (known.row === undefined) {
          yield* insertRun(known, {
            status: action.status,
            native: action.native,
            started,
            finalization: "none"
          })
        } else if (known.row.status === "queued") {
          yield* statusOf(known, action.status)
          known.row.status = action.status
          known.row.started = started
        }
        return
      }
      case "End": {
        const run = at(model.runs, action.run)
        if (run?.row === undefined) return
        yield* finalize(run, action.finalization)
        yield* statusOf(run, action.status)
        run.row.status = action.status
        run.row.started = true
        return
      }
      case "Retry": {
        const run = at(model.runs, action.run)
        if (run?.row === undefined) return
        const retry = yield* newRun(run.company, run)
        yield* insertRun(retry, { status: "queued", native: false, started: false, finalization: "none" })
        return
      }
      case "Select": {
        const company = at(model.companies, action.company)
        const chosen = action.versions.flatMap((index) => versionAt(index) ?? [])
        const owner = chosen[0]?.skill.company ?? company
        if (owner !== undefined)
          yield* select(
            owner,
            chosen.filter(({ skill }) => skill.company === owner)
          )
        return
      }
      case "Scramble": {
        const company = at(model.companies, action.company)
        if (company !== undefined) yield* select(company, "unreadable")
        return
      }
      case "Unhold": {
        const version = at([...model.held], action.version)
        if (version === undefined) return
        yield* sql`delete from reclaim.holds where version_id = ${version.versionId}::uuid`
        model.held.delete(version)
        return
      }
      case "Edit": {
        const version = versionAt(action.version)
        if (version !== undefined) edit(version, action.how)
        return accept()
      }
      case "Lose": {
        const pinned = [...model.activelyPinned].filter(isThere)
        const version = at(
          pinned.length > 0 && action.version % 2 === 1 ? pinned : model.versions,
          action.version
        )
        if (version === undefined || !isThere(version)) return
        Fs.rmSync(pathOf(version), { recursive: true })
        touch(version)
        guaranteed.delete(version)
        broken.delete(version)
        flight?.owed.delete(version)
        return accept()
      }
      case "Plant": {
        const version = at(model.versions, action.version)
        if (version !== undefined) plant(version, action.where, action.link)
        return
      }
      case "Open":
        return model.sessions.filter(({ notes }) => notes.length > 0).length < 6
          ? yield* openSession
          : undefined
      case "Session": {
        const backedUp = model.sessions.filter(({ notes }) => notes.length > 0)
        const session = at(backedUp, action.session)
        if (session !== undefined) yield* happen(session, action.event)
      }
    }
  })

  // What servers do.

  /** What an answer promises. `since` is when it was asked for. */
  const answered = Effect.fnUntraced(function* (
    version: Version,
    prepared: SkillVersionCache.Prepared,
    verify: SkillVersionCache.Verify,
    since: number,
    during: Flight | undefined
  ) {
    const disturbed = during?.touched.has(version) === true || flight?.touched.has(version) === true
    if (prepared._tag === "Missing") {
      const explained =
        version.files === undefined || isObstructed(version) || disturbed || flight !== undefined
      return explained || during?.lostLock === true
        ? undefined
        : yield* violation(`${nameOf(version)} could not be had: ${JSON.stringify(prepared.reason)}`)
    }
    model.used.set(version, Math.max(since, model.used.get(version) ?? 0))
    if (disturbed || !isKept(version) || during?.lostLock === true) return
    if (!isThere(version)) return yield* missing(version, "it was just prepared")
    if (flight?.lostLock !== true) guaranteed.add(version)
    if (version.files === undefined) return
    const found = Disk.read(pathOf(version))
    const good =
      verify === "digest" || prepared.restored
        ? Disk.isSame(found, version.files)
        : Disk.isAlike(found, version.files)
    if (!good) return yield* violation(`${nameOf(version)} is ready with ${JSON.stringify(found)}`)
  })

  const prepare = Effect.fnUntraced(function* (operation: Extract<Operation, { readonly _tag: "Prepare" }>) {
    const first = versionAt(operation.versions[0] ?? 0)
    const company = first?.skill.company ?? model.companies[0]!
    const runs = model.runs.filter((run) => run.company === company)
    const run = runs[operation.run % (runs.length + 1)] ?? (yield* newRun(company))
    const versions = operation.versions.flatMap((index) => versionAt(index, versionsOf(company)) ?? [])
    const since = model.now
    if (run.recorded === "no") run.recorded = "unknown"
    return started(
      Effect.flatMap(SkillVersionCache.SkillVersionCache, (cache) =>
        cache.prepare({
          companyId: company.companyId,
          runId: run.id,
          versions: versions.map(({ versionId }) => versionId),
          verify: operation.verify
        })
      ),
      Effect.fnUntraced(function* (exit) {
        if (Exit.isFailure(exit)) return
        if ((flight ?? ended)?.released.has(run) !== true) {
          run.recorded = "yes"
          for (const version of versions) run.pins.set(version, since)
        }
        for (const prepared of exit.value) {
          const version = versions.find(({ versionId }) => versionId === prepared.versionId)
          if (version !== undefined) yield* answered(version, prepared, operation.verify, since, ended)
        }
      })
    )
  })

  const restore = (versions: ReadonlyArray<Version>, verify: SkillVersionCache.Verify) => {
    const since = model.now
    return started(
      Effect.flatMap(SkillVersionCache.SkillVersionCache, (cache) =>
        Effect.forEach(versions, ({ companyId, versionId }) =>
          cache.restore({ companyId, versionId, verify })
        )
      ),
      Effect.fnUntraced(function* (exit) {
        if (Exit.isFailure(exit)) return
        for (const [index, prepared] of exit.value.entries()) {
          const version = versions[index]
          if (version !== undefined) yield* answered(version, prepared, verify, since, ended)
        }
      })
    )
  }

  const hold = (version: Version) =>
    started(
      Effect.flatMap(Holds.Holds, (holds) =>
        holds.holdVersion(version.companyId, version.versionId, "operator", "a look")
      ),
      (exit) => Effect.sync(() => void (Exit.isSuccess(exit) && model.held.add(version)))
    )

  const sweep = (batchLimit: number) => {
    model.forget()
    const since = model.now
    return started(
      Effect.flatMap(SkillVersionRetention.SkillVersionRetention, (retention) =>
        Stream.runDrain(retention.sweep({ batchLimit }))
      ),
      Effect.fnUntraced(function* (exit) {
        model.forget()
        if (Exit.isFailure(exit) || flight !== undefined || ended !== undefined) return
        for (const version of model.activelyPinned) {
          if (version.files !== undefined && !isObstructed(version) && !isThere(version)) {
            return yield* missing(version, "a sweep did not heal it")
          }
        }
        for (const [version, from] of broken) {
          if (since - from >= pause && !isObstructed(version) && !isThere(version)) {
            return yield* missing(version, "a sweep after a crash did not bring it back")
          }
        }
      })
    )
  }

  const expire = () => {
    const mayGo = new Set(model.sessions.filter((session) => model.mayExpire(session)))
    return started(
      Effect.flatMap(BackupExpiration.BackupExpiration, (expiration) => Stream.runDrain(expiration.sweep())),
      () => gone(mayGo, ended)
    )
  }

  /** The backups that went with permission. */
  const gone = Effect.fnUntraced(function* (mayGo: ReadonlySet<Session>, during: Flight | undefined) {
    for (const session of model.sessions) {
      if (during?.owedBackups.has(session) === true) yield* expectBackup(session)
      const allowed = mayGo.has(session) || during?.mayGo.has(session) === true
      if (allowed && Disk.noteOf(backupsOf(session)) === undefined) session.notes = []
      yield* expectBackup(session)
    }
  })

  const capture = Effect.fnUntraced(function* (session: Session) {
    // A capture takes its time: the backup before it is older.
    yield* clock.adjust("1 second")
    yield* tick
    unique += 1
    const note = `captured ${unique}`
    const source = `${instance}/sandbox-${session.scope}`
    Fs.mkdirSync(source, { recursive: true })
    Fs.writeFileSync(`${source}/state.json`, JSON.stringify({ note }))
    const since = model.now
    if (session.notes.length > 0) session.notes = [...session.notes, note]
    flight?.captured.add(session)
    return started(
      Effect.flatMap(FailoverBackups.FailoverBackups, (backups) =>
        backups.capture({
          scope: session.scope,
          identity: {
            normalizedSessionId: Ids.NativeSessionId.make(session.sessionId),
            providerKind: "codex"
          },
          sources: [{ name: "runner", path: source }]
        })
      ),
      (exit) =>
        Effect.sync(() => {
          if (Exit.isFailure(exit) || ended?.captured.has(session) === true) return
          session.notes = [note]
          session.writtenAt = since
        })
    )
  })

  const restoreBackup = (session: Session) => {
    const target = `${instance}/restored-${crypto.randomUUID()}`
    const certain = session.notes.length > 0 && (flight === undefined || !model.mayExpire(session))
    return started(
      Effect.flatMap(FailoverBackups.FailoverBackups, (backups) =>
        backups.restore({ scope: session.scope, target })
      ),
      Effect.fnUntraced(function* (exit) {
        if (!certain || ended !== undefined) return
        if (Exit.isFailure(exit))
          return yield* violation(
            `the backup of ${session.scope} cannot be restored: ${Cause.pretty(exit.cause)}`
          )
        const note = /"note":"(.*)"/.exec(Fs.readFileSync(`${target}/runner/state.json`, "utf8"))?.[1]
        if (note === undefined || !session.notes.includes(note)) {
          return yield* violation(
            `the backup of ${session.scope} was restored as ${note}, not ${session.notes.join(" or ")}`
          )
        }
      })
    )
  }

  const nothing = started(Effect.void)

  const begun = Effect.fnUntraced(function* (operation: Operation) {
    switch (operation._tag) {
      case "Prepare":
        return yield* prepare(operation)
      case "Restore": {
        const version = versionAt(operation.version)
        return version === undefined ? nothing : restore([version], operation.verify)
      }
      case "RestoreAll": {
        const skill = at(model.skills, operation.skill)
        return skill === undefined ? nothing : restore(skill.versions, "shape")
      }
      case "Release": {
        const run = at(model.runs, operation.run)
        if (run === undefined) return nothing
        run.pins.clear()
        flight?.released.add(run)
        return started(Effect.flatMap(SkillVersionCache.SkillVersionCache, (cache) => cache.release(run.id)))
      }
      case "Hold": {
        const version = versionAt(operation.version)
        return version === undefined ? nothing : hold(version)
      }
      case "Sweep":
        return sweep(operation.batchLimit)
      case "Expire":
        return expire()
      default: {
        const session = at(model.sessions, operation.session)
        if (session === undefined) return nothing
        if (operation._tag === "Capture") return yield* capture(session)
        if (operation._tag === "RestoreBackup") return restoreBackup(session)
        return started(
          Effect.flatMap(Holds.Holds, (holds) => holds.holdScope(session.scope, "operator", "a look")),
          (exit) => Effect.sync(() => void (Exit.isSuccess(exit) && (session.held = true)))
        )
      }
    }
  })

  const failed = (operation: Operation, { cause }: Exit.Failure<unknown, unknown>) =>
    violation(`${operation._tag} failed: ${Cause.pretty(cause)}`)

  const simple = Effect.fnUntraced(function* (command: Simple) {
    tally.commands += 1
    yield* tick
    if (command._tag === "Act") {
      // Whoever holds a lock on the rows stands still, so that the host cannot write now.
      const written = yield* act(command.action).pipe(
        Effect.catchTag("SqlError", (error) => (flight === undefined ? Effect.die(error) : Effect.void))
      )
      return yield* check(written ?? undefined)
    }
    const index =
      flight === undefined ? command.server : flight.server + 1 + (command.server % (serverCount - 1))
    const server = servers[index % serverCount]!
    const operation = yield* begun(command.operation)
    const run = yield* Servers.runUntil(server, operation.effect, undefined, () => undefined)
    const exit = run.ended ?? (yield* run.goOn)
    if (Exit.isFailure(exit) && flight === undefined && command.operation._tag !== "RestoreBackup") {
      return yield* failed(command.operation, exit)
    }
    yield* operation.ended
    yield* check()
  })

  const crash = Effect.fnUntraced(function* (index: number) {
    yield* Servers.kill(servers[index]!)
    servers[index] = yield* Servers.start
    tally.crashes += 1
  })

  const during = Effect.fnUntraced(function* (command: During) {
    tally.commands += 1
    yield* tick
    const index = command.server % serverCount
    const server = servers[index]!
    const damaged = /^(Prepare|Restore|RestoreAll)$/.test(command.operation._tag)
      ? model.versions.filter(
          (version) =>
            isThere(version) &&
            version.files !== undefined &&
            !Disk.isSame(Disk.read(pathOf(version)), version.files)
        )
      : []
    const own: Flight = {
      operation: command.operation,
      server: index,
      point: "",
      blind: false,
      confirmed: false,
      lostLock: command.ending.startsWith("lose"),
      leftovers: leftovers(),
      damaged: new Set(damaged),
      touched: new Set(),
      released: new Set(),
      captured: new Set(),
      owed: new Set(),
      owedBackups: new Set(),
      mayGo: new Set(model.sessions.filter((session) => model.mayExpire(session))),
      tooLate: new Set()
    }
    const operation = yield* begun(command.operation)
    const run = yield* Servers.runUntil(server, operation.effect, command, (point) => {
      own.confirmed ||= own.point === "expiration.beforeFinalLook"
      own.point = point
      if (point === "evict.afterSecondLook") own.blind = true
      if (point === "evict.beforeLock") own.blind = false
    })
    if (run.ended !== undefined) {
      if (Exit.isFailure(run.ended) && command.operation._tag !== "RestoreBackup") {
        return yield* failed(command.operation, run.ended)
      }
      yield* operation.ended
      yield* check()
      return yield* Effect.forEach(command.meanwhile, simple, { discard: true })
    }

    flight = own
    if (own.lostLock) yield* Servers.disconnect(server)
    yield* check()
    yield* Effect.forEach(command.meanwhile, simple, { discard: true })
    yield* tick

    if (command.ending.endsWith("crash")) {
      yield* crash(index)
      flight = undefined
      for (const version of [...own.owed, ...guaranteed]) {
        if (isThere(version)) continue
        const lost = own.damaged.has(version) || own.touched.has(version)
        if (!own.owed.has(version) && !lost) continue
        guaranteed.delete(version)
        if (!lost) broken.set(version, model.now)
      }
      if (command.operation._tag === "Expire") yield* gone(own.mayGo, own)
      return yield* check()
    }

    const exit = yield* command.ending === "interrupt" ? run.interrupt : run.goOn
    yield* tick
    flight = undefined
    ended = own
    const excused = own.lostLock || command.ending === "interrupt" || command.operation._tag === "Capture"
    if (Exit.isFailure(exit) && !excused && command.operation._tag !== "RestoreBackup") {
      return yield* failed(command.operation, exit)
    }
    yield* operation.ended
    ended = undefined
    for (const version of own.owed) {
      if (!isThere(version) && !isObstructed(version))
        return yield* missing(version, `after ${command.point}`)
    }
    const left = [...leftovers()].filter((path) => !own.leftovers.has(path))
    if (left.length > 0 && !own.lostLock)
      return yield* violation(`${left.join(", ")} was left without a crash`)
    yield* check()
  })

  // The end.

  const sweepOnce = (server: number) =>
    simple({ _tag: "Do", server, operation: { _tag: "Sweep", batchLimit: 50 } })
  const expireOnce = (server: number) => simple({ _tag: "Do", server, operation: { _tag: "Expire" } })

  const expectNothingUnexplained = Effect.gen(function* () {
    for (const skill of model.skills) {
      for (const { kind, name, path, versionId } of Disk.list(folderOf(skill))) {
        const version = skill.versions.find((each) => each.versionId === versionId)
        const holdsMore =
          version !== undefined &&
          Object.entries(Disk.read(path)).some(([file, content]) => version.files?.[file] !== content)
        const incomplete =
          version?.files !== undefined &&
          Object.keys(Disk.read(path)).length < Object.keys(version.files).length
        const explained =
          kind === "copy"
            ? skill.current === version || holdsMore || incomplete
            : kind === "replaced" || kind === "evicting"
              ? holdsMore
              : kind === "other" && foreign.has(path)
        if (!explained) return yield* violation(`in the end ${name} is left in ${folderOf(skill)}`)
      }
    }
    for (const session of model.sessions) {
      const folder = backupsOf(session)
      const names = Fs.existsSync(folder) ? Fs.readdirSync(folder) : []
      if (names.length > 0)
        return yield* violation(`in the end ${names.join(", ")} is left of ${session.scope}`)
    }
    const temporary = Fs.readdirSync(instance, { recursive: true, encoding: "utf8" }).filter((name) =>
      /__version_access__.*\.tmp$/.test(name)
    )
    if (temporary.length > 0) return yield* violation(`in the end ${temporary.join(", ")} is left`)
  })

  /** After everything, the next sweeps put right what crashes left, and let go of what nobody needs any more. */
  const converge = Effect.gen(function* () {
    yield* act({ _tag: "Advance", by: "61 seconds" })
    yield* sweepOnce(0)
    yield* act({ _tag: "Advance", by: "61 minutes" })
    yield* sweepOnce(1)

    yield* sql`update heartbeat_runs set status = 'succeeded', finished_at = coalesce(finished_at, created_at)`
    yield* sql`update heartbeat_runs set runtime_mode = 'legacy' where native_session_id is null`
    yield* sql`update native_run_finalizations set phase = 'committed', recovery_state = null`
    yield* sql`delete from environment_leases`
    yield* sql`delete from reclaim.holds`
    for (const run of model.runs) {
      if (run.row === undefined) continue
      run.row.status = "succeeded"
      run.row.finalization = "committed"
    }
    for (const company of model.companies) yield* select(company, [])
    model.held.clear()
    for (const session of model.sessions) {
      Object.assign(session, { unfinished: 0, settled: true, leased: false, held: false })
      for (const event of ["close", "rest", "cleaned"] as const) yield* happen(session, event)
    }
    yield* act({ _tag: "Advance", by: "8 days" })
    for (let pass = 0; pass < 3; pass++) {
      yield* sweepOnce(pass)
      yield* expireOnce(pass)
      yield* act({ _tag: "Advance", by: "25 hours" })
    }
    yield* expectNothingUnexplained
    for (const skill of model.skills.keys()) {
      yield* simple({ _tag: "Do", server: skill, operation: { _tag: "RestoreAll", skill } })
    }
  })

  const count = Effect.gen(function* () {
    const rows = yield* sql<{ readonly event: string; readonly count: number }>`
      select event, count(*)::int as count from reclaim.journal group by event`
    const of = (event: string) => rows.find((row) => row.event === event)?.count ?? 0
    tally.evicted += of("evicted")
    tally.undone += of("undone")
    tally.healed += of("healed")
    tally.expired += of("expired")
  })

  const run = Effect.fnUntraced(
    function* (commands: ReadonlyArray<Command>, lagging: boolean) {
      yield* begin(lagging)
      for (const command of commands) {
        yield* (command._tag === "During" ? during(command) : simple(command)).pipe(
          Effect.mapError((error) =>
            violation(
              `${JSON.stringify(command)}: ${error instanceof Violation ? error.what : String(error)}`
            )
          )
        )
      }
      yield* converge
      yield* count
    },
    // Whatever else went wrong is a violation too, so that the sequence is shrunk.
    Effect.catchCause((cause) => violation(String(cause)))
  )

  return { run, tally }
})
