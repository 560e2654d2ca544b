//! The reducers that are functions of the program: the state that calls them.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::tools::{ContractModule, ToolsModule};
use crate::graph::Interface;

/// Expands the function that calls the reducer of a channel, if the graph has some.
pub(super) fn expand(interface: &Interface, tools: &ToolsModule) -> TokenStream {
    if interface.reducers.is_empty() {
        return TokenStream::new();
    }
    let arms = interface.reducers.iter().flat_map(|reducer| {
        let ContractModule { name, method, .. } = tools.contract(&reducer.id);
        reducer.keys.iter().map(move |key| {
            let key = Literal::usize_unsuffixed(*key);
            quote!(#key => Some(runtime::reduced(<A as tools::#name::Reducer>::#method, value, write)))
        })
    });
    quote! {
        /// Calls the reducer of a channel.
        fn reduce<A: Actions>(
            key: usize,
            value: ::graph_runtime::Value,
            write: ::graph_runtime::Value,
        ) -> Option<Result<::graph_runtime::Value, ::graph_runtime::ReducerError>> {
            match key {
                #(#arms,)*
                _ => None,
            }
        }
    }
}

/// Expands the state of a run that is about to begin.
pub(super) fn state(interface: &Interface) -> TokenStream {
    match interface.reducers.as_slice() {
        [] => quote!(State::new(inputs)?),
        _ => quote!(runtime::Reducing { state: State::new(inputs)?, reduce: reduce::<A> }),
    }
}
