import { arrows, imports, violations } from "../scripts/imports.mjs"
import { mistakes, mutants } from "../scripts/mutation/list.mjs"
import { compare, listed, named } from "../scripts/promises.mjs"
import { dependencies, files, packages, read, readIfThere, sources } from "../scripts/repository.mjs"
import { assert, describe, it } from "@effect/vitest"

const problems = (path: string, text: string) =>
  violations([{ path, text }], dependencies())
    .filter(({ problem }) => !problem.startsWith("is listed for"))
    .map(({ line, problem }) => `${line}: ${problem}`)

describe("arrows between the packages", () => {
  it("the sources keep to them", () => {
    const found = violations(sources(), dependencies())
    assert.deepStrictEqual(
      found.map(({ line, path, problem }) => `${path}:${line}: ${problem}`),
      []
    )
  })

  it("every package has its row", () => {
    assert.deepStrictEqual(Object.keys(arrows).toSorted(), packages)
  })

  it("allow what they should", () => {
    for (const [path, text] of [
      ["packages/core/src/A.ts", 'import { Effect } from "effect"\nimport type { B } from "./internal/b.ts"'],
      ["packages/fs/src/internal/a.ts", 'import { Ids } from "@reclaim/core"\nexport * from "../B.ts"'],
      ["packages/db/src/A.ts", 'import { createHash } from "node:crypto"'],
      ["packages/runtime/src/A.ts", 'import { VersionStore } from "@reclaim/fs"\nimport "@reclaim/db"'],
      ["packages/runtime/src/testing.ts", 'export * from "@reclaim/fs/testing"'],
      ["packages/cli/src/A.ts", 'import { EmbeddedPostgres } from "@reclaim/postgres"'],
      ["packages/fs/src/PosixFileSystem.ts", 'import * as NodeFs from "node:fs"']
    ] as const) {
      assert.deepStrictEqual(problems(path, text), [], path)
    }
  })

  for (const [path, text, line, problem] of [
    ["packages/core/src/A.ts", 'import * as NodeFs from "node:fs"', 1, "core must not import node:fs"],
    ["packages/core/src/A.ts", 'import { join } from "node:path"', 1, "core must not import node:path"],
    ["packages/core/src/A.ts", 'import { PgClient } from "@effect/sql-pg"', 1, "core must not import"],
    ["packages/core/src/A.ts", 'import { X } from "@reclaim/fs"', 1, "core must not import @reclaim/fs"],
    ["packages/fs/src/A.ts", 'import { X } from "@reclaim/db"', 1, "fs must not import @reclaim/db"],
    ["packages/fs/src/A.ts", '\n\nexport * from "@reclaim/db/testing"', 3, "fs must not import"],
    ["packages/db/src/A.ts", 'import type {\n  X\n} from "@reclaim/fs"', 3, "db must not import @reclaim/fs"],
    ["packages/db/src/A.ts", 'import "@reclaim/fs"', 1, "db must not import @reclaim/fs"],
    ["packages/db/src/A.ts", 'const x = await import("@reclaim/fs")', 1, "db must not import @reclaim/fs"],
    ["packages/runtime/src/A.ts", 'import { X } from "@reclaim/postgres"', 1, "runtime must not import"],
    ["packages/runtime/src/A.ts", 'import { X } from "@reclaim/cli"', 1, "runtime must not import"],
    ["packages/runtime/src/A.ts", 'export { X } from "@reclaim/fs/testing"', 1, "only testing modules"],
    ["packages/runtime/src/A.ts", 'import { X } from "@reclaim/runtime"', 1, "runtime must not import"],
    ["packages/runtime/src/A.ts", 'import { X } from "../../fs/src/X.ts"', 1, "reaches outside"],
    ["packages/db/src/A.ts", 'import pg from "pg"', 1, "pg is not among the dependencies of db"],
    ["packages/other/src/A.ts", "", 1, "belongs to no known package"],
    ["packages/db/src/A.ts", 'import { readFileSync } from "node:fs"', 1, "node:fs"],
    ["packages/fs/src/VersionStore.ts", 'import { rm } from "node:fs/promises"', 1, "node:fs/promises"],
    ["packages/fs/src/A.ts", 'import { Worker } from "node:worker_threads"', 1, "node:worker_threads"],
    ["packages/runtime/src/A.ts", 'import { spawn } from "node:child_process"', 1, "node:child_process"],
    ["packages/runtime/src/A.ts", 'import process from "node:process"', 1, "node:process"],
    ["packages/runtime/src/A.ts", 'import { what } from "node:something-new"', 1, "node:something-new"],
    ["packages/runtime/src/A.ts", "\nconst home = process.env", 2, "uses process"],
    ["packages/runtime/src/A.ts", 'const home = process["env"]', 1, "uses process"],
    ["packages/runtime/src/A.ts", "const t = `${Date.now()}`", 1, "uses Date.now"],
    ["packages/runtime/src/A.ts", "setTimeout(() => 1, 5)", 1, "uses a timer"],
    ["packages/runtime/src/A.ts", "globalThis.setInterval(f, 5)", 1, "uses globalThis"],
    ["packages/runtime/src/A.ts", "setInterval(f, 5)", 1, "uses a timer"],
    ["packages/runtime/src/A.ts", "const r = Math.random()", 1, "uses Math.random"],
    ["packages/runtime/src/A.ts", "const f = async () => 1", 1, "uses async and await"],
    ["packages/runtime/src/A.ts", "const f = async function* () {}", 1, "uses async and await"],
    ["packages/runtime/src/A.ts", "const x = (await f())", 1, "uses async and await"],
    ["packages/runtime/src/A.ts", "const x = new Promise(f)", 1, "uses a promise"],
    ["packages/runtime/src/A.ts", "{\n  try {\n    f()\n  } finally {}\n}", 2, "uses try"],
    ["packages/runtime/src/A.ts", "} catch (cause) {", 1, "uses catch"]
  ] as const) {
    it(`refuse ${JSON.stringify(text)} in ${path}`, () => {
      const found = problems(path, text)
      assert.isTrue(
        found.some((one) => one.startsWith(`${line}: `) && one.includes(problem)),
        found.join("\n")
      )
    })
  }

  it("see through comments, strings, templates and expressions", () => {
    const text = [
      "/** Not `Date.now`, and no try { } catch (x). import { X } from '@reclaim/fs' */",
      '// import "node:fs"',
      'const a = "await process.env // not a comment"',
      "const b = `async ${a} /* not a comment */ process.env ${`${a} setTimeout(`}`",
      "const c = /\"'`process.env/.test(a)",
      "const d = a.process.env + b / 2 / 3",
      "const e = Effect.try({ try: f, catch: g })",
      "export const fromSource = e"
    ].join("\n")
    assert.deepStrictEqual(problems("packages/db/src/A.ts", text), [])
    assert.deepStrictEqual(problems("packages/db/src/A.ts", `${text}\nconst g = process.pid`), [
      "9: uses process, which is not its concern (process)"
    ])
  })

  it("find every kind of import", () => {
    const text = [
      'import a from "a"',
      'import * as b from "b"',
      'import type { c } from "c"',
      "import {",
      "  d,",
      "  type e",
      '} from "d"',
      'export * as f from "f"',
      'export { g } from "g"; import "h"',
      'const i = import("i")',
      'export const from = "nothing"'
    ].join("\n")
    assert.deepStrictEqual(
      imports(text).map(({ line, specifier }) => `${specifier}${line}`),
      ["a1", "b2", "c3", "d7", "f8", "g9", "h9", "i10"]
    )
  })

  it("refuse a wrapper that no longer wraps what it is listed for", () => {
    const found = violations([{ path: "packages/cli/src/A.ts", text: "" }], dependencies())
    assert.isTrue(found.some(({ problem }) => problem === "is listed for process, but does not use it"))
  })
})

describe("the page for operators", () => {
  const page = read("docs/operations.md")
  /** Every first capture of a pattern in the sources of a file. */
  const found = (path: string, pattern: RegExp) =>
    [...read(path).matchAll(pattern)].flatMap(([, name]) => (name === undefined ? [] : [name]))
  const unnamed = (names: ReadonlyArray<string>) => names.filter((name) => !page.includes(`\`${name}\``))

  it("explains every reason and every skip", () => {
    const reasons = ["VersionReason", "BackupReason"].flatMap((name) =>
      found(`packages/core/src/${name}.ts`, /^ {2}([A-Z][A-Za-z]+): \{/gm)
    )
    assert.isAtLeast(reasons.length, 35)
    assert.deepStrictEqual(unnamed(reasons), [])
  })

  it("lists every metric", () => {
    const metrics = sources().flatMap(({ path }) =>
      found(path, /"(reclaim\.(?:sweep|lock|trash)\.[a-z_.]+)"/g)
    )
    assert.isAtLeast(metrics.length, 14)
    assert.deepStrictEqual(unnamed(metrics), [])
    assert.deepStrictEqual(
      found("docs/operations.md", /^\| `(reclaim\.[a-z_.]+)`/gm).filter((name) => !metrics.includes(name)),
      []
    )
  })

  it("lists the settings that the README lists", () => {
    const settings = found("README.md", /^\| `(PAPERCLIP_[A-Z_]+)`/gm)
    assert.isAtLeast(settings.length, 8)
    assert.deepStrictEqual(unnamed(settings), [])
  })
})

describe("promises", () => {
  const document = read("docs/promises.md")
  const folders = [...packages.map((name) => `packages/${name}/test`), "test"]
  const tests = folders.flatMap((folder) =>
    files(folder, ".test.ts").map((path) => ({ path, text: read(path) }))
  )
  const { twice, unlisted, untested } = compare(document, tests)

  it("are listed once", () => {
    assert.isNotEmpty(listed(document))
    assert.deepStrictEqual(twice, [])
  })

  it("are each kept by a test that names them", () => {
    assert.deepStrictEqual(untested, [])
  })

  it("are listed when a test names them", () => {
    assert.deepStrictEqual(unlisted, [])
  })

  it("are found in titles, and only there", () => {
    // Put together, so that this file names no promise that does not exist.
    const id = (n: number) => `[X-0${n}]`
    const text = [
      `it("${id(1)} reads", () => {})`,
      "it(`" + id(2) + " " + id(3) + " ${reads}`, () => {})",
      `// it("${id(4)} once", () => {})`,
      `const list = ["x"] // ${id(5)}`,
      `assert.include(message, "see ${id(6)}")`
    ].join("\n")
    assert.deepStrictEqual(named(text), ["X-01", "X-02", "X-03"])
    const list = "- **X-01** One.\n- **X-07** Two.\n- **X-01** Again.\n- X-08 three"
    assert.deepStrictEqual(compare(list, [{ path: "a", text }]), {
      twice: ["X-01"],
      untested: ["X-07"],
      unlisted: ["a: X-02", "a: X-03"]
    })
  })
})

describe("mutants", () => {
  it("fit the sources and their tests, one at least for every promise about disk, copies, backups and database", () => {
    assert.isAtLeast(mutants.length, 60)
    assert.deepStrictEqual(mistakes(mutants, read("docs/promises.md"), readIfThere), [])
  })

  it("that do not fit are told", () => {
    const texts = new Map([
      ["packages/core/src/A.ts", "one two two"],
      ["packages/core/test/A.test.ts", 'it("[F-01] is kept", () => {})']
    ])
    const mutant = (name: string, changes: { readonly promise?: string; readonly find?: string }) => ({
      promise: "F-01",
      find: "one",
      ...changes,
      name,
      file: "core/A",
      replace: "three",
      tests: ["core/A"]
    })
    const list = [
      mutant("right", {}),
      mutant("gone", { find: "four" }),
      mutant("twice", { find: "two" }),
      mutant("idle", { find: "three" }),
      mutant("unpromised", { promise: "F-03" }),
      mutant("same", {}),
      mutant("same", {})
    ]
    const document = "- **F-01** One.\n- **B-02** Two.\n- **O-01** Nothing that a mutant breaks."
    assert.deepStrictEqual(
      mistakes(list, document, (path) => texts.get(path) ?? ""),
      [
        "gone: is found 0 times in packages/core/src/A.ts",
        "twice: is found 2 times in packages/core/src/A.ts",
        "idle: is found 0 times in packages/core/src/A.ts",
        "idle: changes nothing",
        "unpromised: breaks F-03, which nobody promised",
        "unpromised: is not tested by packages/core/test/A.test.ts",
        "same: has another's name",
        "same: has another's name",
        "B-02: has no mutant"
      ]
    )
  })
})
