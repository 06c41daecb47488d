/**
 * What a worker thread is asked and what it answers. Of other modules only types: the worker is started by
 * URL and loads nothing but `node:` modules and its neighbours.
 */

import type { CopyComparison } from "@reclaim/core"
import type { EntryInfo } from "../PosixFileSystem.ts"
import type { Order } from "./copyEngine.ts"
import type { Removal, TreeScan, Usage } from "../Trees.ts"
import type { Cells } from "./syncQueue.ts"

export interface CopyResult {
  /** Hex, of everything in the copy. */
  readonly sha256: string
  /** Of the contents of its files. */
  readonly bytes: bigint
  readonly copiedEntries: number
}

/** What a tree could not be worked on for. */
export interface Failure {
  readonly operation: string
  readonly path: string
  readonly code: string
}

export interface UsageResult {
  /** One for each root, in their order. */
  readonly usages: ReadonlyArray<Usage | Failure>
}

/** One answer for each path, in their order. */
export interface LookResult {
  readonly looks: ReadonlyArray<EntryInfo | Failure>
}

/** One answer for each path, in their order. */
export interface ReadResult {
  readonly contents: ReadonlyArray<Uint8Array | Failure>
}

/** Names of one character per byte; null where they cannot be read at once. */
export type FolderNames = ReadonlyArray<{
  readonly name: string
  readonly kind: CopyComparison.EntryKind
}> | null

/** One answer for each path, in their order. */
export interface ListResult {
  readonly lists: ReadonlyArray<{ readonly names: FolderNames } | Failure>
}

export type TaskResult = TreeScan | UsageResult | Removal | CopyResult | ListResult | LookResult | ReadResult

/** Paths travel as strings of one character per byte (latin1), which is lossless and cheap to join. */
export type Task =
  | {
      readonly _tag: "Scan"
      readonly root: string
      readonly digests: boolean
      /** A larger file is not read; absent is no bound. */
      readonly maxDigestBytes?: bigint | number | undefined
      readonly entries: boolean
      /** Milliseconds of work after which the thread waits to be resumed; 0 is never. */
      readonly sliceMillis: number
    }
  /** Of all `roots`; `root` is the first of them. */
  | { readonly _tag: "Usage"; readonly root: string; readonly roots: ReadonlyArray<string> }
  | {
      readonly _tag: "Remove"
      readonly root: string
      /** On the monotonic clock, in nanoseconds. */
      readonly deadline: bigint | null
      readonly maxEntries: number | null
      /** What the root must be; absent is any folder. */
      readonly expected?: { readonly dev: bigint; readonly ino: bigint } | undefined
    }
  | {
      readonly _tag: "Copy"
      readonly root: string
      readonly target: string
      readonly live: boolean
      /** Whether the thread asks what to leave out. */
      readonly asks: boolean
    }
  | { readonly _tag: "Digest"; readonly root: string; readonly order: Order }
  /** At all `paths`, which no tree joins; `root` is the first of them. */
  | { readonly _tag: "Look" | "List"; readonly root: string; readonly paths: ReadonlyArray<string> }
  | {
      readonly _tag: "Read"
      readonly root: string
      readonly paths: ReadonlyArray<string>
      /** A larger file is not read. */
      readonly maxBytes: number
    }

export interface Request {
  readonly task: Task
  /** The answers to the last question: 1 for each path that is left out. */
  readonly verdicts: Uint8Array<SharedArrayBuffer>
  /** The cells below, shared with the thread that asked. */
  readonly cells: Int32Array<SharedArrayBuffer>
}

export type Response =
  | { readonly _tag: "Entries"; readonly entries: ReadonlyArray<CopyComparison.DiskEntry> }
  | { readonly _tag: "Paused" }
  /** Waits for `Cell.answered`. The paths are relative to the root. */
  | { readonly _tag: "Ask"; readonly paths: ReadonlyArray<string> }
  /** There is something to sync again; the queue stays the same for the whole task. */
  | { readonly _tag: "Sync"; readonly queue: Cells }
  /** With the entries that were not sent before. */
  | {
      readonly _tag: "Done"
      readonly result: TaskResult
      readonly entries: ReadonlyArray<CopyComparison.DiskEntry>
    }
  | ({ readonly _tag: "Failed" } & Failure)
  | { readonly _tag: "Cancelled" }

/** Indices into `Request.cells`. */
export const Cell = {
  /** 1 once the task is to stop between two entries. */
  cancelled: 0,
  /** Chunks of entries that the asking thread has taken. */
  taken: 1,
  /** Times that the asking thread has resumed a paused task. */
  resumed: 2,
  /** Counts every change of the others, so that the worker can wait for any. */
  changes: 3,
  /** Questions that the asking thread has answered. */
  answered: 4
} as const

export const cellCount = 5

// 4 chunks of 256 entries: enough to hide the way between the threads, small enough to be no memory.
export const chunkSize = 256
export const chunksAhead = 4
// 512 paths: about a millisecond of decisions in the thread that is asked.
export const askSize = 512
