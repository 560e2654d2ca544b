//! Random graphs that fan out and join, checked by a judge that knows how they were made.
//!
//! `BRANCHES=1000 SEED=7` sets the number of graphs and the seed.

use std::collections::BTreeMap;
use std::env;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use graph_runtime::__private::{Key, Program};
use graph_runtime::history::{Replay, replay};
use graph_runtime::record::{Entry, Record, SignedRecord, Status, Visit};
use graph_runtime::{
    ActionError, Call, Clock, EncryptionKey, Finished, ManualClock, Map, MemoryStore, Options, Runtime, SecretKey,
    Store, Value, audit,
};
use serde_json::json;

use crate::durability::{Tokens, cut};
use crate::interpreted::{Interpreted, PROGRAM};
use crate::random::Random;
use crate::support::{KEY, id, kinds, runtime};
use crate::waits::waits;

/// A piece of a graph with one entry and one exit.
enum Part {
    /// A node that is visited `times` times in a row, and fails the last time if it has a handler.
    Work { node: usize, times: u64, handler: Option<usize> },
    /// A node that waits for so many hours.
    Wait { node: usize, hours: u64 },
    /// A node that begins a branch for each edge.
    All { node: usize, branches: Vec<Branch>, partial: Option<Partial>, join: usize },
    /// A node that begins a branch for each element of a list; `ends` says which branches end before the join.
    Over { node: usize, ends: Vec<bool>, parts: Vec<Part>, join: usize },
}

struct Branch {
    parts: Vec<Part>,
    /// Whether it ends before the join.
    ends: bool,
}

/// A join of the first branches of a fan-out, behind which a branch of its own begins.
struct Partial {
    of: usize,
    node: usize,
    parts: Vec<Part>,
}

/// Makes parts at random.
struct Maker {
    random: Random,
    nodes: usize,
    /// Whether some nodes wait.
    waits: bool,
}

impl Maker {
    fn node(&mut self) -> usize {
        self.nodes += 1;
        self.nodes - 1
    }

    fn parts(&mut self, depth: u64, least: u64) -> Vec<Part> {
        (0..least + self.random.below(3)).map(|_| self.part(depth)).collect()
    }

    fn part(&mut self, depth: u64) -> Part {
        if self.waits && self.random.below(3) == 0 {
            let node = self.node();
            return Part::Wait { node, hours: 1 + self.random.below(4) };
        }
        match self.random.below(if depth == 0 { 3 } else { 6 }) {
            3 | 4 => {
                let node = self.node();
                let count = 1 + self.random.below(3);
                let branches = (0..count).map(|_| self.branch(depth - 1)).collect::<Vec<_>>();
                let partial = (branches.len() > 1 && self.random.below(3) == 0).then(|| {
                    let of = 1 + usize::try_from(self.random.below(count)).unwrap();
                    Partial { of, node: self.node(), parts: self.parts(depth - 1, 0) }
                });
                Part::All { node, branches, partial, join: self.node() }
            }
            5 => {
                let node = self.node();
                let ends = (0..self.random.below(4)).map(|_| self.random.below(4) == 0).collect();
                Part::Over { node, ends, parts: self.parts(depth - 1, 1), join: self.node() }
            }
            kind => {
                let (node, times) = (self.node(), 1 + self.random.below(5) / 3);
                let handler = (kind == 2).then(|| self.node());
                Part::Work { node, times, handler }
            }
        }
    }

    fn branch(&mut self, depth: u64) -> Branch {
        Branch { parts: self.parts(depth, 0), ends: self.random.below(5) == 0 }
    }
}

/// Writes parts as nodes of a program.
struct Writer {
    nodes: BTreeMap<usize, Value>,
    /// The names of the list elements that are in scope for the current part.
    arguments: Vec<String>,
    /// The size of the text that each node writes.
    padding: usize,
    /// Whether fan-outs finish their other branches before a failure ends the run, except every third node.
    finishes: bool,
}

fn name(node: usize) -> String {
    format!("n{node}")
}

impl Writer {
    /// Writes parts, after which the run continues along `next`. Returns the edges that lead to the first of them.
    fn parts(&mut self, parts: &[Part], next: Value) -> Value {
        parts.iter().rev().fold(next, |next, part| json!([{"to": name(self.part(part, next))}]))
    }

    fn part(&mut self, part: &Part, next: Value) -> usize {
        match part {
            Part::Work { node, times, handler } => {
                let mut edges =
                    vec![json!({"to": name(*node), "when": {"path": "visit.number", "op": "lt", "value": times}})];
                edges.extend(next.as_array().cloned().unwrap_or_default());
                let params = json!({"fail": handler.is_some(), "number": "${visit.number}", "times": times});
                self.work(*node, &params, Value::Array(edges), *handler);
                if let Some(handler) = handler {
                    self.work(*handler, &json!({"of": "${state._last_error.node}"}), next, None);
                }
                *node
            }
            Part::Wait { node, hours } => {
                let written = json!({"at": name(*node), "elements": self.elements()});
                let assign = json!({"last": name(*node), "log": written});
                let wait = match hours {
                    4 => json!({"until": "1972-09-27T0${inputs.hour || visit.number}:00:00Z"}),
                    hours => json!({"timeout_ms": hours * 3_600_000}),
                };
                let body = json!({"line": 1, "does": "wait", "wait": wait, "assign": assign, "next": next});
                self.nodes.insert(*node, body);
                *node
            }
            Part::All { node, branches, partial, join } => {
                let to_join = json!([{"to": name(*join)}]);
                let of = partial.as_ref().map_or(0, |partial| partial.of);
                let edges: Vec<Value> = (0..)
                    .zip(branches)
                    .map(|(at, branch)| {
                        let next = match partial {
                            _ if branch.ends => json!([{}]),
                            Some(partial) if at < of => json!([{"to": name(partial.node)}]),
                            _ => to_join.clone(),
                        };
                        self.parts(&branch.parts, next)[0].clone()
                    })
                    .collect();
                self.work(*node, &json!({}), self.fan_out(*node, json!({"all": edges})), None);
                if let Some(partial) = partial {
                    let next = self.parts(&partial.parts, to_join);
                    self.work(partial.node, &json!({}), next, None);
                    self.nodes.get_mut(&partial.node).unwrap()["join"] = json!({"of": [], "fan": node});
                }
                self.join(*join, *node, next);
                *node
            }
            Part::Over { node, ends, parts, join } => {
                let argument = format!("e{node}");
                let list: Vec<Value> = ends
                    .iter()
                    .enumerate()
                    .map(|(at, ends)| json!({"is": format!("{node}.{at}"), "ends": ends}))
                    .collect();
                let behind = json!([
                    {"to": name(*join), "when": {"path": format!("{argument}.ends"), "op": "eq", "value": false}},
                    {},
                ]);
                self.arguments.push(argument.clone());
                let first = self.parts(parts, behind)[0]["to"].clone();
                self.arguments.pop();
                let over = json!({"over": list, "as": argument, "to": first});
                self.work(*node, &json!({}), self.fan_out(*node, over), None);
                self.join(*join, *node, next);
                *node
            }
        }
    }

    fn fan_out(&self, node: usize, mut next: Value) -> Value {
        if self.finishes && !node.is_multiple_of(3) {
            next["on_branch_error"] = json!("finish");
        }
        next
    }

    fn join(&mut self, join: usize, fan: usize, next: Value) {
        self.work(join, &json!({}), next, None);
        self.nodes.get_mut(&join).unwrap()["join"] = json!({"of": [], "fan": fan, "closes": true});
    }

    fn elements(&self) -> Vec<Value> {
        self.arguments.iter().map(|argument| json!(format!("${{{argument}.is}}"))).collect()
    }

    fn work(&mut self, node: usize, more: &Value, next: Value, on_error: Option<usize>) {
        let mut params = json!({"at": name(node), "elements": self.elements()});
        params.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        let assign = if self.padding == 0 {
            json!({"last": "${result.at}", "log": "${result}"})
        } else {
            json!({"last": "${result.at}", "log": "${result}", "padding": format!("{}${{result.at}}", "x".repeat(self.padding))})
        };
        let mut body = json!({"line": 1, "does": {"action": 0}, "params": params, "assign": assign, "next": next});
        if let Some(handler) = on_error {
            body["on_error"] = json!(handler);
        }
        self.nodes.insert(node, body);
    }
}

/// An expected visit: its step, its branch, its node, and the result of its call.
#[derive(Debug)]
struct Expected {
    step: u64,
    path: Vec<u32>,
    node: usize,
    /// The result; `None` if the call fails.
    result: Option<Value>,
}

/// Predicts which visits a run makes, and when, from the parts of the graph.
#[derive(Default)]
struct Judge {
    visits: Vec<Expected>,
    elements: Vec<String>,
    path: Vec<u32>,
    /// The branches around the entry at which the run begins, the innermost first.
    around: Vec<Value>,
    /// The elements of those that belong to lists.
    inputs: Map<String, Value>,
}

impl Judge {
    /// Follows parts from the step after `step`. Returns the last step in which one of their nodes is visited.
    fn parts(&mut self, parts: &[Part], step: u64) -> u64 {
        parts.iter().fold(step, |step, part| self.part(part, step))
    }

    fn part(&mut self, part: &Part, step: u64) -> u64 {
        match part {
            Part::Work { node, times, handler } => {
                let mut step = step;
                for number in 1..=*times {
                    step += 1;
                    let fails = handler.is_some() && number == *times;
                    let more = json!({"fail": handler.is_some(), "number": number, "times": times});
                    self.visit(step, *node, (!fails).then_some(more));
                }
                if let Some(handler) = handler {
                    step += 1;
                    self.visit(step, *handler, Some(json!({"of": name(*node)})));
                }
                step
            }
            Part::Wait { node, .. } => {
                self.visit(step + 1, *node, Some(json!({})));
                step + 1
            }
            Part::All { node, branches, partial, join } => {
                let begin = step + 1;
                self.visit(begin, *node, Some(json!({})));
                let of = partial.as_ref().map_or(0, |partial| partial.of);
                let (mut last, mut last_of, mut comes) = (begin, begin, false);
                for (at, branch) in (0..).zip(branches) {
                    self.path.push(at);
                    let end = self.parts(&branch.parts, begin);
                    self.path.pop();
                    last = last.max(end);
                    // The join does not wait for a branch that cannot reach it.
                    if usize::try_from(at).unwrap() < of && !branch.ends {
                        last_of = last_of.max(end);
                        comes = true;
                    }
                }
                if let Some(partial) = partial.as_ref().filter(|_| comes) {
                    // The branches behind joins come after those that begin at the fan-out.
                    self.path.push(u32::try_from(branches.len()).unwrap());
                    self.visit(last_of + 1, partial.node, Some(json!({})));
                    last = last.max(self.parts(&partial.parts, last_of + 1));
                    self.path.pop();
                }
                self.visit(last + 1, *join, Some(json!({})));
                last + 1
            }
            Part::Over { node, ends, parts, join } => {
                let begin = step + 1;
                self.visit(begin, *node, Some(json!({})));
                let mut last = begin;
                for (at, _) in (0..).zip(ends) {
                    self.path.push(at);
                    self.elements.push(format!("{node}.{at}"));
                    last = last.max(self.parts(parts, begin));
                    self.elements.pop();
                    self.path.pop();
                }
                self.visit(last + 1, *join, Some(json!({})));
                last + 1
            }
        }
    }

    /// As [`Judge::parts`], from the visit of a node in one of them, with no other branch. `None` if it is in none of them.
    fn enter(&mut self, parts: &[Part], target: usize) -> Option<u64> {
        let found = parts.iter().enumerate().find_map(|(at, part)| Some((at, self.enter_part(part, target)?)));
        found.map(|(at, step)| self.parts(&parts[at + 1..], step))
    }

    fn enter_part(&mut self, part: &Part, target: usize) -> Option<u64> {
        let (last, join) = match part {
            Part::Work { node, .. } | Part::Wait { node, .. } => {
                return (*node == target).then(|| self.part(part, 0));
            }
            Part::All { node, branches, partial, join } => {
                let behind = u32::try_from(branches.len()).unwrap();
                let entered = (0..).zip(branches).find_map(|(at, branch)| {
                    let end = self.enter_branch(0, &branch.parts, target)?;
                    Some((end, at, branch))
                });
                if let Some((end, at, branch)) = entered {
                    self.around.push(json!({"fan": node}));
                    let partial = partial.as_ref().filter(|partial| at < partial.of && !branch.ends);
                    let last = partial.map_or(end, |partial| {
                        self.path.push(behind);
                        self.visit(end + 1, partial.node, Some(json!({})));
                        let last = self.parts(&partial.parts, end + 1);
                        self.path.pop();
                        last
                    });
                    (last, *join)
                } else {
                    let partial = partial.as_ref()?;
                    let end = self.enter_branch(behind, &partial.parts, target)?;
                    self.around.push(json!({"fan": node, "behind": partial.node}));
                    (end, *join)
                }
            }
            Part::Over { node, parts, join, .. } => {
                let element = format!("{node}.entry");
                self.elements.push(element.clone());
                let end = self.enter_branch(0, parts, target);
                self.elements.pop();
                let (end, input) = (end?, format!("e{node}"));
                self.around.push(json!({"fan": node, "element": format!("inputs.{input}")}));
                self.inputs.insert(input, json!({"is": element, "ends": node.is_multiple_of(2)}));
                (end, *join)
            }
        };
        self.visit(last + 1, join, Some(json!({})));
        Some(last + 1)
    }

    fn enter_branch(&mut self, branch: u32, parts: &[Part], target: usize) -> Option<u64> {
        self.path.push(branch);
        let end = self.enter(parts, target);
        self.path.pop();
        end
    }

    fn visit(&mut self, step: u64, node: usize, more: Option<Value>) {
        let result = more.map(|more| {
            let mut result = json!({"at": name(node), "elements": self.elements});
            result.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
            result
        });
        self.visits.push(Expected { step, path: self.path.clone(), node, result });
    }
}

/// A random graph as text, and the visits that a run of it makes.
struct Made {
    nodes: Vec<(String, String)>,
    expected: Vec<Expected>,
    /// The results in the order of the parts, which is that of the branches.
    log: Vec<Value>,
    entered: Option<Entered>,
}

/// An entry `here`, at which the run begins.
struct Entered {
    at: Value,
    inputs: Map<String, Value>,
    /// How many fan-outs are around it.
    depth: u64,
}

fn make(seed: u64) -> Made {
    make_with(seed, false)
}

fn make_with(seed: u64, finishes: bool) -> Made {
    make_new(seed, finishes, false)
}

fn make_new(seed: u64, finishes: bool, waits: bool) -> Made {
    let mut maker = Maker { random: Random::new(seed), nodes: 0, waits };
    let parts = maker.parts(3, 1);
    make_of(maker, &parts, finishes, None)
}

/// Makes a graph with an entry at a node inside of branches, of those that may have one.
fn make_entered(seed: u64) -> Option<Made> {
    let mut maker = Maker { random: Random::new(seed), nodes: 0, waits: false };
    let parts = maker.parts(3, 1);
    let is_inside = |node: &usize| {
        let mut judge = Judge::default();
        judge.enter(&parts, *node).is_some() && !judge.around.is_empty()
    };
    let inside: Vec<usize> = (0..maker.nodes).filter(is_inside).collect();
    let at = maker.random.below(inside.len().max(1) as u64);
    let target = *inside.get(usize::try_from(at).unwrap())?;
    Some(make_of(maker, &parts, false, Some(target)))
}

fn make_of(mut maker: Maker, parts: &[Part], finishes: bool, target: Option<usize>) -> Made {
    let end = maker.node();
    let padding = if maker.random.below(4) == 0 { 20_000 } else { 0 };
    let mut writer = Writer { nodes: BTreeMap::new(), arguments: Vec::new(), padding, finishes };
    let first = writer.parts(parts, json!([{"to": name(end)}]))[0]["to"].clone();
    writer
        .nodes
        .insert(end, json!({"line": 1, "does": "return", "output": {"last": "${state.last}", "log": "${state.log}"}}));
    let mut judge = Judge::default();
    let last = match target {
        None => judge.parts(parts, 0),
        Some(target) => judge.enter(parts, target).unwrap(),
    };
    judge.visit(last + 1, end, None);
    judge.around.reverse();
    let entered = target.map(|node| Entered {
        depth: judge.around.len() as u64,
        at: json!({"node": node, "branches": judge.around}),
        inputs: std::mem::take(&mut judge.inputs),
    });
    let log = judge.visits.iter().filter_map(|visit| visit.result.clone()).collect();
    judge.visits.sort_by(|one, other| (one.step, &one.path).cmp(&(other.step, &other.path)));
    let nodes = writer.nodes.into_iter().map(|(node, body)| (name(node), body.to_string())).collect::<Vec<_>>();
    assert_eq!(first, json!(nodes[0].0), "the first node is the first that was made");
    Made { nodes, expected: judge.visits, log, entered }
}

const PLAIN: &str = r#"{"max_steps":100000,"channels":{"log":"append"},"by_branch":["log"]}"#;
const SECRETIVE: &str = r#"{"max_steps":100000,"channels":{"log":"append"},"by_branch":["log"],"secrets":{"keys":{"padding":"all","log":{"each":"all"}}}}"#;

impl Made {
    /// The graph with a tool that returns its parameters after some turns of the scheduler.
    fn machine(&self) -> Interpreted {
        self.machine_with(PLAIN)
    }

    /// As [`Made::machine`], with a secret in the state.
    fn secretive(&self) -> Interpreted {
        self.machine_with(SECRETIVE)
    }

    fn machine_with(&self, settings: &str) -> Interpreted {
        let nodes: Vec<(&str, &str)> = self.nodes.iter().map(|(name, body)| (name.as_str(), body.as_str())).collect();
        let keys = [
            Key { name: "last", initial: None },
            Key { name: "padding", initial: None },
            Key { name: "log", initial: Some("[]") },
        ];
        let mut all: Map<String, Value> = serde_json::from_str(settings).unwrap();
        all.extend(self.entered.as_ref().map(|entered| ("entries".to_owned(), json!({"here": entered.at}))));
        let settings = Value::Object(all).to_string();
        let program = Program { keys: &keys, nodes: &nodes, settings: &settings, ..PROGRAM };
        Interpreted::waiting(&program, |call: &Call, params: Value| {
            let turns = call.step() * 7 % 5;
            Box::pin(async move {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                let fails = params["fail"] == true && params["number"] == params["times"];
                if fails { Err(ActionError::permanent("as it was told")) } else { Ok(params) }
            })
        })
    }

    /// Fails unless the visits are the expected ones, in order.
    fn judge(&self, visits: &[Visit], what: &str) {
        let said = visits.iter().map(|visit| {
            let result = visit.error.is_none().then(|| visit.result.clone());
            (visit.step, visit.node.clone(), visit.branch.clone(), result.unwrap_or_default())
        });
        let first = self.entered.as_ref().map_or(1, |entered| entered.depth.max(1));
        let is = (first..).zip(&self.expected).map(|(number, expected)| {
            let Expected { path, node, result, .. } = expected;
            (number, name(*node), path.clone(), result.clone().unwrap_or_default())
        });
        let (said, is): (Vec<_>, Vec<_>) = (said.collect(), is.collect());
        for (said, is) in said.iter().zip(&is) {
            assert_eq!(said, is, "{what}\n{}", self.text());
        }
        assert_eq!(said.len(), is.len(), "{what}\n{}", self.text());
    }

    /// Runs a machine of it, from its entry if it has one.
    async fn run(&self, machine: Interpreted, runtime: &Runtime) -> Finished<Value> {
        let (entry, inputs) = match &self.entered {
            Some(entered) => (Some("here".to_owned()), entered.inputs.clone()),
            None => (None, Map::new()),
        };
        let options = Options { run: Some(id("run")), entry, ..Options::default() };
        runtime.start_with(options, machine, inputs).await.unwrap().await.unwrap()
    }

    fn text(&self) -> String {
        self.nodes.iter().map(|(name, body)| format!("{name}: {body}\n")).collect()
    }

    /// Returns the expected output: the name of the node that wrote last, and the results in the order of the branches.
    fn output(&self) -> Value {
        let last = self.expected.iter().rev().find(|expected| expected.result.is_some());
        json!({"last": last.map(|expected| name(expected.node)), "log": self.log})
    }
}

fn visits(records: &[SignedRecord]) -> Vec<Visit> {
    let steps = records.iter().filter_map(|signed| match serde_json::from_str::<Record>(&signed.body).unwrap().entry {
        Entry::Step(step) => Some(step.visits),
        _ => None,
    });
    steps.flatten().collect()
}

/// Runs a graph with and without a journal, from its start and from after each record, and audits and replays the
/// journals.
async fn check(made: &Made, what: &str) -> usize {
    let unkept = Runtime::builder().grant("*").unwrap().build().unwrap();
    let output = made.run(made.machine(), &unkept).await.output;
    assert_eq!(output, made.output(), "{what}");
    let whole = MemoryStore::new();
    let tokens = Tokens::over(&whole);
    let first = made.run(made.machine(), &runtime(tokens.store.clone())).await;
    let records = whole.load(&id("run")).await.unwrap();
    made.judge(&visits(&records), what);
    assert_eq!(first.output, made.output(), "{what}");
    let key = SecretKey::from_seed(&KEY).public();
    let proven =
        |records: &[SignedRecord]| audit(&made.machine(), &id("run"), records, &key, None).map(|audit| audit.status);
    assert_eq!(proven(&records), Ok(Status::Completed), "{what}");
    let Replay { deviations, stopped, .. } =
        replay(&made.machine(), &made.machine(), &id("run"), &records, &key, None).unwrap();
    assert!(deviations.is_empty() && stopped.is_none(), "{what}: {deviations:?} {stopped:?}");
    let kinds = kinds(&records);
    for (length, kind) in kinds.iter().enumerate().skip(1) {
        // Records that are written together are not separated.
        if matches!(kind.as_str(), "snapshot" | "end") {
            continue;
        }
        let store = cut(&whole, &tokens, length).await;
        assert_eq!(proven(&store.load(&id("run")).await.unwrap()), Ok(Status::Running), "{what} cut at {length}");
        let again = runtime(store.clone()).resume(made.machine(), &id("run")).await.unwrap().await.unwrap();
        assert_eq!((&again.output, again.steps), (&first.output, first.steps), "{what} cut at {length}");
        let records = store.load(&id("run")).await.unwrap();
        made.judge(&visits(&records), &format!("{what} cut at {length}"));
        assert_eq!(proven(&records), Ok(Status::Completed), "{what} cut at {length}");
    }
    kinds.iter().filter(|kind| *kind == "snapshot").count()
}

#[tokio::test]
async fn branches_are_visited_and_joined_as_the_graph_was_made() {
    let number = |name: &str, otherwise| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (count, seed) = (number("BRANCHES", 40), number("SEED", 1));
    let mut snapshots = 0;
    for seed in seed..seed + count {
        snapshots += check(&make(seed), &format!("SEED={seed}")).await;
    }
    assert!(count < 40 || snapshots > 0, "some runs are resumed from a snapshot");
}

#[tokio::test]
async fn a_run_that_begins_inside_of_branches_begins_with_these_only() {
    let number = |name: &str, otherwise| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (count, seed) = (number("BRANCHES", 60), number("SEED", 1));
    let (mut entered, mut nested, mut behind) = (0, 0, 0);
    for seed in seed..seed + count {
        let Some(made) = make_entered(seed) else { continue };
        check(&made, &format!("SEED={seed}")).await;
        let Entered { at, depth, .. } = made.entered.as_ref().unwrap();
        entered += 1;
        nested += u64::from(*depth > 1);
        behind += u64::from(at.to_string().contains("behind"));
    }
    println!("{entered} runs, {nested} of them began inside of several fan-outs, and {behind} behind a partial join");
    assert!(count < 60 || (nested > 10 && behind > 0), "{entered} {nested} {behind}");
}

/// Starts or resumes a run until it ends, and lets the time pass for which it waits. Returns its output, and how often it waited.
async fn wait_and_finish(
    store: impl Store + Clone + 'static,
    clock: &ManualClock,
    graph: &Interpreted,
    mut is_new: bool,
    random: &mut Random,
) -> (Value, u64) {
    for waited in 0.. {
        assert!(waited < 1000, "it waits without end");
        let runtime = runtime(store.clone());
        let run = match std::mem::take(&mut is_new) {
            true => runtime.start_as(id("run"), graph.clone(), Map::new()).await.unwrap(),
            false => runtime.resume(graph.clone(), &id("run")).await.unwrap(),
        };
        let error = match run.await {
            Ok(finished) => return (finished.output, waited),
            Err(error) => error,
        };
        let due = waits(error).into_iter().filter_map(|(_, due)| due).min().unwrap();
        let summary = store.find(&id("run")).await.unwrap();
        assert_eq!((summary.status, summary.holder.is_none()), (Status::Waiting, true));
        let due = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(due).unwrap());
        assert_eq!(summary.next_due, Some(due));
        assert!(due > clock.now(), "nothing was due");
        // It may be resumed late.
        clock.advance(due.duration_since(clock.now()).unwrap() + Duration::from_secs(1800 * random.below(5)));
    }
    unreachable!()
}

/// Runs a graph that waits until it ends, from its start and from after each write, and audits and replays the journals.
/// Returns how often it waited.
async fn check_waits(seed: u64) -> u64 {
    let made = make_new(seed, seed.is_multiple_of(3), true);
    let what = format!("SEED={seed}\n{}", made.text());
    let clock = || Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(1000 * 86_400)));
    let key = SecretKey::from_seed(&KEY).public();
    let (graph, first) = (made.machine(), clock());
    let tokens = Tokens::over(&MemoryStore::with_clock(first.clone()));
    let mut random = Random::new(seed);
    let (output, waited) = wait_and_finish(tokens.store.clone(), &first, &graph, true, &mut random).await;
    assert_eq!(output["log"], json!(made.log), "{what}");
    let mut expected: Vec<(String, Vec<u32>)> = Vec::new();
    expected.extend(made.expected.iter().map(|visit| (name(visit.node), visit.path.clone())));
    expected.sort();
    let prove = |records: &[SignedRecord], at: usize| {
        let proven = audit(&graph, &id("run"), records, &key, None);
        assert!(proven.is_ok(), "cut at {at}: {proven:?}: {what}");
        let Replay { deviations, stopped, .. } = replay(&graph, &graph, &id("run"), records, &key, None).unwrap();
        assert!(deviations.is_empty() && stopped.is_none(), "cut at {at}: {deviations:?} {stopped:?}: {what}");
        let made = visits(records).into_iter().filter(|visit| visit.opened.is_none());
        let mut made: Vec<(String, Vec<u32>)> = made.map(|visit| (visit.node, visit.branch)).collect();
        made.sort();
        made
    };
    let records = tokens.store.load(&id("run")).await.unwrap();
    assert_eq!(prove(&records, records.len()), expected, "{what}");
    for writes in 1..tokens.writes() {
        let clock = clock();
        // The process comes back at another time.
        clock.advance(Duration::from_secs(1800 * random.below(20)));
        let store = tokens.written_to(MemoryStore::with_clock(clock.clone()), writes).await;
        prove(&store.load(&id("run")).await.unwrap(), writes);
        let (output, _) = wait_and_finish(store.clone(), &clock, &graph, false, &mut random).await;
        assert_eq!(output["log"], json!(made.log), "cut at {writes}: {what}");
        assert_eq!(prove(&store.load(&id("run")).await.unwrap(), writes), expected, "cut at {writes}: {what}");
    }
    waited
}

#[tokio::test]
async fn branches_wait_and_continue_in_any_order() {
    let number = |name: &str, otherwise| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (count, seed) = (number("BRANCHES", 40), number("SEED", 1));
    let mut waited = 0;
    for seed in seed..seed + count {
        waited += check_waits(seed).await;
    }
    assert!(waited > count, "the runs waited {waited} times");
}

/// The calls that tools were asked to make, by the number of the visit, with their outcomes in order.
type Outcomes = Arc<Mutex<BTreeMap<u64, Vec<bool>>>>;

impl Made {
    /// The graph with a tool of which every third call fails when it is made first, with secrets or not.
    fn failing(&self, outcomes: &Outcomes, is_secretive: bool) -> Interpreted {
        let nodes: Vec<(&str, &str)> = self.nodes.iter().map(|(name, body)| (name.as_str(), body.as_str())).collect();
        let keys = [
            Key { name: "last", initial: None },
            Key { name: "padding", initial: None },
            Key { name: "log", initial: Some("[]") },
        ];
        // A resumed run cuts the secrets that it has read out of results, so `log` is not one of them.
        let secretive = SECRETIVE.replace(r#","log":{"each":"all"}"#, "");
        let settings = if is_secretive { secretive.as_str() } else { PLAIN };
        let program = Program { keys: &keys, nodes: &nodes, settings, ..PROGRAM };
        let outcomes = Arc::clone(outcomes);
        Interpreted::waiting(&program, move |call: &Call, params: Value| {
            let is_told = params["fail"] == true && params["number"] == params["times"];
            let step = call.step();
            let mut outcomes = outcomes.lock().unwrap();
            let before = outcomes.entry(step).or_default();
            // A failure of a node with a handler leads there.
            let returns = !is_told && (!step.is_multiple_of(3) || !before.is_empty() || params["fail"] == true);
            before.push(returns);
            Box::pin(async move {
                for _ in 0..step * 7 % 5 {
                    tokio::task::yield_now().await;
                }
                if returns { Ok(params) } else { Err(ActionError::permanent("it fails")) }
            })
        })
    }
}

/// Returns a random graph of which some calls fail when they are made first, and are held or lead to handlers.
pub(crate) fn failing(seed: u64) -> Interpreted {
    make_with(seed, true).failing(&Outcomes::default(), false)
}

/// Starts or resumes a run until it ends with a result, which is returned.
async fn finish(store: impl Store + Clone + 'static, graph: &Interpreted, mut is_new: bool) -> Option<Value> {
    for _ in 0..100 {
        let builder = Runtime::builder().grant("*").unwrap().sign_with(SecretKey::from_seed(&KEY)).store(store.clone());
        let runtime = builder.encrypt_with(EncryptionKey::from_bytes([2; 32])).build().unwrap();
        let run = match std::mem::take(&mut is_new) {
            true => runtime.start_as(id("run"), graph.clone(), Map::new()).await.unwrap(),
            false => runtime.resume(graph.clone(), &id("run")).await.unwrap(),
        };
        if let Ok(finished) = run.await {
            return Some(finished.output);
        }
    }
    None
}

/// Runs a graph whose calls fail at first until it ends, from its start and from after each record, and audits and replays
/// the journals. Returns how many failures were held.
async fn check_held(seed: u64) -> usize {
    let made = make_with(seed, true);
    let what = format!("SEED={seed}\n{}", made.text());
    let (whole, outcomes, key) = (MemoryStore::new(), Outcomes::default(), SecretKey::from_seed(&KEY).public());
    let is_secretive = seed.is_multiple_of(2);
    let (tokens, graph) = (Tokens::over(&whole), made.failing(&outcomes, is_secretive));
    let encryption_key = Some(EncryptionKey::from_bytes([2; 32]));
    let prove = |records: &[SignedRecord], length: usize| {
        for encryption_key in [encryption_key.as_ref(), None] {
            let proven = audit(&graph, &id("run"), records, &key, encryption_key);
            assert!(proven.is_ok(), "cut at {length}: {proven:?}: {what}");
        }
        let replayed = replay(&graph, &graph, &id("run"), records, &key, encryption_key.as_ref());
        let Replay { deviations, stopped, .. } = replayed.unwrap();
        assert!(deviations.is_empty() && stopped.is_none(), "cut at {length}: {deviations:?} {stopped:?}: {what}");
    };
    let output = finish(tokens.store.clone(), &graph, true).await.unwrap();
    assert_eq!(output["log"], json!(made.log), "{what}");
    let returned = |outcomes: &Outcomes| {
        let all = outcomes.lock().unwrap();
        all.iter().map(|(step, all)| (*step, all.iter().filter(|returns| **returns).count())).collect::<Vec<_>>()
    };
    // Only a call that failed is made again.
    let once = returned(&outcomes);
    assert!(once.iter().all(|(_, times)| *times <= 1), "{once:?}: {what}");
    let records = whole.load(&id("run")).await.unwrap();
    prove(&records, records.len());
    let kinds = kinds(&records);
    let stride = kinds.len() / 12 + 1;
    for (length, kind) in kinds.iter().enumerate().skip(1 + usize::try_from(seed).unwrap() % stride).step_by(stride) {
        // The run's last step and its end are written together, as are a step and its snapshot.
        if kind == "snapshot" || (kind == "end" && length + 1 == records.len()) {
            continue;
        }
        let store = cut(&whole, &tokens, length).await;
        prove(&store.load(&id("run")).await.unwrap(), length);
        let outcomes = Outcomes::default();
        let output = finish(store.clone(), &made.failing(&outcomes, is_secretive), false).await.unwrap();
        assert_eq!(output["log"], json!(made.log), "cut at {length}: {what}");
        assert!(returned(&outcomes).iter().all(|(_, times)| *times <= 1), "cut at {length}: {what}");
        prove(&store.load(&id("run")).await.unwrap(), length);
    }
    visits(&records).iter().filter(|visit| visit.held).count()
}

#[tokio::test]
async fn failures_are_held_until_the_other_branches_are_done() {
    let number = |name: &str, otherwise| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (count, seed) = (number("BRANCHES", 25), number("SEED", 1));
    let mut held = 0;
    for seed in seed..seed + count {
        held += check_held(seed).await;
    }
    assert!(held as u64 > count, "{held} failures were held");
}

#[tokio::test]
async fn branches_are_proven_without_the_encryption_key() {
    let (mut snapshots, mut lists) = (0, 0);
    let all = (1..=25).flat_map(|seed| [Some((seed, make(seed))), make_entered(seed).map(|made| (seed, made))]);
    for (seed, made) in all.flatten() {
        let store = MemoryStore::new();
        let builder = Runtime::builder().grant("*").unwrap().sign_with(SecretKey::from_seed(&KEY)).keep_history();
        let runtime = builder.store(store.clone()).encrypt_with(EncryptionKey::from_bytes([2; 32])).build().unwrap();
        assert_eq!(made.run(made.secretive(), &runtime).await.output, made.output(), "SEED={seed}");
        let records = store.load(&id("run")).await.unwrap();
        let key = SecretKey::from_seed(&KEY).public();
        for encryption_key in [Some(EncryptionKey::from_bytes([2; 32])), None] {
            let proven = audit(&made.secretive(), &id("run"), &records, &key, encryption_key.as_ref());
            let proven = proven.map(|proven| (proven.status, proven.is_recomputed));
            assert_eq!(proven, Ok((Status::Completed, encryption_key.is_some())), "SEED={seed}");
        }
        let resumed = runtime.resume(made.secretive(), &id("run")).await.unwrap().await.unwrap();
        for visit in resumed.history.iter().chain(&runtime.history(&id("run")).await.unwrap()) {
            lists += usize::from(visit.list.is_some());
            assert!(visit.list.as_ref().is_none_or(|list| list == "[secret]"), "SEED={seed}: {visit:?}");
        }
        snapshots += kinds(&records).iter().filter(|kind| *kind == "snapshot").count();
    }
    assert!(snapshots > 0 && lists > 0, "there are snapshots with open fan-outs, and lists");
}

/// A graph with a fan-out of two branches: one has a fan-out with a quorum of 1, whose calls 1 and 2 take 10 ms and for ever,
/// and the other makes a call that takes 30 ms.
fn racing_beside() -> Interpreted {
    let call = |n: &str, next: &str| {
        format!(
            r#"{{"line":1,"does":{{"action":0}},"params":{{"n":{n}}},"assign":{{"seen":{n}}},"next":[{{"to":"{next}"}}]}}"#
        )
    };
    let (work, slow) = (call("\"${n}\"", "met"), call("3", "all"));
    let nodes = [
        ("split", r#"{"line":1,"does":"gate","next":{"all":[{"to":"fan"},{"to":"wait"}]}}"#),
        ("fan", r#"{"line":2,"does":"gate","next":{"over":[1,2],"as":"n","to":"work"}}"#),
        ("work", &work),
        (
            "met",
            r#"{"line":4,"does":"gate","join":{"of":[2],"fan":1,"closes":true,"quorum":{"need":1,"fewer":6}},"next":[{"to":"all"}]}"#,
        ),
        ("wait", r#"{"line":5,"does":"gate","next":[{"to":"slow"}]}"#),
        ("slow", &slow),
        ("all", r#"{"line":7,"does":"return","join":{"of":[3,5],"fan":0,"closes":true}}"#),
    ];
    let program = Program {
        nodes: &nodes,
        keys: &[Key { name: "seen", initial: Some("[]") }],
        settings: r#"{"channels":{"seen":"append"}}"#,
        ..PROGRAM
    };
    Interpreted::waiting(&program, |_, params| {
        let n = params["n"].as_u64().unwrap();
        Box::pin(async move {
            match n {
                2 => std::future::pending().await,
                n => tokio::time::sleep(Duration::from_millis(10 * n)).await,
            }
            Ok(json!(n))
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_quorum_cancels_its_own_branches_and_awaits_the_rest_of_the_step() {
    let (store, began) = (MemoryStore::new(), tokio::time::Instant::now());
    let run = runtime(store.clone()).start_as(id("beside"), racing_beside(), Map::new()).await.unwrap();
    let finished = run.await.unwrap();
    assert_eq!(finished.state["seen"], json!([1, 3]));
    assert_eq!(began.elapsed().as_millis(), 30);
    let records = store.load(&id("beside")).await.unwrap();
    let cancelled: Vec<u64> = visits(&records).iter().filter(|visit| visit.cancelled).map(|visit| visit.step).collect();
    assert_eq!((cancelled.len(), finished.steps), (1, 8));
    audit(&racing_beside(), &id("beside"), &records, &SecretKey::from_seed(&KEY).public(), None).unwrap();
}

/// A graph with a quorum of 2 of two branches. The first one has two branches of its own, which lead to the same join: one at
/// once, and the other after a call that never returns. The second branch makes a call, which `succeeds` or not.
fn coming_twice(succeeds: bool) -> Interpreted {
    let call = |n: u64| format!(r#"{{"line":1,"does":{{"action":0}},"params":{{"n":{n}}},"next":[{{"to":"met"}}]}}"#);
    let (never, second) = (call(0), call(1));
    let gate = r#"{"line":1,"does":"gate","next":[{"to":"met"}]}"#;
    let nodes = [
        ("split", r#"{"line":1,"does":"gate","next":{"all":[{"to":"inner"},{"to":"wait"}]}}"#),
        ("inner", r#"{"line":1,"does":"gate","next":{"all":[{"to":"at_once"},{"to":"never"}]}}"#),
        ("at_once", gate),
        ("never", &never),
        ("wait", r#"{"line":1,"does":"gate","next":[{"to":"second"}]}"#),
        ("second", &second),
        (
            "met",
            r#"{"line":1,"does":"return","join":{"of":[2,3,5],"fan":0,"closes":true,"quorum":{"need":2,"fewer":7}}}"#,
        ),
        ("short", r#"{"line":1,"does":"return"}"#),
    ];
    Interpreted::waiting(&Program { nodes: &nodes, ..PROGRAM }, move |_, params| {
        let n = params["n"].as_u64().unwrap();
        Box::pin(async move {
            match n {
                0 => std::future::pending().await,
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
            if succeeds { Ok(json!(n)) } else { Err(ActionError::permanent("it fails")) }
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_branch_that_comes_to_its_join_several_times_counts_once() {
    for (succeeds, node) in [(true, "met"), (false, "short")] {
        let (store, graph) = (MemoryStore::new(), coming_twice(succeeds));
        let run = runtime(store.clone()).start_as(id("twice"), graph.clone(), Map::new()).await.unwrap();
        let finished = tokio::time::timeout(Duration::from_secs(60), run).await.unwrap().unwrap();
        assert_eq!(finished.node, node);
        let records = store.load(&id("twice")).await.unwrap();
        let cancelled: Vec<String> =
            visits(&records).into_iter().filter(|visit| visit.cancelled).map(|visit| visit.node).collect();
        assert_eq!(cancelled, ["never"]);
        audit(&graph, &id("twice"), &records, &SecretKey::from_seed(&KEY).public(), None).unwrap();
    }
}

/// A graph whose branches are calls of 10, 20 and 30 ms, and two without an end, one of which has a branch of its own. The
/// call of 20 ms leads to a return that cancels all others.
pub(crate) fn returning_first(at_once: u32) -> Interpreted {
    let call = |n: u64, next: &str| {
        format!(
            r#"{{"line":1,"does":{{"action":0}},"params":{{"n":{n}}},"assign":{{"seen":{n}}},"next":[{{"to":"{next}"}}]}}"#
        )
    };
    let calls = [call(1, "all"), call(2, "first"), call(3, "all"), call(4, "all")];
    let nodes = [
        ("split", r#"{"line":1,"does":"gate","next":{"all":[{"to":"one"},{"to":"fan"},{"to":"two"},{"to":"three"}]}}"#),
        ("one", &*calls[0]),
        ("fan", r#"{"line":2,"does":"gate","next":{"over":[1,2],"as":"n","to":"never"}}"#),
        ("never", &*calls[3]),
        ("two", &*calls[1]),
        ("three", &*calls[2]),
        ("first", r#"{"line":6,"does":"return","cancels":true,"output":{"seen":"${state.seen}"}}"#),
        ("all", r#"{"line":7,"does":"return","join":{"of":[1,3,5],"fan":0,"closes":true}}"#),
    ];
    let settings = format!(r#"{{"channels":{{"seen":"append"}},"max_concurrency":{at_once}}}"#);
    let keys = &[Key { name: "seen", initial: Some("[]") }];
    let program = Program { nodes: &nodes, keys, settings: &settings, ..PROGRAM };
    Interpreted::waiting(&program, |_, params| {
        let n = params["n"].as_u64().unwrap();
        Box::pin(async move {
            match n {
                4 => std::future::pending().await,
                n => tokio::time::sleep(Duration::from_millis(10 * n)).await,
            }
            Ok(json!(n))
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_return_that_cancels_drops_the_calls_in_progress() {
    // One visit at a time: those that have not begun do not begin.
    for (at_once, seen, elapsed) in [(10, json!([1, 2]), 20), (1, json!([1, 2]), 30)] {
        let (whole, graph, began) = (MemoryStore::new(), returning_first(at_once), tokio::time::Instant::now());
        let tokens = Tokens::over(&whole);
        let run = runtime(tokens.store.clone()).start_as(id("run"), graph.clone(), Map::new()).await.unwrap();
        let finished = tokio::time::timeout(Duration::from_secs(60), run).await.unwrap().unwrap();
        assert_eq!((finished.node.as_str(), &finished.output["seen"]), ("first", &seen));
        assert_eq!(began.elapsed().as_millis(), elapsed);
        let records = whole.load(&id("run")).await.unwrap();
        let cancelled: Vec<String> =
            visits(&records).into_iter().filter(|visit| visit.cancelled).map(|visit| visit.node).collect();
        assert_eq!(cancelled, ["three"]);
        let key = SecretKey::from_seed(&KEY).public();
        let proven = |records: &[SignedRecord]| audit(&graph, &id("run"), records, &key, None);
        assert_eq!(proven(&records).unwrap().status, Status::Completed);
        let Replay { deviations, stopped, .. } = replay(&graph, &graph, &id("run"), &records, &key, None).unwrap();
        assert!(deviations.is_empty() && stopped.is_none(), "{deviations:?} {stopped:?}");
        // If it is cut after any record, the run returns in the end.
        for (length, kind) in kinds(&records).iter().enumerate().skip(1).filter(|(_, kind)| *kind != "end") {
            let cut = cut(&whole, &tokens, length).await;
            let run = runtime(cut.clone()).resume(graph.clone(), &id("run")).await.unwrap();
            let finished = tokio::time::timeout(Duration::from_secs(60), run).await.unwrap().unwrap();
            assert_eq!((finished.node.as_str(), &finished.output["seen"]), ("first", &seen), "cut before a {kind}");
            assert_eq!(proven(&cut.load(&id("run")).await.unwrap()).unwrap().status, Status::Completed);
        }
    }
}

#[tokio::test]
async fn the_join_of_the_first_branches_is_visited_although_all_of_them_end() {
    let nodes = [
        ("one", r#"{"line":1,"does":"gate","next":[{"to":"both","when":{"path":"inputs.go","value":true}}]}"#),
        ("two", r#"{"line":1,"does":"gate"}"#),
        ("both", r#"{"line":1,"does":"return","join":{"of":[0],"fan":3,"closes":true},"output":"both"}"#),
        ("config.start", r#"{"line":1,"does":"start","next":{"all":[{"to":"one"},{"to":"two"}]}}"#),
    ];
    let graph = Interpreted::new(&Program { start: 3, nodes: &nodes, ..PROGRAM }, |_, _| Ok(Value::Null));
    let store = MemoryStore::new();
    let run = runtime(store.clone()).start_as(id("run"), graph.clone(), Map::new()).await.unwrap();
    let finished = run.await.unwrap();
    assert_eq!((finished.output, finished.steps), (json!("both"), 3));
    let records = store.load(&id("run")).await.unwrap();
    audit(&graph, &id("run"), &records, &SecretKey::from_seed(&KEY).public(), None).unwrap();
}

#[tokio::test]
async fn a_replay_names_the_visit_whose_edges_differ() {
    let graph = |first: &str, other: &str| {
        let edges = format!(
            r#"{{"line":1,"does":"gate","next":[{{"to":"{first}","when":{{"path":"inputs.go","op":"exists"}}}},{{"to":"{other}"}}]}}"#
        );
        let nodes = [
            ("split", r#"{"line":1,"does":"gate","next":{"all":[{"to":"one"},{"to":"two"}]}}"#),
            ("one", &*edges),
            ("two", r#"{"line":3,"does":"gate","next":[{"to":"both"}]}"#),
            ("extra", r#"{"line":4,"does":"gate","next":[{"to":"both"}]}"#),
            ("both", r#"{"line":5,"does":"return","join":{"of":[1,2,3],"fan":0,"closes":true}}"#),
        ];
        Interpreted::new(&Program { nodes: &nodes, ..PROGRAM }, |_, _| Ok(Value::Null))
    };
    let (before, now, store) = (graph("extra", "both"), graph("both", "extra"), MemoryStore::new());
    runtime(store.clone()).start_as(id("run"), before.clone(), Map::new()).await.unwrap().await.unwrap();
    let records = store.load(&id("run")).await.unwrap();
    let replayed = replay(&before, &now, &id("run"), &records, &SecretKey::from_seed(&KEY).public(), None).unwrap();
    let said: Vec<(String, String)> =
        replayed.deviations.iter().map(|one| (one.node.clone(), one.departure.to_string())).collect();
    assert_eq!(said[0].0, "one", "{said:?}");
    assert!(said[0].1.starts_with("leads to "), "{said:?}");
}

#[tokio::test]
async fn a_run_is_resumed_from_a_snapshot_in_its_first_branches() {
    let round = r#"{"line":1,"does":"gate","assign":{"seen":"${visit.number}"},
        "next":[{"to":"round","when":{"path":"visit.number","op":"lt","value":300}},{"to":"both"}]}"#;
    let nodes = [
        ("round", round),
        ("once", r#"{"line":2,"does":"gate","assign":{"seen":"${visit.branch}"},"next":[{"to":"both"}]}"#),
        ("both", r#"{"line":3,"does":"return","join":{"of":[0,1],"fan":3,"closes":true}}"#),
        ("config.start", r#"{"line":4,"does":"start","next":{"all":[{"to":"round"},{"to":"once"}]}}"#),
    ];
    let settings = r#"{"channels":{"seen":"append"},"max_steps":500}"#;
    let keys = &[Key { name: "seen", initial: Some("[]") }];
    let graph =
        Interpreted::new(&Program { start: 3, nodes: &nodes, settings, keys, ..PROGRAM }, |_, _| Ok(Value::Null));
    let whole = MemoryStore::new();
    let tokens = Tokens::over(&whole);
    let run = runtime(tokens.store.clone()).start_as(id("run"), graph.clone(), Map::new()).await.unwrap();
    let first = run.await.unwrap();
    assert_eq!(first.steps, 302);
    let (records, key) = (whole.load(&id("run")).await.unwrap(), SecretKey::from_seed(&KEY).public());
    let kinds = kinds(&records);
    let snapshot = kinds.iter().position(|kind| kind == "snapshot").expect("the run is long enough for one");
    let body: Value = serde_json::from_str(&records[snapshot].body).unwrap();
    assert_eq!(body["fans"][0]["node"], json!("config.start"), "{body}");
    for length in [snapshot + 1, snapshot + 5, records.len() - 2] {
        let cut = cut(&whole, &tokens, length).await;
        let again = runtime(cut.clone()).resume(graph.clone(), &id("run")).await.unwrap().await.unwrap();
        assert_eq!((&again.output, again.steps), (&first.output, first.steps), "cut at {length}");
        audit(&graph, &id("run"), &cut.load(&id("run")).await.unwrap(), &key, None).unwrap();
    }
    // A snapshot that names another beginning of the branches is refused.
    let forged = crate::forged::edited(&records, snapshot, |snapshot| snapshot["fans"][0]["node"] = json!("round"));
    assert!(audit(&graph, &id("run"), &forged, &key, None).is_err());
}
