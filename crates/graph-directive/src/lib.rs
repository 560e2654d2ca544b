//! Directives: tasks for an agent, as XML within Markdown.
//!
//! [`Directive`] reads one. The compiler compares it with the contract of the agent that follows it, and the runtime gives it to a
//! model. `docs/items.md` describes the files.

mod directive;
mod xml;

pub use directive::{
    Directive, DirectiveError, DirectiveProblem, Input, InputType, InputsError, Output, ProcessStep, insert_inputs,
};
