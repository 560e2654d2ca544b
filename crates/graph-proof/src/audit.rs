//! Proving a run from its journal: that nobody changed it, and that the engine can have written every record of it.
//!
//! Nothing is called and nothing is written. What came from outside, as what tools returned, is taken from the journal. What the
//! graph makes of that is computed again and compared: which nodes were visited, what they wrote, which edges were taken, how the run
//! ended. `docs/journal.md` says of each member of a record whether it is computed, bounded or free. A free member decides nothing.

mod dated;
mod ends;
mod failures;
mod hooks;
mod inside;
mod prove;
mod replayer;
mod visits;

pub use inside::{AuditError, audit_tree, prove_tree};
pub use prove::{Audit, audit};
