//! The compiler's answers to graphs, and the claims of the format's pages. Nothing is run here.

#![expect(clippy::panic, clippy::unwrap_used, reason = "what fails in a test is its answer")]

#[path = "../support/corpus.rs"]
mod corpus;
#[path = "../support/expected.rs"]
mod expected;
#[path = "../support/floods.rs"]
mod floods;
#[path = "../support/page.rs"]
mod page;
#[path = "../support/random.rs"]
mod random;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tree.rs"]
mod tree;

mod bad_input;
mod catalogue;
mod check;
mod clean_corpus;
mod clerk;
mod conformance_page;
mod diagrams;
mod engine_graphs;
mod errors_page;
mod expand;
mod fields;
mod format_page;
mod fuzz_inputs;
mod helps;
mod items_page;
mod kinds;
mod layers;
mod many_mistakes;
mod meaning;
mod mutations;
mod pages;
mod prose;
mod public_api;
mod stubs;
mod unreadable;
mod value_graphs;
mod words;
mod written_programs;
