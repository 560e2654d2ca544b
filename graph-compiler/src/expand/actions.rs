//! The tools of a graph: the trait of all of them, and the thunks that call them.

use graph_model::program::Executor;
use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::names::{Scope, identifier, idents, pascal_case};
use super::tools::{ContractModule, ToolsModule};
use super::types::is_needed;
use crate::graph::{Interface, TypedTool};

/// A tool of the program or of the runtime, as the generated code calls it.
pub(super) struct ToolCall<'g> {
    /// Its index among all tools of the graph.
    index: u16,
    tool: &'g TypedTool,
    /// The variant of `Outcome`.
    variant: Ident,
    /// The module of its contract; `None` for the tools whose ids the graph computes.
    contract: Option<&'g ContractModule>,
}

/// Returns the tools that are no graphs and items.
pub(super) fn tools<'g>(interface: &'g Interface, tools: &'g ToolsModule) -> Vec<ToolCall<'g>> {
    let mut variants = Scope::with(["None".to_owned()]);
    let own = (0_u16..).zip(&interface.tools).filter(|(_, tool)| tool.by == Executor::Program);
    own.map(|(index, tool)| {
        let name = if tool.id.is_empty() { "dispatch" } else { &tool.id };
        let variant = format_ident!("{}", variants.claim(&pascal_case(name).to_string()));
        let contract = (!tool.id.is_empty()).then(|| tools.contract(&tool.id));
        ToolCall { index, tool, variant, contract }
    })
    .collect()
}

impl ToolCall<'_> {
    /// Returns the type of the result.
    fn output(&self) -> TokenStream {
        match self.contract {
            Some(ContractModule { name, .. }) => quote!(tools::#name::Output),
            None => quote!(::graph_runtime::Value),
        }
    }

    /// Returns the type of the parameters.
    fn params(&self) -> TokenStream {
        match self.contract {
            Some(ContractModule { name, .. }) => quote!(tools::#name::Params),
            None => quote!(::graph_runtime::Map<String, ::graph_runtime::Value>),
        }
    }

    /// Returns the trait of the type that has the tools.
    fn bound(&self) -> TokenStream {
        match self.contract {
            None => quote!(::graph_runtime::Dispatch),
            Some(_) if self.tool.builtin => quote!(::graph_runtime::RuntimeTools),
            Some(ContractModule { name, .. }) => quote!(tools::#name::Tool),
        }
    }

    /// Returns the call of the tool with `params`, which returns a future.
    fn perform(&self) -> TokenStream {
        let bound = self.bound();
        let method = match self.contract {
            None => format_ident!("dispatch"),
            Some(_) if self.tool.builtin => {
                let by_runtime = self.by_runtime();
                return quote! {
                    <A as #bound>::perform(
                        &*self.actions,
                        call,
                        ::graph_runtime::RuntimeCall::new(params, |call, params| Box::pin(#by_runtime)),
                    )
                };
            }
            Some(ContractModule { method, .. }) => method.clone(),
        };
        quote!(<A as #bound>::#method(&*self.actions, call, params))
    }

    /// Returns the call by which the runtime performs the tool.
    fn by_runtime(&self) -> TokenStream {
        let TypedTool { id, subprocess, mcp, .. } = self.tool;
        match (subprocess, mcp) {
            (Some(subprocess), _) => {
                let subprocess = subprocess.to_json();
                quote!(runtime::subprocess(#subprocess, call, params))
            }
            (None, Some(mcp)) => {
                let mcp = mcp.to_json();
                quote!(runtime::mcp(#mcp, call, params))
            }
            (None, None) => quote!(runtime::builtin(#id, call, params)),
        }
    }
}

/// Expands the trait of all tools and reducers of the graph, which follows from those of their contracts.
fn traits(interface: &Interface, calls: &[ToolCall<'_>], tools: &ToolsModule) -> TokenStream {
    let mut bounds: Vec<TokenStream> = Vec::new();
    for bound in calls.iter().map(ToolCall::bound) {
        // All tools that the runtime performs have one trait.
        if bounds.iter().all(|known| known.to_string() != bound.to_string()) {
            bounds.push(bound);
        }
    }
    bounds.extend(interface.reducers.iter().map(|reducer| {
        let name = &tools.contract(&reducer.id).name;
        quote!(tools::#name::Reducer)
    }));
    // A nested graph's tools are needed too. Graphs in a circle cannot be supertraits of each other: see `bounds`.
    bounds.extend(interface.inner.iter().filter(|inner| !inner.returns).map(|inner| {
        let module = identifier(&inner.module);
        quote!(super::#module::Actions)
    }));
    quote! {
        /// The tools and reducers that the graph calls, with those of the graphs inside it. A type has them if it implements the trait
        /// of each contract, in `tools`.
        ///
        /// Runs that share a pool or a client share the tools: `sharing` of the machine takes an `Arc` of them.
        pub trait Actions: Send + Sync + 'static #(+ #bounds)* {}

        impl<A: Send + Sync + 'static #(+ #bounds)*> Actions for A {}
    }
}

/// Returns the trait bounds of the machine's tools, `Actions` first. The traits of graphs that form a circle with this
/// one are listed here, since they cannot be supertraits of each other.
pub(super) fn bounds(interface: &Interface, module: &Ident) -> TokenStream {
    let circle = interface.inner.iter().filter(|inner| inner.returns && *module != inner.module).map(|inner| {
        let module = identifier(&inner.module);
        quote!(+ super::#module::Actions)
    });
    quote!(Actions #(#circle)*)
}

/// Expands the method by which the machine finds the graphs that it nests; empty if it nests no graphs.
pub(super) fn nested(interface: &Interface) -> TokenStream {
    let arms: Vec<_> = (0_u16..)
        .zip(&interface.tools)
        .filter_map(|(index, tool)| {
            let (module, machine) = idents(tool.module.as_ref()?);
            let index = Literal::u16_unsuffixed(index);
            Some(quote! {
                #index => Some(runtime::Arc::new(super::#module::#machine::sharing(runtime::Arc::clone(&self.actions))))
            })
        })
        .collect();
    if arms.is_empty() {
        return TokenStream::new();
    }
    quote! {
        fn nested(&self, tool: u16) -> Option<runtime::Arc<dyn ::graph_runtime::Machine>> {
            match tool {
                #(#arms,)*
                _ => None,
            }
        }
    }
}

/// Expands the trait, and the code that calls the tools.
pub(super) fn expand(interface: &Interface, calls: &[ToolCall<'_>], tools: &ToolsModule) -> TokenStream {
    let traits = traits(interface, calls, tools);
    if calls.is_empty() {
        return traits;
    }
    let variants = calls.iter().map(|call| {
        let (variant, output) = (&call.variant, call.output());
        quote!(#variant(#output))
    });
    let views = calls.iter().map(|ToolCall { variant, .. }| quote!(Outcome::#variant(result) => runtime::view(result)));
    let thunks = calls.iter().map(thunk);
    let restores = calls.iter().map(|ToolCall { index, variant, .. }| {
        let index = Literal::u16_unsuffixed(*index);
        quote! {
            #index => {
                self.outcome = Outcome::#variant(runtime::from_value(value)?);
                Ok(())
            }
        }
    });
    quote! {
        #traits

        /// The result of the last call.
        enum Outcome {
            None,
            #(#variants),*
        }

        /// Calls the tools.
        struct Calls<A> {
            actions: runtime::Arc<A>,
            outcome: Outcome,
        }

        impl<A: Actions> runtime::ToolCaller for Calls<A> {
            fn call<'a>(
                &'a mut self,
                tool: u16,
                arguments: &mut runtime::Arguments,
                call: &'a ::graph_runtime::Call,
            ) -> Result<runtime::CallFuture<'a>, runtime::Mismatch> {
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

/// Expands the tool caller of a run. It calls only tools of the program.
pub(super) fn tool_caller(calls: &[ToolCall<'_>]) -> TokenStream {
    match calls {
        [] => quote!(runtime::NoTools),
        _ => quote!(Calls { actions: runtime::Arc::clone(&self.actions), outcome: Outcome::None }),
    }
}

fn thunk(call: &ToolCall<'_>) -> TokenStream {
    let ToolCall { index, tool, variant, contract, .. } = call;
    let (params, perform) = (call.params(), call.perform());
    let fields = contract.and_then(|contract| contract.fields.as_ref());
    let take = match (fields, &tool.params) {
        (Some(idents), Some(fields)) => {
            let take = fields.iter().map(|field| {
                let name = &field.name;
                if is_needed(field) { quote!(arguments.need(#name)) } else { quote!(arguments.take(#name)) }
            });
            quote!(#params { #(#idents: #take),* })
        }
        _ => quote!(arguments.take("")),
    };
    let index = Literal::u16_unsuffixed(*index);
    quote! {
        #index => {
            let params: #params = #take;
            if let Some(wrong) = arguments.wrong() {
                return Err(wrong);
            }
            Ok(Box::pin(async move {
                self.outcome = Outcome::#variant(#perform.await?);
                Ok(())
            }))
        }
    }
}
