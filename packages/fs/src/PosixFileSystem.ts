/**
 * Makes single system calls on files and folders that `effect/FileSystem` does not have.
 *
 * **Details**
 *
 * One call per method, thin, on paths that may be bytes; `lstatAll` and its like make many in a row, in a
 * thread of their own that starts when it is first needed. Nothing here follows a link in the last part of a
 * path; `realPath` alone resolves links. A call that has begun is always awaited, also when its fiber is
 * interrupted: nothing happens behind the back of a finalizer.
 *
 * **Gotchas**
 *
 * Links in the other parts of a path are followed by the kernel. Who needs more looks at each part, as
 * `VersionStore` does, or uses `Trees`.
 *
 * @since 0.1.0
 */
import type { CopyComparison } from "@reclaim/core"
import { Context, Effect, Layer, Option, Result, Stream } from "effect"
import * as NodeFs from "node:fs"
import { type BytePath, join, latin1 } from "./BytePath.ts"
import { type FileError, fromCause, hasCode, make as fileError } from "./FileError.ts"
import type {
  Failure,
  FolderNames,
  ListResult,
  LookResult,
  ReadResult,
  Task,
  TaskResult
} from "./internal/treeProtocol.ts"
import * as WorkerPool from "./internal/workerPool.ts"

/**
 * What `lstat` tells, in nanoseconds and without rounding. `blocks` are of 512 bytes.
 *
 * @category models
 * @since 0.1.0
 */
export interface EntryInfo {
  readonly kind: CopyComparison.EntryKind
  readonly dev: bigint
  readonly ino: bigint
  readonly nlink: bigint
  readonly mode: number
  readonly size: bigint
  readonly blocks: bigint
  readonly mtimeNs: bigint
  readonly ctimeNs: bigint
  readonly birthtimeNs: bigint
}

/** One entry of a folder. @category models @since 0.1.0 */
export interface EntryName {
  readonly name: Uint8Array
  readonly kind: CopyComparison.EntryKind
}

/** A volume's space, in bytes; `available` is what an ordinary user can still fill. @since 0.1.0 */
export interface VolumeInfo {
  readonly free: bigint
  readonly available: bigint
  readonly total: bigint
}

/**
 * Single calls on the file system.
 *
 * @category services
 * @since 0.1.0
 */
export class PosixFileSystem extends Context.Service<
  PosixFileSystem,
  {
    /** Looks at an entry, never at what a link names. */
    readonly lstat: (path: BytePath) => Effect.Effect<EntryInfo, FileError>
    /** `lstat` of many entries, each by itself, in their order and in one go. */
    readonly lstatAll: (
      paths: ReadonlyArray<BytePath>
    ) => Effect.Effect<ReadonlyArray<Result.Result<EntryInfo, FileError>>>
    /** Resolves every link of a path that exists. */
    readonly realPath: (path: string) => Effect.Effect<string, FileError>
    /** The names in a folder, in no order, without `.` and `..`, streamed. A link fails with ENOTDIR or ELOOP. */
    readonly names: (path: BytePath) => Stream.Stream<EntryName, FileError>
    /**
     * `names` of many folders, each by itself, in their order and in one go. None for a folder that may have
     * more than some thousands of them, and where a folder cannot be read through its descriptor.
     */
    readonly namesAll: (
      paths: ReadonlyArray<BytePath>
    ) => Effect.Effect<ReadonlyArray<Result.Result<Option.Option<ReadonlyArray<EntryName>>, FileError>>>
    /** Makes a folder whose mode is exactly `mode`, whatever the umask says, or none. */
    readonly makeDirectory: (path: BytePath, mode: number) => Effect.Effect<void, FileError>
    /** Renames; replaces a file and an EMPTY folder that has the name, as the kernel does. */
    readonly rename: (from: BytePath, to: BytePath) => Effect.Effect<void, FileError>
    /** Removes an empty folder. */
    readonly removeDirectory: (path: BytePath) => Effect.Effect<void, FileError>
    /** Removes a name that is no folder's. */
    readonly unlink: (path: BytePath) => Effect.Effect<void, FileError>
    /** Gives a file a second name; EEXIST when it is taken. */
    readonly link: (existing: BytePath, path: BytePath) => Effect.Effect<void, FileError>
    /** Makes a symbolic link. */
    readonly makeLink: (target: BytePath, path: BytePath) => Effect.Effect<void, FileError>
    /**
     * Reads a regular file of at most `maxBytes`, which is checked before anything is read (EFBIG). A link
     * is ELOOP, anything else that is no file EINVAL; neither is opened for reading.
     */
    readonly readSmall: (path: BytePath, maxBytes: number) => Effect.Effect<Uint8Array, FileError>
    /** `readSmall` of many files, each by itself, in their order and in one go. */
    readonly readSmallAll: (
      paths: ReadonlyArray<BytePath>,
      maxBytes: number
    ) => Effect.Effect<ReadonlyArray<Result.Result<Uint8Array, FileError>>>
    /**
     * Writes a file that must not exist yet (EEXIST), with exactly `mode`; `sync` forces it to the disk.
     * A file that could not be written whole is removed again.
     */
    readonly writeNew: <E = never, R = never>(
      path: BytePath,
      content: Uint8Array | Stream.Stream<Uint8Array, E, R>,
      options: { readonly mode: number; readonly sync: boolean }
    ) => Effect.Effect<void, FileError | E, R>
    /** Forces the names in a folder to the disk. */
    readonly syncDirectory: (path: BytePath) => Effect.Effect<void, FileError>
    /** The space of the volume that a path lies on. */
    readonly volume: (path: BytePath) => Effect.Effect<VolumeInfo, FileError>
  }
>()("@reclaim/fs/PosixFileSystem") {}

const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = NodeFs.constants

// 256 names: one readdir call, so that a folder of a million entries is never in memory.
const namesChunk = 256

const native = (path: BytePath): string | Buffer => {
  if (typeof path === "string") return path
  return Buffer.from(path.buffer, path.byteOffset, path.byteLength)
}

type Done<A> = (error: NodeJS.ErrnoException | null, value: A) => void

/** One asynchronous call, awaited to its end. */
const call = <A>(
  operation: string,
  path: BytePath,
  start: (done: Done<A>) => void
): Effect.Effect<A, FileError> =>
  Effect.uninterruptible(
    Effect.callback<A, FileError>((resume) => {
      try {
        start((error, value) =>
          resume(error === null ? Effect.succeed(value) : Effect.fail(fromCause(operation, path, error)))
        )
      } catch (cause) {
        // A path with a NUL byte is refused before the call.
        resume(Effect.fail(fromCause(operation, path, cause)))
      }
    })
  )

const run = (
  operation: string,
  path: BytePath,
  start: (done: (error: NodeJS.ErrnoException | null) => void) => void
): Effect.Effect<void, FileError> =>
  call<void>(operation, path, (done) => start((error) => done(error, undefined)))

const kindOf = (entry: NodeFs.Dirent | NodeFs.BigIntStats): CopyComparison.EntryKind | undefined => {
  if (entry.isFile()) return "file"
  if (entry.isDirectory()) return "directory"
  if (entry.isSymbolicLink()) return "symlink"
  if (entry.isFIFO()) return "fifo"
  if (entry.isSocket()) return "socket"
  if (entry.isBlockDevice() || entry.isCharacterDevice()) return "device"
  return undefined
}

const infoOf = (stat: NodeFs.BigIntStats): EntryInfo => ({
  kind: kindOf(stat) ?? "device",
  dev: stat.dev,
  ino: stat.ino,
  nlink: stat.nlink,
  mode: Number(stat.mode),
  size: stat.size,
  blocks: stat.blocks,
  mtimeNs: stat.mtimeNs,
  ctimeNs: stat.ctimeNs,
  birthtimeNs: stat.birthtimeNs
})

const lstat = (path: BytePath) =>
  Effect.map(
    call<NodeFs.BigIntStats>("lstat", path, (done) => NodeFs.lstat(native(path), { bigint: true }, done)),
    infoOf
  )

const open = (operation: string, path: BytePath, flags: number, mode?: number) =>
  call<number>(operation, path, (done) => NodeFs.open(native(path), flags, mode, done))

const close = (operation: string, path: BytePath, descriptor: number) =>
  run(operation, path, (done) => NodeFs.close(descriptor, done))

const withOpen = <A, E, R>(
  operation: string,
  path: BytePath,
  flags: number,
  use: (descriptor: number) => Effect.Effect<A, E, R>
): Effect.Effect<A, E | FileError, R> =>
  Effect.acquireUseRelease(open(operation, path, flags), use, (descriptor) =>
    Effect.ignore(close(operation, path, descriptor))
  )

/** Opens what is already known to be a regular file; a FIFO that took its place is not waited for. */
const openRegular = Effect.fnUntraced(function* (operation: string, path: BytePath) {
  const listed = yield* lstat(path)
  if (listed.kind === "symlink") return yield* fileError(operation, path, "ELOOP")
  if (listed.kind === "directory") return yield* fileError(operation, path, "EISDIR")
  if (listed.kind !== "file") return yield* fileError(operation, path, "EINVAL")
  const descriptor = yield* open(operation, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
  return yield* call<NodeFs.BigIntStats>(operation, path, (done) =>
    NodeFs.fstat(descriptor, { bigint: true }, done)
  ).pipe(
    Effect.flatMap((stat) =>
      stat.ino === listed.ino && stat.dev === listed.dev
        ? Effect.succeed({ descriptor, size: stat.size })
        : Effect.fail(fileError(operation, path, "ECHANGED"))
    ),
    Effect.onError(() => Effect.ignore(close(operation, path, descriptor)))
  )
})

const readAt = (path: BytePath, descriptor: number, buffer: Uint8Array, offset: number) =>
  call<number>("read", path, (done) =>
    NodeFs.read(descriptor, buffer, offset, buffer.length - offset, null, (error, count) =>
      done(error, count)
    )
  )

const readSmall = (path: BytePath, maxBytes: number) =>
  Effect.acquireUseRelease(
    openRegular("read", path),
    Effect.fnUntraced(function* ({ descriptor, size }) {
      if (size > BigInt(maxBytes)) return yield* fileError("read", path, "EFBIG")
      // One byte more than is expected, so that a file that grows is noticed.
      const buffer = new Uint8Array(Number(size) + 1)
      let at = 0
      while (at < buffer.length) {
        const count = yield* readAt(path, descriptor, buffer, at)
        if (count === 0) return buffer.subarray(0, at)
        at += count
      }
      return yield* fileError("read", path, "ECHANGED")
    }),
    ({ descriptor }) => Effect.ignore(close("read", path, descriptor))
  )

const writeAll = Effect.fnUntraced(function* (path: BytePath, descriptor: number, content: Uint8Array) {
  let at = 0
  while (at < content.length) {
    at += yield* call<number>("write", path, (done) =>
      NodeFs.write(descriptor, content, at, content.length - at, null, (error, count) => done(error, count))
    )
  }
})

const setMode = (operation: string, path: BytePath, descriptor: number, mode: number) =>
  run(operation, path, (done) => NodeFs.fchmod(descriptor, mode, done))

const writeNew = <E, R>(
  path: BytePath,
  content: Uint8Array | Stream.Stream<Uint8Array, E, R>,
  options: { readonly mode: number; readonly sync: boolean }
): Effect.Effect<void, FileError | E, R> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.flatMap(
      open("write", path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, options.mode),
      (descriptor) =>
        restore(
          content instanceof Uint8Array
            ? writeAll(path, descriptor, content)
            : Stream.runForEach(content, (part) => writeAll(path, descriptor, part))
        ).pipe(
          Effect.andThen(setMode("write", path, descriptor, options.mode)),
          Effect.andThen(
            options.sync ? run("write", path, (done) => NodeFs.fsync(descriptor, done)) : Effect.void
          ),
          Effect.onError(() => Effect.ignore(close("write", path, descriptor))),
          // Some file systems say only now that the space ran out.
          Effect.andThen(close("write", path, descriptor)),
          Effect.onError(() =>
            Effect.ignore(run("unlink", path, (done) => NodeFs.unlink(native(path), done)))
          )
        )
    )
  )

const folderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW

const removeDirectory = (path: BytePath) => run("rmdir", path, (done) => NodeFs.rmdir(native(path), done))

const makeDirectory = (path: BytePath, mode: number) =>
  run("mkdir", path, (done) => NodeFs.mkdir(native(path), { mode }, done)).pipe(
    Effect.andThen(
      withOpen("mkdir", path, folderFlags, (descriptor) => setMode("mkdir", path, descriptor, mode)).pipe(
        // The caller never hears of a folder that is there without its mode, so nobody else would remove it.
        Effect.onError(() => Effect.ignore(removeDirectory(path)))
      )
    ),
    Effect.uninterruptible
  )

/** Undefined once the entry has vanished. */
const kindByName = (path: BytePath) =>
  lstat(path).pipe(
    Effect.map((info): EntryInfo["kind"] | undefined => info.kind),
    Effect.catchIf(hasCode("ENOENT"), () => Effect.undefined)
  )

/** The next few names; fewer than asked for are the last. */
const readPage = (path: BytePath, dir: NodeFs.Dir) =>
  call<ReadonlyArray<NodeFs.Dirent>>("readdir", path, (done) => {
    const page: Array<NodeFs.Dirent> = []
    const next = () =>
      dir.read((error, entry) => {
        if (error !== null) return done(error, page)
        if (entry === null) return done(null, page)
        page.push(entry)
        if (page.length === namesChunk) return done(null, page)
        next()
      })
    next()
  })

const openDir = (path: BytePath, address: string | Buffer) =>
  call<NodeFs.Dir>("opendir", path, (done) =>
    NodeFs.opendir(address, { encoding: "latin1", bufferSize: namesChunk }, done)
  )

/** The folder is opened without following a link, and where possible its names are read through that. */
const openNames = (path: BytePath) =>
  withOpen("opendir", path, folderFlags, (descriptor) =>
    Effect.catchIf(
      openDir(path, `/proc/self/fd/${descriptor}`),
      // An open descriptor exists: it is /proc that does not.
      hasCode("ENOENT"),
      () => openDir(path, native(path))
    )
  )

const names = (path: BytePath): Stream.Stream<EntryName, FileError> =>
  Stream.unwrap(
    Effect.map(
      Effect.acquireRelease(openNames(path), (dir) =>
        Effect.ignore(run("closedir", path, (done) => dir.close(done)))
      ),
      (dir) =>
        Stream.paginate(
          undefined,
          Effect.fnUntraced(function* () {
            const entries = yield* readPage(path, dir)
            const page: Array<EntryName> = []
            for (const entry of entries) {
              // latin1 is one character per byte, so that no name is lost.
              const name = new Uint8Array(Buffer.from(entry.name, "latin1"))
              // Some file systems do not tell kinds in readdir.
              const kind = kindOf(entry) ?? (yield* kindByName(join(path, name)))
              if (kind !== undefined) page.push({ name, kind })
            }
            const more = entries.length === namesChunk ? Option.some(undefined) : Option.none<undefined>()
            return [page, more] as const
          })
        )
    )
  )

/** The name that Node gives to the operating system. @internal */
export const platform: Effect.Effect<string> = Effect.sync(() => process.platform)

const namesOf = (names: NonNullable<FolderNames>): ReadonlyArray<EntryName> =>
  names.map(({ kind, name }) => ({ kind, name: new Uint8Array(Buffer.from(name, "latin1")) }))

const isList = (result: TaskResult): result is ListResult => "lists" in result
const isLook = (result: TaskResult): result is LookResult => "looks" in result
const isRead = (result: TaskResult): result is ReadResult => "contents" in result

const makePosix = Effect.gen(function* () {
  // A way to a thread and back takes longer than looking at one entry: for many at once there is one that makes
  // the calls in a row. One thread, because they mostly find what is in memory.
  const pool = yield* WorkerPool.make(1)

  const inARow = <A extends object, R extends TaskResult>(
    all: ReadonlyArray<BytePath>,
    task: (some: { readonly root: string; readonly paths: ReadonlyArray<string> }) => Task,
    isResult: (result: TaskResult) => result is R,
    of: (result: R) => ReadonlyArray<A | Failure>
  ): Effect.Effect<ReadonlyArray<Result.Result<A, FileError>>> => {
    const paths = all.map(latin1)
    const [root] = paths
    return root === undefined
      ? Effect.succeed([])
      : WorkerPool.answers(WorkerPool.perform(pool, task({ root, paths }), isResult), of, paths.length)
  }

  return PosixFileSystem.of({
    lstat,
    lstatAll: (paths) =>
      inARow(
        paths,
        (some) => ({ _tag: "Look", ...some }),
        isLook,
        ({ looks }) => looks
      ),
    realPath: (path) => call<string>("realpath", path, (done) => NodeFs.realpath.native(path, done)),
    names,
    namesAll: (paths) =>
      Effect.map(
        inARow(
          paths,
          (some) => ({ _tag: "List", ...some }),
          isList,
          ({ lists }) => lists
        ),
        (lists) =>
          lists.map((list) => Result.map(list, ({ names }) => Option.map(Option.fromNullOr(names), namesOf)))
      ),
    makeDirectory,
    rename: (from, to) => run("rename", from, (done) => NodeFs.rename(native(from), native(to), done)),
    removeDirectory,
    unlink: (path) => run("unlink", path, (done) => NodeFs.unlink(native(path), done)),
    link: (existing, path) => run("link", path, (done) => NodeFs.link(native(existing), native(path), done)),
    makeLink: (target, path) =>
      run("symlink", path, (done) => NodeFs.symlink(native(target), native(path), null, done)),
    readSmall,
    readSmallAll: (paths, maxBytes) =>
      inARow(
        paths,
        (some) => ({ _tag: "Read", ...some, maxBytes }),
        isRead,
        ({ contents }) => contents
      ),
    writeNew,
    syncDirectory: (path) =>
      withOpen("sync", path, folderFlags, (descriptor) =>
        run("sync", path, (done) => NodeFs.fsync(descriptor, done))
      ),
    volume: (path) =>
      Effect.map(
        call<NodeFs.BigIntStatsFs>("statfs", path, (done) =>
          NodeFs.statfs(native(path), { bigint: true }, done)
        ),
        (stat) => ({
          free: stat.bfree * stat.bsize,
          available: stat.bavail * stat.bsize,
          total: stat.blocks * stat.bsize
        })
      )
  })
})

/** The calls of the operating system. @category layers @since 0.1.0 */
export const layer: Layer.Layer<PosixFileSystem> = Layer.effect(PosixFileSystem, makePosix)
