//! The keys that a nested run shares with the run around it.
//!
//! The nested run begins with the values that the keys have in the run around it, and hands over its writes, not the values
//! that they lead to: several runs may share a channel at a time, and the run around them combines the writes of each.

use graph_model::value::{Map, Value};

use crate::graph::{CompiledKey, CompiledNode, GraphTables};
use crate::state::StateFields;
use crate::step::position::Position;

/// The member of a nested run's result that has its writes to the keys that it shares.
pub const SHARED: &str = "shared";

/// A key that a nested run shares.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedKey {
    /// The key.
    pub key: usize,
    /// The writes of the committed steps, in their order; for a key whose writes are not combined, only the last one.
    pub writes: Vec<Value>,
}

/// Fails unless a graph that a node runs, `inner`, has the keys that the node shares, and combines their writes in the same way.
///
/// # Errors
///
/// The first key that differs.
pub fn check_shared(graph: &GraphTables, node: &CompiledNode, inner: &GraphTables) -> Result<(), String> {
    let has_same = |signal: &&String| {
        let (own, there) = (&graph.settings, &inner.settings);
        let is_secret = |settings: &graph_model::program::Settings| settings.secrets.signals.get(*signal).cloned();
        there.signals.get(*signal).is_some_and(|rules| own.signals.get(*signal) == Some(rules))
            && is_secret(own) == is_secret(there)
    };
    if let Some(signal) = node.share_signals.iter().find(|signal| !has_same(signal)) {
        return Err(format!("`{}` has no signal `{signal}` with the same rules, and cannot share it", inner.id));
    }
    node.share.iter().map(|key| &graph.keys[*key]).try_for_each(|CompiledKey { name, reducer, .. }| {
        match inner.key_named(name) {
            Some(there) if inner.keys[there].reducer == *reducer => Ok(()),
            Some(_) => Err(format!("`{}` combines the writes to `{name}` otherwise, and cannot share it", inner.id)),
            None => Err(format!("`{}` has no key `{name}` that can be shared", inner.id)),
        }
    })
}

/// Returns the keys that a node shares, with their values.
pub fn shared_values(graph: &GraphTables, node: &CompiledNode, state: &dyn StateFields) -> Map<String, Value> {
    let value = |key: &usize| (graph.keys[*key].name.clone(), state.get(*key).to_plain_value());
    node.share.iter().map(value).collect()
}

impl CompiledKey {
    /// Whether a nested run may share it.
    pub fn is_shareable(&self) -> bool {
        self.keep.is_none() && !self.by_branch
    }
}

impl Position {
    /// Begins a nested run with the values of the keys that it shares, by their names. A key that is null was not set; it
    /// keeps the first value that the graph gives it. Without a state, only the position is changed.
    ///
    /// # Errors
    ///
    /// If the graph has no such key, or the key has another type, or secrets.
    pub(crate) fn share(
        &mut self,
        graph: &GraphTables,
        mut state: Option<&mut (dyn StateFields + 'static)>,
        shared: &Map<String, Value>,
    ) -> Result<(), String> {
        for (name, value) in shared {
            let has_secrets = graph.settings.secrets.keys.contains_key(name);
            let key = graph.key_named(name).filter(|key| graph.keys[*key].is_shareable() && !has_secrets);
            let key = key.ok_or_else(|| format!("`{}` has no key `{name}` that can be shared", graph.id))?;
            if let Some(state) = state.as_deref_mut().filter(|_| !value.is_null()) {
                let misfit = |error| format!("the key `{name}` that `{}` shares: {error}", graph.id);
                state.set(key, value.clone()).map_err(misfit)?;
            }
            self.shared.push(SharedKey { key, writes: Vec::new() });
        }
        self.shared.sort_unstable_by_key(|shared| shared.key);
        Ok(())
    }

    /// Notes the writes of a visit to shared keys.
    pub(super) fn note_shared<'c>(&mut self, graph: &GraphTables, writes: impl Iterator<Item = (usize, &'c Value)>) {
        for (key, value) in writes {
            let Some(shared) = self.shared.iter_mut().find(|shared| shared.key == key) else { continue };
            if !graph.keys[key].combines() {
                shared.writes.clear();
            }
            shared.writes.push(value.clone());
        }
    }

    /// Returns the writes to the shared keys, by their names, as the result of a nested run has them.
    pub fn shared_writes(&self, graph: &GraphTables) -> Map<String, Value> {
        let writes = |shared: &SharedKey| (graph.keys[shared.key].name.clone(), Value::Array(shared.writes.clone()));
        self.shared.iter().map(writes).collect()
    }
}
