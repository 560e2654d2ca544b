//! Channels whose elements get the order of the branches when these meet.
//!
//! Branches write at different steps, so the elements of a channel are in the order of the steps first. The position remembers
//! in which branch each element was written that branches have added since the first fan-out that is not over. When its closing
//! join is visited, the elements of its branches are put in the order of the branches, and belong to the branch around the
//! fan-out from then on, as do those that late branches write after that.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::activation::{Change, Fan, path};
use crate::graph::GraphTables;
use crate::step::position::Position;
use crate::step::visited::{SettledVisit, Way};

/// The paths of the branches that wrote the last elements of channels, by the indices of the keys.
pub type ElementPaths = BTreeMap<usize, Vec<Vec<u32>>>;

/// A new order for the last elements of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reordered {
    /// The key.
    pub key: usize,
    /// For each of the last elements, the place among them that it had before.
    pub from: Vec<u32>,
}

/// A change of the elements of a channel that are put in order.
#[derive(Debug)]
enum Changed {
    /// The channel has its first value again.
    Reset(usize),
    /// A branch has added so many elements.
    Added(usize, Vec<u32>, usize),
}

/// The effect of a step on the channels that are put in order.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    changes: Vec<Changed>,
    /// The paths after the step, if a fan-out is over: then they are not those before the step with the changes.
    paths: Option<ElementPaths>,
    pub(super) reordered: Vec<Reordered>,
}

/// Follows the writes of a step to the channels that are put in order, and puts those of the fan-outs in order that are over.
pub(super) fn order<'v>(
    graph: &GraphTables,
    base: &Position,
    visits: impl Iterator<Item = SettledVisit<'v>>,
    met: &[Arc<Fan>],
) -> Ordered {
    let mut ordered = Ordered::default();
    for visit in visits {
        let node = graph.node(visit.at.node);
        if matches!(visit.way, Way::Along { suppressed: false, .. }) {
            ordered.changes.extend(node.reset.iter().map(|&key| Changed::Reset(key)));
        }
        for Change { key, value } in visit.changes {
            let count = graph.keys[*key].added(value);
            if count > 0 {
                ordered.changes.push(Changed::Added(*key, path(base.outside_of_late(visit.at.frame.as_ref())), count));
            }
        }
    }
    if met.is_empty() {
        return ordered;
    }
    let mut paths = base.paths.clone();
    ordered.apply(&mut paths);
    let mut over: Vec<Vec<u32>> = met.iter().map(|fan| path(fan.outer.as_ref())).collect();
    // The innermost first.
    over.sort_by_key(|outer| std::cmp::Reverse(outer.len()));
    for (key, paths) in &mut paths {
        let count = u32::try_from(paths.len()).unwrap_or(u32::MAX);
        let mut from: Vec<u32> = (0..count).collect();
        over.iter().for_each(|outer| arrange(outer, paths, &mut from));
        if from.iter().zip(0..).any(|(from, at)| *from != at) {
            ordered.reordered.push(Reordered { key: *key, from });
        }
    }
    paths.retain(|_, paths| paths.iter().any(|path| !path.is_empty()));
    ordered.paths = Some(paths);
    ordered
}

impl Ordered {
    /// Moves the paths of a position past the step.
    pub(super) fn take(&mut self, paths: &mut ElementPaths) {
        match self.paths.take() {
            Some(after) => *paths = after,
            None => self.apply(paths),
        }
    }

    fn apply(&mut self, paths: &mut ElementPaths) {
        for change in self.changes.drain(..) {
            match change {
                Changed::Reset(key) => drop(paths.remove(&key)),
                // Elements that no branch adds are followed only while there are others.
                Changed::Added(key, path, count) if !path.is_empty() || paths.contains_key(&key) => {
                    paths.entry(key).or_default().extend(std::iter::repeat_n(path, count));
                }
                Changed::Added(..) => {}
            }
        }
    }
}

/// Puts the elements that the branches inside `outer` wrote in the order of the branches. Other elements keep their places.
fn arrange(outer: &[u32], paths: &mut [Vec<u32>], from: &mut [u32]) {
    let is_inside = |path: &Vec<u32>| path.len() > outer.len() && path.starts_with(outer);
    let places: Vec<usize> = (0..paths.len()).filter(|at| is_inside(&paths[*at])).collect();
    let mut sorted = places.clone();
    sorted.sort_by(|one, other| paths[*one].cmp(&paths[*other]));
    let moved: Vec<u32> = sorted.iter().map(|at| from[*at]).collect();
    for (place, moved) in places.into_iter().zip(moved) {
        from[place] = moved;
        paths[place] = outer.to_vec();
    }
}
