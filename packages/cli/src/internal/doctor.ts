/** `reclaim doctor`. */
import { ExpirationSettings, type Ids, RetentionSettings } from "@reclaim/core"
import { DatabaseClock, DatabaseHealth, HostSchema, Migrations, SkillPins, Transactions } from "@reclaim/db"
import { BackupStore, BytePath, InstanceRoots, PosixFileSystem, VersionStore } from "@reclaim/fs"
import { SessionBackups, SkillVersions } from "@reclaim/runtime"
import {
  Array as Arr,
  type Cause,
  Clock,
  type Config,
  ConfigProvider,
  DateTime,
  Duration,
  Effect,
  FileSystem,
  Layer,
  Option,
  Result,
  Stream
} from "effect"
import { Command } from "effect/cli"
import * as Output from "../Output.ts"
import { layerClient, layerRoots } from "./connection.ts"
import { fromCause, Unsuccessful } from "./failure.ts"
import type { Subcommand } from "./flags.ts"
import { Printer } from "./printer.ts"
import { type Column, row } from "./table.ts"
import { count, formatBytes, formatInstant, formatMillis } from "./units.ts"

/** What one check found. */
export type Finding = Omit<Output.Check, "type">

const ok = (name: string, detail: string): Finding => ({ name, status: "ok", detail, advice: null })
const warning = (name: string, detail: string, advice: string): Finding => ({
  name,
  status: "warning",
  detail,
  advice
})
const failed = (name: string, detail: string, advice: string | null): Finding => ({
  name,
  status: "failed",
  detail,
  advice
})

/** The sentence of whatever ended a check; an interruption is no finding. */
const explain = <E>(cause: Cause.Cause<E>, finding: (message: string) => Finding) =>
  Option.match(fromCause(cause), {
    onNone: () => Effect.failCause(cause),
    onSome: ({ message }) => Effect.succeed([finding(message)])
  })

/** A check that cannot be made is a finding too, and the others go on. */
const attempt = <E, R>(name: string, check: Effect.Effect<ReadonlyArray<Finding>, E, R>) =>
  Effect.catchCause(check, (cause) => explain(cause, (message) => failed(name, message, null)))

// 3: a line that names more is not read.
const shown = 3

const some = (items: ReadonlyArray<string>): string =>
  items.length <= shown
    ? items.join(", ")
    : `${items.slice(0, shown).join(", ")} and ${(items.length - shown).toLocaleString("en-US")} more`

// --- settings

const mistakes = Effect.fnUntraced(function* (variables: Readonly<Record<string, Config.Config<unknown>>>) {
  const provider = yield* ConfigProvider.ConfigProvider
  const parsed = yield* Effect.forEach(Object.values(variables), (variable) =>
    Effect.exit(variable.parse(provider))
  )
  return parsed.flatMap((exit) => (exit._tag === "Failure" ? Option.toArray(fromCause(exit.cause)) : []))
})

const mode = ({ dryRun, enabled }: { readonly dryRun: boolean; readonly enabled: boolean }): string =>
  enabled ? (dryRun ? "on, as a dry run" : "on") : "off"

const checkSettings = Effect.gen(function* () {
  const wrong = [
    ...(yield* mistakes(RetentionSettings.variables)),
    ...(yield* mistakes(ExpirationSettings.variables))
  ]
  if (wrong.length > 0) {
    return wrong.map(({ message }) =>
      failed("settings", message, "correct the variable: no server and no sweep starts with it")
    )
  }
  const retention = yield* RetentionSettings.config
  const expiration = yield* ExpirationSettings.config
  return [
    ok(
      "settings",
      `skill versions: ${mode(retention)}, unused for ${Duration.format(retention.grace)}, newest kept: ${retention.keep}; ` +
        `session backups: ${mode(expiration)}, closed for ${Duration.format(expiration.window)}`
    )
  ]
})

// --- the instance

const checkPlatform = Effect.map(PosixFileSystem.platform, (system) =>
  system === "linux" || system === "darwin"
    ? [ok("platform", system)]
    : [failed("platform", system, "Reclaim runs on Linux and macOS")]
)

const permissionAdvice = "run it as the user that the server runs as, or give that user the folder"

const checkFolder = Effect.fnUntraced(function* (name: string, path: string, absent: string) {
  const files = yield* FileSystem.FileSystem
  const posix = yield* PosixFileSystem.PosixFileSystem
  const found = yield* Effect.result(posix.lstat(path))
  if (Result.isFailure(found)) {
    const { code } = found.failure
    return code === "ENOENT"
      ? warning(name, `${path} does not exist`, absent)
      : failed(name, `${path} cannot be looked at (${code})`, permissionAdvice)
  }
  const may = (access: "readable" | "writable") => Effect.isSuccess(files.access(path, { [access]: true }))
  if (!(yield* may("readable"))) return failed(name, `${path} cannot be read`, permissionAdvice)
  if (!(yield* may("writable"))) return failed(name, `${path} cannot be written`, permissionAdvice)
  return ok(name, path)
})

// 5 % and 1 GiB: below either, the next backup or restoration may find no room.
const leastShare = 20n
const leastBytes = 1024n ** 3n

/** Whether a volume has room. */
export const judgeVolume = (
  name: string,
  { available, total }: Pick<PosixFileSystem.VolumeInfo, "available" | "total">
): Finding => {
  const detail = `${formatBytes(available)} free of ${formatBytes(total)}`
  return available < leastBytes || available * leastShare < total
    ? warning(name, detail, "make room: reclaim skills sweep --until-free 10GB, then reclaim backups sweep")
    : ok(name, detail)
}

const checkVolumes = Effect.gen(function* () {
  const posix = yield* PosixFileSystem.PosixFileSystem
  const { instance, sessions, skills } = yield* InstanceRoots.InstanceRoots
  const at = Effect.fnUntraced(function* (path: string) {
    const present = (yield* Effect.isSuccess(posix.lstat(path))) ? path : instance
    return { dev: (yield* posix.lstat(present)).dev, volume: yield* posix.volume(present) }
  })
  const copies = yield* at(skills)
  const backups = yield* at(sessions)
  return copies.dev === backups.dev
    ? [judgeVolume("disk space", copies.volume)]
    : [
        judgeVolume("disk space of skills", copies.volume),
        judgeVolume("disk space of sessions", backups.volume)
      ]
})

const checkFolders = Effect.gen(function* () {
  const roots = yield* InstanceRoots.InstanceRoots
  return [
    yield* checkFolder("instance folder", roots.instance, "name the instance with --instance"),
    yield* checkFolder(
      "skills folder",
      roots.skills,
      "nothing to do if no run was ever prepared here; else --instance names another folder than the server's"
    ),
    yield* checkFolder(
      "sessions folder",
      roots.sessions,
      "nothing to do if no session was ever backed up here; else set PAPERCLIP_RUNNER_STATE_DIR as the server does"
    ),
    roots.caseInsensitive
      ? warning(
          "letter case",
          "the volume of the skills does not tell upper from lower case",
          "versions with two files whose names differ by case alone cannot be restored here; use another volume"
        )
      : ok("letter case", "the volume of the skills tells upper from lower case")
  ]
})

// --- leftovers

type Kind = "staging" | "evicting" | "replaced" | "trash" | "pending" | "retiring" | "expired" | "restoring"

const fates: Readonly<Record<Kind, string>> = {
  staging: "being restored; a sweep drops what is older than an hour and the grace",
  evicting: "a sweep gives it its name back, or drops it where the copy is there again",
  replaced: "set aside by a repair; a sweep drops it once the database holds all of it, else it stays",
  trash: "a sweep deletes it",
  pending: "being captured; a sweep drops it after 24 hours, unless a run of the session is unfinished",
  retiring: "a sweep makes it current again, or drops it where a newer backup is whole",
  expired: "a sweep deletes it, unless a run of the session has appeared",
  restoring: "being restored; restoring to the same folder again removes it after 24 hours"
}

const remedies: Readonly<Record<Kind, string>> = {
  staging: "reclaim skills sweep",
  evicting: "reclaim skills sweep",
  replaced: "compare it with reclaim skills audit --company ID, and remove by hand what nobody needs",
  trash: "reclaim skills sweep",
  pending: "reclaim backups sweep",
  retiring: "reclaim backups sweep",
  expired: "reclaim backups sweep",
  restoring: "remove it by hand if no restoration is running"
}

const versionKinds = {
  Staging: "staging",
  Evicting: "evicting",
  Replaced: "replaced",
  Trash: "trash"
} as const satisfies Record<string, Kind>

const backupKinds = {
  Pending: "pending",
  Retiring: "retiring",
  Expired: "expired"
} as const satisfies Record<BackupStore.LeftoverKind, Kind>

/** What a look at all folders gathers. Mutable: it is that look's own. */
interface Survey {
  readonly now: number
  readonly leftovers: Map<Kind, { readonly paths: Array<string>; old: number }>
  readonly unreadable: Array<string>
  readonly unwritable: Array<string>
}

// 24 hours: sweeps run hourly, and every rule for leftovers has waited long enough by then.
const settledWithin = Duration.toMillis(Duration.hours(24))

// The change time: a rename to the name of a leftover sets it.
const add = ({ leftovers, now }: Survey, kind: Kind, path: string, ctimeNs: bigint) => {
  const found = leftovers.get(kind) ?? { paths: [], old: 0 }
  found.paths.push(path)
  if (now - Number(ctimeNs / 1_000_000n) > settledWithin) found.old += 1
  leftovers.set(kind, found)
}

const noteWritable = Effect.fnUntraced(function* ({ unwritable }: Survey, path: string) {
  const files = yield* FileSystem.FileSystem
  if (!(yield* Effect.isSuccess(files.access(path, { writable: true })))) unwritable.push(path)
})

const surveyVersions = (survey: Survey) =>
  Effect.flatMap(VersionStore.VersionStore, (store) =>
    Stream.runForEach(
      store.entries(),
      Effect.fnUntraced(function* (entry) {
        switch (entry._tag) {
          case "Entry":
            if (entry.name._tag === "Copy") return
            return add(survey, versionKinds[entry.name._tag], entry.shownPath, entry.info.ctimeNs)
          case "Obstacle":
            if (entry.reason._tag === "Unreadable") survey.unreadable.push(entry.reason.path)
            return
          case "SkillEnd":
            return yield* noteWritable(survey, entry.shownPath)
        }
      })
    )
  )

// 8: as many scopes as a sweep looks at at once.
const scopesAtOnce = 8

const surveyBackups = (survey: Survey) =>
  Effect.flatMap(BackupStore.BackupStore, (store) =>
    store.scopes().pipe(
      Stream.mapEffect(
        Effect.fnUntraced(function* (entry) {
          if (entry._tag === "Obstacle") return entry
          const state = yield* store.inspect(entry.scope)
          const { current, previous, retiring } = state
          if (Option.isSome(current) || Option.isSome(previous) || retiring.length > 0) {
            yield* noteWritable(survey, store.pathOf(entry.scope))
          }
          yield* surveyRestorations(survey, entry.path)
          return { _tag: "State" as const, state }
        }),
        { concurrency: scopesAtOnce }
      ),
      Stream.runForEach((found) =>
        Effect.sync(() => {
          const obstacles = found._tag === "State" ? found.state.obstacles : [found.reason]
          for (const reason of obstacles) {
            if (reason._tag === "Unreadable") survey.unreadable.push(reason.path)
          }
          if (found._tag === "Obstacle") return
          const { expired, pending, retiring } = found.state
          for (const { info, kind, path } of [...pending, ...retiring, ...expired]) {
            add(survey, backupKinds[kind], path, info.ctimeNs)
          }
        })
      )
    )
  )

/** Restorations that were cut short, beside where they were to go. */
const surveyRestorations = Effect.fnUntraced(function* (survey: Survey, folder: string) {
  const posix = yield* PosixFileSystem.PosixFileSystem
  yield* posix.names(folder).pipe(
    Stream.runForEach(
      Effect.fnUntraced(function* ({ name }) {
        if (BytePath.text(name)?.startsWith(".restoring-") !== true) return
        const path = BytePath.join(folder, name)
        const info = yield* posix.lstat(path)
        add(survey, "restoring", BytePath.show(path), info.ctimeNs)
      })
    ),
    // What cannot be listed, or is gone, is told by the checks of the folders.
    Effect.ignore
  )
})

const checkContents = Effect.gen(function* () {
  const roots = yield* InstanceRoots.InstanceRoots
  const survey: Survey = {
    now: yield* Clock.currentTimeMillis,
    leftovers: new Map(),
    unreadable: [],
    unwritable: []
  }
  yield* surveyVersions(survey)
  yield* surveyBackups(survey)
  yield* surveyRestorations(survey, roots.instance)
  yield* surveyRestorations(survey, roots.sessions)
  const { leftovers, unreadable } = survey
  const told = new Set(unreadable)
  const unwritable = survey.unwritable.filter((path) => !told.has(path))
  const findings: Array<Finding> = []
  if (unreadable.length > 0) {
    findings.push(failed("permissions", `cannot be read: ${some(unreadable)}`, permissionAdvice))
  }
  if (unwritable.length > 0) {
    findings.push(failed("permissions", `cannot be written: ${some(unwritable)}`, permissionAdvice))
  }
  if (findings.length === 0) {
    findings.push(ok("permissions", "every folder of a skill and of a backup can be read and written"))
  }
  for (const [kind, { old, paths }] of leftovers) {
    const detail = `${count(paths.length, "folder")} .${kind}: ${fates[kind]}: ${some(paths)}`
    findings.push(
      old > 0
        ? warning("leftovers", `${detail}; ${old.toLocaleString("en-US")} older than a day`, remedies[kind])
        : ok("leftovers", detail)
    )
  }
  if (leftovers.size === 0) findings.push(ok("leftovers", "none"))
  return findings
})

// --- the server

const leastVersion = 150_000

/** Whether the server is one that Reclaim can work with. */
export const judgeServer = (server: DatabaseHealth.Server): ReadonlyArray<Finding> => [
  server.versionNumber < leastVersion
    ? failed(
        "server version",
        `PostgreSQL ${server.version}`,
        "Reclaim needs PostgreSQL 15 or later: upgrade it"
      )
    : ok("server version", `PostgreSQL ${server.version}`),
  server.inRecovery
    ? failed("primary server", "this server is a standby, which takes no writes", "connect to the primary")
    : server.readOnly
      ? failed(
          "primary server",
          "transactions are read-only here",
          "connect to a server that can be written, or set default_transaction_read_only to off"
        )
      : ok("primary server", `database ${server.database}, as ${server.role}`)
]

// 1 minute: clocks that are kept in step differ by less than a second.
const largestSkew = Duration.toMillis(Duration.minutes(1))

/** Whether the clocks agree; the server's was read between two looks at this machine's. */
export const judgeClock = (server: DateTime.Utc, before: number, after: number): Finding => {
  const at = DateTime.toEpochMillis(server)
  const skew = at < before ? at - before : at > after ? at - after : 0
  const detail =
    skew === 0
      ? "this machine and the database agree"
      : `the database is ${formatMillis(Math.abs(skew))} ${skew > 0 ? "ahead of" : "behind"} this machine`
  return Math.abs(skew) > largestSkew
    ? warning(
        "clock",
        detail,
        "set both clocks by NTP: until then copies and backups stay longer than the settings say"
      )
    : ok("clock", detail)
}

const checkServer = Effect.gen(function* () {
  const before = yield* Clock.currentTimeMillis
  const server = yield* DatabaseHealth.server
  const after = yield* Clock.currentTimeMillis
  return [...judgeServer(server), judgeClock(server.now, before, after)]
})

/** How the database is reached, and what that means for a host's client. */
export const judgePooling = ({ prepared, shared }: DatabaseHealth.Pooling): Finding => {
  if (!shared) return ok("pooler", "each connection has a server process of its own")
  const pooled = "connections share server processes: there is a pooler in transaction mode"
  // The names that @effect/sql-pg gives to what it prepares. A pooler that keeps track renames them.
  const own = prepared.filter((name) => name.startsWith("effect_"))
  return own.length > 0
    ? failed(
        "pooler",
        `${pooled}, and a client prepares statements through it: ${some(own)}`,
        "set prepare: false in the host's PgClient: its queries fail as soon as they meet another process"
      )
    : warning(
        "pooler",
        pooled,
        "the host's PgClient must have prepare: false; this command always works like that"
      )
}

// --- tables

const checkSchema = Effect.gen(function* () {
  const host = yield* HostSchema.HostSchema
  const missing = yield* host.missingOwn
  if (missing.length > 0) {
    return [
      warning(
        "schema reclaim",
        `it is not there, or not whole: ${missing.map((table) => `reclaim.${table}`).join(", ")}`,
        "reclaim migrate adopts the server; until then nothing is removed, prepared or held"
      )
    ]
  }
  const version = yield* Migrations.installed
  if (version !== Migrations.currentVersion) {
    const detail = `version ${version}, and this release needs ${Migrations.currentVersion}`
    return [
      version < Migrations.currentVersion
        ? warning("schema reclaim", detail, "reclaim migrate")
        : warning("schema reclaim", detail, "a newer release made it: use that one")
    ]
  }
  const adopted = yield* host.adopted
  return [
    Option.match(adopted, {
      onNone: () =>
        failed("schema reclaim", "when the server was adopted is not recorded", "reclaim migrate"),
      onSome: (at) => ok("schema reclaim", `adopted at ${formatInstant(at)} UTC`)
    })
  ]
})

/** What is missing fails, unless the worker that needs it is switched off. */
const checkTables = Effect.gen(function* () {
  const host = yield* HostSchema.HostSchema
  const look = Effect.fnUntraced(function* (
    purpose: string,
    require: Effect.Effect<void, HostSchema.MissingTables>,
    enabled: Config.Config<boolean>,
    variable: string
  ) {
    const found = yield* Effect.result(require)
    const name = `tables for ${purpose}`
    if (Result.isSuccess(found)) return ok(name, "all tables and columns are there")
    const detail = `missing: ${found.failure.missing.join(", ")}`
    const on = yield* Effect.orElseSucceed(enabled, () => true)
    return on
      ? failed(name, detail, `connect to the host's database, or set ${variable} to false`)
      : warning(name, detail, `nothing to do while ${variable} is false`)
  })
  return [
    yield* look(
      "skill versions",
      host.requireSkills,
      RetentionSettings.variables.enabled,
      "PAPERCLIP_SKILL_VERSION_RETENTION_ENABLED"
    ),
    yield* look(
      "session backups",
      host.requireBackups,
      ExpirationSettings.variables.enabled,
      "PAPERCLIP_NATIVE_HARNESS_BACKUP_EXPIRATION_ENABLED"
    )
  ]
})

const quoted = (name: string) => `"${name.replaceAll('"', '""')}"`

/** The statements that give a role what it lacks. */
const grants = (missing: ReadonlyArray<HostSchema.MissingRight>, role: string): string =>
  Object.entries(Arr.groupBy(missing, ({ right }) => right))
    .map(([right, on]) => {
      const tables = on.map(({ table }) => table).join(", ")
      if (right === "BYPASSRLS") return `alter role ${quoted(role)} bypassrls;`
      return right === "USAGE"
        ? `grant usage on schema ${tables} to ${quoted(role)};`
        : `grant ${right.toLowerCase()} on ${tables} to ${quoted(role)};`
    })
    .join(" ")

const checkRights = Effect.gen(function* () {
  const host = yield* HostSchema.HostSchema
  const missing = yield* host.missingRights
  if (missing.length === 0) return [ok("rights", "the role has every right that is needed")]
  const { role } = yield* DatabaseHealth.server
  const describe = (rights: ReadonlyArray<HostSchema.MissingRight>) =>
    rights
      .map(({ right, table }) =>
        right === "BYPASSRLS" ? `policies hide rows of ${table}` : `${right} on ${table}`
      )
      .join(", ")
  const needed = missing.filter(({ purpose }) => purpose !== "expiry")
  const expiry = missing.filter(({ purpose }) => purpose === "expiry")
  return [
    ...(needed.length === 0
      ? []
      : [failed("rights", `${role} lacks: ${describe(needed)}`, grants(needed, role))]),
    ...(expiry.length === 0
      ? []
      : [
          warning(
            "rights for expiry",
            `${role} lacks: ${describe(expiry)}; no backup expires, all else works`,
            grants(expiry, role)
          )
        ])
  ]
})

// --- runs

// 24 hours: a run that is prepared today and ends tomorrow is nothing to look into.
const blocksFor = Duration.hours(24)

// 100: the pins of so many companies are read at once; the number of statements follows.
const companiesAtOnce = 100

const since = ({ since }: DatabaseHealth.RunSince): string =>
  Option.match(since, { onNone: () => "at an unknown time", onSome: (at) => `at ${formatInstant(at)} UTC` })

const checkSelections = Effect.gen(function* () {
  const pins = yield* SkillPins.SkillPins
  const clock = yield* DatabaseClock.DatabaseClock
  const name = "selections"
  const unknown: Array<Ids.RunId> = []
  const recorded = new Set<Ids.RunId>()
  for (const companyIds of Arr.chunksOf(yield* DatabaseHealth.companies, companiesAtOnce)) {
    for (const { activeRuns, selectionUnknown } of (yield* pins.facts(companyIds)).values()) {
      unknown.push(...selectionUnknown)
      for (const runIds of activeRuns.values()) for (const runId of runIds) recorded.add(runId)
    }
  }
  if (unknown.length === 0) return [ok(name, "no run keeps the copies of its company for want of a record")]
  const before = DateTime.subtractDuration(yield* clock.now, blocksFor)
  const runs = yield* DatabaseHealth.runsSince(unknown)
  // A run without a time may be as old as any.
  const old = runs.filter(({ since }) => !Option.exists(since, (at) => DateTime.isGreaterThan(at, before)))
  const young = runs.length - old.length
  const findings = old.map((run) =>
    warning(
      name,
      `run ${run.runId} (${run.status ?? "without a status"}) began ${since(run)}, and as its selection is not ` +
        `recorded, every copy of company ${run.companyId} stays`,
      "end the run if it is dead; else record every version that it uses: " +
        `reclaim skills prepare --company ${run.companyId} --run ${run.runId} --version ID`
    )
  )
  if (young > 0) {
    findings.push(
      ok(
        name,
        `${count(young, "run")} of the last 24 hours without a recorded selection; each keeps its company`
      )
    )
  }
  if (recorded.size > 0) {
    findings.push(
      warning(
        "servers",
        `the selections of ${count(recorded.size, "active run")} are recorded, those of ${unknown.length} are not: ` +
          "a server that does not use the library seems to share this instance",
        "keep PAPERCLIP_SKILL_VERSION_RETENTION_DRY_RUN=true until every server uses it"
      )
    )
  }
  return findings
})

const workers: Readonly<Record<string, string>> = {
  "skill-versions": "skill versions",
  backups: "session backups"
}

const checkJournal = Effect.gen(function* () {
  const host = yield* HostSchema.HostSchema
  if ((yield* host.missingOwn).length > 0) return []
  const changes = yield* DatabaseHealth.lastChanges
  return [
    ok(
      "last change",
      changes.length === 0
        ? "no sweep has changed anything in the last 90 days"
        : changes.map(({ at, worker }) => `${workers[worker] ?? worker}: ${formatInstant(at)} UTC`).join("; ")
    )
  ]
})

// --- all of it

const columns: ReadonlyArray<Column> = [
  { title: "STATUS", width: 7 },
  { title: "CHECK", width: 26 },
  { title: "FOUND" }
]

const layerDisk = Layer.merge(SkillVersions.layerDisk, SessionBackups.layerDisk)

const examineInstance = Effect.fnUntraced(function* <E, R>(
  tell: (findings: ReadonlyArray<Finding>) => Effect.Effect<void, E, R>
) {
  const roots = yield* Effect.exit(Layer.build(layerRoots))
  if (roots._tag === "Failure") {
    return yield* tell(
      yield* explain(roots.cause, (message) =>
        failed(
          "instance folder",
          message,
          "name the instance's root folder with --instance or RECLAIM_INSTANCE"
        )
      )
    )
  }
  yield* Effect.gen(function* () {
    yield* tell(yield* attempt("folders", checkFolders))
    yield* tell(yield* attempt("disk space", checkVolumes))
    yield* tell(yield* attempt("leftovers", checkContents))
  }).pipe(Effect.provide(layerDisk), Effect.provide(roots.value))
})

const examineDatabase = Effect.fnUntraced(function* <E, R>(
  tell: (findings: ReadonlyArray<Finding>) => Effect.Effect<void, E, R>
) {
  const client = yield* Effect.exit(Layer.build(layerClient))
  if (client._tag === "Failure") {
    return yield* tell(
      yield* explain(client.cause, (message) =>
        failed("database", message, "start the server, or name it with --database-url or DATABASE_URL")
      )
    )
  }
  yield* tell([ok("database", "it answers")])
  yield* Effect.gen(function* () {
    yield* tell(yield* attempt("server", checkServer))
    yield* tell(
      yield* attempt(
        "pooler",
        Effect.map(DatabaseHealth.pooling, (found) => [judgePooling(found)])
      )
    )
    const host = yield* Effect.exit(Layer.build(HostSchema.layer))
    if (host._tag === "Failure") {
      return yield* tell(yield* explain(host.cause, (message) => failed("tables", message, null)))
    }
    yield* Effect.gen(function* () {
      yield* tell(yield* attempt("schema reclaim", checkSchema))
      yield* tell(yield* attempt("tables", checkTables))
      yield* tell(yield* attempt("rights", checkRights))
      yield* tell(yield* attempt("last change", checkJournal))
      const { requireSkills } = yield* HostSchema.HostSchema
      // Without the tables there is nothing to ask, and which are missing is told already.
      if (yield* Effect.isSuccess(requireSkills)) {
        yield* tell(yield* attempt("selections", Effect.provide(checkSelections, SkillPins.layer)))
      }
    }).pipe(Effect.provide(host.value))
  }).pipe(
    Effect.provide(DatabaseClock.layer.pipe(Layer.provideMerge(Transactions.layer))),
    Effect.provide(client.value)
  )
})

const examine = Effect.gen(function* () {
  const printer = yield* Printer
  const counts = { ok: 0, warning: 0, failed: 0 }
  const tell = Effect.fnUntraced(function* (findings: ReadonlyArray<Finding>) {
    for (const finding of findings) {
      counts[finding.status] += 1
      yield* printer.document(Output.Check, { type: "check", ...finding })
      yield* printer.lines(row(columns, [finding.status, finding.name, finding.detail]))
      if (finding.advice !== null) yield* printer.lines(row(columns, ["", "", `-> ${finding.advice}`]))
    }
  })
  yield* printer.lines(
    row(
      columns,
      columns.map(({ title }) => title)
    )
  )
  yield* tell(yield* checkPlatform)
  yield* tell(yield* attempt("settings", checkSettings))
  yield* examineInstance(tell)
  yield* examineDatabase(tell)
  const { ok: fine, warning: warnings, failed: broken } = counts
  const checks = fine + warnings + broken
  yield* printer.document(Output.CheckSummary, {
    type: "summary",
    checks,
    ok: fine,
    warnings,
    failed: broken
  })
  yield* printer.lines(
    "",
    `${count(checks, "check")}: ${fine} ok, ${count(warnings, "warning")}, ${broken} failed`
  )
  if (broken > 0) return yield* new Unsuccessful()
})

export const doctor: Subcommand<"doctor"> = Command.make("doctor", {}, () => Effect.scoped(examine)).pipe(
  Command.withDescription(
    "Check the folders, the database, the settings and what interrupted work left, and say what to do. Changes nothing"
  ),
  Command.withExamples([
    { command: "reclaim doctor", description: "Check everything" },
    { command: "reclaim doctor --json", description: "Let a program watch it" }
  ])
)
