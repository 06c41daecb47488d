/**
 * Turns the entries of a database snapshot into the exact list of files that a copy must hold.
 *
 * **Details**
 *
 * A manifest is the database's side of a proof: paths, sizes, digests and executable bits, no contents.
 * A snapshot that could be read in two ways is not usable; it is never repaired by guessing.
 *
 * @since 0.1.0
 */
import { Result, Schema } from "effect"

/**
 * One file of a copy. `size` is in bytes, `sha256` in lower-case hex; `ordinal` is the entry's place in
 * the snapshot, by which its content is fetched.
 *
 * @category models
 * @since 0.1.0
 */
export interface ManifestFile {
  readonly path: string
  readonly ordinal: number
  readonly size: number
  readonly sha256: string
  readonly executable: boolean
}

/** @category models @since 0.1.0 */
export type Manifest = ReadonlyArray<ManifestFile>

/**
 * One entry as the database described it. `problem` says why the entry cannot be used (content that is no
 * text, base64 that PostgreSQL refuses, an unknown encoding, ...), `path` is null when it is no text.
 *
 * @category models
 * @since 0.1.0
 */
export interface SnapshotEntry {
  readonly path: string | null
  readonly ordinal: number
  readonly size: number | null
  readonly sha256: string | null
  readonly executable: boolean | null
  readonly problem: string | null
}

/**
 * Why a snapshot cannot rebuild a copy, in words for an operator.
 *
 * @category errors
 * @since 0.1.0
 */
export class UnusableSnapshot extends Schema.TaggedError<UnusableSnapshot>()("UnusableSnapshot", {
  detail: Schema.String
}) {}

const unusable = (detail: string) => Result.fail(new UnusableSnapshot({ detail }))

const isCanonical = (path: string) =>
  path.length > 0 &&
  !path.includes("\0") &&
  path.split("/").every((segment) => segment !== "" && segment !== "." && segment !== "..")

/** Where a path would lead if it were resolved: only used to see whether a dirty path reaches the root. */
const resolved = (path: string): string => {
  const out: Array<string> = []
  for (const segment of path.split("/")) {
    if (segment === "..") out.pop()
    else if (segment !== "" && segment !== ".") out.push(segment)
  }
  return out.join("/")
}

/**
 * Builds the manifest of the entries under `root` (null, empty or `.` is the whole snapshot). Entries
 * elsewhere do not count; anything ambiguous under it makes the snapshot unusable, and so does a snapshot
 * without files, because an empty copy proves nothing.
 *
 * With `caseInsensitive`, paths that only differ by case collide, as they would on such a volume.
 *
 * @category constructors
 * @since 0.1.0
 */
export const fromEntries = (
  entries: ReadonlyArray<SnapshotEntry>,
  options: { readonly root: string | null; readonly caseInsensitive: boolean }
): Result.Result<Manifest, UnusableSnapshot> => {
  const root = options.root === null || options.root === "." ? "" : options.root
  if (root !== "" && !isCanonical(root)) {
    return unusable(`the skill's path ${JSON.stringify(root)} is not a plain relative path`)
  }
  const prefix = root === "" ? "" : `${root}/`
  const fold = options.caseInsensitive
    ? // Both ways, because lower case alone keeps `ſ` and `s`, or the two forms of a sigma, apart.
      (path: string) => path.normalize("NFC").toLowerCase().toUpperCase().normalize("NFC")
    : (path: string) => path
  const files: Array<ManifestFile> = []
  const taken = new Map<string, "file" | "folder">()
  for (const entry of entries) {
    if (entry.path === null) return unusable(`entry ${entry.ordinal} has no path`)
    if (!isCanonical(entry.path)) {
      // An unclean path elsewhere does not count, one that reaches into the skill could mean two things.
      if (!entry.path.startsWith(prefix) && !`${resolved(entry.path)}/`.startsWith(prefix)) continue
      return unusable(`the path ${JSON.stringify(entry.path)} is not a plain relative path`)
    }
    if (!entry.path.startsWith(prefix)) continue
    const path = entry.path.slice(prefix.length)
    if (entry.problem !== null) return unusable(`${path}: ${entry.problem}`)
    if (entry.size === null || entry.sha256 === null || entry.executable === null) {
      return unusable(`${path}: the entry is incomplete`)
    }
    const folded = fold(path)
    if (taken.has(folded)) return unusable(`${path}: the path collides with another entry`)
    taken.set(folded, "file")
    for (let at = folded.lastIndexOf("/"); at > 0; at = folded.lastIndexOf("/", at - 1)) {
      const folder = folded.slice(0, at)
      const other = taken.get(folder)
      if (other === "file") return unusable(`${path}: one of its folders is a file in another entry`)
      if (other === "folder") break
      taken.set(folder, "folder")
    }
    files.push({
      path,
      ordinal: entry.ordinal,
      size: entry.size,
      sha256: entry.sha256,
      executable: entry.executable
    })
  }
  return files.length === 0 ? unusable("the snapshot holds no file") : Result.succeed(files)
}
