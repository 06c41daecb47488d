/** The steps of the protocols on disk, each named `<protocol>.<step>`. */
import { FaultPoint } from "@reclaim/core"

export const evictBeforeRename = FaultPoint.make("evict.beforeRename")
export const evictAfterRename = FaultPoint.make("evict.afterRename")
export const evictBeforeUndo = FaultPoint.make("evict.beforeUndo")
export const evictAfterUndo = FaultPoint.make("evict.afterUndo")

export const restoreAfterFolder = FaultPoint.make("restore.afterFolder")
export const restoreAfterFile = FaultPoint.make("restore.afterFile")
export const restoreAfterStaging = FaultPoint.make("restore.afterStaging")
export const restoreBeforePublish = FaultPoint.make("restore.beforePublish")
export const restoreAfterPublish = FaultPoint.make("restore.afterPublish")

export const accessAfterTemp = FaultPoint.make("access.afterTemp")
export const accessAfterReplace = FaultPoint.make("access.afterReplace")

export const trashBeforeRename = FaultPoint.make("trash.beforeRename")
export const trashAfterRename = FaultPoint.make("trash.afterRename")

export const settleBeforeMoveBack = FaultPoint.make("settle.beforeMoveBack")
export const settleAfterMoveBack = FaultPoint.make("settle.afterMoveBack")

export const repairBeforeSetAside = FaultPoint.make("repair.beforeSetAside")
export const repairAfterSetAside = FaultPoint.make("repair.afterSetAside")

export const captureAfterFolder = FaultPoint.make("capture.afterFolder")
export const captureAfterSource = FaultPoint.make("capture.afterSource")
export const captureAfterManifestTemp = FaultPoint.make("capture.afterManifestTemp")
export const captureAfterManifest = FaultPoint.make("capture.afterManifest")
export const captureBeforeSwap = FaultPoint.make("capture.beforeSwap")
export const captureAfterPreviousAside = FaultPoint.make("capture.afterPreviousAside")
export const captureAfterCurrentAside = FaultPoint.make("capture.afterCurrentAside")
export const captureAfterSwap = FaultPoint.make("capture.afterSwap")
export const captureAfterOldExpired = FaultPoint.make("capture.afterOldExpired")
export const captureAfterDelete = FaultPoint.make("capture.afterDelete")
export const captureBeforeDiscard = FaultPoint.make("capture.beforeDiscard")

export const retireBeforeRename = FaultPoint.make("retire.beforeRename")
export const retireAfterRename = FaultPoint.make("retire.afterRename")
export const retireBeforeUndo = FaultPoint.make("retire.beforeUndo")
export const retireAfterUndo = FaultPoint.make("retire.afterUndo")

export const expireBeforeRename = FaultPoint.make("expire.beforeRename")
export const expireAfterRename = FaultPoint.make("expire.afterRename")

export const reviveBeforeRename = FaultPoint.make("revive.beforeRename")
export const reviveAfterRename = FaultPoint.make("revive.afterRename")

export const dropBeforeRename = FaultPoint.make("drop.beforeRename")
export const dropAfterRename = FaultPoint.make("drop.afterRename")

export const backupRestoreAfterFolder = FaultPoint.make("backupRestore.afterFolder")
export const backupRestoreAfterDirectory = FaultPoint.make("backupRestore.afterDirectory")
export const backupRestoreBeforePublish = FaultPoint.make("backupRestore.beforePublish")
export const backupRestoreAfterPublish = FaultPoint.make("backupRestore.afterPublish")
