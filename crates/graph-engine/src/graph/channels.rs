//! The channels of a graph, and the nodes that write them.

use graph_model::program::{Executor, Settings};
use graph_model::reducer::{Keep, Reducer};

use crate::graph::reads::Reads;
use crate::graph::{CompiledKey, CompiledKind, CompiledNode, CompiledTool, GraphTables};

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
    if let Some(name) = loaded.settings.keep.keys().find(|name| !loaded.settings.channels.contains_key(*name)) {
        return Err(format!("`{name}` is no channel, and keeps its value"));
    }
    if let Some(name) = loaded.settings.by_branch.iter().find(|name| loaded.settings.keep.contains_key(*name)) {
        return Err(format!("`{name}` does not keep the elements that it puts in order"));
    }
    let (in_memory, for_a_step) = (kept(&loaded.keys, Keep::Memory), kept(&loaded.keys, Keep::Step));
    let is_channel: Vec<bool> = loaded.keys.iter().map(|key| key.reducer.is_some()).collect();
    loaded.combines_writes = is_channel.contains(&true) || loaded.nodes.iter().any(|node| !node.share.is_empty());
    for node in &mut loaded.nodes {
        if let Some(key) = node.reset.iter().find(|key| !is_channel[**key]) {
            let (name, key) = (&node.name, &loaded.keys[*key].name);
            return Err(format!("node `{name}` resets `{key}`, which is no channel"));
        }
        let own = node.assign.iter().map(|(key, _)| *key).chain(node.kind.collects()).chain(node.reset.clone());
        let own: Vec<usize> = own.collect();
        let tool = node.kind.calls().and_then(|tool| loaded.tools.get(usize::from(tool)));
        check_share(node, tool, (&loaded.keys, &loaded.settings), &own)?;
        let written = own.into_iter().chain(node.share.clone());
        let mut channels: Vec<usize> = written.filter(|key| is_channel[*key]).collect();
        node.combines_writes = !channels.is_empty() || !node.share.is_empty();
        // The fast path writes values as they are.
        node.facts.fast &= !node.combines_writes && for_a_step.is_empty();
        let mut reads = Reads::default();
        node.assign.iter().for_each(|(_, term)| reads.of_term(term));
        reads.of_route(&node.next);
        channels.retain(|key| reads.reads(*key));
        node.seen = channels;
    }
    loaded.kept_for_a_step = for_a_step;
    for node in 0..loaded.nodes.len() {
        let at = u16::try_from(node).unwrap_or(u16::MAX);
        loaded.nodes[node].asks_memory = in_memory.iter().any(|key| loaded.call_reads(at, *key));
    }
    Ok(())
}

/// Fails if a node that calls a tool, and writes and resets its `own` keys, cannot share others as it says.
fn check_share(
    node: &CompiledNode,
    tool: Option<&CompiledTool>,
    (keys, settings): (&[CompiledKey], &Settings),
    own: &[usize],
) -> Result<(), String> {
    let runs_graph =
        matches!(node.kind, CompiledKind::Action(_)) && tool.is_some_and(|tool| tool.by == Executor::Graph);
    for (at, &shared) in node.share.iter().enumerate() {
        let (name, key) = (&node.name, &keys[shared]);
        let wrong = if !runs_graph {
            "runs no graph"
        } else if own.contains(&shared) || node.share[..at].contains(&shared) {
            "writes it otherwise too"
        } else if !key.is_shareable() {
            "shares a key that does not keep its elements as they are written"
        } else if settings.secrets.keys.contains_key(&key.name) {
            "shares a key with secrets"
        } else {
            continue;
        };
        return Err(format!("node `{name}` cannot share `{}`: it {wrong}", key.name));
    }
    Ok(())
}

/// Returns the keys that are kept in this way.
fn kept(keys: &[CompiledKey], keep: Keep) -> Vec<usize> {
    (0..keys.len()).filter(|key| keys[*key].keep == Some(keep)).collect()
}
