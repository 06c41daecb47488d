import { EmbeddedPostgres } from "../src/index.ts"
import { ManagedRuntime } from "effect"
import type { TestProject } from "vitest/node"
import { postgres15 } from "./postgres15.ts"

declare module "vitest" {
  export interface ProvidedContext {
    /** A PostgreSQL server shared by the whole run; create a database of your own on it. */
    readonly databaseUrl: string
  }
}

/** Starts a server for the tests of a project, and gives what ends it. */
export const serve = async (
  project: TestProject,
  options?: EmbeddedPostgres.Options
): Promise<() => Promise<void>> => {
  const runtime = ManagedRuntime.make(EmbeddedPostgres.layer({ ...options, durable: false }))
  const server = await runtime.runPromise(EmbeddedPostgres.EmbeddedPostgres)
  project.provide("databaseUrl", server.url)
  return () => runtime.dispose()
}

/** Starts one server per run, unless `RECLAIM_TEST_DATABASE_URL` names one. */
export default async (project: TestProject): Promise<(() => Promise<void>) | undefined> => {
  if (postgres15 === undefined) {
    console.log("PostgreSQL 15 is not installed: the tests that would run on it too are left out")
  }
  const external = process.env["RECLAIM_TEST_DATABASE_URL"]
  if (external === undefined || external === "") return serve(project)
  project.provide("databaseUrl", external)
  return undefined
}
