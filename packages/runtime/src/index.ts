/**
 * When a copy goes and how it comes back: layered services on the policies, the disk and the database.
 *
 * @since 0.1.0
 */
export * as BackupExpiration from "./BackupExpiration.ts"
export * as FailoverBackups from "./FailoverBackups.ts"
export * as HostControls from "./HostControls.ts"
export * as ServerName from "./ServerName.ts"
export * as SessionActivity from "./SessionActivity.ts"
export * as SessionBackups from "./SessionBackups.ts"
export * as SkillVersionAudit from "./SkillVersionAudit.ts"
export * as SkillVersionCache from "./SkillVersionCache.ts"
export * as SkillVersionRetention from "./SkillVersionRetention.ts"
export * as SkillVersions from "./SkillVersions.ts"
export * as Workers from "./Workers.ts"
