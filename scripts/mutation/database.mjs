/** Breaks locks, transactions, migrations and the reading of rows. */

/** @type {ReadonlyArray<import("./list.mjs").Mutant>} */
export const database = [
  {
    promise: "D-01",
    name: "the case of an id changes its lock",
    file: "db/LockKey",
    find: "${id.toLowerCase()}",
    replace: "${id}",
    tests: ["db/LockKey"]
  },
  {
    promise: "D-01",
    name: "another format of lock keys",
    file: "db/LockKey",
    find: "update(`reclaim/v1/",
    replace: "update(`reclaim/v2/",
    tests: ["db/LockKey", "db/Transactions"]
  },
  {
    promise: "D-01",
    name: "keys may meet those of hosts",
    file: "db/internal/outsideInt4",
    find: "key >= int4Min && key <= int4Max",
    replace: "key > int4Min && key < int4Max",
    tests: ["db/LockKey"]
  },
  {
    promise: "D-01",
    name: "trash has the lock of its company",
    file: "db/Transactions",
    find: 'trash: tried("trash", "trash")',
    replace: 'trash: tried("trash", "company")',
    tests: ["db/Transactions"]
  },
  {
    promise: "D-02",
    name: "the bounds outlive their transaction",
    file: "db/Transactions",
    find: "set_config('statement_timeout', $2, true)",
    replace: "set_config('statement_timeout', $2, false)",
    tests: ["db/Transactions"]
  },
  {
    promise: "D-02",
    name: "a rolled back commit is a success",
    file: "db/Transactions",
    find: "if (wasRolledBack(answer.value.value)) {",
    replace: "if (answer.value.value === undefined) {",
    tests: ["db/Transactions"]
  },
  {
    promise: "D-02",
    name: "a deadlock is not tried again",
    file: "db/DatabaseError",
    find: '  "Deadlock",\n',
    replace: "",
    tests: ["db/DatabaseError", "db/Holds"]
  },
  {
    promise: "D-02",
    name: "trying again without end",
    file: "db/DatabaseError",
    find: "const tries = 3",
    replace: "const tries = 30",
    tests: ["db/Holds", "db/DatabaseError"]
  },
  {
    promise: "D-02",
    name: "an error of a socket is an answer",
    file: "db/DatabaseError",
    find: "/^(?!E)[0-9A-Z]{5}$/",
    replace: "/^[0-9A-Z]{5}$/",
    tests: ["db/DatabaseError"]
  },
  {
    promise: "D-03",
    name: "a transaction inside the caller's",
    file: "db/Transactions",
    find: "if (Option.isSome(yield* Effect.serviceOption(sql.transactionService))) {",
    replace: "if (sql === undefined) {",
    tests: ["db/Transactions"]
  },
  {
    promise: "D-03",
    name: "a connection that is not given back",
    file: "db/Transactions",
    find: "return yield* Effect.onExit(protocol, (exit) => Scope.close(scope, exit))",
    replace: "return yield* protocol",
    tests: ["db/Clients"]
  },
  {
    promise: "D-03",
    name: "healing reads on four connections",
    file: "runtime/internal/restoration",
    find: "const healingConcurrency = 1",
    replace: "const healingConcurrency = 4",
    tests: ["runtime/Heal"]
  },
  {
    promise: "D-04",
    name: "locks that belong to a connection",
    file: "db/Transactions",
    find: "select pg_advisory_xact_lock_shared(",
    replace: "select pg_advisory_lock_shared(",
    tests: ["db/Clients"]
  },
  {
    promise: "D-04",
    name: "a client that prepares through a pooler is not noticed",
    file: "cli/internal/doctor",
    find: 'prepared.filter((name) => name.startsWith("effect_"))',
    replace: 'prepared.filter((name) => name.startsWith("PGBOUNCER_"))',
    tests: ["cli/Doctor"]
  },
  {
    promise: "D-05",
    name: "several processes migrate at once",
    file: "db/Migrations",
    find: 'yield* run(operation, sql`select pg_advisory_xact_lock(${lockKey("migrate", "reclaim")}::int8)`)\n',
    replace: "",
    tests: ["db/Migrations"]
  },
  {
    promise: "D-05",
    name: "migrating takes more than a look where all is there",
    file: "db/Migrations",
    find: "if ((yield* installed) >= currentVersion) return 0\n",
    replace: "",
    tests: ["db/Migrations"]
  },
  {
    promise: "D-05",
    name: "pins refer to a table of the host",
    file: "db/Migrations",
    find: "run_id uuid not null,\n       company_id uuid not null,\n       skill_id",
    replace:
      "run_id uuid not null,\n       company_id uuid not null references companies (id),\n       skill_id",
    tests: ["db/Migrations"]
  },
  {
    promise: "D-06",
    name: "a column that is read is not asked for",
    file: "db/HostSchema",
    find: 'native_run_finalizations: ["run_id", "phase", "lease_expires_at", "recovery_state"]',
    replace: 'native_run_finalizations: ["run_id", "phase", "lease_expires_at"]',
    tests: ["db/HostColumns"]
  },
  {
    promise: "D-06",
    name: "tables that nobody sees count",
    file: "db/HostSchema",
    find: "and c.relkind in ('r', 'p', 'v', 'm', 'f')\n              and pg_catalog.pg_table_is_visible(c.oid)`",
    replace: "and c.relkind in ('r', 'p', 'v', 'm', 'f')`",
    tests: ["db/Migrations"]
  },
  {
    promise: "D-06",
    name: "an optional table that is incomplete is absent",
    file: "db/HostSchema",
    find: "...(withTestRuns ? [testRuns] : [])",
    replace: "...[]",
    tests: ["db/Migrations"]
  },
  {
    promise: "D-07",
    name: "rows that a policy hides read as none",
    file: "db/Transactions",
    find: "set_config('row_security', 'off', true)",
    replace: "set_config('row_security', 'on', true)",
    tests: ["db/Migrations"]
  },
  {
    promise: "D-07",
    name: "a row that does not decode keeps nothing",
    file: "db/SessionCatalog",
    find: "return own || !known.some((needle) => text.includes(needle)) ? [obstacle] : []",
    replace: "return own && known.length === 0 ? [obstacle] : []",
    tests: ["db/SessionCatalog"]
  },
  {
    promise: "D-07",
    name: "an agent's configuration that is too large pins nothing",
    file: "db/SkillPins",
    find: `else '"too large"'::jsonb end as "sync"`,
    replace: 'end as "sync"',
    tests: ["db/SkillPins"]
  },
  {
    promise: "D-08",
    name: "a statement for every copy",
    file: "runtime/internal/judgement",
    find: "rows: catalog.describe(copies.map(({ copy }) => copy)),",
    replace:
      "rows: Effect.map(Effect.forEach(copies, ({ copy }) => catalog.describe([copy])), (found) => new Map(found.flatMap((rows) => [...rows]))),",
    tests: ["runtime/Batches"]
  },
  {
    promise: "D-08",
    name: "a statement for every session",
    file: "runtime/BackupExpiration",
    find: "const held = yield* holds.scopes(scopes)",
    replace:
      "const held = new Map(\n    (yield* Effect.forEach(scopes, (scope) => holds.scopes([scope]))).flatMap((found) => [...found])\n  )",
    tests: ["runtime/BackupsBatches"]
  }
]
