//! Where a run stands.

use std::borrow::Cow;
use std::collections::HashMap;

use graph_model::value::Value;

use super::{Activation, Retries, Visited};
use crate::error::{LastError, SuppressedError};
use crate::graph::CompiledGraph;
use crate::record::{ItemFailure, Status};

/// Where a run stands between two steps, besides its state. Nothing of it changes while a step is at work.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Position {
    /// How many nodes were visited.
    pub(crate) steps: u64,
    /// The node that was visited last; before the first visit, the one that it begins with.
    pub(crate) last: u16,
    /// What is to be visited next.
    pub(crate) frontier: Vec<Activation>,
    pub(crate) last_error: Option<LastError>,
    pub(crate) suppressed: Vec<SuppressedError>,
    /// How often the call of each node was made again at its last visit.
    pub(crate) retries: Retries,
    /// For each node, how often it was visited; empty where no node asks.
    pub(crate) visits: Vec<u64>,
    /// What the last visit returned of each node that asks.
    pub(crate) previous: HashMap<u16, Value>,
    /// How many steps the run may take, where a hook or the caller allowed another number than the graph does.
    pub(crate) limit: Option<u64>,
}

impl Position {
    /// Where a run stands that is about to begin.
    pub(crate) fn new(graph: &CompiledGraph) -> Self {
        Self {
            steps: 0,
            last: graph.start,
            frontier: vec![Activation::of(graph.start)],
            last_error: None,
            suppressed: Vec::new(),
            retries: Retries::new(),
            visits: if graph.counts_visits { vec![0; graph.nodes.len()] } else { Vec::new() },
            previous: HashMap::new(),
            limit: None,
        }
    }

    /// Returns what holds while a node is visited: how often its call was made again at its last visit is forgotten (R136).
    pub(crate) fn visiting(&self, node: &str) -> Cow<'_, Self> {
        if !self.retries.contains_key(node) {
            return Cow::Borrowed(self);
        }
        let mut position = self.clone();
        position.retries.shift_remove(node);
        Cow::Owned(position)
    }

    /// Returns how a run ends that ends here with a result.
    pub(crate) fn status_at_end(&self) -> Status {
        if self.suppressed.is_empty() { Status::Completed } else { Status::CompletedWithErrors }
    }

    /// Takes a visit into account that is committed.
    pub(super) fn take(&mut self, graph: &CompiledGraph, visited: &Visited<'_>) {
        self.steps += 1;
        let node = graph.node(visited.node);
        self.retried(graph, visited.node, visited.calls);
        if let Some(error) = visited.error {
            self.failed(&node.name, error, visited.items, visited.way.is_suppressed());
        }
        self.last = visited.node;
        if let Some(count) = self.visits.get_mut(usize::from(visited.node)) {
            *count += 1;
            if node.facts.previous && visited.error.is_none() {
                self.previous.insert(visited.node, visited.returned(node));
            }
        }
    }

    /// Takes into account how often a visit of a node made its call again, whether or not that helped (R136).
    #[inline]
    pub(super) fn retried(&mut self, graph: &CompiledGraph, node: u16, calls: u64) {
        if calls > 1 {
            self.retries.insert(graph.node(node).name.clone(), Value::from(calls - 1));
        } else if !self.retries.is_empty() {
            self.retries.shift_remove(&graph.node(node).name);
        }
    }

    /// Takes a failure into account.
    fn failed(&mut self, node: &str, error: &str, items: &[ItemFailure], is_suppressed: bool) {
        let step = self.steps;
        let one = |error: String| SuppressedError { step, node: node.to_owned(), error };
        if is_suppressed && items.is_empty() {
            self.suppressed.push(one(error.to_owned()));
        } else if is_suppressed {
            self.suppressed.extend(items.iter().map(|item| one(format!("item {}: {}", item.item, item.error))));
        }
        self.last_error = Some(LastError { node: node.to_owned(), error: error.to_owned() });
    }
}
