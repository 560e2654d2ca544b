//! The named parts of a file.

use graph_compiler::source::Span;

/// A named part of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Symbol {
    /// The kind of the part.
    pub kind: SymbolKind,
    /// Its name; of an edge, the name of the node that it leads to, or `end`.
    pub name: String,
    /// A short description: for a node, its type and the item that it calls; for an input, its type; for a hook, its event; for a
    /// channel, its reducer.
    pub detail: Option<String>,
    /// The span of the whole part.
    pub span: Span,
    /// The span of its name, within `span`.
    pub name_span: Span,
    /// Its parts: for a node, the keys that it writes, its variable and its edges.
    pub children: Vec<Symbol>,
}

/// The kind of a [`Symbol`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymbolKind {
    /// An input of the graph; of a contract, a parameter.
    Input,
    /// A key of the state, where it gets a value.
    Key,
    /// A hook.
    Hook,
    /// A node.
    Node,
    /// An edge of a node.
    Edge,
    /// The item of a foreach.
    Variable,
}

impl Symbol {
    pub(crate) fn new(kind: SymbolKind, name: &str, detail: Option<String>, span: Span, name_span: &Span) -> Self {
        // The span of a name lies within the part, even if an unfinished text has no value after it.
        let name_span = name_span.start.clamp(span.start, span.end)..name_span.end.clamp(span.start, span.end);
        Self { kind, name: name.to_owned(), detail, span, name_span, children: Vec::new() }
    }
}
