//! A graph file as its author wrote it, and its mistakes.
//!
//! | stage | from | to |
//! |---|---|---|
//! | [`SourceFile::read`](source::SourceFile::read) | a path | text whose bytes do not change any more |
//! | [`verify`](verify::verify) | a source and a key ring | [`VerifiedSource`](verify::VerifiedSource): a trusted key signed it |
//! | [`tree::parse`] | a source | [`YamlFile`](tree::YamlFile): YAML, each part with its place |
//! | [`parse`](definition::parse) | a verified source and its tree | [`Definition`](definition::Definition): what the author wrote |
//!
//! This crate reads each file by itself. `graph-compiler` checks whether the parts of a file fit together, and whether
//! the file fits other files. Mistakes are reported as [`Diagnostic`](diagnostic::Diagnostic)s, all those of a file at
//! once; [`code`] lists their kinds. The parser reads by the words of the format in [`vocabulary`].

// Libraries speak through values and `tracing`; only the command line prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod characters;
pub mod code;
pub mod definition;
pub mod diagnostic;
pub mod fix;
pub mod hash;
pub mod source;
pub mod tree;
pub mod verify;
pub mod vocabulary;
