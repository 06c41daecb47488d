import type { TestProject } from "vitest/node"
import { serve } from "./globalSetup.ts"
import { postgres15 } from "./postgres15.ts"

/** Starts the system's PostgreSQL 15 for the tests that run on it too. */
export default (project: TestProject): Promise<() => Promise<void>> =>
  serve(project, { binaries: postgres15 })
