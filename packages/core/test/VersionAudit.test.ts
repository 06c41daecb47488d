import * as CopyComparison from "../src/CopyComparison.ts"
import * as VersionAudit from "../src/VersionAudit.ts"
import { assert, describe, it } from "@effect/vitest"
import { Option } from "effect"

const same: CopyComparison.CopyComparison = {
  same: true,
  incomplete: false,
  problems: [],
  problemCount: 0,
  special: null
}
const missing = { path: "SKILL.md", problem: "missing" } as const
const extra = { path: "pipe", problem: "extra" } as const

describe("VersionAudit", () => {
  const cases: ReadonlyArray<
    readonly [name: string, CopyComparison.CopyComparison, expected: VersionAudit.Verdict]
  > = [
    ["the same", same, { status: "intact", files: [], problemCount: 0, reason: Option.none() }],
    [
      "without some files",
      { ...same, same: false, incomplete: true, problems: [missing], problemCount: 1 },
      { status: "incomplete", files: [missing], problemCount: 1, reason: Option.none() }
    ],
    [
      "with other files, more than are listed",
      { ...same, same: false, problems: [extra], problemCount: 101 },
      { status: "altered", files: [extra], problemCount: 101, reason: Option.none() }
    ],
    [
      "with a FIFO",
      {
        ...same,
        same: false,
        problems: [extra],
        problemCount: 1,
        special: { kind: "fifo", path: "pipe" }
      },
      {
        status: "unexpected",
        files: [extra],
        problemCount: 1,
        reason: Option.some({ _tag: "Unexpected", what: "fifo", path: "pipe" })
      }
    ]
  ]
  for (const [name, comparison, expected] of cases) {
    it(`[S-27] a copy that is ${name} is ${expected.status}`, () => {
      assert.deepStrictEqual(VersionAudit.fromComparison(comparison), expected)
    })
  }

  for (const [reason, status] of [
    [{ _tag: "Unexpected", what: "a link", path: "/x" }, "unexpected"],
    [{ _tag: "Unreadable", code: "EACCES", path: "/x" }, "unprovable"],
    [{ _tag: "NotRecoverable", detail: "no row" }, "unprovable"],
    [{ _tag: "CompanyBusy" }, "unprovable"],
    [{ _tag: "LockLost" }, "unprovable"],
    [{ _tag: "ChangedMeanwhile", what: "the contents" }, "unprovable"]
  ] as const) {
    it(`[S-27] what could not be compared for ${reason._tag} is ${status}`, () => {
      assert.deepStrictEqual(VersionAudit.fromReason(reason), {
        status,
        files: [],
        problemCount: 0,
        reason: Option.some(reason)
      })
    })
  }

  it("[S-27] only what is missing, altered or incomplete may be repaired", () => {
    const repairable = VersionAudit.Status.literals.filter((status) =>
      VersionAudit.isRepairable({ ...VersionAudit.missing, status })
    )
    assert.deepStrictEqual(repairable, ["missing", "altered", "incomplete"])
  })
})
