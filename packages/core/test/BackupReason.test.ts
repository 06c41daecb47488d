import { BackupReason, BackupSkip, Obstacle, undecodableRow } from "../src/BackupReason.ts"
import { runId } from "./support/backups.ts"
import { assert, describe, it } from "@effect/vitest"
import { Option, Schema } from "effect"

describe("BackupReason", () => {
  it("[C-04] names every reason and every skip", () => {
    assert.deepStrictEqual(Object.keys(BackupReason.cases), [
      "IssueOpen",
      "IssueClosedRecently",
      "IssueUnknown",
      "CopyRecent",
      "RunUnfinished",
      "RunUnknown",
      "FinalizationUnsettled",
      "LeaseReferences",
      "ActiveInProcess",
      "CleanupActivationPending",
      "ControlPlaneMissing",
      "ControlPlaneUnreadable",
      "ControlPlaneTooLarge",
      "ManifestUnreadable",
      "Held",
      "Unexpected",
      "Unreadable"
    ])
    assert.deepStrictEqual(Object.keys(BackupSkip.cases), [
      "RowsBusy",
      "RunAppeared",
      "ChangedMeanwhile",
      "LockLost"
    ])
  })

  it("[C-04] writes reasons and skips as JSON, bytes as a number", () => {
    const size = Schema.encodeSync(BackupReason)({ _tag: "ControlPlaneTooLarge", bytes: 4_194_305 })
    assert.strictEqual(JSON.stringify(size), `{"_tag":"ControlPlaneTooLarge","bytes":4194305}`)
    const appeared = Schema.encodeSync(BackupSkip)({ _tag: "RunAppeared", runIds: [runId(1)] })
    assert.deepStrictEqual(appeared, { _tag: "RunAppeared", runIds: [runId(1)] })
  })

  it("[C-04] knows no state of a session but those of the host, and that it is unknown", () => {
    const decode = Schema.decodeUnknownOption(BackupReason)
    for (const state of ["executing", "initializing", "warm", "closing", "unknown"]) {
      assert.isTrue(Option.isSome(decode({ _tag: "ActiveInProcess", state })))
    }
    assert.isTrue(Option.isNone(decode({ _tag: "ActiveInProcess", state: "idle" })))
  })

  it("[D-07] turns a row that does not decode into what it keeps", () => {
    const obstacle = undecodableRow("environment_leases", "7")
    assert.deepStrictEqual(Schema.decodeSync(Obstacle)(obstacle), {
      _tag: "Unreadable",
      code: "undecodable row",
      path: "environment_leases/7"
    })
  })
})
