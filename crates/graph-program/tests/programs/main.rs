//! Programs that call tools: turns, failures, crashes, and programs that misbehave.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue has failed")]
#![cfg(unix)]

mod clients;
mod contracts;
mod crashes;
mod hostile;
#[path = "../../../../tests/support/rules.rs"]
mod judge;
mod processes;
mod random;
mod rules;
mod tree;
mod turns;
