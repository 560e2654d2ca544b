//! What the journal of a run proves and shows: audits and attestations, the run at each of its steps, a replay under a changed graph,
//! forks, and one node by itself.
//!
//! A proof has no rules of its own. It asks the functions in [`graph_engine::step`] that the engine asks, and compares what they say
//! with what the journal says.

// Libraries speak through values and `tracing`; only the command line prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod attest;
mod audit;
mod edges;
pub mod history;
mod single;

pub use attest::{Attestation, AttestationError, attest};
pub use audit::{Audit, AuditError, audit, audit_tree, prove_tree};
pub use edges::{Edges, Fired};
pub use single::{Single, SingleError, StepOnce, Stepped};
