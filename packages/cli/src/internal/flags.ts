/** The flags that several commands share, and how their texts become values. */
import { BackupManifest, Ids } from "@reclaim/core"
import { type Duration, Option, Schema } from "effect"
import { type Command, Flag, GlobalFlag } from "effect/cli"
import type { Printer } from "./printer.ts"
import * as Units from "./units.ts"

/** Work on every command, before or after its name. */
export const InstanceFlag = GlobalFlag.Setting("instance")({
  flag: Flag.String("instance").pipe(
    Flag.withMetavar("DIR"),
    Flag.withDescription("The instance's root folder (or RECLAIM_INSTANCE)"),
    Flag.optional
  )
})
export const DatabaseUrlFlag = GlobalFlag.Setting("database-url")({
  flag: Flag.Redacted("database-url").pipe(
    Flag.withMetavar("URL"),
    Flag.withDescription("The PostgreSQL server and database (or DATABASE_URL)"),
    Flag.optional
  )
})
export const JsonFlag = GlobalFlag.Setting("json")({
  flag: Flag.Boolean("json").pipe(
    Flag.withDescription("Print one JSON document per line and nothing else"),
    Flag.withoutNegation,
    Flag.withDefault(false)
  )
})
export const DebugFlag = GlobalFlag.Setting("debug")({
  flag: Flag.Boolean("debug").pipe(
    Flag.withDescription("Log everything to standard error, and show where an error came from"),
    Flag.withoutNegation,
    Flag.withDefault(false)
  )
})

/** What every command finds when it runs. */
export type Services =
  | Command.Environment
  | GlobalFlag.Setting.Identifier<"instance" | "database-url" | "json" | "debug">
  | Printer

/** A command of the tree. Whatever it fails with is told in one place, so that its type says nothing here. */
export type Subcommand<Name extends string> = Command.Command<Name, never, {}, unknown, Services>

export const globalFlags = [InstanceFlag, DatabaseUrlFlag, JsonFlag, DebugFlag] as const

const parsed = <A>(
  name: string,
  metavar: string,
  description: string,
  expected: string,
  parse: (text: string) => Option.Option<A>
): Flag.Flag<A> =>
  Flag.String(name).pipe(
    Flag.withMetavar(metavar),
    Flag.withDescription(description),
    Flag.filterMap(parse, () => expected)
  )

const id = <Id>(
  name: string,
  schema: Schema.ConstraintCodec<Id, string>,
  description: string
): Flag.Flag<Id> => parsed(name, "ID", description, "a UUID", (text) => Ids.parse(schema, text))

export const company = id("company", Ids.CompanyId, "The company")
export const version = id("version", Ids.VersionId, "The skill version")
export const run = id("run", Ids.RunId, "The run")
export const scope = parsed("scope", "HEX", "The session scope", "64 hex digits", (text) =>
  Ids.parse(Ids.ScopeId, text)
)

const uuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

// The host resumes a session only under a UUID, so nothing else can be one.
export const session = parsed("session", "UUID", "The native session", "a UUID", (text) =>
  Option.filter(Ids.parse(Ids.NativeSessionId, text), (id) => uuid.test(id))
)

/** An id that somebody else made up: anything but nothing. */
export const opaqueId = (name: string, description: string): Flag.Flag<string> =>
  parsed(name, "ID", description, "an id", (text) => (text.trim() === "" ? Option.none() : Option.some(text)))

/** A folder with the name that it has in a backup, as `NAME=DIR`. */
export const source: Flag.Flag<{ readonly name: string; readonly path: string }> = parsed(
  "source",
  "NAME=DIR",
  "A folder to back up, under its name in the backup (may be repeated)",
  "NAME=DIR, with a plain folder name",
  (text) => {
    const [, name, path] = /^([^=]+)=([^]+)$/.exec(text) ?? []
    return Option.isSome(Schema.decodeUnknownOption(BackupManifest.DirectoryName)(name)) &&
      name !== undefined &&
      path !== undefined
      ? Option.some({ name, path })
      : Option.none()
  }
)

/** A folder, from where the command was started. */
export const folder = (name: string, description: string): Flag.Flag<string> =>
  parsed(name, "DIR", description, "a folder", (text) => (text === "" ? Option.none() : Option.some(text)))

export const dryRun: Flag.Flag<boolean> = Flag.Boolean("dry-run").pipe(
  Flag.withDescription("Report only, change nothing"),
  Flag.withoutNegation,
  Flag.withDefault(false)
)

export const continuation: Flag.Flag<Option.Option<string>> = Flag.String("continue").pipe(
  Flag.withMetavar("TOKEN"),
  Flag.withDescription("Go on where an earlier sweep stopped"),
  Flag.optional
)

export const whole = (
  name: string,
  description: string,
  minimum: number,
  maximum: number
): Flag.Flag<number> =>
  parsed(
    name,
    "N",
    description,
    `a whole number from ${minimum} to ${maximum}`,
    Units.parseWhole(minimum, maximum)
  )

export const maxBatches = whole("max-batches", "Stop after so many batches", 1, 1_000_000).pipe(Flag.optional)

export const size = (name: string, description: string): Flag.Flag<bigint> =>
  parsed(name, "SIZE", description, "a size with a unit, like 512MiB or 10GB", Units.parseSize)

export const duration = (name: string, description: string): Flag.Flag<Duration.Duration> =>
  parsed(name, "DURATION", description, "a duration like 12 hours or 7 days", Units.parseDuration)
