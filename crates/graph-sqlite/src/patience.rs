//! The time that an operation waits for other processes.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::problem::is_busy;

/// The time that a store waits for a file that another program keeps locked, and the function that is notified.
#[derive(Clone)]
pub(crate) struct Patience {
    pub(crate) most: Duration,
    pub(crate) tell: Arc<Tell>,
}

/// Receives the path of a file that is waited for, and the time waited.
pub(crate) type Tell = dyn Fn(&Path, Duration) + Send + Sync;

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Patience({:?})", self.most)
    }
}

/// The longest time that SQLite itself waits before it reports that the file is locked. It looks ever more rarely, so beside a process that
/// writes all the time it would find no moment between two writes; after a short time, the operation begins again.
const SLICE: Duration = Duration::from_millis(20);

impl Patience {
    /// Returns the time that SQLite itself waits before it reports that the file is locked.
    pub(crate) fn slice(&self) -> Duration {
        self.period().min(SLICE)
    }

    /// Returns the time after which the function is notified again.
    pub(crate) fn period(&self) -> Duration {
        self.most / 12
    }

    /// Repeats an operation as long as another program keeps the file locked and there is time left.
    pub(crate) fn wait<T>(
        &self,
        path: &Path,
        mut work: impl FnMut() -> Result<T, rusqlite::Error>,
    ) -> Result<T, rusqlite::Error> {
        let (began, mut told) = (Instant::now(), Duration::ZERO);
        loop {
            let done = work();
            if !done.as_ref().err().is_some_and(is_busy) {
                return done;
            }
            let waited = began.elapsed();
            if waited >= self.most {
                return done;
            }
            if waited >= told + self.period() {
                told = waited;
                (self.tell)(path, waited);
            }
        }
    }
}
