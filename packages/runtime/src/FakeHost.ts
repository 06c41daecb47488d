/**
 * Everything that a host supplies about itself, in memory: versions, runs, sessions, activity and controls.
 *
 * **Details**
 *
 * With it a host tests how it composes Reclaim before it has written layers for its own tables, and what it
 * does when they answer this or that. The database of such a test needs the schema `reclaim` alone: take
 * `HostSchema.layerOwn`. Locks, the journal and the disk are real.
 *
 * **Gotchas**
 *
 * What is recorded in a transaction that rolls back stays recorded, which keeps more. Versions that an operator
 * holds are not looked up.
 *
 * @since 0.1.0
 */
import { type CopyRef, type Ids, Manifest, type NativeSession } from "@reclaim/core"
import { DatabaseError, SessionCatalog, SkillCatalog, SkillPins } from "@reclaim/db"
import { Context, Effect, Layer, Stream } from "effect"
import { createHash } from "node:crypto"
import * as HostControls from "./HostControls.ts"
import * as SessionActivity from "./SessionActivity.ts"

/** A file of a version; text is UTF-8. @category models @since 0.1.0 */
export interface File {
  readonly path: string
  readonly content: string | Uint8Array
  readonly executable?: boolean
}

/** @category models @since 0.1.0 */
export interface Version extends CopyRef.CopyRef {
  readonly revisionNumber: number
  readonly current: boolean
  readonly files: ReadonlyArray<File>
}

/**
 * What a test makes the host say.
 *
 * @category services
 * @since 0.1.0
 */
export class FakeHost extends Context.Service<
  FakeHost,
  {
    /** Adds a version, and its company with it, or writes over the one that there is. */
    readonly putVersion: (version: Version) => Effect.Effect<void>
    /** The run has started. Until it records what it uses, it keeps every copy of its company. */
    readonly startRun: (companyId: Ids.CompanyId, runId: Ids.RunId) => Effect.Effect<void>
    /** The run is over. One that only prepared is active until this, or until it is released. */
    readonly endRun: (runId: Ids.RunId) => Effect.Effect<void>
    /** Sets all rows about sessions, of whatever sessions they are. */
    readonly setSessions: (rows: Partial<NativeSession.SessionRows>) => Effect.Effect<void>
    /** Whether somebody else has locked the rows of every session. */
    readonly setRowsBusy: (busy: boolean) => Effect.Effect<void>
  }
>()("@reclaim/runtime/FakeHost") {}

interface Run {
  readonly companyId: Ids.CompanyId
  readonly over: boolean
}

interface Selection {
  readonly companyId: Ids.CompanyId
  readonly pins: ReadonlyArray<SkillPins.Pin>
}

const noSessions: NativeSession.SessionRows = {
  runs: [],
  finalizations: [],
  issues: [],
  leases: [],
  taskSessions: []
}

// 8 MiB: the most that a catalog may answer at once.
const partBytes = 8 * 1024 * 1024

const bytesOf = ({ content }: File): Uint8Array =>
  typeof content === "string" ? new TextEncoder().encode(content) : content

const makeHost = () => {
  const versions = new Map<Ids.VersionId, Version & { readonly revision: string }>()
  const runs = new Map<Ids.RunId, Run>()
  const selections = new Map<Ids.RunId, Selection>()
  let revision = 0
  let sessions = noSessions
  let busy = false

  const find = (companyId: Ids.CompanyId, versionId: Ids.VersionId) => {
    const version = versions.get(versionId)
    return version?.companyId === companyId ? version : undefined
  }
  const hasCompany = (companyId: Ids.CompanyId) =>
    Effect.sync(
      () =>
        [...versions.values()].some((version) => version.companyId === companyId) ||
        [...runs.values()].some((run) => run.companyId === companyId)
    )

  const host = FakeHost.of({
    putVersion: (version) =>
      Effect.sync(() => void versions.set(version.versionId, { ...version, revision: `${++revision}` })),
    startRun: (companyId, runId) => Effect.sync(() => void runs.set(runId, { companyId, over: false })),
    endRun: (runId) =>
      Effect.sync(() => {
        const companyId = runs.get(runId)?.companyId ?? selections.get(runId)?.companyId
        if (companyId !== undefined) runs.set(runId, { companyId, over: true })
      }),
    setSessions: (rows) => Effect.sync(() => void (sessions = { ...noSessions, ...rows })),
    setRowsBusy: (is) => Effect.sync(() => void (busy = is))
  })

  const catalog = SkillCatalog.SkillCatalog.of({
    hasCompany,
    describe: (copies) =>
      Effect.sync(
        () =>
          new Map(
            copies.flatMap((copy) => {
              const version = find(copy.companyId, copy.versionId)
              if (version === undefined || version.skillId !== copy.skillId) return []
              const newer = [...versions.values()].filter(
                ({ revisionNumber, skillId }) =>
                  skillId === version.skillId && revisionNumber > version.revisionNumber
              )
              return [[copy.versionId, { ...version, rank: newer.length }]]
            })
          )
      ),
    lookup: (companyId, versionIds) =>
      Effect.sync(
        () =>
          new Map(
            versionIds.flatMap((versionId) => {
              const version = find(companyId, versionId)
              return version === undefined ? [] : [[versionId, version.skillId]]
            })
          )
      ),
    manifests: (companyId, versionIds, { caseInsensitive }) =>
      Effect.sync(
        () =>
          new Map(
            versionIds.flatMap((versionId) => {
              const version = find(companyId, versionId)
              if (version === undefined) return []
              const entries = version.files.map((file, ordinal) => {
                const bytes = bytesOf(file)
                return {
                  path: file.path,
                  ordinal,
                  size: bytes.length,
                  sha256: createHash("sha256").update(bytes).digest("hex"),
                  executable: file.executable ?? false,
                  problem: null
                }
              })
              return [[versionId, Manifest.fromEntries(entries, { root: null, caseInsensitive })]]
            })
          )
      ),
    contents: (companyId, versionId, files) =>
      Stream.fromIterable(files).pipe(
        Stream.mapEffect(({ ordinal }) => {
          const file = find(companyId, versionId)?.files[ordinal]
          return file === undefined
            ? Effect.fail(
                DatabaseError.make({ _tag: "Other", detail: `${versionId} lost a file` }, "reading contents")
              )
            : Effect.succeed({ ordinal, bytes: bytesOf(file) })
        }),
        Stream.flatMap(({ bytes, ordinal }) =>
          Stream.fromIterable(
            Array.from({ length: Math.max(1, Math.ceil(bytes.length / partBytes)) }, (_, part) => ({
              ordinal,
              bytes: bytes.subarray(part * partBytes, (part + 1) * partBytes)
            }))
          )
        )
      ),
    names: () => Effect.succeed(new Map())
  })

  const isOver = (runId: Ids.RunId) => runs.get(runId)?.over === true
  const pinsOf = (companyId: Ids.CompanyId): SkillPins.CompanyPins => {
    const activeRuns = new Map<Ids.VersionId, Array<Ids.RunId>>()
    for (const [runId, selection] of selections) {
      if (selection.companyId !== companyId || isOver(runId)) continue
      for (const { versionId } of selection.pins) {
        activeRuns.set(versionId, [...(activeRuns.get(versionId) ?? []), runId])
      }
    }
    return {
      activeRuns,
      unsettledRecovery: new Map(),
      agents: new Map(),
      testRuns: new Map(),
      selectionUnknown: [...runs].flatMap(([runId, run]) =>
        run.companyId === companyId && !run.over && !selections.has(runId) ? [runId] : []
      ),
      agentsUnreadable: [],
      held: new Map()
    }
  }

  const pins = SkillPins.SkillPins.of({
    facts: (companyIds) =>
      Effect.sync(() => new Map(companyIds.map((companyId) => [companyId, pinsOf(companyId)]))),
    factsOf: (companyId) => Effect.sync(() => pinsOf(companyId)),
    record: (companyId, runId, more) =>
      Effect.sync(() => {
        const before = selections.get(runId)?.pins ?? []
        selections.set(runId, { companyId, pins: [...before, ...more] })
      }),
    release: (runId) =>
      Effect.sync(() => {
        const selection = selections.get(runId)
        if (selection === undefined) return 0
        selections.set(runId, { ...selection, pins: [] })
        return new Set(selection.pins.map(({ versionId }) => versionId)).size
      }),
    activePins: (companyId) =>
      Effect.sync(() =>
        [...selections].flatMap(([runId, selection]) =>
          isOver(runId) || (companyId !== undefined && selection.companyId !== companyId)
            ? []
            : selection.pins.map((pin) => ({ ...pin, companyId: selection.companyId, runId }))
        )
      ),
    forget: (limit) =>
      Effect.sync(() => {
        const over = [...selections].filter(([runId]) => isOver(runId)).slice(0, limit)
        for (const [runId] of over) selections.delete(runId)
        return over.reduce((count, [, selection]) => count + selection.pins.length, 0)
      })
  })

  const found = Effect.sync((): SessionCatalog.Found => ({ rows: sessions, obstacles: () => [] }))
  const sessionCatalog = SessionCatalog.SessionCatalog.of({
    hasCompany,
    load: () => found,
    lock: ({ scope }) => Effect.suspend(() => (busy ? new SessionCatalog.RowsBusy({ scope }) : found)),
    reread: () => found,
    removeTaskSessions: (ids) =>
      Effect.sync(() => {
        const taskSessions = sessions.taskSessions.filter(({ id }) => !ids.includes(id))
        const removed = sessions.taskSessions.length - taskSessions.length
        sessions = { ...sessions, taskSessions }
        return removed
      })
  })

  return Context.make(FakeHost, host).pipe(
    Context.add(SkillCatalog.SkillCatalog, catalog),
    Context.add(SkillPins.SkillPins, pins),
    Context.add(SessionCatalog.SessionCatalog, sessionCatalog)
  )
}

/**
 * A host without anything, on which nobody works, and which is not ready.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<
  | FakeHost
  | HostControls.HostControls
  | HostControls.HostSwitch
  | SessionActivity.SessionActivity
  | SessionActivity.SessionTracker
  | SessionCatalog.SessionCatalog
  | SkillCatalog.SkillCatalog
  | SkillPins.SkillPins
> = Layer.mergeAll(
  Layer.effectContext(Effect.sync(makeHost)),
  HostControls.layerMemory,
  SessionActivity.layerTracker
)
