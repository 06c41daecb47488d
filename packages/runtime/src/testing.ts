/**
 * Helps a host to test its own composition: stop, fail or kill at named points, move time, and stand in for
 * the services that a host supplies.
 *
 * @since 0.1.0
 */
export * as FakeHost from "./FakeHost.ts"
export * as FaultPoints from "./FaultPoints.ts"
export * as MovableClock from "./MovableClock.ts"
