//! The output of a run: one type if there is one exit, an enum if there are several.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::docs::docs;
use super::names::{Scope, identifier, pascal_text};
use super::types::NamedTypes;
use crate::graph::{Exit, Interface};

/// Expands `Output`.
pub(super) fn expand(interface: &Interface, types: &mut NamedTypes) -> TokenStream {
    let exits = match interface.exits.as_slice() {
        [] => return types.named("Output", &interface.output, "The output of a run."),
        [only] => return types.named("Output", &only.ty, "The output of a run."),
        exits => exits,
    };
    let variants = variants(exits);
    let payloads: Vec<TokenStream> = exits.iter().map(|exit| types.exit(&exit.node, &exit.ty)).collect();
    let docs = exits.iter().map(|exit| docs(&format!("The run ended at `{}`.", exit.node)));
    let nodes = exits.iter().map(|exit| &exit.node);
    quote! {
        /// The output of a run, by the node where it ended.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(clippy::allow_attributes, clippy::large_enum_variant, reason = "the graph decides how large they are")]
        pub enum Output {
            #(#docs #variants(#payloads)),*
        }
        runtime::exits!(Output { #(#variants = #nodes),* });
    }
}

/// Expands how `Output` is read from the value that a run returned at `node`.
pub(super) fn read(interface: &Interface) -> TokenStream {
    match interface.exits.as_slice() {
        [] | [_] => quote! {
            fn output(
                &self,
                _: &str,
                value: ::graph_runtime::Value,
            ) -> Result<Output, runtime::Mismatch>
            {
                runtime::from_value(value)
            }
        },
        _ => quote! {
            fn output(
                &self,
                node: &str,
                value: ::graph_runtime::Value,
            ) -> Result<Output, runtime::Mismatch>
            {
                Output::at(node, value)
            }
        },
    }
}

/// Expands the method of `Output` that returns the node where the run ended; `nodes` returns the variant of `Node` for
/// a node's name.
pub(super) fn node<'i>(interface: &Interface, nodes: impl Fn(&str) -> Option<&'i Ident>) -> TokenStream {
    let [_, _, ..] = interface.exits.as_slice() else { return TokenStream::new() };
    let variants = variants(&interface.exits);
    let nodes = interface.exits.iter().map(|exit| nodes(&exit.node));
    quote! {
        impl Output {
            /// Returns the node where the run ended.
            pub fn node(&self) -> Node {
                match self {
                    #(Self::#variants(_) => Node::#nodes),*
                }
            }
        }
    }
}

/// Names the variants after their nodes.
fn variants(exits: &[Exit]) -> Vec<Ident> {
    let mut scope = Scope::new();
    exits.iter().map(|exit| identifier(&scope.claim(&pascal_text(&exit.node)))).collect()
}
