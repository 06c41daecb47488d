import { Effect } from "effect"
import { spawn } from "node:child_process"
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { connect } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { eventually } from "./database.ts"

/** The pooler's binary, where it is installed. */
export const binary: string | undefined = [
  "/usr/sbin/pgbouncer",
  "/usr/bin/pgbouncer",
  "/usr/local/bin/pgbouncer"
].find(existsSync)

/** True once somebody accepts connections there: the socket is there a moment before. */
const accepts = (path: string) =>
  Effect.callback<boolean>((resume) => {
    const socket = connect(path)
    socket.on("connect", () => {
      socket.destroy()
      resume(Effect.succeed(true))
    })
    socket.on("error", () => resume(Effect.succeed(false)))
    return Effect.sync(() => void socket.destroy())
  })

/** Runs PgBouncer in transaction mode with one server connection, and gives the URL that leads through it. */
export const through = Effect.fnUntraced(function* (serverUrl: string) {
  const url = new URL(serverUrl)
  const folder = mkdtempSync(join(tmpdir(), "pgb-"))
  chmodSync(folder, 0o777)
  const ini = join(folder, "pgbouncer.ini")
  const host = url.searchParams.get("host") ?? url.hostname
  writeFileSync(
    ini,
    `[databases]
* = host=${host} port=${url.port || "5432"} user=${url.username}
[pgbouncer]
listen_port = 6432
unix_socket_dir = ${folder}
unix_socket_mode = 0777
auth_type = any
pool_mode = transaction
default_pool_size = 1
ignore_startup_parameters = extra_float_digits
`
  )
  const root = process.getuid?.() === 0
  const server = spawn(binary ?? "pgbouncer", [...(root ? ["-u", "nobody"] : []), ini], { stdio: "ignore" })
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      server.kill("SIGKILL")
      rmSync(folder, { recursive: true, force: true })
    })
  )
  yield* eventually(accepts(join(folder, ".s.PGSQL.6432")))
  const pooled = new URL(serverUrl)
  pooled.port = "6432"
  pooled.searchParams.set("host", folder)
  return pooled.href
})
