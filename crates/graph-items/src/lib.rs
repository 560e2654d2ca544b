//! Items of a project: tools, directives and pages of knowledge, in spaces, verified before use.
//!
//! A space is a directory with `.ai` in it. [`Spaces`] looks for an item in the project's space first, then in the user's,
//! then in the system's, and hands it out only if a trusted key signed it. [`Operations`] does what a graph's actions ask
//! of items: fetch them, find them, read directives, sign them. `docs/items.md` describes the files.

mod config;
pub mod confined;
mod directive;
mod error;
mod file;
mod header;
mod operations;
mod spaces;
#[cfg(test)]
mod testing;
mod xml;
mod yaml;

pub use directive::{Directive, DirectiveError, DirectiveProblem, Input, InputType, InputsError, Output, ProcessStep};
pub use error::ItemError;
pub use operations::Operations;
pub use spaces::{SignedItem, Space, Spaces};
pub use yaml::YamlError;
