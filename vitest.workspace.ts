import { defineConfig } from "vitest/config"

export default defineConfig({
  // The workspace packages resolve to their TypeScript sources, so tests need no build.
  ssr: { resolve: { conditions: ["@reclaim/source"] } },
  test: {
    // Most of the time goes into waiting for processes, disks and databases, not into computing.
    maxWorkers: 4,
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
