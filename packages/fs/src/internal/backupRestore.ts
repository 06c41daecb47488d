/** Restores a backup whole or not at all, and compares backups with their manifests. */
import { BackupManifest, type Ids } from "@reclaim/core"
import { DateTime, Effect, Exit, Option, Result, Stream } from "effect"
import * as NodePath from "node:path"
import type { Restored, Verification } from "../BackupStore.ts"
import { text } from "../BytePath.ts"
import { type FileError, hasCode } from "../FileError.ts"
import type { EntryInfo, PosixFileSystem } from "../PosixFileSystem.ts"
import type { TreeDigest, Trees } from "../Trees.ts"
import { loadManifest } from "./backupEntries.ts"
import { RefusedTarget, RestoreFailed } from "./backupErrors.ts"
import type { BackupMoves } from "./backupMoves.ts"
import * as BackupNames from "./backupNames.ts"
import * as FaultPoints from "./faultPoints.ts"
import { folderInfo } from "./folders.ts"
import * as Restoring from "./restoring.ts"

// 8 backups: all that a scope can have by the protocols, and some that were moved while they were tried.
const maxAttempts = 8

/** What is missing or of another kind was never written so; anything else may pass. */
const isMisshapen = hasCode("ENOENT", "ENOTDIR", "ELOOP", "EUNSUPPORTED")
const isOddOrMoving = hasCode("EISDIR", "EINVAL", "EFBIG", "ECHANGED")
/** What a restoration takes for damage too: a manifest that is no file, and a backup that somebody changes. */
const isDamage = (error: unknown): boolean => isMisshapen(error) || isOddOrMoving(error)
/** What cannot be read a second time either is damage. */
const isUnreadable = hasCode("EIO")

interface Candidate {
  readonly from: Restored["from"]
  readonly name: string
  readonly path: string
  readonly info: EntryInfo
}

export const make = (options: {
  readonly moves: BackupMoves
  readonly posix: PosixFileSystem["Service"]
  readonly trees: Trees["Service"]
}) => {
  const { moves, posix, trees } = options

  const same = (directory: BackupManifest.Directory, found: TreeDigest) =>
    found.sha256 === directory.sha256 && found.bytes === BigInt(directory.bytes)

  /** The bytes of a directory that is at `path`; none when it is not what its manifest says. */
  const compare = Effect.fnUntraced(function* (
    directory: BackupManifest.Directory,
    path: string,
    found: TreeDigest
  ) {
    if (same(directory, found)) return Option.some(found.bytes)
    if (found.bytes !== BigInt(directory.bytes)) return Option.none()
    // A backup of the host's own: the host sorts in its locale, which is this process's if it is the host.
    const again = yield* trees.digest(path, { order: "locale" })
    return same(directory, again) ? Option.some(again.bytes) : Option.none()
  })

  const damage = ({ name }: BackupManifest.Directory) => `${name} is not what its manifest says`

  const verify = Effect.fn("BackupStore.verify")(function* (
    path: string,
    manifest: BackupManifest.BackupManifest
  ): Effect.fn.Return<Verification, FileError> {
    yield* folderInfo(posix, "digest", path)
    let bytes = 0n
    for (const directory of manifest.directories) {
      const at = `${path}/${directory.name}`
      const found = yield* Effect.result(
        Effect.flatMap(trees.digest(at), (digest) => compare(directory, at, digest))
      )
      if (Result.isFailure(found)) {
        if (isMisshapen(found.failure)) return { _tag: "Damaged", detail: found.failure.message }
        return yield* found.failure
      }
      if (Option.isNone(found.success)) return { _tag: "Damaged", detail: damage(directory) }
      bytes += found.success.value
    }
    return { _tag: "Verified", bytes }
  })

  const checkTarget = Effect.fnUntraced(function* (scope: Ids.ScopeId, target: string) {
    const refuse = (detail: string) => new RefusedTarget({ path: target, detail })
    if (!NodePath.isAbsolute(target)) return yield* refuse("the path is not absolute")
    // Without a slash at the end, which would lead through a link.
    const path = NodePath.resolve(target)
    const parent = yield* posix
      .realPath(NodePath.dirname(path))
      .pipe(
        Effect.catchIf(hasCode("ENOENT", "ENOTDIR"), () => Effect.fail(refuse("its folder does not exist")))
      )
    const real = NodePath.join(parent, NodePath.basename(path))
    if (`${real}/`.startsWith(`${moves.pathOf(scope)}/`)) {
      return yield* refuse("it lies in the backups of the session")
    }
    const info = yield* posix.lstat(real).pipe(
      Effect.catchIf(hasCode("ENOTDIR"), () => Effect.fail(refuse("its folder does not exist"))),
      Effect.asSome,
      Effect.catchIf(hasCode("ENOENT"), () => Effect.succeedNone)
    )
    if (Option.isNone(info)) return { path: real, parent, mode: 0o700 }
    if (info.value.kind === "symlink") return yield* refuse("it is a link")
    if (info.value.kind !== "directory") return yield* refuse("it is no folder")
    const first = yield* posix.names(real).pipe(Stream.take(1), Stream.runCollect)
    if (first.length > 0) return yield* refuse("it is not empty")
    // Its mode stays, unless nothing could be written below it.
    const mode = info.value.mode & 0o7777
    return { path: real, parent, mode: mode | 0o700 }
  })

  /** The backups that there are now, in the order in which they are tried; retiring ones without theirs. */
  const candidates = Effect.fnUntraced(
    function* (scope: Ids.ScopeId) {
      const folder = yield* moves.requireBackups("restore", scope)
      const at = (from: Candidate["from"], name: string) => {
        const path = `${folder}/${name}`
        return posix.lstat(path).pipe(
          Effect.map((info) => Option.some<Candidate>({ from, name, path, info })),
          Effect.catchIf(hasCode("ENOENT"), () => Effect.succeedNone)
        )
      }
      const leaving = yield* posix.names(folder).pipe(
        Stream.map(({ name }) => text(name)),
        Stream.filter((name) => name !== undefined && BackupNames.isOf("Retiring", name)),
        Stream.mapEffect((name) => at("retiring", name ?? "")),
        Stream.runCollect
      )
      return {
        named: [
          ...Option.toArray(yield* at("current", "current")),
          ...Option.toArray(yield* at("previous", "previous"))
        ],
        leaving: leaving.flatMap(Option.toArray)
      }
    },
    Effect.catchIf(hasCode("ENOENT"), () => Effect.succeed({ named: [], leaving: [] }))
  )

  type Attempt =
    | { readonly _tag: "Staged"; readonly bytes: bigint }
    | { readonly _tag: "Failed"; readonly detail: string }

  const failed = (detail: string): Attempt => ({ _tag: "Failed", detail })

  /** What a backup's manifest says, or why it is none. */
  const manifestOf = ({ path }: Candidate) =>
    loadManifest(posix, path).pipe(
      Effect.retry({ times: 1, while: isUnreadable }),
      Effect.catchIf(
        (error) => isDamage(error) || isUnreadable(error),
        (error) =>
          Effect.succeed(Result.fail(new BackupManifest.UnreadableManifest({ detail: error.message })))
      )
    )

  /**
   * Copies one backup and compares its digests on the way. A call that fails for no fault of the backup fails the
   * whole: an older backup must not come in place of one that is whole.
   */
  const fill = Effect.fnUntraced(
    function* (candidate: Candidate, staging: string): Effect.fn.Return<Attempt, FileError> {
      if (candidate.info.kind !== "directory") return failed("it is no folder")
      const manifest = yield* manifestOf(candidate)
      if (Result.isFailure(manifest)) return failed(manifest.failure.detail)
      let bytes = 0n
      for (const directory of manifest.success.directories) {
        const at = `${staging}/${directory.name}`
        const copied = yield* Effect.flatMap(
          trees.copy(`${candidate.path}/${directory.name}`, at, { live: false }),
          (digest) => compare(directory, at, digest)
        )
        if (Option.isNone(copied)) return failed(damage(directory))
        bytes += copied.value
        yield* FaultPoints.backupRestoreAfterDirectory
      }
      return { _tag: "Staged", bytes }
    },
    Effect.catchIf(isDamage, (error) => Effect.succeed(failed(error.message)))
  )

  /** Newest first; what has no manifest is never tried. */
  const newestFirst = Effect.fnUntraced(function* (leaving: ReadonlyArray<Candidate>) {
    const dated = yield* Effect.forEach(leaving, (candidate) =>
      Effect.map(manifestOf(candidate), (manifest) => ({ candidate, manifest }))
    )
    return dated
      .flatMap(({ candidate, manifest }) =>
        Result.isSuccess(manifest)
          ? [{ candidate, at: DateTime.toEpochMillis(manifest.success.completedAt) }]
          : []
      )
      .toSorted((left, right) => right.at - left.at)
      .map(({ candidate }) => candidate)
  })

  const discard = (staging: string) =>
    trees.remove(staging).pipe(
      Effect.tap(({ failureCount, failures }) =>
        failureCount === 0
          ? Effect.void
          : Effect.logWarning("An unfinished restoration could not be deleted whole", failures)
      ),
      Effect.catch((error) => Effect.logWarning("An unfinished restoration could not be deleted", error)),
      Effect.annotateLogs({ path: staging }),
      Effect.asVoid
    )

  const restore = Effect.fn("BackupStore.restore")(function* (request: {
    readonly scope: Ids.ScopeId
    readonly target: string
  }) {
    const { scope } = request
    const target = yield* checkTarget(scope, request.target)
    yield* Restoring.removeAbandoned(posix, trees, target.path)
    const attempts: Array<{ readonly name: string; readonly detail: string }> = []
    const tried = new Set<string>()
    const isIn = ({ path }: Candidate, error: FileError | RefusedTarget) => error.path.startsWith(`${path}/`)
    const keyOf = ({ info, name }: Candidate) => `${name} ${info.dev} ${info.ino}`

    const publish = Effect.fnUntraced(function* (staging: string) {
      yield* FaultPoints.backupRestoreBeforePublish
      yield* posix
        .rename(staging, target.path)
        .pipe(
          Effect.catchIf(hasCode("ENOTEMPTY", "EEXIST", "ENOTDIR"), () =>
            Effect.fail(new RefusedTarget({ path: request.target, detail: "something else took its place" }))
          )
        )
    })

    const attempt = (candidate: Candidate) =>
      Effect.acquireUseRelease(
        Effect.suspend(() => {
          const staging = Restoring.fresh(target.path)
          return Effect.as(posix.makeDirectory(staging, target.mode), staging)
        }),
        (staging) =>
          Effect.gen(function* () {
            yield* FaultPoints.backupRestoreAfterFolder
            const filled = yield* fill(candidate, staging)
            if (filled._tag === "Failed") return filled
            yield* posix.syncDirectory(staging)
            yield* publish(staging)
            return filled
          }),
        (staging, exit) =>
          Exit.isSuccess(exit) && exit.value._tag === "Staged" ? Effect.void : discard(staging)
      )

    // What is moved while it is tried is found again under its new name.
    while (attempts.length < maxAttempts) {
      const { leaving, named } = yield* candidates(scope)
      const untried = (all: ReadonlyArray<Candidate>) =>
        all.filter((candidate) => !tried.has(keyOf(candidate)))
      const next = untried(named)[0] ?? untried(yield* newestFirst(leaving))[0]
      if (next === undefined) break
      tried.add(keyOf(next))
      const outcome = yield* attempt(next).pipe(
        Effect.retry({ times: 1, while: isUnreadable }),
        Effect.catchIf(
          (error): error is FileError => isUnreadable(error) && isIn(next, error),
          (error) => Effect.succeed(failed(error.message))
        )
      )
      if (outcome._tag === "Staged") {
        yield* FaultPoints.backupRestoreAfterPublish
        yield* posix.syncDirectory(target.parent)
        const restored: Restored = { scope, from: next.from, path: target.path, bytes: outcome.bytes }
        return restored
      }
      attempts.push({ name: next.name, detail: outcome.detail })
    }
    return yield* new RestoreFailed({ scope, attempts })
  })

  return { restore, verify }
}
