/**
 * Gives tests databases of their own on a PostgreSQL server.
 *
 * @since 0.1.0
 */
export * as TestDatabase from "./TestDatabase.ts"
