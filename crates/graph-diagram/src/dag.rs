//! The JSON model of a directed graph, schema version 1.3, that viewers of agent frameworks read.

use std::slice::from_ref;

use graph_engine::machine::{Topology, TopologyKind};
use graph_proof::history::Traversal;
use serde::{Deserialize, Serialize};

use crate::drawing::{BoxShape, Drawing, DrawnBox, Stroke};

/// A directed graph in the mode `graph`: its nodes are states, and its edges may form loops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Dag {
    /// `1.3`.
    pub schema_version: String,
    /// `graph`.
    pub mode: String,
    /// The graph's id.
    pub name: String,
    /// The states, with the end if anything leads there.
    pub tasks: Vec<DagTaskNode>,
    /// The edges, in the order of the file.
    pub graph_edges: Vec<DagGraphEdge>,
    /// How a run ended, if one is shown: its status, or nothing while it is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_reason: Option<String>,
    /// How many steps a run has made, if one is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
}

/// A state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct DagTaskNode {
    /// The node's name; for the end `END`, with underscores behind it if a node has that name.
    pub id: String,
    /// The node's name, with what it does.
    pub description: String,
    /// `graph-state`, or `graph-end` for the end and for nodes that return.
    pub node_type: String,
    /// The kind of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<TopologyKind>,
    /// Its badges: `START`, `INTERRUPT`, `NESTED` …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub badges: Vec<String>,
}

/// An edge between two states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct DagGraphEdge {
    /// The state that it leads from.
    pub from_state_id: String,
    /// The state that it leads to.
    pub to_state_id: String,
    /// The condition as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition_description: Option<String>,
    /// Whether it has no condition.
    pub unconditional: bool,
    /// Whether a run took it, if one is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fired: Option<bool>,
    /// How often a run took it, if one is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
}

/// The id of the end, unless a node has this name.
const END: &str = "END";

impl Dag {
    pub(crate) fn of(topology: &Topology, traversal: Option<&Traversal>) -> Self {
        let drawing = Drawing::of(topology, traversal);
        let is_taken = |id: &String| topology.node(id).is_some();
        let end = (0..).map(|more| format!("{END}{}", "_".repeat(more))).find(|id| !is_taken(id)).unwrap_or_default();
        let id = |one: &DrawnBox| if one.shape == BoxShape::End { end.clone() } else { one.name.clone() };
        let states = drawing.boxes.iter().filter(|one| one.shape != BoxShape::Start).map(|one| DagTaskNode {
            id: id(one),
            description: [from_ref(&one.name), &one.lines[..]].concat().join("\n"),
            node_type: match one.shape {
                BoxShape::End | BoxShape::Node(TopologyKind::Return) => "graph-end".to_owned(),
                _ => "graph-state".to_owned(),
            },
            kind: match one.shape {
                BoxShape::Node(kind) => Some(kind),
                BoxShape::Start | BoxShape::End => None,
            },
            badges: one.badges.clone(),
        });
        let edges = drawing.arrows.iter().filter(|arrow| arrow.from > 0).map(|arrow| DagGraphEdge {
            from_state_id: id(&drawing.boxes[arrow.from]),
            to_state_id: id(&drawing.boxes[arrow.to]),
            condition_description: (!arrow.label.is_empty()).then(|| arrow.label.clone()),
            unconditional: arrow.stroke == Stroke::Unconditional,
            fired: traversal.map(|_| arrow.times > 0),
            times: traversal.map(|_| arrow.times),
        });
        Self {
            schema_version: "1.3".to_owned(),
            mode: "graph".to_owned(),
            name: topology.id.to_string(),
            tasks: states.collect(),
            graph_edges: edges.collect(),
            termination_reason: traversal.map(|traversal| traversal.status.name().to_owned()),
            steps: traversal.map(|traversal| traversal.steps),
        }
    }
}
