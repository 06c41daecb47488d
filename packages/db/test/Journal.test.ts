import { expect, layer } from "@effect/vitest"
import { Ids } from "@reclaim/core"
import { DateTime, Duration, Effect, Logger, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { DatabaseError, HostSchema, Journal, Transactions } from "../src/index.ts"
import { adopted, at, host, noon } from "./support/database.ts"
import * as Make from "./support/fixtures.ts"

const later = (duration: Duration.Input) => DateTime.addDuration(noon, Duration.fromInputUnsafe(duration))

const entry = (
  companyId: Ids.CompanyId | null,
  event: Journal.Entry["event"] = "evicted"
): Journal.Entry => ({
  worker: "skill-versions",
  event,
  companyId,
  skillId: null,
  versionId: null,
  scope: null,
  allocatedBytes: 2n ** 53n + 1n,
  digest: "abc",
  server: "test",
  detail: { files: ["a"] }
})

const events = Effect.fnUntraced(function* (since: DateTime.Utc, companyId?: Ids.CompanyId) {
  const journal = yield* Journal.Journal
  return yield* Stream.runCollect(journal.since(since, companyId))
})

layer(adopted())("Journal", (it) => {
  it.effect("[S-29] is written in the transaction that does it", () =>
    Effect.gen(function* () {
      const journal = yield* Journal.Journal
      const { companyExclusive } = yield* Transactions.Transactions
      const companyId = yield* Make.companyId
      const append = journal.append(entry(companyId))
      yield* Effect.flip(companyExclusive(companyId, () => Effect.andThen(append, Effect.fail("undone"))))
      expect(yield* events(noon, companyId)).toEqual([])
      expect(yield* companyExclusive(companyId, () => append)).toBe("written")
      const [recorded, ...others] = yield* events(noon, companyId)
      expect(others).toEqual([])
      expect(recorded).toMatchObject({ ...entry(companyId), at: noon })
    })
  )

  it.effect("[O-07] is read by instant and company, oldest first, however long it is", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const journal = yield* Journal.Journal
      const [a, b] = [yield* Make.companyId, yield* Make.companyId]
      yield* sql`delete from reclaim.journal`
      yield* at(later("1 hour"))(journal.append(entry(a, "evicted")))
      yield* at(later("2 hours"))(journal.append(entry(b, "healed")))
      yield* at(later("3 hours"))(journal.append(entry(null, "repaired")))
      const names = (list: ReadonlyArray<Journal.Recorded>) => list.map((recorded) => recorded.event)
      expect(names(yield* events(noon))).toEqual(["evicted", "healed", "repaired"])
      expect(names(yield* events(later("2 hours")))).toEqual(["healed", "repaired"])
      expect(names(yield* events(noon, b))).toEqual(["healed"])
      // More than two pages, many of them at one instant.
      yield* sql`insert into reclaim.journal (at, worker, event, allocated_bytes, server)
        select ${DateTime.toDateUtc(later("4 hours"))}::timestamptz + (n / 400) * interval '0.0004 s', 'w', n::text, 0, 's'
        from generate_series(1, 1201) n`
      const many = names(yield* events(later("4 hours")))
      expect(many.length).toBe(1201)
      expect(new Set(many).size).toBe(1201)
    })
  )

  it.effect("[O-05] is added up by day, worker and event", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const journal = yield* Journal.Journal
      yield* sql`delete from reclaim.journal`
      yield* at(later("11 hours"))(journal.append(entry(null)))
      yield* at(later("11.5 hours"))(journal.append(entry(null)))
      yield* at(later("11.6 hours"))(journal.append({ ...entry(null, "expired"), worker: "backups" }))
      yield* at(later("12 hours"))(journal.append(entry(null)))
      const midnight = DateTime.startOf(noon, "day")
      const size = 2n ** 53n + 1n
      const day = {
        day: midnight,
        worker: "skill-versions",
        event: "evicted",
        count: 2,
        allocatedBytes: 2n * size
      }
      const next = { ...day, day: later("12 hours"), count: 1, allocatedBytes: size }
      expect(yield* journal.daily(noon)).toEqual([
        { ...day, worker: "backups", event: "expired", count: 1, allocatedBytes: size },
        day,
        next
      ])
      expect(yield* journal.daily(later("12 hours"))).toEqual([next])
    })
  )

  it.effect("[S-29] keeps what is young and drops what is old, a bounded number at a time", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const journal = yield* Journal.Journal
      yield* sql`delete from reclaim.journal`
      yield* sql`insert into reclaim.journal (at, worker, event, allocated_bytes, server)
        select ${DateTime.toDateUtc(noon)}::timestamptz, 'w', n::text, 0, 's' from generate_series(1, 1500) n`
      yield* at(later("1 day"))(journal.append(entry(null)))
      expect(yield* journal.prune(noon)).toBe(0)
      expect(yield* journal.prune(later("1 hour"))).toBe(1000)
      expect(yield* journal.prune(later("1 hour"))).toBe(500)
      expect((yield* events(noon)).length).toBe(1)
    })
  )

  it.effect("[S-29] without room the entry is logged and the transaction goes on", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const journal = yield* Journal.Journal
      const { run } = yield* Transactions.Transactions
      yield* sql`create table marks (name text)`
      yield* sql`delete from reclaim.journal`
      yield* sql`create function full_disk() returns trigger language plpgsql as $$
        begin raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$`
      yield* sql`create trigger full_disk before insert on reclaim.journal execute function full_disk()`
      const logged: Array<unknown> = []
      const logger = Logger.make(({ message }) => void logged.push(message))
      const outcome = yield* run(() =>
        Effect.gen(function* () {
          yield* sql`insert into marks values ('before')`
          const outcome = yield* journal.append(entry(null))
          yield* sql`insert into marks values ('after')`
          return outcome
        })
      ).pipe(Effect.provide(Logger.layer([logger])))
      expect(outcome).toBe("logged")
      expect(
        JSON.stringify(logged, (_, value: unknown) => (typeof value === "bigint" ? `${value}` : value))
      ).toContain("evicted")
      expect((yield* sql`select name from marks`).length).toBe(2)
      expect((yield* sql`select 1 from reclaim.journal`).length).toBe(0)
      yield* sql`drop trigger full_disk on reclaim.journal`
    })
  )

  it.effect("[S-29] a detail that is no JSON is a failure, not a loss", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const journal = yield* Journal.Journal
      yield* sql`delete from reclaim.journal`
      const error = yield* Effect.flip(journal.append({ ...entry(null), detail: { ratio: Number.NaN } }))
      expect(error instanceof DatabaseError.DatabaseError && error.reason._tag).toBe("Undecodable")
      expect((yield* sql`select 1 from reclaim.journal`).length).toBe(0)
      const detail = { text: "a", list: [1, null, true], deep: { empty: {} } }
      yield* journal.append({ ...entry(null), detail })
      expect((yield* events(noon)).map((recorded) => recorded.detail)).toEqual([detail])
    })
  )

  it.effect("[D-07] events and workers of a later release are read", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`delete from reclaim.journal`
      yield* sql`insert into reclaim.journal (at, worker, event, allocated_bytes, server)
        values (${DateTime.toDateUtc(noon)}, 'new worker', 'new event', 0, 's')`
      expect(yield* events(noon)).toMatchObject([{ worker: "new worker", event: "new event", detail: null }])
    })
  )

  it.effect("[D-02] a server without memory is not one without room", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const journal = yield* Journal.Journal
      const { run } = yield* Transactions.Transactions
      yield* sql`create function no_memory() returns trigger language plpgsql as $$
        begin raise exception 'out of memory' using errcode = '53200'; end $$`
      yield* sql`create trigger no_memory before insert on reclaim.journal execute function no_memory()`
      const error = yield* Effect.flip(run(() => journal.append(entry(null))))
      expect(error instanceof DatabaseError.DatabaseError && error.reason._tag).toBe("Other")
      yield* sql`drop trigger no_memory on reclaim.journal`
    })
  )

  it.effect("[S-29] any other failure is one, and undoes the transaction", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const journal = yield* Journal.Journal
      const { run } = yield* Transactions.Transactions
      yield* sql`create table others (name text)`
      yield* sql`create function broken() returns trigger language plpgsql as $$
        begin raise exception 'broken'; end $$`
      yield* sql`create trigger broken before insert on reclaim.journal execute function broken()`
      const error = yield* Effect.flip(
        run(() => Effect.andThen(sql`insert into others values ('a')`, journal.append(entry(null))))
      )
      expect(error).toBeInstanceOf(DatabaseError.DatabaseError)
      expect((yield* sql`select 1 from others`).length).toBe(0)
      yield* sql`drop trigger broken on reclaim.journal`
    })
  )
})

layer(host())("Journal without the schema reclaim", (it) => {
  it.effect("[O-02] is empty to read, and cannot be written", () =>
    Effect.gen(function* () {
      const journal = yield* Journal.Journal
      expect(yield* events(noon)).toEqual([])
      expect(yield* Effect.flip(journal.append(entry(null)))).toBeInstanceOf(HostSchema.NotAdopted)
    })
  )
})
