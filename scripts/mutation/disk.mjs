/** Breaks what happens on the disk. */

/** @type {ReadonlyArray<import("./list.mjs").Mutant>} */
export const disk = [
  {
    promise: "F-01",
    name: "stat for lstat",
    file: "fs/PosixFileSystem",
    find: "NodeFs.lstat(native(path), { bigint: true }, done)",
    replace: "NodeFs.stat(native(path), { bigint: true }, done)",
    tests: ["fs/VersionStore"]
  },
  {
    promise: "F-01",
    name: "a link may stand for a folder",
    file: "fs/internal/folders",
    find: '  info.kind === "directory"\n',
    replace: '  info.kind === "directory" || info.kind === "symlink"\n',
    tests: ["fs/VersionStore", "fs/AccessRecords"]
  },
  {
    promise: "F-01",
    name: "of many files that are read at once one may be a link",
    file: "fs/internal/fileEngine",
    find: 'if (listed.isSymbolicLink()) throw refuse(path, "ELOOP")',
    replace: "if (listed.isSymbolicLink()) return new Uint8Array()",
    tests: ["fs/PosixFileSystem"]
  },
  {
    promise: "F-08",
    name: "of many files that are read at once one may be of any size",
    file: "fs/internal/fileEngine",
    find: 'if (size > BigInt(maxBytes)) throw refuse(path, "EFBIG")',
    replace: "",
    tests: ["fs/PosixFileSystem"]
  },
  {
    promise: "F-01",
    name: "a scope or a backups folder may be a link",
    file: "fs/internal/backupEntries",
    find: 'if (info.kind === "directory") return Option.some(info)',
    replace: 'if (info.kind !== "file") return Option.some(info)',
    tests: ["fs/BackupStore"]
  },
  {
    promise: "F-01",
    name: "deleting asks what a link leads to",
    file: "fs/internal/treeEngine",
    find: "calls.lstatSync(native(address), { bigint: false, throwIfNoEntry: false })",
    replace: "calls.statSync(native(address), { bigint: false, throwIfNoEntry: false })",
    tests: ["fs/Trees"]
  },
  {
    promise: "F-02",
    name: "a fingerprint without change times",
    file: "fs/internal/treeEngine",
    find: "record.writeBigUInt64LE(BigInt.asUintN(64, stat.ctimeNs), 32)",
    replace: "record.writeBigUInt64LE(0n, 32)",
    tests: ["fs/Trees"]
  },
  {
    promise: "F-02",
    name: "a fingerprint of the first level alone",
    file: "fs/internal/treeEngine",
    find: "sum.add(describe(path, stat, kind))",
    replace: 'if (!path.includes("/")) sum.add(describe(path, stat, kind))',
    tests: ["fs/Trees"]
  },
  {
    promise: "F-02",
    name: "the top folder's change time is in the fingerprint",
    file: "fs/internal/treeEngine",
    find: "birthTimes ? BigInt.asUintN(64, stat.birthtimeNs) : 0n, 32)",
    replace: "BigInt.asUintN(64, stat.ctimeNs), 32)",
    tests: ["fs/Trees"]
  },
  {
    promise: "F-02",
    name: "the top folder is moved without a look",
    file: "fs/VersionStore",
    find: 'yield* check(from, yield* folderInfo(posix, "rename", from))\n    const path =',
    replace: 'yield* folderInfo(posix, "rename", from)\n    const path =',
    tests: ["fs/VersionStore"]
  },
  {
    promise: "F-02",
    name: "no second look at the top folder after the rename",
    file: "fs/VersionStore",
    find: "sameAs(afterRename(expected))(from, found)",
    replace: "anyTop(from, found)",
    tests: ["fs/VersionStore"]
  },
  {
    promise: "F-02",
    name: "what is trash by now is not compared once more",
    file: "runtime/internal/eviction",
    find: "if (after.success.fingerprint !== scan.fingerprint) return",
    replace: "if (after.success.fingerprint === undefined) return",
    tests: ["runtime/Eviction"]
  },
  {
    promise: "F-03",
    name: "usage without the top folder's own blocks",
    file: "fs/internal/treeEngine",
    find: "allocatedBytes: (allocated + top.blocks) * 512n",
    replace: "allocatedBytes: allocated * 512n",
    tests: ["fs/Trees"]
  },
  {
    promise: "F-03",
    name: "hard links are counted each",
    file: "fs/internal/treeEngine",
    find: 'if (kind !== "directory" && stat.nlink > 1n) {',
    replace: 'if (kind !== "directory" && stat.nlink > 1_000n) {',
    tests: ["fs/Trees"]
  },
  {
    promise: "F-03",
    name: "all of a volume counts as free",
    file: "fs/PosixFileSystem",
    find: "available: stat.bavail * stat.bsize",
    replace: "available: stat.blocks * stat.bsize",
    tests: ["fs/VersionStore"]
  },
  {
    promise: "F-04",
    name: "a copy is moved out of its skill's folder",
    file: "fs/VersionStore",
    find: "const path = `${folder}/${VersionName.format(name)}`\n    yield* posix.rename(from, path)",
    replace: "const path = `${folder}/../${VersionName.format(name)}`\n    yield* posix.rename(from, path)",
    tests: ["fs/VersionStore"]
  },
  {
    promise: "F-04",
    name: "a folder without its mode is left behind",
    file: "fs/PosixFileSystem",
    find: "Effect.onError(() => Effect.ignore(removeDirectory(path)))",
    replace: "Effect.onError(() => Effect.void)",
    tests: ["fs/PosixFileSystem"]
  },
  {
    promise: "F-04",
    name: "deleting enters what is mounted",
    file: "fs/internal/treeEngine",
    find: "if (listed.dev !== root.stat.dev || mounts.has(path.slice(rootPath.length + 1))) {",
    replace: "if (listed.dev === 0n) {",
    tests: ["fs/TreeEngine"]
  },
  {
    promise: "F-05",
    name: "a folder's names are read all at once",
    file: "fs/internal/treeEngine",
    find: "if (folder.stat.size > 0n && folder.stat.size <= smallFolder) {",
    replace: "if (folder.stat.size >= 0n) {",
    tests: ["fs/TreeEngine"]
  },
  {
    promise: "F-06",
    name: "names are text",
    file: "fs/PosixFileSystem",
    find: 'new Uint8Array(Buffer.from(entry.name, "latin1"))',
    replace: 'new Uint8Array(Buffer.from(entry.name, "utf8"))',
    tests: ["fs/PosixFileSystem"]
  },
  {
    promise: "F-06",
    name: "paths of trees are text",
    file: "fs/internal/treeEngine",
    find: '/^\\p{ASCII}*$/u.test(path) ? path : Buffer.from(path, "latin1")',
    replace: '/^\\p{ASCII}*$/u.test(path) ? path : Buffer.from(path, "utf8")',
    tests: ["fs/Trees"]
  },
  {
    promise: "F-07",
    name: "one entry that cannot go stops the rest",
    file: "fs/internal/treeEngine",
    find: "if (!gone(cause) && !stopped) fail(entryPath, cause)",
    replace: "if (!gone(cause) && !stopped) throw cause",
    tests: ["fs/TreeEngine"]
  },
  {
    promise: "F-07",
    name: "closed folders stay closed",
    file: "fs/internal/treeEngine",
    find: "if ((listed.mode & 0o700n) !== 0o700n) {",
    replace: "if (listed.mode === 0n) {",
    tests: ["fs/NormalUser"]
  },
  {
    promise: "F-07",
    name: "an interruption between two entries is not noticed",
    file: "fs/internal/treeEngine",
    find: "if (cancelled()) throw new Cancelled()",
    replace: "cancelled()",
    tests: ["fs/TreeEngine"]
  },
  {
    promise: "F-07",
    name: "space that another link holds counts as reclaimed",
    file: "fs/internal/treeEngine",
    find: "if (stat.nlink === 1) reclaimed +=",
    replace: "if (stat.nlink > 0) reclaimed +=",
    tests: ["fs/Trees"]
  },
  {
    promise: "F-08",
    name: "a file may change while it is read",
    file: "fs/internal/treeEngine",
    find: "BigInt(total) !== listed.size ||\n        !unchanged(calls.fstatSync(descriptor, { bigint: true }), listed)",
    replace: "BigInt(total) > listed.size + 1_000_000n",
    tests: ["fs/TreeEngine"]
  },
  {
    promise: "F-08",
    name: "another folder under the name is entered",
    file: "fs/internal/treeEngine",
    find: 'if (!sameFile(stat, listed)) throw new TreeError("open", show(plainPath), "ECHANGED")',
    replace: "",
    tests: ["fs/TreeEngine"]
  },
  {
    promise: "F-08",
    name: "files are read whatever their size",
    file: "fs/internal/treeEngine",
    find: 'options.digests && kind === "file" && stat.size <= maxDigestBytes',
    replace: 'options.digests && kind === "file"',
    tests: ["fs/Trees"]
  },
  {
    promise: "F-09",
    name: "the undo of an unconfirmed move is skipped",
    file: "fs/VersionStore",
    find: "Effect.suspend(() => (settled ? Effect.void : Effect.asVoid(undo))).pipe(",
    replace: "Effect.void.pipe(",
    tests: ["fs/VersionStore"]
  },
  {
    promise: "F-09",
    name: "a copy that is published meanwhile is an error of the undo",
    file: "fs/VersionStore",
    find: 'Effect.catchIf(hasCode("ENOTEMPTY", "EEXIST", "ENOTDIR"), () => Effect.succeed("taken" as const))',
    replace: 'Effect.catchIf(hasCode("ENOTDIR"), () => Effect.succeed("taken" as const))',
    tests: ["fs/VersionStore"]
  },
  {
    promise: "F-09",
    name: "an undo takes the name without asking",
    file: "fs/VersionStore",
    find: 'if (taken) return "taken"\n',
    replace: "",
    tests: ["fs/VersionStore"]
  },
  {
    promise: "F-09",
    name: "a backup that was leaving is not moved back",
    file: "fs/BackupStore",
    find: "Effect.suspend(() => (settled ? Effect.void : Effect.asVoid(undo(path)))).pipe(",
    replace: "Effect.void.pipe(",
    tests: ["fs/BackupStore"]
  },
  {
    promise: "F-10",
    name: "a root may be the whole disk",
    file: "fs/InstanceRoots",
    find: 'if (path === "/") return',
    replace: 'if (path === "") return',
    tests: ["fs/InstanceRoots"]
  },
  {
    promise: "F-10",
    name: "roots may nest",
    file: "fs/InstanceRoots",
    find: "if (skills.path.startsWith(`${sessions.path}/`)) {",
    replace: "if (skills.path === `${sessions.path}/`) {",
    tests: ["fs/InstanceRoots"]
  },
  {
    promise: "F-10",
    name: "any platform will do",
    file: "fs/InstanceRoots",
    find: 'if (system !== "linux" && system !== "darwin") {',
    replace: 'if (system === "") {',
    tests: ["fs/InstanceRoots"]
  }
]
