/** Touches the system for the benchmarks: child processes, files, and what a piece of work costs. */
import { Effect, Schema } from "effect"
import { spawn } from "node:child_process"
import { subscribe } from "node:diagnostics_channel"
import * as NodeFs from "node:fs"
import { Socket } from "node:net"
import * as NodeOs from "node:os"
import { monitorEventLoopDelay } from "node:perf_hooks"
import * as V8 from "node:v8"
import { runInNewContext } from "node:vm"

/** A command that ended with another code than 0. */
export class CommandFailed extends Schema.TaggedError<CommandFailed>()("CommandFailed", {
  command: Schema.String,
  detail: Schema.String
}) {
  override get message() {
    return `${this.command}: ${this.detail}`
  }
}

/**
 * Runs a command to its end and returns what it printed. Interruption ends the command and all that it
 * started: it runs in a process group of its own, which a Ctrl-C of the terminal does not reach.
 */
export const command = (
  name: string,
  args: ReadonlyArray<string>,
  options: { readonly cwd?: string; readonly input?: string } = {}
): Effect.Effect<string, CommandFailed> =>
  Effect.callback<string, CommandFailed>((resume) => {
    const child = spawn(name, args, {
      cwd: options.cwd,
      detached: true,
      env: { ...process.env, LC_ALL: "C" },
      stdio: ["pipe", "pipe", "pipe"]
    })
    const out: Array<Buffer> = []
    const err: Array<Buffer> = []
    const fail = (detail: string) => resume(Effect.fail(new CommandFailed({ command: name, detail })))
    child.stdout.on("data", (chunk: Buffer) => out.push(chunk))
    child.stderr.on("data", (chunk: Buffer) => err.push(chunk))
    child.on("error", (error) => fail(error.message))
    child.on("close", (code, signal) =>
      code === 0
        ? resume(Effect.succeed(Buffer.concat(out).toString()))
        : fail(Buffer.concat(err).toString().trim() || `ended with ${code ?? signal}`)
    )
    child.stdin.on("error", () => undefined)
    child.stdin.end(options.input)
    return Effect.callback<void>((ended) => {
      if (child.pid === undefined || child.exitCode !== null) return ended(Effect.void)
      child.once("close", () => ended(Effect.void))
      process.kill(-child.pid, "SIGKILL")
    })
  })

/** A folder that is gone when the scope closes. */
export const temporaryFolder = (parent: string) =>
  Effect.acquireRelease(
    Effect.sync(() => NodeFs.realpathSync(NodeFs.mkdtempSync(`${parent}/reclaim-bench-`))),
    (path) => Effect.ignore(command("rm", ["-rf", "--", path]))
  )

/** Where the data of the benchmarks go. */
export const dataFolder = (): string => process.env["RECLAIM_BENCH_DIR"] || NodeOs.tmpdir()

export const exists = (path: string): boolean => NodeFs.existsSync(path)

export const makeFolder = (path: string): void => {
  NodeFs.mkdirSync(path, { recursive: true })
}

/** Writes a file with exactly this mode. */
export const writeFile = (path: string, content: Uint8Array, mode: number): void => {
  NodeFs.writeFileSync(path, content)
  NodeFs.chmodSync(path, mode)
}

/** Sets the time at which something was last changed. */
export const setTime = (path: string, at: Date): void => NodeFs.utimesSync(path, at, at)

/** Nanoseconds on the monotonic clock. */
export const nanoseconds = (): bigint => process.hrtime.bigint()

/** Says what goes on, on standard error. */
export const say = (line: string): Effect.Effect<void> =>
  Effect.sync(() => {
    process.stderr.write(`${line}\n`)
  })

/** Prints a result, on standard output. */
export const print = (text: string): Effect.Effect<void> =>
  Effect.sync(() => {
    process.stdout.write(`${text}\n`)
  })

const sockets = new Set<Socket>()
subscribe("net.client.socket", (message) => {
  if (typeof message === "object" && message !== null && "socket" in message) {
    if (message.socket instanceof Socket) sockets.add(message.socket)
  }
})

/** Bytes that this process has received on all connections that it opened. */
export const receivedBytes = (): number => {
  let sum = 0
  for (const socket of sockets) sum += socket.bytesRead
  return sum
}

const collectGarbage = (() => {
  V8.setFlagsFromString("--expose-gc")
  const gc: unknown = runInNewContext("gc")
  return typeof gc === "function" ? () => void gc() : () => undefined
})()

/** Starts the kernel's own record of the largest resident set anew; false where it has none. */
const restartPeak = (): boolean => {
  try {
    NodeFs.writeFileSync("/proc/self/clear_refs", "5")
    return true
  } catch {
    return false
  }
}

const peak = (): number => {
  const found = /^VmHWM:\s+(\d+) kB$/m.exec(NodeFs.readFileSync("/proc/self/status", "utf8"))
  return Number(found?.[1] ?? 0) * 1024
}

/**
 * What a piece of work cost. The delays are those of this process's event loop: 0 is a loop that was never
 * late. `peakBytes` is by how much the resident set grew at most, null where the kernel does not tell.
 */
export interface Cost {
  readonly millis: number
  readonly loopP99Millis: number
  readonly longestStallMillis: number
  readonly peakBytes: number | null
}

// 1 ms: the finest that the monitor's timer can do. It is part of every delay that it reports.
const resolution = 1
// 5 ms: a few ticks, so that a stall at the very end is still recorded.
const settleMillis = 5

/** Does something and tells what it cost. Garbage of earlier work is collected first. */
export const measure = <A, E, R>(
  work: Effect.Effect<A, E, R>
): Effect.Effect<{ readonly value: A; readonly cost: Cost }, E, R> =>
  Effect.gen(function* () {
    collectGarbage()
    const delays = monitorEventLoopDelay({ resolution })
    delays.enable()
    yield* Effect.sleep(settleMillis)
    delays.reset()
    const before = process.memoryUsage.rss()
    const recorded = restartPeak()
    const started = nanoseconds()
    const value = yield* work
    const millis = Number(nanoseconds() - started) / 1e6
    const highest = recorded ? peak() : 0
    yield* Effect.sleep(settleMillis)
    delays.disable()
    const late = (nanos: number) => Math.max(0, nanos / 1e6 - resolution)
    const cost: Cost = {
      millis,
      loopP99Millis: late(delays.percentile(99)),
      longestStallMillis: late(delays.max),
      peakBytes: recorded ? Math.max(0, highest - before) : null
    }
    return { value, cost }
  })

/** What figures depend on. */
export interface Machine {
  readonly cpu: string
  readonly cores: number
  readonly memoryBytes: number
  readonly system: string
  readonly fileSystem: string
  readonly folder: string
  readonly node: string
  readonly loadAverage: number
  readonly date: string
}

/** The type and the options of the file system that a folder lies on. */
const fileSystemOf = (folder: string): string => {
  let best = { point: "", shown: "unknown" }
  for (const line of NodeFs.readFileSync("/proc/self/mountinfo", "utf8").split("\n")) {
    const [left = "", right = ""] = line.split(" - ")
    const point = left.split(" ")[4] ?? ""
    const [type = "unknown", , options = ""] = right.split(" ")
    const inside = point === "/" || folder === point || folder.startsWith(`${point}/`)
    if (point !== "" && inside && point.length >= best.point.length) {
      best = { point, shown: `${type} (${options})` }
    }
  }
  return best.shown
}

/** Reads the facts of this machine. */
export const machine = (folder: string): Machine => ({
  cpu: NodeOs.cpus()[0]?.model.trim() ?? "unknown",
  cores: NodeOs.availableParallelism(),
  memoryBytes: NodeOs.totalmem(),
  system: `${NodeOs.type()} ${NodeOs.release()}`,
  fileSystem: fileSystemOf(folder),
  folder,
  node: process.version,
  loadAverage: NodeOs.loadavg()[0] ?? 0,
  date: new Date().toISOString()
})

/** The scenarios compare with GNU's tools, which other systems do not have. */
export const isSupported = (): boolean => process.platform === "linux"
