import * as Continuation from "../src/Continuation.ts"
import { int } from "./support/arbitraries.ts"
import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import { Base64Url } from "effect/encoding"

const company = "0123abcd-4567-89ab-cdef-0123456789ab"
const place = Continuation.Continuation.make({
  worker: "skill-versions",
  scope: company,
  position: `${company}/__versions__/${company}/.trash-${company}`
})

const refusal = (token: string, expected = place) => {
  const result = Continuation.decode(token, expected)
  assert(Result.isFailure(result), token)
  assert.instanceOf(result.failure, Continuation.InvalidContinuation)
  return result.failure.message
}

const characters = Array.from({ length: 128 }, (_, code) => String.fromCharCode(code)).concat(
  "é",
  "ａ",
  "\ud800"
)

describe("Continuation", () => {
  it.prop(
    "[C-08] a token leads back to its place, whatever the names on the way",
    { scope: Schema.String, position: Schema.String, worker: Schema.Literals(["skill-versions", "backups"]) },
    (fields) => {
      for (const position of [fields.position, `${fields.position}\ud800\u0000/é`]) {
        const continuation = Continuation.Continuation.make({ ...fields, position })
        const token = Continuation.encode(continuation)
        assert.match(token, /^[A-Za-z0-9._-]+$/, "it can be passed on a command line")
        assert.deepStrictEqual(Continuation.decode(token, continuation), Result.succeed(continuation))
      }
    }
  )

  it("[C-08] any single character changed, dropped or added is a typed error", () => {
    const token = Continuation.encode(place)
    for (let at = 0; at <= token.length; at++) {
      if (at < token.length) refusal(token.slice(0, at) + token.slice(at + 1))
      for (const character of characters) {
        refusal(token.slice(0, at) + character + token.slice(at))
        if (character !== token[at] && at < token.length) {
          refusal(token.slice(0, at) + character + token.slice(at + 1))
        }
      }
    }
  })

  it.prop(
    "[C-08] arbitrary text is a typed error",
    { text: Schema.String, length: int(0, 3) },
    ({ length, text }) => {
      refusal(text)
      refusal(`reclaim1.${text}.${"0".repeat(length)}`)
    }
  )

  it("[C-08] a token of another sweep, part or version is a typed error", () => {
    const token = Continuation.encode(place)
    const other = (fields: Partial<typeof place>) => Continuation.Continuation.make({ ...place, ...fields })
    assert.include(refusal(token, other({ worker: "backups" })), "another sweep")
    assert.include(refusal(token, other({ scope: "all" })), "another sweep")
    assert.include(refusal(token.replace("reclaim1", "reclaim2")), "another version")
    assert.include(refusal(""), "damaged")
  })

  it("[C-08] a well-formed token of the wrong shape is a typed error", () => {
    // A checksum proves that nothing was mistyped, not that the content is what this version writes.
    const forge = (json: string) => {
      const body = Base64Url.encode(json)
      let hash = 0x811c9dc5
      for (const character of body) hash = Math.imul(hash ^ character.charCodeAt(0), 0x01000193) >>> 0
      return `reclaim1.${body}.${hash.toString(16).padStart(8, "0")}`
    }
    assert.isTrue(Result.isSuccess(Continuation.decode(forge(JSON.stringify(place)), place)))
    for (const json of ["", "null", "{}", "[", JSON.stringify({ ...place, position: 7 }), '"text"']) {
      assert.include(refusal(forge(json)), "damaged")
    }
    assert.include(refusal(forge(JSON.stringify({ ...place, worker: "other" }))), "damaged")
  })
})
