/**
 * Which faults can meet nothing after which points, and why. A rule that is wrong fails the test, and so does
 * one that is missing.
 */
import type { Column } from "./Faults.ts"

export interface Rule {
  readonly column: Column
  readonly points: RegExp
  readonly why: string
}

export const rules: ReadonlyArray<Rule> = [
  {
    column: "connection lost",
    points: /^(capture|backupRestore)\./,
    why: "Capturing and restoring a backup ask no database."
  },
  {
    column: "disk full",
    points:
      /^(evict|settle|trash|expiration|expire|retire|revive|drop)\.|^sweep\.afterObserve$|^transaction\.commitUnknown$/,
    why: "What lets copies and backups go makes no file: it renames and deletes."
  },
  {
    column: "disk full",
    points: /^capture\.(?!after(Folder|Source)$)|^backupRestore\.(?!afterFolder$)/,
    why: "Everything is written by then; what is left to do are renames and deletions."
  },
  {
    column: "permission denied",
    points: /^(capture\.afterDelete|backupRestore\.afterPublish)$/,
    why: "Nothing is changed after it."
  },
  {
    column: "typed error",
    points: /^capture\.afterDelete$/,
    why: "No file is looked at after it."
  }
]

/** The rule about a point and a column. */
export const ruleOf = (point: string, column: Column): Rule | undefined =>
  rules.find((rule) => rule.column === column && rule.points.test(point))
