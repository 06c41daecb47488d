import { describe, expect, layer } from "@effect/vitest"
import { Effect, Exit, FileSystem, Schema } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { dirname } from "node:path"
import { Output } from "../src/index.ts"
import * as Fixture from "./support/fixture.ts"
import { eventually, start } from "./support/reclaim.ts"
import * as Sessions from "./support/sessions.ts"

const decode = {
  Backup: Schema.decodeUnknownSync(Output.Backup),
  BackupLeftover: Schema.decodeUnknownSync(Output.BackupLeftover),
  BackupSummary: Schema.decodeUnknownSync(Output.BackupSummary),
  BackupBatch: Schema.decodeUnknownSync(Output.BackupBatch),
  BackupSweepSummary: Schema.decodeUnknownSync(Output.BackupSweepSummary),
  Captured: Schema.decodeUnknownSync(Output.Captured),
  Restored: Schema.decodeUnknownSync(Output.Restored)
}
const setting = (name: string, value: string) => ({
  [`PAPERCLIP_NATIVE_HARNESS_BACKUP_EXPIRATION_${name}`]: value
})
const noDatabase = { DATABASE_URL: "" }

const names = Effect.fnUntraced(function* (folder: string) {
  const files = yield* FileSystem.FileSystem
  return (yield* files.readDirectory(folder)).toSorted()
})

layer(Fixture.layer, { timeout: 120_000 })("backups", (it) => {
  describe("capturing and restoring", () => {
    it.effect("[B-01] [B-02] captures a Codex home without its credentials, and needs no database", () =>
      Effect.gen(function* () {
        const { instance, run } = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        const { home, runner } = yield* Sessions.sandbox
        const session = { id: crypto.randomUUID(), scope: Sessions.newScope() }
        const args = Sessions.captureArgs(
          { id: session.id.toUpperCase(), scope: session.scope.toUpperCase() },
          `runner=${runner}`,
          `codex-home=${home}/`
        )
        const first = yield* run([...args, "--json"], noDatabase)
        expect(first.code).toBe(0)
        const [captured, ...more] = first.documents.map((document) => decode.Captured(document))
        expect(more).toEqual([])
        const folder = `${instance}/runtime/paperclip-runner/durable-sessions/${session.scope}/failover-backups`
        expect(captured).toMatchObject({ scope: session.scope, path: `${folder}/current`, bytes: 16n })
        expect(captured?.omitted.toSorted()).toEqual([
          "codex-home/auth.json",
          "codex-home/plugins/cache/openai-curated-remote",
          "codex-home/tmp"
        ])
        const manifest: unknown = JSON.parse(yield* files.readFileString(`${folder}/current/manifest.json`))
        expect(manifest).toMatchObject({
          schema: "paperclip.native-harness-backup.v1",
          normalizedSessionId: session.id,
          runnerInstanceId: "runner-1",
          sourceProviderLeaseId: "lease-1",
          providerKind: "codex",
          directories: [{ name: "runner" }, { name: "codex-home" }]
        })
        // The next one takes its place.
        yield* Sessions.write(`${home}/config.toml`, "model = 2\n")
        expect((yield* run(args, noDatabase)).code).toBe(0)
        expect(yield* names(folder)).toEqual(["current"])

        const target = `${dirname(home)}/restored`
        const restore = ["backups", "restore", "--scope", session.scope, "--target", target]
        const restored = yield* run([...restore, "--json"], noDatabase)
        expect(restored.code).toBe(0)
        expect(restored.documents.map((document) => decode.Restored(document))).toEqual([
          { type: "restored", scope: session.scope, from: "current", path: target, bytes: 16n }
        ])
        expect(yield* names(target)).toEqual(["codex-home", "runner"])
        expect(yield* names(`${target}/codex-home`)).toEqual(["config.toml", "link", "plugins", "sessions"])
        expect(yield* files.readFileString(`${target}/codex-home/config.toml`)).toBe("model = 2\n")
        expect((yield* files.stat(`${target}/codex-home/config.toml`)).mode & 0o777).toBe(0o640)
        expect(yield* files.readLink(`${target}/codex-home/link`)).toBe("config.toml")
      }).pipe(Effect.scoped)
    )

    it.effect("[O-03] tells a person in lines what was captured and restored", () =>
      Effect.gen(function* () {
        const { run } = yield* Fixture.Fixture
        const { folder, home } = yield* Sessions.sandbox
        const session = { id: crypto.randomUUID(), scope: Sessions.newScope() }
        const captured = yield* run(Sessions.captureArgs(session, "codex-home=codex-home"), noDatabase, {
          cwd: dirname(home)
        })
        expect(captured.stdout).toMatch(
          /^captured 14 B to \/.*\/current\nleft out:\n(  codex-home\/[^\n]+\n){3}$/
        )
        const restored = yield* run(
          ["backups", "restore", "--scope", session.scope, "--target", "back"],
          {
            ...noDatabase
          },
          { cwd: folder }
        )
        expect(restored.stdout).toBe(`restored 14 B from current to ${folder}/back\n`)
      }).pipe(Effect.scoped)
    )

    it.effect("[B-02] [O-04] refuses a source that is a link, and leaves the backup there is", () =>
      Effect.gen(function* () {
        const { run } = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        const { folder, home } = yield* Sessions.sandbox
        const session = yield* Sessions.make()
        yield* files.symlink(home, `${folder}/linked`)
        for (const source of [
          `${folder}/linked`,
          `${folder}/linked/`,
          `${folder}/nowhere`,
          `${home}/auth.json`
        ]) {
          const refused = yield* run([...Sessions.captureArgs(session, `codex-home=${source}`), "--json"])
          expect(refused.code).toBe(2)
          expect(refused.documents).toEqual([
            expect.objectContaining({ type: "error", _tag: "RefusedSource" })
          ])
        }
        expect(yield* names(session.folder)).toEqual(["current"])
      }).pipe(Effect.scoped)
    )

    it.effect("[B-02] refuses a name under which a Codex home would keep its credentials", () =>
      Effect.gen(function* () {
        const { run } = yield* Fixture.Fixture
        const { home } = yield* Sessions.sandbox
        const session = { id: crypto.randomUUID(), scope: Sessions.newScope() }
        const refused = yield* run([...Sessions.captureArgs(session, `codexhome=${home}`), "--json"])
        expect(refused.code).toBe(2)
        expect(refused.documents).toEqual([
          {
            type: "error",
            _tag: "BadUsage",
            message: "a backup for codex holds runner and codex-home, not codexhome"
          }
        ])
      }).pipe(Effect.scoped)
    )

    it.effect("[B-03] [O-04] refuses a target that is not empty, or a link", () =>
      Effect.gen(function* () {
        const { run } = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        const folder = yield* files.makeTempDirectoryScoped()
        const { scope } = yield* Sessions.make()
        yield* Sessions.write(`${folder}/full/mine.txt`, "mine")
        yield* files.makeDirectory(`${folder}/empty`)
        yield* files.symlink("empty", `${folder}/link`)
        const restore = (target: string) =>
          run(["backups", "restore", "--scope", scope, "--target", target, "--json"], noDatabase)
        for (const target of ["full", "link", "link/", "full/mine.txt", "none/below"]) {
          const refused = yield* restore(`${folder}/${target}`)
          expect(refused.code).toBe(2)
          expect(refused.documents).toEqual([
            expect.objectContaining({ type: "error", _tag: "RefusedTarget" })
          ])
        }
        expect(yield* names(`${folder}/full`)).toEqual(["mine.txt"])
        expect((yield* restore(`${folder}/empty`)).code).toBe(0)
        expect(yield* names(`${folder}/empty`)).toEqual(["codex-home", "runner"])
        expect(yield* names(folder)).toEqual(["empty", "full", "link"])
      }).pipe(Effect.scoped)
    )

    it.effect("[B-03] takes the next backup for a damaged one, and fails whole where none is right", () =>
      Effect.gen(function* () {
        const { run } = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        const folder = yield* files.makeTempDirectoryScoped()
        const session = yield* Sessions.make()
        const damage = (name: string) =>
          files.writeFileString(
            `${session.folder}/${name}/codex-home/sessions/2026/11/30/rollout-1.jsonl`,
            "[]\n"
          )
        const restore = (target: string) =>
          run(["backups", "restore", "--scope", session.scope, "--target", `${folder}/${target}`, "--json"])
        const retiring = `.retiring-${crypto.randomUUID()}`
        yield* files.rename(`${session.folder}/current`, `${session.folder}/${retiring}`)
        const { home } = yield* Sessions.sandbox
        expect((yield* run(Sessions.captureArgs(session, `codex-home=${home}`), noDatabase)).code).toBe(0)
        yield* damage("current")
        const second = yield* restore("second")
        expect(second.documents).toEqual([expect.objectContaining({ type: "restored", from: "retiring" })])
        yield* files.rename(`${session.folder}/${retiring}`, `${session.folder}/previous`)
        const third = yield* restore("third")
        expect(third.documents).toEqual([expect.objectContaining({ type: "restored", from: "previous" })])
        yield* damage("previous")
        const failed = yield* restore("fourth")
        expect(failed.code).toBe(1)
        expect(failed.documents).toEqual([
          {
            type: "error",
            _tag: "RestoreFailed",
            message: expect.stringMatching(/current: codex-home is not .*; previous: codex-home is not /)
          }
        ])
        expect(yield* names(folder)).toEqual(["second", "third"])
      }).pipe(Effect.scoped)
    )

    it.effect("[O-04] a capture that is interrupted leaves the backup before it, and nothing half done", () =>
      Effect.gen(function* () {
        const { instance, url } = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        const { home } = yield* Sessions.sandbox
        const session = yield* Sessions.make()
        // Large enough to be caught in the middle; without blocks, so that making it costs nothing.
        yield* Sessions.write(`${home}/sessions/large`, "")
        yield* files.truncate(`${home}/sessions/large`, 2 * 1024 ** 3)
        const capture = yield* start(Sessions.captureArgs(session, `codex-home=${home}`), {
          env: { DATABASE_URL: url, RECLAIM_INSTANCE: instance }
        })
        yield* eventually(
          Effect.map(names(session.folder), (found) => found.some((name) => name.startsWith(".pending-")))
        )
        yield* capture.kill({ killSignal: "SIGINT" })
        expect(yield* capture.exitCode).toBe(130)
        expect(yield* names(session.folder)).toEqual(["current"])
        expect(yield* names(`${session.folder}/current`)).toEqual(["codex-home", "manifest.json", "runner"])
      }).pipe(Effect.scoped)
    )
  })

  describe("being interrupted", () => {
    it.effect("[B-03] a restoration that is interrupted or killed leaves no target", () =>
      Effect.gen(function* () {
        const { instance, run, url } = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        const { folder, home } = yield* Sessions.sandbox
        const session = { id: crypto.randomUUID(), scope: Sessions.newScope() }
        yield* Sessions.write(`${home}/sessions/large`, "")
        yield* files.truncate(`${home}/sessions/large`, 256 * 1024 ** 2)
        expect((yield* run(Sessions.captureArgs(session, `codex-home=${home}`))).code).toBe(0)
        yield* files.makeDirectory(`${folder}/out`)
        const staged = Effect.map(names(`${folder}/out`), (found) =>
          found.some((name) => name.startsWith(".restoring-"))
        )
        const interruptWith = Effect.fnUntraced(function* (killSignal: "SIGINT" | "SIGKILL") {
          const restore = yield* start(
            ["backups", "restore", "--scope", session.scope, "--target", `${folder}/out/target`],
            { env: { DATABASE_URL: url, RECLAIM_INSTANCE: instance } }
          )
          yield* eventually(staged)
          yield* restore.kill({ killSignal })
          return yield* Effect.exit(restore.exitCode)
        })
        expect(yield* interruptWith("SIGINT")).toEqual(Exit.succeed(130))
        expect(yield* names(`${folder}/out`)).toEqual([])
        yield* interruptWith("SIGKILL")
        expect(yield* files.exists(`${folder}/out/target`)).toBe(false)
        const again = yield* run([
          "backups",
          "restore",
          "--scope",
          session.scope,
          "--target",
          `${folder}/out/target`
        ])
        expect(again.code).toBe(0)
        expect(Number((yield* files.stat(`${folder}/out/target/codex-home/sessions/large`)).size)).toBe(
          256 * 1024 ** 2
        )
      }).pipe(Effect.scoped)
    )
  })

  describe("diagnosing", () => {
    it.effect(
      "[F-01] [B-10] shows what is no session's folder where one belongs, and passes the rest by",
      () =>
        Effect.gen(function* () {
          const { instance, run } = yield* Fixture.Fixture
          const files = yield* FileSystem.FileSystem
          const state = yield* files.makeTempDirectoryScoped()
          const scope = Sessions.newScope()
          yield* files.symlink(instance, `${state}/${scope}`)
          yield* Sessions.write(`${state}/quarantine/${scope}/failover-backups/current/manifest.json`, "{}")
          const diagnosed = yield* run(["backups", "diagnose", "--json"], {
            PAPERCLIP_RUNNER_STATE_DIR: state
          })
          expect(diagnosed.documents).toHaveLength(2)
          expect(decode.Backup(diagnosed.documents[0])).toMatchObject({
            scope,
            decision: "retain",
            reasons: [{ _tag: "Unexpected", what: "a link where a folder belongs" }]
          })
        }).pipe(Effect.scoped)
    )

    it.effect("[O-02] [B-05] tells for each backup whether it would go, and every reason why not", () =>
      Effect.gen(function* () {
        const { companyId, run } = yield* Fixture.Fixture
        const sql = yield* SqlClient.SqlClient
        const goes = yield* Sessions.make()
        const stays = yield* Sessions.make({ status: "in_progress", daysAgo: 1 })
        const all = yield* run(["backups", "diagnose", "--json"])
        expect(all.code).toBe(0)
        const backups = all.documents.slice(0, -1).map((document) => decode.Backup(document))
        const summary = decode.BackupSummary(all.documents.at(-1))
        expect(summary.backups).toBe(backups.length)
        expect(summary.allocatedBytes).toBe(
          backups.reduce((sum, { allocatedBytes }) => sum + allocatedBytes, 0n)
        )
        const find = (scope: string) => all.documents.find((document) => document["scope"] === scope)
        expect(find(goes.scope)).toMatchObject({ sessionId: goes.id, decision: "expire", reasons: [] })
        expect(find(stays.scope)).toMatchObject({
          sessionId: stays.id,
          decision: "retain",
          reasons: [{ _tag: "IssueOpen", issueIds: [stays.issueId] }, { _tag: "CopyRecent" }]
        })

        const one = yield* run(["backups", "diagnose", "--json", "--scope", stays.scope.toUpperCase()])
        expect(one.documents).toMatchObject([
          { type: "backup", scope: stays.scope },
          { type: "summary", backups: 1, candidates: 0, retained: { IssueOpen: 1, CopyRecent: 1 } }
        ])
        const ours = yield* run(["backups", "diagnose", "--json", "--company", companyId])
        expect(ours.documents.map(({ scope }) => scope)).toEqual(
          expect.arrayContaining([goes.scope, stays.scope])
        )
        const idle = crypto.randomUUID()
        yield* sql`insert into companies (id, name) values (${idle}::uuid, 'without sessions')`
        const theirs = yield* run(["backups", "diagnose", "--company", idle])
        expect(theirs.stdout).toBe("there is no such backup on disk\n")

        const read = yield* run(["backups", "diagnose"])
        expect(read.stdout.split("\n")[0]).toMatch(/^SCOPE +DECISION +SIZE +WHY$/)
        expect(read.stdout).toMatch(new RegExp(`^${goes.scope}  expire +\\d+ KiB  nothing keeps it$`, "m"))
        expect(read.stdout).toMatch(
          new RegExp(`^${stays.scope}  retain +\\d+ KiB  issue ${stays.issueId} is open; written at `, "m")
        )
        expect(read.stdout).toMatch(/^\d+ backups on disk, .*; \d+ could go, /m)
      })
    )

    it.effect("[O-03] names what interrupted work left, also where nothing else is", () =>
      Effect.gen(function* () {
        const { companyId, run } = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        const session = yield* Sessions.make()
        const leftover = `${session.folder}/.retiring-${crypto.randomUUID()}`
        yield* files.rename(`${session.folder}/current`, leftover)
        const only = ["--scope", session.scope]
        const found = yield* run(["backups", "diagnose", ...only, "--company", companyId, "--json"])
        expect(found.code).toBe(0)
        expect(found.documents.map(({ type }) => type)).toEqual(["leftover", "summary"])
        expect(decode.BackupLeftover(found.documents[0])).toEqual({
          type: "leftover",
          scope: session.scope,
          kind: "Retiring",
          path: leftover
        })
        expect(decode.BackupSummary(found.documents[1])).toMatchObject({ backups: 0, leftovers: 1 })
        const read = yield* run(["backups", "diagnose", ...only])
        expect(read.stdout).toContain(`  retiring left over, a sweep settles it: ${leftover}\n`)
        yield* files.remove(session.folder, { recursive: true })
        expect((yield* run(["backups", "diagnose", ...only])).stdout).toBe(
          "there is no such backup on disk\n"
        )
      })
    )

    it.effect("[O-04] a scope or a company that does not exist is an error", () =>
      Effect.gen(function* () {
        const { run, skillId } = yield* Fixture.Fixture
        const scope = Sessions.newScope()
        const noScope = yield* run(["backups", "diagnose", "--scope", scope, "--json"])
        expect(noScope.code).toBe(1)
        expect(noScope.documents).toEqual([
          { type: "error", _tag: "UnknownScope", message: `there is no session scope ${scope}` }
        ])
        const noCompany = yield* run(["backups", "diagnose", "--company", skillId, "--json"])
        expect(noCompany.code).toBe(1)
        expect(noCompany.documents).toEqual([
          expect.objectContaining({ type: "error", _tag: "UnknownCompany" })
        ])
      })
    )
  })

  describe("sweeping", () => {
    it.effect("[S-29] drops entries of the journal after ninety days, but not in a dry run", () =>
      Effect.gen(function* () {
        const { run } = yield* Fixture.Fixture
        const sql = yield* SqlClient.SqlClient
        for (const days of [91, 89]) {
          yield* sql`insert into reclaim.journal (at, worker, event, allocated_bytes, server)
            values (clock_timestamp() - make_interval(days => ${days}::int), 'test', ${`${days} days`}, 0, 'here')`
        }
        const kept = sql<{ readonly event: string }>`
          select event as "event" from reclaim.journal where worker = 'test' order by at`
        yield* run(["backups", "sweep", "--dry-run"])
        expect((yield* kept).map(({ event }) => event)).toEqual(["91 days", "89 days"])
        yield* run(["backups", "sweep"])
        expect((yield* kept).map(({ event }) => event)).toEqual(["89 days"])
      })
    )

    it.effect("[B-11] [O-02] a dry run reports, and changes neither disk nor tables", () =>
      Effect.gen(function* () {
        const { run } = yield* Fixture.Fixture
        const sql = yield* SqlClient.SqlClient
        const session = yield* Sessions.make()
        const journal = () => sql`select * from reclaim.journal`
        const before = yield* journal()
        for (const [args, env] of [
          [["--dry-run"], {}],
          [[], setting("DRY_RUN", "true")]
        ] as const) {
          const dry = yield* run(["backups", "sweep", "--json", ...args], env)
          expect(dry.code).toBe(0)
          const batches = dry.documents.slice(0, -1).map((document) => decode.BackupBatch(document))
          expect(batches).toHaveLength(1)
          const summary = decode.BackupSweepSummary(dry.documents.at(-1))
          expect(summary).toMatchObject({ batches: 1, dryRun: true, expired: 0, reclaimedAllocatedBytes: 0n })
          expect(summary.candidates).toBeGreaterThan(0)
          expect(summary.candidateAllocatedBytes).toBeGreaterThan(0n)
        }
        const read = yield* run(["backups", "sweep", "--dry-run"])
        expect(read.stdout.split("\n")[0]).toMatch(/^BATCH +CHECKED +CANDIDATES +SIZE +EXPIRED /)
        expect(read.stdout).toMatch(/^dry run: \d+ backups? could go, .*; nothing was changed$/m)
        expect(yield* names(session.folder)).toEqual(["current"])
        expect(yield* Sessions.taskSessions(session)).toBe(1)
        expect(yield* journal()).toEqual(before)
      })
    )

    it.effect("[O-07] a hold keeps a session's backup, with the reason, until it is let go", () =>
      Effect.gen(function* () {
        const { run } = yield* Fixture.Fixture
        const session = yield* Sessions.make()
        yield* run(["hold", "--scope", session.scope, "--note", "incident 7"])
        const why = yield* run(["backups", "diagnose", "--scope", session.scope, "--json"])
        expect(why.documents[0]).toMatchObject({
          decision: "retain",
          reasons: [{ _tag: "Held", note: "incident 7" }]
        })
        const swept = yield* run(["backups", "sweep", "--json"])
        expect(swept.code).toBe(0)
        expect(swept.documents.at(-1)).toMatchObject({ skipped: { Held: 1 } })
        expect(yield* names(session.folder)).toEqual(["current"])
        expect(yield* Sessions.taskSessions(session)).toBe(1)
        yield* run(["unhold", "--scope", session.scope])
        yield* run(["backups", "sweep"])
        expect(yield* names(session.folder)).toEqual([])
      })
    )

    it.effect(
      "[B-07] [B-10] expires the backup with its task session, and keeps the rest of the folder",
      () =>
        Effect.gen(function* () {
          const { run } = yield* Fixture.Fixture
          const files = yield* FileSystem.FileSystem
          yield* run(["backups", "sweep"])
          const session = yield* Sessions.make()
          const swept = yield* run(["backups", "sweep", "--json"])
          expect(swept.code).toBe(0)
          expect(swept.documents.at(-1)).toMatchObject({
            type: "summary",
            worker: "backups",
            dryRun: false,
            expired: 1,
            clearedTaskSessions: 1,
            errors: 0,
            continuation: null
          })
          expect(swept.documents.at(-1)?.["reclaimedAllocatedBytes"]).toBeGreaterThan(0)
          expect(yield* names(session.folder)).toEqual([])
          expect(yield* Sessions.taskSessions(session)).toBe(0)
          const state = `${dirname(session.folder)}/control-plane/control-plane-state.json`
          expect(yield* files.exists(state)).toBe(true)
          const journal = yield* run(["journal", "--json"])
          expect(journal.documents.at(-1)).toMatchObject({
            worker: "backups",
            event: "expired",
            scope: session.scope
          })
          expect((yield* run(["journal"])).stdout).toContain(session.scope)
          const gone = yield* run(
            ["backups", "restore", "--scope", session.scope, "--target", "/tmp/never", "--json"],
            noDatabase
          )
          expect(gone.code).toBe(1)
          expect(gone.documents).toEqual([
            { type: "error", _tag: "RestoreFailed", message: `${session.scope}: there is no backup` }
          ])
          const read = yield* run(["backups", "sweep"])
          expect(read.stdout).toMatch(/^expired 0 backups and reclaimed 0 B in /m)
        })
    )

    it.effect("[B-09] brings back what a crash left on its way out, and says so", () =>
      Effect.gen(function* () {
        const { run } = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        const session = yield* Sessions.make({ status: "in_progress" })
        yield* files.rename(`${session.folder}/current`, `${session.folder}/.retiring-${crypto.randomUUID()}`)
        const dry = yield* run(["backups", "sweep", "--dry-run", "--json"])
        expect(dry.documents.at(-1)).toMatchObject({ recovered: 0 })
        const swept = yield* run(["backups", "sweep"])
        expect(swept.stdout).toMatch(/^brought back 1 backup that an interrupted expiration had moved$/m)
        expect(yield* names(session.folder)).toEqual(["current"])
      })
    )

    it.effect(
      "[B-04] [C-08] checks 200 sessions a batch, stops where it is told and goes on from there",
      () =>
        Effect.gen(function* () {
          const { run } = yield* Fixture.Fixture
          const files = yield* FileSystem.FileSystem
          const state = yield* files.makeTempDirectoryScoped()
          const env = { PAPERCLIP_RUNNER_STATE_DIR: state }
          for (let count = 0; count < 201; count++)
            yield* files.makeDirectory(`${state}/${Sessions.newScope()}`)
          const first = yield* run(["backups", "sweep", "--dry-run", "--max-batches", "1", "--json"], env)
          expect(first.documents).toHaveLength(2)
          expect(first.documents[0]).toMatchObject({ type: "batch", checked: 200 })
          const token = String(first.documents.at(-1)?.["continuation"])
          expect(token).toMatch(/^reclaim1\./)
          const rest = yield* run(["backups", "sweep", "--dry-run", "--continue", token, "--json"], env)
          expect(rest.documents).toMatchObject([
            { type: "batch", checked: 1, continuation: null },
            { type: "summary", batches: 1, checked: 1, continuation: null }
          ])
          const read = yield* run(["backups", "sweep", "--dry-run", "--max-batches", "1"], env)
          expect(read.stdout).toContain(`stopped early; go on with --continue ${token}\n`)

          const foreign = yield* run(["skills", "sweep", "--dry-run", "--continue", token, "--json"])
          for (const [bad, finished] of [
            [token, foreign],
            [
              token.slice(0, -1),
              yield* run(["backups", "sweep", "--continue", token.slice(0, -1), "--json"], env)
            ]
          ] as const) {
            expect([bad, finished.code]).toEqual([bad, 2])
            expect(finished.documents).toEqual([expect.objectContaining({ _tag: "InvalidContinuation" })])
          }
        }).pipe(Effect.scoped)
    )
  })

  describe("settings", () => {
    it.effect("[C-07] [O-02] binds the settings of the environment", () =>
      Effect.gen(function* () {
        const { run } = yield* Fixture.Fixture
        const session = yield* Sessions.make({ daysAgo: 10 })
        const off = setting("ENABLED", "false")
        // Before anything is looked at: neither an instance nor a database is needed to do nothing.
        const disabled = yield* run(["backups", "sweep", "--json"], {
          ...off,
          DATABASE_URL: "",
          RECLAIM_INSTANCE: ""
        })
        expect([disabled.code, disabled.documents]).toEqual([0, [{ type: "disabled" }]])
        expect((yield* run(["backups", "sweep"], off)).stdout).toBe(
          "nothing done: PAPERCLIP_NATIVE_HARNESS_BACKUP_EXPIRATION_ENABLED is false\n"
        )
        const why = ["backups", "diagnose", "--scope", session.scope, "--json"]
        const patient = yield* run(why, setting("DAYS", "11"))
        expect(patient.documents[0]).toMatchObject({
          decision: "retain",
          reasons: [{ _tag: "IssueClosedRecently" }, { _tag: "CopyRecent" }]
        })
        expect((yield* run(why)).documents[0]).toMatchObject({ decision: "expire" })
        const bad = yield* run(why, setting("DAYS", "0"))
        expect(bad.code).toBe(2)
        expect(bad.documents).toEqual([
          expect.objectContaining({
            _tag: "ConfigError",
            message: expect.stringMatching(
              /^PAPERCLIP_NATIVE_HARNESS_BACKUP_EXPIRATION_DAYS is "0", allowed is /
            )
          })
        ])
      })
    )

    it.effect("[O-02] finds the sessions where the environment says that they are", () =>
      Effect.gen(function* () {
        const { run } = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        const session = yield* Sessions.make()
        const why = ["backups", "diagnose", "--scope", session.scope, "--json"]
        const state = yield* files.makeTempDirectoryScoped()
        const elsewhere = yield* Sessions.make({ state })
        const env = { PAPERCLIP_RUNNER_STATE_DIR: state }
        const there = yield* run(["backups", "diagnose", "--json"], env)
        expect(there.documents).toMatchObject([{ scope: elsewhere.scope }, { backups: 1 }])
        // Empty counts as unset, and must not mean the folder that the command happens to be in.
        const unset = yield* run(why, { PAPERCLIP_RUNNER_STATE_DIR: "" }, { cwd: state })
        expect(unset.documents[0]).toMatchObject({ scope: session.scope })
        const swept = yield* run(["backups", "sweep", "--json"], env)
        expect(swept.documents.at(-1)).toMatchObject({ checked: 1, expired: 1 })
        expect(yield* names(session.folder)).toEqual(["current"])
        yield* run(["backups", "sweep"])
      }).pipe(Effect.scoped)
    )

    it.effect("[O-02] without the schema what looks works, and what expires advises migrate", () =>
      Effect.gen(function* () {
        const { run } = yield* Fixture.Fixture
        const sql = yield* SqlClient.SqlClient
        const session = yield* Sessions.make()
        yield* sql`alter schema reclaim rename to aside`
        const looked = yield* run(["backups", "diagnose", "--scope", session.scope, "--json"])
        const dry = yield* run(["backups", "sweep", "--dry-run", "--json"])
        const swept = yield* run(["backups", "sweep", "--json"])
        yield* sql`alter schema aside rename to reclaim`
        expect(looked.documents[0]).toMatchObject({ decision: "expire" })
        expect(dry.documents.at(-1)).toMatchObject({ dryRun: true, candidates: 1 })
        expect(swept.code).toBe(1)
        expect(swept.documents).toEqual([
          expect.objectContaining({ _tag: "NotAdopted", message: expect.stringContaining("reclaim migrate") })
        ])
        expect(yield* names(session.folder)).toEqual(["current"])
      })
    )

    it.effect("[D-06] [O-04] names every column that the host lacks", () =>
      Effect.gen(function* () {
        const { run } = yield* Fixture.Fixture
        const sql = yield* SqlClient.SqlClient
        yield* sql`alter table issues rename column cancelled_at to gone_at`
        const failed = yield* run(["backups", "sweep", "--json"])
        yield* sql`alter table issues rename column gone_at to cancelled_at`
        expect(failed.code).toBe(1)
        expect(failed.documents).toEqual([
          {
            type: "error",
            _tag: "MissingTables",
            message: "the database lacks what backups need: issues.cancelled_at"
          }
        ])
      })
    )

    it.effect("[O-02] says that a command cannot see what only a server knows", () =>
      Effect.gen(function* () {
        const { run } = yield* Fixture.Fixture
        const help = yield* run(["backups", "sweep", "--help"])
        expect(help.code).toBe(0)
        expect(help.stdout).toContain("not that a server keeps a session warm without them")
        for (const flag of ["--dry-run", "--max-batches N", "--continue TOKEN"]) {
          expect(help.stdout).toContain(flag)
        }
        const backups = yield* run(["backups", "--help"])
        for (const command of ["diagnose", "sweep", "capture", "restore"]) {
          expect(backups.stdout).toMatch(new RegExp(`^ +${command} `, "m"))
        }
      })
    )
  })
})
