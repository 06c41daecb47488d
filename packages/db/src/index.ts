/**
 * Who holds a copy: locks, pins, snapshots, holds and the journal in PostgreSQL.
 *
 * @since 0.1.0
 */
export * as DatabaseClock from "./DatabaseClock.ts"
export * as DatabaseError from "./DatabaseError.ts"
export * as DatabaseHealth from "./DatabaseHealth.ts"
export * as Holds from "./Holds.ts"
export * as HostSchema from "./HostSchema.ts"
export * as HostTables from "./HostTables.ts"
export * as Journal from "./Journal.ts"
export * as LockKey from "./LockKey.ts"
export * as Migrations from "./Migrations.ts"
export * as SessionCatalog from "./SessionCatalog.ts"
export * as SkillCatalog from "./SkillCatalog.ts"
export * as SkillPins from "./SkillPins.ts"
export * as Transactions from "./Transactions.ts"
