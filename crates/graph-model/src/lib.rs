//! The words that the state-graph compiler and runtime share.
//!
//! This crate neither reads graphs nor runs them. It defines what a [`Path`](path::Path) is, how a
//! [`Template`](template::Template) is written, which [`Operator`](operator::Operator)s compare which values, and what a
//! [`Capability`](capability::Capability) grants. A graph therefore means the same to the compiler that checks it and to
//! the engine that runs it.

// Libraries speak through values and `tracing`; only the command line prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod capability;
pub mod character;
pub mod condition;
pub mod digest;
pub mod duration;
pub mod field;
pub mod grammar;
pub mod input;
pub mod ir;
pub mod mcp;
pub mod name;
pub mod number;
pub mod operator;
pub mod path;
pub mod program;
pub mod reducer;
pub mod schedule;
pub mod secret;
pub mod subprocess;
pub mod template;
pub mod term;
pub mod timestamp;
#[cfg(feature = "schedules")]
pub mod timetable;
mod unique;
pub mod untrusted;
pub mod value;
