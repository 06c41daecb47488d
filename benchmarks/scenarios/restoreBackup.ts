/** P-10r: restores the backup of a session with all digests compared, against copying it. */
import { Effect } from "effect"
import * as Harness from "../Harness.ts"
import * as Session from "../Session.ts"
import * as System from "../System.ts"

const make = Effect.fnUntraced(function* (size: Harness.Size) {
  const workspace = yield* Harness.Workspace
  const session = Session.make(size)
  const instance = yield* System.temporaryFolder(workspace.path)
  const backup = yield* Effect.scoped(
    Effect.gen(function* () {
      const home = yield* Session.write(session, yield* System.temporaryFolder(workspace.path))
      const store = yield* Session.store(instance)
      const { path } = yield* store.capture(Session.captureOptions(home))
      return `${path}/${Session.home}`
    })
  )
  const prepare = Effect.gen(function* () {
    const target = `${yield* System.temporaryFolder(workspace.path)}/restored`
    System.makeFolder(target)
    const store = yield* Session.store(instance)
    yield* Harness.settle(size, target)
    return { store, target }
  })
  type Input = Effect.Success<typeof prepare>
  const side = <E>(name: string, work: (input: Input) => Effect.Effect<unknown, E>) =>
    Harness.side({
      name,
      prepare,
      work,
      verify: ({ target }) => Session.verdict(backup, `${target}/${Session.home}`)
    })
  const shell = (name: string, ...commands: ReadonlyArray<string>) =>
    side(name, ({ target }) => Session.shell(backup, target, ...commands))

  const restore = yield* side("restore", ({ store, target }) =>
    store.restore({ scope: Session.scope, target })
  )
  const { copyCommand, digestCommand, syncCommand } = Session
  const copied = yield* shell("cp -a", copyCommand)
  const durable = yield* shell("cp -a, sync, sha256sum", copyCommand, syncCommand, digestCommand)

  const contest: Harness.Contest = {
    amount: Session.amount(session),
    comparisons: [
      { figure: Harness.time, ours: restore, peer: copied },
      { figure: Harness.time, ours: restore, peer: durable }
    ]
  }
  return contest
}, Effect.orDie)

export const restoreBackup: Harness.Scenario = { id: "P-10r", title: "restoring a backup", make }
