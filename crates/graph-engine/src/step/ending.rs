//! The messages at the ends of runs.

/// The message of a run that was cancelled.
pub const CANCELLED: &str = "cancelled";

/// The message of a run that has taken all the time it may.
pub const OVERDUE: &str = "the run took longer than it may";

/// The message of a run that a worker has given up.
pub const GIVEN_UP: &str = "the processes that continued the run died, one after the other";

/// The beginning of the message when the state does not accept a value that a node wrote.
pub const UNFIT: &str = "what it wrote does not fit the state: ";

/// How the failure of a node begins at which the run cannot end with its output.
pub const UNRETURNED: &str = "the run cannot end here: ";

/// Returns the message of a run that has taken all the steps it may.
pub fn exceeded(most: u64) -> String {
    format!("Max steps exceeded ({})", u32::try_from(most).unwrap_or(u32::MAX))
}

/// Returns the message of a run that would visit a node more often than it may.
pub fn too_many_visits(most: u32, node: &str) -> String {
    format!("Max visits exceeded ({most}) at node `{node}`")
}

/// Returns the message of a run that would take more steps than it may, with those of the runs inside it or around it.
pub fn too_many_nested_steps(most: u64) -> String {
    format!("{NESTED_STEPS}{most})")
}

/// The beginning of that message.
pub const NESTED_STEPS: &str = "Max steps of nested runs exceeded (";
