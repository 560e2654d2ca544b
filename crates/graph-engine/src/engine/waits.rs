//! Waits: opening them, continuing when they are over, and leaving a run in its store until then.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::Arc;

use graph_model::digest::Digest;
use graph_model::program;
use graph_model::timestamp::unix_milliseconds;

use crate::address::{self, Address, answered, is_for_nested};
use crate::answer::Question;
use crate::engine::begin::WaitTime;
use crate::engine::run_state::{Engine, VisitState};
use crate::error::RunError;
use crate::graph::{GraphTables, tables};
use crate::record::{End, SignedRecord, Take, TakenSignal};
use crate::signal::{self, JournalKeys, Receives};
use crate::status::Status;
use crate::step::{Escalation, GIVEN_UP, OpenWait, Opened, Position, ReadyInside, TakenWait, Way};
use crate::store::{Ask, Inbox, NestedGraph, StoreError, Wait, WaitChanges, WaitId};

/// The signals of a run in its store, at a time.
struct Post {
    at: i64,
    /// The signals that no wait has taken, in the order of their receipt.
    signals: Vec<TakenSignal>,
    /// The order of those that this runtime did not receive, or that do not fit the graph.
    refused: Vec<u64>,
    /// The visits whose nested runs can continue.
    resumed: ReadyInside,
}

impl Engine {
    /// Ends the run because the processes that continue it die.
    pub(crate) async fn give_up(mut self) -> RunError {
        let end = End { error: Some(GIVEN_UP.to_owned()), ..End::of(Status::Error, self.run_state.position.steps) };
        if let Err(error) = self.end_without_result(end).await {
            return error;
        }
        RunError::Stopped { run: self.facts.id.clone(), reason: GIVEN_UP.to_owned() }
    }

    /// Returns the time of the store, in milliseconds since the Unix epoch; without a store, that of the clock.
    pub(super) async fn store_time(&self) -> Result<i64, RunError> {
        let Some(store) = &self.runtime.store else { return Ok(unix_milliseconds(self.runtime.clock.now())) };
        store.now().await.map_err(|source| self.failed_store(source))
    }

    pub(super) fn failed_store(&self, source: StoreError) -> RunError {
        self.observe_end(Status::Running, Some(&source.to_string()), None);
        RunError::Store { run: self.facts.id.clone(), step: self.run_state.position.steps + 1, source }
    }

    /// Opens the waits of the visits that wait. They begin when the step is committed, however long it took.
    pub(super) async fn open_waits(&self, visits: &mut [&mut VisitState]) -> Result<(), RunError> {
        if !visits.iter().any(|visit| visit.waits) {
            return Ok(());
        }
        let at = self.store_time().await?;
        for visit in visits.iter_mut().filter(|visit| visit.waits && visit.way.opened().is_some()) {
            if let Some(parked) = &mut visit.parked {
                visit.way = Way::Waits(Opened::of_inside(take(&mut parked.waits), at));
                continue;
            }
            let (opening, node) = (take(&mut visit.opening), self.graph().node(visit.activation.node));
            let before = self.run_state.position.waits_before(visit.activation.number);
            if opening.pause.is_some() {
                visit.way = Way::Waits(Opened::of_pause(opening, at).behind(before));
            } else if let Some(wait) = node.wait() {
                visit.way = Way::Waits(Opened::new(wait, opening, at).behind(before));
            }
        }
        Ok(())
    }

    /// Continues the visits whose waits are over: they are part of the next step, and the journal says so before it begins.
    pub(super) async fn take_waits(&mut self) -> Result<(), RunError> {
        self.run_state().continued.clear();
        if take(&mut self.looks_inside) {
            // Nothing else is over before the nested runs wait again.
            let at = self.store_time().await?;
            let inside = self.run_state.position.waits.iter().filter(|wait| wait.opened.is_inside());
            let taken = inside.map(|wait| TakenWait::new(wait.step, at)).collect();
            return self.end_waits(taken).await;
        }
        if self.wait_time == WaitTime::Held {
            return Ok(());
        }
        let Post { at, signals, refused, resumed } = self.post().await?;
        if let WaitTime::At(_) = self.wait_time {
            // The run around it has not seen what it waits for behind these.
            self.wait_time = WaitTime::Held;
        }
        let taken = self.run_state.position.over(self.graph(), at, signals, &resumed);
        if !refused.is_empty() {
            self.settled_signals.extend(&refused);
            // Nothing takes them. In the inbox, they would wake the run again and again.
            self.change_waits(WaitChanges { take: refused, ..WaitChanges::default() });
        }
        if taken.is_empty() {
            return Ok(());
        }
        // A run that receives a signal of its own continues at the time of that: another one, behind it, may still end a wait there.
        let at = |taken: &TakenWait| resumed.first.get(&taken.step).map_or(taken.at, |(_, at)| *at);
        let seen = taken.iter().filter(|taken| taken.signal.is_none()).map(|taken| (taken.step, at(taken))).collect();
        self.run_state().continued = seen;
        self.end_waits(taken).await
    }

    /// Ends waits. The journal says so before the next step begins.
    async fn end_waits(&mut self, taken: Vec<TakenWait>) -> Result<(), RunError> {
        if let Some(secrets) = &self.run_secrets {
            let signals = taken.iter().filter_map(|taken| taken.signal.as_ref());
            signals.for_each(|signal| secrets.learn_signal(self.graph(), signal));
        }
        let waits = &self.run_state.position.waits;
        let over = waits.iter().filter(|wait| taken.iter().any(|taken| taken.step == wait.step));
        let close = over.flat_map(ids).collect();
        // The run around this one has taken the signal that it shares.
        let handed = self.handed.as_ref().map(|signal| signal.order);
        let orders = taken.iter().filter_map(|wait| Some(wait.signal.as_ref()?.order));
        let take: Vec<u64> = orders.filter(|order| Some(*order) != handed).collect();
        self.settled_signals.extend(&take);
        let machine = Arc::clone(&self.machine);
        let position = &mut self.run_state().position;
        position.take_waits(tables(machine.graph()), &taken).expect("only waits of the position are over");
        if self.is_kept {
            let hands_over = taken.iter().any(|wait| wait.call > 0);
            let record = self.sign("take", Take::new(taken));
            self.change_waits(WaitChanges { close, take, ..WaitChanges::default() });
            self.append_take(record, hands_over).await?;
        }
        Ok(())
    }

    /// Appends the record of waits that are over. A nested run takes a signal that is handed to it after that is durable: it is never
    /// handed to another one.
    async fn append_take(&mut self, record: SignedRecord, hands_over: bool) -> Result<(), RunError> {
        let step = self.run_state.position.steps + 1;
        let Some(journal) = self.journal.as_mut().filter(|_| hands_over) else {
            return self.append(vec![record], step, Status::Running).await;
        };
        let written = journal.append_durably(Some(record)).await;
        written.map_err(|source| self.failed_store(source))
    }

    /// Returns the time of the store, and the signals that it received for the run, if a wait waits for signals.
    async fn post(&self) -> Result<Post, RunError> {
        let position = &self.run_state.position;
        let address = self.facts.address().filter(|_| position.listens(self.graph()));
        let (Some(store), Some(key), Some(address)) = (&self.runtime.store, &self.runtime.key, address) else {
            let inbox = self.wait_time.limit(Inbox::new(self.store_time().await?, Vec::new()));
            let resumed = resumed(position, &inbox, None);
            return Ok(Post { at: inbox.at, signals: self.handed(), refused: Vec::new(), resumed });
        };
        let inbox = store.inbox(&address.run).await.map_err(|source| self.failed_store(source))?;
        let inbox = self.wait_time.limit(inbox);
        let resumed = resumed(position, &inbox, Some(&address));
        let mut post = Post { at: inbox.at, signals: self.handed(), refused: Vec::new(), resumed };
        let keys = JournalKeys { public: key.public(), encryption: self.runtime.encryption_key.as_ref() };
        // The records that take some of them may be in memory only.
        let new = inbox.signals.into_iter().filter(|one| !self.settled_signals.contains(&one.place.order));
        for received in new {
            let order = received.place.order;
            let Some(own) = address.own(&received.name) else { continue };
            if is_for_nested(own) {
                if self.facts.parent.is_none() && nothing_receives(position, own) {
                    post.refused.push(order);
                }
                continue;
            }
            if self.run_state.position.received.contains(&order) {
                tracing::error!(run = %self.facts.id, order, "a signal is left out: it was taken before");
                post.refused.push(order);
                continue;
            }
            let wait = answered(own);
            let is_release = wait.is_some_and(|wait| is_released(position, wait));
            let question = wait.and_then(|wait| self.question(wait, &address));
            if wait.is_some() && !is_release && question.is_none() {
                tracing::debug!(run = %self.facts.id, order, "an answer came after its question was over");
                post.refused.push(order);
                continue;
            }
            // Too few have signed it.
            if question.as_ref().is_some_and(|question| question.wait != received.name) {
                continue;
            }
            // It has the id of a wait as its name, and not the name of a signal.
            let secrets = question.as_ref().and_then(|question| question.secrets(&*self.machine));
            let kind = match wait {
                None => Receives::Signal,
                Some(_) if is_release => Receives::Release,
                Some(_) => Receives::Answer { secrets: secrets.as_ref() },
            };
            let read = signal::read(&*self.machine, &address, &keys, received, kind);
            let proven = read.and_then(|signal| match &question {
                Some(question) => question.proves(&*self.machine, &signal).map(|_| signal),
                None if is_release && !signal.is_release() => Err("a release says something".to_owned()),
                None => Ok(signal),
            });
            match proven {
                Ok(signal) => post.signals.push(signal),
                Err(reason) => {
                    tracing::error!(run = %self.facts.id, order, "a signal is left out: {reason}");
                    post.refused.push(order);
                }
            }
        }
        post.signals.sort_by_key(|signal| signal.order);
        Ok(post)
    }

    /// Returns the shared signal that the run around this one has handed to it.
    fn handed(&self) -> Vec<TakenSignal> {
        let Some(signal) = &self.handed else { return Vec::new() };
        match signal::fits(&*self.machine, signal) {
            Ok(()) => vec![signal.clone()],
            Err(reason) => {
                tracing::error!(run = %self.facts.id, order = signal.order, "a shared signal is left out: {reason}");
                Vec::new()
            }
        }
    }

    /// Returns what the run asks in a wait that is open.
    fn question(&self, wait: &str, address: &Address) -> Option<Question> {
        Question::open(self.graph(), &self.run_state.position, address, self.begun_under, wait)
    }

    /// Changes what the store knows the run to wait for, with the records that are appended next.
    fn change_waits(&mut self, changes: WaitChanges) {
        let changes = match &self.facts.address {
            // The runs around it say what it waits for, and receive its signals.
            Some(address) => {
                WaitChanges { take: changes.take, received_by: Some(address.run.clone()), ..WaitChanges::default() }
            }
            None if self.facts.parent.is_some() => WaitChanges::default(),
            None => changes,
        };
        if let Some(journal) = self.journal.as_mut().filter(|_| !changes.is_empty()) {
            journal.change_waits(changes);
        }
    }

    /// Changes what the store knows the run to wait for, with the records of a step. `before` are the waits that were open before
    /// the step. Returns whether the run is left in its store once the step is committed.
    pub(super) async fn settle_waits(&mut self, before: &[OpenWait]) -> Result<bool, RunError> {
        let position = &self.run_state.position;
        let is_in =
            |waits: &[OpenWait], wait: &OpenWait| waits.binary_search_by_key(&wait.step, |one| one.step).is_ok();
        let closed = before.iter().filter(|wait| !is_in(&position.waits, wait));
        let close = closed.clone().flat_map(ids).collect();
        // Their nested runs are ended.
        let needless: Vec<u64> = closed.filter(|wait| wait.opened.is_inside()).map(|wait| wait.step).collect();
        let opened = position.waits.iter().filter(|wait| !is_in(before, wait));
        let mut open: Vec<Wait> = opened.flat_map(|wait| stored(self.graph(), position, wait)).collect();
        if !open.is_empty() {
            open.extend(self.facts.stored_deadline.map(Wait::of_deadline));
        }
        self.dropped.extend(needless);
        self.change_waits(WaitChanges { close, open, ..WaitChanges::default() });
        // A hook may still end a run that others may take over once it waits.
        Ok(!self.has_hooks(program::Event::AfterStep) && self.will_wait().await?)
    }

    /// Whether the run waits for something that has certainly not happened yet.
    async fn will_wait(&self) -> Result<bool, RunError> {
        let (position, graph) = (&self.run_state.position, self.graph());
        // A signal may be there already, which shows before the next step.
        if !position.is_waiting() || position.has_failed(graph) || position.listens(graph) {
            return Ok(false);
        }
        let next = position.next_due().into_iter().chain(self.facts.stored_deadline).min();
        let Some(due) = next else { return Ok(true) };
        Ok(due > self.store_time().await?)
    }

    /// Returns how many signals of each name nothing has taken, of a run that is not nested.
    pub(super) async fn unread(&self) -> Result<BTreeMap<String, u64>, RunError> {
        let store = self.runtime.store.as_ref().filter(|_| self.is_kept && self.graph().can_park);
        let Some(store) = store.filter(|_| self.facts.parent.is_none()) else { return Ok(BTreeMap::new()) };
        // The records that take some of them may be in memory only.
        let received = &self.run_state.position.received;
        let is_left = |order: u64| !self.settled_signals.contains(&order) && !received.contains(&order);
        let unread = signal::unread(&**store, &self.facts.id, is_left).await;
        unread.map_err(|source| self.failed_store(source))
    }

    /// Leaves the run in its store until something that it waits for has happened.
    pub(super) async fn wait(&mut self) -> RunError {
        if self.is_kept {
            let step = self.run_state.position.steps + 1;
            if let Err(error) = self.append(Vec::new(), step, Status::Waiting).await {
                return error;
            }
        }
        self.waits()
    }

    /// Returns what a run says to its caller that has begun to wait.
    pub(super) fn waits(&self) -> RunError {
        self.observe_end(Status::Waiting, None, None);
        let position = &self.run_state.position;
        let (steps, state) = (position.steps, Box::new(self.state_value()));
        let waits = match &self.facts.parent {
            Some(_) => waits_inside(self.graph(), position, self.facts.stored_deadline, self.begun_under),
            None => open_waits(self.graph(), position),
        };
        RunError::Waiting { run: self.facts.id.clone(), steps, waits, state }
    }
}

/// Returns the visits that wait for nested runs of which one can continue. `address` is where the run receives signals.
fn resumed(position: &Position, inbox: &Inbox, address: Option<&Address>) -> ReadyInside {
    let reached = |wait: &Wait| {
        let own = inbox.signals.iter().filter_map(|one| Some((address?.own(&one.name)?, one.place)));
        // The run itself hands over those that are shared.
        let mut own = own.filter(|(name, _)| is_for_nested(name));
        own.find(|(name, place)| wait.accepts(name, place.at)).map(|(_, place)| place)
    };
    let mut ready = ReadyInside::default();
    for wait in &position.waits {
        for inner in &wait.opened.inside {
            let reached = reached(inner);
            if let Some(place) = reached {
                ready.reached.insert(inner.id.to_string(), place.order);
                let place = (place.order, place.at);
                let first = ready.first.entry(wait.step).or_insert(place);
                *first = place.min(*first);
            }
            if reached.is_some() || inner.due.is_some_and(|due| due <= inbox.at) {
                ready.steps.insert(wait.step);
            }
        }
    }
    ready
}

/// Whether no nested run receives a signal or an answer any more. In the inbox, it would leave less room for others.
fn nothing_receives(position: &Position, name: &str) -> bool {
    let (path, _) = address::split(name);
    let Some(calls) = address::calls(path) else { return true };
    let Some(step) = calls.first().map(|call| call.step) else { return true };
    match position.waits.iter().find(|wait| wait.step == step) {
        // They continue when it is released.
        Some(wait) if wait.opened.pause.is_some() => false,
        // A run deeper inside may be paused there, or have a failure that is held, without a wait that is known here.
        Some(wait) if calls.len() > 1 => {
            let around = path.split_inclusive('/').next().unwrap_or_default();
            !wait.opened.inside.iter().any(|wait| wait.id.as_str().starts_with(around))
        }
        // All of its nested runs wait, or are over.
        Some(wait) => !wait.opened.inside.iter().any(|wait| match answered(name) {
            Some(question) => wait.id.as_str() == question,
            None => wait.id.as_str().starts_with(path),
        }),
        None => !position.open().any(|at| at.number == step),
    }
}

/// Whether a wait is a visit that is paused, and that nobody signs for.
fn is_released(position: &Position, wait: &str) -> bool {
    let open = position.waits.iter().find(|open| open.id() == wait);
    open.is_some_and(|open| open.opened.pause.is_some() && open.opened.escalated.is_none())
}

/// Returns the ids that a store knows an open wait by.
fn ids(wait: &OpenWait) -> Vec<WaitId> {
    match wait.opened.is_inside() {
        true => wait.opened.inside.iter().map(|wait| wait.id.clone()).collect(),
        false => vec![WaitId::new(wait.id())],
    }
}

/// Returns the waits of a run that are open, in the order of the visits.
pub(crate) fn open_waits(graph: &GraphTables, position: &Position) -> Vec<Wait> {
    position.waits.iter().flat_map(|wait| stored(graph, position, wait)).collect()
}

/// Returns what a store is to know of the waits of a run that is left there: those that are open, and its deadline.
pub(crate) fn waits_to_store(graph: &GraphTables, position: &Position, deadline: Option<i64>) -> Vec<Wait> {
    let mut waits = open_waits(graph, position);
    if !waits.is_empty() {
        waits.extend(deadline.map(Wait::of_deadline));
    }
    waits
}

/// Returns the waits of a nested run, for the run around it. `digest` is that of the graph that it began under.
pub(crate) fn waits_inside(
    code: &GraphTables,
    position: &Position,
    deadline: Option<i64>,
    digest: Digest,
) -> Vec<Wait> {
    let own = || NestedGraph::new(code.id.as_str(), digest);
    let waits = waits_to_store(code, position, deadline).into_iter();
    waits.map(|wait| Wait { graph: wait.graph.clone().or_else(|| Some(own())), ..wait }).collect()
}

fn stored(graph: &GraphTables, position: &Position, wait: &OpenWait) -> Vec<Wait> {
    if wait.opened.is_inside() {
        return wait.opened.inside.clone();
    }
    let at = position.parked.iter().find(|at| at.number == wait.step);
    let node = at.map_or("", |at| graph.node(at.node).name.as_str());
    let OpenWait { step, opened } = wait;
    let signals = position.awaited(graph, wait);
    let known = Wait::new(WaitId::new(wait.id()), node, opened.at, opened.due).listening(signals);
    let known = match position.wait_of(graph, *step).and_then(|wait| wait.ask.as_ref()) {
        _ if opened.pause.is_some() => match &opened.escalated {
            Some(Escalation { role, count }) => {
                let payload = opened.payload.as_ref().map_or_else(|| "null".to_owned(), ToString::to_string);
                known.asking(Ask::new(role.clone(), *count, payload))
            }
            None => known,
        },
        Some(ask) => {
            let payload = opened.payload.as_ref().map_or_else(String::new, ToString::to_string);
            known.asking(Ask::new(ask.role.clone(), ask.count, payload))
        }
        None => known,
    };
    vec![known]
}
