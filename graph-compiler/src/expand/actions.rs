//! The tools: a trait with one typed method each, and the thunks that call them.

use graph_model::program::Executor;
use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::docs::docs;
use super::names::{Scope, identifier, idents, method, pascal_case};
use super::types::{NamedTypes, is_needed};
use crate::graph::{Interface, TypedTool};

/// A tool that the program implements, as the generated code calls it.
pub(super) struct ToolCall<'g> {
    /// Its index among all tools of the graph.
    index: u16,
    tool: &'g TypedTool,
    method: Ident,
    /// The variant of `Outcome`.
    variant: Ident,
    /// The type of the parameters.
    params: TokenStream,
    /// The fields of the parameters' struct, in the order of the contract; `None` if the parameters are an untyped object.
    fields: Option<Vec<Ident>>,
    result: TokenStream,
}

/// Names the tools that the program implements, and defines the types of their parameters and results.
pub(super) fn tools<'g>(interface: &'g Interface, types: &mut NamedTypes) -> Vec<ToolCall<'g>> {
    let own = || (0_u16..).zip(&interface.tools).filter(|(_, tool)| tool.by == Executor::Program);
    let (mut methods, mut variants) = (Scope::new(), Scope::with(["None".to_owned()]));
    // The method for tools with computed ids has the same name in every graph.
    let dispatch = own().find(|(_, tool)| tool.id.is_empty()).map(|_| identifier(&methods.claim("dispatch")));
    own()
        .map(|(index, tool)| {
            let name = if tool.id.is_empty() { "dispatch" } else { &tool.id };
            let (params, fields) = match &tool.params {
                Some(fields) => {
                    let ident = types.claim(&tool.id);
                    types.define(&ident, fields, &format!("The parameters of `{}`.", tool.id), tool.builtin);
                    (quote!(#ident), Some(NamedTypes::field_idents(fields)))
                }
                None => (quote!(::graph_runtime::Map<String, ::graph_runtime::Value>), None),
            };
            let result = types.result(name, &tool.result);
            let variant = format_ident!("{}", variants.claim(&pascal_case(name).to_string()));
            let method = match &dispatch {
                Some(dispatch) if tool.id.is_empty() => dispatch.clone(),
                _ => method(&mut methods, name),
            };
            ToolCall { index, tool, method, variant, params, fields, result }
        })
        .collect()
}

/// Expands the trait that a program implements for the tools.
pub(super) fn traits(interface: &Interface, calls: &[ToolCall<'_>]) -> TokenStream {
    let methods = calls.iter().map(|call| {
        let ToolCall { tool, method, params, result, .. } = call;
        let mut doc = tool.description.clone().unwrap_or_else(|| match tool.id.as_str() {
            "" => "Performs the tools whose ids the graph computes: `call.tool()` tells which.".to_owned(),
            id => format!("Performs `{id}`."),
        });
        if let Some(capability) = &tool.capability {
            doc.push_str(&format!("\n\nNeeds the capability `{capability}`."));
        }
        let default = if tool.builtin {
            doc.push_str(" The runtime performs it unless the program has its own way.");
            match (&tool.subprocess, &tool.mcp) {
                (Some(subprocess), _) => {
                    let subprocess = subprocess.to_json();
                    quote!({ runtime::subprocess(#subprocess, call, params) })
                }
                (None, Some(mcp)) => {
                    let mcp = mcp.to_json();
                    quote!({ runtime::mcp(#mcp, call, params) })
                }
                (None, None) => {
                    let id = &tool.id;
                    quote!({ runtime::builtin(#id, call, params) })
                }
            }
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
    // A nested graph's tools are needed too. Graphs in a circle cannot be supertraits of each other: see `bounds`.
    let inner = interface.inner.iter().filter(|inner| !inner.returns).map(|inner| {
        let module = identifier(&inner.module);
        quote!(+ super::#module::Actions)
    });
    // A graph that calls only built-in tools, or none, needs nothing of the program.
    let builtins = interface.is_builtin().then(|| quote!(impl Actions for ::graph_runtime::Builtins {}));
    let reducers = (!interface.reducers.is_empty()).then(|| quote!(+ Reducers));
    quote! {
        /// The tools that the graph calls. A missing or mistyped one is an error of the program that implements it.
        ///
        /// Implement it for a type that owns what the tools need. Runs that share a pool or a client share the tools: `sharing` of
        /// the machine takes an `Arc` of them. For tools that are a `static`, it may be implemented for a `&'static` reference.
        pub trait Actions: Send + Sync + 'static #(#inner)* #reducers {
            #(#methods)*
        }
        #builtins
    }
}

/// Expands the tools for tests: names with the types of each tool, and the implementation of the trait by tools that answer as a test
/// says. The feature `testing` of the runtime takes it into the program.
fn fakes(interface: &Interface, calls: &[ToolCall<'_>]) -> TokenStream {
    let mut names = Scope::new();
    let tools = calls.iter().filter(|call| !call.tool.id.is_empty()).map(|call| {
        let ToolCall { tool, method, params, result, .. } = call;
        let name = identifier(&names.claim(&method.to_string().trim_start_matches("r#").to_uppercase()));
        let (id, doc) = (&tool.id, docs(&format!("`{}`.", tool.id)));
        quote!(#doc pub const #name: runtime::FakeTool<#params, #result> = runtime::FakeTool::new(#id);)
    });
    let methods = calls.iter().map(|ToolCall { method, params, result, .. }| {
        quote! {
            fn #method(
                &self,
                call: &::graph_runtime::Call,
                params: #params,
            ) -> impl ::std::future::Future<Output = Result<#result, ::graph_runtime::ActionError>> + Send
            {
                runtime::fake(self, call, params)
            }
        }
    });
    let inner = interface.inner.iter().filter(|inner| !inner.returns).map(|inner| {
        let module = identifier(&inner.module);
        quote!(runtime::Fakes<R>: super::#module::Actions,)
    });
    let reducers = (!interface.reducers.is_empty()).then(|| quote!(runtime::Fakes<R>: Reducers,));
    quote! {
        runtime::testing! {
            /// The tools of the graph, to give them scripts in tests: see `testing` of `graph-runtime`.
            #[allow(unused_imports, reason = "generated code")]
            pub mod tools {
                use super::*;

                #(#tools)*
            }

            impl<R: 'static> Actions for runtime::Fakes<R>
            where
                #(#inner)*
                #reducers
            {
                #(#methods)*
            }
        }
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

/// Expands the trait, and the code that calls its methods.
pub(super) fn expand(interface: &Interface, calls: &[ToolCall<'_>]) -> TokenStream {
    let (traits, fakes) = (traits(interface, calls), fakes(interface, calls));
    if calls.is_empty() {
        return quote!(#traits #fakes);
    }
    let variants = calls.iter().map(|ToolCall { variant, result, .. }| quote!(#variant(#result)));
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
        #fakes

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
    let ToolCall { index, tool, method, variant, params, fields, .. } = call;
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
            let params = #take;
            if let Some(wrong) = arguments.wrong() {
                return Err(wrong);
            }
            Ok(Box::pin(async move {
                self.outcome = Outcome::#variant(Actions::#method(&*self.actions, call, params).await?);
                Ok(())
            }))
        }
    }
}
