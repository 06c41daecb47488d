/**
 * Breaks the product in many small ways, one at a time, in copies of the repository, and reports which tests
 * caught each. A tool for developers; no part of the test run. Names, or promises, choose some of the mutants:
 *
 *     npm run test:mutation -- S-21 "the undo is skipped" --workers 1
 */
import { spawn } from "node:child_process"
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { availableParallelism, tmpdir } from "node:os"
import { basename, join } from "node:path"
import { parseArgs } from "node:util"
import { read, readIfThere, root } from "../repository.mjs"
import { applied, mistakes, mutants, sourceOf, testsOf } from "./list.mjs"

/**
 * @typedef {import("./list.mjs").Mutant} Mutant
 * @typedef {{ readonly file: string, readonly name: string, readonly passed: boolean }} Ran
 * @typedef {{ readonly tests: ReadonlyArray<Ran>, readonly success: boolean } | "hung" | "broken"} Outcome
 * @typedef {"caught" | "survived" | "broken" | "untested"} Verdict
 */

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: "boolean", default: false },
    workers: { type: "string", default: String(availableParallelism()) },
    // Three times what the slowest tests need on a busy machine. A mutant that hangs is caught, too.
    limit: { type: "string", default: "300" }
  }
})
const workers = Number(values.workers)
const limit = Number(values.limit) * 1000

const chosen = mutants.filter(
  ({ name, promise }) =>
    positionals.length === 0 || positionals.includes(name) || positionals.includes(promise)
)
const wrong = [
  ...mistakes(mutants, read("docs/promises.md"), readIfThere),
  ...positionals
    .filter((word) => mutants.every(({ name, promise }) => word !== name && word !== promise))
    .map((word) => `${word}: is neither a mutant nor a promise that has one`),
  ...(Number.isInteger(workers) && workers > 0
    ? []
    : [`--workers ${values.workers}: takes a number from 1 on`]),
  ...(limit > 0 ? [] : [`--limit ${values.limit}: takes a number of seconds`])
]
for (const problem of wrong) console.error(problem)
if (wrong.length > 0) process.exit(2)

const folder = mkdtempSync(join(tmpdir(), "reclaim-mutation-"))
// Some tests run what is in here as an ordinary user.
chmodSync(folder, 0o755)
/** @type {Set<import("node:child_process").ChildProcess>} */
const running = new Set()

/** @param {import("node:child_process").ChildProcess} child */
const kill = ({ pid }) => {
  try {
    // The group: vitest has processes of its own, which have servers of theirs.
    if (pid !== undefined) process.kill(-pid, "SIGKILL")
  } catch {
    // It has ended.
  }
}
process.on("exit", () => {
  running.forEach(kill)
  rmSync(folder, { recursive: true, force: true })
})
for (const [signal, code] of /** @type {const} */ ([
  ["SIGINT", 130],
  ["SIGTERM", 143]
])) {
  process.on(signal, () => process.exit(code))
}

/** A copy of the repository, whose packages find each other and not the original. @param {number} index */
const makeCopy = (index) => {
  const copy = join(folder, String(index))
  const left = new Set([".git", "node_modules", "dist"])
  cpSync(root, copy, { recursive: true, filter: (path) => !left.has(basename(path)) })
  const modules = join(copy, "node_modules")
  mkdirSync(join(modules, "@reclaim"), { recursive: true })
  for (const name of readdirSync(join(root, "node_modules"))) {
    // Caches and links to commands begin with a dot.
    if (name.startsWith(".") || name === "@reclaim") continue
    symlinkSync(join(root, "node_modules", name), join(modules, name))
  }
  for (const name of readdirSync(join(copy, "packages"))) {
    symlinkSync(join(copy, "packages", name), join(modules, "@reclaim", name))
  }
  return copy
}

/**
 * Runs the tests of some files that name some promises.
 *
 * @param {string} copy
 * @param {ReadonlyArray<{ readonly project: string, readonly file: string }>} files
 * @param {ReadonlyArray<string>} promises
 * @param {{ readonly limit: number, readonly bail: number }} options
 * @returns {Promise<Outcome>}
 */
const runTests = (copy, files, promises, options) =>
  new Promise((resolve) => {
    const report = join(copy, "node_modules", "report.json")
    rmSync(report, { force: true })
    const projects = [...new Set(files.map(({ project }) => project))]
    const child = spawn(
      join(root, "node_modules/node/bin/node"),
      [
        join(copy, "node_modules/vitest/vitest.mjs"),
        "run",
        "--config=vitest.workspace.ts",
        ...projects.map((project) => `--project=${project}`),
        ...new Set(files.map(({ file }) => file)),
        `--testNamePattern=\\[(?:${promises.join("|")})\\]`,
        `--bail=${options.bail}`,
        // On a busy machine a test may fail once: what counts is what fails again.
        "--retry=1",
        "--reporter=json",
        `--outputFile=${report}`
      ],
      {
        cwd: copy,
        detached: true,
        stdio: "ignore",
        // These know no database, so none needs to be started for them.
        env: projects.every((project) => project === "core" || project === "fs")
          ? { ...process.env, RECLAIM_TEST_DATABASE_URL: "postgres://nobody.invalid/none" }
          : process.env
      }
    )
    running.add(child)
    let late = false
    const timer = setTimeout(() => {
      late = true
      kill(child)
    }, options.limit)
    child.on("close", (code) => {
      clearTimeout(timer)
      running.delete(child)
      kill(child)
      if (late) return resolve("hung")
      try {
        const { testResults } = JSON.parse(readFileSync(report, "utf8"))
        /** @type {ReadonlyArray<Ran>} */
        const tests = testResults.flatMap(
          (
            /** @type {{ name: string, assertionResults: ReadonlyArray<{ fullName: string, status: string }> }} */ file
          ) =>
            file.assertionResults
              .filter(({ status }) => status === "passed" || status === "failed")
              .map(({ fullName, status }) => ({
                file: file.name.slice(copy.length + 1),
                name: fullName,
                passed: status === "passed"
              }))
        )
        resolve(tests.length === 0 ? "broken" : { tests, success: code === 0 })
      } catch {
        resolve("broken")
      }
    })
  })

/** The tests that must catch a mutant, as they ran. @param {Mutant} mutant @param {ReadonlyArray<Ran>} ran */
const ofMutant = (mutant, ran) => {
  const files = new Set(testsOf(mutant).map(({ file }) => file))
  return ran.filter(({ file, name }) => files.has(file) && name.includes(`[${mutant.promise}]`))
}

/** @param {Outcome} outcome @returns {{ readonly verdict: Verdict, readonly by: string }} */
const judge = (outcome) => {
  if (outcome === "hung") return { verdict: "caught", by: `it hangs, for ${values.limit} s` }
  if (outcome === "broken") return { verdict: "broken", by: "no test gets as far as to run" }
  const failed = outcome.tests.find(({ passed }) => !passed)
  if (failed !== undefined) return { verdict: "caught", by: failed.name }
  return outcome.success
    ? { verdict: "survived", by: "" }
    : { verdict: "caught", by: "an error outside of tests" }
}

const copies = Array.from({ length: Math.min(workers, chosen.length) }, (_, index) => makeCopy(index))

/**
 * Runs each item with a copy that nobody else has.
 *
 * @template Item
 * @param {ReadonlyArray<Item>} items
 * @param {(copy: string, item: Item) => Promise<void>} work
 */
const withCopies = async (items, work) => {
  const queue = [...items]
  await Promise.all(
    copies.map(async (copy) => {
      for (let item = queue.shift(); item !== undefined; item = queue.shift()) await work(copy, item)
    })
  )
}

// Without any mutant first, all at once: what fails anyway catches nothing.
/** @type {Array<Ran>} */
const unbroken = []
const projects = [...new Set(chosen.flatMap((mutant) => testsOf(mutant).map(({ project }) => project)))]
await withCopies(projects, async (copy, project) => {
  const concerned = chosen.filter((mutant) => testsOf(mutant).some((test) => test.project === project))
  const files = concerned.flatMap(testsOf).filter((test) => test.project === project)
  const promises = [...new Set(concerned.map(({ promise }) => promise))]
  const outcome = await runTests(copy, files, promises, { limit: 60 * 60 * 1000, bail: 0 })
  if (typeof outcome !== "string") unbroken.push(...outcome.tests)
})

const widest = Math.max(...chosen.map(({ name }) => name.length))
/** @type {Record<Verdict, number>} */
const totals = { caught: 0, survived: 0, broken: 0, untested: 0 }
/** @param {Mutant} mutant @param {{ readonly verdict: Verdict, readonly by: string }} judgement */
const tell = ({ file, name, promise }, { by, verdict }) => {
  totals[verdict] += 1
  console.log(
    values.json
      ? JSON.stringify({ type: "mutant", promise, name, file, verdict, by })
      : `${promise}  ${name.padEnd(widest)}  ${verdict.padEnd(8)}  ${by}`.trimEnd()
  )
}

await withCopies(chosen, async (copy, mutant) => {
  const before = ofMutant(mutant, unbroken)
  const red = before.find(({ passed }) => !passed)
  if (red !== undefined) return tell(mutant, { verdict: "untested", by: `fails anyway: ${red.name}` })
  if (before.length === 0) return tell(mutant, { verdict: "untested", by: "no test ran" })
  const path = join(copy, sourceOf(mutant))
  const text = readFileSync(path, "utf8")
  writeFileSync(path, applied(mutant, text))
  const outcome = await runTests(copy, testsOf(mutant), [mutant.promise], { limit, bail: 1 })
  writeFileSync(path, text)
  tell(mutant, judge(outcome))
})

const { broken, caught, survived, untested } = totals
if (values.json) console.log(JSON.stringify({ type: "summary", ...totals }))
else {
  if (broken + untested > 0) console.log(`${broken} broken, ${untested} untested: mistakes in the list`)
  console.log(`${caught} caught, ${survived} survived`)
}
process.exitCode = caught === chosen.length ? 0 : 1
