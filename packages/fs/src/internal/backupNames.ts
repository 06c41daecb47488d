/** The names in a `failover-backups` folder, and what they stand for. */
import { randomUUID } from "node:crypto"
import type { LeftoverKind } from "../BackupStore.ts"

export const backupsFolder = "failover-backups"
export const manifestFile = "manifest.json"

const prefixes = {
  Pending: ".pending-",
  Retiring: ".retiring-",
  Expired: ".expired-"
} as const satisfies Record<LeftoverKind, string>

const kinds = ["Pending", "Retiring", "Expired"] as const satisfies ReadonlyArray<LeftoverKind>

const uuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

export const isOf = (kind: LeftoverKind, name: string): boolean =>
  name.startsWith(prefixes[kind]) && uuid.test(name.slice(prefixes[kind].length))

export const kindOf = (name: string): LeftoverKind | undefined => kinds.find((kind) => isOf(kind, name))

export const fresh = (kind: LeftoverKind): { readonly name: string; readonly token: string } => {
  const token = randomUUID()
  return { name: prefixes[kind] + token, token }
}

export const isScope = (name: string): boolean => /^[0-9a-f]{64}$/.test(name)
