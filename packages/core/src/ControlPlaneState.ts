/**
 * Reads which session and which runs a `control-plane-state.json` names.
 *
 * **Details**
 *
 * The file belongs to the host and holds far more; only the identity of the current run and the receipts of
 * warm transitions are read. It names one current run, not the history of its session: the rest comes from
 * the database. Anything that is not understood is a failure, because a run that was overlooked could still
 * resume the session.
 *
 * **Gotchas**
 *
 * The host marks a warm transition in flight by a schema constant of its own, whose value is not known. Such
 * a file fails to decode, and its session keeps its backup until the transition is over.
 *
 * @since 0.1.0
 */
import { Result, Schema, SchemaGetter } from "effect"
import { NativeSessionId, RunId } from "./Ids.ts"
import { oneLine } from "./internal/oneLine.ts"

/** The only schema that is understood. @category constants @since 0.1.0 */
export const schema = "paperclip.runner.durable.control-plane-state.v1"

// 4 MiB: the seed document fixes "4 MB"; the host's own readers go further, a sweep must not.
/** The most bytes of a state file that are read; a larger one is not opened. @category constants @since 0.1.0 */
export const maxBytes = 4 * 1024 * 1024

/**
 * `sessionId` is the session of every identity in the file, `currentRunId` the run of the current one, and
 * `runIds` holds the runs of all of them without repetition.
 *
 * @category models
 * @since 0.1.0
 */
export interface ControlPlaneState {
  readonly sessionId: NativeSessionId
  readonly currentRunId: RunId
  readonly runIds: readonly [RunId, ...ReadonlyArray<RunId>]
}

/**
 * Why a state file cannot be used, in words for an operator.
 *
 * @category errors
 * @since 0.1.0
 */
export class UnreadableState extends Schema.TaggedError<UnreadableState>()("UnreadableState", {
  detail: Schema.String
}) {}

const uuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

/**
 * The one spelling of a session id, for comparing: a UUID in lower case, any other text as it is.
 *
 * @category formatting
 * @since 0.1.0
 */
export const canonicalSessionId = (id: NativeSessionId): NativeSessionId =>
  uuid.test(id) ? NativeSessionId.make(id.toLowerCase()) : id

const Identity = Schema.Struct({
  // Upper case in JSON is the same UUID; the database and the disk know it in lower case.
  runId: Schema.String.pipe(
    Schema.decodeTo(RunId, {
      decode: SchemaGetter.transform((text: string) => text.toLowerCase()),
      encode: SchemaGetter.passthrough()
    })
  ),
  normalizedSessionId: NativeSessionId
})

const Transition = Schema.optionalKey(
  Schema.NullOr(Schema.Struct({ receipt: Schema.Struct({ oldIdentity: Identity, newIdentity: Identity }) }))
)

const File = Schema.fromJsonString(
  Schema.Struct({
    schema: Schema.Literal(schema),
    identity: Identity,
    warmTransition: Transition,
    completedWarmTransition: Transition
  })
)

/**
 * Decodes the text of a state file.
 *
 * @category parsing
 * @since 0.1.0
 */
export const decode = (text: string): Result.Result<ControlPlaneState, UnreadableState> => {
  const unreadable = (detail: string) => Result.fail(new UnreadableState({ detail }))
  const file = Schema.decodeResult(File)(text)
  if (Result.isFailure(file)) return unreadable(oneLine(file.failure.message))
  const { completedWarmTransition, identity, warmTransition } = file.success
  const others = [warmTransition, completedWarmTransition].flatMap((transition) =>
    transition ? [transition.receipt.oldIdentity, transition.receipt.newIdentity] : []
  )
  const sessionId = canonicalSessionId(identity.normalizedSessionId)
  if (others.some((other) => canonicalSessionId(other.normalizedSessionId) !== sessionId)) {
    return unreadable("a warm transition names another session than the current identity")
  }
  const otherRuns = new Set(others.map(({ runId }) => runId))
  otherRuns.delete(identity.runId)
  return Result.succeed({
    sessionId,
    currentRunId: identity.runId,
    runIds: [identity.runId, ...otherRuns]
  })
}
