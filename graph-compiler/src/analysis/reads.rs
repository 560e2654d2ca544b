//! The paths that a graph reads, and their places.

use graph_definition::definition::{
    CallDefinition, Definition, EdgeList, HookDefinition, NodeDefinition, Reaction, RouteDefinition, Spanned,
    TermDefinition, TestDefinition, locate,
};
use graph_definition::diagnostic::SourcePlace;
use graph_definition::source::Span;
use graph_model::path::Path;

/// The place of an expression in a node. It determines the meaning of `result` and other names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// In an action's parameters: before there is a result.
    Params,
    /// In `over`: before there is an item.
    Over,
    /// In the action of a foreach, which sees the item.
    Item,
    /// In `assign`, after the assignments before this index.
    Assign(usize),
    /// In the condition of an edge.
    Next,
    /// In the `payload` of an interrupt: before it asks.
    Payload,
    /// In the `until` of a wait: before it waits.
    Until,
    /// In a return node's output.
    Output,
    /// In a hook, which is no part of a node.
    Hook,
}

impl Site {
    /// Returns the point of the node at which an expression at this place is evaluated; `None` for a hook.
    pub(crate) fn point(self) -> Option<ProgramPoint> {
        match self {
            Self::Params | Self::Over | Self::Item | Self::Until | Self::Payload | Self::Output => {
                Some(ProgramPoint::Before)
            }
            Self::Assign(count) => Some(ProgramPoint::Assigned(count)),
            Self::Next => Some(ProgramPoint::After),
            Self::Hook => None,
        }
    }
}

/// A point in the execution of a node, at which facts are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramPoint {
    /// Before the node does anything.
    Before,
    /// In its assignments, after the first so many of them.
    Assigned(usize),
    /// When its edges are chosen.
    After,
}

impl ProgramPoint {
    /// Returns how many assignments were made at most.
    pub(crate) fn made(self) -> usize {
        match self {
            Self::Before => 0,
            Self::Assigned(count) => count,
            Self::After => usize::MAX,
        }
    }
}

/// A path that is read somewhere.
pub(crate) struct PathRead<'d> {
    /// The index of the node, or of the hook if the path is in a hook.
    pub(crate) node: usize,
    pub(crate) site: Site,
    pub(crate) path: &'d Path,
    stands: Stands<'d>,
    /// Whether another path follows it after `||`, in case it leads to no value.
    pub(crate) has_fallback: bool,
    /// All paths of its expression, separated by `||`, including this one.
    pub(crate) alternatives: &'d [Path],
}

/// The place of a path in the file.
#[derive(Clone, Copy)]
enum Stands<'d> {
    At(&'d Span),
    /// In a part of a value's text.
    In(&'d TermDefinition, &'d str, &'d Span),
}

impl<'d> PathRead<'d> {
    /// Returns the read of a comparison, in a node's edges or a hook's condition.
    pub(crate) fn of_test(node: usize, site: Site, test: &'d TestDefinition) -> Self {
        Self::of_path(node, site, &test.path)
    }

    /// Returns the read of a path outside of an expression.
    fn of_path(node: usize, site: Site, path: &'d Spanned<Path>) -> Self {
        let (path, span) = (&path.value, &path.span);
        let alternatives = std::slice::from_ref(path);
        Self { node, site, path, stands: Stands::At(span), has_fallback: false, alternatives }
    }

    /// Returns the place of the path.
    pub(crate) fn place(&self, definition: &Definition) -> SourcePlace {
        match self.stands {
            Stands::At(span) => definition.place(span),
            Stands::In(term, text, part) => definition.place(&locate(definition.source(), &term.span, text, part)),
        }
    }
}

/// Calls `visit` with each path that the graph reads.
pub(crate) fn reads<'d>(definition: &'d Definition, visit: &mut impl FnMut(PathRead<'d>)) {
    for (at, node) in definition.nodes.iter().enumerate() {
        for (site, term) in terms(node) {
            reads_of(at, site, term, visit);
        }
        for test in tests(node) {
            visit(PathRead::of_test(at, Site::Next, test));
        }
        if let RouteDefinition::By(by) = node.next() {
            visit(PathRead::of_path(at, Site::Next, &by.by));
        }
    }
    for (at, hook) in definition.hooks.iter().enumerate() {
        for term in hook_terms(hook) {
            reads_of(at, Site::Hook, term, visit);
        }
        hook.condition.tests(&mut |test| {
            visit(PathRead::of_test(at, Site::Hook, test));
        });
    }
}

fn reads_of<'d>(node: usize, site: Site, term: &'d TermDefinition, visit: &mut impl FnMut(PathRead<'d>)) {
    term.templates(&mut |term, template, text| {
        for expression in template.expressions() {
            for (at, (path, range)) in expression.paths.iter().zip(&expression.ranges).enumerate() {
                let has_fallback = at + 1 < expression.paths.len();
                let alternatives = expression.paths.as_slice();
                visit(PathRead { node, site, path, stands: Stands::In(term, text, range), has_fallback, alternatives });
            }
        }
    });
}

/// Returns the values with templates that a hook has.
pub(crate) fn hook_terms(hook: &HookDefinition) -> Vec<&TermDefinition> {
    match &hook.reaction {
        Reaction::Steer(params) => vec![params],
        Reaction::Call(call) => vec![&call.params],
    }
}

/// Returns the values with templates that a node has, each with its place.
pub(crate) fn terms<'n>(node: &'n NodeDefinition) -> Vec<(Site, &'n TermDefinition)> {
    let mut terms = Vec::new();
    let mut call = |site, call: &'n CallDefinition| {
        terms.extend(call.computed().map(|(term, _)| (site, term)));
        terms.push((site, &call.params));
    };
    if let Some(called) = node.call() {
        call(if node.each().is_some() { Site::Item } else { Site::Params }, called);
    }
    terms.extend(node.each().map(|each| (Site::Over, &each.over)));
    terms.extend(node.wait().and_then(|wait| wait.until.as_ref()).map(|term| (Site::Until, term)));
    terms.extend(node.ask().and_then(|ask| ask.payload.as_ref()).map(|payload| (Site::Payload, payload)));
    terms.extend(node.output().map(|term| (Site::Output, term)));
    let assign = node.assign().iter().enumerate().map(|(at, assignment)| (Site::Assign(at), &assignment.value));
    terms.extend(assign);
    if let RouteDefinition::Each(each) = node.next() {
        terms.push((Site::Next, &each.over));
    }
    terms
}

/// Returns the comparisons in the edges of a node.
pub(crate) fn tests(node: &NodeDefinition) -> Vec<&TestDefinition> {
    let mut tests = Vec::new();
    if let RouteDefinition::First(EdgeList { edges, .. }) | RouteDefinition::All(EdgeList { edges, .. }) = node.next() {
        edges.iter().for_each(|edge| edge.when.tests(&mut |test| tests.push(test)));
    }
    tests
}
