/**
 * Owns one PostgreSQL server and its folder for as long as standard input stays open.
 *
 * Runs as a process and session of its own, so that a Ctrl-C in the terminal does not reach it, and learns
 * from the end of its input that the process it serves is gone, whichever way that one ended: the kernel
 * closes the pipe even after a SIGKILL. It then stops the server and removes the folder.
 *
 * Answers with one line of JSON on standard output. It is plain Node without a dependency, because it must be
 * complete in memory before it gives up the right to read the folders it was loaded from.
 *
 * Known hole: whoever kills the supervisor itself with SIGKILL leaves the server running. The `recover` mode
 * is how the process it served takes over in that case.
 */
import { spawn, type ChildProcess } from "node:child_process"
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { createConnection } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"

/** What the supervisor is asked to do, as its arguments. */
export type Command =
  | readonly [
      mode: "serve",
      native: string,
      durability: "durable" | "fast",
      /** Whose C.UTF-8 sorts and compares: PostgreSQL has its own from version 17 on. */
      locale: "builtin" | "system"
    ]
  | readonly [mode: "recover", folder: string]

/** The answer: the server takes connections, or why it never will. */
export type Report =
  | { readonly _tag: "Ready"; readonly folder: string; readonly port: number; readonly pid: number }
  | { readonly _tag: "Failed"; readonly message: string }

const port = 5432
const nobody = "nobody"
// The group of `nobody` is called nogroup, nobody or something else; the number needs no entry.
const nobodyGroup = 65534
// 103: the longest path macOS takes for a socket; Linux takes 107.
const socketPathLimit = 103
// A session that does not end in time, a stopped one for instance, is cut off.
const fastShutdownMillis = 3_000
// PostgreSQL itself kills the sessions 5 seconds after an immediate shutdown began.
const immediateShutdownMillis = 10_000
const drainMillis = 500
// Enough for the last messages of a failed start.
const outputTail = 4_000

const privileged = process.getuid?.() === 0

/** Takes the rights of `nobody`, so that files are made and reached as the server will do it. */
const impersonate = (): void => {
  process.setgroups?.([])
  process.setegid?.(nobodyGroup)
  process.seteuid?.(nobody)
}

const asRoot = <A>(read: () => A): A => {
  process.seteuid?.(0)
  try {
    return read()
  } finally {
    process.seteuid?.(nobody)
  }
}

/** Gives up being root for good: PostgreSQL refuses to run as root. */
const surrender = (): void => {
  process.seteuid?.(0)
  process.setgroups?.([])
  process.setgid?.(nobodyGroup)
  process.setuid?.(nobody)
}

const makeFolder = (): string => {
  const failures: Array<string> = []
  for (const parent of new Set([tmpdir(), "/tmp"])) {
    if (join(parent, "rpg-XXXXXX", `.s.PGSQL.${port}`).length > socketPathLimit) {
      failures.push(`${parent}: too long for a socket`)
      continue
    }
    try {
      return mkdtempSync(join(parent, "rpg-"))
    } catch (cause) {
      failures.push(`${parent}: ${String(cause)}`)
    }
  }
  throw new Error(`no folder for the server could be made (${failures.join("; ")})`)
}

/** Whether something can be read, or is not there: a system keeps `share` elsewhere, where `bin` finds it. */
const readableIfThere = (path: string): boolean => {
  try {
    closeSync(openSync(path, "r"))
    return true
  } catch (cause) {
    return cause instanceof Error && "code" in cause && cause.code === "ENOENT"
  }
}

/**
 * Copies the binaries, reading as root and writing as `nobody`: root never writes into a folder that another
 * process of `nobody` could have filled with links. The copy lives and ends with the server, so nothing of it
 * can be planted or outdated.
 */
const copyTree = (from: string, to: string): void => {
  mkdirSync(to, { mode: 0o700 })
  // A folder at a time: each change of the user stops every thread of the process for a moment.
  const entries = asRoot(() =>
    readdirSync(from, { withFileTypes: true }).map((entry) => {
      const path = join(from, entry.name)
      if (entry.isDirectory()) return { name: entry.name, kind: "folder" as const }
      return entry.isSymbolicLink()
        ? { name: entry.name, kind: "link" as const, target: readlinkSync(path) }
        : { name: entry.name, kind: "file" as const, content: readFileSync(path) }
    })
  )
  for (const entry of entries) {
    const path = join(to, entry.name)
    if (entry.kind === "folder") copyTree(join(from, entry.name), path)
    else if (entry.kind === "link") symlinkSync(entry.target, path)
    else writeFileSync(path, entry.content, { mode: 0o700, flag: "wx" })
  }
}

const serverEnvironment = (): NodeJS.ProcessEnv => ({
  // The settings of the caller's own PostgreSQL and locale must not change what a test or a demo sees.
  ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(PG|LC_|LANG)/.test(name))),
  LC_ALL: "C",
  TZ: "UTC"
})

interface Running {
  readonly child: ChildProcess
  readonly output: () => string
  readonly exited: Promise<void>
  readonly hasExited: () => boolean
  /** Resolves when all of the output has been read. */
  readonly drained: Promise<void>
}

const launch = (file: string, args: ReadonlyArray<string>, onOutput?: (output: string) => void): Running => {
  // Detached: initdb starts servers of its own, and the group is how they are reached.
  const child = spawn(file, args, {
    cwd: "/",
    detached: true,
    env: serverEnvironment(),
    stdio: ["ignore", "ignore", "pipe"]
  })
  let output = ""
  let over = false
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
    output = (output + chunk).slice(-outputTail)
    onOutput?.(output)
  })
  const exited = new Promise<void>((resolve) => {
    child.once("error", (cause) => {
      output += String(cause)
      over = true
      resolve()
    })
    child.once("exit", () => {
      over = true
      resolve()
    })
  })
  const drained = new Promise<void>((resolve) => {
    child.once("close", () => resolve())
  })
  return { child, output: () => output.trim(), exited, hasExited: () => over, drained }
}

const exitsWithin = (running: Running, millis: number): Promise<void> =>
  Promise.race([running.exited, delay(millis, undefined, { ref: false })])

const endInitdb = async (running: Running): Promise<void> => {
  for (const signal of ["SIGTERM", "SIGKILL"] as const) {
    if (running.child.pid === undefined || running.hasExited()) return
    process.kill(-running.child.pid, signal)
    await exitsWithin(running, fastShutdownMillis)
  }
}

const endPostgres = async (running: Running): Promise<void> => {
  running.child.kill("SIGINT")
  await exitsWithin(running, fastShutdownMillis)
  if (running.hasExited()) return
  running.child.kill("SIGQUIT")
  await exitsWithin(running, immediateShutdownMillis)
  if (running.hasExited()) return
  running.child.kill("SIGKILL")
  await running.exited
}

const removeFolder = (folder: string): void =>
  // Retried: a process cut off a moment ago may still add a file.
  rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 })

const report = (message: Report): void => {
  process.stdout.write(`${JSON.stringify(message)}\n`)
}

/** Resolves when the served process has gone or asks for the end. */
const ended = new Promise<void>((resolve) => {
  process.stdin.once("end", resolve).once("error", () => resolve())
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(signal, () => resolve())
})

const failure = async (name: string, running: Running): Promise<Error> => {
  // Bounded: a session that outlives its server keeps the pipe open.
  await Promise.race([running.drained, delay(drainMillis, undefined, { ref: false })])
  return new Error(`${name} failed: ${running.output()}`)
}

/** Answers whether the data folder is complete; it is not when the end came first. */
const initialise = async (native: string, locale: string, data: string): Promise<boolean> => {
  const initdb = launch(join(native, "bin", "initdb"), [
    `--pgdata=${data}`,
    "--username=postgres",
    "--auth-local=trust",
    "--auth-host=reject",
    "--encoding=UTF8",
    ...(locale === "builtin" ? ["--locale-provider=builtin"] : []),
    "--locale=C.UTF-8",
    "--no-instructions",
    // The folder does not outlive this process, let alone a crash of the machine.
    "--no-sync"
  ])
  await Promise.race([initdb.exited, ended])
  if (!initdb.hasExited()) {
    await endInitdb(initdb)
    return false
  }
  if (initdb.child.exitCode !== 0) throw await failure("initdb", initdb)
  return true
}

const run = async (native: string, folder: string, data: string, durable: boolean): Promise<void> => {
  const settings = [
    "listen_addresses=",
    "unix_socket_permissions=0700",
    "max_connections=200",
    ...(durable ? [] : ["fsync=off", "synchronous_commit=off", "full_page_writes=off"])
  ]
  const ready = Promise.withResolvers<void>()
  const postgres = launch(
    join(native, "bin", "postgres"),
    ["-D", data, "-k", folder, "-p", String(port), ...settings.flatMap((setting) => ["-c", setting])],
    (output) => {
      if (output.includes("database system is ready to accept connections")) ready.resolve()
    }
  )
  try {
    await Promise.race([ready.promise, postgres.exited, ended])
    if (postgres.child.pid === undefined || postgres.hasExited()) {
      throw await failure("postgres", postgres)
    }
    report({ _tag: "Ready", folder, port, pid: postgres.child.pid })
    await Promise.race([postgres.exited, ended])
  } finally {
    await endPostgres(postgres)
  }
}

const serve = async (native: string, durable: boolean, locale: string): Promise<void> => {
  if (privileged) impersonate()
  const folder = makeFolder()
  try {
    const reachable = ["bin/initdb", "bin/postgres", "lib", "share"].every((name) =>
      readableIfThere(join(native, name))
    )
    const binaries = reachable || !privileged ? native : join(folder, "native")
    if (binaries !== native) copyTree(native, binaries)
    if (privileged) surrender()
    const data = join(folder, "data")
    if (await initialise(binaries, locale, data)) await run(binaries, folder, data, durable)
  } finally {
    removeFolder(folder)
  }
}

const listening = (path: string): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = createConnection(path)
    socket.once("connect", () => {
      socket.destroy()
      resolve(true)
    })
    socket.once("error", () => resolve(false))
  })

const recover = async (folder: string): Promise<void> => {
  if (privileged) surrender()
  const socket = join(folder, `.s.PGSQL.${port}`)
  // While the socket answers, the number in the file is the server's and cannot be somebody else's.
  if (await listening(socket)) {
    const pid = Number.parseInt(readFileSync(join(folder, "data", "postmaster.pid"), "utf8"), 10)
    const deadline = performance.now() + immediateShutdownMillis
    process.kill(pid, "SIGQUIT")
    while (await listening(socket)) {
      if (performance.now() > deadline) process.kill(pid, "SIGKILL")
      await delay(20)
    }
  }
  removeFolder(folder)
}

const execute = ([mode, path, durability, locale = "builtin"]: ReadonlyArray<string>): Promise<void> => {
  if (path === undefined) return Promise.reject(new Error("the command is incomplete"))
  return mode === "recover" ? recover(path) : serve(path, durability === "durable", locale)
}

// A reader that is gone must not end this process before it has cleaned up.
process.stdout.on("error", () => undefined)
process.stdin.resume()
process.chdir("/")
await execute(process.argv.slice(2)).catch((cause: unknown) => {
  report({ _tag: "Failed", message: cause instanceof Error ? cause.message : String(cause) })
  process.exitCode = 1
})
// The open input would keep it alive.
process.stdin.destroy()
