/** Turns whatever ended a command into one clear line, a tag and an exit code. */
import { Cause, Config, Option, Predicate, Schema } from "effect"
import { CliError } from "effect/cli"

/** The command line or a setting asks for something that cannot be. */
export class BadUsage extends Schema.TaggedError<BadUsage>()("BadUsage", { message: Schema.String }) {}

/** The command worked, and what it found or could not do is told already. */
export class Unsuccessful extends Schema.TaggedError<Unsuccessful>()("Unsuccessful", {}) {}

/** `target` is where the server should be, without credentials. */
export class DatabaseUnreachable extends Schema.TaggedError<DatabaseUnreachable>()("DatabaseUnreachable", {
  target: Schema.String,
  detail: Schema.String
}) {
  override get message() {
    return `cannot reach the database at ${this.target}: ${this.detail}`
  }
}

/** The company has no such version. */
export class UnknownVersion extends Schema.TaggedError<UnknownVersion>()("UnknownVersion", {
  companyId: Schema.String,
  versionId: Schema.String
}) {
  override get message() {
    return `the company ${this.companyId} has no version ${this.versionId}`
  }
}

/** What is shown and the exit code that goes with it. */
export interface Shown {
  readonly _tag: string
  readonly message: string
  readonly exitCode: 1 | 2
}

/** O-04: what the caller can put right by calling differently. */
const badUsage = new Set([
  "BadUsage",
  "InvalidSetting",
  "RefusedRoots",
  "InvalidContinuation",
  "InvalidBatchLimit",
  "RefusedSource",
  "RefusedTarget"
])

/** Hides the credentials of every URL in a text: an error may quote what was typed. */
export const withoutCredentials = (text: string): string =>
  text
    .replace(/([a-z][a-z0-9+.-]*:\/\/)[^\s"'`]*@/gi, "$1***@")
    .replace(/([?&](?:password|sslpassword)=)[^&\s"'`]*/gi, "$1***")

const oneLine = (text: string): string =>
  withoutCredentials(text)
    .replace(/\s*\n\s*/g, " ")
    .trim()

/** The sentence of the setting. Below it stands where in the structure it is: the variable, once more. */
const settingMessage = (error: Config.ConfigError): string => error.cause.message.split("\n")[0] ?? ""

const usageMessage = (error: CliError.CliError): string => {
  if (error._tag !== "ShowHelp") return error.message.replace(/\s*\n\s*/g, " ")
  return error.errors.length === 0
    ? `${error.commandPath.join(" ")} needs a command`
    : error.errors.map(usageMessage).join("; ")
}

const describe = (error: unknown): Shown => {
  if (CliError.isCliError(error)) {
    const first = error._tag === "ShowHelp" ? error.errors[0]?._tag : error._tag
    return { _tag: first ?? "MissingSubcommand", message: oneLine(usageMessage(error)), exitCode: 2 }
  }
  if (error instanceof Config.ConfigError)
    return { _tag: error._tag, message: oneLine(settingMessage(error)), exitCode: 2 }
  if (Predicate.hasProperty(error, "_tag") && Predicate.isString(error._tag) && Predicate.isError(error)) {
    return {
      _tag: error._tag,
      message: oneLine(error.message) || error._tag,
      exitCode: badUsage.has(error._tag) ? 2 : 1
    }
  }
  return {
    _tag: "Unexpected",
    message: `${oneLine(Predicate.isError(error) ? error.message : String(error))} (this is a defect; --debug tells more)`,
    exitCode: 1
  }
}

/**
 * What ended a command. Nothing when it was interrupted. The first typed failure counts, because a failure of
 * a finalizer comes after what caused it.
 */
export const fromCause = (cause: Cause.Cause<unknown>): Option.Option<Shown> =>
  Cause.hasInterruptsOnly(cause)
    ? Option.none()
    : Option.some(
        describe(
          Option.getOrElse(
            Option.map(Cause.findErrorOption(cause), (error): unknown => error),
            () => Cause.squash(cause)
          )
        )
      )
