//! Proves and inspects runs from their journals: audits and attestations, the state after each step, replays under a
//! changed graph, forks and edits. Also executes one node by itself.
//!
//! A proof has no rules of its own. It calls the same functions in [`graph_engine::step`] as the engine, and compares their
//! results with the journal.

// Libraries speak through values and `tracing`; only the command line prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod attest;
mod audit;
mod edges;
mod edits;
pub mod history;
mod single;
pub mod stats;

pub use attest::{Attestation, AttestationError, attest};
pub use audit::{Approval, Approver, Audit, AuditError, SignalSummary, audit, audit_tree, prove_tree};
pub use edges::{Edges, Fired};
pub use single::{Single, SingleError, StepOnce, Stepped};
