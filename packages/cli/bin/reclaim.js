#!/usr/bin/env node
import { existsSync, realpathSync } from "node:fs"
import * as nodeModule from "node:module"
import { sep } from "node:path"
import { fileURLToPath } from "node:url"

const [major, minor] = process.versions.node.split(".").map(Number)
const here = realpathSync(fileURLToPath(import.meta.url))

if (major < 22 || (major === 22 && minor < 19)) {
  const message = `reclaim needs Node 22.19 or newer, and this is ${process.version} (${process.execPath})`
  process.stderr.write(`reclaim: ${message}\n`)
  if (process.argv.includes("--json")) {
    process.stdout.write(`${JSON.stringify({ type: "error", _tag: "UnsupportedNode", message })}\n`)
  }
  process.exitCode = 1
} else if (
  !here.includes(`${sep}node_modules${sep}`) &&
  existsSync(new URL("../src/main.ts", import.meta.url))
) {
  // A checkout: Node strips the types itself, so the sources run without a build. The condition makes the
  // workspace's packages resolve to their sources too, and nobody else's.
  nodeModule.registerHooks({
    resolve: (specifier, context, nextResolve) =>
      nextResolve(specifier, { ...context, conditions: [...context.conditions, "@reclaim/source"] })
  })
  // Without it each start strips and compiles everything again. Not in the system's temporary folder, where
  // other users could leave code.
  nodeModule.enableCompileCache(
    fileURLToPath(new URL("../../../node_modules/.cache/reclaim", import.meta.url))
  )
  await import("../src/main.ts")
} else {
  await import("../dist/main.js")
}
