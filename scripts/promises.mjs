/** Compares the promises that `docs/promises.md` lists with those that the tests name. */
import { code } from "./imports.mjs"

/** @param {string} text */
const ids = (text) => [...text.matchAll(/\[([A-Z]-\d{2})\]/g)].map(([, id = ""]) => id)

/**
 * The promises that a document lists: `- **S-21** ...`, one item each.
 *
 * @param {string} document
 * @returns {ReadonlyArray<string>}
 */
export const listed = (document) =>
  [...document.matchAll(/^- \*\*([A-Z]-\d{2})\*\* \S/gm)].map(([, id = ""]) => id)

/**
 * The promises that the titles of a test file name, comments apart.
 *
 * @param {string} text
 * @returns {ReadonlyArray<string>}
 */
export const named = (text) => {
  const titles = code(text, { strings: true, templates: true }).matchAll(/(["'`])((?:\[[A-Z]-\d{2}\]\s?)+)/g)
  return [...titles].flatMap(([, , title = ""]) => ids(title))
}

/**
 * @param {string} document
 * @param {ReadonlyArray<{ readonly path: string, readonly text: string }>} tests
 */
export const compare = (document, tests) => {
  const promises = listed(document)
  const kept = new Set(tests.flatMap(({ text }) => named(text)))
  return {
    twice: promises.filter((id, index) => promises.indexOf(id) < index),
    untested: promises.filter((id) => !kept.has(id)),
    unlisted: tests.flatMap(({ path, text }) =>
      [...new Set(named(text))].filter((id) => !promises.includes(id)).map((id) => `${path}: ${id}`)
    )
  }
}
