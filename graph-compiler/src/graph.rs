//! A checked graph: what expansion and interpretation start from.

use std::path::PathBuf;
use std::sync::Arc;

use graph_definition::source::SourceFile;
use graph_model::program::{Body, Executor, ItemType, Settings, Verb};
use graph_model::subprocess::Subprocess;
use graph_model::value::Value;

use crate::types::{Type, TypedField};

/// A graph that passed every check. Only [`check`](crate::check::check) makes one.
#[derive(Debug)]
pub struct CheckedGraph {
    pub(crate) interface: Interface,
    pub(crate) source: Arc<SourceFile>,
    pub(crate) digest: String,
    pub(crate) signer: String,
    pub(crate) owner: String,
    pub(crate) start: u16,
    pub(crate) settings: Settings,
    pub(crate) permissions: Vec<String>,
    /// The capability patterns that its own calls need.
    pub(crate) needs: Vec<String>,
    pub(crate) env: Vec<String>,
    pub(crate) nodes: Vec<CheckedNode>,
}

/// The interface of a graph: its id and its types. A graph with mistakes has one too, if the file could be read.
#[derive(Debug, Clone)]
pub struct Interface {
    /// The graph's id.
    pub id: String,
    /// The author's version.
    pub version: String,
    /// What the graph is for.
    pub description: Option<String>,
    /// The fields of its inputs; `None` where no schema names them.
    pub inputs: Option<Vec<TypedField>>,
    /// The keys of its state.
    pub keys: Vec<TypedKey>,
    /// The tools that it calls, each once, in the order of the file.
    pub tools: Vec<TypedTool>,
    /// What a run returns, wherever it ends: what a graph that nests this one sees.
    pub output: Type,
    /// The nodes at which a run can end, in the order of the file; empty where the steps may run out anywhere and the run
    /// ends well then.
    pub exits: Vec<Exit>,
    /// The graphs that run inside it, directly or through others, each once.
    pub inner: Vec<InnerGraph>,
    /// What a run can come to at most; `None` where mistakes leave that open.
    pub budget: Option<Budget>,
}

/// A node at which a run can end.
#[derive(Debug, Clone, PartialEq)]
pub struct Exit {
    /// The node's name.
    pub node: String,
    /// What a run returns that ends there.
    pub ty: Type,
}

/// What a run of a graph can come to at most, as far as the graph says.
///
/// Hooks and middleware of the program are not in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// How many nodes a run visits at least before it can end.
    pub shortest: u64,
    /// How many nodes it visits at most.
    pub steps: u64,
    /// Whether the edges ensure that; otherwise only `max_steps` stops a run that continues.
    pub is_bounded: bool,
    /// How many calls it makes at most, every try counted, with those of graphs inside; `None` where there is no bound.
    pub calls: Option<u64>,
    /// How many calls are under way at once at most.
    pub at_a_time: Option<u64>,
    /// How many levels of graphs are nested below it; `None` where they form a circle.
    pub levels: Option<u32>,
}

/// A graph that runs inside another, called by it or by one that is (R188).
#[derive(Debug, Clone)]
pub struct InnerGraph {
    /// Its id.
    pub id: String,
    /// Its file, as messages show it.
    pub file: String,
    /// The name of its module.
    pub module: String,
    /// Whether the other graph runs inside it too, so that neither can be compiled first.
    pub returns: bool,
    /// Whether it needs nothing of the program: its own tools are all built in.
    pub builtin: bool,
    /// The capability patterns that its own calls need.
    pub needs: Vec<String>,
    /// The environment variables that it needs itself.
    pub env: Vec<String>,
}

/// A key of the state.
#[derive(Debug, Clone)]
pub struct TypedKey {
    /// Its name.
    pub name: String,
    /// What is written to it.
    pub ty: Type,
    /// Its first value, where `config.state` gives one.
    pub initial: Option<Value>,
}

/// What the nodes and hooks of a graph call.
#[derive(Debug, Clone)]
pub struct TypedTool {
    /// Its id; empty where it is known only at each call.
    pub id: String,
    /// What is done with the item.
    pub verb: Verb,
    /// What kind of item it is.
    pub item: ItemType,
    /// Who does it.
    pub by: Executor,
    /// Whether a contract says what it returns.
    pub typed: bool,
    /// What a run needs to call it; `None` where nothing is needed, or that is known only at each call.
    pub capability: Option<String>,
    /// Whether the runtime performs it, where that is for the program to do.
    pub builtin: bool,
    /// How the program is started that it is, where it is one (R184).
    pub subprocess: Option<Subprocess>,
    /// The name of the module, where it is a graph.
    pub module: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Its parameters; `None` where no contract names them.
    pub params: Option<Vec<TypedField>>,
    /// What it returns.
    pub result: Type,
}

/// A node of a checked graph.
#[derive(Debug)]
pub(crate) struct CheckedNode {
    pub(crate) name: String,
    /// Where its edges lead, in order, each target once.
    pub(crate) next: Vec<u16>,
    pub(crate) body: Body,
}

impl CheckedGraph {
    /// Returns the graph's types and names.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns the file that the graph was read from.
    pub fn path(&self) -> &PathBuf {
        &self.source.path
    }

    /// Returns how many nodes the graph has.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the capability patterns that a run needs, those of the graphs inside it too, each once: of an item whose id is
    /// known only at each call, what it begins with and a star.
    pub fn capabilities(&self) -> Vec<&str> {
        let inner = self.interface.inner.iter().flat_map(|inner| &inner.needs);
        let mut all = Vec::new();
        for needed in self.needs.iter().chain(inner) {
            if !all.contains(&needed.as_str()) {
                all.push(needed.as_str());
            }
        }
        all
    }

    /// Returns the environment variables that must be set, those of the graphs inside it too, each once.
    pub fn environment(&self) -> Vec<&str> {
        let inner = self.interface.inner.iter().flat_map(|inner| &inner.env);
        let mut all: Vec<&str> = Vec::new();
        for name in self.env.iter().chain(inner) {
            if !all.contains(&name.as_str()) {
                all.push(name);
            }
        }
        all
    }
}

impl Interface {
    /// Returns the type of what a run returns that ends at a node; `None` if no run can end there.
    pub fn output_at(&self, node: &str) -> Option<&Type> {
        match self.exits.as_slice() {
            [] => Some(&self.output),
            [only] => Some(&only.ty),
            exits => exits.iter().find(|exit| exit.node == node).map(|exit| &exit.ty),
        }
    }

    /// Whether a run needs nothing of the program: all tools are built in, also those of the graphs inside.
    pub fn is_builtin(&self) -> bool {
        self.own_tools_are_builtin() && self.inner.iter().all(|inner| inner.builtin)
    }

    /// The same of its own tools alone.
    pub(crate) fn own_tools_are_builtin(&self) -> bool {
        self.tools.iter().filter(|tool| tool.by == Executor::Program).all(|tool| tool.builtin)
    }
}
