//! Where a run stands.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use graph_model::value::Value;

use crate::activation::{Activation, Arrival, BranchKey, Fan, Frame, frames};
use crate::failure::{LastError, SuppressedError};
use crate::graph::{GraphTables, Retries};
use crate::status::Status;
use crate::step::visited::SettledVisit;

/// Where a run stands between two steps, besides its state. Nothing of it changes while a step is in progress.
#[derive(Debug, Clone, PartialEq)]
pub struct Position {
    /// How many nodes were visited.
    pub steps: u64,
    /// How many activations were made. The next one gets the number behind it.
    pub made: u64,
    /// The node that was visited last; before the first visit, the one that it begins with.
    pub last: u16,
    /// What is to be visited next, in the order of the paths.
    pub frontier: Vec<Activation>,
    /// Activations that wait for something from outside. They are not visited, and what they can still reach waits for them.
    pub parked: Vec<Activation>,
    /// The joins that branches have arrived at or will, in the order of their fan-outs.
    pub joins: Vec<OpenJoin>,
    /// What is remembered outside all branches.
    pub root: Memory,
    /// What is remembered of each branch, where there is something.
    pub branches: BTreeMap<BranchKey, Branch>,
    /// The failures that the run continued after.
    pub suppressed: Vec<SuppressedError>,
    /// How many steps the run may take, where a hook or the caller allowed another number than the graph does.
    pub limit: Option<u64>,
}

/// A join that has not come yet, of one visit of its fan-out.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenJoin {
    /// The node.
    pub node: u16,
    /// The visit that fanned out.
    pub fan: Arc<Fan>,
    /// The visits that led to it, and the branch of the fan-out that each was in.
    pub arrived: Vec<Arrival>,
}

/// What is remembered of a branch.
#[derive(Debug, Clone, PartialEq)]
pub struct Branch {
    /// The branch.
    pub frame: Arc<Frame>,
    /// The number of the visit that failed last.
    pub failed_at: u64,
    /// What is remembered of it.
    pub memory: Memory,
}

/// What a run remembers of its visits: of all of them, or of those in one branch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// The last failure.
    pub last_error: Option<LastError>,
    /// How often the call of each node was made again at its last visit.
    pub retries: Retries,
    /// How often each node was visited; empty where no node asks.
    pub visits: BTreeMap<u16, u64>,
    /// What the last visit returned of each node that asks.
    pub previous: HashMap<u16, Value>,
}

static NOTHING: LazyLock<Memory> = LazyLock::new(Memory::default);

impl Position {
    /// Where a run stands that is about to begin.
    pub fn new(graph: &GraphTables) -> Self {
        Self {
            steps: 0,
            made: 1,
            last: graph.start,
            frontier: vec![Activation { number: 1, node: graph.start, frame: None }],
            parked: Vec::new(),
            joins: Vec::new(),
            root: Memory::default(),
            branches: BTreeMap::new(),
            suppressed: Vec::new(),
            limit: None,
        }
    }

    /// Leaves nothing to be visited next but one node.
    pub fn stand_at(&mut self, node: u16) {
        let known = self.frontier.drain(..).find(|at| at.node == node);
        if known.is_none() {
            self.joins.clear();
        }
        self.parked.clear();
        self.frontier.push(known.unwrap_or(Activation { number: self.steps + 1, node, frame: None }));
        self.made = self.made.max(self.frontier[0].number);
    }

    /// Returns what is remembered where an activation stands.
    #[inline(always)]
    pub fn memory(&self, at: &Activation) -> &Memory {
        match &at.frame {
            None => &self.root,
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
            Some(_) => self.last_error_in(at),
        }
    }

    #[cold]
    fn last_error_in(&self, at: &Activation) -> Option<&LastError> {
        let own = frames(at.frame.as_ref()).find_map(|frame| self.memory_of(frame).last_error.as_ref());
        own.or(self.root.last_error.as_ref())
    }

    /// Returns what holds while a node is visited: how often its call was made again at its last visit is forgotten (R136).
    pub fn visiting(&self, node: &str) -> Cow<'_, Self> {
        if !self.root.retries.contains_key(node) {
            return Cow::Borrowed(self);
        }
        let mut position = self.clone();
        position.root.retries.shift_remove(node);
        Cow::Owned(position)
    }

    /// Returns how a run ends that ends here with a result.
    pub fn status_at_end(&self) -> Status {
        if self.suppressed.is_empty() { Status::Completed } else { Status::CompletedWithErrors }
    }

    /// Takes a visit into account that is committed.
    pub(super) fn take(&mut self, graph: &GraphTables, visited: &SettledVisit<'_>) {
        self.steps += 1;
        let Activation { node: at, frame, .. } = visited.at;
        let node = graph.node(*at);
        self.retried(graph, visited.at, visited.calls);
        if let Some(error) = visited.error {
            self.failed(&node.name, error, visited);
        }
        self.last = *at;
        if graph.counts_visits {
            let memory = self.memory_mut(frame.as_ref());
            *memory.visits.entry(*at).or_default() += 1;
            if node.facts.previous && visited.error.is_none() {
                memory.previous.insert(*at, visited.returned(node));
            }
        }
    }

    /// Takes into account how often a visit of a node made its call again, whether or not that helped (R136).
    #[inline]
    pub(super) fn retried(&mut self, graph: &GraphTables, at: &Activation, calls: u64) {
        if calls > 1 {
            let name = graph.node(at.node).name.clone();
            self.memory_mut(at.frame.as_ref()).retries.insert(name, Value::from(calls - 1));
        } else if !self.memory(at).retries.is_empty() {
            self.memory_mut(at.frame.as_ref()).retries.shift_remove(&graph.node(at.node).name);
        }
    }

    /// Takes a failure into account.
    fn failed(&mut self, node: &str, error: &str, visited: &SettledVisit<'_>) {
        let step = visited.at.number;
        let one = |error: String| SuppressedError { step, node: node.to_owned(), error };
        if visited.way.is_suppressed() && visited.items.is_empty() {
            self.suppressed.push(one(error.to_owned()));
        } else if visited.way.is_suppressed() {
            let items = visited.items.iter();
            self.suppressed.extend(items.map(|item| one(format!("item {}: {}", item.item, item.error))));
        }
        let error = LastError { node: node.to_owned(), error: error.to_owned() };
        self.remember(visited.at.frame.as_ref(), error, step);
    }

    /// Forgets the branches of a fan-out that is over, and those inside them. The branch around it takes over their last failure.
    pub(super) fn close(&mut self, fan: &Arc<Fan>) {
        let is_inside = |branch: &Branch| frames(Some(&branch.frame)).any(|frame| frame.fan.visit == fan.visit);
        let mut last = None;
        self.branches.retain(|_, branch| {
            let is_over = is_inside(branch);
            let latest = last.as_ref().map_or(0, |(_, visit)| *visit);
            if is_over && branch.failed_at > latest {
                last = branch.memory.last_error.take().map(|error| (error, branch.failed_at));
            }
            !is_over
        });
        if let Some((error, visit)) = last {
            self.remember(fan.outer.as_ref(), error, visit);
        }
    }
}
