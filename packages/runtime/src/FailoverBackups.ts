/**
 * Captures and restores the one failover backup that a native session has.
 *
 * **Details**
 *
 * Neither needs the database, and neither takes a lock: a capture becomes the backup by one rename, and a
 * restoration reads what has that name, or what had it before. A crash at any point leaves a backup that can
 * be restored.
 *
 * @since 0.1.0
 */
import { BackupStore, type FileError } from "@reclaim/fs"
import { Context, Effect, Layer } from "effect"

/** @category services @since 0.1.0 */
export class FailoverBackups extends Context.Service<
  FailoverBackups,
  {
    /** Replaces the backup of a session by what its folders hold now. */
    readonly capture: (
      options: BackupStore.CaptureOptions
    ) => Effect.Effect<BackupStore.Captured, FileError.FileError | BackupStore.RefusedSource>
    /** Writes the newest backup that is whole to a folder that is not there yet, or empty. */
    readonly restore: (
      options: Parameters<BackupStore.BackupStore["Service"]["restore"]>[0]
    ) => Effect.Effect<
      BackupStore.Restored,
      FileError.FileError | BackupStore.RefusedTarget | BackupStore.RestoreFailed
    >
  }
>()("@reclaim/runtime/FailoverBackups") {}

/** @category layers @since 0.1.0 */
export const layer: Layer.Layer<FailoverBackups, never, BackupStore.BackupStore> = Layer.effect(
  FailoverBackups,
  Effect.map(BackupStore.BackupStore, (store) =>
    FailoverBackups.of({
      capture: Effect.fn("FailoverBackups.capture")((options) => store.capture(options)),
      restore: Effect.fn("FailoverBackups.restore")((options) => store.restore(options))
    })
  )
)
