/** The companies and skills of the demonstration, as a person would name them. */

/** A skill of a `repository` has its files in a snapshot of that, the others in the versions' own rows. */
export interface SkillSketch {
  readonly slug: string
  readonly purpose: string
  readonly subject: string
  readonly repository: boolean
  readonly versions: number
}

export interface CompanySketch {
  readonly name: string
  readonly agents: ReadonlyArray<string>
  readonly skills: ReadonlyArray<SkillSketch>
}

const skill = (
  slug: string,
  purpose: string,
  subject: string,
  versions: number,
  repository = false
): SkillSketch => ({ slug, purpose, subject, versions, repository })

/** 4 companies, 40 skills, 200 versions. */
export const companies: ReadonlyArray<CompanySketch> = [
  {
    name: "Northwind Robotics",
    agents: ["Firmware engineer", "Release manager", "Field support"],
    skills: [
      skill("firmware-release", "Cut a firmware release and sign it", "firmware image", 9, true),
      skill("motor-calibration", "Fit the calibration curve of a joint motor", "motor curve", 8, true),
      skill("incident-triage", "Sort a new incident and page the right team", "incident", 6),
      skill("changelog-writer", "Turn merged changes into a changelog", "change", 7),
      skill("bom-check", "Compare a bill of materials with the stock", "part", 5),
      skill("fleet-health", "Summarise the health of the robot fleet", "robot", 6, true),
      skill("safety-review", "Prepare the safety review of a cell", "hazard", 4),
      skill("test-bench", "Drive the hardware test bench", "bench run", 5, true),
      skill("supplier-mail", "Answer a supplier's delivery question", "delivery", 3),
      skill("log-bisect", "Find the first bad firmware from device logs", "log segment", 6),
      skill("warranty-claims", "Decide a warranty claim", "claim", 4),
      skill("spare-parts", "Recommend spare parts for a customer", "spare part", 4),
      skill("release-notes", "Write release notes for customers", "release", 5),
      skill("cad-export", "Export drawings for the workshop", "drawing", 4, true)
    ]
  },
  {
    name: "Halcyon Health",
    agents: ["Intake nurse", "Billing clerk", "Care coordinator"],
    skills: [
      skill("appointment-planner", "Find an appointment that suits everybody", "slot", 6),
      skill("claim-coding", "Code a claim for the insurer", "claim line", 8, true),
      skill("lab-results", "Explain lab results in plain words", "result", 5),
      skill("intake-form", "Check an intake form for gaps", "answer", 4),
      skill("referral-letter", "Draft a referral letter", "referral", 5),
      skill("formulary-lookup", "Look a medicine up in the formulary", "medicine", 7, true),
      skill("bed-planning", "Plan the beds of a ward", "bed", 4),
      skill("discharge-summary", "Write a discharge summary", "stay", 5),
      skill("consent-archive", "File a consent form", "consent", 3),
      skill("billing-audit", "Audit a month of invoices", "invoice", 6),
      skill("vaccination-recall", "Recall patients for a vaccination", "recall", 4),
      skill("handover-notes", "Write the notes for a shift handover", "patient", 4)
    ]
  },
  {
    name: "Tidewater Freight",
    agents: ["Dispatcher", "Customs agent"],
    skills: [
      skill("route-optimiser", "Plan a day of deliveries", "stop", 8, true),
      skill("customs-declaration", "Fill in a customs declaration", "consignment", 6),
      skill("container-tracking", "Say where a container is", "container", 5),
      skill("fuel-report", "Report the fuel used by a vehicle", "refuelling", 4),
      skill("damage-claim", "Open a claim for damaged goods", "claim", 3),
      skill("tariff-lookup", "Look a tariff number up", "tariff line", 5, true),
      skill("driver-roster", "Make the roster of a week", "shift", 4),
      skill("port-fees", "Check the fees of a port call", "fee", 3)
    ]
  },
  {
    name: "Ember & Oak Studio",
    agents: ["Producer", "Copy editor"],
    skills: [
      skill("brand-voice", "Rewrite a text in the brand's voice", "phrase", 5),
      skill("storyboard", "Lay a storyboard out", "scene", 4, true),
      skill("press-kit", "Assemble a press kit", "asset", 4),
      skill("subtitle-sync", "Align subtitles with the sound", "cue", 4),
      skill("colour-proof", "Compare a proof with the reference", "swatch", 4, true),
      skill("shot-list", "Make the shot list of a day", "shot", 4)
    ]
  }
]
