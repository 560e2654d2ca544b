//! Traces and metrics of random runs, against judges that read the journals; real collectors.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod alone;
mod collector;
mod crashes;
mod graphs;
#[expect(dead_code, reason = "the tests of the runtime use more of it")]
#[path = "../../../../graph-runtime/tests/runtime/interpreted.rs"]
mod interpreted;
mod judge;
mod metrics;
#[path = "../../../../tests/support/random.rs"]
mod random;
