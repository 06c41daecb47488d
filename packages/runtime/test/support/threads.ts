/** The threads that servers in one process share: to start their own takes longer than most of what tests do. */
import { PosixFileSystem, Trees } from "@reclaim/fs"
import { Layer } from "effect"

/** What has threads. Those have ended what they do for a server when the server has ended. */
export const layer = Layer.merge(PosixFileSystem.layer, Trees.layer)

/** The operating system's calls, with the thread that is shared. */
export const posix = Layer.effect(PosixFileSystem.PosixFileSystem, PosixFileSystem.PosixFileSystem)

/** With that thread, or with calls in front of it that fail. */
export type Posix = Layer.Layer<PosixFileSystem.PosixFileSystem, never, PosixFileSystem.PosixFileSystem>
