/** The look of the status page, and the little that its buttons need. Nothing is loaded from elsewhere. */

export const style = `
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --line: #dfe3e8; --text: #1b2129; --quiet: #58636f;
  --accent: #0b63c5; --accent-text: #ffffff; --good: #1a7f4b; --warn: #9a5b00; --bad: #b3261e;
  --copies: #2f7bd6; --backups: #d08a1d; --tint: #eef3fa;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12161c; --card: #1a2028; --line: #303944; --text: #e6eaf0; --quiet: #9eabb9;
    --accent: #6cb0ff; --accent-text: #0c1420; --good: #5ccf94; --warn: #eab25c; --bad: #ff8f87;
    --copies: #5a9ff0; --backups: #e5ad4f; --tint: #202a36;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
header, main, footer { max-width: 64rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 1.5rem; }
footer { padding-bottom: 2rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; display: flex; flex-wrap: wrap; gap: .25rem .75rem; align-items: center; }
h2 { font-size: 1.125rem; margin: 0 0 .75rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
p { margin: .25rem 0 .75rem; }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .875em; overflow-wrap: anywhere; }
.quiet { color: var(--quiet); font-size: .875rem; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.badge { font-size: .8125rem; font-weight: 600; padding: .125rem .625rem; border: 1px solid currentColor; border-radius: 1rem; }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .625rem; padding: 1rem; margin: 1rem 0; min-width: 0; }
.pair { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); }
.pair > .card { margin: 0; }
.notice { border-left: .25rem solid var(--warn); }
.notice ul { margin: .25rem 0; padding-left: 1.25rem; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: auto 1fr; gap: .25rem .75rem; margin: 0; }
dd time { white-space: nowrap; }
dt { color: var(--quiet); }
dd { margin: 0; text-align: right; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; min-width: 0; }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; padding: 0 0 .25rem; font-weight: 600; }
th, td { text-align: left; vertical-align: top; padding: .375rem .75rem .375rem 0; border-bottom: 1px solid var(--line); font-weight: 400; }
th:last-child, td:last-child { padding-right: 0; }
thead th { color: var(--quiet); font-size: .8125rem; font-weight: 600; }
tbody tr:last-child > * { border-bottom: 0; }
.figure { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
table + p { margin-top: .75rem; }
td strong { display: inline-block; } td strong::first-letter { text-transform: uppercase; }
.card > :last-child { margin-bottom: 0; }
@media (max-width: 30rem) {
  th, td { padding-right: .5rem; }
  th code { font-size: .75rem; }
  dl { column-gap: .5rem; }
  dd time { font-size: .875rem; }
}
.scroll { overflow-x: auto; }
figure { margin: 0; }
figcaption { margin-bottom: .5rem; }
.key { display: inline-flex; align-items: center; gap: .375rem; margin-left: .75rem; font-size: .875rem; color: var(--quiet); }
.swatch { width: .75rem; height: .75rem; border-radius: .125rem; display: inline-block; }
.swatch.copies { background: var(--copies); } .swatch.backups { background: var(--backups); }
svg { display: block; width: 100%; height: 8rem; }
svg .copies { fill: var(--copies); } svg .backups { fill: var(--backups); }
svg .day { fill: transparent; } svg g:hover .day { fill: var(--tint); }
svg line { vector-effect: non-scaling-stroke; stroke: var(--line); } svg .axis { stroke: var(--quiet); }
.ends { display: flex; justify-content: space-between; margin-top: .25rem; }
details { margin-top: .75rem; } summary { cursor: pointer; color: var(--accent); }
.controls { display: flex; flex-wrap: wrap; gap: .75rem; align-items: end; }
.field { display: flex; flex-direction: column; gap: .25rem; flex: 1 1 14rem; max-width: 22rem; font-size: .875rem; }
input, button { font: inherit; border-radius: .375rem; padding: .4375rem .875rem; border: 1px solid var(--line); }
input { background: var(--page); color: var(--text); border-color: var(--quiet); width: 100%; }
button { background: var(--accent); color: var(--accent-text); border-color: transparent; font-weight: 600; cursor: pointer; }
button.second { background: transparent; color: var(--bad); border-color: currentColor; }
button:disabled { opacity: .5; cursor: default; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
#answer:empty { display: none; } #answer { margin: .75rem 0 0; }
`

export const script = `
const token = document.getElementById("token")
const answer = document.getElementById("answer")
const buttons = document.querySelectorAll("button[data-action]")
for (const button of buttons) {
  button.hidden = false
  button.addEventListener("click", async () => {
    const question = button.dataset.question
    if (question && !window.confirm(question)) return
    for (const each of buttons) each.disabled = true
    try {
      const headers = token && token.value ? { authorization: "Bearer " + token.value } : {}
      const response = await fetch("/" + button.dataset.action, { method: "POST", headers })
      const document = await response.json()
      if (response.ok) return window.location.reload()
      answer.textContent = document.message
    } catch {
      answer.textContent = "The server does not answer."
    }
    for (const each of buttons) each.disabled = false
  })
}
setInterval(() => {
  const busy = document.hidden || (token && token.value) || document.querySelector("details[open]")
  if (!busy) window.location.reload()
}, 60000)
`

/** A broom in a square, for the browser's tab. */
export const icon =
  "data:image/svg+xml," +
  encodeURIComponent(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#0b63c5"/>' +
      '<path d="M11.5 2.5 7.5 8M5 7.5l4 3-2 3.5-4.5-3z" stroke="#fff" stroke-width="1.6" fill="none" stroke-linejoin="round"/></svg>'
  )
