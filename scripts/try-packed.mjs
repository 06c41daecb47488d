// Packs every package, installs the tarballs into a project of their own, and uses them there: the command
// must start, and a host's imports must load and type-check from `dist` alone.
import { execFileSync } from "node:child_process"
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

const root = fileURLToPath(new URL("..", import.meta.url))
const project = mkdtempSync(join(tmpdir(), "reclaim-packed-"))

/** @type {(command: string, args: ReadonlyArray<string>, cwd?: string) => string} */
const run = (command, args, cwd = project) =>
  execFileSync(command, args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] })

try {
  run("npm", ["pack", "--workspaces", "--silent", "--pack-destination", project], root)
  const tarballs = readdirSync(project).filter((name) => name.endsWith(".tgz"))
  // The command's own needs, so that npm takes every package from its tarball and none from a registry.
  const dependencies = Object.fromEntries(
    tarballs.map((name) => [
      `@reclaim/${name.replace(/^reclaim-(.*)-\d+\.\d+\.\d+\.tgz$/, "$1")}`,
      `file:${name}`
    ])
  )
  writeFileSync(
    join(project, "package.json"),
    JSON.stringify({ private: true, type: "module", dependencies, overrides: dependencies })
  )
  run("npm", ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"])
  const node = join(root, "node_modules/node/bin/node")
  const version = run(node, ["node_modules/@reclaim/cli/bin/reclaim.js", "--version"]).trim()
  if (!/\d+\.\d+\.\d+/.test(version)) throw new Error(`the command says ${JSON.stringify(version)}`)
  writeFileSync(
    join(project, "host.ts"),
    `import { RetentionSettings } from "@reclaim/core"
import { SkillVersionRetention, SkillVersions } from "@reclaim/runtime"
import { FaultPoints } from "@reclaim/runtime/testing"
import { Layer } from "effect"

export const layer = SkillVersions.layer.pipe(Layer.provide(RetentionSettings.layerFromEnv()))
export const used = [SkillVersionRetention.SkillVersionRetention, FaultPoints.at]
`
  )
  run(node, [
    "--input-type=module",
    "-e",
    'await import("@reclaim/runtime"); await import("@reclaim/runtime/testing")'
  ])
  const compiler = join(root, "node_modules/typescript/bin/tsc")
  const flags = [
    "--noEmit",
    "--strict",
    "--exactOptionalPropertyTypes",
    "--skipLibCheck",
    "--target",
    "es2024"
  ]
  run(node, [compiler, ...flags, "--module", "nodenext", "--types", "", "host.ts"])
  console.log(`${tarballs.length} packages work when installed elsewhere (${version})`)
} finally {
  rmSync(project, { recursive: true, force: true })
}
