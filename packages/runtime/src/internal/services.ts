import {
  DatabaseClock,
  type DatabaseError,
  HostSchema,
  Journal,
  SkillCatalog,
  SkillPins,
  Transactions
} from "@reclaim/db"
import { AccessRecords, InstanceRoots, Trees, VersionStore } from "@reclaim/fs"
import { Context, Effect } from "effect"

/** What the skill version services are made of. */
export type Services =
  | AccessRecords.AccessRecords
  | DatabaseClock.DatabaseClock
  | HostSchema.HostSchema
  | InstanceRoots.InstanceRoots
  | Journal.Journal
  | SkillCatalog.SkillCatalog
  | SkillPins.SkillPins
  | Transactions.Transactions
  | Trees.Trees
  | VersionStore.VersionStore

/** What the database can put in the way of any of them. */
export type DatabaseFailure =
  | DatabaseError.DatabaseError
  | DatabaseError.NestedTransaction
  | HostSchema.NotAdopted

/**
 * Captures exactly these services, and nothing else of the fiber that builds the layer: a call must run
 * with the clock, the span and the references of its caller.
 */
export const services: Effect.Effect<Context.Context<Services>, never, Services> = Effect.map(
  Effect.context<Services>(),
  Context.pick(
    AccessRecords.AccessRecords,
    DatabaseClock.DatabaseClock,
    HostSchema.HostSchema,
    InstanceRoots.InstanceRoots,
    Journal.Journal,
    SkillCatalog.SkillCatalog,
    SkillPins.SkillPins,
    Transactions.Transactions,
    Trees.Trees,
    VersionStore.VersionStore
  )
)
