/** Generates the facts that the policies decide on, dense around the places where an answer changes. */
import { AgentId, RunId, TestRunId } from "../../src/Ids.ts"
import type { LastUse, Now, Proof, VersionFacts } from "../../src/RetentionPolicy.ts"
import type { VersionReason } from "../../src/VersionReason.ts"
import { Arbitrary, DateTime, Duration, Option, Schema } from "effect"

export const int = (minimum: number, maximum: number): Arbitrary.Arbitrary<number> =>
  Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum, maximum })))

export const oneOf = <A>(choices: ReadonlyArray<A>): Arbitrary.Arbitrary<A> =>
  Arbitrary.map(int(0, choices.length - 1), (index) => choices[index]!)

export const union = <A>(...choices: ReadonlyArray<Arbitrary.Arbitrary<A>>): Arbitrary.Arbitrary<A> =>
  Arbitrary.flatMap(oneOf(choices), (choice) => choice)

const uuid = (n: number) => `00000000-0000-4000-8000-${n.toString(16).padStart(12, "0")}`
export const runId = (n: number): RunId => RunId.make(uuid(n))
export const agentId = (n: number): AgentId => AgentId.make(uuid(n))
export const testRunId = (n: number): TestRunId => TestRunId.make(uuid(n))

/** Something that keeps a copy whatever else is known about it. */
export interface Pin {
  readonly reason: VersionReason["_tag"]
  readonly add: (facts: VersionFacts) => VersionFacts
}

export const pinKinds: Readonly<Record<string, (n: number) => Pin>> = {
  current: () => ({ reason: "Current", add: (facts) => ({ ...facts, current: true }) }),
  activeRun: (n) => ({
    reason: "ActiveRun",
    add: (facts) => ({ ...facts, activeRuns: [...facts.activeRuns, runId(n)] })
  }),
  recovery: (n) => ({
    reason: "UnsettledRecovery",
    add: (facts) => ({ ...facts, unsettledRecovery: [...facts.unsettledRecovery, runId(n)] })
  }),
  agent: (n) => ({
    reason: "AgentPin",
    add: (facts) => ({ ...facts, agents: [...facts.agents, agentId(n)] })
  }),
  testRun: (n) => ({
    reason: "TestRun",
    add: (facts) => ({ ...facts, testRuns: [...facts.testRuns, testRunId(n)] })
  }),
  held: (n) => ({
    reason: "Held",
    add: (facts) => ({ ...facts, held: Option.some({ by: "operator", note: `case ${n}` }) })
  })
}

export const unknownKinds: Readonly<Record<string, (n: number) => Pin>> = {
  selection: (n) => ({
    reason: "SelectionUnknown",
    add: (facts) => ({ ...facts, selectionUnknown: [...facts.selectionUnknown, runId(n)] })
  }),
  agents: (n) => ({
    reason: "AgentPinsUnreadable",
    add: (facts) => ({ ...facts, agentsUnreadable: [...facts.agentsUnreadable, agentId(n)] })
  }),
  unexpected: (n) => ({
    reason: "Unexpected",
    add: (facts) => ({
      ...facts,
      obstacles: [...facts.obstacles, { _tag: "Unexpected", what: "a link", path: `${n}` }]
    })
  }),
  unreadable: (n) => ({
    reason: "Unreadable",
    add: (facts) => ({
      ...facts,
      obstacles: [...facts.obstacles, { _tag: "Unreadable", code: "EACCES", path: `${n}` }]
    })
  }),
  lastUse: () => ({ reason: "Observing", add: (facts) => ({ ...facts, lastUse: { _tag: "Absent" } }) }),
  row: () => ({ reason: "NotRecoverable", add: (facts) => ({ ...facts, rank: Option.none() }) })
}

const pinOf = (kinds: Readonly<Record<string, (n: number) => Pin>>) =>
  Arbitrary.flatMap(oneOf(Object.values(kinds)), (kind) => Arbitrary.map(int(1, 5), kind))

export const pin: Arbitrary.Arbitrary<Pin> = pinOf(pinKinds)
export const unknown: Arbitrary.Arbitrary<Pin> = pinOf(unknownKinds)

export const grace: Arbitrary.Arbitrary<Duration.Duration> = union(
  oneOf([Duration.zero, Duration.millis(1), Duration.minutes(5), Duration.hours(1), Duration.days(36_500)]),
  Arbitrary.map(int(0, 10_000_000), Duration.millis)
)

export const keep: Arbitrary.Arbitrary<number> = int(0, 4)

export interface Settings {
  readonly keep: number
  readonly grace: Duration.Duration
}
export const settings: Arbitrary.Arbitrary<Settings> = Arbitrary.all({ keep, grace })

const midday = Date.UTC(2026, 5, 1, 12)

/** Clocks that agree, or of which either one runs ahead of the other. */
export const now: Arbitrary.Arbitrary<Now> = Arbitrary.map(
  union(Arbitrary.Constant(0), int(-1_000_000, 1_000_000)),
  (drift) => ({ database: DateTime.makeUnsafe(midday), local: DateTime.makeUnsafe(midday + drift) })
)

export const clocks = (milliseconds: number, drift = 0): Now => ({
  database: DateTime.makeUnsafe(midday + milliseconds),
  local: DateTime.makeUnsafe(midday + milliseconds + drift)
})

export const proofs: ReadonlyArray<Option.Option<Proof>> = [
  Option.some({ _tag: "Same" }),
  Option.none(),
  Option.some({ _tag: "Differs", files: [{ path: "SKILL.md", problem: "content" }] }),
  Option.some({ _tag: "NotRecoverable", detail: "unusable snapshot" }),
  Option.some({ _tag: "Obstructed", obstacle: { _tag: "Unreadable", code: "EIO", path: "SKILL.md" } })
]

/** A copy that nothing keeps: not current, a row in the database, proven, used at `at`. */
export const free = (at: DateTime.Utc, rank = 1_000): VersionFacts => ({
  current: false,
  rank: Option.some(rank),
  activeRuns: [],
  unsettledRecovery: [],
  agents: [],
  testRuns: [],
  selectionUnknown: [],
  agentsUnreadable: [],
  held: Option.none(),
  lastUse: { _tag: "Recorded", at },
  obstacles: [],
  proof: Option.some({ _tag: "Same" })
})

/** An instant near one where an answer changes: a grace ago, now, or five minutes ahead. */
export const instant = (situation: {
  readonly settings: Settings
  readonly now: Now
}): Arbitrary.Arbitrary<DateTime.Utc> => {
  const { database, local } = situation.now
  const marks = [database, local].flatMap((clock) => {
    const at = DateTime.toEpochMillis(clock)
    return [at - Duration.toMillis(situation.settings.grace), at, at + 300_000]
  })
  return Arbitrary.map(
    Arbitrary.all({ mark: oneOf(marks), offset: union(int(-1, 1), int(-10_000_000, 10_000_000)) }),
    ({ mark, offset }) => DateTime.makeUnsafe(mark + offset)
  )
}

export interface Case {
  readonly settings: Settings
  readonly now: Now
  readonly facts: VersionFacts
}

/** Any copy at all; about a third of them may go. */
export const anyCase: Arbitrary.Arbitrary<Case> = Arbitrary.flatMap(
  Arbitrary.all({ settings, now }),
  (situation) =>
    Arbitrary.map(
      Arbitrary.all({
        at: instant(situation),
        rank: int(0, 6),
        proof: union(Arbitrary.Constant(proofs[0]!), oneOf(proofs)),
        pins: union(
          Arbitrary.Constant<ReadonlyArray<Pin>>([]),
          Arbitrary.array(union(pin, unknown), { maxLength: 3 })
        )
      }),
      ({ at, pins, proof, rank }) => ({
        ...situation,
        facts: pins.reduce<VersionFacts>((facts, { add }) => add(facts), { ...free(at, rank), proof })
      })
    )
)

export const recorded = (at: DateTime.Utc): LastUse => ({ _tag: "Recorded", at })
