import * as Leftover from "../src/Leftover.ts"
import { assert, describe, it } from "@effect/vitest"
import { Duration } from "effect"

const kinds = ["Staging", "Evicting", "Replaced", "Trash"] as const
const contents = ["unproven", "same", "partial", "differs", "unprovable"] as const

type Row = readonly [
  kind: Leftover.LeftoverFacts["kind"],
  age: number,
  nameTaken: boolean,
  contents: Leftover.Contents,
  action: string
]

const second = 1_000
const hour = 3_600_000
// Each side of every age at which an answer can change, for the graces below.
const ages = [
  -hour,
  -1,
  0,
  60 * second - 1,
  60 * second,
  hour - 1,
  hour,
  5 * hour - 1,
  5 * hour,
  10_000 * hour
]
const graces = [0, 60 * second, hour, 5 * hour]

const name = (action: Leftover.Action) => (action._tag === "Leave" ? `Leave ${action.why}` : action._tag)

/** The rules again, written as the table that an operator would read. */
const table = (grace: number): ReadonlyArray<Row> =>
  ages.flatMap((age) =>
    [false, true].flatMap((taken): ReadonlyArray<Row> => {
      const staging = age < Math.max(grace, hour) ? "Leave young" : "ToTrash"
      const evicting = (whenTaken: string) =>
        age < 60 * second ? "Leave young" : taken ? whenTaken : "MoveBack"
      return [
        ...contents.map((contents): Row => ["Trash", age, taken, contents, "Delete"]),
        ...contents.map((contents): Row => ["Staging", age, taken, contents, staging]),
        ["Evicting", age, taken, "unproven", evicting("Prove")],
        ["Evicting", age, taken, "same", evicting("ToTrash")],
        ["Evicting", age, taken, "partial", evicting("SetAside")],
        ["Evicting", age, taken, "differs", evicting("SetAside")],
        ["Evicting", age, taken, "unprovable", evicting("Leave unprovable")],
        ["Replaced", age, taken, "unproven", "Prove"],
        ["Replaced", age, taken, "same", "ToTrash"],
        ["Replaced", age, taken, "partial", "ToTrash"],
        ["Replaced", age, taken, "differs", "Leave altered"],
        ["Replaced", age, taken, "unprovable", "Leave unprovable"]
      ]
    })
  )

describe("Leftover", () => {
  for (const grace of graces) {
    it(`[C-09] settles every state, with a grace of ${grace / second} s`, () => {
      const rows = table(grace)
      assert.strictEqual(rows.length, kinds.length * contents.length * ages.length * 2)
      assert.strictEqual(new Set(rows.map((row) => row.slice(0, 4).join())).size, rows.length)
      for (const [kind, age, nameTaken, contents, expected] of rows) {
        const action = Leftover.settle(
          { kind, age: Duration.millis(age), nameTaken, contents },
          Duration.millis(grace)
        )
        assert.strictEqual(name(action), expected, `${kind} ${age} ms, taken ${nameTaken}, ${contents}`)
      }
    })
  }

  it("[S-02] a staging folder may be claimed at the longer of the grace and an hour", () => {
    assert.deepStrictEqual(
      [0, 1, 60, 300].map((minutes) => Duration.toMinutes(Leftover.stagingLimit(Duration.minutes(minutes)))),
      [60, 60, 60, 300]
    )
  })

  it("[C-09] never deletes what is not trash, and never loses what is not proven", () => {
    for (const [kind, age, nameTaken, contents] of table(hour)) {
      const action = name(
        Leftover.settle({ kind, age: Duration.millis(age), nameTaken, contents }, Duration.hours(1))
      )
      if (action === "Delete") assert.strictEqual(kind, "Trash")
      if (action === "MoveBack") assert.deepStrictEqual([kind, nameTaken], ["Evicting", false])
      if (action === "ToTrash" && kind !== "Staging") assert.include(["same", "partial"], contents)
    }
  })
})
