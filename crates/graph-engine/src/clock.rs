//! Clocks: where the engine's time comes from.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

/// A wait for a time to pass.
pub type Sleeping<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Where the engine's time comes from.
///
/// [`ManualClock`] has an example that gives a clock to a runtime.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the time of day.
    fn now(&self) -> SystemTime;

    /// Returns a time that never goes back, to measure how long something took.
    fn monotonic(&self) -> Duration;

    /// Waits until [`Clock::monotonic`] has advanced by `time`. Pauses between two calls and timeouts of calls use it.
    fn sleep(&self, time: Duration) -> Sleeping<'_>;
}

/// The computer's clock. It waits with tokio's timers, which the tokio runtime must have enabled.
///
/// A runtime has it by default. The examples of [`ManualClock`] and [`TokioClock`] set another one.
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

    fn sleep(&self, time: Duration) -> Sleeping<'_> {
        Box::pin(tokio::time::sleep(time))
    }
}

/// A clock that moves only when it is advanced, for tests whose journals must be the same each time.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use std::sync::Arc;
/// use std::time::{Duration, SystemTime};
///
/// use graph_runtime::{Clock, ManualClock, Runtime};
///
/// let clock = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH));
/// let runtime = Runtime::builder().clock(clock.clone()).build()?;
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(clock.now(), SystemTime::UNIX_EPOCH + Duration::from_secs(60));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ManualClock {
    elapsed: watch::Sender<Duration>,
    origin: SystemTime,
}

impl ManualClock {
    /// A clock that shows `at`.
    pub fn at(at: SystemTime) -> Self {
        Self { elapsed: watch::Sender::new(Duration::ZERO), origin: at }
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.elapsed.send_modify(|elapsed| *elapsed += by);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> SystemTime {
        self.origin + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        *self.elapsed.borrow()
    }

    fn sleep(&self, time: Duration) -> Sleeping<'_> {
        let until = self.monotonic() + time;
        Box::pin(async move {
            // The sender is part of `self`, so the channel stays open.
            if self.elapsed.subscribe().wait_for(|elapsed| *elapsed >= until).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}

/// Tokio's clock, which a test can pause. A wait then ends as soon as nothing else is left to do, so hours pass in no time.
///
/// ```
/// # use graph_engine as graph_runtime;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use std::time::{Duration, SystemTime};
///
/// use graph_runtime::{Clock, Runtime, TokioClock};
///
/// tokio::time::pause();
/// let clock = Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH));
/// let runtime = Runtime::builder().clock(clock.clone()).build()?;
/// clock.sleep(Duration::from_secs(3600)).await;
/// assert!(clock.monotonic() >= Duration::from_secs(3600));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TokioClock {
    origin: SystemTime,
    began: tokio::time::Instant,
}

impl TokioClock {
    /// A clock that shows `at` now. It must be made within a tokio runtime.
    pub fn at(at: SystemTime) -> Self {
        Self { origin: at, began: tokio::time::Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> SystemTime {
        self.origin + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        self.began.elapsed()
    }

    fn sleep(&self, time: Duration) -> Sleeping<'_> {
        Box::pin(tokio::time::sleep(time))
    }
}
