/** The entry point of a worker thread: one task at a time, answered through its port. */
import type { CopyComparison } from "@reclaim/core"
import * as NodeFs from "node:fs"
import { parentPort } from "node:worker_threads"
import { Cancelled, make, TreeError } from "./treeEngine.ts"
import { Cell, chunksAhead, chunkSize, type Request, type Response } from "./treeProtocol.ts"

const port = parentPort!

const perform = ({ cells, task, verdicts }: Request): Response => {
  const send = (response: Response) => port.postMessage(response)
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
  const ask = (paths: ReadonlyArray<string>): ReadonlyArray<boolean> => {
    asked += 1
    send({ _tag: "Ask", paths })
    until(() => Atomics.load(cells, Cell.answered) >= asked)
    return paths.map((_, index) => verdicts[index] === 1)
  }

  const engine = make({
    calls: NodeFs,
    cancelled,
    breathe,
    emit: (entry) => {
      chunk.push(entry)
      if (chunk.length >= chunkSize) flush()
    },
    pause: (milliseconds) => {
      Atomics.wait(cells, Cell.changes, Atomics.load(cells, Cell.changes), milliseconds)
    },
    now: () => process.hrtime.bigint(),
    wallClock: () => Date.now()
  })
  try {
    switch (task._tag) {
      case "Scan": {
        const result = engine.scan(task.root, task)
        flush()
        return { _tag: "Done", result }
      }
      case "Usage":
        return { _tag: "Done", result: engine.usage(task.root) }
      case "Remove":
        return { _tag: "Done", result: engine.remove(task.root, task) }
      case "Copy": {
        const { live } = task
        const omits = task.asks ? ask : null
        return { _tag: "Done", result: engine.copy(task.root, task.target, { live, omits }) }
      }
      case "Digest":
        return { _tag: "Done", result: engine.digestTree(task.root, task.order) }
      case "Sync":
        return { _tag: "Done", result: engine.sync(task.root, task.part, task.parts) }
    }
  } catch (cause) {
    if (cause instanceof Cancelled) return { _tag: "Cancelled" }
    if (cause instanceof TreeError) {
      return { _tag: "Failed", operation: cause.operation, path: cause.path, code: cause.code }
    }
    throw cause
  }
}

port.on("message", (request: Request) => port.postMessage(perform(request)))
