/**
 * Knows which package may use which, and which modules may touch the system, and finds the sources that do
 * otherwise. Used by `check-imports.mjs` and by the tests.
 */

/** The arrows: each package with the packages that its sources may import. */
export const arrows = {
  core: [],
  fs: ["core"],
  db: ["core"],
  runtime: ["core", "fs", "db"],
  postgres: [],
  cli: ["core", "fs", "db", "runtime", "postgres"]
}

/**
 * The only modules that may touch the system, with what they wrap. Everything else sees it through their
 * services. An entry that no longer holds is a violation too, so that the table stays true.
 *
 * @type {Record<string, Record<string, ReadonlyArray<Concern>>>}
 */
export const wrappers = {
  core: {},
  fs: {
    "PosixFileSystem.ts": ["files", "process", "control"],
    "internal/copyEngine.ts": ["files", "control"],
    "internal/fileEngine.ts": ["files", "control"],
    "internal/syncQueue.ts": ["files", "control"],
    "internal/treeEngine.ts": ["files", "process", "control"],
    "internal/treeWorker.ts": ["files", "threads", "process", "control"],
    "internal/workerPool.ts": ["threads", "control"]
  },
  db: {},
  runtime: {},
  postgres: {
    "EmbeddedPostgres.ts": ["children", "process"],
    "internal/supervisor.ts": ["children", "files", "network", "process", "control"]
  },
  cli: { "internal/process.ts": ["process", "control"], "internal/serve/listener.ts": ["network"] }
}

/**
 * `files`, `process`, `children`, `threads` and `network` are parts of Node; `control` is what Effect does
 * otherwise: promises, exceptions, clocks, timers, randomness.
 *
 * @typedef {"files" | "process" | "children" | "threads" | "network" | "control"} Concern
 * @typedef {{ readonly path: string, readonly text: string }} Source
 * @typedef {{ readonly path: string, readonly line: number, readonly problem: string }} Violation
 */

// Built-in modules that only compute.
const pure = new Set(["buffer", "crypto", "path", "url", "util", "zlib"])

/** @type {Record<string, Concern>} */
const builtins = {
  fs: "files",
  "fs/promises": "files",
  os: "process",
  process: "process",
  child_process: "children",
  worker_threads: "threads",
  net: "network",
  http: "network",
  https: "network",
  dns: "network",
  timers: "control",
  "timers/promises": "control",
  async_hooks: "control",
  events: "control",
  module: "process"
}

/** @type {ReadonlyArray<readonly [pattern: RegExp, concern: Concern, name: string]>} */
const globals = [
  [/(?<![\w$.])process\s*(\?\.|\.|\[)/g, "process", "process"],
  [/(?<![\w$.])console\s*\./g, "process", "console"],
  [/(?<![\w$])Date\s*\.\s*now\b/g, "control", "Date.now"],
  [/(?<![\w$.])new\s+Date\s*\(\s*\)/g, "control", "new Date()"],
  [/(?<![\w$.])globalThis\b/g, "control", "globalThis"],
  [/(?<![\w$])performance\s*\.\s*now\b/g, "control", "performance.now"],
  [/(?<![\w$.])set(Timeout|Interval|Immediate)\s*\(/g, "control", "a timer"],
  [/(?<![\w$])Math\s*\.\s*random\b/g, "control", "Math.random"],
  [/(?<![\w$.])(async|await)\s+[\w$({[*]|(?<![\w$.])async\s*\(/g, "control", "async and await"],
  [/(?<![\w$.])new\s+Promise\b|(?<![\w$.])Promise\s*\.\s*\w/g, "control", "a promise"],
  [/(?<![\w$.])try\s*\{/g, "control", "try"],
  [/(?<![\w$.])catch\s*(\(|\{)/g, "control", "catch"]
]

/**
 * Blanks comments and regular expressions, and the text of strings and templates unless it is wanted. Line
 * numbers stay.
 *
 * @param {string} text
 * @param {{ readonly strings?: boolean, readonly templates?: boolean }} keep
 */
export const code = (text, { strings = false, templates = false } = {}) => {
  let out = ""
  let index = 0
  /** @type {Array<number>} Depths of braces at which an interpolation ends. */
  const interpolations = []
  let depth = 0
  /** @param {number} end @param {boolean} shown */
  const take = (end, shown) => {
    const part = text.slice(index, end)
    out += shown ? part : part.replace(/[^\n]/g, " ")
    index = end
  }
  const template = () => {
    while (index < text.length && text[index] !== "`") {
      if (text.startsWith("${", index)) {
        take(index + 2, false)
        interpolations.push(depth)
        return
      }
      take(index + (text[index] === "\\" ? 2 : 1), templates)
    }
    take(index + 1, true)
  }
  while (index < text.length) {
    const rest = text.slice(index, index + 2)
    const character = text[index]
    if (rest === "//") {
      const end = text.indexOf("\n", index)
      take(end < 0 ? text.length : end, false)
    } else if (rest === "/*") {
      const end = text.indexOf("*/", index + 2)
      take(end < 0 ? text.length : end + 2, false)
    } else if (character === '"' || character === "'") {
      let end = index + 1
      while (end < text.length && text[end] !== character && text[end] !== "\n") {
        end += text[end] === "\\" ? 2 : 1
      }
      take(index + 1, true)
      take(end, strings)
      take(end + 1, true)
    } else if (character === "`") {
      take(index + 1, true)
      template()
    } else if (character === "/" && /(^|[([{,;=:!&|?+*~^<>\n]|\breturn|=>)\s*$/.test(out.slice(-40))) {
      const literal = /^\/(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\//.exec(text.slice(index))
      take(index + (literal?.[0].length ?? 1), literal === null)
    } else if (character === "}" && interpolations.at(-1) === depth) {
      interpolations.pop()
      take(index + 1, false)
      template()
    } else {
      if (character === "{") depth += 1
      if (character === "}") depth -= 1
      take(index + 1, true)
    }
  }
  return out
}

const statements = [
  /(?:^|[;\n])[^\S\n]*(?:import|export)\b(?!\s*[("'])[^;"'()=]*?\bfrom\s*["']([^"'\n]+)["']/g,
  /(?:^|[;\n])[^\S\n]*import\s*["']([^"'\n]+)["']/g,
  /(?<![\w$.])import\s*\(\s*["']([^"'\n]+)["']/g
]

/** @param {string} text @param {number} index */
const lineAt = (text, index) => text.slice(0, index).split("\n").length

/**
 * Every specifier that a source imports, re-exports or loads.
 *
 * @param {string} text
 * @returns {ReadonlyArray<{ readonly specifier: string, readonly line: number }>}
 */
export const imports = (text) => {
  const plain = code(text, { strings: true })
  return statements
    .flatMap((statement) =>
      [...plain.matchAll(statement)].map((match) => ({
        specifier: match[1] ?? "",
        line: lineAt(plain, match.index + match[0].length)
      }))
    )
    .toSorted((one, other) => one.line - other.line)
}

/**
 * Checks sources, named by their paths from the root of the repository, against the tables above and the
 * dependencies that each package declares.
 *
 * @param {ReadonlyArray<Source>} sources
 * @param {Readonly<Record<string, ReadonlyArray<string>>>} dependencies
 * @returns {ReadonlyArray<Violation>}
 */
export const violations = (sources, dependencies) => {
  /** @type {Array<Violation>} */
  const found = []
  /** @type {Map<string, Set<Concern>>} What every wrapper really touches. */
  const touched = new Map()
  for (const { path, text } of sources) {
    const [, owner = "", module = ""] = /^packages\/([^/]+)\/src\/(.+)$/.exec(path) ?? []
    const allowed = Object.entries(arrows).find(([name]) => name === owner)?.[1]
    /** @param {number} line @param {string} problem */
    const report = (line, problem) => found.push({ path, line, problem })
    if (allowed === undefined) {
      report(1, "belongs to no known package")
      continue
    }
    const permitted = wrappers[owner]?.[module] ?? []
    /** @type {Set<Concern>} */
    const used = new Set()
    touched.set(`${owner}/${module}`, used)
    /** @param {number} line @param {Concern} concern @param {string} what */
    const touch = (line, concern, what) => {
      used.add(concern)
      if (!permitted.includes(concern)) report(line, `uses ${what}, which is not its concern (${concern})`)
    }
    for (const { line, specifier } of imports(text)) {
      if (specifier.startsWith(".")) {
        const target = new URL(specifier, `file:///${path}`).pathname.slice(1)
        if (!target.startsWith(`packages/${owner}/src/`))
          report(line, `reaches outside its package: ${specifier}`)
        continue
      }
      const [scope = "", name = ""] = specifier.split("/")
      if (scope === "@reclaim") {
        if (name === owner || !allowed.some((other) => other === name)) {
          report(line, `${owner} must not import ${specifier}`)
        } else if (specifier.endsWith("/testing") && !module.startsWith("testing")) {
          report(line, `only testing modules may import ${specifier}`)
        }
      }
      const builtin = specifier.startsWith("node:") ? specifier.slice(5) : undefined
      if (builtin !== undefined) {
        if (owner === "core") report(line, `core must not import ${specifier}`)
        else if (!pure.has(builtin)) touch(line, builtins[builtin] ?? "process", specifier)
        continue
      }
      const dependency = scope.startsWith("@") ? `${scope}/${name}` : scope
      if (owner === "core" && dependency !== "effect") report(line, `core must not import ${specifier}`)
      if (!(dependencies[owner] ?? []).includes(dependency)) {
        report(line, `${specifier} is not among the dependencies of ${owner}`)
      }
    }
    const plain = code(text)
    for (const [pattern, concern, name] of globals) {
      for (const match of plain.matchAll(pattern)) touch(lineAt(plain, match.index), concern, name)
    }
  }
  for (const [owner, modules] of Object.entries(wrappers)) {
    if (!sources.some(({ path }) => path.startsWith(`packages/${owner}/src/`))) continue
    for (const [module, concerns] of Object.entries(modules)) {
      for (const concern of concerns) {
        if (touched.get(`${owner}/${module}`)?.has(concern)) continue
        const path = `packages/${owner}/src/${module}`
        found.push({ path, line: 1, problem: `is listed for ${concern}, but does not use it` })
      }
    }
  }
  return found
}
