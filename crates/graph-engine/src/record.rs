//! Records: the journal of a run, a chain of signed JSON texts.
//!
//! Each record names the link of the one before: the SHA-256 of that record's own SHA-256 and its signature. Each is signed
//! with the runtime's key. So a record that was changed, moved, taken from another run, or removed from before another is
//! detected, and the signature of the last record vouches for all records before it.
//!
//! Each record also names the SHA-256 of a token, which a store keeps only as long as the record is the last one. An
//! attacker who removes records from the end does not have the token of the record that is then the last one.
//!
//! The state is the sum of the records: the inputs of the first, and the changes of every step and edit in order. From time
//! to time, a snapshot states that sum.
//!
//! `docs/journal.md` specifies the format byte for byte.

mod edit;
mod entry;
mod journal;
mod recorded_state;
mod retake;
mod secrets;
mod snapshot;
mod version_2;
mod written;

pub use edit::{ChangeError, StateChanges};
pub use entry::{
    BranchMemory, Calls, Done, DoneFailure, Edit, End, Entry, FanOut, InBranch, Join, NewOrder, Origin, Payload,
    Record, Resume, Snapshot, Start, Step, Take, Target, Visit, VisitFailure,
};
pub use journal::{FIRST_VERSION, Follower, Head, JournalError, SignedRecord, VERSION, verified_start};

pub use crate::activation::Arrival;
pub use crate::call::{Continuation, Parent, TaskOrigin};
pub use crate::failure::ItemFailure;
pub use crate::run_secrets::hide_encrypted;
pub use crate::status::Status;
pub use crate::step::{OpenWait, Opened, TakenSignal, TakenWait};

pub use entry::CompletedCalls;
pub use journal::{Chain, Journal, VerifiedJournal};
pub(crate) use journal::{Unasked, unasked};
pub use recorded_state::RecordedState;
pub use retake::{combines_as_recorded, has_shape, retake, said_edges, said_way};
pub use secrets::hide_visit;
pub use snapshot::{Due, SnapshotDraft};
pub use written::{Changes, Covered, WrittenVisit, new_orders, open_joins, recorded, reduced, targets};
