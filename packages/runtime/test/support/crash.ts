import * as Fs from "node:fs"

/** Changes the top folder of a version while it is leaving, so that its eviction is undone. */
export const meddle = (point: string, skillFolder: string, versionId: string): void => {
  if (point !== "evict.afterRename") return
  const leaving = Fs.readdirSync(skillFolder).find((name) => name.startsWith(`.evicting-${versionId}`))
  if (leaving !== undefined) Fs.writeFileSync(`${skillFolder}/${leaving}/mine`, "")
}
