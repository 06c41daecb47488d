/** The entry point of a worker thread: one task at a time, answered through its port. */
import type { CopyComparison } from "@reclaim/core"
import * as NodeFs from "node:fs"
import { parentPort } from "node:worker_threads"
import type { Omits } from "./copyEngine.ts"
import { make as makeFiles } from "./fileEngine.ts"
import { Cancelled, type Environment, make, TreeError } from "./treeEngine.ts"
import {
  Cell,
  chunksAhead,
  chunkSize,
  type Failure,
  type Request,
  type Response,
  type Task,
  type TaskResult
} from "./treeProtocol.ts"

const port = parentPort!
const send = (response: Response) => port.postMessage(response)

/** What the engine asks of the task in hand. */
interface Hand extends Pick<Environment, "breathe" | "cancelled" | "emit" | "pause"> {
  readonly ask: Omits
  /** The entries that were not sent yet. */
  readonly rest: () => ReadonlyArray<CopyComparison.DiskEntry>
}

const take = ({ cells, task, verdicts }: Request): Hand => {
  const cancelled = () => Atomics.load(cells, Cell.cancelled) === 1

  /** Sleeps until the asking thread changed any cell and `ready` holds, or the task is cancelled. */
  const until = (ready: () => boolean) => {
    for (;;) {
      const changes = Atomics.load(cells, Cell.changes)
      if (cancelled()) throw new Cancelled()
      if (ready()) return
      Atomics.wait(cells, Cell.changes, changes)
    }
  }

  let sent = 0
  let chunk: Array<CopyComparison.DiskEntry> = []
  const flush = () => {
    if (chunk.length === 0) return
    // The asking thread sets the pace, so that entries never pile up between the two.
    until(() => sent - Atomics.load(cells, Cell.taken) < chunksAhead)
    send({ _tag: "Entries", entries: chunk })
    sent += 1
    chunk = []
  }

  const slice =
    task._tag === "Scan" && task.sliceMillis > 0 ? BigInt(task.sliceMillis) * 1_000_000n : undefined
  let pauses = 0
  let sliceStart = process.hrtime.bigint()
  const breathe = () => {
    if (slice === undefined || process.hrtime.bigint() - sliceStart < slice) return
    flush()
    pauses += 1
    send({ _tag: "Paused" })
    until(() => Atomics.load(cells, Cell.resumed) >= pauses)
    sliceStart = process.hrtime.bigint()
  }

  let asked = 0
  return {
    cancelled,
    breathe,
    emit: (entry) => {
      chunk.push(entry)
      if (chunk.length >= chunkSize) flush()
    },
    pause: (milliseconds) => {
      Atomics.wait(cells, Cell.changes, Atomics.load(cells, Cell.changes), milliseconds)
    },
    ask: (paths) => {
      asked += 1
      send({ _tag: "Ask", paths })
      until(() => Atomics.load(cells, Cell.answered) >= asked)
      return paths.map((_, index) => verdicts[index] === 1)
    },
    rest: () => chunk
  }
}

let hand: Hand
// One for all tasks: what it asks the system first stays the same, and its buffer is no garbage.
const engine = make({
  calls: NodeFs,
  breathe: () => hand.breathe(),
  cancelled: () => hand.cancelled(),
  emit: (entry) => hand.emit(entry),
  pause: (milliseconds) => hand.pause(milliseconds),
  now: () => process.hrtime.bigint(),
  wallClock: () => Date.now(),
  wake: (queue) => send({ _tag: "Sync", queue })
})

const files = makeFiles(NodeFs)

const perform = (task: Task): TaskResult => {
  switch (task._tag) {
    case "Scan":
      return engine.scan(task.root, task)
    case "Usage":
      return {
        usages: engine.usages(task.roots).map(answered)
      }
    case "Remove":
      return engine.remove(task.root, task)
    case "Copy":
      return engine.copy(task.root, task.target, { live: task.live, omits: task.asks ? hand.ask : null })
    case "Digest":
      return engine.digestTree(task.root, task.order)
    case "Look":
      return { looks: files.look(task.paths).map(answered) }
    case "List":
      return { lists: files.list(task.paths).map(answered) }
    case "Read":
      return { contents: files.read(task.paths, task.maxBytes).map(answered) }
  }
}

const failureOf = ({ code, operation, path }: TreeError): Failure => ({ operation, path, code })

const answered = <A>(answer: A | TreeError): A | Failure =>
  answer instanceof TreeError ? failureOf(answer) : answer

const answer = (request: Request): Response => {
  hand = take(request)
  try {
    const result = perform(request.task)
    return { _tag: "Done", result, entries: hand.rest() }
  } catch (cause) {
    if (cause instanceof Cancelled) return { _tag: "Cancelled" }
    if (cause instanceof TreeError) return { _tag: "Failed", ...failureOf(cause) }
    throw cause
  }
}

port.on("message", (request: Request) => send(answer(request)))
