import * as VersionReport from "../src/VersionReport.ts"
import { int, oneOf, union } from "./support/arbitraries.ts"
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Option, Schema } from "effect"

const count = int(0, 1_000_000)
const bytes = Arbitrary.map(
  Arbitrary.all([count, oneOf([0n, 1n, 2n ** 53n, 2n ** 64n])]),
  ([factor, unit]) => BigInt(factor) * unit
)
const free = union(Arbitrary.Constant(Option.none<bigint>()), Arbitrary.map(bytes, Option.some))
const skipped = Arbitrary.map(
  Arbitrary.array(
    Arbitrary.all([oneOf(["Current", "AgentPin", "CompanyBusy", "constructor", "__proto__"]), count]),
    { maxLength: 4 }
  ),
  (counts): Record<string, number> => Object.fromEntries(counts)
)

const report = Arbitrary.map(
  Arbitrary.all({
    considered: count,
    candidates: count,
    candidateAllocatedBytes: bytes,
    evicted: count,
    undone: count,
    reclaimedAllocatedBytes: bytes,
    trashFinished: count,
    trashWaiting: count,
    settled: count,
    healed: count,
    skipped,
    errors: count,
    durationMillis: count,
    freeBytesBefore: free,
    freeBytesAfter: free
  }),
  (fields) => VersionReport.VersionReport.make(fields)
)

describe("VersionReport", () => {
  const { combine, empty } = VersionReport

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

  it("[C-06] keeps the free space of the first batch and of the last", () => {
    const measured = (before: bigint, after: bigint) =>
      VersionReport.VersionReport.make({
        ...empty,
        freeBytesBefore: Option.some(before),
        freeBytesAfter: Option.some(after)
      })
    const pass = [measured(1n, 2n), empty, measured(3n, 4n), empty].reduce(combine)
    assert.deepStrictEqual([pass.freeBytesBefore, pass.freeBytesAfter], [Option.some(1n), Option.some(4n)])
  })

  it("[C-06] adds bytes beyond 2^53 exactly", () => {
    const odd = 2n ** 53n + 1n
    const one = VersionReport.VersionReport.make({ ...empty, reclaimedAllocatedBytes: odd })
    const total = Array.from({ length: 1_001 }, () => one).reduce(combine, empty)
    assert.strictEqual(total.reclaimedAllocatedBytes, 1_001n * odd)
  })

  it("[C-06] refuses figures that are negative or no whole numbers", () => {
    const decode = Schema.decodeUnknownOption(Schema.toType(VersionReport.VersionReport))
    assert.isTrue(Option.isSome(decode(VersionReport.VersionReport.make({ ...empty }))))
    for (const wrong of [
      { evicted: -1 },
      { evicted: 0.5 },
      { durationMillis: -1 },
      { durationMillis: 0.1 },
      { candidateAllocatedBytes: -1n },
      { freeBytesAfter: Option.some(-1n) },
      { skipped: { Current: -1 } }
    ]) {
      assert.throws(() => VersionReport.VersionReport.make({ ...empty, ...wrong }))
    }
  })
})
