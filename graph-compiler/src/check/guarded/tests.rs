//! The rule against a judge that plays every run of random graphs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;

use graph_definition::definition;
use graph_definition::diagnostic::{Diagnostics, code};
use graph_definition::source::SourceFile;
use graph_definition::tree;
use graph_definition::verify::DefinitionOrigin;
use graph_model::name::ItemId;

use crate::analysis::Analysis;
use crate::items::Items;

const KEYS: usize = 3;

#[derive(Debug, Clone)]
enum PlayedKind {
    /// Writes a key: the text of a tool, its number, a literal, or the value of another key.
    Write(usize, WrittenFrom),
    /// Shows some keys.
    Ask(Vec<usize>),
    /// The guarded call, with the value of a key.
    Pay(usize),
    Gate,
    /// Begins branches at all of its targets.
    Fan,
}

#[derive(Debug, Clone, Copy)]
enum WrittenFrom {
    Text,
    Number,
    Literal,
    Copy(usize),
}

#[derive(Debug, Clone)]
struct Node {
    kind: PlayedKind,
    /// The targets; without any, the run ends.
    next: Vec<usize>,
    /// The target of a failure, or of a time that is over.
    otherwise: Option<usize>,
    /// The nodes that it waits for.
    waits_for: Vec<usize>,
}

struct GuardedGraphs(u64);

impl GuardedGraphs {
    fn of(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        random.below(1);
        random
    }

    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % most.max(1)
    }

    fn kind(&mut self) -> PlayedKind {
        let key = self.below(KEYS);
        match self.below(10) {
            0 | 1 => PlayedKind::Write(key, WrittenFrom::Text),
            2 => PlayedKind::Write(key, WrittenFrom::Number),
            3 => PlayedKind::Write(key, WrittenFrom::Literal),
            4 => PlayedKind::Write(key, WrittenFrom::Copy(self.below(KEYS))),
            5 | 6 => PlayedKind::Ask((0..KEYS).filter(|_| self.below(2) == 0).collect()),
            7 | 8 => PlayedKind::Pay(key),
            _ => PlayedKind::Gate,
        }
    }

    /// A graph without branches, with any edges.
    fn graph(&mut self) -> Vec<Node> {
        let count = 3 + self.below(6);
        let node = |at: usize, random: &mut Self| {
            let onward = Some(at + 1).filter(|&next| next < count && random.below(5) > 0);
            let other = Some(random.below(count)).filter(|_| random.below(2) == 0);
            let next = onward.into_iter().chain(other).collect();
            let kind = random.kind();
            let may_fail = !matches!(kind, PlayedKind::Gate);
            let otherwise = Some(random.below(count)).filter(|_| may_fail && random.below(3) == 0);
            Node { kind, next, otherwise, waits_for: Vec::new() }
        };
        (0..count).map(|at| node(at, self)).collect()
    }

    /// A graph with two branches, and nodes before and behind them.
    fn branches(&mut self) -> Vec<Node> {
        let lengths: Vec<usize> = [self.below(3), 1 + self.below(3), 1 + self.below(3), 1 + self.below(2)].to_vec();
        let fan = lengths[0];
        let starts: Vec<usize> = (0..4).map(|at| lengths[..at].iter().sum::<usize>() + usize::from(at > 0)).collect();
        let (mut nodes, join) = (Vec::new(), starts[3]);
        for part in 0..4 {
            if part == 1 {
                nodes.push(Node {
                    kind: PlayedKind::Fan,
                    next: vec![starts[1], starts[2]],
                    otherwise: None,
                    waits_for: Vec::new(),
                });
            }
            for at in 0..lengths[part] {
                let here = starts[part] + at;
                let is_last = at + 1 == lengths[part];
                let after = match part {
                    0 => fan.min(here + 1),
                    1 | 2 if is_last => join,
                    _ => here + 1,
                };
                let kind = if part == 3 && at == 0 { PlayedKind::Gate } else { self.kind() };
                let mut next = if part == 3 && is_last { Vec::new() } else { vec![after] };
                let refused = if part == 1 || part == 2 { join } else { join + lengths[3] - 1 };
                let is_ask = matches!(kind, PlayedKind::Ask(_));
                if is_ask && !next.is_empty() && part != 0 && refused != here {
                    next.push(refused);
                }
                nodes.push(Node { kind, next, otherwise: None, waits_for: Vec::new() });
            }
        }
        let leads: Vec<usize> =
            (0..nodes.len()).filter(|&node| node != fan && nodes[node].next.contains(&join)).collect();
        nodes[join].waits_for = leads;
        nodes
    }
}

fn written(nodes: &[Node]) -> String {
    let mut text = "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\n\
                    permissions: [\"rye.execute.tool.*\"]\n\
                    config_schema: { type: object, properties: { b: { type: boolean } } }\nconfig:\n  start: n0\n  on_no_match: return\n  state: { k0: '', k1: '', k2: '' }\n  nodes:\n"
        .to_owned();
    for (at, node) in nodes.iter().enumerate() {
        let call = |tool: &str, params: &str| format!("action: {{ item_id: {tool}, params: {{ {params} }} }}");
        let body = match &node.kind {
            PlayedKind::Write(key, WrittenFrom::Text) => {
                format!("{}, assign: {{ k{key}: \"${{result.text}}\" }}", call("t/get", ""))
            }
            PlayedKind::Write(key, WrittenFrom::Number) => {
                format!("{}, assign: {{ k{key}: \"${{result.number}}\" }}", call("t/get", ""))
            }
            PlayedKind::Write(key, WrittenFrom::Literal) => {
                format!("{}, assign: {{ k{key}: literal }}", call("t/get", ""))
            }
            PlayedKind::Write(key, WrittenFrom::Copy(from)) => {
                format!("{}, assign: {{ k{key}: \"${{state.k{from}}}\" }}", call("t/get", ""))
            }
            PlayedKind::Ask(keys) => {
                let shown: Vec<String> = keys.iter().map(|key| format!("k{key}: \"${{state.k{key}}}\"")).collect();
                format!("type: interrupt, payload: {{ {} }}, result_schema: {{ type: boolean }}", shown.join(", "))
            }
            PlayedKind::Pay(key) => call("t/pay", &format!("note: \"${{state.k{key}}}\"")),
            PlayedKind::Gate | PlayedKind::Fan => "type: gate".to_owned(),
        };
        let edge = |(index, to): (usize, &usize)| match (&node.kind, index) {
            (PlayedKind::Fan, _) | (_, 1) => format!("{{ to: n{to} }}"),
            (PlayedKind::Ask(_), _) if node.next.len() == 2 => {
                format!("{{ to: n{to}, when: {{ path: result, value: true }} }}")
            }
            _ if node.next.len() == 2 => format!("{{ to: n{to}, when: {{ path: inputs.b, value: true }} }}"),
            _ => format!("{{ to: n{to} }}"),
        };
        let edges: Vec<String> = node.next.iter().enumerate().map(edge).collect();
        let next = match (&node.kind, node.next.as_slice()) {
            (_, []) => String::new(),
            (PlayedKind::Fan, _) => format!(", next: {{ all: [{}] }}", edges.join(", ")),
            _ => format!(", next: [{}]", edges.join(", ")),
        };
        let otherwise = match (&node.kind, node.otherwise) {
            (_, None) => String::new(),
            (PlayedKind::Ask(_), Some(to)) => format!(", timeout: 1d, on_timeout: n{to}"),
            (_, Some(to)) => format!(", on_error: n{to}"),
        };
        let waits: Vec<String> = node.waits_for.iter().map(|from| format!("n{from}")).collect();
        let waits = if waits.is_empty() { String::new() } else { format!(", waits_for: [{}]", waits.join(", ")) };
        writeln!(text, "    n{at}: {{ {body}{next}{otherwise}{waits} }}").unwrap();
    }
    text
}

fn items() -> Items {
    let contract = |id: &str, rest: &str| {
        let text = format!("version: \"1.0.0\"\ntool_type: rust\n{rest}");
        let (id, source) = (ItemId::new(id).unwrap(), SourceFile::new(id, id, &text));
        let contract = definition::parse_trusted_contract(&source, &id, &mut Diagnostics::new()).unwrap();
        (id, Arc::new(contract))
    };
    let get = "config_schema: { type: object }\nresult_schema: { type: object, properties: { text: { type: string }, \
               number: { type: integer } }, required: [text, number] }\n";
    let pay = "x-guarded: true\nconfig_schema: { type: object, properties: { note: {} } }\n";
    Items { contracts: [contract("t/get", get), contract("t/pay", pay)].into_iter().collect(), ..Items::default() }
}

/// Returns how often the rule reports an error, and whether other rules would refuse the branches.
fn verdict(text: &str, items: &Items) -> Option<usize> {
    let source = SourceFile::new("g.yaml", "g.yaml", text);
    let mut diagnostics = Diagnostics::new();
    let yaml = tree::parse(&source, &mut diagnostics).unwrap();
    let definition = definition::parse(DefinitionOrigin::Draft(Arc::clone(&source)), &yaml, &mut diagnostics);
    assert!(!diagnostics.has_errors(), "{text}\n{diagnostics:?}");
    let definition = definition.unwrap();
    let analysis = Analysis::new(&definition, items);
    if !analysis.flow.branches().faults().is_empty() {
        return None;
    }
    super::check(&analysis, &mut diagnostics);
    let is_own =
        |one: &&graph_definition::diagnostic::Diagnostic| [code::UNAPPROVED, code::REWRITTEN].contains(&one.code);
    Some(diagnostics.iter().filter(is_own).count())
}

/// A value in a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct PlayedValue {
    is_foreign: bool,
    /// Whether it was written after an interrupt had shown its key.
    is_late: bool,
    /// The interrupts that approved it, the latest last.
    approved: Vec<usize>,
}

/// A visit: its node, and the shown keys that changed since if it waits for an answer.
type PlayedVisit = (usize, Option<BTreeSet<usize>>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PlayedRun {
    keys: Vec<PlayedValue>,
    shown: BTreeSet<usize>,
    tokens: Vec<PlayedVisit>,
    /// How many branches have come to each join.
    arrived: BTreeMap<usize, usize>,
}

/// Returns the interrupts that decide about a call with the value of a key: one of their edges leads to it only by another of them. They
/// show the key, or have approved the value before it was copied.
fn deciding(nodes: &[Node], call: usize, key: usize, value: &PlayedValue) -> BTreeSet<usize> {
    let shows = |at: &usize| matches!(&nodes[*at].kind, PlayedKind::Ask(keys) if keys.contains(&key));
    let mut deciding: BTreeSet<usize> = (0..nodes.len()).filter(shows).chain(value.approved.iter().copied()).collect();
    loop {
        let decides = |ask: &usize| {
            let next = &nodes[*ask].next;
            next.is_empty() || next.iter().any(|&next| !leads(nodes, next, call, Some(*ask), &deciding))
        };
        let fewer: BTreeSet<usize> = deciding.iter().copied().filter(decides).collect();
        if fewer.len() == deciding.len() {
            return deciding;
        }
        deciding = fewer;
    }
}

/// Whether a path leads from one node to another, without a third one, and without an answer to some interrupts.
fn leads(nodes: &[Node], from: usize, to: usize, without: Option<usize>, unanswered: &BTreeSet<usize>) -> bool {
    let (mut seen, mut open) = (without.into_iter().collect::<BTreeSet<usize>>(), vec![from]);
    while let Some(node) = open.pop() {
        if seen.insert(node) {
            open.extend(&nodes[node].otherwise);
            if !unanswered.contains(&node) {
                open.extend(&nodes[node].next);
            }
        }
    }
    Some(to) != without && seen.contains(&to)
}

/// Whether a run makes a guarded call that nobody approved; or also one with a value that changed after it was shown.
fn goes_wrong(nodes: &[Node], with_late: bool) -> bool {
    let first = PlayedRun {
        keys: vec![PlayedValue::default(); KEYS],
        shown: BTreeSet::new(),
        tokens: vec![(0, None)],
        arrived: BTreeMap::new(),
    };
    let (mut seen, mut open) = (BTreeSet::from([first.clone()]), VecDeque::from([first]));
    while let Some(run) = open.pop_front() {
        for (at, (node, waits)) in run.tokens.iter().enumerate() {
            let (here, mut after) = (&nodes[*node], run.clone());
            after.tokens.remove(at);
            let (mut done, mut failed) = (Vec::new(), Vec::new());
            match (&here.kind, waits) {
                (PlayedKind::Ask(keys), None) => {
                    after.shown.extend(keys);
                    after.tokens.push((*node, Some(BTreeSet::new())));
                    after.tokens.sort();
                    if seen.insert(after.clone()) {
                        open.push_back(after);
                    }
                    continue;
                }
                (PlayedKind::Ask(keys), Some(changed)) => {
                    failed.push(after.clone());
                    for &key in keys.iter().filter(|key| !changed.contains(key)) {
                        let approved = &mut after.keys[key].approved;
                        approved.retain(|ask| ask != node);
                        approved.push(*node);
                    }
                    done.push(after);
                }
                (PlayedKind::Write(key, origin), _) => {
                    failed.push(after.clone());
                    let mut value = match origin {
                        WrittenFrom::Text => PlayedValue { is_foreign: true, ..PlayedValue::default() },
                        WrittenFrom::Number | WrittenFrom::Literal => PlayedValue::default(),
                        WrittenFrom::Copy(from) => after.keys[*from].clone(),
                    };
                    if with_late && after.shown.contains(key) {
                        // Somebody has seen another value in its place.
                        value.is_late = true;
                        value.approved.clear();
                    }
                    after.keys[*key] = value;
                    for (_, changed) in &mut after.tokens {
                        changed.iter_mut().for_each(|changed| {
                            changed.insert(*key);
                        });
                    }
                    done.push(after);
                }
                (PlayedKind::Pay(key), _) => {
                    let value = &after.keys[*key];
                    let deciding = deciding(nodes, *node, *key, value);
                    let approval = value.approved.iter().rev().find(|ask| deciding.contains(ask)).copied();
                    if value.is_foreign || value.is_late {
                        let Some(used) = approval else { return true };
                        after.keys.iter_mut().for_each(|value| value.approved.retain(|ask| *ask != used));
                    }
                    // A call that fails may have done what it does.
                    failed.push(after.clone());
                    done.push(after);
                }
                (PlayedKind::Gate | PlayedKind::Fan, _) => done.push(after),
            }
            let go = |mut run: PlayedRun, targets: &[usize]| {
                for &to in targets {
                    let need = if nodes[to].waits_for.is_empty() { 0 } else { 2 };
                    let arrived = run.arrived.entry(to).or_default();
                    *arrived += 1;
                    if need == 0 || *arrived == need {
                        run.arrived.remove(&to);
                        run.tokens.push((to, None));
                    }
                }
                run.tokens.sort();
                run
            };
            let mut next: Vec<PlayedRun> = Vec::new();
            for run in done {
                match here.kind {
                    PlayedKind::Fan => next.push(go(run, &here.next)),
                    _ => next.extend(here.next.iter().map(|&to| go(run.clone(), &[to]))),
                }
            }
            next.extend(failed.into_iter().flat_map(|run| here.otherwise.map(|to| go(run, &[to]))));
            open.extend(next.into_iter().filter(|run| seen.insert(run.clone())));
        }
    }
    false
}

#[test]
fn a_graph_is_refused_if_a_run_goes_wrong_and_nearly_never_otherwise() {
    // `GRAPHS=100000` makes more of them.
    let graphs: u64 = std::env::var("GRAPHS").map_or(3_000, |graphs| graphs.parse().unwrap());
    let (items, mut wrong, mut fine, mut too_strict) = (items(), 0, 0, 0);
    for seed in 1..=graphs {
        let nodes = GuardedGraphs::of(seed).graph();
        let text = written(&nodes);
        if (0..nodes.len()).any(|node| !leads(&nodes, 0, node, None, &BTreeSet::new())) {
            continue;
        }
        let refused = verdict(&text, &items).unwrap() > 0;
        let goes_wrong = goes_wrong(&nodes, true);
        assert!(refused || !goes_wrong, "seed {seed}:\n{text}");
        let pays = nodes.iter().any(|node| matches!(node.kind, PlayedKind::Pay(_)));
        (wrong, fine) = (wrong + usize::from(goes_wrong), fine + usize::from(!refused && pays));
        if refused && !goes_wrong {
            too_strict += 1;
            if std::env::var_os("SHOW").is_some() {
                println!("seed {seed} is refused, and does not go wrong:\n{text}");
            }
        }
    }
    println!(
        "{wrong} graphs go wrong, {fine} with guarded calls do not; {too_strict} are refused that do not go wrong"
    );
    // The rule counts an approval as used if a call uses it on any path.
    assert!(too_strict * 50 <= fine, "{too_strict} of {fine}");
    assert!(
        wrong * 10 > usize::try_from(graphs).unwrap() && fine * 10 > usize::try_from(graphs).unwrap(),
        "{wrong} {fine}"
    );
}

#[test]
fn no_order_of_branches_makes_a_guarded_call_that_nobody_approved() {
    let graphs: u64 = std::env::var("GRAPHS").map_or(2_000, |graphs| graphs.parse().unwrap());
    let (items, mut wrong, mut fine, mut too_strict) = (items(), 0, 0, 0);
    for seed in 1..=graphs {
        let nodes = GuardedGraphs::of(seed).branches();
        let text = written(&nodes);
        let Some(found) = verdict(&text, &items) else { continue };
        let goes_wrong = goes_wrong(&nodes, false);
        assert!(found > 0 || !goes_wrong, "seed {seed}:\n{text}");
        wrong += usize::from(goes_wrong);
        fine += usize::from(found == 0 && nodes.iter().any(|node| matches!(node.kind, PlayedKind::Pay(_))));
        too_strict += usize::from(found > 0 && !goes_wrong);
    }
    println!(
        "{wrong} graphs go wrong, {fine} with guarded calls do not; {too_strict} are refused that do not go wrong"
    );
    assert!(
        wrong * 10 > usize::try_from(graphs).unwrap() && fine * 20 > usize::try_from(graphs).unwrap(),
        "{wrong} {fine}"
    );
}
