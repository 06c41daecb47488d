import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SkillVersionCache } from "../src/index.ts"
import * as World from "./support/World.ts"

layer(World.layer(), { excludeTestServices: true })("sweeping", (it) => {
  it.effect("[S-20] evicts what nobody uses, and its trash is gone when the batch is reported", () =>
    Effect.gen(function* () {
      yield* World.begin
      const { companyId, copies, skillId } = yield* World.skill({ versions: 3 })
      const cache = yield* SkillVersionCache.SkillVersionCache
      for (const { versionId } of copies) {
        const prepared = yield* cache.restore({ companyId, versionId })
        assert.strictEqual(prepared._tag, "Ready")
      }
      assert.deepStrictEqual((yield* World.sweepOnce({ companyId })).skipped, { RecentlyUsed: 3 })
      yield* World.advance("1 hour")
      const report = yield* World.sweepOnce({ companyId })
      assert.strictEqual(report.evicted, 3)
      assert.strictEqual(report.trashFinished, 3)
      assert.strictEqual(report.errors, 0)
      assert.deepStrictEqual(yield* World.listing, [
        companyId,
        `${companyId}/__version_access__`,
        `${companyId}/__version_access__/${skillId}`,
        `${companyId}/__versions__`,
        `${companyId}/__versions__/${skillId}`
      ])
    })
  )
})
