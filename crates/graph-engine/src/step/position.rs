//! The position of a run.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use graph_model::path::Path;
use graph_model::value::{AsView, Value};

use crate::activation::{Activation, Arrival, BranchKey, Fan, Frame, branch_in, frames, is_inside};
use crate::failure::{HeldFailure, LastError, SuppressedError};
use crate::graph::{GraphTables, Retries};
use crate::status::Status;
use crate::step::opened::{OpenWait, Opened, TakenWait, Waited};
use crate::step::order::ElementPaths;
use crate::step::paused::{Pause, Pauses};
use crate::step::shared::SharedKey;
use crate::step::visited::SettledVisit;

/// The position of a run between two steps: everything but its state. Nothing of it changes while a step is in progress.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Position {
    /// How many nodes were visited.
    pub steps: u64,
    /// How many activations were made. The next one gets the number after it.
    pub made: u64,
    /// The node that was visited last; before the first visit, the node that is visited first.
    pub last: u16,
    /// The branch in which the run has returned, once it has.
    pub returned_in: Option<Arc<Frame>>,
    /// The activations of the next step, ordered by path.
    pub frontier: Vec<Activation>,
    /// Activations that wait: for something to happen, or, if their failures are held, until the run is resumed. They are not
    /// visited, and the joins that they can still reach wait for them.
    pub parked: Vec<Activation>,
    /// The failures that are held, each of a parked activation, ordered by the numbers of the visits.
    pub held: Vec<HeldFailure>,
    /// The waits of the other parked activations, ordered by the numbers of the visits.
    pub waits: Vec<OpenWait>,
    /// The activations of the next step that have waited, and how that ended, by the numbers of the visits.
    pub taken: BTreeMap<u64, TakenWait>,
    /// The numbers of the calls with which visits continue that have waited for nested runs or were paused, by the numbers of the
    /// visits and the items, if those are not the first.
    pub calls_left: BTreeMap<(u64, Option<u64>), u64>,
    /// The nodes at which the run pauses, if whoever began it said so.
    pub pauses: Option<Box<Pauses>>,
    /// The visits that are left before they are made because they follow others, by their numbers; 0 is that of `returning`.
    pub to_pause: BTreeSet<u64>,
    /// The visits after which the run pauses and that came to open joins, by their numbers.
    pub paused_after: BTreeSet<u64>,
    /// The waits of visits that were paused or whose tools ask people, until they are made, by the numbers of the visits.
    pub waited: BTreeMap<u64, Waited>,
    /// The places of the signals that waits have taken, among those of the run.
    pub received: BTreeSet<u64>,
    /// The joins that branches have reached or will reach, ordered by the visits that fanned out, and by the nodes.
    pub joins: Vec<OpenJoin>,
    /// The return that is visited when the late branches are done. It has no number yet.
    pub returning: Option<Activation>,
    /// The memory outside all branches.
    pub root: Memory,
    /// The memory of each branch that has one.
    pub branches: BTreeMap<BranchKey, Branch>,
    /// The failures after which the run continued.
    pub suppressed: Vec<SuppressedError>,
    /// How many steps the run may take, if a hook or the caller set another limit than the graph's.
    pub limit: Option<u64>,
    /// How often each node was visited, in all branches; empty if the graph does not limit that.
    pub visited: BTreeMap<u16, u64>,
    /// How many steps the runs made that its visits began, if they are counted.
    pub below: u64,
    /// The keys that the run shares with the run around it, if it is nested.
    pub shared: Vec<SharedKey>,
    /// The branches that wrote the last elements of channels, whose elements are put in order when the branches meet.
    pub paths: ElementPaths,
}

/// A join that branches may still come to, for one visit that fanned out.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenJoin {
    /// The node.
    pub node: u16,
    /// The visit that fanned out.
    pub fan: Arc<Fan>,
    /// The visits that led to it, and the branch of the fan-out that each was in.
    pub arrived: Vec<Arrival>,
    /// Whether its quorum is decided. The branches that have not arrived are late: the run continues beside them.
    pub is_over: bool,
}

/// Returns the late branches of these joins, ordered by their keys, that a frame is in, the innermost first.
fn late<'f>(joins: &'f [OpenJoin], frame: Option<&'f Arc<Frame>>) -> impl Iterator<Item = &'f Arc<Frame>> {
    let is_late = |frame: &&Arc<Frame>| {
        let first = joins.partition_point(|join| join.fan.visit < frame.fan.visit);
        joins[first..].iter().take_while(|join| join.fan.visit == frame.fan.visit).any(|join| join.is_over)
    };
    frames(frame).filter(is_late)
}

/// Whether an activation is in a late branch of one of these joins, inside of `fan` if it is given.
pub(super) fn is_late(joins: &[OpenJoin], frame: Option<&Arc<Frame>>, fan: Option<&Fan>) -> bool {
    late(joins, frame).any(|late| fan.is_none_or(|fan| is_inside(late.fan.outer.as_ref(), fan)))
}

/// A branch and its memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Branch {
    /// The branch.
    pub frame: Arc<Frame>,
    /// The number of the visit that failed last.
    pub failed_at: u64,
    /// Its memory.
    pub memory: Memory,
}

/// A run's memory of its visits: those outside all branches, or those in one branch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// The last failure.
    pub last_error: Option<LastError>,
    /// How often the call of each node was repeated at its last visit.
    pub retries: Retries,
    /// How often each node was visited; empty if no node asks for it.
    pub visits: BTreeMap<u16, u64>,
    /// The result of the last visit of each node that asks for it.
    pub previous: HashMap<u16, Value>,
}

/// Begins the branches of a run that begins in several nodes. They belong to a fan-out of visit 0, which is not recorded.
fn begin(graph: &GraphTables) -> (Vec<Activation>, Vec<OpenJoin>) {
    let fan = Arc::new(Fan { visit: 0, node: graph.start, outer: None, list: Arc::default() });
    let branch = |(branch, node): (u32, u16)| {
        let frame = Some(Arc::new(Frame { fan: Arc::clone(&fan), branch }));
        Activation { number: u64::from(branch) + 1, node, frame }
    };
    let joins = graph.closing_join(graph.start).map(|node| OpenJoin::new(node, &fan));
    ((0..).zip(graph.first_nodes()).map(branch).collect(), joins.into_iter().collect())
}

/// Says that a graph has no entry of that name.
#[cold]
fn no_entry(graph: &GraphTables, name: &str) -> String {
    let entries: Vec<String> = graph.settings.entries.keys().map(|name| format!("`{name}`")).collect();
    match entries.is_empty() {
        true => "it has no entries".to_owned(),
        false => format!("it has no entry `{name}`, only {}", entries.join(", ")),
    }
}

/// Returns the input at a path.
///
/// # Errors
///
/// If it is missing.
fn input(inputs: &Value, path: &Path) -> Result<Value, String> {
    let value = path.segments.iter().fold(inputs.view(), |value, part| value.step(part));
    if value.is_null() {
        Err(format!("the entry needs `{path}`, which is missing"))
    } else {
        Ok(value.to_plain_value())
    }
}

impl OpenJoin {
    /// Returns the number of the visit that fanned out, and the node.
    pub(super) fn key(&self) -> (u64, u16) {
        (self.fan.visit, self.node)
    }

    /// Returns the join of branches that have just begun.
    pub(super) fn new(node: u16, fan: &Arc<Fan>) -> Self {
        Self { node, fan: Arc::clone(fan), arrived: Vec::new(), is_over: false }
    }
}

static NOTHING: LazyLock<Memory> = LazyLock::new(Memory::default);

impl Position {
    /// Returns the position of a run that is about to begin at the start.
    pub fn new(graph: &GraphTables) -> Self {
        let (frontier, joins) = match graph.starts_in_branches() {
            true => begin(graph),
            false => (vec![Activation { number: 1, node: graph.start, frame: None }], Vec::new()),
        };
        Self::beginning(graph.first_node(), frontier, joins)
    }

    /// As [`Position::new`], at an entry if one is named. The fan-outs around the node count as visited before the first visit: they
    /// have the numbers from 0. The element of a branch of a list is an input. Without the inputs, because they are encrypted, it
    /// is not known.
    ///
    /// # Errors
    ///
    /// If the graph has no such entry, or the input is missing.
    pub fn at_entry(graph: &GraphTables, entry: Option<&str>, inputs: Option<&Value>) -> Result<Self, String> {
        let Some(name) = entry else { return Ok(Self::new(graph)) };
        let entry = graph.settings.entries.get(name).ok_or_else(|| no_entry(graph, name))?;
        let (mut number, mut around, mut joins) = (0, None, Vec::new());
        for branch in &entry.branches {
            let element = branch.element.as_ref().zip(inputs).map(|(path, inputs)| input(inputs, path)).transpose()?;
            let list = Arc::new(element.into_iter().collect());
            let fan = Arc::new(Fan { visit: number, node: branch.fan, outer: around.take(), list });
            joins.extend(graph.closing_join(branch.fan).map(|node| OpenJoin::new(node, &fan)));
            around = Some(Arc::new(Frame { fan, branch: graph.branch_of(branch) }));
            number += 1;
        }
        let first = Activation { number: number.max(1), node: entry.node, frame: around };
        Ok(Self::beginning(entry.node, vec![first], joins))
    }

    fn beginning(first: u16, frontier: Vec<Activation>, joins: Vec<OpenJoin>) -> Self {
        let made = frontier.last().map_or(0, |last| last.number);
        Self { made, last: first, frontier, joins, ..Self::default() }
    }

    /// Returns the activation that the run ended at, whose branch its output sees.
    pub fn ended_at(&self) -> Activation {
        Activation { number: 0, node: self.last, frame: self.returned_in.clone() }
    }

    /// Makes a node the only one that is visited next.
    pub fn stand_at(&mut self, node: u16) {
        let known = self.frontier.drain(..).find(|at| at.node == node);
        if known.is_none() {
            self.joins.clear();
            self.paths.clear();
        }
        self.returning = None;
        self.parked.clear();
        self.held.clear();
        self.waits.clear();
        self.taken.clear();
        self.calls_left.clear();
        self.to_pause.clear();
        self.paused_after.clear();
        self.waited.clear();
        self.frontier.push(known.unwrap_or(Activation { number: self.steps + 1, node, frame: None }));
        self.made = self.made.max(self.frontier[0].number);
    }

    /// Returns the memory that an activation sees.
    #[inline(always)]
    pub fn memory(&self, at: &Activation) -> &Memory {
        match &at.frame {
            None => &self.root,
            Some(_) if self.branches.is_empty() => &NOTHING,
            Some(frame) => self.memory_of(frame),
        }
    }

    #[cold]
    fn memory_of(&self, frame: &Frame) -> &Memory {
        self.branches.get(&frame.key()).map_or(&NOTHING, |branch| &branch.memory)
    }

    #[inline(always)]
    fn memory_mut(&mut self, frame: Option<&Arc<Frame>>) -> &mut Memory {
        match frame {
            None => &mut self.root,
            Some(frame) => &mut self.branch_mut(frame).memory,
        }
    }

    fn branch_mut(&mut self, frame: &Arc<Frame>) -> &mut Branch {
        let branch = || Branch { frame: Arc::clone(frame), failed_at: 0, memory: Memory::default() };
        self.branches.entry(frame.key()).or_insert_with(branch)
    }

    /// Remembers the failure of a visit.
    fn remember(&mut self, frame: Option<&Arc<Frame>>, error: LastError, visit: u64) {
        match frame {
            None => self.root.last_error = Some(error),
            Some(frame) => {
                let branch = self.branch_mut(frame);
                (branch.memory.last_error, branch.failed_at) = (Some(error), visit);
            }
        }
    }

    /// Returns the last failure that an activation sees: that of its own branch, or else of the branches around it.
    #[inline(always)]
    pub fn last_error(&self, at: &Activation) -> Option<&LastError> {
        match &at.frame {
            None => self.root.last_error.as_ref(),
            Some(_) if self.branches.is_empty() => self.root.last_error.as_ref(),
            Some(_) => self.last_error_in(at),
        }
    }

    #[cold]
    fn last_error_in(&self, at: &Activation) -> Option<&LastError> {
        let own = frames(at.frame.as_ref()).find_map(|frame| self.memory_of(frame).last_error.as_ref());
        own.or(self.root.last_error.as_ref())
    }

    /// Returns the position as it is during a visit of a node: the node's retry count from its last visit is forgotten
    /// (R136).
    pub fn visiting(&self, node: &str) -> Cow<'_, Self> {
        if !self.root.retries.contains_key(node) {
            return Cow::Borrowed(self);
        }
        let mut position = self.clone();
        position.root.retries.shift_remove(node);
        Cow::Owned(position)
    }

    /// Returns the status of a run that ends here with a result.
    pub fn status_at_end(&self) -> Status {
        if self.suppressed.is_empty() { Status::Completed } else { Status::CompletedWithErrors }
    }

    /// Applies a committed visit.
    pub(super) fn take(&mut self, graph: &GraphTables, visited: &SettledVisit<'_>) {
        let Activation { node: at, frame, .. } = visited.at;
        let node = graph.node(*at);
        self.leave_calls(visited);
        if let Some(opened) = visited.way.opened() {
            let wait = OpenWait { step: visited.at.number, opened: opened.clone() };
            let place = self.waits.partition_point(|other| other.step < wait.step);
            self.waits.insert(place, wait);
            self.parked.push(visited.at.clone());
            match opened.pause {
                Some(Pause::Hook) => {}
                Some(_) => drop(self.to_pause.remove(&visited.at.number)),
                // The tool asks again.
                None => drop(self.taken.remove(&visited.at.number)),
            }
            return;
        }
        if visited.way.is_held() {
            // The visit is made again, and sees what it saw before.
            let (step, error) = (visited.at.number, visited.error.unwrap_or_default().to_owned());
            let place = self.held.partition_point(|failed| failed.step < step);
            self.held.insert(place, HeldFailure { step, node: node.name.clone(), error, below: visited.below });
            self.parked.push(visited.at.clone());
            return;
        }
        if !self.taken.is_empty() {
            self.taken.remove(&visited.at.number);
        }
        if !self.waited.is_empty() {
            self.waited.remove(&visited.at.number);
        }
        self.steps += 1;
        self.count(graph, *at);
        self.below = self.below.saturating_add(visited.below);
        if visited.way.is_cancelled() {
            return;
        }
        if !self.shared.is_empty() {
            self.note_shared(graph, graph.writes(*at, visited.changes));
        }
        self.retried(graph, visited.at, visited.calls);
        if let Some(error) = visited.error {
            self.failed(&node.name, error, visited);
        }
        // A run that ends without a return ends where it is without its late branches.
        if !self.is_late(visited.at) {
            self.last = *at;
        }
        if frame.is_some() && node.kind.ends_run() {
            self.returned_in.clone_from(frame);
            // The branches are over with the run.
            self.root.last_error = self.last_error(visited.at).cloned();
        }
        if graph.counts_visits {
            let memory = self.memory_mut(frame.as_ref());
            *memory.visits.entry(*at).or_default() += 1;
            if node.facts.previous && visited.error.is_none() {
                memory.previous.insert(*at, visited.returned(node));
            }
        }
    }

    /// Notes with which call a visit continues that is left, and forgets those of a visit that is over or waits for nested runs.
    #[inline]
    fn leave_calls(&mut self, visited: &SettledVisit<'_>) {
        let step = visited.at.number;
        match visited.way.opened() {
            Some(Opened { pause: Some(_), call: 0, .. }) => {}
            Some(Opened { pause: Some(_), call, .. }) => drop(self.calls_left.insert((step, None), *call)),
            _ if self.calls_left.is_empty() => {}
            _ => self.calls_left.retain(|(other, _), _| *other != step),
        }
    }

    /// Records how often a visit of a node repeated its call, whether or not that helped (R136).
    #[inline]
    pub(super) fn retried(&mut self, graph: &GraphTables, at: &Activation, calls: u64) {
        if calls > 1 {
            let name = graph.node(at.node).name.clone();
            self.memory_mut(at.frame.as_ref()).retries.insert(name, Value::from(calls - 1));
        } else if !self.memory(at).retries.is_empty() {
            self.memory_mut(at.frame.as_ref()).retries.shift_remove(&graph.node(at.node).name);
        }
    }

    /// Records a failure.
    fn failed(&mut self, node: &str, error: &str, visited: &SettledVisit<'_>) {
        let step = visited.at.number;
        let one = |error: String| SuppressedError { step, node: node.to_owned(), error };
        let continues = visited.way.is_suppressed() || visited.way.ends_branch();
        if continues && visited.items.is_empty() {
            self.suppressed.push(one(error.to_owned()));
        } else if continues {
            let items = visited.items.iter();
            self.suppressed.extend(items.map(|item| one(format!("item {}: {}", item.item, item.error))));
        }
        let error = LastError { node: node.to_owned(), error: error.to_owned() };
        self.remember(visited.at.frame.as_ref(), error, step);
    }

    /// Begins the branch behind a partial join, with the last failure in the branches that came to it.
    pub(super) fn join(&mut self, frame: &Arc<Frame>, arrived: &[Arrival]) {
        let came = |branch: &&Branch| {
            let is_late = is_late(&self.joins, Some(&branch.frame), Some(&frame.fan));
            let branch = branch_in(Some(&branch.frame), &frame.fan);
            !is_late && arrived.iter().any(|arrival| Some(arrival.branch) == branch)
        };
        let failed = self.branches.values().filter(came).filter(|branch| branch.memory.last_error.is_some());
        let last = failed.max_by_key(|branch| branch.failed_at);
        if let Some((error, visit)) = last.and_then(|last| Some((last.memory.last_error.clone()?, last.failed_at))) {
            self.remember(Some(frame), error, visit);
        }
    }

    /// Continues the run with these parked activations only. Nothing needs the branches of the others any more: they wait no
    /// longer, and the failures that were held are suppressed.
    pub(super) fn release(&mut self, parked: Vec<Activation>) {
        let before = std::mem::replace(&mut self.parked, parked).into_iter();
        if self.waits.len() + self.held.len() > self.parked.len() && !self.waits.is_empty() {
            let left: BTreeSet<u64> = self.parked.iter().map(|at| at.number).collect();
            self.waits.retain(|wait| left.contains(&wait.step));
        }
        if self.held.is_empty() {
            return;
        }
        let mut left: BTreeMap<u64, Option<Arc<Frame>>> = before.map(|at| (at.number, at.frame)).collect();
        self.parked.iter().for_each(|at| drop(left.remove(&at.number)));
        let needless: Vec<HeldFailure> = self.held.extract_if(.., |failed| left.contains_key(&failed.step)).collect();
        for HeldFailure { step, node, error, below } in needless {
            self.remember(left[&step].as_ref(), LastError { node: node.clone(), error: error.clone() }, step);
            self.below = self.below.saturating_add(below);
            self.suppressed.push(SuppressedError { step, node, error });
        }
    }

    /// Makes the visits whose failures were held the next ones again, besides those that are next, when the run is resumed.
    pub fn resume(&mut self) {
        let is_held = |at: &mut Activation| self.held.iter().any(|failed| failed.step == at.number);
        self.frontier.extend(self.parked.extract_if(.., is_held));
        self.held.clear();
        self.frontier.sort_by(Activation::by_path);
    }

    /// Whether the run has continued without the branch of an activation.
    pub fn is_late(&self, at: &Activation) -> bool {
        is_late(&self.joins, at.frame.as_ref(), None)
    }

    /// Returns the branch around the outermost late branch that a frame is in, or the frame itself outside of late branches.
    pub(super) fn outside_of_late<'f>(&'f self, frame: Option<&'f Arc<Frame>>) -> Option<&'f Arc<Frame>> {
        late(&self.joins, frame).last().map_or(frame, |late| late.fan.outer.as_ref())
    }

    /// Returns how many steps the run has made, with those of the runs that its visits began.
    pub fn nested_steps(&self) -> u64 {
        let held = self.held.iter().map(|failed| failed.below);
        held.chain([self.below]).fold(self.steps, u64::saturating_add)
    }

    /// Returns the activations that are still to be visited, now or when the run is resumed.
    pub fn open(&self) -> impl Iterator<Item = &Activation> {
        self.frontier.iter().chain(&self.parked)
    }

    /// Returns the first of the nodes that are visited next; for a run that is over, the graph's first node.
    pub fn next_node(&self, graph: &GraphTables) -> u16 {
        self.frontier.first().map_or(graph.first_node(), |at| at.node)
    }

    /// Whether nothing is left to visit, now or when the run is resumed.
    pub fn is_over(&self) -> bool {
        self.frontier.is_empty() && self.parked.is_empty()
    }

    /// Whether the run ends with the failures that are held: nothing is active in the fan-out of one of them any more.
    pub fn has_failed(&self, graph: &GraphTables) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let is_held = |at: &&Activation| self.held.iter().any(|failed| failed.step == at.number);
        let waiting = self.parked.iter().filter(|at| !is_held(at));
        let around = self.frontier.iter().chain(waiting).flat_map(|at| frames(at.frame.as_ref()));
        let active: BTreeSet<u64> = around.map(|frame| frame.fan.visit).collect();
        self.parked
            .iter()
            .filter(is_held)
            .any(|at| graph.on_branch_error(at).1.is_none_or(|frame| !active.contains(&frame.fan.visit)))
    }

    /// Gives the last failure in the branches of a fan-out, and in those inside them, to the branch around it.
    pub(super) fn meet(&mut self, fan: &Arc<Fan>) {
        // The failures of late branches have no effect outside of these.
        let counts = |branch: &&Branch| {
            is_inside(Some(&branch.frame), fan) && !is_late(&self.joins, Some(&branch.frame), Some(fan))
        };
        let inside = self.branches.values().filter(counts);
        let failed = inside.filter_map(|branch| Some((branch.failed_at, branch.memory.last_error.as_ref()?)));
        if let Some((visit, error)) = failed.max_by_key(|(visit, _)| *visit) {
            self.remember(fan.outer.as_ref(), error.clone(), visit);
        }
    }

    /// Forgets the branches of fan-outs that are over, and those inside them.
    pub(super) fn close(&mut self, fans: &[Arc<Fan>]) {
        let visits: BTreeSet<u64> = fans.iter().map(|fan| fan.visit).collect();
        self.branches.retain(|_, branch| !frames(Some(&branch.frame)).any(|frame| visits.contains(&frame.fan.visit)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::load::tests::load;

    #[test]
    fn visits_that_are_made_again_stand_at_their_places() {
        let graph = load(&[("work", r#"{"line":1,"does":"gate"}"#)]).unwrap();
        let fan = Arc::new(Fan { visit: 1, node: 0, outer: None, list: Arc::default() });
        let at = |number, branch| Activation {
            number,
            node: 0,
            frame: Some(Arc::new(Frame { fan: Arc::clone(&fan), branch })),
        };
        let mut position = Position::new(&graph);
        (position.frontier, position.parked) = (vec![at(5, 1)], vec![at(2, 0)]);
        position.held = vec![HeldFailure { step: 2, node: "work".to_owned(), error: "no".to_owned(), below: 0 }];
        position.resume();
        assert_eq!(position.frontier.iter().map(|at| at.number).collect::<Vec<_>>(), [2, 5]);
        assert!(position.parked.is_empty() && position.held.is_empty());
    }
}
