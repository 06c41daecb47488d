import * as RetentionPolicy from "../src/RetentionPolicy.ts"
import { VersionReason } from "../src/VersionReason.ts"
import {
  agentId,
  anyCase,
  type Case,
  clocks,
  free,
  grace,
  instant,
  int,
  keep,
  now,
  oneOf,
  pin,
  type Pin,
  pinKinds,
  proofs,
  recorded,
  runId,
  settings,
  testRunId,
  union,
  unknown,
  unknownKinds
} from "./support/arbitraries.ts"
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, DateTime, Duration, Effect, Option, Schema } from "effect"

type Decide = typeof RetentionPolicy.decide
type Facts = RetentionPolicy.VersionFacts

const tags = (decision: RetentionPolicy.Decision): ReadonlyArray<VersionReason["_tag"]> =>
  decision._tag === "Evict" ? [] : decision.reasons.map(({ _tag }) => _tag)

const retains = (decision: RetentionPolicy.Decision) => decision._tag === "Retain"

// Reasons that another may replace: those of a proof, which is not looked at once something else keeps the
// copy, and those of a rank and a last use, when these become unknown.
const replaceable = new Set<VersionReason["_tag"]>([
  "Differs",
  "NotRecoverable",
  "Unreadable",
  "Unexpected",
  "RecentlyUsed",
  "NewestKept"
])

/** A law that every implementation of `decide` must keep, with implementations that break it. */
interface Law<A> {
  readonly name: string
  readonly input: Arbitrary.Arbitrary<A>
  readonly holds: (decide: Decide) => (input: A) => boolean
  readonly mutants: Readonly<Record<string, Decide>>
}

const { decide } = RetentionPolicy

/** The real policy over facts that a mutant misread. */
const misreading =
  (change: (facts: Facts, now: RetentionPolicy.Now) => Partial<Facts>): Decide =>
  (facts, settings, now) =>
    decide({ ...facts, ...change(facts, now) }, settings, now)

const ifProvenRetains: Decide = (facts, settings, now) =>
  retains(decide(facts, settings, now)) || Option.isSome(facts.proof)
    ? {
        _tag: "Retain",
        reasons: [{ _tag: "Current" }]
      }
    : { _tag: "Evict" }

const law = <A>(options: Law<A>) => {
  it.prop(`[C-03] ${options.name}`, { input: options.input }, ({ input }) => options.holds(decide)(input), {
    arbitrary: { runs: 500 }
  })
  for (const [name, mutant] of Object.entries(options.mutants)) {
    it.effect(`[C-03] ${options.name}: refutes ${name}`, () =>
      Effect.gen(function* () {
        const result = yield* Arbitrary.checkEffect(options.input, options.holds(mutant), {
          runs: 2_000,
          seed: "mutants"
        })
        assert.strictEqual(result._tag, "Falsified")
      })
    )
  }
}

const withPin = (input: { readonly given: Case; readonly pin: Pin }) => input.pin.add(input.given.facts)

const keepsFor = (decide: Decide) => (input: { readonly given: Case; readonly pin: Pin }) => {
  const { facts, now, settings } = input.given
  const after = tags(decide(withPin(input), settings, now))
  return (
    after.includes(input.pin.reason) &&
    tags(decide(facts, settings, now)).every((tag) => after.includes(tag) || replaceable.has(tag))
  )
}

const twoUses = Arbitrary.flatMap(anyCase, (given) =>
  Arbitrary.map(Arbitrary.all({ one: instant(given), other: instant(given) }), (instants) => ({
    ...instants,
    given
  }))
)

describe("RetentionPolicy", () => {
  law({
    name: "a pin retains whatever else is known, and hides no other reason",
    input: Arbitrary.all({ given: anyCase, pin }),
    holds: keepsFor,
    mutants: {
      "a policy without current versions": misreading(() => ({ current: false })),
      "a policy without active runs": misreading(() => ({ activeRuns: [] })),
      "a policy without recovery": misreading(() => ({ unsettledRecovery: [] })),
      "a policy without agent pins": misreading(() => ({ agents: [] })),
      "a policy without test runs": misreading(() => ({ testRuns: [] })),
      "a policy without holds": misreading(() => ({ held: Option.none() })),
      "a policy in which a second run cancels the first": misreading(({ activeRuns }) => ({
        activeRuns: activeRuns.length === 2 ? [] : activeRuns
      })),
      "a policy that stops at the first reason": (facts, settings, now) => {
        const decision = decide(facts, settings, now)
        return decision._tag === "Evict"
          ? decision
          : { _tag: "Retain", reasons: [decision.reasons[decision.reasons.length - 1]!] }
      }
    }
  })

  law({
    name: "something unknown retains whatever else is known",
    input: Arbitrary.all({ given: anyCase, pin: unknown }),
    holds: keepsFor,
    mutants: {
      "a policy that takes an unknown selection for an empty one": misreading(() => ({
        selectionUnknown: []
      })),
      "a policy that takes unreadable agents for none": misreading(() => ({ agentsUnreadable: [] })),
      "a policy that looks past obstacles": misreading(() => ({ obstacles: [] })),
      "a policy that takes a missing record for an old one": misreading(({ lastUse }) => ({
        lastUse: lastUse._tag === "Absent" ? recorded(DateTime.makeUnsafe(0)) : lastUse
      })),
      "a policy that takes a missing row for an old version": misreading(({ rank }) => ({
        rank: Option.orElse(rank, () => Option.some(1_000))
      }))
    }
  })

  law({
    name: "a copy whose contents are not proven equal stays",
    input: Arbitrary.all({ given: anyCase, proof: int(1, proofs.length - 1) }),
    holds:
      (decide) =>
      ({ given, proof }) =>
        retains(decide({ ...given.facts, proof: proofs[proof]! }, given.settings, given.now)),
    mutants: {
      "a policy in which the unproven goes": misreading(({ proof }) => ({
        proof: Option.orElse(proof, () => proofs[0]!)
      })),
      "a policy in which an edited copy goes": misreading(({ proof }) => ({
        proof: Option.isSome(proof) && proof.value._tag === "Differs" ? proofs[0]! : proof
      })),
      "a policy in which an unusable snapshot proves": misreading(({ proof }) => ({
        proof: Option.isSome(proof) && proof.value._tag === "NotRecoverable" ? proofs[0]! : proof
      })),
      "a policy in which an obstructed comparison proves": misreading(({ proof }) => ({
        proof: Option.isSome(proof) && proof.value._tag === "Obstructed" ? proofs[0]! : proof
      }))
    }
  })

  law({
    name: "a newer use never makes a copy go",
    input: twoUses,
    holds:
      (decide) =>
      ({ given, one, other }) => {
        const at = (instant: DateTime.Utc) =>
          decide({ ...given.facts, lastUse: recorded(instant) }, given.settings, given.now)
        return !retains(at(DateTime.min(one, other))) || retains(at(DateTime.max(one, other)))
      },
    mutants: {
      "a policy that takes a record from the future for an old one": misreading(({ lastUse }, now) => ({
        lastUse:
          RetentionPolicy.effectiveLastUse(lastUse, now)._tag === "Absent"
            ? recorded(DateTime.makeUnsafe(0))
            : lastUse
      })),
      "a policy that measures how far away the use is": misreading(({ lastUse }, now) =>
        lastUse._tag === "Recorded" && DateTime.isGreaterThan(lastUse.at, now.database)
          ? {
              lastUse: recorded(
                DateTime.subtractDuration(now.database, DateTime.distance(now.database, lastUse.at))
              )
            }
          : {}
      )
    }
  })

  law({
    name: "keeping more versions never makes a copy go, and keeps exactly that many",
    input: Arbitrary.all({ given: anyCase, more: int(0, 3) }),
    holds:
      (decide) =>
      ({ given: { facts, now, settings }, more }) => {
        const less = decide(facts, settings, now)
        const raised = decide(facts, { ...settings, keep: settings.keep + more }, now)
        const kept = Option.exists(facts.rank, (rank) => rank < settings.keep)
        return (!retains(less) || retains(raised)) && tags(less).includes("NewestKept") === kept
      },
    mutants: {
      "a policy that keeps one too few": (facts, settings, now) =>
        decide(facts, { ...settings, keep: settings.keep - 1 }, now),
      "a policy that keeps one too many": (facts, settings, now) =>
        decide(facts, { ...settings, keep: settings.keep + 1 }, now),
      "a policy that forgets the setting from 4 on": (facts, settings, now) =>
        decide(facts, { ...settings, keep: settings.keep % 4 }, now)
    }
  })

  law({
    name: "a longer grace never makes a copy go",
    input: Arbitrary.all({
      given: anyCase,
      // The last two end outside the instants that can be named.
      other: union(grace, oneOf([Duration.days(1e9), Duration.infinity]))
    }),
    holds:
      (decide) =>
      ({ given: { facts, now, settings }, other }) => {
        const under = (grace: Duration.Duration) => decide(facts, { ...settings, grace }, now)
        const shorter = under(Duration.min(settings.grace, other))
        return !retains(shorter) || retains(under(Duration.max(settings.grace, other)))
      },
    mutants: {
      "a policy whose grace overflows": (facts, settings, now) =>
        decide(
          facts,
          {
            ...settings,
            grace: Duration.isGreaterThan(settings.grace, Duration.days(30)) ? Duration.zero : settings.grace
          },
          now
        )
    }
  })

  law({
    name: "without a pin, an old enough use and a proof always evict, and a younger use never does",
    input: Arbitrary.all({ settings, now, ago: union(int(-1, 1), int(-1_000, 1_000)) }),
    holds:
      (decide) =>
      ({ ago, now, settings }) => {
        const age = Duration.toMillis(settings.grace) + ago
        const earlier = Math.min(DateTime.toEpochMillis(now.database), DateTime.toEpochMillis(now.local))
        return retains(decide(free(DateTime.makeUnsafe(earlier - age)), settings, now)) === ago < 0
      },
    mutants: {
      "a policy with > for >= at the end of the grace": (facts, settings, now) =>
        decide(facts, { ...settings, grace: Duration.sum(settings.grace, Duration.millis(1)) }, now),
      "a policy whose grace ends early": (facts, settings, now) =>
        decide(facts, { ...settings, grace: Duration.subtract(settings.grace, Duration.millis(1)) }, now),
      "a policy on the local clock alone": (facts, settings, now) =>
        decide(facts, settings, { database: now.local, local: now.local }),
      "a policy on the database's clock alone": (facts, settings, now) =>
        decide(facts, settings, { database: now.database, local: now.database }),
      "a policy that keeps everything": () => ({ _tag: "Retain", reasons: [{ _tag: "Current" }] }),
      "a policy that evicts only what is not proven": ifProvenRetains
    }
  })

  it.prop(
    "[C-02] decides every case, with reasons that can be written down",
    {
      given: anyCase,
      grace: union(grace, Arbitrary.Constant(Duration.infinity)),
      at: int(-8.64e15, 8.64e15)
    },
    ({ at, given, grace }) => {
      for (const lastUse of [given.facts.lastUse, recorded(DateTime.makeUnsafe(at))]) {
        const decision = decide({ ...given.facts, lastUse }, { ...given.settings, grace }, given.now)
        if (decision._tag === "Evict") continue
        assert.isNotEmpty(decision.reasons)
        const written = Schema.encodeSync(Schema.Array(VersionReason))(decision.reasons)
        assert.deepStrictEqual(Schema.decodeSync(Schema.Array(VersionReason))(written), [...decision.reasons])
      }
    },
    { arbitrary: { runs: 500 } }
  )

  it.prop(
    "[C-02] returns exactly the reasons that hold",
    { pins: Arbitrary.array(union(pin, unknown), { maxLength: 12 }), keep },
    ({ keep, pins }) => {
      const facts = pins.reduce((facts, { add }) => add(facts), free(clocks(-7_200_000).database, 2))
      const expected = new Set(pins.map(({ reason }) => reason))
      if (Option.exists(facts.rank, (rank) => rank < keep)) expected.add("NewestKept")
      const found = tags(decide(facts, { keep, grace: Duration.hours(1) }, clocks(0)))
      assert.deepStrictEqual([...new Set(found)].toSorted(), [...expected].toSorted())
    },
    { arbitrary: { runs: 300 } }
  )

  it("[C-02] carries the details of every reason", () => {
    const at = clocks(-60_000).database
    const facts = [...Object.values(pinKinds), ...Object.values(unknownKinds)].reduce(
      (facts, kind) => kind(7).add(facts),
      free(at, 0)
    )
    const settings = { keep: 1, grace: Duration.hours(1) }
    const decision = decide({ ...facts, rank: Option.some(0), lastUse: recorded(at) }, settings, clocks(0))
    assert.deepStrictEqual(decision, {
      _tag: "Retain",
      reasons: [
        { _tag: "Unexpected", what: "a link", path: "7" },
        { _tag: "Unreadable", code: "EACCES", path: "7" },
        { _tag: "Current" },
        { _tag: "NewestKept" },
        { _tag: "ActiveRun", runIds: [runId(7)] },
        { _tag: "UnsettledRecovery", runIds: [runId(7)] },
        { _tag: "AgentPin", agentIds: [agentId(7)] },
        { _tag: "TestRun", testRunIds: [testRunId(7)] },
        { _tag: "SelectionUnknown", runIds: [runId(7)] },
        { _tag: "AgentPinsUnreadable", agentIds: [agentId(7)] },
        { _tag: "Held", by: "operator", note: "case 7" },
        { _tag: "RecentlyUsed", lastUsedAt: at, eligibleAt: clocks(3_540_000).database }
      ]
    })
  })

  it("[C-02] looks at contents only when nothing else keeps the copy", () => {
    const settings = { keep: 0, grace: Duration.hours(1) }
    const differs = { ...free(clocks(-7_200_000).database), proof: proofs[2]! }
    assert.deepStrictEqual(RetentionPolicy.reasonsBeforeProof(differs, settings, clocks(0)), [])
    assert.deepStrictEqual(tags(decide(differs, settings, clocks(0))), ["Differs"])
    assert.deepStrictEqual(tags(decide({ ...differs, current: true }, settings, clocks(0))), ["Current"])
  })

  it("[C-05] measures instants from files with the earlier of the two clocks", () => {
    const settings = { keep: 0, grace: Duration.hours(1) }
    const facts = free(clocks(-3_600_000).database)
    assert.isFalse(retains(decide(facts, settings, clocks(0))))
    assert.isFalse(retains(decide(facts, settings, clocks(0, 1))))
    assert.isTrue(retains(decide(facts, settings, clocks(0, -1))), "the local clock is behind")
    assert.isTrue(retains(decide(facts, settings, clocks(-1, 1_000))), "the database's clock is behind")
  })

  it("[C-05] takes a record more than 5 minutes in the future for absent", () => {
    const settings = { keep: 0, grace: Duration.zero }
    const decideAt = (ahead: number, drift = 0) =>
      tags(decide(free(clocks(ahead).database), settings, clocks(0, drift)))
    assert.deepStrictEqual(decideAt(300_000), ["RecentlyUsed"])
    assert.deepStrictEqual(decideAt(300_001), ["Observing"])
    // A clock that is behind does not make a record of another server one from the future.
    assert.deepStrictEqual(decideAt(300_001, 1), ["RecentlyUsed"])
    assert.deepStrictEqual(decideAt(300_001, -600_000), ["Observing"])
  })

  it("[S-15] keeps the newest of the database's versions, however old their copies are", () => {
    const old = DateTime.makeUnsafe(0)
    const kept = (keep: number) =>
      [0, 1, 2, 3].filter((rank) =>
        retains(decide(free(old, rank), { keep, grace: Duration.hours(1) }, clocks(0)))
      )
    assert.deepStrictEqual([0, 1, 2, 9].map(kept), [[], [0], [0, 1], [0, 1, 2, 3]])
  })

  it("[S-16] keeps a copy within the grace, and one without a record for a whole window", () => {
    const settings = { keep: 0, grace: Duration.hours(1) }
    const absent: Facts = { ...free(DateTime.makeUnsafe(0)), lastUse: { _tag: "Absent" } }
    assert.deepStrictEqual(decide(absent, settings, clocks(0)), {
      _tag: "Retain",
      reasons: [{ _tag: "Observing", eligibleAt: clocks(3_600_000).database }]
    })
    const observed: Facts = { ...absent, lastUse: recorded(clocks(0).database) }
    assert.deepStrictEqual(tags(decide(observed, settings, clocks(3_599_999))), ["RecentlyUsed"])
    assert.deepStrictEqual(decide(observed, settings, clocks(3_600_000)), { _tag: "Evict" })
  })
})
