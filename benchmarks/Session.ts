/**
 * Makes up the Codex home of a native session, the same one on every machine, and says whether a copy is one.
 *
 * Nineteen of twenty files are small: skills and their references. The others are transcripts, a few of them
 * of tens of megabytes, which are most of the bytes. Nothing in it is what a backup leaves out.
 */
import { Ids } from "@reclaim/core"
import { BackupStore, InstanceRoots, PosixFileSystem, Trees } from "@reclaim/fs"
import { Context, Effect, Layer } from "effect"
import { createHash } from "node:crypto"
import * as Corpus from "./Corpus.ts"
import type { Size } from "./Harness.ts"
import * as System from "./System.ts"

interface File {
  readonly folder: string
  readonly name: string
  readonly bytes: number
}

/** Its files. The folder of a session is named so by the host, too. */
export interface Session {
  readonly files: ReadonlyArray<File>
  readonly bytes: number
}

export const home = "codex-home"

const sizes = {
  full: { files: 20_000, bytes: 2 * 2 ** 30 },
  smoke: { files: 200, bytes: 4 * 2 ** 20 }
}

const padded = (number: number, digits: number) => String(number).padStart(digits, "0")

export const make = (size: Size): Session => {
  const { bytes, files } = sizes[size]
  const random = Corpus.randomness(1)
  const between = (low: number, high: number) => low + random() * (high - low)
  const huge = Math.ceil(files * 0.002)
  const large = Math.ceil(files * 0.048)
  const wanted = Array.from({ length: files }, (_, index) => {
    if (index < huge + large) {
      return {
        folder: `sessions/2026/11/${padded((index % 30) + 1, 2)}`,
        name: `rollout-${padded(index, 5)}.jsonl`,
        kilobytes: index < huge ? between(10_000, 50_000) : between(100, 1500)
      }
    }
    return {
      folder: `skills/skill-${padded(Math.floor(index / 20), 4)}/references`,
      name: `topic-${padded(index, 5)}.md`,
      kilobytes: between(0.2, 16)
    }
  })
  // Scaled, so that the sum is right to the byte.
  const total = wanted.reduce((sum, { kilobytes }) => sum + kilobytes, 0)
  let sum = 0
  return {
    files: wanted.map(({ folder, kilobytes, name }) => {
      const from = Math.round((sum / total) * bytes)
      sum += kilobytes
      return { folder, name, bytes: Math.round((sum / total) * bytes) - from }
    }),
    bytes
  }
}

/** How much that is, for people. */
export const amount = ({ bytes, files }: Session): string =>
  `${files.length.toLocaleString("en-US")} files, ${(bytes / 2 ** 20).toLocaleString("en-US")} MiB`

/** Writes the home into a folder and returns where it is. */
export const write = Effect.fnUntraced(function* (session: Session, folder: string) {
  const random = Corpus.randomness(2)
  const largest = Math.max(...session.files.map(({ bytes }) => bytes))
  // The files are parts of one text: making up each by itself would take minutes.
  const text = Buffer.alloc(2 * largest, Corpus.text(random, 2 ** 20))
  for (const file of session.files) {
    const path = `${folder}/${home}/${file.folder}`
    const from = Math.floor(random() * largest)
    System.makeFolder(path)
    System.writeFile(`${path}/${file.name}`, text.subarray(from, from + file.bytes), 0o600)
    // A Ctrl-C is seen between two files.
    yield* Effect.yieldNow
  }
  return `${folder}/${home}`
})

export const scope = Ids.ScopeId.make("a".repeat(64))

/** The backups of an instance, with threads of their own. */
export const store = Effect.fnUntraced(function* (instance: string) {
  const context = yield* Layer.build(
    BackupStore.layer.pipe(
      Layer.provide(Layer.mergeAll(Trees.layer, InstanceRoots.layer({ instance }), PosixFileSystem.layer))
    )
  )
  return Context.get(context, BackupStore.BackupStore)
})

/** What the scenarios capture: a home as the only source. */
export const captureOptions = (path: string): BackupStore.CaptureOptions => ({
  scope,
  identity: { normalizedSessionId: Ids.NativeSessionId.make("benchmark"), providerKind: "codex" },
  sources: [{ name: home, path }]
})

// The contents byte by byte and the names of folders by `diff`; then every file with its mode, size and time.
const picture = `
  diff -r --no-dereference -- "$1" "$2" >&2 && cd -- "$2" && find . -type f -printf '%s %P %m %Ts\\n' | sort`

/** Tells what a copy has. One that is not what was copied ends the benchmark. */
export const verdict = (original: string, copy: string) =>
  Effect.map(System.command("sh", ["-c", picture, "sh", original, copy]), (text) => {
    const lines = text.trimEnd().split("\n")
    const bytes = lines.reduce((sum, line) => sum + Number(line.slice(0, line.indexOf(" "))), 0)
    const digest = createHash("sha256").update(text).digest("hex")
    return { outcome: `${lines.length} files, ${bytes} bytes: ${digest}` }
  })

/** What others do, one command after the other; `$1` is the home and `$2` the folder that it is copied to. */
export const shell = (home: string, folder: string, ...commands: ReadonlyArray<string>) =>
  System.command("sh", ["-c", commands.join(" && "), "sh", home, folder])

export const copyCommand = `cp -a -- "$1" "$2"`
/** Forces what was copied to the disk, and all else that is to be written on that file system. */
export const syncCommand = `sync -f -- "$2"`
export const digestCommand = `find "$2" -type f -print0 | xargs -0 sha256sum`
