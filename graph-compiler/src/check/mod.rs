//! Checking: from what the author wrote to a graph whose parts fit together.
//!
//! Every rule runs and says all it has to say; then comes the barrier. A rule is one file with one function, and one line
//! in `RULES`.

mod assignments;
mod conditions;
mod facts;
mod flow;
mod infer;
mod no_end;
mod parameters;
mod permissions;
mod reads;
mod shadowed;
mod start;
mod targets;
mod unreachable;

use std::collections::BTreeMap;
use std::sync::Arc;

use graph_model::name::ItemId;
use graph_model::program::{self, Body, Kind, Settings};
use graph_model::value::{Map, Value};

use crate::definition::{Contract, Definition, EdgeList, Next, NodeDefinition, NodeKind, Schema};
use crate::diagnostic::Diagnostics;
use crate::graph::{Graph, Node, Outline};
use facts::Facts;

/// The contracts of the tools that a graph calls, by the tool's id. A tool without contract is not in it.
pub type Contracts = BTreeMap<ItemId, Contract>;

/// What came of checking.
pub struct Checked {
    /// The types, as far as they are known; of a graph with mistakes too.
    pub outline: Outline,
    /// The graph, if there was no mistake.
    pub graph: Option<Graph>,
}

type Rule = fn(&Facts<'_>, &mut Diagnostics);

/// The rules, in the order in which their findings make sense to a reader of the code; findings are sorted by place.
const RULES: &[Rule] = &[
    start::check,
    targets::check,
    shadowed::check,
    unreachable::check,
    no_end::check,
    assignments::check,
    reads::check,
    conditions::check,
    parameters::check,
    permissions::check,
];

/// Checks a definition against the contracts of its tools.
///
/// A graph comes only if `diagnostics` holds no error, from here or from before.
pub fn check(definition: &Definition, contracts: &Contracts, diagnostics: &mut Diagnostics) -> Checked {
    let facts = Facts::gather(definition, contracts);
    for rule in RULES {
        rule(&facts, diagnostics);
    }
    let outline = facts.outline();
    let graph = if diagnostics.has_errors() { None } else { Some(build(&facts, outline.clone())) };
    Checked { outline, graph }
}

/// Makes the graph. Every name is known to lead somewhere: a missing one was an error.
fn build(facts: &Facts<'_>, outline: Outline) -> Graph {
    let definition = facts.definition;
    Graph {
        outline,
        source: Arc::clone(definition.source()),
        digest: definition.verified.digest().to_hex(),
        signer: definition.verified.signer().to_string(),
        owner: definition.verified.owner().to_owned(),
        start: index(facts.start.expect("a graph without start is an error")),
        settings: Settings {
            max_steps: definition.max_steps,
            on_error: definition.on_error,
            schema: definition.inputs.as_ref().and_then(Schema::beyond_types),
            ..Settings::default()
        },
        permissions: facts.permissions().map(|pattern| pattern.value.to_string()).collect(),
        env: definition.env.clone(),
        nodes: definition.nodes.iter().enumerate().map(|(at, node)| build_node(facts, at, node)).collect(),
    }
}

fn build_node(facts: &Facts<'_>, at: usize, node: &NodeDefinition) -> Node {
    let (line, _) = facts.definition.source().position(node.name.span.start);
    let (does, params, output) = match &node.kind {
        NodeKind::Action(action) => {
            let tool = facts.tool_index(&action.item_id.value);
            (Kind::Action(index(tool)), Some(action.params.to_value()), None)
        }
        NodeKind::Gate(_) => (Kind::Gate, None, None),
        NodeKind::Return(returns) => (Kind::Return, None, returns.output.as_ref().map(|term| term.to_value())),
    };
    let assign: Map<String, Value> =
        node.assign().iter().map(|assignment| (assignment.key.to_string(), assignment.value.to_value())).collect();
    let mut next = Vec::new();
    for target in facts.successors(at).map(index) {
        if !next.contains(&target) {
            next.push(target);
        }
    }
    let line = u32::try_from(line).unwrap_or(u32::MAX);
    let on_error = facts.error_successor(at).map(index);
    let body = Body {
        line,
        does,
        item: None,
        params,
        each: None,
        assign,
        next: edges(node.next()),
        on_error,
        output,
        retry: None,
        timeout_ms: None,
        remote: None,
        feedback: true,
    };
    Node { name: node.name.to_string(), next, body }
}

fn edges(next: &Next) -> Vec<program::Edge> {
    match next {
        Next::End => Vec::new(),
        Next::To(name) => vec![program::Edge { to: Some(name.to_string()), when: None, description: None }],
        Next::List(EdgeList { edges, .. }) => edges
            .iter()
            .map(|edge| program::Edge {
                to: edge.to.as_ref().map(ToString::to_string),
                when: edge.written.clone(),
                description: None,
            })
            .collect(),
    }
}

fn index(at: usize) -> u16 {
    u16::try_from(at).expect("facts are gathered of at most `MOST_NODES` nodes")
}
