import { expect, layer } from "@effect/vitest"
import { Ids } from "@reclaim/core"
import { DateTime, Deferred, Effect, Fiber } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { DatabaseError, Holds, HostSchema, SkillPins, Transactions } from "../src/index.ts"
import { adopted, at, eventually, host, lockWaiters, noon } from "./support/database.ts"
import * as Make from "./support/fixtures.ts"

const scope = Ids.ScopeId.make("0123456789abcdef".repeat(4))

layer(adopted())("Holds", (it) => {
  it.effect("[O-07] [S-14] a version that is held says by whom and why, until it is not", () =>
    Effect.gen(function* () {
      const holds = yield* Holds.Holds
      const pins = yield* SkillPins.SkillPins
      const [companyId, versionId] = [yield* Make.companyId, yield* Make.versionId]
      const held = Effect.map(pins.facts([companyId]), (facts) => facts.get(companyId)?.held)
      yield* holds.holdVersion(companyId, versionId, "ann", "audit")
      expect(yield* held).toEqual(new Map([[versionId, { by: "ann", note: "audit" }]]))
      yield* holds.holdVersion(companyId, versionId, "night shift", "still")
      expect(yield* held).toEqual(new Map([[versionId, { by: "night shift", note: "still" }]]))
      expect(yield* holds.unholdVersion(companyId, versionId)).toBe(true)
      expect(yield* holds.unholdVersion(companyId, versionId)).toBe(false)
      expect(yield* held).toEqual(new Map())
    })
  )

  it.effect("[O-07] a scope likewise, and all holds can be listed", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const holds = yield* Holds.Holds
      yield* sql`delete from reclaim.holds`
      const [companyId, versionId] = [yield* Make.companyId, yield* Make.versionId]
      const hour = DateTime.addDuration(noon, "1 hour")
      yield* holds.holdScope(scope, "ann", "first")
      yield* holds.holdScope(scope, "ann", "second")
      yield* at(hour)(holds.holdVersion(companyId, versionId, "night shift", "note"))
      expect(yield* holds.list).toEqual([
        { _tag: "Scope", scope, by: "ann", note: "second", createdAt: noon },
        { _tag: "Version", companyId, versionId, by: "night shift", note: "note", createdAt: hour }
      ])
      const other = Ids.ScopeId.make("f".repeat(64))
      expect(yield* holds.scopes([scope, other])).toEqual(new Map([[scope, { by: "ann", note: "second" }]]))
      expect(yield* holds.unholdScope(scope)).toBe(true)
      expect(yield* holds.unholdScope(scope)).toBe(false)
      expect(yield* holds.scopes([scope])).toEqual(new Map())
    })
  )

  it.effect("[O-07] a hold waits for an eviction in hand", () =>
    Effect.gen(function* () {
      const holds = yield* Holds.Holds
      const { companyExclusive } = yield* Transactions.Transactions
      const [companyId, versionId] = [yield* Make.companyId, yield* Make.versionId]
      const entered = yield* Deferred.make<void>()
      const gate = yield* Deferred.make<void>()
      const order: Array<string> = []
      const eviction = yield* Effect.forkChild(
        companyExclusive(companyId, () =>
          Deferred.succeed(entered, undefined).pipe(
            Effect.andThen(Deferred.await(gate)),
            Effect.andThen(Effect.sync(() => order.push("evicted")))
          )
        )
      )
      yield* Deferred.await(entered)
      const hold = yield* Effect.forkChild(
        Effect.tap(holds.holdVersion(companyId, versionId, "ann", "late"), () =>
          Effect.sync(() => order.push("held"))
        )
      )
      yield* eventually(Effect.map(lockWaiters, (count) => count === 1))
      yield* Deferred.succeed(gate, undefined)
      yield* Fiber.join(eviction)
      yield* Fiber.join(hold)
      expect(order).toEqual(["evicted", "held"])
    })
  )

  it.effect("[D-02] a hold that met a deadlock is tried again, twice at most", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const holds = yield* Holds.Holds
      yield* sql`delete from reclaim.holds`
      yield* sql`create sequence attempts`
      yield* sql`create function deadlock() returns trigger language plpgsql as $$
        begin
          if nextval('attempts') < 3 then raise exception 'deadlock detected' using errcode = '40P01'; end if;
          return new;
        end $$`
      yield* sql`create trigger deadlock before insert on reclaim.holds for each row execute function deadlock()`
      const hold = holds.holdVersion(yield* Make.companyId, yield* Make.versionId, "ann", "note")
      yield* hold
      expect((yield* holds.list).length).toBe(1)
      yield* sql`alter sequence attempts minvalue -10 restart with -10`
      const error = yield* Effect.flip(hold)
      expect(error instanceof DatabaseError.DatabaseError && error.reason._tag).toBe("Deadlock")
      yield* sql`drop trigger deadlock on reclaim.holds`
    })
  )

  it.effect("[D-03] refuses inside a transaction of the caller", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const holds = yield* Holds.Holds
      for (const attempt of [
        holds.holdVersion(yield* Make.companyId, yield* Make.versionId, "ann", "note"),
        holds.holdScope(scope, "ann", "note"),
        Effect.asVoid(holds.list)
      ]) {
        const error = yield* Effect.flip(sql.withTransaction(attempt))
        expect(error instanceof DatabaseError.DatabaseError && error.reason._tag).toBe("NestedTransaction")
      }
    })
  )
})

layer(host())("Holds without the schema reclaim", (it) => {
  it.effect("[O-02] are none, and cannot be made", () =>
    Effect.gen(function* () {
      const holds = yield* Holds.Holds
      expect(yield* holds.list).toEqual([])
      expect(yield* holds.scopes([scope])).toEqual(new Map())
      const attempt = holds.holdVersion(yield* Make.companyId, yield* Make.versionId, "ann", "note")
      expect(yield* Effect.flip(attempt)).toBeInstanceOf(HostSchema.NotAdopted)
    })
  )
})
