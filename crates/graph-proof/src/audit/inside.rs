//! The runs inside a run: each is proven by itself, and tied to the visit that called it.

use std::collections::{BTreeMap, BTreeSet};
use std::slice::from_ref;
use std::sync::Arc;
use std::time::SystemTime;

use graph_engine::activation::Activation;
use graph_engine::admission::{granted, required_environment};
use graph_engine::call::Parent;
use graph_engine::graph::{Notes, Now, tables};
use graph_engine::machine::Machine;
use graph_engine::past::Past;
use graph_engine::record::{Done, End, JournalError, SignedRecord, SnapshotDraft, VerifiedJournal, Visit};
use graph_engine::step::{
    Env, MOST_CALLS, Planned, Position, failure_inside, graph_of, is_computed, nested_id, plan, plan_item,
    receives_secrets, shared_values,
};
use graph_engine::store::{Store, StoreError};
use graph_engine::tool_caller::Request;
use graph_engine::versions::kept_version;
use graph_engine::{EncryptionKey, ErrorKind, HasKind, Status};
use graph_model::capability::Grants;
use graph_model::name::{ItemId, RunId};
use graph_model::program::{Executor, RETRIES};
use graph_model::secret::HIDDEN;
use graph_model::timestamp;
use graph_model::value::{Map, Value};
use graph_signing::PublicKey;

use crate::audit::dated::Dated;
use crate::audit::ends::nested_limit;
use crate::audit::failures::{run_inside, says_ended};
use crate::audit::prove::{Audit, Proven, prove};
use crate::audit::replayer::{CallInside, Lost, Replayer, SaidInside, Session, misfit};

/// Why a run and the runs inside it are not proven.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// A journal could not be read.
    #[error("cannot read the journal of run `{run}`: {source}")]
    Store {
        /// The run.
        run: RunId,
        /// Why.
        source: StoreError,
    },
    /// A journal was changed, records something that its graph does not allow, or does not fit the journal of the run
    /// around it.
    #[error("run `{run}`: {reason}")]
    Journal {
        /// The run.
        run: RunId,
        /// The first mistake.
        reason: JournalError,
    },
}

impl HasKind for AuditError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Store { source, .. } => source.kind(),
            Self::Journal { reason, .. } => reason.kind(),
        }
    }
}

/// Proves a run and every run inside it, and that they belong together (R188). The run itself is the first in the result.
///
/// Each run is proven as [`audit`](super::audit) does. For a run inside another, this also proves that the run is of the
/// graph that the node calls, names the visit, has the inputs that the node gives it, was granted no more than the run
/// around it, and had the outcome that the visit records.
///
/// A journal records the time only for the last call of a visit. If another call asks for the time, its inputs may come
/// from any one time. A failure is not compared if a secret was cut out of its text, or if its run was given up before it
/// ended.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub use graph_proof::*; }
/// # use graph_runtime::{Machine, PublicKey, RunId, Store};
/// # use std::sync::Arc;
/// # async fn example(
/// #     graph: Arc<dyn Machine>,
/// #     store: &dyn Store,
/// #     key: &PublicKey,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::audit_tree;
///
/// for proven in audit_tree(graph, &RunId::new("order-17")?, store, key, None).await? {
///     println!("run {} of {}: {} steps", proven.run, proven.graph, proven.steps);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The first mistake, with its run and record; or if a journal cannot be read.
pub async fn audit_tree(
    machine: Arc<dyn Machine>,
    run: &RunId,
    store: &dyn Store,
    key: &PublicKey,
    encryption_key: Option<&EncryptionKey>,
) -> Result<Vec<Audit>, AuditError> {
    let proven = prove_tree(machine, run, store, key, encryption_key).await?;
    Ok(proven.into_iter().map(|(_, audit)| audit).collect())
}

/// Proves runs as [`audit_tree`] does, and returns each with its graph.
///
/// The example of [`audit_tree`] proves a tree.
pub async fn prove_tree(
    machine: Arc<dyn Machine>,
    run: &RunId,
    store: &dyn Store,
    key: &PublicKey,
    encryption_key: Option<&EncryptionKey>,
) -> Result<Vec<(Arc<dyn Machine>, Audit)>, AuditError> {
    let of = |run: &RunId| {
        let run = run.clone();
        move |reason| AuditError::Journal { run, reason }
    };
    let records = store.load(run).await.map_err(|source| AuditError::Store { run: run.clone(), source })?;
    let proven = prove(&*machine, run, &records, key, encryption_key, true).map_err(of(run))?;
    drop(records);
    let older = machine.older().iter().position(|version| version.graph().digest() == proven.audit.under);
    let machine = kept_version(machine, older);
    let mut steps = StepsInside::default();
    steps.add(run.clone(), tables(machine.graph()).settings.steps.into_iter().collect(), &proven);
    let mut first = proven.audit;
    first.is_origin_proven = first.from.is_some() && proven_origin(&*machine, run, store, key, encryption_key).await?;
    let mut audits = vec![(Arc::clone(&machine), first)];
    let mut waiting: Vec<_> = proven.inside.into_iter().rev().map(|call| (Arc::clone(&machine), call)).collect();
    let (mut counts, mut lists) = (BTreeMap::new(), BTreeMap::new());
    while let Some((outer, call)) = waiting.pop() {
        let around = &call.parent.run;
        let misfits = |reason: String| of(around)(JournalError::Misfit { seq: call.seq, reason });
        let inner = graph_of(&*outer, call.tool, call.id.as_ref())
            .ok_or_else(|| misfits("the graph that it calls does not exist".to_owned()))?;
        let mut begun = RunsBegun::default();
        let visit_steps = steps.visits.entry((around.clone(), call.parent.step));
        visit_steps.or_insert_with(|| VisitSteps::of(&call));
        let named = call.named_attempt();
        let most = named.or(call.attempts);
        for attempt in 1..=most.unwrap_or(u64::MAX) {
            let id = call.id(attempt);
            let Some(records) = loaded(store, &id).await? else {
                // A call may fail before its run begins.
                begun.missed += 1;
                // If it is unknown how often the call was made, the search for its runs ends here.
                if most.is_none() && begun.missed > call.most_missed {
                    break;
                }
                continue;
            };
            let proven = prove(&*inner, &id, &records, key, encryption_key, true).map_err(of(&id))?;
            misfit(0, call.ties(&*inner, attempt, &proven)).map_err(of(&id))?;
            call.follows(&*inner, &begun).map_err(misfits)?;
            waiting.extend(proven.inside.iter().rev().map(|call| (Arc::clone(&inner), call.clone())));
            audits.push((Arc::clone(&inner), proven.audit.clone()));
            steps.take(&call, id, &*inner, &proven);
            begun = RunsBegun { last: Some((attempt, proven)), missed: 0 };
        }
        if let Some(most) = most {
            // The number of times that the call of one item was made is not recorded.
            if named.is_some() || call.counted.is_none() {
                call.ends_at(&*inner, most, &begun).map_err(misfits)?;
            }
            let next = call.id(most.saturating_add(1));
            if call.is_first_session() && call.has_begun(&next, loaded(store, &next).await?, key) {
                return Err(misfits(format!("node `{}` made its call more often than its run says", call.parent.node)));
            }
        }
        let last = begun.last.as_ref().map(|(_, proven)| proven);
        call.check_received(&*outer, &*inner, last).map_err(misfits)?;
        let visit = (around.clone(), call.parent.step);
        // The items that failed in an earlier session decide nothing in the last one.
        if let Some(error) = call.list_ended.as_ref().filter(|_| call.is_first_session() && call.attempts.is_none()) {
            let list = lists.entry(visit.clone()).or_insert_with(|| ItemsFailed::new(call.seq, error.clone()));
            list.take(&call, last);
        }
        if let Some(counted) = call.counted {
            let count =
                counts.entry(visit).or_insert_with(|| CallCount { seq: call.seq, counted, least: 1, is_open: false });
            call.count(&*inner, named, &begun, count);
        }
    }
    let counted = steps.check().and_then(|()| steps.check_ends());
    counted.map_err(|(run, seq, reason)| of(&run)(JournalError::Misfit { seq, reason }))?;
    for ((run, step), list) in lists {
        let reason = || format!("other items of visit {step} failed than those of which it ended");
        misfit(list.seq, list.fits().then_some(()).ok_or_else(reason)).map_err(of(&run))?;
    }
    for ((run, step), count) in counts {
        let reason = || format!("visit {step} counts other calls than those that began the runs inside it");
        let fits = if count.is_open { count.least <= count.counted } else { count.least == count.counted };
        misfit(count.seq, fits.then_some(()).ok_or_else(reason)).map_err(of(&run))?;
    }
    Ok(audits)
}

/// Returns the records of a run; `None` if there is no such run.
async fn loaded(store: &dyn Store, run: &RunId) -> Result<Option<Vec<SignedRecord>>, AuditError> {
    match store.load(run).await {
        Ok(records) => Ok(Some(records)),
        Err(StoreError::NotFound(_)) => Ok(None),
        Err(source) => Err(AuditError::Store { run: run.clone(), source }),
    }
}

/// The runs that the calls of a visit, or of an item of it, began, as far as they were checked.
#[derive(Default)]
struct RunsBegun {
    /// The last of them, and which call began it.
    last: Option<(u64, Proven)>,
    /// How many calls after it began no run.
    missed: u64,
}

/// The steps of runs, and of the visits that began runs.
#[derive(Default)]
struct StepsInside {
    /// The runs, each behind the run around it.
    runs: Vec<RunSteps>,
    /// The visits that began runs, by their runs and numbers.
    visits: BTreeMap<(RunId, u64), VisitSteps>,
}

/// The steps of a run.
struct RunSteps {
    run: RunId,
    /// Its steps, and those that its committed visits count.
    counted: u64,
    /// Its own steps, and the visits of its next one, which may have begun.
    own: u64,
    /// The limits of its steps with those of other runs: its own and those around it.
    limits: Vec<u32>,
    /// Its last record, and the limit because of which it ended.
    ended: Option<(u64, u64)>,
    is_resumed: bool,
}

/// The runs that a visit began.
struct VisitSteps {
    /// The record of the visit.
    seq: u64,
    /// How many steps it counts of them; `None` if it is not committed, or nothing limits them.
    below: Option<u64>,
    /// Whether it may count more: steps that were in progress when a call was given up, and those of runs whose calls are not
    /// counted, since the run around them was resumed.
    may_count_more: bool,
    runs: Vec<RunId>,
}

impl VisitSteps {
    fn of(call: &CallInside) -> Self {
        let may_count_more = call.may_leave_runs();
        Self { seq: call.seq, below: call.below, may_count_more, runs: Vec::new() }
    }
}

impl StepsInside {
    /// Adds a run with its limits.
    fn add(&mut self, run: RunId, limits: Vec<u32>, proven: &Proven) {
        let error = proven.failed.as_ref().filter(|lost| lost.node.is_none()).map(|lost| lost.error.as_str());
        let ended = error.and_then(nested_limit).map(|most| (proven.audit.records.saturating_sub(1), most));
        let own = proven.audit.steps.saturating_add(proven.due);
        let (counted, is_resumed) = (proven.nested_steps, proven.audit.resumes > 0);
        self.runs.push(RunSteps { run, counted, own, limits, ended, is_resumed });
    }

    /// Adds a run of a graph that a call began.
    fn take(&mut self, call: &CallInside, run: RunId, inner: &dyn Machine, proven: &Proven) {
        let visit = self.visits.entry((call.parent.run.clone(), call.parent.step));
        visit.or_insert_with(|| VisitSteps::of(call)).runs.push(run.clone());
        let around = self.runs.iter().rev().find(|one| one.run == call.parent.run);
        let around = around.map(|around| around.limits.as_slice()).unwrap_or_default();
        let own = call.limits.steps.into_iter().chain(tables(inner.graph()).settings.steps);
        let limits = around.iter().copied().chain(own).collect();
        self.add(run, limits, proven);
    }

    /// Fails if a run ended because of a limit that is not one of those around it, or although all runs together took fewer
    /// steps. In a tree with resumed runs, steps may have been lost that were counted.
    fn check_ends(&self) -> Result<(), (RunId, u64, String)> {
        let all = self.runs.iter().fold(0_u64, |all, one| all.saturating_add(one.own));
        let is_known = !self.runs.iter().any(|one| one.is_resumed);
        for RunSteps { run, limits, ended, .. } in &self.runs {
            let Some((seq, most)) = *ended else { continue };
            let reason = if !limits.iter().any(|limit| u64::from(*limit) == most) {
                format!("no limit of its steps is {most}")
            } else if is_known && all <= most {
                format!("all runs together did not take more than {most} steps")
            } else {
                continue;
            };
            return Err((run.clone(), seq, reason));
        }
        Ok(())
    }

    /// Fails unless each visit counts the steps of its runs: with the visit's run and record.
    fn check(&self) -> Result<(), (RunId, u64, String)> {
        let mut made: BTreeMap<&RunId, u64> = BTreeMap::new();
        // The runs inside a run are behind it.
        for RunSteps { run, counted, .. } in self.runs.iter().rev() {
            let mut all = *counted;
            let visits = self.visits.range((run.clone(), 0)..=(run.clone(), u64::MAX));
            for ((_, step), visit) in visits {
                let inside = visit.runs.iter().filter_map(|inner| made.get(inner));
                let inside = inside.fold(0_u64, |all, one| all.saturating_add(*one));
                match visit.below {
                    None => all = all.saturating_add(inside),
                    Some(below) if below == inside || (visit.may_count_more && below > inside) => {}
                    Some(below) => {
                        let reason =
                            format!("visit {step} counts {below} steps of the runs inside it, and they made {inside}");
                        return Err((run.clone(), visit.seq, reason));
                    }
                }
            }
            made.insert(run, all);
        }
        Ok(())
    }
}

/// How often the calls of a foreach were made.
struct CallCount {
    /// The record of the visit.
    seq: u64,
    /// The number of calls that the visit counts: one, plus each call that was made again.
    counted: u64,
    /// The number that results from the runs inside it.
    least: u64,
    /// Whether the number may be higher, because some calls may have begun no run.
    is_open: bool,
}

/// The failed items of a list at which a run ended.
struct ItemsFailed {
    /// The record of the end.
    seq: u64,
    error: String,
    /// The items that certainly failed.
    failed: BTreeSet<u64>,
    /// The maximum number of items that failed, from the one that the error names on; `None` if unknown.
    most: Option<usize>,
}

impl ItemsFailed {
    fn new(seq: u64, error: String) -> Self {
        let named = named_item(&error).map(|(item, _)| item);
        Self { seq, error, failed: named.into_iter().collect(), most: Some(0) }
    }

    /// Adds the last run of the call for an item.
    fn take(&mut self, call: &CallInside, last: Option<&Proven>) {
        if last.is_some_and(|run| run.audit.status == Status::Error) {
            self.failed.extend(call.parent.item);
        }
        let succeeded = !call.may_time_out && last.is_some_and(|run| run.audit.status.has_result());
        let is_before = named_item(&self.error).is_some_and(|(named, _)| call.parent.item < Some(named));
        let more = usize::from(!succeeded && !is_before);
        self.most = self.most.filter(|_| call.is_one_of_all).map(|most| most + more);
    }

    /// Whether the error names the first of them, and says how many others failed. If only one failed, a hook may have
    /// written such an error.
    fn fits(&self) -> bool {
        let Some((named, text)) = named_item(&self.error) else { return true };
        let others = self.failed.len() - 1;
        let said = text.strip_suffix(" more").and_then(|rest| rest.rsplit_once(", and ")?.1.parse::<usize>().ok());
        let counts = |said| said >= others && self.most.is_none_or(|most| said < most);
        self.failed.first() == Some(&named) && (others == 0 || said.is_some_and(counts))
    }
}

/// Splits the error of a list into the item that failed and the reason.
fn named_item(error: &str) -> Option<(u64, &str)> {
    let (item, text) = error.strip_prefix("item ")?.split_once(": ")?;
    Some((item.parse().ok()?, text))
}

/// Proves the origin of a fork, then the origin of that run, and so forth, as far as the store has them. Returns `false` if
/// the store does not have all of them, or if the run is not a fork.
async fn proven_origin(
    machine: &dyn Machine,
    run: &RunId,
    store: &dyn Store,
    key: &PublicKey,
    encryption_key: Option<&EncryptionKey>,
) -> Result<bool, AuditError> {
    let (mut fork, mut is_fork) = (run.clone(), false);
    let Some(mut records) = loaded(store, &fork).await? else { return Ok(false) };
    loop {
        let of = |run: &RunId| {
            let run = run.clone();
            move |reason| AuditError::Journal { run, reason }
        };
        let begun = Past::open(machine, &fork, &records, key, encryption_key).map_err(of(&fork))?;
        let Some(from) = begun.start.from.clone() else { return Ok(is_fork) };
        let Some(before) = loaded(store, &from.run).await? else { return Ok(false) };
        prove(machine, &from.run, &before, key, encryption_key, false).map_err(of(&from.run))?;
        let mut origin = Past::open(machine, &from.run, &before, key, encryption_key).map_err(of(&from.run))?;
        origin.until = Some(from.seq);
        while origin.go_on().map_err(of(&from.run))? {}
        let link = usize::try_from(from.seq).ok().and_then(|seq| before.get(seq)).map(SignedRecord::link);
        let misfit = |what: &str| {
            let reason = format!("{what} where it says that it began in run `{}`", from.run);
            of(&fork)(JournalError::Misfit { seq: 0, reason })
        };
        if origin.when.1 != from.seq || link != Some(from.link) {
            return Err(misfit("there is another record"));
        }
        if !begins_so(&begun, &origin, &from.changed) {
            return Err(misfit("the state was another"));
        }
        (fork, records, is_fork) = (from.run.clone(), before, true);
    }
}

/// Whether a fork begins with the state and position of its origin, except for some keys.
fn begins_so(fork: &Past<'_>, origin: &Past<'_>, changed: &[String]) -> bool {
    if fork.start.entry != origin.start.entry {
        return false;
    }
    let (Some(state), Some(before)) = (fork.state(), origin.state()) else {
        return fork.position.frontier == origin.position.frontier && fork.position.steps == origin.position.steps;
    };
    let snapshot = |state, position: &Position| {
        SnapshotDraft { code: fork.graph(), state, position, run_secrets: None }.to_owned()
    };
    let mut stood = origin.position.clone();
    stood.become_fork();
    let (mut begins, mut stood) = (snapshot(state, &fork.position), snapshot(before, &stood));
    for key in changed {
        for snapshot in [&mut begins, &mut stood] {
            snapshot.keys.shift_remove(key);
            snapshot.paths.remove(key);
        }
    }
    begins == stood && state.inputs().to_plain_value() == before.inputs().to_plain_value()
}

impl Replayer<'_> {
    /// Returns the calls of graphs that the visits of the next step may have made, which are not recorded.
    pub(super) fn open_calls(&self, seq: u64, at: SystemTime, end: Option<&End>) -> Vec<CallInside> {
        let frontier = &self.position.frontier;
        let all =
            frontier.iter().flat_map(|activation| self.calls_of_graphs(seq, activation.number, None, activation, at));
        // If steps are not written at once, an earlier session can have taken them.
        let is_made = self.sessions.len() > 1 || end.is_none() || self.is_visiting;
        // If a step visits a node twice, it is not recorded at which of the visits the run ended.
        let is_once = |node: u16| frontier.iter().filter(|activation| activation.node == node).count() == 1;
        let once = |call: &CallInside| self.code.node_named(&call.parent.node).is_some_and(is_once);
        all.map(|call| CallInside { attempts: if is_made { call.attempts } else { Some(0) }, ..call })
            .map(|call| if once(&call) { call.ended(end) } else { call })
            .chain(self.held_inside.iter().cloned())
            .chain(self.left_inside())
            .map(|call| self.with_openings(call))
            .collect()
    }

    /// Returns the calls of visits that were left to wait for nested runs, and that are not among those of the next step: they wait,
    /// or nothing needs them any more.
    fn left_inside(&self) -> impl Iterator<Item = CallInside> + '_ {
        let is_next = |step: u64| self.position.frontier.iter().any(|at| at.number == step);
        let left = self.openings.iter().filter(move |(step, _)| !is_next(**step));
        let last = left.filter_map(|(_, openings)| openings.last()).flatten();
        let said = |call: &CallInside| self.done_before(call.parent.step, call.parent.item);
        last.map(move |call| {
            let call = self.with_openings(call.clone());
            CallInside { sessions: self.sessions.clone(), said: said(&call), ..call }
        })
    }

    /// Returns the calls of graphs that a visit made. The run that the visit names is one that the graph allows; `visit` is
    /// `None` if the visit is not recorded. A visit that was cancelled says nothing of its calls.
    pub(super) fn calls_of_graphs(
        &self,
        seq: u64,
        step: u64,
        visit: Option<&Visit>,
        activation: &Activation,
        at: SystemTime,
    ) -> Vec<CallInside> {
        let node = self.code.node(activation.node);
        let asks = self.code.asks(activation.node);
        let (is_cancelled, below) = (visit.is_some_and(|visit| visit.cancelled), visit.map(|visit| visit.below));
        let is_left = visit.is_some_and(|visit| visit.opened.is_some());
        let is_open = visit.is_none_or(|visit| visit.held);
        let (visit, below) = (visit.filter(|_| !is_cancelled && !is_left), below.filter(|_| !is_left));
        let Some(called) = asks.tool() else { return Vec::new() };
        let is_computed = match self.code.tool(called) {
            Some(tool) if tool.by == Executor::Graph => false,
            Some(tool) if is_computed(tool) => true,
            _ => return Vec::new(),
        };
        let blank = CallInside {
            seq,
            parent: Parent::new(self.run.clone(), step, node.name.clone(), None),
            tool: called,
            id: None,
            attempts: visit.map(|visit| visit.calls.max(1)),
            most_missed: self.code.attempts(activation.node),
            counted: None,
            is_one_of_all: false,
            named: None,
            inputs: None,
            last_inputs: None,
            before: Vec::new(),
            handed: self.handed.get(&step).cloned().unwrap_or_default(),
            is_open,
            address: self.receipts.address().filter(|_| !is_computed).cloned(),
            dated: Vec::new(),
            shared: self.state.as_deref().map(|state| shared_values(self.code, node, state)),
            // Any session so far: if steps are not written at once, a session that died leaves no steps of its own, but the
            // runs that it began.
            sessions: self.sessions.clone(),
            permissions: self.code.permissions.clone(),
            may_time_out: node.timeout.is_some() || is_cancelled,
            limits: node.limits,
            most_steps: self.most_steps_below(node),
            below: below.filter(|_| self.most_steps_below(node).is_some()),
            said: SaidInside::Nothing,
            ended: None,
            list_ended: None,
        };
        if asks.is_each() {
            self.calls_of_foreach(&blank, is_computed, visit, activation, at)
        } else {
            self.call_of_action(blank, is_computed, visit, activation, at).into_iter().collect()
        }
    }

    /// Whether a computed id is that of a graph. The id of a tool begins no run.
    fn is_graph(&self, tool: u16, id: &ItemId) -> bool {
        graph_of(self.machine, tool, Some(id)).is_some()
    }

    fn planned(&self, activation: &Activation, now: &Now<'_>) -> Option<Planned> {
        let env = Env::new(self.code, &self.position, self.state.as_deref()?, activation, now);
        plan(&env, &mut Notes::default()).ok()
    }

    fn call_of_action(
        &self,
        mut one: CallInside,
        is_computed: bool,
        visit: Option<&Visit>,
        activation: &Activation,
        at: SystemTime,
    ) -> Option<CallInside> {
        let clock = || at;
        let request = |now: &Now<'_>| match self.planned(activation, now) {
            Some(Planned::Call(request)) => Some(request),
            _ => None,
        };
        let received = received_time(visit);
        if is_computed {
            let now = Now::known_at(&clock, received);
            let planned = request(&now);
            // It is unknown when a call was planned that is not recorded.
            let planned = planned.filter(|_| visit.is_some() || now.known().is_none());
            one.id = planned.and_then(|request| request.id).filter(|id| self.is_graph(one.tool, id));
        }
        let now = Now::new(&clock);
        one.inputs = request(&now).and_then(|request| inputs_without_time(request, &now));
        if now.known().is_some() {
            one.dated = Dated::each(|at| request(&Now::known_at(&clock, Some(at))).map(first));
        }
        one.last_inputs = received.and_then(|received| request(&Now::known_at(&clock, Some(received)))).map(first);
        let Some(visit) = visit else {
            one.said = self.done_before(one.parent.step, None);
            return (!is_computed || one.id.is_some()).then_some(one);
        };
        one.said = match &visit.error {
            // If there is a result, the call itself did not fail.
            Some(error) if visit.result.is_null() => {
                SaidInside::Failure { error: error.clone(), data: visit.data.clone() }
            }
            _ if self.state.is_some() => SaidInside::Result(visit.result.clone()),
            _ => SaidInside::Nothing,
        };
        one.named.clone_from(&visit.run);
        // A call that failed before its run began has no run to find.
        one.named.is_some().then_some(one)
    }

    fn calls_of_foreach(
        &self,
        blank: &CallInside,
        is_computed: bool,
        visit: Option<&Visit>,
        activation: &Activation,
        at: SystemTime,
    ) -> Vec<CallInside> {
        let clock = || at;
        let now = Now::known_at(&clock, received_time(visit));
        let Some(Planned::Each { items, .. }) = self.planned(activation, &now) else { return Vec::new() };
        if visit.is_none() && now.known().is_some() {
            return Vec::new();
        }
        let collected = visit.and_then(|visit| visit.changes.values().next()).and_then(Value::as_array);
        let length = items.len();
        let fails = visit.is_some_and(|visit| visit.error.is_some() && !visit.suppressed);
        let stops = fails && self.code.stops_at_failure(activation.node);
        let each = (0..).zip(&items).map(|(index, item)| {
            let mut one = blank.clone();
            one.parent.item = Some(index);
            one.counted = one.attempts;
            // Each call of a foreach receives a time of its own, and no record has that time.
            let now = Now::new(&clock);
            let mut computed = None;
            let request = |now: &Now<'_>| {
                let env = Env::new(self.code, &self.position, self.state.as_deref()?, activation, now);
                plan_item(&env, item, &mut Notes::default()).ok()
            };
            one.inputs = request(&now).and_then(|request| {
                computed.clone_from(&request.id);
                inputs_without_time(request, &now)
            });
            if now.known().is_some() {
                one.dated = Dated::each(|at| request(&Now::known_at(&clock, Some(at))).map(first));
            }
            one.id = computed.filter(|id| is_computed && self.is_graph(one.tool, id));
            let failed = visit.and_then(|visit| visit.items.iter().find(|failed| failed.item == index));
            let place = || collected?.get(usize::try_from(index).ok()?).cloned();
            one.said = match failed {
                Some(failed) => SaidInside::Failure { error: failed.error.clone(), data: place() },
                None if visit.is_none() => self.done_before(one.parent.step, Some(index)),
                // A list that stopped has items whose calls were not made.
                None if stops => self.done_before(one.parent.step, Some(index)),
                // At another time, the id may be that of a tool.
                None if is_computed && now.known().is_some() => place().map_or(SaidInside::Nothing, SaidInside::Result),
                None => place().map_or(SaidInside::Success, SaidInside::Result),
            };
            one
        });
        let mut all: Vec<CallInside> = each.filter(|one: &CallInside| !is_computed || one.id.is_some()).collect();
        let is_all = all.len() == length;
        all.iter_mut().for_each(|one| one.is_one_of_all = is_all);
        all
    }

    /// Returns the result of a call of the next step from its `calls` record.
    fn done_before(&self, step: u64, item: Option<u64>) -> SaidInside {
        match self.done.get(&(step, item)) {
            Some(Done { failure: Some(failure), .. }) => {
                SaidInside::Failure { error: failure.error.clone(), data: failure.data.clone() }
            }
            Some(done) if self.state.is_some() && done.suspended.is_none() => SaidInside::Result(done.result.clone()),
            _ => SaidInside::Nothing,
        }
    }
}

/// Returns the time that a visit received, if it is recorded.
fn received_time(visit: Option<&Visit>) -> Option<SystemTime> {
    visit.and_then(|visit| visit.now).map(timestamp::from_unix_milliseconds)
}

/// Returns the inputs that a call gives its graph, unless they depend on the time.
fn inputs_without_time(request: Request, now: &Now<'_>) -> Option<Value> {
    now.known().is_none().then(|| first(request))
}

/// Returns the inputs that a call gives its graph.
fn first(mut request: Request) -> Value {
    request.arguments.take::<Value>("")
}

impl CallInside {
    fn id(&self, attempt: u64) -> RunId {
        nested_id(&self.parent.run, self.parent.step, self.parent.item, attempt)
    }

    /// Whether the run around it was not resumed before. If so, each call was made once, and in turn.
    fn is_first_session(&self) -> bool {
        self.sessions.len() == 1
    }

    /// Whether a call can have failed before its run ended: it timed out, or was made again after a resume.
    fn may_leave_runs(&self) -> bool {
        !self.is_first_session() || self.may_time_out
    }

    /// Whether a journal belongs to a run that one of its calls began, and not to another run with this id.
    fn has_begun(&self, run: &RunId, records: Option<Vec<SignedRecord>>, key: &PublicKey) -> bool {
        let start = records.and_then(|records| VerifiedJournal::new(run, &records, key).ok()?.start().ok());
        start.is_some_and(|(_, start)| start.parent.as_ref() == Some(&self.parent))
    }

    /// Returns the number of the call that began the run in the visit's outcome, if the outcome names a run.
    fn named_attempt(&self) -> Option<u64> {
        let run = match &self.said {
            SaidInside::Result(result) => result.get("graph_run_id")?.as_str()?,
            SaidInside::Failure { error, .. } => run_inside(error)?,
            SaidInside::Success | SaidInside::Nothing => return None,
        };
        let again = run.rsplit_once("-again").and_then(|(_, again)| again.parse::<u64>().ok());
        let is_its = |attempt: &u64| self.id(*attempt).as_str() == run;
        let most = self.attempts.unwrap_or(MOST_CALLS);
        let attempt = again.map_or(1, |again| again.saturating_add(1));
        Some(attempt).filter(is_its).or_else(|| (1..=most.min(MOST_CALLS)).find(is_its)).filter(|one| *one <= most)
    }

    /// Whether a call can fail before its run begins although the next call begins a run.
    fn may_miss(&self, inner: &dyn Machine) -> bool {
        // A call that asks for the time may be refused at one time and not at another.
        let is_same = self.inputs.is_some() && tables(inner.graph()).settings.secrets.is_empty();
        !is_same || !self.is_first_session() || self.may_time_out || !required_environment(inner).is_empty()
    }

    /// Fails unless a call can have begun a run after those that were begun before.
    fn follows(&self, inner: &dyn Machine, before: &RunsBegun) -> Result<(), String> {
        let node = &self.parent.node;
        if before.missed > 0 && !self.may_miss(inner) {
            return Err(format!("node `{node}` made a call again that began no run, and the next one began one"));
        }
        self.may_repeat(before)
    }

    /// Fails unless the call can have been made again after the end of the last run.
    fn may_repeat(&self, before: &RunsBegun) -> Result<(), String> {
        let node = &self.parent.node;
        match &before.last {
            // A call that is given up leaves its run in any status.
            Some((_, run)) if run.audit.status != Status::Error && !self.may_leave_runs() => {
                Err(format!("node `{node}` made a call again, and run `{}` did not fail", run.audit.run))
            }
            _ => Ok(()),
        }
    }

    /// Fails unless the last of `calls` calls began the last of the runs, or can have begun no run.
    fn ends_at(&self, inner: &dyn Machine, calls: u64, begun: &RunsBegun) -> Result<(), String> {
        let Some((last, _)) = begun.last.as_ref().filter(|(last, _)| *last < calls) else { return Ok(()) };
        self.may_repeat(begun)?;
        if !self.may_miss(inner) {
            let node = &self.parent.node;
            return Err(format!("node `{node}` made {calls} calls, and only {last} of them began a run"));
        }
        Ok(())
    }

    /// Counts the calls of an item.
    fn count(&self, inner: &dyn Machine, named: Option<u64>, begun: &RunsBegun, count: &mut CallCount) {
        let last = begun.last.as_ref().map(|(last, _)| *last);
        let is_known = match (&self.said, last) {
            _ if named.is_some() => true,
            (SaidInside::Success, Some(_)) => self.is_first_session(),
            (_, Some(_)) => !self.may_miss(inner),
            (_, None) => false,
        };
        let least = named.or(last.filter(|_| self.is_first_session())).unwrap_or(1);
        count.least = count.least.saturating_add(least - 1);
        count.is_open |= !is_known || !self.is_one_of_all;
    }

    /// Returns the call as it was planned, and as it was planned before.
    fn plans(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.before)
    }

    /// Fails unless the call can have begun this run.
    fn ties(&self, machine: &dyn Machine, attempt: u64, run: &Proven) -> Result<(), String> {
        let start = &run.start;
        if start.parent.as_ref() != Some(&self.parent) {
            return Err(format!("it does not belong to visit {} of run `{}`", self.parent.step, self.parent.run));
        }
        if start.steps != self.most_steps {
            return Err(format!("run `{}` lets it and others take another number of steps", self.parent.run));
        }
        let address = self.address.as_ref().map(|own| own.inside(self.parent.step, self.parent.item, attempt));
        if start.address.is_some() && start.address != address {
            return Err(format!(
                "it receives signals elsewhere than node `{}` of run `{}` lets it",
                self.parent.node, self.parent.run
            ));
        }
        self.hands(attempt, run)?;
        if !self.plans().any(|plan| plan.shared.as_ref().is_none_or(|shared| *shared == start.shared)) {
            let node = &self.parent.node;
            return Err(format!("it shares other keys or values than node `{node}` of run `{}`", self.parent.run));
        }
        // A run whose call was dropped is resumed once more, to end it as cancelled.
        let again = self.sessions.last().filter(|_| run.audit.status == Status::Cancelled);
        self.takes_up(machine, self.sessions.iter().chain(again), &run.sessions)?;
        // A call that is made again after a resume finds its earlier run, which received another time.
        let is_last = self.named.as_ref() == Some(&run.audit.run) && self.is_first_session();
        let last = self.last_inputs.as_ref().filter(|_| is_last);
        // Defaults are applied, as they were when the run began.
        let becomes = |inputs| machine.open(inputs).is_ok_and(|given| given.inputs().to_plain_value() == start.inputs);
        let is_given = |plan: &Self| match plan.inputs.as_ref().or(last) {
            _ if !run.audit.is_recomputed => true,
            Some(inputs) => becomes(inputs.clone()),
            None => plan.dated.is_empty() || plan.dated.iter().any(|dated| dated.may_be(&start.inputs, becomes)),
        };
        if self.plans().any(is_given) {
            Ok(())
        } else {
            Err(format!("its inputs are not what node `{}` of run `{}` gives", self.parent.node, self.parent.run))
        }
    }

    /// Fails unless a run has the shared signals that its visit received for it.
    fn hands(&self, attempt: u64, run: &Proven) -> Result<(), String> {
        let (node, around) = (&self.parent.node, &self.parent.run);
        let handed = || self.handed.iter().filter(|(call, _)| *call == attempt).map(|(_, signal)| signal);
        if let Some(signal) = run.handed.iter().find(|signal| !handed().any(|own| own == *signal)) {
            return Err(format!("node `{node}` of run `{around}` does not hand it the signal `{}`", signal.name));
        }
        let has_continued = run.audit.status.has_result() && !self.is_open && !self.may_time_out;
        match handed().find(|signal| has_continued && !run.handed.contains(signal)) {
            Some(signal) => Err(format!("it did not take the signal `{}` of run `{around}`", signal.name)),
            None => Ok(()),
        }
    }

    /// Fails unless the sessions of the run around it can have begun the sessions of a run, each at most one.
    fn takes_up<'s>(
        &self,
        machine: &dyn Machine,
        around: impl IntoIterator<Item = &'s Session>,
        own: &[Session],
    ) -> Result<(), String> {
        let around: Vec<&Session> = around.into_iter().collect();
        let mut next = 0;
        // A run that waited is continued several times by one session around it.
        let may_wait = tables(machine.graph()).can_park;
        for own in own {
            let mut may_nest = false;
            let left = around.get(next..).unwrap_or_default();
            let found = left.iter().position(|outer| {
                let depth = self.limits.depth_within(outer.depth);
                let is_below = depth.checked_sub(1).is_some_and(|depth| own.said_depth == Some(depth));
                may_nest |= is_below;
                is_below && self.grants(machine, outer, own)
            });
            let is_granted = found.is_some();
            next += found.map_or(left.len(), |at| if may_wait { at } else { at + 1 });
            if !is_granted && may_nest {
                return Err(format!("it was granted more than the run around it, `{}`, or less", self.parent.run));
            }
            if !is_granted {
                return Err(
                    "it may nest graphs deeper or less deep than the run around it allows, or it was resumed more often".to_owned()
                );
            }
        }
        Ok(())
    }

    /// Fails unless the last session of a run can belong to the last session of the run around it. A run that failed before
    /// continues when its call is made again.
    fn fails_now(&self, machine: &dyn Machine, run: &Proven) -> Result<(), String> {
        let (Some((outer, before)), Some((own, earlier))) = (self.sessions.split_last(), run.sessions.split_last())
        else {
            return Ok(());
        };
        let may_wait = tables(machine.graph()).can_park;
        let before = if may_wait { &self.sessions[..] } else { before };
        let begun = self.takes_up(machine, before, earlier);
        begun.and_then(|()| self.takes_up(machine, [outer], from_ref(own))).map_err(|_| {
            let (node, id) = (&self.parent.node, &run.audit.run);
            format!("node `{node}` has the failure of run `{id}`, and did not resume it")
        })
    }

    /// Whether a session of its own can have its grants from a session of the run around it.
    fn grants(&self, machine: &dyn Machine, outer: &Session, own: &Session) -> bool {
        if outer.says_all {
            let expected = granted(machine, &[outer.granted.clone(), self.permissions.clone()]);
            return own
                .granted
                .patterns()
                .iter()
                .map(|pattern| pattern.as_str())
                .eq(expected.iter().map(String::as_str));
        }
        let covered = |all: &Grants, one| all.patterns().iter().any(|pattern| pattern.covers(one));
        let mut patterns = own.granted.patterns().iter();
        patterns.all(|one| covered(&outer.granted, one) && covered(&self.permissions, one))
    }

    /// Fails unless the visit received the outcome of its last run.
    fn check_received(&self, outer: &dyn Machine, inner: &dyn Machine, last: Option<&Proven>) -> Result<(), String> {
        let node = &self.parent.node;
        let Some(run) = last else {
            return match &self.said {
                SaidInside::Result(_) | SaidInside::Success => {
                    Err(format!("node `{node}` has the result of a run that has no journal"))
                }
                SaidInside::Failure { error, .. } if says_ended(error) => {
                    Err(format!("node `{node}` has the result of a run that has no journal"))
                }
                SaidInside::Failure { .. } | SaidInside::Nothing => Ok(()),
            };
        };
        let id = &run.audit.run;
        let is_done = run.audit.status.has_result();
        let may_hide = !tables(outer.graph()).settings.secrets.is_empty();
        match &self.said {
            SaidInside::Nothing => self.ends_with(inner, run, may_hide),
            SaidInside::Result(_) | SaidInside::Success if !is_done => {
                Err(format!("node `{node}` has a result of run `{id}`, which has no result"))
            }
            SaidInside::Success => Ok(()),
            SaidInside::Result(said) => {
                // Without the key of its secrets, its result was not computed.
                let Some(ended) = &run.ended else { return Ok(()) };
                let is_plain = receives_secrets(tables(outer.graph()), self.tool, tables(inner.graph()));
                let result = ended.result(id, is_plain);
                if agree(said, &result, may_hide) {
                    Ok(())
                } else {
                    Err(format!("node `{node}` has another result than run `{id}` returned"))
                }
            }
            // The call timed out, and left its run in any status.
            SaidInside::Failure { error, .. } if error.starts_with("it timed out after") => Ok(()),
            SaidInside::Failure { .. } if is_done => {
                Err(format!("node `{node}` has a failure of run `{id}`, which did not fail"))
            }
            SaidInside::Failure { .. } if !self.may_fail_before(run) => {
                Err(format!("node `{node}` has a failure of run `{id}`, which did not fail"))
            }
            SaidInside::Failure { error: said, data } => {
                let Some(lost) = &run.failed else {
                    return match says_ended(said) {
                        true => Err(format!("node `{node}` has a failure of run `{id}`, which did not fail")),
                        false => Ok(()),
                    };
                };
                let error = failure_inside(&lost.error, lost.node.as_deref(), id);
                let is_hidden = said.contains(HIDDEN) && may_hide;
                if is_hidden || said.starts_with("cannot resume run") {
                    return Ok(());
                }
                if *said != error {
                    return Err(format!("node `{node}` has another failure than run `{id}`"));
                }
                self.fails_now(inner, run)?;
                match data {
                    Some(data) if !lost.is_seen(data, may_hide) => {
                        Err(format!("node `{node}` has another state than run `{id}` ended in"))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// Fails if the run around this one ended with this run's failure, and misstates it.
    fn ends_with(&self, inner: &dyn Machine, run: &Proven, may_hide: bool) -> Result<(), String> {
        let Some((error, code)) = &self.ended else { return Ok(()) };
        let (id, node) = (&run.audit.run, &self.parent.node);
        if !self.may_fail_before(run) {
            return Err(format!("node `{node}` failed, and run `{id}` did not"));
        }
        let lost = run.failed.as_ref();
        let known = lost.filter(|lost| lost.node.is_some()).and_then(|lost| lost.code.as_ref());
        // If a call was given up, a hook may use the error of its run.
        let is_its = !self.may_time_out
            && lost.is_some_and(|lost| *error == failure_inside(&lost.error, lost.node.as_deref(), id));
        if is_its {
            self.fails_now(inner, run)?;
        }
        // A hook may change the text of a failure, and keeps its code.
        if code.is_some() && code.as_ref() != known || (is_its && code.as_ref() != known) {
            let is_hidden = may_hide && code.as_ref().is_some_and(|code| code.contains(HIDDEN));
            return if is_hidden {
                Ok(())
            } else {
                Err(format!("node `{node}` failed with another code than run `{id}`"))
            };
        }
        Ok(())
    }

    /// Whether the call can have failed, given the status of its last run.
    fn may_fail_before(&self, run: &Proven) -> bool {
        let is_left = matches!(run.audit.status, Status::Error | Status::Cancelled);
        is_left || self.may_leave_runs()
    }

    /// Notes the error with which the run around it ended at the node.
    fn ended(mut self, end: Option<&End>) -> Self {
        let Some(End { error: Some(error), node: Some(node), code, unfit: false, .. }) = end else { return self };
        if *node == self.parent.node {
            self.list_ended = self.parent.item.map(|_| error.clone());
            let said = match (self.parent.item, named_item(error)) {
                (None, _) => Some(error.as_str()),
                (Some(item), Some((first, rest))) if first == item => Some(rest),
                _ => None,
            };
            self.ended = said.map(|error| (error.to_owned(), code.clone()));
        }
        self
    }
}

impl Lost {
    /// Whether edges see this data of it.
    fn is_seen(&self, data: &Value, may_hide: bool) -> bool {
        let Some(state) = &self.state else { return true };
        let (Some(said), Some(steps)) = (data.get("state"), data.get("steps")) else { return true };
        let (mut said, mut state) = (said.clone(), state.clone());
        // The number of calls in a step that was not committed is not recorded.
        let retries = self.forget_open(&mut said);
        self.forget_open(&mut state);
        let may_be = |(node, count): (&String, &Value)| {
            self.node.as_ref() == Some(node) && count.as_u64().is_some_and(|count| count > 0)
        };
        retries.iter().all(may_be) && agree(&said, &state, may_hide) && *steps == self.steps
    }

    /// Removes from a state the numbers of repeated calls of the next step, and returns them.
    fn forget_open(&self, state: &mut Value) -> Map<String, Value> {
        let mut open = Map::new();
        let Value::Object(state) = state else { return open };
        if let Some(Value::Object(retries)) = state.get_mut(RETRIES) {
            for name in &self.next {
                open.extend(retries.shift_remove(name).map(|count| (name.clone(), count)));
            }
            if retries.is_empty() {
                state.shift_remove(RETRIES);
            }
        }
        open
    }
}

/// Whether a value agrees with the journal, where secrets may be cut out of its texts.
fn agree(said: &Value, is: &Value, may_hide: bool) -> bool {
    match (said, is) {
        (Value::String(text), _) if may_hide && text.contains(HIDDEN) => true,
        (Value::Array(said), Value::Array(is)) => {
            said.len() == is.len() && said.iter().zip(is).all(|(said, is)| agree(said, is, may_hide))
        }
        (Value::Object(said), Value::Object(is)) => {
            let fits = |(name, value): (&String, &Value)| match is.get(name) {
                Some(is) => agree(value, is, may_hide),
                None => may_hide && name.contains(HIDDEN),
            };
            said.len() == is.len() && said.iter().all(fits)
        }
        _ => said == is,
    }
}
