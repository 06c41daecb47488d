/**
 * The `reclaim` command: what it prints as JSON, and how to run it from code.
 *
 * @since 0.1.0
 */
export * as Cli from "./Cli.ts"
export * as Output from "./Output.ts"
