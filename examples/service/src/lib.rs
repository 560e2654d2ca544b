//! A service that takes orders over HTTP. The graph `graphs/fulfil.yaml` fulfils those that a card pays at once, and
//! `graphs/invoice.yaml` those that a person approves and the customer pays later.
//!
//! | file | |
//! |---|---|
//! | `graphs/` | the graphs, the contracts of their tools, the trusted key |
//! | [`shop`] | the tools: a stock, a payment service and a carrier, all in one SQLite file behind a pool |
//! | [`invoices`] | the tools of orders on invoice, and their payments |
//! | [`service`](Service) | the runtime: store, keys, capabilities; the worker, shut down |
//! | [`access`] | the token of the inbox, and the signatures of payments |
//! | [`http`] | the endpoints, and the page of the inbox |
//!
//! `docs/embedding.md` explains it step by step.

pub mod access;
pub mod http;
pub mod invoices;
mod service;
pub mod shop;

/// The graphs, compiled by the build script.
pub mod graphs {
    graph_runtime::include_graphs!();
}

pub use service::{Error, Service, Settings};
