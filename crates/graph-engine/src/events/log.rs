//! The journal of a run as the log of its events.

use std::fmt;
use std::sync::Arc;

use graph_model::name::RunId;
use graph_signing::PublicKey;

use crate::error::StoredRunError;
use crate::events::{EventCursor, EventOrigin, RunEvent};
use crate::kind::{ErrorKind, HasKind};
use crate::record::{Entry, Follower, Record, SignedRecord};
use crate::store::Store;

/// Reads the events of a run from its journal, from its beginning or from after a cursor, and those that are added later.
///
/// The journal is verified from its first record. It has the events with a cursor: those of [`Mode::Debug`](crate::events::Mode::Debug)
/// but the ones about work in progress.
///
/// ```
/// # use graph_engine as graph_runtime;
/// # async fn example(
/// #     store: std::sync::Arc<dyn graph_runtime::Store>,
/// #     key: graph_runtime::PublicKey,
/// #     run: graph_runtime::RunId,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::events::EventLog;
///
/// let seen = std::fs::read_to_string("cursor").ok().and_then(|text| text.parse().ok());
/// let mut log = EventLog::new(store, key, run, seen)?;
/// for event in log.read().await? {
///     println!("{}", serde_json::to_string(&event)?);
///     if let Some(cursor) = event.cursor {
///         std::fs::write("cursor", cursor.to_string())?;
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct EventLog {
    pub(super) store: Arc<dyn Store>,
    run: RunId,
    follower: Follower,
    origin: Option<EventOrigin>,
    /// The events up to this one were read before.
    after: Option<EventCursor>,
    /// How many records the journal has, if it has no event at the cursor.
    has_no_event: Option<u64>,
}

/// The most levels of nested runs that are looked up, in a store that may have been changed.
const MOST_LEVELS: usize = 100;

/// Why the events of a run cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventLogError {
    /// The store has no such run, or its journal cannot be read.
    #[error(transparent)]
    Stored(StoredRunError),
    /// The cursor is of another run.
    #[error("the cursor `{cursor}` is of another run than `{run}`")]
    #[non_exhaustive]
    OtherRun {
        /// The run.
        run: RunId,
        /// The cursor.
        cursor: EventCursor,
    },
    /// The journal has no such event: it is another journal, or an older copy of it.
    #[error(
        "the cursor `{cursor}` is behind the end of the journal, which has {records} records: begin without a cursor"
    )]
    #[non_exhaustive]
    NoSuchEvent {
        /// The cursor.
        cursor: EventCursor,
        /// How many records the journal has.
        records: u64,
    },
    /// No process has the run in progress, and it has not ended.
    #[error("no process is running the run `{run}` any more: it waits to be resumed")]
    #[non_exhaustive]
    Left {
        /// The run.
        run: RunId,
    },
}

impl<E: Into<StoredRunError>> From<E> for EventLogError {
    fn from(error: E) -> Self {
        Self::Stored(error.into())
    }
}

impl HasKind for EventLogError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Stored(error) => error.kind(),
            Self::OtherRun { .. } => ErrorKind::Invalid,
            Self::NoSuchEvent { .. } => ErrorKind::NotFound,
            Self::Left { .. } => ErrorKind::Conflict,
        }
    }
}

impl EventLog {
    /// Reads the events after `from`, or all of them. `key` is the public key of the runtime that writes the journal.
    ///
    /// # Errors
    ///
    /// If the cursor is of another run.
    pub fn new(
        store: Arc<dyn Store>,
        key: PublicKey,
        run: RunId,
        from: Option<EventCursor>,
    ) -> Result<Self, EventLogError> {
        if let Some(cursor) = from.as_ref().filter(|cursor| *cursor.run() != run) {
            return Err(EventLogError::OtherRun { run, cursor: cursor.clone() });
        }
        let follower = Follower::new(run.clone(), key);
        Ok(Self { store, run, follower, origin: None, after: from, has_no_event: None })
    }

    /// Returns the run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the events that were added since the last call.
    ///
    /// # Errors
    ///
    /// If the store fails, the journal does not continue as the key's holder signed it, or it has no event at the cursor. Nothing
    /// counts as read then; a log without an event at the cursor fails from then on.
    pub async fn read(&mut self) -> Result<Vec<RunEvent>, EventLogError> {
        if let (Some(cursor), Some(records)) = (self.after.clone(), self.has_no_event) {
            return Err(EventLogError::NoSuchEvent { cursor, records });
        }
        let signed = self.store.load_from(&self.run, self.follower.next()).await?;
        let is_begun = self.origin.is_some();
        let mut events = self.accept(&signed)?;
        if !is_begun && let Some(root) = self.root().await {
            events.iter_mut().for_each(|event| event.root.clone_from(&root));
            self.origin.iter_mut().for_each(|origin| origin.root.clone_from(&root));
        }
        Ok(events)
    }

    /// Returns the outermost run that the store still has around a nested run.
    async fn root(&self) -> Option<RunId> {
        let mut root = self.origin.as_ref()?.parent.as_ref()?.run.clone();
        for _ in 0..MOST_LEVELS {
            match self.store.find(&root).await.ok().and_then(|found| found.parent) {
                Some(parent) => root = parent,
                None => break,
            }
        }
        Some(root)
    }

    /// Returns how many records were read.
    pub(super) fn records(&self) -> u64 {
        self.follower.next()
    }

    /// Returns the events of records, which follow those that were read.
    pub(super) fn accept(&mut self, signed: &[SignedRecord]) -> Result<Vec<RunEvent>, EventLogError> {
        let is_begun = self.follower.next() > 0;
        let records = self.follower.read(signed).map_err(StoredRunError::journal(&self.run))?;
        if let Some(Record { entry: Entry::Start(start), .. }) = records.first() {
            self.origin = Some(EventOrigin::of(&self.run, start));
        }
        let Some(origin) = &self.origin else { return Ok(Vec::new()) };
        let mut events: Vec<RunEvent> = records.into_iter().flat_map(|record| origin.events(record)).collect();
        if let Some(after) = self.after.as_ref().filter(|_| !is_begun) {
            if !events.iter().any(|event| event.cursor.as_ref() == Some(after)) {
                let (cursor, records) = (after.clone(), self.follower.next());
                self.has_no_event = Some(records);
                return Err(EventLogError::NoSuchEvent { cursor, records });
            }
            events.retain(|event| event.cursor.as_ref() > Some(after));
        }
        Ok(events)
    }
}

impl fmt::Debug for EventLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLog").field("run", &self.run).field("records", &self.records()).finish_non_exhaustive()
    }
}
