/** What only an ordinary user meets, from the services down, also where the tests run as root. */
import { assert, describe, layer } from "@effect/vitest"
import { Ids } from "@reclaim/core"
import { HostTables, Migrations, Transactions } from "@reclaim/db"
import { TestDatabase } from "@reclaim/postgres/testing"
import { DateTime, Effect, Layer } from "effect"
import { execFileSync } from "node:child_process"
import * as Fs from "node:fs"
import * as Net from "node:net"
import { fileURLToPath } from "node:url"
import { inject } from "vitest"
import { asNobody, isReadable, isRoot, nobody } from "../../../fs/test/support/asNobody.ts"
import { MovableClock } from "../../src/testing.ts"
import { contentsOf, pathOf, standard } from "../support/Copies.ts"
import * as Sessions from "../support/SessionsWorld.ts"
import * as Sweeping from "../support/Sweeping.ts"
import * as Threads from "../support/threads.ts"
import * as World from "../support/World.ts"
import * as Cell from "./Cell.ts"
import type * as Operations from "./Operations.ts"

const script = fileURLToPath(new URL("./ordinaryServer.ts", import.meta.url))

/** The server lets its own user in only: what nobody says goes through a socket that is open to all. */
const openToAll = Effect.fnUntraced(function* (url: string, folder: string) {
  const to = new URL(url)
  const socket = `.s.PGSQL.${to.port}`
  const real = to.searchParams.get("host")
  // A server that is reached by the network asks for no user of this machine.
  if (real === null) return url
  yield* Effect.acquireRelease(
    Effect.callback<Net.Server>((resume) => {
      const server = Net.createServer((client) => {
        const backend = Net.connect(`${real}/${socket}`)
        client.pipe(backend)
        backend.pipe(client)
        client.on("error", () => backend.destroy())
        backend.on("error", () => client.destroy())
      }).listen(`${folder}/${socket}`, () => {
        Fs.chmodSync(`${folder}/${socket}`, 0o777)
        resume(Effect.succeed(server))
      })
    }),
    (server) => Effect.callback<void>((resume) => void server.close(() => resume(Effect.void)))
  )
  to.searchParams.set("host", folder)
  return to.href
})

/** A test in an instance of its own, with a way to do things there as nobody. */
const inInstance = <A, E, R>(
  use: (
    run: (operations: ReadonlyArray<Operations.Operation>) => Effect.Effect<ReadonlyArray<string>>
  ) => Effect.Effect<A, E, R>
) =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase.TestDatabase
    const folder = yield* Cell.folder
    Fs.chmodSync(folder, 0o755)
    const instance = Cell.makeInstance(folder)
    const open = yield* openToAll(url, folder)
    const run = (operations: ReadonlyArray<Operations.Operation>) =>
      Effect.gen(function* () {
        const now = DateTime.formatIso(yield* DateTime.now)
        const task = { operations, instance, url: open, name: "nobody", now }
        const { code, stderr, stdout } = yield* asNobody(script, [JSON.stringify(task)], folder)
        assert.strictEqual(code, 0, stderr)
        const ends: ReadonlyArray<string> = JSON.parse(stdout)
        return ends
      })
    const world = Layer.mergeAll(
      MovableClock.layer(World.noon),
      Layer.succeed(World.Instance, { path: instance })
    )
    return yield* use(run).pipe(
      Cell.inServer({ instance, url, name: "root" }),
      Effect.provide(Layer.fresh(world), { local: true })
    )
  }).pipe(Effect.scoped)

/** Gives an instance away, and takes something in it back. */
const giveAway = Effect.fnUntraced(function* (...except: ReadonlyArray<string>) {
  const { path } = yield* World.Instance
  if (!isRoot) return
  execFileSync("chown", ["-hR", `${nobody}:${nobody}`, path])
  for (const each of except) Fs.chownSync(each, 0, 0)
})

const shared = Layer.effectDiscard(Effect.andThen(HostTables.create, Migrations.migrate)).pipe(
  Layer.provide(Transactions.layer),
  Layer.provide(MovableClock.layer(World.noon)),
  Layer.provideMerge(TestDatabase.layerClient(inject("databaseUrl"))),
  Layer.provideMerge(Threads.layer)
)

describe.skipIf(!isReadable(script))("as a normal user", () => {
  layer(shared, { excludeTestServices: true, timeout: "60 seconds" })("the services", (it) => {
    it.effect("[Q-04] [S-18] [S-22] evict, delete, restore, and keep what they may not read or move", () =>
      inInstance(
        Effect.fnUntraced(function* (run) {
          const made = yield* World.skill({ versions: 6 })
          yield* Sweeping.place(made.copies)
          const [readOnly, unreadable, closed, lost, trashed, altered] = yield* Effect.forEach(
            made.copies,
            pathOf
          )
          Fs.rmSync(lost!, { recursive: true })
          const trash = yield* Sweeping.leftoverPath(made.copies[4]!, "trash")
          Fs.renameSync(trashed!, trash)
          Fs.chmodSync(`${altered}/SKILL.md`, 0o644)
          Fs.writeFileSync(`${altered}/SKILL.md`, "altered")
          // Of somebody else, in another skill: its folder cannot be changed.
          const other = yield* World.skill({ versions: 1, company: made })
          yield* Sweeping.place(other.copies)
          const theirs = yield* pathOf(other.copies[0]!)
          const theirFolder = theirs.replace(/\/[^/]*$/, "")
          yield* World.advance("2 hours")
          yield* giveAway(theirFolder)
          Fs.chmodSync(`${unreadable}/SKILL.md`, 0o000)
          for (const path of [`${readOnly}/scripts`, readOnly!, `${trash}/scripts`]) Fs.chmodSync(path, 0o555)
          for (const path of [closed!, trash, theirFolder])
            Fs.chmodSync(path, path === theirFolder ? 0o755 : 0o000)

          assert.deepStrictEqual(yield* run([{ _tag: "Sweep", companyId: made.companyId }]), ["done"])
          const there = [readOnly, unreadable, closed, trash, altered, theirs].map((path) =>
            Fs.existsSync(path!)
          )
          // Where the tests run as nobody in particular, the other skill is theirs too.
          assert.deepStrictEqual(there, [false, true, true, false, true, isRoot])

          const runId = yield* World.Fixtures.runId
          const versions = [0, 3].map((index) => made.copies[index]!.versionId)
          const prepare = { _tag: "Prepare", companyId: made.companyId, runId, versions } as const
          assert.deepStrictEqual(yield* run([prepare]), ["done"])
          for (const index of [0, 3]) {
            assert.deepStrictEqual(contentsOf(yield* pathOf(made.copies[index]!)), standard(index + 1))
          }
        })
      )
    )

    it.effect(
      "[Q-04] [B-01] [B-03] capture, restore and expire backups, and keep what they may not read",
      () =>
        inInstance(
          Effect.fnUntraced(function* (run) {
            const { path: instance } = yield* World.Instance
            const open = yield* Sessions.expirable({ issue: { status: "todo" } })
            const closed = yield* Sessions.expirable()
            const unreadable = yield* Sessions.expirable()
            const source = `${instance}/work`
            Fs.mkdirSync(source)
            Fs.writeFileSync(`${source}/state.json`, JSON.stringify({ note: "new" }))
            Fs.writeFileSync(`${source}/turn.log`, "turn of new\n", { mode: 0o400 })
            yield* giveAway()
            const folderOf = (session: Sessions.Make.Session) =>
              Effect.map(Sessions.pathOf(session.scope), (path) => `${path}/failover-backups/current`)
            for (const path of ["/runner/turn.log", "/runner"]) {
              Fs.chmodSync(`${yield* folderOf(closed)}${path}`, path === "/runner" ? 0o500 : 0o400)
            }
            Fs.chmodSync(yield* folderOf(unreadable), 0o000)

            const capture = {
              _tag: "Capture",
              scope: open.scope,
              sessionId: Ids.NativeSessionId.make(open.sessionId),
              source
            } as const
            const restore = (target: string) =>
              ({ _tag: "Restore", scope: open.scope, target: `${instance}/${target}` }) as const
            Fs.chmodSync(source, 0o000)
            const [refused, first, expired] = yield* run([capture, restore("one"), { _tag: "Expire" }])
            assert.include(refused, "EACCES")
            assert.deepStrictEqual([first, expired], ["done", "done"])
            assert.include(Fs.readFileSync(`${instance}/one/runner/turn.log`, "utf8"), "turn of current")
            assert.deepStrictEqual(yield* Sessions.names(open), ["current"])
            assert.deepStrictEqual(yield* Sessions.names(closed), [])
            assert.deepStrictEqual(yield* Sessions.names(unreadable), ["current"])

            Fs.chmodSync(source, 0o500)
            assert.deepStrictEqual(yield* run([capture, restore("two")]), ["done", "done"])
            assert.strictEqual(Fs.readFileSync(`${instance}/two/runner/turn.log`, "utf8"), "turn of new\n")
            assert.deepStrictEqual(yield* Sessions.names(open), ["current"])
          })
        )
    )
  })
})
