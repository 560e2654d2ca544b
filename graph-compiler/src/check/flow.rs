//! What is sure before each node: which state keys are set, and which paths lead to something, on every way that leads there.

use std::collections::HashMap;

use graph_model::path::{Path, Root};
use graph_model::program::LAST_ERROR;

use super::facts::Facts;
use super::guards;
use super::set::Set;
use crate::definition::{EdgeList, Next};

/// The result of a forward analysis over the graph: an intersection over all ways.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// For each node, what is sure on all ways to it; `None` where no way leads.
    before: Vec<Option<Set>>,
    /// For each node, the keys that it is sure to write.
    writes: Vec<Vec<usize>>,
    /// For each node, the keys that it may write.
    touches: Vec<Vec<usize>>,
    /// For each node, what each of its edges proves, in the order of [`Facts::ways`].
    gains: Vec<Vec<Vec<usize>>>,
    /// How many keys there are; behind them comes the last error, then the paths.
    keys: usize,
    paths: HashMap<Path, usize>,
    /// For each key, the paths into it.
    into: Vec<Vec<usize>>,
}

/// A place between the steps of a node, for what is known there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// Before the node does anything.
    Before,
    /// In its assignments, when the first so many were made.
    Assigned(usize),
    /// When its edges are chosen.
    After,
}

impl Flow {
    /// Analyses a graph whose names are resolved; types are not needed.
    pub(super) fn analyse(facts: &Facts<'_>) -> Self {
        let nodes = &facts.definition.nodes;
        let (count, keys) = (nodes.len(), facts.types.keys.len());
        let mut flow = Self {
            before: vec![None; count],
            writes: (0..count).map(|node| writes(facts, node)).collect(),
            touches: (0..count).map(|node| touches(facts, node)).collect(),
            gains: Vec::new(),
            keys,
            paths: HashMap::new(),
            into: vec![Vec::new(); keys + 1],
        };
        flow.gains = (0..count).map(|node| flow.gains_of(facts, node)).collect();
        let Some(start) = facts.start else { return flow };
        let mut first = Set::empty(flow.size());
        for (at, key) in facts.types.keys.iter().enumerate() {
            if key.initial.is_some() {
                first.insert(at);
            }
        }
        flow.before[start] = Some(first);
        let order = order(facts, start);
        let mut changed = true;
        while changed {
            changed = false;
            // What comes before a node in this order needs no second look, but for what leads back.
            for &node in &order {
                let Some(after) = flow.at(node, Moment::After) else { continue };
                for (way, next) in facts.successors(node).enumerate() {
                    let mut known = after.clone();
                    flow.gains[node][way].iter().for_each(|&fact| known.insert(fact));
                    changed |= flow.reach(next, &known);
                }
                if let (Some(next), Some(mut known)) = (facts.error_successor(node), flow.before[node].clone()) {
                    known.insert(flow.keys);
                    changed |= flow.reach(next, &known);
                }
            }
        }
        flow
    }

    fn size(&self) -> usize {
        self.keys + 1 + self.paths.len()
    }

    /// Takes what one way to a node leaves of what was sure there; says whether that is news.
    fn reach(&mut self, node: usize, known: &Set) -> bool {
        match &mut self.before[node] {
            Some(before) => before.intersect(known),
            unknown => {
                *unknown = Some(known.clone());
                true
            }
        }
    }

    /// Returns what each edge of a node proves, and gives every path that an edge proves an index.
    fn gains_of(&mut self, facts: &Facts<'_>, node: usize) -> Vec<Vec<usize>> {
        let Next::List(EdgeList { edges, .. }) = facts.definition.nodes[node].next() else {
            return vec![Vec::new(); facts.successors(node).count()];
        };
        let of_edge = |edge: usize| -> Vec<usize> {
            let proven = guards::proven_on_edge(edges, edge);
            // What only a failure tells of is there because the node has failed.
            let failed = proven.iter().any(|path| facts.is_of_failure(node, path)).then_some(self.keys);
            proven.into_iter().flat_map(|path| self.facts_of(facts, path)).chain(failed).collect()
        };
        facts.ways(node).map(of_edge).collect()
    }

    /// Returns the facts that a path which is not null means: itself, all on the way to it, and that its key is set.
    fn facts_of(&mut self, facts: &Facts<'_>, path: &Path) -> Vec<usize> {
        let key = match (path.root, path.segments.first()) {
            (Root::State, Some(name)) => match self.key(facts, name) {
                Some(key) => Some(key),
                None => return Vec::new(),
            },
            (Root::Inputs, Some(_)) => None,
            // What a node returned is known in the node alone.
            _ => return Vec::new(),
        };
        let mut found: Vec<usize> = key.into_iter().collect();
        for length in 1..=path.segments.len() {
            let part = Path { root: path.root, segments: path.segments[..length].to_vec() };
            let next = self.keys + 1 + self.paths.len();
            let fact = *self.paths.entry(part).or_insert(next);
            found.push(fact);
            if let Some(into) = key.map(|key| &mut self.into[key])
                && !into.contains(&fact)
            {
                into.push(fact);
            }
        }
        found
    }

    /// Returns the index of a key, or of the last error.
    pub(super) fn key(&self, facts: &Facts<'_>, name: &str) -> Option<usize> {
        if name == LAST_ERROR { Some(self.keys) } else { facts.types.key(name) }
    }

    /// Returns what is sure at a moment of a node; `None` where no way leads to it.
    pub(super) fn at(&self, node: usize, moment: Moment) -> Option<Set> {
        let mut known = self.before[node].clone()?;
        let made = match moment {
            Moment::Before => 0,
            Moment::Assigned(count) => count,
            Moment::After => usize::MAX,
        };
        for key in self.touches[node].iter().take(made) {
            self.into[*key].iter().for_each(|&fact| known.remove(fact));
        }
        // The assignments themselves are made one after the other; whether the edges see them is another matter.
        let written = if moment == Moment::After { &self.writes[node] } else { &self.touches[node] };
        written.iter().take(made).for_each(|&key| known.insert(key));
        Some(known)
    }

    /// Whether a path is sure to lead to something, because a condition on every way to here says so.
    pub(super) fn is_something(&self, node: usize, moment: Moment, path: &Path) -> bool {
        let Some(&fact) = self.paths.get(path) else { return false };
        let is_touched = || {
            let made = match moment {
                Moment::Before => 0,
                Moment::Assigned(count) => count,
                Moment::After => usize::MAX,
            };
            self.touches[node].iter().take(made).any(|&key| self.into[key].contains(&fact))
        };
        self.before[node].as_ref().is_some_and(|known| known.contains(fact)) && !is_touched()
    }

    /// Whether any condition proves that a path leads to something.
    pub(super) fn knows_paths(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Whether a key is sure to be set at a moment of a node. Where no way leads to the node, nothing is missed.
    pub(super) fn is_set(&self, node: usize, moment: Moment, key: usize) -> bool {
        let made = match moment {
            Moment::Before => 0,
            Moment::Assigned(count) => count,
            Moment::After => usize::MAX,
        };
        let written = if moment == Moment::After { &self.writes[node] } else { &self.touches[node] };
        written.iter().take(made).any(|&written| written == key)
            || self.before[node].as_ref().is_none_or(|known| known.contains(key))
    }

    /// Whether any way leads to a node.
    pub(super) fn is_reached(&self, node: usize) -> bool {
        self.before[node].is_some()
    }

    /// Returns the shortest way from the start to a node on which nothing sets a key: the nodes in order, the last one
    /// included. `None` if every way sets it.
    pub(super) fn way_without(&self, facts: &Facts<'_>, key: usize, to: usize) -> Option<Vec<usize>> {
        let start = facts.start?;
        if facts.types.keys.get(key).is_some_and(|key| key.initial.is_some()) {
            return None;
        }
        let mut from: Vec<Option<usize>> = vec![None; self.before.len()];
        let mut waiting = std::collections::VecDeque::from([start]);
        let mut seen = vec![false; self.before.len()];
        seen[start] = true;
        while let Some(node) = waiting.pop_front() {
            if node == to {
                let mut way = vec![node];
                let mut at = node;
                while let Some(before) = from[at] {
                    way.push(before);
                    at = before;
                }
                way.reverse();
                return Some(way);
            }
            let sets = self.writes[node].contains(&key);
            let ways = facts.successors(node).enumerate();
            let onward = ways.filter(|(way, _)| !sets && !self.gains[node][*way].contains(&key)).map(|(_, next)| next);
            let failed = facts.error_successor(node).filter(|_| key != self.keys);
            for next in onward.chain(failed) {
                if !std::mem::replace(&mut seen[next], true) {
                    from[next] = Some(node);
                    waiting.push_back(next);
                }
            }
        }
        None
    }

    /// Returns the nodes that may set a key and from which a way leads to a node.
    pub(super) fn setters_before(&self, facts: &Facts<'_>, key: usize, to: usize) -> Vec<usize> {
        let count = self.before.len();
        let mut leads = vec![false; count];
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); count];
        for node in 0..count {
            for next in facts.successors(node).chain(facts.error_successor(node)) {
                before[next].push(node);
            }
        }
        let mut waiting = before[to].clone();
        while let Some(node) = waiting.pop() {
            if !std::mem::replace(&mut leads[node], true) {
                waiting.extend(&before[node]);
            }
        }
        let sets = |node: usize| match key == self.keys {
            true => facts.error_successor(node).is_some() || facts.may_skip_assign(node),
            false => self.touches[node].contains(&key),
        };
        (0..count).filter(|&node| leads[node] && self.is_reached(node) && sets(node)).collect()
    }
}

/// Returns the keys that a node is sure to have written when it is left along its edges.
fn writes(facts: &Facts<'_>, node: usize) -> Vec<usize> {
    if facts.may_skip_assign(node) { Vec::new() } else { touches(facts, node) }
}

/// Returns the keys that a node may write, in the order in which it does.
fn touches(facts: &Facts<'_>, node: usize) -> Vec<usize> {
    facts.definition.nodes[node].written().filter_map(|key| facts.types.key(key.value.as_str())).collect()
}

/// Orders the nodes that can be reached so that, loops aside, each comes after all that lead to it.
fn order(facts: &Facts<'_>, start: usize) -> Vec<usize> {
    let onward = |node| facts.successors(node).chain(facts.error_successor(node));
    let mut seen = vec![false; facts.definition.nodes.len()];
    let mut order = Vec::new();
    let mut open = vec![(start, onward(start))];
    seen[start] = true;
    while let Some((node, targets)) = open.last_mut() {
        match targets.next() {
            Some(next) if seen[next] => {}
            Some(next) => {
                seen[next] = true;
                open.push((next, onward(next)));
            }
            None => {
                order.push(*node);
                open.pop();
            }
        }
    }
    order.reverse();
    order
}
