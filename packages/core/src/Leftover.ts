/**
 * Decides what becomes of a folder that a protocol left behind, from what is known about it and nothing
 * else.
 *
 * **Details**
 *
 * | leftover | rule |
 * |---|---|
 * | trash | is deleted, always |
 * | staging | older than the longer of the grace and one hour: becomes trash; younger: somebody writes it |
 * | evicting | younger than 60 s: somebody evicts it; else moved back when its name is free; else, when it is proven, trash; when it differs, set aside; when it cannot be compared, it stays |
 * | replaced | trash once every file in it equals the database's; else it stays until an operator removes it |
 *
 * @since 0.1.0
 */
import { Duration } from "effect"

/**
 * What a leftover's contents say against the database: `unproven` until they were compared, `partial`
 * when files are missing and all others equal the database's.
 *
 * @category models
 * @since 0.1.0
 */
export type Contents = "unproven" | "same" | "partial" | "differs" | "unprovable"

/**
 * `age` comes from the folder's own times and may be negative where a clock stepped; such a leftover is
 * young. `nameTaken` says whether an entry with the copy's name exists beside it.
 *
 * @category models
 * @since 0.1.0
 */
export interface LeftoverFacts {
  readonly kind: "Staging" | "Evicting" | "Replaced" | "Trash"
  readonly age: Duration.Duration
  readonly nameTaken: boolean
  readonly contents: Contents
}

/**
 * - `Delete`: it is trash; remove it under the trash lock.
 * - `Prove`: compare its contents and decide again.
 * - `ToTrash`, `MoveBack`, `SetAside`: rename it under the exclusive company lock.
 * - `Leave`: it stays; `why` tells an operator.
 *
 * @category models
 * @since 0.1.0
 */
export type Action =
  | { readonly _tag: "Delete" }
  | { readonly _tag: "Prove" }
  | { readonly _tag: "ToTrash" }
  | { readonly _tag: "MoveBack" }
  | { readonly _tag: "SetAside" }
  | { readonly _tag: "Leave"; readonly why: "young" | "altered" | "unprovable" }

// 60 s: an eviction holds its lock for milliseconds and gives its commit 10 s; a folder that is still
// leaving after a minute belongs to a process that died.
const evictingAge = Duration.seconds(60)
// 1 hour: the longest a restoration of one copy is expected to take on a slow disk.
const stagingAge = Duration.hours(1)

/** How old a staging folder must be before somebody else may claim it. @since 0.1.0 */
export const stagingLimit = (grace: Duration.Duration): Duration.Duration => Duration.max(grace, stagingAge)

/**
 * Settles one leftover. Total over every state, so that a test can enumerate them.
 *
 * @category queries
 * @since 0.1.0
 */
export const settle = (facts: LeftoverFacts, grace: Duration.Duration): Action => {
  switch (facts.kind) {
    case "Trash":
      return { _tag: "Delete" }
    case "Staging":
      return Duration.isGreaterThanOrEqualTo(facts.age, stagingLimit(grace))
        ? { _tag: "ToTrash" }
        : { _tag: "Leave", why: "young" }
    case "Evicting":
      if (Duration.isLessThan(facts.age, evictingAge)) return { _tag: "Leave", why: "young" }
      if (!facts.nameTaken) return { _tag: "MoveBack" }
      switch (facts.contents) {
        case "unproven":
          return { _tag: "Prove" }
        case "same":
          return { _tag: "ToTrash" }
        case "partial":
        case "differs":
          return { _tag: "SetAside" }
        case "unprovable":
          return { _tag: "Leave", why: "unprovable" }
      }
    case "Replaced":
      switch (facts.contents) {
        case "unproven":
          return { _tag: "Prove" }
        case "same":
        case "partial":
          return { _tag: "ToTrash" }
        case "differs":
          return { _tag: "Leave", why: "altered" }
        case "unprovable":
          return { _tag: "Leave", why: "unprovable" }
      }
  }
}
