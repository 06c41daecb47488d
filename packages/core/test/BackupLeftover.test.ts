import * as BackupLeftover from "../src/BackupLeftover.ts"
import { int, oneOf } from "./support/arbitraries.ts"
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, DateTime, Duration, Option } from "effect"

type Facts = BackupLeftover.ScopeFacts
type Backup = BackupLeftover.Backup

const at = (day: number) => Option.some(DateTime.makeUnsafe(day * 86_400_000))
const backup = (day: number | null, digests: BackupLeftover.Digests = "unverified"): Backup => ({
  completedAt: day === null ? Option.none() : at(day),
  digests
})
const named = (name: string, day: number | null, digests?: BackupLeftover.Digests) => ({
  ...backup(day, digests),
  name
})
const empty: Facts = {
  current: Option.none(),
  previous: Option.none(),
  retiring: [],
  expired: [],
  pending: [],
  runs: "none",
  held: false
}

const show = (action: BackupLeftover.Action) =>
  action._tag === "Leave"
    ? `Leave ${action.why}`
    : action._tag === "Verify"
      ? `Verify ${action.what}`
      : action._tag
const settle = (facts: Partial<Facts>) =>
  Object.fromEntries(
    BackupLeftover.settle({ ...empty, ...facts }).map(({ action, name }) => [name, show(action)])
  )

const digests = ["unverified", "verified", "failed"] as const
const runs = ["none", "unfinished", "unknown"] as const
const days = [null, 1, 2, 3] as const
const slots: ReadonlyArray<Option.Option<Backup>> = [
  Option.none(),
  ...days.flatMap((day) => digests.map((state) => Option.some(backup(day, state))))
]

/** How another backup compares with the leftover of day 2. */
const relation = (slot: Option.Option<Backup>) => {
  if (Option.isNone(slot)) return "missing"
  if (Option.isNone(slot.value.completedAt)) return "invalid"
  const day = DateTime.toEpochMillis(slot.value.completedAt.value) / 86_400_000
  return day > 2 ? "newer" : day === 2 ? "same" : "older"
}

/** The rules again, written as the table that an operator would read. */
const retiring = (current: Option.Option<Backup>, previous: Option.Option<Backup>, held: boolean) => {
  switch (relation(current)) {
    case "missing":
      return relation(previous) === "newer" ? "Leave previousNewer" : "Restore"
    case "invalid":
      return "Leave currentDamaged"
    case "same":
    case "older":
      return "Leave notOlder"
    case "newer": {
      if (held) return "Leave held"
      const state = Option.getOrThrow(current).digests
      return { unverified: "Verify current", verified: "ToExpired", failed: "Leave currentDamaged" }[state]
    }
  }
}

const each = (test: (facts: Pick<Facts, "current" | "previous" | "runs" | "held">) => void) => {
  for (const current of slots) {
    for (const previous of slots) {
      for (const state of runs) {
        for (const held of [false, true]) test({ current, previous, runs: state, held })
      }
    }
  }
}

const explain = ({ current, held, previous, runs }: Pick<Facts, "current" | "previous" | "runs" | "held">) =>
  `current ${relation(current)}, previous ${relation(previous)}, runs ${runs}, held ${held}`

/** What is really on disk; the facts know the digests only once they were compared. */
interface Disk {
  readonly facts: Facts
  readonly intact: ReadonlySet<string>
}

/** Does what `settle` says, as a sweep would, and then says what is there. */
const step = ({ facts, intact }: Disk): Facts => {
  const compared = (name: string): BackupLeftover.Digests => (intact.has(name) ? "verified" : "failed")
  let next = facts
  for (const { action, kind, name } of BackupLeftover.settle(facts)) {
    const found = [...facts.retiring, ...facts.expired].find((entry) => entry.name === name)
    const without = {
      ...next,
      retiring: next.retiring.filter((entry) => entry.name !== name),
      expired: next.expired.filter((entry) => entry.name !== name),
      pending: next.pending.filter((entry) => entry.name !== name)
    }
    switch (action._tag) {
      case "Restore":
        assert.isTrue(Option.isNone(next.current), "nothing is overwritten")
        next = { ...without, current: Option.some({ ...found!, digests: compared(name) }) }
        break
      case "ToExpired":
        next = { ...without, expired: [...without.expired, found ?? named(name, null)] }
        break
      case "Delete":
        assert.strictEqual(kind, "Expired")
        next = without
        break
      case "Verify":
        next =
          action.what === "current"
            ? {
                ...next,
                current: Option.map(next.current, (it) => ({ ...it, digests: compared("current") }))
              }
            : {
                ...next,
                expired: next.expired.map((it) =>
                  it.name === name ? { ...it, digests: compared(name) } : it
                )
              }
    }
  }
  return next
}

const anyDisk: Arbitrary.Arbitrary<Disk> = Arbitrary.map(
  Arbitrary.all({
    current: oneOf(slots),
    previous: oneOf(slots),
    retiring: Arbitrary.array(oneOf(days), { maxLength: 4 }),
    expired: Arbitrary.array(oneOf(days), { maxLength: 3 }),
    pending: Arbitrary.array(int(-1, 49), { maxLength: 2 }),
    runs: oneOf(runs),
    held: oneOf([false, false, true]),
    intact: Arbitrary.array(oneOf(["current", "r0", "r1", "r2", "r3", "e0", "e1", "e2"]), { maxLength: 8 })
  }),
  ({ current, expired, held, intact, pending, previous, retiring, runs }) => ({
    facts: {
      current: Option.map(current, (it) => ({ ...it, digests: "unverified" })),
      previous,
      retiring: retiring.map((day, index) => named(`r${index}`, day)),
      expired: expired.map((day, index) => named(`e${index}`, day)),
      pending: pending.map((hours, index) => ({ name: `p${index}`, age: Duration.hours(hours) })),
      runs,
      held
    },
    intact: new Set(intact)
  })
)

const kept = ({ current, previous, retiring }: Facts): ReadonlyArray<number> =>
  [...Option.toArray(current), ...Option.toArray(previous), ...retiring].flatMap(({ completedAt }) =>
    Option.toArray(completedAt).map(DateTime.toEpochMillis)
  )

describe("BackupLeftover", () => {
  it("[C-09] settles a retiring backup in every state of its scope", () => {
    each((scope) => {
      for (const state of digests) {
        const settled = settle({ ...scope, retiring: [named("r", 2, state), named("damaged", null, state)] })
        assert.deepStrictEqual(
          settled,
          { r: retiring(scope.current, scope.previous, scope.held), damaged: "Leave damaged" },
          explain(scope)
        )
      }
    })
  })

  it("[C-09] settles an expired backup in every state of its scope", () => {
    each((scope) => {
      for (const state of digests) {
        for (const day of [2, null]) {
          const alone = Option.isNone(scope.current) && Option.isNone(scope.previous)
          const back =
            !alone || day === null || state === "failed"
              ? "Leave runUnfinished"
              : state === "verified"
                ? "Restore"
                : "Verify itself"
          const expected = scope.held
            ? "Leave held"
            : { none: "Delete", unknown: "Leave runsUnknown", unfinished: back }[scope.runs]
          const settled = settle({ ...scope, expired: [named("e", day, state)] })
          assert.deepStrictEqual(settled, { e: expected }, explain(scope))
        }
      }
    })
  })

  it("[C-09] settles a pending backup in every state of its scope", () => {
    const day = Duration.hours(24)
    each((scope) => {
      for (const [age, old] of [
        [Duration.millis(-1), false],
        [Duration.zero, false],
        [Duration.subtract(day, Duration.millis(1)), false],
        [day, true],
        [Duration.days(3_650), true]
      ] as const) {
        const whenOld = scope.held
          ? "Leave held"
          : { none: "ToExpired", unknown: "Leave runsUnknown", unfinished: "Leave runUnfinished" }[scope.runs]
        const settled = settle({ ...scope, pending: [{ name: "p", age }] })
        assert.deepStrictEqual(settled, { p: old ? whenOld : "Leave young" }, explain(scope))
      }
    })
  })

  it("[B-09] makes the newest retiring backup with a valid manifest current, and only that one", () => {
    assert.deepStrictEqual(
      settle({ retiring: [named("a", 1), named("b", 3), named("c", 2), named("d", null)] }),
      { a: "Wait", b: "Restore", c: "Wait", d: "Leave damaged" }
    )
    assert.deepStrictEqual(settle({ retiring: [named("b", 1), named("c", 1), named("a", 1)] }), {
      a: "Wait",
      b: "Wait",
      c: "Restore"
    })
  })

  it("[B-08] brings an expired backup back for a run only where the scope has no other", () => {
    const scope: Partial<Facts> = { runs: "unfinished" }
    assert.deepStrictEqual(
      settle({ ...scope, retiring: [named("r", 1)], expired: [named("e", 2, "verified")] }),
      {
        r: "Restore",
        e: "Leave runUnfinished"
      }
    )
    assert.deepStrictEqual(
      settle({ ...scope, retiring: [named("r", null)], expired: [named("e", 2, "verified"), named("f", 1)] }),
      { r: "Leave damaged", e: "Restore", f: "Wait" }
    )
    assert.deepStrictEqual(settle({ ...scope, expired: [named("e", 2, "failed"), named("f", 1)] }), {
      e: "Leave runUnfinished",
      f: "Verify itself"
    })
  })

  it.prop(
    "[B-09] comes to rest in a few steps, without losing the newest backup",
    { disk: anyDisk },
    ({ disk }) => {
      const before = kept(disk.facts)
      let facts = disk.facts
      for (let steps = 0; steps < 12; steps++) facts = step({ ...disk, facts })
      for (const { action } of BackupLeftover.settle(facts)) {
        assert.strictEqual(action._tag, "Leave", "it is at rest")
      }
      if (before.length > 0) assert.include(kept(facts), Math.max(...before))
      if (Option.isNone(facts.current)) {
        // Nothing that could be current was left beside a scope without one, but for a newer previous.
        const valid = facts.retiring.filter(({ completedAt }) => Option.isSome(completedAt))
        assert.isTrue(valid.length === 0 || Option.isSome(facts.previous))
      }
      if (disk.facts.runs === "none" && !disk.facts.held) assert.deepStrictEqual(facts.expired, [])
      if (disk.facts.held) assert.strictEqual(facts.expired.length, disk.facts.expired.length)
    },
    { arbitrary: { runs: 1_000 } }
  )

  it.prop(
    "[B-09] drops a retiring backup only for a newer current whose digests verified",
    { disk: anyDisk, digests: oneOf(digests) },
    ({ digests, disk }) => {
      const current = Option.map(disk.facts.current, (it) => ({ ...it, digests }))
      for (const { action, kind, name } of BackupLeftover.settle({ ...disk.facts, current })) {
        if (kind !== "Retiring" || action._tag !== "ToExpired") continue
        const dropped = disk.facts.retiring.find((it) => it.name === name)!
        const kept = Option.getOrThrow(current)
        assert.strictEqual(kept.digests, "verified")
        assert.isTrue(
          DateTime.isGreaterThan(Option.getOrThrow(kept.completedAt), Option.getOrThrow(dropped.completedAt))
        )
      }
    },
    { arbitrary: { runs: 500 } }
  )
})
