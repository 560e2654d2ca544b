//! A service that takes orders over HTTP and fulfils them with the graph `graphs/fulfil.yaml`.
//!
//! | file | |
//! |---|---|
//! | `graphs/` | the graph, the contracts of its tools, the trusted key |
//! | [`shop`] | the tools: a stock, a payment service and a carrier, all in one SQLite file behind a pool |
//! | [`service`](Service) | the runtime: store, keys, capabilities; start, resume, shut down |
//! | [`http`] | the endpoints |
//! | [`metrics`] | counters, fed by an observer |
//!
//! `docs/embedding.md` explains it step by step.

pub mod http;
pub mod metrics;
mod service;
pub mod shop;

/// The graphs, compiled by the build script.
pub mod graphs {
    graph_runtime::include_graphs!();
}

pub use service::{Error, Service};
