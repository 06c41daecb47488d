/** Breaks capturing, restoring and expiring the backups of sessions. */

/** @type {ReadonlyArray<import("./list.mjs").Mutant>} */
export const backups = [
  {
    promise: "B-01",
    name: "a swap that fails leaves the old backup aside",
    file: "fs/internal/backupCapture",
    find: "Effect.tap(() => Effect.sync(() => undone.unshift(Effect.asVoid(moves.moveTo(scope, to, which))))),",
    replace: "",
    tests: ["fs/BackupStore"]
  },
  {
    promise: "B-01",
    name: "the backup before goes before the new one is there",
    file: "fs/internal/backupCapture",
    find: "yield* FaultPoints.captureBeforeSwap\n",
    replace:
      "yield* FaultPoints.captureBeforeSwap\n        yield* moves.expire(scope, `${moves.pathOf(scope)}/current`)\n",
    tests: ["fs/BackupStore", "fs/BackupCrash"]
  },
  {
    promise: "B-01",
    name: "a copy returns before it is on the disk",
    file: "fs/internal/copyEngine",
    find: "if (whole) queue.add(written, plain(relative))\n",
    replace: "if (whole) calls.closeSync(written)\n",
    tests: ["fs/BackupCopy"]
  },
  {
    promise: "B-01",
    name: "an unfinished backup is left where a capture failed",
    file: "fs/internal/backupCapture",
    find: "(published ? Effect.void : discard(scope, pending))",
    replace: "Effect.void",
    tests: ["fs/BackupStore"]
  },
  {
    promise: "B-02",
    name: "credentials are captured",
    file: "core/CodexHome",
    find: 'case "auth.json":\n',
    replace: "",
    tests: ["core/CodexHome"]
  },
  {
    promise: "B-02",
    name: "a marker leaves out all of its marketplace",
    file: "core/CodexHome",
    find: "return plugin !== undefined && marked.has(pluginKey(marketplace, plugin))",
    replace: "return [...marked].some((key) => key.startsWith(`${marketplace}/`))",
    tests: ["core/CodexHome"]
  },
  {
    promise: "B-02",
    name: "a file that changes under the copy is taken as it is",
    file: "fs/internal/copyEngine",
    find: "if (total === listed.size && intact()) {",
    replace: "if (total === listed.size) {",
    tests: ["fs/BackupCopy"]
  },
  {
    promise: "B-02",
    name: "a source may be a link",
    file: "fs/internal/backupCapture",
    find: 'if (info.kind === "symlink") return yield* refuse("it is a link")\n    if (info.kind !== "directory") return yield* refuse("it is no folder")\n    const real =',
    replace: "const real =",
    tests: ["fs/BackupStore"]
  },
  {
    promise: "B-03",
    name: "an older backup is given when a call fails",
    file: "fs/internal/backupRestore",
    find: "(error) => isDamage(error) || isUnreadable(error),",
    replace: "() => true,",
    tests: ["fs/BackupStore"]
  },
  {
    promise: "B-03",
    name: "sizes are proof enough",
    file: "fs/internal/backupRestore",
    find: "found.sha256 === directory.sha256 && found.bytes === BigInt(directory.bytes)",
    replace: "found.bytes === BigInt(directory.bytes)",
    tests: ["fs/BackupStore"]
  },
  {
    promise: "B-03",
    name: "a target may hold something",
    file: "fs/internal/backupRestore",
    find: 'if (first.length > 0) return yield* refuse("it is not empty")',
    replace: "",
    tests: ["fs/BackupStore"]
  },
  {
    promise: "B-03",
    name: "an expired backup is restored",
    file: "fs/internal/backupRestore",
    find: 'name !== undefined && BackupNames.isOf("Retiring", name)',
    replace: "name !== undefined && BackupNames.kindOf(name) !== undefined",
    tests: ["fs/BackupStore"]
  },
  {
    promise: "B-03",
    name: "the oldest that is leaving comes first",
    file: "fs/internal/backupRestore",
    find: "right.at - left.at",
    replace: "left.at - right.at",
    tests: ["fs/BackupStore"]
  },
  {
    promise: "B-07",
    name: "what was found out batches ago decides",
    file: "runtime/BackupExpiration",
    find: "if (dryRun || acting.length === 0)",
    replace: "if (dryRun || acting.length >= 0)",
    tests: ["runtime/BackupsBatches"]
  },
  {
    promise: "B-04",
    name: "201 sessions in a batch",
    file: "runtime/BackupExpiration",
    find: "const maxChecked = 200",
    replace: "const maxChecked = 201",
    tests: ["runtime/BackupsBatches"]
  },
  {
    promise: "B-04",
    name: "51 backups go in a batch",
    file: "runtime/BackupExpiration",
    find: "const maxExpired = 50",
    replace: "const maxExpired = 51",
    tests: ["runtime/BackupsBatches"]
  },
  {
    promise: "B-05",
    name: "a backup stays a moment beyond its window",
    file: "core/internal/age",
    find: ">= Duration.toMillis(window)",
    replace: "> Duration.toMillis(window)",
    tests: ["runtime/BackupsExpiring"]
  },
  {
    promise: "B-05",
    name: "a backup that was just written may go",
    file: "core/ExpirationPolicy",
    find: "if (writtenAt !== undefined && !isOld(writtenAt, window, fileClock(now))) {",
    replace: "if (writtenAt === undefined) {",
    tests: ["core/ExpirationPolicy", "runtime/BackupsExpiring"]
  },
  {
    promise: "B-05",
    name: "what the host's process does with a session does not count",
    file: "core/ExpirationPolicy",
    find: "for (const state of new Set(facts.activity)) found.push",
    replace: "for (const state of new Set(facts.activity.slice(1))) found.push",
    tests: ["runtime/BackupsExpiring"]
  },
  {
    promise: "B-05",
    name: "a run without an end is over",
    file: "core/NativeSession",
    find: "!isTerminal(run.status) || run.finishedAt === null",
    replace: "!isTerminal(run.status)",
    tests: ["core/NativeSession"]
  },
  {
    promise: "B-05",
    name: "a lease whose cleanup is pending does not count",
    file: "core/NativeSession",
    find: '((lease.status !== "expired" && lease.status !== "failed") || !cleaned.has(lease.cleanupStatus)) &&',
    replace: 'lease.status !== "expired" && lease.status !== "failed" &&',
    tests: ["core/NativeSession"]
  },
  {
    promise: "B-05",
    name: "a cancelled issue was closed when it was completed",
    file: "core/NativeSession",
    find: "return issue.cancelledAt",
    replace: "return issue.completedAt",
    tests: ["core/ExpirationPolicy"]
  },
  {
    promise: "B-06",
    name: "a run that is nowhere does not count",
    file: "core/ExpirationPolicy",
    find: 'if (session.unknownRuns.length > 0) found.push({ _tag: "RunUnknown", runIds: session.unknownRuns })',
    replace: "",
    tests: ["core/ExpirationPolicy"]
  },
  {
    promise: "B-06",
    name: "task sessions name no runs",
    file: "core/NativeSession",
    find: "...taskSessions.flatMap(({ lastRunId }) => (lastRunId === null ? [] : [lastRunId]))\n  ])",
    replace: "])",
    tests: ["core/NativeSession", "db/SessionCatalog"]
  },
  {
    promise: "B-06",
    name: "what belongs to another company does not count",
    file: "core/NativeSession",
    find: "if (row.companyId !== owner.companyId) foreign.push",
    replace: "if (row.companyId === undefined) foreign.push",
    tests: ["core/NativeSession", "db/SessionCatalog"]
  },
  {
    promise: "B-06",
    name: "a state file is read whatever its size",
    file: "fs/internal/backupEntries",
    find: 'if (kind === "file" && size > BigInt(ControlPlaneState.maxBytes)) return',
    replace: 'if (kind !== "file" && size > BigInt(ControlPlaneState.maxBytes)) return',
    tests: ["fs/BackupStore"]
  },
  {
    promise: "B-07",
    name: "locked rows are waited for",
    file: "db/SessionCatalog",
    find: "rows: sql`for no key update nowait`,",
    replace: "rows: sql`for no key update`,",
    tests: ["db/SessionCatalog"]
  },
  {
    promise: "B-07",
    name: "rows are locked so that an insert of the host's waits",
    file: "db/SessionCatalog",
    find: "rows: sql`for no key update nowait`,",
    replace: "rows: sql`for update nowait`,",
    tests: ["db/SessionCatalog"]
  },
  {
    promise: "B-07",
    name: "task sessions stay",
    file: "runtime/internal/expiration",
    find: "yield* catalog.removeTaskSessions(taskSessions)",
    replace: "yield* catalog.removeTaskSessions(taskSessions.slice(1))",
    tests: ["runtime/BackupsRetiring"]
  },
  {
    promise: "B-07",
    name: "the decision is not made again under the locks",
    file: "runtime/internal/expiration",
    find: "yield* refuse(locked)\n",
    replace: "",
    tests: ["runtime/BackupsRetiring"]
  },
  {
    promise: "B-07",
    name: "a transaction that fails leaves the backup moved",
    file: "runtime/internal/expiration",
    find: "Effect.onError(() => Effect.andThen(takeBack, tellUndone)),",
    replace: "",
    tests: ["runtime/BackupsRetiring"]
  },
  {
    promise: "B-08",
    name: "a run that appears after the commit is not looked for",
    file: "runtime/internal/expiration",
    find: "const appeared = session.runIds.filter((id) => !runIds.includes(id))",
    replace: "const appeared = session.runIds.filter(() => false)",
    tests: ["runtime/BackupsRetiring"]
  },
  {
    promise: "B-08",
    name: "no look right before the deletion",
    file: "runtime/BackupExpiration",
    find: 'if (look.runs === "none" && !look.held) {',
    replace: "if (look.runs !== undefined) {",
    tests: ["runtime/BackupsRetiring"]
  },
  {
    promise: "B-08",
    name: "a task session that names the session again does not count",
    file: "runtime/internal/expiration",
    find: 'if (session.taskSessions.length > 0) return changed("a task session names the session again")',
    replace: "",
    tests: ["runtime/BackupsRetiring"]
  },
  {
    promise: "B-08",
    name: "what was moved is not undone when the final look fails",
    file: "runtime/BackupExpiration",
    find: "Effect.onError(() => Expiration.giveUp(open))",
    replace: "Effect.onError(() => Effect.void)",
    tests: ["runtime/BackupsRetiring"]
  },
  {
    promise: "B-09",
    name: "a backup is dropped for one that is as old",
    file: "core/BackupLeftover",
    find: "if (!DateTime.isLessThan(backup.completedAt.value, current.value.completedAt.value)) {",
    replace: "if (DateTime.isGreaterThan(backup.completedAt.value, current.value.completedAt.value)) {",
    tests: ["core/BackupLeftover", "runtime/BackupsLeftovers"]
  },
  {
    promise: "B-09",
    name: "a backup is dropped for one whose digests nobody compared",
    file: "core/BackupLeftover",
    find: 'return { _tag: "Verify", what: "current" }',
    replace: 'return { _tag: "ToExpired" }',
    tests: ["core/BackupLeftover"]
  },
  {
    promise: "B-09",
    name: "an unfinished capture is dropped while a run is at work",
    file: "core/BackupLeftover",
    find: 'case "unfinished":\n        return leave("runUnfinished")',
    replace: 'case "unfinished":\n        return { _tag: "ToExpired" }',
    tests: ["runtime/BackupsLeftovers"]
  },
  {
    promise: "B-10",
    name: "siblings of the scopes are entered",
    file: "fs/internal/backupNames",
    find: "/^[0-9a-f]{64}$/.test(name)",
    replace: "/^[0-9a-f]{64}/.test(name)",
    tests: ["fs/BackupStore"]
  },
  {
    promise: "B-10",
    name: "the whole folder of a session goes with its backup",
    file: "runtime/internal/expiration",
    find: "yield* trees.remove(path)",
    replace: "yield* trees.remove(`${path}/../..`)",
    tests: ["runtime/BackupsExpiring"]
  },
  {
    promise: "B-11",
    name: "a dry run retires",
    file: "runtime/BackupExpiration",
    find: "if (dryRun) return\n",
    replace: "",
    tests: ["runtime/BackupsExpiring"]
  },
  {
    promise: "B-11",
    name: "batches without candidates are told",
    file: "runtime/BackupExpiration",
    find: "if (candidates > 0) {",
    replace: "if (counted > 0) {",
    tests: ["runtime/BackupsExpiring"]
  },
  {
    promise: "B-11",
    name: "the setting does not make a sweep dry for backups",
    file: "runtime/BackupExpiration",
    find: "const dryRun = settings.dryRun || options.dryRun === true",
    replace: "const dryRun = options.dryRun === true",
    tests: ["runtime/BackupsExpiring"]
  }
]
