import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { build } from "vite"
import type { TestProject } from "vitest/node"

declare module "vitest" {
  export interface ProvidedContext {
    /** The folder with the command, as `main.js` and what that loads. */
    readonly command: string
  }
}

const source = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url))

/**
 * Puts the command into a few files. The tests start it hundreds of times, and from its sources nearly all of
 * the half second that a start takes goes into finding, reading and linking hundreds of modules.
 */
const bundle = async (folder: string): Promise<void> => {
  await build({
    configFile: false,
    logLevel: "warn",
    root: source("cli"),
    ssr: { noExternal: true, resolve: { conditions: ["@reclaim/source"] } },
    build: {
      ssr: true,
      minify: false,
      outDir: folder,
      emptyOutDir: false,
      rolldownOptions: {
        input: {
          main: source("cli/src/main.ts"),
          // By this name the command looks for it beside itself.
          treeWorker: source("fs/src/internal/treeWorker.ts")
        },
        output: { entryFileNames: "[name].js", chunkFileNames: "[name]-[hash].js", keepNames: true }
      }
    }
  })
}

export default async (project: TestProject): Promise<() => void> => {
  // Not in the repository: two runs at once may have sources that differ.
  const folder = mkdtempSync(join(tmpdir(), "reclaim-command-"))
  await bundle(folder)
  project.onTestsRerun(() => bundle(folder))
  project.provide("command", folder)
  return () => rmSync(folder, { recursive: true, force: true })
}
