//! Random graphs, whose faults are compared with all that the engine's own steps can do.
//!
//! The judge lets one activation move at a time, in every order and with every outcome, so it sees what any timing of branches
//! can lead to. `GRAPHS=1000000 SEED=7` sets the number of graphs and the seed.

mod mistakes;
mod playing;

use std::collections::{BTreeSet, HashSet};
use std::env;
use std::fmt::Write as _;
use std::sync::Arc;

use graph_definition::definition::{self, Definition};
use graph_definition::diagnostic::Diagnostics;
use graph_definition::source::SourceFile;
use graph_definition::tree;
use graph_definition::verify::DefinitionOrigin;
use graph_definition::vocabulary;
use graph_engine::activation::{Activation, Fan, Frame, TakenEdges, frames};
use graph_engine::graph::{CompiledGraph, GraphTables, tables};
use graph_engine::step::{Position, SettledVisit, Way, fold};
use graph_model::program::{self, EntryPoint, Executor, ItemType, OnBranchError, Program, Verb};
use graph_model::value::{Value, View};

use super::super::budget::too_few;
use super::super::joins::{Joins, NodeJoin};
use super::super::model::Model;
use super::Branches;
use super::{BranchFrame, BranchLabel};
use crate::items::Items;

/// Where a node of a random graph leads.
#[derive(Debug, Clone)]
enum Leads {
    Return,
    /// To one of these; whether one of them is always followed.
    First(Vec<usize>, bool),
    /// To all of these whose conditions hold, each with whether it has none.
    All(Vec<(usize, bool)>),
    Over(usize),
    /// The run begins in all of these. Only the last node of a plan is a start; without one, a run begins at the first node.
    Start(Vec<usize>),
}

#[derive(Debug, Clone)]
struct NodePlan {
    leads: Leads,
    handler: Option<usize>,
    waits: bool,
    /// Whether it calls a tool, which may fail.
    calls: bool,
    /// The reaction to a failure in its branches, if it begins branches.
    on_branch_error: Option<OnBranchError>,
    /// How many branches it waits for, if not for all, and the node that is visited instead if fewer can arrive.
    quorum: Option<(u32, Option<usize>)>,
    /// Whether the branches run on that its quorum does not need.
    finishes: bool,
    /// Whether it is a return that cancels everything else that is active.
    cancels: bool,
}

impl NodePlan {
    fn new(leads: Leads, waits: bool) -> Self {
        let (handler, quorum, on_branch_error) = (None, None, None);
        Self { leads, handler, waits, calls: false, on_branch_error, quorum, finishes: false, cancels: false }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }
}

/// Makes a graph of any shape.
fn any_graph(random: &mut Random) -> Vec<NodePlan> {
    let count = 2 + random.below(7);
    let mut node = || {
        let distinct = |random: &mut Random, most: usize| {
            let mut targets: Vec<usize> = (0..1 + random.below(most)).map(|_| random.below(count)).collect();
            targets.sort_unstable();
            targets.dedup();
            targets
        };
        let leads = match random.below(10) {
            0 | 1 => Leads::Return,
            2 => Leads::First(Vec::new(), false),
            3 => Leads::Over(random.below(count)),
            4..=6 => Leads::All(distinct(random, 3).into_iter().map(|to| (to, random.below(2) == 0)).collect()),
            _ => Leads::First(distinct(random, 2), random.below(3) > 0),
        };
        let handler = (random.below(8) == 0).then(|| random.below(count));
        let handler = handler.filter(|_| !matches!(leads, Leads::Return));
        NodePlan { handler, ..NodePlan::new(leads, random.below(3) == 0) }
    };
    let mut nodes: Vec<NodePlan> = (0..count).map(|_| node()).collect();
    if random.below(5) == 0 {
        let mut first = vec![random.below(count), random.below(count), random.below(count)];
        first.sort_unstable();
        first.dedup();
        if first.len() > 1 {
            nodes.push(NodePlan::new(Leads::Start(first), false));
        }
    }
    nodes
}

/// Lets a run begin in the nodes that the first one fans out to, instead of at the first one.
fn start_in_branches(random: &mut Random, nodes: &mut Vec<NodePlan>) {
    let Leads::All(branches) = &nodes[0].leads else { return };
    let first: Vec<usize> = branches.iter().map(|(to, _)| *to).collect();
    let is_led_to = nodes.iter().any(|node| targets(node).contains(&0));
    if first.len() > 1 && !is_led_to && !first.iter().any(|&to| nodes[to].waits) && random.below(2) == 0 {
        nodes[0] = NodePlan::new(Leads::Return, false);
        nodes.push(NodePlan::new(Leads::Start(first), false));
    }
}

/// Returns how a graph says what a failure in a branch does.
fn word(on_branch_error: OnBranchError) -> &'static str {
    let words = vocabulary::ON_BRANCH_ERROR;
    words.iter().find(|(_, on)| *on == on_branch_error).map(|(word, _)| *word).unwrap()
}

/// Whether a fan-out needs each of its branches.
fn needs_all(on_branch_error: OnBranchError) -> bool {
    on_branch_error != OnBranchError::Collect
}

/// Lets some nodes fail, and some fan-outs say what a failure in their branches does.
fn let_fail(random: &mut Random, nodes: &mut [NodePlan]) {
    if random.below(2) == 0 {
        return;
    }
    for node in nodes {
        node.calls = random.below(3) == 0 && !matches!(node.leads, Leads::Return | Leads::Start(_));
        if matches!(node.leads, Leads::All(_) | Leads::Over(_)) {
            let all = [None, Some(OnBranchError::Collect), Some(OnBranchError::Finish), Some(OnBranchError::Stop)];
            node.on_branch_error = all[random.below(all.len())];
        }
    }
}

/// Gives some joins a quorum.
fn let_race(random: &mut Random, nodes: &mut [NodePlan]) {
    if random.below(3) > 0 {
        return;
    }
    let count = nodes.iter().filter(|node| !matches!(node.leads, Leads::Start(_))).count();
    for node in nodes.iter_mut().filter(|node| node.waits) {
        if random.below(3) > 0 {
            let need = 1 + random.below(3);
            let fewer = match (random.below(4), &node.leads) {
                (0, _) => None,
                (1 | 2, Leads::First(targets, _)) => targets.first().copied(),
                _ => Some(random.below(count)),
            };
            node.quorum = Some((u32::try_from(need).unwrap(), fewer));
            node.finishes = random.below(2) == 0;
        }
    }
}

/// Lets some returns cancel branches.
fn let_cancel(random: &mut Random, nodes: &mut Vec<NodePlan>) {
    if random.below(4) > 0 {
        return;
    }
    // Another return, to which any node may lead.
    if random.below(2) == 0 && !matches!(nodes.last().map(|node| &node.leads), Some(Leads::Start(_))) {
        let to = nodes.len();
        for node in nodes.iter_mut() {
            match &mut node.leads {
                Leads::First(targets, _) if random.below(4) == 0 => targets.insert(0, to),
                Leads::All(targets) if random.below(6) == 0 => targets.push((to, random.below(2) == 0)),
                Leads::Over(_) if random.below(4) == 0 => node.handler = Some(to),
                _ => {}
            }
        }
        nodes.push(NodePlan::new(Leads::Return, false));
    }
    for node in nodes.iter_mut().filter(|node| matches!(node.leads, Leads::Return)) {
        node.cancels = random.below(3) > 0;
    }
}

/// Makes a graph whose branches meet at joins, and then changes up to two edges of it.
fn formed_graph(random: &mut Random) -> Vec<NodePlan> {
    let mut nodes = vec![NodePlan::new(Leads::Return, false)];
    // The first node is the last of the run.
    let depth = 1 + random.below(2);
    let goes_round = random.below(3) == 0;
    if goes_round {
        nodes.push(NodePlan::new(Leads::First(vec![0], true), false));
    }
    let start = part(random, &mut nodes, depth, usize::from(goes_round));
    if goes_round {
        nodes[1].leads = Leads::First(vec![start, 0], true);
    }
    nodes.swap(0, start);
    let swap = |at: usize| {
        if at == 0 {
            start
        } else if at == start {
            0
        } else {
            at
        }
    };
    for node in &mut nodes {
        match &mut node.leads {
            Leads::Return | Leads::Start(_) => {}
            Leads::First(targets, _) => targets.iter_mut().for_each(|to| *to = swap(*to)),
            Leads::All(targets) => targets.iter_mut().for_each(|(to, _)| *to = swap(*to)),
            Leads::Over(to) => *to = swap(*to),
        }
        node.handler = node.handler.map(swap);
    }
    let count = nodes.len();
    start_in_branches(random, &mut nodes);
    for _ in 0..random.below(3) {
        let (at, to) = (random.below(count), random.below(count));
        match (random.below(5), &mut nodes[at].leads) {
            (0, Leads::First(targets, _)) if !targets.contains(&to) => targets.push(to),
            (0, Leads::All(targets)) if targets.iter().all(|(known, _)| *known != to) => targets.push((to, false)),
            (1, Leads::First(targets, _)) => targets.truncate(1),
            (2, _) => nodes[at].waits = !nodes[at].waits,
            (4, Leads::First(..) | Leads::All(_) | Leads::Over(_)) => nodes[at].handler = Some(to),
            (3, Leads::First(targets, is_closed)) => {
                *is_closed = !*is_closed;
                targets.sort_unstable();
            }
            _ => {}
        }
    }
    nodes
}

/// Makes a part that leads to `next`, and returns its first node.
fn part(random: &mut Random, nodes: &mut Vec<NodePlan>, depth: usize, next: usize) -> usize {
    // The join behind the one that the part leads to.
    let behind = match &nodes[next].leads {
        Leads::First(targets, _) => targets.iter().copied().find(|&to| nodes[to].waits).unwrap_or(next),
        _ => next,
    };
    let is_join = nodes[next].waits;
    let mut add = |leads: Leads, waits: bool| {
        nodes.push(NodePlan::new(leads, waits));
        nodes.len() - 1
    };
    match if depth == 0 { random.below(2) } else { 1 + random.below(6) } {
        // A branch may end.
        0 if random.below(8) == 0 => add(Leads::First(Vec::new(), false), false),
        0 => add(Leads::First(vec![next], true), false),
        1 => next,
        // A fan-out without a join of its own: its branches lead to the joins of the fan-out around it.
        6 if is_join => {
            let branches = [next, behind].map(|to| (add(Leads::First(vec![to], true), false), random.below(2) == 0));
            let fan = add(Leads::All(branches.to_vec()), false);
            if random.below(2) == 0 { fan } else { add(Leads::First(vec![next, fan], true), false) }
        }
        2 => {
            let second = part(random, nodes, depth - 1, next);
            part(random, nodes, depth - 1, second)
        }
        3 => {
            let join = add(Leads::First(vec![next], true), true);
            let first = part(random, nodes, depth - 1, join);
            nodes.push(NodePlan::new(Leads::Over(first), false));
            nodes.len() - 1
        }
        kind => {
            let join = add(Leads::First(vec![next], true), true);
            let partial = (kind == 5).then(|| add(Leads::First(vec![join], true), true));
            let mut branches = Vec::new();
            for at in 0..2 + random.below(2) {
                let first = part(random, nodes, depth - 1, partial.filter(|_| at < 2).unwrap_or(join));
                if branches.iter().all(|(known, _)| *known != first) {
                    branches.push((first, random.below(2) == 0));
                }
            }
            nodes.push(NodePlan::new(Leads::All(branches), false));
            nodes.len() - 1
        }
    }
}

fn targets(made: &NodePlan) -> Vec<usize> {
    let mut targets = match &made.leads {
        Leads::Return => Vec::new(),
        Leads::First(targets, _) | Leads::Start(targets) => targets.clone(),
        Leads::All(targets) => targets.iter().map(|(to, _)| *to).collect(),
        Leads::Over(to) => vec![*to],
    };
    targets.extend(made.handler);
    targets.extend(made.quorum.and_then(|(_, fewer)| fewer));
    targets
}

/// Writes a graph as its author would.
fn yaml(nodes: &[NodePlan]) -> String {
    let start = match nodes.last().map(|node| &node.leads) {
        Some(Leads::Start(first)) => first.iter().map(|to| format!("n{to}")).collect::<Vec<_>>().join(", "),
        _ => "n0".to_owned(),
    };
    let mut text = format!(
        "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\ncategory: test\n\
         config:\n  start: [{start}]\n  nodes:\n"
    );
    for (at, made) in nodes.iter().enumerate().filter(|(_, made)| !matches!(made.leads, Leads::Start(_))) {
        let kind = match (&made.leads, made.handler) {
            (Leads::Return, _) if made.cancels => "type: return, cancels: true",
            (Leads::Return, _) => "type: return",
            (_, Some(_)) => "action: { item_id: test/tool }",
            _ if made.calls => "action: { item_id: test/tool }",
            _ => "type: gate",
        };
        let policy = made.on_branch_error.map_or_else(String::new, |on| format!(", on_branch_error: {}", word(on)));
        write!(text, "    n{at}: {{ {kind}").unwrap();
        let when = |at: usize| format!("when: {{ path: inputs.i{at}, value: 1 }}");
        match &made.leads {
            Leads::Return | Leads::Start(_) => {}
            Leads::First(targets, _) if targets.is_empty() => {}
            Leads::First(targets, is_closed) => {
                let edge = |(place, to): (usize, &usize)| match *is_closed && place + 1 == targets.len() {
                    true => format!("{{ to: n{to} }}"),
                    false => format!("{{ to: n{to}, {} }}", when(place)),
                };
                let edges: Vec<String> = targets.iter().enumerate().map(edge).collect();
                write!(text, ", next: [{}]", edges.join(", ")).unwrap();
            }
            Leads::All(targets) => {
                let edge = |(place, (to, always)): (usize, &(usize, bool))| match always {
                    true => format!("{{ to: n{to} }}"),
                    false => format!("{{ to: n{to}, {} }}", when(place)),
                };
                let edges: Vec<String> = targets.iter().enumerate().map(edge).collect();
                write!(text, ", next: {{ all: [{}]{policy} }}", edges.join(", ")).unwrap();
            }
            Leads::Over(to) => write!(text, ", next: {{ over: \"${{inputs.list}}\", to: n{to}{policy} }}").unwrap(),
        }
        if let Some(handler) = made.handler {
            write!(text, ", on_error: n{handler}").unwrap();
        }
        let sources: Vec<String> = nodes
            .iter()
            .enumerate()
            .filter(|(_, made)| !matches!(made.leads, Leads::Start(_)) && targets(made).contains(&at))
            .map(|(source, _)| format!("n{source}"))
            .collect();
        if made.waits && !sources.is_empty() {
            let of = sources.join(", ");
            match made.quorum {
                None => write!(text, ", waits_for: [{of}]").unwrap(),
                Some((need, fewer)) => {
                    let fewer = fewer.map_or(String::new(), |fewer| format!(", fewer: n{fewer}"));
                    let rest = if made.finishes { "finish" } else { "cancel" };
                    write!(text, ", waits_for: {{ of: [{of}], need: {need}, rest: {rest}{fewer} }}").unwrap();
                }
            }
        }
        text.push_str(" }\n");
    }
    text
}

/// Returns the index of the node that a run begins with, or that begins its first branches.
fn start_of(nodes: &[NodePlan]) -> usize {
    nodes.iter().position(|node| matches!(node.leads, Leads::Start(_))).unwrap_or_default()
}

fn define(text: &str) -> Definition {
    let source = SourceFile::new("test/judged.yaml", "test/judged.yaml", text);
    let mut diagnostics = Diagnostics::new();
    let file = tree::parse(&source, &mut diagnostics).unwrap();
    let origin = DefinitionOrigin::Draft(Arc::clone(&source));
    let definition = definition::parse(origin, &file, &mut diagnostics);
    let found: Vec<String> = diagnostics.iter().map(|one| one.render()).collect();
    definition.filter(|_| !diagnostics.has_errors()).unwrap_or_else(|| panic!("{text}\n{}", found.join("\n")))
}

/// Loads a graph into the engine, with an entry at each node where a run can begin. Each node makes a call, so that it may fail.
fn load(nodes: &[NodePlan], branches: &Branches, model: &Model<'_>) -> CompiledGraph {
    let tool = program::Tool {
        id: "test/tool",
        verb: Verb::Execute,
        item: ItemType::Tool,
        by: Executor::Program,
        params: None,
        typed: true,
        nests: false,
    };
    let body = |(at, made): (usize, &NodePlan)| {
        let to = |to: &usize| serde_json::json!({"to": format!("n{to}")});
        let next = match &made.leads {
            Leads::Return => Value::Array(Vec::new()),
            Leads::First(targets, _) => targets.iter().map(to).collect(),
            Leads::All(targets) => {
                serde_json::json!({"all": targets.iter().map(|(target, _)| to(target)).collect::<Vec<_>>()})
            }
            Leads::Over(to) => serde_json::json!({"over": [], "as": "item", "to": format!("n{to}")}),
            Leads::Start(first) => serde_json::json!({"all": first.iter().map(to).collect::<Vec<_>>()}),
        };
        let does = match &made.leads {
            Leads::Return => serde_json::json!("return"),
            Leads::Start(_) => serde_json::json!("start"),
            _ => serde_json::json!({"action": 0}),
        };
        let mut body = serde_json::json!({"line": 1, "does": does, "next": next});
        if let Some(on_branch_error) = made.on_branch_error {
            body["next"]["on_branch_error"] = Value::from(word(on_branch_error));
        }
        if made.cancels {
            body["cancels"] = Value::from(true);
        }
        if let Some(handler) = made.handler {
            body["on_error"] = Value::from(handler);
        }
        if let Some(place) = branches.place(at) {
            body["join"] = serde_json::json!({"of": [], "fan": place.fan, "closes": place.closes});
            if let Some((need, fewer)) = made.quorum {
                body["join"]["quorum"] = serde_json::json!({"need": need, "fewer": fewer});
                if made.finishes {
                    body["join"]["quorum"]["rest"] = Value::from("finish");
                }
            }
        }
        (format!("n{at}"), body.to_string())
    };
    let bodies: Vec<(String, String)> = nodes.iter().enumerate().map(body).collect();
    let bodies: Vec<(&str, &str)> = bodies.iter().map(|(name, body)| (name.as_str(), body.as_str())).collect();
    let entry = |(at, made): (usize, &NodePlan)| {
        let frames = branches
            .entry(model, at)
            .ok()
            .filter(|_| !made.waits && !made.cancels && !matches!(made.leads, Leads::Start(_)))?;
        let branch = |BranchFrame { fan, label, .. }: &BranchFrame| match label {
            BranchLabel::Join(join) => serde_json::json!({"fan": fan, "behind": join}),
            BranchLabel::Edge(_) if matches!(nodes[*fan].leads, Leads::Over(_)) => {
                serde_json::json!({"fan": fan, "element": "inputs.element"})
            }
            BranchLabel::Edge(_) => serde_json::json!({"fan": fan}),
        };
        let branches: Vec<Value> = frames.iter().map(branch).collect();
        Some((format!("n{at}"), serde_json::json!({"node": at, "branches": branches})))
    };
    let entries: serde_json::Map<String, Value> = nodes.iter().enumerate().filter_map(entry).collect();
    let settings = serde_json::json!({"entries": entries}).to_string();
    let program = Program {
        id: "test/judged",
        version: "1.0.0",
        source: "judged.yaml",
        digest: "0000000000000000000000000000000000000000000000000000000000000000",
        signer: "0000000000000000",
        start: u16::try_from(start_of(nodes)).unwrap(),
        settings: &settings,
        permissions: &[],
        env: &[],
        keys: &[],
        tools: &[tool],
        nodes: &bodies,
    };
    CompiledGraph::load(&program).unwrap()
}

/// A position of a run, with what the judge remembers of it.
#[derive(Clone)]
struct Stand {
    position: Position,
    /// For each fan-out that has begun, the edge that each of its branches began with.
    begun: Vec<(Arc<Fan>, Vec<u16>)>,
    /// The frames behind partial joins.
    joined: Vec<(Arc<Frame>, u16)>,
    /// The partial joins that were visited, each with the visit of its fan-out.
    came: BTreeSet<(u64, u16)>,
}

/// The findings of the judge.
struct Verdict {
    wrong: Option<String>,
    /// The pairs of nodes that were alive at the same time.
    beside: BTreeSet<(u16, u16)>,
    /// The nodes that were visited.
    visited: BTreeSet<u16>,
    /// The returns that cancelled something.
    cut: BTreeSet<u16>,
}

struct Judge<'g> {
    nodes: &'g [NodePlan],
    graph: &'g GraphTables,
    branches: &'g Branches,
    most: usize,
    beside: BTreeSet<(u16, u16)>,
    visited: BTreeSet<u16>,
    cut: BTreeSet<u16>,
}

/// How many positions of one graph are looked at.
const MOST_STANDS: usize = 30_000;

/// The maximum number of activations of a position: each round of a loop may leave late branches.
const MOST_ALIVE: usize = 12;

impl Judge<'_> {
    fn judge(mut self) -> Option<Verdict> {
        let position = Position::new(self.graph);
        let begun = position.frontier[0].frame.iter().map(|frame| Arc::clone(&frame.fan));
        let begun = begun.map(|fan| (fan, (0..).take(position.frontier.len()).collect())).collect();
        let first = Stand { position, begun, joined: Vec::new(), came: BTreeSet::new() };
        let (mut known, mut open) = (HashSet::from([self.key(&first)]), vec![first]);
        while let Some(stand) = open.pop() {
            let alive = &stand.position.frontier;
            if known.len() > self.most || alive.len() > MOST_ALIVE {
                return None;
            }
            for (at, one) in alive.iter().enumerate() {
                for other in &alive[at + 1..] {
                    self.beside.insert((one.node.min(other.node), one.node.max(other.node)));
                    if let Some(wrong) = self.meeting(&stand, one, other) {
                        return Some(self.verdict(Some(wrong)));
                    }
                }
            }
            for (at, moving) in alive.iter().enumerate() {
                self.visited.insert(moving.node);
                for way in self.ways(moving) {
                    match self.go(&stand, at, &way) {
                        Ok(next) => {
                            // All others are gone.
                            if let [only] = next.position.frontier.as_slice()
                                && self.nodes[usize::from(only.node)].cancels
                                && (alive.len() > 1 || stand.position.joins.iter().any(|join| join.node != only.node))
                            {
                                self.cut.insert(only.node);
                            }
                            if known.insert(self.key(&next)) {
                                open.push(next);
                            }
                        }
                        Err(wrong) => return Some(self.verdict(Some(wrong))),
                    }
                }
            }
        }
        Some(self.verdict(None))
    }

    /// Returns what is wrong if two activations are those of one node in two branches of a fan-out. Elements of a list may be.
    fn meeting(&self, stand: &Stand, one: &Activation, other: &Activation) -> Option<String> {
        if one.node != other.node || self.branches.place(usize::from(one.node)).is_some() {
            return None;
        }
        let stack = |at: &Activation| {
            let mut stack: Vec<Arc<Frame>> = frames(at.frame.as_ref()).cloned().collect();
            stack.reverse();
            stack
        };
        let (ones, others) = (stack(one), stack(other));
        let (a, b) = ones.iter().zip(&others).find(|(a, b)| a.key() != b.key())?;
        let is_wrong = a.fan.visit == b.fan.visit && self.label(stand, a) != self.label(stand, b);
        is_wrong.then(|| format!("two branches of n{} visit n{}", a.fan.node, one.node))
    }

    fn verdict(self, wrong: Option<String>) -> Verdict {
        Verdict { wrong, beside: self.beside, visited: self.visited, cut: self.cut }
    }

    /// Returns every way that a visit of a node may lead.
    fn ways(&self, moving: &Activation) -> Vec<Way> {
        let made = &self.nodes[usize::from(moving.node)];
        let along = |edges: TakenEdges| Way::Along { edges, suppressed: false };
        let mut ways: Vec<Way> = match &made.leads {
            Leads::Return | Leads::Start(_) => vec![along(TakenEdges::None)],
            Leads::First(targets, is_closed) => {
                let end = (!is_closed || targets.is_empty()).then_some(TakenEdges::None);
                (0..u16::try_from(targets.len()).unwrap()).map(TakenEdges::One).chain(end).map(along).collect()
            }
            Leads::All(targets) => (0..1_u16 << targets.len())
                .filter(|chosen| targets.iter().enumerate().all(|(at, (_, always))| !always || chosen >> at & 1 == 1))
                .map(|chosen| {
                    let edges = (0..u16::try_from(targets.len()).unwrap()).filter(|at| chosen >> at & 1 == 1);
                    along(TakenEdges::Many(Arc::new(edges.collect())))
                })
                .collect(),
            Leads::Over(_) => (0..4).map(|count| along(TakenEdges::Over(Arc::new(vec![Value::Null; count])))).collect(),
        };
        ways.extend(made.handler.map(|handler| Way::OnError(u16::try_from(handler).unwrap())));
        // A route over a list fails if its value is no list.
        let may_fail = made.handler.is_none() && (made.calls || matches!(made.leads, Leads::Over(_)));
        ways.extend(match self.graph.on_branch_error(moving).0 {
            OnBranchError::Collect if may_fail => Some(Way::EndsBranch),
            OnBranchError::Finish if may_fail => Some(Way::Held),
            _ => None,
        });
        ways
    }

    /// Lets one activation move; all others wait meanwhile.
    fn go(&self, stand: &Stand, at: usize, way: &Way) -> Result<Stand, String> {
        let moving = stand.position.frontier[at].clone();
        let made = &self.nodes[usize::from(moving.node)];
        let around: Vec<&Arc<Frame>> = frames(moving.frame.as_ref()).collect();
        let is_fan = matches!(made.leads, Leads::All(_) | Leads::Over(_));
        if is_fan && around.iter().any(|frame| frame.fan.node == moving.node) {
            return Err(format!("n{} is reached again from its own branch", moving.node));
        }
        let takes_none = match way {
            Way::Along { edges: TakenEdges::Many(edges), .. } => edges.is_empty(),
            Way::Along { edges: TakenEdges::Over(list), .. } => list.is_empty(),
            Way::Along { edges: TakenEdges::None, .. } => !matches!(made.leads, Leads::Return),
            Way::EndsBranch => true,
            _ => false,
        };
        let is_closed = |node: u16| self.branches.closing(usize::from(node)).is_some();
        let ends = takes_none && !(is_fan && is_closed(moving.node) && !way.ends_branch());
        if ends && !around.is_empty() && !around.iter().any(|frame| is_closed(frame.fan.node)) {
            return Err(format!("a branch ends at n{}, and no join follows", moving.node));
        }
        let mut next = stand.clone();
        let mut base = stand.position.clone();
        base.parked = base.frontier.clone();
        base.parked.remove(at);
        base.frontier = vec![moving.clone()];
        let visits = std::iter::once(&moving).map(|at| SettledVisit {
            at,
            calls: 1,
            below: 0,
            error: None,
            items: &[],
            way,
            returned: View::Null,
            changes: &[],
        });
        let candidate = fold(self.graph, &base, None, visits.clone())
            .map_err(|error| format!("n{}: {error}, after n{}", error.node(), moving.node))?;
        let made_before = base.made;
        let mut position = base.clone();
        drop(candidate.take(self.graph, &mut position, visits));
        position.frontier.extend(std::mem::take(&mut position.parked));
        for new in position.frontier.iter().filter(|new| new.number > made_before) {
            let Some(frame) = &new.frame else { continue };
            let place = self.branches.place(usize::from(new.node));
            if place.is_some_and(|place| !place.closes) {
                if !next.came.insert((frame.fan.visit, new.node)) {
                    return Err(format!("n{} joins the branches of one visit twice", new.node));
                }
                next.joined.push((Arc::clone(frame), new.node));
            }
            if !next.begun.iter().any(|(fan, _)| Arc::ptr_eq(fan, &frame.fan)) {
                let edges = match way {
                    Way::Along { edges: TakenEdges::Many(edges), .. } => edges.to_vec(),
                    _ => Vec::new(),
                };
                next.begun.push((Arc::clone(&frame.fan), edges));
            }
        }
        next.position = position;
        self.forget(&mut next);
        Ok(next)
    }

    /// Forgets what belongs to fan-outs that are over.
    fn forget(&self, stand: &mut Stand) {
        let mut alive: Vec<*const Fan> = Vec::new();
        let joins = stand.position.joins.iter().map(|join| (Some(&join.fan), join.fan.outer.as_ref()));
        let visits = stand.position.frontier.iter().map(|at| (None, at.frame.as_ref()));
        for (own, frame) in joins.chain(visits) {
            alive.extend(own.map(Arc::as_ptr));
            alive.extend(frames(frame).map(|frame| Arc::as_ptr(&frame.fan)));
        }
        let begun: Vec<(Arc<Fan>, Vec<u16>)> =
            stand.begun.iter().filter(|(fan, _)| alive.contains(&Arc::as_ptr(fan))).cloned().collect();
        stand.came.retain(|(visit, _)| begun.iter().any(|(fan, _)| fan.visit == *visit));
        stand.joined.retain(|(frame, _)| alive.contains(&Arc::as_ptr(&frame.fan)));
        stand.begun = begun;
    }

    /// Returns the branch of a frame: the edge that it began with, or the partial join that it is behind.
    fn label(&self, stand: &Stand, frame: &Arc<Frame>) -> String {
        if let Some((_, join)) = stand.joined.iter().find(|(known, _)| Arc::ptr_eq(known, frame)) {
            return format!("behind n{join}");
        }
        let begun = stand.begun.iter().find(|(fan, _)| Arc::ptr_eq(fan, &frame.fan));
        match begun.and_then(|(_, edges)| edges.get(usize::try_from(frame.branch).unwrap())) {
            Some(edge) => format!("edge {edge}"),
            None => "an element".to_owned(),
        }
    }

    fn fan_key(&self, stand: &Stand, fan: &Arc<Fan>) -> String {
        let is_over = stand.position.joins.iter().any(|join| join.is_over && join.fan.visit == fan.visit);
        let mut key = format!("n{}{}", fan.node, if is_over { " late" } else { "" });
        for frame in frames(fan.outer.as_ref()) {
            let joined = stand.joined.iter().find(|(known, _)| Arc::ptr_eq(known, frame)).map(|(_, join)| join);
            write!(key, " in {} of n{} {joined:?}", frame.branch, frame.fan.node).unwrap();
        }
        key
    }

    fn frame_key(&self, stand: &Stand, frame: Option<&Arc<Frame>>) -> String {
        let mut key = String::new();
        for frame in frames(frame) {
            write!(key, " {} {} of {}", frame.branch, self.label(stand, frame), self.fan_key(stand, &frame.fan))
                .unwrap();
        }
        key
    }

    /// Returns all that decides how a run may go on.
    fn key(&self, stand: &Stand) -> String {
        let activation = |at: &Activation| format!("n{}{}", at.node, self.frame_key(stand, at.frame.as_ref()));
        let mut alive: Vec<String> = stand.position.frontier.iter().map(activation).collect();
        alive.sort_unstable();
        let mut joins: Vec<String> = stand
            .position
            .joins
            .iter()
            .map(|join| {
                let arrived = join.arrived.iter().filter(|_| !join.is_over);
                let mut arrived: Vec<u32> = arrived.map(|arrival| arrival.branch).collect();
                arrived.sort_unstable();
                format!("n{} of {} {arrived:?}", join.node, self.fan_key(stand, &join.fan))
            })
            .collect();
        joins.sort_unstable();
        let came = stand.came.iter().map(|(visit, node)| {
            let begun = stand.begun.iter().find(|(fan, _)| fan.visit == *visit);
            (begun.map(|(fan, _)| self.fan_key(stand, fan)), node)
        });
        let came: BTreeSet<_> = came.collect();
        let returning = stand.position.returning.as_ref().map(activation);
        format!("{alive:?} {joins:?} {came:?} {returning:?}")
    }
}

/// Whether a path leads from every node to an end.
fn all_end(model: &Model<'_>) -> bool {
    let count = model.definition.nodes.len();
    let mut ends: Vec<bool> = (0..count).map(|node| model.may_end(node)).collect();
    for _ in 0..count {
        for node in 0..count {
            ends[node] |= model.onward(node).any(|next| ends[next]);
        }
    }
    ends.iter().all(|ends| *ends)
}

fn number(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |number| number.parse().unwrap())
}

/// The result of comparing the compiler with the engine on one graph.
enum Compared {
    /// Another rule refuses the graph, or it has no branches.
    LeftOut,
    /// Both say that it can go wrong.
    Faulty,
    /// It has too many positions.
    TooLarge,
    /// It has a quorum that is never met.
    Unmet,
    /// It has a quorum or a return that cancels, and the compiler refuses it although nothing can go wrong.
    Refused,
    /// Both say that nothing can go wrong; with the number of pairs of concurrent nodes, and that of the entries inside of several
    /// fan-outs, and behind partial joins.
    Fine {
        beside: usize,
        nested: usize,
        behind: usize,
        has_quorum: bool,
        has_partial: bool,
        starts_in_branches: bool,
        cancels: bool,
        has_late: bool,
    },
}

/// Compares the compiler with the engine on a graph, of which `most` positions are looked at.
fn compare(nodes: &[NodePlan], items: &Items, most: usize, what: &str) -> Compared {
    let text = yaml(nodes);
    let definition = define(&text);
    let model = Model::new(&definition, items);
    let branches = Branches::find(&model);
    // A loop without a way out is refused by a rule of its own: a join behind it is never visited.
    if branches.is_empty() || !all_end(&model) {
        return Compared::LeftOut;
    }
    let what = format!("{what}\n{text}{:?}", branches.faults());
    // A rule of its own refuses a start at a join.
    if model.first().iter().any(|&first| model.start != Some(first) && (nodes[first].waits || nodes[first].cancels)) {
        return Compared::LeftOut;
    }
    let reached = super::reached(&model, &[start_of(nodes)]);
    let is_placed = |node: usize| definition.nodes[node].waits_for.is_empty() || branches.place(node).is_some();
    if (0..nodes.len()).any(|node| reached[node] && !is_placed(node)) {
        // There is no fan-out that the engine could join.
        return Compared::Faulty;
    }
    // A rule of its own refuses partial joins beside a quorum.
    let is_beside_quorum = |(join, fan): (usize, usize)| {
        let quorum = |join: usize| nodes[join].quorum.is_some();
        quorum(join) || branches.closing(fan).is_some_and(quorum)
    };
    if branches.partial().any(is_beside_quorum) {
        return Compared::LeftOut;
    }
    let has_partial = branches.partial().next().is_some();
    let joins = Joins::find(&model, &branches, &vec![Vec::new(); nodes.len()]);
    let quorums: Vec<(usize, &NodeJoin)> = joins.all().filter(|(_, join)| join.need.is_some()).collect();
    let has_fewer = |at: usize| definition.nodes[at].fewer().is_some();
    // Rules of their own refuse a fan-out that contradicts its quorum, and an edge that is never followed.
    let is_idle = |(at, join): &(usize, &NodeJoin)| has_fewer(*at) && !join.may_fall_short();
    if quorums.iter().any(|(_, join)| nodes[join.fan].on_branch_error.is_some_and(needs_all))
        || quorums.iter().any(is_idle)
    {
        return Compared::LeftOut;
    }
    let is_open = quorums.iter().any(|(at, join)| !has_fewer(*at) && join.may_fall_short());
    let is_refused = !branches.faults().is_empty() || is_open;
    let cancels = (0..nodes.len()).any(|at| reached[at] && nodes[at].cancels);
    let loaded = load(nodes, &branches, &model);
    let (graph, branches) = (tables(&loaded), &branches);
    let judge =
        Judge { nodes, graph, branches, most, beside: BTreeSet::new(), visited: BTreeSet::new(), cut: BTreeSet::new() };
    if !is_refused && !quorums.iter().any(|(_, join)| too_few(&model, join).is_some()) {
        playing::assert_runs(&judge, &model, &what);
    }
    let Some(verdict) = judge.judge() else { return Compared::TooLarge };
    // The compiler refuses joins that are never visited.
    let mut unmet = quorums.iter().filter(|(_, join)| too_few(&model, join).is_some()).peekable();
    if unmet.peek().is_some() {
        let is_visited = |(at, _): &(usize, &NodeJoin)| verdict.visited.contains(&u16::try_from(*at).unwrap());
        assert!(!unmet.any(is_visited), "a quorum that cannot be met is\n{what}");
        return Compared::Unmet;
    }
    match (&verdict.wrong, is_refused) {
        (Some(wrong), false) => panic!("{wrong}\n{what}"),
        (Some(_), true) => Compared::Faulty,
        (None, true) if quorums.is_empty() && !cancels => panic!("refused, and nothing goes wrong\n{what}"),
        (None, true) => Compared::Refused,
        (None, false) => {
            let said = concurrent(branches, nodes.len());
            let is_exact = quorums.is_empty() && !cancels;
            let is_right = if is_exact { said == verdict.beside } else { said.is_superset(&verdict.beside) };
            assert!(is_right, "concurrent nodes {said:?}, and {:?} were\n{what}", verdict.beside);
            let starts_in_branches = graph.starts_in_branches();
            let (beside, has_quorum) = (said.len(), !quorums.is_empty());
            // The lint says that nothing is cancelled there. A quorum may cancel the rest in the same step.
            let is_idle = |at: &usize| !has_quorum && nodes[*at].cancels && reached[*at] && branches.is_alone(*at);
            let idle: Vec<usize> = (0..nodes.len()).filter(is_idle).collect();
            let cuts = idle.iter().find(|&&at| verdict.cut.contains(&u16::try_from(at).unwrap()));
            assert!(cuts.is_none(), "{cuts:?} cancels\n{what}");
            let has_late = branches.has_late();
            let entries = || graph.settings.entries.values();
            let nested = entries().filter(|entry| entry.branches.len() > 1).count();
            let is_behind = |entry: &&EntryPoint| entry.branches.iter().any(|branch| branch.behind.is_some());
            let behind = entries().filter(is_behind).count();
            Compared::Fine { beside, nested, behind, has_quorum, has_partial, starts_in_branches, cancels, has_late }
        }
    }
}

/// Returns the pairs of nodes that the compiler calls concurrent.
fn concurrent(branches: &Branches, count: usize) -> BTreeSet<(u16, u16)> {
    let mut said = BTreeSet::new();
    for one in 0..count {
        for other in one..count {
            if branches.are_concurrent(one, other) {
                said.insert((u16::try_from(one).unwrap(), u16::try_from(other).unwrap()));
            }
        }
    }
    said
}

#[test]
fn faults_are_exactly_what_the_engine_can_run_into() {
    let (graphs, seed) = (number("GRAPHS", 6_000), number("SEED", 1));
    let items = Items::default();
    let (mut fine, mut faulty, mut skipped, mut partial, mut pairs) = (0_u64, 0_u64, 0_u64, 0_u64, 0_usize);
    let (mut fine_quorums, mut refused, mut unmet, mut several, mut cancelling) = (0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
    let (mut late, mut in_several, mut behind_joins) = (0_u64, 0_usize, 0_usize);
    for graph in 0..graphs {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9).wrapping_add(graph));
        random.below(2);
        let mut nodes = if graph % 3 == 0 { any_graph(&mut random) } else { formed_graph(&mut random) };
        let_fail(&mut random, &mut nodes);
        let_race(&mut random, &mut nodes);
        let_cancel(&mut random, &mut nodes);
        if nodes.len() > 12 {
            continue;
        }
        match compare(&nodes, &items, MOST_STANDS, &format!("graph {graph} of seed {seed}")) {
            Compared::LeftOut => {}
            Compared::Faulty => faulty += 1,
            Compared::TooLarge => skipped += 1,
            Compared::Unmet => unmet += 1,
            Compared::Refused => refused += 1,
            Compared::Fine {
                beside,
                nested,
                behind,
                has_quorum,
                has_partial,
                starts_in_branches,
                cancels,
                has_late,
            } => {
                (in_several, behind_joins) = (in_several + nested, behind_joins + behind);
                late += u64::from(has_late);
                fine += 1;
                partial += u64::from(has_partial);
                several += u64::from(starts_in_branches);
                fine_quorums += u64::from(has_quorum || cancels);
                cancelling += u64::from(cancels);
                pairs += beside;
            }
        }
    }
    println!(
        "{fine} fine, {partial} of them with partial joins, {several} that begin in several nodes, {late} with late \
         branches and {cancelling} with returns that cancel, {faulty} faulty, {skipped} too large, {pairs} concurrent pairs; of {} fine graphs with a quorum or \
         such a return {refused} are refused, and {unmet} cannot be met; {in_several} entries are in several fan-outs, {behind_joins} \
         behind partial joins",
        fine_quorums + refused
    );
    assert!(fine * 20 > graphs && faulty * 20 > graphs && skipped * 10 < graphs, "{fine} {faulty} {skipped}");
    assert!(late * 500 > graphs, "{late} graphs have late branches");
    assert!(in_several as u64 * 100 > graphs && behind_joins as u64 * 1_000 > graphs, "{in_several} {behind_joins}");
}
