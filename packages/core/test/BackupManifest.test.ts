import * as BackupManifest from "../src/BackupManifest.ts"
import { NativeSessionId } from "../src/Ids.ts"
import { int, oneOf, union } from "./support/arbitraries.ts"
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, DateTime, Result, Schema } from "effect"

const digest = `sha256:${"0123456789abcdef".repeat(4)}`
const completedAt = "2026-06-01T12:00:00.123Z"

/** As a host writes it. */
const written = {
  schema: BackupManifest.schema,
  normalizedSessionId: "00000000-0000-4000-8000-000000000001",
  runnerInstanceId: "runner-1",
  providerKind: "codex",
  driverKind: "codex_app_server",
  providerSessionIdentity: { kind: "codex", profileId: "p" },
  sourceProviderLeaseId: "sandbox-1",
  environmentFingerprint: digest,
  runnerContractVersion: 3,
  directories: [
    { name: "runner", sha256: digest, bytes: 0 },
    { name: "codex-home", sha256: digest, bytes: 9_007_199_254_740_991 }
  ],
  completedAt
}

const decode = (value: unknown) => BackupManifest.decode(JSON.stringify(value))

const manifest: Arbitrary.Arbitrary<BackupManifest.BackupManifest> = Arbitrary.map(
  Arbitrary.all({
    session: Arbitrary.schema(NativeSessionId),
    // Through JSON, which has no -0.
    foreign: Arbitrary.map(Arbitrary.schema(Schema.Json), (json): Schema.Json =>
      JSON.parse(JSON.stringify(json))
    ),
    names: oneOf([["runner"], ["opencode", "runner"], ["A", "b.c", "d_e", "f-g"]] as const),
    bytes: union(oneOf([0, 2 ** 53 - 1]), int(0, 1_000_000)),
    at: int(-62_167_219_200_000, 253_402_300_799_999)
  }),
  ({ at, bytes, foreign, names, session }) => {
    const [first, ...rest] = names.map((name) => ({
      name: BackupManifest.DirectoryName.make(name),
      sha256: digest,
      bytes
    }))
    return {
      ...written,
      schema: BackupManifest.schema,
      normalizedSessionId: session,
      providerSessionIdentity: foreign,
      environmentFingerprint: foreign,
      directories: [first!, ...rest],
      completedAt: DateTime.makeUnsafe(at)
    }
  }
)

describe("BackupManifest", () => {
  it("[B-01] reads what a host writes, and writes it again", () => {
    const read = Result.getOrThrow(decode({ ...written, more: "fields" }))
    assert.deepStrictEqual(read.completedAt, DateTime.makeUnsafe(completedAt))
    assert.deepStrictEqual(JSON.parse(Result.getOrThrow(BackupManifest.encode(read))), written)
  })

  it.prop("[B-01] reads back every manifest that it writes", { manifest }, ({ manifest }) => {
    const text = Result.getOrThrow(BackupManifest.encode(manifest))
    assert.deepStrictEqual(BackupManifest.decode(text), Result.succeed(manifest))
  })

  it("[B-01] writes null for what it does not know, so that no field is missing", () => {
    const { completedAt, directories, normalizedSessionId, schema } = written
    const read = Result.getOrThrow(decode({ schema, normalizedSessionId, directories, completedAt }))
    const text = Result.getOrThrow(BackupManifest.encode(read))
    assert.deepStrictEqual(Object.keys(JSON.parse(text)).toSorted(), Object.keys(written).toSorted())
    assert.isNull(read.providerKind)
  })

  it("[B-01] refuses to write an instant that no reader takes", () => {
    const read = Result.getOrThrow(decode(written))
    assert.isTrue(
      Result.isFailure(BackupManifest.encode({ ...read, completedAt: DateTime.makeUnsafe(8.64e15) }))
    )
  })

  it("[C-04] refuses a manifest that it does not understand, on one line", () => {
    const directory = written.directories[0]!
    const directories = (...changes: ReadonlyArray<object>) => ({
      directories: changes.map((change) => ({ ...directory, ...change }))
    })
    const wrong: ReadonlyArray<object> = [
      { schema: "paperclip.native-harness-backup.v2" },
      { schema: undefined },
      { normalizedSessionId: "" },
      { normalizedSessionId: null },
      { normalizedSessionId: undefined },
      { directories: undefined },
      directories(),
      directories({ name: "a" }, { name: "b" }, { name: "c" }, { name: "d" }, { name: "e" }),
      directories({ name: "runner" }, { name: "Runner" }),
      ...["", ".", "..", "/", "a/b", "../a", "a\0", ".hidden", "a\\b", "ü", "a".repeat(101)].map((name) =>
        directories({ name })
      ),
      ...["manifest.json", "manifest.json.tmp", "Manifest.JSON"].map((name) => directories({ name })),
      ...[
        "",
        "sha256:",
        digest.slice(7),
        digest.toUpperCase(),
        digest.replace("abc", "ABC"),
        `${digest}0`,
        `md5:${digest.slice(7)}`
      ].map((sha256) => directories({ sha256 })),
      ...[-1, 0.5, 2 ** 53, "1", null].map((bytes) => directories({ bytes })),
      ...[
        "",
        "2026",
        "2026-06-01",
        "2026-06-01T12:00:00",
        "June 1 2026",
        "2026-13-01T00:00:00Z",
        "2026-06-01T25:00:00Z",
        "+275760-09-13T00:00:00Z",
        0,
        null
      ].map((completedAt) => ({ completedAt }))
    ]
    const texts = [
      ...wrong.map((change) => JSON.stringify({ ...written, ...change })),
      "",
      "null",
      "[]",
      JSON.stringify([written]),
      JSON.stringify(written).slice(1)
    ]
    for (const text of texts) {
      const read = BackupManifest.decode(text)
      if (Result.isSuccess(read)) return assert.fail(`took ${text} for a manifest`)
      assert.strictEqual(read.failure._tag, "UnreadableManifest")
      assert.match(read.failure.detail, /^[^\n]+$/)
    }
  })

  it.prop(
    "[C-04] answers every text, and names only plain folders",
    {
      text: union(
        Arbitrary.schema(Schema.String),
        Arbitrary.map(
          Arbitrary.all({ at: oneOf(Object.keys(written)), json: Arbitrary.schema(Schema.Json) }),
          ({ at, json }) => JSON.stringify({ ...written, [at]: json })
        ),
        Arbitrary.map(Arbitrary.schema(Schema.String), (name) =>
          JSON.stringify({ ...written, directories: [{ name, sha256: digest, bytes: 1 }] })
        )
      )
    },
    ({ text }) => {
      const read = BackupManifest.decode(text)
      if (Result.isFailure(read)) return
      for (const { name } of read.success.directories) assert.match(name, /^[A-Za-z0-9][A-Za-z0-9._-]*$/)
    },
    { arbitrary: { runs: 500 } }
  )

  it("[B-01] decodes however deep a value is that it does not use", () => {
    const text = JSON.stringify({ ...written, providerSessionIdentity: 0 })
    const deep = `${"[".repeat(200_000)}${"]".repeat(200_000)}`
    const changed = text.replace(`"providerSessionIdentity":0`, `"providerSessionIdentity":${deep}`)
    assert.isTrue(Result.isSuccess(BackupManifest.decode(changed)))
    assert.isAbove(BackupManifest.maxBytes, changed.length)
  })
})
