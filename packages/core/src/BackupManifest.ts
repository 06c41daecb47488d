/**
 * Describes what a failover backup holds: its `manifest.json`.
 *
 * **Details**
 *
 * The host writes the same file and its readers expect every field, so all of them are written; what a writer
 * does not know is null. For reading, only what a decision or a restoration rests on must be there and make
 * sense: whose session it is, what the backup holds, and when it was complete.
 *
 * @since 0.1.0
 */
import { Effect, Result, Schema } from "effect"
import { NativeSessionId } from "./Ids.ts"
import { oneLine } from "./internal/oneLine.ts"

/** @category constants @since 0.1.0 */
export const schema = "paperclip.native-harness-backup.v1"

// 1 MiB: a manifest has at most four folders and takes a few kilobytes.
/** The most bytes of a manifest that are read; a larger one counts as unreadable. @category constants @since 0.1.0 */
export const maxBytes = 1024 * 1024

/**
 * The name of a folder inside a backup. It is one plain path segment, starts with a letter or a digit, and so
 * can neither climb nor be hidden.
 *
 * @category models
 * @since 0.1.0
 */
export const DirectoryName = Schema.String.check(
  Schema.isPattern(/^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/, {
    expected: "a plain folder name of letters, digits, '.', '_' and '-'"
  }),
  Schema.makeFilter((name: string) =>
    name.toLowerCase().startsWith("manifest.json") ? "the manifest itself needs that name" : undefined
  )
).pipe(Schema.brand("BackupDirectoryName"))
/** @category models @since 0.1.0 */
export type DirectoryName = typeof DirectoryName.Type

/** A digest as the host writes it: `sha256:` and 64 lower-case hex digits. @category models @since 0.1.0 */
export const Digest = Schema.String.check(
  Schema.isPattern(/^sha256:[0-9a-f]{64}$/, { expected: "sha256: and 64 lower-case hex digits" })
)

/** One folder of a backup with its digest and the bytes of its files. @category models @since 0.1.0 */
export const Directory = Schema.Struct({
  name: DirectoryName,
  sha256: Digest,
  bytes: Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))
})
/** @category models @since 0.1.0 */
export type Directory = typeof Directory.Type

const Directories = Schema.NonEmptyArray(Directory).check(
  // 4: the runner's folder and the provider's; the host writes no more.
  Schema.isMaxLength(4),
  Schema.makeFilter((directories: ReadonlyArray<Directory>) =>
    new Set(directories.map(({ name }) => name.toLowerCase())).size === directories.length
      ? undefined
      : "two folders have the same name"
  )
)

// Schema's own instants also read "June 1", by the clock of whoever runs it.
const Instant = Schema.String.check(
  Schema.isPattern(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)$/, {
    expected: "an ISO 8601 instant"
  })
).pipe(Schema.decodeTo(Schema.DateTimeUtcFromString))

// Not used here, and of no known shape: kept as it is.
const Foreign = Schema.Json.pipe(Schema.withDecodingDefaultKey(Effect.succeed(null)))

/**
 * `completedAt` is when the backup was complete, by the clock of the server that wrote it.
 *
 * @category models
 * @since 0.1.0
 */
export const BackupManifest = Schema.Struct({
  schema: Schema.Literal(schema),
  normalizedSessionId: NativeSessionId,
  runnerInstanceId: Foreign,
  providerKind: Foreign,
  driverKind: Foreign,
  providerSessionIdentity: Foreign,
  sourceProviderLeaseId: Foreign,
  environmentFingerprint: Foreign,
  runnerContractVersion: Foreign,
  directories: Directories,
  completedAt: Instant
})
/** @category models @since 0.1.0 */
export type BackupManifest = typeof BackupManifest.Type

/**
 * Why a manifest cannot be used, in words for an operator.
 *
 * @category errors
 * @since 0.1.0
 */
export class UnreadableManifest extends Schema.TaggedError<UnreadableManifest>()("UnreadableManifest", {
  detail: Schema.String
}) {}

const Text = Schema.fromJsonString(BackupManifest)

/**
 * Decodes the text of a `manifest.json`.
 *
 * @category parsing
 * @since 0.1.0
 */
export const decode = (text: string): Result.Result<BackupManifest, UnreadableManifest> =>
  Result.mapError(
    Schema.decodeResult(Text)(text),
    (error) => new UnreadableManifest({ detail: oneLine(error.message) })
  )

/**
 * The text of a `manifest.json`, the inverse of `decode`.
 *
 * @category formatting
 * @since 0.1.0
 */
export const encode = (manifest: BackupManifest): Result.Result<string, UnreadableManifest> =>
  Result.mapError(
    Schema.encodeResult(Text)(manifest),
    (error) => new UnreadableManifest({ detail: oneLine(error.message) })
  )
