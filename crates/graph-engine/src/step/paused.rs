//! Where a run pauses, and why a visit is left before it is made.

use std::collections::BTreeSet;

use graph_model::value::Value;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::failure::is_zero;
use crate::graph::GraphTables;
use crate::step::opened::Opening;

/// The nodes at which a run pauses, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct PausedNodes {
    /// A visit of one of these is made when it is released.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// The visits that follow a visit of one of these are made when they are released.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

impl PausedNodes {
    /// Nodes before and after which a run pauses.
    pub fn new(before: Vec<String>, after: Vec<String>) -> Self {
        Self { before, after }
    }

    /// Whether the run pauses nowhere.
    pub fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }

    /// Returns the nodes of a graph.
    ///
    /// # Errors
    ///
    /// If the graph has no such node, or the run ends at a node after which it would pause.
    pub(crate) fn resolve(&self, graph: &GraphTables) -> Result<Option<Box<Pauses>>, String> {
        let index =
            |name: &String| graph.node_named(name).ok_or_else(|| format!("it has no node `{name}` to pause at"));
        let before = self.before.iter().map(index).collect::<Result<_, _>>()?;
        let after: BTreeSet<u16> = self.after.iter().map(index).collect::<Result<_, _>>()?;
        if let Some(at) = after.iter().find(|at| graph.node(**at).kind.ends_run()) {
            let name = &graph.node(*at).name;
            return Err(format!("nothing follows node `{name}`, which ends the run: pause before it"));
        }
        Ok((!self.is_empty()).then(|| Box::new(Pauses { before, after })))
    }

    /// Returns the names of the nodes.
    pub(crate) fn of(graph: &GraphTables, pauses: Option<&Pauses>) -> Self {
        let names = |nodes: &BTreeSet<u16>| nodes.iter().map(|node| graph.node(*node).name.clone()).collect();
        pauses.map_or_else(Self::default, |pauses| Self { before: names(&pauses.before), after: names(&pauses.after) })
    }
}

/// The nodes at which a run pauses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pauses {
    pub(super) before: BTreeSet<u16>,
    pub(super) after: BTreeSet<u16>,
}

/// Why a visit is left before it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Pause {
    /// The caller pauses the run before this node.
    Before,
    /// The caller pauses the run after the node that leads here.
    After,
    /// A hook suspended the run.
    Hook,
}

/// The suspension of a visit by a hook: the visit is left before it is made, or before its call is made again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Suspension {
    /// The reason that the hook gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Value>,
    /// The people who release it, if not anybody who can write to the store with the key of the journals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escalated: Option<Escalation>,
    /// The number of the call of a graph that is made again, if it is not the first.
    #[serde(skip_serializing_if = "is_zero")]
    pub call: u64,
}

impl Suspension {
    /// A suspension with the reason of a hook, which is empty if the hook does not say.
    pub fn new(reason: &str, escalated: Option<Escalation>) -> Self {
        let reason = (!reason.is_empty()).then(|| json!({ "reason": reason }));
        Self { reason, escalated, call: 0 }
    }

    /// Whether it takes the place of another one of the same visit. One hook may leave a visit to people, and another one suspend
    /// it: the people decide, and of several roles the first.
    pub fn replaces(&self, other: &Self) -> bool {
        self.escalated.is_some() && other.escalated.is_none()
    }

    /// Returns the suspension of the same visit in a fork of the run.
    #[must_use]
    pub fn of_fork(self) -> Self {
        Self { call: 0, ..self }
    }

    /// Returns the opening of the visit.
    pub(crate) fn opening(self) -> Opening {
        let Self { reason, escalated, call } = self;
        Opening { until: None, payload: reason, pause: Some(Pause::Hook), escalated, call }
    }
}

/// The people who release a visit that a hook left to them: they sign the answer [`CONTINUE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Escalation {
    /// The role that they have; `None` for any trusted key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// How many keys of different owners sign the answer.
    pub count: u32,
}

/// The only answer that releases a visit that was left to people.
pub const CONTINUE: &str = "continue";

impl Escalation {
    /// So many people with a role, at least one.
    pub fn new(role: Option<String>, count: u32) -> Self {
        Self { role, count: count.max(1) }
    }
}
