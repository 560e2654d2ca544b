//! Which state keys are set before each node, on every way that leads there.

use super::facts::Facts;

/// The result of a forward analysis over the graph: an intersection over all ways.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// For each node, the keys that are set on all ways to it; `None` where no way leads.
    before: Vec<Option<Keys>>,
    /// For each node, the keys that it is sure to write.
    writes: Vec<Vec<usize>>,
}

/// A set of keys by their index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Keys(Vec<u64>);

impl Keys {
    fn none(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn insert(&mut self, key: usize) {
        self.0[key / 64] |= 1 << (key % 64);
    }

    pub(super) fn contains(&self, key: usize) -> bool {
        self.0[key / 64] >> (key % 64) & 1 == 1
    }

    fn extend(&mut self, keys: &[usize]) {
        keys.iter().for_each(|&key| self.insert(key));
    }

    /// Keeps what `other` has too; says whether that took anything away.
    fn intersect(&mut self, other: &Self) -> bool {
        let mut changed = false;
        for (one, two) in self.0.iter_mut().zip(&other.0) {
            changed |= *one & !two != 0;
            *one &= two;
        }
        changed
    }
}

impl Flow {
    /// Analyses a graph whose names are resolved; types are not needed.
    pub(super) fn analyse(facts: &Facts<'_>) -> Self {
        let count = facts.definition.nodes.len();
        let mut flow = Self { before: vec![None; count], writes: (0..count).map(|node| writes(facts, node)).collect() };
        let Some(start) = facts.start else { return flow };
        let mut first = Keys::none(facts.types.keys.len());
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
                let Some(failed) = flow.before[node].clone() else { continue };
                let mut done = failed.clone();
                done.extend(&flow.writes[node]);
                let onward = facts.successors(node).map(|next| (next, &done));
                for (next, keys) in onward.chain(facts.error_successor(node).map(|next| (next, &failed))) {
                    changed |= match &mut flow.before[next] {
                        Some(before) => before.intersect(keys),
                        unknown => {
                            *unknown = Some(keys.clone());
                            true
                        }
                    };
                }
            }
        }
        flow
    }

    /// Returns the keys that are set when a node is left along its edges; `None` where no way leads to it.
    pub(super) fn after(&self, node: usize) -> Option<Keys> {
        let mut keys = self.before[node].clone()?;
        keys.extend(&self.writes[node]);
        Some(keys)
    }

    /// Returns the keys that are set on all ways to a node; `None` where no way leads to it.
    pub(super) fn before(&self, node: usize) -> Option<Keys> {
        self.before[node].clone()
    }

    /// Whether a key is set on every way to a node.
    pub(super) fn is_set_before(&self, node: usize, key: usize) -> bool {
        self.before[node].as_ref().is_some_and(|keys| keys.contains(key))
    }
}

/// Returns the keys that a node is sure to have written when it is left along its edges.
fn writes(facts: &Facts<'_>, node: usize) -> Vec<usize> {
    if facts.may_skip_assign(node) {
        return Vec::new();
    }
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
