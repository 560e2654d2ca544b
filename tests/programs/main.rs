//! Programs that are built by cargo and rustc, and what these say.

#![expect(clippy::unwrap_used, reason = "what fails in a test is its answer")]

#[path = "../support/mod.rs"]
mod support;

mod native_diagnostics;
mod packages;
mod ui;
