/** What the tests of preparing and repairing ask about copies, files and other processes. */
import { FaultPoint, type Ids } from "@reclaim/core"
import { type Journal, Journal as JournalModule, SkillPins } from "@reclaim/db"
import { type CopyRef, VersionStore } from "@reclaim/fs"
import { DateTime, Effect, Fiber, Stream } from "effect"
import * as Fs from "node:fs"
import { SkillVersionCache } from "../../src/index.ts"
import { FaultPoints } from "../../src/testing.ts"
import * as World from "./World.ts"

export const prepare = Effect.fnUntraced(function* (
  companyId: Ids.CompanyId,
  versions: ReadonlyArray<Ids.VersionId>,
  options: { readonly runId?: Ids.RunId; readonly verify?: SkillVersionCache.Verify } = {}
) {
  const cache = yield* SkillVersionCache.SkillVersionCache
  return yield* cache.prepare({
    companyId,
    versions,
    runId: options.runId ?? (yield* World.Fixtures.runId),
    verify: options.verify ?? "shape"
  })
})

/** What an answer comes to: `Ready`, `Ready restored`, or the reason. */
export const short = (prepared: SkillVersionCache.Prepared): string =>
  prepared._tag === "Ready" ? (prepared.restored ? "Ready restored" : "Ready") : prepared.reason._tag

export const pathOf = (copy: CopyRef.CopyRef) =>
  Effect.map(VersionStore.VersionStore, (store) => store.pathOf(copy))

/** Every file and folder of a copy: mode and, for a file, its bytes in hex. */
export const contentsOf = (path: string): Record<string, string> =>
  Object.fromEntries(
    Fs.readdirSync(path, { recursive: true, encoding: "utf8" })
      .toSorted()
      .map((name) => {
        const info = Fs.lstatSync(`${path}/${name}`)
        const mode = (info.mode & 0o7777).toString(8)
        return [
          name,
          info.isDirectory()
            ? `folder ${mode}`
            : `${mode} ${Fs.readFileSync(`${path}/${name}`).toString("hex")}`
        ]
      })
  )

/** The files that `World.skill` gives its versions, as `contentsOf` tells them. */
export const standard = (revision: number): Record<string, string> => ({
  "SKILL.md": `444 ${Buffer.from(`revision ${revision}`).toString("hex")}`,
  assets: "folder 755",
  "assets/logo.bin": "444 000102030405",
  scripts: "folder 755",
  "scripts/run.sh": `555 ${Buffer.from("#!/bin/sh\n").toString("hex")}`
})

/** Writes into a copy as a run or an older server would. */
export const alter = (path: string, change: () => void) =>
  Effect.sync(() => {
    Fs.chmodSync(path, 0o755)
    change()
  })

export const overwrite = (path: string, content: string | Uint8Array) => {
  Fs.chmodSync(path, 0o644)
  Fs.writeFileSync(path, content)
}

/** The names in a skill's folder that are not versions, without their ids. */
export const leftovers = (copy: CopyRef.CopyRef) =>
  Effect.map(VersionStore.VersionStore, (store) => {
    const folder = store.pathOf(copy).slice(0, -copy.versionId.length - 1)
    return Fs.existsSync(folder)
      ? Fs.readdirSync(folder)
          .filter((name) => name.startsWith("."))
          .map((name) => name.slice(0, name.indexOf("-")))
          .toSorted()
      : []
  })

/** The one leftover of a kind in a skill's folder. */
export const leftover = (copy: CopyRef.CopyRef, kind: string) =>
  Effect.map(VersionStore.VersionStore, (store) => {
    const folder = store.pathOf(copy).slice(0, -copy.versionId.length - 1)
    const [name] = Fs.readdirSync(folder).filter((each) => each.startsWith(kind))
    return `${folder}/${name}`
  })

/** The instant that a copy's record tells. */
export const lastUse = (copy: CopyRef.CopyRef) =>
  Effect.map(World.Instance, ({ path }) => {
    const record: unknown = JSON.parse(
      Fs.readFileSync(
        `${path}/skills/${copy.companyId}/__version_access__/${copy.skillId}/${copy.versionId}.json`,
        "utf8"
      )
    )
    return record
  })

export const recordOf = (at: DateTime.Utc) => ({
  schema: "reclaim.access.v1",
  lastUsedAt: DateTime.formatIso(at)
})

/** The runs that pin a version. */
export const pinningRuns = Effect.fnUntraced(function* (copy: CopyRef.CopyRef) {
  const pins = yield* SkillPins.SkillPins
  const facts = yield* pins.facts([copy.companyId])
  return facts.get(copy.companyId)?.activeRuns.get(copy.versionId) ?? []
})

/** The events of a version in the journal. */
export const eventsOf = Effect.fnUntraced(function* (copy: CopyRef.CopyRef) {
  const journal = yield* JournalModule.Journal
  const all: ReadonlyArray<Journal.Recorded> = yield* Stream.runCollect(
    journal.since(DateTime.makeUnsafe(0), copy.companyId)
  )
  return all.filter(({ versionId }) => versionId === copy.versionId)
})

/**
 * Kills the process at a point, as far as one can from inside: nothing that comes after it, finalizers
 * included, gets past a point.
 */
export const killAt =
  (point: string) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.suspend(() => {
      let killed = false
      return Effect.provideService(self, FaultPoint.FaultHandler, (name) =>
        Effect.suspend(() => {
          killed ||= name === point
          return killed ? Effect.die(`killed at ${point}`) : Effect.void
        })
      )
    })

/** Interrupts an effect when it reaches a point, and waits until it has ended. */
export const interruptAt = Effect.fnUntraced(function* <A, E, R>(
  point: string,
  self: Effect.Effect<A, E, R>
) {
  const gate = yield* FaultPoints.gate(point)
  const fiber = yield* Effect.forkChild(gate.guard(self))
  yield* gate.reached
  const ending = yield* Effect.forkChild(Fiber.interrupt(fiber), { startImmediately: true })
  yield* gate.open
  yield* Fiber.await(ending)
  return yield* Fiber.await(fiber)
})
