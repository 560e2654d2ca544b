//! The runs that the calls of a run began: whether their journals exist and are whole.

use crate::activation::Activation;
use crate::call::Parent;
use crate::encryption_key::EncryptionKey;
use crate::error::StoredRunError;
use crate::future::BoxFuture;
use crate::graph::{CompiledTool, GraphTables, Notes, Now, tables};
use crate::machine::Machine;
use crate::past::Past;
use crate::record::{CompletedCalls, Done, Entry, JournalError, SignedRecord, VerifiedJournal, Visit};
use crate::run_secrets::RunSecrets;
use crate::step::{
    Env, Planned, Position, graph_inside, graph_of, is_computed, may_begin_runs, nested_at, nested_id, plan, plan_item,
};
use crate::store::{RunFilter, Store, StoreError, Within, all_runs};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use graph_model::name::{ItemId, RunId};
use graph_model::timestamp;
use graph_model::value::Value;
use graph_signing::PublicKey;

/// Fails unless the journals of nested runs are whole: the runs that the committed visits of a run began, those that the
/// calls in `done` of the next step began, and the runs inside them. A resumed run uses their results.
///
/// Like the run's own journal, they are verified and not computed again. If a visit has a result, there must be a journal of
/// its run.
pub(crate) async fn verify_inside(
    machine: &Arc<dyn Machine>,
    run: &RunId,
    records: &[SignedRecord],
    done: &CompletedCalls,
    store: &dyn Store,
    key: &PublicKey,
    encryption_key: Option<&EncryptionKey>,
) -> Result<(), StoredRunError> {
    let nothing = CompletedCalls::new();
    let begun = |machine: &Arc<dyn Machine>, run: &RunId, records: &[SignedRecord], done: &CompletedCalls| {
        let begun = begun(&**machine, run, records, done, key, encryption_key).map_err(StoredRunError::journal(run))?;
        Ok::<_, StoredRunError>(begun.into_iter().rev().map(|call| (Arc::clone(machine), call)).collect::<Vec<_>>())
    };
    let mut waiting = begun(machine, run, records, done)?;
    while let Some((outer, call)) = waiting.pop() {
        let Begun { seq, parent, tool, id, attempts, has_result } = call;
        let misfit = |reason: &str| {
            let reason = format!("node `{}` {reason}", parent.node);
            StoredRunError::journal(&parent.run)(JournalError::Misfit { seq, reason })
        };
        let inner = graph_of(&*outer, tool, id.as_ref()).ok_or_else(|| misfit("calls a graph that does not exist"))?;
        let mut is_there = false;
        for attempt in 1..=attempts {
            let id = nested_id(&parent.run, parent.step, parent.item, attempt);
            let records = match store.load(&id).await {
                Ok(records) => records,
                // A call may fail before its run begins.
                Err(StoreError::NotFound(_)) => continue,
                Err(error) => return Err(error.into()),
            };
            let start = VerifiedJournal::new(&id, &records, key).and_then(|verified| verified.start());
            let (_, start) = start.map_err(StoredRunError::journal(&id))?;
            if start.parent.as_ref() != Some(&parent) || !start.is_under(inner.graph()) {
                return Err(misfit("names a run that it did not begin"));
            }
            waiting.extend(begun(&inner, &id, &records, &nothing)?);
            is_there = true;
        }
        if has_result && !is_there {
            return Err(misfit("has the result of a run that has no journal"));
        }
    }
    Ok(())
}

/// Fails unless the nested runs that a run waits for can continue under the graphs and with the key of their secrets that there are.
/// Otherwise their nodes would fail.
pub(crate) async fn verify_waiting(
    machine: &Arc<dyn Machine>,
    run: &RunId,
    position: &Position,
    store: &dyn Store,
    key: &PublicKey,
    encryption_key: Option<&EncryptionKey>,
) -> Result<(), StoredRunError> {
    let ids = position.waits.iter().flat_map(|wait| &wait.opened.inside).map(|wait| wait.id.as_str());
    let paths: BTreeSet<&str> = ids.flat_map(|id| id.match_indices('/').map(|(at, _)| &id[..=at])).collect();
    for inner in paths.into_iter().filter_map(|path| nested_at(run, path)) {
        let records = store.load(&inner).await?;
        let verified = VerifiedJournal::new(&inner, &records, key).and_then(|verified| verified.start());
        let (_, start) = verified.map_err(StoredRunError::journal(&inner))?;
        // Without such a graph inside it, it is compared with the run's own.
        let graph = graph_inside(&**machine, &start.graph).unwrap_or_else(|| Arc::clone(machine));
        let code = tables(graph.graph());
        if !start.is_under(graph.graph()) {
            return Err(StoredRunError::another_graph(&inner, &start, &*graph, Vec::new()));
        }
        let secrets = RunSecrets::open(code, &inner, encryption_key, true)?;
        let expected = secrets.and_then(|secrets| secrets.fingerprint());
        StoredRunError::unless_encrypted_with(expected, &inner, start.encryption_key.as_ref())?;
    }
    Ok(())
}

/// Returns the visits of the next step of a resumed run whose runs are counted. `is_inside` says whether a limit of a run or node
/// around it counts its steps.
pub(crate) fn counts_inside(code: &GraphTables, position: &Position, is_inside: bool) -> BTreeSet<u64> {
    let is_counting = is_inside || code.settings.steps.is_some();
    let counts = |at: &&Activation| {
        let tool = code.asks(at.node).tool().and_then(|tool| code.tool(tool));
        tool.is_some_and(may_begin_runs) && (is_counting || code.node(at.node).limits.steps.is_some())
    };
    let has_called =
        |at: &&Activation| position.waits.iter().any(|wait| wait.step == at.number && wait.opened.may_have_called());
    let parked = position.parked.iter().filter(has_called);
    position.frontier.iter().chain(parked).filter(counts).map(|at| at.number).collect()
}

/// Returns how many steps the runs have made that visits of a run began, and those inside them, by the numbers of the visits.
pub(crate) fn steps_inside<'a>(
    store: &'a dyn Store,
    key: &'a PublicKey,
    run: &'a RunId,
    visits: BTreeSet<u64>,
) -> BoxFuture<'a, Result<BTreeMap<u64, u64>, StoredRunError>> {
    Box::pin(async move {
        let filter = RunFilter { within: Within::Run(run.clone()), ..RunFilter::default() };
        let mut steps = BTreeMap::new();
        let runs = all_runs(store, &filter).await?.into_iter().map(|inner| inner.run);
        for inner in runs.filter(|inner| may_be_of(run, inner, &visits)) {
            let records = store.load(&inner).await?;
            let made = StepsMade::read(&inner, &records, key).map_err(StoredRunError::journal(&inner))?;
            let Some(parent) = made.parent.as_ref().filter(|parent| visits.contains(&parent.step)) else {
                continue;
            };
            let open = steps_inside(store, key, &inner, made.open).await?;
            let all = open.values().fold(made.steps, |all, one| all.saturating_add(*one));
            let visit: &mut u64 = steps.entry(parent.step).or_default();
            *visit = visit.saturating_add(all);
        }
        Ok(steps)
    })
}

/// Whether one of these visits of a run can have begun a run of this id.
fn may_be_of(run: &RunId, inner: &RunId, visits: &BTreeSet<u64>) -> bool {
    let behind = inner.as_str().strip_prefix(run.as_str()).and_then(|rest| rest.strip_prefix('-'));
    let number = behind.map(|rest| rest.split(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default());
    number.and_then(|number| number.parse().ok()).is_none_or(|visit| visits.contains(&visit))
}

/// The steps that a run has made according to its journal.
struct StepsMade {
    parent: Option<Parent>,
    /// Its steps, with those of the runs inside its committed visits.
    steps: u64,
    /// The visits of its next step, and those whose failures are held.
    open: BTreeSet<u64>,
}

impl StepsMade {
    fn read(run: &RunId, records: &[SignedRecord], key: &PublicKey) -> Result<Self, JournalError> {
        let verified = VerifiedJournal::new(run, records, key)?;
        let (_, start) = verified.start()?;
        let (mut steps, mut last, mut held) = (0_u64, None, BTreeSet::new());
        for at in 1..records.len() {
            let Some(record) = verified.record(at).transpose()? else { break };
            let Entry::Step(step) = record.entry else { continue };
            for Visit { step, below, held: is_held, opened, .. } in step.visits {
                if is_held || opened.is_some() {
                    held.insert(step);
                } else {
                    held.remove(&step);
                    steps = steps.saturating_add(1).saturating_add(below);
                }
            }
            last = Some(step.next);
        }
        // The first visits are numbered from 1, and no more than the graph has nodes.
        let open = match last {
            Some(next) => next.iter().map(|target| target.number).chain(held).collect(),
            None => (1..=u64::from(u16::MAX)).collect(),
        };
        Ok(Self { parent: start.parent, steps, open })
    }
}

/// A recorded call of a graph.
struct Begun {
    /// The number of the record that contains it.
    seq: u64,
    parent: Parent,
    tool: u16,
    /// The graph's id, if the node computes it.
    id: Option<ItemId>,
    /// How many times it was made at most.
    attempts: u64,
    has_result: bool,
}

/// Returns the calls of graphs that the committed visits of a run made, and those in `done` of its next step.
fn begun(
    machine: &dyn Machine,
    run: &RunId,
    records: &[SignedRecord],
    done: &CompletedCalls,
    key: &PublicKey,
    encryption_key: Option<&EncryptionKey>,
) -> Result<Vec<Begun>, JournalError> {
    let mut all = Vec::new();
    let code = tables(machine.graph());
    let may_run = |tool: &&CompiledTool| may_begin_runs(tool);
    if !code.tools.iter().any(|tool| may_run(&tool)) {
        return Ok(all);
    }
    let called = |node: u16| {
        let asks = code.asks(node);
        asks.tool().and_then(|index| code.tool(index).filter(may_run).map(|tool| (index, tool, asks.is_each())))
    };
    let mut past = Past::open(machine, run, records, key, encryption_key)?;
    while let Some((seq, step, _)) = past.next_step()? {
        let visits = step.visits.clone();
        let frontier = past.next_frontier();
        for (visit, activation) in visits.iter().zip(&frontier) {
            let node = code.node(activation.node);
            // A visit that waits, or whose failure is held, is recorded again when it is made again.
            let is_whole = !visit.cancelled && !visit.held && visit.opened.is_none();
            let Some((index, tool, is_each)) = called(activation.node).filter(|_| is_whole) else { continue };
            let one = |item, has_result| Begun {
                seq,
                parent: Parent { run: run.clone(), step: visit.step, node: node.name.clone(), item },
                tool: index,
                id: is_computed(tool).then(|| computed(&past, activation, visit.now, item)).flatten(),
                attempts: visit.calls.max(1),
                has_result,
            };
            // A computed id may be that of a tool, which begins no run.
            let is_graph =
                |call: &Begun| !is_computed(tool) || graph_of(machine, call.tool, call.id.as_ref()).is_some();
            if !is_each {
                let call = one(None, visit.error.is_none());
                if is_graph(&call) || visit.run.is_some() {
                    all.push(call);
                }
                continue;
            }
            let failed = |index| visit.items.iter().any(|failed| failed.item == index);
            // A list that stops at a failure does not begin the runs of the other items.
            let is_whole = visit.error.is_none() || !code.stops_at_failure(activation.node);
            let items = (0..items(&past, activation, visit)).map(|index| one(Some(index), is_whole && !failed(index)));
            all.extend(items.filter(is_graph));
        }
        past.go_on()?;
    }
    let mut done: Vec<&Done> = done.values().filter(|done| done.suspended.is_none()).collect();
    done.sort_unstable_by_key(|done| (done.step, done.item));
    for Done { step, item, calls, run: named, now, failure, .. } in done {
        let Some(activation) = past.position.open().find(|at| at.number == *step) else { continue };
        let node = code.node(activation.node);
        let Some((tool, row, _)) = called(activation.node) else { continue };
        let id = is_computed(row).then(|| computed(&past, activation, *now, *item)).flatten();
        if named.is_some() || graph_of(machine, tool, id.as_ref()).is_some() {
            all.push(Begun {
                seq: past.when.1,
                parent: Parent { run: run.clone(), step: *step, node: node.name.clone(), item: *item },
                tool,
                id,
                attempts: (*calls).max(1),
                has_result: failure.is_none(),
            });
        }
    }
    Ok(all)
}

/// Returns the id that a call computed at the time `now`, if it can be determined. `item` is its index in the list of a
/// foreach.
fn computed(past: &Past<'_>, activation: &Activation, now: Option<i64>, item: Option<u64>) -> Option<ItemId> {
    let clock = || now.map_or(SystemTime::UNIX_EPOCH, timestamp::from_unix_milliseconds);
    let now = Now::new(&clock);
    let env = Env::new(past.graph(), &past.position, past.state()?, activation, &now).made();
    let notes = &mut Notes::default();
    match (plan(&env, notes).ok()?, item) {
        (Planned::Call(request), None) => request.id,
        (Planned::Each { items, .. }, Some(item)) => {
            let item = items.get(usize::try_from(item).ok()?)?;
            plan_item(&env, item, notes).ok()?.id
        }
        _ => None,
    }
}

/// Returns how many items a foreach iterated over. If they are encrypted, it counts the results that it collected.
fn items(past: &Past<'_>, activation: &Activation, visit: &Visit) -> u64 {
    let clock = || visit.now.map_or(SystemTime::UNIX_EPOCH, timestamp::from_unix_milliseconds);
    let now = Now::new(&clock);
    let planned = past.state().and_then(|state| {
        plan(&Env::new(past.graph(), &past.position, state, activation, &now).made(), &mut Notes::default()).ok()
    });
    match planned {
        Some(Planned::Each { items, .. }) => items.len() as u64,
        _ => visit.changes.values().next().and_then(Value::as_array).map_or(0, |list| list.len() as u64),
    }
}
