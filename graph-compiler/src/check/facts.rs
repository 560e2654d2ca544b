//! What the rules look at: names resolved, edges, types, which keys are set where.

use std::collections::HashMap;

use graph_model::capability::{Capability, Pattern};
use graph_model::condition::Condition;
use graph_model::name::{ItemId, NodeName};
use graph_model::path::{Path, Root};
use graph_model::program::{ItemType, LAST_ERROR, OnError, Performer, Verb};

use super::Contracts;
use super::flow::Flow;
use super::infer::{self, Types};
use crate::definition::{Definition, Edge, EdgeList, Next, NodeDefinition, NodeKind, Spanned, Term, Test};
use crate::diagnostic::Place;
use crate::graph::{Key, Outline, Tool};
use crate::source::Span;
use crate::types::{Kind, Type};

/// Everything that rules need to know of a definition.
pub(super) struct Facts<'d> {
    pub(super) definition: &'d Definition,
    /// The first node, if `start` names one.
    pub(super) start: Option<usize>,
    /// The tools, each once, in the order of the file.
    pub(super) tools: Vec<ToolFacts<'d>>,
    /// Which keys are set before each node.
    pub(super) flow: Flow,
    /// The types of inputs, keys and results.
    pub(super) types: Types,
    by_name: HashMap<&'d str, usize>,
    tools_by_id: HashMap<&'d str, usize>,
    /// For each node, where `next` and where `on_error` may lead.
    onward: Vec<Onward>,
}

/// Where a node may lead, by index.
#[derive(Default)]
struct Onward {
    /// The targets of its edges, in order, without those behind an edge that always matches.
    next: Vec<usize>,
    on_error: Option<usize>,
}

/// A tool that the graph calls.
pub(super) struct ToolFacts<'d> {
    pub(super) id: &'d ItemId,
    pub(super) capability: Capability,
    pub(super) contract: Option<&'d crate::definition::Contract>,
    /// What it returns.
    pub(super) result: Type,
}

/// Where in a node an expression stands; it decides what `result` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Site {
    /// In an action's parameters: before there is a result.
    Params,
    /// In `assign`; the assignments before this index were made.
    Assign(usize),
    /// In the condition of an edge.
    Next,
    /// In a return node's output.
    Output,
}

/// A path that is read somewhere.
pub(super) struct Read<'d> {
    pub(super) node: usize,
    pub(super) site: Site,
    pub(super) path: &'d Path,
    pub(super) span: Span,
}

impl<'d> Facts<'d> {
    pub(super) fn gather(definition: &'d Definition, contracts: &'d Contracts) -> Self {
        let nodes = &definition.nodes;
        let by_name: HashMap<&str, usize> =
            nodes.iter().enumerate().map(|(at, node)| (node.name.value.as_str(), at)).collect();
        let start = definition.start.as_ref().and_then(|start| by_name.get(start.value.as_str()).copied());
        let (mut tools, mut tools_by_id): (Vec<ToolFacts<'d>>, HashMap<&str, usize>) = Default::default();
        for node in nodes {
            if let NodeKind::Action(action) = &node.kind
                && !tools_by_id.contains_key(action.item_id.value.as_str())
            {
                tools_by_id.insert(action.item_id.value.as_str(), tools.len());
                let contract = contracts.get(&action.item_id.value);
                let result =
                    contract.and_then(|contract| contract.result.as_ref()).map_or_else(Type::any, Type::of_schema);
                tools.push(ToolFacts {
                    id: &action.item_id.value,
                    capability: Capability::new(Verb::Execute, ItemType::Tool, Some(&action.item_id.value)),
                    contract,
                    result,
                });
            }
        }
        let inputs = definition.inputs.as_ref().map_or_else(Type::any, Type::of_schema).not_null();
        let mut facts = Self {
            definition,
            start,
            tools,
            flow: Flow::default(),
            types: Types::new(inputs, definition),
            onward: nodes.iter().map(|node| onward(node, &by_name)).collect(),
            by_name,
            tools_by_id,
        };
        facts.flow = Flow::analyse(&facts);
        infer::infer(&mut facts);
        facts
    }

    pub(super) fn place(&self, span: &Span) -> Place {
        self.definition.place(span)
    }

    pub(super) fn node(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub(super) fn node_names(&self) -> impl Iterator<Item = &'d str> {
        self.definition.nodes.iter().map(|node| node.name.value.as_str())
    }

    /// Whether an edge may lead to this name: a node that could not be read is not the edge's mistake.
    pub(super) fn is_node(&self, name: &str) -> bool {
        self.by_name.contains_key(name) || self.definition.unreadable.iter().any(|unreadable| unreadable == name)
    }

    /// Whether every edge leads to a node that could be read, so that what no run can do can be told.
    pub(super) fn is_whole(&self) -> bool {
        let targets = |node: &NodeDefinition| {
            edges(node.next())
                .iter()
                .filter_map(|edge| edge.to)
                .chain(node.on_error())
                .all(|to| self.node(to.value.as_str()).is_some())
        };
        self.definition.is_complete && self.start.is_some() && self.definition.nodes.iter().all(targets)
    }

    /// Returns the nodes that `next` may lead to, in order, leaving out edges behind one that always matches.
    pub(super) fn successors(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.onward[node].next.iter().copied()
    }

    pub(super) fn error_successor(&self, node: usize) -> Option<usize> {
        self.onward[node].on_error
    }

    /// Whether the run may end at this node: it returns, has no `next`, or none of its edges need match.
    pub(super) fn may_end(&self, node: usize) -> bool {
        let next = self.definition.nodes[node].next();
        let edges = followed(next);
        match next {
            Next::End => true,
            Next::To(_) => false,
            Next::List(_) => edges.iter().any(|edge| edge.to.is_none()) || !edges.iter().any(|edge| edge.always),
        }
    }

    pub(super) fn tool_index(&self, id: &ItemId) -> usize {
        *self.tools_by_id.get(id.as_str()).expect("every action's tool was gathered")
    }

    pub(super) fn permissions(&self) -> impl Iterator<Item = &'d Spanned<Pattern>> {
        self.definition.permissions.iter().flat_map(|permissions| &permissions.value)
    }

    /// What `result` is at a place; `None` where there is none.
    pub(super) fn result_at(&self, node: usize, site: Site) -> Option<Type> {
        let NodeKind::Action(action) = &self.definition.nodes[node].kind else { return None };
        let result = &self.tools[self.tool_index(&action.item_id.value)].result;
        match site {
            Site::Params | Site::Output => None,
            Site::Assign(_) => Some(result.clone()),
            Site::Next if self.may_skip_assign(node) => Some(infer::or_failure(result)),
            Site::Next => Some(result.clone()),
        }
    }

    /// Whether a failure of this node leads along its ordinary edges, without its assignments (R125).
    pub(super) fn may_skip_assign(&self, node: usize) -> bool {
        let node = &self.definition.nodes[node];
        self.definition.on_error == OnError::Continue
            && matches!(&node.kind, NodeKind::Action(action) if action.on_error.is_none())
    }

    /// Calls `visit` with each path that the graph reads.
    pub(super) fn reads(&self, visit: &mut impl FnMut(Read<'d>)) {
        for (at, node) in self.definition.nodes.iter().enumerate() {
            for (site, term) in terms(node) {
                self.reads_of(at, site, term, visit);
            }
            for test in tests(node) {
                visit(Read { node: at, site: Site::Next, path: &test.path.value, span: test.path.span.clone() });
            }
        }
    }

    fn reads_of(&self, node: usize, site: Site, term: &'d Term, visit: &mut impl FnMut(Read<'d>)) {
        term.templates(&mut |term, template, text| {
            for expression in template.expressions() {
                for (path, range) in expression.paths.iter().zip(&expression.ranges) {
                    let span = crate::definition::locate(self.definition.source(), &term.span, text, range);
                    visit(Read { node, site, path, span });
                }
            }
        });
    }

    /// Returns what is known of the value at a path.
    pub(super) fn type_of_path(&self, node: usize, site: Site, path: &Path) -> Type {
        let (root, segments) = match path.root {
            Root::Now => return Type::of(Kind::String),
            Root::Timestamp => return Type::of(Kind::Integer),
            Root::Inputs => (self.types.inputs.clone(), path.segments.as_slice()),
            Root::Result => (self.result_at(node, site).unwrap_or_else(Type::any), path.segments.as_slice()),
            Root::Visit | Root::Local => return Type::any(),
            Root::State => match path.segments.split_first() {
                Some((key, rest)) => (self.type_of_key(node, site, key), rest),
                None => (Type::of(Kind::Map(Box::new(Type::any()))), [].as_slice()),
            },
        };
        // A part that does not exist is reported by its own rule, and has no type that another could object to.
        segments.iter().try_fold(root, |ty, segment| ty.step(segment).map_err(|_| ())).unwrap_or_else(|()| Type::any())
    }

    /// Returns what is known of a state key, at a place where it may not be set yet.
    pub(super) fn type_of_key(&self, node: usize, site: Site, name: &str) -> Type {
        if name == LAST_ERROR {
            return infer::last_error();
        }
        let Some(key) = self.types.key(name) else { return Type::any() };
        let ty = self.types.keys[key].ty.clone();
        let assigned_here = match site {
            Site::Params | Site::Output => 0,
            Site::Assign(before) => before,
            Site::Next if self.may_skip_assign(node) => 0,
            Site::Next => usize::MAX,
        };
        let here = self.definition.nodes[node]
            .assign()
            .iter()
            .take(assigned_here)
            .any(|assignment| assignment.key.value.as_str() == name);
        if here || self.flow.is_set_before(node, key) { ty } else { ty.or_null() }
    }

    /// Returns what the graph looks like from outside.
    pub(super) fn outline(&self) -> Outline {
        let definition = self.definition;
        let fields = |ty: &Type| match &ty.kind {
            Kind::Object(fields) => Some(fields.clone()),
            _ => None,
        };
        let tool = |tool: &ToolFacts<'_>| Tool {
            id: tool.id.to_string(),
            verb: Verb::Execute,
            item: ItemType::Tool,
            by: Performer::Program,
            typed: tool.contract.is_some_and(|contract| contract.result.is_some()),
            capability: tool.capability.to_string(),
            builtin: tool.contract.is_some_and(|contract| contract.builtin()),
            description: tool.contract.and_then(|contract| contract.description.clone()),
            params: tool.contract.and_then(|contract| fields(&Type::of_schema(&contract.params))),
            result: tool.result.clone(),
        };
        Outline {
            id: definition.id.to_string(),
            version: definition.version.clone(),
            description: definition.description.clone(),
            inputs: fields(&self.types.inputs),
            keys: self.types.keys.iter().map(|key| Key { ty: key.ty.clone().not_null(), ..key.clone() }).collect(),
            tools: self.tools.iter().map(tool).collect(),
            output: infer::output(self),
        }
    }
}

fn onward(node: &NodeDefinition, by_name: &HashMap<&str, usize>) -> Onward {
    let index = |to: &Spanned<NodeName>| by_name.get(to.value.as_str()).copied();
    Onward {
        next: followed(node.next()).into_iter().filter_map(|edge| index(edge.to?)).collect(),
        on_error: node.on_error().and_then(index),
    }
}

/// An edge as the rules see it.
#[derive(Clone, Copy)]
pub(super) struct EdgeFacts<'d> {
    pub(super) to: Option<&'d Spanned<NodeName>>,
    /// Whether it has no condition.
    pub(super) always: bool,
    /// The edge of a list.
    pub(super) edge: Option<&'d Edge>,
}

/// Returns the edges of a node, in order.
pub(super) fn edges<'n>(next: &'n Next) -> Vec<EdgeFacts<'n>> {
    match next {
        Next::End => Vec::new(),
        Next::To(to) => vec![EdgeFacts { to: Some(to), always: true, edge: None }],
        Next::List(EdgeList { edges, .. }) => {
            let facts = |edge: &'n Edge| {
                let always = matches!(edge.when, Condition::Always);
                EdgeFacts { to: edge.to.as_ref(), always, edge: Some(edge) }
            };
            edges.iter().map(facts).collect()
        }
    }
}

/// Returns the edges up to the first that always matches.
pub(super) fn followed(next: &Next) -> Vec<EdgeFacts<'_>> {
    let mut edges = edges(next);
    if let Some(last) = edges.iter().position(|edge| edge.always) {
        edges.truncate(last + 1);
    }
    edges
}

/// Returns the values with templates that a node has, each with its place.
pub(super) fn terms(node: &NodeDefinition) -> Vec<(Site, &Term)> {
    let mut terms = Vec::new();
    match &node.kind {
        NodeKind::Action(action) => terms.push((Site::Params, &action.params)),
        NodeKind::Gate(_) => {}
        NodeKind::Return(returns) => terms.extend(returns.output.iter().map(|term| (Site::Output, term))),
    }
    let assign = node.assign().iter().enumerate().map(|(at, assignment)| (Site::Assign(at), &assignment.value));
    terms.extend(assign);
    terms
}

/// Returns the comparisons in the edges of a node.
pub(super) fn tests(node: &NodeDefinition) -> Vec<&Test> {
    let mut tests = Vec::new();
    if let Next::List(EdgeList { edges, .. }) = node.next() {
        edges.iter().for_each(|edge| edge.when.tests(&mut |test| tests.push(test)));
    }
    tests
}
