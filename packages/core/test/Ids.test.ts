import * as Ids from "../src/Ids.ts"
import * as VersionName from "../src/VersionName.ts"
import { int, oneOf, union } from "./support/arbitraries.ts"
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Option, Schema } from "effect"

const id = "0123abcd-4567-89ab-cdef-0123456789ab"
const scope = "0123456789abcdef".repeat(4)

const hostile = [
  "",
  ".",
  "..",
  "/",
  "\0",
  " ",
  `../${id}`,
  `${id}/..`,
  `${id}/`,
  `/${id}`,
  `${id}\0`,
  `${id}\n`,
  `\n${id}`,
  ` ${id}`,
  `${id} `,
  `${id}\u200b`,
  id.toUpperCase(),
  ...["abcd", "89ab", "cdef", "0123456789ab"].map((group) => id.replace(group, group.toUpperCase())),
  id.replaceAll("-", ""),
  id.replace("0", "\uff10"),
  id.replace("a", "g"),
  id.slice(1),
  `${id}0`,
  `{${id}}`,
  `urn:uuid:${id}`,
  scope.toUpperCase(),
  scope.slice(1),
  `${scope}0`,
  `${scope}\n`,
  `..${scope.slice(2)}`,
  "__versions__",
  "__proto__"
]

const schemas = {
  company: Ids.CompanyId,
  skill: Ids.SkillId,
  version: Ids.VersionId,
  run: Ids.RunId,
  issue: Ids.IssueId,
  agent: Ids.AgentId,
  "test run": Ids.TestRunId
}

const hex = (length: number) =>
  Arbitrary.map(Arbitrary.array(int(0, 15), { minLength: length, maxLength: length }), (digits) =>
    digits.map((digit) => digit.toString(16)).join("")
  )
const uuid = Arbitrary.map(hex(32), (digits) =>
  [0, 8, 12, 16, 20].map((at, index) => digits.slice(at, [8, 12, 16, 20, 32][index])).join("-")
)

describe("Ids", () => {
  for (const [name, schema] of Object.entries(schemas)) {
    it(`[C-01] a ${name}'s id is a lower-case UUID and nothing else`, () => {
      assert.strictEqual(Schema.decodeSync(schema)(id), id)
      for (const text of [...hostile, scope, null, 7]) {
        assert.isTrue(Option.isNone(Schema.decodeUnknownOption(schema)(text)), JSON.stringify(text))
      }
    })
  }

  it("[C-01] a session scope is 64 lower-case hex digits and nothing else", () => {
    assert.strictEqual(Schema.decodeSync(Ids.ScopeId)(scope), scope)
    for (const text of [...hostile, id]) {
      assert.isTrue(Option.isNone(Schema.decodeOption(Ids.ScopeId)(text)), JSON.stringify(text))
    }
  })

  it("[C-01] a native session id is any text but the empty one", () => {
    assert.isTrue(Option.isSome(Schema.decodeOption(Ids.NativeSessionId)("ses_../1")))
    assert.isTrue(Option.isNone(Schema.decodeOption(Ids.NativeSessionId)("")))
  })

  it("[C-01] reads ids that people wrote without regard to case", () => {
    assert.deepStrictEqual(Ids.parse(Ids.VersionId, id.toUpperCase()), Option.some(id))
    assert.deepStrictEqual(Ids.parse(Ids.VersionId, `${id}/`), Option.none())
    // The Kelvin sign is lower-cased to a plain k, a dotted capital I to two characters: no id either way.
    assert.deepStrictEqual(Ids.parse(Ids.VersionId, id.replace("a", "\u212a")), Option.none())
    assert.deepStrictEqual(Ids.parse(Ids.VersionId, id.replace("a", "\u0130")), Option.none())
  })

  it.prop("[C-01] no id can be anything but one plain path segment", { text: Schema.String }, ({ text }) => {
    for (const schema of [...Object.values(schemas), Ids.ScopeId]) {
      assert.isTrue(Option.isNone(Schema.decodeOption(schema)(text)) || /^[0-9a-f-]+$/.test(text))
    }
  })
})

describe("VersionName", () => {
  it.prop(
    "[C-01] reads back every name that it writes",
    {
      name: Arbitrary.map(
        Arbitrary.all({
          kind: oneOf(["Copy", "Staging", "Evicting", "Replaced", "Trash"] as const),
          version: uuid,
          token: uuid
        }),
        ({ kind, token, version }): Exclude<VersionName.VersionName, { readonly _tag: "Unexpected" }> => {
          const versionId = Ids.VersionId.make(version)
          return kind === "Copy"
            ? { _tag: kind, versionId }
            : kind === "Trash"
              ? { _tag: kind, token }
              : { _tag: kind, versionId, token }
        }
      )
    },
    ({ name }) => {
      const text = VersionName.format(name)
      assert.match(text, /^[.a-z0-9-]+$/)
      assert.deepStrictEqual(VersionName.parse(text), name)
    }
  )

  it("[C-01] takes every other name inside __versions__ for unexpected", () => {
    const names = [
      ...hostile,
      ".trash-",
      ".trash",
      `.trash-${id}-${id}`,
      `.trash-${id.toUpperCase()}`,
      `.trash-${id}\n`,
      `.trash-../${id}`,
      `.staging-${id}`,
      `.staging-${id}-`,
      `.staging-${id}-${id}x`,
      `.staging--${id}`,
      `.evicting-${id}${id}`,
      `.replaced-${id}-..`,
      `.retiring-${id}`,
      `staging-${id}-${id}`,
      `..staging-${id}-${id}`,
      ".git",
      "lost+found"
    ]
    for (const name of names) {
      assert.deepStrictEqual(VersionName.parse(name), { _tag: "Unexpected" }, JSON.stringify(name))
    }
  })

  it("[C-01] has no name whose token could climb", () => {
    const decode = Schema.decodeUnknownOption(VersionName.VersionName)
    assert.isTrue(Option.isSome(decode({ _tag: "Trash", token: id })))
    for (const token of hostile) {
      assert.isTrue(Option.isNone(decode({ _tag: "Trash", token })), JSON.stringify(token))
      assert.isTrue(Option.isNone(decode({ _tag: "Staging", versionId: id, token })), JSON.stringify(token))
    }
  })

  it.prop(
    "[C-01] a name is either unexpected or exactly what it is read as",
    {
      text: union(
        Arbitrary.schema(Schema.String),
        Arbitrary.map(uuid, (token) => `.trash-${token}`)
      )
    },
    ({ text }) => {
      const name = VersionName.parse(text)
      assert.isTrue(name._tag === "Unexpected" || VersionName.format(name) === text)
    }
  )
})
