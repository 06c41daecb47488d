/** Checks the types of sources and tests, with Effect's own diagnostics where their checker is installed. */
import { spawnSync } from "node:child_process"
import { existsSync } from "node:fs"
import { root } from "./repository.mjs"

// The checker comes for one platform only, as an optional dependency: others must pass without it.
const withEffect = `${root}node_modules/@effect/tsgo-linux-x64/lib/tsc`
const plain = `${root}node_modules/typescript/bin/tsc`

const run = () => {
  if (existsSync(withEffect))
    return spawnSync(withEffect, ["-p", "tsconfig.json"], { cwd: root, stdio: "inherit" })
  console.log("Effect's diagnostics are left out: @effect/tsgo-linux-x64 is not installed here.")
  return spawnSync(process.execPath, [plain, "-p", "tsconfig.json"], { cwd: root, stdio: "inherit" })
}

const { error, status } = run()
if (error !== undefined) console.error(error.message)
process.exitCode = status ?? 1
