//! The keys of the state that the parts of a graph read.

use std::collections::HashSet;

use crate::graph::GraphTables;
use crate::graph::node::{
    ArgumentTerms, CallTerm, CompiledHook, CompiledKind, CompiledNode, CompiledRoute, CompiledTerm, Does, PathBase,
    ResolvedPath, TextPiece,
};

/// The keys of the state that terms and conditions read.
#[derive(Default)]
pub(super) struct Reads {
    /// Whether they read the state as a whole.
    all: bool,
    keys: HashSet<usize>,
    /// The keys that a term reads without a fallback.
    bare: HashSet<usize>,
}

impl Reads {
    /// Whether they read a key.
    pub(super) fn reads(&self, key: usize) -> bool {
        self.all || self.keys.contains(&key)
    }

    /// Whether they need a value of a key: they read it without a fallback, or the state as a whole.
    fn needs(&self, key: usize) -> bool {
        self.all || self.bare.contains(&key)
    }

    fn of_path(&mut self, path: &ResolvedPath) {
        match path.root {
            PathBase::State => self.all = true,
            PathBase::Key(key) => drop(self.keys.insert(key)),
            _ => {}
        }
    }

    fn of_first(&mut self, paths: &[ResolvedPath]) {
        paths.iter().for_each(|path| self.of_path(path));
        if let Some(ResolvedPath { root: PathBase::Key(key), .. }) = paths.last() {
            self.bare.insert(*key);
        }
    }

    pub(super) fn of_term(&mut self, term: &CompiledTerm) {
        match term {
            CompiledTerm::Literal(_) => {}
            CompiledTerm::First(paths) => self.of_first(paths),
            CompiledTerm::List(terms) => terms.iter().for_each(|term| self.of_term(term)),
            CompiledTerm::Object(fields) => fields.iter().for_each(|(_, term)| self.of_term(term)),
            CompiledTerm::Text(pieces) => pieces.iter().for_each(|piece| match piece {
                TextPiece::Text(_) => {}
                TextPiece::First(paths) => self.of_first(paths),
                TextPiece::Input(path, _) => self.of_path(path),
            }),
        }
    }

    pub(super) fn of_route(&mut self, route: &CompiledRoute) {
        match route {
            CompiledRoute::First(edges) | CompiledRoute::All(edges) => {
                edges.iter().flat_map(|edge| edge.when.tests()).for_each(|test| self.of_path(&test.left));
            }
            CompiledRoute::Each(each) => self.of_term(&each.over),
            CompiledRoute::By(by) => self.of_first(std::slice::from_ref(&by.by)),
        }
    }

    fn of_call(&mut self, call: &CallTerm) {
        call.id.iter().for_each(|id| self.of_term(id));
        match &call.params {
            ArgumentTerms::Listed(terms) => terms.iter().flat_map(|(term, _)| term).for_each(|term| self.of_term(term)),
            ArgumentTerms::Object(term) => self.of_term(term),
        }
    }

    /// Adds the calls of a node: the item, the parameters and the list; for a wait, the time until which it waits, or what it asks.
    fn of_calls(&mut self, kind: &CompiledKind) {
        match kind {
            CompiledKind::Action(call) => self.of_call(call),
            CompiledKind::Foreach(each) => {
                self.of_call(&each.call);
                self.of_term(&each.over);
            }
            CompiledKind::Wait(wait) => {
                let payload = wait.ask.iter().filter_map(|ask| ask.payload.as_ref());
                wait.until.iter().chain(payload).for_each(|term| self.of_term(term));
            }
            CompiledKind::Gate | CompiledKind::Return(_) | CompiledKind::Start => {}
        }
    }
}

impl GraphTables {
    /// Whether the calls that a node makes depend on a key of the state. The run of a graph begins with the keys that it shares.
    pub fn call_reads(&self, node: u16, key: usize) -> bool {
        let mut reads = Reads::default();
        reads.of_calls(&self.node(node).kind);
        reads.reads(key) || self.node(node).share.contains(&key)
    }

    /// Returns the first node or hook that reads a key of the state in a term without a fallback, or the state as a whole.
    /// Conditions do not count, because they have a result for null.
    pub fn reads_without_fallback(&self, key: usize) -> Option<&str> {
        let of_node = |node: &&CompiledNode| {
            let mut reads = Reads::default();
            reads.of_calls(&node.kind);
            match &node.kind {
                CompiledKind::Return(Some(output)) => reads.of_term(output),
                CompiledKind::Return(None) => reads.all = true,
                CompiledKind::Action(_)
                | CompiledKind::Foreach(_)
                | CompiledKind::Gate
                | CompiledKind::Wait(_)
                | CompiledKind::Start => {}
            }
            node.assign.iter().for_each(|(_, term)| reads.of_term(term));
            reads.of_route(&node.next);
            reads.needs(key)
        };
        let of_hook = |hook: &&CompiledHook| {
            let mut reads = Reads::default();
            match &hook.does {
                Does::Call(call) => reads.of_call(call),
                Does::Steer(term) => reads.of_term(term),
            }
            reads.needs(key)
        };
        let node = self.nodes.iter().find(of_node).map(|node| node.name.as_str());
        node.or_else(|| self.hooks.iter().find(of_hook).map(|hook| hook.name.as_str()))
    }
}
