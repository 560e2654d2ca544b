//! Tests of state graphs without a compiler: cases in YAML beside a graph, which the interpreter runs.
//!
//! | module | |
//! |---|---|
//! | [`TestFile`] | the cases of a graph, read from `order.test.yaml` |
//! | [`check()`] | compares them with the graph: names, inputs, scripted results |
//! | [`ScriptedTools`] | tools that answer as a script says, and keep the calls; also for tests in Rust |
//! | [`run()`] | runs a case: the engine, a journal in memory, virtual time |
//! | [`TestSuite`] | finds the tests of trees, runs them and judges them |
//! | [`GraphCoverage`] | the nodes and edges that were reached |
//!
//! A test calls nothing outside of the program: a call without a scripted answer fails the case. So graphs can be tested before
//! anybody signs them.

// Libraries report through values and `tracing`; only the command line prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod check;
mod coverage;
mod file;
mod judge;
mod mock;
mod run;
mod schema;
mod script;
mod subset;
mod suite;

pub use check::{TestNames, check};
pub use coverage::{CoveredPart, GraphCoverage, PartKind, Ratio, lcov};
pub use file::{
    CaseAnswer, CaseSignal, Expectations, ExpectedCalls, ExpectedError, PeopleSay, PlacedAnswer, PlacedValue, SentAt,
    TestCase, TestFile, ToolScript, graph_of, tests_of,
};
pub use judge::{CaseDifference, CaseFailure};
pub use mock::read_answers;
pub use run::{CaseError, CaseRun, UsedEvents, journal_public_key, run};
pub use schema::json_schema;
pub use script::{
    MockedTools, Reply, ScriptedAnswer, ScriptedCall, ScriptedFailure, ScriptedTools, Times, UnusedAnswer, item_key,
};
pub use subset::{first_difference, is_same, is_subset};
pub use suite::{CaseReport, FileReport, FindError, KeptJournalError, TestSuite, TestTarget};
