/** Folders as only an enemy, or a decade, makes them. */
import { Arbitrary, Effect, Schema } from "effect"
import { spawnSync } from "node:child_process"
import * as Fs from "node:fs"
import * as Net from "node:net"
import { token, versionId } from "./fixtures.ts"

const int = (minimum: number, maximum: number) =>
  Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum, maximum })))
const oneOf = <A>(choices: ReadonlyArray<A>) =>
  Arbitrary.map(int(0, choices.length - 1), (index) => choices[index]!)

/** Names that mean something to somebody, but must mean nothing here. */
const telling = [
  "...",
  "-rf",
  "*",
  "$(reboot)",
  "a\nb",
  "CON",
  " ",
  "\u202Etxt",
  "x".repeat(255),
  versionId(9),
  versionId(9).toUpperCase(),
  `${versionId(9)} `,
  `.evicting-${versionId(9)}`,
  `.trash-${token(9)} `,
  `.replaced-${token(9)}`,
  `.staging-${versionId(9)}-${token(9)}.tmp`
].map((name) => Buffer.from(name))

/** Any bytes that the kernel takes for a name. */
const bytes = Arbitrary.map(Arbitrary.array(int(1, 255), { minLength: 1, maxLength: 8 }), (values) => {
  const name = Buffer.from(values.map((value) => (value === 0x2f ? 0xff : value)))
  return [".", ".."].includes(name.toString("latin1")) ? Buffer.from("...") : name
})

const name: Arbitrary.Arbitrary<Buffer> = Arbitrary.flatMap(int(0, 2), (kind) =>
  kind === 0 ? oneOf(telling) : bytes
)

const modes = [0o000, 0o111, 0o222, 0o444, 0o555, 0o644, 0o755, 0o7777]

/** What there can be in a folder, besides folders. */
const leaves = [
  "file",
  "empty file",
  "sparse file of a terabyte",
  "hard link to a file outside",
  "FIFO",
  "socket",
  "link to a file outside",
  "link to a folder outside",
  "link to itself",
  "link to the root of the disk",
  "link to nothing"
] as const
type Leaf = (typeof leaves)[number]

export type Node = { readonly name: Buffer; readonly mode: number } & (
  | { readonly leaf: Leaf; readonly children?: undefined }
  | { readonly leaf?: undefined; readonly children: ReadonlyArray<Node> }
)

const leaf: Arbitrary.Arbitrary<Node> = Arbitrary.all({ name, mode: oneOf(modes), leaf: oneOf(leaves) })

const folderOf = (child: Arbitrary.Arbitrary<Node>): Arbitrary.Arbitrary<Node> =>
  Arbitrary.all({ name, mode: oneOf(modes), children: Arbitrary.array(child, { maxLength: 4 }) })

const within = (depth: number): Arbitrary.Arbitrary<Node> =>
  depth === 0
    ? leaf
    : Arbitrary.flatMap(int(0, 2), (kind) => (kind === 0 ? leaf : folderOf(within(depth - 1))))

/** What lies in a folder. */
export const nodes: Arbitrary.Arbitrary<ReadonlyArray<Node>> = Arbitrary.array(within(3), {
  minLength: 1,
  maxLength: 5
})

/** What links lead to, with a FIFO and a socket to give more names to; all of it must stay as it is. */
export const outside = Effect.fnUntraced(function* (path: string) {
  Fs.mkdirSync(`${path}/folder`, { recursive: true })
  Fs.writeFileSync(`${path}/folder/precious`, "precious", { mode: 0o400 })
  Fs.writeFileSync(`${path}/file`, "precious", { mode: 0o600 })
  spawnSync("mkfifo", [`${path}/fifo`])
  yield* Effect.acquireRelease(
    Effect.callback<Net.Server>((resume) => {
      const server = Net.createServer().listen(`${path}/socket`, () => resume(Effect.succeed(server)))
    }),
    (server) => Effect.callback<void>((resume) => void server.close(() => resume(Effect.void)))
  )
  return path
})

const makeLeaf = (path: Buffer, leaf: Leaf, outside: string, mode: number) => {
  switch (leaf) {
    case "file":
    case "empty file":
      Fs.writeFileSync(path, leaf === "file" ? "content" : "")
      return Fs.chmodSync(path, mode)
    case "sparse file of a terabyte":
      Fs.writeFileSync(path, "")
      return Fs.truncateSync(path, 2 ** 40)
    case "hard link to a file outside":
      return Fs.linkSync(`${outside}/file`, path)
    case "FIFO":
      return Fs.linkSync(`${outside}/fifo`, path)
    case "socket":
      return Fs.linkSync(`${outside}/socket`, path)
    case "link to a file outside":
      return Fs.symlinkSync(`${outside}/file`, path)
    case "link to a folder outside":
      return Fs.symlinkSync(`${outside}/folder`, path)
    case "link to itself":
      return Fs.symlinkSync(path.subarray(path.lastIndexOf(0x2f) + 1), path)
    case "link to the root of the disk":
      return Fs.symlinkSync("/", path)
    case "link to nothing":
      return Fs.symlinkSync("nothing", path)
  }
}

/** Makes what can be made: of two nodes with one name the first. Returns the names that are there then. */
export const make = (folder: Buffer, nodes: ReadonlyArray<Node>, outside: string): ReadonlyArray<Buffer> => {
  const names: Array<Buffer> = []
  for (const node of nodes) {
    if (names.some((name) => name.equals(node.name))) continue
    names.push(node.name)
    const path = Buffer.concat([folder, Buffer.from("/"), node.name])
    if (node.leaf !== undefined) {
      makeLeaf(path, node.leaf, outside, node.mode)
      continue
    }
    Fs.mkdirSync(path)
    make(path, node.children, outside)
    Fs.chmodSync(path, node.mode)
  }
  return names
}

/** Folders in each other. */
export const nest = (folder: string, depth: number): void => {
  Fs.mkdirSync(`${folder}${"/d".repeat(depth)}`, { recursive: true })
}
