//! A graph file as its author wrote it, and what is wrong with it.
//!
//! | stage | from | to |
//! |---|---|---|
//! | [`SourceFile::read`](source::SourceFile::read) | a path | text of which not a byte changes any more |
//! | [`verify`](verify::verify) | a source and a key ring | [`VerifiedSource`](verify::VerifiedSource): a trusted key signed it |
//! | [`tree::parse`] | a source | [`YamlFile`](tree::YamlFile): YAML, each part with its place |
//! | [`parse`](definition::parse) | a verified source and its tree | [`Definition`](definition::Definition): what the author wrote |
//!
//! Each file is read by itself here: whether its parts fit together, and whether it fits to other files, is for `graph-compiler`. What
//! is wrong is said by [`Diagnostic`](diagnostic::Diagnostic)s, all of a file at once; [`code`] lists what there is to say. The words
//! of the format, by which the parser reads, are in [`vocabulary`].

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
