//! A graph as its runs' files show it: nodes, edges, and the first values of the state.

use graph_model::digest::Digest;
use graph_model::name::GraphId;
use graph_model::program::Kind;
use graph_model::value::Value;

use crate::graph::CompiledGraph;

/// What the files need to know of a graph.
#[derive(Debug)]
pub(super) struct Outline {
    pub(super) id: GraphId,
    pub(super) digest: Digest,
    pub(super) start: usize,
    /// The keys in the order of the state, each with its first value.
    pub(super) keys: Vec<(String, Option<Value>)>,
    /// The nodes in the order of the file.
    pub(super) nodes: Vec<Place>,
}

/// A node.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The id of what it calls; empty where it calls nothing, or the id is known only at each call.
    pub(super) action: String,
    /// Where its edges lead, in order; none ends the run.
    pub(super) edges: Vec<Option<usize>>,
    pub(super) on_error: Option<usize>,
}

impl Place {
    /// Returns the word that events have for what it does; none for what is told by its action.
    pub(super) fn word(kind: Kind) -> Option<&'static str> {
        (!matches!(kind, Kind::Action(_))).then(|| kind.name())
    }
}

impl Outline {
    pub(super) fn of(code: &CompiledGraph) -> Self {
        let tool = |at: u16| code.tool(at).map_or_else(String::new, |tool| tool.name().to_owned());
        let place = |node: &crate::graph::Node| {
            let kind = node.kind.kind();
            let action = kind.tool().map(tool).unwrap_or_default();
            Place {
                name: node.name.clone(),
                kind,
                action,
                edges: node.targets().map(|to| to.map(usize::from)).collect(),
                on_error: node.on_error.map(usize::from),
            }
        };
        Self {
            id: code.id.clone(),
            digest: code.digest,
            start: usize::from(code.start),
            keys: code.keys.iter().map(|key| (key.name.clone(), key.initial.clone())).collect(),
            nodes: code.nodes.iter().map(place).collect(),
        }
    }

    /// Returns the node that is called `name`.
    pub(super) fn node(&self, name: &str) -> Option<&Place> {
        self.nodes.iter().find(|place| place.name == name)
    }

    /// Returns the name of the node where a run begins.
    pub(super) fn start(&self) -> &str {
        self.nodes.get(self.start).map_or("", |place| &place.name)
    }

    /// Returns the name of the node with that index.
    pub(super) fn name(&self, at: usize) -> Option<&str> {
        self.nodes.get(at).map(|place| place.name.as_str())
    }
}
