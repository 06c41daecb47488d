/** The entry point of the process. */
import { main } from "./Cli.ts"
import { runMain } from "./internal/process.ts"

runMain(main)
