/** A browser without a window, to look at pages as a person does. */
import { Deferred, Effect, type Scope } from "effect"
import { TestClock } from "effect/testing"
import { spawn } from "node:child_process"
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { eventually } from "./reclaim.ts"

/** The browser's binary, where it is installed. */
export const binary: string | undefined = [
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
  "/usr/local/bin/chromium"
].find(existsSync)

export interface View {
  readonly width: number
  readonly height: number
  readonly scheme: "light" | "dark"
  /** False looks at the page as a browser without scripts does. */
  readonly scripts?: boolean
}

export interface Page {
  /** Loads a page and waits until it is there. */
  readonly visit: (url: string, view: View) => Effect.Effect<void>
  /** The value of an expression, as JSON can carry it. */
  readonly evaluate: (expression: string) => Effect.Effect<unknown>
  /** The warnings and errors that the console told since the browser was started. */
  readonly complaints: ReadonlyArray<string>
  readonly screenshot: (path: string) => Effect.Effect<void>
}

type Reply = Readonly<Record<string, unknown>>

const isRecord = (value: unknown): value is Reply => typeof value === "object" && value !== null

const at = (value: unknown, ...path: ReadonlyArray<string>): unknown =>
  path.reduce((inner, key) => (isRecord(inner) ? inner[key] : undefined), value)

const connect = (url: string) =>
  Effect.callback<WebSocket>((resume) => {
    const socket = new WebSocket(url)
    socket.addEventListener("open", () => resume(Effect.succeed(socket)))
    socket.addEventListener("error", () => resume(Effect.die(new Error("the browser does not answer"))))
  })

/** Starts the browser with one empty page, for as long as the scope is open. */
export const open: Effect.Effect<Page, never, Scope.Scope> = Effect.gen(function* () {
  const folder = mkdtempSync(join(tmpdir(), "reclaim-chromium-"))
  const child = spawn(
    binary ?? "chromium",
    [
      "--headless=new",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-dev-shm-usage",
      "--no-first-run",
      "--hide-scrollbars",
      "--remote-debugging-port=0",
      `--user-data-dir=${folder}`,
      "about:blank"
    ],
    { stdio: "ignore", detached: true }
  )
  yield* Effect.addFinalizer(() =>
    Effect.gen(function* () {
      const gone = Effect.callback<void>((resume) => {
        if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
        child.once("exit", () => resume(Effect.void))
      })
      // The whole group: the browser is several processes.
      if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL")
      yield* gone
      rmSync(folder, { recursive: true, force: true, maxRetries: 10 })
    })
  )
  const portFile = join(folder, "DevToolsActivePort")
  yield* eventually(Effect.sync(() => existsSync(portFile) && readFileSync(portFile, "utf8").includes("\n")))
  const port = readFileSync(portFile, "utf8").split("\n", 1).join("")
  const targets: unknown = yield* Effect.promise(() =>
    fetch(`http://127.0.0.1:${port}/json`).then((response) => response.json())
  )
  const target = Array.isArray(targets) ? targets.find((each) => at(each, "type") === "page") : undefined
  const socket = yield* connect(String(at(target, "webSocketDebuggerUrl")))
  const replies = new Map<number, Deferred.Deferred<Reply>>()
  const complaints: Array<string> = []
  let loaded = Deferred.makeUnsafe<void>()
  socket.addEventListener("message", ({ data }) => {
    const message: unknown = JSON.parse(String(data))
    const id = at(message, "id")
    const method = at(message, "method")
    const params = at(message, "params")
    if (typeof id === "number" && isRecord(message)) {
      const reply = replies.get(id)
      if (reply !== undefined) Deferred.doneUnsafe(reply, Effect.succeed(message))
    } else if (method === "Page.loadEventFired") {
      Deferred.doneUnsafe(loaded, Effect.void)
    } else if (
      method === "Log.entryAdded" &&
      ["warning", "error"].includes(String(at(params, "entry", "level")))
    ) {
      complaints.push(String(at(params, "entry", "text")))
    } else if (method === "Runtime.exceptionThrown") {
      complaints.push(JSON.stringify(at(params, "exceptionDetails")))
    } else if (method === "Runtime.consoleAPICalled") {
      complaints.push(JSON.stringify(at(params, "args")))
    }
  })
  let last = 0
  const send = (method: string, params: Reply = {}) =>
    Effect.gen(function* () {
      last += 1
      const id = last
      const reply = Deferred.makeUnsafe<Reply>()
      replies.set(id, reply)
      socket.send(JSON.stringify({ id, method, params }))
      const answer = yield* TestClock.withLive(
        Effect.timeout(Deferred.await(reply), "20 seconds").pipe(Effect.orDie)
      )
      if ("error" in answer)
        return yield* Effect.die(new Error(`${method}: ${JSON.stringify(answer["error"])}`))
      return answer["result"]
    })
  for (const domain of ["Page", "Runtime", "Log"]) yield* send(`${domain}.enable`)
  return {
    complaints,
    visit: Effect.fnUntraced(function* (url, { height, scheme, scripts = true, width }) {
      yield* send("Emulation.setDeviceMetricsOverride", {
        width,
        height,
        deviceScaleFactor: 1,
        mobile: width < 600
      })
      yield* send("Emulation.setEmulatedMedia", {
        features: [{ name: "prefers-color-scheme", value: scheme }]
      })
      yield* send("Emulation.setScriptExecutionDisabled", { value: !scripts })
      loaded = Deferred.makeUnsafe<void>()
      yield* send("Page.navigate", { url })
      yield* TestClock.withLive(Effect.timeout(Deferred.await(loaded), "20 seconds").pipe(Effect.orDie))
    }),
    evaluate: (expression) =>
      Effect.map(
        send("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true }),
        (result) => at(result, "result", "value")
      ),
    screenshot: (path) =>
      Effect.map(send("Page.captureScreenshot", { captureBeyondViewport: true }), (result) =>
        writeFileSync(path, Buffer.from(String(at(result, "data")), "base64"))
      )
  } satisfies Page
})
