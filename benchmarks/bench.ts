/** `npm run bench -- [scenario...] [--json] [--smoke] [--pairs N]` */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer, Logger, Option, Schema, Scope } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { EmbeddedPostgres } from "@reclaim/postgres"
import * as Harness from "./Harness.ts"
import * as Report from "./Report.ts"
import { captureBackup } from "./scenarios/captureBackup.ts"
import { considering, growing } from "./scenarios/considering.ts"
import { deleteTrash } from "./scenarios/deleteTrash.ts"
import { digests } from "./scenarios/digests.ts"
import { expiring } from "./scenarios/expiring.ts"
import { lockHeld } from "./scenarios/lockHeld.ts"
import { preparing } from "./scenarios/preparing.ts"
import { proof } from "./scenarios/proof.ts"
import { restore } from "./scenarios/restore.ts"
import { restoreBackup } from "./scenarios/restoreBackup.ts"
import { starting } from "./scenarios/starting.ts"
import { sweeping } from "./scenarios/sweeping.ts"
import { usage } from "./scenarios/usage.ts"
import * as System from "./System.ts"

const scenarios: ReadonlyArray<Harness.Scenario> = [
  deleteTrash,
  usage,
  digests,
  proof,
  considering,
  growing,
  lockHeld,
  preparing,
  restore,
  captureBackup,
  restoreBackup,
  sweeping,
  starting,
  expiring
]

class Refused extends Schema.TaggedError<Refused>()("Refused", { message: Schema.String }) {}

// 5: the least from which a median and a spread say something.
const defaultPairs = 5

const bench = Command.make(
  "bench",
  {
    ids: Argument.String("scenario").pipe(
      Argument.withDescription(
        `Which to run: ${scenarios.map(({ id }) => id).join(", ")}; all when none is named`
      ),
      Argument.variadic()
    ),
    json: Flag.Boolean("json").pipe(Flag.withDescription("Print one JSON document"), Flag.withDefault(false)),
    smoke: Flag.Boolean("smoke").pipe(
      Flag.withDescription("Small sizes and one pair: only shows that both sides agree"),
      Flag.withDefault(false)
    ),
    pairs: Flag.Int("pairs").pipe(
      Flag.withDescription(`How often each side runs, after a warm-up (${defaultPairs}; 1 with --smoke)`),
      Flag.optional
    )
  },
  Effect.fnUntraced(function* ({ ids, json, pairs, smoke }) {
    const named = (id: string) => (scenario: Harness.Scenario) =>
      scenario.id.toLowerCase() === id.toLowerCase()
    const unknown = ids.filter((id) => !scenarios.some(named(id)))
    if (unknown.length > 0) return yield* new Refused({ message: `no such scenario: ${unknown.join(", ")}` })
    if (!System.isSupported()) {
      return yield* new Refused({ message: "the benchmarks compare with GNU's tools and run on Linux only" })
    }
    const rounds = Option.getOrElse(pairs, () => (smoke ? 1 : defaultPairs))
    if (rounds < 1) return yield* new Refused({ message: "--pairs takes a number from 1 on" })
    const wanted = scenarios.filter((scenario) => ids.length === 0 || ids.some((id) => named(id)(scenario)))
    const path = yield* System.temporaryFolder(System.dataFolder())
    const scope = yield* Effect.scope
    // Durable where it counts, as a host's server is: what is committed was written.
    const serverUrl = yield* EmbeddedPostgres.make({ durable: !smoke }).pipe(
      Effect.map(({ url }) => url),
      Effect.orDie,
      Scope.provide(scope),
      Effect.cached
    )
    const machine = System.machine(path)
    const results = yield* Effect.forEach(wanted, (scenario) =>
      Harness.run(scenario, { pairs: rounds, size: smoke ? "smoke" : "full" })
    ).pipe(Effect.provideService(Harness.Workspace, { path, serverUrl }))
    yield* System.print((json ? Report.json : Report.human)(machine, results))
  }, Effect.scoped)
).pipe(Command.withDescription("Compares Reclaim with what else does the same work"))

Command.run(bench, { version: "0.1.0" }).pipe(
  Effect.provide(Layer.merge(NodeServices.layer, Logger.layer([Logger.consolePretty()]))),
  Effect.provideService(Logger.LogToStderr, true),
  NodeRuntime.runMain
)
