/**
 * Lists, moves, stages and publishes the copies of skill versions under `<skills>/<company>/__versions__`.
 *
 * **Details**
 *
 * Every move is one rename inside a skill's folder, to a unique name, so that nothing is ever replaced and
 * nothing is ever copied. A move of a copy is undone when its scope ends before it was confirmed. The
 * folders that lead to a copy are looked at one by one: a link in their place is an error.
 *
 * Who may move what is not decided here: locks, pins and proofs are the caller's.
 *
 * **Gotchas**
 *
 * A staged copy is not forced to the disk. A power cut soon after it was published may leave files that
 * are too short, which the next preparation notices by their sizes.
 *
 * @since 0.1.0
 */
import { Ids, type Manifest, type RetentionPolicy, VersionName, type VersionReason } from "@reclaim/core"
import { Context, Effect, Layer, Option, Ref, Schema, type Scope, Stream, Struct } from "effect"
import { createHash, randomUUID } from "node:crypto"
import { AccessRecords, folderName as accessFolder } from "./AccessRecords.ts"
import { type BytePath, show, text } from "./BytePath.ts"
import type { CopyRef } from "./CopyRef.ts"
import { type FileError, hasCode, make as fileError } from "./FileError.ts"
import { InstanceRoots } from "./InstanceRoots.ts"
import * as FaultPoints from "./internal/faultPoints.ts"
import { ensureFolders, folderInfo, requireFolders } from "./internal/folders.ts"
import * as StoreEntries from "./internal/storeEntries.ts"
import { type EntryInfo, PosixFileSystem, type VolumeInfo } from "./PosixFileSystem.ts"
import { type Removal, type RemoveOptions, Trees } from "./Trees.ts"

export type { CopyRef } from "./CopyRef.ts"

interface Located {
  /** Opaque text that sorts as the path's bytes do; `entries` continues after it. */
  readonly position: string
  readonly path: BytePath
  /** The path for people. */
  readonly shownPath: string
  readonly companyId: Ids.CompanyId
}

/** A folder with a name of ours: a copy or a leftover. @category models @since 0.1.0 */
export interface Entry extends Located {
  readonly _tag: "Entry"
  readonly skillId: Ids.SkillId
  readonly name: Exclude<VersionName.VersionName, { readonly _tag: "Unexpected" }>
  readonly info: EntryInfo
}

/**
 * Something that is not ours, or that cannot be looked at. It stays, and so does all below it.
 *
 * @category models
 * @since 0.1.0
 */
export interface Obstacle extends Located {
  readonly _tag: "Obstacle"
  readonly skillId: Option.Option<Ids.SkillId>
  /** Where its name is a version's. */
  readonly versionId: Option.Option<Ids.VersionId>
  readonly reason: VersionReason.Obstacle
}

/**
 * After the last entry of a skill. `empty`: its folder holds nothing at all. A skill that has access
 * records alone ends with the folder of those.
 *
 * @category models
 * @since 0.1.0
 */
export interface SkillEnd extends Located {
  readonly _tag: "SkillEnd"
  readonly skillId: Ids.SkillId
  readonly empty: boolean
  readonly info: EntryInfo
}

/** An access record without a copy. @category models @since 0.1.0 */
export interface Orphan extends Located {
  readonly _tag: "Orphan"
  readonly skillId: Ids.SkillId
  readonly versionId: Ids.VersionId
  readonly lastUse: RetentionPolicy.LastUse
  readonly info: EntryInfo
}

/** @category models @since 0.1.0 */
export type StoreEntry = Entry | Obstacle | SkillEnd | Orphan

/** Names a folder that a protocol left behind. @category models @since 0.1.0 */
export interface LeftoverRef<Name extends VersionName.Leftover = VersionName.Leftover> {
  readonly companyId: Ids.CompanyId
  readonly skillId: Ids.SkillId
  readonly name: Name
}

type Named<Tag extends VersionName.Leftover["_tag"]> = Extract<VersionName.Leftover, { readonly _tag: Tag }>

/** A folder under the name that it was moved to. @category models @since 0.1.0 */
export interface Moved<Name extends VersionName.Leftover> extends LeftoverRef<Name> {
  readonly path: string
}

/**
 * A copy on its way out. Unless `confirm` ran, the end of the scope moves it back.
 *
 * @category models
 * @since 0.1.0
 */
export interface Evicting extends Moved<Named<"Evicting">> {
  /**
   * Looks at the folder again, because the one that was compared and the one that was renamed could be two.
   * Fails when it is not what was expected, and moves nothing.
   */
  readonly recheck: Effect.Effect<void, FileError | Changed>
  /** Leaves the folder where it is when the scope ends. */
  readonly confirm: Effect.Effect<void>
  /** Moves it back now. The end of the scope then does nothing, or tries again where this failed. */
  readonly undo: Effect.Effect<MoveBack, FileError>
}

/**
 * What the top folder of a copy or a leftover must still be for it to be renamed. Without a change time that
 * is not compared.
 *
 * @category models
 * @since 0.1.0
 */
export type ExpectedTop = Omit<EntryInfo, "ctimeNs"> & Partial<Pick<EntryInfo, "ctimeNs">>

/**
 * Renames a folder. With `expected` only when its top folder still is that, and failing with `Changed`
 * otherwise.
 *
 * @category models
 * @since 0.1.0
 */
export interface Rename<Ref, A> {
  (ref: Ref): Effect.Effect<A, FileError>
  (ref: Ref, expected: ExpectedTop): Effect.Effect<A, FileError | Changed>
}

/**
 * `moved`: the copy has its name again. `taken`: something has that name, and the folder stays where it
 * is. `gone`: somebody else settled the folder.
 *
 * @category models
 * @since 0.1.0
 */
export type MoveBack = "moved" | "taken" | "gone"

/**
 * A whole copy that nobody sees yet. Unless it was `published`, the end of the scope discards it.
 *
 * @category models
 * @since 0.1.0
 */
export interface Staged extends Moved<Named<"Staging">> {
  readonly copy: CopyRef
  readonly published: Ref.Ref<boolean>
}

/** The copy is not what it was when it was proven. @category errors @since 0.1.0 */
export class Changed extends Schema.TaggedError<Changed>()("Changed", {
  path: Schema.String,
  what: Schema.String
}) {
  override get message(): string {
    return `${this.path}: ${this.what}`
  }
}

/** The staging folder vanished while it was written: somebody claimed it. Stage again. @since 0.1.0 */
export class StagingLost extends Schema.TaggedError<StagingLost>()("StagingLost", { path: Schema.String }) {
  override get message(): string {
    return `${this.path}: the staging folder is gone`
  }
}

/** What was to be written is not what the manifest says. @category errors @since 0.1.0 */
export class WrongContents extends Schema.TaggedError<WrongContents>()("WrongContents", {
  path: Schema.String,
  problem: Schema.Literals(["missing", "extra", "size", "content"])
}) {
  override get message(): string {
    return `${this.path}: ${this.problem}`
  }
}

/** The name of a copy is taken by something that is no folder. @category errors @since 0.1.0 */
export class NameTaken extends Schema.TaggedError<NameTaken>()("NameTaken", {
  path: Schema.String,
  kind: Schema.String
}) {
  override get message(): string {
    return `${this.path}: the name is taken (${this.kind})`
  }
}

/** One file's whole content; `ordinal` is that of the manifest. @category models @since 0.1.0 */
export interface FileContent {
  readonly ordinal: number
  readonly bytes: Uint8Array
}

/**
 * The copies on disk and their moves.
 *
 * @category services
 * @since 0.1.0
 */
export class VersionStore extends Context.Service<
  VersionStore,
  {
    /**
     * Everything in the store in the order of path bytes, strictly after a position, in bounded memory.
     * Folders may come and go meanwhile: what stays is met once. What vanishes is not there.
     */
    readonly entries: (options?: {
      readonly company?: Ids.CompanyId | undefined
      readonly after?: string | undefined
    }) => Stream.Stream<StoreEntry, FileError>
    /** Where a copy is, whether it exists or not. */
    readonly pathOf: (copy: CopyRef) => string
    /** The top folder of a copy, or whatever has its name; none when nothing has. */
    readonly inspect: (copy: CopyRef) => Effect.Effect<Option.Option<EntryInfo>, FileError>
    /**
     * Renames a copy to `.evicting-*` when its top folder still is `expected`, change time included; `recheck`
     * tells whether it was that folder that was renamed. Unless it is confirmed, the end of the scope moves it back, where its name is still free.
     */
    readonly evict: (
      copy: CopyRef,
      expected: EntryInfo
    ) => Effect.Effect<Evicting, FileError | Changed, Scope.Scope>
    /** Gives a copy that was leaving its name again, where that is free. */
    readonly moveBack: Rename<LeftoverRef<Named<"Evicting">>, MoveBack>
    /** Renames a leftover to `.trash-*`; none when it is gone. Only trash is ever deleted. */
    readonly toTrash: Rename<
      LeftoverRef<Named<"Staging" | "Evicting" | "Replaced">>,
      Option.Option<Moved<Named<"Trash">>>
    >
    /**
     * Deletes trash by the path that it was listed or moved to; only there, and only when no link leads to
     * it: a folder on the way that became one is ELOOP, any other path EINVAL. What is gone is complete.
     */
    readonly removeTrash: (
      path: BytePath,
      options?: Pick<RemoveOptions, "deadline">
    ) => Effect.Effect<Removal, FileError>
    /** Renames a copy that was leaving, and that differs, to `.replaced-*`; none when it is gone. */
    readonly setAside: Rename<LeftoverRef<Named<"Evicting">>, Option.Option<Moved<Named<"Replaced">>>>
    /** Renames a copy to `.replaced-*`; none when there is none. */
    readonly setAsideCopy: Rename<CopyRef, Option.Option<Moved<Named<"Replaced">>>>
    /**
     * Writes a copy beside its name, whole and verified: files 0444 or 0555, folders 0755. The end of the
     * scope discards it unless it was published.
     */
    readonly stage: <E = never, R = never>(
      copy: CopyRef,
      manifest: Manifest.Manifest,
      contents: Stream.Stream<FileContent, E, R>
    ) => Effect.Effect<Staged, FileError | StagingLost | WrongContents | E, R | Scope.Scope>
    /**
     * Gives a staged copy its name. `exists`: a copy has it already, and the end of the scope discards the
     * staged one. An empty folder with that name is replaced.
     */
    readonly publish: (
      staged: Staged
    ) => Effect.Effect<"published" | "exists", FileError | StagingLost | NameTaken>
    /** Removes a skill's folders where they are empty; true when that of its copies went. */
    readonly removeEmptySkill: (
      companyId: Ids.CompanyId,
      skillId: Ids.SkillId
    ) => Effect.Effect<boolean, FileError>
    /** The space of the volume that the copies lie on. */
    readonly volume: Effect.Effect<VolumeInfo, FileError>
  }
>()("@reclaim/fs/VersionStore") {}

const versionsFolder = StoreEntries.versionsFolder

// 4 files: as many calls as libuv makes at once.
const writers = 4
// 3 times: each time a sweep removed the empty skill folder just after it was made.
const folderAttempts = 3
// 1 MiB: about a millisecond of hashing between two turns of the event loop.
const hashSlice = 1024 * 1024

const isCompanyId = Schema.is(Ids.CompanyId)
const isSkillId = Schema.is(Ids.SkillId)

const goneTrash: Removal = {
  complete: true,
  stopped: false,
  removedEntries: 0,
  reclaimedBytes: 0n,
  failures: [],
  failureCount: 0
}

const compared = [
  "kind",
  "dev",
  "ino",
  "nlink",
  "mode",
  "size",
  "blocks",
  "mtimeNs",
  "ctimeNs",
  "birthtimeNs"
] as const satisfies ReadonlyArray<keyof EntryInfo>

const difference = (found: EntryInfo, expected: ExpectedTop): keyof EntryInfo | undefined =>
  compared.find((field) => expected[field] !== undefined && found[field] !== expected[field])

/**
 * Whether two looks at a top folder saw the same, change time included: what is compared before a move.
 *
 * @category queries
 * @since 0.1.0
 */
export const sameTop = (found: EntryInfo, expected: ExpectedTop): boolean =>
  difference(found, expected) === undefined

/**
 * What a top folder is after its own rename: all that it was, but for the change time, which the rename sets.
 *
 * @category combinators
 * @since 0.1.0
 */
export const afterRename = (top: EntryInfo): ExpectedTop => Struct.omit(top, ["ctimeNs"])

/** Looks at a folder that is about to be renamed. */
type Check<E> = (path: BytePath, found: EntryInfo) => Effect.Effect<void, E>

const anyTop: Check<never> = () => Effect.void

const sameAs =
  (expected: ExpectedTop): Check<Changed> =>
  (path, found) => {
    const field = difference(found, expected)
    return field === undefined
      ? Effect.void
      : Effect.fail(new Changed({ path: show(path), what: `its folder has another ${field}` }))
  }

const makeRename = <Ref, A>(
  perform: <E>(ref: Ref, check: Check<E>) => Effect.Effect<A, FileError | E>
): Rename<Ref, A> => {
  function rename(ref: Ref): Effect.Effect<A, FileError>
  function rename(ref: Ref, expected: ExpectedTop): Effect.Effect<A, FileError | Changed>
  function rename(ref: Ref, expected?: ExpectedTop): Effect.Effect<A, FileError | Changed> {
    return expected === undefined ? perform(ref, anyTop) : perform(ref, sameAs(expected))
  }
  return rename
}

const sha256 = Effect.fnUntraced(function* (bytes: Uint8Array) {
  const hash = createHash("sha256")
  for (let at = 0; at < bytes.length; at += hashSlice) {
    if (at > 0) yield* Effect.yieldNow
    hash.update(bytes.subarray(at, at + hashSlice))
  }
  return hash.digest("hex")
})

const makeStore = Effect.gen(function* () {
  const posix = yield* PosixFileSystem
  const roots = yield* InstanceRoots
  const trees = yield* Trees
  const records = yield* AccessRecords
  const { skills } = roots

  const skillNames = (ref: { readonly companyId: Ids.CompanyId; readonly skillId: Ids.SkillId }) => [
    ref.companyId,
    versionsFolder,
    ref.skillId
  ]
  const skillFolder = (ref: { readonly companyId: Ids.CompanyId; readonly skillId: Ids.SkillId }) =>
    `${skills}/${skillNames(ref).join("/")}`
  const pathOf = (copy: CopyRef) => `${skillFolder(copy)}/${copy.versionId}`
  const requireSkill = (
    operation: string,
    ref: { readonly companyId: Ids.CompanyId; readonly skillId: Ids.SkillId }
  ) => requireFolders(posix, operation, skills, skillNames(ref))

  const inspect = (copy: CopyRef) =>
    requireSkill("lstat", copy).pipe(
      Effect.andThen(posix.lstat(pathOf(copy))),
      Effect.asSome,
      Effect.catchIf(hasCode("ENOENT"), () => Effect.succeedNone)
    )

  /** One rename of a folder inside its skill's folder; none when there is nothing to move. */
  const move = Effect.fnUntraced(function* <Name extends VersionName.Leftover, E>(
    ref: { readonly companyId: Ids.CompanyId; readonly skillId: Ids.SkillId },
    from: string,
    name: Name,
    check: Check<E>
  ) {
    const folder = yield* requireSkill("rename", ref)
    yield* check(from, yield* folderInfo(posix, "rename", from))
    const path = `${folder}/${VersionName.format(name)}`
    yield* posix.rename(from, path)
    return { companyId: ref.companyId, skillId: ref.skillId, name, path }
  })

  const orGone = <A, E>(effect: Effect.Effect<A, E>) =>
    effect.pipe(
      Effect.asSome,
      Effect.catchIf(hasCode("ENOENT"), () => Effect.succeedNone)
    )

  const leftoverPath = (ref: LeftoverRef) => `${skillFolder(ref)}/${VersionName.format(ref.name)}`

  const moveBackTo = Effect.fnUntraced(function* <E>(ref: LeftoverRef<Named<"Evicting">>, check: Check<E>) {
    yield* requireSkill("rename", ref)
    const from = leftoverPath(ref)
    yield* check(from, yield* folderInfo(posix, "rename", from))
    const target = pathOf({ ...ref, versionId: ref.name.versionId })
    const taken = yield* posix.lstat(target).pipe(
      Effect.as(true),
      Effect.catchIf(hasCode("ENOENT"), () => Effect.succeed(false))
    )
    if (taken) return "taken"
    // A copy that is published just now is not replaced: the kernel refuses a folder that is not empty.
    return yield* posix.rename(from, target).pipe(
      Effect.as("moved" as const),
      Effect.catchIf(hasCode("ENOTEMPTY", "EEXIST", "ENOTDIR"), () => Effect.succeed("taken" as const))
    )
  })

  const moveBack = <E>(
    ref: LeftoverRef<Named<"Evicting">>,
    check: Check<E>
  ): Effect.Effect<MoveBack, FileError | E> =>
    Effect.gen(function* () {
      yield* FaultPoints.settleBeforeMoveBack
      const outcome: MoveBack = yield* moveBackTo(ref, check)
      yield* FaultPoints.settleAfterMoveBack
      return outcome
    }).pipe(
      Effect.catchIf(hasCode("ENOENT"), () => Effect.succeed("gone" as const)),
      Effect.uninterruptible
    )

  const evict = Effect.fnUntraced(function* (copy: CopyRef, expected: EntryInfo) {
    const from = pathOf(copy)
    const name: Named<"Evicting"> = { _tag: "Evicting", versionId: copy.versionId, token: randomUUID() }
    const orChanged = <A, E>(effect: Effect.Effect<A, E>) =>
      Effect.catchIf(effect, hasCode("ENOENT"), () =>
        Effect.fail(new Changed({ path: show(from), what: "it is gone" }))
      )
    let settled = false

    const acquire = Effect.gen(function* () {
      yield* FaultPoints.evictBeforeRename
      return yield* orChanged(move(copy, from, name, sameAs(expected)))
    })
    const undo = Effect.gen(function* () {
      yield* FaultPoints.evictBeforeUndo
      const outcome = yield* moveBack({ companyId: copy.companyId, skillId: copy.skillId, name }, anyTop)
      settled = true
      yield* FaultPoints.evictAfterUndo
      return outcome
    }).pipe(Effect.uninterruptible)
    const moved = yield* Effect.acquireRelease(acquire, () =>
      Effect.suspend(() => (settled ? Effect.void : Effect.asVoid(undo))).pipe(
        Effect.catch((error) => Effect.logError("A copy that was leaving could not be moved back", error)),
        Effect.annotateLogs({ path: show(from) })
      )
    )
    yield* FaultPoints.evictAfterRename
    const evicting: Evicting = {
      ...moved,
      recheck: orChanged(
        Effect.flatMap(posix.lstat(moved.path), (found) => sameAs(afterRename(expected))(from, found))
      ),
      confirm: Effect.sync(() => {
        settled = true
      }),
      undo
    }
    return evicting
  }, Effect.uninterruptible)

  const trashFrom = Effect.fnUntraced(function* <E>(
    ref: { readonly companyId: Ids.CompanyId; readonly skillId: Ids.SkillId },
    from: string,
    check: Check<E>
  ) {
    yield* FaultPoints.trashBeforeRename
    const name: Named<"Trash"> = { _tag: "Trash", token: randomUUID() }
    const moved = yield* orGone(move(ref, from, name, check))
    yield* FaultPoints.trashAfterRename
    return moved
  }, Effect.uninterruptible)

  const asideFrom = Effect.fnUntraced(function* <E>(
    ref: { readonly companyId: Ids.CompanyId; readonly skillId: Ids.SkillId },
    from: string,
    versionId: Ids.VersionId,
    check: Check<E>
  ) {
    yield* FaultPoints.repairBeforeSetAside
    const name: Named<"Replaced"> = { _tag: "Replaced", versionId, token: randomUUID() }
    const moved = yield* orGone(move(ref, from, name, check))
    yield* FaultPoints.repairAfterSetAside
    return moved
  }, Effect.uninterruptible)

  const skillOfTrash = (path: BytePath) => {
    const plain = text(path)
    if (plain?.startsWith(`${skills}/`) !== true) return undefined
    const [companyId, folder, skillId, name, ...rest] = plain.slice(skills.length + 1).split("/")
    return isCompanyId(companyId) &&
      folder === versionsFolder &&
      isSkillId(skillId) &&
      name !== undefined &&
      VersionName.parse(name)._tag === "Trash" &&
      rest.length === 0
      ? { companyId, skillId }
      : undefined
  }

  const removeTrash = Effect.fnUntraced(function* (
    path: BytePath,
    options?: Pick<RemoveOptions, "deadline">
  ) {
    const skill = skillOfTrash(path)
    if (skill === undefined) return yield* fileError("remove", path, "EINVAL")
    const found = yield* orGone(
      Effect.gen(function* () {
        const top = yield* folderInfo(posix, "remove", path)
        // After the look at the top: a link that comes later leads to another top than this one.
        yield* requireSkill("remove", skill)
        return top
      })
    )
    return Option.isNone(found)
      ? goneTrash
      : yield* trees.remove(path, { deadline: options?.deadline, expected: found.value })
  })

  /** Turns a staging folder of our own into trash and deletes it; what stays is left to a sweep. */
  const discard = (staged: Moved<Named<"Staging">>) =>
    trashFrom(staged, staged.path, anyTop).pipe(
      Effect.flatMap((trash) =>
        Option.isNone(trash) ? Effect.succeedNone : Effect.asSome(removeTrash(trash.value.path))
      ),
      Effect.tap((removal) =>
        Option.isSome(removal) && removal.value.failureCount > 0
          ? Effect.logWarning("A discarded copy could not be deleted whole", removal.value.failures)
          : Effect.void
      ),
      Effect.catch((error) => Effect.logWarning("A discarded copy could not be deleted", error)),
      Effect.annotateLogs({ path: staged.path })
    )

  const makeStaging = (copy: CopyRef) =>
    Effect.gen(function* () {
      const folder = yield* ensureFolders(posix, "mkdir", skills, skillNames(copy))
      const name: Named<"Staging"> = { _tag: "Staging", versionId: copy.versionId, token: randomUUID() }
      const path = `${folder}/${VersionName.format(name)}`
      yield* posix.makeDirectory(path, 0o755)
      const staged: Staged = {
        companyId: copy.companyId,
        skillId: copy.skillId,
        name,
        path,
        copy,
        published: yield* Ref.make(false)
      }
      return staged
    }).pipe(Effect.retry({ times: folderAttempts, while: hasCode("ENOENT") }))

  const stage = Effect.fnUntraced(function* <E, R>(
    copy: CopyRef,
    manifest: Manifest.Manifest,
    contents: Stream.Stream<FileContent, E, R>
  ) {
    const staged = yield* Effect.acquireRelease(makeStaging(copy), (staged) =>
      Effect.flatMap(Ref.get(staged.published), (published) => (published ? Effect.void : discard(staged)))
    )
    const lost = Effect.fail(new StagingLost({ path: staged.path }))
    const look = posix.lstat(staged.path).pipe(Effect.catchIf(hasCode("ENOENT"), () => lost))
    const made = yield* look
    yield* FaultPoints.restoreAfterFolder
    const expected = new Map(manifest.map((file) => [file.ordinal, file]))
    const folders = new Set<string>()
    const parents = Effect.fnUntraced(function* (path: string) {
      for (let at = path.indexOf("/"); at > 0; at = path.indexOf("/", at + 1)) {
        const folder = path.slice(0, at)
        if (folders.has(folder)) continue
        yield* posix.makeDirectory(`${staged.path}/${folder}`, 0o755)
        folders.add(folder)
      }
    })
    const write = Effect.fnUntraced(function* ({ bytes, ordinal }: FileContent) {
      const file = expected.get(ordinal)
      if (file === undefined) return yield* new WrongContents({ path: `#${ordinal}`, problem: "extra" })
      expected.delete(ordinal)
      const { executable, path } = file
      if (bytes.length !== file.size) return yield* new WrongContents({ path, problem: "size" })
      if ((yield* sha256(bytes)) !== file.sha256)
        return yield* new WrongContents({ path, problem: "content" })
      yield* posix.writeNew(`${staged.path}/${path}`, bytes, {
        mode: executable ? 0o555 : 0o444,
        sync: false
      })
      yield* FaultPoints.restoreAfterFile
    })
    /** A folder that somebody claimed has another name by now, or another folder its name. */
    const stillOurs = Effect.filterOrElse(
      look,
      (info) => info.dev === made.dev && info.ino === made.ino,
      () => lost
    )
    yield* contents.pipe(
      // One file at a time makes its folders; writing the files themselves takes turns.
      Stream.mapEffect((content) => {
        const file = expected.get(content.ordinal)
        return Effect.as(file === undefined ? Effect.void : parents(file.path), content)
      }),
      Stream.mapEffect(write, { concurrency: writers, unordered: true }),
      Stream.runDrain,
      Effect.tapError(() => stillOurs)
    )
    for (const { path } of expected.values()) return yield* new WrongContents({ path, problem: "missing" })
    yield* stillOurs
    yield* FaultPoints.restoreAfterStaging
    return staged
  })

  const publish = Effect.fnUntraced(function* (staged: Staged) {
    yield* requireSkill("rename", staged)
    const target = pathOf(staged.copy)
    yield* FaultPoints.restoreBeforePublish
    const outcome = yield* posix.rename(staged.path, target).pipe(
      Effect.as("published" as const),
      Effect.catchIf(hasCode("ENOTEMPTY", "EEXIST"), () => Effect.succeed("exists" as const)),
      Effect.catchIf(hasCode("ENOTDIR"), (error): Effect.Effect<never, FileError | NameTaken> =>
        Effect.flatMap(posix.lstat(target), (info) =>
          Effect.fail(
            info.kind === "directory" ? error : new NameTaken({ path: show(target), kind: info.kind })
          )
        )
      ),
      Effect.catchTag("FileError", (error) =>
        Effect.fail(hasCode("ENOENT")(error) ? new StagingLost({ path: staged.path }) : error)
      )
    )
    // A staged copy that is not needed is discarded at the end of its scope, without the caller's lock.
    if (outcome === "published") {
      yield* Ref.set(staged.published, true)
      yield* FaultPoints.restoreAfterPublish
    }
    return outcome
  }, Effect.uninterruptible)

  const removeEmpty = (path: string) =>
    posix.removeDirectory(path).pipe(
      Effect.as(true),
      Effect.catchIf(hasCode("ENOENT", "ENOTEMPTY", "EEXIST"), () => Effect.succeed(false))
    )

  return VersionStore.of({
    entries: (options) => StoreEntries.make({ posix, records, skills })(options ?? {}),
    pathOf,
    inspect,
    evict,
    moveBack: makeRename(moveBack),
    toTrash: makeRename((ref, check) => trashFrom(ref, leftoverPath(ref), check)),
    removeTrash,
    setAside: makeRename((ref, check) => asideFrom(ref, leftoverPath(ref), ref.name.versionId, check)),
    setAsideCopy: makeRename((copy, check) => asideFrom(copy, pathOf(copy), copy.versionId, check)),
    stage,
    publish,
    removeEmptySkill: Effect.fnUntraced(function* (companyId, skillId) {
      const remove = (names: ReadonlyArray<string>) =>
        requireFolders(posix, "rmdir", skills, names).pipe(
          Effect.flatMap(removeEmpty),
          Effect.catchIf(hasCode("ENOENT"), () => Effect.succeed(false))
        )
      const removed = yield* remove([companyId, versionsFolder, skillId])
      yield* remove([companyId, accessFolder, skillId])
      return removed
    }),
    volume: posix.volume(skills).pipe(Effect.catchIf(hasCode("ENOENT"), () => posix.volume(roots.instance)))
  })
})

/** @category layers @since 0.1.0 */
export const layer: Layer.Layer<
  VersionStore,
  never,
  PosixFileSystem | InstanceRoots | Trees | AccessRecords
> = Layer.effect(VersionStore, makeStore)
