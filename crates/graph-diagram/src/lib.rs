//! Diagrams of state graphs, and of the ways that a run took through one.
//!
//! A [`Diagram`] is made from the [`Topology`] of a graph, which a compiled or an interpreted graph has, and, if a run is to be seen in
//! it, from the run's [`Traversal`]. It writes itself as Mermaid, as DOT for Graphviz, as SVG, as text for a terminal, and as the JSON
//! model of a directed graph that viewers of agent frameworks read. Each of them is the same text for the same graph and run.
//!
//! ```
//! use graph_diagram::Diagram;
//! # fn example(graph: &graph_engine::machine::CompiledGraph) {
//! let diagram = Diagram::of(graph.topology());
//! println!("{}", diagram.mermaid());
//! # }
//! ```

mod dag;
mod document;
mod dot;
mod drawing;
mod mermaid;
mod svg;
mod text;

pub use dag::{Dag, DagGraphEdge, DagTaskNode};
pub use document::{FiredEdge, FiredNode, FiredRun, ReportEntry, TopologyDocument, ValidationReport};
pub use graph_engine::machine::Topology;
pub use graph_proof::history::Traversal;

use drawing::Drawing;

/// A graph to be drawn, and the ways that a run took through it.
#[derive(Debug, Clone)]
pub struct Diagram {
    topology: Topology,
    traversal: Option<Traversal>,
}

impl Diagram {
    /// A diagram of a graph.
    pub fn of(topology: Topology) -> Self {
        Self { topology, traversal: None }
    }

    /// Shows in it how often a run visited each node and took each edge.
    ///
    /// The traversal is that of a run of the same graph: nodes and edges that the graph does not have are not drawn.
    #[must_use]
    pub fn with(self, traversal: Traversal) -> Self {
        Self { traversal: Some(traversal), ..self }
    }

    /// Writes it as a Mermaid flowchart, from top to bottom.
    pub fn mermaid(&self) -> String {
        mermaid::write(&self.drawing())
    }

    /// Writes it in the DOT language of Graphviz, from top to bottom.
    pub fn dot(&self) -> String {
        dot::write(&self.drawing())
    }

    /// Writes it as an SVG image, from top to bottom. It refers to nothing outside of it, and contains no script.
    pub fn svg(&self) -> String {
        svg::write(&self.drawing())
    }

    /// Writes it as text: each node with its edges, in the order of the file.
    pub fn text(&self) -> String {
        text::write(&self.drawing())
    }

    /// Returns the model of a directed graph with schema version 1.3, in the mode `graph`.
    pub fn dag(&self) -> Dag {
        Dag::of(&self.topology, self.traversal.as_ref())
    }

    fn drawing(&self) -> Drawing {
        Drawing::of(&self.topology, self.traversal.as_ref())
    }
}
