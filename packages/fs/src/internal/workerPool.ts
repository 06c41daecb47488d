/** Runs tasks on files and trees in a few worker threads: the one module that wraps `node:worker_threads`. */
import type { CopyComparison } from "@reclaim/core"
import { Effect, Result, type Scope } from "effect"
import { Worker } from "node:worker_threads"
import { FileError } from "../FileError.ts"
import {
  askSize,
  Cell,
  cellCount,
  type Failure,
  type Request,
  type Response,
  type Task,
  type TaskResult
} from "./treeProtocol.ts"
import * as SyncQueue from "./syncQueue.ts"
import { monotonic } from "./treeEngine.ts"

/** A task whose thread ended, and what the thread threw. */
const crashed = ({ _tag, root }: Task, cause: unknown): End =>
  Effect.andThen(
    Effect.logError("A thread that works on files ended", cause),
    Effect.fail(
      new FileError({
        operation: _tag.toLowerCase(),
        // Paths travel as one character per byte.
        path: Buffer.from(root, "latin1").toString(),
        code: "EWORKER"
      })
    )
  )

// The sources run as they are; what is published runs from dist.
const entryPoint = new URL(
  import.meta.url.endsWith(".ts") ? "./treeWorker.ts" : "./treeWorker.js",
  import.meta.url
)

// 2 MiB: nearly all that a thread makes is garbage by the next entry. Left alone, it would take 16 MiB before it
// looks for any.
const resourceLimits = { maxYoungGenerationSizeMb: 2 }

/** Takes what a task answers. */
export interface Listener {
  readonly onEntries?: ((entries: ReadonlyArray<CopyComparison.DiskEntry>) => void) | undefined
  readonly onPaused?: (() => void) | undefined
  /** Decides which of some paths, of one character per byte, are left out. */
  readonly onAsk?: ((paths: ReadonlyArray<string>) => ReadonlyArray<boolean>) | undefined
  readonly onEnd: (end: End) => void
  /** How the task ends when no thread has begun with it by an instant on the monotonic clock. */
  readonly overdue?: { readonly at: bigint; readonly end: End } | undefined
}

type End = Effect.Effect<TaskResult, FileError>

/** A task that was handed to the pool. */
export interface Job {
  /** Lets a paused task go on. */
  readonly resume: () => void
  /** Asks the task to stop between two entries; `onEnd` still comes. */
  readonly cancel: () => void
}

const isFailure = (answer: object): answer is Failure => "code" in answer

interface Queued {
  readonly request: Request
  readonly listener: Listener
  /** Syncs what the task wrote; made when it asks for that first. */
  sync?: (() => void) | undefined
  /** Rings while the task still waits. */
  alarm?: NodeJS.Timeout | undefined
}

// 2^31 - 1 ms, 24 days: a timer with more fires at once.
const longestTimer = 2_147_483_647

/** Calls back at an instant, unless that is too far away to wait for. */
const setAlarm = (at: bigint, ring: () => void): NodeJS.Timeout | undefined => {
  const millis = Number(at - monotonic()) / 1e6
  return millis > longestTimer ? undefined : setTimeout(ring, Math.max(0, Math.ceil(millis)))
}

const poke = (cells: Int32Array) => {
  Atomics.add(cells, Cell.changes, 1)
  Atomics.notify(cells, Cell.changes)
}

class Thread {
  readonly #worker: Worker
  readonly #idle: (thread: Thread) => void
  #current: Queued | undefined
  /** What ends the task instead of its answer: the decisions of a caller can throw. */
  #defect: Effect.Effect<never> | undefined

  constructor(idle: (thread: Thread) => void, dead: (thread: Thread, cause: unknown) => void) {
    this.#idle = idle
    // No flags of the host: a loader or an inspector that it was started with is none of ours.
    this.#worker = new Worker(entryPoint, { execArgv: [], name: "reclaim-files", resourceLimits })
    // An idle thread keeps no process alive.
    this.#worker.unref()
    this.#worker.on("message", (response: Response) => this.#receive(response))
    let cause: unknown
    this.#worker.on("error", (error) => {
      cause = error
    })
    this.#worker.on("exit", (code) => {
      cause ??= `exit code ${code}`
      dead(this, cause)
      if (this.#current !== undefined) this.#end(this.#current, crashed(this.#current.request.task, cause))
    })
  }

  start(queued: Queued): void {
    this.#current = queued
    this.#worker.ref()
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread has no origin
    this.#worker.postMessage(queued.request)
  }

  stop(): Promise<unknown> {
    return this.#worker.terminate()
  }

  #end(queued: Queued, end: End): void {
    const defect = this.#defect
    this.#current = undefined
    this.#defect = undefined
    this.#worker.unref()
    queued.listener.onEnd(defect ?? end)
  }

  #answer({ listener, request }: Queued, paths: ReadonlyArray<string>): void {
    const { cells, verdicts } = request
    try {
      const omitted = listener.onAsk?.(paths) ?? []
      paths.forEach((_, index) => {
        verdicts[index] = omitted[index] === true ? 1 : 0
      })
    } catch (cause) {
      this.#defect = Effect.die(cause)
      Atomics.store(cells, Cell.cancelled, 1)
    }
    Atomics.add(cells, Cell.answered, 1)
    poke(cells)
  }

  #receive(response: Response): void {
    const queued = this.#current
    if (queued === undefined) return
    switch (response._tag) {
      case "Entries":
        queued.listener.onEntries?.(response.entries)
        Atomics.add(queued.request.cells, Cell.taken, 1)
        return poke(queued.request.cells)
      case "Paused":
        return queued.listener.onPaused?.()
      case "Ask":
        return this.#answer(queued, response.paths)
      case "Sync":
        return (queued.sync ??= SyncQueue.server(response.queue))()
      case "Done":
        if (response.entries.length > 0) queued.listener.onEntries?.(response.entries)
        this.#end(queued, Effect.succeed(response.result))
        return this.#idle(this)
      case "Failed":
        this.#end(
          queued,
          Effect.fail(
            new FileError({ operation: response.operation, path: response.path, code: response.code })
          )
        )
        return this.#idle(this)
      case "Cancelled":
        this.#end(queued, Effect.interrupt)
        return this.#idle(this)
    }
  }
}

export interface WorkerPool {
  readonly submit: (task: Task, listener: Listener) => Job
}

const start = (size: number) => {
  const threads = new Set<Thread>()
  const idle: Array<Thread> = []
  const queue: Array<Queued> = []
  const next = (thread: Thread) => {
    const queued = queue.shift()
    if (queued === undefined) idle.push(thread)
    else {
      clearTimeout(queued.alarm)
      thread.start(queued)
    }
  }
  /** Ends a task that still waits. */
  const withdraw = (queued: Queued, end: End) => {
    const at = queue.indexOf(queued)
    if (at < 0) return
    queue.splice(at, 1)
    clearTimeout(queued.alarm)
    queued.listener.onEnd(end)
  }
  const submit: WorkerPool["submit"] = (task, listener) => {
    const cells = new Int32Array(new SharedArrayBuffer(cellCount * Int32Array.BYTES_PER_ELEMENT))
    const verdicts = new Uint8Array(new SharedArrayBuffer(askSize))
    const queued: Queued = { request: { task, cells, verdicts }, listener }
    const free = idle.pop()
    if (free !== undefined) free.start(queued)
    else if (threads.size < size) {
      const thread = new Thread(next, (dead, cause) => {
        threads.delete(dead)
        const at = idle.indexOf(dead)
        if (at >= 0) idle.splice(at, 1)
        // What waited for this thread must not wait for ever.
        if (threads.size > 0) return
        for (let first = queue[0]; first !== undefined; first = queue[0]) {
          withdraw(first, crashed(first.request.task, cause))
        }
      })
      threads.add(thread)
      thread.start(queued)
    } else {
      queue.push(queued)
      const { overdue } = listener
      if (overdue !== undefined) {
        queued.alarm = setAlarm(overdue.at, () => withdraw(queued, overdue.end))
      }
    }
    return {
      resume: () => {
        Atomics.add(cells, Cell.resumed, 1)
        poke(cells)
      },
      cancel: () => {
        Atomics.store(cells, Cell.cancelled, 1)
        poke(cells)
        withdraw(queued, Effect.interrupt)
      }
    }
  }
  const stop = () => Promise.all([...threads].map((thread) => thread.stop()))
  return { pool: { submit }, stop }
}

/** Has a task done by some thread. Interruption waits for the thread, so that nothing is touched after it. */
export const perform = <A extends TaskResult>(
  pool: WorkerPool,
  task: Task,
  isResult: (result: TaskResult) => result is A,
  listener: Pick<Listener, "onEntries" | "onAsk" | "overdue"> = {}
): Effect.Effect<A, FileError> =>
  Effect.callback<TaskResult, FileError>((resume) => {
    let ended: () => void = () => undefined
    let over = false
    const job = pool.submit(task, {
      ...listener,
      onEnd: (end) => {
        over = true
        resume(end)
        ended()
      }
    })
    return Effect.callback<void>((stopped) => {
      if (over) return stopped(Effect.void)
      ended = () => stopped(Effect.void)
      job.cancel()
    })
  }).pipe(Effect.filterOrElse(isResult, () => Effect.die(new Error(`${task._tag} got another answer`))))

/** The answers about many paths, each by itself; a thread that ends fails all of them. */
export const answers = <A extends object, R extends TaskResult>(
  result: Effect.Effect<R, FileError>,
  of: (result: R) => ReadonlyArray<A | Failure>,
  count: number
): Effect.Effect<ReadonlyArray<Result.Result<A, FileError>>> =>
  result.pipe(
    Effect.map((answer) =>
      of(answer).map((one) => (isFailure(one) ? Result.fail(new FileError(one)) : Result.succeed(one)))
    ),
    Effect.catch((error) => Effect.succeed(Array.from({ length: count }, () => Result.fail(error))))
  )

/** Threads start when there is work for them, and end with the scope. */
export const make = (size: number): Effect.Effect<WorkerPool, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => start(size)),
      ({ stop }) => Effect.promise(stop)
    ),
    ({ pool }) => pool
  )
