//! The runtime of the service, and its graphs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use graph_runtime::answer::KeyRing;
use graph_runtime::store::{Page, RunFilter, Within};
use graph_runtime::{
    Clock, EncryptionKey, Fingerprint, RunId, Runtime, SecretKey, SqliteStore, Status, Store, SystemClock, Versions,
    Worker, WorkerError, WorkerOptions,
};
use graph_telemetry::Metrics;

use tokio::sync::watch;

use crate::access::Access;
use crate::graphs::{Fulfil, Invoice, fulfil, invoice};
use crate::shop::Shop;

/// An error that keeps the service from starting.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The settings of the service.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where its files are: the journals, the shop, the keys, and in `people` the keys of the people who answer.
    pub directory: PathBuf,
    /// The time that the payment service takes for a charge.
    pub latency: Duration,
    /// The secret that the payment service signs its messages with. Without one, no payment of an invoice is accepted.
    pub payment_secret: Option<String>,
    /// The keys that every role comes from. Without any, each trusted key in `people` gives roles to others.
    pub role_roots: BTreeSet<Fingerprint>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Settings {
    /// The settings of a service whose files are in `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            latency: Duration::ZERO,
            payment_secret: None,
            role_roots: BTreeSet::new(),
            clock: Arc::new(SystemClock::new()),
        }
    }
}

/// The parts that all endpoints share. A clone shares them too.
#[derive(Clone)]
pub struct Service {
    /// Starts, resumes and stops runs.
    pub runtime: Runtime,
    /// The journals of the runs.
    pub store: SqliteStore,
    /// The tools.
    pub shop: Arc<Shop>,
    /// The graph of orders that a card pays. A deploy that changes its meaning adds the version before, which continues its orders.
    pub fulfil: Versions<Fulfil<Shop>>,
    /// The graph of orders on invoice, with the same tools.
    pub invoice: Versions<Invoice<Shop>>,
    /// The metrics of the runs.
    pub metrics: Metrics,
    /// The secrets that the endpoints ask for.
    pub access: Arc<Access>,
    /// Whether the service is about to stop.
    pub stopping: Arc<watch::Sender<bool>>,
}

/// How many messages a reader of the events of orders may be behind.
const EVENTS: usize = 1024;

impl Service {
    /// Opens the service, and makes those of its files that are missing.
    pub async fn open(settings: &Settings) -> Result<Self, Error> {
        let Settings { directory, latency, payment_secret, role_roots, clock } = settings;
        std::fs::create_dir_all(directory)?;
        let store = SqliteStore::options().clock(Arc::clone(clock)).open(directory.join("runs.db")).await?;
        let metrics = Metrics::new();
        let runtime = Runtime::builder()
            .store(store.clone())
            .clock(Arc::clone(clock))
            // Signs the journals of runs.
            .sign_with(SecretKey::load_or_generate(&directory.join("keys"))?)
            // Encrypts secrets in them, as the token of a card.
            .encrypt_with(EncryptionKey::load_or_generate(&directory.join("encryption.key"))?)
            // Knows the people who approve orders.
            .answer_keys(people(directory.join("people"), role_roots.clone()))
            .grants(fulfil::CAPABILITIES)?
            .grants(invoice::CAPABILITIES)?
            .grants(invoice::SIGNAL_CAPABILITIES)?
            // Counts what the runs do.
            .observer(metrics.clone())
            .events(EVENTS)
            .build()?;
        let shop = Arc::new(Shop::open(&directory.join("shop.db"), *latency)?);
        let fulfil = Versions::of(Fulfil::sharing(Arc::clone(&shop)));
        let invoice = Versions::of(Invoice::sharing(Arc::clone(&shop)));
        let access = Arc::new(Access::open(&directory.join("inbox.token"), payment_secret.as_deref())?);
        let stopping = Arc::new(watch::Sender::new(false));
        Ok(Self { runtime, store, shop, fulfil, invoice, metrics, access, stopping })
    }

    /// Continues runs as soon as they can continue: those that a crash or a shutdown stopped, and those whose waits are over.
    pub fn work(&self) -> Result<Worker, WorkerError> {
        self.runtime.worker(WorkerOptions::default().graph(self.fulfil.clone()).graph(self.invoice.clone()))
    }

    /// Undoes the effects of orders that were cancelled. The graph ends where it is when it is cancelled, so its service does this: when
    /// an order is cancelled, and again at start-up, for those that a crash left.
    pub async fn undo_cancelled(&self) -> Result<(), Error> {
        let statuses = vec![Status::Cancelled, Status::Running, Status::Waiting];
        let filter = RunFilter { statuses, within: Within::TopLevel, ..RunFilter::default() };
        let mut page = Page::default();
        loop {
            let found = self.runtime.runs(&filter, &page).await?;
            for order in found.runs {
                if order.status == Status::Cancelled {
                    self.shop.undo(&order.run).await.map_err(|error| error.to_string())?;
                } else if order.is_cancelling {
                    self.undo_later(order.run);
                }
            }
            match found.next {
                Some(next) => page.after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Undoes the effects of a run that somebody cancelled, once it has ended.
    pub fn undo_later(&self, run: RunId) {
        let service = self.clone();
        tokio::spawn(async move {
            if let Err(error) = service.undo_when_ended(&run).await {
                tracing::error!(%run, "the order's effects are undone at the next start: {error}");
            }
        });
    }

    async fn undo_when_ended(&self, run: &RunId) -> Result<(), Error> {
        let status = loop {
            match self.store.find(run).await?.status {
                Status::Running | Status::Waiting => tokio::time::sleep(Duration::from_millis(50)).await,
                ended => break ended,
            }
        };
        if status == Status::Cancelled {
            self.shop.undo(run).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Stops all runs before their next step, and waits for calls in progress until `deadline` is over. The runs stay in the store, to
    /// be resumed.
    pub async fn shut_down(&self, worker: Worker, deadline: Duration) {
        let (started, continued) = tokio::join!(self.runtime.shutdown(deadline), worker.shutdown(deadline));
        tracing::info!(late = started.len() + continued.len(), "the runs are stopped");
    }
}

/// Reads the keys of the people who answer from their files, each time that somebody answers: a key that was revoked meanwhile does not
/// count.
fn people(directory: PathBuf, role_roots: BTreeSet<Fingerprint>) -> impl Fn() -> KeyRing + Send + Sync {
    move || {
        let (ring, rejected, _) = KeyRing::load(&[&directory]);
        for key in rejected {
            tracing::warn!("{} is not trusted: {}", key.path.display(), key.error);
        }
        if role_roots.is_empty() { ring } else { ring.with_role_roots(role_roots.iter().cloned()) }
    }
}
