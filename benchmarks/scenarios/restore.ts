/** P-09: restores copies from the database, against copying the same files. */
import { Ids } from "@reclaim/core"
import { SkillVersionCache } from "@reclaim/runtime"
import { Effect } from "effect"
import { createHash } from "node:crypto"
import * as Corpus from "../Corpus.ts"
import * as Harness from "../Harness.ts"
import * as Instance from "../Instance.ts"
import * as System from "../System.ts"

/** Every file with its mode and digest. */
const picture = `
  find . -type f -printf '%P %m\\n' | sort
  find . -type f -print0 | sort -z | xargs -0 sha256sum`

const make = Effect.fnUntraced(function* (size: Harness.Size) {
  const workspace = yield* Harness.Workspace
  const { context, skills } = yield* Instance.make
  const corpus = Corpus.make(size === "full" ? 500 : 20)
  const source = yield* System.temporaryFolder(workspace.path)
  yield* Corpus.write(corpus, source)
  yield* Effect.provideContext(Corpus.insert(corpus), context)

  const empty = Effect.acquireRelease(
    Effect.andThen(System.command("mkdir", ["-p", skills]), Harness.settle(size, skills)),
    () => Effect.ignore(System.command("rm", ["-rf", "--", skills]))
  )
  const side = <E, R>(name: string, work: () => Effect.Effect<unknown, E, R>) =>
    Harness.side({
      name,
      prepare: empty,
      work,
      verify: () =>
        Effect.orDie(
          Effect.map(
            System.command("sh", ["-c", picture], { cwd: `${skills}/${corpus.companyId}/__versions__` }),
            (lines) => ({
              outcome: `${lines.split("\n").length} lines: ${createHash("sha256").update(lines).digest("hex")}`
            })
          )
        )
    })

  const copy = yield* side("cp -r", () => System.command("cp", ["-r", `${source}/.`, skills]))
  const prepare = yield* side(
    "prepare",
    Effect.fnUntraced(function* () {
      const cache = yield* SkillVersionCache.SkillVersionCache
      yield* cache.prepare({
        companyId: corpus.companyId,
        runId: Ids.RunId.make(crypto.randomUUID()),
        versions: corpus.copies.map(({ versionId }) => versionId)
      })
    })
  ).pipe(Effect.provideContext(context))

  const contest: Harness.Contest = {
    amount: Corpus.amount(corpus),
    comparisons: [{ figure: Harness.time, ours: prepare, peer: copy }]
  }
  return contest
}, Effect.orDie)

export const restore: Harness.Scenario = { id: "P-09", title: "restoring copies", make }
