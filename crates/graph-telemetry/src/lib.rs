//! Traces and metrics of state graphs: observers that a program adds to its runtime.
//!
//! Each is a feature, and without its feature nothing of it is compiled.
//!
//! | feature | |
//! |---|---|
//! | `opentelemetry` | `Traces`: a trace for each tree of runs, with spans of its runs, steps, visits and calls, for any exporter of OpenTelemetry |
//! | `prometheus` | `Metrics`: counters, gauges and histograms, in the text format of OpenMetrics |
//!
//! Neither holds up a run: metrics are numbers in memory, and spans go to a queue of a fixed size, from which a thread of its own exports
//! them. Spans that find the queue full are dropped and counted.

// Libraries speak through values and `tracing`; only the command line prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "prometheus")]
mod metrics;
#[cfg(feature = "opentelemetry")]
mod traces;

#[cfg(feature = "prometheus")]
pub use metrics::Metrics;
#[cfg(feature = "opentelemetry")]
pub use traces::{SpanCounts, Traces, TracesBuilder};
