//! The analysis of a graph, whose results the rules use.
//!
//! Each pass is a function of the results of earlier passes:
//!
//! | pass | input | result |
//! |---|---|---|
//! | [`model`], with [`calls`], [`edges`] and [`reads`] | | names resolved, edges, calls, reads |
//! | [`branches`], [`joins`] | model | the branches that each node may be visited in, and where they meet |
//! | [`flow`] | model, branches | the facts that are sure before each node, by the conditions that prove them ([`guards`]) |
//! | [`inference`], with [`channels`] | model, flow | the types of state keys, and where they are lost; [`type_env`] answers for every place |
//! | [`coverage`] | model, flow, types | the edges that conditions allow, and the cases that they leave open |
//! | [`control_flow`] | model, coverage | the nodes that lead to each other, and the lengths of paths |
//! | [`output`], [`budget`], [`least`] | model, types, coverage, control flow | the output of a run, its upper and lower bounds |

pub(crate) mod branches;
mod breaks;
pub(crate) mod budget;
pub(crate) mod calls;
mod cases;
pub(crate) mod channels;
mod components;
pub(crate) mod control_flow;
pub(crate) mod coverage;
pub(crate) mod edges;
pub(crate) mod facts;
pub(crate) mod flow;
pub(crate) mod guards;
pub(crate) mod inference;
pub(crate) mod joins;
pub(crate) mod least;
pub(crate) mod losses;
pub(crate) mod model;
pub(crate) mod output;
mod provided;
pub(crate) mod reads;
pub(crate) mod set;
pub(crate) mod type_env;
pub(crate) mod types;
mod types_at;
mod words;

use std::sync::OnceLock;

use graph_definition::definition::{Definition, NodeDefinition, NodeKind, SignalDefinition};
use graph_definition::source::Span;
use graph_model::path::Root;

use calls::CalledTool;
use control_flow::ControlFlow;
use coverage::Coverage;
use flow::Flow;
use least::LeastRun;
use model::{Model, StateKey};
use type_env::TypeEnv;
use types::{LeastLength, StateTypes};

pub use reads::Site;
pub use types_at::TypesAt;

use crate::graph::{
    ApprovingAnswers, Exit, InnerGraph, Interface, TypedKey, TypedReducer, TypedSignal, TypedTool, rules_of,
};
use crate::items::{InnerKey, Items};
use crate::types::{Type, TypeKind};

/// The results of all passes, for rules and lints.
pub(crate) struct Analysis<'d> {
    /// Names and edges.
    pub(crate) model: Model<'d>,
    /// The facts that are sure before each node.
    pub(crate) flow: Flow,
    /// The types of the state's keys.
    pub(crate) types: StateTypes,
    /// For each node, the coverage of its conditions; `None` if they decide nothing, or there are too many combinations.
    pub(crate) coverage: Vec<Option<Coverage<'d>>>,
    /// The edges that the conditions allow.
    pub(crate) control_flow: ControlFlow,
    /// For each node, how long its lists are at least.
    pub(crate) lists: Vec<LeastLength>,
    /// The answers that approve guarded calls, once the rule about them has found them.
    pub(crate) approvals: OnceLock<Vec<ApprovingAnswers>>,
}

impl<'d> Analysis<'d> {
    /// Runs all passes over a definition.
    pub(crate) fn new(definition: &'d Definition, items: &'d Items) -> Self {
        let model = Model::new(definition, items);
        let flow = Flow::analyse(&model);
        let types = inference::infer(&model, &flow);
        let coverage = coverage::analyse(TypeEnv { model: &model, flow: &flow, types: &types });
        let control_flow = ControlFlow::analyse(&model, flow.branches(), &coverage);
        let env = TypeEnv { model: &model, flow: &flow, types: &types };
        let lists = (0..definition.nodes.len()).map(|node| env.least_lengths(node)).collect();
        Self { model, flow, types, coverage, control_flow, lists, approvals: OnceLock::new() }
    }

    /// Returns what a run costs at least.
    pub(crate) fn least(&self) -> LeastRun<'_, 'd> {
        let (model, branches) = (&self.model, self.flow.branches());
        LeastRun { model, branches, flow: &self.control_flow, lists: &self.lists }
    }

    /// Returns the types of paths and terms at every place.
    pub(crate) fn type_env(&self) -> TypeEnv<'_, 'd> {
        TypeEnv { model: &self.model, flow: &self.flow, types: &self.types }
    }

    /// Returns the functions of the program that combine the writes to channels, each once.
    fn reducers(&self) -> Vec<TypedReducer> {
        let mut reducers: Vec<TypedReducer> = Vec::new();
        for (at, key) in self.model.keys.iter().enumerate() {
            let id = key.channel.and_then(|channel| channel.reducer.value.function());
            let Some((id, function)) = id.zip(key.function.as_ref()) else { continue };
            match reducers.iter_mut().find(|known| known.id == id.as_str()) {
                Some(known) => known.keys.push(at),
                None => reducers.push(TypedReducer {
                    id: id.to_string(),
                    description: function.contract.and_then(|contract| contract.description.clone()),
                    keys: vec![at],
                    write: function.write.clone().plain(),
                    value: function.value.clone().plain(),
                }),
            }
        }
        reducers
    }

    /// Returns, for each key, whether a run may read its value: in a term, or by sharing it or returning the whole state.
    fn read_keys(&self) -> Vec<bool> {
        let model = &self.model;
        let nodes = &model.definition.nodes;
        // A run that ends without an output of its own returns the whole state.
        let returns_state = |(at, node): (usize, &NodeDefinition)| match &node.kind {
            NodeKind::Return(returns) => returns.output.is_none(),
            _ => self.flow.branches().ends_run(model, at),
        };
        let is_whole = nodes.iter().enumerate().any(returns_state) || model.may_end_anywhere();
        let mut is_read = vec![is_whole; model.keys.len()];
        model.reads(&mut |read| {
            let path = match (read.path.root, read.site, read.path.segments.as_slice()) {
                (Root::State, _, path) => path,
                (Root::Local, Site::Hook, [root, path @ ..]) if root == "state" => path,
                _ => return,
            };
            match path.first() {
                None => is_read.fill(true),
                Some(name) => model.key(name).into_iter().for_each(|key| is_read[key] = true),
            }
        });
        for (node, shared) in nodes.iter().flat_map(|node| node.share().iter().map(move |key| (node, key))) {
            let is_read_inside = model.inner_key(node, shared).is_none_or(|inner| inner.is_read);
            if let Some(key) = model.key(shared.value.as_str()).filter(|_| is_read_inside) {
                is_read[key] = true;
            }
        }
        is_read
    }

    /// Returns the keys as a graph that nests this one sees them.
    fn inner_keys(&self) -> Vec<InnerKey> {
        let (model, types, is_read) = (&self.model, &self.types, self.read_keys());
        let resets = |name: &str| {
            let mut reset = model.definition.nodes.iter().flat_map(|node| node.reset());
            reset.any(|key| key.value.as_str() == name)
        };
        let keys = model.keys.iter().zip(&types.keys).enumerate();
        let inner = |(at, (key, typed)): (usize, (&StateKey<'_>, &TypedKey))| InnerKey {
            key: typed.clone(),
            reducer: model.reducer(at).cloned(),
            by_branch: key.channel.is_some_and(|channel| channel.by_branch.is_some()),
            keep: key.keep(),
            is_reset: resets(key.name),
            is_read: is_read[at],
        };
        keys.map(inner).collect()
    }

    /// Returns the graph's interface.
    pub(crate) fn interface(&self, mistakes: &[Span]) -> Interface {
        let definition = self.model.definition;
        let nodes = definition.nodes.iter().filter(|node| !node.is_start()).map(|node| node.name.to_string());
        let entries = definition.entries.iter().map(|entry| (entry.name.to_string(), entry.node.to_string()));
        let fields = |ty: &Type| match ty.clone().plain().kind {
            TypeKind::Object(fields) => Some(fields),
            _ => None,
        };
        let tool = |tool: &CalledTool<'_>| TypedTool {
            id: tool.key.2.to_owned(),
            verb: tool.key.0,
            item: tool.key.1,
            by: tool.by,
            typed: tool.graph.is_some() || tool.contract.is_some_and(|contract| contract.result.is_some()),
            capability: tool.capability.as_ref().map(ToString::to_string),
            builtin: tool.contract.is_some_and(|contract| contract.by_runtime()),
            subprocess: tool.contract.and_then(|contract| contract.subprocess()).cloned(),
            mcp: tool.contract.and_then(|contract| contract.mcp()).cloned(),
            module: tool.graph.map(|graph| graph.module.clone()),
            description: tool.contract.and_then(|contract| contract.description.clone()),
            // A graph takes its inputs as one object.
            params: tool.contract.and_then(|contract| fields(&Type::of_schema(&contract.params))),
            result: tool.result.clone().plain(),
            rules: tool.contract.filter(|_| tool.graph.is_none()).map(rules_of).unwrap_or_default(),
        };
        let signal = |signal: &SignalDefinition| TypedSignal {
            name: signal.name.to_string(),
            ty: Type::of_schema(&signal.schema).plain(),
            description: signal.schema.description.clone(),
        };
        let answers = definition.nodes.iter().filter_map(|node| {
            let schema = &node.ask()?.schema;
            let (name, ty) = (node.name.to_string(), Type::of_schema(schema).plain());
            Some(TypedSignal { name, ty, description: schema.description.clone() })
        });
        let exits = output::exits(self.type_env(), &self.control_flow, mistakes);
        let output = output::output(self.type_env(), &exits);
        let inner_exits = if self.model.may_end_anywhere() { Vec::new() } else { exits };
        let plain = |exit: &Exit| Exit { node: exit.node.clone(), ty: exit.ty.clone().plain() };
        let key = |key: &TypedKey| TypedKey { ty: key.ty.clone().not_null().plain(), ..key.clone() };
        Interface {
            id: definition.id.to_string(),
            version: definition.version.clone(),
            description: definition.description.clone(),
            inputs: fields(&self.model.inputs),
            keys: self.types.keys.iter().map(key).collect(),
            inner_keys: self.inner_keys(),
            tools: self.model.tools.iter().map(tool).collect(),
            reducers: self.reducers(),
            signals: definition.signals.iter().map(signal).collect(),
            answers: answers.collect(),
            output: output.clone().plain(),
            exits: inner_exits.iter().map(plain).collect(),
            inner_output: output,
            inner_exits,
            inner: self.model.items.inner.iter().map(InnerGraph::clone).collect(),
            budget: budget::budget(self.least(), &self.coverage),
            approvals: self.approvals.get().cloned().unwrap_or_default(),
            nodes: nodes.chain(definition.unreadable.iter().cloned()).collect(),
            entries: entries.collect(),
            behind: self.model.items.behind.clone(),
        }
    }
}
