//! The channels of a graph, and the nodes that write them.

use graph_model::reducer::Reducer;

use crate::graph::GraphTables;
use crate::graph::reads::Reads;

/// Finds the nodes that write channels, and the channels whose values a node reads after it has written them.
pub(super) fn find_channels(loaded: &mut GraphTables) -> Result<(), String> {
    let is_unknown = |name: &&String| !loaded.keys.iter().any(|key| key.name == **name);
    if let Some(name) = loaded.settings.channels.keys().find(is_unknown) {
        return Err(format!("the channel `{name}` is no state key"));
    }
    let adds = |name: &str| matches!(loaded.settings.channels.get(name), Some(Reducer::Append | Reducer::Extend));
    if let Some(name) = loaded.settings.by_branch.iter().find(|name| !adds(name)) {
        return Err(format!("the elements of `{name}` have no order of their own"));
    }
    let is_channel: Vec<bool> = loaded.keys.iter().map(|key| key.reducer.is_some()).collect();
    loaded.has_channels = is_channel.contains(&true);
    for node in &mut loaded.nodes {
        if let Some(key) = node.reset.iter().find(|key| !is_channel[**key]) {
            let (name, key) = (&node.name, &loaded.keys[*key].name);
            return Err(format!("node `{name}` resets `{key}`, which is no channel"));
        }
        let written = node.assign.iter().map(|(key, _)| *key).chain(node.kind.collects()).chain(node.reset.clone());
        let mut channels: Vec<usize> = written.filter(|key| is_channel[*key]).collect();
        node.has_channels = !channels.is_empty();
        // The fast path writes values as they are.
        node.facts.fast &= !node.has_channels;
        let mut reads = Reads::default();
        node.assign.iter().for_each(|(_, term)| reads.of_term(term));
        reads.of_route(&node.next);
        channels.retain(|key| reads.reads(*key));
        node.seen = channels;
    }
    Ok(())
}
