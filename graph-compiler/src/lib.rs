//! From a signed YAML state graph to Rust tokens: read, verify, parse, check, expand.
//!
//! | stage | from | to |
//! |---|---|---|
//! | [`SourceFile::read`](source::SourceFile::read) | a path | text whose bytes do not change any more |
//! | [`verify`](verify::verify) | a source and a key ring | [`VerifiedSource`](verify::VerifiedSource): a trusted key signed it |
//! | [`parse`](definition::parse) | a verified source | [`Definition`](definition::Definition): the author's graph |
//! | [`check`](check::check) | a definition and its tools' contracts | [`CheckedGraph`](graph::CheckedGraph): its parts fit together |
//! | [`expand`](expand::expand) | a graph | tokens |
//!
//! The stages up to the definition are the crate `graph-definition`, whose modules are shown here too.
//!
//! [`Project`](project::Project) takes a file through all of them. A build script calls [`build()`]; the macro `graph!`
//! of `graph-runtime` and the command line `graph` are the other front ends. Mistakes are reported as
//! [`Diagnostic`](diagnostic::Diagnostic)s, all of a file at once. An editor needs more, also for files that are not
//! finished: `graph-editor` answers with [`Project::review_unfinished`](project::Project::review_unfinished),
//! [`TypesAt`] and the tables of [`vocabulary`].

#![cfg_attr(docsrs, feature(doc_cfg))]
// Libraries speak through values and `tracing`; only the command line prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod analysis;
mod build;
mod builtin;
pub mod check;
pub mod expand;
mod files;
pub mod front_end;
pub mod graph;
pub mod items;
pub mod levels;
mod meaning;
mod parallel;
mod program;
pub mod project;
pub mod schedules;
pub mod types;

pub use analysis::{Site, TypesAt};
pub use build::{BROKEN, Build, ERRORS, MANIFEST, MODULES, NAME, WARNED, build, format, module_path};
pub use files::{FileWalk, TEST_ENDS, find_graphs, find_signed, find_tests, graph_files, is_test_file};
pub use graph_definition::{code, definition, diagnostic, fix, source, tree, verify, vocabulary};
pub use project::find_contract_graphs;
