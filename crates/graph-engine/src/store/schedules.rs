//! The marks of schedules: which of their ticks were handled.

/// The mark of a schedule in a store: a text that workers write and read, and a number that changes with it.
///
/// The text has the last tick that was handled, so it stays when runs are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleMark {
    /// How often it was written; at least 1.
    pub revision: u64,
    /// The text, which is JSON.
    pub text: String,
}

/// A change of the mark of a schedule. It is made only if nobody else has changed the mark meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleChange {
    /// The id of the schedule.
    pub schedule: String,
    /// The revision of the mark that is replaced; 0 if the schedule has no mark.
    pub expected: u64,
    /// The new text. Its revision is the next number.
    pub text: String,
}

impl ScheduleChange {
    /// Replaces the mark of this revision. The revision is 0 if the schedule has no mark.
    pub fn new(schedule: impl Into<String>, expected: u64, text: impl Into<String>) -> Self {
        Self { schedule: schedule.into(), expected, text: text.into() }
    }
}
