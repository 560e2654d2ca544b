//! Agents in graphs, with models that reply as a test says.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue has failed")]

mod approvals;
mod attacks;
mod attempts;
#[cfg(feature = "chat")]
mod chat;
mod contexts;
mod contracts;
mod crashes;
mod effects;
mod http_effects;
#[path = "../../../../tests/support/rules.rs"]
mod judge;
mod limits;
mod loops;
mod random;
mod rules;
mod spectrum;
mod tasks;
mod threads;
mod tree;
