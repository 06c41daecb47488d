import { defineConfig } from "vitest/config"
import { BaseSequencer, type TestSpecification } from "vitest/node"

/** What mostly waits begins first, beside what computes, and does not end alone. */
class WaitingFirst extends BaseSequencer {
  override async sort(files: Array<TestSpecification>) {
    const sorted = await BaseSequencer.prototype.sort.call(this, files)
    const waits = ({ moduleId }: TestSpecification) => /\/test\/model\//.test(moduleId)
    return [...sorted.filter(waits), ...sorted.filter((file) => !waits(file))]
  }
}

export default defineConfig({
  // The workspace packages resolve to their TypeScript sources, so tests need no build.
  ssr: { resolve: { conditions: ["@reclaim/source"] } },
  test: {
    // Most of the time goes into waiting for processes, disks and databases, not into computing.
    maxWorkers: 4,
    sequence: { sequencer: WaitingFirst },
    globalSetup: ["./packages/postgres/test/globalSetup.ts"],
    projects: [
      ...["core", "fs", "db", "runtime", "postgres", "cli"].map((name) => ({
        name,
        root: `packages/${name}`
      })),
      { name: "repository", root: "." }
    ].map(({ name, root }) => ({
      extends: true as const,
      test: { name, root, include: ["test/**/*.test.ts"], testTimeout: 60_000 }
    }))
  }
})
