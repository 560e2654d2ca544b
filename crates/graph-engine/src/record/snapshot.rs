//! Snapshots: the position and state of a run in a single record, so that a resumed run need not add up all records before
//! it.
//!
//! A snapshot contains nothing that the records before it do not imply. It is written with the step after which it holds,
//! once so much was written since the last snapshot that this one adds at most a quarter. So a step costs no more in a long
//! run with a large state than in a short run with a small one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use graph_model::secret::Mask;
use graph_model::value::{Map, Value, View};

use crate::activation::{Activation, BranchKey, Fan, Frame, frames, path};
use crate::failure::LastError;
use crate::graph::{Asks, CompiledKey, GraphTables, Retries};
use crate::record::entry::{BranchMemory, FanOut, InBranch, Join, Snapshot, Target};
use crate::record::written::{open_joins, targets};
use crate::run_secrets::{RunSecrets, SecretLocation, is_encrypted, named_result_mask};
use crate::state::StateFields;
use crate::step::{Branch, ElementPaths, Memory, OpenJoin, PausedNodes, Position, SharedKey, TakenWait};

/// The minimum number of bytes that are written between two snapshots.
const LEAST: usize = 64 * 1024;
/// The minimum number of bytes that are written before a snapshot, as a multiple of the snapshot's own size.
const TIMES: usize = 4;

/// When the next snapshot is due.
#[derive(Debug, Clone, Copy, Default)]
pub struct Due {
    /// How many bytes were written since the last one.
    written: usize,
    /// How large the last one was, or would have been.
    size: usize,
}

impl Due {
    /// Counts a record that was written.
    pub fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
    }

    /// Counts a snapshot that was written.
    pub fn took(&mut self, bytes: usize) {
        *self = Self { written: 0, size: bytes };
    }

    /// Whether enough was written to find out how large a snapshot would be.
    pub fn is_now(&self) -> bool {
        self.written >= LEAST.max(self.size.saturating_mul(TIMES))
    }

    /// Whether a snapshot of that size is written now. If not, this is not asked again before more is written.
    pub fn takes(&mut self, bytes: usize) -> bool {
        self.size = bytes;
        self.is_now()
    }
}

/// The position and state of a run of which a snapshot is made.
pub struct SnapshotDraft<'a> {
    /// The graph.
    pub code: &'a GraphTables,
    /// The state.
    pub state: &'a dyn StateFields,
    /// The position.
    pub position: &'a Position,
    /// Encrypts the secrets; `None` if the graph has no secrets.
    pub run_secrets: Option<&'a RunSecrets>,
}

impl SnapshotDraft<'_> {
    fn name(&self, node: u16) -> &str {
        &self.code.node(node).name
    }

    /// Returns how often nodes were visited, by their names.
    fn counts(&self, visits: &BTreeMap<u16, u64>) -> BTreeMap<String, u64> {
        visits.iter().map(|(node, count)| (self.name(*node).to_owned(), *count)).collect()
    }

    /// Returns the keys that are set, except those that are kept in memory only.
    fn keys(&self) -> Map<String, Value> {
        let set = self.code.keys.iter().enumerate().map(|(index, key)| (key, self.state.get(index)));
        let kept = set.filter(|(key, view)| !view.is_null() && !key.is_in_memory());
        let value = |(key, view): (&CompiledKey, View<'_>)| {
            let place = SecretLocation::kept(self.position.steps, &key.name);
            let mask = self.code.settings.secrets.keys.get(&key.name);
            let encrypted = self.run_secrets.map(|secrets| secrets.encrypt(mask, place, view.to_plain_value()));
            (key.name.clone(), encrypted.unwrap_or_else(|| view.to_value()))
        };
        kept.map(value).collect()
    }

    /// Returns the results of the last visits in the order of the nodes, so that the same position always gives the same
    /// text.
    fn previous(&self, memory: &Memory, branch: Option<BranchKey>) -> Map<String, Value> {
        let nodes: BTreeMap<&u16, &Value> = memory.previous.iter().collect();
        let returned = |(node, value): (&u16, &Value)| {
            let (name, value) = (self.name(*node), value.clone());
            let (mask, key) = (previous_mask(self.code, name), seen_by(name, branch));
            let place = SecretLocation::seen(self.position.steps, &key);
            let value = match self.run_secrets {
                Some(run_secrets) => run_secrets.encrypt(mask, place, value),
                None => value,
            };
            (name.to_owned(), value)
        };
        nodes.into_iter().map(returned).collect()
    }

    /// Returns the fan-outs that any part of the position is inside of, in their order.
    fn fans(&self) -> Vec<FanOut> {
        let Position { joins, branches, .. } = self.position;
        let stands = self.position.open().chain(&self.position.returning).filter_map(|at| at.frame.as_ref());
        let remembered = branches.values().map(|branch| &branch.frame);
        let around = joins.iter().filter_map(|join| join.fan.outer.as_ref());
        let inside = stands.chain(remembered).chain(around).flat_map(|frame| frames(Some(frame)));
        let fans = inside.map(|frame| &frame.fan).chain(joins.iter().map(|join| &join.fan));
        let fans: BTreeMap<u64, &Arc<Fan>> = fans.map(|fan| (fan.visit, fan)).collect();
        fans.into_values().map(|fan| self.fan(fan)).collect()
    }

    fn fan(&self, fan: &Fan) -> FanOut {
        let list = || Value::Array(fan.list.to_vec());
        let list = match self.run_secrets {
            _ if fan.list.is_empty() => Value::Null,
            None => list(),
            Some(run_secrets) => run_secrets.encrypt_list(fan.visit, list()),
        };
        let outer = fan.outer.as_ref().map(|frame| InBranch { fan: frame.fan.visit, branch: frame.branch });
        FanOut { visit: fan.visit, node: self.name(fan.node).to_owned(), outer, list }
    }

    fn branches(&self) -> Vec<BranchMemory> {
        let memory = |(key, branch): (&BranchKey, &Branch)| BranchMemory {
            fan: key.0,
            branch: key.1,
            last_error: branch.memory.last_error.clone(),
            failed_at: branch.failed_at,
            retries: branch.memory.retries.clone(),
            visits: self.counts(&branch.memory.visits),
            previous: self.previous(&branch.memory, Some(*key)),
        };
        self.position.branches.iter().map(memory).collect()
    }

    /// Returns the snapshot as it is written.
    pub fn to_owned(&self) -> Snapshot {
        let (code, position) = (self.code, self.position);
        let owned = |all: &[Activation]| targets(code, all).into_iter().map(Target::into_read).collect::<Vec<_>>();
        let key_name = |key: usize| code.keys[key].name.clone();
        let last = last_made(position.steps, &position.frontier, &position.parked);
        // A run that has returned takes no snapshot.
        Snapshot {
            steps: position.steps,
            last: self.name(position.last).to_owned(),
            keys: self.keys(),
            next: owned(&position.frontier),
            last_error: position.root.last_error.clone(),
            suppressed: position.suppressed.clone(),
            retries: position.root.retries.clone(),
            visits: self.counts(&position.root.visits),
            previous: self.previous(&position.root, None),
            limit: position.limit,
            visited: self.counts(&position.visited),
            below: position.below,
            made: Some(position.made).filter(|made| *made != last),
            parked: owned(&position.parked),
            held: position.held.clone(),
            waits: position.waits.clone(),
            taken: position.taken.values().cloned().collect(),
            received: position.received.clone(),
            pauses: PausedNodes::of(code, position.pauses.as_deref()),
            to_pause: position.to_pause.clone(),
            paused_after: position.paused_after.clone(),
            waited: position.waited.clone(),
            fans: self.fans(),
            joins: open_joins(code, &position.joins),
            returning: position.returning.as_ref().and_then(|at| owned(std::slice::from_ref(at)).pop()),
            branches: self.branches(),
            shared: position.shared.iter().map(|shared| (key_name(shared.key), shared.writes.clone())).collect(),
            paths: position.paths.iter().map(|(key, paths)| (key_name(*key), paths.clone())).collect(),
        }
    }
}

/// Returns the key of a node's last visit in a branch, under which the visit's result is encrypted.
fn seen_by(node: &str, branch: Option<BranchKey>) -> String {
    branch.map_or_else(|| node.to_owned(), |(fan, branch)| format!("{node}/{fan}/{branch}"))
}

/// Returns where the secrets are in the result of a node's last visit; for a foreach, in the list that it collected.
fn previous_mask<'c>(code: &'c GraphTables, node: &str) -> Option<&'c Mask> {
    let at = code.node_named(node)?;
    match code.asks(at) {
        Asks::Each { collects, .. } => code.mask_of_write(&code.keys[collects?].name, &Value::Array(Vec::new())),
        Asks::Nothing | Asks::Once { .. } => named_result_mask(code, node),
    }
}

impl Snapshot {
    /// Opens the secrets in the snapshot.
    pub fn decrypt(
        &mut self,
        code: &GraphTables,
        run_secrets: &RunSecrets,
    ) -> Result<(), crate::run_secrets::NotOpened> {
        for (name, value) in &mut self.keys {
            run_secrets.decrypt(code.settings.secrets.keys.get(name), SecretLocation::kept(self.steps, name), value)?;
        }
        for (name, value) in &mut self.previous {
            run_secrets.decrypt(previous_mask(code, name), SecretLocation::seen(self.steps, name), value)?;
        }
        for fan in &mut self.fans {
            run_secrets.decrypt_list(fan.visit, &mut fan.list)?;
        }
        let taken = self.taken.iter_mut().filter_map(|taken| taken.signal.as_mut());
        let answers = self.waited.values_mut().flat_map(|waited| &mut waited.answers);
        for signal in taken.chain(answers) {
            run_secrets.decrypt_signal(code, signal)?;
        }
        for BranchMemory { fan, branch, previous, .. } in &mut self.branches {
            for (name, value) in previous {
                let key = seen_by(name, Some((*fan, *branch)));
                run_secrets.decrypt(previous_mask(code, name), SecretLocation::seen(self.steps, &key), value)?;
            }
        }
        Ok(())
    }

    /// Restores a run: writes the snapshot's keys to `state`, which is that of a run about to begin, and returns the
    /// position. Without a state, the values may be encrypted.
    ///
    /// # Errors
    ///
    /// If the snapshot does not fit the graph.
    pub fn restore(
        &self,
        code: &GraphTables,
        state: Option<&mut (dyn StateFields + 'static)>,
    ) -> Result<Position, String> {
        let node = |name: &str| code.node_named(name).ok_or_else(|| format!("there is no node `{name}`"));
        if let Some(state) = state {
            for (key, CompiledKey { name, .. }) in code.keys.iter().enumerate() {
                // A key that had an initial value may have been unset.
                let value = self.keys.get(name).cloned().unwrap_or_default();
                state.set(key, value).map_err(|error| format!("`{name}`: {error}"))?;
            }
        }
        if let Some(name) = self.keys.keys().find(|name| code.keys.iter().all(|key| key.name != **name)) {
            return Err(format!("there is no state key `{name}`"));
        }
        let fans = self.read_fans(code)?;
        let stands = |target: &Target| read_target(code, &fans, target);
        let frontier = self.next.iter().map(stands).collect::<Result<Vec<_>, String>>()?;
        let parked = self.parked.iter().map(stands).collect::<Result<Vec<_>, String>>()?;
        let last = last_made(self.steps, &frontier, &parked);
        let made = self.made.unwrap_or(last);
        if made < last {
            return Err(format!("the greatest number of an activation is {last}, not {made}"));
        }
        self.check_parked(code, &parked)?;
        let joins = self.joins.iter().map(|join| {
            let fan = fans.get(&join.fan).ok_or_else(|| format!("visit {} began no branches", join.fan))?;
            let Join { node: name, arrived, over, .. } = join;
            Ok(OpenJoin { node: node(name)?, fan: Arc::clone(fan), arrived: arrived.clone(), is_over: *over })
        });
        if self.returning.is_some() && !self.joins.iter().any(|join| join.over) {
            return Err("a return waits for late branches, and none are said".to_owned());
        }
        let branches = self.branches.iter().map(|said| {
            let BranchMemory { fan, branch, last_error, failed_at, retries, visits, previous } = said;
            let frame = frame_of(&fans, *fan, *branch)?;
            let memory = read_memory(code, last_error.as_ref(), retries, visits, previous)?;
            Ok(((*fan, *branch), Branch { frame, failed_at: *failed_at, memory }))
        });
        Ok(Position {
            steps: self.steps,
            made,
            last: node(&self.last)?,
            returned_in: None,
            frontier,
            parked,
            held: self.held.clone(),
            waits: self.waits.clone(),
            taken: self.read_taken(code)?,
            // No step ends between the end of such a wait and the visit.
            calls_left: BTreeMap::new(),
            pauses: self.pauses.resolve(code)?,
            to_pause: self.to_pause.clone(),
            paused_after: self.paused_after.clone(),
            waited: self.waited.clone(),
            received: self.received.clone(),
            joins: joins.collect::<Result<_, String>>()?,
            returning: self.returning.as_ref().map(stands).transpose()?,
            root: read_memory(code, self.last_error.as_ref(), &self.retries, &self.visits, &self.previous)?,
            branches: branches.collect::<Result<_, String>>()?,
            suppressed: self.suppressed.clone(),
            limit: self.limit,
            visited: read_counts(code, &self.visited)?,
            below: self.below,
            shared: self.read_shared(code)?,
            paths: self.read_paths(code)?,
        })
    }

    /// Fails unless each parked activation waits or has a failure that is held, and nothing else does.
    fn check_parked(&self, code: &GraphTables, parked: &[Activation]) -> Result<(), String> {
        let mut numbers: Vec<u64> = parked.iter().map(|at| at.number).collect();
        numbers.sort_unstable();
        let held = self.held.iter().map(|failed| failed.step);
        let waiting = self.waits.iter().map(|wait| wait.step);
        let mut all: Vec<u64> = held.clone().chain(waiting.clone()).collect();
        all.sort_unstable();
        if all != numbers || !held.is_sorted() || !waiting.is_sorted() {
            return Err(format!("the visits {all:?} wait or have failed, and {numbers:?} are parked"));
        }
        let open: BTreeSet<u64> = self.next.iter().map(|next| next.number).chain(numbers.iter().copied()).collect();
        let to_pause = self.to_pause.iter().filter(|step| **step > 0 || self.returning.is_none());
        if let Some(step) = self.waited.keys().chain(to_pause).find(|step| !open.contains(step)) {
            return Err(format!("visit {step} is over, and is said to wait"));
        }
        let arrived = |visit: &u64| self.joins.iter().flat_map(|join| &join.arrived).any(|one| one.visit == *visit);
        if let Some(step) = self.paused_after.iter().find(|visit| !arrived(visit)) {
            return Err(format!("visit {step} has come to no join, and the run is said to pause behind it"));
        }
        let waits = |at: &Activation| self.waits.iter().find(|wait| wait.step == at.number);
        let before = |step: u64| self.waited.get(&step).map_or(0, |waited| waited.waits);
        let is_other = |at: &&Activation| match waits(at) {
            Some(wait) if wait.opened.is_inside() => !code.may_nest(at.node),
            Some(wait) if wait.opened.before != before(wait.step) => true,
            Some(wait) => wait.opened.pause.is_none() && !code.waits(at.node) && !code.tool_may_ask(at.node),
            None => false,
        };
        match parked.iter().find(is_other) {
            Some(at) => Err(format!("node `{}` does not wait", code.node(at.node).name)),
            None => Ok(()),
        }
    }

    /// Reads the activations of the next step, or of visits whose failures are held or that a hook has left, that have waited.
    fn read_taken(&self, code: &GraphTables) -> Result<BTreeMap<u64, TakenWait>, String> {
        let held = self.held.iter().map(|failed| (failed.step, &failed.node));
        let next = self.next.iter().map(|next| (next.number, &next.node));
        let by_hook = |step: u64| self.waits.iter().any(|wait| wait.step == step && wait.opened.suspension().is_some());
        let left = self.parked.iter().filter(|at| by_hook(at.number)).map(|at| (at.number, &at.node));
        let open: BTreeMap<u64, &String> = held.chain(next).chain(left).collect();
        let taken = |taken: &TakenWait| {
            let node = open.get(&taken.step).and_then(|node| code.node_named(node));
            let waits = node.is_some_and(|node| match taken.call {
                0 => code.waits(node) || code.tool_may_ask(node),
                _ => taken.signal.is_some() && !code.node(node).share_signals.is_empty(),
            });
            if waits { Ok((taken.step, taken.clone())) } else { Err(format!("visit {} has not waited", taken.step)) }
        };
        self.taken.iter().map(taken).collect()
    }

    /// Reads the writes to the shared keys.
    fn read_shared(&self, code: &GraphTables) -> Result<Vec<SharedKey>, String> {
        let key = |(name, writes): (&String, &Vec<Value>)| {
            let key = code.key_named(name).filter(|key| code.keys[*key].is_shareable());
            let key = key.ok_or_else(|| format!("`{name}` is no key that can be shared"))?;
            Ok(SharedKey { key, writes: writes.clone() })
        };
        let mut shared = self.shared.iter().map(key).collect::<Result<Vec<_>, String>>()?;
        shared.sort_unstable_by_key(|shared| shared.key);
        Ok(shared)
    }

    /// Reads the branches of the last elements of channels.
    fn read_paths(&self, code: &GraphTables) -> Result<ElementPaths, String> {
        let key = |(name, paths): (&String, &Vec<Vec<u32>>)| {
            let key = code.key_named(name).filter(|key| code.keys[*key].by_branch);
            Ok((key.ok_or_else(|| format!("the elements of `{name}` are not put in order"))?, paths.clone()))
        };
        self.paths.iter().map(key).collect()
    }

    /// Reads the fan-outs whose branches are not over. Each comes after the ones around it.
    fn read_fans(&self, code: &GraphTables) -> Result<Fans, String> {
        let mut fans = Fans::new();
        for FanOut { visit, node, outer, list } in &self.fans {
            let outer = outer.map(|InBranch { fan, branch }| frame_of(&fans, fan, branch)).transpose()?;
            let node = code.node_named(node).ok_or_else(|| format!("there is no node `{node}`"))?;
            let list = match list {
                Value::Null => Arc::default(),
                Value::Array(list) => Arc::new(list.clone()),
                // Nothing is computed from a list without the key that it was encrypted with.
                list if is_encrypted(list) => Arc::default(),
                _ => return Err(format!("visit {visit} began branches for a value that is not a list")),
            };
            fans.insert(*visit, Arc::new(Fan { visit: *visit, node, outer, list }));
        }
        Ok(fans)
    }
}

/// Returns the greatest number of an activation that a position says.
fn last_made(steps: u64, frontier: &[Activation], parked: &[Activation]) -> u64 {
    frontier.iter().chain(parked).map(|at| at.number).max().unwrap_or_default().max(steps)
}

/// Fan-outs, by the numbers of their visits.
type Fans = BTreeMap<u64, Arc<Fan>>;

fn frame_of(fans: &Fans, fan: u64, branch: u32) -> Result<Arc<Frame>, String> {
    let fan = fans.get(&fan).ok_or_else(|| format!("visit {fan} began no branches"))?;
    Ok(Arc::new(Frame { fan: Arc::clone(fan), branch }))
}

fn read_target(code: &GraphTables, fans: &Fans, target: &Target) -> Result<Activation, String> {
    let Target { number, node, branch, fan } = target;
    let node = code.node_named(node).ok_or_else(|| format!("there is no node `{node}`"))?;
    let frame = branch.last().map(|branch| frame_of(fans, *fan, *branch)).transpose()?;
    if path(frame.as_ref()) != *branch {
        return Err(format!("visit {number}, which is next, is in another branch than it says"));
    }
    Ok(Activation { number: *number, node, frame })
}

/// Reads how often nodes were visited.
fn read_counts(code: &GraphTables, counts: &BTreeMap<String, u64>) -> Result<BTreeMap<u16, u64>, String> {
    let node = |name: &str| code.node_named(name).ok_or_else(|| format!("there is no node `{name}`"));
    counts.iter().map(|(name, count)| Ok((node(name)?, *count))).collect()
}

fn read_memory(
    code: &GraphTables,
    last_error: Option<&LastError>,
    retries: &Retries,
    visits: &BTreeMap<String, u64>,
    previous: &Map<String, Value>,
) -> Result<Memory, String> {
    let node = |name: &str| code.node_named(name).ok_or_else(|| format!("there is no node `{name}`"));
    let previous = previous.iter().map(|(name, value)| Ok((node(name)?, value.clone())));
    Ok(Memory {
        last_error: last_error.cloned(),
        retries: retries.clone(),
        visits: read_counts(code, visits)?,
        previous: previous.collect::<Result<HashMap<_, _>, String>>()?,
    })
}

#[cfg(test)]
mod tests {
    use graph_model::program::{Executor, ItemType, Key, Program, Tool, Verb};

    use super::*;
    use crate::graph::{CompiledGraph, tables};

    #[test]
    fn the_list_that_a_foreach_appends_is_one_element_of_its_channel() {
        let each = r#"{"line":1,"does":{"foreach":0},"each":{"over":[1],"as":"n","collect":"x","width":1}}"#;
        let program = Program {
            id: "test/each",
            version: "",
            source: "",
            digest: &"0".repeat(64),
            signer: &"0".repeat(16),
            start: 0,
            settings: r#"{"channels":{"x":"append"},"secrets":{"keys":{"x":{"each":{"each":"all"}}}}}"#,
            permissions: &[],
            env: &[],
            keys: &[Key { name: "x", initial: Some("[]") }],
            tools: &[Tool {
                id: "test/tool",
                verb: Verb::Execute,
                item: ItemType::Tool,
                by: Executor::Program,
                params: None,
                typed: true,
                nests: false,
            }],
            nodes: &[("each", each)],
        };
        let compiled = CompiledGraph::load(&program).unwrap();
        assert_eq!(previous_mask(tables(&compiled), "each"), Some(&Mask::Each(Box::new(Mask::All))));
    }
}
