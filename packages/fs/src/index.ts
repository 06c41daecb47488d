/**
 * Moves, measures, stages and deletes recoverable copies on disk, without following a link and without
 * losing what is not its own.
 *
 * @since 0.1.0
 */
export * as AccessRecords from "./AccessRecords.ts"
export * as BackupStore from "./BackupStore.ts"
export * as BytePath from "./BytePath.ts"
export * as CopyRef from "./CopyRef.ts"
export * as FileError from "./FileError.ts"
export * as InstanceRoots from "./InstanceRoots.ts"
export * as PosixFileSystem from "./PosixFileSystem.ts"
export * as Trees from "./Trees.ts"
export * as VersionStore from "./VersionStore.ts"
