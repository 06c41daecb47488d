import { describe, expect, it } from "@effect/vitest"
import { LockKey } from "../src/index.ts"
import { outsideInt4 } from "../src/internal/outsideInt4.ts"

const company = "0b1e3d5c-7a9f-4c2e-8d1b-6f3a5e7c9d20"

describe("LockKey", () => {
  it("[D-01] keys are a wire format: these literal values never change", () => {
    expect(LockKey.lockKey("company", company)).toBe(-1268334081885227542n)
    expect(LockKey.lockKey("trash", company)).toBe(-6345450636006584098n)
    expect(LockKey.lockKey("migrate", "reclaim")).toBe(-3824652628376153454n)
  })

  it("[D-01] the case of an id does not matter", () => {
    expect(LockKey.lockKey("company", company.toUpperCase())).toBe(LockKey.lockKey("company", company))
  })

  it("[D-01] a key in the range of hashtext moves out of it, any other stays", () => {
    expect(outsideInt4(5n)).toBe(5n + 2n ** 62n)
    expect(outsideInt4(0n)).toBe(2n ** 62n)
    expect(outsideInt4(2n ** 31n - 1n)).toBe(2n ** 62n + 2n ** 31n - 1n)
    expect(outsideInt4(2n ** 31n)).toBe(2n ** 31n)
    expect(outsideInt4(-1n)).toBe(-1n - 2n ** 62n)
    expect(outsideInt4(-(2n ** 31n))).toBe(-(2n ** 31n) - 2n ** 62n)
    expect(outsideInt4(-(2n ** 31n) - 1n)).toBe(-(2n ** 31n) - 1n)
    expect(outsideInt4(2n ** 63n - 1n)).toBe(2n ** 63n - 1n)
  })
})
