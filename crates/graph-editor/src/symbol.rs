//! The named parts of a file.

use graph_compiler::source::Span;

/// A named part of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Symbol {
    /// What it is.
    pub kind: SymbolKind,
    /// Its name; of an edge, the name of the node that it leads to, or `end`.
    pub name: String,
    /// What it is in a few words: of a node its type and what it calls, of an input its type, of a hook its event.
    pub detail: Option<String>,
    /// All of it.
    pub span: Span,
    /// Its name, within `span`.
    pub name_span: Span,
    /// What is in it: of a node, the keys that it writes, its variable and its edges.
    pub children: Vec<Symbol>,
}

/// What a [`Symbol`] is.
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
        // A name lies in what it names, also where an unfinished text has no value behind it.
        let name_span = name_span.start.clamp(span.start, span.end)..name_span.end.clamp(span.start, span.end);
        Self { kind, name: name.to_owned(), detail, span, name_span, children: Vec::new() }
    }
}
