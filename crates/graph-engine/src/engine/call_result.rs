//! A call that a visit needs, and its result.

use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::value::Value;

use crate::activation::Activation;
use crate::cache::Fresh;
use crate::engine::run_state::VisitState;
use crate::error::RunError;
use crate::failure::{Failure, ItemFailure};
use crate::record::Done;
use crate::step::{Opening, Suspension, items_failed};
use crate::store::Wait;

/// A call that a visit needs.
pub(crate) struct PendingCall<'a> {
    pub(crate) at: &'a Activation,
    /// The item, if the node is a foreach.
    pub(crate) item: Option<(u64, &'a Value)>,
}

/// The result of a call.
#[derive(Default)]
pub(crate) struct CallResult {
    /// The value that it returned, if the tool caller does not hold it.
    pub(crate) value: Option<Value>,
    pub(crate) failure: Option<Box<Failure>>,
    /// How often it was made.
    pub(crate) calls: u64,
    /// How often a hook had it made again.
    pub(crate) hook_retries: u32,
    /// Whether a hook ended the run.
    pub(crate) is_ended: bool,
    /// Whether the run was stopped, or its time was up, before the call could be made again.
    pub(crate) is_interrupted: bool,
    /// Why the run cannot continue: the store of a nested run failed.
    pub(crate) broken: Option<Box<RunError>>,
    /// The waits of the nested run, if it waits: the call is not over.
    pub(crate) waits: Vec<Wait>,
    /// The value that its tool asks people to see, if it asks them: the call is not over.
    pub(crate) question: Option<Value>,
    /// How a hook suspends the run after a failure of the call: it is made again when the run is released.
    pub(crate) suspended: Option<Suspension>,
    /// The nested run.
    pub(crate) run: Option<RunId>,
    /// Whether it was not made because its result was in the cache.
    pub(crate) cached: bool,
    /// The key under which its result is to be cached.
    pub(crate) key: Option<Digest>,
    pub(crate) warnings: Vec<String>,
    /// The time of the last plan, if anything asked for it.
    pub(crate) at: Option<std::time::SystemTime>,
}

impl CallResult {
    /// Whether the call has come to its end, in a result or a failure.
    pub(crate) fn is_over(&self) -> bool {
        self.waits.is_empty() && self.question.is_none() && self.suspended.is_none()
    }
}

impl VisitState {
    /// Takes over the result of the visit's call.
    pub(crate) fn take(&mut self, made: CallResult) {
        if !made.waits.is_empty() {
            return self.park(ParkedCalls { waits: made.waits, done: Vec::new() });
        }
        if made.question.is_some() {
            (self.waits, self.at, self.opening) =
                (true, None, Opening { payload: made.question, ..Opening::default() });
            return self.warnings.clear();
        }
        if let Some(suspension) = made.suspended {
            (self.waits, self.at, self.opening) = (true, None, suspension.opening());
            return self.warnings.clear();
        }
        self.called = made.failure.is_none();
        self.value = made.value;
        self.failure = made.failure;
        self.calls = made.calls;
        self.is_ended = made.is_ended;
        self.is_interrupted = made.is_interrupted;
        self.broken = made.broken;
        self.run = made.run;
        self.cached = made.cached && self.called;
        self.at = made.at;
        self.warnings.extend(made.warnings);
    }

    /// Leaves the visit until nested runs can continue. Nothing else of it is recorded.
    fn park(&mut self, parked: ParkedCalls) {
        (self.waits, self.at, self.parked) = (true, None, Some(Box::new(parked)));
        self.warnings.clear();
    }

    /// Takes over the results of the calls of a foreach.
    pub(crate) fn take_each(&mut self, mut calls: ItemCalls) {
        if calls.waits() {
            calls.waiting.sort_by_key(|(index, _)| *index);
            let waits = calls.waiting.into_iter().flat_map(|(_, waits)| waits).collect();
            return self.park(ParkedCalls { waits, done: calls.done });
        }
        calls.failures.sort_by_key(|(index, _)| *index);
        self.calls = calls.calls.saturating_sub(calls.next as u64) + 1;
        self.warnings.append(&mut calls.warnings);
        self.cached = calls.cached > 0 && calls.cached == calls.results.len();
        self.fresh.append(&mut calls.fresh);
        let count = calls.failures.len();
        for (index, made) in &mut calls.failures {
            self.is_ended |= made.is_ended;
            self.is_interrupted |= made.is_interrupted;
            if made.broken.is_some() {
                self.broken = made.broken.take();
            }
            if let Some(failure) = &made.failure {
                self.items.push(ItemFailure { item: *index as u64, error: failure.message.clone() });
            }
        }
        // The run was interrupted between two items.
        self.is_interrupted |= calls.is_stopped || (calls.over && count == 0);
        if let Some((index, made)) = calls.failures.into_iter().next()
            && let Some(mut failure) = made.failure
        {
            failure.message = items_failed(index as u64, &failure.message, count);
            self.failure = Some(failure);
        }
        self.results = Some(calls.results);
    }
}

/// The calls of a foreach, shared by the workers that make them.
#[derive(Default)]
pub(crate) struct ItemCalls {
    /// The index of the next item to be taken.
    pub(crate) next: usize,
    /// Whether no more items are to be taken.
    pub(crate) over: bool,
    /// Whether the run was stopped before all items were taken.
    pub(crate) is_stopped: bool,
    pub(crate) results: Vec<Value>,
    pub(crate) failures: Vec<(usize, CallResult)>,
    pub(crate) warnings: Vec<String>,
    pub(crate) calls: u64,
    /// How many were not made because their results were in the cache.
    pub(crate) cached: usize,
    pub(crate) fresh: Vec<Fresh>,
    /// The waits of nested runs that wait, with the items' indices.
    pub(crate) waiting: Vec<(usize, Vec<Wait>)>,
    /// The calls of graphs that are over, each with its result or failure.
    pub(crate) done: Vec<Done>,
}

impl ItemCalls {
    /// Whether nothing is left to do before nested runs can continue.
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty() && !self.over && !self.is_stopped
    }
}

/// The calls of a visit that waits for nested runs.
#[derive(Default)]
pub(crate) struct ParkedCalls {
    /// The waits of the runs.
    pub(crate) waits: Vec<Wait>,
    /// The calls of a foreach that are over.
    pub(crate) done: Vec<Done>,
}
