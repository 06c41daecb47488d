/** Moves a folder under an advisory lock, with nothing but what that takes. */
import type { Connection } from "effect/sql/SqlConnection"
import { Effect } from "effect"
import { rename } from "node:fs/promises"

// What asks whether a run still needs the version, on the tables that are there.
const inUse = `
  select exists (
    select from reclaim.run_pins p join heartbeat_runs r on r.id = p.run_id
    where p.version_id = $1::uuid
      and r.status not in ('succeeded', 'failed', 'cancelled', 'timed_out', 'interrupted')
  ) as used`

// The least that tells afterwards what was done.
const tell = `
  insert into reclaim.journal (at, worker, event, version_id, allocated_bytes, server)
  values (clock_timestamp(), 'by hand', 'evicted', $1::uuid, 0, 'benchmark')`

/** The nanoseconds between the answer that granted the lock and the answer to COMMIT. */
export const moveUnderLock = Effect.fnUntraced(function* (
  connection: Connection,
  options: {
    readonly key: bigint
    readonly versionId: string
    readonly from: string
    readonly to: string
    /** Whether it writes down what it did, so that COMMIT must wait for the disk. */
    readonly journal: boolean
  }
) {
  yield* connection.executeRaw("BEGIN", [])
  yield* connection.executeRaw("select pg_try_advisory_xact_lock($1::int8) as locked", [options.key])
  const granted = process.hrtime.bigint()
  yield* connection.executeRaw(inUse, [options.versionId])
  yield* Effect.promise(() => rename(options.from, options.to))
  if (options.journal) yield* connection.executeRaw(tell, [options.versionId])
  yield* connection.executeRaw("COMMIT", [])
  return process.hrtime.bigint() - granted
})
