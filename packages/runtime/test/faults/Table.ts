/** The matrix as docs/reliability.md shows it. */
import * as Fs from "node:fs"
import { fileURLToPath } from "node:url"
import { columns } from "./Faults.ts"
import { declared } from "./Points.ts"
import { ruleOf, rules } from "./Rules.ts"

const file = fileURLToPath(new URL("../../../../docs/reliability.md", import.meta.url))
const begin = "<!-- matrix -->"
const end = "<!-- end of matrix -->"

const line = (cells: ReadonlyArray<string>) => `| ${cells.join(" | ")} |`

/** Row by row; a number stands for the reason why a cell is empty. */
export const generated: ReadonlyArray<string> = [
  line(["point", ...columns]),
  line(["---", ...columns.map(() => ":-:")]),
  ...declared.map((point) =>
    line([
      `\`${point}\``,
      ...columns.map((column) => {
        const rule = ruleOf(point, column)
        return rule === undefined ? "✓" : `${rules.indexOf(rule) + 1}`
      })
    ])
  ),
  "",
  ...rules.map(({ why }, index) => `${index + 1}. ${why}`)
]

/** The document before the matrix, the lines of the matrix that it has, and the document after it. */
const parts = () => {
  const text = Fs.readFileSync(file, "utf8")
  const from = text.indexOf(begin) + begin.length
  const to = text.indexOf(end)
  return { before: text.slice(0, from), matrix: text.slice(from, to), after: text.slice(to) }
}

// The formatter aligns the columns.
const plain = (text: string) => text.replace(/ +/g, " ").replace(/-{3,}/g, "---").replace(/:-+:/g, ":-:")

export const written = (): ReadonlyArray<string> => plain(parts().matrix.trim()).split("\n")

export const write = (): void => {
  const { after, before } = parts()
  Fs.writeFileSync(file, `${before}\n\n${generated.join("\n")}\n\n${after}`)
}
