//! The words of schedules: the policies for ticks that overlap, and for those that were missed.

use crate::name::{RunId, ScheduleId};
use crate::timestamp::{from_unix_milliseconds, seconds};

/// The policy for a tick of a schedule that comes due while the run of an earlier tick has not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Overlap {
    /// The tick is skipped.
    #[default]
    Skip,
    /// The tick waits until that run has ended. One tick waits at a time, besides those that are caught up; one that comes
    /// due meanwhile is skipped.
    Queue,
    /// That run is cancelled, and the tick waits until it has ended. A tick that comes due meanwhile replaces the one that waits.
    Cancel,
}

impl Overlap {
    /// Each policy with its name.
    pub const TABLE: [(Self, &'static str); 3] =
        [(Self::Skip, "skip"), (Self::Queue, "queue"), (Self::Cancel, "cancel")];

    /// Returns the policy with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::TABLE.into_iter().find(|(_, known)| *known == name).map(|(overlap, _)| overlap)
    }

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Queue => "queue",
            Self::Cancel => "cancel",
        }
    }
}

/// The policy for ticks of a schedule that were missed: no worker noticed them within a minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CatchUp {
    /// They are skipped.
    None,
    /// The newest of the ticks that are due is run, and the others are skipped.
    #[default]
    Last,
    /// So many of the newest ticks that are due are run, the oldest of them first, each when the run before it has ended.
    All(u32),
}

impl CatchUp {
    /// The most ticks that a schedule catches up.
    pub const MOST: u32 = 1000;
}

impl std::fmt::Display for CatchUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Last => f.write_str("last"),
            Self::All(most) => write!(f, "all({most})"),
        }
    }
}

impl ScheduleId {
    /// Returns the id of the run of a tick: the schedule's id and the tick in UTC, as in `nightly-20261123T020000Z`. The tick is in
    /// milliseconds since the Unix epoch.
    pub fn run(&self, tick: i64) -> RunId {
        let at = seconds(from_unix_milliseconds(tick)).replace(['-', ':'], "");
        RunId::new(format!("{self}-{at}"))
            .expect("a schedule id leaves room for a time, and both have the characters of a run id")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_called_after_its_schedule_and_tick() {
        let longest = "a".repeat(183);
        assert_eq!(ScheduleId::new("nightly").unwrap().run(1_795_399_200_000).as_str(), "nightly-20261123T020000Z");
        assert_eq!(ScheduleId::new(longest.as_str()).unwrap().run(i64::MAX).as_str().len(), 200);
        for wrong in ["", "a/b", "a b", "a.b", &"a".repeat(184)] {
            assert!(ScheduleId::new(wrong).is_err(), "{wrong}");
        }
        assert!(Overlap::TABLE.iter().all(|(overlap, name)| overlap.name() == *name));
        assert_eq!(CatchUp::All(3).to_string(), "all(3)");
    }
}
