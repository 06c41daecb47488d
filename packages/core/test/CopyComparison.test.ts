import * as CopyComparison from "../src/CopyComparison.ts"
import type { Manifest } from "../src/Manifest.ts"
import { int } from "./support/arbitraries.ts"
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary } from "effect"

const manifest: Manifest = [
  { path: "SKILL.md", ordinal: 0, size: 3, sha256: "aa", executable: false },
  { path: "bin/run", ordinal: 1, size: 5, sha256: "bb", executable: true },
  { path: "docs/deep/note", ordinal: 2, size: 0, sha256: "cc", executable: false }
]

const entry = (
  path: string,
  kind: CopyComparison.EntryKind,
  fields: Partial<CopyComparison.DiskEntry> = {}
): CopyComparison.DiskEntry => ({
  path,
  shownPath: path,
  kind,
  size: 0n,
  executable: false,
  sha256: null,
  ...fields
})

const intact: ReadonlyArray<CopyComparison.DiskEntry> = [
  ...manifest.map(({ executable, path, sha256, size }) =>
    entry(path, "file", { size: BigInt(size), executable, sha256 })
  ),
  ...["bin", "docs", "docs/deep"].map((path) => entry(path, "directory", { size: 4_096n, executable: true }))
]

/** The intact copy with the entries of some paths replaced; null removes one. */
const changed = (changes: Readonly<Record<string, Partial<CopyComparison.DiskEntry> | null>>) =>
  intact.flatMap((present) => {
    const change = changes[present.shownPath]
    return change === null ? [] : [{ ...present, ...change }]
  })

const compare = (
  strictness: CopyComparison.Strictness,
  entries: ReadonlyArray<CopyComparison.DiskEntry>,
  expected = manifest
) => {
  const comparator = CopyComparison.make(expected, strictness)
  for (const entry of entries) comparator.add(entry)
  return comparator.finish()
}

const problems = (strictness: CopyComparison.Strictness, entries: ReadonlyArray<CopyComparison.DiskEntry>) =>
  compare(strictness, entries).problems.map(({ path, problem }) => `${problem} ${path}`)

const both = [
  ["S-17", "proof"],
  ["S-03", "serving"]
] as const

describe("CopyComparison", () => {
  for (const [id, strictness] of both) {
    it(`[${id}] an intact copy is the same (${strictness})`, () => {
      for (const order of [intact, intact.toReversed()]) {
        assert.deepStrictEqual(compare(strictness, order), {
          same: true,
          incomplete: false,
          problems: [],
          problemCount: 0,
          special: null
        })
      }
    })

    it(`[${id}] tells which file differs, and how (${strictness})`, () => {
      assert.deepStrictEqual(problems(strictness, changed({ "SKILL.md": null })), ["missing SKILL.md"])
      assert.deepStrictEqual(problems(strictness, [...intact, entry("x", "file")]), ["extra x"])
      assert.deepStrictEqual(problems(strictness, [...intact, entry("empty", "directory")]), ["extra empty"])
      assert.deepStrictEqual(problems(strictness, changed({ "SKILL.md": { size: 4n } })), ["size SKILL.md"])
      assert.deepStrictEqual(problems(strictness, changed({ "SKILL.md": { sha256: "ab" } })), [
        "content SKILL.md"
      ])
      assert.deepStrictEqual(problems(strictness, changed({ "SKILL.md": { kind: "directory" } })), [
        "kind SKILL.md"
      ])
      assert.deepStrictEqual(problems(strictness, changed({ bin: { kind: "file" }, "bin/run": null })), [
        "kind bin",
        "missing bin/run"
      ])
    })

    it(`[${id}] never takes a name that is not UTF-8 for one of the database's (${strictness})`, () => {
      const comparison = compare(strictness, changed({ "SKILL.md": { path: null } }))
      assert.isFalse(comparison.same)
      assert.isFalse(comparison.incomplete)
      assert.deepStrictEqual(comparison.problems, [
        { path: "SKILL.md", problem: "extra" },
        { path: "SKILL.md", problem: "missing" }
      ])
    })

    it(`[${id}] an executable bit that the database lacks is a difference (${strictness})`, () => {
      const more = changed({ "SKILL.md": { executable: true } })
      assert.deepStrictEqual(problems(strictness, more), ["executable SKILL.md"])
    })

    it(`[${id}] a copy that only lacks files is incomplete, not altered (${strictness})`, () => {
      const lacking = compare(strictness, changed({ "SKILL.md": null, "bin/run": null, bin: null }))
      assert.deepStrictEqual([lacking.same, lacking.incomplete], [false, true])
      const edited = compare(strictness, changed({ "SKILL.md": null, "bin/run": { sha256: "b0" } }))
      assert.deepStrictEqual([edited.same, edited.incomplete], [false, false])
    })

    it.prop(
      `[${id}] a copy with any entry left out, added twice or changed is not the same (${strictness})`,
      {
        at: int(0, manifest.length - 1),
        how: int(0, 4),
        order: Arbitrary.array(int(0, intact.length - 1), { maxLength: 6 })
      },
      ({ at, how, order }) => {
        const victim = intact[at]!
        const damage: ReadonlyArray<ReadonlyArray<CopyComparison.DiskEntry>> = [
          [],
          [victim, victim],
          [{ ...victim, size: victim.size + 1n }],
          [{ ...victim, sha256: `${victim.sha256}0` }],
          [{ ...victim, kind: "symlink" }]
        ]
        const rest = [...intact.filter((entry) => entry !== victim), ...damage[how]!]
        // Entries come in no particular order: move some to the front.
        for (const index of order) rest.unshift(...rest.splice(index % rest.length, 1))
        assert.isFalse(compare(strictness, rest).same)
      },
      { arbitrary: { runs: 300 } }
    )
  }

  it("[S-17] an executable bit that only the database has does not keep a copy", () => {
    assert.isTrue(compare("proof", changed({ "bin/run": { executable: false } })).same)
  })

  it("[S-17] contents that were not read prove nothing", () => {
    assert.deepStrictEqual(problems("proof", changed({ "bin/run": { sha256: null } })), ["content bin/run"])
  })

  it("[S-17] lists a bounded number of problems and counts all of them", () => {
    const extra = Array.from({ length: 250 }, (_, index) => entry(`extra-${index}`, "file"))
    const comparison = compare("proof", [...extra, ...intact])
    assert.deepStrictEqual([comparison.problems.length, comparison.problemCount], [100, 250])
    assert.isFalse(comparison.incomplete)
    const lacking = compare("proof", [entry("first", "file")], [...manifest])
    assert.isFalse(lacking.incomplete)
  })

  for (const kind of ["symlink", "fifo", "socket", "device"] as const) {
    it(`[S-18] a ${kind} is never the same, wherever it lies`, () => {
      for (const strictness of ["proof", "serving"] as const) {
        const file = compare(strictness, changed({ "SKILL.md": { kind } }))
        assert.deepStrictEqual(file.special, { kind, path: "SKILL.md" })
        assert.deepStrictEqual(file.problems, [{ path: "SKILL.md", problem: "kind" }])
        assert.isFalse(file.incomplete)
        assert.deepStrictEqual(problems(strictness, changed({ bin: { kind } })), ["kind bin"])
        assert.deepStrictEqual(problems(strictness, [...intact, entry("x", kind)]), ["extra x"])
      }
    })
  }

  it("[S-18] names the first thing that has no place in a copy", () => {
    const several = compare("proof", [entry("one", "fifo"), ...intact, entry("two", "symlink")])
    assert.deepStrictEqual(several.special, { kind: "fifo", path: "one" })
  })

  it("[S-03] an executable bit that is missing is a difference for a run", () => {
    assert.deepStrictEqual(problems("serving", changed({ "bin/run": { executable: false } })), [
      "executable bin/run"
    ])
  })

  it("[S-03] contents count only when they were read", () => {
    assert.isTrue(compare("serving", changed({ "bin/run": { sha256: null } })).same)
    assert.isFalse(compare("serving", changed({ "bin/run": { sha256: "b0" } })).same)
    assert.deepStrictEqual(problems("serving", changed({ "bin/run": { sha256: null, size: 6n } })), [
      "size bin/run"
    ])
  })
})
