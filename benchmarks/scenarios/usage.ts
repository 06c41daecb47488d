/** P-02: measures what copies take, against `du`. */
import { Trees } from "@reclaim/fs"
import { Array as Arr, Context, Effect, Layer } from "effect"
import * as Corpus from "../Corpus.ts"
import * as Harness from "../Harness.ts"
import * as System from "../System.ts"

/** Adds up the number at the start of each line. */
const sum = (lines: string): bigint =>
  lines.split("\n").reduce((total, line) => total + BigInt(/^\d+/.exec(line)?.[0] ?? "0"), 0n)

const outcome = (allocated: bigint, apparent: bigint) => `${allocated} bytes allocated, ${apparent} apparent`

const make = Effect.fnUntraced(function* (size: Harness.Size) {
  const workspace = yield* Harness.Workspace
  const context = yield* Layer.build(Trees.layer)
  const corpus = Corpus.make(size === "full" ? 2000 : 40)
  const root = yield* System.temporaryFolder(workspace.path)
  yield* Corpus.write(corpus, root)
  yield* Harness.settle(size, root)
  const paths = corpus.copies.map(Corpus.relativePath)
  // `du --apparent-size` counts folders in some versions and not in others; the sizes themselves do not vary.
  const apparent = sum(yield* System.command("find", [...paths, "-printf", "%s\\n"], { cwd: root }))

  const du = yield* Harness.side({
    name: "du -s",
    prepare: Effect.void,
    work: () => System.command("du", ["-s", "--block-size=1", "--", ...paths], { cwd: root }),
    verify: (_, lines) => Effect.succeed({ outcome: outcome(sum(lines), apparent) })
  })
  const trees = Context.get(context, Trees.Trees)
  const ours = yield* Harness.side({
    name: "Trees.usages",
    prepare: Effect.void,
    work: () => Effect.map(trees.usages(paths.map((path) => `${root}/${path}`)), Arr.getSuccesses),
    verify: (_, usages) =>
      Effect.succeed({
        outcome: outcome(
          usages.reduce((total, { allocatedBytes }) => total + allocatedBytes, 0n),
          usages.reduce((total, { apparentBytes }) => total + apparentBytes, 0n)
        )
      })
  })

  const contest: Harness.Contest = {
    amount: Corpus.amount(corpus),
    comparisons: [{ figure: Harness.time, ours, peer: du }]
  }
  return contest
}, Effect.orDie)

export const usage: Harness.Scenario = { id: "P-02", title: "measuring copies", make }
