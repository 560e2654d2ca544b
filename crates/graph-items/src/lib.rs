//! Items of a project: tools, directives and pages of knowledge, stored in spaces and verified before use.
//!
//! A space is a directory with `.ai` in it. [`Spaces`] looks for an item in the project's space first, then in the user's,
//! then in the system's, and returns it only if a trusted key signed it. [`Operations`] carries out the actions of graphs on
//! items: it fetches and finds items, reads directives, and signs items. `docs/items.md` describes the files.

mod config;
pub mod confined;
mod error;
mod file;
mod header;
mod operations;
mod spaces;
#[cfg(test)]
mod testing;
mod yaml;

pub use error::ItemError;
pub use graph_directive::{
    Directive, DirectiveError, DirectiveProblem, Input, InputType, InputsError, Output, ProcessStep,
};
pub use operations::Operations;
pub use spaces::{SignedItem, Space, Spaces};
pub use yaml::YamlError;
