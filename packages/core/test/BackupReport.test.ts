import * as BackupReport from "../src/BackupReport.ts"
import { int, oneOf } from "./support/arbitraries.ts"
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary } from "effect"

const count = int(0, 1_000_000)
const bytes = Arbitrary.map(
  Arbitrary.all([count, oneOf([0n, 1n, 2n ** 53n, 2n ** 64n])]),
  ([factor, unit]) => BigInt(factor) * unit
)
const skipped = Arbitrary.map(
  Arbitrary.array(
    Arbitrary.all([oneOf(["IssueOpen", "RunAppeared", "RowsBusy", "constructor", "__proto__"]), count]),
    { maxLength: 4 }
  ),
  (counts): Record<string, number> => Object.fromEntries(counts)
)

const report = Arbitrary.map(
  Arbitrary.all({
    checked: count,
    candidates: count,
    candidateAllocatedBytes: bytes,
    expired: count,
    reclaimedAllocatedBytes: bytes,
    clearedTaskSessions: count,
    recovered: count,
    skipped,
    errors: count,
    durationMillis: count
  }),
  (fields) => BackupReport.BackupReport.make(fields)
)

describe("BackupReport", () => {
  const { combine, empty } = BackupReport

  it.prop("[C-06] the empty report changes nothing", { report }, ({ report }) => {
    assert.deepStrictEqual(combine(empty, report), report)
    assert.deepStrictEqual(combine(report, empty), report)
  })

  it.prop(
    "[C-06] the grouping of batches does not matter",
    { a: report, b: report, c: report },
    (reports) => {
      const { a, b, c } = reports
      assert.deepStrictEqual(combine(combine(a, b), c), combine(a, combine(b, c)))
    }
  )

  it.prop("[C-06] every figure is the sum of the batches' figures", { a: report, b: report }, ({ a, b }) => {
    const sum = combine(a, b)
    assert.deepStrictEqual(Object.keys(sum), Object.keys(empty))
    for (const [name, value] of Object.entries(sum)) {
      const [left, right]: ReadonlyArray<unknown> = [Reflect.get(a, name), Reflect.get(b, name)]
      if (typeof left === "number" && typeof right === "number") assert.strictEqual(value, left + right, name)
      if (typeof left === "bigint" && typeof right === "bigint") assert.strictEqual(value, left + right, name)
    }
    for (const reason of [...Object.keys(a.skipped), ...Object.keys(b.skipped)]) {
      const of = (counts: Readonly<Record<string, number>>) =>
        Object.hasOwn(counts, reason) ? counts[reason]! : 0
      assert.strictEqual(of(sum.skipped), of(a.skipped) + of(b.skipped), reason)
    }
  })

  it("[C-06] adds bytes beyond 2^53 exactly", () => {
    const odd = 2n ** 53n + 1n
    const one = BackupReport.BackupReport.make({ ...empty, reclaimedAllocatedBytes: odd })
    const total = Array.from({ length: 1_001 }, () => one).reduce(combine, empty)
    assert.strictEqual(total.reclaimedAllocatedBytes, 1_001n * odd)
  })

  it("[C-06] refuses figures that are negative or no whole numbers", () => {
    for (const wrong of [
      { checked: -1 },
      { expired: 0.5 },
      { durationMillis: 0.1 },
      { candidateAllocatedBytes: -1n },
      { reclaimedAllocatedBytes: -1n },
      { skipped: { IssueOpen: -1 } }
    ]) {
      assert.throws(() => BackupReport.BackupReport.make({ ...empty, ...wrong }))
    }
  })
})
