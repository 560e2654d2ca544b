//! Leases: the holders of runs.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use graph_model::name::RunId;
use graph_model::timestamp;

use crate::stop::Stop;

/// The holder of a run. A store begins with [`Holder::new`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The process's id on its host; unknown if it is of an older version.
    pub process: Option<u32>,
    /// The host.
    pub host: String,
    /// Since when it has held the run.
    pub since: Option<SystemTime>,
}

impl Holder {
    /// A process on a host that has held the run since an unknown time.
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

/// A request that the holder of a lease stop its run. A store makes it, and the run's engine receives it.
///
/// The example of [`Lease`] makes a request.
#[derive(Clone, Default)]
pub struct CancelRequest(Arc<Mutex<RequestState>>);

#[derive(Default)]
struct RequestState {
    is_set: bool,
    /// Whether calls in progress are dropped.
    kills: bool,
    /// The stop of the run's engine, once there is an engine.
    stop: Option<Stop>,
}

impl CancelRequest {
    /// Makes the request.
    pub fn set(&self) {
        self.make(false);
    }

    /// Makes the request that the run end at once: its calls in progress are dropped.
    pub fn kill(&self) {
        self.make(true);
    }

    fn make(&self, kills: bool) {
        let mut request = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        request.is_set = true;
        request.kills |= kills;
        request.pass_on();
    }

    /// Whether it was made.
    pub fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_set
    }

    /// Sets `stop` when the request is made, or at once if it was made before.
    fn tell(&self, stop: &Stop) {
        let mut request = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        request.stop = Some(stop.clone());
        request.pass_on();
    }
}

impl RequestState {
    fn pass_on(&self) {
        match &self.stop {
            Some(stop) if self.kills => stop.kill(),
            Some(stop) if self.is_set => stop.set(),
            _ => {}
        }
    }
}

impl fmt::Debug for CancelRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CancelRequest({})", self.is_set())
    }
}

/// The right to append to a run. Dropping it gives it back.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::RunId;
/// use graph_runtime::store::Lease;
///
/// let lease = Lease::new(RunId::new("order-17")?, 1, || println!("given back"));
/// lease.cancel_request().set();
/// assert!(lease.cancel_request().is_set());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Lease {
    run: RunId,
    token: u64,
    cancel_request: CancelRequest,
    release: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Lease {
    /// A lease with that fencing token. A store gives a higher token each time a run is leased, and refuses requests with a
    /// lower one. `release` is called when the lease is dropped.
    pub fn new(run: RunId, token: u64, release: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { run, token, cancel_request: CancelRequest::default(), release: Some(Box::new(release)) }
    }

    /// Returns the run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the fencing token.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Returns the request that the run stop. A store makes it when somebody [cancels](crate::Store::cancel) the run.
    pub fn cancel_request(&self) -> &CancelRequest {
        &self.cancel_request
    }

    /// Takes the lease apart, and does not give it back: for a store that gives it back itself.
    pub fn into_parts(mut self) -> (RunId, u64) {
        self.release = None;
        (self.run.clone(), self.token)
    }

    /// Passes requests on to the run's engine.
    pub(crate) fn stops(&self, stop: &Stop) {
        self.cancel_request.tell(stop);
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
