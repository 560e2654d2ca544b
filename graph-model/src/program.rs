//! Programs: what the compiler hands to the runtime.
//!
//! A [`Program`] is a checked graph as plain tables of names, texts and indices. It can stand in a `static`, so generated
//! code is data that rustc reads in microseconds a node; the runtime resolves the names and parses the texts once, when
//! the graph is first used. Both ways to run a graph, compiled and interpreted, begin with the same `Program`.

use serde::{Deserialize, Serialize};

/// The key of the state that tells of the last failure of a node; the engine sets it (R121).
pub const LAST_ERROR: &str = "_last_error";

/// A checked graph.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// The graph's id: category and file name, `workflows/test/project_stats`.
    pub id: &'a str,
    /// The version that its author gave it.
    pub version: &'a str,
    /// The file it was compiled from, relative to the package.
    pub source: &'a str,
    /// The SHA-256 that its signature covers, in hex.
    pub digest: &'a str,
    /// The fingerprint of the key that signed it.
    pub signer: &'a str,
    /// The first node.
    pub start: u16,
    /// How many steps a run may take (R130).
    pub max_steps: u32,
    /// What happens when a node fails and has no `on_error` of its own.
    pub on_error: OnError,
    /// The capability patterns that the graph declares; a run may use of its grants what these cover.
    pub permissions: &'a [&'a str],
    /// The environment variables that must be set (R279).
    pub env: &'a [&'a str],
    /// The keys of the state.
    pub keys: &'a [Key<'a>],
    /// The tools that its nodes call, each once.
    pub tools: &'a [Tool<'a>],
    /// The nodes, in the order of the file: the name, and a [`Body`] as JSON. Two texts a node cost rustc a fifth of what
    /// a struct does.
    pub nodes: &'a [(&'a str, &'a str)],
}

/// What happens when a node fails and has no `on_error` of its own (R123, R125).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The run ends with the error.
    Fail,
    /// The error is recorded, `assign` is skipped, and the node's edges are followed.
    Continue,
}

/// A key of the state.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its first value as JSON, where `config.state` gives one.
    pub initial: Option<&'a str>,
}

/// A tool that nodes call.
#[derive(Debug, Clone, Copy)]
pub struct Tool<'a> {
    /// Its id: `rye/bash`.
    pub id: &'a str,
    /// What a run needs to call it: `rye.execute.tool.rye.bash`.
    pub capability: &'a str,
    /// Its parameters in the order in which a lane takes them; `None` where no contract names them, and all of them are
    /// one object.
    pub params: Option<&'a [Param<'a>]>,
}

/// A parameter of a tool.
#[derive(Debug, Clone, Copy)]
pub struct Param<'a> {
    /// Its name.
    pub name: &'a str,
    /// What the tool gets as JSON where nothing, or null, is given (R74).
    pub default: Option<&'a str>,
}

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Calls the tool with that index.
    Action(u16),
    /// Computes its assignments and routes.
    Gate,
    /// Ends the run.
    Return,
}

/// What a node's text says. Values, templates and conditions are written as in the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    /// The line of its name in the file, from 1.
    pub line: u32,
    /// What it does.
    pub does: Kind,
    /// An action's parameters: values with templates in their texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<serde_json::Value>,
    /// The assignments in order: key and value with templates.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub assign: serde_json::Map<String, serde_json::Value>,
    /// The edges in order. None: the run ends here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<Edge>,
    /// The node that a failure of this one leads to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<u16>,
    /// A return node's output: a value with templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<serde_json::Value>,
}

/// An edge in a [`Body`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// The target's name; none ends the run (R91).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The condition, as in the file; none holds always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<serde_json::Value>,
}
