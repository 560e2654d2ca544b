//! Snapshots: where a run stands, all of it in one record, so that who takes the run up need not add up the records before.
//!
//! A snapshot says nothing that the records before it do not say. It is written with the step that it stands behind, when so much
//! was written since the last one that it adds at most a quarter: so a long run and a large state cost a step no more than a
//! short one and a small state do.

use std::collections::{BTreeMap, HashMap};

use graph_model::value::{Map, Value};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use super::{Target, activation, targets};
use crate::error::{LastError, SuppressedError};
use crate::graph::{CompiledGraph, Key, Kind};
use crate::machine::Cells;
use crate::step::{Position, Retries};
use crate::vault::{Place, Vault, result_mask};

/// How many bytes are written at least between two snapshots.
const LEAST: usize = 64 * 1024;
/// How many times its own size is written at least between a snapshot and the one before.
const TIMES: usize = 4;

/// Where a run stands behind a step: its state without its inputs, which the first record has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// How many nodes were visited.
    pub steps: u64,
    /// The node that was visited last.
    pub last: String,
    /// The state keys that are set.
    pub keys: Map<String, Value>,
    /// What is to be visited next.
    pub next: Vec<Target>,
    /// The last failure of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// The failures that the run went on after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suppressed: Vec<SuppressedError>,
    /// How often nodes that failed were tried again, by their names.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub retries: Map<String, Value>,
    /// How often nodes were visited, by their names, where the graph asks for that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub visits: BTreeMap<String, u64>,
    /// What the last visit returned of each node that asks for that.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub previous: Map<String, Value>,
    /// How many steps the run may take, where that is not what the graph says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// When the next snapshot is due.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Due {
    /// How many bytes were written since the last one.
    written: usize,
    /// How large the last one was, or would have been.
    size: usize,
}

impl Due {
    /// Takes into account that a record was written.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
    }

    /// Takes into account that a snapshot was written.
    pub(crate) fn took(&mut self, bytes: usize) {
        *self = Self { written: 0, size: bytes };
    }

    /// Whether it is worth while to see how large a snapshot would be.
    pub(crate) fn is_now(&self) -> bool {
        self.written >= LEAST.max(self.size.saturating_mul(TIMES))
    }

    /// Whether a snapshot of that size is written now; if not, it is not asked again before more is written.
    pub(crate) fn takes(&mut self, bytes: usize) -> bool {
        self.size = bytes;
        self.is_now()
    }
}

/// Where a run stands, as the engine writes it: nothing is copied but what is sealed.
pub(crate) struct SnapshotDraft<'a> {
    pub(crate) code: &'a CompiledGraph,
    pub(crate) state: &'a dyn Cells,
    pub(crate) position: &'a Position,
    /// Seals the secrets; none where the graph has none.
    pub(crate) vault: Option<&'a Vault>,
}

impl SnapshotDraft<'_> {
    fn name(&self, node: u16) -> &str {
        &self.code.node(node).name
    }

    /// Returns the snapshot as it is written.
    pub(crate) fn to_owned(&self) -> Snapshot {
        let value = serde_json::to_value(self).and_then(serde_json::from_value);
        value.expect("a snapshot has only texts as keys and finite numbers")
    }
}

impl Serialize for SnapshotDraft<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Position { steps, last, frontier, last_error, suppressed, retries, visits, previous, limit } =
            self.position;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("steps", steps)?;
        map.serialize_entry("last", self.name(*last))?;
        map.serialize_entry("keys", &KeysDraft(self))?;
        map.serialize_entry("next", &targets(self.code, frontier))?;
        if let Some(error) = last_error {
            map.serialize_entry("last_error", error)?;
        }
        if !suppressed.is_empty() {
            map.serialize_entry("suppressed", suppressed)?;
        }
        if !retries.is_empty() {
            map.serialize_entry("retries", retries)?;
        }
        let counts: BTreeMap<&str, u64> =
            (0..).zip(visits).filter(|(_, count)| **count > 0).map(|(node, count)| (self.name(node), *count)).collect();
        if !counts.is_empty() {
            map.serialize_entry("visits", &counts)?;
        }
        if !previous.is_empty() {
            map.serialize_entry("previous", &PreviousDraft(self))?;
        }
        if let Some(limit) = limit {
            map.serialize_entry("limit", limit)?;
        }
        map.end()
    }
}

struct KeysDraft<'a>(&'a SnapshotDraft<'a>);

impl Serialize for KeysDraft<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let SnapshotDraft { code, state, position, vault } = self.0;
        let mut map = serializer.serialize_map(None)?;
        for (index, key) in code.keys.iter().enumerate() {
            let view = state.get(index);
            match (vault, code.settings.secrets.keys.get(&key.name)) {
                _ if view.is_null() => {}
                (Some(vault), mask @ Some(_)) => {
                    let place = Place::kept(position.steps, &key.name);
                    map.serialize_entry(&key.name, &vault.seal(mask, place, view.to_plain_value()))?;
                }
                _ => map.serialize_entry(&key.name, &view)?,
            }
        }
        map.end()
    }
}

struct PreviousDraft<'a>(&'a SnapshotDraft<'a>);

impl Serialize for PreviousDraft<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let SnapshotDraft { code, position, vault, .. } = self.0;
        // In the order of the nodes, so that the same position is always the same text.
        let mut nodes: Vec<(&u16, &Value)> = position.previous.iter().collect();
        nodes.sort_unstable_by_key(|(node, _)| **node);
        let mut map = serializer.serialize_map(Some(nodes.len()))?;
        for (node, value) in nodes {
            let name = self.0.name(*node);
            match (vault, previous_mask(code, name)) {
                (Some(vault), mask @ Some(_)) => {
                    map.serialize_entry(name, &vault.seal(mask, Place::seen(position.steps, name), value.clone()))?;
                }
                _ => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}

/// Returns where secrets are in what the last visit of a node returned: of a foreach, that is what it collected.
fn previous_mask<'c>(code: &'c CompiledGraph, node: &str) -> Option<&'c graph_model::secret::Mask> {
    let at = code.node_named(node)?;
    match &code.node(at).kind {
        Kind::Foreach(each) => code.settings.secrets.keys.get(&code.keys[each.collect?].name),
        _ => result_mask(code, node),
    }
}

impl Snapshot {
    /// Opens the secrets in it.
    pub(crate) fn unseal(&mut self, code: &CompiledGraph, vault: &Vault) -> Result<(), crate::vault::NotOpened> {
        for (name, value) in &mut self.keys {
            vault.unseal(code.settings.secrets.keys.get(name), Place::kept(self.steps, name), value)?;
        }
        for (name, value) in &mut self.previous {
            vault.unseal(previous_mask(code, name), Place::seen(self.steps, name), value)?;
        }
        Ok(())
    }

    /// Puts a run to where the snapshot stands: `state` is that of a run that is about to begin.
    ///
    /// # Errors
    ///
    /// If it does not fit the graph.
    pub(crate) fn restore(&self, code: &CompiledGraph, state: &mut dyn Cells) -> Result<Position, String> {
        let node = |name: &str| code.node_named(name).ok_or_else(|| format!("there is no node `{name}`"));
        for (key, Key { name, .. }) in code.keys.iter().enumerate() {
            // A key that had a first value may have been unset.
            let value = self.keys.get(name).cloned().unwrap_or_default();
            state.set(key, value).map_err(|error| format!("`{name}`: {error}"))?;
        }
        if let Some(name) = self.keys.keys().find(|name| code.keys.iter().all(|key| key.name != **name)) {
            return Err(format!("there is no state key `{name}`"));
        }
        let mut visits = Position::new(code).visits;
        for (name, count) in &self.visits {
            if let Some(place) = visits.get_mut(usize::from(node(name)?)) {
                *place = *count;
            }
        }
        let previous = |(name, value): (&String, &Value)| Ok((node(name)?, value.clone()));
        Ok(Position {
            steps: self.steps,
            last: node(&self.last)?,
            frontier: self.next.iter().map(|target| activation(code, target)).collect::<Result<_, _>>()?,
            last_error: self.last_error.clone(),
            suppressed: self.suppressed.clone(),
            retries: Retries::clone(&self.retries),
            visits,
            previous: self.previous.iter().map(previous).collect::<Result<HashMap<_, _>, String>>()?,
            limit: self.limit,
        })
    }
}
