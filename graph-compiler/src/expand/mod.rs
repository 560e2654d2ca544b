//! Expansion: from a checked graph to the tokens of a module. It cannot fail, because the checks have rejected every
//! graph for which it could.
//!
//! The generated code consists of data and glue: types, tables, one thunk for each distinct tool. A node adds only a row to a
//! table, so rustc spends microseconds on each. The runtime interprets the rows, for compiled and interpreted graphs alike.

mod actions;
mod docs;
mod names;
mod nodes;
mod output;
mod reducers;
mod signals;
mod state;
mod tools;
mod types;

use graph_model::capability::Capability;
use graph_model::name::GraphId;
use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{format_ident, quote};

use crate::graph::{CheckedGraph, Interface};
use docs::docs;
pub(crate) use names::identifier;
use names::{Scope, idents, snake_text};
pub use tools::ToolsModule;
use types::NamedTypes;

/// The place of the contracts of a graph's tools.
#[derive(Clone, Copy)]
pub enum ToolsPlace<'t> {
    /// The graph's module has them. Those that are equal in the module `reused` are taken from there.
    Inside {
        /// The path of that module.
        reused: Option<&'t TokenStream>,
    },
    /// The graphs of a tree share them.
    Shared {
        /// The module with them.
        tools: &'t ToolsModule,
        /// How many modules further up it is.
        levels: usize,
    },
}

impl ToolsPlace<'_> {
    /// Expands what leads from the module of a graph to the contracts of its tools.
    fn expand(self, interface: &Interface, inside: &ToolsModule) -> TokenStream {
        match self {
            Self::Inside { reused } => inside.expand(reused),
            Self::Shared { levels, .. } => {
                let has_some = tools::with_contracts(interface).next().is_some() || !interface.reducers.is_empty();
                let up = std::iter::repeat_n(format_ident!("super"), levels);
                if has_some { quote!(use #(#up::)*tools;) } else { TokenStream::new() }
            }
        }
    }
}

/// Expands a graph into its module, and an import of its machine next to the module.
///
/// `source` is the graph's file; `files` are the files that it was compiled from, for rustc to watch. Both are relative
/// to the package, so that the same graph becomes the same tokens in a macro and in a build script.
pub fn expand(graph: &CheckedGraph, name: &str, source: &str, files: &[String], tools: ToolsPlace<'_>) -> TokenStream {
    let node = |at: u16| graph.nodes[usize::from(at)].name.clone();
    let contents = Contents {
        doc: doc(graph, source),
        digest: &graph.digest,
        signer: &graph.signer,
        capabilities: graph.capabilities(),
        env: graph.environment(),
        entries: graph.settings.entries.iter().map(|(name, entry)| (name.clone(), node(entry.node))).collect(),
        nodes: nodes::of_graph(graph),
        has_rules: graph.has_rules(),
        program: nodes::program(&graph.ir(source)),
    };
    module(&graph.interface, &contents, name, files, tools)
}

/// Expands the module of a graph with mistakes: it has each name and type of the module that the graph would have, so that the program
/// that uses it does not get errors of its own. Parts that are not known are empty.
pub fn skeleton(interface: &Interface, name: &str, files: &[String], tools: ToolsPlace<'_>) -> TokenStream {
    let contents = Contents {
        doc: "A graph with mistakes.".to_owned(),
        digest: "",
        signer: "",
        capabilities: Vec::new(),
        env: Vec::new(),
        entries: interface.entries.clone(),
        nodes: nodes::of_interface(interface),
        has_rules: false,
        program: nodes::no_program(),
    };
    module(interface, &contents, name, files, tools)
}

/// The content of a module besides the interface of its graph.
struct Contents<'g> {
    doc: String,
    digest: &'g str,
    signer: &'g str,
    capabilities: Vec<&'g str>,
    env: Vec<&'g str>,
    /// The names of the entries, each with the name of its node.
    entries: Vec<(String, String)>,
    nodes: Vec<nodes::NodeText<'g>>,
    /// Whether values are checked for more than their types, which needs a feature of the runtime.
    has_rules: bool,
    program: TokenStream,
}

fn module(
    interface: &Interface,
    contents: &Contents<'_>,
    name: &str,
    files: &[String],
    place: ToolsPlace<'_>,
) -> TokenStream {
    let inside = match place {
        ToolsPlace::Inside { .. } => ToolsModule::of([interface], []),
        ToolsPlace::Shared { .. } => ToolsModule::default(),
    };
    let tools = match place {
        ToolsPlace::Inside { .. } => &inside,
        ToolsPlace::Shared { tools, .. } => tools,
    };
    let module = Module::new(interface, name, tools);
    let contracts = place.expand(interface, &inside);
    let consts = constants(interface, contents);
    let types = module.types();
    let nodes = nodes::expand(&contents.nodes, interface, &contents.program);
    let machine = module.machine(contents.has_rules);
    let watched = watch(files);
    module.wrap(&contents.doc, quote!(#contracts #consts #types #nodes #machine #watched))
}

/// Expands a replacement for the module of a file that cannot be read or verified.
///
/// The two names are imported from an empty module. Rustc reports the failed import and is silent about everything that
/// uses it, so the program has one more error instead of one at each use of the graph's types.
pub fn nothing(name: &str, files: &[String]) -> TokenStream {
    let (module, machine) = idents(name);
    let empty = format_ident!("mistakes_in_{module}");
    let watched = watch(files);
    quote! {
        mod #empty {}
        pub use #empty::{#module, #machine};
        #watched
    }
}

/// Returns the name of the module that a file becomes: its stem as an identifier. If that would hide a crate or a
/// built-in type in the surrounding program, `_graph` is added.
pub fn module_name(stem: &str) -> String {
    names::module(stem).to_string()
}

/// Returns the name of the machine of the module `name`, as [`module_name`] returns it.
pub fn machine_name(name: &str) -> String {
    names::machine(name).to_string()
}

/// Replaces `::graph_runtime` by `runtime` in tokens, for a program in which that crate has another name.
pub fn rename_runtime(tokens: TokenStream, runtime: &TokenStream) -> TokenStream {
    let mut renamed: Vec<TokenTree> = Vec::new();
    for token in tokens {
        let is_colon = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':');
        match token {
            TokenTree::Ident(ident)
                if ident == "graph_runtime"
                    && renamed.iter().rev().take(2).filter(|token| is_colon(token)).count() == 2 =>
            {
                renamed.truncate(renamed.len() - 2);
                renamed.extend(runtime.clone());
            }
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), rename_runtime(group.stream(), runtime));
                inner.set_span(group.span());
                renamed.push(TokenTree::Group(inner));
            }
            other => renamed.push(other),
        }
    }
    renamed.into_iter().collect()
}

/// The types that every module has.
const OWN: [&str; 8] = ["Inputs", "State", "Output", "Node", "Event", "Actions", "Outcome", "Calls"];
/// The names that the module's code uses unqualified, and that no type of the graph may hide.
const PRELUDE: [&str; 17] = [
    "Box",
    "Clone",
    "Copy",
    "Debug",
    "Default",
    "Eq",
    "Err",
    "Hash",
    "None",
    "Ok",
    "Option",
    "PartialEq",
    "Result",
    "Send",
    "Some",
    "String",
    "Vec",
];

struct Module<'g> {
    interface: &'g Interface,
    module: Ident,
    machine: Ident,
    inputs: TokenStream,
    output: TokenStream,
    signals: TokenStream,
    types: NamedTypes,
    calls: Vec<actions::ToolCall<'g>>,
    tools: &'g ToolsModule,
    state: TokenStream,
}

impl<'g> Module<'g> {
    fn new(interface: &'g Interface, name: &str, tools: &'g ToolsModule) -> Self {
        let (module, machine) = idents(name);
        let of_signals = signals::own(interface);
        let taken = OWN.into_iter().chain(PRELUDE).chain(of_signals).map(str::to_owned);
        // A value that a tool returned has the type of its contract, wherever the graph has it.
        let of_contracts = tools.types_of(interface);
        let mut types = NamedTypes::new(Scope::with(taken.chain([machine.to_string()])), of_contracts);
        let inputs = types.named_object("Inputs", interface.inputs.as_deref(), "The inputs of a run.");
        let calls = actions::tools(interface, tools);
        let state = state::expand(interface, &mut types);
        let output = output::expand(interface, &mut types);
        let signals = signals::expand(interface, &mut types);
        Self { interface, module, machine, inputs, output, signals, types, calls, tools, state }
    }

    fn wrap(&self, doc: &str, content: TokenStream) -> TokenStream {
        let Self { module, machine, .. } = self;
        let doc = docs(doc);
        // The graph's author cannot act on lints about this code. The tools that a program implements are outside of it.
        quote! {
            #doc
            #[allow(
                clippy::allow_attributes,
                clippy::all,
                clippy::nursery,
                clippy::pedantic,
                clippy::restriction,
                missing_copy_implementations,
                unreachable_pub,
                unused_qualifications,
                reason = "generated code"
            )]
            pub mod #module {
                use ::graph_runtime::__private as runtime;

                #content
            }
            #[allow(clippy::allow_attributes, clippy::pub_use, unreachable_pub, unused_imports, reason = "generated code")]
            pub use #module::#machine;
        }
    }

    fn types(&self) -> TokenStream {
        let (inputs, output, signals) = (&self.inputs, &self.output, &self.signals);
        let (shared, state) = (self.types.tokens(), &self.state);
        quote!(#inputs #output #signals #shared #state)
    }

    fn machine(&self, has_rules: bool) -> TokenStream {
        let machine = &self.machine;
        let actions = actions::expand(self.interface, &self.calls, self.tools);
        let (head, bounds) = (self.head(has_rules), self.bounds());
        let (tool_caller, nested) = (actions::tool_caller(&self.calls), actions::nested(self.interface));
        let (reducers, state) = (reducers::expand(self.interface, self.tools), reducers::state(self.interface));
        let signals = signals::read(self.interface);
        quote! {
            #reducers
            #actions
            #head

            impl<A: #bounds> runtime::TypedGraph for #machine<A> {
                type Node = Node;
            }

            impl<A: #bounds> ::graph_runtime::Machine for #machine<A> {
                fn graph(&self) -> &runtime::CompiledGraph {
                    static GRAPH: runtime::LazyGraph = runtime::LazyGraph::new(|| runtime::CompiledGraph::compiled(&PROGRAM));
                    &GRAPH
                }

                fn open(
                    &self,
                    inputs: ::graph_runtime::Value,
                ) -> Result<Box<dyn runtime::StateFields>, runtime::Mismatch>
                {
                    Ok(Box::new(#state))
                }

                fn tool_caller(&self) -> Box<dyn runtime::ToolCaller> {
                    Box::new(#tool_caller)
                }

                fn check_output(
                    &self,
                    node: &str,
                    output: &::graph_runtime::Value,
                ) -> Result<(), runtime::Mismatch>
                {
                    ::graph_runtime::Graph::output(self, node, output.clone()).map(drop)
                }

                #signals

                #nested
            }
        }
    }

    fn bounds(&self) -> TokenStream {
        actions::bounds(self.interface, &self.module)
    }

    /// The machine's type and constructor.
    fn head(&self, has_rules: bool) -> TokenStream {
        let (machine, bounds, read) = (&self.machine, self.bounds(), output::read(self.interface));
        let name = machine.to_string();
        let doc = docs(&format!("The graph `{}`, ready to run with the tools of `A`.", self.interface.id));
        // Only a program that uses the graph needs what checks its rules.
        let rules = has_rules.then(|| quote!(runtime::rules!();));
        quote! {
            #doc
            pub struct #machine<A> {
                actions: runtime::Arc<A>,
            }

            // Whether `A` has the tools is asked where a run is started, and not here too: a missing one is one error.
            impl<A> #machine<A> {
                /// Binds the graph to the tools that it calls. Where several runs share them, as a pool of connections: see
                /// [`sharing`](Self::sharing).
                pub fn new(actions: A) -> Self {
                    Self::sharing(runtime::Arc::new(actions))
                }

                /// Binds the graph to tools that others use too: those of other runs, or the rest of the program.
                pub fn sharing(actions: runtime::Arc<A>) -> Self {
                    #rules
                    Self { actions }
                }
            }

            impl<A> ::std::fmt::Debug for #machine<A> {
                fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                    f.debug_struct(#name).finish_non_exhaustive()
                }
            }

            impl<A> Clone for #machine<A> {
                fn clone(&self) -> Self {
                    Self { actions: runtime::Arc::clone(&self.actions) }
                }
            }

            impl<A: #bounds> ::graph_runtime::Graph for #machine<A> {
                type Inputs = Inputs;
                type Output = Output;

                #read
            }
        }
    }
}

fn doc(graph: &CheckedGraph, source: &str) -> String {
    let interface = &graph.interface;
    let description = interface.description.as_deref().unwrap_or("A state graph.").trim();
    let (signer, owner) = (&graph.signer, &graph.owner);
    format!(
        "{description}\n\nThe graph `{}`, compiled from `{source}`, which `{signer}` signed ({owner}).",
        interface.id
    )
}

fn constants(interface: &Interface, contents: &Contents<'_>) -> TokenStream {
    let Contents { digest, signer, capabilities, env, .. } = contents;
    let Interface { id, version, .. } = interface;
    let signals = signal_capabilities(interface);
    let mut scope = Scope::new();
    let entries = contents.entries.iter().map(|(entry, node)| {
        let name = snake_text(entry);
        // The prefix makes a name of any word, also of a keyword.
        let words = name.strip_prefix("r#").unwrap_or(&name).to_uppercase();
        let name = identifier(&scope.claim(&format!("ENTRY_{words}")));
        let docs = docs(&format!("The entry `{entry}`, at node `{node}`, for the `entry` of a run's options."));
        quote! {
            #docs
            pub const #name: &str = #entry;
        }
    });
    let entries: Vec<TokenStream> = entries.collect();
    quote! {
        /// The graph's id: category and file name.
        pub const ID: &str = #id;
        /// The version that its author gave it.
        pub const VERSION: &str = #version;
        /// The SHA-256 that its signature covers.
        pub const DIGEST: &str = #digest;
        /// The fingerprint of the key that signed it.
        pub const SIGNER: &str = #signer;
        /// The capabilities that a run needs, with the graphs inside it: patterns where ids are known only at each call.
        pub const CAPABILITIES: &[&str] = &[#(#capabilities),*];
        /// The environment variables that must be set, those of the graphs inside it too.
        pub const ENV: &[&str] = &[#(#env),*];
        #signals
        #(#entries)*
    }
}

/// Expands the capabilities to send signals to runs of the graph, if it has any.
fn signal_capabilities(interface: &Interface) -> Option<TokenStream> {
    let id = GraphId::new(interface.id.as_str()).ok().filter(|_| !interface.signals.is_empty())?;
    let all = interface.signals.iter().map(|signal| Capability::signal(&id, &signal.name).to_string());
    Some(quote! {
        /// The capabilities that a runtime needs to send the signals of the graph to its runs.
        pub const SIGNAL_CAPABILITIES: &[&str] = &[#(#all),*];
    })
}

/// Makes rustc compile again when one of the files changes. The bytes do not reach the program.
fn watch(files: &[String]) -> TokenStream {
    let paths = files.iter().map(|file| {
        if std::path::Path::new(file).is_absolute() {
            quote!(#file)
        } else {
            let file = format!("/{file}");
            quote!(::std::concat!(::std::env!("CARGO_MANIFEST_DIR"), #file))
        }
    });
    quote!(#(const _: &[u8] = ::std::include_bytes!(#paths);)*)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_is_renamed_wherever_a_path_begins_with_it() {
        let tokens = quote! {
            use ::graph_runtime::__private as runtime;
            struct A { graph_runtime: ::graph_runtime::Value, b: Vec<::graph_runtime::Value> }
            fn f(graph_runtime: &::graph_runtime::Call) -> impl Sized + ::graph_runtime::Graph {}
        };
        let renamed = rename_runtime(tokens, &quote!(::sg)).to_string();
        let expected = quote! {
            use ::sg::__private as runtime;
            struct A { graph_runtime: ::sg::Value, b: Vec<::sg::Value> }
            fn f(graph_runtime: &::sg::Call) -> impl Sized + ::sg::Graph {}
        };
        assert_eq!(renamed, expected.to_string());
    }
}
