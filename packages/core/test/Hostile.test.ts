/** Texts that nobody meant: whatever is not understood is told, and what is understood means one thing. */
import * as BackupManifest from "../src/BackupManifest.ts"
import * as Continuation from "../src/Continuation.ts"
import * as ControlPlaneState from "../src/ControlPlaneState.ts"
import * as VersionName from "../src/VersionName.ts"
import { int, oneOf, union } from "./support/arbitraries.ts"
import { runId, sessionId } from "./support/backups.ts"
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Result, Schema } from "effect"

const state = JSON.stringify({
  schema: ControlPlaneState.schema,
  identity: { runId: runId(1), normalizedSessionId: sessionId(1) },
  warmTransition: {
    receipt: {
      oldIdentity: { runId: runId(2), normalizedSessionId: sessionId(1) },
      newIdentity: { runId: runId(1), normalizedSessionId: sessionId(1) }
    }
  },
  commands: []
})
const manifest = JSON.stringify({
  schema: BackupManifest.schema,
  normalizedSessionId: sessionId(1),
  providerKind: "codex",
  directories: [{ name: "runner", sha256: `sha256:${"0".repeat(64)}`, bytes: 1 }],
  completedAt: "2026-11-30T12:00:00.000Z"
})
const token = Continuation.encode(
  Continuation.Continuation.make({ worker: "backups", scope: "all", position: "a" })
)
const leftover = `.evicting-${runId(1)}-${runId(2)}`

/** What breaks parsers that were written for files of one's own. */
const poison = [
  "",
  "\0",
  "\uFEFF",
  "\uD800",
  "\u202E",
  "\r\n",
  "null",
  "NaN",
  "1e999",
  "-0",
  "{}",
  "[]",
  '"',
  "\\",
  ",",
  '"__proto__":{"schema":"x"},',
  '"constructor":null,',
  '"completedAt":"+275760-09-13T00:00:00Z",',
  "9".repeat(400),
  "[".repeat(50_000),
  '{"a":'.repeat(50_000),
  "x".repeat(1_000_000)
]

/** A text, good to begin with, with parts cut out, doubled, or replaced by poison. */
const damaged = (good: string): Arbitrary.Arbitrary<string> =>
  Arbitrary.map(
    Arbitrary.array(
      Arbitrary.all({
        at: int(0, good.length),
        length: union(int(0, 3), int(0, good.length)),
        instead: union(oneOf(poison), Arbitrary.schema(Schema.String), oneOf([good]))
      }),
      { minLength: 1, maxLength: 3 }
    ),
    (edits) =>
      edits.reduce(
        (text, { at, instead, length }) => text.slice(0, at) + instead + text.slice(at + length),
        good
      )
  )

const hostile = (good: string) =>
  union(
    damaged(good),
    oneOf(poison),
    Arbitrary.schema(Schema.String),
    Arbitrary.map(Arbitrary.schema(Schema.Json), (json) => JSON.stringify(json))
  )

const isLine = (detail: string) => detail.length > 0 && detail.length < 2_000 && !/[\r\n]/.test(detail)

const options = { arbitrary: { runs: 500 } }

describe("what nobody meant", () => {
  it.prop(
    "[B-06] [D-07] a state file is understood, or unreadable with one line that says why",
    { text: hostile(state) },
    ({ text }) => {
      const decoded = ControlPlaneState.decode(text)
      if (Result.isFailure(decoded))
        return assert.isTrue(isLine(decoded.failure.detail), decoded.failure.detail)
      // What was understood says it itself, in one JSON document.
      const parsed: unknown = JSON.parse(text)
      const said = JSON.stringify(parsed).toLowerCase()
      assert.include(said, ControlPlaneState.schema)
      for (const id of decoded.success.runIds) assert.include(said, id)
    },
    options
  )

  it.prop(
    "[B-06] [D-07] a manifest is understood, or unreadable with one line that says why",
    { text: hostile(manifest) },
    ({ text }) => {
      const decoded = BackupManifest.decode(text)
      if (Result.isFailure(decoded))
        return assert.isTrue(isLine(decoded.failure.detail), decoded.failure.detail)
      for (const { bytes, name } of decoded.success.directories) {
        assert.match(name, /^[A-Za-z0-9][A-Za-z0-9._-]*$/)
        assert.isTrue(Number.isSafeInteger(bytes) && bytes >= 0)
      }
      const again = Result.flatMap(BackupManifest.encode(decoded.success), BackupManifest.decode)
      assert.deepStrictEqual(again, decoded)
    },
    options
  )

  it.prop(
    "[C-08] a continuation is the one that was given, or refused",
    { text: hostile(token) },
    ({ text }) => {
      const decoded = Continuation.decode(text, { worker: "backups", scope: "all" })
      if (Result.isSuccess(decoded)) assert.strictEqual(Continuation.encode(decoded.success), text)
    },
    options
  )

  it.prop(
    "[S-18] a name is one of ours exactly when formatting it gives the name again",
    { text: union(hostile(leftover), hostile(runId(1))) },
    ({ text }) => {
      const parsed = VersionName.parse(text)
      if (parsed._tag !== "Unexpected") assert.strictEqual(VersionName.format(parsed), text)
    },
    options
  )
})
