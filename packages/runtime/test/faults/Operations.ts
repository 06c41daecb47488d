/** What a server does while a fault strikes it, described so that another process can be told to do it. */
import { PgClient } from "@effect/sql-pg"
import { Ids } from "@reclaim/core"
import { Effect, Layer, Redacted, Schema, Stream } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as Fs from "node:fs"
import {
  BackupExpiration,
  FailoverBackups,
  SkillVersionAudit,
  SkillVersionCache,
  SkillVersionRetention
} from "../../src/index.ts"
import type { Services } from "./Server.ts"

/**
 * What somebody else does when a point is reached for the first time: a statement in the database, or a file
 * that appears in a folder, whose name begins so, with a mark elsewhere that it did.
 */
export const Meanwhile = Schema.TaggedUnion({
  Statement: { at: Schema.String, statement: Schema.String },
  File: {
    at: Schema.String,
    parent: Schema.String,
    folder: Schema.String,
    file: Schema.String,
    mark: Schema.String
  }
})
export type Meanwhile = typeof Meanwhile.Type

export const Operation = Schema.TaggedUnion({
  Sweep: { companyId: Ids.CompanyId },
  Prepare: { companyId: Ids.CompanyId, runId: Ids.RunId, versions: Schema.Array(Ids.VersionId) },
  Repair: { companyId: Ids.CompanyId },
  Expire: {},
  Capture: { scope: Ids.ScopeId, sessionId: Ids.NativeSessionId, source: Schema.String },
  Restore: { scope: Ids.ScopeId, target: Schema.String }
})
export type Operation = typeof Operation.Type

export const Task = Schema.Struct({ operation: Operation, meanwhile: Schema.Array(Meanwhile) })
export type Task = typeof Task.Type

/** The services as a caller would use them. */
export const run = (operation: Operation): Effect.Effect<unknown, unknown, Services> =>
  Operation.match(operation, {
    Sweep: ({ companyId }) =>
      Effect.flatMap(SkillVersionRetention.SkillVersionRetention, (retention) =>
        Stream.runCollect(retention.sweep({ companyId }))
      ),
    Prepare: ({ companyId, runId, versions }) =>
      Effect.flatMap(SkillVersionCache.SkillVersionCache, (cache) =>
        cache.prepare({ companyId, runId, versions, verify: "digest" })
      ),
    Repair: ({ companyId }) =>
      Effect.flatMap(SkillVersionAudit.SkillVersionAudit, (audit) =>
        Stream.runCollect(audit.audit({ companyId, repair: true }))
      ),
    Expire: () =>
      Effect.flatMap(BackupExpiration.BackupExpiration, (expiration) =>
        Stream.runCollect(expiration.sweep())
      ),
    Capture: ({ scope, sessionId, source }) =>
      Effect.flatMap(FailoverBackups.FailoverBackups, (backups) =>
        backups.capture({
          scope,
          identity: { normalizedSessionId: sessionId },
          sources: [{ name: "runner", path: source }]
        })
      ),
    Restore: ({ scope, target }) =>
      Effect.flatMap(FailoverBackups.FailoverBackups, (backups) => backups.restore({ scope, target }))
  })

/** Runs a statement on a connection that belongs to nobody. */
export const apart = (url: string, statement: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) => sql.unsafe(statement)).pipe(
    Effect.provide(Layer.fresh(PgClient.layer({ url: Redacted.make(url), maxConnections: 1 })), {
      local: true
    }),
    Effect.orDie
  )

const place = ({
  file,
  folder,
  mark,
  parent
}: Pick<Extract<Meanwhile, { readonly _tag: "File" }>, "file" | "folder" | "mark" | "parent">) =>
  Effect.sync(() => {
    const found = Fs.readdirSync(parent).find((name) => name.startsWith(folder))
    if (found === undefined) return
    Fs.writeFileSync(`${parent}/${found}/${file}`, file)
    Fs.writeFileSync(mark, "")
  })

/** A handler that lets the others act, each until it has. */
export const others = (url: string, meanwhile: ReadonlyArray<Meanwhile>) => {
  const left = new Set(meanwhile)
  return (point: string): Effect.Effect<void> =>
    Effect.forEach(
      [...left].filter(({ at }) => at === point),
      (each) => {
        if (each._tag === "File") {
          return Effect.andThen(
            place(each),
            Effect.sync(() => {
              if (Fs.existsSync(each.mark)) left.delete(each)
            })
          )
        }
        left.delete(each)
        return apart(url, each.statement)
      },
      { discard: true }
    )
}
