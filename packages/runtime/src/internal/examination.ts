import {
  CopyComparison,
  type Leftover,
  type Manifest,
  type RetentionPolicy,
  type VersionReason
} from "@reclaim/core"
import { type BytePath, type FileError, Trees } from "@reclaim/fs"
import { Effect, Option, Result, Stream } from "effect"

/**
 * What comparing a folder with the database gave: the proof for the policy, the same in the words of a
 * leftover, and the scan whose fingerprint must still hold when the folder is deleted.
 */
export interface Examination {
  readonly proof: RetentionPolicy.Proof
  readonly contents: Leftover.Contents
  readonly scan: Option.Option<Trees.TreeScan>
}

const unprovable = (proof: RetentionPolicy.Proof): Examination => ({
  proof,
  contents: "unprovable",
  scan: Option.none()
})

/** A call that was refused, as a reason to keep what it was about. */
export const obstacleOf = (error: FileError.FileError): VersionReason.Obstacle => ({
  _tag: "Unreadable",
  code: error.code,
  path: error.path
})

/**
 * The size of the largest file of a manifest, in bytes. A larger one on disk differs by its size: it need
 * not be read, and a sparse one could be read for ever.
 */
export const largest = (manifest: Manifest.Manifest): number =>
  manifest.reduce((most, { size }) => Math.max(most, size), 0)

/**
 * Compares a folder with what the database would rebuild, contents included. Holds no lock: the caller
 * compares the fingerprint again before anything is deleted.
 */
export const examine = Effect.fnUntraced(function* (
  path: BytePath.BytePath,
  manifest: Result.Result<Manifest.Manifest, Manifest.UnusableSnapshot> | undefined
) {
  const trees = yield* Trees.Trees
  if (manifest === undefined) {
    return unprovable({ _tag: "NotRecoverable", detail: "the database has no such version of this skill" })
  }
  if (Result.isFailure(manifest)) {
    return unprovable({ _tag: "NotRecoverable", detail: manifest.failure.detail })
  }
  const comparator = CopyComparison.make(manifest.success, "proof")
  const scanned = yield* Effect.result(
    trees.scan(path, {
      digests: true,
      maxDigestBytes: largest(manifest.success),
      onEntries: (entries) => {
        for (const entry of entries) comparator.add(entry)
      }
    })
  )
  if (Result.isFailure(scanned)) {
    return unprovable({ _tag: "Obstructed", obstacle: obstacleOf(scanned.failure) })
  }
  const scan = Option.some(scanned.success)
  const { incomplete, problems, same, special } = comparator.finish()
  if (special !== null) {
    return {
      proof: { _tag: "Obstructed", obstacle: { _tag: "Unexpected", what: special.kind, path: special.path } },
      contents: "differs",
      scan
    } satisfies Examination
  }
  return same
    ? ({ proof: { _tag: "Same" }, contents: "same", scan } satisfies Examination)
    : ({
        proof: { _tag: "Differs", files: problems },
        contents: incomplete ? "partial" : "differs",
        scan
      } satisfies Examination)
})

// 4: reading small files is mostly waiting, and the threads that read are few.
const examinedAtOnce = 4

/**
 * Examines folders in their order, the next ones while what came out is dealt with. What changes in the
 * meantime is noticed where all changes since a comparison are.
 */
export const examineAll = <A>(
  items: ReadonlyArray<A>,
  subject: (item: A) => {
    readonly path: BytePath.BytePath
    readonly manifest: Result.Result<Manifest.Manifest, Manifest.UnusableSnapshot> | undefined
  }
): Stream.Stream<{ readonly item: A; readonly examination: Examination }, never, Trees.Trees> =>
  Stream.fromIterable(items).pipe(
    Stream.mapEffect(
      (item) => {
        const { manifest, path } = subject(item)
        return Effect.map(examine(path, manifest), (examination) => ({ item, examination }))
      },
      { concurrency: examinedAtOnce }
    )
  )
