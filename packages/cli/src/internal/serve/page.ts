/** The status page: what a person who looks after the host wants to see, on one page, with buttons. */
import type { HostControls, Workers } from "@reclaim/runtime"
import { DateTime, Duration, Option } from "effect"
import type * as Output from "../../Output.ts"
import { heading } from "../reasons.ts"
import { count, formatBytes, formatInstant, formatMillis } from "../units.ts"
import { advice } from "./advice.ts"
import { icon, script, style } from "./assets.ts"
import { chart } from "./chart.ts"
import { type Child, document, element, type Markup, trusted } from "./markup.ts"
import type { Moment } from "./status.ts"
import type { Findings } from "./survey.ts"

export interface Page extends Moment {
  readonly findings: Option.Option<Findings>
  readonly needsToken: boolean
  /** Allows the style and the script of this one answer. */
  readonly nonce: string
}

// 20: what a person reads; the rest is one line, and `skills diagnose` has all.
const shownCompanies = 20

const utc = (instant: DateTime.Utc): Markup =>
  element("time", { datetime: DateTime.formatIso(instant) }, `${formatInstant(instant)} UTC`)

const number = (value: number): string => value.toLocaleString("en-US")

/** `3 minutes`, `2 hours`: as exact as a person wants to know. */
const apart = (from: DateTime.Utc, to: DateTime.Utc): string => {
  const minutes = Math.floor(Duration.toMinutes(DateTime.distance(from, to)))
  if (minutes < 1) return "less than a minute"
  if (minutes < 120) return count(minutes, "minute")
  return minutes < 2880 ? count(Math.floor(minutes / 60), "hour") : count(Math.floor(minutes / 1440), "day")
}

const card = (title: string, ...children: ReadonlyArray<Child>): Markup =>
  element("section", { class: "card" }, element("h2", {}, title), ...children)

const list = (rows: ReadonlyArray<readonly [string, Child]>): Markup =>
  element(
    "dl",
    {},
    rows.map(([term, value]) => [element("dt", {}, term), element("dd", {}, value)])
  )

// --- head

const phases: Readonly<Record<HostControls.HostPhase, readonly [string, string]>> = {
  starting: ["warn", "starting"],
  active: ["good", "active"],
  standby: ["warn", "on standby"],
  draining: ["warn", "draining"]
}

const head = (page: Page): Markup => {
  const [tone, text] = phases[page.phase]
  return element(
    "header",
    {},
    element("h1", {}, "Reclaim ", element("span", { class: `badge ${tone}` }, text)),
    element(
      "p",
      { class: "quiet" },
      `${page.server}, up for ${apart(page.startedAt, page.now)}; as of `,
      utc(page.now)
    )
  )
}

const notReady = (reasons: ReadonlyArray<string>): Child =>
  reasons.length === 0
    ? undefined
    : element(
        "section",
        { class: "card notice", role: "status" },
        element("h2", {}, "Not ready"),
        element(
          "ul",
          {},
          reasons.map((reason) => element("li", {}, reason))
        )
      )

// --- controls

const button = (action: string, label: string, question?: string): Markup =>
  element(
    "button",
    {
      type: "button",
      class: question === undefined ? undefined : "second",
      "data-action": action,
      "data-question": question,
      // The script shows it: without one it would do nothing.
      hidden: true
    },
    label
  )

const explained: Readonly<Record<HostControls.HostPhase, string>> = {
  starting: "Sweeps begin once the host is ready.",
  active: "Sweeps run when it is time.",
  standby: "No sweep runs until somebody resumes them.",
  draining: "No sweep begins any more; the process ends when the work in hand is done."
}

const controls = ({ needsToken, phase }: Page): Markup =>
  card(
    "Control",
    element("p", {}, explained[phase]),
    phase === "draining"
      ? undefined
      : [
          element(
            "div",
            { class: "controls" },
            needsToken
              ? element(
                  "label",
                  { class: "field" },
                  "Token",
                  element("input", {
                    id: "token",
                    type: "password",
                    autocomplete: "off",
                    spellcheck: "false"
                  })
                )
              : undefined,
            phase === "standby" ? button("resume", "Resume") : button("standby", "Stand by"),
            button("drain", "Drain", "Drain the host? Its process ends and does not come back by itself.")
          ),
          element("p", { id: "answer", class: "bad", role: "alert" }),
          element(
            "noscript",
            {},
            element(
              "p",
              { class: "quiet" },
              "The buttons need JavaScript. ",
              element("code", {}, "curl -X POST"),
              " does the same."
            )
          )
        ]
  )

// --- sweeps

const outcomes = {
  completed: ["good", "completed"],
  stopped: ["warn", "stopped early"],
  failed: ["bad", "failed"]
} as const

const activities = (status: Workers.Status<unknown>, now: DateTime.Utc): Child => {
  const next = Option.match(status.nextAt, {
    onNone: () => undefined,
    onSome: (at) => [
      DateTime.isGreaterThan(at, now) ? `in ${apart(now, at)}` : "due",
      element("div", { class: "quiet" }, utc(at))
    ]
  })
  switch (status.activity) {
    case "disabled":
      return "never: the settings disable it"
    case "starting":
      return "when the host is ready"
    case "waiting":
      return next ?? "soon"
    case "sweeping":
      return "one is running"
    case "standby":
      return "after the standby"
    case "drained":
      return "none: the host is ending"
  }
}

interface Figures {
  readonly candidates: number
  readonly candidateAllocatedBytes: bigint
  readonly reclaimedAllocatedBytes: bigint
  readonly errors: number
}

/** What the two workers call differently, and what only one of them counts. */
interface Own {
  readonly considered: number
  readonly removed: readonly [string, number]
  readonly more: ReadonlyArray<readonly [string, number]>
}

const worker = <Report extends Figures>(
  title: string,
  status: Workers.Status<Report>,
  now: DateTime.Utc,
  ownOf: (report: Report) => Own
): Markup =>
  card(
    title,
    list([
      ["Next sweep", activities(status, now)],
      ...Option.match(status.lastSweep, {
        onNone: (): ReadonlyArray<readonly [string, Child]> => [["Last sweep", "none yet"]],
        onSome: (sweep): ReadonlyArray<readonly [string, Child]> => {
          const [tone, text] = outcomes[sweep.outcome]
          const { report } = sweep
          const own = ownOf(report)
          const [removed, times] = own.removed
          return [
            ["Last sweep", utc(sweep.startedAt)],
            ["Took", formatMillis(Duration.toMillis(DateTime.distance(sweep.startedAt, sweep.endedAt)))],
            ["Ended", element("span", { class: tone }, sweep.dryRun ? `${text}, dry run` : text)],
            ...Option.match(sweep.detail, {
              onNone: () => [],
              onSome: (detail) => [["Because", detail] as const]
            }),
            ["Looked at", number(own.considered)],
            ["Could go", `${number(report.candidates)}, ${formatBytes(report.candidateAllocatedBytes)}`],
            [removed, number(times)],
            ["Reclaimed", element("strong", {}, formatBytes(report.reclaimedAllocatedBytes))],
            ...own.more
              .filter(([, amount]) => amount > 0)
              .map(([term, amount]) => [term, number(amount)] as const),
            ["Errors", report.errors === 0 ? "0" : element("span", { class: "bad" }, number(report.errors))]
          ]
        }
      }),
      ...Option.match(status.lastSuccessAt, {
        onNone: () => [],
        onSome: (at) => [["Last whole pass", utc(at)] as const]
      })
    ])
  )

const sweeps = (page: Page): Markup =>
  element(
    "div",
    { class: "pair" },
    worker("Skill versions", page.versions, page.now, (report) => ({
      considered: report.considered,
      removed: ["Evicted", report.evicted],
      more: [
        ["Undone", report.undone],
        ["Healed", report.healed],
        ["Leftovers settled", report.settled],
        ["Trash for later", report.trashWaiting]
      ]
    })),
    worker("Session backups", page.backups, page.now, (report) => ({
      considered: report.checked,
      removed: ["Expired", report.expired],
      more: [
        ["Task sessions cleared", report.clearedTaskSessions],
        ["Brought back", report.recovered]
      ]
    }))
  )

// --- what is held

const headRow = (...titles: ReadonlyArray<readonly [string, "figure" | undefined]>): Markup =>
  element(
    "thead",
    {},
    element(
      "tr",
      {},
      titles.map(([title, kind]) => element("th", { scope: "col", class: kind }, title))
    )
  )

const figure = (text: string): Markup => element("td", { class: "figure" }, text)

const companyTable = ({ companies }: Findings): Markup => {
  const rest = companies.slice(shownCompanies)
  const row = (name: Child, copies: number, others: number, bytes: bigint) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, name),
      figure(number(copies)),
      figure(number(others)),
      figure(formatBytes(bytes))
    )
  return element(
    "table",
    {},
    element("caption", {}, "Skill versions by company"),
    headRow(["Company", undefined], ["Copies", "figure"], ["Other", "figure"], ["Size", "figure"]),
    element(
      "tbody",
      {},
      companies
        .slice(0, shownCompanies)
        .map(({ allocatedBytes, companyId, copies, others }) =>
          row(element("code", {}, companyId), copies, others, allocatedBytes)
        ),
      rest.length === 0
        ? undefined
        : row(
            `${number(rest.length)} more`,
            rest.reduce((sum, { copies }) => sum + copies, 0),
            rest.reduce((sum, { others }) => sum + others, 0),
            rest.reduce((sum, { allocatedBytes }) => sum + allocatedBytes, 0n)
          )
    )
  )
}

const backupsLine = (summary: Output.BackupSummary): string =>
  `${count(summary.backups, "session backup")}, ${formatBytes(summary.allocatedBytes)}; ` +
  `${number(summary.candidates)} could go, ${formatBytes(summary.candidateAllocatedBytes)}.`

const held = (found: Findings): Markup =>
  card(
    "On disk",
    element("p", { class: "quiet" }, "Counted at ", utc(found.at), "."),
    found.companies.length === 0
      ? element("p", {}, "There are no copies of skill versions.")
      : companyTable(found),
    element(
      "p",
      {},
      Option.match(found.backups, {
        onNone: () => "Session backups are not counted, because their expiration is disabled.",
        onSome: backupsLine
      })
    ),
    Option.match(found.volume, {
      onNone: () => undefined,
      onSome: ({ available, total }) =>
        element(
          "p",
          { class: "quiet" },
          `${formatBytes(available)} of ${formatBytes(total)} are free on the volume.`
        )
    })
  )

// --- why things stay

/** What stands in backticks is code. */
const prose = (text: string): Child =>
  text.split("`").map((part, index) => (index % 2 === 1 ? element("code", {}, part) : part))

const reasonTable = (title: string, counts: Output.Counts): Child => {
  const rows = Object.entries(counts).toSorted(([left, a], [right, b]) => b - a || (left < right ? -1 : 1))
  return rows.length === 0
    ? undefined
    : element(
        "table",
        {},
        element("caption", {}, title),
        headRow(["Times", "figure"], ["Why, and what to do", undefined]),
        element(
          "tbody",
          {},
          rows.map(([tag, times]) =>
            element(
              "tr",
              {},
              figure(number(times)),
              element(
                "td",
                {},
                element("strong", {}, heading(tag) || tag),
                " ",
                element("code", { class: "quiet" }, tag),
                advice(tag) === "" ? undefined : element("div", { class: "quiet" }, prose(advice(tag)))
              )
            )
          )
        )
      )
}

const stays = (page: Page): Markup => {
  const skippedOf = (status: Workers.Status<{ readonly skipped: Output.Counts }>): Output.Counts =>
    Option.match(status.lastSweep, { onNone: () => ({}), onSome: ({ report }) => report.skipped })
  const tables = [
    reasonTable("Skill versions", skippedOf(page.versions)),
    reasonTable("Session backups", skippedOf(page.backups))
  ].filter((table) => table !== undefined)
  return card(
    "What stays, and why",
    element("p", { class: "quiet" }, "From the last sweep. What has several reasons counts under each."),
    tables.length === 0
      ? element("p", {}, "Nothing is known yet.")
      : element("div", { class: "pair" }, tables)
  )
}

/** The whole page as HTML. */
export const render = (page: Page): string =>
  document(
    element(
      "html",
      { lang: "en" },
      element(
        "head",
        {},
        element("meta", { charset: "utf-8" }),
        element("meta", { name: "viewport", content: "width=device-width, initial-scale=1" }),
        element("meta", { name: "color-scheme", content: "light dark" }),
        element("title", {}, `Reclaim, ${phases[page.phase][1]}`),
        element("link", { rel: "icon", href: icon }),
        element("style", { nonce: page.nonce }, trusted(style))
      ),
      element(
        "body",
        {},
        head(page),
        element(
          "main",
          {},
          notReady(page.reasons),
          sweeps(page),
          card(
            "Reclaimed over time",
            Option.match(page.findings, {
              onNone: () => element("p", { class: "quiet" }, "Not counted yet."),
              onSome: ({ days }) => chart(days)
            })
          ),
          Option.match(page.findings, { onNone: () => undefined, onSome: held }),
          stays(page),
          controls(page)
        ),
        element("footer", { class: "quiet" }, `Reclaim ${page.version}`),
        element("script", { nonce: page.nonce }, trusted(script))
      )
    )
  )
