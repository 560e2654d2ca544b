//! A compiled graph as programs see it: opaque, except for its id, digest, permissions and shape.

use graph_model::capability::Grants;
use graph_model::digest::Digest;
use graph_model::ir::GraphIr;
use graph_model::name::GraphId;
use graph_model::program::Program;

use crate::graph::GraphTables;
use crate::graph::load::load;

/// A graph that can be executed: a program with its names resolved and its texts parsed.
///
/// [`CompiledGraph::topology`] has an example that draws it.
#[derive(Debug)]
pub struct CompiledGraph(GraphTables);

/// Returns the tables of a graph: for the engine, and for the code that proves its runs.
#[inline]
pub fn tables(graph: &CompiledGraph) -> &GraphTables {
    &graph.0
}

/// Why a program cannot be loaded. A compiled program always can, because the compiler makes the same checks.
#[derive(Debug, thiserror::Error)]
#[error("the program of `{graph}` is not one: {reason}")]
pub struct LoadError {
    graph: String,
    reason: String,
}

impl CompiledGraph {
    /// Resolves a graph.
    ///
    /// # Errors
    ///
    /// If a name in it refers to nothing.
    pub fn new(graph: GraphIr) -> Result<Self, LoadError> {
        let id = graph.id.clone();
        load(graph).map(Self).map_err(|reason| LoadError { graph: id, reason })
    }

    /// Reads and resolves a program.
    ///
    /// # Errors
    ///
    /// If a text in it cannot be read, or a name refers to nothing.
    pub fn load(program: &Program<'_>) -> Result<Self, LoadError> {
        let graph = GraphIr::read(program);
        Self::new(graph.map_err(|reason| LoadError { graph: program.id.to_owned(), reason })?)
    }

    /// Resolves a program that the compiler wrote.
    pub fn compiled(program: &Program<'_>) -> Self {
        Self::load(program).expect("the compiler writes only programs that can be loaded")
    }

    /// Returns the graph's id.
    pub fn id(&self) -> &GraphId {
        &self.0.id
    }

    /// Returns the SHA-256 of the graph that its signature covers.
    pub fn digest(&self) -> Digest {
        self.0.digest
    }

    /// Returns the digest of the graph's meaning: what its runs do, without the spelling, the comments and the descriptions of its
    /// text. Runs continue under any text with the same meaning. `None` if a program was written by hand, whose runs continue
    /// under its [digest](Self::digest) only.
    pub fn meaning(&self) -> Option<Digest> {
        self.0.settings.meaning
    }

    /// Whether a run of the other graph may be one of this: they have one id, and a meaning or, for runs that began before journals
    /// had that, a digest in common.
    pub fn has_runs_of(&self, other: &Self) -> bool {
        self.id() == other.id() && self.pins().any(|pin| other.pins().any(|other| other == pin))
    }

    /// Returns the pins of its runs: its meaning, and its digest for those that began before journals had the meaning.
    pub(crate) fn pins(&self) -> impl Iterator<Item = Digest> {
        self.meaning().into_iter().chain([self.digest()])
    }

    /// Returns the names of the signals that its runs can receive.
    pub fn signals(&self) -> impl Iterator<Item = &str> {
        self.0.settings.signals.keys().map(String::as_str)
    }

    /// Returns the capabilities that the graph declares, which a caller must grant.
    pub fn permissions(&self) -> &Grants {
        &self.0.permissions
    }
}
