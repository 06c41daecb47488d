/**
 * Turns a path below the skills folder into text that sorts as the path's bytes do.
 *
 * Bytes from `!` to `}` stand for themselves. A space begins a byte below `!`, a tilde one above `}`, each
 * followed by two hex digits: a space sorts before, a tilde after everything that stands for itself, and
 * `~~` after every name there is.
 */
export const encodeName = (name: Uint8Array): string => {
  let encoded = ""
  for (const byte of name) {
    encoded +=
      byte >= 0x21 && byte <= 0x7d
        ? String.fromCharCode(byte)
        : `${byte < 0x21 ? " " : "~"}${byte.toString(16).padStart(2, "0")}`
  }
  return encoded
}

/** Sorts after everything below a folder whose position ends with a slash. */
export const last = "~~"

/** Sorts after every name in a folder, and before `last`. */
export const afterNames = "~g"

/**
 * Keeps the smallest keys of a listing of any length, in memory for twice as many as asked for.
 */
export const smallest = <A extends { readonly key: string }>(capacity: number, after: string) => {
  let items: Array<A> = []
  let bound: string | undefined
  const sort = () =>
    items.toSorted((left, right) => (left.key < right.key ? -1 : left.key > right.key ? 1 : 0))
  return {
    add: (item: A): void => {
      if (item.key <= after || (bound !== undefined && item.key > bound)) return
      items.push(item)
      if (items.length < 2 * capacity) return
      items = sort().slice(0, capacity)
      bound = items[capacity - 1]!.key
    },
    /** The smallest in order, and whether there may be more. */
    finish: (): { readonly items: ReadonlyArray<A>; readonly more: boolean } => {
      const sorted = sort()
      return { items: sorted.slice(0, capacity), more: bound !== undefined || sorted.length > capacity }
    }
  }
}
