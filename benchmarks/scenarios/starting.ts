/** P-12: starts a host with nothing to clean, against importing the same packages. */
import { TestDatabase } from "@reclaim/postgres/testing"
import { Context, Effect } from "effect"
import { fileURLToPath } from "node:url"
import * as Harness from "../Harness.ts"
import * as Instance from "../Instance.ts"
import * as System from "../System.ts"

/** In the order in which the process prints them. */
const figures: ReadonlyArray<Harness.Figure> = [
  { name: "time after imports", unit: "milliseconds" },
  { name: "processor after imports", unit: "milliseconds" },
  { name: "resident set", unit: "bytes" }
]

const script = fileURLToPath(new URL("../peers/startHost.ts", import.meta.url))

const make = Effect.gen(function* () {
  const { context, skills } = yield* Instance.make
  const { url } = Context.get(context, TestDatabase.TestDatabase)
  yield* System.command("mkdir", ["-p", skills])
  const side = (name: string, which: string) =>
    Harness.side({
      name,
      prepare: Effect.void,
      work: () =>
        System.command(process.execPath, [
          ...process.execArgv,
          script,
          which,
          url,
          skills.slice(0, skills.lastIndexOf("/"))
        ]),
      verify: (_, printed) => {
        const values = printed.split(" ").map(Number)
        return Effect.succeed({
          outcome: "started",
          figures: Object.fromEntries(figures.map(({ name }, index) => [name, values[index] ?? Number.NaN]))
        })
      }
    })
  const bare = yield* side("import, connect", "bare")
  const composed = yield* side("host", "composed")
  const contest: Harness.Contest = {
    amount: "a new process",
    comparisons: [Harness.time, ...figures].map((figure) => ({ figure, ours: composed, peer: bare }))
  }
  return contest
}).pipe(Effect.orDie)

export const starting: Harness.Scenario = { id: "P-12", title: "starting a host", make: () => make }
