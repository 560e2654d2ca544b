//! The signals that the waits of a run took.

use std::collections::{BTreeMap, BTreeSet};

use graph_engine::machine::Machine;
use graph_engine::record::TakenSignal;
use graph_engine::schema;
use graph_engine::signal::{SignalError, conforming, is_received};
use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_signing::PublicKey;

/// The receipts of the signals that a run took, each once.
pub(super) struct Receipts {
    run: RunId,
    /// The link of the run's first record.
    start: Digest,
    key: PublicKey,
    /// The times of receipt, by the order of the signals.
    times: BTreeMap<u64, i64>,
    ids: BTreeSet<String>,
}

impl Receipts {
    pub(super) fn new(run: &RunId, start: Digest, key: &PublicKey) -> Self {
        Self { run: run.clone(), start, key: key.clone(), times: BTreeMap::new(), ids: BTreeSet::new() }
    }

    pub(super) fn run(&self) -> &RunId {
        &self.run
    }

    /// Takes a signal. Fails unless a runtime with the journal's key received it for this run, it fits the graph, and it was
    /// not taken before.
    pub(super) fn take(&mut self, machine: &dyn Machine, signal: &TakenSignal) -> Result<(), String> {
        let TakenSignal { name, order, at, value, .. } = signal;
        if !is_received(&self.run, &self.start, &self.key, signal) {
            return Err(format!("no runtime with the key of the journal received the signal `{name}` so"));
        }
        match conforming(machine, name, value.clone()) {
            Ok(conforming) if conforming == *value => {}
            // A program without the feature cannot check values against a schema.
            Err(SignalError::Schema { .. }) if !schema::IS_THERE => {}
            _ => return Err(format!("the signal `{name}` does not fit the graph")),
        }
        if !self.ids.insert(signal.id.clone()) || self.times.insert(*order, *at).is_some() {
            return Err(format!("the signal `{name}` was taken before"));
        }
        let before = self.times.range(..order).next_back().is_none_or(|(_, before)| before <= at);
        let behind = self.times.range(order + 1..).next().is_none_or(|(_, behind)| at <= behind);
        if before && behind { Ok(()) } else { Err(format!("the signal `{name}` was received at another time")) }
    }
}
