/**
 * Which recoverable copies may leave the disk, and why: pure, and dependent on `effect` alone.
 *
 * @since 0.1.0
 */
export * as BackupLeftover from "./BackupLeftover.ts"
export * as BackupManifest from "./BackupManifest.ts"
export * as BackupReason from "./BackupReason.ts"
export * as BackupReport from "./BackupReport.ts"
export * as CodexHome from "./CodexHome.ts"
export * as Continuation from "./Continuation.ts"
export * as ControlPlaneState from "./ControlPlaneState.ts"
export * as CopyComparison from "./CopyComparison.ts"
export * as CopyRef from "./CopyRef.ts"
export * as ExpirationPolicy from "./ExpirationPolicy.ts"
export * as ExpirationSettings from "./ExpirationSettings.ts"
export * as FaultPoint from "./FaultPoint.ts"
export * as Ids from "./Ids.ts"
export * as Leftover from "./Leftover.ts"
export * as Manifest from "./Manifest.ts"
export * as NativeSession from "./NativeSession.ts"
export * as RetentionPolicy from "./RetentionPolicy.ts"
export * as RetentionSettings from "./RetentionSettings.ts"
export * as VersionAudit from "./VersionAudit.ts"
export * as VersionName from "./VersionName.ts"
export * as VersionReason from "./VersionReason.ts"
export * as VersionReport from "./VersionReport.ts"
