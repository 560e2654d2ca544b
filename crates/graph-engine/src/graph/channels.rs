//! The channels of a graph, and the nodes that write them.

use std::collections::HashSet;

use crate::graph::GraphTables;
use crate::graph::node::{CompiledRoute, CompiledTerm, PathBase, ResolvedPath, TextPiece};

/// Finds the nodes that write channels, and the channels whose values a node reads after it has written them.
pub(super) fn find_channels(loaded: &mut GraphTables) -> Result<(), String> {
    let is_unknown = |name: &&String| !loaded.keys.iter().any(|key| key.name == **name);
    if let Some(name) = loaded.settings.channels.keys().find(is_unknown) {
        return Err(format!("the channel `{name}` is no state key"));
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
        channels.retain(|key| reads.all || reads.keys.contains(key));
        node.seen = channels;
    }
    Ok(())
}

/// The keys of the state that terms and conditions read.
#[derive(Default)]
struct Reads {
    /// Whether they read the state as a whole.
    all: bool,
    keys: HashSet<usize>,
}

impl Reads {
    fn of_path(&mut self, path: &ResolvedPath) {
        match path.root {
            PathBase::State => self.all = true,
            PathBase::Key(key) => drop(self.keys.insert(key)),
            _ => {}
        }
    }

    fn of_term(&mut self, term: &CompiledTerm) {
        match term {
            CompiledTerm::Literal(_) => {}
            CompiledTerm::First(paths) => paths.iter().for_each(|path| self.of_path(path)),
            CompiledTerm::List(terms) => terms.iter().for_each(|term| self.of_term(term)),
            CompiledTerm::Object(fields) => fields.iter().for_each(|(_, term)| self.of_term(term)),
            CompiledTerm::Text(pieces) => pieces.iter().for_each(|piece| match piece {
                TextPiece::Text(_) => {}
                TextPiece::First(paths) => paths.iter().for_each(|path| self.of_path(path)),
                TextPiece::Input(path, _) => self.of_path(path),
            }),
        }
    }

    fn of_route(&mut self, route: &CompiledRoute) {
        match route {
            CompiledRoute::First(edges) | CompiledRoute::All(edges) => {
                edges.iter().flat_map(|edge| edge.when.tests()).for_each(|test| self.of_path(&test.left));
            }
            CompiledRoute::Each(each) => self.of_term(&each.over),
            CompiledRoute::By(by) => self.of_path(&by.by),
        }
    }
}
