/** Folders to test in, and the layers on them. */
import { FaultPoint, Ids, type Manifest } from "@reclaim/core"
import { Effect, Fiber, Latch, Layer, Schema } from "effect"
import { spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import * as Fs from "node:fs"
import * as Os from "node:os"
import * as AccessRecords from "../../src/AccessRecords.ts"
import * as InstanceRoots from "../../src/InstanceRoots.ts"
import * as PosixFileSystem from "../../src/PosixFileSystem.ts"
import * as Trees from "../../src/Trees.ts"
import * as VersionStore from "../../src/VersionStore.ts"

/** Removes whatever a test made, read-only folders included. */
const wipe = (folder: string) => {
  spawnSync("chmod", ["-R", "u+rwx", folder])
  spawnSync("rm", ["-rf", folder])
}

/** A new folder without links in its path, gone with the scope. */
export const tempFolder = Effect.acquireRelease(
  Effect.sync(() => Fs.realpathSync(Fs.mkdtempSync(`${Os.tmpdir()}/reclaim-fs-`))),
  (folder) => Effect.sync(() => wipe(folder))
)

/** Like `tempFolder`, in memory where there is such a place: for folders of thousands of entries. */
export const largeFolder = Effect.acquireRelease(
  Effect.sync(() => {
    const parent = Fs.existsSync("/dev/shm") ? "/dev/shm" : Fs.realpathSync(Os.tmpdir())
    return Fs.mkdtempSync(`${parent}/reclaim-fs-`)
  }),
  (folder) => Effect.sync(() => wipe(folder))
)

/** Everything of the package below `instance`, on the system's calls or others. */
export const storeLayer = (
  instance: string,
  posix: Layer.Layer<PosixFileSystem.PosixFileSystem> = PosixFileSystem.layer
) =>
  VersionStore.layer.pipe(
    Layer.provideMerge(AccessRecords.layer),
    Layer.provideMerge(Layer.mergeAll(Trees.layer, InstanceRoots.layer({ instance }))),
    Layer.provideMerge(posix)
  )

const numbered = (kind: string, number: number) =>
  `${kind.repeat(8)}-0000-4000-8000-${number.toString(16).padStart(12, "0")}`

export const companyId = (number = 1) => Schema.decodeSync(Ids.CompanyId)(numbered("c", number))
export const skillId = (number = 1) => Schema.decodeSync(Ids.SkillId)(numbered("5", number))
export const versionId = (number = 1) => Schema.decodeSync(Ids.VersionId)(numbered("7", number))

export const copy = (version = 1, skill = 1, company = 1): VersionStore.CopyRef => ({
  companyId: companyId(company),
  skillId: skillId(skill),
  versionId: versionId(version)
})

export const token = (number = 1) => numbered("a", number)

/** Writes files below a folder; a name that ends with a slash is an empty folder. */
export const write = (folder: string, files: Readonly<Record<string, string | Uint8Array>>) => {
  Fs.mkdirSync(folder, { recursive: true })
  for (const [path, content] of Object.entries(files)) {
    if (path.endsWith("/")) {
      Fs.mkdirSync(`${folder}/${path}`, { recursive: true })
      continue
    }
    Fs.mkdirSync(`${folder}/${path}`.replace(/\/[^/]*$/, ""), { recursive: true })
    Fs.writeFileSync(`${folder}/${path}`, content)
  }
}

export const encode = (content: string) => new TextEncoder().encode(content)

/** A manifest of files in the order of their ordinals, and their contents. */
export const manifestOf = (
  files: Readonly<Record<string, string>>,
  executable: ReadonlyArray<string> = []
): { readonly manifest: Manifest.Manifest; readonly contents: ReadonlyArray<VersionStore.FileContent> } => ({
  manifest: Object.entries(files).map(([path, content], ordinal) => ({
    path,
    ordinal,
    size: encode(content).length,
    sha256: createHash("sha256").update(content).digest("hex"),
    executable: executable.includes(path)
  })),
  contents: Object.values(files).map((content, ordinal) => ({ ordinal, bytes: encode(content) }))
})

/** Where the copy of `copy()` is below an instance. */
export const copyPath = (instance: string, of = copy()) =>
  `${instance}/skills/${of.companyId}/__versions__/${of.skillId}/${of.versionId}`

/** Everything below a folder, with what must not change: for tests that compare before and after. */
export const snapshot = (folder: string): ReadonlyArray<string> => {
  const lines: Array<string> = []
  // latin1 is one character per byte.
  const visit = (path: string) => {
    for (const name of Fs.readdirSync(Buffer.from(path, "latin1"), { encoding: "latin1" }).toSorted()) {
      const entry = Buffer.from(`${path}/${name}`, "latin1")
      const stat = Fs.lstatSync(entry, { bigint: true })
      // A sparse file of a terabyte is not read.
      const content =
        stat.isFile() && stat.size < 2 ** 30
          ? createHash("sha256").update(Fs.readFileSync(entry)).digest("hex")
          : stat.isSymbolicLink()
            ? Fs.readlinkSync(entry)
            : ""
      lines.push(`${path}/${name} ${stat.mode} ${stat.ino} ${stat.mtimeNs} ${content}`)
      if (stat.isDirectory()) visit(`${path}/${name}`)
    }
  }
  visit(folder)
  return lines
}

/** Does something once, when a point is reached. */
export const atPoint = (name: string, action: Effect.Effect<void>) => {
  let done = false
  return Effect.provideService(FaultPoint.FaultHandler, (point) =>
    Effect.suspend(() => {
      if (point !== name || done) return Effect.void
      done = true
      return action
    })
  )
}

/** Stops a fiber at a point, so that it is interrupted exactly there. */
export const hold = Effect.gen(function* () {
  const reached = yield* Latch.make(false)
  const gate = yield* Latch.make(false)
  return {
    held: (name: string) => atPoint(name, Effect.andThen(reached.open, Effect.uninterruptible(gate.await))),
    interruptHeld: Effect.fnUntraced(function* <A, E>(fiber: Fiber.Fiber<A, E>) {
      yield* reached.await
      const interruption = yield* Effect.forkChild(Fiber.interrupt(fiber), { startImmediately: true })
      yield* gate.open
      yield* Fiber.await(interruption)
    })
  }
})
