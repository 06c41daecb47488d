import { expect, layer } from "@effect/vitest"
import { Effect, Exit, Option, Stream, Tracer } from "effect"
import { Journal, SkillCatalog, SkillPins, Transactions } from "../src/index.ts"
import { adopted } from "./support/database.ts"
import * as Make from "./support/fixtures.ts"

/** The spans that an effect makes, each with the one it is part of; those of the driver are left out. */
const spansOf = <A, E, R>(self: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const spans: Array<Tracer.Span> = []
    const tracer = Tracer.make({
      span: (options) => {
        const span = new Tracer.NativeSpan(options)
        spans.push(span)
        return span
      }
    })
    const exit = yield* Effect.exit(Effect.provideService(self, Tracer.Tracer, tracer))
    const names = spans
      .filter((span) => span.kind !== "client")
      .map((span) => {
        const parent = Option.getOrUndefined(span.parent)
        return parent?._tag === "Span" ? `${parent.name} > ${span.name}` : span.name
      })
    return { exit, names }
  })

layer(adopted())("tracing", (it) => {
  it.effect("a transaction is a span, named after what it is for", () =>
    Effect.gen(function* () {
      const { run } = yield* Transactions.Transactions
      const { exit, names } = yield* spansOf(run(() => Effect.fail("no" as const), { operation: "testing" }))
      expect(names).toEqual(["testing"])
      expect(Exit.findErrorOption(exit)).toEqual(Option.some("no"))
    })
  )

  it.effect("what reads and writes is a span, and so is its transaction", () =>
    Effect.gen(function* () {
      const pins = yield* SkillPins.SkillPins
      const catalog = yield* SkillCatalog.SkillCatalog
      const journal = yield* Journal.Journal
      const { companyShared } = yield* Transactions.Transactions
      const { companyId } = yield* Make.company
      const skillId = yield* Make.skill(companyId)
      const versionId = yield* Make.version({ companyId, skillId, revision: 1 })
      const runId = yield* Make.runId
      const copy = { companyId, skillId, versionId }
      const { names } = yield* spansOf(
        Effect.gen(function* () {
          yield* pins.facts([companyId])
          yield* companyShared(companyId, () => pins.record(companyId, runId, [copy]))
          yield* pins.activePins(companyId)
          yield* pins.release(runId)
          yield* pins.forget(1)
          yield* catalog.describe([copy])
          yield* catalog.hasCompany(companyId)
          yield* catalog.lookup(companyId, [versionId])
          yield* catalog.manifests(companyId, [versionId], { caseInsensitive: false })
          yield* Stream.runDrain(catalog.contents(companyId, versionId, [{ ordinal: 0, size: 5 }]))
          yield* catalog.names(companyId)
          yield* journal.append({
            worker: "skill-versions",
            event: "evicted",
            ...copy,
            scope: null,
            allocatedBytes: 0n,
            digest: null,
            server: "s",
            detail: null
          })
        })
      )
      expect(names).toEqual([
        "SkillPins.facts",
        "SkillPins.facts > reading pins",
        "shared lock",
        "shared lock > SkillPins.record",
        "SkillPins.activePins",
        "SkillPins.activePins > reading pins",
        "SkillPins.release",
        "SkillPins.release > releasing a run",
        "SkillPins.forget",
        "SkillPins.forget > forgetting runs",
        "SkillCatalog.describe",
        "SkillCatalog.describe > describing versions",
        "SkillCatalog.hasCompany",
        "SkillCatalog.hasCompany > finding a company",
        "SkillCatalog.lookup",
        "SkillCatalog.lookup > finding skills of versions",
        "SkillCatalog.manifests",
        "SkillCatalog.manifests > digesting snapshots",
        "SkillCatalog.contents",
        "SkillCatalog.contents > reading contents",
        "SkillCatalog.names",
        "SkillCatalog.names > reading names of skills",
        "Journal.append",
        "Journal.append > writing the journal"
      ])
    })
  )
})
