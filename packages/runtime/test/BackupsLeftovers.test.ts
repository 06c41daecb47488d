import { assert, describe, layer } from "@effect/vitest"
import { Holds } from "@reclaim/db"
import { DateTime, Duration, Effect, Fiber } from "effect"
import * as Fs from "node:fs"
import { FaultPoints } from "../src/testing.ts"
import * as World from "./support/SessionsWorld.ts"

const { Make } = World
type Session = World.Make.Session

const days = (count: number) => DateTime.addDuration(Make.longAgo, Duration.days(count))
const leftover = (kind: "retiring" | "expired" | "pending") => `.${kind}-${crypto.randomUUID()}`

/** A session that is kept, so that only its leftovers are settled; without backups of its own. */
const kept = (backups: ReadonlyArray<World.BackupOptions>, options: World.Make.SessionOptions = {}) =>
  World.expirable({ issue: { status: "in_progress" }, ...options, backups })

/** The names and what stands in each. */
const contents = Effect.fnUntraced(function* (session: Session) {
  const folder = `${yield* World.pathOf(session.scope)}/failover-backups`
  return Object.fromEntries(
    Fs.readdirSync(folder)
      .map((name) => [
        name.startsWith(".") ? name.slice(0, name.indexOf("-")) : name,
        /"note":"(.*)"/.exec(Fs.readFileSync(`${folder}/${name}/runner/state.json`, "utf8"))?.[1]
      ])
      .toSorted(([left], [right]) => String(left).localeCompare(String(right)))
  )
})

const unfinished = (session: Session) =>
  Make.run(session, { sessionId: session.sessionId, status: "queued", finishedAt: null })

layer(World.layer(), { excludeTestServices: true })("leftovers", (it) => {
  describe("retiring", () => {
    it.effect("[B-09] becomes current when that is missing", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* kept([{ name: leftover("retiring"), note: "left" }])
        assert.strictEqual((yield* World.sweepOnce()).recovered, 1)
        assert.deepStrictEqual(yield* contents(session), { current: "left" })
        assert.deepStrictEqual(yield* World.events(session), ["recovered"])
      })
    )

    for (const [kind, point, event] of [
      ["retiring", "revive.afterRename", "recovered"],
      ["superseded", "expire.afterRename", "expired"]
    ] as const) {
      it.effect(`[S-29] an interruption right after a ${kind} one was moved is told all the same`, () =>
        Effect.gen(function* () {
          yield* World.begin
          const current = kind === "superseded" ? [{ completedAt: days(1) }] : []
          const session = yield* kept([{ name: leftover("retiring") }, ...current])
          const gate = yield* FaultPoints.gate(point)
          const fiber = yield* Effect.forkChild(gate.guard(World.sweep()))
          yield* gate.reached
          const ending = yield* Effect.forkChild(Fiber.interrupt(fiber), { startImmediately: true })
          yield* gate.open
          yield* Fiber.join(ending)
          assert.deepStrictEqual(yield* World.events(session), [event])
        })
      )
    }

    it.effect("[B-09] the newest with a valid manifest becomes current, and then the older one goes", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* kept([
          { name: leftover("retiring"), note: "older", completedAt: days(1) },
          { name: leftover("retiring"), note: "newest", completedAt: days(2) }
        ])
        assert.strictEqual((yield* World.sweepOnce()).recovered, 1)
        assert.deepStrictEqual(yield* contents(session), { ".retiring": "older", current: "newest" })
        const report = yield* World.sweepOnce()
        assert.strictEqual(report.recovered, 0)
        assert.isAbove(Number(report.reclaimedAllocatedBytes), 0)
        assert.deepStrictEqual(yield* contents(session), { current: "newest" })
        assert.deepStrictEqual(yield* World.events(session), ["recovered", "expired"])
      })
    )

    it.effect("[B-09] without a valid manifest it stays, reported", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* kept([
          { name: leftover("retiring"), note: "left", manifest: false },
          { name: "current" }
        ])
        const lines = yield* World.logged(World.sweepOnce())
        assert.deepStrictEqual(
          lines.map(({ annotations }) => annotations["why"]),
          [["damaged"]]
        )
        assert.deepStrictEqual(yield* contents(session), { ".retiring": "left", current: "current" })
      })
    )

    for (const [what, current, why] of [
      ["a current that is not newer", { completedAt: Make.longAgo }, "notOlder"],
      ["a current without a valid manifest", { manifest: false }, "currentDamaged"],
      [
        "a current whose contents are not its digests'",
        { completedAt: days(1), damaged: true },
        "currentDamaged"
      ]
    ] as const) {
      it.effect(`[B-09] stays beside ${what}`, () =>
        Effect.gen(function* () {
          yield* World.begin
          const session = yield* kept([{ name: leftover("retiring"), note: "left" }, current])
          const lines = yield* World.logged(World.sweepOnce())
          assert.deepStrictEqual(
            lines.map(({ annotations }) => annotations["why"]),
            [[why]]
          )
          assert.deepStrictEqual(Object.keys(yield* contents(session)), [".retiring", "current"])
        })
      )
    }

    it.effect("[B-09] does not hide a previous that is newer", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* kept([
          { name: leftover("retiring"), note: "left" },
          { name: "previous", completedAt: days(1) }
        ])
        yield* World.sweepOnce()
        assert.deepStrictEqual(yield* contents(session), { ".retiring": "left", previous: "previous" })
        assert.strictEqual(yield* World.restored(session), "previous")
      })
    )

    it.effect("[B-09] comes back even where the session cannot be understood", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* kept([{ name: leftover("retiring"), note: "left" }])
        yield* World.state(session, "{")
        assert.strictEqual((yield* World.sweepOnce()).recovered, 1)
        assert.deepStrictEqual(yield* contents(session), { current: "left" })
      })
    )

    it.effect("[O-07] of a held scope is not dropped", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* kept([{ name: leftover("retiring") }, { completedAt: days(1) }])
        const holds = yield* Holds.Holds
        yield* holds.holdScope(session.scope, "ops", "wait")
        yield* World.sweepOnce()
        assert.deepStrictEqual(yield* World.names(session), [".retiring", "current"])
        yield* holds.unholdScope(session.scope)
        yield* World.sweepOnce()
        assert.deepStrictEqual(yield* World.names(session), ["current"])
      })
    )

    it.effect("[B-09] of a session that may go comes back first, and goes in the next pass", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* World.expirable({ backups: [{ name: leftover("retiring") }] })
        assert.deepInclude(yield* World.sweepOnce(), { recovered: 1, expired: 0 })
        assert.deepInclude(yield* World.sweepOnce(), { recovered: 0, expired: 1 })
        assert.deepStrictEqual(yield* World.names(session), [])
      })
    )
  })

  describe("expired", () => {
    it.effect("[B-09] is finished, also where the rest of the scope is kept", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* kept([
          { name: leftover("expired") },
          { name: leftover("expired"), manifest: false },
          {}
        ])
        const report = yield* World.sweepOnce()
        assert.deepInclude(report, { expired: 0, errors: 0 })
        assert.isAbove(Number(report.reclaimedAllocatedBytes), 0)
        assert.deepStrictEqual(yield* World.names(session), ["current"])
      })
    )

    it.effect("[B-09] with a run that is not over it comes back, if it is whole and the only one", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* kept([
          { name: leftover("expired"), note: "whole" },
          { name: leftover("expired"), note: "half", completedAt: days(1), damaged: true }
        ])
        yield* unfinished(session)
        assert.strictEqual((yield* World.sweepOnce()).recovered, 1)
        assert.strictEqual(yield* World.restored(session), "whole")
        assert.deepStrictEqual(yield* World.names(session), [".expired", "current"])
      })
    )

    it.effect("[B-09] that is half deleted does not come back", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* kept([{ name: leftover("expired"), damaged: true }])
        yield* unfinished(session)
        yield* World.sweepOnce()
        assert.deepStrictEqual(yield* World.names(session), [".expired"])
      })
    )

    for (const [what, prepare] of [
      ["a run is not over", unfinished],
      ["the runs are not known", (session: Session) => World.state(session, "{")],
      [
        "an operator holds the scope",
        (session: Session) => Effect.flatMap(Holds.Holds, (holds) => holds.holdScope(session.scope, "a", "b"))
      ]
    ] as const) {
      it.effect(`[B-09] stays beside current while ${what}`, () =>
        Effect.gen(function* () {
          yield* World.begin
          const session = yield* kept([{ name: leftover("expired") }, {}])
          yield* prepare(session)
          yield* World.sweepOnce()
          assert.deepStrictEqual(yield* World.names(session), [".expired", "current"])
        })
      )
    }

    it.effect("[B-09] a run that appears after the plan saves it", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* kept([{ name: leftover("expired"), note: "left" }])
        const run = yield* World.apart(unfinished(session))
        const report = yield* World.onceAt("expiration.beforeLastLook", run)(World.sweepOnce())
        assert.strictEqual(report.recovered, 1)
        assert.strictEqual(yield* World.restored(session), "left")
      })
    )
  })

  describe("pending", () => {
    const aged = Effect.fnUntraced(function* (session: Session, name: string, age: Duration.Input) {
      const folder = `${yield* World.pathOf(session.scope)}/failover-backups/${name}`
      const at = DateTime.toDateUtc(DateTime.subtractDuration(World.noon, Duration.fromInputUnsafe(age)))
      Fs.utimesSync(folder, at, at)
    })

    it.effect("[B-09] younger than 24 hours stays, and then goes", () =>
      Effect.gen(function* () {
        yield* World.begin
        const name = leftover("pending")
        const session = yield* kept([{ name, manifest: false }, {}])
        yield* aged(session, name, "23 hours")
        yield* World.sweepOnce()
        assert.deepStrictEqual(yield* World.names(session), [".pending", "current"])
        yield* World.advance("1 hour")
        const report = yield* World.sweepOnce()
        assert.isAbove(Number(report.reclaimedAllocatedBytes), 0)
        assert.deepStrictEqual(yield* World.names(session), ["current"])
      })
    )

    it.effect("[B-09] stays while a run of the session is not over", () =>
      Effect.gen(function* () {
        yield* World.begin
        const name = leftover("pending")
        const session = yield* kept([{ name, manifest: false }, {}])
        yield* unfinished(session)
        yield* World.sweepOnce()
        assert.deepStrictEqual(yield* World.names(session), [".pending", "current"])
      })
    )

    it.effect("[B-09] of a session that may go: first the writing ends, then all of it goes", () =>
      Effect.gen(function* () {
        yield* World.begin
        const name = leftover("pending")
        const session = yield* World.expirable({ backups: [{ name, manifest: false }, {}] })
        yield* aged(session, name, "23 hours")
        assert.deepStrictEqual((yield* World.sweepOnce()).skipped, { Unexpected: 1 })
        assert.deepStrictEqual(yield* World.names(session), [".pending", "current"])
        yield* World.advance("1 hour")
        assert.strictEqual((yield* World.sweepOnce()).expired, 1)
        assert.deepStrictEqual(yield* World.names(session), [])
      })
    )

    it.effect("[B-09] that is half written never becomes current", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* kept([{ name: leftover("pending"), manifest: false }])
        const run = yield* World.apart(unfinished(session))
        yield* World.onceAt("expiration.beforeLastLook", run)(World.sweepOnce())
        assert.deepStrictEqual(yield* World.names(session), [".expired"])
      })
    )
  })

  describe("what stands in the way", () => {
    it.effect("[B-09] two sweeps at once settle a leftover once", () =>
      Effect.gen(function* () {
        yield* World.begin
        const session = yield* kept([{ name: leftover("retiring"), note: "left" }])
        const gate = yield* FaultPoints.gate("revive.beforeRename")
        const reports = yield* Effect.all(
          [
            gate.guard(World.sweepOnce()),
            Effect.andThen(gate.reached, World.sweepOnce()).pipe(
              World.elsewhere(),
              Effect.ensuring(gate.open)
            )
          ],
          { concurrency: 2 }
        )
        assert.deepStrictEqual(
          reports.map(({ recovered }) => recovered),
          [0, 1]
        )
        assert.deepStrictEqual(yield* contents(session), { current: "left" })
        assert.deepStrictEqual(yield* World.events(session), ["recovered"])
      })
    )

    for (const [what, name] of [
      ["a link", leftover("expired")],
      ["a file", leftover("expired")],
      ["a name without a UUID", ".expired-1"]
    ] as const) {
      it.effect(`[F-01] ${what} with the name of a leftover is neither followed nor removed`, () =>
        Effect.gen(function* () {
          yield* World.begin
          const session = yield* World.expirable()
          const folder = yield* World.pathOf(session.scope)
          const path = `${folder}/failover-backups/${name}`
          if (what === "a link") Fs.symlinkSync(`${folder}/control-plane`, path)
          else if (what === "a file") Fs.writeFileSync(path, "x")
          else Fs.mkdirSync(path)
          const before = yield* World.picture
          assert.deepStrictEqual((yield* World.sweepOnce()).skipped, { Unexpected: 1 })
          assert.strictEqual(yield* World.picture, before)
        })
      )
    }
  })
})
