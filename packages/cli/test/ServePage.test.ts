import { describe, expect, it, layer } from "@effect/vitest"
import { Ids, VersionReport } from "@reclaim/core"
import { DateTime, Effect, Option } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Page from "../src/internal/serve/page.ts"
import * as Chromium from "./support/chromium.ts"
import * as Fixture from "./support/fixture.ts"
import { eventually } from "./support/reclaim.ts"
import { serve } from "./support/serving.ts"

const now = DateTime.makeUnsafe("2026-11-30T12:00:00Z")

const idle = {
  activity: "waiting",
  nextAt: Option.some(DateTime.add(now, { minutes: 30 })),
  lastSweep: Option.none(),
  lastSuccessAt: Option.none()
} as const

const plain: Page.Page = {
  now,
  startedAt: DateTime.subtract(now, { days: 3 }),
  version: "1.2.3",
  server: "machine pid 1",
  phase: "active",
  reasons: [],
  versions: idle,
  backups: idle,
  findings: Option.none(),
  needsToken: false,
  nonce: "nonce"
}

/** As many companies as there may be, each with more than the one before. */
const companies = (amount: number) =>
  Array.from({ length: amount }, (_, index) => ({
    companyId: Ids.CompanyId.make(`0b1e3d5c-7a9f-4c2e-8d1b-${String(index).padStart(12, "0")}`),
    copies: 1_000 + index,
    others: index,
    allocatedBytes: 2n ** 40n
  }))

describe("the status page", () => {
  it("[O-05] lets no value become markup", () => {
    const hostile = `"><script>alert(1)</script><img src=x onerror='y'>&\u202e`
    const html = Page.render({
      ...plain,
      server: hostile,
      version: hostile,
      reasons: [hostile],
      versions: {
        ...idle,
        lastSweep: Option.some({
          startedAt: now,
          endedAt: now,
          outcome: "failed",
          detail: Option.some(hostile),
          dryRun: false,
          report: VersionReport.VersionReport.make({ ...VersionReport.empty, skipped: { [hostile]: 1 } })
        })
      }
    })
    expect(html.match(/<script/g)).toHaveLength(1)
    expect(html).not.toContain("<img")
    expect(html).not.toContain("\u202e")
    expect(html.split("&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;").length - 1).toBe(6)
  })

  it("[O-05] stays short, however many companies there are", () => {
    const days = [{ day: now, copies: 2, copyBytes: 3n << 20n, backups: 1, backupBytes: 1n << 20n }]
    const findings = {
      at: now,
      companies: companies(1000),
      backups: Option.none(),
      volume: Option.none(),
      days
    }
    const html = Page.render({ ...plain, findings: Option.some(findings) })
    expect(html.match(/<th scope="row">/g)).toHaveLength(20 + 1 + 1)
    expect(html).toContain("980 more")
    expect(html).toContain("980 TiB")
    expect(html).toContain("4.0 MiB</strong> in 1 days")
    expect(html).toContain("2026-11-30: 2 copies, 3.0 MiB; 1 backup, 1.0 MiB")
  })

  it("[O-05] says what to do about every reason", () => {
    const skipped = { Held: 2, Differs: 1, NotRecoverable: 1, SomethingOfALaterRelease: 3 }
    const report = VersionReport.VersionReport.make({ ...VersionReport.empty, skipped })
    const html = Page.render({
      ...plain,
      versions: {
        ...idle,
        lastSweep: Option.some({
          startedAt: now,
          endedAt: now,
          outcome: "completed",
          detail: Option.none(),
          dryRun: true,
          report
        })
      }
    })
    expect(html).toContain("<strong>held by an operator</strong>")
    expect(html).toContain("<code>reclaim unhold</code> releases it.")
    expect(html).toContain("<code>reclaim skills audit --company ID --repair</code>")
    expect(html).toContain("<strong>SomethingOfALaterRelease</strong>")
    expect(html).toContain("completed, dry run")
  })

  it("[O-05] offers what can be done in each phase", () => {
    const actions = (phase: Page.Page["phase"]) =>
      [...Page.render({ ...plain, phase }).matchAll(/data-action="(\w+)"/g)].map(([, action]) => action)
    expect(actions("starting")).toEqual(["standby", "drain"])
    expect(actions("active")).toEqual(["standby", "drain"])
    expect(actions("standby")).toEqual(["resume", "drain"])
    expect(actions("draining")).toEqual([])
    expect(Page.render(plain)).not.toContain('id="token"')
    expect(Page.render({ ...plain, needsToken: true })).toContain('id="token"')
  })
})

/** The least contrast of any text with what is behind it, as the guidelines for accessibility compute it. */
const leastContrast = `(() => {
  const rgba = (text) => text.match(/[\\d.]+/g).map(Number)
  const channel = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4)
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b)
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = rgba(getComputedStyle(each).backgroundColor)
      if (colour.length === 3 || colour[3] === 1) return colour
    }
    return [255, 255, 255]
  }
  const texts = [...document.body.querySelectorAll("*")].filter(
    (element) =>
      !["SCRIPT", "NOSCRIPT"].includes(element.tagName) &&
      element.checkVisibility() &&
      [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim() !== "")
  )
  return Math.min(...texts.map((element) => {
    const [one, other] = [light(rgba(getComputedStyle(element).color)), light(behind(element))]
    return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)
  }))
})()`

// Each of the tests starts a browser and half a dozen processes.
const limit = 180_000

/** What is wider than the place that it has: the page on its screen, a text in its field. */
const overflowing = `[document.documentElement, ...document.querySelectorAll("dd, td, th, p")].filter(
  (element) => element.scrollWidth > element.clientWidth && !element.classList.contains("unseen")
).length`

/** Each label, heading of a table and image must tell an assistive technology what it is. */
const unlabelled = `[
  ...[...document.querySelectorAll("input")].filter((input) => input.labels.length === 0),
  ...[...document.querySelectorAll("table")].filter((table) => !table.caption),
  ...document.querySelectorAll("th:not([scope]), svg[role=img]:not([aria-label])")
].length`

const text = "document.body.innerText"

if (Chromium.binary === undefined) {
  console.log("Chromium is not installed: its part of ServePage.test.ts is skipped")
} else {
  layer(Fixture.layer, { timeout: 60_000 })("the status page in a browser", (it) => {
    const prepared = Effect.gen(function* () {
      const { companyId, instance, oldCopy, url, versions } = yield* Fixture.Fixture
      const sql = yield* SqlClient.SqlClient
      for (const versionId of versions) yield* oldCopy(versionId)
      yield* sql`insert into reclaim.journal (at, worker, event, company_id, allocated_bytes, server)
        select now() - make_interval(days => d), 'skill-versions', 'evicted', ${companyId}::uuid, d * 1048576, 'x'
        from generate_series(1, 20) d`
      const running = yield* serve({
        DATABASE_URL: url,
        RECLAIM_INSTANCE: instance,
        RECLAIM_TOKEN: "s3cret"
      })
      yield* eventually(
        Effect.map(
          running.get("/"),
          ({ body }) => body.includes("</figure>") && body.includes("Last whole pass")
        )
      )
      return { running, companyId }
    })

    it.effect(
      "[O-05] is whole and readable on a phone and a desk, in light and dark",
      () =>
        Effect.gen(function* () {
          const { companyId, running } = yield* prepared
          const page = yield* Chromium.open
          for (const [width, height] of [
            [360, 740],
            [1280, 900]
          ] as const) {
            for (const scheme of ["light", "dark"] as const) {
              const view = `${width} ${scheme}`
              yield* page.visit(running.url, { width, height, scheme })
              expect(yield* page.evaluate("innerWidth"), view).toBe(width)
              expect(yield* page.evaluate(overflowing), view).toBe(0)
              expect(yield* page.evaluate(leastContrast), view).toBeGreaterThanOrEqual(4.5)
              expect(yield* page.evaluate(unlabelled), view).toBe(0)
            }
          }
          const shown = yield* page.evaluate(text)
          for (const part of [
            "Skill versions",
            "210 MiB in 30 days",
            companyId,
            "Current version",
            "Stand by"
          ]) {
            expect(shown).toContain(part)
          }
          expect(page.complaints).toEqual([])
        }).pipe(Effect.scoped),
      limit
    )

    it.effect(
      "[O-05] its buttons work with the token, and say why they do not without",
      () =>
        Effect.gen(function* () {
          const { running } = yield* prepared
          const page = yield* Chromium.open
          const click = (label: string) =>
            page.evaluate(
              `[...document.querySelectorAll("button")].find((each) => each.innerText === "${label}").click()`
            )
          const shows = (part: string) =>
            eventually(Effect.map(page.evaluate(text), (shown) => String(shown).includes(part)))
          yield* page.visit(running.url, { width: 360, height: 740, scheme: "light" })
          yield* click("Stand by")
          yield* shows("the token is missing or wrong")
          expect((yield* running.status).phase).toBe("active")
          yield* page.evaluate(`document.getElementById("token").value = "s3cret"`)
          yield* click("Stand by")
          yield* shows("on standby")
          expect((yield* running.status).phase).toBe("standby")
          yield* page.evaluate(
            `document.getElementById("token").value = "s3cret"; window.confirm = () => true`
          )
          yield* click("Drain")
          expect(yield* running.exitCode).toBe(0)
        }).pipe(Effect.scoped),
      limit
    )

    it.effect(
      "[O-05] tells everything without scripts, but for the buttons",
      () =>
        Effect.gen(function* () {
          const { companyId, running } = yield* prepared
          const page = yield* Chromium.open
          yield* page.visit(running.url, { width: 1280, height: 900, scheme: "light", scripts: false })
          const shown = yield* page.evaluate(text)
          for (const part of ["The buttons need JavaScript", "Current version", companyId]) {
            expect(shown).toContain(part)
          }
          expect(shown).not.toContain("Stand by")
        }).pipe(Effect.scoped),
      limit
    )
  })
}
