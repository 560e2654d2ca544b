//! Tests of state graphs in Rust: tools that answer as a test says, virtual time, assertions about runs, crashes after each commit.
//!
//! | item | |
//! |---|---|
//! | [`Fakes`] | the tools of every graph, which answer as their [`FakeScript`]s say |
//! | [`TestBed`] | a store, keys and a clock for runs in virtual time |
//! | [`TestRun`] | a run that is over, with its events and its journal, and assertions about it |
//! | [`TestBed::crash_at_each_commit`] | the same run, whose process dies after each of its commits |
//! | [`FaultyStore`] | a store that fails, hangs, is slow, or whose process dies, at writes of a test's choice |
//! | [`in_virtual_time`] | the body of a test; `#[graph_test]` of `graph-runtime` writes it |
//!
//! An assertion panics with the difference, as those of the standard library do.

#![expect(clippy::panic, reason = "an assertion that does not hold panics")]
// Libraries report through values and `tracing`; only the command line prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod bed;
mod fakes;
mod faults;
mod golden;
mod kept;
mod people;
mod script;
mod test_run;

pub use bed::{TestBed, WaitReply, in_virtual_time};
pub use fakes::{FakeCall, FakeTool, Fakes, fake};
pub use faults::{FaultyStore, StoreFault, StoreWrite};
pub use kept::{COVERAGE_VARIABLE, KeptJournal};
pub use people::TestPeople;
pub use script::{FakeAnswer, FakeScript};
pub use test_run::TestRun;
