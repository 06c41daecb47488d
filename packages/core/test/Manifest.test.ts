import * as Manifest from "../src/Manifest.ts"
import { int, oneOf } from "./support/arbitraries.ts"
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Result } from "effect"

const entry = (
  path: string | null,
  fields: Partial<Manifest.SnapshotEntry> = {}
): Manifest.SnapshotEntry => ({
  path,
  ordinal: 0,
  size: 1,
  sha256: "ab",
  executable: false,
  problem: null,
  ...fields
})

const whole = { root: null, caseInsensitive: false }
const folded = { root: null, caseInsensitive: true }

const paths = (
  entries: ReadonlyArray<Manifest.SnapshotEntry>,
  options = whole as Parameters<typeof Manifest.fromEntries>[1]
) => Result.map(Manifest.fromEntries(entries, options), (files) => files.map(({ path }) => path))

const refusal = (
  entries: ReadonlyArray<Manifest.SnapshotEntry>,
  options: Parameters<typeof Manifest.fromEntries>[1] = whole
) => {
  const result = Manifest.fromEntries(entries, options)
  assert(Result.isFailure(result), JSON.stringify(entries))
  assert.instanceOf(result.failure, Manifest.UnusableSnapshot)
  return result.failure.detail
}

describe("Manifest", () => {
  it("[S-01] keeps sizes, digests, bits and places", () => {
    const file = { path: "bin/run", ordinal: 4, size: 12, sha256: "cd", executable: true }
    assert.deepStrictEqual(Manifest.fromEntries([{ ...file, problem: null }], whole), Result.succeed([file]))
  })

  for (const path of [
    "",
    "/",
    "/etc/passwd",
    "..",
    "../x",
    "a/../b",
    "a/..",
    ".",
    "./a",
    "a/.",
    "a//b",
    "a/",
    "a\0b",
    "\0"
  ]) {
    it(`[S-01] refuses the path ${JSON.stringify(path)}`, () => {
      assert.include(refusal([entry("SKILL.md"), entry(path)]), "not a plain relative path")
    })
  }

  it("[S-01] takes names that only look dangerous", () => {
    const names = [
      "...",
      "..a",
      "a..",
      ".git/config",
      "a\\b",
      "C:",
      "-rf",
      " ",
      "a\nb",
      "é",
      "__proto__",
      "constructor"
    ]
    assert.deepStrictEqual(paths(names.map((name) => entry(name))), Result.succeed(names))
  })

  it("[S-01] refuses a path that repeats", () => {
    assert.include(refusal([entry("a"), entry("b"), entry("a")]), "collides")
  })

  it("[S-01] refuses a path that is a file here and a folder there, in either order", () => {
    for (const [one, other] of [
      ["a", "a/b"],
      ["a/b", "a/b/c/d"],
      ["constructor", "constructor/x"]
    ] as const) {
      assert.match(refusal([entry(one), entry(other)]), /collides|is a file/)
      assert.match(refusal([entry(other), entry(one)]), /collides|is a file/)
    }
  })

  for (const [one, other] of [
    ["README.md", "readme.MD"],
    ["Docs/a", "docs/A"],
    ["docs", "DOCS/a"],
    ["Docs/a", "docs"],
    ["\u00e9", "e\u0301"],
    ["\u00c9", "e\u0301"],
    ["stra\u00dfe", "STRASSE"],
    ["\u03b1\u03c2", "\u03b1\u03c3"],
    ["\u017f", "S"],
    ["\u212a", "k"],
    ["\u1e9e", "ss"],
    ["\u1fb4", "\u03b1\u0345\u0301"],
    ["\u0390", "\u03aa\u0301"]
  ] as const) {
    it(`[S-01] ${JSON.stringify(one)} and ${JSON.stringify(other)} collide where case does not count`, () => {
      assert.deepStrictEqual(paths([entry(one), entry(other)]), Result.succeed([one, other]))
      assert.match(refusal([entry(one), entry(other)], folded), /collides|is a file/)
      assert.match(refusal([entry(other), entry(one)], folded), /collides|is a file/)
    })
  }

  it("[S-01] shares folders, and keeps the case that the snapshot wrote", () => {
    const names = ["Docs/a", "Docs/b", "Docs/deep/c"]
    assert.deepStrictEqual(
      paths(
        names.map((name) => entry(name)),
        folded
      ),
      Result.succeed(names)
    )
  })

  for (const root of [null, "", "."]) {
    it(`[S-01] the root ${JSON.stringify(root)} is the whole snapshot`, () => {
      const options = { root, caseInsensitive: false }
      assert.deepStrictEqual(paths([entry("a"), entry("b/c")], options), Result.succeed(["a", "b/c"]))
    })
  }

  for (const root of ["/", "..", "a/..", "./a", "a/", "/a", "a\0"]) {
    it(`[S-01] refuses the root ${JSON.stringify(root)}`, () => {
      assert.include(refusal([entry("a/b")], { root, caseInsensitive: false }), "not a plain relative path")
    })
  }

  it("[S-01] counts only what lies under the root, and names it from there", () => {
    const options = { root: "skills/one", caseInsensitive: false }
    const elsewhere = [
      entry("README.md", { problem: "content is no text" }),
      entry("skills/one-more/SKILL.md"),
      entry("skills/One/SKILL.md"),
      entry("../outside"),
      entry("skills/two/../two/x"),
      entry("README.md")
    ]
    assert.deepStrictEqual(
      paths([...elsewhere, entry("skills/one/SKILL.md"), entry("skills/one/bin/run")], options),
      Result.succeed(["SKILL.md", "bin/run"])
    )
    assert.include(refusal(elsewhere, options), "no file")
  })

  for (const path of [
    "skills/one/../one/x",
    "./skills/one/x",
    "/skills/one/x",
    "skills//one/x",
    "skills/two/../one",
    "../skills/one/x"
  ]) {
    it(`[S-01] refuses ${JSON.stringify(path)}, which reaches into the root by another way`, () => {
      const options = { root: "skills/one", caseInsensitive: false }
      assert.include(refusal([entry("skills/one/SKILL.md"), entry(path)], options), "not a plain")
    })
  }

  it("[S-01] refuses entries that the database could not describe", () => {
    assert.include(refusal([entry("a", { problem: "invalid base64" })]), "a: invalid base64")
    assert.include(refusal([entry(null, { ordinal: 3 })]), "entry 3 has no path")
    for (const fields of [{ size: null }, { sha256: null }, { executable: null }]) {
      assert.include(refusal([entry("a", fields)]), "incomplete")
    }
  })

  it("[S-01] refuses a snapshot without files", () => {
    assert.include(refusal([]), "no file")
  })

  const segment = oneOf(["a", "A", "b", "..", ".", "", "a\0"])
  const anyPath = Arbitrary.map(Arbitrary.array(segment, { minLength: 1, maxLength: 4 }), (segments) =>
    segments.join("/")
  )

  it.prop(
    "[S-01] whatever is usable can be written below one folder without meeting itself",
    {
      entries: Arbitrary.array(
        Arbitrary.map(anyPath, (path) => entry(path)),
        { maxLength: 4 }
      ),
      fold: int(0, 1),
      root: oneOf([null, "a", "b/a"])
    },
    ({ entries, fold, root }) => {
      const caseInsensitive = fold === 1
      const result = paths(entries, { root, caseInsensitive })
      if (Result.isFailure(result)) return
      const names = result.success.map((path) => (caseInsensitive ? path.toLowerCase() : path))
      assert.strictEqual(new Set(names).size, names.length)
      for (const name of names) {
        assert.isTrue(
          name.split("/").every((segment) => !["", ".", ".."].includes(segment)),
          name
        )
        assert.isFalse(
          names.some((other) => other.startsWith(`${name}/`)),
          name
        )
      }
    },
    { arbitrary: { runs: 1_000 } }
  )
})
