import { expect, layer } from "@effect/vitest"
import { Effect, FileSystem, Schema } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { Output } from "../src/index.ts"
import * as Fixture from "./support/fixture.ts"

const id = "11111111-1111-4111-8111-111111111111"
const secret = "hunter2"

interface Case {
  readonly what: string
  readonly args: ReadonlyArray<string>
  readonly env?: Readonly<Record<string, string>>
  readonly code: 1 | 2
  readonly tag: string
  readonly says: RegExp
}

const setting = (name: string, value: string) => ({ [`PAPERCLIP_SKILL_VERSION_RETENTION_${name}`]: value })

const capture = (...args: ReadonlyArray<string>) => [
  "backups",
  "capture",
  "--scope",
  "a".repeat(64),
  "--runner-instance",
  "r",
  "--lease",
  "l",
  ...args
]

const cases: ReadonlyArray<Case> = [
  {
    what: "an unknown command",
    args: ["skill"],
    code: 2,
    tag: "UnknownSubcommand",
    says: /Unknown subcommand "skill"/
  },
  {
    what: "a command without its own",
    args: ["skills"],
    code: 2,
    tag: "MissingSubcommand",
    says: /reclaim skills needs a command/
  },
  {
    what: "an unknown flag",
    args: ["holds", "--nonsense"],
    code: 2,
    tag: "UnrecognizedOption",
    says: /--nonsense/
  },
  { what: "a missing flag", args: ["skills", "release"], code: 2, tag: "MissingOption", says: /--run/ },
  {
    what: "a malformed company",
    args: ["skills", "diagnose", "--company", "acme"],
    code: 2,
    tag: "InvalidValue",
    says: /--company: "acme".*a UUID/
  },
  {
    what: "a malformed version",
    args: ["skills", "restore", "--company", id, "--version", ".."],
    code: 2,
    tag: "InvalidValue",
    says: /--version: "\.\.".*a UUID/
  },
  {
    what: "a malformed scope",
    args: ["hold", "--scope", "abc", "--note", "x"],
    code: 2,
    tag: "InvalidValue",
    says: /--scope: "abc".*64 hex digits/
  },
  {
    what: "a hold of nothing",
    args: ["hold", "--note", "x"],
    code: 2,
    tag: "BadUsage",
    says: /either --company ID and --version ID, or --scope HEX/
  },
  {
    what: "a hold without a reason",
    args: ["hold", "--scope", "a".repeat(64), "--note", " "],
    code: 2,
    tag: "BadUsage",
    says: /--note must say why/
  },
  {
    what: "a size without a unit",
    args: ["skills", "sweep", "--until-free", "10"],
    code: 2,
    tag: "InvalidValue",
    says: /--until-free: "10".*512MiB or 10GB/
  },
  {
    what: "a duration that is none",
    args: ["journal", "--since", "yesterday"],
    code: 2,
    tag: "InvalidValue",
    says: /--since: "yesterday".*12 hours or 7 days/
  },
  {
    what: "a batch limit that is too large",
    args: ["skills", "sweep", "--batch-limit", "51"],
    code: 2,
    tag: "InvalidValue",
    says: /--batch-limit: "51".*from 1 to 50/
  },
  {
    what: "a batch limit that is too small",
    args: ["skills", "sweep", "--batch-limit", "0"],
    code: 2,
    tag: "InvalidValue",
    says: /--batch-limit: "0".*from 1 to 50/
  },
  {
    what: "a negative grace",
    args: ["skills", "sweep", "--grace-minutes", "-1"],
    code: 2,
    tag: "InvalidValue",
    says: /--grace-minutes/
  },
  {
    what: "a continuation that is damaged",
    args: ["skills", "sweep", "--continue", "reclaim1.abc.def"],
    code: 2,
    tag: "InvalidContinuation",
    says: /the continuation cannot be used: it is damaged/
  },
  {
    what: "a session that is no UUID",
    args: capture("--session", "session-1", "--provider", "none", "--source", "runner=/etc"),
    code: 2,
    tag: "InvalidValue",
    says: /--session: "session-1".*a UUID/
  },
  {
    what: "a lease without a name",
    args: capture("--session", id, "--provider", "none", "--source", "runner=/etc").with(7, " "),
    code: 2,
    tag: "InvalidValue",
    says: /--lease: " ".*an id/
  },
  {
    what: "a provider that does not exist",
    args: capture("--session", id, "--provider", "cursor", "--source", "runner=/etc"),
    code: 2,
    tag: "InvalidValue",
    says: /--provider: "cursor".*codex/
  },
  {
    what: "a source that climbs",
    args: capture("--session", id, "--provider", "none", "--source", "../x=/etc"),
    code: 2,
    tag: "InvalidValue",
    says: /--source: "\.\.\/x=\/etc".*NAME=DIR/
  },
  {
    what: "a source without a folder",
    args: capture("--session", id, "--provider", "none", "--source", "runner="),
    code: 2,
    tag: "InvalidValue",
    says: /--source: "runner=".*NAME=DIR/
  },
  {
    what: "a backup of nothing",
    args: capture("--session", id, "--provider", "none"),
    code: 2,
    tag: "MissingOption",
    says: /--source/
  },
  {
    what: "the same source twice",
    args: capture(
      "--session",
      id,
      "--provider",
      "none",
      "--source",
      "runner=/etc",
      "--source",
      "runner=/usr"
    ),
    code: 2,
    tag: "RefusedSource",
    says: /two sources have the same name/
  },
  {
    what: "a backup that is not there",
    args: ["backups", "restore", "--scope", "a".repeat(64), "--target", "/tmp/reclaim-never"],
    code: 1,
    tag: "RestoreFailed",
    says: /^a{64}: there is no backup$/
  },
  {
    what: "a continuation of backups that is damaged",
    args: ["backups", "sweep", "--continue", "reclaim1.abc.def"],
    code: 2,
    tag: "InvalidContinuation",
    says: /the continuation cannot be used: it is damaged/
  },
  {
    what: "a session state folder that is a file",
    args: ["backups", "diagnose"],
    env: { PAPERCLIP_RUNNER_STATE_DIR: "/etc/passwd" },
    code: 2,
    tag: "RefusedRoots",
    says: /session state folder is not a folder: \/etc\/passwd/
  },
  {
    what: "an instance that is not there",
    args: ["skills", "diagnose", "--instance", "/nowhere/at/all"],
    code: 2,
    tag: "RefusedRoots",
    says: /does not exist: \/nowhere\/at\/all/
  },
  {
    what: "the root of the file system",
    args: ["skills", "sweep", "--instance", "/"],
    code: 2,
    tag: "RefusedRoots",
    says: /root of the file system/
  },
  {
    what: "an instance that is a file",
    args: ["skills", "sweep", "--instance", "/etc/passwd"],
    code: 2,
    tag: "RefusedRoots",
    says: /not a folder: \/etc\/passwd/
  },
  {
    what: "no instance",
    args: ["skills", "sweep"],
    env: { RECLAIM_INSTANCE: "" },
    code: 2,
    tag: "BadUsage",
    says: /use --instance DIR or set RECLAIM_INSTANCE/
  },
  {
    what: "no database",
    args: ["migrate"],
    env: { DATABASE_URL: "" },
    code: 2,
    tag: "BadUsage",
    says: /use --database-url URL or set DATABASE_URL/
  },
  {
    what: "a URL of something else",
    args: ["migrate", "--database-url", `mysql://user:${secret}@db/x`],
    code: 2,
    tag: "BadUsage",
    says: /--database-url is not a URL of a PostgreSQL database/
  },
  {
    what: "a URL that is none",
    args: ["migrate"],
    env: { DATABASE_URL: `user:${secret}@db` },
    code: 2,
    tag: "BadUsage",
    says: /DATABASE_URL is not a URL of a PostgreSQL database/
  },
  {
    what: "a URL where none belongs",
    args: ["migrate", `postgres://user:${secret}@db/x`],
    code: 2,
    tag: "UnexpectedArgument",
    says: /postgres:\/\/\*\*\*@db\/x/
  },
  {
    what: "a server that does not answer",
    args: ["migrate", "--database-url", `postgres://user:${secret}@127.0.0.1:1/x`],
    code: 1,
    tag: "DatabaseUnreachable",
    says: /cannot reach the database at 127\.0\.0\.1:1\/x: .*ECONNREFUSED/
  },
  {
    what: "a setting that is no boolean",
    args: ["skills", "sweep"],
    env: setting("DRY_RUN", "yes please"),
    code: 2,
    tag: "ConfigError",
    says: /^PAPERCLIP_SKILL_VERSION_RETENTION_DRY_RUN is "yes please", allowed is true or false$/
  },
  {
    what: "a setting that is negative",
    args: ["skills", "diagnose"],
    env: setting("KEEP", "-1"),
    code: 2,
    tag: "ConfigError",
    says: /^PAPERCLIP_SKILL_VERSION_RETENTION_KEEP is "-1", allowed is a whole number/
  },
  {
    what: "a setting that is a fraction",
    args: ["skills", "sweep"],
    env: setting("GRACE_MINUTES", "1.5"),
    code: 2,
    tag: "ConfigError",
    says: /^PAPERCLIP_SKILL_VERSION_RETENTION_GRACE_MINUTES is "1.5", allowed is a whole number/
  },
  {
    what: "an unknown company to sweep",
    args: ["skills", "sweep", "--company", id],
    code: 1,
    tag: "UnknownCompany",
    says: /no company 11111111/
  },
  {
    what: "an unknown company to diagnose",
    args: ["skills", "diagnose", "--company", id],
    code: 1,
    tag: "UnknownCompany",
    says: /no company 11111111/
  },
  {
    what: "an unknown company to restore from",
    args: ["skills", "restore", "--company", id, "--version", id],
    code: 1,
    tag: "UnknownCompany",
    says: /no company 11111111/
  }
]

layer(Fixture.layer, { timeout: 60_000 })("bad input", (it) => {
  for (const { args, code, env, says, tag, what } of cases) {
    it.effect(`[O-04] ${what}: one clear line, exit code ${code}, nothing changed`, () =>
      Effect.gen(function* () {
        const { instance, run } = yield* Fixture.Fixture
        const files = yield* FileSystem.FileSystem
        const { code: exit, documents, stderr, stdout } = yield* run([...args, "--json"], env)
        expect(exit).toBe(code)
        expect(documents).toHaveLength(1)
        const failure = yield* Schema.decodeUnknownEffect(Output.Failure)(documents[0])
        expect(failure._tag).toBe(tag)
        expect(failure.message).toMatch(says)
        expect(failure.message).not.toMatch(/\n| {4}at /)
        expect(stderr).toBe("")
        expect(stdout).not.toContain(secret)
        expect(yield* files.readDirectory(instance)).toEqual([])
      })
    )
  }

  it.effect("[O-04] a person reads the same line on standard error, without a stack trace", () =>
    Effect.gen(function* () {
      const { run } = yield* Fixture.Fixture
      const url = `postgres://user:${secret}@127.0.0.1:1/x`
      const quiet = yield* run(["journal", "--database-url", url])
      expect(quiet.code).toBe(1)
      expect(quiet.stdout).toBe("")
      expect(quiet.stderr).toMatch(/^reclaim: cannot reach the database at 127\.0\.0\.1:1\/x: [^\n]*\n$/)
      const asked = yield* run(["journal", "--database-url", url, "--debug"])
      expect(asked.stderr).toMatch(/\n +at /)
      expect(asked.stderr).not.toContain(secret)
    })
  )

  it.effect(
    "[O-03] with --json even a debugged failure leaves nothing but documents on standard output",
    () =>
      Effect.gen(function* () {
        const { run } = yield* Fixture.Fixture
        const failed = yield* run(["skills", "release", "--run", "x", "--json", "--debug"])
        expect(failed.documents).toHaveLength(1)
        expect(failed.stderr).not.toBe("")
        const helped = yield* run(["skills", "--help", "--json"])
        expect(helped.stdout).toBe("")
        expect(helped.stderr).toContain("diagnose")
      })
  )

  it.effect("[O-04] a database without the host's tables is named as such", () =>
    Effect.gen(function* () {
      const { run } = yield* Fixture.Fixture
      const sql = yield* SqlClient.SqlClient
      yield* sql`alter table company_skill_versions rename column revision_number to revision`
      const failed = yield* run(["skills", "diagnose", "--json"])
      yield* sql`alter table company_skill_versions rename column revision to revision_number`
      expect(failed.code).toBe(1)
      expect(failed.documents).toEqual([
        expect.objectContaining({
          type: "error",
          _tag: "MissingTables",
          message: expect.stringContaining("company_skill_versions.revision_number")
        })
      ])
    })
  )
})
