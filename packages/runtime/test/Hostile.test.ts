import { assert, layer } from "@effect/vitest"
import { Arbitrary, Effect, Schema, Stream } from "effect"
import * as Fs from "node:fs"
import { snapshot } from "../../fs/test/support/fixtures.ts"
import * as Hostile from "../../fs/test/support/hostile.ts"
import { SkillVersionRetention } from "../src/index.ts"
import * as Sessions from "./support/SessionsWorld.ts"
import * as Sweeping from "./support/Sweeping.ts"
import * as World from "./support/World.ts"

/** Checks a property a few times, each time in a world of its own. */
const check = <A, E, R>(
  input: Arbitrary.Arbitrary<A>,
  property: (value: A) => Effect.Effect<unknown, E, R>,
  runs: number
) =>
  Effect.map(
    Arbitrary.checkEffect(input, (value) => Effect.as(property(value), true), { runs }),
    (result) => assert.isUndefined(Arbitrary.formatCheckFailure(result))
  )

layer(World.layer(), { excludeTestServices: true, timeout: "60 seconds" })("a hostile skill", (it) => {
  it.effect(
    "[S-17] [S-18] whatever lies in a copy, or among the copies, stays with a reason; the good copy goes",
    () =>
      Effect.gen(function* () {
        const { path: instance } = yield* World.Instance
        const out = yield* Hostile.outside(`${instance}/outside`)
        yield* check(
          Arbitrary.all({ among: Hostile.nodes, inside: Hostile.nodes }),
          Effect.fnUntraced(function* ({ among, inside }) {
            const made = yield* Sweeping.idleSkill({ versions: 2 })
            const [good, strange] = yield* Effect.forEach(made.copies, Sweeping.pathOf)
            const skill = good!.replace(/\/[^/]*$/, "")
            Hostile.make(Buffer.from(skill), among, out)
            Hostile.make(Buffer.from(strange!), inside, out)
            const before = snapshot(skill).filter((line) => !line.startsWith(good!))
            const outside = snapshot(out)
            const retention = yield* SkillVersionRetention.SkillVersionRetention
            const diagnoses = yield* Stream.runCollect(retention.diagnose({ companyId: made.companyId }))
            for (const diagnosis of diagnoses) {
              if (diagnosis._tag !== "Copy") continue
              const isGood = diagnosis.versionId === made.copies[0]!.versionId
              assert.strictEqual(diagnosis.reasons.length === 0, isGood)
            }
            const report = yield* World.sweepOnce({ companyId: made.companyId })
            assert.strictEqual(report.evicted, 1)
            assert.strictEqual(report.errors, 0)
            assert.isFalse(Fs.existsSync(good!))
            assert.deepStrictEqual(snapshot(skill), before)
            assert.deepStrictEqual(snapshot(out), outside)
          }),
          25
        )
      }).pipe(Effect.scoped),
    180_000
  )
})

const text = Arbitrary.map(Arbitrary.schema(Schema.Json), (json) => JSON.stringify(json))

layer(Sessions.layer(), { excludeTestServices: true, timeout: "60 seconds" })("hostile sessions", (it) => {
  it.effect(
    "[B-06] [B-10] whatever its files say, and whatever lies beside its backups, a session keeps them",
    () =>
      Effect.gen(function* () {
        yield* Sessions.begin
        const { path: instance } = yield* World.Instance
        const out = yield* Hostile.outside(`${instance}/outside`)
        yield* check(
          Arbitrary.all({
            manifest: text,
            nodes: Arbitrary.flatMap(Arbitrary.schema(Schema.Boolean), (none) =>
              none ? Arbitrary.Constant([]) : Hostile.nodes
            ),
            state: text,
            which: Arbitrary.schema(Schema.Boolean)
          }),
          Effect.fnUntraced(function* ({ manifest, nodes, state, which }) {
            // One file is what nobody meant; the other one is fine.
            const session = yield* Sessions.expirable({ backups: [which ? {} : { manifest }] })
            if (which) yield* Sessions.state(session, state)
            const folder = yield* Sessions.pathOf(session.scope)
            Hostile.make(Buffer.from(`${folder}/failover-backups`), nodes, out)
            const before = snapshot(folder)
            const reasons = yield* Sessions.reasons(session)
            assert.isAbove(reasons?.length ?? 0, 0)
            const report = yield* Sessions.sweepOnce()
            assert.strictEqual(report.expired, 0)
            assert.strictEqual(report.errors, 0)
            assert.deepStrictEqual(snapshot(folder), before)
          }),
          25
        )
      }).pipe(Effect.scoped),
    180_000
  )
})
