//! The graphs whose runs wait, their tools, and the results that their runs must have.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use graph_compiler::graph::TypedTool;
use graph_model::timestamp;
use graph_runtime::dynamic::{Interpreted, Library, ToolFuture, Tools};
use graph_runtime::{Call, Map, Value};
use serde_json::json;

use crate::support::sign;
use crate::tree::Tree;
use crate::workload::{At, Chance};

/// A graph whose runs wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WaitingGraph {
    /// One wait after the other in a loop, of three lengths.
    Rounds,
    /// Waits in two branches beside tools in a third one, in a loop.
    Branches,
    /// Waits until a time that a tool computes, which may have passed.
    Until,
    /// Branches with waits that race for a quorum, in a loop: the waits of the other branches are given up.
    Race,
    /// A wait of an hour, beside a branch with short waits at first. Its runs are cancelled.
    Endless,
    /// A wait for a signal beside a question to two people, each with a time, in a loop.
    Receiving,
}

pub(super) const GRAPHS: [WaitingGraph; 6] = [
    WaitingGraph::Rounds,
    WaitingGraph::Branches,
    WaitingGraph::Until,
    WaitingGraph::Race,
    WaitingGraph::Endless,
    WaitingGraph::Receiving,
];

/// The first lines of each graph.
const HEAD: &str = r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: waiting
permissions: [rye.execute.tool.waiting.*]
config_schema: { type: object, properties: { rounds: { type: integer } }, required: [rounds] }
"#;

const ROUNDS: &str = r#"config:
  start: pick
  max_steps: 1000
  channels: { log: append }
  state: { round: 0 }
  nodes:
    pick:
      action: { item_id: waiting/advance, params: { round: "${state.round}", rounds: "${inputs.rounds}" } }
      assign: { round: "${result.round}", log: "${result.round}" }
      next: { by: result.pause, to: { short: short, medium: medium, long: long, none: done } }
    short: { type: wait, timeout: 20ms, next: pick }
    medium: { type: wait, timeout: 110ms, next: pick }
    long: { type: wait, timeout: 400ms, next: pick }
    done: { type: return, output: { log: "${state.log}" } }
"#;

const BRANCHES: &str = r#"config:
  start: fork
  max_steps: 1000
  channels: { log: append }
  state: { round: 0 }
  nodes:
    fork: { type: gate, next: { all: [{ to: doze }, { to: toil }, { to: nap }] } }
    doze: { type: wait, timeout: 130ms, next: rise }
    rise:
      action: { item_id: waiting/note, params: { text: rise } }
      assign: { log: "${result.text}" }
      next: met
    toil:
      action: { item_id: waiting/note, params: { text: toil } }
      assign: { log: "${result.text}" }
      next: toil_more
    toil_more:
      action: { item_id: waiting/note, params: { text: toil_more } }
      assign: { log: "${result.text}" }
      next: met
    nap: { type: wait, timeout: 30ms, next: stretch }
    stretch:
      action: { item_id: waiting/note, params: { text: stretch } }
      assign: { log: "${result.text}" }
      next: second_nap
    second_nap: { type: wait, timeout: 60ms, next: met }
    met:
      waits_for: [rise, toil_more, second_nap]
      action: { item_id: waiting/advance, params: { round: "${state.round}", rounds: "${inputs.rounds}" } }
      assign: { round: "${result.round}" }
      next: [{ to: fork, when: { path: result.again, value: true } }, { to: done }]
    done: { type: return, output: { round: "${state.round}", log: "${state.log}" } }
"#;

const UNTIL: &str = r#"config:
  start: plan
  max_steps: 1000
  state: { round: 0 }
  nodes:
    plan:
      action: { item_id: waiting/advance, params: { round: "${state.round}", rounds: "${inputs.rounds}" } }
      assign: { round: "${result.round}", until: "${result.until}" }
      next: [{ to: rest, when: { path: result.again, value: true } }, { to: done }]
    rest: { type: wait, until: "${state.until}", next: plan }
    done: { type: return, output: { round: "${state.round}" } }
"#;

const RACE: &str = r#"config:
  start: ask
  max_steps: 1000
  state: { round: 0 }
  nodes:
    ask: { type: gate, next: { all: [{ to: sleeper }, { to: chooser }, { to: timer }] } }
    sleeper: { type: wait, timeout: 40ms, next: knock }
    knock: { action: { item_id: waiting/note, params: { text: knock } }, next: met }
    chooser:
      action: { item_id: waiting/advance, params: { round: "${state.round}", rounds: "${inputs.rounds}" } }
      next: { by: result.pause, to: { short: brief, medium: brief, long: lengthy, none: lengthy } }
    brief: { type: wait, timeout: 20ms, next: met }
    lengthy: { type: wait, timeout: 250ms, next: met }
    timer: { type: wait, timeout: 70ms, next: met }
    met:
      waits_for: { of: [knock, brief, lengthy, timer], need: 1, rest: cancel }
      action: { item_id: waiting/advance, params: { round: "${state.round}", rounds: "${inputs.rounds}" } }
      assign: { round: "${result.round}" }
      next: [{ to: ask, when: { path: result.again, value: true } }, { to: done }]
    done: { type: return, output: { round: "${state.round}" } }
"#;

const ENDLESS: &str = r#"config:
  start: fork
  max_steps: 1000
  state: { round: 0 }
  nodes:
    fork: { type: gate, next: { all: [{ to: hold }, { to: poll }] } }
    hold: { type: wait, timeout: 1h, next: done }
    poll:
      action: { item_id: waiting/advance, params: { round: "${state.round}", rounds: "${inputs.rounds}" } }
      assign: { round: "${result.round}" }
      next: [{ to: breathe, when: { path: result.again, value: true } }, { to: done }]
    breathe: { type: wait, timeout: 90ms, next: poll }
    done: { type: return, waits_for: [hold, poll], output: { round: "${state.round}" } }
"#;

const RECEIVING: &str = r#"config:
  start: fork
  max_steps: 1000
  channels: { log: append }
  state: { round: 0 }
  signals:
    paid: { type: object, properties: { number: { type: integer } }, required: [number] }
  nodes:
    fork: { type: gate, next: { all: [{ to: money }, { to: approve }, { to: pause }] } }
    money:
      type: wait
      signals: [paid]
      timeout: 160ms
      on_timeout: unpaid
      assign: { log: "${result.paid.number}" }
      next: booked
    booked: { action: { item_id: waiting/note, params: { text: booked } }, next: met }
    unpaid: { action: { item_id: waiting/note, params: { text: unpaid } }, next: met }
    approve:
      type: interrupt
      payload: { round: "${state.round}" }
      result_schema: { type: object, properties: { decision: { enum: [approve, refuse] } }, required: [decision] }
      answered_by: { count: 2 }
      timeout: 220ms
      on_timeout: undecided
      assign: { log: "${result.decision}" }
      next: { by: result.decision, to: { approve: agreed, refuse: met } }
    agreed: { action: { item_id: waiting/note, params: { text: agreed } }, next: met }
    undecided: { action: { item_id: waiting/note, params: { text: undecided } }, next: met }
    pause: { type: wait, timeout: 50ms, next: met }
    met:
      waits_for: [booked, unpaid, approve, agreed, undecided, pause]
      action: { item_id: waiting/advance, params: { round: "${state.round}", rounds: "${inputs.rounds}" } }
      assign: { round: "${result.round}" }
      next: [{ to: fork, when: { path: result.again, value: true } }, { to: done }]
    done: { type: return, output: { round: "${state.round}", log: "${state.log}" } }
"#;

/// How long the waits with a `timeout` last, in milliseconds.
const TIMEOUTS: [(&str, i64); 15] = [
    ("money", 160),
    ("approve", 220),
    ("pause", 50),
    ("short", 20),
    ("medium", 110),
    ("long", 400),
    ("doze", 130),
    ("nap", 30),
    ("second_nap", 60),
    ("sleeper", 40),
    ("brief", 20),
    ("lengthy", 250),
    ("timer", 70),
    ("hold", 3_600_000),
    ("breathe", 90),
];

/// The nodes that neither wait nor call a tool.
const WITHOUT_CALL: [&str; 3] = ["fork", "ask", "done"];

const ADVANCE: &str = r#"version: "1.0.0"
tool_type: rust
config_schema:
  type: object
  properties: { round: { type: integer }, rounds: { type: integer } }
  required: [round, rounds]
result_schema:
  type: object
  properties:
    round: { type: integer }
    again: { type: boolean }
    pause: { enum: [short, medium, long, none] }
    until: { type: string }
  required: [round, again, pause, until]
"#;

const NOTE: &str = r#"version: "1.0.0"
tool_type: rust
config_schema: { type: object, properties: { text: { type: string } }, required: [text] }
result_schema: { type: object, properties: { text: { type: string } }, required: [text] }
"#;

impl WaitingGraph {
    /// Returns the name of its file.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rounds => "rounds",
            Self::Branches => "branches",
            Self::Until => "until",
            Self::Race => "race",
            Self::Endless => "endless",
            Self::Receiving => "receiving",
        }
    }

    fn config(self) -> &'static str {
        match self {
            Self::Rounds => ROUNDS,
            Self::Branches => BRANCHES,
            Self::Until => UNTIL,
            Self::Race => RACE,
            Self::Endless => ENDLESS,
            Self::Receiving => RECEIVING,
        }
    }

    /// Whether an output is that of a run that nobody cancelled.
    pub(super) fn may_return(self, rounds: u64, output: &Value) -> bool {
        match self {
            Self::Rounds => *output == json!({"log": (1..=rounds).collect::<Vec<u64>>()}),
            Self::Branches => {
                let log = output["log"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let mut log: Vec<&str> = log.collect();
                log.sort_unstable();
                let expected = ["rise", "stretch", "toil", "toil_more"];
                let expected = expected.into_iter().flat_map(|text| (0..rounds).map(move |_| text));
                output["round"] == rounds && log.into_iter().eq(expected)
            }
            Self::Until | Self::Race => *output == json!({"round": rounds}),
            // The judge compares the log with what the run took.
            Self::Receiving => output["round"] == rounds,
            Self::Endless => false,
        }
    }
}

/// Returns how long a node waits, in milliseconds; `None` if it waits until a time, or does not wait.
pub(super) fn timeout(node: &str) -> Option<i64> {
    TIMEOUTS.iter().find(|(name, _)| *name == node).map(|(_, timeout)| *timeout)
}

/// Whether a node waits.
pub(super) fn waits(node: &str) -> bool {
    node == "rest" || timeout(node).is_some()
}

/// Whether a node calls a tool.
pub(super) fn calls(node: &str) -> bool {
    !waits(node) && !WITHOUT_CALL.contains(&node)
}

/// Writes the graphs, their contracts, and the key that signed them.
pub(super) fn tree() -> Tree {
    let tree = Tree::new();
    for graph in GRAPHS {
        tree.write(&format!("{}.yaml", graph.name()), sign(&format!("{HEAD}{}", graph.config())));
    }
    tree.write("tools/waiting/advance.yaml", sign(ADVANCE));
    tree.write("tools/waiting/note.yaml", sign(NOTE));
    tree
}

/// Loads the graphs of a tree.
pub(super) fn load(tree: &Path, tools: CallLog) -> BTreeMap<WaitingGraph, Interpreted> {
    let library = Library::open(tree, tools);
    let load = |graph: WaitingGraph| {
        let loaded = library.graph(&tree.join(format!("{}.yaml", graph.name())));
        (graph, loaded.map_err(|error| error.to_string()).expect("the graph has no mistakes"))
    };
    GRAPHS.map(load).into_iter().collect()
}

/// Returns the inputs of a run.
pub(super) fn inputs(rounds: u64) -> Map<String, Value> {
    Map::from_iter([("rounds".to_owned(), json!(rounds))])
}

/// The tools of a process. They write a line for each call into a file of all processes: before it is made, and when it
/// returns.
pub(super) struct CallLog {
    file: File,
    process: u64,
}

/// A line of that file.
#[derive(Debug, Clone)]
pub(super) struct CallLine {
    pub(super) at: At,
    pub(super) run: String,
    /// The number of the visit.
    pub(super) visit: u64,
    /// The idempotency key.
    pub(super) key: String,
    /// The time in milliseconds since the Unix epoch.
    pub(super) time: i64,
    pub(super) process: u64,
}

impl CallLine {
    /// Reads a line.
    pub(super) fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let at = match words.next()? {
            "Began" => At::Began,
            "Returned" => At::Returned,
            _ => return None,
        };
        let (run, visit) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        let (key, time) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        Some(Self { at, run, visit, key, time, process: words.next()?.parse().ok()? })
    }
}

impl CallLog {
    /// Opens the file in a directory, for the process of this number.
    pub(super) fn open(directory: &Path, process: u64) -> Self {
        let file = File::options().create(true).append(true).open(directory.join("calls"));
        Self { file: file.expect("the file can be written"), process }
    }

    fn note(&self, at: At, call: &Call) {
        let (run, visit, key) = (call.run_id(), call.step(), call.idempotency_key());
        // A single write, so a line is either complete or missing.
        let line = format!("{at:?} {run} {visit} {key} {} {}\n", now(), self.process);
        (&self.file).write_all(line.as_bytes()).expect("the file can be written");
    }
}

impl Tools for CallLog {
    fn perform<'a>(&'a self, call: &'a Call, _: &'a TypedTool, params: Map<String, Value>) -> ToolFuture<'a> {
        Box::pin(async move {
            self.note(At::Began, call);
            let key = call.idempotency_key();
            let mut chance = Chance::of(u64::from_str_radix(&key[..16], 16).expect("a key is hexadecimal"));
            tokio::time::sleep(Duration::from_micros(chance.below(30_000))).await;
            let number = |name: &str| params.get(name).and_then(Value::as_u64).unwrap_or_default();
            let result = if call.tool() == "waiting/note" {
                json!({"text": params["text"]})
            } else {
                let round = number("round") + 1;
                let again = round < number("rounds");
                let pause =
                    if again { ["short", "medium", "long"][usize::from(chance.below(3) as u8)] } else { "none" };
                let until = now() + chance.below(440) as i64 - 40;
                let until = timestamp::milliseconds(timestamp::from_unix_milliseconds(until));
                json!({"round": round, "again": again, "pause": pause, "until": until})
            };
            self.note(At::Returned, call);
            Ok(result)
        })
    }
}

/// Returns the time in milliseconds since the Unix epoch.
pub(super) fn now() -> i64 {
    timestamp::unix_milliseconds(SystemTime::now())
}
