//! Conditions on inputs that occur more than once. Inputs do not change, so the same comparison always has the same
//! result in a run.

use std::cell::{Cell, RefCell};

use graph_definition::definition::{EdgeList, RouteDefinition, TestDefinition, compiled};
use graph_definition::hash::HashMap;
use graph_model::operator::Operator;
use graph_model::path::Root;
use graph_model::value::{AsView, Value};

use crate::analysis::Analysis;
use crate::analysis::guards;
use crate::analysis::reads::Site;
use crate::types::TypeKind;

/// A comparison of an input, and its result.
type Decided<'d> = (&'d TestDefinition, bool);

/// How many different comparisons of inputs are analysed.
const MOST_COMPARISONS: usize = 64;

/// Up to how many edges of a node are analysed: each is combined with all edges before it.
const MOST_EDGES: usize = 50;

/// How many nodes are visited in all searches together; after that, every path counts as possible.
const MOST_LOOKS: usize = 20_000_000;

/// The comparisons of inputs in the edges of a graph.
pub(super) struct Correlated<'f, 'd> {
    analysis: &'f Analysis<'d>,
    /// For each node and each of its edges, the results of comparisons that the edge implies.
    edges: Vec<Vec<Vec<Decided<'d>>>>,
    /// The comparisons that may be known at a node, each once.
    comparisons: Vec<Decided<'d>>,
    /// For each of these, the nodes that a run can reach without it.
    reached: RefCell<HashMap<usize, Vec<bool>>>,
    looks: Cell<usize>,
}

impl<'f, 'd> Correlated<'f, 'd> {
    pub(super) fn new(analysis: &'f Analysis<'d>) -> Self {
        let nodes = &analysis.model.definition.nodes;
        let of_node = |(at, next): (usize, &'d RouteDefinition)| -> Vec<Vec<Decided<'d>>> {
            let RouteDefinition::First(EdgeList { edges, .. }) = next else {
                return vec![Vec::new(); analysis.model.successors(at).count()];
            };
            if edges.len() > MOST_EDGES {
                return vec![Vec::new(); analysis.model.successors(at).count()];
            }
            let of_edge = |edge| {
                let decided = guards::decided_on_edge(edges, edge).into_iter();
                decided.filter(|(test, _)| test.path.value.root == Root::Inputs).collect()
            };
            analysis.model.edge_indices(at).map(of_edge).collect()
        };
        let meanings: Vec<Vec<Vec<Decided<'d>>>> =
            nodes.iter().map(|node| node.next()).enumerate().map(of_node).collect();
        let mut comparisons: Vec<Decided<'d>> = Vec::new();
        for &one in meanings.iter().flatten().flatten() {
            if comparisons.len() < MOST_COMPARISONS && !comparisons.iter().any(|&known| is_same(known, one)) {
                comparisons.push(one);
            }
        }
        Self { analysis, edges: meanings, comparisons, reached: RefCell::default(), looks: Cell::new(0) }
    }

    /// Whether an edge of a node contradicts the known results.
    pub(super) fn is_closed(&self, known: &[Decided<'d>], node: usize, edge: usize) -> bool {
        self.edges[node]
            .get(edge)
            .into_iter()
            .flatten()
            .any(|&one| known.iter().any(|&known| self.contradict(known, one)))
    }

    /// Returns the results of comparisons that are known whenever a run reaches a node.
    pub(super) fn known_at(&self, node: usize) -> Vec<Decided<'d>> {
        let count = self.edges.len();
        if self.comparisons.is_empty() || self.looks.get() > MOST_LOOKS {
            return Vec::new();
        }
        // The caller then searches the graph once more.
        self.looks.set(self.looks.get() + count);
        let mut reached = self.reached.borrow_mut();
        let known = self.comparisons.iter().enumerate().filter(|&(at, _)| {
            let without = reached.entry(at).or_insert_with(|| {
                self.looks.set(self.looks.get() + count);
                self.reached_without(self.comparisons[at])
            });
            !without[node]
        });
        known.map(|(_, one)| *one).collect()
    }

    /// Returns the nodes that a run can reach on edges that leave a comparison open.
    fn reached_without(&self, (test, holds): Decided<'d>) -> Vec<bool> {
        let mut reached = vec![false; self.edges.len()];
        let mut waiting: Vec<usize> = self.analysis.model.roots().collect();
        while let Some(node) = waiting.pop() {
            if std::mem::replace(&mut reached[node], true) {
                continue;
            }
            for (edge, next) in self.analysis.model.successors(node).enumerate() {
                // An edge that contradicts the opposite result implies this result.
                if !self.edges[node][edge].iter().any(|&one| self.contradict(one, (test, !holds))) {
                    waiting.push(next);
                }
            }
            waiting.extend(self.analysis.model.other_successors(node));
            // A join is visited although its branches have ended, too.
            let branches = self.analysis.flow.branches();
            waiting.extend(branches.beyond(node).iter().chain(branches.broken(node)));
        }
        reached
    }

    /// Whether no value yields both results.
    fn contradict(&self, one: Decided<'d>, other: Decided<'d>) -> bool {
        if one.0.path.value != other.0.path.value {
            return false;
        }
        if one.1 != other.1 && is_same((one.0, other.1), other) {
            return true;
        }
        let exactly =
            |(test, holds): Decided<'d>| (test.operator == Operator::Eq && holds).then_some(&test.value.value);
        if let Some(value) = exactly(one) {
            return comes_out(other.0, value) != Some(other.1);
        }
        if let Some(value) = exactly(other) {
            return comes_out(one.0, value) != Some(one.1);
        }
        // If there are few possible values, each is tried.
        let ty = self.analysis.type_env().type_of_path(0, Site::Hook, &one.0.path.value);
        let mut values: Vec<Value> = match &ty.kind {
            TypeKind::Boolean => vec![Value::Bool(true), Value::Bool(false)],
            TypeKind::Enum(texts) if texts.len() <= MOST_COMPARISONS => {
                texts.iter().map(|text| Value::String(text.clone())).collect()
            }
            _ => return false,
        };
        values.extend(ty.nullable.then_some(Value::Null));
        let fits = |value: &Value| [one, other].iter().all(|(test, holds)| comes_out(test, value) == Some(*holds));
        !values.iter().any(fits)
    }
}

/// Whether two comparisons are the same and have the same result.
fn is_same((one, holds): Decided<'_>, (other, other_holds): Decided<'_>) -> bool {
    holds == other_holds
        && one.operator == other.operator
        && one.value.value == other.value.value
        && one.path.value == other.path.value
}

/// Returns the result of a comparison for a value; `None` if the two cannot be compared.
fn comes_out(test: &TestDefinition, value: &Value) -> Option<bool> {
    let pattern = |text: &str| {
        let regex = test.value.value.as_str().and_then(compiled);
        regex.is_some_and(|regex| regex.is_match(text))
    };
    test.operator.holds(value.view(), &test.value.value, pattern).ok()
}
