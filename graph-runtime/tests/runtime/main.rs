//! The runtime as a program uses it, with machines that are made from programs at run time.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod answers;
mod asking_tools;
mod attacked;
mod attest;
mod branches;
mod cache;
mod cancel;
mod dropped;
mod durability;
mod edits;
mod engine;
mod entries;
#[cfg(feature = "events")]
mod events;
#[cfg(feature = "files")]
mod files;
mod forged;
mod forged_ends;
mod forged_inside;
mod forged_visits;
mod held;
mod history;
mod inputs;
mod inside;
mod interpreted;
mod journal;
mod keeps;
#[cfg(unix)]
mod killed;
mod language;
mod late;
mod left;
mod limits;
mod meaning;
mod missing;
mod nested_waits;
mod pauses;
mod pinned;
#[path = "../../../tests/support/random.rs"]
mod random;
mod recovery;
mod reducers;
mod schedules;
mod secret_answers;
mod service;
mod shared;
mod shared_late;
mod shared_signals;
mod signals;
mod single;
mod statistics;
mod support;
mod suspensions;
mod tools;
mod versions;
mod waits;
