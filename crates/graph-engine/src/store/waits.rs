//! Waits: what the runs of a store wait for.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::timestamp::unix_milliseconds;

use crate::clock::Clock;
use crate::store::lease::Lease;
pub use crate::wait::{Ask, NestedGraph, Wait, WaitId};

/// Changes of what a run waits for. A store makes them in the write of the records that say so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitChanges {
    /// The waits that are over, or that nothing needs any more. One that is not open is no mistake.
    pub close: Vec<WaitId>,
    /// The waits that were opened. One that is open already is replaced.
    pub open: Vec<Wait>,
    /// The signals that the records take, by their [order](super::SignalPlace::order).
    pub take: Vec<u64>,
    /// The run that received these signals, if that is not the run whose records take them: a nested run takes those that the
    /// outermost run around it received. A store need not check who holds that run.
    pub received_by: Option<RunId>,
}

impl WaitChanges {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.close.is_empty() && self.open.is_empty() && self.take.is_empty()
    }

    /// Adds later changes.
    pub fn extend(&mut self, later: Self) {
        self.open.retain(|wait| !later.close.contains(&wait.id));
        self.close.extend(later.close);
        self.open.extend(later.open);
        self.take.extend(later.take);
        self.received_by = later.received_by.or(self.received_by.take());
    }
}

/// The runs that a worker asks a store for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// The id of their graph.
    pub graph: String,
    /// Their [pin](crate::store::RunStart::pin).
    pub pin: Digest,
    /// The maximum number of runs.
    pub limit: usize,
}

impl Claim {
    /// Up to `limit` runs of a graph that are pinned to this digest.
    pub fn new(graph: impl Into<String>, pin: Digest, limit: usize) -> Self {
        Self { graph: graph.into(), pin, limit }
    }
}

/// A run that a store leased to a worker.
#[derive(Debug)]
#[non_exhaustive]
pub struct Claimed {
    /// The lease.
    pub lease: Lease,
    /// How many processes died one after the other that held the run at the place where it is, and this time. Records that
    /// [say only that it is resumed](crate::record::SignedRecord::is_resume) are no other place, and those of the runs inside it are. A run that
    /// kills its processes has a high number: a store hands it out later each time, and apart from others.
    pub tries: u32,
    /// How often the run was [postponed](crate::Store::postpone) at the place where it is.
    pub postponed: u32,
}

impl Claimed {
    /// A run that was claimed and postponed so often.
    pub fn new(lease: Lease, tries: u32, postponed: u32) -> Self {
        Self { lease, tries, postponed }
    }
}

/// The time of a store, which never goes back.
///
/// It is the time of a clock. If the clock is set back, the time continues at half its pace until the clock has caught up: so
/// a timer that is open then is late, and not lost.
#[derive(Debug)]
pub struct StoreClock {
    clock: Arc<dyn Clock>,
    last: Mutex<Option<Seen>>,
}

/// The longest sleep without a look at the time: the time of day may be set while somebody sleeps.
const LONGEST_SLEEP: i64 = 30_000;

/// The time that was seen last, and when, by the monotonic time of the clock.
#[derive(Debug, Clone, Copy)]
struct Seen {
    time: i64,
    since: Duration,
}

impl StoreClock {
    /// The time of a store by a clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, last: Mutex::new(None) }
    }

    /// Returns the time, in milliseconds since the Unix epoch.
    pub fn now(&self) -> i64 {
        self.not_before(i64::MIN)
    }

    /// Waits a number of milliseconds, or less if the time of day may be set meanwhile.
    pub(super) async fn sleep(&self, milliseconds: i64) {
        self.clock.sleep(Duration::from_millis(milliseconds.clamp(0, LONGEST_SLEEP).unsigned_abs())).await;
    }

    /// As [`StoreClock::now`], but not before a time that the store has recorded.
    pub fn not_before(&self, recorded: i64) -> i64 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (wall, since) = (unix_milliseconds(self.clock.now()), self.clock.monotonic());
        let slow = last.map_or(i64::MIN, |last| {
            let elapsed = since.saturating_sub(last.since) / 2;
            last.time.saturating_add(i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX))
        });
        let time = wall.max(slow).max(recorded);
        if last.is_none_or(|last| time > last.time) {
            *last = Some(Seen { time, since });
        }
        time
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::clock::Sleeping;

    /// A clock whose time of day can be set.
    #[derive(Debug, Default)]
    pub(in crate::store) struct SetClock(Mutex<(i64, u64)>);

    impl SetClock {
        /// Lets seconds pass.
        fn pass(&self, seconds: u64) {
            let mut time = self.0.lock().unwrap();
            time.0 += i64::try_from(seconds).unwrap();
            time.1 += seconds;
        }

        /// Moves the time of day.
        pub(in crate::store) fn jump(&self, seconds: i64) {
            self.0.lock().unwrap().0 += seconds;
        }
    }

    impl Clock for SetClock {
        fn now(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(self.0.lock().unwrap().0).unwrap_or(0))
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.0.lock().unwrap().1)
        }

        fn sleep(&self, _: Duration) -> Sleeping<'_> {
            Box::pin(std::future::pending())
        }
    }

    const DAY: i64 = 86_400;

    #[test]
    fn the_time_of_a_store_never_goes_back_and_never_stops() {
        let clock = Arc::new(SetClock::default());
        clock.jump(10 * DAY);
        let time = StoreClock::new(Arc::clone(&clock) as Arc<dyn Clock>);
        assert_eq!(time.now(), 10 * DAY * 1000);
        // A jump forward and back: the time continues slowly, and is right again when the clock has caught up.
        clock.jump(DAY);
        assert_eq!(time.now(), 11 * DAY * 1000);
        clock.jump(-DAY);
        assert_eq!(time.now(), 11 * DAY * 1000);
        clock.pass(3600);
        assert_eq!(time.now(), (11 * DAY + 1800) * 1000);
        clock.pass(3600);
        assert_eq!(time.now(), (11 * DAY + 3600) * 1000);
        clock.pass(2 * 86_400);
        assert_eq!(time.now(), (12 * DAY + 7200) * 1000);
        // The store recorded a later time than this process knows.
        assert_eq!(time.not_before(13 * DAY * 1000), 13 * DAY * 1000);
        clock.pass(2);
        assert_eq!(time.now(), (13 * DAY + 1) * 1000);
    }

    #[test]
    fn milliseconds_are_not_lost_by_asking_often() {
        let clock = Arc::new(SetClock::default());
        clock.jump(10 * DAY);
        let time = StoreClock::new(Arc::clone(&clock) as Arc<dyn Clock>);
        time.now();
        clock.jump(-DAY);
        for _ in 0..100 {
            clock.pass(1);
            time.now();
        }
        assert_eq!(time.now(), (10 * DAY + 50) * 1000);
    }

    #[test]
    fn later_changes_close_what_was_opened() {
        let wait = |step| Wait::new(WaitId::of_visit(step), "node", 0, None);
        let mut changes = WaitChanges { open: vec![wait(1), wait(2)], take: vec![1], ..WaitChanges::default() };
        let received_by = RunId::new("run").ok();
        let (close, take) = (vec![WaitId::of_visit(1)], vec![3, 2]);
        changes.extend(WaitChanges { close, open: vec![wait(3)], take, received_by: received_by.clone() });
        let (close, open) = (vec![WaitId::of_visit(1)], vec![wait(2), wait(3)]);
        assert_eq!(changes, WaitChanges { close, open, take: vec![1, 3, 2], received_by });
        assert!(!WaitChanges { take: vec![1], ..WaitChanges::default() }.is_empty());
        assert_eq!(wait(3).id.to_string(), "3#1");
        assert!(!changes.is_empty() && WaitChanges::default().is_empty());
    }
}
