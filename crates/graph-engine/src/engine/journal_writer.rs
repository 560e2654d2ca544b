//! Writing the journal: when the records of a run reach its store.

use crate::cache::Fresh;
use crate::graph::tables;
use crate::machine::Machine;
use crate::observer::{Event, notify};
use crate::record::{Chain, Due, SignedRecord};
use crate::services::RuntimeServices;
use crate::status::Status;
use crate::store::{Lease, StoreError, WaitChanges};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tracing::Instrument;

/// When a step counts as done.
///
/// In every case, a journal is a prefix of what happened: steps can be missing only from its end. A resumed run visits the
/// missing ones again, with the same idempotency keys. The beginning of a run is always durable before its first step, the steps
/// before it runs another graph before that begins, and its end before its result is returned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// When it is durable: it survives the end of the process and the loss of power.
    #[default]
    Sync,
    /// When it is queued: up to 256 steps wait for the store while the run continues. Steps that have not reached the store
    /// are lost with the process. If the store fails, the next step reports it.
    Async,
    /// When it is made: steps are kept in memory, and reach the store when the run ends, fails or is cancelled. If the
    /// process ends before that, they are lost.
    Exit,
}

impl Durability {
    /// Returns the name: `sync`, `async` or `exit`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Async => "async",
            Self::Exit => "exit",
        }
    }
}

/// How many steps may wait for the store.
const WAITING: usize = 256;

/// Writes the journal of a run.
pub(crate) struct JournalWriter {
    pub(crate) chain: Chain,
    pub(crate) due: Due,
    /// The results to be cached when the records appended next are durable.
    fresh: Vec<Fresh>,
    /// Changes of what the run waits for, which are made with the records appended next.
    waits: WaitChanges,
    to: Arc<Sink>,
    pen: WriteState,
}

/// The store and the lease that records are written with.
///
/// The run is leased as long as this value exists.
pub(crate) struct Sink {
    runtime: Arc<RuntimeServices>,
    machine: Arc<dyn Machine>,
    lease: Lease,
}

enum WriteState {
    Sync,
    Async(Option<Queue>),
    Exit(Box<Batch>),
}

/// The steps that wait for the store.
struct Queue {
    steps: Sender<Batch>,
    failed: Arc<Mutex<Option<StoreError>>>,
    task: JoinHandle<()>,
}

/// Records that are written together.
struct Batch {
    /// How many records precede these.
    known: u64,
    records: Vec<SignedRecord>,
    /// The results of the steps' calls that are to be cached.
    fresh: Vec<Fresh>,
    waits: WaitChanges,
    status: Status,
}

impl Batch {
    /// Records of which the first is the one with this number.
    fn new(known: u64) -> Self {
        Self { known, records: Vec::new(), fresh: Vec::new(), waits: WaitChanges::default(), status: Status::Running }
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.waits.is_empty()
    }

    /// Returns these records, and keeps those that follow them.
    fn take(&mut self) -> Self {
        let next = Self::new(self.known + self.records.len() as u64);
        std::mem::replace(self, next)
    }

    /// Adds the records that follow.
    fn extend(&mut self, next: Self) {
        self.records.extend(next.records);
        self.fresh.extend(next.fresh);
        self.waits.extend(next.waits);
        self.status = next.status;
    }
}

impl JournalWriter {
    pub(crate) fn new(
        runtime: &Arc<RuntimeServices>,
        machine: &Arc<dyn Machine>,
        durability: Durability,
        lease: Lease,
        chain: Chain,
        due: Due,
    ) -> Self {
        let to = Arc::new(Sink { runtime: Arc::clone(runtime), machine: Arc::clone(machine), lease });
        let pen = match durability {
            Durability::Sync => WriteState::Sync,
            Durability::Async => WriteState::Async(Some(Queue::open(&to))),
            Durability::Exit => WriteState::Exit(Box::new(Batch::new(chain.count()))),
        };
        Self { chain, due, fresh: Vec::new(), waits: WaitChanges::default(), to, pen }
    }

    /// Returns the lease of the run.
    pub(crate) fn lease(&self) -> Arc<Sink> {
        Arc::clone(&self.to)
    }

    /// Caches results of calls as soon as the records that are appended next are durable, and not before.
    pub(crate) fn keep(&mut self, fresh: Vec<Fresh>) {
        self.fresh = fresh;
    }

    /// Changes what the run waits for, with the records that are appended next.
    pub(crate) fn change_waits(&mut self, waits: WaitChanges) {
        self.waits.extend(waits);
    }

    /// Writes, chains and signs a record, which is to be appended next.
    pub(crate) fn sign(&mut self, kind: &'static str, entry: impl Serialize) -> SignedRecord {
        let inner = &self.to.runtime;
        let key = inner.key.as_ref().expect("a runtime with a store has a key");
        let signed = self.chain.sign(kind, entry, inner.clock.now(), key);
        self.due.wrote(signed.body.len());
        signed
    }

    /// Writes a snapshot if one is due, and if it is small compared to what was written since the last one.
    pub(crate) fn snapshot(&mut self, entry: impl Serialize) -> Option<SignedRecord> {
        let (chain, due) = (self.chain.clone(), self.due);
        let signed = self.sign("snapshot", entry);
        let size = signed.body.len();
        self.due = due;
        if self.due.takes(size) {
            self.due.took(size);
            Some(signed)
        } else {
            self.chain = chain;
            None
        }
    }

    /// Appends records that were just signed. Those that end a run are durable when this returns.
    pub(crate) async fn append(&mut self, records: Vec<SignedRecord>, status: Status) -> Result<(), StoreError> {
        let batch = self.batch(records, status);
        match &mut self.pen {
            WriteState::Sync => self.to.write(batch).await,
            WriteState::Async(queue) => {
                queue.as_mut().ok_or(StoreError::Closed)?.send(batch).await?;
                match queue.take_if(|_| status != Status::Running) {
                    Some(queue) => queue.close().await,
                    None => Ok(()),
                }
            }
            WriteState::Exit(kept) => {
                kept.extend(batch);
                if status == Status::Running {
                    return Ok(());
                }
                self.to.write(kept.take()).await
            }
        }
    }

    /// Appends a record of a run that continues, if there is one, and waits until it and all records before it are durable.
    pub(crate) async fn append_durably(&mut self, record: Option<SignedRecord>) -> Result<(), StoreError> {
        self.flush(record).await?;
        if let WriteState::Async(queue) = &mut self.pen {
            *queue = Some(Queue::open(&self.to));
        }
        Ok(())
    }

    /// Appends a record that was just signed, if there is one, and waits until it and all records before it are durable. The
    /// run remains unfinished, and this writer appends nothing more to it.
    pub(crate) async fn flush(&mut self, record: Option<SignedRecord>) -> Result<(), StoreError> {
        let batch = self.batch(record.into_iter().collect(), Status::Running);
        match &mut self.pen {
            WriteState::Sync if batch.is_empty() => Ok(()),
            WriteState::Sync => self.to.write(batch).await,
            WriteState::Async(queue) => {
                let mut queue = queue.take().ok_or(StoreError::Closed)?;
                if !batch.is_empty() {
                    queue.send(batch).await?;
                }
                queue.close().await
            }
            WriteState::Exit(kept) => {
                kept.extend(batch);
                if kept.is_empty() {
                    return Ok(());
                }
                self.to.write(kept.take()).await
            }
        }
    }

    /// As [`JournalWriter::append`], for a caller that has other work on this task meanwhile.
    pub(super) async fn append_aside(&mut self, records: Vec<SignedRecord>, status: Status) -> Result<(), StoreError> {
        if !matches!(self.pen, WriteState::Sync) {
            return self.append(records, status).await;
        }
        let (to, batch) = (Arc::clone(&self.to), self.batch(records, status));
        tokio::spawn(async move { to.write(batch).await }.in_current_span()).await.unwrap_or(Err(StoreError::Closed))
    }

    fn batch(&mut self, records: Vec<SignedRecord>, status: Status) -> Batch {
        let known = self.chain.count() - records.len() as u64;
        let (fresh, waits) = (std::mem::take(&mut self.fresh), std::mem::take(&mut self.waits));
        Batch { known, records, fresh, waits, status }
    }
}

impl Sink {
    /// Writes records, waits until they are durable, shows them to observers, and caches the results that come with them.
    async fn write(&self, batch: Batch) -> Result<(), StoreError> {
        let Self { runtime, machine, lease } = self;
        let Batch { known, records, fresh, waits, status } = batch;
        let store = runtime.store.as_ref().expect("a run with a journal has a store");
        let seen = (!runtime.observers.is_empty()).then(|| records.clone());
        store.append_waiting(lease, known, records, status, waits).await?;
        if let Some(records) = seen {
            let event = Event::Recorded { run: lease.run(), graph: machine.graph(), records: &records };
            notify(&runtime.observers, &event);
        }
        if !fresh.is_empty() {
            runtime.keep(tables(machine.graph()), fresh).await;
        }
        Ok(())
    }
}

impl Queue {
    fn open(to: &Arc<Sink>) -> Self {
        let (steps, waiting) = channel(WAITING);
        let failed = Arc::default();
        let task = tokio::spawn(write_all(Arc::clone(to), waiting, Arc::clone(&failed)).in_current_span());
        Self { steps, failed, task }
    }

    /// Adds a step, and waits while too many steps are queued.
    async fn send(&mut self, batch: Batch) -> Result<(), StoreError> {
        // The task stops receiving once a write has failed.
        self.steps.send(batch).await.map_err(|_| failure(&self.failed))
    }

    /// Waits until all is durable.
    async fn close(self) -> Result<(), StoreError> {
        let Self { steps, failed, task } = self;
        drop(steps);
        task.await.map_err(|_| StoreError::Closed)?;
        let failed = failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(()), Err)
    }
}

fn failure(failed: &Mutex<Option<StoreError>>) -> StoreError {
    failed.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or(StoreError::Closed)
}

/// Writes steps in their order, queued ones together, until one cannot be written.
async fn write_all(to: Arc<Sink>, mut waiting: Receiver<Batch>, failed: Arc<Mutex<Option<StoreError>>>) {
    while let Some(mut batch) = waiting.recv().await {
        while let Ok(next) = waiting.try_recv() {
            batch.extend(next);
        }
        if let Err(error) = to.write(batch).await {
            *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            return;
        }
    }
}
