/** Fails when a source imports what its package must not know, or touches the system outside its wrappers. */
import { violations } from "./imports.mjs"
import { dependencies, sources } from "./repository.mjs"

const all = sources()
const found = violations(all, dependencies())
for (const { line, path, problem } of found) console.error(`${path}:${line}: ${problem}`)
console.log(`${all.length} sources, ${found.length} violations`)
process.exitCode = found.length === 0 ? 0 : 1
