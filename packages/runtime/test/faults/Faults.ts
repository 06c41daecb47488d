/** What can happen at a point, and what comes after the point that it can happen to. */
import { FileError, Trees } from "@reclaim/fs"
import { layerFaultyFrom, type Method } from "@reclaim/fs/testing"
import { Effect } from "effect"
import * as Threads from "../support/threads.ts"

export const columns = [
  "typed error",
  "die",
  "interrupt",
  "kill",
  "connection lost",
  "disk full",
  "permission denied"
] as const
export type Column = (typeof columns)[number]

/** What an operation does: it reaches a point, calls the file system or the threads, sends a statement. */
export type Event =
  | { readonly _tag: "Point"; readonly point: string }
  | { readonly _tag: "Call"; readonly call: string }
  | { readonly _tag: "Statement" }

const writing = ["makeDirectory", "link", "makeLink", "writeNew"] as const satisfies ReadonlyArray<Method>
const changing = [...writing, "rename", "removeDirectory", "unlink"] as const satisfies ReadonlyArray<Method>
const all = [
  ...changing,
  "lstat",
  "realPath",
  "names",
  "readSmall",
  "syncDirectory",
  "volume"
] as const satisfies ReadonlyArray<Method>

interface Failure {
  readonly code: string
  /** Calls of the file system, and of the threads. */
  readonly calls: ReadonlyArray<string>
  readonly once: boolean
}

/** How calls on files fail from a point on: the next one, or all that need what is not there any more. */
const failures: Partial<Record<Column | "none", Failure>> = {
  "typed error": { code: "EIO", calls: [...all, "scan", "usage", "remove", "copy", "digest"], once: true },
  "disk full": { code: "ENOSPC", calls: [...writing, "copy"], once: false },
  "permission denied": { code: "EACCES", calls: [...changing, "remove", "copy"], once: false }
}

/** Whether an event that follows a point is one that the column strikes. */
export const strikes = (column: Column, event: Event): boolean =>
  column === "connection lost"
    ? event._tag === "Statement"
    : event._tag === "Call" && failures[column]?.calls.includes(event.call) === true

/** Whether a column needs something to strike, or strikes by itself. */
export const isItself = (column: Column): boolean => column !== "connection lost" && !(column in failures)

export interface FileFaults {
  /** From now on calls fail. */
  readonly arm: Effect.Effect<void>
  /** How many calls did. */
  readonly struck: () => number
  readonly posix: Threads.Posix
  readonly trees: (real: Trees.Trees["Service"]) => Trees.Trees["Service"]
}

/** Files whose calls are told, and fail as a column says once that is armed. */
export const fileFaults = (column: Column | "none", tell: (event: Event) => void): FileFaults => {
  const failure = failures[column]
  let armed = false
  let struck = 0
  const meets = (call: string) => {
    tell({ _tag: "Call", call })
    if (failure === undefined || !armed || !failure.calls.includes(call)) return false
    struck += 1
    armed = !failure.once
    return true
  }
  const code = failure?.code ?? ""
  const orFail =
    <Rest extends ReadonlyArray<unknown>, A>(
      call: string,
      perform: (root: string | Uint8Array, ...rest: Rest) => Effect.Effect<A, FileError.FileError>
    ) =>
    (root: string | Uint8Array, ...rest: Rest) =>
      Effect.suspend(() =>
        meets(call) ? Effect.fail(FileError.make(call, root, code)) : perform(root, ...rest)
      )
  return {
    arm: Effect.sync(() => void (armed = true)),
    struck: () => struck,
    posix: layerFaultyFrom(
      all.map((method) => ({ method, code, matches: () => meets(method) })),
      Threads.posix
    ),
    trees: (real) =>
      Trees.Trees.of({
        ...real,
        scan: orFail("scan", real.scan),
        scanSliced: (root, options) =>
          Effect.map(real.scanSliced(root, options), ({ advance }) => ({
            advance: orFail("scan", () => advance)(root)
          })),
        usage: orFail("usage", real.usage),
        remove: orFail("remove", real.remove),
        copy: orFail("copy", real.copy),
        digest: orFail("digest", real.digest)
      })
  }
}
