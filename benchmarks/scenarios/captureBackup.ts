/** P-10: captures the home of a session, against copying and digesting it. */
import { Effect } from "effect"
import * as Harness from "../Harness.ts"
import * as Session from "../Session.ts"
import * as System from "../System.ts"

const make = Effect.fnUntraced(function* (size: Harness.Size) {
  const workspace = yield* Harness.Workspace
  const session = Session.make(size)
  const home = yield* Session.write(session, yield* System.temporaryFolder(workspace.path))
  const prepare = Effect.gen(function* () {
    const folder = yield* System.temporaryFolder(workspace.path)
    const store = yield* Session.store(folder)
    yield* Harness.settle(size, folder)
    return { folder, store }
  })
  type Input = Effect.Success<typeof prepare>
  /** `work` returns where the copy is. */
  const side = <E>(name: string, work: (input: Input) => Effect.Effect<string, E>) =>
    Harness.side({ name, prepare, work, verify: (_, copy) => Session.verdict(home, copy) })
  const shell = (name: string, ...commands: ReadonlyArray<string>) =>
    side(name, ({ folder }) =>
      Effect.as(Session.shell(home, folder, ...commands), `${folder}/${Session.home}`)
    )

  const capture = yield* side("capture", ({ store }) =>
    Effect.map(store.capture(Session.captureOptions(home)), ({ path }) => `${path}/${Session.home}`)
  )
  const { copyCommand, digestCommand, syncCommand } = Session
  const copied = yield* shell("cp -a, sha256sum", copyCommand, digestCommand)
  const durable = yield* shell("cp -a, sync, sha256sum", copyCommand, syncCommand, digestCommand)

  const contest: Harness.Contest = {
    amount: Session.amount(session),
    comparisons: [
      { figure: Harness.time, ours: capture, peer: copied },
      { figure: Harness.time, ours: capture, peer: durable }
    ]
  }
  return contest
}, Effect.orDie)

export const captureBackup: Harness.Scenario = { id: "P-10", title: "backing up a session", make }
