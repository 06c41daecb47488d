import * as NodeServices from "@effect/platform-node/NodeServices"
import { expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Command } from "effect/cli"
import { command } from "../src/Cli.ts"
import { reclaim } from "./support/reclaim.ts"

interface Node {
  readonly path: ReadonlyArray<string>
  readonly command: Command.Command.Any
}

const below = (node: Node): ReadonlyArray<Node> => [
  node,
  ...node.command.subcommands
    .flatMap(({ commands }) => commands)
    .flatMap((child) => below({ path: [...node.path, child.name], command: child }))
]

const all = below({ path: ["reclaim"], command })

const flags = (text: string): ReadonlyArray<string> => text.match(/--[a-z-]+/g) ?? []

it.effect(
  "[O-02] every command has an example, which uses only flags that it has",
  () =>
    Effect.gen(function* () {
      expect(all.map(({ path }) => path.join(" "))).toEqual(
        expect.arrayContaining(["reclaim", "reclaim skills", "reclaim doctor", "reclaim backups restore"])
      )
      yield* Effect.forEach(
        all,
        Effect.fnUntraced(function* ({ command, path }) {
          const name = path.join(" ")
          const help = yield* reclaim([...path.slice(1), "--help"])
          expect(help.code, name).toBe(0)
          expect(command.examples, name).not.toHaveLength(0)
          for (const example of command.examples) {
            expect(help.stdout, name).toContain(example.command)
            expect(`${example.command} `, name).toMatch(new RegExp(`^${name} `))
            // The examples of a group are of the commands in it.
            if (command.subcommands.length === 0) {
              const [described = ""] = help.stdout.split("EXAMPLES")
              const used = flags(example.command)
              for (const flag of used) expect(described, name).toContain(flag)
              for (const flag of used.filter((flag, index) => used.indexOf(flag) < index)) {
                expect(described, name).toMatch(new RegExp(`${flag} .*\\(may be repeated\\)`))
              }
            }
          }
        }),
        { concurrency: 2, discard: true }
      )
    }).pipe(Effect.provide(NodeServices.layer)),
  180_000
)
