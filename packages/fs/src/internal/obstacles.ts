/** Says what lies where a folder of ours belongs, or why it cannot be looked at. */
import type { VersionReason } from "@reclaim/core"
import { type BytePath, show } from "../BytePath.ts"
import type { FileError } from "../FileError.ts"
import type { EntryInfo } from "../PosixFileSystem.ts"

type Unexpected = Extract<VersionReason.Obstacle, { readonly _tag: "Unexpected" }>

const nouns: Record<Exclude<EntryInfo["kind"], "directory">, string> = {
  file: "a file",
  symlink: "a link",
  fifo: "a FIFO",
  socket: "a socket",
  device: "a device"
}

export const unexpected = (what: string, path: BytePath): Unexpected => ({
  _tag: "Unexpected",
  what,
  path: show(path)
})

export const notAFolder = (kind: Exclude<EntryInfo["kind"], "directory">, path: BytePath): Unexpected =>
  unexpected(`${nouns[kind]} where a folder belongs`, path)

export const unreadable = (error: FileError): VersionReason.Obstacle => ({
  _tag: "Unreadable",
  code: error.code,
  path: error.path
})
