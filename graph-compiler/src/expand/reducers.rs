//! The reducers that are functions of the program: a trait with one typed function each, and the state that calls them.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;

use super::docs::docs;
use super::names::{Scope, method};
use super::types::NamedTypes;
use crate::graph::{Interface, TypedReducer};

/// The names that a module with reducers has besides those of every module.
pub(super) const OWN: [&str; 1] = ["Reducers"];

/// A function of the program that combines the writes to channels, as the generated code calls it.
pub(super) struct ReducerFunction<'g> {
    reducer: &'g TypedReducer,
    function: Ident,
    write: TokenStream,
    value: TokenStream,
}

/// Names the functions, and the types of their values.
pub(super) fn functions<'g>(interface: &'g Interface, types: &mut NamedTypes) -> Vec<ReducerFunction<'g>> {
    let mut names = Scope::new();
    let function = |reducer: &'g TypedReducer| ReducerFunction {
        reducer,
        function: method(&mut names, &reducer.id),
        write: types.rust(&reducer.write, &format!("{} write", reducer.id)),
        value: types.rust(&reducer.value, &reducer.id),
    };
    interface.reducers.iter().map(function).collect()
}

/// Expands the trait that a program implements for the functions, if the graph has some.
pub(super) fn traits(functions: &[ReducerFunction<'_>]) -> TokenStream {
    if functions.is_empty() {
        return TokenStream::new();
    }
    let functions = functions.iter().map(|ReducerFunction { reducer, function, write, value }| {
        let doc = reducer.description.clone().unwrap_or_else(|| format!("Combines writes as `{}`.", reducer.id));
        let doc = docs(&format!("{doc}\n\n`value` is `None` before the first write."));
        quote! {
            #doc
            fn #function(
                value: Option<#value>,
                write: #write,
            ) -> Result<#value, ::graph_runtime::ReducerError>;
        }
    });
    quote! {
        /// The reducers of the graph's channels: functions that combine a write with the value. Implement it for the type that has
        /// the tools.
        ///
        /// They are pure: the same value and write yield the same result, in every run and every process. So they receive no tools.
        /// A reducer may be called more than once for a write. An error or a panic fails the node that wrote.
        pub trait Reducers: 'static {
            #(#functions)*
        }
    }
}

/// Expands the trait, and the code that calls its functions.
pub(super) fn expand(functions: &[ReducerFunction<'_>]) -> TokenStream {
    if functions.is_empty() {
        return TokenStream::new();
    }
    let traits = traits(functions);
    let arms = functions.iter().flat_map(|ReducerFunction { reducer, function, .. }| {
        reducer.keys.iter().map(move |key| {
            let key = Literal::usize_unsuffixed(*key);
            quote!(#key => Some(runtime::reduced(<A as Reducers>::#function, value, write)))
        })
    });
    let fakes = functions.iter().map(|ReducerFunction { function, write, value, .. }| {
        quote! {
            fn #function(
                value: Option<#value>,
                write: #write,
            ) -> Result<#value, ::graph_runtime::ReducerError>
            {
                <R as Reducers>::#function(value, write)
            }
        }
    });
    quote! {
        #traits

        runtime::testing! {
            impl<R: Reducers> Reducers for runtime::Fakes<R> {
                #(#fakes)*
            }
        }

        /// Calls the reducer of a channel.
        fn reduce<A: Reducers>(
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
pub(super) fn state(functions: &[ReducerFunction<'_>]) -> TokenStream {
    match functions {
        [] => quote!(State::new(inputs)?),
        _ => quote!(runtime::Reducing { state: State::new(inputs)?, reduce: reduce::<A> }),
    }
}
