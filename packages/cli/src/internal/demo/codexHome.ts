/** Writes what a Codex session has at home and beside its runner, as such homes look after some days of work. */
import type { Dice } from "./dice.ts"

export interface HomeFile {
  /** Below the sandbox: `codex-home/...` or `runner/...`. */
  readonly path: string
  readonly bytes: Uint8Array
}

const encoder = new TextEncoder()

const noise = (dice: Dice, bytes: number): Uint8Array => {
  const block = Uint8Array.from({ length: 4096 }, () => dice.between(0, 255))
  return Uint8Array.from({ length: bytes }, (_, at) => block[at % block.length] ?? 0)
}

const remarks = [
  "I compared both tables; the difference is in the last column.",
  "The test passes now. I kept the change as small as it can be.",
  "Two of the sources contradict each other, so I asked before going on.",
  "Reading the guide first, then the entries that lack a date.",
  "Done. The summary names the three largest differences."
] as const

/** One line per event, as the harness appends them. */
const rollout = (dice: Dice, sessionId: string, title: string, turns: number): string =>
  [
    { type: "session_meta", payload: { id: sessionId, originator: "paperclip_runner", title } },
    ...Array.from({ length: turns }, (_, turn) => ({
      type: "response_item",
      payload: {
        type: "message",
        role: turn % 2 === 0 ? "user" : "assistant",
        content: [{ type: "output_text", text: `${turn + 1}. ${dice.pick(remarks)}` }]
      }
    }))
  ]
    .map((event) => JSON.stringify(event))
    .join("\n")

/** A database with one empty page: what the harness makes before it writes the first row. */
const sqlite = (): Uint8Array => {
  const page = new Uint8Array(4096)
  const view = new DataView(page.buffer)
  page.set(encoder.encode("SQLite format 3\0"))
  view.setUint16(16, page.length)
  page.set([1, 1, 0, 64, 32, 32], 18)
  view.setUint32(24, 1)
  view.setUint32(28, 1)
  view.setUint32(44, 4)
  view.setUint32(56, 1)
  page[100] = 13
  view.setUint16(105, page.length)
  return page
}

const config = `model = "gpt-5-codex"
approval_policy = "never"

[plugins."browser@openai-curated-remote"]
enabled = true

[plugins."ledger@workshop-tools"]
enabled = true
`

const marker = JSON.stringify({ remote_plugin_id: "plugin_8c1f20", version: "2.3.0" })

/** What a sandbox holds when a turn of this session is over. */
export const filesOf = (
  dice: Dice,
  session: { readonly id: string; readonly title: string; readonly runId: string }
): ReadonlyArray<HomeFile> => {
  const home = (path: string, content: string | Uint8Array): HomeFile => ({
    path: `codex-home/${path}`,
    bytes: typeof content === "string" ? encoder.encode(content) : content
  })
  return [
    home("auth.json", JSON.stringify({ tokens: { access_token: "eyJhbGciOi...", refresh_token: "rt_..." } })),
    home(".credentials.json", JSON.stringify({ "browser|https://mcp.example": { access_token: "at_..." } })),
    home("config.toml", config),
    home("history.jsonl", rollout(dice, session.id, session.title, dice.between(20, 60))),
    home(
      `sessions/2026/11/${String(dice.between(10, 28))}/rollout-${session.id}.jsonl`,
      rollout(dice, session.id, session.title, dice.between(400, 2000))
    ),
    home("state_5.sqlite", sqlite()),
    home("state_5.sqlite-wal", new Uint8Array()),
    home("state_5.sqlite-shm", new Uint8Array(32_768)),
    home("memories/notes.md", `# ${session.title}\n\n${dice.pick(remarks)}\n`),
    home("skills/house-style/SKILL.md", "---\nname: house-style\ndescription: How we write.\n---\n"),
    home("tmp/arg0/apply_patch", noise(dice, 90_000)),
    home(".tmp/plugins/catalog.json", "{}"),
    home("cache/remote_plugin_catalog/9f2c4a7be01d5538.json", noise(dice, 120_000)),
    home("plugins/.remote-plugin-install-staging/browser/bundle.tar", noise(dice, 60_000)),
    // Known by the name of its marketplace, and by the marker that its installation left.
    home("plugins/cache/openai-curated-remote/browser/1.4.0/bundle.js", noise(dice, 400_000)),
    home("plugins/cache/acme-store/calendar/.codex-remote-plugin-install.json", marker),
    home("plugins/cache/acme-store/calendar/2.3.0/bundle.js", noise(dice, 250_000)),
    // From the user's own marketplace: nobody could download it again.
    home("plugins/cache/workshop-tools/ledger/0.3.1/plugin.js", noise(dice, 30_000)),
    home("plugins/data/ledger-workshop-tools/ledger.json", JSON.stringify({ entries: dice.between(20, 90) })),
    {
      path: "runner/runner-state.json",
      bytes: encoder.encode(JSON.stringify({ runId: session.runId, turns: dice.between(3, 12) }))
    },
    {
      path: "runner/codex-provider-state.json",
      bytes: encoder.encode(JSON.stringify({ providerSessionId: session.id, checkpoint: dice.uuid() }))
    }
  ]
}
