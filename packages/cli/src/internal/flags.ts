/** The flags that several commands share, and how their texts become values. */
import { Ids } from "@reclaim/core"
import type { Duration, Option, Schema } from "effect"

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

export const size = (name: string, description: string): Flag.Flag<bigint> =>
  parsed(name, "SIZE", description, "a size with a unit, like 512MiB or 10GB", Units.parseSize)

export const duration = (name: string, description: string): Flag.Flag<Duration.Duration> =>
  parsed(name, "DURATION", description, "a duration like 12 hours or 7 days", Units.parseDuration)
