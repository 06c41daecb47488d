import * as ControlPlaneState from "../src/ControlPlaneState.ts"
import { NativeSessionId } from "../src/Ids.ts"
import { oneOf, union } from "./support/arbitraries.ts"
import { runId, sessionId } from "./support/backups.ts"
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Result, Schema } from "effect"

const identity = (n: number, session: string = sessionId(1)) => ({
  runnerInstanceId: "runner",
  environmentLeaseId: "lease",
  runId: runId(n),
  normalizedSessionId: session,
  turnId: "turn",
  itemId: "item"
})

const transition = (oldRun: number, newRun: number, session?: string) => ({
  receipt: { oldIdentity: identity(oldRun, session), newIdentity: identity(newRun, session), nonce: 1 }
})

const valid = {
  schema: ControlPlaneState.schema,
  identity: identity(1),
  commands: [],
  committedEvents: [{}],
  leases: null
}

const decode = (value: unknown) => ControlPlaneState.decode(JSON.stringify(value))

describe("ControlPlaneState", () => {
  it("[B-06] reads the session and the run of a state file, whatever else it holds", () => {
    assert.deepStrictEqual(
      decode(valid),
      Result.succeed({ sessionId: sessionId(1), currentRunId: runId(1), runIds: [runId(1)] })
    )
  })

  it("[B-06] reads both identities of warm transitions", () => {
    const runIds = (value: object) => {
      const state = Result.getOrThrow(decode({ ...valid, ...value }))
      return [...state.runIds]
    }
    assert.deepStrictEqual(runIds({ warmTransition: transition(2, 3) }), [1, 2, 3].map(runId))
    assert.deepStrictEqual(runIds({ completedWarmTransition: transition(2, 1) }), [1, 2].map(runId))
    assert.deepStrictEqual(
      runIds({ warmTransition: transition(1, 3), completedWarmTransition: transition(4, 3) }),
      [1, 3, 4].map(runId)
    )
    assert.deepStrictEqual(runIds({ warmTransition: null }), [runId(1)])
  })

  it("[B-06] reads ids without regard to case", () => {
    const upper = { ...identity(0xabc, sessionId(1).toUpperCase()), runId: runId(0xabc).toUpperCase() }
    assert.deepStrictEqual(
      decode({ ...valid, identity: upper, warmTransition: transition(2, 3) }),
      Result.succeed({
        sessionId: sessionId(1),
        currentRunId: runId(0xabc),
        runIds: [runId(0xabc), runId(2), runId(3)]
      })
    )
    const odd = NativeSessionId.make("Session-A")
    assert.strictEqual(ControlPlaneState.canonicalSessionId(odd), odd)
  })

  it("[B-06] refuses what it does not understand, on one line", () => {
    const wrong: ReadonlyArray<object> = [
      { schema: "paperclip.runner.durable.control-plane-state.v2" },
      { schema: `${ControlPlaneState.schema}.warm-transition` },
      { schema: undefined },
      { identity: undefined },
      { identity: null },
      { identity: [] },
      { identity: { ...identity(1), runId: "run-1" } },
      { identity: { ...identity(1), runId: undefined } },
      { identity: { ...identity(1), normalizedSessionId: "" } },
      { identity: { ...identity(1), normalizedSessionId: 7 } },
      { warmTransition: {} },
      { warmTransition: false },
      { warmTransition: { receipt: null } },
      { completedWarmTransition: { receipt: { oldIdentity: identity(1) } } },
      { completedWarmTransition: { receipt: { ...transition(1, 2).receipt, newIdentity: { runId: 1 } } } },
      { warmTransition: transition(1, 2, sessionId(2)) },
      { completedWarmTransition: transition(1, 2, sessionId(2)) }
    ]
    const texts = [
      ...wrong.map((change) => JSON.stringify({ ...valid, ...change })),
      "",
      "null",
      "[]",
      "{",
      `${JSON.stringify(valid)}}`,
      `\ufeff${JSON.stringify(valid)}`,
      JSON.stringify([valid]),
      "[".repeat(100_000)
    ]
    for (const text of texts) {
      const state = ControlPlaneState.decode(text)
      if (Result.isSuccess(state)) return assert.fail(`took ${text.slice(0, 200)} for a state`)
      assert.strictEqual(state.failure._tag, "UnreadableState")
      assert.match(state.failure.detail, /^[^\n]+$/)
    }
  })

  it.prop(
    "[C-04] answers every text, and names only whole ids",
    {
      text: union(
        Arbitrary.schema(Schema.String),
        Arbitrary.map(Arbitrary.schema(Schema.Json), (json) => JSON.stringify(json)),
        Arbitrary.map(
          Arbitrary.all({
            at: oneOf(["schema", "identity", "warmTransition", "completedWarmTransition"]),
            json: Arbitrary.schema(Schema.Json)
          }),
          ({ at, json }) => JSON.stringify({ ...valid, [at]: json })
        ),
        Arbitrary.map(
          Arbitrary.all({
            at: oneOf(["runId", "normalizedSessionId"]),
            json: union<Schema.Json>(Arbitrary.schema(Schema.Json), oneOf([runId(7), sessionId(7), "s"]))
          }),
          ({ at, json }) => JSON.stringify({ ...valid, identity: { ...identity(1), [at]: json } })
        )
      )
    },
    ({ text }) => {
      const state = ControlPlaneState.decode(text)
      if (Result.isFailure(state)) return
      for (const id of state.success.runIds) assert.match(id, /^[0-9a-f-]{36}$/)
      assert.include(state.success.runIds, state.success.currentRunId)
      assert.isNotEmpty(state.success.sessionId)
    },
    { arbitrary: { runs: 500 } }
  )

  it("[B-06] reads state files of up to 4 MiB", () => {
    assert.strictEqual(ControlPlaneState.maxBytes, 4_194_304)
  })
})
