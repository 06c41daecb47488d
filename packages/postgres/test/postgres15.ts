import { existsSync } from "node:fs"

/** Where the system keeps the oldest PostgreSQL that is promised to work, if it has it. */
export const postgres15: string | undefined = ["/usr/lib/postgresql/15", "/usr/pgsql-15"].find((folder) =>
  existsSync(`${folder}/bin/postgres`)
)
