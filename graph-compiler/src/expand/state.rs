//! The state: a struct with one field for each key.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::docs::docs;
use super::names::{Scope, identifier, snake_text};
use super::types::NamedTypes;
use crate::graph::Interface;

/// Expands the state's type and its access by index, in the order of the program's keys.
pub(super) fn expand(interface: &Interface, types: &mut NamedTypes) -> TokenStream {
    let mut scope = Scope::with(["inputs".to_owned()]);
    let idents: Vec<_> = interface.keys.iter().map(|key| identifier(&scope.claim(&snake_text(&key.name)))).collect();
    let rust: Vec<_> = interface.keys.iter().map(|key| types.rust(&key.ty, &key.name)).collect();
    let docs = interface.keys.iter().map(|key| docs(&format!("`{}`; `None` until it is set.", key.name)));
    let names = interface.keys.iter().map(|key| &key.name);
    let indices = (0..interface.keys.len()).map(Literal::usize_unsuffixed);
    quote! {
        /// The state of a run.
        pub struct State {
            /// The run's original inputs.
            pub inputs: Inputs,
            #(#docs pub #idents: Option<#rust>),*
        }
        runtime::cells!(State { #(#indices #idents: #names),* });
    }
}
