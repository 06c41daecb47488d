/** Deletes folders as Node does it by itself. */
import { rm } from "node:fs/promises"

/** All at once: `fs.rm` waits in libuv's four threads, and every smaller number of folders was slower. */
export const removeFolders = async (folders: ReadonlyArray<string>): Promise<void> => {
  await Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true })))
}
