//! The edges of a graph, to interpret a run's history: which edge each visit took, and how often each edge was taken.

use std::collections::HashMap;

use graph_engine::record::Visit;
use graph_model::program::{Edge, NodeBody, Program};

/// The edges of a graph, node by node.
///
/// A history names an edge by its index in its node's list. `Edges::of(&tool_router::PROGRAM)` resolves these indices.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub use graph_proof::*; }
/// use graph_runtime::Edges;
/// use graph_runtime::machine::Program;
/// use graph_runtime::record::Visit;
///
/// fn print_unused(program: &Program<'_>, history: &[Visit]) {
///     for fired in Edges::of(program).fired(history).iter().filter(|fired| fired.times == 0) {
///         println!("the run did not take edge {} of `{}`", fired.index, fired.from);
///     }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Edges {
    /// The nodes in the order of the file, each with its edges.
    nodes: Vec<(String, Vec<Edge>)>,
}

/// An edge, and how often it was taken.
///
/// [`Edges`] has an example.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Fired<'a> {
    /// The node that it leaves.
    pub from: &'a str,
    /// Its index in the node's list.
    pub index: u16,
    /// The edge.
    pub edge: &'a Edge,
    /// How often it was taken; 0 if never.
    pub times: u64,
}

impl Edges {
    /// Reads the edges of a compiled graph from its module's `PROGRAM`.
    pub fn of(program: &Program<'_>) -> Self {
        let edges = |body: &str| {
            let body: NodeBody = serde_json::from_str(body).expect("the compiler writes only bodies that can be read");
            body.next.into_edges()
        };
        Self { nodes: program.nodes.iter().map(|(name, body)| ((*name).to_owned(), edges(body))).collect() }
    }

    /// Returns the edges of a node in the order in which they are tried; empty if there is no such node.
    pub fn leaving(&self, node: &str) -> &[Edge] {
        self.nodes.iter().find(|(name, _)| name == node).map_or(&[], |(_, edges)| edges)
    }

    /// Returns the edge that a visit took.
    ///
    /// `None` if the run ended without one, or if the node failed and led to its `on_error`.
    pub fn taken(&self, visit: &Visit) -> Option<&Edge> {
        self.leaving(&visit.node).get(usize::from(visit.edge()?))
    }

    /// Returns every edge of the graph, in the order of the file, with how often the visits of `history` took it.
    pub fn fired(&self, history: &[Visit]) -> Vec<Fired<'_>> {
        let mut times = HashMap::<_, u64>::new();
        for visit in history {
            *times.entry((visit.node.as_str(), visit.edge())).or_default() += 1;
        }
        let edges = self.nodes.iter().flat_map(|(from, edges)| (0..).zip(edges).map(move |edge| (from.as_str(), edge)));
        let fired = |(from, (index, edge))| {
            let times = times.get(&(from, Some(index))).copied().unwrap_or_default();
            Fired { from, index, edge, times }
        };
        edges.map(fired).collect()
    }
}
