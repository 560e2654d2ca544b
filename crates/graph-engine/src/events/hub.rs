//! The events of a runtime as they happen, for any number of readers.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use futures_util::Stream;
use futures_util::future::poll_fn;
use graph_model::name::RunId;

use crate::clock::Clock;
use crate::events::feed::{Feed, Feeds, Gap};
use crate::events::{AttemptedCall, EventFilter, EventKind, EventOrigin, Mode, RunEvent, milliseconds, of_visit};
use crate::future::BoxFuture;
use crate::machine::NodeEnum;
use crate::observer::{CallAttempt, Emission, Event, Observer};
use crate::record::{Entry, Record, SignedRecord};
use crate::run::Run;
use crate::runtime::{Builder, Runtime};

/// Sends the events of a runtime's runs to its readers. A run is never held up by a reader: a message is a shared pointer, a reader that
/// lags loses messages, and a message that no reader could take is not made.
pub(crate) struct EventHub {
    feeds: Feeds<Message>,
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
}

/// The data that the hub shares with its readers, which do not keep the hub alive.
#[derive(Default)]
struct Shared {
    /// The runs that are in progress.
    runs: Mutex<HashMap<RunId, KnownRun>>,
    /// How many readers want the state after each step.
    values: AtomicUsize,
}

impl Shared {
    fn runs(&self) -> MutexGuard<'_, HashMap<RunId, KnownRun>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run in progress.
struct KnownRun {
    origin: Arc<EventOrigin>,
    /// Whether it has a journal, whose records are its events.
    has_journal: bool,
}

/// A message to the readers. Readers compute events from records, so that the run does not.
#[derive(Clone)]
pub(super) enum Message {
    /// Records were committed.
    Records(Arc<EventOrigin>, Arc<[SignedRecord]>),
    /// Something that is not in a journal happened.
    Live(Arc<EventOrigin>, SystemTime, Arc<EventKind>),
    /// The run is not in progress any more.
    Left(Arc<EventOrigin>),
}

impl EventHub {
    pub(crate) fn new(capacity: usize, clock: Arc<dyn Clock>) -> Self {
        Self { feeds: Feeds::new(capacity), clock, shared: Arc::default() }
    }

    pub(super) fn subscribe(&self) -> Feed<Message> {
        self.feeds.subscribe()
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunId, KnownRun>> {
        self.shared.runs()
    }

    fn origin(&self, run: &RunId) -> Option<Arc<EventOrigin>> {
        self.runs().get(run).map(|known| Arc::clone(&known.origin))
    }

    fn live(&self, run: &RunId, kind: impl FnOnce() -> EventKind) {
        self.feeds.send(|| Some(Message::Live(self.origin(run)?, self.clock.now(), Arc::new(kind()))));
    }

    /// Remembers a run that begins or is resumed.
    fn begin(&self, mut origin: EventOrigin, has_journal: bool) -> Arc<EventOrigin> {
        let mut runs = self.runs();
        if let Some(outer) = origin.parent.as_ref().and_then(|parent| runs.get(&parent.run)) {
            origin.root.clone_from(&outer.origin.root);
        }
        // The records of a run that begins come before the event that it begins.
        if let Some(known) = runs.get(&origin.run).filter(|known| known.has_journal && !has_journal) {
            return Arc::clone(&known.origin);
        }
        let origin = Arc::new(origin);
        runs.insert(origin.run.clone(), KnownRun { origin: Arc::clone(&origin), has_journal });
        origin
    }

    fn recorded(&self, run: &RunId, records: &[SignedRecord]) {
        let Some(first) = records.first() else { return };
        let fresh = fresh(records);
        if fresh.is_empty() {
            // The run has ended, or waits still: nothing of it happens.
            return;
        }
        let origin = if first.seq == 0 {
            let Ok(Record { entry: Entry::Start(start), .. }) = serde_json::from_str(&first.body) else { return };
            self.begin(EventOrigin::of(run, &start), true)
        } else {
            match self.origin(run) {
                Some(origin) => origin,
                None => return,
            }
        };
        self.feeds.send(|| Some(Message::Records(origin, fresh.into())));
    }

    fn taken(&self, event: &Event<'_>) {
        let Event::StepTaken { run, steps, visits, state } = event else { return };
        if self.feeds.is_unread() {
            return;
        }
        for visit in *visits {
            self.live(run, || of_visit(visit.clone()));
        }
        if self.shared.values.load(Ordering::Relaxed) > 0 {
            self.live(run, || EventKind::Values { steps: *steps, state: state.value() });
        }
    }
}

/// Returns those of the records that are new, if they are a journal from its beginning: it is that of a run that begins, or of one
/// that is resumed.
///
/// The edits before a resume are new too: nothing shows them when they are made.
fn fresh(records: &[SignedRecord]) -> &[SignedRecord] {
    let entry = |record: &SignedRecord| serde_json::from_str(&record.body).ok().map(|record: Record| record.entry);
    match records {
        [first, rest @ .., last] if first.seq == 0 => match (entry(last), rest) {
            (Some(Entry::Resume(_)), _) => {
                let is_edit = |record: &&SignedRecord| matches!(entry(record), Some(Entry::Edit(_)));
                let edits = rest.iter().rev().take_while(is_edit).count();
                &records[records.len() - 1 - edits..]
            }
            // A run that begins at a place of another one.
            (Some(Entry::Snapshot(_)), []) => records,
            // A run that waits still, or has ended.
            _ => &[],
        },
        _ => records,
    }
}

fn attempted(call: &CallAttempt<'_>) -> AttemptedCall {
    let CallAttempt { step, node, tool, item, attempt, .. } = *call;
    AttemptedCall { step, node: node.to_owned(), tool: tool.to_owned(), item, attempt }
}

impl Observer for EventHub {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Recorded { run, records, .. } => self.recorded(run, records),
            Event::RunStarted { run, graph, steps, parent, .. } => {
                let root = parent.map_or(*run, |parent| &parent.run).clone();
                let (run, graph, parent) = ((*run).clone(), Some((*graph).clone()), (*parent).cloned());
                self.begin(EventOrigin { run: run.clone(), root, graph, parent }, false);
                if self.runs().get(&run).is_some_and(|known| !known.has_journal) && *steps == 0 {
                    self.live(&run, || EventKind::Started { inputs: serde_json::Value::Null, entry: None });
                }
            }
            Event::StepStarted { run, step, node, .. } => {
                self.live(run, || EventKind::VisitStarted { step: *step, node: (*node).to_owned() });
            }
            Event::CallStarted { call } => self.live(call.run, || EventKind::CallStarted { call: attempted(call) }),
            Event::CallEnded { call, elapsed, error } => self.live(call.run, || {
                let (ms, error) = (milliseconds(*elapsed), error.map(str::to_owned));
                EventKind::CallEnded { call: attempted(call), ms, error }
            }),
            Event::Emitted { call, emission } => self.live(call.run_id(), || {
                let (step, item, attempt) = (call.step(), call.item(), u64::from(call.attempt()));
                let (node, tool) = (call.node().to_owned(), call.tool().to_owned());
                let call = AttemptedCall { step, node, tool, item, attempt };
                match (*emission).clone() {
                    Emission::Text(text) => EventKind::Text { call, text },
                    Emission::Custom { name, data } => EventKind::Custom { call, name, data },
                }
            }),
            Event::StepTaken { .. } => self.taken(event),
            Event::RunEnded { run, end, .. } => {
                let known = self.runs().get(*run).map(|known| (Arc::clone(&known.origin), known.has_journal));
                let (origin, has_journal) = known.unwrap_or_else(|| {
                    // It was ended without its graph: no process has it in progress.
                    let (run, root) = ((*run).clone(), (*run).clone());
                    (Arc::new(EventOrigin { run, root, graph: None, parent: None }), false)
                });
                if let (false, Some(end)) = (has_journal, end) {
                    let kind = || EventKind::Ended { end: Box::new((*end).clone()) };
                    self.feeds.send(|| Some(Message::Live(Arc::clone(&origin), self.clock.now(), Arc::new(kind()))));
                }
                // A reader that has read all ends when the run is not there any more, and this message wakes it.
                self.runs().remove(*run);
                self.feeds.send(|| Some(Message::Left(origin)));
            }
            Event::RunLeft { run } => {
                let known = self.runs().remove(*run);
                if let Some(KnownRun { origin, .. }) = known {
                    self.feeds.send(|| Some(Message::Left(origin)));
                }
            }
            // The visit is in the records, or in the step.
            Event::StepCompleted { .. } | Event::WaitOpened { .. } => {}
        }
    }

    fn wants_visits(&self) -> bool {
        !self.feeds.is_unread()
    }
}

/// A reader was too slow: messages were dropped before it read them. The events after it are later than those.
///
/// The events among them that have a cursor are in the journals of their runs: see [`EventLog`](crate::events::EventLog).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reader of the events lags: {0} messages were dropped before it read them")]
pub struct Lagged(
    /// How many messages. A message has one event, or those of the records that were committed together.
    pub u64,
);

/// The events of the runs of a runtime, as they happen.
///
/// It is a [`Stream`]; [`Events::next`] needs no trait. It ends with its run, if it is that of [`Run::events`], or else when the
/// runtime, its runs, and the calls of its tools are gone. No run waits for it: see [`Lagged`].
#[must_use = "a reader that reads nothing lags"]
pub struct Events {
    waiting: NextMessage,
    ready: VecDeque<RunEvent>,
    filter: EventFilter,
    /// The run with which the stream ends.
    until: Option<RunId>,
    is_over: bool,
    /// The ends of runs whose last values are still to come: an end is recorded with the last step.
    held: Vec<RunEvent>,
    wanted: Option<WantedValues>,
    shared: Arc<Shared>,
}

type NextMessage = BoxFuture<'static, (Option<Result<Message, Gap>>, Feed<Message>)>;

fn wait(mut feed: Feed<Message>) -> NextMessage {
    Box::pin(async move { (feed.recv().await, feed) })
}

/// Asks for the state after each step, until it is dropped.
struct WantedValues(Arc<Shared>);

impl WantedValues {
    fn of(shared: &Arc<Shared>, filter: &EventFilter) -> Option<Self> {
        filter.modes.contains(&Mode::Values).then(|| {
            shared.values.fetch_add(1, Ordering::Relaxed);
            Self(Arc::clone(shared))
        })
    }
}

impl Drop for WantedValues {
    fn drop(&mut self) {
        self.0.values.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Events {
    fn of(hub: &EventHub, feed: Feed<Message>, filter: EventFilter, until: Option<RunId>) -> Self {
        let shared = Arc::clone(&hub.shared);
        let wanted = WantedValues::of(&shared, &filter);
        Self {
            waiting: wait(feed),
            ready: VecDeque::new(),
            filter,
            until,
            is_over: false,
            held: Vec::new(),
            wanted,
            shared,
        }
    }

    /// Waits for the next event; `None` if there are no more.
    ///
    /// # Errors
    ///
    /// If the reader lags. The stream continues with the next message that was not dropped.
    ///
    /// # Cancel safety
    ///
    /// No event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Result<RunEvent, Lagged>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// Restricts the stream to parts of the events, in place of those that it has. A stream has values from this call on: earlier states
    /// were not copied for it. [`Runtime::events`] with [`Mode::Values`] before a run is started has all.
    pub fn modes(mut self, modes: impl IntoIterator<Item = Mode>) -> Self {
        self.filter.modes = modes.into_iter().collect();
        self.wanted = WantedValues::of(&self.shared, &self.filter);
        self
    }

    /// Restricts the stream to the events of one graph, with the nodes of its enum.
    pub fn typed<N: NodeEnum>(self) -> TypedEvents<N> {
        TypedEvents { events: self, nodes: PhantomData }
    }

    fn push(&mut self, event: RunEvent) {
        if !self.filter.has(&event) {
            return;
        }
        match event.kind {
            EventKind::Ended { .. } if self.wanted.is_some() => self.held.push(event),
            _ => self.ready.push_back(event),
        }
    }

    /// Moves ends that were held to the events that are ready.
    fn release(&mut self, is_one: impl Fn(&RunEvent) -> bool) {
        self.ready.extend(self.held.extract_if(.., |event| is_one(event)));
    }

    fn take(&mut self, message: &Message) {
        match message {
            Message::Live(origin, at, kind) => {
                let event = origin.event(*at, (**kind).clone());
                if self.filter.has(&event) {
                    self.ready.push_back(event);
                }
            }
            Message::Left(origin) => self.release(|event| event.run == origin.run),
            Message::Records(origin, records) => {
                for record in records.iter() {
                    match serde_json::from_str::<Record>(&record.body) {
                        Ok(record) => origin.events(record).for_each(|event| self.push(event)),
                        Err(error) => {
                            tracing::error!(run = %origin.run, seq = record.seq, %error, "a record has no events");
                        }
                    }
                }
            }
        }
    }
}

impl Stream for Events {
    type Item = Result<RunEvent, Lagged>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let events = &mut *self;
        loop {
            if let Some(event) = events.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if events.is_over {
                return Poll::Ready(None);
            }
            // All messages of a run that is not there any more were sent before.
            let is_over = events.until.as_ref().is_some_and(|run| !events.shared.runs().contains_key(run));
            let Poll::Ready((message, feed)) = events.waiting.as_mut().poll(context) else {
                // The message that says so may be one of those that were dropped.
                if !is_over {
                    return Poll::Pending;
                }
                events.release(|_| true);
                events.is_over = true;
                continue;
            };
            events.waiting = wait(feed);
            match message {
                Some(Ok(message)) => {
                    events.take(&message);
                    let until = events.until.as_ref();
                    events.is_over = matches!(&message, Message::Left(origin) if until == Some(&origin.run));
                }
                Some(Err(Gap(dropped))) => {
                    events.release(|_| true);
                    return Poll::Ready(Some(Err(Lagged(dropped))));
                }
                None => {
                    events.release(|_| true);
                    events.is_over = true;
                }
            }
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wants_values = self.wanted.is_some();
        f.debug_struct("Events")
            .field("filter", &self.filter)
            .field("wants_values", &wants_values)
            .finish_non_exhaustive()
    }
}

/// The events of one graph, with the nodes of its enum. See [`Events::typed`].
#[derive(Debug)]
#[must_use = "a reader that reads nothing lags"]
pub struct TypedEvents<N> {
    events: Events,
    nodes: PhantomData<fn() -> N>,
}

impl<N: NodeEnum> TypedEvents<N> {
    /// Waits for the next event, as [`Events::next`].
    ///
    /// # Errors
    ///
    /// If the reader lags.
    pub async fn next(&mut self) -> Option<Result<RunEvent<N>, Lagged>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl<N: NodeEnum> Stream for TypedEvents<N> {
    type Item = Result<RunEvent<N>, Lagged>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(Pin::new(&mut self.events).poll_next(context)) {
                Some(Ok(event)) => {
                    if let Some(event) = event.typed() {
                        return Poll::Ready(Some(Ok(event)));
                    }
                }
                Some(Err(lagged)) => return Poll::Ready(Some(Err(lagged))),
                None => return Poll::Ready(None),
            }
        }
    }
}

/// The place of a run in the events, from before its beginning.
pub(crate) struct RunEvents {
    hub: Arc<EventHub>,
    feed: Option<Feed<Message>>,
}

impl RunEvents {
    /// Gives the place up, because nobody asked for the events until now.
    pub(crate) fn leave(&mut self) {
        self.feed = None;
    }
}

impl Builder {
    /// Keeps `capacity` messages for the readers of [`Runtime::events`] and [`Run::events`]. A message has one event, or those of the
    /// records that were committed together. Without this call, a runtime has no events.
    ///
    /// A run does not wait for a reader. A reader that is further behind than `capacity` messages [lags](Lagged): it loses the oldest of
    /// them, or the newest while no other reader takes those. The memory for the messages is taken at once, about 70 bytes for each;
    /// there are at least one and at most 1,048,576.
    #[must_use]
    pub fn events(mut self, capacity: usize) -> Self {
        self.events = Some(capacity);
        self
    }
}

impl Runtime {
    /// Returns the events of the runs of this runtime, from now on; `None` if the runtime was built without
    /// [`Builder::events`].
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::Runtime;
    /// use graph_runtime::events::{EventFilter, EventKind, Mode};
    ///
    /// let runtime = Runtime::builder().events(1024).build()?;
    /// let filter = EventFilter { modes: vec![Mode::Interrupts], ..EventFilter::default() };
    /// let mut events = runtime.events(filter).ok_or("the runtime has no events")?;
    /// tokio::spawn(async move {
    ///     while let Some(event) = events.next().await {
    ///         match event.map(|event| event.kind) {
    ///             Ok(EventKind::WaitOpened { node, wait, .. }) => println!("`{node}` asks: {:?}", wait.payload),
    ///             Ok(_) => {}
    ///             Err(lagged) => eprintln!("{lagged}"),
    ///         }
    ///     }
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&self, filter: EventFilter) -> Option<Events> {
        let hub = self.inner.events.as_ref()?;
        Some(Events::of(hub, hub.subscribe(), filter, None))
    }

    /// Takes a place in the events, for a run that is about to begin.
    pub(crate) fn run_events(&self) -> Option<RunEvents> {
        let hub = self.inner.events.as_ref()?;
        Some(RunEvents { hub: Arc::clone(hub), feed: Some(hub.subscribe()) })
    }
}

impl<O> Run<O> {
    pub(crate) fn with_events(mut self, events: Option<RunEvents>) -> Self {
        self.events = events;
        self
    }

    /// Returns the events of the run and of those inside it, until it ends, waits, or is left; `None` if the runtime was built
    /// without [`Builder::events`].
    ///
    /// The first call returns the events since this handle was made, so those from the beginning of a run that was started, if the
    /// handle was not yet polled for the result; other calls return those from now on.
    pub fn events(&mut self) -> Option<Events> {
        let run = self.id().clone();
        let RunEvents { hub, feed } = self.events.as_mut()?;
        let feed = feed.take().unwrap_or_else(|| hub.subscribe());
        let filter = EventFilter { run: Some(run.clone()), ..EventFilter::default() };
        Some(Events::of(hub, feed, filter, Some(run)))
    }
}
