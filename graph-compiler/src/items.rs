//! What there is in a tree for the actions of a graph to be about.

use std::collections::BTreeMap;
use std::sync::Arc;

use graph_definition::definition::{Contract, ValueSchema};
use graph_model::name::ItemId;

use crate::graph::{Budget, InnerGraph};
use crate::types::Type;

/// The contracts of the tools that a graph calls, by the tool's id. A tool without contract is not in it.
pub type Contracts = BTreeMap<ItemId, Arc<Contract>>;

/// What there is in a tree for the actions of a graph to be about.
#[derive(Debug, Default)]
pub struct Items {
    /// The contracts of tools.
    pub contracts: Contracts,
    /// The graphs that are called, by their ids.
    pub graphs: BTreeMap<ItemId, Nested>,
    /// The ids that several things have, with the names of their files.
    pub ambiguous: BTreeMap<ItemId, Vec<String>>,
    /// Of ids of which there is neither contract nor graph, one that is nearly the same.
    pub similar: BTreeMap<ItemId, String>,
    /// The graphs that run inside, directly or through others, each once.
    pub inner: Vec<InnerGraph>,
    /// What the computed ids of the graph may name.
    pub reachable: Vec<Reachable>,
    /// Whether files that nobody vouches for were looked at too. No graph comes of those.
    pub are_for_review: bool,
}

/// A tool or graph that a computed id may name.
#[derive(Debug)]
pub struct Reachable {
    /// Its id.
    pub id: ItemId,
    /// What it takes.
    pub schema: ValueSchema,
}

/// A graph that another calls (R188).
#[derive(Debug, Clone)]
pub struct Nested {
    /// The file, as messages show it.
    pub file: String,
    /// The name of its module.
    pub module: String,
    /// What its inputs are.
    pub inputs: Type,
    /// The same, as the file says it; nothing where it has mistakes or says nothing.
    pub schema: Option<ValueSchema>,
    /// What it returns; any value where it has mistakes or nests its caller in turn.
    pub output: Type,
    /// The capability patterns that it needs, and the graphs inside it.
    pub needs: Vec<String>,
    /// What a run of it can come to at most; `None` where it has mistakes or nests its caller in turn.
    pub budget: Option<Budget>,
    /// Whether no run of it can end, since each runs another of it inside.
    pub is_endless: bool,
}
