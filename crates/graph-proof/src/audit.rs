//! Proves from a run's journal that nobody changed it, and that the engine can have written every record of it.
//!
//! Nothing is called and nothing is written. Values from outside, such as the results of tools, are taken from the journal.
//! Everything that the graph computes from them is computed again and compared: the nodes that were visited, the values
//! that they wrote, the edges that they took, and the end of the run. `docs/journal.md` states for each member of a record
//! whether it is computed, bounded or free. A free member decides nothing.

mod dated;
mod ends;
mod failures;
mod hooks;
mod inside;
mod prove;
mod receipts;
mod replayer;
mod visits;

pub use inside::{AuditError, audit_tree, prove_tree};
pub use prove::{Audit, audit};
pub use receipts::{Approval, Approver, SignalSummary};
