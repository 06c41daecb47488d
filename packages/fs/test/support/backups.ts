/** Sessions to back up, and what the host makes of their backups. */
import { BackupManifest, Ids } from "@reclaim/core"
import { Layer, Schema } from "effect"
import { createHash } from "node:crypto"
import * as Fs from "node:fs"
import * as BackupStore from "../../src/BackupStore.ts"
import * as InstanceRoots from "../../src/InstanceRoots.ts"
import * as PosixFileSystem from "../../src/PosixFileSystem.ts"
import * as Trees from "../../src/Trees.ts"
import { write } from "./fixtures.ts"

export const backupLayer = (
  instance: string,
  posix: Layer.Layer<PosixFileSystem.PosixFileSystem> = PosixFileSystem.layer
) =>
  BackupStore.layer.pipe(
    Layer.provideMerge(Layer.mergeAll(Trees.layer, InstanceRoots.layer({ instance }))),
    Layer.provideMerge(posix)
  )

export const scope = (digit = "a") => Schema.decodeSync(Ids.ScopeId)(digit.repeat(64))

export const sessionsOf = (instance: string) => `${instance}/runtime/paperclip-runner/durable-sessions`
export const scopeFolder = (instance: string, of = scope()) => `${sessionsOf(instance)}/${of}`
export const backupsOf = (instance: string, of = scope()) => `${scopeFolder(instance, of)}/failover-backups`

export const identity: BackupStore.Identity = {
  normalizedSessionId: Schema.decodeSync(Ids.NativeSessionId)("0f8fad5b-d9cb-469f-a165-70867728950e"),
  providerKind: "codex"
}

/** A runner's folder and a Codex home in a session's folder, as `captureOptions` takes them. */
export const makeSession = (instance: string, content: string) => {
  const folder = scopeFolder(instance)
  write(`${folder}/runner`, { "runner-state.json": `{"turn":"${content}"}` })
  write(`${folder}/codex-home`, {
    "config.toml": content,
    "sessions/2026/11/30/rollout-1.jsonl": `${content}\n`.repeat(3),
    "memories/": ""
  })
  return folder
}

export const captureOptions = (instance: string): BackupStore.CaptureOptions => ({
  scope: scope(),
  identity,
  sources: [
    { name: "runner", path: `${scopeFolder(instance)}/runner` },
    { name: "codex-home", path: `${scopeFolder(instance)}/codex-home` }
  ]
})

/** The digest of a folder as the host's readers compute it, in the plainest way. */
export const hostDigest = (
  root: string,
  locale?: string
): { readonly sha256: string; readonly bytes: number } => {
  const hash = createHash("sha256")
  let bytes = 0
  const visit = (folder: string, relative: string) => {
    const names = Fs.readdirSync(folder).toSorted((left, right) => left.localeCompare(right, locale))
    if (names.length === 0) hash.update(`directory:${relative}\0`)
    for (const name of names) {
      const path = `${folder}/${name}`
      const at = relative === "" ? name : `${relative}/${name}`
      const stat = Fs.lstatSync(path)
      const mode = stat.mode & 0o777
      if (stat.isDirectory()) {
        hash.update(`directory:${at}:${mode}\0`)
        visit(path, at)
      } else if (stat.isSymbolicLink()) {
        hash.update(`symlink:${at}:${Fs.readlinkSync(path)}\0`)
      } else {
        hash.update(`file:${at}:${mode}:${stat.size}\0`)
        hash.update(Fs.readFileSync(path))
        bytes += stat.size
      }
    }
  }
  visit(root, "")
  return { sha256: `sha256:${hash.digest("hex")}`, bytes }
}

/** What the host finds: `current`, then `previous`, whole by its manifest; its `config.toml`. */
export const hostReads = (instance: string): string | undefined => {
  for (const name of ["current", "previous"]) {
    const path = `${backupsOf(instance)}/${name}`
    if (!Fs.existsSync(`${path}/manifest.json`)) continue
    const manifest = BackupManifest.decode(Fs.readFileSync(`${path}/manifest.json`, "utf8"))
    if (manifest._tag === "Failure") continue
    const whole = manifest.success.directories.every((directory) => {
      const found = hostDigest(`${path}/${directory.name}`)
      return found.sha256 === directory.sha256 && found.bytes === directory.bytes
    })
    if (whole) return Fs.readFileSync(`${path}/codex-home/config.toml`, "utf8")
  }
  return undefined
}

/** The names in a scope's backups, without the UUIDs. */
export const backupNames = (instance: string): ReadonlyArray<string> => {
  const folder = backupsOf(instance)
  if (!Fs.existsSync(folder)) return []
  return Fs.readdirSync(folder)
    .map((name) => name.replace(/-[0-9a-f]{8}-[0-9a-f-]{27}$/, ""))
    .toSorted()
}
