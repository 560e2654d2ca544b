//! Programs that cargo and rustc build, and the messages of these tools.

#![expect(clippy::unwrap_used, reason = "what fails in a test is its answer")]

#[path = "../support/random.rs"]
mod random;
#[path = "../support/mod.rs"]
mod support;

mod contracts;
mod native_diagnostics;
mod packages;
mod ui;
