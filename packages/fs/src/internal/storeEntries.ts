/**
 * Lists the version store in the order of path bytes, from any position on, in bounded memory.
 *
 * `readdir` has no order. So each folder is read whole as often as needed, each time for the next few
 * thousand names after the last one: folders may come and go meanwhile without anything being met twice
 * or passed over.
 */
import { Ids, VersionName, type VersionReason } from "@reclaim/core"
import { Effect, Option, Stream } from "effect"
import { type BytePath, bytes, join, show } from "../BytePath.ts"
import * as AccessRecords from "../AccessRecords.ts"
import { type FileError, hasCode } from "../FileError.ts"
import type { EntryInfo, PosixFileSystem } from "../PosixFileSystem.ts"
import type { StoreEntry } from "../VersionStore.ts"
import { notAFolder, unexpected, unreadable } from "./obstacles.ts"
import { afterNames, encodeName, last, smallest } from "./position.ts"

// 4096 names of under 100 bytes at each of three levels: about a megabyte.
const defaultWindow = 4096

// 4 looks at once, as many calls as libuv makes; the order stays.
const lookahead = 4

export const versionsFolder = "__versions__"

interface Item {
  readonly key: string
  readonly name: Uint8Array
  readonly kind: EntryInfo["kind"]
  /** Seen among the access records alone. */
  readonly record: boolean
}

type Place =
  | { readonly _tag: "Missing" }
  | { readonly _tag: "Folder"; readonly info: EntryInfo }
  | { readonly _tag: "Obstacle"; readonly reason: VersionReason.Obstacle }

const vanished = hasCode("ENOENT")

const parseId = <Id>(parse: (input: string) => Option.Option<Id>, name: Uint8Array): Option.Option<Id> =>
  parse(Buffer.from(name).toString("latin1"))

/** A name on disk is the id itself, so that upper case is not ours. */
const exactly =
  <Id extends string>(schema: Parameters<typeof Ids.parse<Id>>[0]) =>
  (input: string): Option.Option<Id> =>
    Option.filter(Ids.parse(schema, input), (id) => id === input)

const companyOf = exactly<Ids.CompanyId>(Ids.CompanyId)
const skillOf = exactly<Ids.SkillId>(Ids.SkillId)
const versionOf = exactly<Ids.VersionId>(Ids.VersionId)

export const make = (options: {
  readonly posix: PosixFileSystem["Service"]
  readonly records: AccessRecords.AccessRecords["Service"]
  readonly skills: string
  readonly window?: number
}) => {
  const { posix, records, skills } = options
  const capacity = options.window ?? defaultWindow

  const look = (path: BytePath): Effect.Effect<Place> =>
    posix.lstat(path).pipe(
      Effect.map((info): Place =>
        info.kind === "directory"
          ? { _tag: "Folder", info }
          : { _tag: "Obstacle", reason: notAFolder(info.kind, path) }
      ),
      Effect.catch((error) =>
        Effect.succeed<Place>(
          vanished(error) ? { _tag: "Missing" } : { _tag: "Obstacle", reason: unreadable(error) }
        )
      )
    )

  /** Reads a folder for the collector; a folder that is gone has no names. */
  const offer = (path: BytePath, each: (name: Uint8Array, kind: EntryInfo["kind"]) => void) =>
    posix.names(path).pipe(
      Stream.runForEachArray((page) => Effect.sync(() => page.forEach(({ kind, name }) => each(name, kind)))),
      Effect.catchIf(vanished, () => Effect.void)
    )

  /** All items after a key, window by window. */
  const windows = (
    after: string,
    read: (add: (item: Item) => void) => Effect.Effect<void, FileError>
  ): Stream.Stream<Item, FileError> =>
    Stream.paginate(
      after,
      Effect.fnUntraced(function* (from: string) {
        const collector = smallest<Item>(capacity, from)
        yield* read(collector.add)
        const { items, more } = collector.finish()
        const end = items.at(-1)
        return [items, more && end !== undefined ? Option.some(end.key) : Option.none<string>()] as const
      })
    )

  const isEmpty = (path: BytePath) =>
    posix.names(path).pipe(
      Stream.take(1),
      Stream.runCollect,
      Effect.map((first) => first.length === 0),
      // A folder that cannot be read is not known to be empty.
      Effect.orElseSucceed(() => false)
    )

  const skillEntries = (companyId: Ids.CompanyId, skillId: Ids.SkillId, after: string) =>
    Effect.gen(function* () {
      const folder = `${skills}/${companyId}/${versionsFolder}/${skillId}`
      const access = `${skills}/${companyId}/${AccessRecords.folderName}/${skillId}`
      const base = `${companyId}/${versionsFolder}/${skillId}/`
      const place = yield* look(folder)
      const obstacle = (
        position: string,
        path: BytePath,
        reason: VersionReason.Obstacle,
        versionId: Option.Option<Ids.VersionId> = Option.none()
      ): StoreEntry => ({
        _tag: "Obstacle",
        position,
        path,
        shownPath: show(path),
        companyId,
        skillId: Option.some(skillId),
        versionId,
        reason
      })
      const known = (entry: StoreEntry) => (entry.position > after ? Stream.succeed(entry) : Stream.empty)

      if (place._tag === "Obstacle") return known(obstacle(base, folder, place.reason))
      const accessPlace = yield* look(access)
      if (place._tag === "Missing" && accessPlace._tag === "Missing") return Stream.empty

      const entry = Effect.fnUntraced(function* (item: Item): Effect.fn.Return<Option.Option<StoreEntry>> {
        const path = join(folder, item.name)
        const position = base + item.key
        const versionId = parseId(versionOf, item.name)
        const found = yield* Effect.result(posix.lstat(path))
        if (found._tag === "Failure") {
          if (!vanished(found.failure)) {
            return Option.some(obstacle(position, path, unreadable(found.failure), versionId))
          }
          if (!item.record || Option.isNone(versionId)) return Option.none()
          return yield* orphan(position, versionId.value)
        }
        const info = found.success
        const name = VersionName.parse(show(item.name))
        if (name._tag === "Unexpected") {
          return Option.some(obstacle(position, path, unexpected("a name that is no id", path)))
        }
        if (info.kind !== "directory") {
          return Option.some(obstacle(position, path, notAFolder(info.kind, path), versionId))
        }
        if (place._tag === "Folder" && info.dev !== place.info.dev) {
          return Option.some(obstacle(position, path, unexpected("another file system", path), versionId))
        }
        return Option.some({
          _tag: "Entry",
          position,
          path,
          shownPath: show(path),
          companyId,
          skillId,
          name,
          info
        })
      })

      const orphan = Effect.fnUntraced(function* (
        position: string,
        versionId: Ids.VersionId
      ): Effect.fn.Return<Option.Option<StoreEntry>> {
        const path = `${access}/${versionId}.json`
        const info = yield* Effect.result(posix.lstat(path))
        if (info._tag === "Failure") return Option.none()
        const lastUse = yield* Effect.result(records.read({ companyId, skillId, versionId }))
        if (lastUse._tag === "Failure") return Option.none()
        return Option.some({
          _tag: "Orphan",
          position,
          path,
          shownPath: show(path),
          companyId,
          skillId,
          versionId,
          lastUse: lastUse.success,
          info: info.success
        })
      })

      const names = windows(after.startsWith(base) ? after.slice(base.length) : "", (add) =>
        Effect.gen(function* () {
          if (place._tag === "Folder") {
            yield* offer(folder, (name, kind) => add({ key: encodeName(name), name, kind, record: false }))
          }
          if (accessPlace._tag === "Folder") {
            yield* offer(access, (fileName, kind) => {
              const version = AccessRecords.versionOf(fileName)
              if (Option.isNone(version)) return
              const name = bytes(version.value)
              add({ key: encodeName(name), name, kind, record: true })
            })
          }
        })
      ).pipe(
        // Of a copy and its record, the first that comes stands for both.
        Stream.changesWith((left, right) => left.key === right.key),
        Stream.mapEffect(entry, { concurrency: lookahead }),
        Stream.flatMap((found) => Stream.fromIterable(Option.toArray(found))),
        // The rest of a folder whose names cannot be read is not known; what comes after it is.
        Stream.catch((error) => known(obstacle(base + afterNames, folder, unreadable(error))))
      )

      const end = Stream.fromEffect(
        Effect.gen(function* () {
          const [top, path] =
            place._tag === "Folder"
              ? ([yield* look(folder), folder] as const)
              : ([yield* look(access), access] as const)
          if (top._tag !== "Folder") return Option.none<StoreEntry>()
          return Option.some<StoreEntry>({
            _tag: "SkillEnd",
            position: base + last,
            path,
            shownPath: show(path),
            companyId,
            skillId,
            empty: yield* isEmpty(path),
            info: top.info
          })
        })
      ).pipe(Stream.flatMap((found) => Stream.fromIterable(Option.toArray(found))))

      const accessObstacle =
        accessPlace._tag === "Obstacle" ? known(obstacle(base, access, accessPlace.reason)) : Stream.empty
      return accessObstacle.pipe(Stream.concat(names), Stream.concat(end))
    }).pipe(Stream.unwrap)

  const companyEntries = (companyId: Ids.CompanyId, kind: EntryInfo["kind"], after: string) =>
    Effect.gen(function* () {
      const obstacle = (position: string, path: BytePath, reason: VersionReason.Obstacle) =>
        position > after
          ? Stream.succeed<StoreEntry>({
              _tag: "Obstacle",
              position,
              path,
              shownPath: show(path),
              companyId,
              skillId: Option.none(),
              versionId: Option.none(),
              reason
            })
          : Stream.empty
      const company = `${skills}/${companyId}`
      if (kind !== "directory") return obstacle(`${companyId}/`, company, notAFolder(kind, company))

      const access = `${company}/${AccessRecords.folderName}`
      const accessPlace = yield* look(access)
      const accessObstacle =
        accessPlace._tag === "Obstacle"
          ? obstacle(`${companyId}/${AccessRecords.folderName}/`, access, accessPlace.reason)
          : Stream.empty

      const versions = `${company}/${versionsFolder}`
      const place = yield* look(versions)
      const base = `${companyId}/${versionsFolder}/`
      if (place._tag === "Obstacle") {
        return Stream.concat(accessObstacle, obstacle(base, versions, place.reason))
      }

      // Of the skill that the position lies in, everything before the position is skipped further down.
      const skipped = after.startsWith(base) ? after.slice(base.length) : ""
      const slash = skipped.indexOf("/")
      const skillAfter = slash < 0 ? skipped : skipped.slice(0, slash)
      const skillNames = windows(skillAfter, (add) =>
        Effect.gen(function* () {
          const item = (name: Uint8Array, kind: EntryInfo["kind"], record: boolean) => {
            const key = encodeName(name)
            // What has entries below it sorts as its path with the separator does.
            add({ key: Option.isSome(parseId(skillOf, name)) ? `${key}/` : key, name, kind, record })
          }
          if (place._tag === "Folder") yield* offer(versions, (name, kind) => item(name, kind, false))
          if (accessPlace._tag === "Folder") {
            yield* offer(access, (name, kind) => {
              if (Option.isSome(parseId(skillOf, name))) item(name, kind, true)
            })
          }
        })
      ).pipe(
        Stream.changesWith((left, right) => left.key === right.key),
        Stream.flatMap(({ key, name }): Stream.Stream<StoreEntry, FileError> => {
          const skillId = parseId(skillOf, name)
          if (Option.isSome(skillId)) {
            return after >= base + key + last ? Stream.empty : skillEntries(companyId, skillId.value, after)
          }
          const path = join(versions, name)
          return obstacle(base + key, path, unexpected("a name that is no id", path))
        }),
        Stream.catch((error) => obstacle(base + afterNames, versions, unreadable(error)))
      )
      return Stream.concat(accessObstacle, skillNames)
    }).pipe(Stream.unwrap)

  return (selection: {
    readonly company?: Ids.CompanyId | undefined
    readonly after?: string | undefined
  }): Stream.Stream<StoreEntry, FileError> => {
    const after = selection.after ?? ""
    const { company } = selection
    if (company !== undefined) {
      return after >= `${company}/${last}`
        ? Stream.empty
        : Stream.fromEffect(look(`${skills}/${company}`)).pipe(
            Stream.flatMap((place) =>
              place._tag === "Missing"
                ? Stream.empty
                : place._tag === "Folder"
                  ? companyEntries(company, "directory", after)
                  : obstructed(company, place.reason, after)
            )
          )
    }
    const slash = after.indexOf("/")
    // The company that the position lies in comes again; what is before the position is skipped in it.
    const companyAfter = slash < 0 ? after : after.slice(0, slash)
    return windows(companyAfter, (add) =>
      offer(skills, (name, kind) => {
        if (Option.isSome(parseId(companyOf, name)))
          add({ key: `${encodeName(name)}/`, name, kind, record: false })
      })
    ).pipe(
      Stream.flatMap(({ kind, name }) => {
        const companyId = parseId(companyOf, name)
        return Option.isNone(companyId) ? Stream.empty : companyEntries(companyId.value, kind, after)
      })
    )
  }

  function obstructed(
    companyId: Ids.CompanyId,
    reason: VersionReason.Obstacle,
    after: string
  ): Stream.Stream<StoreEntry> {
    const path = `${skills}/${companyId}`
    const position = `${companyId}/`
    return position > after
      ? Stream.succeed({
          _tag: "Obstacle",
          position,
          path,
          shownPath: show(path),
          companyId,
          skillId: Option.none(),
          versionId: Option.none(),
          reason
        })
      : Stream.empty
  }
}
