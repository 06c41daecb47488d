/**
 * Names the advisory locks by which servers agree.
 *
 * **Details**
 *
 * The key is a wire format: every version of Reclaim that shares a database must compute the same one. It
 * is the first 8 bytes of the SHA-256 of `reclaim/v1/<space>/<id in lower case>`, read as a big-endian
 * signed integer. Hosts lock with `hashtext`, whose keys fill the range of `int4`; a key that falls there
 * has its bit 62 flipped, which moves it out.
 *
 * Discipline: all locks are transaction-level (poolers do not keep sessions), and no transaction takes
 * two. `company` is taken shared by those who prepare and exclusively, tried and never queued for, by
 * those who move a copy; `trash` is tried by those who delete; `migrate` is awaited by those who change
 * the schema.
 *
 * @since 0.1.0
 */
import { createHash } from "node:crypto"
import { outsideInt4 } from "./internal/outsideInt4.ts"

/** What a lock is about. @category models @since 0.1.0 */
export type LockSpace = "company" | "trash" | "migrate"

/**
 * The key of a lock, for `pg_advisory_xact_lock(int8)` and its relatives.
 *
 * **Example** (A company's key)
 *
 * ```ts
 * import { LockKey } from "@reclaim/db"
 *
 * LockKey.lockKey("company", "00000000-0000-4000-8000-000000000001")
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const lockKey = (space: LockSpace, id: string): bigint =>
  outsideInt4(
    createHash("sha256").update(`reclaim/v1/${space}/${id.toLowerCase()}`, "utf8").digest().readBigInt64BE(0)
  )
