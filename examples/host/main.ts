import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Layer } from "effect"
import * as Host from "./host.ts"

NodeRuntime.runMain(Layer.launch(Host.layer))
