//! A single step: visits one node and stops.

use std::time::SystemTime;

use graph_model::value::Value;

use crate::engine::run_state::Engine;
use crate::engine::visits::StepVisits;
use crate::engine::waits::open_waits;
use crate::error::RunError;
use crate::failure::{Failure, LastError};
use crate::graph::Notes;
use crate::status::Status;
use crate::step::UNFIT;
use crate::store::Wait;

/// The outcome of visiting one node.
pub struct OneVisit {
    /// The node.
    pub node: String,
    /// Where it leads; `None` if the run would end, or fail.
    pub next: Option<String>,
    /// Why it failed.
    pub failure: Option<Box<Failure>>,
    /// The status that the run would have.
    pub status: Status,
    /// The output that the run would return if it would end; its secrets are hidden.
    pub output: Option<Value>,
    /// The state after the visit; its secrets are hidden.
    pub state: Value,
    /// The waits of the node, if it waits: it has not failed, and is not done.
    pub waits: Vec<Wait>,
    /// How many nodes the run would have visited.
    pub steps: u64,
}

impl Engine {
    /// Visits the next node and stops. Nothing is written to the journal.
    pub(crate) async fn single(mut self) -> Result<OneVisit, RunError> {
        let mut made = StepVisits::default();
        if let Some(error) = self.interruption().await {
            return Err(error);
        }
        self.perform(&mut made).await;
        let mut visits = made.in_order();
        if let Some(broken) = visits.iter_mut().find_map(|visit| visit.broken.take()) {
            return Err(*broken);
        }
        if visits.iter().any(|visit| visit.is_interrupted)
            && let Some(error) = self.interruption().await
        {
            return Err(error);
        }
        self.settle(&mut visits);
        self.open_waits(&mut visits).await?;
        if self.is_observed() {
            self.observe_visits(&visits);
        }
        let fatal = visits.iter().any(|visit| visit.way.is_fatal());
        let (node, at, mut failure) = match visits.first() {
            Some(visit) => (visit.activation.node, visit.at, visit.failure.clone()),
            None => (self.run_state.position.last, None::<SystemTime>, None),
        };
        let name = self.graph().node(node).name.clone();
        if !fatal {
            let taken = match self.fold(&visits) {
                Ok(candidate) => self.take(candidate, &mut visits).map_err(|(_, mismatch)| {
                    self.run_state().position.steps -= 1;
                    format!("{UNFIT}{mismatch}")
                }),
                Err(error) => Err(error.message(self.graph())),
            };
            if let Err(message) = taken {
                failure = Some(Box::new(Failure::permanent(message)));
            }
        }
        let is_over = failure.is_some() && (fatal || visits.first().is_some_and(|visit| visit.failure.is_none()));
        if is_over {
            let error = failure.as_ref().map(|failure| failure.message.clone()).unwrap_or_default();
            let position = &mut self.run_state().position;
            position.steps += 1;
            position.frontier.clear();
            position.root.last_error = Some(LastError { node: name.clone(), error });
        }
        let next = self.run_state.position.frontier.first().map(|at| self.graph().node(at.node).name.clone());
        let (status, output) = match &next {
            _ if is_over => (Status::Error, None),
            Some(_) => (Status::Running, None),
            None if self.run_state.position.is_waiting() => (Status::Waiting, None),
            None => {
                let (ended, _) = self.end(at, &mut Notes::default());
                (ended.status, Some(ended.hidden.map_or(ended.output, |hidden| *hidden)))
            }
        };
        let error = failure.as_ref().filter(|_| is_over).map(|failure| failure.message.clone());
        self.observe_end(status, error.as_deref(), None);
        let waits = open_waits(self.graph(), &self.run_state.position);
        let (state, steps) = (self.state_value(), self.run_state.position.steps);
        Ok(OneVisit { node: name, next, failure, status, output, state, waits, steps })
    }
}
