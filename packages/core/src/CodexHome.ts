/**
 * Decides what a backup of a Codex home leaves out: credentials, scratch, and what Codex downloads again.
 *
 * **Details**
 *
 * | left out | where |
 * |---|---|
 * | credentials | `auth.json`, `.credentials.json` |
 * | scratch | `tmp/`, `.tmp/` |
 * | remote plugin bundles | `plugins/cache/<marketplace>/` of a remote marketplace, and any `plugins/cache/<marketplace>/<plugin>/` that holds an install marker |
 * | remote plugin catalog | `cache/remote_plugin_catalog/` |
 * | plugin install staging | `plugins/.remote-plugin-install-staging/` |
 *
 * All paths are relative to the home; what merely has such a name deeper down is copied, and so is whatever
 * is not in the table.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"

/**
 * A path below the home with `/` between its segments, as a walk finds it: text, or bytes where a name is not
 * valid UTF-8.
 *
 * @category models
 * @since 0.1.0
 */
export type HomePath = string | Uint8Array

/** Why something is left out. @category models @since 0.1.0 */
export const Omission = Schema.Literals([
  "credentials",
  "scratch",
  "remote plugin bundle",
  "remote plugin catalog",
  "plugin install staging"
])
/** @category models @since 0.1.0 */
export type Omission = typeof Omission.Type

/** @category models @since 0.1.0 */
export type Selection = { readonly _tag: "Copy" } | { readonly _tag: "Omit"; readonly reason: Omission }

/** The file that Codex leaves beside the versions of a plugin from a remote marketplace. */
const markerName = ".codex-remote-plugin-install.json"

/** The marketplaces of which it is known that Codex downloads their plugins again. */
const remoteMarketplaces: ReadonlySet<string> = new Set([
  "openai-curated-remote",
  "chatgpt-global",
  "chatgpt-workspace",
  "workspace-directory",
  "created-by-me-remote"
])
const isRemote = (marketplace: string) =>
  remoteMarketplaces.has(marketplace) || marketplace.startsWith("workspace-shared-with-me")

const encoder = new TextEncoder()

/**
 * The segments of a path with one character per byte, so that two names stay two names even where neither is
 * valid text.
 */
const segments = (path: HomePath): ReadonlyArray<string> =>
  Array.from(typeof path === "string" ? encoder.encode(path) : path, (byte) => String.fromCharCode(byte))
    .join("")
    .split("/")
    .filter((segment) => segment !== "" && segment !== ".")

const pluginKey = (marketplace: string, plugin: string) => `${marketplace}/${plugin}`

/**
 * Whether a path is where an install marker lies. Only a plain file there counts: a walk that looks for
 * markers does not pass on links and folders of that name.
 *
 * @category queries
 * @since 0.1.0
 */
export const isInstallMarker = (path: HomePath): boolean => {
  const [plugins, cache, , , name, ...below] = segments(path)
  return plugins === "plugins" && cache === "cache" && name === markerName && below.length === 0
}

const copy: Selection = { _tag: "Copy" }
const omit = (reason: Omission): Selection => ({ _tag: "Omit", reason })

/**
 * Makes the selection for one home out of the markers that a walk over `plugins/cache` found; a path that is
 * no marker's is ignored. What is left out is left out with everything below it, so a walk need not enter it.
 *
 * @category constructors
 * @since 0.1.0
 */
export const selector = (markers: Iterable<HomePath>): ((path: HomePath) => Selection) => {
  const marked = new Set<string>()
  for (const marker of markers) {
    if (!isInstallMarker(marker)) continue
    const [, , marketplace, plugin] = segments(marker)
    marked.add(pluginKey(marketplace!, plugin!))
  }
  return (path) => {
    const [first, second, marketplace, plugin] = segments(path)
    switch (first) {
      case "auth.json":
      case ".credentials.json":
        return omit("credentials")
      case "tmp":
      case ".tmp":
        return omit("scratch")
      case "cache":
        return second === "remote_plugin_catalog" ? omit("remote plugin catalog") : copy
      case "plugins":
        if (second === ".remote-plugin-install-staging") return omit("plugin install staging")
        if (second !== "cache" || marketplace === undefined) return copy
        if (isRemote(marketplace)) return omit("remote plugin bundle")
        return plugin !== undefined && marked.has(pluginKey(marketplace, plugin))
          ? omit("remote plugin bundle")
          : copy
      default:
        return copy
    }
  }
}
