/**
 * Assembles the `reclaim` command and runs it to an exit code.
 *
 * **Details**
 *
 * | exit code | meaning |
 * |---|---|
 * | 0 | done; copies that were kept are no failure |
 * | 1 | something failed, or could not be done for one of the things asked for |
 * | 2 | the command line or a setting is wrong |
 * | 130 | interrupted, after the entry in hand was finished or undone |
 *
 * @since 0.1.0
 */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, Console, Effect, Layer, Logger, Option, References, Stdio } from "effect"
import { CliConfig, CliError, CliOutput, Command, Flag, GlobalFlag } from "effect/cli"
import { backups } from "./internal/backups.ts"
import { demo } from "./internal/demo.ts"
import { doctor } from "./internal/doctor.ts"
import { fromCause, withoutCredentials } from "./internal/failure.ts"
import { globalFlags } from "./internal/flags.ts"
import { hold, holds, unhold } from "./internal/holds.ts"
import { journal } from "./internal/journal.ts"
import { migrate } from "./internal/migrate.ts"
import * as Serve from "./internal/serve.ts"
import { skills } from "./internal/skills.ts"
import { Printer, layer as printerLayer } from "./internal/printer.ts"

/** @category constants @since 0.1.0 */
export const version = "0.1.0"

const root = Command.make(
  "reclaim",
  {
    // The built-in flag of that name would take `--version ID` away from the commands.
    version: Flag.Boolean("version").pipe(
      Flag.withDescription("Show the version"),
      Flag.withoutNegation,
      Flag.withDefault(false)
    )
  },
  Effect.fnUntraced(function* (flags) {
    if (!flags.version) return yield* new CliError.ShowHelp({ commandPath: ["reclaim"], errors: [] })
    yield* (yield* Printer).lines(version)
  })
).pipe(
  Command.withDescription(
    "Removes copies that can be done without: skill versions that the database can rebuild, and backups of sessions whose work is closed"
  ),
  Command.withExamples([
    { command: "reclaim demo", description: "See what it does, on a made-up instance" },
    { command: "reclaim doctor", description: "See whether everything is as it should be" }
  ])
)

/** The whole tree of commands. @category commands @since 0.1.0 */
export const command = root.pipe(
  Command.withSubcommands([
    skills,
    backups,
    hold,
    unhold,
    holds,
    journal,
    doctor,
    Serve.make(version),
    migrate,
    demo
  ]),
  Command.withGlobalFlags([...globalFlags])
)

const presenter = (printer: Printer["Service"]): CliOutput.Presenter => ({
  present: Effect.fnUntraced(function* (event) {
    // What is wrong with an invocation is told in one line by whoever catches the error.
    if (event._tag === "InvalidInvocation") return
    if (!printer.json) return yield* CliOutput.defaultPresenter.present(event)
    if (event._tag === "Help" && event.reason === "Requested") {
      yield* Console.error(CliOutput.defaultFormatter({ colors: false }).formatHelpDoc(event.helpDoc))
    }
  })
})

const isSet = (args: ReadonlyArray<string>, flag: string): boolean => {
  const end = args.indexOf("--")
  return (end === -1 ? args : args.slice(0, end)).some((arg) => arg === flag || arg === `${flag}=true`)
}

/**
 * Runs the command with these arguments, prints what it has to say and returns the exit code.
 *
 * @category running
 * @since 0.1.0
 */
export const run = (args: ReadonlyArray<string>): Effect.Effect<number> => {
  // Known before the arguments are parsed, because a mistake in them has to be told in the right form.
  const debug = isSet(args, "--debug")
  const end = Effect.fnUntraced(function* (cause: Cause.Cause<unknown>) {
    const printer = yield* Printer
    if (debug) {
      for (const line of withoutCredentials(Cause.pretty(cause)).split("\n")) yield* printer.log(line)
    }
    const shown = fromCause(cause)
    if (Option.isNone(shown)) return 130
    if (shown.value._tag !== "Unsuccessful") yield* printer.failure(shown.value)
    return shown.value.exitCode
  })
  return Effect.gen(function* () {
    const printer = yield* Printer
    return yield* Command.runWith(command, { version })(args).pipe(
      Effect.as(0),
      Effect.onInterrupt(() => printer.failure({ _tag: "Interrupted", message: "interrupted", exitCode: 1 })),
      Effect.catchCause((cause) =>
        args.length === 0 && fromCause(cause).pipe(Option.exists(({ _tag }) => _tag === "MissingSubcommand"))
          ? Effect.succeed(0)
          : end(cause)
      ),
      Effect.provideService(CliOutput.Presenter, presenter(printer))
    )
  }).pipe(
    Effect.provide(
      Layer.mergeAll(
        Layer.provideMerge(printerLayer({ json: isSet(args, "--json") }), NodeServices.layer),
        CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Completions, GlobalFlag.LogLevel] }),
        Logger.layer([Logger.consolePretty()])
      )
    ),
    Effect.provideService(Logger.LogToStderr, true),
    Effect.provideService(References.MinimumLogLevel, debug ? "Debug" : "Warn")
  )
}

/**
 * Runs the command with the arguments of the process.
 *
 * @category running
 * @since 0.1.0
 */
export const main: Effect.Effect<number> = Stdio.Stdio.pipe(
  Effect.flatMap((stdio) => stdio.args),
  Effect.flatMap(run),
  Effect.provide(NodeServices.layer)
)
