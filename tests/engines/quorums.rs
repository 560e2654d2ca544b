//! Branches that race for a quorum, or for a return that cancels the others, with random delays, failures, widths and crashes,
//! against a judge that knows the answers. Behind some quorums, the late branches run on.
//!
//! `RACES=10000 SEED=7 cargo test --release --test engines races` runs more of them.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use graph_compiler::graph::TypedTool;
use graph_runtime::dynamic::{Interpreted, Library, ToolFuture, Tools};
use graph_runtime::history::{Replay, replay};
use graph_runtime::record::{Entry, Record, Visit};
use graph_runtime::{ActionError, Call, Map, Value, audit};
use graph_signing::{ItemKind, sign};
use serde_json::json;

use super::case::{Log, Whole, key, play, play_again, run_id};
use super::determinism::tree;
use super::number;
use super::random::Random;

/// The calls of a branch, one after the other: how long each takes in milliseconds, and whether it succeeds.
type Calls = Vec<(u64, bool)>;

/// A fan-out with a quorum, or whose first branch that is done returns.
#[derive(Debug, Clone)]
struct Race {
    /// Whether the first branch that is done returns. The others are cancelled then.
    returns: bool,
    /// Whether the branches run on that the quorum does not need.
    finishes: bool,
    branches: Vec<Calls>,
    need: usize,
    width: usize,
    /// Whether the branches begin with the elements of a list.
    is_list: bool,
    /// How many rounds the race has.
    rounds: usize,
}

impl Race {
    fn random(random: &mut Random) -> Self {
        let count = random.below(6);
        let is_list = count == 0 || random.below(2) == 0;
        // Distinct delays, so that it is known who is first.
        let mut delay = random.below(5);
        let mut call = |random: &mut Random| {
            delay += 1 + random.below(7);
            (delay, random.below(4) > 0)
        };
        let mut branches: Vec<Calls> =
            (0..count).map(|_| (0..=random.below(3)).map(|_| call(random)).collect()).collect();
        // The slowest branch is not always the last one.
        let shift = usize::try_from(random.below(count.max(1))).unwrap();
        branches.rotate_left(shift);
        let most = if is_list { 4 } else { count.min(4) };
        let returns = random.below(3) == 0;
        let finishes = !returns && random.below(2) == 0;
        Self {
            returns,
            finishes,
            branches,
            need: if returns { 1 } else { usize::try_from(1 + random.below(most)).unwrap() },
            width: usize::try_from(1 + random.below(6)).unwrap(),
            is_list,
            rounds: if returns { 1 } else { usize::try_from(1 + random.below(2)).unwrap() },
        }
    }

    /// Writes the graph. Each branch makes its calls in a loop of one node.
    fn text(&self) -> String {
        let Self { need, width, rounds, .. } = self;
        let (rest, last, done) = match self.finishes {
            true => {
                let done =
                    "    done: { type: return, output: { rounds: \"${state.rounds}\", seen: \"${state.seen}\" } }\n";
                ("finish", "{ to: done }", done)
            }
            false => ("cancel", "{}", ""),
        };
        let again = "{ to: TO, when: { path: result.more, value: true } }, { to: met }";
        let node = |name: &str, branch: &str, note: &str| {
            let (failed, gate) = match self.returns {
                true => (format!("on_error: {name}f, "), format!("    {name}f: {{ type: gate, next: short }}\n")),
                false => (String::new(), String::new()),
            };
            format!(
                "    {name}: {{ action: {{ item_id: t/call, params: {{ branch: {branch}, at: \"${{visit.number}}\" }} }}, \
                 assign: {{ seen: {note} }}, {failed}next: [{}] }}\n{gate}",
                again.replace("TO", name)
            )
        };
        let (next, nodes, of) = if self.is_list {
            let next = r#"{ over: "${inputs.list}", as: one, to: work }"#.to_owned();
            (next, node("work", "\"${one}\"", "\"${one}\""), "work".to_owned())
        } else {
            let names: Vec<String> = (0..self.branches.len()).map(|at| format!("b{at}")).collect();
            let edges: Vec<String> = names.iter().map(|name| format!("{{ to: {name} }}")).collect();
            let nodes = names.iter().enumerate().map(|(at, name)| node(name, &at.to_string(), &at.to_string()));
            (format!("{{ all: [{}] }}", edges.join(", ")), nodes.collect(), names.join(", "))
        };
        // A list begins with the first value of `rounds`: nothing writes beside a return.
        let (state, ends) = match self.returns {
            true => {
                let failed: Vec<String> = of.split(", ").map(|name| format!("{name}f")).collect();
                let ends = format!(
                    "    met: {{ type: return, cancels: true, output: {{ rounds: [enough] }} }}\n    \
                     short: {{ type: return, waits_for: [{}], output: {{ rounds: [short] }} }}\n",
                    failed.join(", ")
                );
                ("channels: { seen: append }".to_owned(), ends)
            }
            false => {
                let ends = format!(
                    "    met: {{ type: gate, waits_for: {{ of: [{of}], need: {need}, rest: {rest}, fewer: short }}, assign: {{ \
                     rounds: enough }}, next: after }}\n    short: {{ type: gate, assign: {{ rounds: short }}, next: after }}\n    \
                     after: {{ type: gate, next: [{{ to: split, when: {{ path: visit.number, op: lt, value: {rounds} }} }}, \
                     {last}] }}\n{done}"
                );
                ("channels: { seen: append, rounds: append }".to_owned(), ends)
            }
        };
        format!(
            r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
permissions: [rye.execute.tool.*]
config_schema: {{ type: object, properties: {{ list: {{ type: array, items: {{ type: integer }} }} }} }}
config:
  start: split
  max_steps: 1000
  max_concurrency: {width}
  {state}
  nodes:
    split: {{ type: gate, next: {next} }}
{nodes}{ends}"#
        )
    }

    /// Returns what the rounds came to, as the end of a run says it.
    fn rounds<'e>(&self, end: &'e Value) -> &'e Value {
        if self.returns || self.finishes { &end["output"]["rounds"] } else { &end["state"]["rounds"] }
    }

    /// Follows a run whose late branches run on, step by step.
    fn follow(&self) -> Followed {
        let mut followed = Followed::default();
        let able = self.able().len() >= self.need;
        let (mut main, mut round) = (Some("split"), 0);
        // The branches that are active, each with its round and its next call, and the round that is not decided.
        let mut active: Vec<(usize, usize, usize)> = Vec::new();
        let mut open: Option<(usize, usize)> = None;
        while main.is_some() || !active.is_empty() {
            if main == Some("done") && !active.is_empty() {
                main = None;
                followed.waits = true;
            }
            active.sort_unstable();
            followed.steps.push(main.iter().map(|node| ((*node).to_owned(), false)).collect());
            let step = followed.steps.last_mut().unwrap();
            let mut slowest = 0;
            let before = std::mem::take(&mut active);
            followed.most_active = followed.most_active.max(before.len());
            for (branch, of, at) in before {
                let (delay, succeeds) = self.branches[branch][at];
                slowest = slowest.max(delay);
                let is_late = open.is_none_or(|(open, _)| open != of);
                step.push((if self.is_list { "work".to_owned() } else { format!("b{branch}") }, is_late));
                if !succeeds {
                    followed.failed += 1;
                    continue;
                }
                followed.seen.push(json!(branch));
                if at + 1 < self.branches[branch].len() {
                    active.push((branch, of, at + 1));
                } else if let Some((_, arrived)) = open.as_mut().filter(|(open, _)| *open == of) {
                    *arrived += 1;
                }
            }
            followed.took += slowest;
            main = match main {
                Some("split") => {
                    round += 1;
                    active.extend((0..self.branches.len()).map(|branch| (branch, round, 0)));
                    open = Some((round, 0));
                    None
                }
                Some("met" | "short") => Some("after"),
                Some("after") => Some(if round < self.rounds { "split" } else { "done" }),
                Some(_) => break,
                None if open.is_none() && followed.waits && active.is_empty() => Some("done"),
                None => None,
            };
            if let Some((of, arrived)) = open {
                let left = active.iter().filter(|(_, round, _)| *round == of).count();
                if arrived >= self.need || arrived + left < self.need {
                    assert_eq!(arrived >= self.need, able);
                    main = Some(if able { "met" } else { "short" });
                    open = None;
                }
            }
        }
        followed
    }

    /// Returns the branches that arrive if none is cancelled.
    fn able(&self) -> BTreeSet<usize> {
        let arrives = |calls: &Calls| calls.iter().all(|(_, succeeds)| *succeeds);
        (0..self.branches.len()).filter(|&branch| arrives(&self.branches[branch])).collect()
    }
}

/// A run whose late branches run on.
#[derive(Debug, Default)]
struct Followed {
    /// The visits of each step: their nodes, and whether their branches are late.
    steps: Vec<Vec<(String, bool)>>,
    seen: Vec<Value>,
    /// How many calls fail.
    failed: usize,
    /// How long it takes if all calls of a step are made at the same time.
    took: u64,
    most_active: usize,
    /// Whether the return waits for late branches.
    waits: bool,
}

/// Checks a whole run of a race whose late branches run on, and its journal.
fn judge_finished(race: &Race, graph: &Interpreted, log: &Log, whole: &Whole, what: &str) {
    let (followed, Whole { end, took }) = (race.follow(), whole);
    let steps: Vec<Vec<(String, bool)>> =
        visits(log).iter().map(|step| step.iter().map(|visit| (visit.node.clone(), visit.late)).collect()).collect();
    assert_eq!(steps, followed.steps, "{what}");
    assert_eq!(end["output"]["seen"], Value::Array(followed.seen), "{what}: {end}");
    let errors = end["errors"].as_array().map_or(0, Vec::len);
    assert_eq!(errors, followed.failed, "{what}: {end}");
    if followed.most_active <= race.width {
        assert_eq!(took.as_millis(), u128::from(followed.took), "{what}");
    }
    is_proven(graph, log, what);
}

/// The tools of a race, which note the calls that begin.
#[derive(Clone, Default)]
struct Track(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    branches: Vec<Calls>,
    /// The numbers of the visits whose calls began.
    begun: Vec<u64>,
}

impl Tools for Track {
    fn perform<'a>(&'a self, call: &'a Call, _: &'a TypedTool, params: Map<String, Value>) -> ToolFuture<'a> {
        let number = |name: &str| usize::try_from(params[name].as_u64().unwrap()).unwrap();
        let (branch, at) = (number("branch"), number("at") - 1);
        let (delay, succeeds, count) = {
            let mut state = self.0.lock().unwrap();
            state.begun.push(call.step());
            let calls = &state.branches[branch];
            (calls[at].0, calls[at].1, calls.len())
        };
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(delay)).await;
            if !succeeds {
                return Err(ActionError::permanent("it fails"));
            }
            Ok(json!({"more": at + 1 < count}))
        })
    }
}

fn graph(
    library: &Library,
    directory: &std::path::Path,
    secret: &graph_signing::SecretKey,
    number: u64,
    race: &Race,
) -> Interpreted {
    let path = directory.join(format!("race{number}.yaml"));
    fs::write(&path, sign(ItemKind::YAML, &race.text(), secret, SystemTime::UNIX_EPOCH).unwrap()).unwrap();
    library.graph(&path).map_err(|error| format!("{error}\n{}", race.text())).unwrap()
}

fn entry(body: &str) -> Entry {
    serde_json::from_str::<Record>(body).unwrap().entry
}

fn visits(log: &Log) -> Vec<Vec<Visit>> {
    let step = |body: &String| match entry(body) {
        Entry::Step(step) => Some(step.visits),
        _ => None,
    };
    log.bodies().iter().filter_map(step).collect()
}

/// Checks a whole run of a race, and its journal.
fn judge(race: &Race, graph: &Interpreted, log: &Log, end: &Value, what: &str) {
    let is_met = race.able().len() >= race.need;
    let word = if is_met { "enough" } else { "short" };
    assert_eq!(*race.rounds(end), json!(vec![word; race.rounds]), "{what}: {end}");
    let steps = visits(log);
    // The writes of a round are those of the visits that were not cancelled, in the order of the branches.
    let mut seen = Vec::new();
    let (mut arrived, mut rounds, mut cancelled) = (BTreeSet::new(), 0, 0);
    for step in &steps {
        for visit in step {
            // A return that cancels is visited in its branch.
            let inside = visit.branch.first().filter(|_| visit.node != "met");
            let Some(&branch) = inside else {
                if visit.node == "met" {
                    assert!(arrived.len() >= race.need, "{what}: only {arrived:?} arrived");
                    assert!(arrived.is_subset(&race.able()), "{what}: {arrived:?} arrived");
                }
                if visit.node == "met" || visit.node == "short" {
                    (arrived, rounds) = (BTreeSet::new(), rounds + 1);
                }
                continue;
            };
            let branch = usize::try_from(branch).unwrap();
            cancelled += usize::from(visit.cancelled);
            if visit.cancelled || visit.error.is_some() {
                assert!(visit.changes.is_empty() && visit.edges.is_empty(), "{what}: {visit:?}");
                continue;
            }
            if visit.node.ends_with('f') {
                continue;
            }
            seen.push(json!(branch));
            if visit.result["more"] == json!(false) {
                arrived.insert(branch);
            }
        }
    }
    assert_eq!(rounds, race.rounds, "{what}");
    assert_eq!(end["state"]["seen"], Value::Array(seen), "{what}");
    let all = steps.iter().flatten().filter(|visit| visit.cancelled).count();
    assert_eq!(cancelled, all, "{what}: only visits in branches are cancelled");
    is_proven(graph, log, what);
}

/// Checks that the journal of a run is proven, and that a replay is equal.
fn is_proven(graph: &Interpreted, log: &Log, what: &str) {
    let records: Vec<_> = log.entered().into_iter().map(|entered| entered.signed).collect();
    let audited = audit(graph, &run_id(), &records, &key().public(), None);
    assert!(audited.is_ok(), "{what}: {audited:?}");
    let Replay { deviations, stopped, .. } = replay(graph, graph, &run_id(), &records, &key().public(), None).unwrap();
    assert!(deviations.is_empty() && stopped.is_none(), "{what}: {deviations:?} {stopped:?}");
}

/// Returns how long a round takes whose step ends as soon as the quorum is decided, if all branches make one call and all
/// calls run at the same time.
fn duration(race: &Race) -> Option<u64> {
    if race.finishes || race.width < race.branches.len() || race.branches.iter().any(|calls| calls.len() > 1) {
        return None;
    }
    let mut calls: Vec<(u64, bool)> = race.branches.iter().flatten().copied().collect();
    calls.sort_unstable();
    let (mut arrived, mut possible) = (0, calls.len());
    if possible < race.need {
        return Some(0);
    }
    for (delay, succeeds) in calls {
        if succeeds {
            arrived += 1;
        }
        possible -= 1;
        // The gate behind a failure is visited when the last call is done.
        if arrived >= race.need || (arrived + possible < race.need && (!race.returns || possible == 0)) {
            return Some(delay);
        }
    }
    None
}

#[test]
fn races_have_the_same_outcome_in_every_order_and_after_every_crash() {
    let (races, seed) = (number("RACES", 150), number("SEED", 1));
    let (directory, secret) = tree();
    let track = Track::default();
    let library = Library::open(directory.path(), track.clone());
    let (mut met, mut short, mut with_cancelled, mut late, mut timed, mut cuts) = (0, 0, 0, 0, 0, 0);
    for at in 0..races {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(at));
        let race = Race::random(&mut random);
        let what = format!("race {at} of seed {seed}: {race:?}");
        let graph = graph(&library, directory.path(), &secret, at, &race);
        let reset = || *track.0.lock().unwrap() = State { branches: race.branches.clone(), ..State::default() };
        let list: Vec<Value> = (0..race.branches.len()).map(Value::from).collect();
        let inputs = Map::from_iter([("list".to_owned(), Value::from(list))]);
        let log = Log::default();
        reset();
        let whole = play(graph.clone(), inputs, Some(&log));
        if race.finishes {
            judge_finished(&race, &graph, &log, &whole, &what);
            late += usize::from(visits(&log).iter().flatten().any(|visit| visit.late));
        } else {
            judge(&race, &graph, &log, &whole.end, &what);
        }
        let Whole { end: whole, took } = whole;
        if let Some(each) = duration(&race) {
            let expected = Duration::from_millis(each) * u32::try_from(race.rounds).unwrap();
            assert_eq!(took.as_millis(), expected.as_millis(), "{what}");
            timed += 1;
        }
        if race.able().len() >= race.need {
            met += 1;
        } else {
            short += 1;
        }
        with_cancelled += usize::from(visits(&log).iter().flatten().any(|visit| visit.cancelled));
        // After a crash behind any record, the run continues from the journal.
        let records = log.entered();
        for length in log.ends() {
            reset();
            let end =
                play_again(graph.clone(), &log, length).unwrap_or_else(|error| panic!("{what}: cut {length}: {error}"));
            let word = if race.able().len() >= race.need { "enough" } else { "short" };
            assert_eq!(*race.rounds(&end), json!(vec![word; race.rounds]), "{what}: cut {length}");
            if race.finishes {
                assert_eq!(end["output"], whole["output"], "{what}: cut {length}");
            }
            let begun = track.0.lock().unwrap().begun.clone();
            for entered in &records[..length] {
                if let Entry::Calls(calls) = entry(&entered.signed.body) {
                    let again = calls.done.iter().find(|done| begun.contains(&done.step));
                    assert!(again.is_none(), "{what}: cut {length}: made again: {again:?}");
                }
            }
            cuts += 1;
        }
    }
    println!(
        "{met} met, {short} short, {with_cancelled} with cancelled visits, {late} with late ones, {timed} timed, {cuts} cuts"
    );
    let many = |count: usize| count * 8 > usize::try_from(races).unwrap();
    assert!(met > 0 && short > 0 && many(with_cancelled) && many(late) && timed > 0);
}
