/** Breaks restoring, keeping and sweeping the copies of skill versions. */

/** @type {ReadonlyArray<import("./list.mjs").Mutant>} */
export const versions = [
  {
    promise: "S-01",
    name: "a path of a snapshot may climb",
    file: "core/Manifest",
    find: 'segment !== "" && segment !== "." && segment !== "..")',
    replace: 'segment !== "" && segment !== ".")',
    tests: ["core/Manifest"]
  },
  {
    promise: "S-01",
    name: "paths that differ by case never collide",
    file: "core/Manifest",
    find: "const fold = options.caseInsensitive",
    replace: "const fold = options.caseInsensitive && entries.length > 100",
    tests: ["core/Manifest"]
  },
  {
    promise: "S-01",
    name: "all of a repository counts as the skill",
    file: "db/SkillCatalog",
    find: "or v.repository_skill_path = '.' then '' else v.repository_skill_path end as root`",
    replace: "or v.repository_skill_path <> '.' then '' else v.repository_skill_path end as root`",
    tests: ["db/SkillCatalog"]
  },
  {
    promise: "S-01",
    name: "restored contents are not compared with their digest",
    file: "fs/VersionStore",
    find: "if ((yield* sha256(bytes)) !== file.sha256)",
    replace: "if ((yield* sha256(bytes)) === undefined)",
    tests: ["runtime/Cache"]
  },
  {
    promise: "S-02",
    name: "a claimed staging folder is not missed",
    file: "fs/VersionStore",
    find: "yield* stillOurs\n    yield* FaultPoints.restoreAfterStaging",
    replace: "yield* FaultPoints.restoreAfterStaging",
    tests: ["fs/VersionStore"]
  },
  {
    promise: "S-02",
    name: "a staging folder is claimed at the shorter of the grace and an hour",
    file: "core/Leftover",
    find: "Duration.max(grace, stagingAge)",
    replace: "Duration.min(grace, stagingAge)",
    tests: ["core/Leftover"]
  },
  {
    promise: "S-02",
    name: "what takes the name before the publishing is served unseen",
    file: "runtime/internal/restoration",
    find: 'if ((yield* store.publish(staged)) === "exists") return false',
    replace: "yield* store.publish(staged)",
    tests: ["runtime/Cache"]
  },
  {
    promise: "S-02",
    name: "a failed staging folder is left under its name",
    file: "fs/VersionStore",
    find: "(published ? Effect.void : discard(staged))",
    replace: "Effect.void",
    tests: ["fs/VersionStore"]
  },
  {
    promise: "S-03",
    name: "a damaged copy is served",
    file: "runtime/internal/restoration",
    find: "return comparator.finish().same\n",
    replace: "return comparator.finish().special === null\n",
    tests: ["runtime/Repair"]
  },
  {
    promise: "S-03",
    name: "what was set aside is thrown away though it differs",
    file: "core/Leftover",
    find: 'return { _tag: "Leave", why: "altered" }',
    replace: 'return { _tag: "ToTrash" }',
    tests: ["runtime/Repair", "runtime/Leftovers"]
  },
  {
    promise: "S-03",
    name: "a copy that was repaired meanwhile is repaired again",
    file: "runtime/internal/restoration",
    find: "if (Option.isNone(info) || !VersionStore.sameTop(info.value, altered.top)) {",
    replace: "if (Option.isNone(info)) {",
    tests: ["runtime/Repair"]
  },
  {
    promise: "S-03",
    name: "a lost executable bit is no damage",
    file: "core/CopyComparison",
    find: "? entry.executable !== expected.executable",
    replace: "? entry.executable && !expected.executable",
    tests: ["core/CopyComparison"]
  },
  {
    promise: "S-04",
    name: "restored files are writable",
    file: "fs/VersionStore",
    find: "mode: executable ? 0o555 : 0o444,",
    replace: "mode: executable ? 0o755 : 0o644,",
    tests: ["fs/VersionStore"]
  },
  {
    promise: "S-05",
    name: "an empty selection is not written down",
    file: "runtime/SkillVersionCache",
    find: "if (Option.isSome(runId)) yield* pins.record",
    replace: "if (Option.isSome(runId) && copies.length > 0) yield* pins.record",
    tests: ["runtime/Cache"]
  },
  {
    promise: "S-01",
    name: "a version that is not what its manifest says loses the others",
    file: "runtime/internal/restoration",
    find: "WrongContents: unrecoverable(wanted.copy),",
    replace: "",
    tests: ["runtime/Cache"]
  },
  {
    promise: "S-05",
    name: "a version that cannot be prepared loses the others",
    file: "runtime/internal/restoration",
    find: 'return missing(copy, { _tag: "Unexpected", what: info.value.kind, path })',
    replace: "return yield* Effect.die(info.value.kind)",
    tests: ["runtime/Cache"]
  },
  {
    promise: "S-05",
    name: "a use takes the record back to an earlier instant",
    file: "fs/AccessRecords",
    find: 'lastUse._tag === "Recorded" && DateTime.isGreaterThanOrEqualTo(lastUse.at, at)',
    replace: 'lastUse._tag === "Recorded" && DateTime.Equivalence(lastUse.at, at)',
    tests: ["fs/AccessRecords"]
  },
  {
    promise: "S-05",
    name: "a pin without a run's row lasts for two hours",
    file: "db/SkillPins",
    find: "const runlessPin = Duration.hours(24)",
    replace: "const runlessPin = Duration.hours(2)",
    tests: ["db/SkillPins"]
  },
  {
    promise: "S-05",
    name: "releasing a run makes it unknown",
    file: "db/SkillPins",
    find: "sql`update reclaim.run_selections set released_at = ${now} where run_id = ${runId}::uuid`",
    replace:
      "sql`delete from reclaim.run_selections where ${now}::timestamptz is not null and run_id = ${runId}::uuid`",
    tests: ["db/SkillPins"]
  },
  {
    promise: "S-06",
    name: "preparing takes the lock for itself alone",
    file: "db/Transactions",
    find: "select pg_advisory_xact_lock_shared(",
    replace: "select pg_advisory_xact_lock(",
    tests: ["db/Transactions"]
  },
  {
    promise: "S-06",
    name: "a move takes the lock shared",
    file: "db/Transactions",
    find: "select pg_try_advisory_xact_lock(",
    replace: "select pg_try_advisory_xact_lock_shared(",
    tests: ["db/Transactions"]
  },
  {
    promise: "S-06",
    name: "a move queues for the lock",
    file: "db/Transactions",
    find: "select pg_try_advisory_xact_lock(${lockKey(space, companyId)}::int8) as locked`",
    replace: "select pg_advisory_xact_lock(${lockKey(space, companyId)}::int8)::text = '' as locked`",
    tests: ["db/Transactions"]
  },
  {
    promise: "S-07",
    name: "a dry run heals",
    file: "runtime/SkillVersionRetention",
    find: "index === 0 && after === undefined && !dryRun ?",
    replace: "index === 0 && after === undefined ?",
    tests: ["runtime/Heal"]
  },
  {
    promise: "S-07",
    name: "nothing is found missing",
    file: "runtime/internal/healing",
    find: "Effect.map(Option.isNone),",
    replace: "Effect.as(false),",
    tests: ["runtime/Heal"]
  },
  {
    promise: "S-10",
    name: "the current version may go",
    file: "runtime/internal/facts",
    find: "current: Option.exists(row, ({ current }) => current),",
    replace: "current: false,",
    tests: ["runtime/Keeping"]
  },
  {
    promise: "S-10",
    name: "current counts only for the version's own skill",
    file: "db/SkillCatalog",
    find: "where s.company_id = v.company_id and s.current_version_id = v.id)",
    replace: "where s.id = v.company_skill_id and s.current_version_id = v.id)",
    tests: ["db/SkillCatalog"]
  },
  {
    promise: "S-11",
    name: "a status that nobody knows is over",
    file: "core/NativeSession",
    find: "terminalStatuses.includes(status)\n",
    replace: '!["queued", "scheduled_retry", "running"].includes(status)\n',
    tests: ["db/SkillPins", "runtime/Keeping"]
  },
  {
    promise: "S-11",
    name: "a status that is null is over",
    file: "db/SkillPins",
    find: "run.status === null || !NativeSession.isTerminal(run.status)",
    replace: "run.status !== null && !NativeSession.isTerminal(run.status)",
    tests: ["db/SkillPins"]
  },
  {
    promise: "S-12",
    name: "a live lease of a finalization does not count",
    file: "core/NativeSession",
    find: "(leaseExpiresAt === null || DateTime.isLessThan(leaseExpiresAt, now))",
    replace: "true",
    tests: ["core/NativeSession", "db/SkillPins"]
  },
  {
    promise: "S-12",
    name: "a retry that waits does not count",
    file: "db/SkillPins",
    find: "return row.retried === true || isResumable(row, now)",
    replace: "return isResumable(row, now)",
    tests: ["db/SkillPins"]
  },
  {
    promise: "S-12",
    name: "a recovery that is open does not count",
    file: "core/NativeSession",
    find: "recoveryState === null &&",
    replace: "",
    tests: ["core/NativeSession"]
  },
  {
    promise: "S-13",
    name: "unrecorded selections keep nothing",
    file: "runtime/internal/facts",
    find: "selectionUnknown: pins?.selectionUnknown ?? [],",
    replace: "selectionUnknown: [],",
    tests: ["runtime/Keeping"]
  },
  {
    promise: "S-13",
    name: "a selection counts for every company",
    file: "db/SkillPins",
    find: "where s.run_id = r.id and s.company_id = r.company_id)",
    replace: "where s.run_id = r.id)",
    tests: ["db/SkillPins"]
  },
  {
    promise: "S-13",
    name: "a queued run that has started blocks nobody",
    file: "db/SkillPins",
    find: "not in ${statuses.waiting} or r.started_at is not null)",
    replace: "not in ${statuses.waiting})",
    tests: ["db/SkillPins"]
  },
  {
    promise: "S-14",
    name: "a version of an agent that is no id is passed over",
    file: "db/internal/agentPins",
    find: "if (Option.isNone(Ids.parse(Ids.VersionId, named))) return Option.none()",
    replace: "if (Option.isNone(Ids.parse(Ids.VersionId, named))) continue",
    tests: ["db/SkillPins"]
  },
  {
    promise: "S-14",
    name: "a held version may go",
    file: "runtime/internal/facts",
    find: "held: Option.fromUndefinedOr(pins?.held.get(versionId)),",
    replace: "held: Option.none(),",
    tests: ["runtime/Keeping"]
  },
  {
    promise: "S-14",
    name: "a test run that was superseded still counts",
    file: "db/SkillPins",
    find: "t.deleted_at is null and t.superseded_at is null",
    replace: "t.deleted_at is null",
    tests: ["db/SkillPins"]
  },
  {
    promise: "S-15",
    name: "one version more is kept",
    file: "core/RetentionPolicy",
    find: "facts.rank.value < settings.keep",
    replace: "facts.rank.value <= settings.keep",
    tests: ["core/RetentionPolicy", "runtime/Keeping"]
  },
  {
    promise: "S-15",
    name: "older versions count as newer",
    file: "db/SkillCatalog",
    find: "and n.revision_number > v.revision_number)",
    replace: "and n.revision_number < v.revision_number)",
    tests: ["db/SkillCatalog"]
  },
  {
    promise: "S-16",
    name: "a copy goes a moment after its grace",
    file: "core/RetentionPolicy",
    find: "Duration.isLessThan(DateTime.distance(lastUse.at, fileClock(now)), settings.grace)",
    replace: "Duration.isLessThanOrEqualTo(DateTime.distance(lastUse.at, fileClock(now)), settings.grace)",
    tests: ["runtime/Keeping"]
  },
  {
    promise: "S-16",
    name: "a copy without a record goes at once",
    file: "core/RetentionPolicy",
    find: 'reasons.push({ _tag: "Observing", eligibleAt: eligible(now.database, settings.grace) })',
    replace: "",
    tests: ["runtime/Keeping"]
  },
  {
    promise: "S-16",
    name: "an observation replaces a use that came first",
    file: "fs/AccessRecords",
    find: "replaceUnless(copy, keep)(folder, temporary)\n            )",
    replace: "replaceUnless(copy, () => false)(folder, temporary)\n            )",
    tests: ["fs/AccessRecords"]
  },
  {
    promise: "S-17",
    name: "contents are not compared",
    file: "core/CopyComparison",
    find: "if (!trusted && entry.sha256 !== expected.sha256) return",
    replace: "if (!trusted && entry.sha256 === null) return",
    tests: ["runtime/Keeping"]
  },
  {
    promise: "S-17",
    name: "files that the database lacks do not matter",
    file: "core/CopyComparison",
    find: 'if (expected === undefined) return report(shownPath, folders.has(path) ? "kind" : "extra")',
    replace: "if (expected === undefined) return",
    tests: ["runtime/Keeping"]
  },
  {
    promise: "S-17",
    name: "contents that were not read are proof enough",
    file: "core/CopyComparison",
    find: 'entry.sha256 === null && strictness === "serving"',
    replace: "entry.sha256 === null",
    tests: ["core/CopyComparison"]
  },
  {
    promise: "S-18",
    name: "a FIFO in a copy is a file",
    file: "core/CopyComparison",
    find: 'if (kind !== "file" && kind !== "directory") {',
    replace: 'if (kind === "symlink") {',
    tests: ["core/CopyComparison", "runtime/Keeping"]
  },
  {
    promise: "S-18",
    name: "a name that is no id is passed over in silence",
    file: "fs/internal/storeEntries",
    find: 'return Option.some(obstacle(position, path, unexpected("a name that is no id", path)))',
    replace: "return Option.none()",
    tests: ["fs/StoreEntries"]
  },
  {
    promise: "S-18",
    name: "a company behind a link is entered",
    file: "fs/internal/storeEntries",
    find: 'if (kind !== "directory") return obstacle(`${companyId}/`, company, notAFolder(kind, company))',
    replace: "",
    tests: ["fs/StoreEntries", "runtime/Keeping"]
  },
  {
    promise: "S-20",
    name: "a batch of 51",
    file: "runtime/SkillVersionRetention",
    find: "portion.filter(isConsidered).length >= limit)",
    replace: "portion.filter(isConsidered).length > limit)",
    tests: ["runtime/Batches"]
  },
  {
    promise: "S-20",
    name: "an entry is met twice at the end of a window",
    file: "fs/internal/position",
    find: "if (item.key <= after ||",
    replace: "if (item.key < after ||",
    tests: ["fs/StoreEntries"]
  },
  {
    promise: "S-20",
    name: "the last batch is not known to be the last",
    file: "runtime/SkillVersionRetention",
    find: "last || end === undefined",
    replace: "end === undefined",
    tests: ["runtime/Batches"]
  },
  {
    promise: "S-21",
    name: "the decision is not made again under the lock",
    file: "runtime/internal/eviction",
    find: "yield* decideAgain(now)\n      yield* afterFacts",
    replace: "yield* afterFacts",
    tests: ["runtime/Eviction"]
  },
  {
    promise: "S-21",
    name: "the pins are not read once more after the rename",
    file: "runtime/internal/eviction",
    find: "yield* decideAgain(now)\n        yield* afterSecondLook",
    replace: "yield* afterSecondLook",
    tests: ["runtime/Eviction"]
  },
  {
    promise: "S-21",
    name: "a rename long after the last answer",
    file: "runtime/internal/eviction",
    find: "if (Duration.isGreaterThan(yield* tx.sinceLastAnswer, answerLimit)) {",
    replace: "if (Duration.isLessThan(yield* tx.sinceLastAnswer, Duration.zero)) {",
    tests: ["runtime/Eviction"]
  },
  {
    promise: "S-21",
    name: "a move is taken back only after the lock is gone",
    file: "runtime/internal/eviction",
    find: "yield* beforeCommit\n      }).pipe(Effect.onError(() => takeBack))",
    replace: "yield* beforeCommit\n      })",
    tests: ["runtime/Eviction"]
  },
  {
    promise: "S-21",
    name: "a commit without an answer is taken for done",
    file: "db/Transactions",
    find: 'if (Option.isNone(answer)) return yield* unknown("no answer in time")',
    replace: "if (Option.isNone(answer)) return yield* afterCommit",
    tests: ["db/StoppedServer", "runtime/Eviction"]
  },
  {
    promise: "S-21",
    name: "the facts are those of the moment before the lock",
    file: "db/Transactions",
    find: "BEGIN ISOLATION LEVEL READ COMMITTED",
    replace: "BEGIN ISOLATION LEVEL REPEATABLE READ",
    tests: ["db/Transactions"]
  },
  {
    promise: "S-22",
    name: "of two leftovers of a copy each is to get its name",
    file: "runtime/internal/sweepBatch",
    find: "comparable(oneForEachName(Arr.getSomes(found), grace))",
    replace: "comparable(Arr.getSomes(found))",
    tests: ["runtime/Leftovers"]
  },
  {
    promise: "S-22",
    name: "what leaves is settled a moment too late",
    file: "core/Leftover",
    find: "if (Duration.isLessThan(facts.age, evictingAge))",
    replace: "if (Duration.isLessThanOrEqualTo(facts.age, evictingAge))",
    tests: ["runtime/Leftovers"]
  },
  {
    promise: "S-22",
    name: "what differs from the database becomes trash",
    file: "core/Leftover",
    find: 'return { _tag: "SetAside" }',
    replace: 'return { _tag: "ToTrash" }',
    tests: ["runtime/Leftovers"]
  },
  {
    promise: "S-22",
    name: "trash is deleted without its lock",
    file: "runtime/internal/trash",
    find: ".trash(companyId, () => removeSlice)",
    replace: ".run(() => removeSlice)",
    tests: ["runtime/Leftovers"]
  },
  {
    promise: "S-22",
    name: "what was proven is not looked at again before it becomes trash",
    file: "runtime/internal/settlement",
    find: "again.value.fingerprint !== scan.value.fingerprint) return changed",
    replace: "again.value.fingerprint === undefined) return changed",
    tests: ["runtime/Leftovers"]
  },
  {
    promise: "S-22",
    name: "a skill's folder goes though it is young",
    file: "runtime/internal/sweepBatch",
    find: "if (end.empty && isOlder(batch, modifiedAt(end.info), grace)) {",
    replace: "if (end.empty) {",
    tests: ["runtime/Leftovers"]
  },
  {
    promise: "S-23",
    name: "an eviction can be interrupted anywhere",
    file: "runtime/internal/eviction",
    find: "}, Effect.uninterruptible)",
    replace: "})",
    tests: ["runtime/Eviction"]
  },
  {
    promise: "S-23",
    name: "no rollback after an interruption",
    file: "db/Transactions",
    find: "if (Exit.isFailure(exit)) {\n            yield* rollback",
    replace: "if (Exit.isFailure(exit)) {",
    tests: ["db/Transactions"]
  },
  {
    promise: "S-24",
    name: "two sweeps of a process at once",
    file: "runtime/SkillVersionRetention",
    find: "const running = yield* Semaphore.make(1)",
    replace: "const running = yield* Semaphore.make(2)",
    tests: ["runtime/Batches"]
  },
  {
    promise: "S-24",
    name: "a busy company is asked for each of its copies",
    file: "runtime/internal/sweepBatch",
    find: 'if (because._tag === "CompanyBusy") batch.busy.add(copy.companyId)',
    replace: "",
    tests: ["runtime/Eviction"]
  },
  {
    promise: "S-25",
    name: "the setting does not make a sweep dry",
    file: "runtime/SkillVersionRetention",
    find: "const dryRun = settings.dryRun || options.dryRun === true",
    replace: "const dryRun = options.dryRun === true",
    tests: ["runtime/Batches"]
  },
  {
    promise: "S-25",
    name: "a dry run starts windows of observation",
    file: "runtime/internal/sweepBatch",
    find: "if (!batch.wet || copies.length === 0) return",
    replace: "if (copies.length === 0) return",
    tests: ["runtime/Batches"]
  },
  {
    promise: "S-26",
    name: "candidates are counted without their bytes",
    file: "runtime/internal/sweepBatch",
    find: "batch.counts.candidateAllocatedBytes += scan.allocatedBytes",
    replace: "",
    tests: ["runtime/Batches"]
  },
  {
    promise: "S-26",
    name: "the account of a batch is not logged",
    file: "runtime/SkillVersionRetention",
    find: 'Effect.logInfo("swept skill versions")',
    replace: 'Effect.logTrace("swept skill versions")',
    tests: ["runtime/Batches"]
  },
  {
    promise: "S-27",
    name: "an audit reads without the lock",
    file: "runtime/internal/auditing",
    find: ".companyShared(companyId, () => look, {",
    replace: ".run(() => look, {",
    tests: ["runtime/Audit"]
  },
  {
    promise: "S-27",
    name: "a copy that changed between slices is not read again",
    file: "runtime/internal/auditing",
    find: "(last) => last.scan.fingerprint === scan.fingerprint)",
    replace: '(last) => last.scan.fingerprint !== "")',
    tests: ["runtime/Audit"]
  },
  {
    promise: "S-27",
    name: "an audit does not read contents",
    file: "runtime/internal/auditing",
    find: "digests: true,",
    replace: "digests: false,",
    tests: ["runtime/Audit"]
  },
  {
    promise: "S-28",
    name: "letting a copy go writes a record",
    file: "runtime/internal/eviction",
    find: "yield* records.remove(copy)",
    replace: "yield* records.touch(copy, now.database)",
    tests: ["runtime/FullDisk"]
  },
  {
    promise: "S-28",
    name: "a full database stops the cleanup",
    file: "db/Journal",
    find: 'if (error.reason._tag !== "DiskFull") return yield* error',
    replace: "return yield* error",
    tests: ["runtime/FullDisk"]
  },
  {
    promise: "S-29",
    name: "evictions are not in the journal",
    file: "runtime/internal/eviction",
    find: 'yield* tell("evicted", now.database)',
    replace: "",
    tests: ["runtime/FullDisk"]
  },
  {
    promise: "S-29",
    name: "the journal is kept for nine days",
    file: "runtime/internal/housekeeping",
    find: "const journalKept = Duration.days(90)",
    replace: "const journalKept = Duration.days(9)",
    tests: ["runtime/FullDisk"]
  },
  {
    promise: "S-29",
    name: "an entry that fails takes the transaction with it",
    file: "db/Journal",
    find: "yield* run(operation, sql`rollback to savepoint reclaim_journal`)",
    replace: "",
    tests: ["db/Journal"]
  }
]
