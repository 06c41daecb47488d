/** P-01: deletes the trash of one company, against what else deletes folders. */
import { Trees } from "@reclaim/fs"
import { Effect } from "effect"
import { deleteTrash as deleteUnderLock } from "../../packages/runtime/src/internal/trash.ts"
import * as Corpus from "../Corpus.ts"
import * as Harness from "../Harness.ts"
import * as Instance from "../Instance.ts"
import { removeFolders, rimrafFolders } from "../peers/removeFolders.ts"
import * as System from "../System.ts"

// 4: as `deleteTrash` of the runtime does it.
const concurrency = 4

const make = Effect.fnUntraced(function* (size: Harness.Size) {
  const workspace = yield* Harness.Workspace
  const { context, skills } = yield* Instance.make
  const corpus = Corpus.make(size === "full" ? 2000 : 40)
  const template = yield* System.temporaryFolder(workspace.path)
  yield* Corpus.write(corpus, template, Corpus.trashPath)

  const folders = corpus.copies.map((copy) => `${skills}/${Corpus.trashPath(copy)}`)
  const prepare = Effect.gen(function* () {
    yield* Effect.addFinalizer(() => Effect.ignore(System.command("rm", ["-rf", "--", skills])))
    yield* System.command("cp", ["-a", "--", template, skills])
    yield* Harness.settle(size, skills)
  })
  const side = <E, R>(name: string, work: () => Effect.Effect<unknown, E, R>) =>
    Harness.side({
      name,
      prepare,
      work,
      verify: () =>
        Effect.orDie(
          Effect.map(System.command("find", [skills, "-type", "f"]), (files) => ({
            outcome: `${files.length} characters of paths left`
          }))
        )
    })

  const fsRm = yield* side("fs.rm", () => Effect.promise(() => removeFolders(folders)))
  const rimraf = yield* side("rimraf", () => Effect.promise(() => rimrafFolders(folders)))
  const rm = yield* side("rm -rf", () => System.command("rm", ["-rf", "--", ...folders]))
  const xargs = yield* side("xargs -P4 rm -rf", () =>
    System.command("xargs", ["-0", "-P4", "-n50", "rm", "-rf", "--"], { input: folders.join("\0") })
  )
  const trees = yield* side(
    "Trees.remove",
    Effect.fnUntraced(function* () {
      const trees = yield* Trees.Trees
      yield* Effect.forEach(folders, (folder) => trees.remove(folder), { concurrency, discard: true })
    })
  ).pipe(Effect.provideContext(context))
  const locked = yield* side("deleteTrash", () => deleteUnderLock(corpus.companyId, folders)).pipe(
    Effect.provideContext(context)
  )

  const contest: Harness.Contest = {
    amount: Corpus.amount(corpus),
    comparisons: [
      { figure: Harness.time, ours: trees, peer: rm },
      { figure: Harness.time, ours: trees, peer: xargs },
      { figure: Harness.time, ours: trees, peer: fsRm },
      { figure: Harness.time, ours: trees, peer: rimraf },
      { figure: Harness.time, ours: locked, peer: rm }
    ]
  }
  return contest
}, Effect.orDie)

export const deleteTrash: Harness.Scenario = { id: "P-01", title: "deleting trash", make }
