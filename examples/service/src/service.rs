//! The runtime of the service, and its graph.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use graph_runtime::store::{Page, RunFilter, Within};
use graph_runtime::{EncryptionKey, ResumeAll, RunId, Runtime, SecretKey, SqliteStore, Status, Store};

use crate::graphs::{Fulfil, fulfil};
use crate::metrics::Metrics;
use crate::shop::Shop;

/// An error that keeps the service from starting.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The parts that all endpoints share. A clone shares them too.
#[derive(Clone)]
pub struct Service {
    /// Starts, resumes and stops runs.
    pub runtime: Runtime,
    /// The journals of the runs.
    pub store: SqliteStore,
    /// The tools.
    pub shop: Arc<Shop>,
    /// The counters, which the observer feeds.
    pub metrics: Arc<Metrics>,
}

impl Service {
    /// Opens the service whose files are in `directory`, and makes those that are missing. `latency` is the time that the payment
    /// service takes for a charge.
    pub async fn open(directory: &Path, latency: Duration) -> Result<Self, Error> {
        std::fs::create_dir_all(directory)?;
        let store = SqliteStore::open(directory.join("runs.db")).await?;
        let metrics = Arc::new(Metrics::default());
        let runtime = Runtime::builder()
            .store(store.clone())
            // Signs the journals of runs.
            .sign_with(SecretKey::load_or_generate(&directory.join("keys"))?)
            // Encrypts secrets in them, as the token of a card.
            .encrypt_with(encryption_key(&directory.join("encryption.key"))?)
            .grants(fulfil::CAPABILITIES)?
            .observer(Arc::clone(&metrics))
            .build()?;
        let shop = Arc::new(Shop::open(&directory.join("shop.db"), latency)?);
        Ok(Self { runtime, store, shop, metrics })
    }

    /// Returns the graph, with tools that all runs share.
    pub fn fulfil(&self) -> Fulfil<Shop> {
        Fulfil::sharing(Arc::clone(&self.shop))
    }

    /// Resumes the runs that a crash or a shutdown stopped.
    pub async fn resume(&self) -> Result<(), Error> {
        for resumed in self.runtime.resume_all(ResumeAll::default(), |_| Some(self.fulfil())).await? {
            match resumed.run {
                Ok(run) => tracing::info!(run = %run.id(), "resumed"),
                Err(error) => tracing::error!(run = %resumed.summary.run, "cannot resume: {error}"),
            }
        }
        Ok(())
    }

    /// Undoes the effects of orders that were cancelled. The graph ends where it is when it is cancelled, so its service does this: when
    /// an order is cancelled, and again at start-up, for those that a crash left.
    pub async fn undo_cancelled(&self) -> Result<(), Error> {
        let filter = RunFilter { statuses: vec![Status::Cancelled], within: Within::TopLevel, ..RunFilter::default() };
        let mut page = Page::default();
        loop {
            let found = self.runtime.runs(&filter, &page).await?;
            for order in &found.runs {
                self.shop.undo(&order.run).await.map_err(|error| error.to_string())?;
            }
            match found.next {
                Some(next) => page.after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Waits until a run that somebody cancelled has ended, and undoes its effects.
    pub async fn undo_when_ended(&self, run: RunId) -> Result<(), Error> {
        while self.store.find(&run).await?.status == Status::Running {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if self.store.find(&run).await?.status == Status::Cancelled {
            self.shop.undo(&run).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Stops all runs before their next step, and waits for calls in progress until `deadline` is over. The runs stay in the store, to
    /// be resumed.
    pub async fn shut_down(&self, deadline: Duration) {
        let late = self.runtime.shutdown(deadline).await;
        tracing::info!(late = late.len(), "the runs are stopped");
    }
}

/// Loads the key that encrypts secrets, or makes it.
fn encryption_key(path: &Path) -> Result<EncryptionKey, Error> {
    if !path.exists() {
        EncryptionKey::generate()?.save(path)?;
    }
    Ok(EncryptionKey::load(path)?)
}
