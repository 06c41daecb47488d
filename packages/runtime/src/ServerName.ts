/**
 * Names this server in the journal, so that an operator can tell who did it.
 *
 * @since 0.1.0
 */
import { Context } from "effect"

/** A host sets it to whatever its operators call the process. @category references @since 0.1.0 */
export const ServerName: Context.Reference<string> = Context.Reference("@reclaim/runtime/ServerName", {
  defaultValue: () => "unnamed"
})
