//! The signals of a graph and the answers to its interrupts: an enum of each, with the value of each variant.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::docs::docs;
use super::names::{Scope, identifier, pascal_text};
use super::types::NamedTypes;
use crate::graph::{Interface, TypedSignal};

/// The types that a module has for what its runs can receive.
pub(super) fn own(interface: &Interface) -> impl Iterator<Item = &'static str> {
    let signal = Some("Signal").filter(|_| !interface.signals.is_empty());
    signal.into_iter().chain(Some("Answer").filter(|_| !interface.answers.is_empty()))
}

/// Expands `Signal` and `Answer`.
pub(super) fn expand(interface: &Interface, types: &mut NamedTypes) -> TokenStream {
    let signals: Vec<TokenStream> = (interface.signals.iter())
        .map(|one| types.received(&one.name, &format!("The value of the signal `{}`.", one.name), &one.ty))
        .collect();
    let signals = enumerate("Signal", "signal", &interface.signals, &signals);
    let answers: Vec<TokenStream> = (interface.answers.iter())
        .map(|one| types.received(&format!("{} answer", one.name), &format!("The answer to `{}`.", one.name), &one.ty))
        .collect();
    let answers = enumerate("Answer", "answer to", &interface.answers, &answers);
    quote!(#signals #answers)
}

/// Expands an enum with the values of what a run can receive.
fn enumerate(name: &str, what: &str, all: &[TypedSignal], values: &[TokenStream]) -> TokenStream {
    if all.is_empty() {
        return TokenStream::new();
    }
    let doc = docs(match name {
        "Signal" => "The signals that a run can receive, each with its value.",
        _ => "The answers to the interrupts of the graph, each by the name of its node.",
    });
    let (variants, names) = (variants(all), all.iter().map(|one| &one.name));
    let of_variants = all.iter().map(|one| match &one.description {
        Some(description) => docs(description),
        None => docs(&format!("The {what} `{}`.", one.name)),
    });
    let (name, named) = (format_ident!("{name}"), format_ident!("Named{name}"));
    quote! {
        #doc
        #[derive(Debug, Clone, PartialEq)]
        #[allow(clippy::allow_attributes, clippy::large_enum_variant, reason = "the graph decides how large they are")]
        pub enum #name {
            #(#of_variants #variants(#values)),*
        }
        runtime::signals!(#named from #name { #(#variants = #names),* });
    }
}

/// Expands how the machine reads the values that a run receives.
pub(super) fn read(interface: &Interface) -> TokenStream {
    let of_signals = reader("signal", "Signal", &interface.signals);
    let of_answers = reader("answer", "Answer", &interface.answers);
    quote!(#of_signals #of_answers)
}

fn reader(method: &str, name: &str, all: &[TypedSignal]) -> TokenStream {
    if all.is_empty() {
        return TokenStream::new();
    }
    let (method, name) = (format_ident!("{method}"), format_ident!("{name}"));
    quote! {
        fn #method(
            &self,
            name: &str,
            value: ::graph_runtime::Value,
        ) -> Result<::graph_runtime::Value, runtime::Mismatch>
        {
            #name::at(name, value).map(|value| runtime::view(&value).to_plain_value())
        }
    }
}

fn variants(all: &[TypedSignal]) -> Vec<Ident> {
    let mut scope = Scope::new();
    all.iter().map(|one| identifier(&scope.claim(&pascal_text(&one.name)))).collect()
}
