/**
 * The one place that touches the process: signals, exit codes, the standard streams and who is running it.
 */
import { Cause, Deferred, Effect, Exit, Runtime, Schema, type Scope } from "effect"
import { hostname, userInfo } from "node:os"

/** Nobody reads what is printed any more, as when a pipe into `head` closes. */
export class OutputClosed extends Schema.TaggedError<OutputClosed>()("OutputClosed", {
  detail: Schema.String
}) {
  override get message() {
    return `the output cannot be written: ${this.detail}`
  }
}

const ignore = () => undefined

/** Writes to a standard stream and waits until it is handed over, so that nothing is lost at the exit. */
export const write = (stream: "stdout" | "stderr", text: string): Effect.Effect<void, OutputClosed> =>
  Effect.callback<void, OutputClosed>((resume) => {
    process[stream].write(text, (error) => {
      resume(
        error === null || error === undefined
          ? Effect.void
          : Effect.fail(new OutputClosed({ detail: error.message }))
      )
    })
  })

/** Names the process in the journal: which machine, which process. */
export const server = `${hostname()} pid ${process.pid}`

/** Names the person: the system's name for the user, or the number where it has none. */
export const operator: Effect.Effect<string> = Effect.sync(() => userInfo().username).pipe(
  Effect.catchDefect(() => Effect.sync(() => `uid ${process.getuid?.() ?? "unknown"}`)),
  Effect.map((user) => `${user}@${hostname()}`)
)

// `npm run` and `npx` pass a Ctrl-C on to a process that the terminal has already sent it to. Only one that
// comes later than that is a person who does not want to wait.
const impatientAfterMillis = 750

const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const

/** What a SIGTERM does instead of interrupting, while somebody listens for it. */
let onTermination: (() => void) | undefined

/** Until the scope closes, the first SIGTERM completes the effect that this returns, and interrupts nothing. */
export const termination: Effect.Effect<Effect.Effect<void>, never, Scope.Scope> = Effect.acquireRelease(
  Effect.sync(() => {
    const asked = Deferred.makeUnsafe<void>()
    onTermination = () => Deferred.doneUnsafe(asked, Effect.void)
    return Deferred.await(asked)
  }),
  () =>
    Effect.sync(() => {
      onTermination = undefined
    })
)

/**
 * Runs the main effect, whose value is the exit code.
 *
 * The first signal interrupts it, unless it is a SIGTERM that somebody listens for: the entry in hand is
 * finished or undone, and what was acquired is given back. A second one does not wait for that: every protocol here survives the death of its process.
 */
export const runMain: (main: Effect.Effect<number>) => void = (main) =>
  Runtime.makeRunMain(({ fiber, teardown }) => {
    let askedAt: number | undefined
    const onSignal = (signal: NodeJS.Signals) => {
      const now = performance.now()
      if (askedAt === undefined) {
        askedAt = now
        if (signal === "SIGTERM" && onTermination !== undefined) onTermination()
        else fiber.interruptUnsafe(fiber.id)
      } else if (now - askedAt > impatientAfterMillis) {
        process.exit(130)
      }
    }
    for (const signal of signals) process.on(signal, onSignal)
    // Without a listener Node turns a closed pipe into a crash; each write reports it to its own caller.
    process.stdout.on("error", ignore)
    process.stderr.on("error", ignore)
    fiber.addObserver((exit) => {
      teardown(exit, (code) => process.exit(code))
    })
  })(main, {
    disableErrorReporting: true,
    teardown: (exit, onExit) => {
      if (Exit.isSuccess(exit)) return onExit(typeof exit.value === "number" ? exit.value : 0)
      onExit(Cause.hasInterruptsOnly(exit.cause) ? 130 : 1)
    }
  })
