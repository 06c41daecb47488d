/**
 * Runs real PostgreSQL servers from the binaries on npm, for tests and demonstrations.
 *
 * @since 0.1.0
 */
export * as EmbeddedPostgres from "./EmbeddedPostgres.ts"
