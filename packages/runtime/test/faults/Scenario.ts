/** What the tests of faults and their scenarios agree on. */
import { type Effect, Schema } from "effect"
import type { MovableClock } from "../../src/testing.ts"
import type * as World from "../support/World.ts"
import type * as Operations from "./Operations.ts"
import type { Services } from "./Server.ts"
import * as Fs from "node:fs"

/** A server, the instance that it works on, and the clock of its world. */
export type Needed = MovableClock.MovableClock | Services | World.Instance

export type Check = Effect.Effect<void, unknown, Needed>

/** A world that was made for one operation. */
export interface Scene {
  readonly task: Operations.Task
  /** What is so at every moment after the operation has ended, however it did. */
  readonly always: Check
  /** The next sweep of another server. */
  readonly sweep: Check
  /** What is so after that. */
  readonly swept: Check
  /** Moves the clock and sweeps until nothing is left to do, and looks at what is left. */
  readonly end: Check
}

export interface Scenario {
  readonly name: string
  /** Where the operation asks no database at all. */
  readonly offline?: boolean
  readonly make: Effect.Effect<Scene, unknown, Needed>
}

/** What must not be so. */
export class Broken extends Schema.TaggedError<Broken>()("Broken", { what: Schema.String }) {
  override get message(): string {
    return this.what
  }
}

/** Everything at and below some paths that are not ours, with what any touch would change but reading. */
export const portrait = (paths: ReadonlyArray<string>): ReadonlyArray<string> =>
  paths.flatMap((path) => {
    const { ctimeNs, ino, mode, mtimeNs } = Fs.lstatSync(path, { bigint: true })
    const stat = `${path} ${ino} ${mode} ${mtimeNs} ${ctimeNs}`
    switch (mode & 0o170000n) {
      case 0o040000n:
        return [stat, ...portrait(Fs.readdirSync(path).map((name) => `${path}/${name}`))]
      case 0o120000n:
        return [`${stat} ${Fs.readlinkSync(path)}`]
      case 0o100000n:
        return [`${stat} ${Fs.readFileSync(path, "latin1")}`]
      default:
        return [stat]
    }
  })
