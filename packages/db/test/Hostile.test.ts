/** Rows that nobody meant: each spoils what it is about, and nothing beside it. */
import { expect, layer } from "@effect/vitest"
import type { Ids } from "@reclaim/core"
import { Arbitrary, Effect, Result, Schema, Stream } from "effect"
import { createHash } from "node:crypto"
import { SkillCatalog, SkillPins } from "../src/index.ts"
import { adopted } from "./support/database.ts"
import * as Make from "./support/fixtures.ts"

const int = (minimum: number, maximum: number) =>
  Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum, maximum })))
const oneOf = <A>(choices: ReadonlyArray<A>) =>
  Arbitrary.map(int(0, choices.length - 1), (index) => choices[index]!)
const union = <A>(...choices: ReadonlyArray<Arbitrary.Arbitrary<A>>) =>
  Arbitrary.flatMap(oneOf(choices), (choice) => choice)

/** JSON as PostgreSQL can hold it: without NUL and without half of a surrogate pair. */
const json: Arbitrary.Arbitrary<unknown> = Arbitrary.map(Arbitrary.schema(Schema.Json), (value): unknown =>
  JSON.parse(JSON.stringify(value).replace(/\\u(?:0000|d[89a-f][0-9a-f]{2})/gi, ""))
)

/** What each field of an entry can hold, besides any JSON at all. */
const fields: Record<string, ReadonlyArray<unknown>> = {
  path: ["a", "A", "a/b", "a/../../x", "/etc/passwd", "..", "", "a\nb", "C:\\x", "x".repeat(5000), null, 7],
  content: ["", "text", "####", "YQ", "YQ==", "_-8=", "Y Q=", null, 7, {}],
  encoding: ["base64", "utf8", "rot13", null, undefined, 7],
  executable: [true, false, "yes", null, undefined]
}

/** An entry that is good but for a field or two. */
const entry: Arbitrary.Arbitrary<unknown> = Arbitrary.map(
  Arbitrary.all({
    name: int(1, 5),
    spoiled: Arbitrary.array(
      Arbitrary.flatMap(oneOf(Object.entries(fields)), ([field, values]) =>
        Arbitrary.map(union<unknown>(json, oneOf(values), oneOf(values)), (value) => [field, value] as const)
      ),
      { maxLength: 2 }
    )
  }),
  ({ name, spoiled }) => ({ path: `f${name}`, content: "text", ...Object.fromEntries(spoiled) })
)

const inventory = union<unknown>(
  json,
  Arbitrary.array(entry, { maxLength: 4 }),
  Arbitrary.map(Arbitrary.array(union(entry, json), { maxLength: 3 }), (entries) => [
    { path: "SKILL.md", content: "good" },
    ...entries
  ])
)

const check = <A, E, R>(
  input: Arbitrary.Arbitrary<A>,
  property: (value: A) => Effect.Effect<unknown, E, R>,
  runs: number
) =>
  Effect.map(
    Arbitrary.checkEffect(input, (value) => Effect.as(property(value), true), { runs }),
    (result) => expect(Arbitrary.formatCheckFailure(result)).toBeUndefined()
  )

layer(adopted())("what nobody meant", (it) => {
  it.effect(
    "[S-01] [S-17] an inventory is usable with the contents that it tells, or its version alone is not",
    () =>
      check(
        Arbitrary.array(inventory, { minLength: 8, maxLength: 8 }),
        Effect.fnUntraced(function* (inventories) {
          const catalog = yield* SkillCatalog.SkillCatalog
          const { companyId } = yield* Make.company
          const skillId = yield* Make.skill(companyId)
          const ids: Array<Ids.VersionId> = []
          for (const [revision, files] of [...inventories, [{ path: "a", content: "good" }]].entries()) {
            ids.push(yield* Make.version({ companyId, skillId, revision, files }))
          }
          const found = yield* catalog.manifests(companyId, ids, { caseInsensitive: false })
          expect(found.size).toBe(ids.length)
          expect(Result.isSuccess(found.get(ids.at(-1)!)!)).toBe(true)
          for (const id of ids) {
            const manifest = found.get(id)!
            if (Result.isFailure(manifest)) {
              expect(manifest.failure.detail).not.toBe("")
              continue
            }
            const parts = yield* Stream.runCollect(catalog.contents(companyId, id, manifest.success))
            for (const { ordinal, path, sha256, size } of manifest.success) {
              expect(path.split("/").every((part) => !["", ".", ".."].includes(part))).toBe(true)
              const bytes = Buffer.concat(
                parts.flatMap((part) => (part.ordinal === ordinal ? [part.bytes] : []))
              )
              expect(bytes.length).toBe(size)
              expect(createHash("sha256").update(bytes).digest("hex")).toBe(sha256)
            }
          }
        }),
        40
      ),
    120_000
  )

  it.effect(
    "[S-14] [D-07] an agent's configuration names versions, names none, or keeps its company alone",
    () =>
      check(
        union<unknown>(
          json,
          Arbitrary.map(
            union<unknown>(
              json,
              Arbitrary.array(union<unknown>(json, oneOf([{ versionId: null }, "x", {}])))
            ),
            (desiredSkills) => ({ paperclipSkillSync: { desiredSkills } })
          )
        ),
        Effect.fnUntraced(function* (configuration) {
          const pins = yield* SkillPins.SkillPins
          const { companyId } = yield* Make.company
          const other = yield* Make.company
          const agentId = yield* Make.agent(companyId, configuration)
          const facts = yield* pins.facts([companyId, other.companyId])
          const its = facts.get(companyId)
          const named = [...(its?.agents.values() ?? [])].flat()
          for (const each of [...named, ...(its?.agentsUnreadable ?? [])]) expect(each).toBe(agentId)
          expect(facts.get(other.companyId)?.agentsUnreadable ?? []).toEqual([])
        }),
        100
      ),
    120_000
  )
})
