/** Runs one operation in one world until a fault strikes it, and looks at what the next server makes of it. */
import { FaultPoint } from "@reclaim/core"
import type { PosixFileSystem, Trees } from "@reclaim/fs"
import { TestDatabase } from "@reclaim/postgres/testing"
import { DateTime, Deferred, Effect, Exit, Fiber, Layer } from "effect"
import { execFileSync, spawn } from "node:child_process"
import * as Fs from "node:fs"
import * as Os from "node:os"
import { fileURLToPath } from "node:url"
import { eventually } from "../../../db/test/support/database.ts"
import { MovableClock } from "../../src/testing.ts"
import * as World from "../support/World.ts"
import * as BackupScenarios from "./BackupScenarios.ts"
import { type Column, type Event, fileFaults, isItself } from "./Faults.ts"
import * as Operations from "./Operations.ts"
import { Broken, type Scene } from "./Scenario.ts"
import * as Server from "./Server.ts"
import * as SkillScenarios from "./SkillScenarios.ts"

/** The names of the scenarios; they do not depend on a world. */
export const scenarioNames: ReadonlyArray<string> = [
  ...SkillScenarios.scenarios(""),
  ...BackupScenarios.scenarios
].map(({ name }) => name)

/** A point that an operation reaches, which time, and what happens then. */
export interface Cell {
  readonly scenario: string
  readonly point: string
  readonly occurrence: number
  readonly column: Column
}

/** Written so that it can be asked for again. */
export const show = ({ column, occurrence, point, scenario }: Cell): string =>
  [scenario, point, occurrence, column].join("/")

// 2 minutes: a hundred times what the longest operation takes; one that hangs is found all the same.
const bound = "2 minutes"

const wait = <A, E>(self: Effect.Effect<A, E>) =>
  Effect.timeoutOrElse(self, { duration: bound, orElse: () => Effect.die(`it did not end in ${bound}`) })

/** Connections of the actor that hold a lock or have a transaction open, asked on another one. */
const unfinished = ({ name, url }: Actor) =>
  Effect.map(
    Operations.apart(
      url,
      `select a.pid from pg_stat_activity a where a.application_name = '${name}'
        and (a.xact_start is not null
          or exists (select from pg_locks l where l.pid = a.pid and l.locktype = 'advisory'))`
    ),
    (rows) => rows.length
  )

interface Struck {
  /**
   * Whether the fault met anything. It does not where nothing comes after the point that it could fail, and
   * where a point is reached less often than it was before: how a deletion is cut into slices depends on time.
   */
  readonly struck: boolean
}

interface Actor {
  readonly instance: string
  readonly url: string
  readonly name: string
  readonly disconnect: string
}

/** The operation in a process of its own, which dies at the point. */
const killed = Effect.fnUntraced(function* ({ task }: Scene, { occurrence, point }: Cell, actor: Actor) {
  const now = DateTime.formatIso(yield* DateTime.now)
  const { instance, name, url } = actor
  const argument = JSON.stringify({ ...task, instance, url, name, now, point, occurrence })
  const script = fileURLToPath(new URL("./dyingServer.ts", import.meta.url))
  const { code, said, signal } = yield* Effect.callback<{
    readonly signal: string | null
    readonly code: number | null
    readonly said: string
  }>((resume) => {
    const child = spawn(process.execPath, ["--conditions=@reclaim/source", script, argument], {
      stdio: ["ignore", "ignore", "pipe"]
    })
    let said = ""
    child.stderr.setEncoding("utf8").on("data", (text: string) => (said += text))
    child.on("exit", (code, signal) => resume(Effect.succeed({ code, signal, said })))
    return Effect.sync(() => void child.kill("SIGKILL"))
  })
  if (signal !== "SIGKILL" && occurrence > 1 && code === 0) return { struck: false }
  if (signal !== "SIGKILL") {
    return yield* new Broken({ what: `the process was not killed but ended with ${code}: ${said}` })
  }
  // The server notices a little later that a process is gone, and frees its locks then.
  yield* eventually(Effect.map(unfinished(actor), (count) => count === 0))
  return { struck: true } satisfies Struck
})

/** The operation in this process, on layers of its own. */
const struckAt = Effect.fnUntraced(function* (
  { task }: Scene,
  cell: Omit<Cell, "column"> & { readonly column: Exclude<Column, "kill"> | "none" },
  actor: Actor,
  tell: (event: Event) => void
) {
  const { column, occurrence, point } = cell
  const reached = yield* Deferred.make<void>()
  const opened = yield* Deferred.make<void>()
  const file = fileFaults(column, tell)
  let cut = false
  let afterCut = 0
  let happened = false
  const strikes = Effect.suspend(() => {
    happened = true
    switch (column) {
      case "die":
        return Effect.die(new Error(`a fault at ${point}`))
      case "interrupt":
        return Effect.andThen(Deferred.succeed(reached, undefined), Deferred.await(opened))
      case "connection lost":
        cut = true
        return Effect.asVoid(Operations.apart(actor.url, actor.disconnect))
      default:
        return file.arm
    }
  })
  const others = Operations.others(actor.url, task.meanwhile)
  let left = occurrence
  const handler = (name: string) =>
    Effect.andThen(
      others(name),
      Effect.suspend(() => {
        tell({ _tag: "Point", point: name })
        return name === point && --left === 0 ? strikes : Effect.void
      })
    )
  const options: Server.Options = {
    ...actor,
    posix: file.posix,
    trees: file.trees,
    onStatement: Effect.sync(() => {
      tell({ _tag: "Statement" })
      if (cut) afterCut += 1
    })
  }
  const exit = yield* Effect.gen(function* () {
    const fiber = yield* Operations.run(task.operation).pipe(
      Effect.provideService(FaultPoint.FaultHandler, handler),
      Effect.forkDetach
    )
    yield* wait(Effect.raceFirst(Deferred.await(reached), Effect.asVoid(Fiber.await(fiber))))
    const ending = yield* Effect.forkDetach(column === "interrupt" ? Fiber.interrupt(fiber) : Effect.void, {
      startImmediately: true
    })
    yield* Deferred.succeed(opened, undefined)
    yield* wait(Fiber.await(ending))
    const exit = yield* wait(Fiber.await(fiber))
    // Before its layers end: they would close what was left open.
    yield* column === "connection lost"
      ? eventually(Effect.map(unfinished(actor), (count) => count === 0))
      : Effect.filterOrFail(
          unfinished(actor),
          (count) => count === 0,
          () => new Broken({ what: "a lock or a transaction is left open" })
        )
    return exit
  }).pipe(inServer(options))
  if (column !== "none" && !happened && occurrence === 1) {
    return yield* new Broken({ what: "the point was not reached" })
  }
  if (column !== "die" && Exit.hasDies(exit)) {
    return yield* new Broken({ what: `it died of what it should expect: ${String(exit)}` })
  }
  const met =
    column === "none" || isItself(column) || (column === "connection lost" ? afterCut : file.struck()) > 0
  return { struck: happened && met } satisfies Struck
})

/** Runs an effect on layers of its own: what a process has in its memory is not there. */
export const inServer =
  (options: Server.Options) =>
  <A, E, R>(self: Effect.Effect<A, E, R>) =>
    Effect.provide(self, Layer.fresh(Server.layer(options)), { local: true })

export const folder = Effect.acquireRelease(
  Effect.sync(() => Fs.realpathSync(Fs.mkdtempSync(`${Os.tmpdir()}/reclaim-faults-`))),
  (path) =>
    Effect.sync(() => {
      execFileSync("chmod", ["-R", "u+rwx", path])
      Fs.rmSync(path, { recursive: true, force: true })
    })
)

/** An instance without anything in it. */
export const makeInstance = (folder: string): string => {
  const instance = `${folder}/instance`
  Fs.mkdirSync(`${instance}/runtime/paperclip-runner/durable-sessions`, { recursive: true })
  Fs.mkdirSync(`${instance}/skills`)
  return instance
}

/**
 * Runs a cell to its end. Fails with what is not as it should be; else tells whether the fault met anything.
 * Without a column nothing happens at all.
 */
export const run = (
  cell: Omit<Cell, "column"> & { readonly column: Column | "none" },
  tell: (event: Event) => void = () => undefined
): Effect.Effect<
  boolean,
  unknown,
  TestDatabase.TestDatabase | PosixFileSystem.PosixFileSystem | Trees.Trees
> =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase.TestDatabase
    const instance = makeInstance(yield* folder)
    const name = `faults-${crypto.randomUUID()}`
    const disconnect = `select pg_terminate_backend(pid, 5000) from pg_stat_activity
      where application_name = '${name}'`
    const actor: Actor = { instance, url, name, disconnect }
    const scenario = [...SkillScenarios.scenarios(disconnect), ...BackupScenarios.scenarios].find(
      (each) => each.name === cell.scenario
    )
    if (scenario === undefined) return yield* new Broken({ what: `there is no scenario ${cell.scenario}` })

    const world = Layer.mergeAll(
      MovableClock.layer(World.noon),
      Layer.succeed(World.Instance, { path: instance })
    )
    return yield* Effect.gen(function* () {
      const observer = { instance, url, name: `${name}-next` }
      const scene = yield* inServer(observer)(scenario.make)
      const { column } = cell
      const { struck } =
        column === "kill"
          ? yield* inServer(observer)(killed(scene, { ...cell, column }, actor))
          : yield* inServer(observer)(struckAt(scene, { ...cell, column }, actor, tell))
      yield* inServer(observer)(
        Effect.gen(function* () {
          yield* scene.always
          yield* scene.sweep
          yield* scene.swept
          yield* scene.end
        })
      )
      return struck
    }).pipe(Effect.provide(Layer.fresh(world), { local: true }))
  }).pipe(Effect.scoped)
