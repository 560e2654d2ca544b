//! Leases: who is at work on a run.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use graph_model::name::RunId;
use graph_model::timestamp;

use crate::stop::Stop;

/// Who is at work on a run. A store begins with [`Holder::new`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The process's id on its host; unknown where it is of an older version.
    pub process: Option<u32>,
    /// The host.
    pub host: String,
    /// Since when it has been at work on the run.
    pub since: Option<SystemTime>,
}

impl Holder {
    /// A process on a host, of which it is not known since when it has been at work.
    pub fn new(process: u32, host: impl Into<String>) -> Self {
        Self { process: Some(process), host: host.into(), since: None }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process {
            Some(process) => write!(f, "process {process} on {}", self.host)?,
            None => write!(f, "a program of an older version on {}", self.host)?,
        }
        self.since.map_or(Ok(()), |since| write!(f, ", since {}", timestamp::milliseconds(since)))
    }
}

/// A wish that the holder of a lease stop its run: made by a store, heard by the run's engine.
#[derive(Clone, Default)]
pub struct Wish(Arc<Mutex<Wished>>);

#[derive(Default)]
struct Wished {
    is_set: bool,
    /// What the engine listens to, once there is one.
    stop: Option<Stop>,
}

impl Wish {
    /// Makes the wish.
    pub fn set(&self) {
        let mut wished = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        wished.is_set = true;
        if let Some(stop) = &wished.stop {
            stop.set();
        }
    }

    /// Whether it was made.
    pub fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_set
    }

    /// Stops what listens to `stop` when the wish is made, or at once if it was made before.
    fn tell(&self, stop: &Stop) {
        let mut wished = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if wished.is_set {
            stop.set();
        }
        wished.stop = Some(stop.clone());
    }
}

impl fmt::Debug for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wish({})", self.is_set())
    }
}

/// The right to append to a run. Dropping it gives it back.
pub struct Lease {
    run: RunId,
    token: u64,
    wish: Wish,
    release: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Lease {
    /// A lease with that fencing token: a store gives a higher one each time a run is leased, and refuses what comes with a
    /// lower one. `release` is called when the lease is dropped.
    pub fn new(run: RunId, token: u64, release: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { run, token, wish: Wish::default(), release: Some(Box::new(release)) }
    }

    /// Returns the run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the fencing token.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Returns the wish that the run stop, for a store to make when somebody [cancels](crate::Store::cancel) the run.
    pub fn wish(&self) -> &Wish {
        &self.wish
    }

    /// Hands wishes on to the run's engine.
    pub(crate) fn stops(&self, stop: &Stop) {
        self.wish.tell(stop);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release();
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({}, {})", self.run, self.token)
    }
}
