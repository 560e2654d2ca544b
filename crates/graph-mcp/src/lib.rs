//! State graphs and the Model Context Protocol: a server whose tools are graphs, and the tools of servers in graphs.
//!
//! With the feature `server`, `GraphServer` serves graphs that are loaded while the program runs, over stdio and HTTP. A call of a tool
//! is a run of its graph. With the feature `client`, [`McpServers`] asks the servers whose tools graphs call: contracts with
//! `tool_type: mcp`, which [`contract`] writes. `docs/mcp.md` describes both, and what keeps them from doing harm.

// Over stdio, stdout belongs to the protocol.
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "server")]
mod calls;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "server")]
mod http;
#[cfg(feature = "client")]
mod import;
#[cfg(feature = "client")]
mod lines;
#[cfg(feature = "server")]
mod question;
#[cfg(feature = "server")]
mod schema;
#[cfg(feature = "server")]
mod server;

#[cfg(feature = "client")]
pub use client::{DeclaredTool, McpClientError, McpEndpoint, McpServers};
#[cfg(feature = "server")]
pub use http::{BoundServer, HttpGuard, TokenError};
#[cfg(feature = "client")]
pub use import::{ImportedContract, contract};
#[cfg(feature = "server")]
pub use server::{GraphServer, GraphServerBuilder, McpServeError, SideTool, Unserved};
