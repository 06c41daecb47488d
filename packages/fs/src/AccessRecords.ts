/**
 * Keeps the instant at which each copy was last used, in a small file of its own.
 *
 * **Details**
 *
 * A record lies at `<skills>/<companyId>/__version_access__/<skillId>/<versionId>.json` and reads
 * `{"schema":"reclaim.access.v1","lastUsedAt":"<ISO 8601 UTC>"}`. It is replaced by a rename, so that it
 * is always one whole record or none; its own times mean nothing. A record that cannot be read or
 * understood is as good as none.
 *
 * **Gotchas**
 *
 * Nothing is forced to the disk: a record that a power cut loses costs its copy one more window. Two
 * servers that touch a record in the same instant may leave the earlier of the two instants.
 *
 * @since 0.1.0
 */
import { Ids, type RetentionPolicy } from "@reclaim/core"
import {
  Array as Arr,
  Context,
  DateTime,
  Duration,
  Effect,
  Layer,
  Option,
  Result,
  Schema,
  Semaphore,
  Stream
} from "effect"
import { randomUUID } from "node:crypto"
import { text } from "./BytePath.ts"
import type { CopyRef } from "./CopyRef.ts"
import { type FileError, hasCode } from "./FileError.ts"
import { InstanceRoots } from "./InstanceRoots.ts"
import { ensureFolders, requireAllFolders, requireFolders } from "./internal/folders.ts"
import * as FaultPoints from "./internal/faultPoints.ts"
import { PosixFileSystem } from "./PosixFileSystem.ts"

/**
 * The records of last use. Every path to a record is looked at part by part: a link or a file where a
 * folder belongs is ELOOP or ENOTDIR.
 *
 * @category services
 * @since 0.1.0
 */
export class AccessRecords extends Context.Service<
  AccessRecords,
  {
    /** The record of a copy. Fails only where the folders that lead to it cannot be trusted or read. */
    readonly read: (copy: CopyRef) => Effect.Effect<RetentionPolicy.LastUse, FileError>
    /** The records of many copies, in their order. The folders are looked at once for all copies of a skill. */
    readonly readAll: (
      copies: ReadonlyArray<CopyRef>
    ) => Effect.Effect<ReadonlyArray<Result.Result<RetentionPolicy.LastUse, FileError>>>
    /** Sets the instant of last use; a record that is later stays. */
    readonly touch: (copy: CopyRef, at: DateTime.Utc) => Effect.Effect<void, FileError>
    /**
     * Begins a window at `at`, which is now, for a copy without a readable record; true when it did. A
     * record more than 5 minutes ahead of `at` is replaced, because the policy does not believe it either.
     */
    readonly observe: (copy: CopyRef, at: DateTime.Utc) => Effect.Effect<boolean, FileError>
    /** Removes a record; none is fine. */
    readonly remove: (copy: CopyRef) => Effect.Effect<void, FileError>
    /** Removes what a crash left beside the records, written before `before`; returns how many. */
    readonly removeTemporaries: (
      companyId: Ids.CompanyId,
      skillId: Ids.SkillId,
      before: DateTime.Utc
    ) => Effect.Effect<number, FileError>
  }
>()("@reclaim/fs/AccessRecords") {}

/** The folder of the records, beside `__versions__`. @since 0.1.0 */
export const folderName = "__version_access__"

// 4 KiB: a record is under 100 bytes; what is larger is none.
const maxRecord = 4096
// 5 minutes: as in `RetentionPolicy.effectiveLastUse`.
const futureTolerance = Duration.minutes(5)
// 64 locks for all records: touches of one copy wait for each other, others rarely do.
const stripes = 64
// 3 times: each time another sweep removed the empty folder just after it was made.
const folderAttempts = 3

const Record = Schema.fromJsonString(
  Schema.Struct({
    schema: Schema.Literal("reclaim.access.v1"),
    lastUsedAt: Schema.String.check(
      Schema.isPattern(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|\+00:00)$/)
    ).pipe(Schema.decodeTo(Schema.DateTimeUtcFromString))
  })
)

const decode = Schema.decodeUnknownOption(Record)

const format = (at: DateTime.Utc): Uint8Array =>
  new TextEncoder().encode(
    `${JSON.stringify({ schema: "reclaim.access.v1", lastUsedAt: DateTime.formatIso(at) })}\n`
  )

const fileName = (versionId: Ids.VersionId) => `${versionId}.json`

const recordName = /^([0-9a-f-]{36})\.json$/
const temporaryName = /^\.[0-9a-f-]{36}-[0-9a-f-]{36}\.tmp$/

const absent: RetentionPolicy.LastUse = { _tag: "Absent" }

const makeRecords = Effect.gen(function* () {
  const posix = yield* PosixFileSystem
  const { skills } = yield* InstanceRoots
  const locks = Array.from({ length: stripes }, () => Semaphore.makeUnsafe(1))
  const lockOf = (copy: CopyRef) => locks[Number.parseInt(copy.versionId.slice(0, 2), 16) % stripes]!

  const folderNames = (companyId: Ids.CompanyId, skillId: Ids.SkillId) => [companyId, folderName, skillId]
  const requireFolder = (operation: string, companyId: Ids.CompanyId, skillId: Ids.SkillId) =>
    requireFolders(posix, operation, skills, folderNames(companyId, skillId))

  /** Absent when the record means nothing. */
  const lastUseOf = (bytes: Uint8Array): RetentionPolicy.LastUse => {
    const record = decode(text(bytes))
    return Option.isSome(record) ? { _tag: "Recorded", at: record.value.lastUsedAt } : absent
  }

  const readIn = (folder: string, versionId: Ids.VersionId): Effect.Effect<RetentionPolicy.LastUse> =>
    posix.readSmall(`${folder}/${fileName(versionId)}`, maxRecord).pipe(
      Effect.map(lastUseOf),
      Effect.orElseSucceed(() => absent)
    )

  const read = (copy: CopyRef) =>
    requireFolder("read", copy.companyId, copy.skillId).pipe(
      Effect.flatMap((folder) => readIn(folder, copy.versionId)),
      Effect.catchIf(hasCode("ENOENT"), () => Effect.succeed(absent))
    )

  const readAll = Effect.fnUntraced(function* (copies: ReadonlyArray<CopyRef>) {
    const folders = yield* requireAllFolders(
      posix,
      "read",
      skills,
      copies.map(({ companyId, skillId }) => folderNames(companyId, skillId))
    )
    const paths = Arr.zipWith(copies, folders, ({ versionId }, folder) =>
      Result.map(folder, (path) => `${path}/${fileName(versionId)}`)
    )
    const there = Arr.getSuccesses(paths)
    const contents = new Map(Arr.zip(there, yield* posix.readSmallAll(there, maxRecord)))
    return paths.map((found): Result.Result<RetentionPolicy.LastUse, FileError> => {
      if (Result.isFailure(found)) {
        return hasCode("ENOENT")(found.failure) ? Result.succeed(absent) : Result.fail(found.failure)
      }
      const content = contents.get(found.success)
      return Result.succeed(
        content !== undefined && Result.isSuccess(content) ? lastUseOf(content.success) : absent
      )
    })
  })

  /**
   * Writes a record beside its name and hands it to `place`. Another sweep may remove the folder while it
   * is still empty; then it is made again.
   */
  const write = (
    copy: CopyRef,
    at: DateTime.Utc,
    place: (folder: string, temporary: string) => Effect.Effect<boolean, FileError>
  ): Effect.Effect<boolean, FileError> =>
    Effect.gen(function* () {
      const folder = yield* ensureFolders(posix, "write", skills, folderNames(copy.companyId, copy.skillId))
      const temporary = `${folder}/.${copy.versionId}-${randomUUID()}.tmp`
      return yield* Effect.acquireUseRelease(
        posix.writeNew(temporary, format(at), { mode: 0o644, sync: false }),
        () => Effect.andThen(FaultPoints.accessAfterTemp, place(folder, temporary)),
        // After a rename there is nothing left to remove.
        () => Effect.ignore(posix.unlink(temporary))
      )
    }).pipe(Effect.retry({ times: folderAttempts, while: hasCode("ENOENT") }), Effect.uninterruptible)

  /** Looks again just before the rename, so that a later record of another server is not replaced. */
  const replaceUnless = (copy: CopyRef, keep: (lastUse: RetentionPolicy.LastUse) => boolean) =>
    Effect.fnUntraced(function* (folder: string, temporary: string) {
      if (keep(yield* readIn(folder, copy.versionId))) return false
      yield* posix.rename(temporary, `${folder}/${fileName(copy.versionId)}`)
      yield* FaultPoints.accessAfterReplace
      return true
    })

  return AccessRecords.of({
    read,
    readAll,
    touch: (copy, at) =>
      Effect.gen(function* () {
        const keep = (lastUse: RetentionPolicy.LastUse) =>
          lastUse._tag === "Recorded" && DateTime.isGreaterThanOrEqualTo(lastUse.at, at)
        if (keep(yield* read(copy))) return
        yield* write(copy, at, replaceUnless(copy, keep))
      }).pipe((self) => lockOf(copy).withPermit(self)),
    observe: (copy, at) =>
      Effect.gen(function* () {
        const believed = DateTime.addDuration(at, futureTolerance)
        const keep = (lastUse: RetentionPolicy.LastUse) =>
          lastUse._tag === "Recorded" && DateTime.isLessThanOrEqualTo(lastUse.at, believed)
        if (keep(yield* read(copy))) return false
        return yield* write(copy, at, (folder, temporary) =>
          // A link to the written file takes the name only when it is free, so that a touch that came
          // first wins.
          posix.link(temporary, `${folder}/${fileName(copy.versionId)}`).pipe(
            Effect.andThen(FaultPoints.accessAfterReplace),
            Effect.as(true),
            Effect.catchIf(hasCode("EEXIST", "EPERM", "ENOTSUP", "EOPNOTSUPP"), () =>
              replaceUnless(copy, keep)(folder, temporary)
            )
          )
        )
      }).pipe((self) => lockOf(copy).withPermit(self)),
    remove: (copy) =>
      requireFolder("unlink", copy.companyId, copy.skillId).pipe(
        Effect.flatMap((folder) => posix.unlink(`${folder}/${fileName(copy.versionId)}`)),
        Effect.catchIf(hasCode("ENOENT"), () => Effect.void)
      ),
    removeTemporaries: Effect.fnUntraced(function* (companyId, skillId, before) {
      const folder = yield* requireFolder("opendir", companyId, skillId).pipe(
        Effect.asSome,
        Effect.catchIf(hasCode("ENOENT"), () => Effect.succeedNone)
      )
      if (Option.isNone(folder)) return 0
      const limit = BigInt(DateTime.toEpochMillis(before)) * 1_000_000n
      return yield* posix.names(folder.value).pipe(
        Stream.filter(({ kind, name }) => kind === "file" && temporaryName.test(text(name) ?? "")),
        Stream.mapEffect(
          Effect.fnUntraced(
            function* ({ name }) {
              const path = `${folder.value}/${text(name) ?? ""}`
              const info = yield* posix.lstat(path)
              if (info.mtimeNs >= limit) return 0
              yield* posix.unlink(path)
              return 1
            },
            Effect.catchIf(hasCode("ENOENT"), () => Effect.succeed(0))
          )
        ),
        Stream.runFold(
          () => 0,
          (total, count) => total + count
        ),
        Effect.catchIf(hasCode("ENOENT"), () => Effect.succeed(0))
      )
    })
  })
})

/** The version that a record's name stands for. @category parsing @since 0.1.0 */
export const versionOf = (name: Uint8Array): Option.Option<Ids.VersionId> => {
  const match = recordName.exec(text(name) ?? "")
  return match === null ? Option.none() : Schema.decodeUnknownOption(Ids.VersionId)(match[1])
}

/** @category layers @since 0.1.0 */
export const layer: Layer.Layer<AccessRecords, never, PosixFileSystem | InstanceRoots> = Layer.effect(
  AccessRecords,
  makeRecords
)
