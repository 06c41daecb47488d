/**
 * The mutants: small, named ways to break the product, each with the promise that it breaks. Used by `run.mjs`,
 * and by the tests, which see to it that the list keeps up with the sources.
 */
import { listed } from "../promises.mjs"
import { backups } from "./backups.mjs"
import { database } from "./database.mjs"
import { disk } from "./disk.mjs"
import { versions } from "./versions.mjs"

/**
 * `file` is a source and `tests` are test files of a package, both without folder and ending. `find` is the exact
 * text that `replace` stands for then. Whoever must catch a mutant are the tests of these files that name its
 * promise, and no others.
 *
 * @typedef {object} Mutant
 * @property {string} promise
 * @property {string} name
 * @property {string} file
 * @property {string} find
 * @property {string} replace
 * @property {ReadonlyArray<string>} tests
 */

/** @type {ReadonlyArray<Mutant>} */
export const mutants = [...disk, ...versions, ...backups, ...database]

/** @param {string} name */
const inPackage = (name) => {
  const slash = name.indexOf("/")
  return { owner: name.slice(0, slash), path: name.slice(slash + 1) }
}

/** @param {Mutant} mutant */
export const sourceOf = ({ file }) => {
  const { owner, path } = inPackage(file)
  return `packages/${owner}/src/${path}.ts`
}

/** @param {Mutant} mutant */
export const testsOf = ({ tests }) =>
  tests.map((name) => {
    const { owner, path } = inPackage(name)
    return { project: owner, file: `packages/${owner}/test/${path}.test.ts` }
  })

/** @param {string} text @param {string} part */
const count = (text, part) => text.split(part).length - 1

/**
 * The text of a mutant's source when it is broken.
 *
 * @param {Mutant} mutant
 * @param {string} text
 */
export const applied = (mutant, text) => text.replace(mutant.find, () => mutant.replace)

/**
 * What is wrong with a list: mutants that no longer fit their sources or tests, and promises without one.
 *
 * @param {ReadonlyArray<Mutant>} list
 * @param {string} document The promises.
 * @param {(path: string) => string} read A file of the repository; empty where there is none.
 * @returns {ReadonlyArray<string>}
 */
export const mistakes = (list, document, read) => {
  const promises = listed(document).filter((id) => /^[FSBD]-/.test(id))
  const broken = new Set(list.map(({ promise }) => promise))
  const ofMutant = (/** @type {Mutant} */ mutant) => {
    const { find, name, promise, replace } = mutant
    const found = count(read(sourceOf(mutant)), find)
    return [
      ...(found === 1 ? [] : [`is found ${found} times in ${sourceOf(mutant)}`]),
      ...(find === replace ? ["changes nothing"] : []),
      ...(promises.includes(promise) ? [] : [`breaks ${promise}, which nobody promised`]),
      ...(list.some((other) => other !== mutant && other.name === name) ? ["has another's name"] : []),
      ...testsOf(mutant)
        .filter(({ file }) => !read(file).includes(`[${promise}]`))
        .map(({ file }) => `is not tested by ${file}`)
    ].map((problem) => `${name}: ${problem}`)
  }
  return [
    ...list.flatMap(ofMutant),
    ...promises.filter((id) => !broken.has(id)).map((id) => `${id}: has no mutant`)
  ]
}
