/**
 * Decides who may ask for what.
 *
 * A page of another site can make a browser send requests to this machine. Three things keep it out: on a
 * loopback address a request must name that address, so that a name which was rebound to it does not count; a
 * request that changes something must not come from another origin; and it needs the token, where there is one.
 */
import { Effect, Option, Redacted, Result } from "effect"
import type { HttpServerRequest } from "effect/http/HttpServerRequest"
import * as NetAddress from "effect/net/NetAddress"
import { createHash, timingSafeEqual } from "node:crypto"

export interface Access {
  /** Whether only this machine can connect. */
  readonly loopback: boolean
  readonly token: Option.Option<Redacted.Redacted>
}

export interface Refusal {
  readonly status: 401 | 403 | 421
  readonly _tag: "Unauthorized" | "ForeignOrigin" | "ForeignHost"
  readonly message: string
}

const isLocal = (hostname: string): boolean =>
  hostname === "localhost" ||
  Result.match(NetAddress.ipFromString(hostname.replace(/^\[(.*)\]$/, "$1")), {
    onFailure: () => false,
    onSuccess: (address) => NetAddress.isLoopback(address)
  })

const hostOf = (text: string | undefined): URL | undefined =>
  text !== undefined && URL.canParse(`http://${text}`) ? new URL(`http://${text}`) : undefined

const digest = (text: string) => createHash("sha256").update(text).digest()

/** Takes the same time whatever differs: digests have one length, and all of them is compared. */
const isToken = (given: string, token: Redacted.Redacted): boolean =>
  timingSafeEqual(digest(given), digest(Redacted.value(token)))

const foreignHost: Refusal = {
  status: 421,
  _tag: "ForeignHost",
  message: "this server answers under its own address only: use 127.0.0.1, [::1] or localhost"
}
const foreignOrigin: Refusal = {
  status: 403,
  _tag: "ForeignOrigin",
  message: "a page of another site cannot change anything here"
}
const unauthorized: Refusal = {
  status: 401,
  _tag: "Unauthorized",
  message: "the token is missing or wrong: send it as Authorization: Bearer TOKEN"
}

/** For every request. */
export const toLook = (access: Access, request: HttpServerRequest): Effect.Effect<void, Refusal> => {
  if (!access.loopback) return Effect.void
  const host = hostOf(request.headers["host"])
  return host !== undefined && isLocal(host.hostname) ? Effect.void : Effect.fail(foreignHost)
}

/** For a request that changes something. A browser tells where it comes from; other clients need not. */
export const toChange = (access: Access, request: HttpServerRequest): Effect.Effect<void, Refusal> => {
  const { authorization, host, origin } = request.headers
  const site = request.headers["sec-fetch-site"]
  const sameSite = site === undefined || site === "same-origin" || site === "none"
  const sameOrigin =
    origin === undefined || (URL.canParse(origin) && new URL(origin).host === hostOf(host)?.host)
  if (!sameSite || !sameOrigin) return Effect.fail(foreignOrigin)
  if (Option.isNone(access.token)) return Effect.void
  const [, given] = /^bearer +(.+)$/i.exec(authorization ?? "") ?? []
  return given !== undefined && isToken(given, access.token.value) ? Effect.void : Effect.fail(unauthorized)
}
