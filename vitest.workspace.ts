import { defineConfig } from "vitest/config"

export default defineConfig({
  // The workspace packages resolve to their TypeScript sources, so tests need no build.
  ssr: { resolve: { conditions: ["@reclaim/source"] } },
  test: {
    globalSetup: ["./packages/postgres/test/globalSetup.ts"],
    projects: ["core", "fs", "db", "runtime", "postgres", "cli"].map((name) => ({
      extends: true as const,
      test: { name, root: `packages/${name}`, include: ["test/**/*.test.ts"], testTimeout: 30_000 }
    }))
  }
})
