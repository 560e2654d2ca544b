//! The signals of a graph: an enum with the value of each.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::docs::docs;
use super::names::{Scope, identifier, pascal_text};
use super::types::NamedTypes;
use crate::graph::Interface;

/// The type that a module has if its graph has signals.
pub(super) const OWN: [&str; 1] = ["Signal"];

/// Expands `Signal`.
pub(super) fn expand(interface: &Interface, types: &mut NamedTypes) -> TokenStream {
    if interface.signals.is_empty() {
        return TokenStream::new();
    }
    let variants = variants(interface);
    let values: Vec<TokenStream> =
        interface.signals.iter().map(|signal| types.signal(&signal.name, &signal.ty)).collect();
    let docs = interface.signals.iter().map(|signal| match &signal.description {
        Some(description) => docs(description),
        None => docs(&format!("The signal `{}`.", signal.name)),
    });
    let names = interface.signals.iter().map(|signal| &signal.name);
    quote! {
        /// The signals that a run can receive, each with its value.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(clippy::allow_attributes, clippy::large_enum_variant, reason = "the graph decides how large they are")]
        pub enum Signal {
            #(#docs #variants(#values)),*
        }
        runtime::signals!(Signal { #(#variants = #names),* });
    }
}

/// Expands how the machine reads the value of a signal.
pub(super) fn read(interface: &Interface) -> TokenStream {
    if interface.signals.is_empty() {
        return TokenStream::new();
    }
    quote! {
        fn signal(
            &self,
            name: &str,
            value: ::graph_runtime::Value,
        ) -> Result<::graph_runtime::Value, runtime::Mismatch>
        {
            Signal::at(name, value).map(|signal| runtime::view(&signal).to_plain_value())
        }
    }
}

fn variants(interface: &Interface) -> Vec<Ident> {
    let mut scope = Scope::new();
    interface.signals.iter().map(|signal| identifier(&scope.claim(&pascal_text(&signal.name)))).collect()
}
