//! Replays a run along its journal, record by record.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;
use std::time::SystemTime;

use graph_engine::Status;
use graph_engine::activation::{Activation, path};
use graph_engine::address::Address;
use graph_engine::admission::initialise;
use graph_engine::call::Parent;
use graph_engine::engine::Ended;
use graph_engine::graph::{Asks, CompiledKey, CompiledNode, GraphTables, tables};
use graph_engine::hooks::Control;
use graph_engine::machine::Machine;
use graph_engine::record::{
    Calls, CompletedCalls, Done, Edit, End, Entry, JournalError, Resume, Snapshot, SnapshotDraft, Start, Step, Take,
    TakenSignal, Visit, combines_as_recorded, retake,
};
use graph_engine::schema;
use graph_engine::state::StateFields;
use graph_engine::step::{
    OpenWait, Opened, Overvisited, Position, ReadyInside, Suspension, TakenWait, Way, denied, graph_of, state_value,
};
use graph_engine::tool_caller::{Request, ToolCaller};
use graph_model::capability::{Capability, Grants, Pattern};
use graph_model::name::{ItemId, RunId};
use graph_model::program::{CallLimits, INTERNAL};
use graph_model::value::{Map, Value};

use crate::audit::dated::Dated;
use crate::audit::receipts::Receipts;
use crate::edits;

/// The end of a run without a result.
pub(super) struct Lost {
    pub(super) error: String,
    /// The node that failed.
    pub(super) node: Option<String>,
    pub(super) code: Option<String>,
    pub(super) steps: u64,
    /// Its last state, if that can be computed.
    pub(super) state: Option<Value>,
    /// The nodes of the next step.
    pub(super) next: Vec<String>,
}

/// The items of a foreach that `calls` records name.
#[derive(Default)]
pub(super) struct ItemsDone {
    /// The item after the highest one that is done.
    pub(super) next: u64,
    /// The items before `next` that are not done.
    pub(super) open: BTreeSet<u64>,
    /// The item that the session named last.
    pub(super) last: Option<u64>,
}

impl ItemsDone {
    /// Records that an item of a foreach of that width is done. If the foreach `is_stopped`, it begins no more calls after
    /// a failure.
    pub(super) fn take(&mut self, item: u64, width: usize, is_stopped: bool) -> Result<(), String> {
        let is_in_turn = width > 1 || self.last.is_none_or(|last| last < item);
        let begun = item.saturating_sub(self.next).saturating_add(self.open.len() as u64);
        if !is_in_turn || (is_stopped && item >= self.next && begun >= width as u64) {
            return Err(format!("finished item {item} before it began it"));
        }
        self.last = Some(item);
        if item >= self.next {
            if is_stopped {
                self.open.extend(self.next..item);
            }
            self.next = item.saturating_add(1);
        } else if is_stopped && !self.open.remove(&item) {
            return Err(format!("made the call of item {item} again, which was done"));
        }
        Ok(())
    }
}

/// The bounds of a run from its start or from a resume on.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) granted: Grants,
    /// Whether these grants are all that bound the run.
    pub(super) says_all: bool,
    /// How many graphs may nest below the run.
    pub(super) depth: u32,
    /// The nesting depth that its caller allowed, if it gave one.
    pub(super) said_depth: Option<u32>,
}

pub(super) fn misfit<T>(seq: u64, found: Result<T, String>) -> Result<T, JournalError> {
    found.map_err(|reason| JournalError::Misfit { seq, reason })
}

pub(super) fn same<T: PartialEq + Display>(what: &str, said: T, is: T) -> Result<(), String> {
    if said == is { Ok(()) } else { Err(format!("it says that the {what} is {said}, and it is {is}")) }
}

pub(super) fn grants(patterns: &[String]) -> Result<Grants, String> {
    let patterns = patterns.iter().map(|text| Pattern::new(text.as_str()).map_err(|error| error.to_string()));
    patterns.collect::<Result<Vec<_>, _>>().map(Grants::new)
}

/// The kind of the last record, as far as it decides which records may follow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Before {
    Start,
    /// The snapshot with which a fork begins.
    Fork,
    Resume,
    Edit,
    Step,
    Calls,
    Take,
    Snapshot,
    End,
}

/// A run that is replayed along its journal.
pub(super) struct Replayer<'m> {
    pub(super) machine: &'m dyn Machine,
    pub(super) code: &'m GraphTables,
    /// `None` if its values are encrypted, and so nothing can be computed from them.
    pub(super) state: Option<Box<dyn StateFields>>,
    /// Checks whether a tool can have returned a result.
    pub(super) tool_caller: RefCell<Box<dyn ToolCaller>>,
    pub(super) position: Position,
    pub(super) status: Status,
    pub(super) before: Before,
    /// Whether the next nodes can have been visited when the run ended.
    pub(super) is_visiting: bool,
    pub(super) is_fork: bool,
    /// The nodes of the last step, with the outcome of the hooks after each.
    pub(super) visited: Vec<(u16, HookOutcome)>,
    /// The time that the last visit received.
    pub(super) recorded: Option<i64>,
    /// The completed calls of the next step.
    pub(super) done: CompletedCalls,
    /// The lengths of the next step's lists, by their visits; `None` if a length depends on the time.
    pub(super) lengths: RefCell<HashMap<u64, Option<usize>>>,
    /// The completed items of the next step's lists, by their visits.
    pub(super) items: HashMap<u64, ItemsDone>,
    /// The sessions of the run; the last is the current one.
    pub(super) sessions: Vec<Session>,
    /// The capabilities that the caller allowed the run.
    pub(super) capabilities: Option<Grants>,
    /// Whether it is a run inside another.
    pub(super) is_inside: bool,
    /// How many graphs may nest below it in all sessions.
    pub(super) depth: u32,
    /// The lowest `limits.steps` of the runs and visits around it, if there is one.
    pub(super) steps_around: Option<u64>,
    /// The calls of graphs that its visits made; `None` if they are not collected.
    pub(super) inside: Option<Vec<CallInside>>,
    /// Those of visits whose failures were held, and which were not made again.
    pub(super) held_inside: Vec<CallInside>,
    /// Those of visits that wait for nested runs, as they were planned each time that the visits were left.
    pub(super) openings: BTreeMap<u64, Vec<Vec<CallInside>>>,
    /// The record that the run was resumed behind, if nothing says that the hooks were asked: a step, its snapshot, or the start.
    unasked: Option<Before>,
    /// The shared signals that visits have received for the runs of their calls, with the numbers of these.
    pub(super) handed: BTreeMap<u64, Vec<(u64, TakenSignal)>>,
    /// The channels whose reducer is a function of the program that is not there, so that their values are not proven.
    pub(super) unproven: RefCell<BTreeSet<usize>>,
    /// The tools that were called.
    pub(super) used: BTreeSet<u16>,
    pub(super) run: RunId,
    /// The signals that its waits took.
    pub(super) receipts: Receipts,
}

impl<'m> Replayer<'m> {
    pub(super) fn begin(
        machine: &'m dyn Machine,
        receipts: Receipts,
        start: &Start,
        is_recomputed: bool,
        looks_inside: bool,
    ) -> Result<Self, JournalError> {
        let code = tables(machine.graph());
        let mut state = is_recomputed.then(|| misfit(0, opened(machine, start))).transpose()?;
        let position = misfit(0, start.begin(code, state.as_deref_mut()))?;
        let depth = start.depth.map_or(code.settings.depth, |depth| depth.min(code.settings.depth));
        let mut walk = Self {
            machine,
            code,
            state,
            tool_caller: RefCell::new(machine.tool_caller()),
            position,
            status: Status::Running,
            before: Before::Start,
            is_visiting: false,
            is_fork: start.from.is_some(),
            visited: Vec::new(),
            recorded: None,
            done: CompletedCalls::new(),
            lengths: RefCell::default(),
            items: HashMap::new(),
            sessions: Vec::new(),
            capabilities: start.capabilities.clone().map(Grants::new),
            is_inside: start.parent.is_some(),
            depth,
            steps_around: start.steps,
            inside: looks_inside.then(Vec::new),
            held_inside: Vec::new(),
            openings: BTreeMap::new(),
            unasked: None,
            handed: BTreeMap::new(),
            unproven: RefCell::default(),
            used: BTreeSet::new(),
            run: receipts.run().clone(),
            receipts,
        };
        misfit(0, walk.session(&start.grants, start.depth))?;
        Ok(walk)
    }

    /// Begins a session, which must grant everything that the graph needs.
    pub(super) fn session(&mut self, patterns: &[String], depth: Option<u32>) -> Result<(), String> {
        let granted = grants(patterns)?;
        if let Some(capabilities) = &self.capabilities {
            let covered = |one: &Pattern| capabilities.patterns().iter().any(|pattern| pattern.covers(one));
            if let Some(more) = granted.patterns().iter().find(|one| !covered(one)) {
                return Err(format!("it was granted `{}`, which its caller did not let it use", more.as_str()));
            }
        }
        let says_all = self.sessions.is_empty() && self.capabilities.is_none() && !self.is_inside;
        let most = depth.map_or(self.depth, |depth| depth.min(self.depth));
        self.sessions.push(Session { granted, says_all, depth: most, said_depth: depth });
        self.code.tools.iter().filter_map(|tool| tool.capability.as_ref()).try_for_each(|needed| self.granted(needed))
    }

    /// Whether the recorded grants are complete. If several sets of grants bound the run, the journal records only the part
    /// of their intersection that patterns can express, and the grants that the graph certainly needs.
    pub(super) fn says_all_grants(&self) -> bool {
        self.sessions.last().is_some_and(|session| session.says_all)
    }

    /// Takes the next record, if the engine can write it there.
    pub(super) fn take(&mut self, seq: u64, entry: &Entry, at: SystemTime) -> Result<(), String> {
        if self.is_fork && self.before == Before::Start {
            let Entry::Snapshot(snapshot) = entry else { return self.can_stop() };
            self.before = Before::Fork;
            return self.begin_fork(snapshot);
        }
        let (is_end, is_resume) = (matches!(entry, Entry::End(_)), matches!(entry, Entry::Resume(_)));
        match entry {
            Entry::Start(_) => return Err("a run begins once".to_owned()),
            _ if self.status.has_result() => return Err("the run had ended before it".to_owned()),
            // The last step and the end are written together.
            _ if self.position.is_over() && !is_end => return self.can_stop(),
            Entry::Resume(_) | Entry::Edit(_) => {}
            // A fork begins with the suspensions of the run where it began.
            Entry::Calls(calls) if self.before == Before::Fork && calls.only_suspend() => {}
            // A run that waits is cancelled where it is.
            Entry::End(end)
                if self.before == Before::Edit && end.status == Status::Cancelled && self.position.is_waiting() => {}
            _ if self.before == Before::Edit => return Err("the run was edited before it, and not resumed".to_owned()),
            _ if self.status != Status::Running || self.before == Before::Fork => {
                return Err("the run had stopped before it, and was not resumed".to_owned());
            }
            _ => self.hooks_allow(entry)?,
        }
        // A process may have died before it asked the hooks. The one that resumes the run asks them.
        let unasked = match self.before {
            Before::Start | Before::Step | Before::Snapshot if is_resume => Some(self.before),
            Before::Resume if is_resume => self.unasked,
            _ => None,
        };
        self.before = match entry {
            Entry::Start(_) => Before::Start,
            Entry::Resume(resume) => self.resume(resume).map(|()| Before::Resume)?,
            Entry::Edit(edit) => self.edit(edit).map(|()| Before::Edit)?,
            Entry::Step(step) => self.step(seq, step, at).map(|()| Before::Step)?,
            Entry::Calls(calls) => {
                self.calls(calls)?;
                // A hook suspends visits between two steps too.
                if calls.only_suspend() { self.before } else { Before::Calls }
            }
            Entry::Take(take) => self.take_waits(take).map(|()| Before::Take)?,
            Entry::Snapshot(snapshot) => self.snapshot(snapshot).map(|()| Before::Snapshot)?,
            Entry::End(end) => self.end(end, at).map(|()| Before::End)?,
            _ => return Err("it is of a kind that the engine does not write".to_owned()),
        };
        self.unasked = unasked;
        Ok(())
    }

    /// Whether hooks may be asked between the last record and the next because the run has begun.
    pub(super) fn is_behind_start(&self) -> bool {
        self.before == Before::Start || (self.before == Before::Resume && self.unasked == Some(Before::Start))
    }

    /// Whether hooks may be asked between the last record and the next because a step was committed.
    pub(super) fn is_behind_step(&self) -> bool {
        let is_step = |before| matches!(before, Before::Step | Before::Snapshot);
        is_step(self.before) || (self.before == Before::Resume && self.unasked.is_some_and(is_step))
    }

    /// Fails if a hook of the graph certainly ended the run before a record, and the record is not that end. Ends are
    /// checked separately.
    pub(super) fn hooks_allow(&self, entry: &Entry) -> Result<(), String> {
        let is_end = matches!(entry, Entry::End(end) if end.status == Status::Error && end.node.is_some());
        match self.before {
            _ if is_end => Ok(()),
            _ if matches!(entry, Entry::Calls(calls) if calls.only_suspend()) => Ok(()),
            Before::Start => self.are_heeded([&self.outcome_at_start()]),
            // A snapshot is written with its step, and a run that has a result is not ended again.
            Before::Step | Before::Snapshot if !matches!(entry, Entry::Snapshot(_)) && !self.position.is_over() => {
                self.are_heeded(self.visited.iter().map(|(_, hook_outcome)| hook_outcome))
            }
            Before::Resume if self.unasked == Some(Before::Start) => self.are_heeded([&self.outcome_at_start()]),
            Before::Resume if self.unasked.is_some() => {
                self.are_heeded(self.visited.iter().map(|(_, hook_outcome)| hook_outcome))
            }
            _ => Ok(()),
        }
    }

    /// Fails if the run cannot stop here, because the engine writes another record first.
    pub(super) fn can_stop(&self) -> Result<(), String> {
        if self.is_fork && self.before == Before::Start {
            return Err("the run began in another run, and no snapshot has its position".to_owned());
        }
        if self.position.is_over() && !self.status.has_result() {
            return Err("the run had come to its end, and no record says so".to_owned());
        }
        Ok(())
    }

    pub(super) fn resume(&mut self, resume: &Resume) -> Result<(), String> {
        same("number of visits before it", resume.steps, self.position.steps)?;
        if self.is_inside && resume.limit.is_some() {
            return Err("only the graph limits how many steps a run inside another takes".to_owned());
        }
        self.items.values_mut().for_each(|items| items.last = None);
        self.status = Status::Running;
        resume.apply(&mut self.position);
        self.held_inside.clear();
        self.session(&resume.grants, resume.depth)
    }

    /// Takes an edit, if it could be made here.
    pub(super) fn edit(&mut self, edit: &Edit) -> Result<(), String> {
        same("number of visits before it", edit.steps, self.position.steps)?;
        if self.is_inside {
            return Err("a run inside another is not edited".to_owned());
        }
        edits::check(edit, self.code, &self.position, &self.done).map_err(|misfit| misfit.to_string())?;
        if let Some(state) = self.state.as_deref() {
            self.unproven.get_mut().extend(edit.combines_as_recorded(self.code, state)?);
        }
        let edited = edit.changes().apply(self.code, &mut self.position, self.state.as_deref_mut());
        edited.map_err(|error| error.to_string())?;
        self.lengths.get_mut().clear();
        Ok(())
    }

    pub(super) fn all_grants(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for pattern in self.sessions.iter().flat_map(|session| session.granted.patterns()) {
            if !all.iter().any(|one| one == pattern.as_str()) {
                all.push(pattern.as_str().to_owned());
            }
        }
        all
    }

    pub(super) fn tools(&self) -> Vec<String> {
        let id = |tool: &u16| self.code.tool(*tool)?.id.as_ref().map(ToString::to_string);
        let ids: BTreeSet<String> = self.used.iter().map(|tool| id(tool).unwrap_or_else(|| "*".to_owned())).collect();
        ids.into_iter().collect()
    }

    /// Returns the ids of the reducers whose results were not proven.
    pub(super) fn unproven_reducers(&self) -> Vec<String> {
        let keys = &self.code.keys;
        let ids = |key: &CompiledKey| key.reducer.as_ref()?.function().map(ToString::to_string);
        // Nothing is computed from encrypted values.
        let ids: BTreeSet<String> = match self.state {
            Some(_) => self.unproven.borrow().iter().filter_map(|key| ids(&keys[*key])).collect(),
            None => keys.iter().filter_map(ids).collect(),
        };
        ids.into_iter().collect()
    }

    /// Returns how many steps the run may take.
    pub(super) fn most_steps(&self) -> u64 {
        self.position.most_steps(self.code)
    }

    /// Whether the next step exceeds the run's limit, unless a hook allows more.
    pub(super) fn is_exhausted(&self) -> bool {
        self.position.is_exhausted(self.code)
    }

    /// Returns the node that the next step would visit more often than the graph allows.
    pub(super) fn overvisited(&self) -> Option<Overvisited> {
        self.position.overvisited(self.code)
    }

    pub(super) fn visits_too_often(&self, over: Overvisited) -> String {
        let Overvisited { node, most, .. } = over;
        format!("node `{}` is visited more often than the {most} times that it may be", self.code.node(node).name)
    }

    /// Returns the lowest limit of the steps of the run together with those of the runs inside it.
    pub(super) fn most_nested_steps(&self) -> Option<u64> {
        self.code.settings.steps.map(u64::from).into_iter().chain(self.steps_around).min()
    }

    /// Returns the limit of the runs that a visit of a node begins, if their steps are counted.
    pub(super) fn most_steps_below(&self, node: &CompiledNode) -> Option<u64> {
        let own = node.limits.steps.map(u64::from);
        own.into_iter().chain(self.most_nested_steps()).min()
    }

    /// Fails if a step counts the steps of runs inside its visits otherwise than the limits allow.
    fn counts_steps(&self, step: &Step) -> Result<(), String> {
        let mut below = 0_u64;
        for (visit, at) in step.visits.iter().zip(&self.position.frontier) {
            let most = self.most_steps_below(self.code.node(at.node));
            if visit.below > most.unwrap_or_default() {
                return Err(match most {
                    Some(most) => {
                        format!("the runs inside visit {} made more than the {most} steps that they may", visit.step)
                    }
                    None => {
                        format!("visit {} counts the steps of runs inside it, and no limit asks for that", visit.step)
                    }
                });
            }
            let names_none = visit.run.is_none() && !visit.cancelled && !self.code.asks(at.node).is_each();
            if visit.below > 0 && names_none {
                return Err(format!("visit {} began no run, and counts the steps of one", visit.step));
            }
            below = below.saturating_add(visit.below);
        }
        let steps = self.nested_steps().saturating_add(step.visits.len() as u64).saturating_add(below);
        match self.most_nested_steps() {
            Some(most) if steps > most => {
                Err(format!("the run and those inside it made {steps} steps, and may make {most}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns how many steps the run has made with those inside its visits.
    pub(super) fn nested_steps(&self) -> u64 {
        self.position.nested_steps()
    }

    /// Whether the run has certainly taken all steps that it may, with those of the runs inside it.
    pub(super) fn is_nested_exhausted(&self) -> bool {
        let needed = self.nested_steps().saturating_add(self.position.frontier.len() as u64);
        self.most_nested_steps().is_some_and(|most| needed > most)
    }

    /// Whether a limit of this many steps, with those of the runs inside it and around it, may have ended the run. The steps of
    /// runs around it, and of runs that visits began before it was resumed, are not recorded in its journal.
    pub(super) fn may_be_nested_exhausted(&self, most: Option<u64>) -> bool {
        let own = self.code.settings.steps.map(u64::from);
        let is_own = own.is_some() && most.is_none_or(|most| own == Some(most));
        let is_over = self.sessions.len() > 1 || self.is_nested_exhausted();
        let is_around = self.steps_around.is_some_and(|lowest| most.is_none_or(|most| most >= lowest));
        !self.position.frontier.is_empty() && ((is_own && is_over) || is_around)
    }

    /// Takes a step, if the graph allows it.
    pub(super) fn step(&mut self, seq: u64, step: &Step, at: SystemTime) -> Result<(), String> {
        self.can_visit()?;
        if self.position.frontier.is_empty() {
            return Err("nothing was to be visited before something had happened that the run waits for".to_owned());
        }
        let visits = step.visits.len();
        same("number of nodes that were to be visited", visits, self.position.frontier.len())?;
        // Visits that are left take no step.
        let is_suspended = |visit: &Visit| visit.opened.as_ref().and_then(Opened::suspension).is_some();
        let are_left = step.visits.iter().all(is_suspended);
        let taken = self.position.steps + visits as u64;
        let is_exhausted = self.is_exhausted();
        match step.limit {
            Some(limit) if is_exhausted && self.is_extension(limit) && taken <= limit => {
                self.are_heeded([&self.outcome_at_limit()])?;
                self.position.limit = Some(limit);
            }
            limit if is_exhausted && are_left && limit == self.position.limit => {}
            _ if is_exhausted => {
                return Err(format!("it is visit {taken}, and the run may make {}", self.most_steps()));
            }
            limit if limit != self.position.limit => {
                return Err("it says how many visits the run may make, and nobody had changed that".to_owned());
            }
            _ => {}
        }
        if let Some(over) = self.overvisited() {
            return Err(self.visits_too_often(over));
        }
        self.counts_steps(step)?;
        let frontier = self.position.frontier.clone();
        let mut leads = Vec::new();
        for (visit, activation) in step.visits.iter().zip(&frontier) {
            same("number of the visit", visit.step, activation.number)?;
            same("node that is visited", visit.node.as_str(), &self.code.node(activation.node).name)?;
            let (path, fan) =
                (path(activation.frame.as_ref()), activation.frame.as_ref().map_or(0, |frame| frame.fan.visit));
            if (&visit.branch, visit.fan) != (&path, fan) {
                return Err(format!("visit {} is in another branch", visit.step));
            }
            self.permitted(activation.node)?;
            self.used.extend(self.code.node(activation.node).kind.calls().filter(|_| !visit.cached));
            self.stays_suspended(visit)?;
            let way = self.visit(visit, activation, at, frontier.len() == 1)?;
            self.list(visit, &way)?;
            if let Some(mut inside) = self.inside.take() {
                let calls = self.calls_of_graphs(seq, visit.step, Some(visit), activation, at);
                if visit.opened.is_some() {
                    // Each without those before it: a visit may be left many times.
                    self.openings.entry(visit.step).or_default().push(calls);
                } else {
                    let calls = calls.into_iter().map(|call| self.with_openings(call)).collect::<Vec<_>>();
                    if visit.held { &mut self.held_inside } else { &mut inside }.extend(calls);
                }
                self.inside = Some(inside);
                if visit.opened.is_none() {
                    self.openings.remove(&visit.step);
                }
            }
            leads.push(way.next(self.code, activation));
        }
        step.keep_calls(&mut self.done);
        for visit in step.visits.iter().filter(|visit| visit.opened.is_some()) {
            if let Some(items) = self.items.get_mut(&visit.step) {
                items.last = None;
            }
        }
        self.lengths.get_mut().clear();
        self.forget_items();
        if let Some(state) = self.state.as_deref().filter(|_| self.code.has_functions) {
            self.unproven.get_mut().extend(combines_as_recorded(self.code, state, &self.position, step)?);
        }
        retake(self.code, self.state.as_deref_mut(), &mut self.position, step)?;
        self.recorded = step.visits.last().and_then(|visit| visit.now);
        let name = |node: u16| self.code.node(node).name.as_str();
        let hook_outcomes = frontier.iter().zip(&step.visits).zip(leads);
        // Hooks are not notified of a visit that waits.
        let hook_outcomes = hook_outcomes.filter(|((_, visit), _)| visit.opened.is_none());
        let hook_outcome =
            |((at, visit), to): ((&Activation, _), Option<u16>)| (at.node, self.outcome_after(visit, to.map(name)));
        self.visited = hook_outcomes.map(hook_outcome).collect();
        Ok(())
    }

    /// Fails unless a visit records the list that it fanned out over.
    pub(super) fn list(&self, visit: &Visit, way: &Way) -> Result<(), String> {
        let list = way.list();
        let length = list.map(|list| u32::try_from(list.len()).unwrap_or(u32::MAX));
        let is_same = match (list, &visit.list) {
            (Some(list), Some(Value::Array(said))) => list == said,
            // Only its length is known.
            (Some(_), said) => said.is_some() && self.state.is_none(),
            (None, said) => said.is_none(),
        };
        if visit.over == length && is_same {
            Ok(())
        } else {
            Err(format!("node `{}` goes over another list", visit.node))
        }
    }

    /// Continues visits whose waits are over, if the engine does that here.
    pub(super) fn take_waits(&mut self, take: &Take) -> Result<(), String> {
        self.can_visit()?;
        if !matches!(self.before, Before::Step | Before::Snapshot | Before::Resume) {
            return Err("waits are over between two steps, or when a run is resumed".to_owned());
        }
        let Some(first) = take.taken.first() else { return Err("it names no wait".to_owned()) };
        let mut signals: Vec<TakenSignal> = take.taken.iter().filter_map(|taken| taken.signal.clone()).collect();
        signals.sort_unstable_by_key(|signal| signal.order);
        signals.iter().try_for_each(|signal| self.receipts.take(self.machine, &self.position, signal))?;
        // Nested runs may be looked at at any time. One that continues without a signal may have received its own.
        let mut resumed = ReadyInside::default();
        for taken in take.taken.iter().filter(|taken| taken.signal.is_none()) {
            let wait = self.position.waits.iter().find(|wait| wait.step == taken.step && wait.opened.is_inside());
            let Some(OpenWait { step, opened, .. }) = wait else { continue };
            resumed.steps.insert(*step);
            resumed.reached.extend(opened.inside.iter().map(|inner| (inner.id.to_string(), 0)));
        }
        // A run that is resumed continues all of them before anything else is over.
        let looks = self.before == Before::Resume && self.looks_inside(take);
        if !looks && self.position.over(self.code, first.at, signals, &resumed) != take.taken {
            return Err("other waits are over at that time".to_owned());
        }
        self.position.take_waits(self.code, &take.taken)?;
        for TakenWait { step, signal, call, .. } in take.taken.iter().filter(|taken| taken.call > 0) {
            self.handed.entry(*step).or_default().extend(signal.clone().map(|signal| (*call, signal)));
        }
        Ok(())
    }

    /// Whether all visits continue that wait for nested runs, and nothing else.
    fn looks_inside(&self, take: &Take) -> bool {
        let inside = self.position.waits.iter().filter(|wait| wait.opened.is_inside()).map(|wait| wait.step);
        take.taken.iter().all(|taken| taken.signal.is_none()) && take.taken.iter().map(|taken| taken.step).eq(inside)
    }

    /// Takes calls that finished before their step was done, if the graph makes them in that step.
    pub(super) fn calls(&mut self, calls: &Calls) -> Result<(), String> {
        if calls.done.is_empty() {
            return Err("it names no call".to_owned());
        }
        if !calls.only_suspend() {
            self.can_visit()?;
        }
        for done in &calls.done {
            if let Some(suspension) = &done.suspended {
                self.suspended(done, suspension)?;
                self.done.insert((done.step, done.item), done.clone());
                continue;
            }
            let activation = self.position.frontier.iter().find(|at| at.number == done.step);
            let activation = activation.ok_or_else(|| format!("visit {} is not one of the next step", done.step))?;
            self.permitted(activation.node)?;
            let node = self.code.node(activation.node);
            self.call_done(done, activation)?;
            if let (Asks::Each { width, .. }, Some(item)) = (self.code.asks(activation.node), done.item) {
                // While runs of some items wait, the calls for others begin.
                let is_stopped = self.code.stops_at_failure(activation.node) && !self.may_wait_inside(activation.node);
                let items = self.items.entry(done.step).or_default();
                // Failures are written when the visit is left to wait, in the order of the items.
                if done.failure.is_none() {
                    items.take(item, width, is_stopped).map_err(|what| format!("node `{}` {what}", node.name))?;
                }
            }
            if self.done.insert((done.step, done.item), done.clone()).is_some() {
                return Err(format!("node `{}` made a call again that was done", done.node));
            }
        }
        Ok(())
    }

    /// Fails unless a hook can have suspended a visit of the next step, or one that waits if all visits do.
    fn suspended(&self, done: &Done, suspension: &Suspension) -> Result<(), String> {
        let Position { frontier, parked, .. } = &self.position;
        let left = if frontier.is_empty() { parked } else { frontier };
        let activation = left.iter().find(|at| at.number == done.step);
        let activation = activation.ok_or_else(|| format!("visit {} is not one of the next step", done.step))?;
        let name = self.code.node(activation.node).name.as_str();
        let is_call = suspension.call == 0 || (suspension.call > 1 && self.code.may_nest(activation.node));
        if *done != Done::of_suspended(done.step, name, suspension.clone()) || !is_call {
            return Err(format!("a hook suspended visit {} of node `{name}`, and it says something else", done.step));
        }
        let is_other = match (self.done.get(&(done.step, None)), self.position.suspension_of(done.step)) {
            (Some(known), _) => known.suspended.as_ref().is_some_and(|known| suspension.replaces(known)),
            (None, Some(known)) => suspension.replaces(&known),
            (None, None) => true,
        };
        if is_other { Ok(()) } else { Err(format!("a hook suspended node `{name}`, whose call was done or suspended")) }
    }

    /// Fails if a run certainly ends because of one of the hooks that were asked between two steps, or if they certainly suspended it
    /// and a visit is not left as they say.
    fn are_heeded<'o>(&self, outcomes: impl IntoIterator<Item = &'o HookOutcome>) -> Result<(), String> {
        // The suspension that counts, and whether others that are not known may have come before it and behind it.
        let (mut certain, mut is_open_before, mut is_open_behind) = (None::<Suspension>, false, false);
        for outcome in outcomes {
            outcome.goes_on()?;
            match outcome {
                HookOutcome::Any if certain.is_none() => is_open_before = true,
                HookOutcome::Any => is_open_behind = true,
                HookOutcome::Sure(Control::Suspend { reason, escalated, .. }) => {
                    let new = Suspension::new(reason, escalated.clone());
                    if certain.as_ref().is_none_or(|known| new.replaces(known)) {
                        is_open_before |= is_open_behind;
                        certain = Some(new);
                    }
                }
                HookOutcome::Sure(_) => {}
            }
        }
        let Some(certain) = certain else { return Ok(()) };
        let Position { frontier, parked, .. } = &self.position;
        // Visits that wait, or are made again at a limit, may have been suspended before.
        let may_be_known = is_open_before || frontier.is_empty() || self.is_exhausted();
        let suspends = |known: &Suspension| {
            let is_said = known.escalated == certain.escalated
                && (known.reason == certain.reason || !self.code.settings.secrets.is_empty());
            let is_escalated = known.escalated.is_some();
            is_said
                || (may_be_known && (is_escalated || certain.escalated.is_none()))
                || (is_open_behind && known.replaces(&certain))
        };
        let is_left = |at: &&Activation| {
            let done = self.done.get(&(at.number, None));
            let is_made = done.is_some_and(|done| done.suspended.as_ref().is_none_or(suspends));
            is_made || self.position.suspension_of(at.number).as_ref().is_some_and(suspends)
        };
        match if frontier.is_empty() { parked } else { frontier }.iter().find(|at| !is_left(at)) {
            None => Ok(()),
            Some(at) => {
                Err(format!("a hook of the graph suspends the run before visit {}, which is not left so", at.number))
            }
        }
    }

    /// Fails if a hook suspended a visit and the visit is not left so.
    fn stays_suspended(&self, visit: &Visit) -> Result<(), String> {
        let suspended = self.done.get(&(visit.step, None)).and_then(|done| done.suspended.as_ref());
        let opened = visit.opened.as_ref().and_then(Opened::suspension);
        if self.is_inside && opened.as_ref().is_some_and(|opened| opened.escalated.is_some()) {
            return Err(format!("node `{}` is escalated in a run inside another, which asks nobody so", visit.node));
        }
        match suspended {
            Some(suspension) if opened.as_ref() != Some(suspension) && !visit.cancelled => {
                Err(format!("a hook suspended node `{}`, and its visit is made", visit.node))
            }
            _ => Ok(()),
        }
    }

    /// Whether a node runs a graph that can wait.
    pub(super) fn may_wait_inside(&self, node: u16) -> bool {
        let tool = self.code.asks(node).tool().and_then(|tool| graph_of(self.machine, tool, None));
        tool.is_some_and(|graph| tables(graph.graph()).can_park)
    }

    /// Adds the plans of a call from when its visit was left to wait for nested runs.
    pub(super) fn with_openings(&self, call: CallInside) -> CallInside {
        let before = self.openings.get(&call.parent.step).into_iter().flatten().flatten();
        let before = before.filter(|one| one.parent.item == call.parent.item).cloned().collect();
        CallInside { before, ..call }
    }

    /// Forgets the calls on whose results the run failed.
    pub(super) fn forget(&mut self, end: &End) {
        let before = self.done.len();
        self.done.retain(|_, done| !end.forgets(done));
        if self.done.len() < before {
            self.forget_items();
        }
    }

    /// Forgets the items of visits without finished calls.
    fn forget_items(&mut self) {
        let steps: BTreeSet<u64> = self.done.keys().map(|(step, _)| *step).collect();
        self.items.retain(|step, _| steps.contains(step));
    }

    /// Fails if the run visits no more nodes before it ends and is resumed.
    pub(super) fn can_visit(&self) -> Result<(), String> {
        match self.position.has_failed(self.code) {
            true => Err("the run had failed before it, and was not resumed".to_owned()),
            false => Ok(()),
        }
    }

    /// Begins at a step of another run.
    pub(super) fn begin_fork(&mut self, snapshot: &Snapshot) -> Result<(), String> {
        self.position = snapshot.restore(self.code, self.state.as_deref_mut())?;
        if self.position.is_over() {
            return Err("nothing was left to do where it began".to_owned());
        }
        if !self.position.shared.is_empty() {
            return Err("it is in no other run, and shares keys with one".to_owned());
        }
        let Position { pauses, to_pause, waited, .. } = &self.position;
        if pauses.is_some() || !(to_pause.is_empty() && waited.is_empty()) {
            return Err("it begins with the pauses and answers of another run".to_owned());
        }
        if !self.position.counts_its_visits(self.code) {
            return Err("it counts the visits of its nodes otherwise than its steps".to_owned());
        }
        self.matches_snapshot(snapshot)
    }

    /// Fails unless a snapshot matches the records before it.
    pub(super) fn snapshot(&self, said: &Snapshot) -> Result<(), String> {
        if self.before != Before::Step {
            return Err("it does not follow a step".to_owned());
        }
        self.matches_snapshot(said)
    }

    /// Fails unless a snapshot describes the current position and state of the run.
    pub(super) fn matches_snapshot(&self, said: &Snapshot) -> Result<(), String> {
        // A run is resumed from it.
        let mut found = said.restore(self.code, None)?;
        let Some(state) = self.state.as_deref() else {
            // The previous results of nodes may be encrypted.
            found.root.previous.clone_from(&self.position.root.previous);
            for (key, branch) in &mut found.branches {
                let is = self.position.branches.get(key);
                branch.memory.previous = is.map(|is| is.memory.previous.clone()).unwrap_or_default();
            }
            return if found == self.position { Ok(()) } else { Err(ELSEWHERE.to_owned()) };
        };
        let is = SnapshotDraft { code: self.code, state, position: &self.position, run_secrets: None }.to_owned();
        if is == *said {
            return Ok(());
        }
        let key = is.keys.iter().chain(&said.keys).map(|(name, _)| name);
        let key = key.into_iter().find(|name| is.keys.get(*name) != said.keys.get(*name));
        Err(match key {
            Some(key) => format!("it says that `{key}` is something else than what was written to it"),
            None => ELSEWHERE.to_owned(),
        })
    }

    /// Fails unless the run was allowed to call the node's tool.
    pub(super) fn permitted(&self, node: u16) -> Result<(), String> {
        let tool = self.code.node(node).kind.calls().and_then(|tool| self.code.tool(tool));
        let capability = tool.and_then(|tool| tool.capability.as_ref());
        capability.map_or(Ok(()), |capability| self.granted(capability))
    }

    /// Returns the possible errors of a call whose id is computed and which the run may not make, and whether the call is
    /// certainly denied. There are no such errors if the run may make the call.
    pub(super) fn denials(&self, request: &Request) -> (Vec<String>, bool) {
        let Some(tool) = self.code.tool(request.tool) else { return (Vec::new(), false) };
        let id = request.id.as_ref().or(tool.id.as_ref());
        if tool.id.is_some() || id.is_some_and(|id| id.as_str().starts_with(INTERNAL)) {
            return (Vec::new(), false);
        }
        let (capability, says_all) = (Capability::new(tool.verb, tool.item, id), self.says_all_grants());
        if self.granted(&capability).is_ok() {
            return (Vec::new(), false);
        }
        let is_permitted = self.code.permissions.allow(&capability)
            && self.capabilities.as_ref().is_none_or(|grants| grants.allow(&capability));
        // The journal also records no grants if no pattern expresses the intersection of several sets of grants.
        let is_none = self.sessions.last().is_some_and(|session| session.granted.patterns().is_empty());
        let possible = if is_none && !says_all { vec![true, false] } else { vec![is_none] };
        let texts = possible.into_iter().map(|is_none| denied(tool, request, is_none)).collect();
        (texts, says_all || !is_permitted)
    }

    pub(super) fn granted(&self, capability: &Capability) -> Result<(), String> {
        let allows = |grants: &Grants| grants.allow(capability);
        if self.sessions.last().is_some_and(|session| allows(&session.granted))
            && allows(&self.code.permissions)
            && self.capabilities.as_ref().is_none_or(allows)
        {
            Ok(())
        } else {
            Err(format!("the run was not granted `{capability}`"))
        }
    }

    /// Returns the result with which the run ended, as a run around it receives it; `None` if it ended without a
    /// result, or its values are encrypted.
    pub(super) fn ended(&self, end: &End) -> Option<Ended> {
        let state = self.state.as_deref()?;
        let mask = self.code.settings.secrets.output.as_ref();
        end.status.has_result().then(|| Ended {
            status: end.status,
            node: self.code.node(self.position.last).name.clone(),
            output: end.output.clone(),
            hidden: mask.map(|mask| Box::new(mask.hide(end.output.clone()))),
            state: state_value(self.code, state, &self.position),
            steps: end.steps,
            shared: self.position.shared_writes(self.code),
            suppressed: self.position.suppressed.clone(),
            exhausted: end.exhausted && self.code.flags_limit(),
            unread: end.unread.clone(),
            history: Vec::new(),
        })
    }
}

pub(super) const ELSEWHERE: &str = "it says that the run is in another position than its steps led to";

/// Returns the state with which a run begins. Its inputs must be as the engine writes them: with defaults applied, and
/// valid for the graph.
pub(super) fn opened(machine: &dyn Machine, start: &Start) -> Result<Box<dyn StateFields>, String> {
    let code = tables(machine.graph());
    let given = |name: &&String| !start.inputs.get(name.as_str()).unwrap_or(&Value::Null).is_null();
    if let Some(missing) = code.settings.required.iter().find(|name| !given(name)) {
        return Err(format!("the input `{missing}` is missing"));
    }
    let mut state = machine.open(start.inputs.clone()).map_err(|error| error.to_string())?;
    let inputs = state.inputs().to_plain_value();
    if inputs != start.inputs {
        return Err("its inputs are not what the graph makes of them".to_owned());
    }
    // A program without the feature cannot check inputs against a schema, and cannot run such a graph either.
    if let Some(schema) = code.settings.schema.as_ref().filter(|_| schema::IS_THERE) {
        schema::validate(schema, &inputs).map_err(|invalid| invalid.to_string())?;
    }
    initialise(code, &mut *state).map_err(|error| error.to_string())?;
    Ok(state)
}

/// The outcome of the hooks at an event.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum HookOutcome {
    /// Any outcome: a hook called a tool or asked for the time, which is not recorded, or the outcome was up to the
    /// program's own hooks.
    Any,
    /// The outcome that one of the graph's own hooks computes itself.
    Sure(Control),
}

/// A call of a graph, as recorded in a run's journal.
#[derive(Debug, Clone)]
pub(super) struct CallInside {
    /// The record that mentions it.
    pub(super) seq: u64,
    pub(super) parent: Parent,
    pub(super) tool: u16,
    /// The graph's id, if the node computes it.
    pub(super) id: Option<ItemId>,
    /// The maximum number of times that it was made; `None` if unknown.
    pub(super) attempts: Option<u64>,
    /// The number of consecutive calls that may begin no run before the search for runs ends, if it is unknown how often
    /// the call was made.
    pub(super) most_missed: u64,
    /// The number of calls that the visit of a foreach counts.
    pub(super) counted: Option<u64>,
    /// Whether all other items of the list call graphs too.
    pub(super) is_one_of_all: bool,
    /// The run that the visit names as that of its last call; a foreach names no run.
    pub(super) named: Option<RunId>,
    /// The inputs of the call; `None` if they are not known.
    pub(super) inputs: Option<Value>,
    /// The inputs of the last call of a visit that received the time.
    pub(super) last_inputs: Option<Value>,
    /// The call as it was planned before, when its visit was left to wait for nested runs.
    pub(super) before: Vec<Self>,
    /// The inputs of the call, if they depend on the time.
    pub(super) dated: Vec<Dated>,
    /// The keys that the runs share, with their values, if those are known.
    pub(super) shared: Option<Map<String, Value>>,
    /// The shared signals that the visit has received for the runs of its calls, with the numbers of these.
    pub(super) handed: Vec<(u64, TakenSignal)>,
    /// Whether it is not recorded that the call was made with all of them.
    pub(super) is_open: bool,
    /// The sessions of the run around it that can have made the call.
    pub(super) sessions: Vec<Session>,
    /// The permissions of the graph around it.
    pub(super) permissions: Grants,
    /// Where the run around them receives signals; `None` if its graph computes the id of the call's graph.
    pub(super) address: Option<Address>,
    /// Whether the call can have been given up before its run ended: it has a time limit, or its visit was cancelled.
    pub(super) may_time_out: bool,
    pub(super) said: SaidInside,
    /// The limits of its node.
    pub(super) limits: CallLimits,
    /// The lowest limit of the steps of its runs, if they are counted.
    pub(super) most_steps: Option<u64>,
    /// How many steps its visit counts of all runs that it began; `None` if that is not recorded.
    pub(super) below: Option<u64>,
    /// The error, and its code, with which the run around it ended at the node.
    pub(super) ended: Option<(String, Option<String>)>,
    /// The error with which the run around it ended at the list, if this is the call for an item of it.
    pub(super) list_ended: Option<String>,
}

/// The outcome of a run inside a visit, as the visit received it.
#[derive(Debug, Clone)]
pub(super) enum SaidInside {
    Result(Value),
    /// The call returned a result, which is not recorded.
    Success,
    Failure {
        error: String,
        /// The other data of the failure that the edges saw, if it is recorded.
        data: Option<Value>,
    },
    /// The outcome is not recorded, or is encrypted.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A foreach in progress, as far as that decides which items may be done next.
    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct AtWork {
        next: u64,
        begun: BTreeSet<u64>,
        is_over: bool,
        /// The items that were done, in their order; `None` stands for a resume of the run.
        said: Vec<Option<u64>>,
    }

    impl AtWork {
        /// Returns the possible next states of a foreach over `length` items.
        fn then(&self, length: u64, width: usize, is_stopped: bool) -> Vec<Self> {
            let mut all = Vec::new();
            let with = |change: &dyn Fn(&mut Self)| {
                let mut then = self.clone();
                change(&mut then);
                then
            };
            if self.next < length && self.begun.len() < width && !self.is_over {
                let is_known = self.said.contains(&Some(self.next));
                all.push(with(&|then| {
                    then.next += 1;
                    if !is_known {
                        then.begun.insert(self.next);
                    }
                }));
            }
            for item in &self.begun {
                all.push(with(&|then| {
                    then.begun.remove(item);
                    then.said.push(Some(*item));
                }));
                all.push(with(&|then| {
                    then.begun.remove(item);
                    then.is_over |= is_stopped;
                }));
            }
            if !self.said.contains(&None) {
                let said = self.said.iter().copied().chain([None]).collect();
                all.push(Self { next: 0, begun: BTreeSet::new(), is_over: false, said });
            }
            all
        }
    }

    /// Returns all orders in which items can be done in a run that is resumed at most once.
    fn written(length: u64, width: usize, is_stopped: bool) -> BTreeSet<Vec<Option<u64>>> {
        let first = AtWork { next: 0, begun: BTreeSet::new(), is_over: false, said: Vec::new() };
        let (mut known, mut waiting) = (BTreeSet::from([first.clone()]), vec![first]);
        while let Some(one) = waiting.pop() {
            for then in one.then(length, width, is_stopped) {
                if known.insert(then.clone()) {
                    waiting.push(then);
                }
            }
        }
        known.into_iter().map(|one| one.said).collect()
    }

    /// Returns all ordered selections of these elements, each used at most once.
    fn orders(of: &[Option<u64>]) -> Vec<Vec<Option<u64>>> {
        let mut all = vec![Vec::new()];
        for first in of {
            let rest: Vec<_> = of.iter().copied().filter(|one| one != first).collect();
            all.extend(orders(&rest).into_iter().map(|rest| [vec![*first], rest].concat()));
        }
        all
    }

    fn is_accepted(order: &[Option<u64>], width: usize, is_stopped: bool) -> bool {
        let mut items = ItemsDone::default();
        order.iter().all(|one| match one {
            Some(item) => items.take(*item, width, is_stopped).is_ok(),
            None => {
                items.last = None;
                true
            }
        })
    }

    #[test]
    fn audit_accepts_only_item_orders_that_a_foreach_can_write() {
        let of = [Some(0), Some(1), Some(2), Some(3), None];
        for (width, is_stopped) in [(1, true), (2, true), (3, true), (1, false), (2, false), (3, false)] {
            let written = written(4, width, is_stopped);
            for order in orders(&of) {
                let (is_written, is_accepted) = (written.contains(&order), is_accepted(&order, width, is_stopped));
                // If a failure stops nothing, any number of items may have overtaken one that is done late.
                let is_free = !is_stopped && width > 1;
                let is_right = is_written == is_accepted || (is_free && is_accepted);
                assert!(is_right, "{order:?}, {width} at a time, stopped: {is_stopped}, written: {is_written}");
            }
        }
    }
}
