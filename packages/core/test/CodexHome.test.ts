import * as CodexHome from "../src/CodexHome.ts"
import { int, oneOf, union } from "./support/arbitraries.ts"
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Schema } from "effect"

const marker = ".codex-remote-plugin-install.json"
const bytes = (...parts: ReadonlyArray<string | number>) =>
  Uint8Array.from(
    parts.flatMap((part) => (typeof part === "number" ? [part] : [...new TextEncoder().encode(part)]))
  )

const omitted: Readonly<Record<string, CodexHome.Omission>> = {
  "auth.json": "credentials",
  "./auth.json": "credentials",
  "auth.json/": "credentials",
  ".credentials.json": "credentials",
  tmp: "scratch",
  "tmp/": "scratch",
  "tmp/arg0/lock": "scratch",
  ".tmp": "scratch",
  ".tmp/plugins/a/b": "scratch",
  "plugins/cache/openai-curated-remote": "remote plugin bundle",
  "plugins/cache/openai-curated-remote/a/1.0.0/plugin.json": "remote plugin bundle",
  "plugins/cache/chatgpt-global/a": "remote plugin bundle",
  "plugins//cache/./chatgpt-global/a": "remote plugin bundle",
  "plugins/cache/chatgpt-workspace/a": "remote plugin bundle",
  "plugins/cache/workspace-directory/a": "remote plugin bundle",
  "plugins/cache/created-by-me-remote/a": "remote plugin bundle",
  "plugins/cache/workspace-shared-with-me": "remote plugin bundle",
  "plugins/cache/workspace-shared-with-me-remote/a": "remote plugin bundle",
  "cache/remote_plugin_catalog": "remote plugin catalog",
  "cache/remote_plugin_catalog/0123456789abcdef.json": "remote plugin catalog",
  "plugins/.remote-plugin-install-staging": "plugin install staging",
  "plugins/.remote-plugin-install-staging/a/b": "plugin install staging"
}

const copied = [
  "",
  "config.toml",
  "history.jsonl",
  "sessions/2026/06/01/rollout-1.jsonl",
  "state_5.sqlite",
  "state_5.sqlite-wal",
  "state_5.sqlite-shm",
  "skills/a/SKILL.md",
  "memories/a.md",
  "cache",
  "cache/other/a",
  "cache/remote_plugin_catalog.json",
  "plugins",
  "plugins/data/a-openai-curated-remote/file",
  "plugins/data/openai-curated-remote/a",
  "plugins/cache",
  "plugins/cache/openai-bundled/a/1.0.0/plugin.json",
  "plugins/cache/openai-curated/a/1.0.0/plugin.json",
  "plugins/cache/openai-primary-runtime/a",
  "plugins/cache/my-own/a/1.0.0/plugin.json",
  "plugins/cache/my-own/plugin-install-1/a",
  "plugins/cache/my-own/plugin-backup-1/a",
  "plugins/cache/openai-curated-remote-2/a",
  "plugins/cache/OpenAI-curated-remote/a",
  "plugins/cache/my-workspace-shared-with-me/a",
  "plugins/.marketplace-plugin-source-staging/a",
  "plugins/remote_plugin_catalog",
  // Such a name deeper down, or only nearly such a name.
  "skills/auth.json",
  "sessions/tmp/a",
  "skills/.tmp/a",
  "skills/.credentials.json",
  "skills/plugins/cache/openai-curated-remote/a",
  "skills/cache/remote_plugin_catalog/a",
  "skills/plugins/.remote-plugin-install-staging/a",
  "auth.json.bak",
  "Auth.json",
  "tmp2/a",
  ".tmpfile",
  "openai-curated-remote/a"
]

const select = CodexHome.selector([])

describe("CodexHome", () => {
  for (const [path, reason] of Object.entries(omitted)) {
    it(`[B-02] leaves out ${path}`, () => {
      assert.deepStrictEqual(select(path), { _tag: "Omit", reason })
      assert.deepStrictEqual(select(bytes(path)), { _tag: "Omit", reason })
    })
  }

  it("[B-02] copies everything else, and what merely has such a name", () => {
    for (const path of copied) {
      assert.deepStrictEqual(select(path), { _tag: "Copy" }, path)
      assert.deepStrictEqual(select(bytes(path)), { _tag: "Copy" }, path)
    }
  })

  it("[B-02] leaves out a plugin with an install marker, and its plugin only", () => {
    const select = CodexHome.selector([`plugins/cache/team/remote/${marker}`])
    for (const path of ["", "/1.0.0", "/1.0.0/a", `/${marker}`]) {
      assert.deepStrictEqual(select(`plugins/cache/team/remote${path}`), {
        _tag: "Omit",
        reason: "remote plugin bundle"
      })
    }
    for (const path of ["team", "team/local/1.0.0/a", "team/remote2/a", "other/remote/a"]) {
      assert.deepStrictEqual(select(`plugins/cache/${path}`), { _tag: "Copy" }, path)
    }
  })

  it("[B-02] takes nothing for an install marker that does not lie beside a plugin's versions", () => {
    const markers = [
      marker,
      `plugins/${marker}`,
      `plugins/cache/${marker}`,
      `plugins/cache/team/${marker}`,
      `plugins/cache/team/plugin/1.0.0/${marker}`,
      `plugins/data/team/plugin/${marker}`,
      `skills/plugins/cache/team/plugin/${marker}`,
      `skills/cache/team/plugin/${marker}`,
      `plugins/cache/team/plugin/${marker}/a`,
      `plugins/cache/team/plugin/${marker}.bak`
    ]
    const select = CodexHome.selector(markers)
    for (const path of markers) {
      assert.isFalse(CodexHome.isInstallMarker(path), path)
      assert.deepStrictEqual(select(path), { _tag: "Copy" }, path)
    }
    assert.isTrue(CodexHome.isInstallMarker(`plugins/cache/team/plugin/${marker}`))
  })

  it("[B-02] keeps apart plugins whose names are no text", () => {
    const select = CodexHome.selector([bytes("plugins/cache/team/p", 0xff, `/${marker}`)])
    assert.strictEqual(select(bytes("plugins/cache/team/p", 0xff, "/a"))._tag, "Omit")
    assert.strictEqual(select(bytes("plugins/cache/team/p", 0xfe, "/a"))._tag, "Copy")
    assert.strictEqual(select("plugins/cache/team/p\ufffd/a")._tag, "Copy")
    assert.strictEqual(select("plugins/cache/team/p\u00ff/a")._tag, "Copy")
  })

  it("[B-02] finds the plugin of a marker in text and in bytes", () => {
    const path = `plugins/cache/täam/plügin/${marker}`
    for (const given of [path, bytes(path)]) {
      const select = CodexHome.selector([given])
      assert.strictEqual(select("plugins/cache/täam/plügin/a")._tag, "Omit")
      assert.strictEqual(select(bytes("plugins/cache/täam/plügin/a"))._tag, "Omit")
    }
  })

  const segment = union(
    oneOf([
      "plugins",
      "cache",
      "tmp",
      ".tmp",
      "auth.json",
      "team",
      marker,
      "remote_plugin_catalog",
      "chatgpt-global"
    ]),
    Arbitrary.map(Arbitrary.schema(Schema.String), (text) => text.replaceAll(/[/\0]/g, "-"))
  )
  const path = Arbitrary.map(Arbitrary.array(segment, { minLength: 1, maxLength: 7 }), (names) =>
    names.join("/")
  )

  it.prop(
    "[B-02] leaves out whatever lies below what it leaves out, and the same in bytes as in text",
    { path, below: segment, markers: Arbitrary.array(path, { maxLength: 3 }) },
    ({ below, markers, path }) => {
      const select = CodexHome.selector(markers)
      const selection = select(path)
      if (selection._tag === "Omit") assert.deepStrictEqual(select(`${path}/${below}`), selection)
      assert.deepStrictEqual(CodexHome.selector(markers.map((text) => bytes(text)))(bytes(path)), selection)
    },
    { arbitrary: { runs: 500 } }
  )

  it.prop(
    "[B-02] a marker never brings anything back",
    { path, markers: Arbitrary.array(path, { maxLength: 3 }), more: path },
    ({ markers, more, path }) => {
      if (CodexHome.selector(markers)(path)._tag === "Omit") {
        assert.strictEqual(CodexHome.selector([more, ...markers])(path)._tag, "Omit")
      }
    },
    { arbitrary: { runs: 500 } }
  )

  it.prop("[B-02] answers any bytes", { raw: Arbitrary.array(int(0, 255), { maxLength: 40 }) }, ({ raw }) => {
    const path = Uint8Array.from(raw)
    assert.include(["Copy", "Omit"], CodexHome.selector([path])(path)._tag)
  })
})
