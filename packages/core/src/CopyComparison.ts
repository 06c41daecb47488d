/**
 * Compares what lies on disk with what the database would rebuild, entry by entry, in memory bounded by
 * the manifest.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"
import type { Manifest, ManifestFile } from "./Manifest.ts"

/** What is wrong with one path of a copy. @category models @since 0.1.0 */
export const FileProblem = Schema.Struct({
  path: Schema.String,
  problem: Schema.Literals(["missing", "extra", "kind", "size", "content", "executable"])
})
/** @category models @since 0.1.0 */
export type FileProblem = typeof FileProblem.Type

/** @category models @since 0.1.0 */
export type EntryKind = "file" | "directory" | "symlink" | "fifo" | "socket" | "device"

/**
 * One entry below a copy's top folder. `path` is relative and null when its bytes are not UTF-8;
 * `shownPath` is always printable. `sha256` is null when contents were not read.
 *
 * @category models
 * @since 0.1.0
 */
export interface DiskEntry {
  readonly path: string | null
  readonly shownPath: string
  readonly kind: EntryKind
  readonly size: bigint
  readonly executable: boolean
  readonly sha256: string | null
}

/**
 * `proof`: may the copy go? An executable bit that only the database has does not matter, because nothing
 * is lost; a file whose contents were not read is not the same. `serving`: may a run use it? Then the bits
 * must be equal, and contents count only where they were read.
 *
 * @category models
 * @since 0.1.0
 */
export type Strictness = "proof" | "serving"

/**
 * What a finished comparison says. `problems` lists at most `maxProblems` paths, `problemCount` counts
 * all. `incomplete` is true when the only problems are files that are missing: everything present equals
 * the database. `special` is the first link, FIFO, socket or device that was met.
 *
 * @category models
 * @since 0.1.0
 */
export interface CopyComparison {
  readonly same: boolean
  readonly incomplete: boolean
  readonly problems: ReadonlyArray<FileProblem>
  readonly problemCount: number
  readonly special: { readonly kind: EntryKind; readonly path: string } | null
}

// 100: enough for an operator to see what happened, small enough for a log line and a journal row.
const maxProblems = 100

/** @category models @since 0.1.0 */
export interface Comparator {
  readonly add: (entry: DiskEntry) => void
  readonly finish: () => CopyComparison
}

/**
 * Starts a comparison with a manifest.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (manifest: Manifest, strictness: Strictness): Comparator => {
  const missing = new Map<string, ManifestFile>(manifest.map((file) => [file.path, file]))
  const folders = new Set<string>()
  for (const { path } of manifest) {
    for (let at = path.lastIndexOf("/"); at > 0; at = path.lastIndexOf("/", at - 1)) {
      const folder = path.slice(0, at)
      if (folders.has(folder)) break
      folders.add(folder)
    }
  }
  const problems: Array<FileProblem> = []
  let problemCount = 0
  let damaged = false
  let special: CopyComparison["special"] = null
  const report = (path: string, problem: FileProblem["problem"]) => {
    problemCount += 1
    if (problem !== "missing") damaged = true
    if (problems.length < maxProblems) problems.push({ path, problem })
  }
  return {
    add: (entry) => {
      const { kind, path, shownPath } = entry
      if (kind !== "file" && kind !== "directory") {
        special ??= { kind, path: shownPath }
        const expected = path !== null && (missing.delete(path) || folders.has(path))
        return report(shownPath, expected ? "kind" : "extra")
      }
      if (path === null) return report(shownPath, "extra")
      if (kind === "directory") {
        if (folders.has(path)) return
        return report(shownPath, missing.delete(path) ? "kind" : "extra")
      }
      const expected = missing.get(path)
      if (expected === undefined) return report(shownPath, folders.has(path) ? "kind" : "extra")
      missing.delete(path)
      if (entry.size !== BigInt(expected.size)) return report(path, "size")
      // Contents that were not read prove nothing; a run may be served on the strength of the listing.
      const trusted = entry.sha256 === null && strictness === "serving"
      if (!trusted && entry.sha256 !== expected.sha256) return report(path, "content")
      if (
        strictness === "serving"
          ? entry.executable !== expected.executable
          : entry.executable && !expected.executable
      ) {
        return report(path, "executable")
      }
    },
    finish: () => {
      for (const path of missing.keys()) report(path, "missing")
      return {
        same: problemCount === 0,
        incomplete: problemCount > 0 && !damaged,
        problems,
        problemCount,
        special
      }
    }
  }
}
