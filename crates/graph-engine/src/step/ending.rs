//! What the ends of runs say.

/// What the end of a run says that was cancelled.
pub const CANCELLED: &str = "cancelled";

/// What the end of a run says that had taken all the time it may.
pub const OVERDUE: &str = "the run took longer than it may";

/// What the end of a run says before what a node wrote that the state does not take.
pub const UNFIT: &str = "what it wrote does not fit the state: ";

/// Returns what the end of a run says that had taken all the steps it may.
pub fn exceeded(most: u64) -> String {
    format!("Max steps exceeded ({})", u32::try_from(most).unwrap_or(u32::MAX))
}
