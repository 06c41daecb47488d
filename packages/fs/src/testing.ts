/**
 * Makes single calls on the file system fail, for tests.
 *
 * @since 0.1.0
 */
import { Array as Arr, Effect, Layer, Result, Stream } from "effect"
import { type BytePath, show } from "./BytePath.ts"
import { type FileError, make as fileError } from "./FileError.ts"
import { layer, PosixFileSystem } from "./PosixFileSystem.ts"

/** @category models @since 0.1.0 */
export type Method = Exclude<keyof PosixFileSystem["Service"], "lstatAll" | "namesAll" | "readSmallAll">

/**
 * What happens to calls of `method` on paths that match. `before` runs first, whatever comes then; with
 * `code` the call fails without being made. `times` is how often; absent is always. Paths are matched as
 * printed; a rename or a link matches by the path that it starts from. A call for many paths meets the faults of
 * the one for a single path.
 *
 * @category models
 * @since 0.1.0
 */
export interface Fault {
  readonly method: Method
  readonly matches?: (path: string) => boolean
  readonly times?: number
  readonly code?: string
  readonly before?: Effect.Effect<void>
}

/** Wraps another file system. @category layers @since 0.1.0 */
export const layerFaultyFrom = <E, R>(
  faults: ReadonlyArray<Fault>,
  underlying: Layer.Layer<PosixFileSystem, E, R>
): Layer.Layer<PosixFileSystem, E, R> =>
  Layer.effect(
    PosixFileSystem,
    Effect.gen(function* () {
      const real = yield* PosixFileSystem
      const left = faults.map(({ times }) => times ?? Number.POSITIVE_INFINITY)

      const meet = (method: Method, path: BytePath): Effect.Effect<void, FileError> =>
        Effect.suspend(() => {
          const shown = show(path)
          const index = faults.findIndex(
            (fault, at) => fault.method === method && left[at]! > 0 && (fault.matches?.(shown) ?? true)
          )
          const fault = faults[index]
          if (fault === undefined) return Effect.void
          left[index]! -= 1
          return Effect.andThen(
            fault.before ?? Effect.void,
            fault.code === undefined ? Effect.void : Effect.fail(fileError(method, path, fault.code))
          )
        })
      const effect =
        <Rest extends ReadonlyArray<unknown>, Path extends BytePath, A>(
          method: Method,
          call: (path: Path, ...rest: Rest) => Effect.Effect<A, FileError>
        ) =>
        (path: Path, ...rest: Rest) =>
          Effect.andThen(meet(method, path), call(path, ...rest))
      const stream =
        <A>(method: Method, call: (path: BytePath) => Stream.Stream<A, FileError>) =>
        (path: BytePath) =>
          Stream.unwrap(Effect.as(meet(method, path), call(path)))

      /** Of many, with the faults of the call that each of them stands for. */
      const each =
        <Rest extends ReadonlyArray<unknown>, A>(
          method: Method,
          call: (
            paths: ReadonlyArray<BytePath>,
            ...rest: Rest
          ) => Effect.Effect<ReadonlyArray<Result.Result<A, FileError>>>
        ) =>
        (paths: ReadonlyArray<BytePath>, ...rest: Rest) =>
          Effect.gen(function* () {
            const met = yield* Effect.forEach(paths, (path) => Effect.result(meet(method, path)))
            const answers = yield* call(paths, ...rest)
            return Arr.zipWith(met, answers, (fault, answer) => Result.andThen(fault, () => answer))
          })

      return PosixFileSystem.of({
        lstat: effect("lstat", real.lstat),
        lstatAll: each("lstat", real.lstatAll),
        realPath: effect("realPath", real.realPath),
        names: stream("names", real.names),
        namesAll: each("names", real.namesAll),
        makeDirectory: effect("makeDirectory", real.makeDirectory),
        rename: effect("rename", real.rename),
        removeDirectory: effect("removeDirectory", real.removeDirectory),
        unlink: effect("unlink", real.unlink),
        link: effect("link", real.link),
        makeLink: (target, path) => Effect.andThen(meet("makeLink", path), real.makeLink(target, path)),
        readSmall: effect("readSmall", real.readSmall),
        readSmallAll: each("readSmall", real.readSmallAll),
        writeNew: (path, content, options) =>
          Effect.andThen(meet("writeNew", path), real.writeNew(path, content, options)),
        syncDirectory: effect("syncDirectory", real.syncDirectory),
        volume: effect("volume", real.volume)
      })
    })
  ).pipe(Layer.provide(underlying))

/** The operating system's calls, with faults. @category layers @since 0.1.0 */
export const layerFaulty = (faults: ReadonlyArray<Fault>): Layer.Layer<PosixFileSystem> =>
  layerFaultyFrom(faults, layer)
