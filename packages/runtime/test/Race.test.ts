import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Fiber, Random } from "effect"
import { SkillVersionCache } from "../src/index.ts"
import { contentsOf, leftovers, pathOf, prepare, short, standard } from "./support/Copies.ts"
import * as World from "./support/World.ts"

// 3 processes that prepare, 2 that sweep without a grace, 2 versions: every round meets an eviction.
const preparers = 3
const rounds = 20

// Without a grace nothing but its pin keeps a copy.
layer(World.layer({ settings: { grace: 0 } }), { excludeTestServices: true })("racing", (it) => {
  it.effect("a copy that is pinned is there, whole, from the answer to the release", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies } = yield* World.skill({ versions: 2 })
      const paths = yield* Effect.forEach(copies, pathOf)
      const counts = { restored: 0, found: 0, evicted: 0 }
      const over = yield* Deferred.make<void>()

      const preparing = Effect.gen(function* () {
        const cache = yield* SkillVersionCache.SkillVersionCache
        for (let round = 0; round < rounds; round++) {
          const index = yield* Random.nextIntBetween(0, copies.length - 1)
          const runId = yield* World.Fixtures.runId
          const verify = (yield* Random.nextBoolean) ? "digest" : "shape"
          const [prepared] = yield* prepare(companyId, [copies[index]!.versionId], { runId, verify })
          assert.isDefined(prepared)
          assert.match(short(prepared), /^Ready/, JSON.stringify(prepared))
          if (short(prepared) === "Ready") counts.found += 1
          else counts.restored += 1
          for (let look = 0; look < 10; look++) {
            assert.deepStrictEqual(contentsOf(paths[index]!), standard(index + 1))
            yield* Effect.yieldNow
          }
          assert.strictEqual(yield* cache.release(runId), 1)
        }
      }).pipe(World.elsewhere({ settings: { grace: 0 } }))

      const sweeping = Effect.gen(function* () {
        while (!(yield* Deferred.isDone(over))) {
          for (const { report } of yield* World.sweep({ companyId })) {
            assert.strictEqual(report.errors, 0)
            counts.evicted += report.evicted
          }
        }
      }).pipe(World.elsewhere({ settings: { grace: 0 } }))

      const sweepers = yield* Effect.forkChild(Effect.all([sweeping, sweeping], { concurrency: 2 }))
      yield* Effect.all(
        Array.from({ length: preparers }, () => preparing),
        { concurrency: preparers }
      ).pipe(
        Effect.raceFirst(Effect.andThen(Fiber.join(sweepers), Effect.die("the sweeps ended"))),
        Effect.ensuring(Deferred.succeed(over, undefined))
      )
      yield* Fiber.join(sweepers)
      assert.isAbove(counts.restored, 0)
      assert.isAbove(counts.evicted, 0)
      yield* World.sweep({ companyId })
      yield* World.sweep({ companyId })
      assert.deepStrictEqual(yield* leftovers(copies[0]!), [])
      for (const copy of copies) assert.isFalse(yield* World.isThere(copy))
    })
  )
})
