//! State graphs and the Model Context Protocol: a server whose tools are graphs.
//!
//! [`GraphServer`] serves graphs that are loaded while the program runs, over stdio with [`GraphServer::serve`] and over HTTP with
//! [`BoundServer`]. A call of a tool is a run of its graph. `docs/mcp.md` describes the server, and what keeps it from doing harm.

// Over stdio, stdout belongs to the protocol.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod calls;
mod http;
mod question;
mod schema;
mod server;

pub use http::{BoundServer, HttpGuard, TokenError};
pub use server::{GraphServer, GraphServerBuilder, McpServeError, SideTool, Unserved};
