/**
 * Copies and digests whole trees with synchronous calls, inside a worker thread.
 *
 * **Details**
 *
 * A tree is visited depth first, the names of each folder in the order of English, whatever the locale of the
 * process, and one running SHA-256 takes everything as it is written: the digest is that of the copy, not of what was read
 * some time before or after.
 *
 * The source may be in use. A file is copied, and then looked at again; when it changed it is copied anew. A
 * folder is listed, and listed again when its own times changed meanwhile; when its names changed it is
 * copied anew. Databases of SQLite are copied together with their side files. All of this is bounded, and
 * then the copy fails: half a truth is worse than the backup before.
 *
 * What was written is forced to the disk, while the next is written already.
 */
import type { CopyComparison } from "@reclaim/core"
import { createHash, type Hash } from "node:crypto"
import type { BigIntStats } from "node:fs"
import type { Environment, Folder } from "./treeEngine.ts"
import * as SyncQueue from "./syncQueue.ts"
import { askSize, type CopyResult } from "./treeProtocol.ts"

/** What the engine around this one lends. */
export interface Ground {
  readonly attempt: <A>(operation: string, path: string, call: () => A) => A
  readonly attemptAt: <A>(operation: string, shown: () => string, call: () => A) => A
  readonly codeOf: (cause: unknown) => string
  readonly descriptors: string | undefined
  readonly error: (operation: string, path: string, code: string) => Error
  readonly forEachName: (folder: Folder, each: (name: string) => boolean) => void
  readonly kindOf: (stat: BigIntStats) => CopyComparison.EntryKind
  readonly lstat: (path: string) => BigIntStats | undefined
  readonly maxDepth: number
  readonly mountsBelow: (root: Folder, rootPath: string) => ReadonlySet<string>
  readonly native: (path: string) => string | Buffer
  readonly openFolder: (path: string, plainPath: string, listed: BigIntStats) => Folder
  readonly openRoot: (operation: string, path: string) => Folder
  readonly readBuffer: () => Buffer
  readonly removeTree: (path: string) => void
  readonly show: (path: string) => string
  readonly step: () => void
  readonly text: (path: string) => string | null
  readonly unchanged: (left: BigIntStats, right: BigIntStats) => boolean
}

/** Which of some paths below the root are left out. */
export type Omits = (paths: ReadonlyArray<string>) => ReadonlyArray<boolean>

export interface CopyOptions {
  /** Whether the source may be in use: only then anything is ever copied anew. */
  readonly live: boolean
  readonly omits: Omits | null
}

// 5 times: a file that a session still writes to is quiet between two of its messages; one that is not
// quiet in five looks is not going to be.
const fileAttempts = 5
// 3 times for the whole tree: it may mean its whole contents each time.
const folderAttempts = 3
// 20 ms: the kernel's clock for change times ticks every 1 to 10 ms, and two changes within one tick look
// the same. What changed this recently is looked at again after the tick.
const tick = 20

const database = /\.(?:db|sqlite3?)$/i
/** What SQLite keeps beside a database: together they are one state. */
const sideFiles = ["-journal", "-shm", "-wal"]

/**
 * The order of the names in a digest: of English, in which everything is written, or of the process's locale,
 * in which a host may have written.
 */
export type Order = "written" | "locale"

/** As the readers of the digest sort; names that are no text come last. */
const sorted = (
  names: ReadonlyArray<string>,
  text: Ground["text"],
  { compare }: Intl.Collator
): ReadonlyArray<string> => {
  const keyed = names.map((name) => ({ name, text: text(name) }))
  const byBytes = (left: string, right: string) => (left < right ? -1 : left > right ? 1 : 0)
  return keyed
    .toSorted((left, right) => {
      if (left.text === null || right.text === null) {
        if (left.text !== null) return -1
        if (right.text !== null) return 1
        return byBytes(left.name, right.name)
      }
      return compare(left.text, right.text) || byBytes(left.name, right.name)
    })
    .map(({ name }) => name)
}

const permissions = (stat: BigIntStats) => Number(stat.mode & 0o777n)

// A number of seconds holds a microsecond of this century, not a nanosecond.
const seconds = (nanoseconds: bigint) => Number(nanoseconds / 1000n) / 1e6

const same = (left: BigIntStats | undefined, right: BigIntStats | undefined, ground: Ground) =>
  left === undefined ? right === undefined : right !== undefined && ground.unchanged(left, right)

export const make = (environment: Environment, ground: Ground) => {
  const { calls, pause, wallClock } = environment
  const { attempt, attemptAt, codeOf, error, kindOf, lstat, native, show, step, text } = ground
  const {
    COPYFILE_EXCL,
    COPYFILE_FICLONE_FORCE,
    O_CREAT,
    O_EXCL,
    O_NOFOLLOW,
    O_NONBLOCK,
    O_RDONLY,
    O_WRONLY
  } = calls.constants

  const transfer = (
    operation: string,
    rootPath: string,
    targetPath: string | null,
    options: CopyOptions,
    order: Order
  ): CopyResult => {
    const collator = new Intl.Collator(order === "written" ? "en" : undefined)
    let running: Hash = createHash("sha256")
    let bytes = 0n
    let entries = 0
    let folderTries = options.live ? folderAttempts : 1
    const queue = SyncQueue.writer({
      calls,
      failed: (path, code) => error(operation, show(path), code),
      wake: environment.wake
    })
    // Only a file system that shares blocks can clone; the first refusal speaks for all.
    let cloning = targetPath !== null && ground.descriptors !== undefined

    const feed = (line: string) => running.update(Buffer.from(line, "latin1"))
    const shownAt = (relative: string) => () => show(relative === "" ? rootPath : `${rootPath}/${relative}`)
    const mark = () => {
      const before = { running: options.live ? running.copy() : running, bytes, entries }
      return () => {
        running = before.running
        bytes = before.bytes
        entries = before.entries
      }
    }

    /** Waits until a change from now on shows in the times of what is looked at. */
    const settled = (look: () => BigIntStats | undefined): BigIntStats | undefined => {
      const stat = look()
      if (!options.live || stat === undefined) return stat
      const age = wallClock() - Number(stat.ctimeNs / 1_000_000n)
      if (age < 0 || age >= tick) return stat
      pause(tick)
      step()
      return look()
    }

    const list = (folder: Folder, relative: string): ReadonlyArray<string> => {
      const names: Array<string> = []
      ground.forEachName(folder, (name) => {
        step()
        names.push(name)
        return true
      })
      return select(names, relative)
    }

    const select = (names: ReadonlyArray<string>, relative: string): ReadonlyArray<string> => {
      const { omits } = options
      if (omits === null) return names
      const kept: Array<string> = []
      for (let at = 0; at < names.length; at += askSize) {
        const some = names.slice(at, at + askSize)
        const omitted = omits(some.map((name) => relative + name))
        kept.push(...some.filter((_, index) => omitted[index] === false))
      }
      return kept
    }

    /** Gives what was written the mode and the times of its source. */
    const finish = (descriptor: number, stat: BigIntStats) => {
      calls.fchmodSync(descriptor, Number(stat.mode & 0o7777n))
      calls.futimesSync(descriptor, seconds(stat.atimeNs), seconds(stat.mtimeNs))
    }

    const writeAll = (descriptor: number, chunk: Buffer, length: number) => {
      for (let at = 0; at < length;) at += calls.writeSync(descriptor, chunk, at, length - at, null)
    }

    /** Reads a file to its end, or to just after the end that was expected. */
    const readThrough = (descriptor: number, size: bigint, each: (chunk: Buffer, length: number) => void) => {
      const chunk = ground.readBuffer()
      let total = 0n
      for (;;) {
        const length = calls.readSync(descriptor, chunk, 0, chunk.length, null)
        if (length === 0) return total
        total += BigInt(length)
        if (total > size) return total
        each(chunk, length)
        // A read that is cut short at the end that was expected has met it.
        if (total === size && length < chunk.length) return total
        if (total > BigInt(length)) step()
      }
    }

    const feedFile = (relative: string, stat: BigIntStats) => {
      entries += 1
      bytes += stat.size
      feed(`file:${relative}:${permissions(stat)}:${stat.size}\0`)
    }

    const clone = (descriptor: number, address: string): boolean => {
      if (!cloning) return false
      try {
        calls.copyFileSync(
          `${ground.descriptors}/${descriptor}`,
          native(address),
          COPYFILE_EXCL | COPYFILE_FICLONE_FORCE
        )
        return true
      } catch (cause) {
        if (codeOf(cause) === "EEXIST") throw cause
        cloning = false
        if (lstat(address) !== undefined) calls.unlinkSync(native(address))
        return false
      }
    }

    /** Digests a file that nobody is expected to write to; `stat` describes it, or what it is a copy of. */
    const digestFile = (address: string, relative: string, stat: BigIntStats) => {
      const listed = lstat(address)
      const descriptor = calls.openSync(native(address), O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
      try {
        const intact = () => same(listed, calls.fstatSync(descriptor, { bigint: true }), ground)
        let total: bigint | undefined
        if (intact()) {
          feedFile(relative, stat)
          total = readThrough(descriptor, stat.size, (chunk, length) =>
            running.update(chunk.subarray(0, length))
          )
        }
        if (total !== stat.size || !intact()) throw error(operation, shownAt(relative)(), "ECHANGED")
      } finally {
        calls.closeSync(descriptor)
      }
    }

    const vanished = new Set(["ENOENT", "ECHANGED", "ELOOP", "ENOTDIR", "ENXIO", "EINVAL"])
    /** Undefined when the entry is no longer what was listed: its folder has other names by now. */
    const present = <A>(call: () => A): A | undefined => {
      try {
        return call()
      } catch (cause) {
        if (options.live && vanished.has(codeOf(cause))) return undefined
        throw cause
      }
    }

    /**
     * Copies a file once. False when it changed meanwhile, undefined when it vanished; there is no copy
     * then. `digested` takes the content into the running digest as it is written.
     */
    const copyOnce = (
      address: string,
      target: string,
      relative: string,
      listed: BigIntStats,
      digested: boolean
    ): boolean | undefined => {
      const descriptor = present(() => calls.openSync(native(address), O_RDONLY | O_NOFOLLOW | O_NONBLOCK))
      if (descriptor === undefined) return undefined
      try {
        if (!ground.unchanged(calls.fstatSync(descriptor, { bigint: true }), listed)) return false
        const intact = () => ground.unchanged(calls.fstatSync(descriptor, { bigint: true }), listed)
        const cloned = clone(descriptor, target)
        const written = cloned
          ? calls.openSync(native(target), O_RDONLY | O_NOFOLLOW)
          : calls.openSync(native(target), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
        let whole = false
        try {
          if (digested) feedFile(relative, listed)
          const total = readThrough(cloned ? written : descriptor, listed.size, (chunk, length) => {
            if (digested) running.update(chunk.subarray(0, length))
            if (!cloned) writeAll(written, chunk, length)
          })
          if (total === listed.size && intact()) {
            finish(written, listed)
            whole = true
          }
        } finally {
          if (!whole) calls.closeSync(written)
        }
        if (whole) queue.add(written, plain(relative))
        else calls.unlinkSync(native(target))
        return whole
      } finally {
        calls.closeSync(descriptor)
      }
    }

    /** Copies a file until it stays the same; false when it vanished. */
    const copyFile = (source: Folder, target: Folder, name: string, relative: string): boolean => {
      const address = source.prefix + name
      for (let tries = options.live ? fileAttempts : 1; ;) {
        const listed = settled(() => lstat(address))
        if (listed === undefined || !listed.isFile()) return false
        const reset = mark()
        const done = copyOnce(address, target.prefix + name, relative, listed, true)
        if (done === true) return true
        reset()
        if (done === undefined) return false
        tries -= 1
        if (tries === 0) throw error(operation, shownAt(relative)(), "ECHANGED")
        pause(tick)
        step()
      }
    }

    /**
     * Copies a database and what belongs to it, in one state: none of them changed from before the first
     * was read until after the last. Undefined when the database vanished.
     */
    const copyGroup = (
      source: Folder,
      target: Folder,
      relative: string,
      base: string
    ): ReadonlyMap<string, BigIntStats> | undefined => {
      const names = [
        base,
        ...select(
          sideFiles.map((side) => base + side),
          relative
        )
      ]
      for (let tries = fileAttempts; ;) {
        const look = () => names.map((name) => settled(() => lstat(source.prefix + name)))
        // Twice, because the first may have waited for a tick between two of them.
        look()
        const before = look()
        if (before[0]?.isFile() !== true) return undefined
        const copied: Array<string> = []
        let whole = true
        for (const [index, name] of names.entries()) {
          const listed = before[index]
          if (listed === undefined) continue
          if (!listed.isFile()) throw error(operation, shownAt(relative + name)(), "EUNSUPPORTED")
          step()
          whole =
            copyOnce(source.prefix + name, target.prefix + name, relative + name, listed, false) === true
          if (!whole) break
          copied.push(name)
        }
        const after = names.map((name) => lstat(source.prefix + name))
        if (whole && names.every((_, index) => same(before[index], after[index], ground))) {
          return new Map(
            names.flatMap((name, index) => {
              const stat = before[index]
              return stat === undefined ? [] : [[name, stat] as const]
            })
          )
        }
        for (const name of copied) calls.unlinkSync(native(target.prefix + name))
        tries -= 1
        if (tries === 0) throw error(operation, shownAt(relative + base)(), "ECHANGED")
        pause(tick)
        step()
      }
    }

    const copyLink = (source: Folder, target: Folder | null, name: string, relative: string): boolean => {
      const stat = lstat(source.prefix + name)
      const named = present(() => calls.readlinkSync(native(source.prefix + name), { encoding: "latin1" }))
      if (stat === undefined || named === undefined) return false
      entries += 1
      feed(`symlink:${relative}:${named}\0`)
      if (target !== null) {
        calls.symlinkSync(native(named), native(target.prefix + name))
        calls.lutimesSync(native(target.prefix + name), seconds(stat.atimeNs), seconds(stat.mtimeNs))
      }
      return true
    }

    const makeFolder = (address: string, plainPath: string): Folder => {
      // Writable until it is filled; a read-only folder gets its mode last.
      calls.mkdirSync(native(address), 0o700)
      const made = lstat(address)
      if (made === undefined) throw error(operation, show(plainPath), "ECHANGED")
      return ground.openFolder(address, plainPath, made)
    }

    const plain = (relative: string) => `${targetPath ?? ""}/${relative}`

    /** Fills a folder that was made, if one was; then it gets its mode and its times, and goes to the disk. */
    const filling = (made: Folder | null, path: string, stat: BigIntStats, fill: () => void) => {
      let filled = false
      try {
        fill()
        if (made !== null) finish(made.descriptor, stat)
        filled = true
      } finally {
        if (made !== null && !filled) calls.closeSync(made.descriptor)
      }
      if (made !== null) queue.add(made.descriptor, path)
    }

    const copyFolder = (
      source: Folder,
      target: Folder | null,
      name: string,
      relative: string,
      depth: number,
      listed: BigIntStats
    ): boolean => {
      if (listed.dev !== source.stat.dev) throw error(operation, shownAt(relative)(), "EXDEV")
      if (depth >= ground.maxDepth) throw error(operation, shownAt(relative)(), "ETOODEEP")
      const child = present(() => ground.openFolder(source.prefix + name, `${rootPath}/${relative}`, listed))
      if (child === undefined) return false
      try {
        const made = target === null ? null : makeFolder(target.prefix + name, plain(relative))
        entries += 1
        feed(`directory:${relative}:${permissions(child.stat)}\0`)
        filling(made, plain(relative), child.stat, () => into(child, made, `${relative}/`, depth + 1))
        return true
      } finally {
        calls.closeSync(child.descriptor)
      }
    }

    /** False when the names of the folder changed while they were copied. */
    const fill = (source: Folder, target: Folder | null, relative: string, depth: number): boolean => {
      const look = () => calls.fstatSync(source.descriptor, { bigint: true })
      const before = settled(look)
      const listed = list(source, relative)
      const groups = new Map<string, BigIntStats>()
      const grouped = new Set<string>()
      if (target !== null && options.live) {
        for (const base of listed) {
          if (!database.test(base) || lstat(source.prefix + base)?.isFile() !== true) continue
          const group = attemptAt(operation, shownAt(relative + base), () =>
            copyGroup(source, target, relative, base)
          )
          if (group === undefined) return false
          for (const side of sideFiles) grouped.add(base + side)
          for (const [name, stat] of group) groups.set(name, stat)
        }
      }
      // A side file may have come or gone since the folder was listed.
      const withoutSides = (names: ReadonlyArray<string>) => names.filter((name) => !grouped.has(name))
      const alone = withoutSides(listed)
      const names = sorted(
        groups.size === 0 ? alone : [...new Set([...alone, ...groups.keys()])],
        text,
        collator
      )
      if (names.length === 0) feed(`directory:${relative.slice(0, -1)}\0`)
      for (const name of names) {
        step()
        const path = relative + name
        const copied = attemptAt(operation, shownAt(path), () => {
          const ready = groups.get(name)
          if (ready !== undefined && target !== null) {
            digestFile(target.prefix + name, path, ready)
            return true
          }
          const stat = lstat(source.prefix + name)
          if (stat === undefined) return false
          switch (kindOf(stat)) {
            case "directory":
              return copyFolder(source, target, name, path, depth, stat)
            case "symlink":
              return copyLink(source, target, name, path)
            case "file":
              if (target !== null) return copyFile(source, target, name, path)
              digestFile(source.prefix + name, path, stat)
              return true
            default:
              throw error(operation, shownAt(path)(), "EUNSUPPORTED")
          }
        })
        if (!copied) return false
      }
      if (!options.live || same(before, look(), ground)) return true
      const again = withoutSides(list(source, relative))
      const known = new Set(alone)
      return again.length === alone.length && again.every((name) => known.has(name))
    }

    const into = (source: Folder, target: Folder | null, relative: string, depth: number): void => {
      for (;;) {
        const reset = mark()
        if (fill(source, target, relative, depth)) return
        folderTries -= 1
        if (folderTries <= 0 || target === null) {
          throw error(operation, shownAt(relative.slice(0, -1))(), "ECHANGED")
        }
        reset()
        empty(target)
        pause(tick)
        step()
      }
    }

    const empty = (folder: Folder) => {
      const names: Array<string> = []
      ground.forEachName(folder, (name) => {
        names.push(name)
        return true
      })
      for (const name of names) {
        const address = folder.prefix + name
        if (lstat(address)?.isDirectory() === true) ground.removeTree(address)
        else calls.unlinkSync(native(address))
      }
    }

    const root = ground.openRoot(operation, rootPath)
    try {
      const mount = ground.mountsBelow(root, rootPath).values().next()
      if (mount.done !== true) throw error(operation, shownAt(mount.value)(), "EXDEV")
      const target =
        targetPath === null
          ? null
          : attempt(operation, show(targetPath), () => makeFolder(targetPath, targetPath))
      try {
        attemptAt(operation, shownAt(""), () => {
          filling(target, targetPath ?? "", root.stat, () => into(root, target, "", 0))
          queue.finish()
        })
      } finally {
        queue.abandon()
      }
      return { sha256: running.digest("hex"), bytes, copiedEntries: entries }
    } finally {
      calls.closeSync(root.descriptor)
    }
  }

  return {
    /**
     * Copies a tree to a name that nothing has yet, and returns when all of it is on the disk. What was written
     * stays when it fails.
     */
    copy: (rootPath: string, targetPath: string, options: CopyOptions) =>
      transfer("copy", rootPath, targetPath, options, "written"),
    /** The digest that a copy of a tree would have. */
    digestTree: (rootPath: string, order: Order = "written") =>
      transfer("digest", rootPath, null, { live: false, omits: null }, order)
  }
}
