//! How many steps a run may take (R130, R131).

use crate::graph::GraphTables;
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
}
