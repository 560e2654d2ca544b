//! Signals: what others send to the runs of a store.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use graph_model::digest::Digest;

use crate::status::Status;
use crate::store::error::StoreError;
use crate::store::waits::Wait;

/// A signal for a run, as its sender sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Signal {
    /// Its name. A wait listens to names.
    pub name: String,
    /// The id that its sender gave it, which is unique in the run, over all names.
    pub id: String,
    /// Its payload, as JSON. A store does not read it.
    pub payload: String,
}

impl Signal {
    /// A signal of a name.
    pub fn new(name: impl Into<String>, id: impl Into<String>, payload: impl Into<String>) -> Self {
        Self { name: name.into(), id: id.into(), payload: payload.into() }
    }

    /// Returns the digest of the name and the payload. A store keeps it when the payload is gone: two signals with one id are
    /// the same if their digests are equal.
    pub fn digest(&self) -> Digest {
        let length = (self.name.len() as u64).to_be_bytes();
        Digest::of_parts(&[&length, self.name.as_bytes(), self.payload.as_bytes()])
    }
}

/// The place of a signal among those of its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SignalPlace {
    /// The number of the signal. It counts from 1 in each run, without gaps.
    pub order: u64,
    /// The time of the store at which the signal was received, in milliseconds since the Unix epoch. It never falls within a
    /// run.
    pub at: i64,
}

impl SignalPlace {
    /// Signs the receipt of the signal with this place, for a store.
    ///
    /// # Errors
    ///
    /// The error of `seal`, or [`StoreError::Failed`] if it panics. The store then writes nothing.
    pub fn sealed(self, seal: &SealSignal) -> Result<String, StoreError> {
        // A panic must not end the thread that writes for all runs.
        catch_unwind(AssertUnwindSafe(|| seal(self)))
            .map_err(|_| StoreError::failed("the receipt of a signal could not be signed: its signer panicked"))?
    }
}

/// Signs the receipt of a signal when its place is known, or refuses a signal that the run has not received before.
///
/// A store calls it inside its transaction, and may call it again if it has to repeat the transaction. So it must be pure, take
/// microseconds, and not use the store.
pub type SealSignal = Arc<dyn Fn(SignalPlace) -> Result<String, StoreError> + Send + Sync>;

/// A signal that a store has received.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceivedSignal {
    /// Its place.
    pub place: SignalPlace,
    /// Its name.
    pub name: String,
    /// The id that its sender gave it.
    pub id: String,
    /// Its payload.
    pub payload: String,
    /// Its receipt, as it was [signed](SealSignal).
    pub receipt: String,
}

impl ReceivedSignal {
    /// A signal that was received at a place.
    pub fn new(place: SignalPlace, signal: Signal, receipt: impl Into<String>) -> Self {
        let Signal { name, id, payload } = signal;
        Self { place, name, id, payload, receipt: receipt.into() }
    }
}

/// The answer of a store to a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// The store keeps the signal.
    Accepted(SignalPlace),
    /// The store received the same signal before: one with the same id, name and payload. Nothing was written.
    Already {
        /// The place of the signal.
        place: SignalPlace,
        /// Whether a wait took it.
        taken: bool,
    },
}

/// The signals of a run that no wait has taken, and a time of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inbox {
    /// A time of the store. Each signal that is received later has a time that is not before it.
    pub at: i64,
    /// The signals, in their order.
    pub signals: Vec<ReceivedSignal>,
}

impl Inbox {
    /// The maximum number of signals that a store keeps for a run and that no wait has taken.
    pub const MAX_SIGNALS: usize = 1_000;
    /// The maximum length of their payloads together, in bytes.
    pub const MAX_BYTES: usize = 1 << 20;

    /// An inbox at a time of the store.
    pub fn new(at: i64, signals: Vec<ReceivedSignal>) -> Self {
        Self { at, signals }
    }

    /// Whether a store refuses a signal because of the number of those that it keeps, and of the bytes of their payloads.
    pub fn is_full(signals: usize, bytes: usize, next: &Signal) -> bool {
        signals >= Self::MAX_SIGNALS || bytes.saturating_add(next.payload.len()) > Self::MAX_BYTES
    }
}

impl Wait {
    /// Whether the wait listens to signals of a name, and a signal that was received at a time of the store is in time.
    pub fn accepts(&self, name: &str, at: i64) -> bool {
        self.due.is_none_or(|due| at < due) && self.signals.iter().any(|signal| signal == name)
    }
}

/// Returns the time at which a run that nobody holds can continue: `i64::MIN` if it can at once, and `None` if nothing but an
/// event lets it continue.
///
/// `waits` are those that are open, and `signals` those that no wait has taken.
pub(super) fn readiness<'a>(
    status: Status,
    is_cancelling: bool,
    waits: impl Iterator<Item = &'a Wait> + Clone,
    signals: impl Iterator<Item = &'a ReceivedSignal> + Clone,
) -> Option<i64> {
    let has_signal = |wait: &Wait| signals.clone().any(|signal| wait.accepts(&signal.name, signal.place.at));
    match status {
        Status::Running => Some(i64::MIN),
        Status::Waiting if is_cancelling || waits.clone().any(has_signal) => Some(i64::MIN),
        Status::Waiting => waits.filter_map(|wait| wait.due).min(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::waits::WaitId;

    fn signal(order: u64, at: i64, name: &str) -> ReceivedSignal {
        ReceivedSignal::new(SignalPlace { order, at }, Signal::new(name, order.to_string(), "null"), "")
    }

    fn wait(step: u64, due: Option<i64>, names: &[&str]) -> Wait {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Wait::new(WaitId::of_visit(step), "node", 0, due).listening(names)
    }

    #[test]
    fn a_signal_before_the_due_time_lets_a_run_continue() {
        let at_once = Some(i64::MIN);
        for (waits, signals, expected) in [
            (vec![], vec![], None),
            (vec![wait(1, None, &[])], vec![signal(1, 5, "a")], None),
            (vec![wait(1, Some(9), &[])], vec![signal(1, 5, "a")], Some(9)),
            (vec![wait(1, None, &["a"])], vec![signal(1, 5, "b")], None),
            (vec![wait(1, None, &["a"])], vec![signal(1, 5, "b"), signal(2, i64::MAX, "a")], at_once),
            (vec![wait(1, Some(5), &["a"])], vec![signal(1, 5, "a")], Some(5)),
            (vec![wait(1, Some(6), &["b", "a"])], vec![signal(1, 5, "a")], at_once),
            (vec![wait(1, Some(5), &["a"]), wait(2, Some(6), &["a"])], vec![signal(1, 5, "a")], at_once),
            (vec![wait(1, Some(7), &["b"]), wait(2, Some(6), &["c"])], vec![signal(1, 5, "a")], Some(6)),
        ] {
            let found = |status, is_cancelling| readiness(status, is_cancelling, waits.iter(), signals.iter());
            assert_eq!(found(Status::Waiting, false), expected, "{waits:?} {signals:?}");
            assert_eq!(found(Status::Waiting, true), at_once, "a cancelled run continues");
            assert_eq!(found(Status::Running, false), at_once);
            for ended in [Status::Completed, Status::CompletedWithErrors, Status::Error, Status::Cancelled] {
                assert_eq!(found(ended, true), None, "{ended:?}");
            }
        }
    }

    #[test]
    fn the_digest_separates_the_name_from_the_payload() {
        let digest = |name: &str, payload: &str| Signal::new(name, "1", payload).digest();
        assert_eq!(digest("a", "bc"), Signal::new("a", "2", "bc").digest(), "the id is not part of it");
        assert_ne!(digest("a", "bc"), digest("ab", "c"));
        assert_ne!(digest("", "abc"), digest("abc", ""));
    }
}
