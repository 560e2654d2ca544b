//! Nodes that look at a part of another node's result, by the keys to which that node has copied it.
//!
//! A wait for two signals writes `signal: "${result.signal}"` and `cents: "${result.paid.cents}"`. Where a later gate finds `paid` in
//! `state.signal`, `state.cents` is set, if both keys still have their values from the wait.

use graph_definition::definition::RouteDefinition;
use graph_definition::hash::HashMap;
use graph_model::path::{Path, Root};

use super::Flow;
use crate::analysis::cases;
use crate::analysis::edges::edges;
use crate::analysis::model::Model;

/// How many nodes an edge may look back at, to tell apart the cases of their results.
const MOST_ORIGINS: usize = 16;

impl Flow {
    /// Finds the edges that tell the cases of another node's result apart. It is a fact of its own that the keys
    /// have their values from it. No copy of a key has this fact, since the other keys may have changed.
    pub(super) fn tell_cases_apart_later(&mut self, model: &Model<'_>) {
        let mut origins: HashMap<&str, Vec<usize>> = HashMap::default();
        for origin in 0..model.definition.nodes.len() {
            let keys = cases::distinguished_by(model, origin);
            keys.into_iter().for_each(|key| origins.entry(key).or_default().push(origin));
        }
        if origins.is_empty() {
            return;
        }
        for (node, definition) in model.definition.nodes.iter().enumerate() {
            let mut seen = Vec::new();
            let mut look = |path: &Path| {
                let of_key = path.segments.first().filter(|_| path.root == Root::State);
                let found = of_key.and_then(|key| origins.get(key.as_str()));
                seen.extend(found.into_iter().flatten().copied().filter(|origin| *origin != node));
            };
            match definition.next() {
                RouteDefinition::By(by) => look(&by.by.value),
                route => {
                    let conditions = edges(route).into_iter().filter_map(|view| view.edge);
                    conditions.for_each(|edge| edge.when.tests(&mut |test| look(&test.path.value)));
                }
            }
            seen.sort_unstable();
            seen.dedup();
            for origin in seen.into_iter().take(MOST_ORIGINS) {
                let Some(from) = self.comes_from(model, origin) else { continue };
                for (edge, paths) in cases::assigned(model, origin, node).into_iter().enumerate() {
                    let facts: Vec<usize> = paths.iter().flat_map(|path| self.facts_of(model, path)).collect();
                    self.gains[node].later.extend(facts.into_iter().map(|fact| (edge, from, fact)));
                }
            }
        }
    }

    /// Returns the fact that all keys to which a node copies parts of its result have their values from its last visit.
    fn comes_from(&mut self, model: &Model<'_>, origin: usize) -> Option<usize> {
        let keys = cases::distinguished_by(model, origin);
        let path = Path { root: Root::State, segments: vec![(*keys.first()?).to_owned(), format!("\0from {origin}")] };
        if let Some(&fact) = self.paths.get(&path) {
            return Some(fact);
        }
        let fact = self.fact(model, &path)?;
        for key in keys.into_iter().skip(1).filter_map(|key| model.key(key)) {
            self.into[key].push(fact);
        }
        self.gains[origin].edges.iter_mut().for_each(|(_, facts)| facts.push(fact));
        Some(fact)
    }
}
