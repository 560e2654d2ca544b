//! The server as clients see it: the official client of Rust, and clients that speak nonsense.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod calls;
mod fuzz;
mod http;
#[cfg(unix)]
#[path = "../../../../tests/support/rules.rs"]
mod judge;
#[cfg(unix)]
mod once;
mod person;
#[cfg(unix)]
mod rules;
#[cfg(unix)]
mod servers;
mod tree;
