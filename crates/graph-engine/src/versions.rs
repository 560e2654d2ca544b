//! The version of a graph that a run is under, of those that a machine stands for.

use std::sync::Arc;

use graph_model::name::RunId;

use crate::graph::CompiledGraph;
use crate::machine::Machine;
use crate::record::Start;
use crate::services::RuntimeServices;
use crate::store::StoreError;

/// Returns the index of the older version of a graph that fits, if one does.
pub(crate) fn older_that(machine: &dyn Machine, fits: impl Fn(&CompiledGraph) -> bool) -> Option<usize> {
    machine.older().iter().position(|version| fits(version.graph()))
}

/// Returns a version of a graph: an older one by its index, or the graph itself.
pub fn version(machine: &dyn Machine, older: Option<usize>) -> &dyn Machine {
    older.map_or(machine, |at| &*machine.older()[at])
}

/// As [`version`], of a machine that is kept.
pub fn kept_version(machine: Arc<dyn Machine>, older: Option<usize>) -> Arc<dyn Machine> {
    older.map_or_else(|| Arc::clone(&machine), |at| Arc::clone(&machine.older()[at]))
}

impl Start {
    /// Returns the version of a graph that the run is under: one of its [older](Machine::older) ones, or the graph itself. The run
    /// may be under neither.
    pub fn version_of<'m>(&self, machine: &'m dyn Machine) -> &'m dyn Machine {
        version(machine, older_that(machine, |graph| self.is_under(graph)))
    }
}

impl RuntimeServices {
    /// Returns which of the older versions of a graph a run is under, as its store says; `None` if it is the graph itself, or none of
    /// them. The run's journal is verified under that version.
    ///
    /// # Errors
    ///
    /// If there is no such run, or the store fails.
    pub async fn older_of(&self, machine: &dyn Machine, run: &RunId) -> Result<Option<usize>, StoreError> {
        let Some(store) = self.store.as_ref().filter(|_| !machine.older().is_empty()) else { return Ok(None) };
        let found = store.find(run).await?;
        Ok(older_that(machine, |graph| found.is_under(graph)))
    }
}
