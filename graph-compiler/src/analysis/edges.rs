//! The edges of a node, as rules look at them.

use graph_definition::definition::{EdgeDefinition, EdgeList, NodeDefinition, RouteDefinition, Spanned};
use graph_definition::hash::HashMap;
use graph_model::condition::Condition;
use graph_model::name::NodeName;

/// The nodes that a node may lead to, by index.
pub(crate) struct Onward {
    /// The targets of its edges, in order, without those after an edge that always matches.
    pub(crate) next: Vec<usize>,
    /// The indices of these edges.
    pub(crate) edges: Vec<usize>,
    pub(crate) on_error: Option<usize>,
    /// The node that follows when a wait for signals has lasted its time.
    pub(crate) on_timeout: Option<usize>,
    /// The node that is visited instead of this one if too few branches can arrive.
    pub(crate) fewer: Option<usize>,
}

/// Returns the nodes that a node may lead to; `by_name` has the indices of the nodes.
pub(crate) fn onward(node: &NodeDefinition, by_name: &HashMap<&str, usize>) -> Onward {
    let index = |to: &Spanned<NodeName>| by_name.get(to.value.as_str()).copied();
    let targets = followed(node.next()).into_iter().enumerate().filter_map(|(at, edge)| Some((index(edge.to?)?, at)));
    let (next, edges) = targets.unzip();
    Onward {
        next,
        edges,
        on_error: node.on_error().and_then(index),
        on_timeout: node.on_timeout().and_then(index),
        fewer: node.fewer().and_then(index),
    }
}

/// An edge as the rules see it.
#[derive(Clone, Copy)]
pub(crate) struct EdgeView<'d> {
    pub(crate) to: Option<&'d Spanned<NodeName>>,
    /// Whether it has no condition.
    pub(crate) always: bool,
    /// The edge of a list.
    pub(crate) edge: Option<&'d EdgeDefinition>,
}

/// Returns the edges of a node, in order.
pub(crate) fn edges<'n>(next: &'n RouteDefinition) -> Vec<EdgeView<'n>> {
    match next {
        RouteDefinition::End => Vec::new(),
        RouteDefinition::To(to) => vec![EdgeView { to: Some(to), always: true, edge: None }],
        RouteDefinition::Each(each) => vec![EdgeView { to: Some(&each.to), always: false, edge: None }],
        RouteDefinition::By(by) => {
            by.to.iter().map(|(_, to)| EdgeView { to: to.as_ref(), always: false, edge: None }).collect()
        }
        RouteDefinition::First(EdgeList { edges, .. }) | RouteDefinition::All(EdgeList { edges, .. }) => {
            let view = |edge: &'n EdgeDefinition| {
                let always = matches!(edge.when, Condition::Always);
                EdgeView { to: edge.to.as_ref(), always, edge: Some(edge) }
            };
            edges.iter().map(view).collect()
        }
    }
}

/// Returns the edges that can be followed. If only the first match is followed, edges after one that always matches are
/// left out.
pub(crate) fn followed(next: &RouteDefinition) -> Vec<EdgeView<'_>> {
    let mut edges = edges(next);
    if !matches!(next, RouteDefinition::All(_))
        && let Some(last) = edges.iter().position(|edge| edge.always)
    {
        edges.truncate(last + 1);
    }
    edges
}
