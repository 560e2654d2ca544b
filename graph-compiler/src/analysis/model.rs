//! What the rules look at: names resolved, edges, types, which keys are set where.

use std::borrow::Cow;
use std::sync::OnceLock;

use graph_model::capability::{Capability, Pattern};
use graph_model::condition::Condition;
use graph_model::name::NodeName;
use graph_model::path::{Path, Root};
use graph_model::program::{INTERNAL, ItemType, LAST_ERROR, OnError, OnMaxSteps, OnNoMatch, Performer, RETRIES, Verb};
use graph_model::template::{Expression, Piece, Template};

use super::control_flow::{Web, groups};
use super::coverage::{self, Judgement};
use super::flow::{Flow, Moment};
use super::inference::{self, Types};
use crate::check::{Items, Nested};
use crate::definition::{
    Call, Contract, Definition, Edge, EdgeList, HookDefinition, Item, Next, NodeDefinition, NodeKind, Reaction, Schema,
    Spanned, Term, TermKind, Test,
};
use crate::diagnostic::Place;
use crate::graph::{Inner, Key, Outline, Tool};
use crate::hash::{HashMap, HashSet};
use crate::source::Span;
use crate::types::{Kind, Type};

/// Everything that rules need to know of a definition.
pub(crate) struct Facts<'d> {
    pub(crate) definition: &'d Definition,
    /// The first node, if `start` names one.
    pub(crate) start: Option<usize>,
    /// The tools, each once, in the order of the file.
    pub(crate) tools: Vec<ToolFacts<'d>>,
    /// Which keys are set before each node.
    pub(crate) flow: Flow,
    /// The types of inputs, keys and results.
    pub(crate) types: Types,
    by_name: HashMap<&'d str, usize>,
    /// Where each call begins in the file, in that order, with its tool.
    tools_by_place: Vec<(usize, usize)>,
    /// What there is in the tree for actions to be about.
    pub(crate) items: &'d Items,
    /// For each node, where `next` and where `on_error` may lead.
    onward: Vec<Onward>,
    is_whole: bool,
    /// The names of the nodes that could not be read.
    unreadable: HashSet<&'d str>,
    /// For each node, what its conditions come to, once somebody has asked.
    judgements: Vec<OnceLock<Option<Judgement<'d>>>>,
    /// Where the conditions let nodes lead, once somebody has asked.
    web: OnceLock<Web>,
    /// For each node, whether its edges lead back to it in the end, whatever their conditions say, once somebody has asked.
    circles: OnceLock<Vec<bool>>,
}

/// Where a node may lead, by index.
#[derive(Default)]
struct Onward {
    /// The targets of its edges, in order, without those behind an edge that always matches.
    next: Vec<usize>,
    /// Which edges these are.
    edges: Vec<usize>,
    on_error: Option<usize>,
}

/// By what calls are told apart: what is done, with what kind of item, and its id, empty where that is not known.
type ToolKey<'d> = (Verb, ItemType, &'d str);

fn tool_key(call: &Call) -> ToolKey<'_> {
    (call.verb, call.item_type, call.id().map_or("", |id| id.as_str()))
}

/// What nodes and hooks call.
pub(crate) struct ToolFacts<'d> {
    pub(crate) key: ToolKey<'d>,
    pub(crate) by: Performer,
    pub(crate) capability: Option<Capability>,
    pub(crate) contract: Option<&'d Contract>,
    pub(crate) graph: Option<&'d Nested>,
    /// What it takes, where that is known.
    pub(crate) params: Option<Type>,
    /// What it returns.
    pub(crate) result: Type,
}

impl<'d> ToolFacts<'d> {
    fn gather(call: &'d Call, items: &'d Items) -> Self {
        let is_tool = (call.verb, call.item_type) == (Verb::Execute, ItemType::Tool);
        let id = call.id().filter(|_| is_tool);
        let graph = id.and_then(|id| items.graphs.get(id));
        let contract =
            id.filter(|_| graph.is_none()).and_then(|id| items.contracts.get(id)).map(|contract| &**contract);
        Self {
            key: tool_key(call),
            by: match graph {
                Some(_) => Performer::Graph,
                None if is_tool => Performer::Program,
                None => Performer::Items,
            },
            capability: None,
            params: contract
                .map(|contract| Type::of_schema(&contract.params))
                .or_else(|| graph.map(|graph| graph.inputs.clone())),
            result: match graph {
                Some(graph) => inference::run_of(&graph.output),
                None => contract.and_then(|contract| contract.result.as_ref()).map_or_else(Type::any, Type::of_schema),
            },
            contract,
            graph,
        }
    }
}

/// What a call needs to be allowed (R169).
pub(crate) enum Need {
    /// Nothing: the engine's own tools (R173).
    Nothing,
    /// This.
    Capability(Capability),
    /// Something that begins like this; the rest is known at each call.
    Beginning(String),
}

/// Returns what a call needs.
pub(crate) fn need(call: &Call) -> Need {
    let capability = |id| Need::Capability(Capability::new(call.verb, call.item_type, id));
    match &call.item.value {
        Item::Named(id) if id.as_str().starts_with(INTERNAL) => Need::Nothing,
        Item::Named(id) => capability(Some(id)),
        Item::Found => capability(None),
        Item::Computed(_) if call.beginning().starts_with(INTERNAL) => Need::Nothing,
        Item::Computed(_) => {
            let kind = Capability::new(call.verb, call.item_type, None);
            Need::Beginning(format!("{kind}.{}", call.beginning().replace('/', ".")))
        }
    }
}

/// Returns the capability patterns that a graph's own calls need, each once, in the order of the file: of an id that is known
/// only at each call, what it begins with and a star.
pub(crate) fn needs(definition: &Definition) -> Vec<String> {
    let (mut needs, mut known) = (Vec::new(), HashSet::default());
    for (_, call) in calls(definition) {
        let needed = match need(call) {
            Need::Nothing => continue,
            Need::Capability(capability) => capability.to_string(),
            Need::Beginning(beginning) => format!("{beginning}*"),
        };
        if known.insert(needed.clone()) {
            needs.push(needed);
        }
    }
    needs
}

/// Who makes a call.
#[derive(Clone, Copy)]
pub(crate) enum Caller<'d> {
    /// A node, with its index.
    Node(usize, &'d NodeDefinition),
    /// A hook, with its index.
    Hook(usize, &'d HookDefinition),
}

impl std::fmt::Display for Caller<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Node(_, node) => write!(f, "node `{}`", node.name),
            Self::Hook(at, hook) => match &hook.id {
                Some(id) => write!(f, "the hook `{id}`"),
                None => write!(f, "hook {}", at + 1),
            },
        }
    }
}

impl Caller<'_> {
    /// Returns where the parameters of its call stand.
    pub(crate) fn site(&self) -> (usize, Site) {
        match self {
            Self::Node(at, NodeDefinition { kind: NodeKind::Foreach(_), .. }) => (*at, Site::Item),
            Self::Node(at, _) => (*at, Site::Params),
            Self::Hook(at, _) => (*at, Site::Hook),
        }
    }
}

/// Where in a node an expression stands; it decides what `result` and other names are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Site {
    /// In an action's parameters: before there is a result.
    Params,
    /// In `over`: before there is an item.
    Over,
    /// In the action of a foreach, which sees the item.
    Item,
    /// In `assign`; the assignments before this index were made.
    Assign(usize),
    /// In the condition of an edge.
    Next,
    /// In a return node's output.
    Output,
    /// In a hook, which is no part of a node.
    Hook,
}

impl Site {
    /// Returns the moment of the node at which what stands here is looked at; a hook has none.
    fn moment(self) -> Option<Moment> {
        match self {
            Self::Params | Self::Over | Self::Item | Self::Output => Some(Moment::Before),
            Self::Assign(count) => Some(Moment::Assigned(count)),
            Self::Next => Some(Moment::After),
            Self::Hook => None,
        }
    }
}

/// A path that is read somewhere.
pub(crate) struct Read<'d> {
    /// The node, or the hook where it stands in one.
    pub(crate) node: usize,
    pub(crate) site: Site,
    pub(crate) path: &'d Path,
    stands: Stands<'d>,
    /// Whether another path stands behind it, for when it leads to nothing.
    pub(crate) has_fallback: bool,
    /// The paths that stand with it in one expression, with `||` between them; it is one of them.
    pub(crate) alternatives: &'d [Path],
}

/// Where a path stands in the file.
#[derive(Clone, Copy)]
enum Stands<'d> {
    At(&'d Span),
    /// In a part of a value's text.
    In(&'d Term, &'d str, &'d Span),
}

impl<'d> Read<'d> {
    /// What a comparison of a node's edges reads, or of a hook's condition.
    pub(crate) fn of_test(node: usize, site: Site, test: &'d Test) -> Self {
        let path = &test.path.value;
        let alternatives = std::slice::from_ref(path);
        Self { node, site, path, stands: Stands::At(&test.path.span), has_fallback: false, alternatives }
    }

    /// Returns where the path stands.
    pub(crate) fn place(&self, facts: &Facts<'_>) -> Place {
        match self.stands {
            Stands::At(span) => facts.place(span),
            Stands::In(term, text, part) => {
                facts.place(&crate::definition::locate(facts.definition.source(), &term.span, text, part))
            }
        }
    }
}

impl<'d> Facts<'d> {
    pub(crate) fn gather(definition: &'d Definition, items: &'d Items) -> Self {
        let nodes = &definition.nodes;
        let by_name: HashMap<&str, usize> =
            nodes.iter().enumerate().map(|(at, node)| (node.name.value.as_str(), at)).collect();
        let start = definition.start.as_ref().and_then(|start| by_name.get(start.value.as_str()).copied());
        let (mut tools, mut tools_by_id): (Vec<ToolFacts<'d>>, HashMap<_, usize>) = Default::default();
        let mut tools_by_place = Vec::new();
        for (_, call) in calls(definition) {
            let at = *tools_by_id.entry(tool_key(call)).or_insert_with(|| {
                tools.push(ToolFacts::gather(call, items));
                tools.len() - 1
            });
            tools_by_place.push((call.span.start, at));
            if let Need::Capability(capability) = need(call) {
                tools[at].capability = Some(capability);
            }
        }
        tools_by_place.sort_unstable();
        let inputs = definition.inputs.as_ref().map_or_else(Type::any, Type::of_schema).not_null();
        let mut facts = Self {
            definition,
            start,
            tools,
            flow: Flow::default(),
            types: Types::new(inputs, definition),
            onward: nodes.iter().map(|node| onward(node, &by_name)).collect(),
            by_name,
            tools_by_place,
            items,
            is_whole: false,
            unreadable: definition.unreadable.iter().map(String::as_str).collect(),
            judgements: nodes.iter().map(|_| OnceLock::new()).collect(),
            web: OnceLock::new(),
            circles: OnceLock::new(),
        };
        facts.is_whole = facts.leads_to_nodes();
        facts.flow = Flow::analyse(&facts);
        inference::infer(&mut facts);
        facts
    }

    pub(crate) fn place(&self, span: &Span) -> Place {
        self.definition.place(span)
    }

    pub(crate) fn node(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn node_names(&self) -> impl Iterator<Item = &'d str> {
        self.definition.nodes.iter().map(|node| node.name.value.as_str())
    }

    /// Whether an edge may lead to this name: a node that could not be read is not the edge's mistake.
    pub(crate) fn is_node(&self, name: &str) -> bool {
        self.by_name.contains_key(name) || self.unreadable.contains(name)
    }

    /// Whether every edge leads to a node that could be read, so that what no run can do can be told.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns what the conditions of a node's edges come to; `None` where they say nothing, or too much.
    pub(crate) fn judgement(&self, node: usize) -> Option<&Judgement<'d>> {
        self.judgements[node].get_or_init(|| coverage::judge(self, node)).as_ref()
    }

    /// Whether the edges of a node lead back to it in the end, whatever their conditions say.
    pub(crate) fn is_in_circle(&self, node: usize) -> bool {
        let circles = self.circles.get_or_init(|| {
            let next = |onward: &Onward| onward.next.iter().copied().chain(onward.on_error).collect();
            let next: Vec<Vec<usize>> = self.onward.iter().map(next).collect();
            let mut circles = vec![false; next.len()];
            for group in groups(&next) {
                group.iter().for_each(|&node| circles[node] = group.len() > 1 || next[node].contains(&node));
            }
            circles
        });
        circles[node]
    }

    /// Returns where the conditions let nodes lead.
    pub(crate) fn web(&self) -> &Web {
        self.web.get_or_init(|| Web::of(self))
    }

    fn leads_to_nodes(&self) -> bool {
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
    pub(crate) fn successors(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.onward[node].next.iter().copied()
    }

    /// Returns which edges lead to the nodes of [`Facts::successors`]: their indices in the list.
    pub(crate) fn ways(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.onward[node].edges.iter().copied()
    }

    pub(crate) fn error_successor(&self, node: usize) -> Option<usize> {
        self.onward[node].on_error
    }

    /// Whether the run may end at this node: it returns, has no `next`, or none of its edges need match.
    pub(crate) fn may_end(&self, node: usize) -> bool {
        let next = self.definition.nodes[node].next();
        let edges = followed(next);
        let ends_without_match = self.definition.settings.on_no_match == OnNoMatch::Return || edges.is_empty();
        match next {
            Next::End => true,
            Next::To(_) => false,
            Next::List(_) => {
                edges.iter().any(|edge| edge.to.is_none())
                    || (ends_without_match && !edges.iter().any(|edge| edge.always))
            }
        }
    }

    /// Whether a run that has taken all its steps ends as if the last node had led nowhere.
    pub(crate) fn may_end_anywhere(&self) -> bool {
        self.definition.settings.on_max_steps != OnMaxSteps::Fail
    }

    /// Returns what nodes and hooks call, in the order of the file.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (Caller<'d>, &'d Call)> {
        calls(self.definition)
    }

    pub(crate) fn tool_index(&self, call: &Call) -> usize {
        let place = self.tools_by_place.binary_search_by_key(&call.span.start, |(start, _)| *start);
        self.tools_by_place[place.expect("every call was gathered")].1
    }

    pub(crate) fn tool(&self, call: &Call) -> &ToolFacts<'d> {
        &self.tools[self.tool_index(call)]
    }

    pub(crate) fn permissions(&self) -> impl Iterator<Item = &'d Spanned<Pattern>> {
        self.definition.permissions.iter().flat_map(|permissions| &permissions.value)
    }

    /// What `result` is at a place; `None` where there is none.
    pub(crate) fn result_at(&self, node: usize, site: Site) -> Option<Cow<'_, Type>> {
        if site == Site::Hook {
            return None;
        }
        let NodeKind::Action(action) = &self.definition.nodes[node].kind else { return None };
        let result = &self.tool(&action.call).result;
        match site {
            Site::Params | Site::Output | Site::Over | Site::Item | Site::Hook => None,
            Site::Next if self.may_skip_assign(node) => Some(Cow::Owned(inference::or_failure(result))),
            Site::Assign(_) | Site::Next => Some(Cow::Borrowed(result)),
        }
    }

    /// What `visit.previous` is in a node: what its last visit that succeeded returned, or nothing.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub(crate) fn previous_at(&self, node: usize) -> Result<Type, &'static str> {
        let definition = &self.definition.nodes[node];
        if definition.conduct().is_some_and(|conduct| !conduct.feedback) {
            return Err("the node says `feedback: false`");
        }
        // A visit that failed leaves nothing to look back at.
        let result = match &definition.kind {
            NodeKind::Action(action) => self.tool(&action.call).result.clone(),
            NodeKind::Foreach(each) if each.collect.is_some() => inference::collected(self, node),
            NodeKind::Foreach(_) => return Err("the foreach collects nothing"),
            NodeKind::Gate(_) => return Err("a gate returns nothing"),
            NodeKind::Return(_) => return Err("a return node is visited once"),
        };
        Ok(result.or_null())
    }

    /// Returns the schema of the input that a path leads to.
    pub(crate) fn schema_of_input(&self, path: &Path) -> Option<&'d Schema> {
        let inputs = self.definition.inputs.as_ref().filter(|_| path.root == Root::Inputs)?;
        path.segments.iter().try_fold(inputs, |schema, segment| self.definition.property(schema, segment))
    }

    /// Returns the ids that a computed one can be, where all of them are known: those that are put together of words of an `enum`.
    pub(crate) fn ids(&self, node: usize, site: Site, call: &Call) -> Option<Vec<String>> {
        const MOST_IDS: usize = 64;
        let TermKind::Template { template, .. } = &call.computed()?.0.kind else { return None };
        let words = |expression: &Expression| {
            let [path] = expression.paths.as_slice() else { return None };
            match self.type_of_path(node, site, path).kind {
                Kind::Enum(words) => Some(words),
                _ => None,
            }
        };
        let pieces: Vec<Vec<String>> = match template {
            Template::Text(_) => return None,
            Template::Whole(expression) => vec![words(expression)?],
            Template::Mixed(pieces) => {
                let piece = |piece: &Piece| match piece {
                    Piece::Text(text) => Some(vec![text.clone()]),
                    Piece::Expression(expression) => words(expression),
                };
                pieces.iter().map(piece).collect::<Option<_>>()?
            }
        };
        pieces.iter().try_fold(vec![String::new()], |ids, words| {
            let longer = ids.iter().flat_map(|id| words.iter().map(move |word| format!("{id}{word}")));
            let longer: Vec<String> = longer.take(MOST_IDS + 1).collect();
            (longer.len() <= MOST_IDS).then_some(longer)
        })
    }

    /// What an item of the list is that a foreach goes over.
    fn item_of(&self, node: usize) -> Type {
        let NodeKind::Foreach(each) = &self.definition.nodes[node].kind else { return Type::any() };
        let over = inference::type_of_term(self, node, Site::Over, &each.over);
        match over.kind {
            Kind::List(items) => *items,
            // What is not known yet, or null, which is no item at all.
            Kind::Never => Type::never(),
            _ => Type::any_of(over.has_secret()),
        }
    }

    /// Whether a failure of this node leads along its ordinary edges, without its assignments (R125).
    pub(crate) fn may_skip_assign(&self, node: usize) -> bool {
        let node = &self.definition.nodes[node];
        self.definition.settings.on_error == OnError::Continue
            && matches!(&node.kind, NodeKind::Action(action) if action.on_error.is_none())
    }

    /// Whether a path leads to what `result` has only where the node has failed: to a field that its tool does not return (R125).
    pub(crate) fn is_of_failure(&self, node: usize, path: &Path) -> bool {
        let (Root::Result, [field, ..]) = (path.root, path.segments.as_slice()) else { return false };
        let Some(call) = self.definition.nodes[node].call().filter(|_| self.may_skip_assign(node)) else {
            return false;
        };
        let is_returned = self.tool(call).result.step(field).is_ok();
        !is_returned && matches!(field.as_str(), "status" | "error")
    }

    /// Calls `visit` with each path that the graph reads.
    pub(crate) fn reads(&self, visit: &mut impl FnMut(Read<'d>)) {
        for (at, node) in self.definition.nodes.iter().enumerate() {
            for (site, term) in terms(node) {
                self.reads_of(at, site, term, visit);
            }
            for test in tests(node) {
                visit(Read::of_test(at, Site::Next, test));
            }
        }
        for (at, hook) in self.definition.hooks.iter().enumerate() {
            for term in hook_terms(hook) {
                self.reads_of(at, Site::Hook, term, visit);
            }
            hook.condition.tests(&mut |test| {
                visit(Read::of_test(at, Site::Hook, test));
            });
        }
    }

    fn reads_of(&self, node: usize, site: Site, term: &'d Term, visit: &mut impl FnMut(Read<'d>)) {
        term.templates(&mut |term, template, text| {
            for expression in template.expressions() {
                for (at, (path, range)) in expression.paths.iter().zip(&expression.ranges).enumerate() {
                    let has_fallback = at + 1 < expression.paths.len();
                    let alternatives = expression.paths.as_slice();
                    visit(Read { node, site, path, stands: Stands::In(term, text, range), has_fallback, alternatives });
                }
            }
        });
    }

    /// Returns what is known of the value at a path.
    pub(crate) fn type_of_path(&self, node: usize, site: Site, path: &Path) -> Type {
        let (root, segments) = match path.root {
            Root::Now => return Type::of(Kind::String),
            Root::Timestamp => return Type::of(Kind::Integer),
            // There may be many inputs.
            Root::Inputs => match path.segments.split_first() {
                Some((name, rest)) if matches!(self.types.inputs.kind, Kind::Object(_)) => match self.types.input(name)
                {
                    Some(field) if field.ty.nullable && self.is_something(node, site, path, 1) => {
                        (Cow::Owned(field.ty.clone().not_null()), rest)
                    }
                    Some(field) => (Cow::Borrowed(&field.ty), rest),
                    None => return Type::any(),
                },
                _ => (Cow::Borrowed(&self.types.inputs), path.segments.as_slice()),
            },
            Root::Result => match self.result_at(node, site) {
                Some(result) => (result, path.segments.as_slice()),
                None => return Type::any(),
            },
            Root::Local if site == Site::Hook => return Type::any(),
            Root::Local => (Cow::Owned(self.item_of(node)), path.segments.get(1..).unwrap_or_default()),
            Root::Visit => match path.segments.split_first() {
                Some((field, rest)) if field == "previous" => {
                    (Cow::Owned(self.previous_at(node).unwrap_or_else(|_| Type::any())), rest)
                }
                Some((field, _)) if field == "number" => return Type::of(Kind::Integer),
                _ => return Type::any(),
            },
            Root::State => match path.segments.split_first() {
                Some((key, rest)) => (Cow::Owned(self.type_of_key(node, site, key)), rest),
                None => {
                    let has_secret = self.types.keys.iter().any(|key| key.ty.has_secret());
                    return Type::of(Kind::Map(Box::new(Type::any_of(has_secret))));
                }
            },
        };
        let (mut ty, mut done) = (root, path.segments.len() - segments.len());
        for segment in segments {
            // A part that no value has is reported by its own rule. When the graph runs, it is null. Were it any value here, a key
            // that is assigned a part of itself, which another node gives it, would lose its type.
            let Ok(mut part) = ty.step(segment) else { return Type::null() };
            if let (Kind::List(items), false) = (&ty.kind, ty.nullable)
                && self.has_element(node, site, path, done)
            {
                part.nullable = items.nullable;
            }
            done += 1;
            ty = Cow::Owned(match part.nullable && self.is_something(node, site, path, done) {
                true => part.not_null(),
                false => part,
            });
        }
        let mut ty = ty.into_owned();
        if self.flow.knows_paths() && matches!(path.root, Root::State | Root::Inputs) {
            self.narrow(node, site, &mut path.clone(), &mut ty);
        }
        ty
    }

    /// Takes from the fields of the value at a path the null that a condition on the way to here rules out.
    fn narrow(&self, node: usize, site: Site, path: &mut Path, ty: &mut Type) {
        let Kind::Object(fields) = &mut ty.kind else { return };
        for field in fields {
            path.segments.push(field.name.clone());
            if field.ty.nullable && self.is_something(node, site, path, path.segments.len()) {
                field.ty = std::mem::replace(&mut field.ty, Type::never()).not_null();
            }
            self.narrow(node, site, path, &mut field.ty);
            path.segments.pop();
        }
    }

    /// Whether the first parts of a path lead to something for sure, since a condition on the way to here says so.
    pub(crate) fn is_something(&self, node: usize, site: Site, path: &Path, parts: usize) -> bool {
        let Some(moment) = site.moment() else { return false };
        if !matches!(path.root, Root::State | Root::Inputs) {
            return false;
        }
        let part = Path { root: path.root, segments: path.segments[..parts].to_vec() };
        self.flow.is_something(node, moment, &part)
    }

    /// Whether the list that the first parts of a path lead to is sure to have the element that the next part names.
    fn has_element(&self, node: usize, site: Site, path: &Path, parts: usize) -> bool {
        let Some(index) = path.segments.get(parts).and_then(|part| part.parse::<i64>().ok()) else { return false };
        let needed = if index < 0 { index.unsigned_abs() } else { index.unsigned_abs() + 1 };
        let list = Path { root: path.root, segments: path.segments[..parts].to_vec() };
        let is_not_empty = || site.moment().is_some_and(|moment| self.flow.is_not_empty(node, moment, &list));
        (needed == 1 && is_not_empty()) || inference::least_items(self, node, site, &list) >= needed
    }

    /// Whether one of several paths is sure to be set at a place: the keys that they begin with, the inputs that they name.
    pub(crate) fn is_one_set(&self, node: usize, site: Site, paths: &[Path]) -> bool {
        paths.len() > 1 && site.moment().is_some_and(|moment| self.flow.is_one_set(node, moment, paths))
    }

    /// Whether one of several paths is sure to lead to something at a place, whichever it is.
    pub(crate) fn is_one_something(&self, node: usize, site: Site, paths: &[Path]) -> bool {
        self.is_one_set(node, site, paths) && paths.iter().all(|path| !self.type_where_set(path).nullable)
    }

    /// Whether one of the paths into the state may lead to null although the key that it begins with is set.
    pub(crate) fn is_null_where_set(&self, paths: &[Path]) -> bool {
        let mut of_state = paths.iter().filter(|path| path.root == Root::State);
        of_state.any(|path| self.type_where_set(path).nullable)
    }

    /// Returns what is known of the value at a path where the state key or input that it begins with is there.
    fn type_where_set(&self, path: &Path) -> Type {
        let (first, rest) = match (path.root, path.segments.split_first()) {
            (Root::Now | Root::Timestamp, _) => return Type::of(Kind::String),
            (Root::Inputs, Some((name, rest))) => match self.types.input(name) {
                Some(field) => (field.ty.clone().not_null(), rest),
                None => return Type::any().or_null(),
            },
            (Root::State, Some((name, rest))) if name == LAST_ERROR => (inference::last_error().not_null(), rest),
            (Root::State, Some((name, rest))) => match self.types.key(name) {
                Some(key) => (self.types.keys[key].ty.clone(), rest),
                None => return Type::any().or_null(),
            },
            _ => return Type::any().or_null(),
        };
        let step = |ty: Type, part: &String| ty.step(part).unwrap_or_else(|_| Type::any().or_null());
        rest.iter().fold(first, step)
    }

    /// Whether a key is sure to be set at a place.
    pub(crate) fn is_set(&self, node: usize, site: Site, key: usize) -> bool {
        site.moment().is_none_or(|moment| self.flow.is_set(node, moment, key))
    }

    /// Returns what is known of a state key, at a place where it may not be set yet.
    pub(crate) fn type_of_key(&self, node: usize, site: Site, name: &str) -> Type {
        let (Some(key), false) = (self.flow.key(self, name), name == RETRIES) else {
            return if name == RETRIES { inference::retries() } else { Type::any() };
        };
        let ty = if name == LAST_ERROR { inference::last_error() } else { self.types.keys[key].ty.clone() };
        // A failure leaves nothing else in the last error.
        let ty = if name == LAST_ERROR { ty.not_null() } else { ty };
        let path = Path { root: Root::State, segments: vec![name.to_owned()] };
        match site.moment() {
            Some(moment) if self.flow.is_something(node, moment, &path) => ty.not_null(),
            Some(moment) if self.flow.is_set(node, moment, key) => ty,
            _ => ty.or_null(),
        }
    }

    /// Returns what the graph looks like from outside.
    pub(crate) fn outline(&self) -> Outline {
        let definition = self.definition;
        let fields = |ty: &Type| match &ty.kind {
            Kind::Object(fields) => Some(fields.clone()),
            _ => None,
        };
        let tool = |tool: &ToolFacts<'_>| Tool {
            id: tool.key.2.to_owned(),
            verb: tool.key.0,
            item: tool.key.1,
            by: tool.by,
            typed: tool.graph.is_some() || tool.contract.is_some_and(|contract| contract.result.is_some()),
            capability: tool.capability.as_ref().map(ToString::to_string),
            builtin: tool.contract.is_some_and(|contract| contract.builtin() || contract.subprocess().is_some()),
            subprocess: tool.contract.and_then(|contract| contract.subprocess()).cloned(),
            module: tool.graph.map(|graph| graph.module.clone()),
            description: tool.contract.and_then(|contract| contract.description.clone()),
            // A graph takes its inputs as one object.
            params: tool.contract.and_then(|contract| fields(&Type::of_schema(&contract.params))),
            result: tool.result.clone(),
        };
        let web = self.web();
        let exits = inference::exits(self, web);
        Outline {
            id: definition.id.to_string(),
            version: definition.version.clone(),
            description: definition.description.clone(),
            inputs: fields(&self.types.inputs),
            keys: self.types.keys.iter().map(|key| Key { ty: key.ty.clone().not_null(), ..key.clone() }).collect(),
            tools: self.tools.iter().map(tool).collect(),
            output: inference::output(self, &exits),
            exits: if self.may_end_anywhere() { Vec::new() } else { exits },
            inner: self.items.inner.iter().map(Inner::clone).collect(),
            budget: super::budget::budget(self, web),
        }
    }
}

/// Returns what nodes and hooks call, in the order of the file.
fn calls(definition: &Definition) -> impl Iterator<Item = (Caller<'_>, &Call)> {
    let nodes = definition.nodes.iter().enumerate();
    let hooks = definition.hooks.iter().enumerate().filter_map(|(at, hook)| match &hook.reaction {
        Reaction::Call(call) => Some((Caller::Hook(at, hook), call)),
        Reaction::Steer(_) => None,
    });
    nodes.filter_map(|(at, node)| Some((Caller::Node(at, node), node.call()?))).chain(hooks)
}

/// Returns the values with templates that a hook has.
pub(crate) fn hook_terms(hook: &HookDefinition) -> Vec<&Term> {
    match &hook.reaction {
        Reaction::Steer(params) => vec![params],
        Reaction::Call(call) => vec![&call.params],
    }
}

fn onward(node: &NodeDefinition, by_name: &HashMap<&str, usize>) -> Onward {
    let index = |to: &Spanned<NodeName>| by_name.get(to.value.as_str()).copied();
    let targets = followed(node.next()).into_iter().enumerate().filter_map(|(at, edge)| Some((index(edge.to?)?, at)));
    let (next, edges) = targets.unzip();
    Onward { next, edges, on_error: node.on_error().and_then(index) }
}

/// An edge as the rules see it.
#[derive(Clone, Copy)]
pub(crate) struct EdgeFacts<'d> {
    pub(crate) to: Option<&'d Spanned<NodeName>>,
    /// Whether it has no condition.
    pub(crate) always: bool,
    /// The edge of a list.
    pub(crate) edge: Option<&'d Edge>,
}

/// Returns the edges of a node, in order.
pub(crate) fn edges<'n>(next: &'n Next) -> Vec<EdgeFacts<'n>> {
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
pub(crate) fn followed(next: &Next) -> Vec<EdgeFacts<'_>> {
    let mut edges = edges(next);
    if let Some(last) = edges.iter().position(|edge| edge.always) {
        edges.truncate(last + 1);
    }
    edges
}

/// Returns the values with templates that a node has, each with its place.
pub(crate) fn terms<'n>(node: &'n NodeDefinition) -> Vec<(Site, &'n Term)> {
    let mut terms = Vec::new();
    let mut call = |site, call: &'n Call| {
        terms.extend(call.computed().map(|(term, _)| (site, term)));
        terms.push((site, &call.params));
    };
    match &node.kind {
        NodeKind::Action(action) => call(Site::Params, &action.call),
        NodeKind::Foreach(each) => {
            call(Site::Item, &each.call);
            terms.push((Site::Over, &each.over));
        }
        NodeKind::Gate(_) => {}
        NodeKind::Return(returns) => terms.extend(returns.output.iter().map(|term| (Site::Output, term))),
    }
    let assign = node.assign().iter().enumerate().map(|(at, assignment)| (Site::Assign(at), &assignment.value));
    terms.extend(assign);
    terms
}

/// Returns the comparisons in the edges of a node.
pub(crate) fn tests(node: &NodeDefinition) -> Vec<&Test> {
    let mut tests = Vec::new();
    if let Next::List(EdgeList { edges, .. }) = node.next() {
        edges.iter().for_each(|edge| edge.when.tests(&mut |test| tests.push(test)));
    }
    tests
}
