/** Lays text out in columns. */
import { CliOutput } from "effect/cli"

/** `right` is for figures, so that their digits stand below each other. */
export interface Column {
  readonly title: string
  readonly align?: "left" | "right"
  /** At least this wide; needed where rows are printed before all are known. */
  readonly width?: number
}

/**
 * What may be printed on a terminal: a name from the disk or a note from the database could hold control
 * characters, and with them commands to the terminal.
 */
export const printable = (text: string): string =>
  text.replace(
    // oxlint-disable-next-line no-control-regex -- control characters are what is replaced
    /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`
  )

const pad = (text: string, width: number, align: "left" | "right"): string => {
  const space = " ".repeat(Math.max(0, width - CliOutput.displayWidth(text)))
  return align === "right" ? space + text : text + space
}

/** One line of a table whose columns have fixed widths. */
export const row = (columns: ReadonlyArray<Column>, cells: ReadonlyArray<string>): string =>
  columns
    .map((column, index) => pad(cells[index] ?? "", column.width ?? 0, column.align ?? "left"))
    .join("  ")
    .trimEnd()

/** A whole table, headed by its titles, each column as wide as its widest cell. */
export const table = (
  columns: ReadonlyArray<Column>,
  rows: ReadonlyArray<ReadonlyArray<string>>
): ReadonlyArray<string> => {
  const titles = columns.map(({ title }) => title)
  const fitted = columns.map((column, index) => ({
    ...column,
    width: Math.max(
      column.width ?? 0,
      ...[titles, ...rows].map((cells) => CliOutput.displayWidth(cells[index] ?? ""))
    )
  }))
  return [titles, ...rows].map((cells) => row(fitted, cells))
}
