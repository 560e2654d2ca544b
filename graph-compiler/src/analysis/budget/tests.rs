//! The usage of agents, against the structure that a random graph was made of.

use std::sync::Arc;

use graph_definition::definition::{self, AgentLimits};
use graph_definition::diagnostic::Diagnostics;
use graph_definition::source::SourceFile;
use graph_definition::tree;
use graph_definition::verify::DefinitionOrigin;
use graph_model::name::ItemId;

use crate::analysis::Analysis;
use crate::graph::{AgentUsage, Budget, StepBound};
use crate::items::{InnerKeys, Items, Nested};
use crate::types::Type;

/// A part of a graph.
#[derive(Debug)]
enum RandomPart {
    Call {
        agent: usize,
        attempts: u64,
        turns: Option<u64>,
    },
    /// A graph inside, which lets agents use as much.
    Run(u64),
    Sequence(Vec<RandomPart>),
    Choice(Vec<RandomPart>),
    All(Vec<RandomPart>),
    Each(u64, Box<RandomPart>),
    Loop(u64, Box<RandomPart>),
}

/// The limits of the agents: turns, tokens and millionths of a dollar.
const AGENTS: [(u32, Option<u64>, Option<u64>); 3] =
    [(3, Some(100), Some(7)), (8, Some(20_000), None), (2, None, Some(1_000))];

fn agent_limits(agent: usize) -> AgentLimits {
    let (turns, tokens, spend) = AGENTS[agent];
    AgentLimits { turns, tokens, spend, timeout: None }
}

impl RandomPart {
    fn random(random: &mut impl FnMut(u64) -> u64, depth: u64) -> Self {
        let some = |random: &mut dyn FnMut(u64) -> u64| 1 + random(3);
        match random(if depth == 0 { 3 } else { 9 }) {
            0 | 1 => Self::Call {
                agent: usize::try_from(random(AGENTS.len() as u64)).unwrap(),
                attempts: 1 + random(3),
                turns: (random(3) == 0).then_some(1),
            },
            2 => Self::Run(random(20)),
            3 | 4 => Self::Sequence((0..some(random)).map(|_| Self::random(random, depth - 1)).collect()),
            5 => Self::Choice((0..some(random)).map(|_| Self::random(random, depth - 1)).collect()),
            6 => Self::All((0..some(random)).map(|_| Self::random(random, depth - 1)).collect()),
            7 => Self::Each(1 + random(5), Box::new(Self::random(random, depth - 1))),
            _ => Self::Loop(1 + random(4), Box::new(Self::random(random, depth - 1))),
        }
    }

    fn has_loop(&self) -> bool {
        match self {
            Self::Call { .. } | Self::Run(_) => false,
            Self::Loop(..) => true,
            Self::Each(_, part) => part.has_loop(),
            Self::Sequence(parts) | Self::Choice(parts) | Self::All(parts) => parts.iter().any(Self::has_loop),
        }
    }

    /// Returns the most that agents use in it.
    fn most(&self) -> AgentUsage {
        match self {
            Self::Call { agent, attempts, turns } => {
                let (own, tokens, micros) = AGENTS[*agent];
                let turns = Some(turns.unwrap_or(u64::from(own)));
                AgentUsage { turns, tokens, micros }.times(Some(*attempts))
            }
            // It is run once, however it fails.
            Self::Run(most) => AgentUsage { turns: Some(*most), tokens: Some(*most), micros: Some(*most) },
            Self::Sequence(parts) | Self::All(parts) => {
                parts.iter().map(Self::most).fold(AgentUsage::NOTHING, AgentUsage::plus)
            }
            Self::Choice(parts) => parts.iter().map(Self::most).fold(AgentUsage::NOTHING, AgentUsage::max),
            Self::Each(count, part) | Self::Loop(count, part) => part.most().times(Some(*count)),
        }
    }
}

/// Writes a graph: its nodes, and the edges to joins.
#[derive(Default)]
struct GraphText {
    nodes: Vec<(String, String)>,
    /// For each node, the nodes that lead to it.
    leads: Vec<(String, String)>,
}

impl GraphText {
    fn node(&mut self, body: &str, next: &str, targets: &[&str]) -> String {
        let name = format!("n{}", self.nodes.len());
        self.nodes.push((name.clone(), format!("{body}{next}")));
        self.leads.extend(targets.iter().map(|to| (name.clone(), (*to).to_owned())));
        name
    }

    /// Writes a part that leads to `next`, and returns its first node.
    fn part(&mut self, part: &RandomPart, next: &str) -> String {
        let onward = format!(", next: {next}");
        match part {
            RandomPart::Call { agent, attempts, turns } => {
                let turns = turns.map_or_else(String::new, |turns| format!(", limits: {{ turns: {turns} }}"));
                let body = format!("action: {{ item_id: a/agent{agent} }}, retry: {{ attempts: {attempts} }}{turns}");
                self.node(&body, &onward, &[next])
            }
            RandomPart::Run(most) => self.node(&format!("action: {{ item_id: a/graph{most} }}"), &onward, &[next]),
            RandomPart::Sequence(parts) => {
                parts.iter().rev().fold(next.to_owned(), |next, part| self.part(part, &next))
            }
            RandomPart::Choice(parts) => {
                let starts: Vec<String> = parts.iter().map(|part| self.part(part, next)).collect();
                let last = starts.len() - 1;
                let edge = |(at, to): (usize, &String)| match at {
                    at if at == last => format!("{{ to: {to} }}"),
                    _ => format!("{{ to: {to}, when: {{ path: inputs.b{at}, value: true }} }}"),
                };
                let edges: Vec<String> = starts.iter().enumerate().map(edge).collect();
                let targets: Vec<&str> = starts.iter().map(String::as_str).collect();
                self.node("type: gate", &format!(", next: [{}]", edges.join(", ")), &targets)
            }
            RandomPart::All(parts) => {
                let join = self.node("type: gate", &format!("{onward}, waits_for: [JOIN]"), &[next]);
                let starts: Vec<String> = parts.iter().map(|part| self.part(part, &join)).collect();
                let edges: Vec<String> = starts.iter().map(|to| format!("{{ to: {to} }}")).collect();
                let targets: Vec<&str> = starts.iter().map(String::as_str).collect();
                self.node("type: gate", &format!(", next: {{ all: [{}] }}", edges.join(", ")), &targets)
            }
            RandomPart::Each(most, part) => {
                let join = self.node("type: gate", &format!("{onward}, waits_for: [JOIN]"), &[next]);
                let start = self.part(part, &join);
                let name = format!("e{}", self.nodes.len());
                let next = format!(", next: {{ over: \"${{inputs.list}}\", as: {name}, to: {start}, most: {most} }}");
                self.node("type: gate", &next, &[&start])
            }
            RandomPart::Loop(count, part) => {
                let tail = format!("n{}", self.nodes.len());
                self.nodes.push((tail.clone(), String::new()));
                self.leads.push((tail.clone(), next.to_owned()));
                let start = self.part(part, &tail);
                self.leads.push((tail.clone(), start.clone()));
                let at: usize = tail[1..].parse().unwrap();
                let again = format!("{{ to: {start}, when: {{ path: visit.number, op: lt, value: {count} }} }}");
                self.nodes[at].1 = format!("type: gate, next: [{again}, {{ to: {next} }}]");
                start
            }
        }
    }

    fn written(&self, start: &str) -> String {
        let nodes = self.nodes.iter().map(|(name, body)| {
            let from: Vec<&str> =
                self.leads.iter().filter(|(_, to)| to == name).map(|(from, _)| from.as_str()).collect();
            format!("    {name}: {{ {} }}\n", body.replace("JOIN", &from.join(", ")))
        });
        format!(
            "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\n\
             permissions: [\"rye.execute.tool.*\"]\nconfig:\n  start: {start}\n  max_steps: 1000000\n  nodes:\n{}    end: {{ type: return }}\n",
            nodes.collect::<String>()
        )
    }
}

fn items() -> Items {
    let nested = |limits: Option<AgentLimits>, usage: AgentUsage| Nested {
        file: "inner.yaml".to_owned(),
        module: "inner".to_owned(),
        inputs: Type::any(),
        schema: None,
        output: Type::any(),
        exits: Vec::new(),
        keys: InnerKeys::Unknown,
        signals: None,
        needs: Vec::new(),
        budget: Some(Budget {
            shortest: 1,
            shortest_inside: 1,
            shortest_ms: 0,
            steps: 1,
            bounded_by: StepBound::Edges,
            calls: Some(1),
            at_a_time: Some(1),
            levels: Some(0),
            usage,
            usage_inside: AgentUsage::NOTHING,
        }),
        can_wait: false,
        is_endless: false,
        has_mistakes: false,
        is_guarded: false,
        once: Vec::new(),
        limits,
    };
    let id = |text: String| ItemId::new(text.as_str()).unwrap();
    let agents =
        (0..AGENTS.len()).map(|at| (id(format!("a/agent{at}")), nested(Some(agent_limits(at)), AgentUsage::UNKNOWN)));
    let graphs = (0..20).map(|most| {
        let usage = AgentUsage { turns: Some(most), tokens: Some(most), micros: Some(most) };
        (id(format!("a/graph{most}")), nested(None, usage))
    });
    Items { graphs: agents.chain(graphs).collect(), ..Items::default() }
}

fn found(text: &str, items: &Items) -> AgentUsage {
    let source = SourceFile::new("g.yaml", "g.yaml", text);
    let mut diagnostics = Diagnostics::new();
    let yaml = tree::parse(&source, &mut diagnostics).unwrap();
    let definition = definition::parse(DefinitionOrigin::Draft(Arc::clone(&source)), &yaml, &mut diagnostics);
    assert!(!diagnostics.has_errors(), "{text}\n{diagnostics:?}");
    let definition = definition.unwrap();
    let analysis = Analysis::new(&definition, items);
    assert!(analysis.flow.branches().faults().is_empty(), "{text}\n{:?}", analysis.flow.branches().faults());
    analysis.interface(&[]).budget.unwrap().usage
}

#[test]
fn agents_use_what_the_parts_of_a_graph_add_up_to() {
    // `GRAPHS=100000` makes more of them.
    let graphs: u64 = std::env::var("GRAPHS").map_or(2_000, |graphs| graphs.parse().unwrap());
    let (items, mut exact, mut with_loops, mut without_bound) = (items(), 0, 0, 0);
    for seed in 1..=graphs {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut random = |most: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % most
        };
        let part = RandomPart::random(&mut random, 4);
        let mut text = GraphText::default();
        let start = text.part(&part, "end");
        if text.nodes.len() > 40 {
            continue;
        }
        let text = text.written(&start);
        let (found, most) = (found(&text, &items), part.most());
        without_bound += u64::from(most.tokens.is_none());
        if part.has_loop() {
            let is_enough =
                |found: Option<u64>, most: Option<u64>| found.is_none() || most.is_some_and(|most| found >= Some(most));
            let fields = [(found.turns, most.turns), (found.tokens, most.tokens), (found.micros, most.micros)];
            assert!(
                fields.iter().all(|&(found, most)| is_enough(found, most)),
                "seed {seed}: {found:?} {most:?}\n{text}"
            );
            with_loops += 1;
        } else {
            assert_eq!(found, most, "seed {seed}: {part:?}\n{text}");
            exact += 1;
        }
    }
    println!("{exact} graphs, {without_bound} without a bound, and {with_loops} with loops");
    assert!(exact * 3 > graphs && with_loops * 20 > graphs && without_bound * 20 > graphs, "{exact} {with_loops}");
}
