/** Runs the command as a process of its own, as an operator's shell does. */
import { Effect, type Scope, Stream } from "effect"
import { ChildProcess, ChildProcessSpawner } from "effect/process"
import { TestClock } from "effect/testing"
import { fileURLToPath } from "node:url"
import { inject } from "vitest"

/** What npm makes a link to. It takes three times as long to start as the bundle does. */
export const binary = fileURLToPath(new URL("../../bin/reclaim.js", import.meta.url))

export interface Finished {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
  /** The documents on standard output; fails the test where a line is none. */
  readonly documents: ReadonlyArray<Readonly<Record<string, unknown>>>
}

export interface RunOptions {
  /** The whole environment of the process. */
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  /** Flags for Node itself. */
  readonly node?: ReadonlyArray<string>
  /** What is started: the bundle unless told otherwise. */
  readonly file?: string
}

const text = <E, R>(stream: Stream.Stream<Uint8Array, E, R>) =>
  stream.pipe(Stream.decodeText(), Stream.mkString)

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null

const parse = (line: string): Readonly<Record<string, unknown>> => {
  const value: unknown = JSON.parse(line)
  if (!isRecord(value)) throw new Error(`not a document: ${line}`)
  return value
}

const bundle = inject("command")

const command = (args: ReadonlyArray<string>, options: RunOptions) =>
  ChildProcess.make(
    process.execPath,
    [...(options.node ?? []), options.file ?? `${bundle}/main.js`, ...args],
    {
      env: {
        ...(options.file === undefined ? { NODE_COMPILE_CACHE: `${bundle}/compiled` } : {}),
        ...options.env
      },
      extendEnv: false,
      stdin: "ignore",
      ...(options.cwd === undefined ? {} : { cwd: options.cwd })
    }
  )

/** Starts the command and leaves it running. */
export const start = (
  args: ReadonlyArray<string>,
  options: RunOptions = {}
): Effect.Effect<
  ChildProcessSpawner.ChildProcessHandle,
  never,
  Scope.Scope | ChildProcessSpawner.ChildProcessSpawner
> =>
  ChildProcessSpawner.ChildProcessSpawner.pipe(
    Effect.flatMap((spawner) => spawner.spawn(command(args, options))),
    Effect.orDie
  )

/** Runs the command to its end. */
export const reclaim = (
  args: ReadonlyArray<string>,
  options: RunOptions = {}
): Effect.Effect<Finished, never, ChildProcessSpawner.ChildProcessSpawner> =>
  Effect.gen(function* () {
    const process = yield* start(args, options)
    const [stdout, stderr] = yield* Effect.all([text(process.stdout), text(process.stderr)], {
      concurrency: "unbounded"
    })
    const code = yield* process.exitCode
    return {
      code,
      stdout,
      stderr,
      get documents() {
        return stdout.split("\n").slice(0, -1).map(parse)
      }
    }
  }).pipe(Effect.scoped, Effect.orDie)

/** Asks again until it is true. Only for other processes, of which a test sees nothing but what others say. */
export const eventually = <E, R>(check: Effect.Effect<boolean, E, R>): Effect.Effect<void, E, R> =>
  Effect.gen(function* () {
    // 400 times 25 ms: ten seconds, after which it is not going to happen.
    for (let attempt = 0; attempt < 400; attempt++) {
      if (yield* check) return
      yield* TestClock.withLive(Effect.sleep("25 millis"))
    }
    return yield* Effect.die(new Error("it never came true"))
  })
