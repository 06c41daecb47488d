/** What lies in a skill's folder and in the folder of a session's backups, read without the library. */
import * as Fs from "node:fs"
import type { Files } from "./Model.ts"

export interface Entry {
  readonly name: string
  readonly path: string
  readonly kind: "copy" | "staging" | "evicting" | "replaced" | "trash" | "other"
  /** Empty for trash and for what is not ours. */
  readonly versionId: string
}

const uuid = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
const copyName = new RegExp(`^(${uuid})$`)
const leftoverName = new RegExp(`^\\.(staging|evicting|replaced)-(${uuid})-${uuid}$`)
const trashName = new RegExp(`^\\.trash-${uuid}$`)

const kindOf = (name: string): Pick<Entry, "kind" | "versionId"> => {
  const copy = copyName.exec(name)
  if (copy !== null) return { kind: "copy", versionId: copy[1]! }
  const leftover = leftoverName.exec(name)
  if (leftover !== null) {
    const kind = leftover[1]
    if (kind === "staging" || kind === "evicting" || kind === "replaced")
      return { kind, versionId: leftover[2]! }
  }
  return { kind: trashName.test(name) ? "trash" : "other", versionId: "" }
}

export const list = (folder: string): ReadonlyArray<Entry> =>
  (Fs.existsSync(folder) ? Fs.readdirSync(folder, { withFileTypes: true }) : []).map((entry) => ({
    name: entry.name,
    path: `${folder}/${entry.name}`,
    ...(entry.isDirectory() ? kindOf(entry.name) : { kind: "other", versionId: "" })
  }))

/** Everything below a folder but the folders: a file as its executable bit and content, a link as its target. */
export const read = (folder: string, prefix = ""): Files => {
  const files: Record<string, string> = {}
  for (const entry of Fs.readdirSync(folder, { withFileTypes: true })) {
    const path = `${folder}/${entry.name}`
    if (entry.isDirectory()) Object.assign(files, read(path, `${prefix}${entry.name}/`))
    else if (entry.isSymbolicLink()) files[`${prefix}${entry.name}`] = `link ${Fs.readlinkSync(path)}`
    else {
      const executable = (Fs.statSync(path).mode & 0o111) !== 0 ? "executable" : "file"
      files[`${prefix}${entry.name}`] = `${executable} ${Fs.readFileSync(path, "latin1")}`
    }
  }
  return files
}

export const isSame = (found: Files, expected: Files): boolean =>
  Object.keys(found).length === Object.keys(expected).length &&
  Object.entries(expected).every(([path, content]) => found[path] === content)

/** Whether names, kinds, sizes and executable bits are the same. */
export const isAlike = (found: Files, expected: Files): boolean =>
  Object.keys(found).length === Object.keys(expected).length &&
  Object.entries(expected).every(([path, content]) => {
    const other = found[path]
    return other?.length === content.length && other.split(" ", 1)[0] === content.split(" ", 1)[0]
  })

/** What is at a path that is not ours: nothing of it may ever change. */
export const portrait = (path: string): string => {
  const { ctimeNs, ino, mode, mtimeNs } = Fs.lstatSync(path, { bigint: true })
  const content = (mode & 0o170000n) === 0o120000n ? Fs.readlinkSync(path) : Fs.readFileSync(path, "latin1")
  return [ino, mode, mtimeNs, ctimeNs, content].join(" ")
}

const completedAt = (backup: string): string => {
  const manifest: unknown = JSON.parse(Fs.readFileSync(`${backup}/manifest.json`, "utf8"))
  return typeof manifest === "object" && manifest !== null && "completedAt" in manifest
    ? String(manifest.completedAt)
    : ""
}

/** What a restoration would find in the folder of a session's backups: the note of the first that is whole. */
export const noteOf = (backups: string): string | undefined => {
  if (!Fs.existsSync(backups)) return undefined
  const names = Fs.readdirSync(backups)
  const retiring = names
    .filter((name) => name.startsWith(".retiring-"))
    .toSorted((a, b) => (completedAt(`${backups}/${a}`) < completedAt(`${backups}/${b}`) ? 1 : -1))
  for (const name of ["current", "previous", ...retiring]) {
    const file = `${backups}/${name}/runner/state.json`
    if (!Fs.existsSync(file) || !Fs.existsSync(`${backups}/${name}/manifest.json`)) continue
    return /"note":"(.*)"/.exec(Fs.readFileSync(file, "utf8"))?.[1]
  }
  return undefined
}
