//! The contracts of tools and reducers: for each a module with its types and the trait that a program implements, once for all
//! graphs that have the contract.

use std::collections::BTreeMap;

use graph_model::digest::Digest;
use graph_model::program::Executor;
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::PRELUDE;
use super::docs::docs;
use super::names::{Scope, identifier, snake_case, snake_text};
use super::types::NamedTypes;
use crate::graph::{Interface, TypedReducer, TypedTool};
use crate::types::TypeKind;

/// The types that the module of a contract has, and its trait.
const OWN: [&str; 6] = ["Tool", "Params", "Output", "Reducer", "Value", "Write"];
/// How many of the graphs that call a tool the error of a missing one names.
const CALLERS: usize = 3;

/// The module `tools`, with a module for each contract of one or more graphs.
#[derive(Default)]
pub struct ToolsModule {
    by_id: BTreeMap<String, ContractModule>,
}

/// The module of a contract.
pub(super) struct ContractModule {
    /// Its name.
    pub(super) name: Ident,
    /// The name of the method. It is the same whatever other contracts there are, as the rest of the module.
    pub(super) method: Ident,
    /// The fields of the parameters' struct, in the order of the contract; `None` if the parameters are an untyped object.
    pub(super) fields: Option<Vec<Ident>>,
    /// The types that it defines, each with its name in the module.
    pub(super) types: Vec<(TypeKind, TokenStream)>,
    /// The digest of what the contract means for the program. Contracts that share it share their module.
    digest: Ident,
    tokens: TokenStream,
}

/// The names that occur in the module of a contract.
struct Names<'n> {
    module: &'n Ident,
    method: Ident,
    /// The ids of the graphs that have the contract.
    callers: &'n [&'n str],
}

#[derive(Clone, Copy)]
enum ToolOrReducer<'g> {
    Tool(&'g TypedTool),
    Reducer(&'g TypedReducer),
}

/// Returns the tools of a graph that have a contract, or would have one, and that are no graphs and items.
pub(super) fn with_contracts(interface: &Interface) -> impl Iterator<Item = &TypedTool> {
    interface.tools.iter().filter(|tool| tool.by == Executor::Program && !tool.id.is_empty())
}

impl ToolsModule {
    /// Expands the contracts of graphs, and those of `more` tools.
    pub fn of<'g>(
        interfaces: impl IntoIterator<Item = &'g Interface>,
        more: impl IntoIterator<Item = &'g TypedTool>,
    ) -> Self {
        let mut contracts: BTreeMap<&str, (ToolOrReducer<'g>, Vec<&str>)> = BTreeMap::new();
        for interface in interfaces {
            let tools = with_contracts(interface).map(|tool| (tool.id.as_str(), ToolOrReducer::Tool(tool)));
            let reducers = interface.reducers.iter().map(|one| (one.id.as_str(), ToolOrReducer::Reducer(one)));
            for (id, contract) in tools.chain(reducers) {
                contracts.entry(id).or_insert((contract, Vec::new())).1.push(&interface.id);
            }
        }
        for tool in more {
            contracts.entry(&tool.id).or_insert((ToolOrReducer::Tool(tool), Vec::new()));
        }
        let mut names = names(contracts.keys().copied());
        let module = |(id, (contract, callers)): (&str, (ToolOrReducer<'_>, Vec<&str>))| {
            let name = names.remove(id).expect("each contract has a name");
            (id.to_owned(), ContractModule::of(contract, name, &callers))
        };
        Self { by_id: contracts.into_iter().map(module).collect() }
    }

    pub(super) fn contract(&self, id: &str) -> &ContractModule {
        &self.by_id[id]
    }

    /// Returns the types of the contracts of a graph, with their paths.
    pub(super) fn types_of(&self, interface: &Interface) -> Vec<(TypeKind, TokenStream)> {
        let ids = with_contracts(interface).map(|tool| &tool.id).chain(interface.reducers.iter().map(|one| &one.id));
        let contracts = ids.map(|id| self.contract(id));
        let types = contracts.flat_map(|ContractModule { name, types, .. }| {
            types.iter().map(move |(kind, ty)| (kind.clone(), quote!(tools::#name::#ty)))
        });
        types.collect()
    }

    /// Expands the module; nothing if there are no contracts. Contracts that are equal in `reused`, which is the path of another
    /// such module, are taken from there.
    pub fn expand(&self, reused: Option<&TokenStream>) -> TokenStream {
        if self.by_id.is_empty() {
            return TokenStream::new();
        }
        let contracts = self.by_id.values().map(|ContractModule { name, digest, tokens, .. }| match reused {
            Some(reused) => quote!(#reused::contract! { #digest [#reused] #name { #tokens } }),
            None => tokens.clone(),
        });
        let arms = self.by_id.values().map(|ContractModule { name, digest, .. }| {
            quote! {
                (#digest [$($tools:tt)*] $name:ident $own:tt) => {
                    #[doc(inline)]
                    pub use $($tools)*::#name as $name;
                };
            }
        });
        quote! {
            /// The contracts of the tools and reducers that the graphs call: for each its types, and the trait that a program
            /// implements.
            #[allow(
                clippy::allow_attributes,
                clippy::all,
                clippy::nursery,
                clippy::pedantic,
                clippy::restriction,
                missing_copy_implementations,
                unreachable_pub,
                unused_imports,
                unused_macros,
                unused_qualifications,
                reason = "generated code"
            )]
            pub mod tools {
                #(#contracts)*

                /// Defines the module of a contract, unless a contract of this module has its digest and is used instead.
                macro_rules! contract {
                    #(#arms)*
                    ($digest:ident [$($tools:tt)*] $name:ident { $($own:tt)* }) => {
                        $($own)*
                    };
                }
                pub(crate) use contract;
            }
        }
    }
}

/// Names the modules of contracts. Where several ids would have one name, each gets a part of its digest, so that no name passes
/// from one contract to another when a contract is added.
fn names<'i>(ids: impl Iterator<Item = &'i str> + Clone) -> BTreeMap<&'i str, Ident> {
    let mut sharing: BTreeMap<String, usize> = BTreeMap::new();
    ids.clone().for_each(|id| *sharing.entry(snake_text(id)).or_default() += 1);
    let mut scope = Scope::new();
    let name = |id| {
        let name = snake_text(id);
        let name = if sharing[&name] == 1 { name } else { snake_text(&format!("{id} {:.4}", Digest::of(id).to_hex())) };
        (id, identifier(&scope.claim(&name)))
    };
    ids.map(name).collect()
}

impl ContractModule {
    fn of(contract: ToolOrReducer<'_>, name: Ident, callers: &[&str]) -> Self {
        let taken = OWN.into_iter().chain(PRELUDE).map(str::to_owned);
        let mut types = NamedTypes::new(Scope::with(taken), Vec::new());
        let (id, fields, digest) = match contract {
            ToolOrReducer::Tool(tool) => {
                (&tool.id, tool.params.as_deref().map(NamedTypes::field_idents), tool.contract_digest())
            }
            ToolOrReducer::Reducer(reducer) => (&reducer.id, None, reducer.contract_digest()),
        };
        let names = Names { module: &name, method: snake_case(id), callers };
        let content = match contract {
            ToolOrReducer::Tool(tool) => of_tool(tool, &names, &mut types),
            ToolOrReducer::Reducer(reducer) => of_reducer(reducer, &names, &mut types),
        };
        let method = names.method;
        let doc = docs(&format!("The contract of `{id}`."));
        let definitions = types.tokens();
        let tokens = quote! {
            #doc
            pub mod #name {
                use ::graph_runtime::__private as runtime;

                #definitions
                #content
            }
        };
        let digest = format_ident!("contract_{:.32}", digest.to_hex());
        Self { name, method, fields, types: types.known(), digest, tokens }
    }
}

/// Expands the types of a tool, its trait unless the runtime performs it, and its name for tests.
fn of_tool(tool: &TypedTool, names: &Names<'_>, types: &mut NamedTypes) -> TokenStream {
    let Names { module, method, .. } = names;
    let TypedTool { id, params, result, builtin, .. } = tool;
    let doc_of_params = format!("The parameters of `{id}`.");
    let untyped = match params {
        Some(fields) => {
            types.define(&identifier("Params"), fields, &doc_of_params, *builtin);
            TokenStream::new()
        }
        None => {
            let doc = docs(&doc_of_params);
            quote!(#doc pub type Params = ::graph_runtime::Map<String, ::graph_runtime::Value>;)
        }
    };
    types.whole("Output", result, &format!("The result of `{id}`."));
    let doc_of_fake = docs(&format!("`{id}`, to give it a script in tests: see `testing` of `graph-runtime`."));
    let fake = quote! {
        #doc_of_fake
        pub const FAKE: runtime::FakeTool<Params, Output> = runtime::FakeTool::new(#id);
    };
    if *builtin {
        return quote!(#untyped runtime::testing! { #fake });
    }
    let mut doc = tool.description.clone().unwrap_or_else(|| format!("Performs `{id}`."));
    if let Some(capability) = &tool.capability {
        doc.push_str(&format!("\n\nNeeds the capability `{capability}`."));
    }
    let doc = docs(&doc);
    let signature = quote! {
        fn #method(
            &self,
            call: &::graph_runtime::Call,
            params: Params,
        ) -> impl ::std::future::Future<Output = Result<Output, ::graph_runtime::ActionError>> + Send
    };
    let written = format!(
        "implement it: `impl tools::{module}::Tool for {{Self}} {{{{ async fn {method}(&self, call: &Call, params: {module}::Params) -> \
         Result<{module}::Output, ActionError> }}}}`"
    );
    let has_contract = params.is_some() || tool.typed;
    let missing = missing("the tool", id, has_contract, names.callers, &written);
    quote! {
        #untyped

        /// Performs the tool. Implement it for a type that owns what its tools need; for tools that are a `static`, it may be a
        /// `&'static` reference.
        #missing
        pub trait Tool: Send + Sync + 'static {
            #doc
            #signature;
        }

        runtime::testing! {
            #fake

            impl<R: 'static> Tool for runtime::Fakes<R> {
                #signature
                {
                    runtime::fake(self, call, params)
                }
            }
        }
    }
}

/// Expands the types of a reducer, and its trait.
fn of_reducer(reducer: &TypedReducer, names: &Names<'_>, types: &mut NamedTypes) -> TokenStream {
    let Names { module, method, .. } = names;
    let TypedReducer { id, description, write, value, .. } = reducer;
    types.whole("Value", value, &format!("The value of a channel that `{id}` combines."));
    types.whole("Write", write, &format!("A write that `{id}` combines."));
    let doc = description.clone().unwrap_or_else(|| format!("Combines writes as `{id}`."));
    let doc = docs(&format!("{doc}\n\n`value` is `None` before the first write."));
    let signature =
        quote!(fn #method(value: Option<Value>, write: Write) -> Result<Value, ::graph_runtime::ReducerError>);
    let written = format!(
        "implement it: `impl tools::{module}::Reducer for {{Self}} {{{{ fn {method}(value: Option<{module}::Value>, write: {module}::Write) \
         -> Result<{module}::Value, ReducerError> }}}}`"
    );
    let missing = missing("the reducer", id, true, names.callers, &written);
    quote! {
        /// Combines a write with the value of a channel. Implement it for the type that has the tools.
        ///
        /// It is pure: the same value and write yield the same result, in every run and every process. So it receives no tools.
        /// It may be called more than once for a write. An error or a panic fails the node that wrote.
        #missing
        pub trait Reducer: 'static {
            #doc
            #signature;
        }

        runtime::testing! {
            impl<R: Reducer> Reducer for runtime::Fakes<R> {
                #signature {
                    <R as Reducer>::#method(value, write)
                }
            }
        }
    }
}

/// Expands what rustc says of a type that lacks a tool or a reducer.
fn missing(what: &str, id: &str, has_contract: bool, callers: &[&str], written: &str) -> TokenStream {
    let mut by: Vec<String> = callers.iter().take(CALLERS).map(|caller| format!("`{caller}`")).collect();
    if callers.len() > CALLERS {
        by.push(format!("{} more", callers.len() - CALLERS));
    }
    let message = format!("`{{Self}}` does not have {what} `{id}`");
    let label = format!("{what} `{id}` is missing");
    let contract =
        if has_contract { format!("its contract is `tools/{id}.yaml`") } else { "it has no contract".to_owned() };
    let by = format!("{contract}; graphs with it: {}", by.join(", "));
    quote!(#[diagnostic::on_unimplemented(message = #message, label = #label, note = #by, note = #written)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_passes_from_one_contract_to_another() {
        let named = |ids: &[&str]| -> Vec<String> {
            let mut ids = ids.to_vec();
            ids.sort_unstable();
            names(ids.into_iter()).into_iter().map(|(id, name)| format!("{id} {name}")).collect()
        };
        assert_eq!(named(&["a/b_c", "shop/charge-card"]), ["a/b_c a_b_c", "shop/charge-card shop_charge_card"]);
        assert_eq!(named(&["a/b_c", "a/b/c"]), ["a/b/c a_b_c_d76a", "a/b_c a_b_c_ab14"]);
    }
}
