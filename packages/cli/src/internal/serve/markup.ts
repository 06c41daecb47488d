/** Builds HTML from values. Text and attributes are always escaped, so that nothing from disk or database can become markup. */

/** Markup that is safe as it stands. */
export interface Markup {
  readonly _tag: "Markup"
  readonly text: string
}

/** What an element may contain; what is not there leaves nothing. */
export type Child = Markup | string | number | undefined | ReadonlyArray<Child>

/** True writes the bare attribute, false and undefined leave it out. */
export type Attributes = Readonly<Record<string, string | number | boolean | undefined>>

const entities: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;"
}

const escape = (text: string): string =>
  text
    .replace(/[&<>"']/g, (character) => entities[character] ?? "")
    // What would turn the direction of the text around it, or is no character at all.
    .replace(
      // oxlint-disable-next-line no-control-regex -- control characters are what is replaced
      /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
      (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`
    )

/** Only for what is written in this program. */
export const trusted = (text: string): Markup => ({ _tag: "Markup", text })

const isMarkup = (child: Child): child is Markup =>
  typeof child === "object" && "_tag" in child && child._tag === "Markup"

const render = (child: Child): string => {
  if (child === undefined) return ""
  if (typeof child === "string") return escape(child)
  if (typeof child === "number") return String(child)
  return isMarkup(child) ? child.text : child.map(render).join("")
}

const attribute = ([name, value]: readonly [string, Attributes[string]]): string => {
  if (value === undefined || value === false) return ""
  return value === true ? ` ${name}` : ` ${name}="${escape(String(value))}"`
}

const empty = new Set(["input", "link", "meta"])

/** An element, like `element("a", { href: "/" }, "home")`. */
export const element = (
  name: string,
  attributes: Attributes = {},
  ...children: ReadonlyArray<Child>
): Markup => {
  const open = `<${name}${Object.entries(attributes).map(attribute).join("")}>`
  return trusted(empty.has(name) ? open : `${open}${children.map(render).join("")}</${name}>`)
}

/** A whole page. */
export const document = (html: Markup): string => `<!doctype html>\n${html.text}\n`
