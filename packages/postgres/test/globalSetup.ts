import { EmbeddedPostgres } from "../src/index.ts"
import { ManagedRuntime } from "effect"
import type { TestProject } from "vitest/node"

declare module "vitest" {
  export interface ProvidedContext {
    /** A PostgreSQL server shared by the whole run; create a database of your own on it. */
    readonly databaseUrl: string
  }
}

/** Starts one server per run, unless `RECLAIM_TEST_DATABASE_URL` names one. */
export default async (project: TestProject): Promise<(() => Promise<void>) | undefined> => {
  const external = process.env["RECLAIM_TEST_DATABASE_URL"]
  if (external !== undefined && external !== "") {
    project.provide("databaseUrl", external)
    return undefined
  }
  const runtime = ManagedRuntime.make(EmbeddedPostgres.layer({ durable: false }))
  const server = await runtime.runPromise(EmbeddedPostgres.EmbeddedPostgres)
  project.provide("databaseUrl", server.url)
  return () => runtime.dispose()
}
