/**
 * Measures, reads and deletes whole trees with synchronous calls, inside a worker thread.
 *
 * **Details**
 *
 * A folder is opened with `O_DIRECTORY | O_NOFOLLOW`, compared with what was listed, and its entries are
 * addressed through `/proc/<pid>/fd/<n>/<name>`: one name below an open folder, so that no link is ever
 * followed, whatever is renamed meanwhile, and no path grows with the depth. Where there is no such
 * folder (macOS), entries are addressed by plain paths below folders that were opened and compared.
 *
 * Names are strings of one character per byte (latin1) throughout.
 */
import type * as NodeFs from "node:fs"
import type { BigIntStats, Dir, Dirent, StatsBase } from "node:fs"
import type { CopyComparison } from "@reclaim/core"
import { createHash, hash, randomBytes } from "node:crypto"
import type { EntryInfo } from "../PosixFileSystem.ts"
import type { Removal, TreeScan, Usage } from "../Trees.ts"
import * as CopyEngine from "./copyEngine.ts"
import type { Cells } from "./syncQueue.ts"

/** The system calls that the engine makes. A test replaces single ones. */
export type Calls = Pick<
  typeof NodeFs,
  | "chmodSync"
  | "closeSync"
  | "constants"
  | "copyFileSync"
  | "fchmodSync"
  | "fstatSync"
  | "fsyncSync"
  | "futimesSync"
  | "lstatSync"
  | "lutimesSync"
  | "mkdirSync"
  | "opendirSync"
  | "openSync"
  | "readdirSync"
  | "readFileSync"
  | "readlinkSync"
  | "readSync"
  | "renameSync"
  | "rmdirSync"
  | "symlinkSync"
  | "unlinkSync"
  | "writeSync"
>

export interface Environment {
  readonly calls: Calls
  /** True when the task is to end between two entries. */
  readonly cancelled: () => boolean
  /** Called between two entries and between two reads of a long file; may block. */
  readonly breathe: () => void
  /** Takes one entry of a scan; may block. */
  readonly emit: (entry: CopyComparison.DiskEntry) => void
  /** Blocks the thread for a moment; ends early when the task is cancelled. */
  readonly pause: (milliseconds: number) => void
  /** Nanoseconds on the monotonic clock. */
  readonly now: () => bigint
  /** Milliseconds on the clock that files are dated by. */
  readonly wallClock: () => number
  /** Tells that there is something to sync that nobody looks at. */
  readonly wake: (queue: Cells) => void
}

/** Nanoseconds on a clock that all threads of the process share and that nobody sets. */
export const monotonic = (): bigint => process.hrtime.bigint()

export class Cancelled extends Error {}

export class TreeError extends Error {
  readonly operation: string
  readonly path: string
  readonly code: string
  constructor(operation: string, path: string, code: string) {
    super(`${operation} ${path}: ${code}`)
    this.operation = operation
    this.path = path
    this.code = code
  }
}

// 256: folders of a copy nest a handful deep; a reader that holds two descriptors for each level must end
// somewhere, and what is deeper is kept with a reason.
const maxReadDepth = 256
// 64: two descriptors for each level on the way down, far below any limit on open files.
const maxRemoveDepth = 64
// 900: PATH_MAX is 1024 on macOS, where entries are addressed by plain paths.
const maxPlainPath = 900
// 512: one readdir call's worth of names; the only part of a large folder that is ever in memory.
const directoryBuffer = 512
// 16 KiB: a folder that takes no more has some hundred names, and thousands at most, because each takes a byte
// at least. All of them at once cost a third of what they cost in pieces. A size of 0 says nothing.
export const smallFolder = 16_384n
// 20 ms, 100 times: two seconds for one tree, enough for what is passing (a scanner, a short of
// descriptors), too little to hold up a slice.
const retryPause = 20
const retryBudget = 100
// 100: enough to see what is wrong with a tree.
const maxFailures = 100

export const codeOf = (cause: unknown): string =>
  typeof cause === "object" && cause !== null && "code" in cause && typeof cause.code === "string"
    ? cause.code
    : "UNKNOWN"

export const native = (path: string): string | Buffer =>
  /^\p{ASCII}*$/u.test(path) ? path : Buffer.from(path, "latin1")

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const text = (path: string): string | null => {
  const known = native(path)
  if (typeof known === "string") return known
  try {
    return utf8.decode(known)
  } catch {
    return null
  }
}

const escape = (character: string) => `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`

/** The counterpart of `BytePath.show` for names in latin1. */
export const show = (path: string): string =>
  text(path)?.replace(/\p{Cc}/gu, escape) ?? path.replace(/[^\u0020-\u007e]/g, escape)

export const kindOf = (stat: Dirent | StatsBase<number> | StatsBase<bigint>): CopyComparison.EntryKind =>
  stat.isFile()
    ? "file"
    : stat.isDirectory()
      ? "directory"
      : stat.isSymbolicLink()
        ? "symlink"
        : stat.isFIFO()
          ? "fifo"
          : stat.isSocket()
            ? "socket"
            : "device"

export const statInfo = (stat: BigIntStats): EntryInfo => ({
  kind: kindOf(stat),
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

const kindByte: Record<CopyComparison.EntryKind, number> = {
  file: 1,
  directory: 2,
  symlink: 3,
  fifo: 4,
  socket: 5,
  device: 6
}

/**
 * Combines the digests of entries without regard to their order, because `readdir` has none: the sum of
 * all, modulo 2^256. Entries are distinct by their paths. A sum, unlike an exclusive or, is not linear
 * over single bits, and needs neither a sorted folder nor memory.
 */
const makeSum = () => {
  const words = new Uint32Array(8)
  let count = 0
  return {
    add: (digest: Buffer) => {
      let carry = 0
      for (let index = 0; index < 8; index += 1) {
        const total = words[index]! + digest.readUInt32LE(index * 4) + carry
        words[index] = total >>> 0
        carry = total > 0xffffffff ? 1 : 0
      }
      count += 1
    },
    finish: (top: Buffer): string =>
      createHash("sha256")
        .update(top)
        .update(new Uint8Array(words.buffer))
        .update(String(count))
        .digest("hex")
  }
}

// Fixed fields, and the longest path that the system takes.
const record = Buffer.alloc(48 + 4096)

const describe = (path: string, stat: BigIntStats, kind: CopyComparison.EntryKind): Buffer => {
  record.writeBigUInt64LE(BigInt.asUintN(64, stat.dev), 0)
  record.writeBigUInt64LE(BigInt.asUintN(64, stat.ino), 8)
  record.writeBigUInt64LE(BigInt.asUintN(64, stat.size), 16)
  record.writeBigUInt64LE(BigInt.asUintN(64, stat.mtimeNs), 24)
  record.writeBigUInt64LE(BigInt.asUintN(64, stat.ctimeNs), 32)
  record.writeUInt32LE(Number(stat.mode), 40)
  record.writeUInt32LE(kindByte[kind], 44)
  if (path.length > record.length - 48) {
    return hash("sha256", Buffer.concat([record.subarray(0, 48), Buffer.from(path, "latin1")]), "buffer")
  }
  return hash("sha256", record.subarray(0, 48 + record.write(path, 48, "latin1")), "buffer")
}

/** The top folder: with its birth time, without its change time, which its own rename sets. */
const describeTop = (stat: BigIntStats, birthTimes: boolean): Buffer => {
  const top = Buffer.alloc(48)
  top.writeBigUInt64LE(BigInt.asUintN(64, stat.dev), 0)
  top.writeBigUInt64LE(BigInt.asUintN(64, stat.ino), 8)
  top.writeBigUInt64LE(BigInt.asUintN(64, stat.size), 16)
  top.writeBigUInt64LE(BigInt.asUintN(64, stat.mtimeNs), 24)
  top.writeBigUInt64LE(birthTimes ? BigInt.asUintN(64, stat.birthtimeNs) : 0n, 32)
  top.writeUInt32LE(Number(stat.mode), 40)
  return top
}

export interface Folder {
  readonly descriptor: number
  /** What an entry's name is appended to. */
  readonly prefix: string
  readonly stat: BigIntStats
}

type Identity = Pick<EntryInfo, "dev" | "ino">

const sameFile = (left: Identity, right: Identity) => left.dev === right.dev && left.ino === right.ino

export const make = (environment: Environment) => {
  const { breathe, calls, cancelled, emit, now, pause } = environment
  const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = calls.constants
  // O_PATH is missing in node:fs; the value is the same on every Linux that Node runs on.
  const openByPath = 0o10000000

  const attempt = <A>(operation: string, path: string, call: () => A): A => {
    try {
      return call()
    } catch (cause) {
      throw new TreeError(operation, path, codeOf(cause))
    }
  }

  const succeeds = <A>(call: () => A): A | undefined => {
    try {
      return call()
    } catch {
      return undefined
    }
  }

  /** The folder through which open descriptors can be addressed, or undefined where there is none. */
  const descriptors = succeeds(() => {
    if (process.platform !== "linux") return undefined
    const folder = `/proc/${calls.readlinkSync("/proc/self")}/fd`
    const probe = calls.openSync("/", O_RDONLY | O_DIRECTORY)
    try {
      const through = calls.lstatSync(`${folder}/${probe}/.`, { bigint: true })
      return sameFile(through, calls.fstatSync(probe, { bigint: true })) ? folder : undefined
    } finally {
      calls.closeSync(probe)
    }
  })

  // Without statx, libuv reports the change time as the birth time. The rename changes it, so that no
  // fingerprint would ever be found again. /proc has no birth times at all, which tells the two apart.
  const birthTimes =
    process.platform === "darwin" ||
    succeeds(() => {
      const probe = calls.lstatSync("/proc/self", { bigint: true })
      return probe.birthtimeNs !== probe.ctimeNs
    }) === true

  const lstat = (path: string): BigIntStats | undefined =>
    calls.lstatSync(native(path), { bigint: true, throwIfNoEntry: false })

  const openFolder = (path: string, plainPath: string, listed: BigIntStats): Folder => {
    const descriptor = calls.openSync(native(path), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK)
    try {
      const stat = calls.fstatSync(descriptor, { bigint: true })
      if (!sameFile(stat, listed)) throw new TreeError("open", show(plainPath), "ECHANGED")
      const prefix = descriptors === undefined ? `${plainPath}/` : `${descriptors}/${descriptor}/`
      return { descriptor, prefix, stat }
    } catch (cause) {
      calls.closeSync(descriptor)
      throw cause
    }
  }

  /** Calls `each` for every name, with only some of them in memory; stops when it returns false. */
  const forEachName = (folder: Folder, each: (name: string) => boolean): void => {
    if (folder.stat.size > 0n && folder.stat.size <= smallFolder) {
      for (const name of calls.readdirSync(native(folder.prefix), "latin1")) if (!each(name)) return
      return
    }
    const dir: Dir = calls.opendirSync(native(folder.prefix), {
      encoding: "latin1",
      bufferSize: directoryBuffer
    })
    try {
      for (let entry = dir.readSync(); entry !== null; entry = dir.readSync()) if (!each(entry.name)) return
    } finally {
      dir.closeSync()
    }
  }

  /** Every mount point of the system; none where there is no table of them. */
  const mountPoints = (): ReadonlyArray<string> => {
    const read = () => calls.readFileSync("/proc/self/mountinfo", "latin1")
    // A table that exists and cannot be read is no answer: what is mounted would be taken for the tree's own.
    const table =
      process.platform === "linux" ? attempt("read", "/proc/self/mountinfo", read) : succeeds(read)
    return (table ?? "").split("\n").flatMap((line) => {
      const point = line.split(" ", 5)[4]
      return point === undefined
        ? []
        : [
            point.replace(/\\([0-7]{3})/g, (_, octal: string) =>
              String.fromCharCode(Number.parseInt(octal, 8))
            )
          ]
    })
  }

  /**
   * The mount points at and below a folder, relative to it; its own is empty. A mount of another file system
   * shows in the device, one of the same file system (a bind mount) only here.
   */
  const mountsFrom = (root: Folder, rootPath: string, points = mountPoints()): Set<string> => {
    if (points.length === 0) return new Set()
    const actual =
      descriptors === undefined
        ? rootPath
        : attempt("readlink", show(rootPath), () =>
            calls.readlinkSync(`${descriptors}/${root.descriptor}`, { encoding: "latin1" })
          )
    const mounts = new Set<string>()
    for (const point of points) {
      if (point === actual) mounts.add("")
      else if (point.startsWith(`${actual}/`)) mounts.add(point.slice(actual.length + 1))
    }
    return mounts
  }

  /** Of a tree that is read, the top may be mounted: a home often is. */
  const mountsBelow = (
    root: Folder,
    rootPath: string,
    points?: ReadonlyArray<string>
  ): ReadonlySet<string> => {
    const mounts = mountsFrom(root, rootPath, points)
    mounts.delete("")
    return mounts
  }

  const openRoot = (operation: string, path: string): Folder => {
    const listed = attempt(operation, show(path), () => calls.lstatSync(native(path), { bigint: true }))
    if (listed.isSymbolicLink()) throw new TreeError(operation, show(path), "ELOOP")
    if (!listed.isDirectory()) throw new TreeError(operation, show(path), "ENOTDIR")
    return attempt(operation, show(path), () => openFolder(path, path, listed))
  }

  const step = () => {
    breathe()
    if (cancelled()) throw new Cancelled()
  }

  // Large enough for most files of a skill to be one read.
  let buffer: Buffer | undefined
  const readBuffer = () => (buffer ??= Buffer.allocUnsafe(256 * 1024))

  const unchanged = (left: BigIntStats, right: BigIntStats) =>
    sameFile(left, right) &&
    left.size === right.size &&
    left.mtimeNs === right.mtimeNs &&
    left.ctimeNs === right.ctimeNs

  /** Opens what was listed and nothing else, reads it, and looks again whether it stayed the same. */
  const digest = (path: string, shown: () => string, listed: BigIntStats): string => {
    const descriptor = calls.openSync(native(path), O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
    try {
      if (!unchanged(calls.fstatSync(descriptor, { bigint: true }), listed)) {
        throw new TreeError("read", shown(), "ECHANGED")
      }
      const chunk = readBuffer()
      const first = calls.readSync(descriptor, chunk, 0, chunk.length, null)
      let total = first
      let sum: string
      if (first < chunk.length) {
        sum = hash("sha256", chunk.subarray(0, first), "hex")
      } else {
        const running = createHash("sha256").update(chunk)
        // Not to the end of a file that grows as fast as it is read.
        while (total <= listed.size) {
          step()
          const read = calls.readSync(descriptor, chunk, 0, chunk.length, null)
          if (read === 0) break
          running.update(chunk.subarray(0, read))
          total += read
        }
        sum = running.digest("hex")
      }
      if (
        BigInt(total) !== listed.size ||
        !unchanged(calls.fstatSync(descriptor, { bigint: true }), listed)
      ) {
        throw new TreeError("read", shown(), "ECHANGED")
      }
      return sum
    } finally {
      calls.closeSync(descriptor)
    }
  }

  /**
   * Walks a tree for reading. Whatever cannot be read, changes meanwhile, or lies on another file system
   * ends the walk with an error: half a figure proves nothing.
   */
  const walk = (
    operation: string,
    rootPath: string,
    visit: (path: string, address: string, stat: BigIntStats, kind: CopyComparison.EntryKind) => void,
    points?: ReadonlyArray<string>
  ): Folder => {
    const root = openRoot(operation, rootPath)
    const into = (folder: Folder, relative: string, depth: number): void => {
      forEachName(folder, (name) => {
        step()
        const path = `${relative}${name}`
        const shown = () => show(`${rootPath}/${path}`)
        const address = folder.prefix + name
        const stat = attemptAt(operation, shown, () => lstat(address))
        if (stat === undefined) throw new TreeError(operation, shown(), "ECHANGED")
        const kind = kindOf(stat)
        if (kind === "directory") {
          if (stat.dev !== root.stat.dev) throw new TreeError(operation, shown(), "EXDEV")
          if (depth >= maxReadDepth) throw new TreeError(operation, shown(), "ETOODEEP")
        }
        attemptAt(operation, shown, () => visit(path, address, stat, kind))
        if (kind !== "directory") return true
        const child = attemptAt(operation, shown, () => openFolder(address, `${rootPath}/${path}`, stat))
        try {
          attemptAt(operation, shown, () => into(child, `${path}/`, depth + 1))
        } finally {
          calls.closeSync(child.descriptor)
        }
        return true
      })
    }
    try {
      const mount = mountsBelow(root, rootPath, points).values().next()
      if (mount.done !== true) throw new TreeError(operation, show(`${rootPath}/${mount.value}`), "EXDEV")
      attemptAt(
        operation,
        () => show(rootPath),
        () => into(root, "", 0)
      )
      return root
    } finally {
      calls.closeSync(root.descriptor)
    }
  }

  const attemptAt = <A>(operation: string, shown: () => string, call: () => A): A => {
    try {
      return call()
    } catch (cause) {
      if (cause instanceof TreeError || cause instanceof Cancelled) throw cause
      throw new TreeError(operation, shown(), codeOf(cause))
    }
  }

  const makeUsage = () => {
    let apparent = 0n
    let allocated = 0n
    let shared = 0n
    let entries = 0
    // Only files that have more names than were met so far; a file whose names all lie in the tree leaves
    // the map with the last one.
    const partial = new Map<string, { readonly blocks: bigint; left: bigint }>()
    return {
      add: (stat: BigIntStats, kind: CopyComparison.EntryKind) => {
        entries += 1
        if (kind !== "directory" && stat.nlink > 1n) {
          const key = `${stat.dev}:${stat.ino}`
          const known = partial.get(key)
          if (known !== undefined) {
            known.left -= 1n
            if (known.left === 0n) {
              partial.delete(key)
              shared -= known.blocks
            }
            return
          }
          partial.set(key, { blocks: stat.blocks, left: stat.nlink - 1n })
          shared += stat.blocks
        }
        apparent += stat.size
        allocated += stat.blocks
      },
      finish: (top: BigIntStats): Usage => ({
        apparentBytes: apparent + top.size,
        allocatedBytes: (allocated + top.blocks) * 512n,
        sharedBytes: shared * 512n,
        entries
      })
    }
  }

  const usage = (rootPath: string, points?: ReadonlyArray<string>): Usage => {
    const figures = makeUsage()
    const root = walk("usage", rootPath, (_path, _address, stat, kind) => figures.add(stat, kind), points)
    return figures.finish(root.stat)
  }

  /** Of several trees, each by itself. Mounts are looked at once, before the first. */
  const usages = (rootPaths: ReadonlyArray<string>): ReadonlyArray<Usage | TreeError> => {
    const points = attempted(mountPoints)
    return rootPaths.map((rootPath) =>
      points instanceof TreeError ? points : attempted(() => usage(rootPath, points))
    )
  }

  const attempted = <A>(call: () => A): A | TreeError => {
    try {
      return call()
    } catch (cause) {
      if (cause instanceof TreeError) return cause
      throw cause
    }
  }

  const scan = (
    rootPath: string,
    options: {
      readonly digests: boolean
      readonly entries: boolean
      readonly maxDigestBytes?: bigint | number | undefined
    }
  ): TreeScan => {
    const figures = makeUsage()
    const sum = makeSum()
    const { maxDigestBytes = Number.POSITIVE_INFINITY } = options
    const root = walk("scan", rootPath, (path, address, stat, kind) => {
      figures.add(stat, kind)
      sum.add(describe(path, stat, kind))
      const sha256 =
        options.digests && kind === "file" && stat.size <= maxDigestBytes
          ? digest(address, () => show(`${rootPath}/${path}`), stat)
          : null
      if (options.entries) {
        emit({
          path: text(path),
          shownPath: show(path),
          kind,
          size: stat.size,
          executable: kind === "file" && (stat.mode & 0o111n) !== 0n,
          sha256
        })
      }
    })
    // The listing of the top folder was taken before its entries were read; what was added or removed
    // meanwhile shows in its times.
    const after = attempt("scan", show(rootPath), () => calls.lstatSync(native(rootPath), { bigint: true }))
    if (!unchanged(after, root.stat)) throw new TreeError("scan", show(rootPath), "ECHANGED")
    return {
      ...figures.finish(root.stat),
      top: statInfo(root.stat),
      fingerprint: sum.finish(describeTop(root.stat, birthTimes))
    }
  }

  const remove = (
    rootPath: string,
    options: {
      readonly deadline: bigint | null
      readonly maxEntries: number | null
      readonly expected?: Identity | undefined
    }
  ): Removal => {
    const { expected } = options
    let removed = 0
    let reclaimed = 0n
    let failures: Array<Removal["failures"][number]> = []
    let failureCount = 0
    let budget = retryBudget
    let hoisted = 0
    let stopped = false
    /** The deadline kept something from being tried, or from being tried again. */
    let late = false

    const isLate = (): boolean => {
      if (options.deadline === null || now() < options.deadline) return false
      late = true
      return true
    }
    /** The first entry goes even when the time is up, so that a tree shrinks with every call. */
    const stop = (): boolean => {
      if (stopped) return true
      step()
      stopped =
        (removed > 0 || failureCount > 0) &&
        (isLate() || (options.maxEntries !== null && removed >= options.maxEntries))
      return stopped
    }
    const fail = (path: string, cause: unknown) => {
      failureCount += 1
      if (failures.length < maxFailures) {
        failures.push({
          path: show(path),
          code: cause instanceof TreeError ? cause.code : codeOf(cause)
        })
      }
    }
    const passing = new Set(["EBUSY", "ENOTEMPTY", "EEXIST", "EMFILE", "ENFILE"])
    /** True when the call is worth another try. */
    const again = (cause: unknown): boolean => {
      if (!passing.has(codeOf(cause)) || budget === 0 || stop() || isLate()) return false
      budget -= 1
      pause(retryPause)
      return true
    }
    const retried = <A>(call: () => A): A => {
      for (;;) {
        try {
          return call()
        } catch (cause) {
          if (!again(cause)) throw cause
        }
      }
    }

    /** Opens a folder for emptying, made accessible first; never through a link. */
    const openAccessible = (address: string, path: string, listed: BigIntStats): Folder => {
      if ((listed.mode & 0o700n) !== 0o700n) {
        // A failure here is no end: the folder may still be readable, and then its entries tell.
        succeeds(() => {
          const flags = descriptors === undefined ? O_RDONLY | O_NONBLOCK : openByPath
          const descriptor = calls.openSync(native(address), flags | O_DIRECTORY | O_NOFOLLOW)
          try {
            if (!sameFile(calls.fstatSync(descriptor, { bigint: true }), listed)) return
            if (descriptors === undefined) calls.fchmodSync(descriptor, 0o700)
            else calls.chmodSync(`${descriptors}/${descriptor}`, 0o700)
          } finally {
            calls.closeSync(descriptor)
          }
        })
      }
      return openFolder(address, path, listed)
    }

    const gone = (cause: unknown) => codeOf(cause) === "ENOENT"

    const removeFolder = (
      root: Folder,
      mounts: ReadonlySet<string>,
      address: string,
      path: string,
      depth: number
    ): void => {
      const listed = lstat(address)
      if (listed === undefined) return
      if (!listed.isDirectory()) return fail(path, { code: "ECHANGED" })
      if (listed.dev !== root.stat.dev || mounts.has(path.slice(rootPath.length + 1))) {
        return fail(path, { code: "EXDEV" })
      }
      const failedBefore = failureCount
      const folder = retried(() => openAccessible(address, path, listed))
      try {
        if (depth >= maxRemoveDepth || (descriptors === undefined && path.length > maxPlainPath)) {
          // One level below the root again, so that neither descriptors nor paths grow with the depth.
          calls.renameSync(native(address), native(`${root.prefix}.deep-${randomBytes(16).toString("hex")}`))
          hoisted += 1
          return
        }
        empty(root, mounts, folder, path, depth)
      } finally {
        calls.closeSync(folder.descriptor)
      }
      if (stopped || failureCount > failedBefore) return
      for (;;) {
        try {
          calls.rmdirSync(native(address))
          removed += 1
          reclaimed += listed.blocks * 512n
          return
        } catch (cause) {
          if (gone(cause)) return
          if (!again(cause)) throw cause
          // Somebody wrote into it, or readdir missed what moved: empty it once more.
          const reopened = openAccessible(address, path, listed)
          try {
            empty(root, mounts, reopened, path, depth)
          } finally {
            calls.closeSync(reopened.descriptor)
          }
          if (stopped || failureCount > failedBefore) return
        }
      }
    }

    const empty = (
      root: Folder,
      mounts: ReadonlySet<string>,
      folder: Folder,
      path: string,
      depth: number
    ): void =>
      forEachName(folder, (name) => {
        if (stop()) return false
        const address = folder.prefix + name
        const entryPath = `${path}/${name}`
        try {
          const stat = calls.lstatSync(native(address), { bigint: false, throwIfNoEntry: false })
          if (stat?.isDirectory() === true) {
            removeFolder(root, mounts, address, entryPath, depth + 1)
          } else if (mounts.has(entryPath.slice(rootPath.length + 1))) {
            fail(entryPath, { code: "EXDEV" })
          } else if (stat !== undefined) {
            retried(() => calls.unlinkSync(native(address)))
            removed += 1
            if (stat.nlink === 1) reclaimed += BigInt(stat.blocks) * 512n
          }
        } catch (cause) {
          if (cause instanceof Cancelled) throw cause
          if (!gone(cause) && !stopped) fail(entryPath, cause)
        }
        return !stopped
      })

    const result = (complete: boolean): Removal => ({
      complete,
      stopped: late && !complete,
      removedEntries: removed,
      reclaimedBytes: reclaimed,
      failures,
      failureCount
    })

    for (;;) {
      const listed = attempt("remove", show(rootPath), () => lstat(rootPath))
      if (listed === undefined) return result(true)
      if (listed.isSymbolicLink()) throw new TreeError("remove", show(rootPath), "ELOOP")
      if (!listed.isDirectory()) throw new TreeError("remove", show(rootPath), "ENOTDIR")
      if (expected !== undefined && !sameFile(listed, expected)) {
        throw new TreeError("remove", show(rootPath), "ECHANGED")
      }
      // What could not go is tried again in every pass, and is reported once.
      failures = []
      failureCount = 0
      hoisted = 0
      const removedBefore = removed
      let root: Folder
      try {
        root = attemptAt(
          "remove",
          () => show(rootPath),
          () => retried(() => openAccessible(rootPath, rootPath, listed))
        )
      } catch (cause) {
        // What is passing is no answer: with more time there would have been another try.
        if (!late || cause instanceof Cancelled) throw cause
        fail(rootPath, cause)
        return result(false)
      }
      try {
        attemptAt(
          "remove",
          () => show(rootPath),
          () => {
            const mounts = mountsFrom(root, rootPath)
            if (mounts.has("")) throw new TreeError("remove", show(rootPath), "EXDEV")
            empty(root, mounts, root, rootPath, 0)
          }
        )
      } finally {
        calls.closeSync(root.descriptor)
      }
      if (stopped) return result(false)
      if (hoisted > 0) continue
      if (failureCount > 0) return result(false)
      try {
        calls.rmdirSync(native(rootPath))
        removed += 1
        reclaimed += listed.blocks * 512n
        return result(true)
      } catch (cause) {
        if (gone(cause)) return result(true)
        if (codeOf(cause) === "ENOTEMPTY" && removed > removedBefore) continue
        if (again(cause)) continue
        if (stopped) return result(false)
        fail(rootPath, cause)
        return result(false)
      }
    }
  }

  const { copy, digestTree } = CopyEngine.make(environment, {
    attempt,
    attemptAt,
    codeOf,
    descriptors,
    error: (operation, path, code) => new TreeError(operation, path, code),
    forEachName,
    kindOf,
    lstat,
    maxDepth: maxReadDepth,
    mountsBelow,
    native,
    openFolder,
    openRoot,
    readBuffer,
    removeTree: (path) => {
      const { failures } = remove(path, { deadline: null, maxEntries: null })
      for (const { code, path: kept } of failures) throw new TreeError("remove", kept, code)
    },
    show,
    step,
    text,
    unchanged
  })

  return { copy, digestTree, remove, scan, usage, usages }
}
