/** The named points of the whole repository, as they stand in its sources. */
import * as Fs from "node:fs"
import { fileURLToPath } from "node:url"

const packages = fileURLToPath(new URL("../../../", import.meta.url))

export const declared: ReadonlyArray<string> = Fs.readdirSync(packages)
  .map((name) => `${packages}${name}/src`)
  .filter((source) => Fs.existsSync(source))
  .flatMap((source) =>
    Fs.readdirSync(source, { recursive: true, encoding: "utf8" })
      .filter((file) => file.endsWith(".ts"))
      .flatMap((file) => [
        ...Fs.readFileSync(`${source}/${file}`, "utf8").matchAll(/FaultPoint\.make\("([^"]+)"\)/g)
      ])
  )
  .map(([, point]) => point!)
  .toSorted()
