/**
 * Takes a backup: written whole under a name of its own, then swapped with the old one by renames.
 *
 * The old backup is given up last. At every moment before that, `current` or `previous` is the old one or
 * the new one, so that whoever reads them finds a whole backup, also after a crash.
 */
import { BackupManifest, CodexHome, type Ids } from "@reclaim/core"
import { DateTime, Effect, Option, Result, Schema, Semaphore, Stream } from "effect"
import * as NodePath from "node:path"
import type { Captured, CaptureOptions, Identity, Moved, Source } from "../BackupStore.ts"
import { type BytePath, join, show } from "../BytePath.ts"
import { type FileError, hasCode, make as fileError } from "../FileError.ts"
import type { InstanceRoots } from "../InstanceRoots.ts"
import type { PosixFileSystem } from "../PosixFileSystem.ts"
import type { Trees } from "../Trees.ts"
import { RefusedSource } from "./backupErrors.ts"
import type { BackupMoves } from "./backupMoves.ts"
import * as BackupNames from "./backupNames.ts"
import * as FaultPoints from "./faultPoints.ts"
import { ensureFolders, folderInfo, requireFolders } from "./folders.ts"

// 1000 paths: a home leaves out a handful, a selection of a host's own may leave out a million.
const maxOmitted = 1000
// 4: the most folders of a manifest.
const maxSources = 4

const codexHome = "codex-home"

export const make = Effect.fnUntraced(function* (options: {
  readonly moves: BackupMoves
  readonly posix: PosixFileSystem["Service"]
  readonly roots: InstanceRoots["Service"]
  readonly trees: Trees["Service"]
}) {
  const { moves, posix, roots, trees } = options
  // A swap is a few renames; two of one scope in this process must not mix theirs.
  const swapping = yield* Semaphore.make(1)

  const checkSource = Effect.fnUntraced(function* (scope: Ids.ScopeId, source: Source) {
    const refuse = (detail: string) => new RefusedSource({ path: source.path, detail })
    const name = Schema.decodeResult(BackupManifest.DirectoryName)(source.name)
    if (Result.isFailure(name)) return yield* refuse(`it cannot be named ${JSON.stringify(source.name)}`)
    if (!NodePath.isAbsolute(source.path)) return yield* refuse("the path is not absolute")
    // Without a slash at the end, which would lead through a link.
    const path = NodePath.resolve(source.path)
    const info = yield* posix
      .lstat(path)
      .pipe(Effect.catchIf(hasCode("ENOENT", "ENOTDIR"), () => Effect.fail(refuse("it does not exist"))))
    if (info.kind === "symlink") return yield* refuse("it is a link")
    if (info.kind !== "directory") return yield* refuse("it is no folder")
    const real = `${yield* posix.realPath(path)}/`
    const backups = `${moves.pathOf(scope)}/`
    if (backups.startsWith(real) || real.startsWith(backups)) {
      return yield* refuse("it holds the backups of the session, or lies in them")
    }
    return { name: name.success, path, select: source.select }
  })

  const checkSources = Effect.fnUntraced(function* (scope: Ids.ScopeId, sources: ReadonlyArray<Source>) {
    const checked = yield* Effect.forEach(sources, (source) => checkSource(scope, source))
    const names = new Set(checked.map(({ name }) => name.toLowerCase()))
    const last = sources.at(-1)
    if (last === undefined) {
      return yield* new RefusedSource({ path: moves.pathOf(scope), detail: "there is nothing to back up" })
    }
    if (names.size < checked.length) {
      return yield* new RefusedSource({ path: last.path, detail: "two sources have the same name" })
    }
    if (checked.length > maxSources) {
      return yield* new RefusedSource({ path: last.path, detail: `more than ${maxSources} sources` })
    }
    return checked
  })

  /** The folder of a scope's backups, made with all that leads to it in an instance that is new. */
  const makeBackups = (scope: Ids.ScopeId) => {
    const inside = roots.sessions.startsWith(`${roots.instance}/`)
    const parts = inside ? roots.sessions.slice(roots.instance.length + 1).split("/") : []
    return ensureFolders(posix, "mkdir", inside ? roots.instance : roots.sessions, [
      ...parts,
      scope,
      BackupNames.backupsFolder
    ])
  }

  /** Where plugins of a Codex home say that they came from a remote marketplace. */
  const installMarkers = (home: string): Effect.Effect<ReadonlyArray<BytePath>, FileError> => {
    const folders = (path: BytePath, relative: BytePath) =>
      posix.names(path).pipe(
        Stream.filter(({ kind }) => kind === "directory"),
        Stream.map(({ name }) => ({ path: join(path, name), relative: join(relative, name) }))
      )
    return Stream.fromEffect(requireFolders(posix, "readdir", home, ["plugins", "cache"])).pipe(
      Stream.flatMap((cache) => folders(cache, "plugins/cache")),
      Stream.flatMap(({ path, relative }) => folders(path, relative)),
      Stream.flatMap((plugin) =>
        posix.names(plugin.path).pipe(
          Stream.filter(({ kind }) => kind === "file"),
          Stream.map(({ name }) => join(plugin.relative, name)),
          Stream.filter(CodexHome.isInstallMarker)
        )
      ),
      Stream.runCollect,
      // No plugins, or they went away: nothing of them is left out. A link is copied as one.
      Effect.catchIf(hasCode("ENOENT", "ENOTDIR", "ELOOP"), () => Effect.succeed([]))
    )
  }

  const selectionOf = Effect.fnUntraced(function* (source: {
    readonly name: string
    readonly path: string
    readonly select: Source["select"]
  }) {
    if (source.select !== undefined) return source.select
    if (source.name !== codexHome) return undefined
    return CodexHome.selector(yield* installMarkers(source.path))
  })

  const manifestOf = (
    identity: Identity,
    directories: BackupManifest.BackupManifest["directories"],
    completedAt: DateTime.Utc
  ): BackupManifest.BackupManifest => ({
    schema: BackupManifest.schema,
    normalizedSessionId: identity.normalizedSessionId,
    runnerInstanceId: identity.runnerInstanceId ?? null,
    providerKind: identity.providerKind ?? null,
    driverKind: identity.driverKind ?? null,
    providerSessionIdentity: identity.providerSessionIdentity ?? null,
    sourceProviderLeaseId: identity.sourceProviderLeaseId ?? null,
    environmentFingerprint: identity.environmentFingerprint ?? null,
    runnerContractVersion: identity.runnerContractVersion ?? null,
    directories,
    completedAt
  })

  const writeManifest = Effect.fnUntraced(function* (
    pending: string,
    manifest: BackupManifest.BackupManifest
  ) {
    const path = `${pending}/${BackupNames.manifestFile}`
    // Ids and names were checked; what is left to fail are values that are no JSON, against their types.
    const text = yield* Effect.orDie(Effect.fromResult(BackupManifest.encode(manifest)))
    const content = new TextEncoder().encode(text)
    if (content.length > BackupManifest.maxBytes) return yield* fileError("write", path, "EFBIG")
    yield* posix.writeNew(`${path}.tmp`, content, { mode: 0o600, sync: true })
    yield* FaultPoints.captureAfterManifestTemp
    yield* posix.rename(`${path}.tmp`, path)
    yield* posix.syncDirectory(pending)
    yield* FaultPoints.captureAfterManifest
  })

  /** Whether there is such a backup; what is no folder is an error. */
  const exists = (path: string) =>
    folderInfo(posix, "lstat", path).pipe(
      Effect.as(true),
      Effect.catchIf(hasCode("ENOENT"), () => Effect.succeed(false))
    )

  /** Gives the new backup its name; what is no longer needed is in the result. */
  const swap = (scope: Ids.ScopeId, pending: string, published: () => void) =>
    Effect.suspend(() => {
      const undone: Array<Effect.Effect<void, FileError>> = []
      /**
       * A rename that a later failure takes back, where nothing has the name meanwhile. False when a sweep
       * was faster: what it moved is no reason to lose what was captured.
       */
      const rename = (from: string, to: string, which: "current" | "previous") =>
        posix.rename(from, to).pipe(
          Effect.tap(() => Effect.sync(() => undone.unshift(Effect.asVoid(moves.moveTo(scope, to, which))))),
          Effect.as(true),
          Effect.catchIf(hasCode("ENOENT"), () => Effect.succeed(false))
        )
      return Effect.gen(function* () {
        yield* FaultPoints.captureBeforeSwap
        const folder = yield* moves.requireBackups("rename", scope)
        const current = `${folder}/current`
        const previous = `${folder}/previous`
        const hasCurrent = yield* exists(current)
        const old: Array<string> = []
        if (yield* exists(previous)) {
          if (hasCurrent) {
            // It may be the only whole one: under this name a restoration still finds it.
            const aside = `${folder}/${BackupNames.fresh("Retiring").name}`
            if (yield* rename(previous, aside, "previous")) old.push(aside)
          } else old.push(previous)
        }
        yield* FaultPoints.captureAfterPreviousAside
        if (hasCurrent && (yield* rename(current, previous, "current"))) old.unshift(previous)
        yield* FaultPoints.captureAfterCurrentAside
        yield* posix.rename(pending, current)
        undone.length = 0
        published()
        yield* FaultPoints.captureAfterSwap
        // Before the old backup goes, the new one's name must outlast a power cut.
        yield* posix.syncDirectory(folder)
        return { current, old }
      }).pipe(
        Effect.onError(() =>
          Effect.forEach(
            undone,
            Effect.catch((error) => Effect.logError("A backup could not be moved back", error)),
            { discard: true }
          )
        )
      )
    })

  const expireOld = (scope: Ids.ScopeId, old: ReadonlyArray<string>) =>
    Effect.forEach(old, (path) =>
      Effect.tap(moves.expire(scope, path), () => FaultPoints.captureAfterOldExpired).pipe(
        Effect.catch((error) =>
          Effect.as(
            Effect.logWarning("The backup before could not be given up", error),
            Option.none<Moved<"Expired">>()
          )
        )
      )
    ).pipe(Effect.map((expired) => expired.flatMap(Option.toArray)))

  const discard = Effect.fnUntraced(
    function* (scope: Ids.ScopeId, pending: string) {
      yield* FaultPoints.captureBeforeDiscard
      const expired = yield* moves.expire(scope, pending)
      if (Option.isSome(expired)) yield* moves.remove(expired.value)
    },
    Effect.catch((error) => Effect.logWarning("An unfinished backup could not be given up", error))
  )

  return Effect.fn("BackupStore.capture")(function* ({ identity, scope, sources }: CaptureOptions) {
    const checked = yield* checkSources(scope, sources)
    const folder = yield* makeBackups(scope)
    // What will be in the way of the swap is known before gigabytes are copied.
    yield* exists(`${folder}/current`)
    yield* exists(`${folder}/previous`)

    const pending = `${folder}/${BackupNames.fresh("Pending").name}`
    let published = false
    yield* Effect.acquireRelease(posix.makeDirectory(pending, 0o700), () =>
      Effect.suspend(() => (published ? Effect.void : discard(scope, pending)))
    )
    yield* FaultPoints.captureAfterFolder

    const omitted: Array<string> = []
    let bytes = 0n
    const directories: Array<BackupManifest.Directory> = []
    for (const source of checked) {
      const { name, path } = source
      const select = yield* selectionOf(source)
      const omits = (entry: BytePath) => {
        if (select === undefined || select(entry)._tag === "Copy") return false
        if (omitted.length < maxOmitted) omitted.push(`${name}/${show(entry)}`)
        return true
      }
      const digest = yield* trees.copy(path, `${pending}/${name}`, {
        live: true,
        omits: select === undefined ? undefined : omits
      })
      bytes += digest.bytes
      directories.push({ name, sha256: digest.sha256, bytes: Number(digest.bytes) })
      yield* FaultPoints.captureAfterSource
    }
    const [first, ...rest] = directories
    if (first === undefined) return yield* Effect.die("a source without a digest")
    const manifest = manifestOf(identity, [first, ...rest], yield* DateTime.now)
    yield* writeManifest(pending, manifest)

    const { current, expired } = yield* Effect.gen(function* () {
      const { current, old } = yield* swap(scope, pending, () => {
        published = true
      })
      return { current, expired: yield* expireOld(scope, old) }
    }).pipe(Effect.uninterruptible, Semaphore.withPermit(swapping))
    yield* Effect.forEach(expired, moves.remove, { discard: true })
    yield* FaultPoints.captureAfterDelete
    // A folder that was copied anew was asked for twice.
    const captured: Captured = { scope, path: current, bytes, omitted: [...new Set(omitted)], manifest }
    return captured
  }, Effect.scoped)
})
