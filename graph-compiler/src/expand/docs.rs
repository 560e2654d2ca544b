//! Doc comments of generated code.

use proc_macro2::TokenStream;
use quote::quote;

/// Writes a text as the doc comment of the next item.
pub(super) fn docs(text: &str) -> TokenStream {
    let lines = text.lines().map(|line| if line.is_empty() { String::new() } else { format!(" {line}") });
    quote!(#(#[doc = #lines])*)
}
