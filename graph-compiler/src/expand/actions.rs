//! The tools: a trait with one typed method each, and the thunks that call them.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::names::Scope;
use super::types::Types;
use super::{docs, method, pascal_case};
use crate::graph::{Outline, Tool};

/// A tool as the generated code knows it.
pub(super) struct ToolCall<'g> {
    tool: &'g Tool,
    method: Ident,
    /// The variant of `Outcome`.
    variant: Ident,
    /// The type of the parameters.
    params: TokenStream,
    /// The fields of the parameters' struct, in the order of the contract; `None` where it is an object of anything.
    fields: Option<Vec<Ident>>,
    result: TokenStream,
}

/// Names the tools and defines the types of their parameters and results.
pub(super) fn tools<'g>(outline: &'g Outline, types: &mut Types) -> Vec<ToolCall<'g>> {
    let (mut methods, mut variants) = (Scope::new(), Scope::with(["None".to_owned()]));
    outline
        .tools
        .iter()
        .map(|tool| {
            let (params, fields) = match &tool.params {
                Some(fields) => {
                    let ident = types.claim(&tool.id);
                    types.define(&ident, fields, &format!("The parameters of `{}`.", tool.id), tool.builtin);
                    (quote!(#ident), Some(Types::field_idents(fields)))
                }
                None => (quote!(::graph_runtime::Map<String, ::graph_runtime::Value>), None),
            };
            let result = types.rust(&tool.result, &format!("{} result", tool.id));
            let variant = format_ident!("{}", variants.claim(&pascal_case(&tool.id).to_string()));
            ToolCall { tool, method: method(&mut methods, &tool.id), variant, params, fields, result }
        })
        .collect()
}

/// Expands the trait that a program implements for the tools.
pub(super) fn traits(calls: &[ToolCall<'_>]) -> TokenStream {
    let methods = calls.iter().map(|call| {
        let ToolCall { tool, method, params, result, .. } = call;
        let mut doc = tool.description.clone().unwrap_or_else(|| format!("Performs `{}`.", tool.id));
        doc.push_str(&format!("\n\nNeeds the capability `{}`.", tool.capability));
        let default = if tool.builtin {
            doc.push_str(" The runtime performs it unless the program has its own way.");
            let id = &tool.id;
            quote!({ runtime::builtin(#id, call, params) })
        } else {
            quote!(;)
        };
        let doc = docs(&doc);
        quote! {
            #doc
            fn #method(
                &self,
                call: &::graph_runtime::Call,
                params: #params,
            ) -> impl ::std::future::Future<Output = Result<#result, ::graph_runtime::ActionError>> + Send
            #default
        }
    });
    // A graph that calls nothing but built-in tools, or nothing at all, needs nothing of the program.
    let builtins =
        calls.iter().all(|call| call.tool.builtin).then(|| quote!(impl Actions for ::graph_runtime::Builtins {}));
    quote! {
        /// The tools that the graph calls. What is missing or mistyped is an error of the program that implements it.
        pub trait Actions: Send + Sync + 'static {
            #(#methods)*
        }
        #builtins
    }
}

/// Expands the trait, and what calls its methods.
pub(super) fn expand(calls: &[ToolCall<'_>]) -> TokenStream {
    let traits = traits(calls);
    if calls.is_empty() {
        return traits;
    }
    let variants = calls.iter().map(|ToolCall { variant, result, .. }| quote!(#variant(#result)));
    let views = calls.iter().map(|ToolCall { variant, .. }| quote!(Outcome::#variant(result) => runtime::view(result)));
    let thunks = (0_u16..).zip(calls).map(|(index, call)| thunk(index, call));
    let restores = (0_u16..).zip(calls).map(|(index, ToolCall { variant, .. })| {
        let index = Literal::u16_unsuffixed(index);
        quote! {
            #index => {
                self.outcome = Outcome::#variant(runtime::from_value(value)?);
                Ok(())
            }
        }
    });
    quote! {
        #traits

        /// What the tool that was called last returned.
        enum Outcome {
            None,
            #(#variants),*
        }

        /// Calls the tools.
        struct Calls<A> {
            actions: runtime::Arc<A>,
            outcome: Outcome,
        }

        impl<A: Actions> runtime::Lane for Calls<A> {
            fn call<'a>(
                &'a mut self,
                tool: u16,
                arguments: &mut runtime::Arguments,
                call: &'a ::graph_runtime::Call,
            ) -> Result<runtime::Calling<'a>, runtime::Mismatch> {
                match tool {
                    #(#thunks)*
                    _ => runtime::no_such_tool(tool),
                }
            }

            fn outcome(&self) -> runtime::View<'_> {
                match &self.outcome {
                    Outcome::None => runtime::View::Null,
                    #(#views),*
                }
            }

            fn restore(&mut self, tool: u16, value: ::graph_runtime::Value) -> Result<(), runtime::Mismatch> {
                match tool {
                    #(#restores)*
                    _ => runtime::no_such_tool(tool),
                }
            }
        }
    }
}

fn thunk(index: u16, call: &ToolCall<'_>) -> TokenStream {
    let ToolCall { tool, method, variant, params, fields, .. } = call;
    let take = match (fields, &tool.params) {
        (Some(idents), Some(fields)) => {
            let names = fields.iter().map(|field| &field.name);
            quote!(#params { #(#idents: arguments.take(#names)),* })
        }
        _ => quote!(arguments.take("")),
    };
    let index = Literal::u16_unsuffixed(index);
    quote! {
        #index => {
            let params = #take;
            if let Some(wrong) = arguments.wrong() {
                return Err(wrong);
            }
            Ok(Box::pin(async move {
                self.outcome = Outcome::#variant(self.actions.#method(call, params).await?);
                Ok(())
            }))
        }
    }
}
