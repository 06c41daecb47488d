/**
 * The commands of the model-based test and how they are drawn. Everything is named by number, modulo what there
 * is, so that a sequence stays meaningful whatever is cut out of it.
 */
import { Arbitrary, Schema } from "effect"

/** How closely a copy is looked at before a run may use it. */
type Verify = "shape" | "digest"

/** What a server does. It may be stopped at a point of its protocol. */
export type Operation =
  | {
      readonly _tag: "Prepare"
      readonly run: number
      readonly versions: ReadonlyArray<number>
      readonly verify: Verify
    }
  | { readonly _tag: "Restore"; readonly version: number; readonly verify: Verify }
  | { readonly _tag: "RestoreAll"; readonly skill: number }
  | { readonly _tag: "Release"; readonly run: number }
  | { readonly _tag: "Hold"; readonly version: number }
  | { readonly _tag: "Sweep"; readonly batchLimit: number }
  | { readonly _tag: "Capture"; readonly session: number }
  | { readonly _tag: "RestoreBackup"; readonly session: number }
  | { readonly _tag: "HoldScope"; readonly session: number }
  | { readonly _tag: "Expire" }

export const sessionEvents = [
  "close",
  "reopen",
  "follow",
  "finish",
  "unsettle",
  "settle",
  "lease",
  "unlease",
  "work",
  "rest",
  "cleanup",
  "cleaned",
  "unhold"
] as const

/** What the host, its users and its operators do without the library. */
export type Action =
  | {
      readonly _tag: "Advance"
      readonly by: "61 seconds" | "30 minutes" | "61 minutes" | "25 hours" | "8 days"
    }
  | { readonly _tag: "Publish"; readonly skill: number }
  | { readonly _tag: "SetCurrent"; readonly version: number }
  | { readonly _tag: "Rewrite"; readonly version: number; readonly to: "other" | "first" | "unusable" }
  | {
      readonly _tag: "Start"
      readonly run: number
      readonly status: "queued" | "running" | "resuming"
      readonly native: boolean
    }
  | {
      readonly _tag: "End"
      readonly run: number
      readonly status: "succeeded" | "failed"
      readonly finalization: "none" | "committed" | "recovering"
    }
  | { readonly _tag: "Retry"; readonly run: number }
  | { readonly _tag: "Select"; readonly company: number; readonly versions: ReadonlyArray<number> }
  | { readonly _tag: "Scramble"; readonly company: number }
  | { readonly _tag: "Unhold"; readonly version: number }
  | {
      readonly _tag: "Edit"
      readonly version: number
      readonly how: "same size" | "longer" | "missing" | "link" | "extra"
    }
  | { readonly _tag: "Lose"; readonly version: number }
  | {
      readonly _tag: "Plant"
      readonly version: number
      readonly where: "company" | "skill" | "name"
      readonly link: boolean
    }
  | { readonly _tag: "Open" }
  | { readonly _tag: "Session"; readonly session: number; readonly event: (typeof sessionEvents)[number] }

export type Simple =
  | { readonly _tag: "Do"; readonly server: number; readonly operation: Operation }
  | { readonly _tag: "Act"; readonly action: Action }

/** An operation that is stopped at a point, what happens meanwhile, and what becomes of it. */
export interface During {
  readonly _tag: "During"
  readonly server: number
  readonly operation: Operation
  readonly point: string
  readonly occurrence: number
  readonly meanwhile: ReadonlyArray<Simple>
  readonly ending: "go on" | "crash" | "interrupt" | "lose the lock" | "lose the lock and crash"
}

export type Command = Simple | During

const int = (minimum: number, maximum: number): Arbitrary.Arbitrary<number> =>
  Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum, maximum })))

// Drawing favours both ends of a range. Multiplied by a prime they lie anywhere, and 0 stays the simplest.
const spread = (count: number): Arbitrary.Arbitrary<number> =>
  Arbitrary.map(int(0, count * 64 - 1), (drawn) => (drawn * 7919) % count)

const oneOf = <const A>(...choices: ReadonlyArray<A>): Arbitrary.Arbitrary<A> =>
  Arbitrary.map(spread(choices.length), (index) => choices[index]!)

/** One of several, each as likely as its weight says. What comes first is the simplest. */
const weighted = <A>(
  ...choices: ReadonlyArray<readonly [weight: number, Arbitrary.Arbitrary<A>]>
): Arbitrary.Arbitrary<A> => {
  const total = choices.reduce((sum, [weight]) => sum + weight, 0)
  return Arbitrary.flatMap(spread(total), (drawn) => {
    let rest = drawn
    return choices.find(([weight]) => (rest -= weight) < 0)![1]
  })
}

const { Constant, all } = Arbitrary

const number = spread(31)
const verify = oneOf<Verify>("digest", "shape")
const few = Arbitrary.array(number, { minLength: 1, maxLength: 3 })

const preparing = weighted<Operation>(
  [4, all({ _tag: Constant("Prepare"), run: number, versions: few, verify })],
  [2, all({ _tag: Constant("Restore"), version: number, verify })],
  [3, all({ _tag: Constant("RestoreAll"), skill: number })]
)
const sweeping: Arbitrary.Arbitrary<Operation> = all({ _tag: Constant("Sweep"), batchLimit: oneOf(50, 2, 5) })
const capturing: Arbitrary.Arbitrary<Operation> = all({ _tag: Constant("Capture"), session: number })
const expiring = Constant<Operation>({ _tag: "Expire" })

const operation = weighted<Operation>(
  [10, preparing],
  [8, sweeping],
  [1, all({ _tag: Constant("Release"), run: number })],
  [3, all({ _tag: Constant("Hold"), version: number })],
  [1, capturing],
  [1, all({ _tag: Constant("RestoreBackup"), session: number })],
  [1, all({ _tag: Constant("HoldScope"), session: number })],
  [2, expiring]
)

const session: Arbitrary.Arbitrary<Action> = all({
  _tag: Constant("Session"),
  session: number,
  event: oneOf(...sessionEvents)
})

const action = weighted<Action>(
  [
    14,
    all({
      _tag: Constant("Advance"),
      by: oneOf("61 minutes", "61 minutes", "61 seconds", "30 minutes", "25 hours", "8 days")
    })
  ],
  [5, all({ _tag: Constant("Publish"), skill: number })],
  [3, all({ _tag: Constant("SetCurrent"), version: number })],
  [2, all({ _tag: Constant("Rewrite"), version: number, to: oneOf("first", "other", "unusable") })],
  [
    3,
    all({
      _tag: Constant("Start"),
      run: number,
      status: oneOf("queued", "running", "resuming"),
      native: oneOf(false, true)
    })
  ],
  [
    5,
    all({
      _tag: Constant("End"),
      run: number,
      status: oneOf("succeeded", "failed"),
      finalization: oneOf("committed", "none", "recovering")
    })
  ],
  [2, all({ _tag: Constant("Retry"), run: number })],
  [
    3,
    all({ _tag: Constant("Select"), company: number, versions: Arbitrary.array(number, { maxLength: 2 }) })
  ],
  [1, all({ _tag: Constant("Scramble"), company: number })],
  [2, all({ _tag: Constant("Unhold"), version: number })],
  [
    3,
    all({
      _tag: Constant("Edit"),
      version: number,
      how: oneOf("same size", "longer", "missing", "link", "extra")
    })
  ],
  [3, all({ _tag: Constant("Lose"), version: number })],
  [
    1,
    all({
      _tag: Constant("Plant"),
      version: number,
      where: oneOf("company", "skill", "name"),
      link: oneOf(false, true)
    })
  ],
  [5, Constant<Action>({ _tag: "Open" })],
  [3, session]
)

const simple = weighted<Simple>(
  [3, all({ _tag: Constant("Act"), action })],
  [2, all({ _tag: Constant("Do"), server: number, operation })]
)

/** What speaks for a copy all of a sudden. */
const saving = weighted<Simple>(
  [
    3,
    all({ _tag: Constant("Act"), action: all({ _tag: Constant("Select"), company: number, versions: few }) })
  ],
  [2, all({ _tag: Constant("Act"), action: all({ _tag: Constant("SetCurrent"), version: number }) })],
  [
    1,
    all({
      _tag: Constant("Act"),
      action: all({ _tag: Constant("Rewrite"), version: number, to: oneOf("other", "unusable") })
    })
  ],
  [
    3,
    all({
      _tag: Constant("Act"),
      action: all({ _tag: Constant("Edit"), version: number, how: oneOf("same size", "longer", "missing") })
    })
  ],
  [
    1,
    all({
      _tag: Constant("Act"),
      action: all({ _tag: Constant("Start"), run: number, status: oneOf("running"), native: oneOf(false) })
    })
  ],
  [1, all({ _tag: Constant("Do"), server: number, operation: preparing })]
)

/** What may make a difference while somebody stands still. */
const meanwhile = weighted<Simple>(
  [3, all({ _tag: Constant("Act"), action })],
  [4, saving],
  [1, all({ _tag: Constant("Do"), server: number, operation })]
)

const points = {
  preparing: [
    "transaction.afterLock",
    "transaction.beforeCommit",
    "transaction.afterCommit",
    "restore.afterFolder",
    "restore.afterFile",
    "restore.afterStaging",
    "restore.beforeShared",
    "restore.beforePublish",
    "restore.afterPublish",
    "access.afterTemp",
    "access.afterReplace",
    "restore.afterShared",
    "repair.beforeSetAside",
    "repair.afterSetAside",
    "repair.afterPublish"
  ],
  sweeping: [
    "evict.beforeLock",
    "evict.beforeFacts",
    "evict.afterFacts",
    "evict.beforeRename",
    "evict.afterRename",
    "evict.afterRename",
    "evict.afterSecondLook",
    "evict.afterRecord",
    "evict.beforeCommit",
    "transaction.afterLock",
    "transaction.beforeCommit",
    "transaction.afterCommit",
    "evict.afterCommit",
    "evict.beforeTrash",
    "trash.beforeRename",
    "trash.afterRename",
    "evict.afterTrash",
    "trash.betweenEntries",
    "settle.beforeLook",
    "settle.beforeMove",
    "settle.beforeMoveBack",
    "settle.afterMoveBack",
    "settle.afterMove",
    "sweep.afterObserve",
    "forget.beforePins",
    "restore.beforePublish",
    "restore.afterPublish"
  ],
  capturing: [
    "capture.afterFolder",
    "capture.afterSource",
    "capture.afterManifestTemp",
    "capture.afterManifest",
    "capture.beforeSwap",
    "capture.afterPreviousAside",
    "capture.afterCurrentAside",
    "capture.afterSwap",
    "capture.afterOldExpired",
    "capture.afterDelete"
  ],
  expiring: [
    "expiration.beforeLock",
    "expiration.afterLock",
    "expiration.afterTaskSessions",
    "retire.beforeRename",
    "retire.afterRename",
    "expiration.afterRetire",
    "expiration.beforeCommit",
    "transaction.beforeCommit",
    "expiration.afterCommit",
    "expiration.beforeFinalLook",
    "expiration.beforeConfirm",
    "expire.beforeRename",
    "expire.afterRename",
    "expiration.beforeLastLook",
    "expiration.beforeDeletion",
    "revive.beforeRename",
    "revive.afterRename",
    "drop.afterRename"
  ]
}

const anyEnding = oneOf<During["ending"]>(
  "go on",
  "crash",
  "crash",
  "interrupt",
  "crash",
  "lose the lock",
  "lose the lock and crash"
)

const pausing = (
  operation: Arbitrary.Arbitrary<Operation>,
  names: ReadonlyArray<string>,
  meanwhile: Arbitrary.Arbitrary<ReadonlyArray<Simple>>,
  ending = anyEnding
): Arbitrary.Arbitrary<Command> =>
  all({
    _tag: Constant("During"),
    server: number,
    operation,
    point: oneOf(...names),
    occurrence: oneOf(1, 1, 1, 2, 1, 3),
    meanwhile,
    ending
  })

const atMost3 = { maxLength: 3 }
const anything = Arbitrary.array(meanwhile, atMost3)
const aboutSessions = Arbitrary.array(
  weighted<Simple>([3, all({ _tag: Constant("Act"), action: session })], [1, simple]),
  atMost3
)

const command = weighted<Command>(
  [24, simple],
  [8, pausing(sweeping, points.sweeping, anything)],
  [8, pausing(preparing, points.preparing, anything)],
  [2, pausing(capturing, points.capturing, aboutSessions)],
  [3, pausing(expiring, points.expiring, aboutSessions)]
)

/** What leads to a copy that is leaving: all are there, and nobody has used one for an hour. */
const idle = (sweep: Arbitrary.Arbitrary<Command>): Arbitrary.Arbitrary<ReadonlyArray<Command>> =>
  Arbitrary.map(all([number, number, sweep]), ([server, skill, last]) => [
    { _tag: "Do", server, operation: { _tag: "RestoreAll", skill } },
    { _tag: "Act", action: { _tag: "Advance", by: "61 minutes" } },
    last
  ])

/** A copy that is leaving is needed again, before it is too late. */
const taken = pausing(
  sweeping,
  ["evict.beforeRename", "evict.afterRename", "evict.afterFacts", "evict.afterRename", "evict.afterCommit"],
  Arbitrary.array(saving, { minLength: 1, maxLength: 2 }),
  oneOf<During["ending"]>("go on", "go on", "interrupt", "lose the lock")
)

/** A backup that is leaving is needed again, before it is too late. */
const resumed: Arbitrary.Arbitrary<ReadonlyArray<Command>> = Arbitrary.map(
  pausing(
    expiring,
    [
      "expiration.beforeFinalLook",
      "expiration.afterCommit",
      "expiration.afterRetire",
      "expiration.beforeLock"
    ],
    Arbitrary.array(
      all({
        _tag: Constant("Act"),
        action: all({
          _tag: Constant("Session"),
          session: number,
          event: oneOf("follow", "reopen", "unsettle", "lease", "work", "cleanup")
        })
      }),
      { minLength: 1, maxLength: 2 }
    ),
    oneOf<During["ending"]>("go on", "go on", "interrupt", "crash")
  ),
  (last) => [
    { _tag: "Act", action: { _tag: "Open" } },
    { _tag: "Act", action: { _tag: "Advance", by: "8 days" } },
    last
  ]
)

/** What leads to a copy that is healed: an active run has it, and it is gone. */
const lost: Arbitrary.Arbitrary<ReadonlyArray<Command>> = Arbitrary.map(
  all([number, number, few]),
  ([server, run, versions]) => [
    { _tag: "Do", server, operation: { _tag: "Prepare", run, versions, verify: "shape" } },
    { _tag: "Act", action: { _tag: "Lose", version: 1 } },
    { _tag: "Do", server, operation: { _tag: "Sweep", batchLimit: 50 } }
  ]
)

/** A few commands that make sense one after the other, or one. */
export const phrase = weighted<ReadonlyArray<Command>>(
  [16, Arbitrary.map(command, (one) => [one])],
  [5, idle(pausing(sweeping, points.sweeping, anything))],
  [4, idle(taken)],
  [2, resumed],
  [1, lost]
)
