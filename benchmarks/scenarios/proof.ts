/** P-04: proves copies against the database, with and without their contents on the way. */
import { SkillCatalog } from "@reclaim/db"
import { type CopyRef, InstanceRoots } from "@reclaim/fs"
import { Array as Arr, Effect, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { examineAll } from "../../packages/runtime/src/internal/examination.ts"
import * as Corpus from "../Corpus.ts"
import * as Harness from "../Harness.ts"
import * as Instance from "../Instance.ts"
import { compareContents, type StoredFile } from "../peers/compareContents.ts"
import * as System from "../System.ts"

// 50: as many copies as a batch of a sweep has, for both sides.
const batch = 50

const received: Harness.Figure = { name: "received", unit: "bytes" }

const make = Effect.fnUntraced(function* (size: Harness.Size) {
  const { context, skills } = yield* Instance.make
  const corpus = Corpus.make(size === "full" ? 2000 : 60)
  yield* Corpus.write(corpus, skills)
  yield* Effect.provideContext(Corpus.insert(corpus), context)
  yield* Harness.settle(size, skills)

  const pathOf = (copy: CopyRef.CopyRef) => `${skills}/${Corpus.relativePath(copy)}`
  const side = <E, R>(
    name: string,
    prove: (copies: Arr.NonEmptyArray<CopyRef.CopyRef>) => Effect.Effect<number, E, R>
  ) =>
    Harness.side({
      name,
      prepare: Effect.sync(System.receivedBytes),
      work: () =>
        Effect.orDie(
          Effect.map(Effect.forEach(Arr.chunksOf(corpus.copies, batch), prove), (proven) => ({
            proven: proven.reduce((total, some) => total + some, 0),
            bytes: System.receivedBytes()
          }))
        ),
      verify: (before, { bytes, proven }) =>
        Effect.succeed({
          outcome: `${proven} of ${corpus.copies.length} proven`,
          figures: { [received.name]: bytes - before }
        })
    })

  const contents = yield* side(
    "reading all contents",
    Effect.fnUntraced(function* (copies) {
      const sql = yield* SqlClient.SqlClient
      const rows = yield* sql<{ readonly id: string; readonly files: ReadonlyArray<StoredFile> }>`
        select id::text as id, file_inventory as files from company_skill_versions
        where company_id = ${corpus.companyId}::uuid and id = any(${copies.map(({ versionId }) => versionId)}::uuid[])`
      const stored = new Map(rows.map(({ files, id }) => [id, files]))
      const proven = yield* Effect.forEach(copies, (copy) =>
        Effect.promise(() => compareContents(pathOf(copy), stored.get(copy.versionId) ?? []))
      )
      return proven.filter(Boolean).length
    })
  ).pipe(Effect.provideContext(context))
  const digests = yield* side(
    "manifests and digests",
    Effect.fnUntraced(function* (copies) {
      const catalog = yield* SkillCatalog.SkillCatalog
      const { caseInsensitive } = yield* InstanceRoots.InstanceRoots
      const manifests = yield* catalog.manifests(
        corpus.companyId,
        copies.map(({ versionId }) => versionId),
        { caseInsensitive }
      )
      const examined = yield* Stream.runCollect(
        examineAll(copies, (copy) => ({ path: pathOf(copy), manifest: manifests.get(copy.versionId) }))
      )
      return examined.filter(({ examination }) => examination.proof._tag === "Same").length
    })
  ).pipe(Effect.provideContext(context))

  const contest: Harness.Contest = {
    amount: Corpus.amount(corpus),
    comparisons: [
      { figure: Harness.time, ours: digests, peer: contents },
      { figure: received, ours: digests, peer: contents }
    ]
  }
  return contest
}, Effect.orDie)

export const proof: Harness.Scenario = { id: "P-04", title: "proving copies", make }
