/** Writes the files of one version of a skill: text, tables, scripts and pictures, as such skills have them. */
import { crc32, deflateSync } from "node:zlib"
import type { SkillSketch } from "./catalog.ts"
import type { Dice } from "./dice.ts"

export interface DemoFile {
  readonly path: string
  readonly bytes: Uint8Array
  readonly executable: boolean
}

const text = (value: string): Uint8Array => new TextEncoder().encode(value)

const title = (slug: string): string =>
  slug
    .split("-")
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
    .join(" ")

const openings = ["Read", "Compare", "Collect", "Check", "Note", "Confirm", "Look up", "Write down"] as const
const objects = [
  "every figure that was entered by hand",
  "what changed since the last time",
  "the entries that lack a date",
  "the three largest differences",
  "who has to approve it",
  "the source of each statement",
  "whatever contradicts the reference below"
] as const
const endings = [
  "before you go on.",
  "and keep the answer short.",
  "and say so when you are not sure.",
  "even when nobody asked for it.",
  "and link to it instead of copying it.",
  "because the next step depends on it."
] as const

const paragraph = (dice: Dice, subject: string, sentences: number): string =>
  Array.from(
    { length: sentences },
    () => `${dice.pick(openings)} ${dice.pick(objects)} for the ${subject} ${dice.pick(endings)}`
  ).join(" ")

const skillText = (dice: Dice, sketch: SkillSketch, revision: number): string =>
  `---
name: ${sketch.slug}
description: ${sketch.purpose}. Use it when somebody mentions a ${sketch.subject}.
---

# ${title(sketch.slug)}

${paragraph(dice, sketch.subject, 3)}

## Steps

${Array.from({ length: dice.between(4, 9) }, (_, step) => `${step + 1}. ${paragraph(dice, sketch.subject, 1)}`).join("\n")}

## What changed in revision ${revision}

${paragraph(dice, sketch.subject, 2)}

See \`references/guide.md\` for the long form and \`scripts/\` for the tools.
`

const guide = (dice: Dice, sketch: SkillSketch): string =>
  `# A guide to the ${sketch.subject}\n\n${Array.from(
    { length: dice.between(10, 30) },
    (_, chapter) =>
      `## ${chapter + 1}. ${dice.pick(openings)} the ${sketch.subject}\n\n${paragraph(dice, sketch.subject, dice.between(4, 9))}\n`
  ).join("\n")}`

const table = (dice: Dice, sketch: SkillSketch): string =>
  [
    `id,${sketch.subject.replaceAll(" ", "_")},quantity,unit_price,updated`,
    ...Array.from(
      { length: dice.between(200, 1100) },
      (_, line) =>
        `${line + 1},${sketch.slug}-${dice.between(1000, 9999)},${dice.between(1, 400)},${(dice.next() * 900).toFixed(2)},2026-${String(dice.between(1, 11)).padStart(2, "0")}-${String(dice.between(1, 28)).padStart(2, "0")}`
    )
  ].join("\n")

const shellScript = (sketch: SkillSketch, revision: number): string =>
  `#!/usr/bin/env bash
# Collects what ${sketch.slug} needs; revision ${revision}.
set -euo pipefail

here="$(cd "$(dirname "\${BASH_SOURCE[0]}")" && pwd)"
input="\${1:?usage: collect.sh FILE}"

awk -F, 'NR > 1 { total += $3 * $4 } END { printf "%.2f\\n", total }' "$input" \\
  > "\${TMPDIR:-/tmp}/${sketch.slug}.total"
exec "$here/summarise.py" "$input"
`

const pythonScript = (sketch: SkillSketch): string =>
  `#!/usr/bin/env python3
"""${sketch.purpose}."""
import csv
import sys


def main(path: str) -> int:
    with open(path, newline="") as handle:
        rows = list(csv.DictReader(handle))
    print(f"{len(rows)} rows of ${sketch.subject} data")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
`

const chunk = (name: string, data: Uint8Array): Uint8Array => {
  const body = Buffer.concat([Buffer.from(name, "latin1"), data])
  const length = Buffer.alloc(4)
  length.writeUInt32BE(data.length)
  const sum = Buffer.alloc(4)
  sum.writeUInt32BE(crc32(body))
  return Buffer.concat([length, body, sum])
}

/** A picture that every viewer opens: coloured noise over a gradient. */
const picture = (dice: Dice): Uint8Array => {
  const [width, height] = [dice.between(64, 144), dice.between(64, 112)]
  const header = Buffer.alloc(13)
  header.writeUInt32BE(width, 0)
  header.writeUInt32BE(height, 4)
  header.set([8, 2, 0, 0, 0], 8)
  const pixels = Buffer.alloc(height * (1 + width * 3))
  for (let y = 0, at = 0; y < height; y++) {
    at += 1
    for (let x = 0; x < width; x++) {
      pixels[at++] = (x * 2 + dice.between(0, 31)) & 255
      pixels[at++] = (y * 2 + dice.between(0, 31)) & 255
      pixels[at++] = (x + y) & 255
    }
  }
  return Buffer.concat([
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
    chunk("IHDR", header),
    chunk("IDAT", deflateSync(pixels)),
    chunk("IEND", new Uint8Array())
  ])
}

/** The files of one revision, in the order of their paths. */
export const filesOf = (dice: Dice, sketch: SkillSketch, revision: number): ReadonlyArray<DemoFile> => {
  const file = (path: string, bytes: Uint8Array, executable = false): DemoFile => ({
    path,
    bytes,
    executable
  })
  return [
    file("SKILL.md", text(skillText(dice, sketch, revision))),
    ...(dice.between(0, 2) === 0 ? [] : [file("assets/overview.png", picture(dice))]),
    file("data/reference.csv", text(table(dice, sketch))),
    file("references/guide.md", text(guide(dice, sketch))),
    file("scripts/collect.sh", text(shellScript(sketch, revision)), true),
    ...(dice.between(0, 1) === 0 ? [] : [file("scripts/summarise.py", text(pythonScript(sketch)), true)])
  ]
}
