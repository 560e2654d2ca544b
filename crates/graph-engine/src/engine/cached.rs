//! Cached results of calls: finding them, and storing them after the commit of their step.

use graph_model::digest::Digest;
use graph_model::timestamp;
use graph_model::value::Value;

use crate::cache::{CacheEntry, Fresh, NodeCache};
use crate::graph::GraphTables;
use crate::services::RuntimeServices;

impl RuntimeServices {
    /// Returns the cached result of the call with that key. An entry that cannot be used counts as missing and adds to
    /// `warnings`.
    pub(crate) async fn cached(&self, key: &Digest, warnings: &mut Vec<String>) -> Option<Value> {
        let (NodeCache { cache, .. }, signer) = (self.cache.as_ref()?, self.key.as_ref()?);
        let problem = match cache.get(key).await {
            Ok(None) => return None,
            Ok(Some(text)) => match CacheEntry::read(&text, key, &signer.public()) {
                Ok(entry) => return Some(entry.result),
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        warnings.push(format!("the cache entry {key} is not used, and the call is made: {problem}"));
        None
    }

    /// Caches the results of calls whose step is committed. A result that cannot be cached is computed again the next time;
    /// it does not end the run.
    pub(crate) async fn keep(&self, code: &GraphTables, all: Vec<Fresh>) {
        let (Some(NodeCache { cache, .. }), Some(key)) = (&self.cache, &self.key) else { return };
        for Fresh { key: at, node, result } in all {
            let entry = CacheEntry {
                key: at,
                graph: code.id.to_string(),
                digest: code.digest,
                node: code.node(node).name.clone(),
                cached_at: timestamp::seconds(self.clock.now()),
                result,
            };
            if let Err(error) = cache.put(&at, &entry.sign(key)).await {
                let (graph, node) = (&entry.graph, &entry.node);
                tracing::warn!(%graph, %node, %error, "what a call returned could not be kept in the cache");
            }
        }
    }
}
