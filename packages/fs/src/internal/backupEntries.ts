/** Lists the session scopes, and looks at what one of them holds. */
import { BackupManifest, type BackupReason, ControlPlaneState, Ids } from "@reclaim/core"
import { Effect, Option, Result, Stream } from "effect"
import type { Backup, ControlPlane, Leftover, LeftoverKind, ScopeEntry, ScopeState } from "../BackupStore.ts"
import { join, text } from "../BytePath.ts"
import { type FileError, hasCode } from "../FileError.ts"
import type { EntryInfo, PosixFileSystem } from "../PosixFileSystem.ts"
import * as BackupNames from "./backupNames.ts"
import { folderInfo } from "./folders.ts"
import { notAFolder, unexpected, unreadable } from "./obstacles.ts"
import { smallest } from "./position.ts"

type Posix = PosixFileSystem["Service"]

// 4096 names of 64 bytes: half a megabyte.
const defaultWindow = 4096
// 100: enough to see what is wrong with a folder that holds thousands of foreign names.
const maxObstacles = 100

const vanished = hasCode("ENOENT")

const scopeOf = (name: string): Ids.ScopeId => Ids.ScopeId.make(name)

/** The scopes after a position, a window of the smallest names at a time. */
export const scopes = (options: {
  readonly posix: Posix
  readonly sessions: string
  readonly window?: number
}) => {
  const { posix, sessions } = options
  const capacity = options.window ?? defaultWindow

  const entry = Effect.fnUntraced(function* (name: string, device: bigint) {
    const path = `${sessions}/${name}`
    const obstacle = (reason: BackupReason.Obstacle): Option.Option<ScopeEntry> =>
      Option.some({ _tag: "Obstacle", name, position: name, path, reason })
    const found = yield* Effect.result(posix.lstat(path))
    if (Result.isFailure(found)) {
      return vanished(found.failure) ? Option.none<ScopeEntry>() : obstacle(unreadable(found.failure))
    }
    const info = found.success
    if (info.kind !== "directory") return obstacle(notAFolder(info.kind, path))
    if (info.dev !== device) return obstacle(unexpected("another file system", path))
    return Option.some<ScopeEntry>({ _tag: "Scope", scope: scopeOf(name), position: name, path, info })
  })

  return (after = ""): Stream.Stream<ScopeEntry, FileError> =>
    Stream.fromEffect(folderInfo(posix, "readdir", sessions)).pipe(
      Stream.flatMap(({ dev }) =>
        Stream.paginate(
          after,
          Effect.fnUntraced(function* (from: string) {
            const collector = smallest<{ readonly key: string }>(capacity, from)
            yield* posix.names(sessions).pipe(
              Stream.runForEachArray((page) =>
                Effect.sync(() => {
                  for (const { name } of page) {
                    const key = text(name)
                    if (key !== undefined && BackupNames.isScope(key)) collector.add({ key })
                  }
                })
              )
            )
            const { items, more } = collector.finish()
            const end = items.at(-1)
            return [items, more && end !== undefined ? Option.some(end.key) : Option.none<string>()] as const
          })
        ).pipe(Stream.mapEffect(({ key }) => entry(key, dev)))
      ),
      Stream.flatMap((found) => Stream.fromIterable(Option.toArray(found))),
      // A host without sessions, or one whose folder went away, has no scopes.
      Stream.catchIf(vanished, () => Stream.empty)
    )
}

const decoder = new TextDecoder("utf-8", { fatal: true })

const textOf = (bytes: Uint8Array): Result.Result<string, string> =>
  Result.mapError(
    Result.try(() => decoder.decode(bytes)),
    () => "it is not UTF-8"
  )

/** Reads the manifest of a backup; whatever is wrong with it is in the answer. */
export const readManifest = (posix: Posix, backup: string) =>
  Effect.catch(loadManifest(posix, backup), (error) =>
    Effect.succeed(
      Result.fail(
        new BackupManifest.UnreadableManifest({ detail: `its manifest cannot be read (${error.code})` })
      )
    )
  )

/** Fails where it is not known what the manifest says. */
export const loadManifest = (posix: Posix, backup: string) =>
  posix.readSmall(`${backup}/${BackupNames.manifestFile}`, BackupManifest.maxBytes).pipe(
    Effect.map((bytes) =>
      Result.flatMap(
        Result.mapError(textOf(bytes), (detail) => new BackupManifest.UnreadableManifest({ detail })),
        BackupManifest.decode
      )
    ),
    Effect.catchIf(vanished, () =>
      Effect.succeed(Result.fail(new BackupManifest.UnreadableManifest({ detail: "it has no manifest" })))
    )
  )

/** What a scope's folder tells. Never fails: what cannot be read is an obstacle. */
export const inspect = Effect.fnUntraced(function* (posix: Posix, sessions: string, scope: Ids.ScopeId) {
  const path = `${sessions}/${scope}`
  const obstacles: Array<BackupReason.Obstacle> = []
  const object = (obstacle: BackupReason.Obstacle) => {
    if (obstacles.length < maxObstacles) obstacles.push(obstacle)
  }

  /** The folder, or none: missing, or an obstacle. */
  const folder = (at: string) =>
    posix.lstat(at).pipe(
      Effect.map((info) => {
        if (info.kind === "directory") return Option.some(info)
        object(notAFolder(info.kind, at))
        return Option.none<EntryInfo>()
      }),
      Effect.catch((error) => {
        if (!vanished(error)) object(unreadable(error))
        return Effect.succeedNone
      })
    )

  const controlPlane = Effect.gen(function* (): Effect.fn.Return<ControlPlane, FileError> {
    yield* folderInfo(posix, "lstat", `${path}/control-plane`)
    const file = `${path}/control-plane/control-plane-state.json`
    const { kind, size } = yield* posix.lstat(file)
    // Of a file alone: what is none is refused by the read, without being opened.
    if (kind === "file" && size > BigInt(ControlPlaneState.maxBytes)) return { _tag: "TooLarge", bytes: size }
    const content = textOf(yield* posix.readSmall(file, ControlPlaneState.maxBytes))
    return Result.isSuccess(content)
      ? { _tag: "Found", text: content.success }
      : { _tag: "Unreadable", detail: content.failure }
  }).pipe(
    Effect.catch((error) =>
      Effect.succeed<ControlPlane>(
        vanished(error) ? { _tag: "Missing" } : { _tag: "Unreadable", detail: error.message }
      )
    )
  )

  const cleanupActivation = posix.lstat(`${path}/cleanup-activation.json`).pipe(
    Effect.as(true),
    Effect.catch((error) => Effect.succeed(!vanished(error)))
  )

  const top = yield* folder(path)
  const backups = `${path}/${BackupNames.backupsFolder}`
  const inside = Option.isSome(top) ? yield* folder(backups) : Option.none<EntryInfo>()

  const isOurs = (info: EntryInfo) =>
    info.kind === "directory" && Option.exists(inside, ({ dev }) => dev === info.dev)

  /** None when it vanished. */
  const backup = Effect.fnUntraced(function* (name: string) {
    const at = `${backups}/${name}`
    const found = yield* Effect.result(posix.lstat(at))
    if (Result.isFailure(found)) {
      if (!vanished(found.failure)) object(unreadable(found.failure))
      return Option.none<Backup>()
    }
    const info = found.success
    const obstacle =
      info.kind !== "directory"
        ? notAFolder(info.kind, at)
        : isOurs(info)
          ? undefined
          : unexpected("another file system", at)
    if (obstacle !== undefined) object(obstacle)
    const manifest =
      obstacle === undefined
        ? yield* readManifest(posix, at)
        : Result.fail(new BackupManifest.UnreadableManifest({ detail: obstacle.what }))
    return Option.some<Backup>({ scope, name, path: at, info, manifest })
  })

  let current = Option.none<Backup>()
  let previous = Option.none<Backup>()
  const retiring: Array<Leftover<"Retiring">> = []
  const expired: Array<Leftover<"Expired">> = []
  const pending: Array<Leftover<"Pending">> = []
  const add = (kind: LeftoverKind, found: Backup) => {
    switch (kind) {
      case "Retiring":
        return retiring.push({ ...found, kind })
      case "Expired":
        return expired.push({ ...found, kind })
      case "Pending":
        return pending.push({ ...found, kind })
    }
  }
  if (Option.isSome(inside)) {
    yield* posix.names(backups).pipe(
      Stream.runForEach(
        Effect.fnUntraced(function* (entry) {
          const name = text(entry.name)
          if (name === "current") current = yield* backup(name)
          else if (name === "previous") previous = yield* backup(name)
          else {
            const kind = name === undefined ? undefined : BackupNames.kindOf(name)
            if (name === undefined || kind === undefined) {
              return object(unexpected("a name that is not ours", join(backups, entry.name)))
            }
            const found = yield* backup(name)
            // What is an obstacle is nothing that could be moved or deleted.
            if (Option.isSome(found) && isOurs(found.value.info)) add(kind, found.value)
          }
        })
      ),
      Effect.catch((error) => {
        if (!vanished(error)) object(unreadable(error))
        return Effect.void
      })
    )
  }

  const state: ScopeState = {
    scope,
    path,
    controlPlane: Option.isSome(top) ? yield* controlPlane : { _tag: "Missing" },
    cleanupActivation: Option.isSome(top) ? yield* cleanupActivation : false,
    current,
    previous,
    retiring,
    expired,
    pending,
    obstacles
  }
  return state
})
