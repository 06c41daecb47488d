import { assert, layer } from "@effect/vitest"
import type { Ids, VersionAudit } from "@reclaim/core"
import { Transactions } from "@reclaim/db"
import { type CopyRef, Trees } from "@reclaim/fs"
import { layerFaulty } from "@reclaim/fs/testing"
import { Duration, Effect, Exit, Fiber, Layer, Option, Result, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import { execFileSync } from "node:child_process"
import * as Fs from "node:fs"
import { openTransactions } from "../../db/test/support/database.ts"
import { SkillVersionAudit } from "../src/index.ts"
import { FaultPoints } from "../src/testing.ts"
import {
  contentsOf,
  eventsOf,
  interruptAt,
  killAt,
  leftover,
  leftovers,
  overwrite,
  pathOf,
  prepare,
  standard
} from "./support/Copies.ts"
import * as Sweeping from "./support/Sweeping.ts"
import * as World from "./support/World.ts"

const audit = Effect.fnUntraced(function* (
  companyId: Ids.CompanyId,
  options: { readonly repair?: boolean } = {}
) {
  const service = yield* SkillVersionAudit.SkillVersionAudit
  return yield* Stream.runCollect(service.audit({ companyId, ...options }))
})

/** What a finding comes to: its status, with the reason where there is one, and whether it was repaired. */
const short = ({ reason, repaired, status }: SkillVersionAudit.Audited): string =>
  [status, ...Option.toArray(Option.map(reason, ({ _tag }) => _tag)), ...(repaired ? ["repaired"] : [])].join(
    " "
  )

const problems = ({ files }: SkillVersionAudit.Audited): ReadonlyArray<string> =>
  files.map(({ path, problem }) => `${problem} ${path}`).toSorted()

/** A company with so many copies on disk, none of them pinned. */
const begin = Effect.fnUntraced(function* (versions: number) {
  yield* World.begin
  const made = yield* World.skill({ versions })
  yield* Sweeping.materialize(made.copies)
  return { ...made, copy: made.copies[0]!, paths: yield* Effect.forEach(made.copies, pathOf) }
})

/** The verdict on the one copy of a version, for a company that has others too. */
const verdictOn = (found: ReadonlyArray<SkillVersionAudit.Audited>, copy: CopyRef.CopyRef) => {
  const [one, ...others] = found.filter(({ versionId }) => Option.contains(versionId, copy.versionId))
  assert.deepStrictEqual(others, [])
  return one
}

const states: ReadonlyArray<
  readonly [
    name: string,
    change: (path: string) => void,
    status: VersionAudit.Status,
    ...files: ReadonlyArray<string>
  ]
> = [
  ["nothing changed", () => undefined, "intact"],
  [
    "other modes",
    (path) => {
      Fs.chmodSync(`${path}/SKILL.md`, 0o600)
      Fs.chmodSync(`${path}/assets`, 0o500)
    },
    "intact"
  ],
  ["a missing file", (path) => Fs.rmSync(`${path}/SKILL.md`), "incomplete", "missing SKILL.md"],
  [
    "a missing folder",
    (path) => Fs.rmSync(`${path}/scripts`, { recursive: true }),
    "incomplete",
    "missing scripts/run.sh"
  ],
  [
    "nothing at all in it",
    (path) => {
      Fs.rmSync(path, { recursive: true })
      Fs.mkdirSync(path)
    },
    "incomplete",
    "missing SKILL.md",
    "missing assets/logo.bin",
    "missing scripts/run.sh"
  ],
  ["an extra file", (path) => Fs.writeFileSync(`${path}/assets/extra`, "x"), "altered", "extra assets/extra"],
  [
    "an extra file and a missing one",
    (path) => Fs.renameSync(`${path}/SKILL.md`, `${path}/skill.md`),
    "altered",
    "extra skill.md",
    "missing SKILL.md"
  ],
  ["an extra empty folder", (path) => Fs.mkdirSync(`${path}/cache`), "altered", "extra cache"],
  [
    "a name that is no text",
    (path) => Fs.writeFileSync(Buffer.concat([Buffer.from(`${path}/`), Buffer.of(0xff)]), ""),
    "altered",
    "extra \\xff"
  ],
  ["a shorter file", (path) => overwrite(`${path}/SKILL.md`, "rev"), "altered", "size SKILL.md"],
  [
    "other content of the same size",
    (path) => overwrite(`${path}/SKILL.md`, "REVISION 1"),
    "altered",
    "content SKILL.md"
  ],
  [
    "an executable bit that is missing",
    (path) => Fs.chmodSync(`${path}/scripts/run.sh`, 0o444),
    "altered",
    "executable scripts/run.sh"
  ],
  [
    "an executable bit that was set",
    (path) => Fs.chmodSync(`${path}/SKILL.md`, 0o555),
    "altered",
    "executable SKILL.md"
  ],
  [
    "a folder in the place of a file",
    (path) => {
      Fs.rmSync(`${path}/SKILL.md`)
      Fs.mkdirSync(`${path}/SKILL.md`)
    },
    "altered",
    "kind SKILL.md"
  ],
  [
    "a link in the place of a file",
    (path) => {
      Fs.rmSync(`${path}/SKILL.md`)
      Fs.symlinkSync("/etc/hostname", `${path}/SKILL.md`)
    },
    "unexpected",
    "kind SKILL.md"
  ],
  ["a FIFO", (path) => void execFileSync("mkfifo", [`${path}/pipe`]), "unexpected", "extra pipe"]
]

type Scan = Trees.Trees["Service"]["scanSliced"]
type Asked = Array<Parameters<Scan>[1]>

/** Audits with another way of reading in slices, and tells what the audit asked for. */
const reading =
  (asked: Asked, scanSliced: (trees: Trees.Trees["Service"]) => Scan) =>
  <A, E, R>(self: Effect.Effect<A, E, R>) =>
    Effect.provide(
      self,
      SkillVersionAudit.layer.pipe(
        Layer.provide(
          Layer.effect(
            Trees.Trees,
            Effect.map(Trees.Trees, (trees) =>
              Trees.Trees.of({
                ...trees,
                scanSliced: (root, options) => {
                  asked.push(options)
                  return scanSliced(trees)(root, options)
                }
              })
            )
          )
        )
      ),
      { local: true }
    )

/** In slices as short as can be. */
const inSmallSlices = (asked: Asked = []) =>
  reading(asked, (trees) => (root, options) => trees.scanSliced(root, { ...options, slice: "1 millis" }))

/** In two slices, the first of which reads everything: what happens between them, no reading notices. */
const inTwoSlices = (asked: Asked = []) =>
  reading(
    asked,
    (trees) => (root, options) =>
      Effect.map(trees.scanSliced(root, options), ({ advance }) => {
        let read = Option.none<Trees.TreeScan>()
        const first = Effect.map(advance, (scan) => {
          read = scan
          return Option.none()
        })
        return {
          advance: Effect.suspend(() =>
            Option.isSome(read) ? Effect.succeed(read) : options.digests ? first : advance
          )
        }
      })
  )

/** A copy that takes several slices of 1 ms. */
const large = Effect.gen(function* () {
  yield* World.begin
  const content = "x".repeat(1024 * 1024)
  const made = yield* World.skill({
    versions: 1,
    files: Array.from({ length: 6 }, (_, index) => ({ path: `file${index}`, content }))
  })
  yield* Sweeping.materialize(made.copies)
  return made
})

/** Does something after a copy was read, each time that it is. */
const meanwhile = (action: (time: number) => void) => {
  let times = 0
  return FaultPoints.at(
    "audit.betweenSlices",
    Effect.sync(() => action(++times))
  )
}

/** Whether somebody else could move a copy now. */
const couldMove = (companyId: Ids.CompanyId) =>
  Effect.gen(function* () {
    const transactions = yield* Transactions.Transactions
    return Result.isSuccess(yield* Effect.result(transactions.companyExclusive(companyId, () => Effect.void)))
  })

layer(World.layer(), { excludeTestServices: true })("audit", (it) => {
  for (const [name, change, status, ...files] of states) {
    it.effect(`[S-27] finds a copy with ${name} ${status}, file by file, and changes nothing`, () =>
      Effect.gen(function* () {
        const { companyId, copies, copy, paths } = yield* begin(2)
        change(paths[0]!)
        const before = yield* World.picture
        const tables = yield* Sweeping.tables
        const found = yield* audit(companyId)
        const verdict = verdictOn(found, copy)
        assert.strictEqual(verdict?.status, status)
        assert.deepStrictEqual(verdict && problems(verdict), [...files])
        assert.strictEqual(verdict?.problemCount, files.length)
        assert.strictEqual(verdict?.repaired, false)
        assert.strictEqual(verdict?.path, paths[0])
        assert.strictEqual(verdictOn(found, copies[1]!)?.status, "intact")
        assert.strictEqual(found.length, 2)
        assert.strictEqual(yield* World.picture, before)
        assert.deepStrictEqual(yield* Sweeping.tables, tables)
      })
    )
  }

  it.effect(
    "[S-27] what the database cannot rebuild, or nobody can read, is unprovable, with the reason",
    () =>
      Effect.gen(function* () {
        const made = yield* begin(4)
        const { companyId, copies, paths, skillId } = made
        const other = yield* World.skill({ versions: 1, company: made })
        const sql = yield* SqlClient.SqlClient
        const [gone, unusable, deep, strange] = copies
        yield* sql`update company_skills set current_version_id = null where id = ${skillId}::uuid`
        yield* sql`delete from company_skill_versions where id = ${gone!.versionId}::uuid`
        yield* sql`update company_skill_versions set file_inventory = '[{"path": "../x", "content": ""}]'::jsonb
        where id = ${unusable!.versionId}::uuid`
        Fs.mkdirSync(`${paths[2]}/${"d/".repeat(300)}`, { recursive: true })
        // In the folder of another skill.
        const moved = other.copies[0]!
        Fs.renameSync(paths[3]!, `${paths[3]!.slice(0, -36)}${moved.versionId}`)
        const before = yield* World.picture
        const found = yield* audit(companyId, { repair: true })
        assert.deepStrictEqual(
          [gone!, unusable!, deep!, { ...strange!, versionId: moved.versionId }].map((copy) =>
            Option.map(Option.fromUndefinedOr(verdictOn(found, copy)), short)
          ),
          ["NotRecoverable", "NotRecoverable", "Unreadable", "NotRecoverable"].map((reason) =>
            Option.some(`unprovable ${reason}`)
          )
        )
        assert.strictEqual(yield* World.picture, before)
      })
  )

  it.effect("[S-27] what is no copy where copies belong is unexpected, and stays", () =>
    Effect.gen(function* () {
      const { companyId, copies, paths, skillId } = yield* begin(3)
      Fs.rmSync(paths[0]!, { recursive: true })
      Fs.writeFileSync(paths[0]!, "not ours")
      Fs.rmSync(paths[1]!, { recursive: true })
      Fs.symlinkSync(paths[2]!, paths[1]!)
      Fs.mkdirSync(`${paths[2]!.slice(0, -36)}notes`)
      const skills = paths[2]!.slice(0, -74)
      Fs.symlinkSync(paths[2]!, `${skills}/${crypto.randomUUID()}`)
      // Pinned, but told once.
      yield* prepare(companyId, [copies[0]!.versionId])
      const before = yield* World.picture
      const found = yield* audit(companyId, { repair: true })
      assert.strictEqual(yield* World.picture, before)
      assert.strictEqual(found.length, 5)
      assert.deepStrictEqual(
        found
          .filter(({ status }) => status === "unexpected")
          .map((each) => [
            short(each),
            ...(Option.exists(each.skillId, (id) => id === skillId) ? ["of the skill"] : []),
            ...(Option.isSome(each.versionId) ? ["of a version"] : [])
          ])
          .map((words) => words.join(" "))
          .toSorted(),
        [
          "unexpected Unexpected",
          "unexpected Unexpected of the skill",
          "unexpected Unexpected of the skill of a version",
          "unexpected Unexpected of the skill of a version"
        ]
      )
      assert.strictEqual(verdictOn(found, copies[2]!)?.status, "intact")
    })
  )

  it.effect("[S-27] a pinned version that cannot be looked at is unprovable, told once, and stays", () =>
    Effect.gen(function* () {
      const { companyId, copies, paths } = yield* begin(2)
      yield* prepare(
        companyId,
        copies.map(({ versionId }) => versionId)
      )
      const refused = World.elsewhere({
        posix: layerFaulty([{ method: "lstat", matches: (each) => each === paths[0], code: "EIO" }])
      })
      const found = yield* refused(audit(companyId, { repair: true }))
      assert.deepStrictEqual(found.map(short).toSorted(), ["intact", "unprovable Unreadable"])
      const folder = paths[0]!.slice(0, -37)
      Fs.renameSync(folder, `${folder}-away`)
      Fs.symlinkSync(`${folder}-away`, folder)
      const behind = yield* audit(companyId, { repair: true })
      // The link itself, what was moved away, and the two versions.
      assert.deepStrictEqual(behind.map(short).toSorted(), [
        "unexpected Unexpected",
        "unexpected Unexpected",
        "unprovable Unreadable",
        "unprovable Unreadable"
      ])
      assert.isTrue(Fs.lstatSync(folder).isSymbolicLink())
    })
  )

  it.effect("[S-27] a version that an active run pins and that has no copy is missing, no other", () =>
    Effect.gen(function* () {
      const made = yield* begin(3)
      const { companyId, copies, paths } = made
      const [pinned, released] = copies
      const active = yield* World.Fixtures.run(made, { status: "running", started: true })
      const over = yield* World.Fixtures.run(made, { status: "succeeded" })
      yield* prepare(companyId, [pinned!.versionId], { runId: active })
      yield* prepare(companyId, [released!.versionId], { runId: over })
      for (const path of paths.slice(0, 2)) Fs.rmSync(path, { recursive: true })
      const found = yield* audit(companyId)
      assert.deepStrictEqual(found.map(short), ["intact", "missing"])
      assert.deepStrictEqual(found[1]?.versionId, Option.some(pinned!.versionId))
      assert.deepStrictEqual(found[1]?.skillId, Option.some(pinned!.skillId))
      assert.strictEqual(found[1]?.path, paths[0])
      assert.isFalse(yield* World.isThere(pinned!))
    })
  )

  it.effect("[S-27] repairs on request what the database can rebuild, and [S-29] tells it", () =>
    Effect.gen(function* () {
      const { companyId, copies, paths } = yield* begin(5)
      const [altered, incomplete, intact, missing, linked] = copies
      yield* prepare(companyId, [missing!.versionId])
      overwrite(`${paths[0]}/SKILL.md`, "REVISION 1")
      Fs.rmSync(`${paths[1]}/SKILL.md`)
      Fs.rmSync(paths[3]!, { recursive: true })
      Fs.symlinkSync("/etc/hostname", `${paths[4]}/link`)
      const untouched = Fs.statSync(paths[2]!).ino
      const found = yield* audit(companyId, { repair: true })
      assert.deepStrictEqual(
        copies.map((copy) => Option.map(Option.fromUndefinedOr(verdictOn(found, copy)), short)),
        [
          "altered repaired",
          "incomplete repaired",
          "intact",
          "missing repaired",
          "unexpected Unexpected"
        ].map(Option.some)
      )
      for (const index of [0, 1, 2, 3]) assert.deepStrictEqual(contentsOf(paths[index]!), standard(index + 1))
      assert.strictEqual(Fs.statSync(paths[2]!).ino, untouched)
      assert.isTrue(Fs.lstatSync(`${paths[4]}/link`).isSymbolicLink())
      const aside = (yield* Sweeping.siblings(altered!)).filter((name) => name.startsWith(".replaced-"))
      assert.strictEqual(aside.length, 2)
      const kept = aside.find((name) => name.includes(altered!.versionId))
      assert.strictEqual(Fs.readFileSync(`${paths[0]!.slice(0, -36)}${kept}/SKILL.md`, "utf8"), "REVISION 1")
      for (const [copy, expected] of [
        [altered!, ["repaired"]],
        [incomplete!, ["repaired"]],
        [intact!, []],
        [missing!, ["healed"]],
        [linked!, []]
      ] as const) {
        assert.deepStrictEqual(
          (yield* eventsOf(copy)).map(({ event }) => event),
          [...expected]
        )
      }
      assert.deepStrictEqual((yield* audit(companyId)).map(({ status }) => status).toSorted(), [
        "intact",
        "intact",
        "intact",
        "intact",
        "unexpected"
      ])
    })
  )

  it.effect("[S-27] what cannot be repaired says why, and the others are repaired", () =>
    Effect.gen(function* () {
      const made = yield* begin(2)
      const { companyId, copies, paths } = made
      const sql = yield* SqlClient.SqlClient
      yield* prepare(companyId, [copies[0]!.versionId])
      Fs.rmSync(paths[0]!, { recursive: true })
      Fs.rmSync(`${paths[1]}/SKILL.md`)
      yield* sql`update company_skill_versions set file_inventory = '[]'::jsonb
        where id = ${copies[0]!.versionId}::uuid`
      const found = yield* audit(companyId, { repair: true })
      assert.deepStrictEqual(found.map(short), ["incomplete repaired", "missing NotRecoverable"])
    })
  )

  it.effect("[S-27] a copy that somebody repaired meanwhile is left as it is", () =>
    Effect.gen(function* () {
      const { companyId, copy, paths } = yield* begin(1)
      Fs.rmSync(`${paths[0]}/SKILL.md`)
      const found = yield* Sweeping.during(
        "audit.beforeRepair",
        World.elsewhere()(audit(companyId, { repair: true }))
      )(audit(companyId, { repair: true }))
      assert.deepStrictEqual(found.map(short), ["incomplete repaired"])
      assert.deepStrictEqual(yield* leftovers(copy), [".replaced"])
      assert.strictEqual((yield* eventsOf(copy)).length, 1)
    })
  )

  it.effect("[S-27] holds the lock shared while it reads, and lets go between slices and copies", () =>
    Effect.gen(function* () {
      const { companyId } = yield* large
      const transactions = yield* Transactions.Transactions
      const asked: Asked = []
      const audited = inSmallSlices(asked)(audit(companyId))
      for (const [point, free] of [
        ["audit.afterSlice", false],
        ["audit.betweenSlices", true]
      ] as const) {
        const { fiber, goOn } = yield* Sweeping.stopAt(audited, point)
        assert.strictEqual(yield* couldMove(companyId), free)
        // Those who prepare never wait for it.
        yield* transactions.companyShared(companyId, () => Effect.void, { lockTimeout: "1 second" })
        yield* goOn
        assert.deepStrictEqual((yield* Fiber.join(fiber)).map(short), ["intact"])
      }
      for (const { slice } of asked) assert.isAtMost(Duration.toMillis(slice), 250)
      const two = yield* begin(2)
      Fs.rmSync(`${two.paths[0]}/SKILL.md`)
      const { fiber, goOn } = yield* Sweeping.stopAt(
        audit(two.companyId, { repair: true }),
        "audit.beforeRepair"
      )
      assert.isTrue(yield* couldMove(two.companyId))
      yield* goOn
      yield* Fiber.join(fiber)
    })
  )

  it.effect("[S-27] starts a copy again that changed after it was read, and tells what it is then", () =>
    Effect.gen(function* () {
      const { companyId, paths } = yield* begin(1)
      const asked: Asked = []
      const found = yield* audit(companyId).pipe(
        inTwoSlices(asked),
        meanwhile((time) => {
          if (time === 1) overwrite(`${paths[0]}/SKILL.md`, "REVISION 1")
        })
      )
      assert.deepStrictEqual(found.map(short), ["altered"])
      assert.deepStrictEqual(found.flatMap(problems), ["content SKILL.md"])
      // Read, looked at, read again and looked at again.
      assert.deepStrictEqual(
        asked.map(({ digests }) => digests),
        [true, false, true, false]
      )
    })
  )

  it.effect("[S-27] a copy that never comes to rest is unprovable after three readings, and stays", () =>
    Effect.gen(function* () {
      const { companyId, paths } = yield* begin(1)
      const asked: Asked = []
      const found = yield* audit(companyId, { repair: true }).pipe(
        inTwoSlices(asked),
        meanwhile((time) => overwrite(`${paths[0]}/SKILL.md`, `time ${time}`))
      )
      assert.deepStrictEqual(found.map(short), ["unprovable ChangedMeanwhile"])
      assert.strictEqual(asked.filter(({ digests }) => digests).length, 3)
      assert.strictEqual(Fs.readFileSync(`${paths[0]}/SKILL.md`, "utf8"), "time 3")
    })
  )

  it.effect("[S-27] a copy that goes while it is read is no finding, and one that comes is looked at", () =>
    Effect.gen(function* () {
      const { companyId, copy, paths } = yield* begin(1)
      const path = paths[0]!
      const away = path.replace(copy.versionId, `.evicting-${copy.versionId}-${crypto.randomUUID()}`)
      const gone = yield* audit(companyId).pipe(
        inTwoSlices(),
        meanwhile(() => Fs.renameSync(path, away))
      )
      assert.deepStrictEqual(gone, [])
      Fs.renameSync(away, path)
      Fs.rmSync(`${path}/SKILL.md`)
      const replaced = yield* Sweeping.during(
        "audit.betweenSlices",
        World.elsewhere()(prepare(companyId, [copy.versionId]))
      )(inTwoSlices()(audit(companyId)))
      assert.deepStrictEqual(replaced.map(short), ["intact"])
    })
  )

  it.effect("[S-27] a busy company costs one wait, and each of its copies is told", () =>
    Effect.gen(function* () {
      const made = yield* begin(4)
      const { companyId, copies, paths } = made
      yield* prepare(companyId, [copies[3]!.versionId])
      Fs.rmSync(paths[3]!, { recursive: true })
      const start = process.hrtime.bigint()
      const found = yield* World.elsewhere({ bounds: { lockTimeout: "3 seconds" } })(
        audit(companyId, { repair: true })
      ).pipe(Sweeping.holding(companyId, "companyExclusive"))
      const seconds = Number(process.hrtime.bigint() - start) / 1e9
      assert.deepStrictEqual(found.map(short), Array<string>(4).fill("unprovable CompanyBusy"))
      // Four waits would be twelve seconds.
      assert.isBelow(seconds, 9)
      assert.deepStrictEqual((yield* audit(companyId)).map(short), ["intact", "intact", "intact", "missing"])
    })
  )

  it.effect("[S-27] repairs of a company whose lock is held shared wait once for 5 s, and are refused", () =>
    Effect.gen(function* () {
      const { companyId, paths } = yield* begin(3)
      for (const path of paths) overwrite(`${path}/SKILL.md`, "mine")
      const start = process.hrtime.bigint()
      const found = yield* Sweeping.holding(companyId)(audit(companyId, { repair: true }))
      const seconds = Number(process.hrtime.bigint() - start) / 1e9
      assert.deepStrictEqual(found.map(short), Array<string>(3).fill("altered CompanyBusy"))
      assert.isAbove(seconds, 4)
      // Three waits would be fifteen seconds.
      assert.isBelow(seconds, 13)
      for (const path of paths) assert.strictEqual(Fs.readFileSync(`${path}/SKILL.md`, "utf8"), "mine")
    })
  )

  it.effect("[S-27] a lock that is lost while a copy is read starts it again, three times at most", () =>
    Effect.gen(function* () {
      const { companyId } = yield* begin(1)
      const sql = yield* SqlClient.SqlClient
      const cut = sql`select pg_terminate_backend(pid, 5000) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null`
      for (const [losses, expected] of [
        [2, "intact"],
        [3, "unprovable LockLost"]
      ] as const) {
        let left: number = losses
        const found = yield* FaultPoints.at(
          "audit.afterSlice",
          Effect.suspend(() => (left-- > 0 ? Effect.orDie(Effect.asVoid(cut)) : Effect.void))
        )(World.elsewhere()(audit(companyId)))
        assert.deepStrictEqual(found.map(short), [expected])
      }
      assert.strictEqual(yield* openTransactions, 0)
    })
  )

  it.effect("[S-27] refuses a company that the database does not have", () =>
    Effect.gen(function* () {
      const { copy } = yield* begin(1)
      const unknown = yield* World.Fixtures.company
      const sql = yield* SqlClient.SqlClient
      yield* sql`delete from agents where company_id = ${unknown.companyId}::uuid`
      yield* sql`delete from companies where id = ${unknown.companyId}::uuid`
      const error = yield* Effect.flip(audit(unknown.companyId, { repair: true }))
      assert.strictEqual(error._tag, "UnknownCompany")
      assert.isTrue(yield* World.isThere(copy))
    })
  )

  it.effect("[S-27] interrupted between slices it leaves neither lock, transaction nor thread behind", () =>
    Effect.gen(function* () {
      const { companyId } = yield* large
      for (const point of ["audit.afterSlice", "audit.betweenSlices"]) {
        const before = yield* World.picture
        // More often than there are threads.
        for (let times = 0; times < 5; times++) {
          const exit = yield* interruptAt(point, inSmallSlices()(audit(companyId)))
          assert.isTrue(Exit.hasInterrupts(exit))
          assert.deepStrictEqual(yield* Sweeping.unfinished, { locks: 0, transactions: 0 })
        }
        assert.strictEqual(yield* World.picture, before)
      }
      assert.deepStrictEqual((yield* audit(companyId)).map(short), ["intact"])
    })
  )

  /** Two pinned versions, one without a copy and one with an altered one, and one that is good. */
  const broken = Effect.gen(function* () {
    const { companyId, copies, paths } = yield* begin(3)
    yield* prepare(
      companyId,
      copies.slice(0, 2).map(({ versionId }) => versionId)
    )
    Fs.rmSync(paths[0]!, { recursive: true })
    Fs.writeFileSync(`${paths[1]}/mine`, "precious")
    return { companyId, copies, paths }
  })

  const points = [
    "audit.afterSlice",
    "audit.betweenSlices",
    "audit.beforeRepair",
    "restore.afterFolder",
    "restore.afterFile",
    "restore.afterStaging",
    "restore.beforeShared",
    "restore.beforePublish",
    "restore.afterPublish",
    "restore.afterShared",
    "repair.beforeSetAside",
    "repair.afterSetAside",
    "repair.afterPublish",
    "audit.afterRepair"
  ]

  /** Every copy is whole, what was altered is kept, and nothing else is left. */
  const converged = Effect.fnUntraced(function* ({
    companyId,
    copies,
    paths
  }: Effect.Success<typeof broken>) {
    for (let times = 0; times < 2; times++) yield* World.elsewhere()(World.sweep({ companyId }))
    assert.deepStrictEqual((yield* World.elsewhere()(audit(companyId))).map(short), [
      "intact",
      "intact",
      "intact"
    ])
    for (const [index, path] of paths.entries()) {
      assert.deepStrictEqual(contentsOf(path), standard(index + 1))
    }
    assert.deepStrictEqual(yield* leftovers(copies[0]!), [".replaced"])
    const aside = yield* leftover(copies[0]!, ".replaced")
    assert.strictEqual(Fs.readFileSync(`${aside}/mine`, "utf8"), "precious")
    assert.strictEqual(yield* openTransactions, 0)
  })

  for (const point of points) {
    for (const [next, repairing] of [
      ["audit", (companyId: Ids.CompanyId) => Effect.asVoid(audit(companyId, { repair: true }))],
      [
        "sweep, and the audit after it,",
        (companyId: Ids.CompanyId) =>
          Effect.gen(function* () {
            yield* World.sweep({ companyId })
            yield* audit(companyId, { repair: true })
          })
      ]
    ] as const) {
      it.effect(`[Q-01] killed at ${point}, the next ${next} repairs the rest and nothing is lost`, () =>
        Effect.gen(function* () {
          const made = yield* broken
          const exit = yield* audit(made.companyId, { repair: true }).pipe(
            inTwoSlices(),
            killAt(point),
            Effect.exit
          )
          assert.isTrue(Exit.hasDies(exit))
          yield* World.elsewhere()(repairing(made.companyId))
          yield* converged(made)
        })
      )
    }

    it.effect(`[Q-01] interrupted at ${point}, nothing half made is left, and the next audit repairs`, () =>
      Effect.gen(function* () {
        const made = yield* broken
        const exit = yield* interruptAt(point, inTwoSlices()(audit(made.companyId, { repair: true })))
        assert.isTrue(Exit.hasInterrupts(exit))
        assert.deepStrictEqual(yield* Sweeping.unfinished, { locks: 0, transactions: 0 })
        assert.isTrue((yield* leftovers(made.copies[1]!)).every((kind) => kind === ".replaced"))
        assert.isTrue(yield* World.isThere(made.copies[1]!))
        yield* World.elsewhere()(audit(made.companyId, { repair: true }))
        yield* converged(made)
      })
    )
  }

  it.effect("[Q-01] the points of an audit are all tried", () =>
    Effect.gen(function* () {
      const made = yield* broken
      const reached: Array<string> = []
      yield* audit(made.companyId, { repair: true }).pipe(inTwoSlices(), FaultPoints.record(reached))
      const concerned = reached.filter((each) => /^(audit|restore|repair)\./.test(each))
      assert.deepStrictEqual([...new Set(concerned)].toSorted(), points.toSorted())
      yield* converged(made)
    })
  )
})

layer(World.layer({ adopted: false }), { excludeTestServices: true })(
  "audit before a server is adopted",
  (it) => {
    it.effect("[O-02] looks without the schema reclaim, and a repair says how to adopt the server", () =>
      Effect.gen(function* () {
        const { companyId, copies } = yield* World.skill({ versions: 1 })
        yield* Sweeping.place(copies)
        const path = yield* pathOf(copies[0]!)
        overwrite(`${path}/SKILL.md`, "mine")
        assert.deepStrictEqual((yield* audit(companyId)).map(short), ["altered"])
        const error = yield* Effect.flip(audit(companyId, { repair: true }))
        assert.strictEqual(error._tag, "NotAdopted")
        assert.include(error.message, "reclaim migrate")
        assert.strictEqual(Fs.readFileSync(`${path}/SKILL.md`, "utf8"), "mine")
      })
    )
  }
)
