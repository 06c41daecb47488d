/** Compares a folder with the files that a database row holds, contents side by side. */
import { readdir, readFile, stat } from "node:fs/promises"
import { join, relative } from "node:path"

/** A file as the host's snapshots have it. */
export interface StoredFile {
  readonly path: string
  readonly content: string
  readonly encoding?: "utf8" | "base64"
  readonly executable?: boolean
}

const matches = async (folder: string, file: StoredFile): Promise<boolean> => {
  const path = join(folder, file.path)
  const [bytes, info] = await Promise.all([readFile(path), stat(path)])
  const executable = (info.mode & 0o111) !== 0
  return (
    (!executable || file.executable === true) &&
    bytes.equals(Buffer.from(file.content, file.encoding ?? "utf8"))
  )
}

/** Whether the folder has exactly these files. */
export const compareContents = async (
  folder: string,
  stored: ReadonlyArray<StoredFile>
): Promise<boolean> => {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const wanted = new Set(stored.map(({ path }) => path))
  const found = entries.filter((entry) => !entry.isDirectory())
  if (found.length !== wanted.size) return false
  if (!found.every((entry) => wanted.has(relative(folder, join(entry.parentPath, entry.name))))) return false
  return (await Promise.all(stored.map((file) => matches(folder, file)))).every(Boolean)
}
