/** `reclaim hold`, `unhold` and `holds`. */
import type { Ids } from "@reclaim/core"
import { Holds, SkillCatalog } from "@reclaim/db"
import { SkillVersionCache, SkillVersions } from "@reclaim/runtime"
import { Effect, Layer, Option } from "effect"
import { Command, Flag } from "effect/cli"
import * as Output from "../Output.ts"
import { layerClient, layerOwn } from "./connection.ts"
import { BadUsage, UnknownVersion } from "./failure.ts"
import { type Subcommand, company, scope, version } from "./flags.ts"
import { Printer } from "./printer.ts"
import { operator } from "./process.ts"
import { formatInstant } from "./units.ts"

const thing = {
  company: company.pipe(Flag.optional),
  version: version.pipe(Flag.optional),
  scope: scope.pipe(Flag.optional)
}

interface ThingFlags {
  readonly company: Option.Option<Ids.CompanyId>
  readonly version: Option.Option<Ids.VersionId>
  readonly scope: Option.Option<Ids.ScopeId>
}

type Thing =
  | { readonly kind: "version"; readonly companyId: Ids.CompanyId; readonly versionId: Ids.VersionId }
  | { readonly kind: "scope"; readonly scope: Ids.ScopeId }

const thingOf = Effect.fnUntraced(function* (flags: ThingFlags) {
  const version = Option.all({ companyId: flags.company, versionId: flags.version })
  if (Option.isSome(flags.scope) && Option.isNone(flags.company) && Option.isNone(flags.version)) {
    return { kind: "scope", scope: flags.scope.value } satisfies Thing
  }
  if (Option.isSome(version) && Option.isNone(flags.scope)) {
    return { kind: "version", ...version.value } satisfies Thing
  }
  return yield* new BadUsage({ message: "name either --company ID and --version ID, or --scope HEX" })
})

const named = (thing: Thing): string =>
  thing.kind === "version" ? `version ${thing.versionId}` : `scope ${thing.scope}`

/** A hold on a mistyped id would protect nothing, silently. */
const requireVersion = Effect.fnUntraced(function* ({
  companyId,
  versionId
}: Extract<Thing, { readonly kind: "version" }>) {
  const catalog = yield* SkillCatalog.SkillCatalog
  if (!(yield* catalog.hasCompany(companyId)))
    return yield* new SkillVersionCache.UnknownCompany({ companyId })
  const found = yield* catalog.lookup(companyId, [versionId])
  if (!found.has(versionId)) return yield* new UnknownVersion({ companyId, versionId })
})

const holdThing = Effect.fnUntraced(function* (thing: Thing, note: string) {
  const printer = yield* Printer
  const holds = yield* Holds.Holds
  const by = yield* operator
  yield* thing.kind === "scope"
    ? holds.holdScope(thing.scope, by, note)
    : holds.holdVersion(thing.companyId, thing.versionId, by, note)
  yield* printer.document(Output.Held, { type: "held", ...thing, by, note })
  yield* printer.lines(`holding ${named(thing)} for ${by}: ${note}`)
})

export const hold: Subcommand<"hold"> = Command.make(
  "hold",
  {
    ...thing,
    note: Flag.String("note").pipe(
      Flag.withMetavar("TEXT"),
      Flag.withDescription("Why, for whoever wonders later")
    )
  },
  Effect.fnUntraced(function* ({ note, ...flags }) {
    const thing = yield* thingOf(flags)
    if (note.trim() === "") return yield* new BadUsage({ message: "--note must say why" })
    // A host without skills can still hold its sessions' backups.
    if (thing.kind === "version") {
      yield* Effect.provide(
        requireVersion(thing),
        SkillVersions.layerDatabase.pipe(Layer.provide(layerClient))
      )
    }
    yield* Effect.provide(holdThing(thing, note), layerOwn)
  })
).pipe(
  Command.withDescription("Keep a version's copy, or a session's backup, until it is let go"),
  Command.withExamples([
    { command: "reclaim hold --company ID --version ID --note 'legal review'", description: "Hold a version" }
  ])
)

const unholdThing = Effect.fnUntraced(function* (thing: Thing) {
  const printer = yield* Printer
  const holds = yield* Holds.Holds
  const removed =
    thing.kind === "scope"
      ? yield* holds.unholdScope(thing.scope)
      : yield* holds.unholdVersion(thing.companyId, thing.versionId)
  yield* printer.document(Output.Unheld, { type: "unheld", ...thing, removed })
  yield* printer.lines(removed ? `let go of ${named(thing)}` : `${named(thing)} was not held`)
})

export const unhold: Subcommand<"unhold"> = Command.make(
  "unhold",
  thing,
  Effect.fnUntraced(function* (flags) {
    yield* Effect.provide(unholdThing(yield* thingOf(flags)), layerOwn)
  })
).pipe(
  Command.withDescription("Let go of what is held"),
  Command.withExamples([
    { command: "reclaim unhold --company ID --version ID", description: "Let go of a version" },
    { command: "reclaim unhold --scope HEX", description: "Let go of a session's backup" }
  ])
)

const listHolds = Effect.gen(function* () {
  const printer = yield* Printer
  const all = yield* Effect.flatMap(Holds.Holds, (holds) => holds.list)
  for (const { _tag, ...hold } of all) {
    yield* printer.document(
      Output.Hold,
      "scope" in hold ? { type: "hold", kind: "scope", ...hold } : { type: "hold", kind: "version", ...hold }
    )
  }
  if (all.length === 0) return yield* printer.lines("nothing is held")
  yield* printer.table(
    [{ title: "HELD" }, { title: "COMPANY" }, { title: "SINCE (UTC)" }, { title: "BY" }, { title: "NOTE" }],
    all.map((hold) => [
      hold._tag === "Version" ? hold.versionId : hold.scope,
      hold._tag === "Version" ? hold.companyId : "",
      formatInstant(hold.createdAt),
      hold.by,
      hold.note
    ])
  )
})

export const holds: Subcommand<"holds"> = Command.make("holds", {}, () =>
  Effect.provide(listHolds, layerOwn)
).pipe(
  Command.withDescription("List what is held, by whom and why"),
  Command.withExamples([{ command: "reclaim holds", description: "List everything that is held" }])
)
