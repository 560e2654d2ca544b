//! Nested runs: a node whose action is another graph (R188).

use crate::address::part;
use crate::call::Parent;
use crate::engine::begin::{Begin, Taken, WaitTime, run_span};
use crate::engine::call_result::{CallResult, PendingCall};
use crate::engine::ended::{Ended, result_value};
use crate::engine::run_state::{Engine, StepContext, VisitState};
use crate::error::{ResumeError, RunError, StartError, StoredRunError};
use crate::failure::{Category, Failure};
use crate::graph::{CompiledTool, tables};
use crate::machine::Machine;
use crate::record::Journal;
use crate::schedule::in_run;
use crate::status::Status;
use crate::step::{
    TOO_DEEP, TakenSignal, check_shared, failure_inside, is_computed, nested_id, receives_secrets, shared_values,
};
use crate::stop::Stop;
use crate::store::{RunFilter, RunSummary, Store, StoreError, Wait, WaitId, Within, all_runs};
use crate::tool_caller::Request;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use graph_model::name::{ItemId, RunId};
use graph_model::program::Executor;
use graph_model::value::Value;
use tokio::task::JoinSet;
use tracing::{Instrument, Span};

/// The future of a nested run; boxed, because a run may nest another of the same type.
type Running<'a> = Pin<Box<dyn Future<Output = Result<Value, Box<Failure>>> + Send + 'a>>;

impl StepContext {
    /// Runs the graph that a node names, with the remaining depth and capabilities, and returns its result (R313).
    ///
    /// The nested run's id is derived from the id of this run, so it is found again after a crash, and none of its committed
    /// steps is repeated.
    pub(super) fn run_nested<'a>(
        &'a self,
        job: &'a PendingCall<'_>,
        machine: Arc<dyn Machine>,
        mut request: Request,
        made: &'a mut CallResult,
    ) -> Running<'a> {
        Box::pin(async move {
            let limits = self.graph().node(job.at.node).limits;
            let Some(depth) = limits.depth_within(self.facts.depth).checked_sub(1) else {
                return Err(Box::new(Failure::permanent(TOO_DEEP)));
            };
            let is_plain = receives_secrets(self.graph(), request.tool, tables(machine.graph()));
            let inputs = request.arguments.take::<Value>("");
            let id = nested_id(&self.facts.id, job.at.number, job.item.map(|(index, _)| index), made.calls);
            made.run = Some(id.clone());
            let parent = Parent {
                run: self.facts.id.clone(),
                step: job.at.number,
                node: self.graph().node(job.at.node).name.clone(),
                item: job.item.map(|(index, _)| index),
            };
            let meter = self.meters.of_visit(job.at.number, limits.steps);
            let node = self.graph().node(job.at.node);
            check_shared(self.graph(), node, tables(machine.graph())).map_err(Failure::permanent)?;
            let shared = shared_values(self.graph(), node, &*self.run_state.state);
            let address = self.facts.address().map(|own| own.inside(parent.step, parent.item, made.calls));
            let is_known = self.graph().tool(request.tool).is_some_and(|tool| !is_computed(tool));
            let begin = Begin { limits, meter, shared, ..self.begin_inside(id.clone(), parent, depth) };
            let handed = self.handed(job.at.number, made.calls);
            let wait_time = self.wait_time(job.at.number, made.calls, &node.share_signals, handed.as_ref());
            let begin = Begin { address: address.filter(|_| is_known), handed, wait_time, ..begin };
            let runtime = &self.runtime;
            let can_wait = runtime.can_wait(&*machine, &begin).await;
            can_wait.map_err(|error| Failure::permanent(error.to_string()))?;
            let span = run_span(&id, &tables(machine.graph()).id);
            let begun = runtime.begin(begin.clone(), machine.clone(), inputs).instrument(span.clone()).await;
            let taken = match begun {
                Ok(engine) => Ok(Taken::Unfinished(Box::new(engine))),
                Err(StartError::Store(StoreError::Exists(_))) => {
                    runtime.take_up(begin, machine, &mut None).instrument(span.clone()).await
                }
                Err(error) => Err(ResumeError::Start(error)),
            };
            let ended = match taken {
                Ok(Taken::Ended(ended)) => Ok(*ended),
                Ok(Taken::Waiting(waiting)) => Err(*waiting),
                Ok(Taken::Unfinished(engine)) => drive_apart(*engine, span).await,
                Err(
                    ResumeError::Start(StartError::Store(source)) | ResumeError::Stored(StoredRunError::Store(source)),
                ) => {
                    made.broken = Some(Box::new(RunError::Store { run: id.clone(), step: 0, source }));
                    return Err(Box::new(Failure::permanent("the store failed")));
                }
                Err(ResumeError::Start(error)) => return Err(Box::new(Failure::permanent(error.to_string()))),
                // The journal says so, and audits read it.
                Err(error) => {
                    return Err(Box::new(Failure::permanent(format!("cannot resume run `{id}`: {error}"))));
                }
            };
            let at = (job.at.number, job.item.map(|(index, _)| index));
            self.take_nested(&id, ended, is_plain, at, made)
        })
    }

    /// Returns the shared signal that a visit has received for the run of a call of it.
    fn handed(&self, step: u64, call: u64) -> Option<TakenSignal> {
        self.run_state.position.taken.get(&step).filter(|taken| taken.call == call)?.signal.clone()
    }

    /// Returns the time that counts for the waits of the nested run of a call. If the visit shares signals with that run, no wait there
    /// is over by its time while a signal that came before is left here.
    fn wait_time(&self, step: u64, call: u64, shared: &[String], handed: Option<&TakenSignal>) -> WaitTime {
        if shared.is_empty() {
            return WaitTime::Now;
        }
        // Another call, which is made again, has a run that has not been seen.
        let first = self.run_state.position.calls_left.get(&(step, None)).copied().unwrap_or(1);
        let seen = || self.run_state.continued.get(&step).copied().filter(|_| call == first);
        handed.map(|signal| signal.at).or_else(seen).map_or(WaitTime::Held, WaitTime::At)
    }

    /// Returns the options of a nested run that begins or is resumed.
    fn begin_inside(&self, run: RunId, parent: Parent, depth: u32) -> Begin {
        let mut ceiling = self.facts.ceiling.clone();
        ceiling.push(self.graph().permissions.clone());
        Begin {
            parent: Some(parent),
            root: Some(self.facts.root().clone()),
            depth: Some(depth),
            ceiling,
            deadline: self.facts.deadline,
            stop: self.facts.stop.clone(),
            durability: self.durability,
            ignores_cancel: self.facts.ignores_cancel,
            ..Begin::of(run)
        }
    }

    fn take_nested(
        &self,
        id: &RunId,
        ended: Result<Ended, RunError>,
        is_plain: bool,
        (step, item): (u64, Option<u64>),
        made: &mut CallResult,
    ) -> Result<Value, Box<Failure>> {
        let error = match ended {
            Ok(ended) => return Ok(ended.result(id, is_plain)),
            Err(error) => error,
        };
        match error {
            RunError::Waiting { waits, .. } => {
                let node = self.run_state.position.open().find(|at| at.number == step).map(|at| at.node);
                let shared = node.map_or(&[][..], |node| &self.graph().node(node).share_signals);
                made.waits = surfaced(step, item, made.calls, shared, waits);
                Err(Box::new(Failure::of(Category::Cancelled, "the run waits")))
            }
            RunError::Store { .. } | RunError::Stopped { .. } => {
                let message = error.to_string();
                made.broken = Some(Box::new(error));
                Err(Box::new(Failure::permanent(message)))
            }
            RunError::Cancelled { .. } | RunError::ShutDown { .. } => {
                made.is_interrupted = true;
                Err(Box::new(Failure::of(Category::Cancelled, error.to_string())))
            }
            RunError::Node { ref failure, ref node, .. } => {
                let message = failure_inside(&failure.message, Some(node), id);
                Err(Box::new(Failure { message, data: Some(result_value(&error)), ..(**failure).clone() }))
            }
            other => {
                let category =
                    if matches!(other, RunError::Deadline { .. }) { Category::Transient } else { Category::Permanent };
                let data = result_value(&other);
                Err(Box::new(Failure { data: Some(data), ..Failure::of(category, other.to_string()) }))
            }
        }
    }
}

/// How many milliseconds to wait for the lease of a nested run that is to be cancelled, at most.
const MOST_WAITS: u32 = 100;

/// The nested runs that are to be cancelled.
enum Cancelled {
    /// All of them.
    All,
    /// Those of these visits.
    Of(Vec<u64>),
}

impl Engine {
    /// Ends the unfinished nested runs of this run, which was cancelled.
    ///
    /// There are some if the process died that made the calls: a run that is cancelled before it is resumed makes none of
    /// them again.
    pub(super) async fn cancel_inside(&self) {
        self.cancel_nested(Cancelled::All).await;
    }

    /// Notes the visits of a step that were cancelled and may have begun nested runs.
    pub(super) fn note_cancelled(&mut self, visits: &[&mut VisitState]) {
        let nests = |visit: &&&mut VisitState| visit.way.is_cancelled() && self.graph().may_nest(visit.activation.node);
        let cancelled: Vec<u64> = visits.iter().filter(nests).map(|visit| visit.activation.number).collect();
        self.dropped.extend(cancelled);
    }

    /// Ends the unfinished nested runs of visits that were cancelled. If the process dies before, they stay unfinished, as the
    /// run of a call that timed out does.
    pub(super) async fn cancel_inside_of(&self, visits: Vec<u64>) {
        self.cancel_nested(Cancelled::Of(visits)).await;
    }

    fn cancel_nested(&self, which: Cancelled) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            if let Err(error) = self.try_cancel_inside(&which).await {
                tracing::warn!(run = %self.facts.id, %error, "cannot list the nested runs that are to be cancelled");
            }
        })
    }

    async fn try_cancel_inside(&self, which: &Cancelled) -> Result<(), StoreError> {
        let Some(store) = self.runtime.store.as_ref().filter(|_| self.journal.is_some()) else { return Ok(()) };
        let within = Within::Run(self.facts.id.clone());
        let filter = RunFilter { statuses: vec![Status::Running, Status::Waiting], within, ..RunFilter::default() };
        for RunSummary { run, graph, .. } in all_runs(&**store, &filter).await? {
            if let Err(error) = self.cancel_one_inside(&**store, &run, &graph, which).await {
                tracing::warn!(%run, error, "cannot cancel a run inside a run that was cancelled");
            }
        }
        Ok(())
    }

    async fn cancel_one_inside(
        &self,
        store: &dyn Store,
        run: &RunId,
        graph: &str,
        which: &Cancelled,
    ) -> Result<(), String> {
        let machine = self.graph_inside(graph).ok_or("the program has no such graph")?;
        let key = self.runtime.key.as_ref().ok_or("the runtime has no key")?.public();
        let records = store.load(run).await.map_err(|error| error.to_string())?;
        let journal = Journal::verify(run, &records, &key).map_err(|error| error.to_string())?;
        let parent = journal.start.parent.ok_or("its journal names no parent")?;
        if matches!(which, Cancelled::Of(visits) if !visits.contains(&parent.step)) {
            return Ok(());
        }
        let mut begin = self.begin_inside(run.clone(), parent, self.facts.depth.saturating_sub(1));
        begin.address = journal.start.address;
        if let Cancelled::Of(_) = which {
            begin.stop = Stop::default();
            begin.stop.set();
        }
        let span = run_span(run, &tables(machine.graph()).id);
        let mut taken = self.runtime.take_up(begin.clone(), machine.clone(), &mut None).instrument(span.clone()).await;
        // The task of a call that was dropped gives the lease back when it is dropped itself.
        for _ in 0..MOST_WAITS {
            if !taken.as_ref().is_err_and(ResumeError::is_leased) {
                break;
            }
            self.runtime.clock.sleep(Duration::from_millis(1)).await;
            taken = self.runtime.take_up(begin.clone(), machine.clone(), &mut None).instrument(span.clone()).await;
        }
        match taken.map_err(|error| error.to_string())? {
            Taken::Ended(_) | Taken::Waiting(_) => Ok(()),
            // The nested run is asked to stop before it begins, so it makes no calls.
            Taken::Unfinished(engine) => match drive_apart(*engine, span).await {
                Ok(_) | Err(RunError::Cancelled { .. }) => Ok(()),
                Err(error) => Err(error.to_string()),
            },
        }
    }

    /// Returns the graph of this id among those that the run's graph nests.
    fn graph_inside(&self, id: &str) -> Option<Arc<dyn Machine>> {
        let rows = (0_u16..).zip(&self.graph().tools);
        let named = |(at, row): (u16, &CompiledTool)| match row.by {
            Executor::Graph => self.machine.nested(at).filter(|graph| tables(graph.graph()).id.as_str() == id),
            _ if is_computed(row) => self.machine.nested_called(&ItemId::new(id).ok()?).ok().flatten(),
            _ => None,
        };
        rows.into_iter().find_map(named)
    }
}

/// Drives a run in a task of its own, which ends when nothing waits for it any more.
///
/// A single task that drove deeply nested runs would need stack space in proportion to their depth.
pub(crate) async fn drive_apart(engine: Engine, span: Span) -> Result<Ended, RunError> {
    let run = engine.facts.id.clone();
    let mut task = JoinSet::new();
    task.spawn(in_run(engine.drive()).instrument(span));
    let stopped = |reason: String| Err(RunError::Stopped { run, reason });
    match task.join_next().await {
        Some(Ok(ended)) => ended,
        Some(Err(error)) => stopped(error.to_string()),
        None => stopped("its task is gone".to_owned()),
    }
}

/// Returns the waits of a nested run as those of the run around it: the `call`th call of a visit or item of that run began it, which
/// shares the signals with these names.
fn surfaced(step: u64, item: Option<u64>, call: u64, shared: &[String], waits: Vec<Wait>) -> Vec<Wait> {
    let part = part(step, item, call);
    let names = |wait: &Wait| {
        let own = wait.signals.iter().map(|name| format!("{part}{name}"));
        own.chain(wait.signals.iter().filter(|name| shared.contains(name)).cloned()).collect()
    };
    let surface = |wait: Wait| Wait { id: WaitId::new(format!("{part}{}", wait.id)), signals: names(&wait), ..wait };
    waits.into_iter().map(surface).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_of_nested_runs_have_the_path_to_them() {
        let wait = Wait::new(WaitId::of_visit(3), "ask", 1, None).listening(vec!["3#1".to_owned(), "paid".to_owned()]);
        let outer = surfaced(5, Some(0), 2, &[], surfaced(2, None, 1, &[], vec![wait.clone()]));
        assert_eq!(outer[0].id.as_str(), "5.0~2/2/3#1");
        assert_eq!(outer[0].signals, ["5.0~2/2/3#1", "5.0~2/2/paid"]);
        let shared = ["paid".to_owned()];
        let inner = surfaced(2, None, 1, &shared, vec![wait]);
        assert_eq!(inner[0].signals, ["2/3#1", "2/paid", "paid"]);
        assert_eq!(surfaced(5, None, 1, &[], inner.clone())[0].signals, ["5/2/3#1", "5/2/paid", "5/paid"]);
        assert_eq!(surfaced(5, None, 1, &shared, inner)[0].signals, ["5/2/3#1", "5/2/paid", "5/paid", "paid"]);
    }
}
