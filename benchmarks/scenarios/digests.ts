/** P-03: digests every file of many copies, against `sha256sum`. */
import { Trees } from "@reclaim/fs"
import { Context, Effect, Layer } from "effect"
import { createHash } from "node:crypto"
import * as Corpus from "../Corpus.ts"
import * as Harness from "../Harness.ts"
import * as System from "../System.ts"

const verdict = (lines: ReadonlyArray<string>): Harness.Verdict => ({
  outcome: `${lines.length} digests: ${createHash("sha256").update(lines.toSorted().join("\n")).digest("hex")}`
})

const make = Effect.fnUntraced(function* (size: Harness.Size) {
  const workspace = yield* Harness.Workspace
  const context = yield* Layer.build(Trees.layer)
  const corpus = Corpus.make(size === "full" ? 2000 : 40)
  const root = yield* System.temporaryFolder(workspace.path)
  yield* Corpus.write(corpus, root)
  yield* Harness.settle(size, root)

  const sha256sum = (name: string, xargs: string) =>
    Harness.side({
      name,
      prepare: Effect.void,
      work: () =>
        System.command("sh", ["-c", `find . -type f -print0 | xargs -0 ${xargs} sha256sum`], { cwd: root }),
      verify: (_, lines) => Effect.succeed(verdict(lines.trimEnd().split("\n")))
    })
  const one = yield* sha256sum("sha256sum", "")
  // 500: a few megabytes for each process, so that starting it does not count.
  const four = yield* sha256sum("xargs -P4 sha256sum", "-P4 -n500")
  const trees = Context.get(context, Trees.Trees)
  const scanAll = Effect.gen(function* () {
    const lines: Array<string> = []
    yield* Effect.forEach(
      corpus.copies,
      (copy) => {
        const folder = Corpus.relativePath(copy)
        return trees.scan(`${root}/${folder}`, {
          digests: true,
          onEntries: (entries) => {
            for (const { path, sha256 } of entries) {
              if (sha256 !== null) lines.push(`${sha256}  ./${folder}/${path}`)
            }
          }
        })
      },
      { concurrency: 4, discard: true }
    )
    return lines
  })
  const scan = yield* Harness.side({
    name: "Trees.scan, 4 at once",
    prepare: Effect.void,
    work: () => scanAll,
    verify: (_, lines) => Effect.succeed(verdict(lines))
  })

  const contest: Harness.Contest = {
    amount: Corpus.amount(corpus),
    comparisons: [
      { figure: Harness.time, ours: scan, peer: one },
      { figure: Harness.time, ours: scan, peer: four }
    ]
  }
  return contest
}, Effect.orDie)

export const digests: Harness.Scenario = { id: "P-03", title: "digesting files", make }
