//! Clocks: where the engine's time comes from.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Where the engine's time comes from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the time of day.
    fn now(&self) -> SystemTime;

    /// Returns a time that never goes back, to measure how long something took.
    fn monotonic(&self) -> Duration;
}

/// The computer's clock.
#[derive(Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// The computer's clock.
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// A clock that stands still until it is moved, for tests whose journals must be the same each time.
#[derive(Debug)]
pub struct ManualClock {
    elapsed: Mutex<Duration>,
    origin: SystemTime,
}

impl ManualClock {
    /// A clock that shows `at`.
    pub fn at(at: SystemTime) -> Self {
        Self { elapsed: Mutex::new(Duration::ZERO), origin: at }
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        *self.elapsed.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> SystemTime {
        self.origin + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        *self.elapsed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
