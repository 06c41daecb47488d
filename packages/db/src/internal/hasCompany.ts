import type { Ids } from "@reclaim/core"
import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql/SqlClient"
import type { DatabaseError } from "../DatabaseError.ts"
import type { Transactions } from "../Transactions.ts"
import { query } from "./rows.ts"

const Found = Schema.Struct({ found: Schema.Boolean })

/** Whether the database has a company. */
export const hasCompany =
  (sql: SqlClient, transactions: Transactions["Service"]) =>
  (companyId: Ids.CompanyId): Effect.Effect<boolean, DatabaseError> => {
    const operation = "finding a company"
    return transactions.join(
      operation,
      Effect.map(
        query(Found, operation, sql`select true as "found" from companies where id = ${companyId}::uuid`),
        (rows) => rows.length > 0
      )
    )
  }
