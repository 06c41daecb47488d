/** Reads what the repository's checks look at. */
import { readdirSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"

/** The repository's root folder. */
export const root = fileURLToPath(new URL("..", import.meta.url))

/** @param {string} path A file, from the root. */
export const read = (path) => readFileSync(`${root}${path}`, "utf8")

/** The same, empty where there is none. @param {string} path */
export const readIfThere = (path) => {
  try {
    return read(path)
  } catch {
    return ""
  }
}

/**
 * The files of a folder and of those below it, from the root; none where it does not exist.
 *
 * @param {string} folder
 * @param {string} ending
 * @returns {ReadonlyArray<string>}
 */
export const files = (folder, ending) => {
  try {
    return readdirSync(`${root}${folder}`, { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(ending))
      .map((name) => `${folder}/${name}`)
      .toSorted()
  } catch {
    return []
  }
}

/** The names of the packages. */
export const packages = readdirSync(`${root}packages`).toSorted()

export const sources = () =>
  packages.flatMap((name) => files(`packages/${name}/src`, ".ts").map((path) => ({ path, text: read(path) })))

/** What each package declares that it depends on. */
export const dependencies = () =>
  Object.fromEntries(
    packages.map((name) => {
      const {
        dependencies = {},
        optionalDependencies = {},
        peerDependencies = {}
      } = JSON.parse(read(`packages/${name}/package.json`))
      return [name, Object.keys({ ...dependencies, ...optionalDependencies, ...peerDependencies })]
    })
  )
