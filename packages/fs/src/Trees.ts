/**
 * Measures, reads and deletes whole trees, in threads of its own.
 *
 * **Details**
 *
 * A tree is hundreds of system calls, each too short to be worth a turn of the event loop and together
 * long enough to stall it. They are made synchronously, in a few threads that start when they are needed
 * and end with the layer's scope; every task can be cancelled between any two entries, and interrupting a
 * task waits until its thread has stopped.
 *
 * No link is followed at any depth: each folder is opened without following, compared with what was
 * listed, and its entries are addressed through that descriptor. FIFOs, sockets and devices are never
 * opened, folders on another file system never entered. Names are bytes. A folder is read in small pieces,
 * however many entries it has.
 *
 * **Gotchas**
 *
 * The fingerprint is a sum over all entries and notices accidents and edits; it is no defence against
 * somebody who can choose inode numbers and change times at will.
 *
 * @since 0.1.0
 */
import { type CodexHome, type CopyComparison, FaultPoint } from "@reclaim/core"
import { Array as Arr, Context, Duration, Effect, Layer, Option, type Result, type Scope } from "effect"
import { type BytePath, latin1, text } from "./BytePath.ts"
import type { FileError } from "./FileError.ts"
import { monotonic } from "./internal/treeEngine.ts"
import type { CopyResult, Task, TaskResult, UsageResult } from "./internal/treeProtocol.ts"
import * as WorkerPool from "./internal/workerPool.ts"
import type { EntryInfo } from "./PosixFileSystem.ts"

/**
 * What a tree takes, in bytes, the top folder included. Each inode counts once. `sharedBytes` is the part
 * of `allocatedBytes` that would not come back, because files have names outside of the tree. `entries`
 * does not count the top folder.
 *
 * @category models
 * @since 0.1.0
 */
export interface Usage {
  readonly apparentBytes: bigint
  readonly allocatedBytes: bigint
  readonly sharedBytes: bigint
  readonly entries: number
}

/**
 * A tree that was read whole. `fingerprint` is hex: equal fingerprints mean that no entry was added,
 * removed, replaced, edited or given another mode. It covers path, kind, device, inode, size, mode,
 * modification and change time of every entry; of the top folder the birth time instead of the change
 * time, which its own rename sets.
 *
 * @category models
 * @since 0.1.0
 */
export interface TreeScan extends Usage {
  readonly fingerprint: string
  readonly top: EntryInfo
}

/**
 * What a deletion did. `stopped`: the deadline ended it, so the rest says nothing about the tree; without it,
 * what is left could not go. `reclaimedBytes` are allocated bytes that came back: entries that this call
 * removed and that had no other name. `failures` lists the first 100 entries that could not go.
 *
 * @category models
 * @since 0.1.0
 */
export interface Removal {
  readonly complete: boolean
  readonly stopped: boolean
  readonly removedEntries: number
  readonly reclaimedBytes: bigint
  readonly failures: ReadonlyArray<{ readonly path: string; readonly code: string }>
  readonly failureCount: number
}

/**
 * - `digests`: reads every file; or, with `maxDigestBytes`, those that are not larger. The others have no
 *   digest, like all without `digests`.
 * - `onEntries`: gets all entries below the top folder, in no order, a few hundred at a time.
 *
 * @category models
 * @since 0.1.0
 */
export interface ScanOptions {
  readonly digests: boolean
  readonly maxDigestBytes?: bigint | number | undefined
  readonly onEntries?: (entries: ReadonlyArray<CopyComparison.DiskEntry>) => void
}

/**
 * - `deadline`: counted from the call. The rest is left then, but for one entry at least; without a free
 *   thread until then, all of it.
 * - `expected`: the folder that the path was found to be. When it is another one it stays (ECHANGED).
 *
 * @category models
 * @since 0.1.0
 */
export interface RemoveOptions {
  readonly deadline?: Duration.Input | undefined
  readonly expected?: Pick<EntryInfo, "dev" | "ino"> | undefined
}

/**
 * A scan that is done in slices. `advance` works for about the slice's time and is none until the tree is
 * read whole.
 *
 * @category models
 * @since 0.1.0
 */
export interface SlicedScan {
  readonly advance: Effect.Effect<Option.Option<TreeScan>, FileError>
}

/**
 * What a tree holds. `sha256` is `sha256:` and hex: the digest of a failover backup's folders, which covers
 * names, kinds, permissions, contents and the targets of links, and nothing that a copy does not keep.
 * `bytes` are those of its files' contents; `entries` does not count the top folder.
 *
 * @category models
 * @since 0.1.0
 */
export interface TreeDigest {
  readonly sha256: string
  readonly bytes: bigint
  readonly entries: number
}

/**
 * - `live`: the source may be in use; what changes while it is copied is copied again a few times.
 * - `omits`: asked for every entry, by its path below the source; what is left out is not entered.
 *
 * @category models
 * @since 0.1.0
 */
export interface CopyOptions {
  readonly live: boolean
  readonly omits?: ((path: CodexHome.HomePath) => boolean) | undefined
}

/**
 * Whole-tree work. Every path is absolute; the tree's top must be a folder: a link is ELOOP, anything else
 * ENOTDIR.
 *
 * @category services
 * @since 0.1.0
 */
export class Trees extends Context.Service<
  Trees,
  {
    /**
     * Reads a tree. Fails when it changes meanwhile (ECHANGED), when another file system is mounted in it
     * (EXDEV), when it nests deeper than 256 folders (ETOODEEP), and when anything cannot be read.
     */
    readonly scan: (root: BytePath, options: ScanOptions) => Effect.Effect<TreeScan, FileError>
    /**
     * Like `scan`, stopping after every `slice`, so that no lock is held for the time of a whole tree. The
     * scan keeps one of the threads until the scope closes.
     */
    readonly scanSliced: (
      root: BytePath,
      options: ScanOptions & { readonly slice: Duration.Input }
    ) => Effect.Effect<SlicedScan, never, Scope.Scope>
    /** Only the figures of `scan`. */
    readonly usage: (root: BytePath) => Effect.Effect<Usage, FileError>
    /** `usage` of many trees, each by itself, in their order. */
    readonly usages: (
      roots: ReadonlyArray<BytePath>
    ) => Effect.Effect<ReadonlyArray<Result.Result<Usage, FileError>>>
    /**
     * Deletes a tree, whatever its depth and the modes of its folders. What cannot go is in the result,
     * and the rest goes; a tree that does not exist is complete. Of one whose top is a mount point nothing
     * goes (EXDEV).
     */
    readonly remove: (root: BytePath, options?: RemoveOptions) => Effect.Effect<Removal, FileError>
    /**
     * Copies a tree to a name that nothing has yet, with modes, modification times and links, digests what
     * it writes, and forces all of it to the disk, only the name of its top not. Fails when the source does
     * not come to rest (ECHANGED), and when it holds anything but files, folders and links (EUNSUPPORTED). A
     * failure or an interruption leaves what was written.
     */
    readonly copy: (
      source: BytePath,
      target: BytePath,
      options: CopyOptions
    ) => Effect.Effect<TreeDigest, FileError>
    /**
     * The digest that a copy of the tree would have; or, of the order `locale`, that which a host would have
     * written that runs in the locale of this process.
     */
    readonly digest: (
      root: BytePath,
      options?: { readonly order?: "written" | "locale" }
    ) => Effect.Effect<TreeDigest, FileError>
  }
>()("@reclaim/fs/Trees") {}

// 4: what libuv's own pool has; deleting is mostly waiting for the file system's journal.
const threads = 4

// 64 trees in one message: what a message costs is nothing beside them.
const usagesAtOnce = 64
// 2 threads: measuring is all processor, of which a host has its own use.
const measuringThreads = 2

const betweenEntries = FaultPoint.make("trash.betweenEntries")

const untouched: Removal = {
  complete: false,
  stopped: true,
  removedEntries: 0,
  reclaimedBytes: 0n,
  failures: [],
  failureCount: 0
}

const makeTrees = Effect.gen(function* () {
  const pool = yield* WorkerPool.make(threads)

  const perform = <A extends TaskResult>(
    task: Task,
    isResult: (result: TaskResult) => result is A,
    listener?: Parameters<typeof WorkerPool.perform>[3]
  ) => WorkerPool.perform(pool, task, isResult, listener)

  const isScan = (result: TaskResult): result is TreeScan => "fingerprint" in result
  const isUsage = (result: TaskResult): result is UsageResult => "usages" in result
  const isRemoval = (result: TaskResult): result is Removal => "complete" in result
  const isCopy = (result: TaskResult): result is CopyResult => "copiedEntries" in result

  const toDigest = ({ bytes, copiedEntries, sha256 }: CopyResult): TreeDigest => ({
    sha256: `sha256:${sha256}`,
    bytes,
    entries: copiedEntries
  })

  const scanTask = (root: BytePath, options: ScanOptions, sliceMillis: number): Task => ({
    _tag: "Scan",
    root: latin1(root),
    digests: options.digests,
    maxDigestBytes: options.maxDigestBytes,
    entries: options.onEntries !== undefined,
    sliceMillis
  })

  const usages = (roots: ReadonlyArray<string>) => {
    const [root = ""] = roots
    return WorkerPool.answers(
      perform({ _tag: "Usage", root, roots }, isUsage),
      ({ usages }) => usages,
      roots.length
    )
  }

  const removeSome = (
    root: BytePath,
    deadline: bigint | null,
    maxEntries: number | null,
    top: RemoveOptions["expected"]
  ) => {
    // The two alone, because all of it is copied to the thread.
    const expected = top === undefined ? undefined : { dev: top.dev, ino: top.ino }
    return perform({ _tag: "Remove", root: latin1(root), deadline, maxEntries, expected }, isRemoval, {
      overdue: deadline === null ? undefined : { at: deadline, end: Effect.succeed(untouched) }
    })
  }

  return Trees.of({
    scan: (root, options) => perform(scanTask(root, options, 0), isScan, options),
    scanSliced: Effect.fnUntraced(function* (root, options) {
      let end: Effect.Effect<TaskResult, FileError> | undefined
      let paused = false
      let wake: () => void = () => undefined
      let job: WorkerPool.Job | undefined
      const listener = {
        onEntries: options.onEntries,
        onPaused: () => {
          paused = true
          wake()
        },
        onEnd: (result: NonNullable<typeof end>) => {
          end = result
          wake()
        }
      }
      const given = Duration.toMillis(options.slice)
      const millis = Number.isFinite(given) ? Math.max(1, Math.ceil(given)) : 0
      // The thread may have answered before anybody waits for it.
      const waitUntil = (is: () => boolean) =>
        Effect.callback<void>((resume) => {
          wake = () => {
            if (is()) resume(Effect.void)
          }
          wake()
        })
      yield* Effect.addFinalizer(() =>
        Effect.suspend(() => {
          if (job === undefined || end !== undefined) return Effect.void
          job.cancel()
          return waitUntil(() => end !== undefined)
        })
      )
      return {
        advance: Effect.suspend(() => {
          paused = false
          if (job === undefined) job = pool.submit(scanTask(root, options, millis), listener)
          else if (end === undefined) job.resume()
          return waitUntil(() => paused || end !== undefined)
        }).pipe(
          Effect.andThen(
            Effect.suspend(() =>
              end === undefined ? Effect.succeedNone : Effect.map(end, Option.liftPredicate(isScan))
            )
          )
        )
      }
    }),
    usage: (root) =>
      Effect.flatMap(usages([latin1(root)]), ([usage]) =>
        usage === undefined ? Effect.die(new Error("Usage got no answer")) : Effect.fromResult(usage)
      ),
    usages: (roots) =>
      Effect.map(
        Effect.forEach(Arr.chunksOf(roots.map(latin1), usagesAtOnce), usages, {
          concurrency: measuringThreads
        }),
        Arr.flatten
      ),
    remove: Effect.fnUntraced(function* (root, options) {
      const deadline =
        options?.deadline === undefined
          ? null
          : monotonic() + Duration.toNanos(options.deadline).pipe(Option.getOrElse(() => 1n << 60n))
      // Two tasks take twice the way to a thread, for nothing where nobody waits between them.
      if (!(yield* FaultPoint.isWatched)) return yield* removeSome(root, deadline, null, options?.expected)
      const first = yield* removeSome(root, deadline, 1, options?.expected)
      yield* betweenEntries
      if (first.complete || first.stopped || first.removedEntries === 0) return first
      const rest = yield* removeSome(root, deadline, null, options?.expected)
      return {
        ...rest,
        removedEntries: first.removedEntries + rest.removedEntries,
        reclaimedBytes: first.reclaimedBytes + rest.reclaimedBytes
      }
    }),
    copy: (source, target, { live, omits }) =>
      Effect.map(
        perform(
          {
            _tag: "Copy",
            root: latin1(source),
            target: latin1(target),
            live,
            asks: omits !== undefined
          },
          isCopy,
          omits === undefined
            ? {}
            : {
                onAsk: (paths) =>
                  paths.map((path) => {
                    const name = new Uint8Array(Buffer.from(path, "latin1"))
                    return omits(text(name) ?? name)
                  })
              }
        ),
        toDigest
      ),
    digest: (root, options) =>
      Effect.map(
        perform({ _tag: "Digest", root: latin1(root), order: options?.order ?? "written" }, isCopy),
        toDigest
      )
  })
})

/** @category layers @since 0.1.0 */
export const layer: Layer.Layer<Trees> = Layer.effect(Trees, makeTrees)
