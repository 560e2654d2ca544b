//! Answers to an editor's questions about a state graph: its mistakes, its parts, the thing at a place, and the places that
//! refer to it.
//!
//! A [`Document`] is a text as its author has it so far: unsigned, unfinished, wrong. It answers for the parts that can be
//! read. A language server adds the protocol on top; [`TextPosition`] converts bytes to the positions of the protocol.
//!
//! ```
//! use graph_editor::Document;
//! use graph_compiler::project::Project;
//! use graph_compiler::source::SourceFile;
//! use std::path::Path;
//!
//! let text = "tool_type: graph
//! config:
//!   start: count
//!   nodes:
//!     count: { type: gate, assign: { total: 3 }, next: done }
//!     done: { type: return, output: '${state.total}' }
//! ";
//! let project = Project::open(Path::new("."), Path::new("graphs"));
//! let document = Document::open(&project, SourceFile::new("graphs/g.yaml", "graphs/g.yaml", text));
//!
//! let read = text.find("state.total").unwrap();
//! assert_eq!(document.type_at(read).unwrap().markdown, "`state.total` is an integer\n\nset by `count` on line 5");
//! let assigned = &document.definition_of(read)[0];
//! assert_eq!(&text[assigned.span.clone()], "total");
//! assert_eq!(document.references_of(assigned.span.start).len(), 2);
//! ```
//!
//! [`json_schema`] describes the format for editors that understand only JSON Schemas.

// Libraries report through values and `tracing`; only the command line prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod completion;
mod document;
mod fields;
mod hover;
pub mod json_schema;
mod position;
mod reading;
mod symbol;
mod texts;

pub use completion::{Completion, CompletionKind};
pub use document::{Document, Hover, Location};
pub use position::TextPosition;
pub use symbol::{Symbol, SymbolKind};
