//! How many steps a run may take (R130, R131), and how often it may visit a node.

use std::collections::BTreeMap;

use crate::graph::GraphTables;
use crate::step::ending::too_many_visits;
use crate::step::position::Position;

/// How many steps a run may take at most if hooks allow more, as a multiple of the graph's own limit.
const MOST_EXTENSIONS: u64 = 100;

/// Returns how many steps hooks may allow a run at most, so that a hook that always allows more does not make a run endless.
pub fn most_extended(graph: &GraphTables) -> u64 {
    u64::from(graph.settings.max_steps).saturating_mul(MOST_EXTENSIONS)
}

impl Position {
    /// Returns how many steps the run may take.
    pub fn most_steps(&self, graph: &GraphTables) -> u64 {
        self.limit.unwrap_or_else(|| u64::from(graph.settings.max_steps))
    }

    /// Returns how many steps the run will have taken after the next one.
    pub fn steps_needed(&self) -> u64 {
        self.steps + self.frontier.len() as u64
    }

    /// Whether the run may not take the next step.
    pub fn is_exhausted(&self, graph: &GraphTables) -> bool {
        self.steps_needed() > self.most_steps(graph)
    }

    /// Returns how many steps the run may take if a hook allows it more; `None` if the limit does not grow.
    pub fn extended(&self, graph: &GraphTables, additional: u32) -> Option<u64> {
        let most = self.most_steps(graph);
        let wanted = most.saturating_add(u64::from(additional)).min(most_extended(graph));
        (wanted > most).then_some(wanted)
    }

    /// Counts a visit of a node, if the graph limits how often a node is visited.
    #[inline(always)]
    pub(super) fn count(&mut self, graph: &GraphTables, node: u16) {
        if graph.settings.visits.is_some() {
            *self.visited.entry(node).or_default() += 1;
        }
    }

    /// Returns the first node that the next step would visit more often than the graph allows.
    #[inline]
    pub fn overvisited(&self, graph: &GraphTables) -> Option<Overvisited> {
        let most = graph.settings.visits?;
        let visited = |node: u16| self.visited.get(&node).copied().unwrap_or_default();
        let mut due: BTreeMap<u16, u64> = BTreeMap::new();
        self.frontier.iter().find_map(|at| {
            let due = due.entry(at.node).or_default();
            *due += 1;
            let is_over = visited(at.node) + *due > u64::from(most);
            is_over.then(|| Overvisited { node: at.node, visits: visited(at.node), most })
        })
    }

    /// Whether the visits of each node are counted as the graph asks for it.
    pub fn counts_its_visits(&self, graph: &GraphTables) -> bool {
        let counted: u64 = self.visited.values().fold(0, |all, one| all.saturating_add(*one));
        counted == if graph.settings.visits.is_some() { self.steps } else { 0 }
    }
}

/// A node that the next step would visit more often than the graph's `limits.visits` allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overvisited {
    /// The node.
    pub node: u16,
    /// How often it was visited.
    pub visits: u64,
    /// How often it may be visited.
    pub most: u32,
}

impl Overvisited {
    /// Returns the message of a run that ends because of it.
    pub fn message(self, graph: &GraphTables) -> String {
        too_many_visits(self.most, &graph.node(self.node).name)
    }
}
