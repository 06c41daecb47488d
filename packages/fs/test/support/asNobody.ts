/** Runs a script as a user without rights: the one of the suite, or nobody where that is root. */
import { Effect } from "effect"
import { spawn } from "node:child_process"
import * as Fs from "node:fs"

export const isRoot = process.getuid!() === 0
// nobody: an unprivileged user that every system has.
export const nobody = 65534

export const asNobody = (script: string, args: ReadonlyArray<string>, cwd: string) =>
  Effect.callback<{ readonly code: number | null; readonly stdout: string; readonly stderr: string }>(
    (resume) => {
      const child = spawn(process.execPath, ["--conditions=@reclaim/source", script, ...args], {
        ...(isRoot ? { uid: nobody, gid: nobody } : {}),
        cwd,
        stdio: ["ignore", "pipe", "pipe"]
      })
      let stdout = ""
      let stderr = ""
      child.stdout.on("data", (chunk: Buffer) => (stdout += chunk.toString()))
      child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()))
      child.on("error", (error) => resume(Effect.succeed({ code: -1, stdout, stderr: String(error) })))
      child.on("close", (code) => resume(Effect.succeed({ code, stdout, stderr })))
    }
  )

/** Whether nobody can read a script at all; a checkout in a private home cannot be tested from there. */
export const isReadable = (script: string): boolean => {
  if (!isRoot) return true
  let at = script
  for (;;) {
    const parent = at.replace(/\/[^/]*$/, "") || "/"
    if ((Fs.statSync(parent).mode & 0o005) !== 0o005) {
      process.stdout.write(`skipped: ${script} is not readable for others\n`)
      return false
    }
    if (parent === "/") return true
    at = parent
  }
}
