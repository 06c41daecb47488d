import { fileURLToPath } from "node:url"
import { defineConfig } from "vitest/config"
import { BaseSequencer, type TestSpecification } from "vitest/node"
import { postgres15 } from "./packages/postgres/test/postgres15.ts"

/** What takes longest, mostly by waiting, begins first, beside what computes, and does not end alone. */
class LongestFirst extends BaseSequencer {
  override async sort(files: Array<TestSpecification>) {
    const sorted = await BaseSequencer.prototype.sort.call(this, files)
    const takesLong = ({ moduleId }: TestSpecification) =>
      /\/test\/(model\/|faults\/Matrix|BackupCrash|EmbeddedPostgres)/.test(moduleId)
    return [...sorted.filter(takesLong), ...sorted.filter((file) => !takesLong(file))]
  }
}

// The processes and threads that the tests start would strip and compile the same sources each time.
process.env["NODE_COMPILE_CACHE"] ??= fileURLToPath(new URL("node_modules/.cache/reclaim", import.meta.url))

const projects = [
  ...["core", "fs", "db", "runtime", "postgres"].map((name) => ({ name, root: `packages/${name}` })),
  { name: "cli", root: "packages/cli", globalSetup: ["test/globalSetup.ts"] },
  { name: "repository", root: "." },
  // The tests of what is sent to the database, once more on the oldest version that is promised.
  ...(postgres15 === undefined
    ? []
    : [
        {
          name: "PostgreSQL 15",
          root: "packages",
          include: ["db/test/**/*.test.ts", "runtime/test/{BackupsExpiring,Eviction,Sweep}.test.ts"],
          globalSetup: ["postgres/test/globalSetup15.ts"]
        }
      ])
]

export default defineConfig({
  // The workspace packages resolve to their TypeScript sources, so tests need no build.
  ssr: { resolve: { conditions: ["@reclaim/source"] } },
  test: {
    // Most of the time goes into waiting for processes, disks and databases, not into computing.
    maxWorkers: 4,
    sequence: { sequencer: LongestFirst },
    globalSetup: ["./packages/postgres/test/globalSetup.ts"],
    projects: projects.map((project) => ({
      extends: true as const,
      test: { include: ["test/**/*.test.ts"], testTimeout: 60_000, ...project }
    }))
  }
})
