/**
 * Resolves the folders that everything else works below, once, and refuses those that cannot be told
 * apart.
 *
 * **Details**
 *
 * An operator may name a link; it is resolved when the layer is built and never again. Below the roots no
 * link is followed. A root that does not exist yet is resolved through its nearest existing ancestor.
 *
 * @since 0.1.0
 */
import { Config, Context, Effect, Layer, Option, Schema, Stream } from "effect"
import * as NodePath from "node:path"
import { text } from "./BytePath.ts"
import { type FileError, hasCode } from "./FileError.ts"
import { layer as layerPosix, platform, PosixFileSystem } from "./PosixFileSystem.ts"

/**
 * Why no work can be done with the folders that were named, in words for an operator.
 *
 * @category errors
 * @since 0.1.0
 */
export class RefusedRoots extends Schema.TaggedError<RefusedRoots>()("RefusedRoots", {
  detail: Schema.String
}) {
  override get message(): string {
    return this.detail
  }
}

/**
 * The roots, absolute and without links. `skills` and `sessions` need not exist.
 *
 * @category services
 * @since 0.1.0
 */
export class InstanceRoots extends Context.Service<
  InstanceRoots,
  {
    /** The host's folder. */
    readonly instance: string
    /** Where the companies' skills are: `<instance>/skills`. */
    readonly skills: string
    /** Where the session scopes are. */
    readonly sessions: string
    /** Whether names that differ by case alone are one file on the volume of `skills`. */
    readonly caseInsensitive: boolean
  }
>()("@reclaim/fs/InstanceRoots") {}

/**
 * `sessions` is `<instance>/runtime/paperclip-runner/durable-sessions` unless it is given.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options {
  readonly instance: string
  readonly sessions?: string
}

const refuse = (detail: string) => new RefusedRoots({ detail })

const missing = hasCode("ENOENT")

const unreadable = (what: string) => (error: FileError) =>
  refuse(`the ${what} cannot be read (${error.code}): ${error.path}`)

/** The path without links, also when its last parts do not exist yet. */
const resolve = Effect.fnUntraced(function* (what: string, path: string) {
  const posix = yield* PosixFileSystem
  const rest: Array<string> = []
  for (let at = path; ; at = NodePath.dirname(at)) {
    const found = yield* posix.realPath(at).pipe(
      Effect.asSome,
      Effect.catchIf(missing, () => Effect.succeedNone),
      Effect.mapError(unreadable(what))
    )
    if (Option.isSome(found)) {
      const info = yield* Effect.mapError(posix.lstat(found.value), unreadable(what))
      if (info.kind !== "directory") return yield* refuse(`the ${what} is not a folder: ${found.value}`)
      return { path: NodePath.join(found.value, ...rest), exists: rest.length === 0, info }
    }
    // A name that is there but leads nowhere: writing through it would make a folder elsewhere.
    const dangling = yield* posix.lstat(at).pipe(
      Effect.as(true),
      Effect.catchIf(missing, () => Effect.succeed(false)),
      Effect.mapError(unreadable(what))
    )
    if (dangling) return yield* refuse(`the ${what} is a link that leads nowhere: ${at}`)
    rest.unshift(NodePath.basename(at))
  }
})

const swapCase = (name: string): string => {
  const lower = name.toLowerCase()
  return lower === name ? name.toUpperCase() : lower
}

// 16: the first names usually have letters; a folder of thousands is not searched for one that has.
const probes = 16

/**
 * Looks, without writing, whether a name with its case swapped leads to the same entry. Undefined where
 * nothing on the volume has letters.
 */
const probeCase = Effect.fnUntraced(function* (skills: string) {
  const posix = yield* PosixFileSystem
  const inside = yield* posix.names(skills).pipe(
    Stream.take(probes),
    Stream.runCollect,
    Effect.orElseSucceed(() => [])
  )
  for (const { name } of inside) {
    const known = text(name)
    if (known === undefined || swapCase(known) === known) continue
    const original = yield* Effect.option(posix.lstat(NodePath.join(skills, known)))
    const swapped = yield* Effect.result(posix.lstat(NodePath.join(skills, swapCase(known))))
    if (Option.isNone(original)) continue
    if (swapped._tag === "Success") {
      return swapped.success.dev === original.value.dev && swapped.success.ino === original.value.ino
    }
    if (missing(swapped.failure)) return false
  }
  return undefined
})

const makeRoots = Effect.fnUntraced(function* (options: Options) {
  const system = yield* platform
  if (system !== "linux" && system !== "darwin") {
    return yield* refuse(`Reclaim runs on Linux and macOS, not on ${system}`)
  }
  if (!NodePath.isAbsolute(options.instance)) {
    return yield* refuse(`the instance folder must be an absolute path: ${options.instance}`)
  }
  if (options.sessions !== undefined && !NodePath.isAbsolute(options.sessions)) {
    return yield* refuse(`the session state folder must be an absolute path: ${options.sessions}`)
  }
  const instance = yield* resolve("instance folder", NodePath.resolve(options.instance))
  if (!instance.exists) return yield* refuse(`the instance folder does not exist: ${options.instance}`)
  const skills = yield* resolve("skills folder", NodePath.join(instance.path, "skills"))
  const sessions = yield* resolve(
    "session state folder",
    options.sessions === undefined
      ? NodePath.join(instance.path, "runtime", "paperclip-runner", "durable-sessions")
      : NodePath.resolve(options.sessions)
  )
  const named = [
    ["instance folder", instance],
    ["skills folder", skills],
    ["session state folder", sessions]
  ] as const
  for (const [what, { path }] of named) {
    if (path === "/") return yield* refuse(`the ${what} must not be the root of the file system`)
  }
  const same =
    skills.path === sessions.path ||
    // One folder can have two paths, by a bind mount.
    (skills.exists &&
      sessions.exists &&
      skills.info.dev === sessions.info.dev &&
      skills.info.ino === sessions.info.ino)
  if (same) {
    return yield* refuse(`the skills folder and the session state folder are the same: ${skills.path}`)
  }
  if (sessions.path.startsWith(`${skills.path}/`)) {
    return yield* refuse(`the session state folder lies in the skills folder: ${sessions.path}`)
  }
  if (skills.path.startsWith(`${sessions.path}/`)) {
    return yield* refuse(`the skills folder lies in the session state folder: ${skills.path}`)
  }
  const proven = skills.exists ? yield* probeCase(skills.path) : undefined
  return InstanceRoots.of({
    instance: instance.path,
    skills: skills.path,
    sessions: sessions.path,
    caseInsensitive: proven ?? system === "darwin"
  })
})

/**
 * Reads the folder of the sessions from `PAPERCLIP_RUNNER_STATE_DIR`, where that is set. An empty value counts
 * as unset.
 *
 * @category configuration
 * @since 0.1.0
 */
export const config: Config.Config<Pick<Options, "sessions">> = Config.option(
  Config.String("PAPERCLIP_RUNNER_STATE_DIR")
).pipe(
  Config.map((sessions) =>
    Option.match(
      Option.filter(sessions, (path) => path !== ""),
      { onNone: () => ({}), onSome: (path) => ({ sessions: path }) }
    )
  )
)

/** Fails, before anything runs, when the roots are refused. @category layers @since 0.1.0 */
export const layer = (options: Options): Layer.Layer<InstanceRoots, RefusedRoots> =>
  Layer.effect(InstanceRoots, makeRoots(options)).pipe(Layer.provide(layerPosix))

/**
 * The environment's folder of the sessions, unless the host gives one.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerFromEnv = (
  options: Options
): Layer.Layer<InstanceRoots, RefusedRoots | Config.ConfigError> =>
  Layer.unwrap(Effect.map(config, (environment) => layer({ ...environment, ...options })))
