import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Effect } from "effect"
import * as Fs from "node:fs"
import * as InstanceRoots from "../src/InstanceRoots.ts"
import { companyId, tempFolder } from "./support/fixtures.ts"

const rootsOf = (options: InstanceRoots.Options) =>
  Effect.provide(InstanceRoots.InstanceRoots, InstanceRoots.layer(options))

const refusal = (options: InstanceRoots.Options) =>
  Effect.map(Effect.flip(rootsOf(options)), (error) => error.detail)

describe("InstanceRoots", () => {
  it.effect("[F-10] resolves the roots once, through links and what does not exist yet", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      Fs.mkdirSync(`${folder}/real`)
      Fs.mkdirSync(`${folder}/volume`)
      Fs.symlinkSync(`${folder}/real`, `${folder}/instance`)
      const { caseInsensitive, ...fresh } = yield* rootsOf({ instance: `${folder}/instance` })
      assert.deepStrictEqual(fresh, {
        instance: `${folder}/real`,
        skills: `${folder}/real/skills`,
        sessions: `${folder}/real/runtime/paperclip-runner/durable-sessions`
      })
      assert.strictEqual(caseInsensitive, process.platform === "darwin")
      Fs.symlinkSync(`${folder}/volume`, `${folder}/real/skills`)
      const linked = yield* rootsOf({
        instance: `${folder}/instance/../instance/`,
        sessions: `${folder}/instance/state/durable`
      })
      assert.deepStrictEqual(
        [linked.skills, linked.sessions],
        [`${folder}/volume`, `${folder}/real/state/durable`]
      )
    }).pipe(Effect.scoped)
  )

  it.effect("[F-10] refuses roots that are missing, equal, nested, relative, no folders, or /", () =>
    Effect.gen(function* () {
      const folder = yield* tempFolder
      const instance = `${folder}/instance`
      Fs.mkdirSync(`${instance}/skills/inner`, { recursive: true })
      Fs.writeFileSync(`${folder}/file`, "")
      Fs.symlinkSync(`${instance}/skills`, `${folder}/alias`)
      Fs.symlinkSync(`${folder}/nowhere`, `${folder}/dangling`)
      for (const [options, expected] of [
        [{ instance: `${folder}/missing` }, /does not exist/],
        [{ instance: `${folder}/file` }, /not a folder/],
        [{ instance: `${folder}/dangling` }, /leads nowhere/],
        [{ instance: "relative" }, /absolute/],
        [{ instance: "/" }, /root of the file system/],
        [{ instance, sessions: "relative" }, /absolute/],
        [{ instance, sessions: "/" }, /root of the file system/],
        [{ instance, sessions: `${folder}/file` }, /not a folder/],
        [{ instance, sessions: `${folder}/file/below` }, /ENOTDIR/],
        [{ instance, sessions: `${instance}/skills` }, /are the same/],
        [{ instance, sessions: `${folder}/alias` }, /are the same/],
        [{ instance, sessions: `${folder}/alias/inner` }, /lies in the skills folder/],
        [{ instance, sessions: `${instance}/skills/not/yet` }, /lies in the skills folder/],
        [{ instance, sessions: instance }, /lies in the session state folder/],
        [{ instance, sessions: folder }, /lies in the session state folder/]
      ] as const) {
        assert.match(yield* refusal(options), expected)
      }
      // A name that only begins with the other's is beside it.
      yield* rootsOf({ instance, sessions: `${instance}/skills-sessions` })
      Fs.rmSync(`${instance}/skills`, { recursive: true })
      Fs.symlinkSync("/", `${instance}/skills`)
      assert.match(yield* refusal({ instance, sessions: `${folder}/sessions` }), /root of the file system/)
    }).pipe(Effect.scoped)
  )

  it.effect("[F-10] refuses a platform that it does not know", () =>
    Effect.gen(function* () {
      const real = process.platform
      yield* Effect.acquireRelease(
        Effect.sync(() => Object.defineProperty(process, "platform", { value: "win32" })),
        () => Effect.sync(() => Object.defineProperty(process, "platform", { value: real }))
      )
      assert.match(yield* refusal({ instance: "/somewhere" }), /Linux and macOS, not on win32/)
    }).pipe(Effect.scoped)
  )

  it.effect("[S-01] finds out whether case matters without writing", () =>
    Effect.gen(function* () {
      const instance = yield* tempFolder
      Fs.mkdirSync(`${instance}/skills/${companyId()}`, { recursive: true })
      const before = Fs.lstatSync(`${instance}/skills`, { bigint: true })
      assert.isFalse((yield* rootsOf({ instance })).caseInsensitive)
      assert.strictEqual(Fs.lstatSync(`${instance}/skills`, { bigint: true }).ctimeNs, before.ctimeNs)
      // Two names of one entry are what such a volume shows.
      Fs.rmdirSync(`${instance}/skills/${companyId()}`)
      Fs.writeFileSync(`${instance}/skills/name`, "")
      Fs.linkSync(`${instance}/skills/name`, `${instance}/skills/NAME`)
      assert.isTrue((yield* rootsOf({ instance })).caseInsensitive)
    }).pipe(Effect.scoped)
  )

  it.effect("[F-10] says which root cannot be read", () =>
    Effect.gen(function* () {
      const instance = yield* tempFolder
      Fs.symlinkSync(`${instance}/skills`, `${instance}/skills`)
      const error = yield* Effect.flip(rootsOf({ instance }))
      assert.strictEqual(error.detail, `the skills folder cannot be read (ELOOP): ${instance}/skills`)
    }).pipe(Effect.scoped)
  )

  it.effect("[C-07] takes the folder of the sessions from the environment, empty as unset", () =>
    Effect.gen(function* () {
      const instance = yield* tempFolder
      const usual = `${instance}/runtime/paperclip-runner/durable-sessions`
      const sessionsOf = (env: Readonly<Record<string, string>>, sessions?: string) =>
        InstanceRoots.InstanceRoots.pipe(
          Effect.map((roots) => roots.sessions),
          Effect.provide(
            InstanceRoots.layerFromEnv({ instance, ...(sessions === undefined ? {} : { sessions }) })
          ),
          Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env }))
        )
      const variable = (value: string) => ({ PAPERCLIP_RUNNER_STATE_DIR: value })
      assert.strictEqual(yield* sessionsOf({}), usual)
      assert.strictEqual(yield* sessionsOf(variable("")), usual)
      assert.strictEqual(yield* sessionsOf(variable(`${instance}/state`)), `${instance}/state`)
      // What the host gives comes first.
      assert.strictEqual(yield* sessionsOf(variable("/elsewhere"), `${instance}/own`), `${instance}/own`)
      const refused = yield* Effect.flip(sessionsOf(variable("relative")))
      assert.match(refused.message, /must be an absolute path: relative/)
    }).pipe(Effect.scoped)
  )
})
