/**
 * Lists the version store in the order of path bytes, from any position on, in bounded memory.
 *
 * `readdir` has no order. So each folder is read whole as often as needed, each time for the next few
 * thousand names after the last one: folders may come and go meanwhile without anything being met twice
 * or passed over.
 */
import { Ids, VersionName, type VersionReason } from "@reclaim/core"
import { Effect, Option, Result, Stream } from "effect"
import { type BytePath, bytes, join, show } from "../BytePath.ts"
import * as AccessRecords from "../AccessRecords.ts"
import { type FileError, hasCode } from "../FileError.ts"
import type { EntryInfo, PosixFileSystem } from "../PosixFileSystem.ts"
import type { StoreEntry } from "../VersionStore.ts"
import { notAFolder, unexpected, unreadable } from "./obstacles.ts"
import { afterNames, encodeName, last, smallest } from "./position.ts"

// 4096 names of under 100 bytes at each of three levels: about a megabyte.
const defaultWindow = 4096

// 64 looks in one go: a little more than a batch considers, so that little is looked at long before its turn.
const looksAtOnce = 64

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

  const placeOf = (path: BytePath, found: Result.Result<EntryInfo, FileError>): Place =>
    Result.match(found, {
      onSuccess: (info): Place =>
        info.kind === "directory"
          ? { _tag: "Folder", info }
          : { _tag: "Obstacle", reason: notAFolder(info.kind, path) },
      onFailure: (error): Place =>
        vanished(error) ? { _tag: "Missing" } : { _tag: "Obstacle", reason: unreadable(error) }
    })

  const look = (path: BytePath): Effect.Effect<Place> =>
    Effect.map(Effect.result(posix.lstat(path)), (found) => placeOf(path, found))

  const lookAtBoth = (left: BytePath, right: BytePath): Effect.Effect<readonly [Place, Place]> =>
    Effect.map(
      posix.lstatAll([left, right]),
      ([first, second]) => [placeOf(left, first!), placeOf(right, second!)] as const
    )

  type Each = (name: Uint8Array, kind: EntryInfo["kind"]) => void

  /** Reads a folder for the collector; one that is gone has no names. */
  const offerOne = (path: BytePath, each: Each) =>
    posix.names(path).pipe(
      Stream.runForEachArray((page) => Effect.sync(() => page.forEach(({ kind, name }) => each(name, kind)))),
      Effect.catchIf(vanished, () => Effect.void)
    )

  /** Reads folders for the collector, in one go where they are small. */
  const offer = Effect.fnUntraced(function* (
    folders: ReadonlyArray<{ readonly path: BytePath; readonly each: Each }>
  ) {
    const lists = yield* posix.namesAll(folders.map(({ path }) => path))
    for (const [index, { each, path }] of folders.entries()) {
      const list = lists[index]!
      if (Result.isFailure(list)) {
        if (!vanished(list.failure)) return yield* list.failure
      } else if (Option.isSome(list.success)) {
        for (const { kind, name } of list.success.value) each(name, kind)
      } else {
        yield* offerOne(path, each)
      }
    }
  })

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
      const [place, accessPlace] = yield* lookAtBoth(folder, access)
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
      if (place._tag === "Missing" && accessPlace._tag === "Missing") return Stream.empty

      const entry = Effect.fnUntraced(function* (
        item: Item,
        path: BytePath,
        found: Result.Result<EntryInfo, FileError>
      ): Effect.fn.Return<Option.Option<StoreEntry>> {
        const position = base + item.key
        const versionId = parseId(versionOf, item.name)
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

      const entries = Effect.fnUntraced(function* (items: ReadonlyArray<Item>) {
        const paths = items.map(({ name }) => join(folder, name))
        const looks = yield* posix.lstatAll(paths)
        const found: Array<StoreEntry> = []
        for (const [index, item] of items.entries()) {
          found.push(...Option.toArray(yield* entry(item, paths[index]!, looks[index]!)))
        }
        return found
      })

      /** Whether the folder that stands for the skill was seen to hold anything, in whatever place. */
      let holds = false
      const names = windows(after.startsWith(base) ? after.slice(base.length) : "", (add) =>
        offer([
          ...(place._tag === "Folder"
            ? [
                {
                  path: folder,
                  each: (name: Uint8Array, kind: EntryInfo["kind"]) => {
                    holds = true
                    add({ key: encodeName(name), name, kind, record: false })
                  }
                }
              ]
            : []),
          ...(accessPlace._tag === "Folder"
            ? [
                {
                  path: access,
                  each: (fileName: Uint8Array, kind: EntryInfo["kind"]) => {
                    if (place._tag === "Missing") holds = true
                    const version = AccessRecords.versionOf(fileName)
                    if (Option.isNone(version)) return
                    const name = bytes(version.value)
                    add({ key: encodeName(name), name, kind, record: true })
                  }
                }
              ]
            : [])
        ])
      ).pipe(
        // Of a copy and its record, the first that comes stands for both.
        Stream.changesWith((left, right) => left.key === right.key),
        Stream.grouped(looksAtOnce),
        Stream.mapEffect(entries),
        Stream.flattenIterable,
        // The rest of a folder whose names cannot be read is not known; what comes after it is.
        Stream.catch((error) => known(obstacle(base + afterNames, folder, unreadable(error))))
      )

      const end = Stream.fromEffect(
        Effect.gen(function* () {
          const path = place._tag === "Folder" ? folder : access
          const before = place._tag === "Folder" ? place : accessPlace
          // One that holds something stays, and so does its name: nothing more need be known.
          const top = holds ? before : yield* look(path)
          if (top._tag !== "Folder") return Option.none<StoreEntry>()
          return Option.some<StoreEntry>({
            _tag: "SkillEnd",
            position: base + last,
            path,
            shownPath: show(path),
            companyId,
            skillId,
            empty: !holds && (yield* isEmpty(path)),
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
      const versions = `${company}/${versionsFolder}`
      const [place, accessPlace] = yield* lookAtBoth(versions, access)
      const accessObstacle =
        accessPlace._tag === "Obstacle"
          ? obstacle(`${companyId}/${AccessRecords.folderName}/`, access, accessPlace.reason)
          : Stream.empty

      const base = `${companyId}/${versionsFolder}/`
      if (place._tag === "Obstacle") {
        return Stream.concat(accessObstacle, obstacle(base, versions, place.reason))
      }

      // Of the skill that the position lies in, everything before the position is skipped further down.
      const skipped = after.startsWith(base) ? after.slice(base.length) : ""
      const slash = skipped.indexOf("/")
      const skillAfter = slash < 0 ? skipped : skipped.slice(0, slash)
      const skillNames = windows(skillAfter, (add) =>
        Effect.suspend(() => {
          const item = (name: Uint8Array, kind: EntryInfo["kind"], record: boolean) => {
            const key = encodeName(name)
            // What has entries below it sorts as its path with the separator does.
            add({ key: Option.isSome(parseId(skillOf, name)) ? `${key}/` : key, name, kind, record })
          }
          return offer([
            ...(place._tag === "Folder"
              ? [
                  {
                    path: versions,
                    each: (name: Uint8Array, kind: EntryInfo["kind"]) => item(name, kind, false)
                  }
                ]
              : []),
            ...(accessPlace._tag === "Folder"
              ? [
                  {
                    path: access,
                    each: (name: Uint8Array, kind: EntryInfo["kind"]) => {
                      if (Option.isSome(parseId(skillOf, name))) item(name, kind, true)
                    }
                  }
                ]
              : [])
          ])
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
      // Not by the thread, which an instance without companies need not start.
      offerOne(skills, (name, kind) => {
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
