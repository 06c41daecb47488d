/** Chance that falls the same way each time, so that every demonstration shows the same instance. */

export interface Dice {
  /** From 0 to 1, 1 excluded. */
  readonly next: () => number
  /** A whole number, both bounds included. */
  readonly between: (least: number, most: number) => number
  readonly pick: <A>(items: readonly [A, ...ReadonlyArray<A>]) => A
  readonly uuid: () => string
}

/** Mulberry32: 32 bits of state are plenty for names and figures. */
export const make = (seed: number): Dice => {
  let state = seed >>> 0
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
  const between = (least: number, most: number) => least + Math.floor(next() * (most - least + 1))
  const hex = (digits: number) => Array.from({ length: digits }, () => between(0, 15).toString(16)).join("")
  return {
    next,
    between,
    pick: (items) => items[between(0, items.length - 1)] ?? items[0],
    uuid: () => `${hex(8)}-${hex(4)}-4${hex(3)}-${"89ab"[between(0, 3)]}${hex(3)}-${hex(12)}`
  }
}
