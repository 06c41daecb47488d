import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Latch, Option, Result, Stream } from "effect"
import { spawnSync } from "node:child_process"
import * as Fs from "node:fs"
import NodeFs from "node:fs"
import { syncBuiltinESMExports } from "node:module"
import * as BytePath from "../src/BytePath.ts"
import type { FileError } from "../src/FileError.ts"
import { type EntryName, layer, PosixFileSystem } from "../src/PosixFileSystem.ts"
import { layerFaulty } from "../src/testing.ts"
import { encode, tempFolder } from "./support/fixtures.ts"

const odd = Uint8Array.from([0x6f, 0xff, 0x64])

describe("PosixFileSystem", () => {
  it.effect("[F-06] takes and gives names as bytes", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const posix = yield* PosixFileSystem
      const path = BytePath.join(folder, odd)
      yield* posix.makeDirectory(path, 0o755)
      yield* posix.writeNew(BytePath.join(path, odd), encode("one"), { mode: 0o600, sync: true })
      yield* posix.makeLink(odd, BytePath.join(path, "link"))
      yield* posix.rename(BytePath.join(path, odd), BytePath.join(path, "plain"))
      yield* posix.link(BytePath.join(path, "plain"), BytePath.join(path, odd))
      yield* posix.syncDirectory(path)
      const entries = yield* Stream.runCollect(posix.names(path))
      assert.deepStrictEqual(entries.map(({ kind, name }) => `${kind} ${BytePath.show(name)}`).toSorted(), [
        "file o\\xffd",
        "file plain",
        "symlink link"
      ])
      assert.deepStrictEqual(yield* posix.readSmall(BytePath.join(path, odd), 3), encode("one"))
      const link = Buffer.from(BytePath.bytes(BytePath.join(path, "link")))
      assert.deepStrictEqual(Uint8Array.from(Fs.readlinkSync(link, { encoding: "buffer" })), odd)
      const info = yield* posix.lstat(BytePath.join(path, "plain"))
      const stat = Fs.lstatSync(Buffer.from(BytePath.bytes(BytePath.join(path, odd))), { bigint: true })
      assert.deepStrictEqual(
        [info.ino, info.nlink, info.size, info.mtimeNs, info.ctimeNs, info.mode & 0o777],
        [stat.ino, 2n, 3n, stat.mtimeNs, stat.ctimeNs, 0o600]
      )
      for (const name of ["plain", "link", odd]) yield* posix.unlink(BytePath.join(path, name))
      yield* posix.removeDirectory(path)
      assert.deepStrictEqual(Fs.readdirSync(folder), [])
    }).pipe(Effect.provide(layer), Effect.scoped)
  )

  it.effect("[F-01] [F-08] reads regular files alone, and only as much as is allowed", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const posix = yield* PosixFileSystem
      Fs.writeFileSync(`${folder}/file`, "12345")
      Fs.symlinkSync(`${folder}/file`, `${folder}/link`)
      spawnSync("mkfifo", [`${folder}/fifo`])
      const code = (name: string, max = 10) =>
        Effect.map(Effect.flip(posix.readSmall(`${folder}/${name}`, max)), (error) => error.code)
      assert.strictEqual(yield* code("link"), "ELOOP")
      assert.strictEqual(yield* code("fifo"), "EINVAL")
      assert.strictEqual(yield* code("."), "EISDIR")
      assert.strictEqual(yield* code("missing"), "ENOENT")
      assert.strictEqual(yield* code("file", 4), "EFBIG")
      assert.strictEqual((yield* posix.readSmall(`${folder}/file`, 5)).length, 5)
      const listing = Effect.flip(Stream.runCollect(posix.names(`${folder}/link`)))
      assert.include(["ENOTDIR", "ELOOP"], (yield* listing).code)
      Fs.symlinkSync(folder, `${folder}/folder`)
      const through = Effect.flip(Stream.runCollect(posix.names(`${folder}/folder`)))
      assert.include(["ENOTDIR", "ELOOP"], (yield* through).code)
    }).pipe(Effect.provide(layer), Effect.scoped)
  )

  it.effect("[F-01] [F-06] [F-08] answers for many at once what it answers for each", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const posix = yield* PosixFileSystem
      Fs.writeFileSync(`${folder}/file`, "12345")
      Fs.writeFileSync(`${folder}/empty`, "")
      Fs.writeFileSync(`${folder}/large`, "12345678901")
      Fs.writeFileSync(Buffer.from(BytePath.bytes(BytePath.join(folder, odd))), "odd")
      Fs.mkdirSync(`${folder}/folder/inner`, { recursive: true })
      Fs.symlinkSync(`${folder}/file`, `${folder}/folder/link`)
      Fs.symlinkSync("nowhere", `${folder}/dangling`)
      spawnSync("mkfifo", [`${folder}/fifo`])
      // More names than are read in one go.
      Fs.mkdirSync(`${folder}/many`)
      for (let index = 0; index < 1000; index++)
        Fs.writeFileSync(`${folder}/many/${index}-${"x".repeat(40)}`, "")
      const names = ["file", "empty", "large", "folder", "folder/inner", "folder/link", "dangling", "fifo"]
      const others = ["missing", "file/below", "nul\u0000", "x".repeat(300), "many"]
      const paths = [...names, ...others].map((name) => `${folder}/${name}`)
      const all = [BytePath.join(folder, odd), "/dev/null", ...paths]

      const shown = <A>(answers: ReadonlyArray<Result.Result<A, FileError>>) =>
        answers.map((answer) =>
          Result.isFailure(answer) ? `${answer.failure.code} ${answer.failure.path}` : answer.success
        )
      const each = <A>(one: (path: BytePath.BytePath) => Effect.Effect<A, FileError>) =>
        Effect.map(
          Effect.forEach(all, (path) => Effect.result(one(path))),
          shown
        )
      assert.deepStrictEqual(shown(yield* posix.lstatAll(all)), yield* each(posix.lstat))
      assert.deepStrictEqual(
        shown(yield* posix.readSmallAll(all, 10)),
        yield* each((path) => posix.readSmall(path, 10))
      )
      const sorted = (names: ReadonlyArray<EntryName>) =>
        names.map(({ kind, name }) => `${kind} ${BytePath.show(name)}`).toSorted()
      const lists = yield* posix.namesAll(all)
      const streamed = yield* each((path) => Effect.map(Stream.runCollect(posix.names(path)), sorted))
      const whole = lists.map((list) => Result.map(list, Option.map(sorted)))
      assert.deepStrictEqual(lists.at(-1), Result.succeed(Option.none()))
      assert.deepStrictEqual(
        shown(whole).map((answer, index) =>
          typeof answer === "string" ? answer : Option.getOrElse(answer, () => streamed[index])
        ),
        streamed
      )
      assert.deepStrictEqual(yield* posix.lstatAll([]), [])
    }).pipe(Effect.provide(layer), Effect.scoped)
  )

  it.effect("[F-04] leaves no folder whose mode could not be set", () =>
    Effect.gen(function* () {
      const path = `${yield* tempFolder}/new`
      const posix = yield* PosixFileSystem
      const real = NodeFs.fchmod
      yield* Effect.acquireRelease(
        Effect.sync(() => {
          Object.assign(NodeFs, {
            fchmod: (_descriptor: number, _mode: number, done: (error: Error) => void) =>
              done(Object.assign(new Error("EIO"), { code: "EIO" }))
          })
          syncBuiltinESMExports()
        }),
        () =>
          Effect.sync(() => {
            NodeFs.fchmod = real
            syncBuiltinESMExports()
          })
      )
      assert.strictEqual((yield* Effect.flip(posix.makeDirectory(path, 0o755))).code, "EIO")
      assert.isFalse(Fs.existsSync(path))
      // Not one that was there before.
      Fs.mkdirSync(path)
      assert.strictEqual((yield* Effect.flip(posix.makeDirectory(path, 0o755))).code, "EEXIST")
      assert.isTrue(Fs.existsSync(path))
    }).pipe(Effect.provide(layer), Effect.scoped)
  )

  it.effect("[F-04] writes new files alone, and removes one that was not written whole", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const posix = yield* PosixFileSystem
      Fs.writeFileSync(`${folder}/taken`, "old")
      Fs.symlinkSync(`${folder}/elsewhere`, `${folder}/link`)
      const options = { mode: 0o444, sync: false }
      for (const name of ["taken", "link"]) {
        const error = yield* Effect.flip(posix.writeNew(`${folder}/${name}`, encode("new"), options))
        assert.strictEqual(error.code, "EEXIST")
      }
      const broken = Stream.concat(Stream.succeed(encode("half")), Stream.fail("broken"))
      assert.strictEqual(yield* Effect.flip(posix.writeNew(`${folder}/half`, broken, options)), "broken")
      const started = yield* Latch.make(false)
      const endless = Stream.concat(
        Stream.succeed(encode("half")),
        Stream.fromEffect(Effect.andThen(started.open, Effect.never))
      )
      const fiber = yield* Effect.forkChild(posix.writeNew(`${folder}/half`, endless, options))
      yield* started.await
      yield* Fiber.interrupt(fiber)
      assert.deepStrictEqual(Fs.readdirSync(folder).toSorted(), ["link", "taken"])
      assert.strictEqual(Fs.readFileSync(`${folder}/taken`, "utf8"), "old")
      yield* posix.writeNew(`${folder}/whole`, Stream.make(encode("a"), encode("b")), options)
      assert.strictEqual(Fs.readFileSync(`${folder}/whole`, "utf8"), "ab")
      assert.strictEqual(Fs.statSync(`${folder}/whole`).mode & 0o777, 0o444)
    }).pipe(Effect.provide(layer), Effect.scoped)
  )

  it.effect("[F-04] says how the kernel refused, with the printable path", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const posix = yield* PosixFileSystem
      Fs.mkdirSync(`${folder}/full/x`, { recursive: true })
      Fs.mkdirSync(`${folder}/other`)
      const error = yield* Effect.flip(posix.rename(`${folder}/other`, `${folder}/full`))
      assert.deepStrictEqual(
        [error.operation, error.path, error.code, error.message],
        ["rename", `${folder}/other`, "ENOTEMPTY", `rename ${folder}/other: ENOTEMPTY`]
      )
      assert.strictEqual((yield* Effect.flip(posix.removeDirectory(`${folder}/full`))).code, "ENOTEMPTY")
      const unprintable = yield* Effect.flip(posix.lstat(BytePath.join(folder, Uint8Array.of(0x0a, 0xff))))
      assert.strictEqual(unprintable.path, `${folder}/\\x0a\\xff`)
      assert.strictEqual((yield* Effect.flip(posix.lstat("a\0b"))).code, "ERR_INVALID_ARG_VALUE")
      const { available, free, total } = yield* posix.volume(folder)
      assert.isTrue(total > 0n && free <= total && available <= free)
    }).pipe(Effect.provide(layer), Effect.scoped)
  )

  it.effect("fails the calls that a test names, as often as it says", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const met: Array<string> = []
      const faulty = layerFaulty([
        { method: "lstat", matches: (path) => path.endsWith("one"), code: "EIO", times: 1 },
        { method: "unlink", before: Effect.sync(() => met.push("unlink")).pipe(Effect.asVoid) },
        { method: "names", code: "EMFILE" }
      ])
      yield* Effect.gen(function* () {
        const posix = yield* PosixFileSystem
        Fs.writeFileSync(`${folder}/one`, "")
        assert.strictEqual((yield* Effect.flip(posix.lstat(`${folder}/one`))).code, "EIO")
        assert.strictEqual((yield* posix.lstat(`${folder}/one`)).kind, "file")
        assert.strictEqual((yield* Effect.flip(Stream.runDrain(posix.names(folder)))).code, "EMFILE")
        yield* posix.unlink(`${folder}/one`)
        assert.deepStrictEqual(met, ["unlink"])
      }).pipe(Effect.provide(faulty))
    }).pipe(Effect.scoped)
  )
})
