/**
 * Forces files to the disk while others are still written.
 *
 * **Details**
 *
 * Every sync waits for the disk, and a few at once wait hardly longer than one. A thread that writes puts open
 * descriptors into a queue; the thread that asked for the work has some of them synced by libuv's threads at
 * any time. The writer waits for nobody who has not begun: what is in its way, or left at the end, it syncs
 * itself. It also closes what it opened. Descriptors belong to the process, so no file is looked up again.
 *
 * A failure is kept and not tried again: that something was lost the kernel reports once.
 */
import * as NodeFs from "node:fs"
import { getSystemErrorName } from "node:util"

/** For every place its state and its descriptor, then the cells of all; shared by the threads. */
export type Cells = Int32Array<SharedArrayBuffer>

// 64 files: the disk never waits for the writer, and few of the process's descriptors are taken.
const places = 64
// 2: half of libuv's threads; the others are the host's.
const atOnce = 2

const state = (place: number) => place * 2
const descriptor = (place: number) => place * 2 + 1
/** Counts every sync that ended, to wait for. */
const ended = places * 2
/** 1 while nobody but the writer looks at the queue. */
const asleep = places * 2 + 1

/** A place holds nothing, something to sync, something being synced, or something synced or lost. */
const State = { free: 0, ready: 1, taken: 2, synced: 3 } as const
// What was lost is its error number, which is negative.

const make = (): Cells => {
  const cells = new Int32Array(new SharedArrayBuffer((places * 2 + 2) * Int32Array.BYTES_PER_ELEMENT))
  cells[asleep] = 1
  return cells
}

const errorNumber = (cause: unknown): number =>
  typeof cause === "object" && cause !== null && "errno" in cause && typeof cause.errno === "number"
    ? cause.errno
    : -1

const take = (cells: Cells, place: number): boolean =>
  Atomics.compareExchange(cells, state(place), State.ready, State.taken) === State.ready

/** Syncs what the writer leaves to others, a few at a time; called again for each `wake` of the writer. */
export const server = (cells: Cells): (() => void) => {
  let running = 0
  let next = 0
  const pump = () => {
    for (let tried = 0; tried < places && running < atOnce; tried += 1) {
      const place = next
      next = (next + 1) % places
      if (!take(cells, place)) continue
      tried = 0
      running += 1
      NodeFs.fsync(Atomics.load(cells, descriptor(place)), (cause) => {
        running -= 1
        Atomics.store(cells, state(place), cause === null ? State.synced : errorNumber(cause))
        Atomics.add(cells, ended, 1)
        Atomics.notify(cells, ended)
        serve()
      })
    }
  }
  const serve = () => {
    Atomics.store(cells, asleep, 0)
    pump()
    if (running > 0) return
    Atomics.store(cells, asleep, 1)
    // What came before the writer could see that.
    pump()
  }
  return serve
}

/** The writer's end of a queue. */
export interface Writer {
  /** Takes a descriptor over; throws what became of one before it. */
  readonly add: (descriptor: number, path: string) => void
  /** Returns when all is on the disk; throws if something is not. */
  readonly finish: () => void
  /** Closes what is left, synced or not. */
  readonly abandon: () => void
}

/** A queue that begins empty. `failed` makes the error that is thrown. */
export const writer = (options: {
  readonly calls: Pick<typeof NodeFs, "closeSync" | "fsyncSync">
  readonly failed: (path: string, code: string) => Error
  readonly wake: (cells: Cells) => void
}): Writer => {
  const { calls, failed, wake } = options
  const cells = make()
  const paths: Array<string | undefined> = Array.from({ length: places }, () => undefined)
  /** The place that was filled before all others. */
  let oldest = 0

  /** Syncs what nobody has begun with, waits for what somebody has; tells its error number, or State.synced. */
  const outcomeOf = (place: number): number => {
    if (take(cells, place)) {
      try {
        calls.fsyncSync(Atomics.load(cells, descriptor(place)))
        return State.synced
      } catch (cause) {
        return errorNumber(cause)
      }
    }
    for (;;) {
      const seen = Atomics.load(cells, ended)
      const outcome = Atomics.load(cells, state(place))
      if (outcome !== State.taken) return outcome
      Atomics.wait(cells, ended, seen)
    }
  }

  const clear = (place: number): void => {
    const path = paths[place]
    if (path === undefined) return
    const outcome = outcomeOf(place)
    paths[place] = undefined
    Atomics.store(cells, state(place), State.free)
    calls.closeSync(Atomics.load(cells, descriptor(place)))
    if (outcome < 0) throw failed(path, getSystemErrorName(outcome))
  }

  return {
    add: (opened, path) => {
      const place = oldest
      oldest = (oldest + 1) % places
      try {
        clear(place)
      } finally {
        paths[place] = path
        Atomics.store(cells, descriptor(place), opened)
        Atomics.store(cells, state(place), State.ready)
        if (Atomics.exchange(cells, asleep, 0) === 1) wake(cells)
      }
    },
    finish: () => {
      for (let place = 0; place < places; place += 1) clear(place)
    },
    abandon: () => {
      for (let place = 0; place < places; place += 1) {
        // What nobody has begun with is not worth the wait.
        Atomics.compareExchange(cells, state(place), State.ready, State.synced)
        try {
          clear(place)
        } catch {
          // The copy fails already, and with what came first.
        }
      }
    }
  }
}
