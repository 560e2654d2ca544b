//! The events of one run from a cursor on: those of its journal, and then those that happen.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::poll_fn;
use futures_util::stream::{self, BoxStream};
use graph_model::name::RunId;
use graph_signing::PublicKey;
use tokio::time::Instant;

use crate::events::feed::{Feed, Gap};
use crate::events::hub::Message;
use crate::events::{EventCursor, EventKind, EventLog, EventLogError, RunEvent};
use crate::record::SignedRecord;
use crate::runtime::Runtime;
use crate::status::Status;
use crate::store::Store;

/// How often the store is asked for the events of a run that another process has in progress.
const PACE: Duration = Duration::from_millis(100);

/// How many of the last visits are remembered.
const MOST_LATE: usize = 1024;

/// The events of one run from a cursor on. See [`Runtime::follow`].
#[must_use = "streams do nothing unless they are read"]
pub struct FollowedEvents(BoxStream<'static, Result<RunEvent, EventLogError>>);

impl FollowedEvents {
    /// Follows a run of any process in its store, where its events are seen at most 100 milliseconds later. `key` is the public key of
    /// the runtime that writes the journal. If no process has the run in progress and it has not ended, that is an error.
    ///
    /// # Errors
    ///
    /// If the cursor is of another run.
    pub fn of_store(
        store: Arc<dyn Store>,
        key: PublicKey,
        run: RunId,
        from: Option<EventCursor>,
    ) -> Result<Self, EventLogError> {
        Ok(Self::new(EventLog::new(store, key, run, from)?, None, true))
    }

    fn new(log: EventLog, live: Option<Feed<Message>>, is_driven: bool) -> Self {
        let (ready, look_at) = (VecDeque::new(), Instant::now());
        let visited = VecDeque::new();
        let following = Following { log, live, ready, visited, is_looking: true, look_at, is_over: false, is_driven };
        Self(Box::pin(stream::unfold(following, |mut following| async move {
            let event = following.next().await?;
            following.is_over |= event.is_err();
            Some((event, following))
        })))
    }

    /// Waits for the next event; `None` if the run has ended.
    ///
    /// # Errors
    ///
    /// If the store fails, the journal cannot be read, or a run that [`of_store`](Self::of_store) follows was left by its process. The
    /// stream ends then.
    ///
    /// # Cancel safety
    ///
    /// No event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Result<RunEvent, EventLogError>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl Stream for FollowedEvents {
    type Item = Result<RunEvent, EventLogError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context)
    }
}

impl fmt::Debug for FollowedEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FollowedEvents")
    }
}

struct Following {
    log: EventLog,
    live: Option<Feed<Message>>,
    ready: VecDeque<RunEvent>,
    /// The numbers of the last visits that were read. Messages about them are late.
    visited: VecDeque<u64>,
    /// Whether the store is asked next.
    is_looking: bool,
    /// When the store is asked at the latest.
    look_at: Instant,
    is_over: bool,
    /// Whether a run that has not ended and that no process has in progress is an error.
    is_driven: bool,
}

impl Following {
    async fn next(&mut self) -> Option<Result<RunEvent, EventLogError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if self.is_over {
                return None;
            }
            let more = if self.is_looking { self.look().await } else { self.listen().await };
            if let Err(error) = more {
                return Some(Err(error));
            }
        }
    }

    /// Reads the store, and finds out whether the run is over.
    async fn look(&mut self) -> Result<(), EventLogError> {
        let run = self.log.run().clone();
        // Looks up the holder before it reads the records, so that the last records of the holder are not missed.
        let found = self.log.store.find(&run).await?;
        let events = self.log.read().await?;
        let has_all = self.log.records() >= found.records && events.is_empty();
        self.take(events);
        (self.is_looking, self.look_at) = (false, Instant::now() + PACE);
        if has_all && found.holder.is_none() {
            match found.status {
                Status::Running if self.is_driven => return Err(EventLogError::Left { run }),
                Status::Running | Status::Waiting => {}
                _ => self.is_over = true,
            }
        }
        Ok(())
    }

    /// Waits for a message, or until it is time to look.
    async fn listen(&mut self) -> Result<(), EventLogError> {
        let Some(live) = &mut self.live else {
            tokio::time::sleep_until(self.look_at).await;
            self.is_looking = true;
            return Ok(());
        };
        let run = self.log.run();
        match tokio::time::timeout_at(self.look_at, live.recv()).await {
            Ok(Some(Ok(Message::Records(origin, records)))) if origin.run == *run => self.accept(&records)?,
            // Those with a cursor come from the journal.
            Ok(Some(Ok(Message::Live(origin, at, kind)))) if origin.run == *run || origin.root == *run => {
                if !(matches!(*kind, EventKind::Ended { .. }) || origin.run == *run && self.is_late(&kind)) {
                    self.ready.push_back(origin.event(at, (*kind).clone()));
                }
            }
            Ok(Some(Ok(Message::Left(origin)))) => self.is_looking = origin.run == *run,
            Ok(Some(Ok(_))) => {}
            Ok(Some(Err(Gap(_)))) | Err(_) => self.is_looking = true,
            Ok(None) => (self.live, self.is_looking) = (None, true),
        }
        Ok(())
    }

    /// Takes events of the journal.
    fn take(&mut self, events: Vec<RunEvent>) {
        for event in events {
            match &event.kind {
                EventKind::Visited { visit, .. } => self.visited.push_back(visit.step),
                EventKind::WaitOpened { step, .. } => self.visited.push_back(*step),
                // The visit is made now, with its number.
                EventKind::WaitOver { wait } => self.visited.retain(|step| *step != wait.step),
                _ => {}
            }
            self.ready.push_back(event);
        }
        self.visited.drain(..self.visited.len().saturating_sub(MOST_LATE));
    }

    /// Whether an event is about a visit that the journal has already.
    fn is_late(&self, kind: &EventKind) -> bool {
        match kind {
            EventKind::VisitStarted { step, .. } => self.visited.contains(step),
            EventKind::CallStarted { call } | EventKind::CallEnded { call, .. } => self.visited.contains(&call.step),
            EventKind::Text { call, .. } | EventKind::Custom { call, .. } => self.visited.contains(&call.step),
            _ => false,
        }
    }

    fn accept(&mut self, records: &[SignedRecord]) -> Result<(), EventLogError> {
        let next = self.log.records();
        let known = records.partition_point(|record| record.seq < next);
        match records.get(known) {
            Some(first) if first.seq == next => {
                let events = self.log.accept(&records[known..])?;
                self.take(events);
            }
            // Messages were dropped, or the records before are of another process.
            Some(_) => self.is_looking = true,
            None => {}
        }
        Ok(())
    }
}

impl Runtime {
    /// Returns the events of a run in the store of this runtime, from after a cursor or from the beginning, until the run has ended.
    /// No event that has a cursor is missed or comes twice.
    ///
    /// If this runtime has the run in progress and was built with [`Builder::events`](crate::Builder::events), the events about work
    /// in progress are there too. A run of another process is followed in the store. A run that its process left is waited for:
    /// somebody may resume it.
    ///
    /// `None` if the runtime has no store.
    ///
    /// # Errors
    ///
    /// If the cursor is of another run.
    pub fn follow(&self, run: &RunId, from: Option<EventCursor>) -> Result<Option<FollowedEvents>, EventLogError> {
        let (Some(store), Some(key)) = (&self.inner.store, &self.inner.key) else { return Ok(None) };
        let live = self.inner.events.as_ref().map(|hub| hub.subscribe());
        let log = EventLog::new(Arc::clone(store), key.public(), run.clone(), from)?;
        Ok(Some(FollowedEvents::new(log, live, false)))
    }
}
