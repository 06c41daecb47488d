/** `reclaim serve` as a process of its own, and requests to it as any client could send them. */
import { Deferred, Effect, Fiber, Schema, Stream } from "effect"
import { TestClock } from "effect/testing"
import { request as httpRequest } from "node:http"
import { Output } from "../../src/index.ts"
import { eventually, start } from "./reclaim.ts"

export interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
  readonly body: string
}

/** The host has not answered, or has closed the connection. */
export class NoAnswer extends Schema.TaggedError<NoAnswer>()("NoAnswer", { detail: Schema.String }) {}

const noAnswer = (detail: string) => Effect.fail(new NoAnswer({ detail }))

/** Sends a request with exactly these headers: `fetch` would not let a test name another host. */
export const request = (
  url: string,
  options: { readonly method?: string; readonly headers?: Readonly<Record<string, string>> } = {}
): Effect.Effect<Answer, NoAnswer> =>
  Effect.callback<Answer, NoAnswer>((resume) => {
    const sent = httpRequest(
      url,
      { method: options.method ?? "GET", headers: { ...options.headers }, agent: false },
      (response) => {
        let body = ""
        response.setEncoding("utf8").on("data", (chunk: string) => {
          body += chunk
        })
        response.on("end", () =>
          resume(Effect.succeed({ status: response.statusCode ?? 0, headers: response.headers, body }))
        )
        response.on("error", (error) => resume(noAnswer(error.message)))
      }
    )
    sent.on("error", (error) => resume(noAnswer(error.message)))
    sent.end()
    return Effect.sync(() => void sent.destroy())
  }).pipe(
    // No answer may take as long, whatever the database does.
    Effect.timeoutOrElse({
      duration: "10 seconds",
      orElse: () => noAnswer(`none from ${url} within 10 seconds`)
    }),
    TestClock.withLive
  )

const Listening = Schema.fromJsonString(Output.Listening)

/** Starts the host on a port of the system's choice and waits until it listens. */
export const serve = Effect.fnUntraced(function* (
  env: Readonly<Record<string, string>>,
  args: ReadonlyArray<string> = []
) {
  const child = yield* start(["serve", "--port", "0", "--json", ...args], { env })
  let log = ""
  const first = yield* Deferred.make<string>()
  const stdout = yield* Effect.forkScoped(
    child.stdout.pipe(
      Stream.decodeText(),
      Stream.splitLines,
      Stream.tap((line) => Deferred.succeed(first, line)),
      Stream.runCollect,
      Effect.orDie
    )
  )
  yield* Effect.forkScoped(
    child.stderr.pipe(
      Stream.decodeText(),
      Stream.runForEach((text) =>
        Effect.sync(() => {
          log += text
        })
      ),
      Effect.orDie
    )
  )
  const line = yield* TestClock.withLive(
    Effect.timeoutOrElse(Deferred.await(first), {
      duration: "30 seconds",
      orElse: () => Effect.die(new Error(`it does not listen: ${log}`))
    })
  )
  const { url } = yield* Effect.orDie(Schema.decodeEffect(Listening)(line))
  const get = (path: string) => request(`${url}${path}`)
  return {
    url,
    get,
    post: (path: string, headers: Readonly<Record<string, string>> = {}) =>
      request(`${url}${path}`, { method: "POST", headers }),
    status: get("/status.json").pipe(
      Effect.flatMap(({ body }) => Schema.decodeEffect(Schema.fromJsonString(Output.Status))(body)),
      Effect.orDie
    ),
    /** What stands on standard error so far. */
    log: Effect.sync(() => log),
    kill: (signal: "SIGINT" | "SIGTERM") => Effect.orDie(child.kill({ killSignal: signal })),
    /** Sends a signal without waiting for the end of the process. */
    signal: (signal: NodeJS.Signals) => Effect.sync(() => void process.kill(child.pid, signal)),
    exitCode: Effect.orDie(Effect.map(child.exitCode, Number)),
    isRunning: Effect.orDie(child.isRunning),
    /** All lines on standard output; waits for the end. */
    lines: Fiber.join(stdout)
  }
})

export type Host = Effect.Success<ReturnType<typeof serve>>

/** Waits until the answer has this status. A host that does not answer yet counts as none. */
export const untilStatus = (host: Host, path: string, status: number) =>
  eventually(
    host.get(path).pipe(
      Effect.map((answer) => answer.status === status),
      Effect.orElseSucceed(() => false)
    )
  )
