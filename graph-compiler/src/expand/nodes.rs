//! The nodes: an enum of their names, and the program's table.

use graph_model::ir::{GraphIr, KeyIr, NodeIr, ToolIr};
use graph_model::program::{Executor, ItemType, Kind, Verb};
use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::docs::docs;
use super::names::{Scope, identifier, pascal_text};
use super::output;
use crate::graph::{CheckedGraph, CheckedNode, Interface};

/// A node, as the module has it.
pub(super) struct NodeText<'g> {
    name: &'g str,
    doc: String,
    /// The indices of the nodes to which it may lead.
    targets: Vec<u16>,
}

/// Returns the nodes of a graph. A start of several nodes is the last node, and is not visited.
pub(super) fn of_graph(graph: &CheckedGraph) -> Vec<NodeText<'_>> {
    let visited = graph.nodes.iter().filter(|node| node.body.does != Kind::Start);
    visited.map(|node| NodeText { name: &node.name, doc: describe(graph, node), targets: targets(node) }).collect()
}

/// Returns the nodes of a graph with mistakes, of which only the names are known.
pub(super) fn of_interface(interface: &Interface) -> Vec<NodeText<'_>> {
    let text = |name| NodeText { name, doc: format!("`{name}`."), targets: Vec::new() };
    interface.nodes.iter().map(|name| text(name)).collect()
}

fn targets(node: &CheckedNode) -> Vec<u16> {
    let quorum = node.body.join.as_ref().and_then(|join| join.quorum);
    let on_timeout = node.body.wait.as_ref().and_then(|wait| wait.on_timeout);
    let fewer = quorum.and_then(|quorum| quorum.fewer);
    let others = node.body.on_error.into_iter().chain(on_timeout).chain(fewer);
    let mut targets = node.next.clone();
    targets.extend(others.filter(|to| !node.next.contains(to)));
    targets
}

/// Expands `Node`, and `PROGRAM` from its tokens.
pub(super) fn expand(nodes: &[NodeText<'_>], interface: &Interface, program: &TokenStream) -> TokenStream {
    let mut scope = Scope::new();
    let variants: Vec<_> = nodes.iter().map(|node| identifier(&scope.claim(&pascal_text(node.name)))).collect();
    let docs = nodes.iter().map(|node| docs(&node.doc));
    let topology = nodes.iter().map(|node| {
        let targets = node.targets.iter().map(|&to| &variants[usize::from(to)]);
        quote!(#(Self::#targets),*)
    });
    let topology: Vec<TokenStream> = topology.collect();
    let variant = |name: &str| nodes.iter().position(|node| node.name == name).map(|at| &variants[at]);
    let exits = output::node(interface, variant);
    quote! {
        /// The nodes of the graph.
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Node {
            #(#docs #variants),*
        }

        impl Node {
            /// Every node, in the order of the file.
            pub const ALL: &[Self] = &[#(Self::#variants),*];
            /// Where each of them leads, in the order of its edges; behind them its `on_error`, its `on_timeout`, and its `fewer`.
            pub const TOPOLOGY: &[&[Self]] = &[#(&[#topology]),*];

            /// Returns the node's name in the file.
            pub fn name(self) -> &'static str {
                PROGRAM.nodes[self as usize].0
            }

            /// Returns where the node may lead.
            pub fn next(self) -> &'static [Self] {
                Self::TOPOLOGY[self as usize]
            }
        }

        impl ::std::fmt::Debug for Node {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.name())
            }
        }

        runtime::node!(Node);

        /// An event of a run of the graph, from the streams of the feature `events` of `graph-runtime`.
        pub type Event = runtime::EventOf<Node>;

        #exits
        #program
    }
}

/// Describes a node in one line.
fn describe(graph: &CheckedGraph, node: &CheckedNode) -> String {
    let name = |at: u16| format!("`{}`", graph.nodes[usize::from(at)].name);
    let call = |tool: u16| {
        let tool = &graph.interface.tools[usize::from(tool)];
        let verb = match tool.verb {
            Verb::Execute => "calls",
            Verb::Fetch => "fetches",
            Verb::Sign => "signs",
        };
        match (&node.body.item, tool.id.as_str()) {
            (Some(id), _) => format!("{verb} `{id}`"),
            (None, "") => format!("{verb} what a query finds"),
            (None, id) => format!("{verb} `{id}`"),
        }
    };
    let kind = node.body.does;
    let does = match kind.tool() {
        Some(tool) if kind.goes_over_list() => format!("{} for each item", call(tool)),
        Some(tool) => call(tool),
        None => kind.does().to_owned(),
    };
    let targets: Vec<String> = node.next.iter().map(|&at| name(at)).collect();
    let next = if targets.is_empty() { String::new() } else { format!(", then {}", targets.join(" or ")) };
    format!("`{}`, line {}: {does}{next}.", node.name, node.body.line)
}

/// Writes the table of a graph with mistakes, which nothing reads: the program around it does not compile.
pub(super) fn no_program() -> TokenStream {
    quote! {
        /// The graph as the runtime reads it.
        pub static PROGRAM: runtime::Program<'static> = runtime::Program {
            id: "",
            version: "",
            source: "",
            digest: "",
            signer: "",
            start: 0,
            settings: "",
            permissions: &[],
            env: &[],
            keys: &[],
            tools: &[],
            nodes: &[],
        };
    }
}

/// Writes the graph as tables of texts.
pub(super) fn program(graph: &GraphIr) -> TokenStream {
    let GraphIr { id, version, source, digest, signer, permissions, env, .. } = graph;
    let start = Literal::u16_unsuffixed(graph.start);
    let settings = raw(&serde_json::to_string(&graph.settings).expect("settings are plain JSON"));
    let keys = graph.keys.iter().map(key);
    let tools = graph.tools.iter().map(tool);
    let nodes = graph.nodes.iter().map(node);
    let mut used = vec!["Program"];
    used.extend((!graph.keys.is_empty()).then_some("Key"));
    if !graph.tools.is_empty() {
        used.extend(["ItemType", "Executor", "Tool", "Verb"]);
    }
    let has_params = |tool: &ToolIr| tool.params.as_ref().is_some_and(|params| !params.is_empty());
    used.extend(graph.tools.iter().any(has_params).then_some("Param"));
    let used = used.into_iter().map(identifier);
    quote! {
        /// The graph as the runtime reads it.
        pub static PROGRAM: runtime::Program<'static> = {
            use runtime::{#(#used),*};
            Program {
                id: #id,
                version: #version,
                source: #source,
                digest: #digest,
                signer: #signer,
                start: #start,
                settings: #settings,
                permissions: &[#(#permissions),*],
                env: &[#(#env),*],
                keys: &[#(#keys),*],
                tools: &[#(#tools),*],
                nodes: &[#(#nodes),*],
            }
        };
    }
}

fn key(key: &KeyIr) -> TokenStream {
    let name = &key.name;
    let initial = option(key.initial.as_ref().map(|value| raw(&value.to_string())));
    quote!(Key { name: #name, initial: #initial })
}

fn tool(tool: &ToolIr) -> TokenStream {
    let ToolIr { id, typed, nests, .. } = tool;
    let verb = match tool.verb {
        Verb::Execute => quote!(Execute),
        Verb::Fetch => quote!(Fetch),
        Verb::Sign => quote!(Sign),
    };
    let item = match tool.item {
        ItemType::Tool => quote!(Tool),
        ItemType::Directive => quote!(Directive),
        ItemType::Knowledge => quote!(Knowledge),
    };
    let by = match tool.by {
        Executor::Program => quote!(Program),
        Executor::Graph => quote!(Graph),
        Executor::Items => quote!(Items),
    };
    let params = option(tool.params.as_ref().map(|fields| {
        let params = fields.iter().map(|field| {
            let name = &field.name;
            let default = option(field.default.as_ref().map(|default| raw(&default.to_string())));
            quote!(Param { name: #name, default: #default })
        });
        quote!(&[#(#params),*])
    }));
    quote! {
        Tool {
            id: #id,
            verb: Verb::#verb,
            item: ItemType::#item,
            by: Executor::#by,
            params: #params,
            typed: #typed,
            nests: #nests,
        }
    }
}

fn node(node: &NodeIr) -> TokenStream {
    let name = &node.name;
    let body = raw(&serde_json::to_string(&node.body).expect("a body is plain JSON"));
    quote!((#name, #body))
}

/// Writes a text as a raw string literal, which is easier to read.
fn raw(text: &str) -> TokenStream {
    let longest = text.split('"').skip(1).map(|part| part.len() - part.trim_start_matches('#').len()).max();
    let hashes = "#".repeat(longest.map_or(0, |longest| longest + 1));
    let literal: Result<Literal, _> = format!("r{hashes}\"{text}\"{hashes}").parse();
    // A raw literal cannot hold every text, such as one with a carriage return; JSON escapes those.
    literal.map_or_else(|_| quote!(#text), |literal| quote!(#literal))
}

fn option(tokens: Option<TokenStream>) -> TokenStream {
    match tokens {
        Some(tokens) => quote!(Some(#tokens)),
        None => quote!(None),
    }
}
