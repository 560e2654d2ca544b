//! Visits that can fail by themselves, so that the failure ends the branch or the run.
//!
//! The types of state keys are not known yet, so a node counts as one that may fail if only those exclude it.

use graph_definition::definition::{NodeDefinition, NodeKind, RouteDefinition, TestDefinition};
use graph_model::operator::Operator;
use graph_model::path::Root;
use graph_model::program::OnNoMatch;
use graph_model::reducer::Reducer;
use graph_model::value::Value;

use super::edges::edges;
use super::flow::is_something;
use super::model::Model;
use super::reads::tests;
use crate::types::TypeKind;

impl Model<'_> {
    /// Whether a visit of this node can fail without a handler of its own, or of the graph, so that its failure ends the run
    /// or the branch.
    pub(crate) fn may_break(&self, node: usize) -> bool {
        let definition = &self.definition.nodes[node];
        let routes =
            || self.may_lead_nowhere(definition) || tests(definition).into_iter().any(|test| self.may_fail(test));
        match &definition.kind {
            NodeKind::Return(_) | NodeKind::Start(_) => false,
            // A failure that continues along the edges breaks the node only if none of them can be followed.
            NodeKind::Action(_) if self.may_skip_assign(node) => routes(),
            NodeKind::Action(_) | NodeKind::Foreach(_) => definition.on_error().is_none(),
            NodeKind::Wait(wait) => {
                wait.on_error.is_none() && (wait.until.is_some() || routes() || self.may_not_combine(node))
            }
            NodeKind::Gate(_) => routes() || self.may_not_combine(node),
        }
    }

    /// Whether no edge of a node may be followed although none ends the path. A route by a value has an edge for each value.
    fn may_lead_nowhere(&self, node: &NodeDefinition) -> bool {
        let edges = edges(node.next());
        let needs_match = self.definition.settings.on_no_match == OnNoMatch::Fail && !edges.is_empty();
        match node.next() {
            // The list may be too long, or no list.
            RouteDefinition::Each(_) => true,
            RouteDefinition::By(_) => false,
            _ => needs_match && !edges.iter().any(|edge| edge.always),
        }
    }

    /// Whether the values of a test may be of kinds that cannot be compared. Null can be compared with anything.
    fn may_fail(&self, test: &TestDefinition) -> bool {
        let path = &test.path.value;
        let kind = match (path.root, path.segments.as_slice()) {
            (Root::Visit, [number]) if number == "number" => TypeKind::Integer,
            (Root::Inputs, [_, ..]) => {
                let found = path.segments.iter().try_fold(self.inputs.clone(), |ty, part| ty.step(part).ok());
                found.map_or(TypeKind::Any, |ty| ty.kind)
            }
            _ => TypeKind::Any,
        };
        let right = &test.value.value;
        match test.operator {
            Operator::Eq | Operator::Ne | Operator::Exists => false,
            Operator::In => !right.is_array(),
            Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte => match kind {
                TypeKind::Integer | TypeKind::Number => !right.is_number(),
                TypeKind::String | TypeKind::Enum(_) => !right.is_string(),
                _ => true,
            },
            Operator::Contains => match kind {
                TypeKind::String | TypeKind::Enum(_) => !right.is_string(),
                TypeKind::List(_) => false,
                _ => true,
            },
            Operator::Regex => !matches!(
                kind,
                TypeKind::String | TypeKind::Enum(_) | TypeKind::Integer | TypeKind::Number | TypeKind::Boolean
            ),
        }
    }

    /// Whether a write of a gate to a channel may not combine with its value.
    fn may_not_combine(&self, node: usize) -> bool {
        let assign = self.definition.nodes[node].assign().iter().enumerate();
        let mut writes =
            assign.filter_map(|(at, one)| Some((at, one, self.reducer(self.key(one.key.value.as_str())?)?)));
        writes.any(|(at, one, reducer)| match reducer {
            Reducer::Last => false,
            // One element is added, whatever it is, except null.
            Reducer::Append => !is_something(self, node, at, &one.value),
            Reducer::Extend | Reducer::Union => !one.value.literal().is_some_and(|list: Value| list.is_array()),
            _ => true,
        })
    }
}
