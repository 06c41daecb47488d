/**
 * Names the things that copies belong to.
 *
 * Every id is a branded string that is safe as one path segment: identifiers of the host are lower-case
 * UUIDs and a session scope is 64 lower-case hex digits, so none can be empty, climb, or hold a separator.
 *
 * @since 0.1.0
 */
import { type Option, Schema } from "effect"

const uuid = Schema.String.check(
  Schema.isPattern(/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/, {
    expected: "a lower-case UUID"
  })
)

/** The tenant. @category ids @since 0.1.0 */
export const CompanyId = uuid.pipe(Schema.brand("CompanyId"))
/** @category ids @since 0.1.0 */
export type CompanyId = typeof CompanyId.Type

/** @category ids @since 0.1.0 */
export const SkillId = uuid.pipe(Schema.brand("SkillId"))
/** @category ids @since 0.1.0 */
export type SkillId = typeof SkillId.Type

/** An immutable version of a skill. @category ids @since 0.1.0 */
export const VersionId = uuid.pipe(Schema.brand("VersionId"))
/** @category ids @since 0.1.0 */
export type VersionId = typeof VersionId.Type

/** @category ids @since 0.1.0 */
export const RunId = uuid.pipe(Schema.brand("RunId"))
/** @category ids @since 0.1.0 */
export type RunId = typeof RunId.Type

/** @category ids @since 0.1.0 */
export const IssueId = uuid.pipe(Schema.brand("IssueId"))
/** @category ids @since 0.1.0 */
export type IssueId = typeof IssueId.Type

/** @category ids @since 0.1.0 */
export const AgentId = uuid.pipe(Schema.brand("AgentId"))
/** @category ids @since 0.1.0 */
export type AgentId = typeof AgentId.Type

/** @category ids @since 0.1.0 */
export const TestRunId = uuid.pipe(Schema.brand("TestRunId"))
/** @category ids @since 0.1.0 */
export type TestRunId = typeof TestRunId.Type

/** The session id that a harness gave itself. @category ids @since 0.1.0 */
export const NativeSessionId = Schema.NonEmptyString.pipe(Schema.brand("NativeSessionId"))
/** @category ids @since 0.1.0 */
export type NativeSessionId = typeof NativeSessionId.Type

/** The folder of one native session: 64 lower-case hex digits. @category ids @since 0.1.0 */
export const ScopeId = Schema.String.check(
  Schema.isPattern(/^[0-9a-f]{64}$/, { expected: "64 lower-case hex digits" })
).pipe(Schema.brand("ScopeId"))
/** @category ids @since 0.1.0 */
export type ScopeId = typeof ScopeId.Type

/**
 * Reads an id that a person or a host's JSON wrote: case does not matter there, on disk it does.
 *
 * @category parsing
 * @since 0.1.0
 */
export const parse = <Id>(schema: Schema.ConstraintCodec<Id, string>, input: string): Option.Option<Id> =>
  Schema.decodeOption(schema)(input.toLowerCase())
