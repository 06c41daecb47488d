/**
 * Helps a host to test its own composition: stop, fail or kill at named points, and move time.
 *
 * @since 0.1.0
 */
export * as FaultPoints from "./FaultPoints.ts"
export * as MovableClock from "./MovableClock.ts"
