/**
 * Says what an audit finds a copy to be, from a comparison with the database or from what was in its way.
 *
 * **Details**
 *
 * | status | meaning |
 * |---|---|
 * | `intact` | a run may use it: files, contents and executable bits are the database's |
 * | `missing` | an active run pins the version, and it has no copy |
 * | `altered` | something in it is not what the database would rebuild, an extra file included |
 * | `incomplete` | files are missing, and everything that is there is the database's |
 * | `unprovable` | it could not be compared: the database cannot rebuild it, or it could not be read |
 * | `unexpected` | what lies there, or somewhere in it, is nothing that Reclaim makes |
 *
 * @since 0.1.0
 */
import { Option, Schema } from "effect"
import type { CopyComparison, FileProblem } from "./CopyComparison.ts"
import type { VersionReason, VersionSkip } from "./VersionReason.ts"

/** @category models @since 0.1.0 */
export const Status = Schema.Literals([
  "intact",
  "missing",
  "altered",
  "incomplete",
  "unprovable",
  "unexpected"
])
/** @category models @since 0.1.0 */
export type Status = typeof Status.Type

/**
 * What an audit found. `files` lists the first 100 problems, `problemCount` counts all. `reason` tells why a
 * copy could not be compared, or what about it is unexpected.
 *
 * @category models
 * @since 0.1.0
 */
export interface Verdict {
  readonly status: Status
  readonly files: ReadonlyArray<FileProblem>
  readonly problemCount: number
  readonly reason: Option.Option<VersionReason | VersionSkip>
}

/** The verdict on a version that has no copy. @category constructors @since 0.1.0 */
export const missing: Verdict = { status: "missing", files: [], problemCount: 0, reason: Option.none() }

/**
 * The verdict on a copy that was compared, strictly enough to serve a run.
 *
 * @category constructors
 * @since 0.1.0
 */
export const fromComparison = ({
  incomplete,
  problemCount,
  problems,
  same,
  special
}: CopyComparison): Verdict => ({
  status: same ? "intact" : special !== null ? "unexpected" : incomplete ? "incomplete" : "altered",
  files: problems,
  problemCount,
  reason: Option.map(Option.fromNullishOr(special), ({ kind, path }): VersionReason => ({
    _tag: "Unexpected",
    what: kind,
    path
  }))
})

/** The verdict on what could not be compared. @category constructors @since 0.1.0 */
export const fromReason = (reason: VersionReason | VersionSkip): Verdict => ({
  status: reason._tag === "Unexpected" ? "unexpected" : "unprovable",
  files: [],
  problemCount: 0,
  reason: Option.some(reason)
})

/**
 * Whether a repair may be tried. What is unprovable or unexpected is never touched.
 *
 * @category queries
 * @since 0.1.0
 */
export const isRepairable = ({ status }: Verdict): boolean =>
  status === "missing" || status === "altered" || status === "incomplete"
