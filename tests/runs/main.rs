//! Runs of graphs: compiled and interpreted, undisturbed, failing, killed.

#![expect(clippy::panic, clippy::unwrap_used, reason = "what fails in a test is its answer")]

#[path = "../support/corpus.rs"]
mod corpus;
#[path = "../support/expected.rs"]
#[expect(dead_code, reason = "only the list of files is needed here")]
mod expected;
#[path = "../support/random.rs"]
mod random;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tree.rs"]
mod tree;
#[path = "../support/workload.rs"]
mod workload;

mod branches;
mod cached;
mod crashes;
mod entries;
mod exits;
mod graphs;
mod injection;
mod kills;
mod literals;
mod quotes;
mod schedule_kills;
mod secrets;
mod shared_tools;
mod state_machines;
mod testkit;
mod threads;
mod waiting_kills;
mod workers;
