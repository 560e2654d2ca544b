//! Where the values of guarded calls come from, and the interrupts that approve them on the way.
//!
//! A search follows a value back along all paths, until an interrupt approves it or its source is known. An approval is for one call, so
//! the search remembers which approvals do not count any more:
//!
//! - behind the call itself, none: the call would be made a second time;
//! - behind another guarded call, or where branches meet in which there is one, those that this call may use;
//! - outside of a fan-out over a list, and before a foreach, those that do not show the list.
//!
//! Before a join that needs each of its branches, each has arrived: it is enough that one of them approves a value on all its paths. Such a
//! branch is searched by itself, from the join to the fan-out.
//!
//! The search of a call finds the approvals that it may use. So the searches are repeated until no call may use another one.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use graph_definition::definition::{
    CallDefinition, ContractKind, NodeDefinition, RouteDefinition, SchemaKind, TermDefinition, TermKind, ValueSchema,
};
use graph_definition::hash::{HashMap, HashSet};
use graph_model::path::{Path, Root};
use graph_model::program::{Event, LAST_ERROR, RETRIES};
use graph_model::reducer::Reducer;
use graph_model::template::{Expression, Template};

use super::answers::Answers;
use super::paths::{GraphPaths, StepBefore, Via};
use super::shown::{mentions, shows};
use crate::analysis::Analysis;
use crate::analysis::reads::Site;
use crate::types::{Type, TypeKind};

/// The part of a path that stands for any element of a list.
const ANY: &str = "*";
/// The most parts of a path that is followed. The search follows the value around a deeper one.
const MOST_PARTS: usize = 16;
/// The maximum number of used approvals that a search remembers. Behind more of them, no approval counts.
const MOST_USED: usize = 8;
/// The most fan-outs, one inside the other, whose branches are searched by themselves.
const MOST_INSIDE: usize = 8;
/// The most interrupts that decide together about a call.
const MOST_TOGETHER: usize = 16;
/// How often a search begins again without the interrupts that do not decide. Then each decides by itself, or does not count.
const MOST_ROUNDS: usize = 16;

/// A value at a point of the graph: its source is searched for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Goal {
    /// The value is the first of these that there is.
    paths: Vec<Path>,
    node: usize,
    /// How many assignments of the node were made; `None` before it does anything.
    made: Option<usize>,
    valid: Valid,
    /// Whether the node is a join at which too few branches arrive, so that it is not visited.
    is_missed: bool,
}

/// The approvals that count at a point of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Valid {
    /// The reason why none counts any more.
    none: Option<Weakness>,
    /// The interrupts whose approvals a guarded call behind this point may use.
    used: BTreeSet<usize>,
    /// The nodes for whose lists the call is made, once for each element: an approval shows these lists too.
    lists: BTreeSet<usize>,
}

/// The reason why an interrupt that shows a value does not approve it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Weakness {
    /// The other values may be such that each answer leads to the call.
    EachAnswer,
    /// The call has been made with this approval before.
    Again,
    /// Another guarded call may use the approval.
    Used,
    /// The call is made for each element of the list of a node, which the interrupt does not show.
    List(usize),
    /// It is the last error, which any failure behind the interrupt or beside it replaces.
    Replaced,
}

/// Whether a value is, or has in it, the last error.
fn has_last_error(path: &Path) -> bool {
    path.root == Root::State && path.segments.first().is_none_or(|key| key == LAST_ERROR)
}

/// Where an untrusted value comes from.
#[derive(Debug, Clone)]
pub(super) enum Provenance {
    /// An input that nobody vouches for.
    Input,
    /// The result of a node.
    Result(usize),
    /// A run that a node shares the key with, or the run around this one.
    Shared(Option<usize>),
    /// The text of a failure.
    Failure,
    /// The event of a hook.
    Event,
}

/// The reason why a guarded call may not use a value.
pub(super) enum Objection {
    /// Nobody approves it on the way from its source.
    Unapproved {
        source: Provenance,
        /// The interrupt on the way that shows it and does not count, with the reason.
        weak: Option<(Option<usize>, Weakness)>,
    },
    /// It is written after an interrupt has shown it, or while it does.
    Rewritten { writer: usize, interrupt: usize },
}

/// An interrupt that shows a payload.
struct Interrupt<'d> {
    node: usize,
    payload: &'d TermDefinition,
    /// For each node, whether a path leads to it from the interrupt.
    leads: Vec<bool>,
}

/// Finds the sources of values.
pub(super) struct Sources<'a, 'd> {
    pub(super) paths: &'a GraphPaths<'a, 'd>,
    analysis: &'a Analysis<'d>,
    interrupts: Vec<Interrupt<'d>>,
    answers: RefCell<HashMap<usize, Rc<Answers<'a, 'd>>>>,
    /// For each node, the interrupts whose approvals its guarded call may use.
    uses: RefCell<Vec<BTreeSet<usize>>>,
}

impl<'a, 'd> Sources<'a, 'd> {
    pub(super) fn new(paths: &'a GraphPaths<'a, 'd>) -> Self {
        let interrupt = |node: usize| {
            let payload = paths.node(node).ask()?.payload.as_ref()?;
            Some(Interrupt { node, payload, leads: paths.reached(paths.onward(node)) })
        };
        let count = paths.nodes().len();
        Self {
            paths,
            analysis: paths.analysis,
            interrupts: (0..count).filter_map(interrupt).collect(),
            answers: RefCell::default(),
            uses: RefCell::new(vec![BTreeSet::new(); count]),
        }
    }

    fn node(&self, at: usize) -> &'d NodeDefinition {
        self.paths.node(at)
    }

    /// Returns where the answers to an interrupt lead.
    pub(super) fn answers(&self, interrupt: usize) -> Rc<Answers<'a, 'd>> {
        if let Some(answers) = self.answers.borrow().get(&interrupt) {
            return Rc::clone(answers);
        }
        let answers = Rc::new(Answers::new(self.paths, interrupt));
        self.answers.borrow_mut().insert(interrupt, Rc::clone(&answers));
        answers
    }

    /// Returns the interrupts whose approvals the guarded call of a node may use.
    pub(super) fn used_by(&self, call: usize) -> BTreeSet<usize> {
        self.uses.borrow()[call].clone()
    }

    /// Adds the approvals that the call of a node may use for a value. Returns whether they are new.
    pub(super) fn use_approvals(&self, call: usize, site: Site, expression: &Expression) -> bool {
        // A value that needs no approval uses none.
        if self.search(call, site, &expression.paths, Some(Weakness::Used)).is_ok() {
            return false;
        }
        let approved = self.search(call, site, &expression.paths, None).unwrap_or_else(|(approved, _)| approved);
        let mut uses = self.uses.borrow_mut();
        let before = uses[call].len();
        uses[call].extend(approved);
        uses[call].len() != before
    }

    /// Returns why a call at a node may not use the value of an expression, with the path that is to blame; `None` if it is trusted or
    /// approved.
    pub(super) fn untrusted(&self, call: usize, site: Site, expression: &Expression) -> Vec<(usize, Objection)> {
        let Err((_, objection)) = self.search(call, site, &expression.paths, None) else { return Vec::new() };
        // A value that needs no approval needs none for its list either.
        if self.search(call, site, &expression.paths, Some(Weakness::Used)).is_ok() {
            return Vec::new();
        }
        if expression.paths.len() == 1 {
            return vec![(0, objection)];
        }
        let alone = expression.paths.iter().enumerate();
        let alone = alone
            .filter_map(|(at, path)| Some((at, self.search(call, site, std::slice::from_ref(path), None).err()?.1)));
        let mut objections: Vec<(usize, Objection)> = alone.collect();
        if objections.is_empty() {
            objections.push((0, objection));
        }
        objections
    }

    /// Follows a value back to its sources. Returns the interrupts that approve it; with `none`, no approval counts.
    ///
    /// # Errors
    ///
    /// The first objection, with the interrupts that approve the value on other paths.
    fn search(
        &self,
        call: usize,
        site: Site,
        paths: &[Path],
        none: Option<Weakness>,
    ) -> Result<BTreeSet<usize>, (BTreeSet<usize>, Objection)> {
        if site == Site::Hook {
            let event = Objection::Unapproved { source: Provenance::Event, weak: None };
            let is_trusted = paths.iter().all(|path| self.is_trusted_in_hook(call, path));
            return if is_trusted { Ok(BTreeSet::new()) } else { Err((BTreeSet::new(), event)) };
        }
        let mut search = Search::default();
        loop {
            let outcome = self.search_once(call, site, paths, none, &mut search);
            let undecided = self.undecided(call, &search);
            if undecided.is_empty() {
                return outcome.map(|()| search.approved.clone()).map_err(|objection| (search.approved, objection));
            }
            let rejected = &search.rejected | &undecided;
            search = Search { rejected, rounds: MOST_ROUNDS.min(search.rounds + 1), ..Search::default() };
        }
    }

    /// Follows a value back to its sources, as if each interrupt decided that is not rejected.
    fn search_once(
        &self,
        call: usize,
        site: Site,
        paths: &[Path],
        none: Option<Weakness>,
        search: &mut Search,
    ) -> Result<(), Objection> {
        let mut valid = Valid { none, ..self.beside(call) };
        let each = self.node(call).each().filter(|_| site == Site::Item);
        valid.lists.extend(each.map(|_| call));
        let is_item = |path: &Path| {
            each.is_some_and(|each| path.root == Root::Local && path.segments.first() == Some(&each.name.value))
        };
        match each.filter(|_| paths.iter().any(is_item)) {
            Some(each) => {
                for path in paths {
                    match is_item(path) {
                        true => search.read(&each.over, &of_element(path), (call, None, &valid)),
                        false => search.push(vec![path.clone()], (call, None, &valid)),
                    }
                }
            }
            None => search.push(paths.to_vec(), (call, None, &valid)),
        }
        self.finish(call, search)?;
        // An approval that shows a list holds only for this list.
        let mut checked = BTreeSet::new();
        while let Some(node) = search.lists.difference(&checked).next().copied() {
            checked.insert(node);
            let made = (node != call).then_some(usize::MAX);
            let valid = Valid { lists: BTreeSet::new(), ..self.beside(call) };
            search.read(list_of(self.node(node)).expect("it has a list"), &[], (node, made, &valid));
            self.finish(call, search)?;
        }
        Ok(())
    }

    /// Whether a hook may use a value. No interrupt is before it, and any node may be: a key has what any of them writes, and nobody
    /// approves it.
    fn is_trusted_in_hook(&self, hook: usize, path: &Path) -> bool {
        match (path.root, path.segments.as_slice()) {
            (Root::Now | Root::Timestamp, _) => true,
            (Root::Inputs, _) => self.is_vouched(path),
            (Root::Local, [data, rest @ ..]) if data == "state" && !rest.is_empty() => {
                let path = Path { root: Root::State, segments: rest.to_vec() };
                if self.analysis.model.key(&rest[0]).is_none() {
                    return false;
                }
                // Before a node has written the key, it has the value with which the run began.
                if self.begun(&path, usize::MAX, false).is_err() {
                    return false;
                }
                if self.analysis.model.definition.hooks[hook].event == Event::GraphStarted {
                    return true;
                }
                let (mut search, none) = (Search::default(), Some(Weakness::Used));
                let valid = Valid { none, ..Valid::default() };
                for node in 0..self.paths.nodes().len() {
                    search.push(vec![path.clone()], (node, Some(usize::MAX), &valid));
                }
                self.finish(usize::MAX, &mut search).is_ok()
            }
            _ => false,
        }
    }

    fn finish(&self, call: usize, search: &mut Search) -> Result<(), Objection> {
        let mut objection = None;
        while let Some(goal) = search.open.pop_front() {
            if let Err(found) = self.follow(&goal, call, search) {
                objection.get_or_insert((found, goal.valid));
            }
        }
        match objection {
            None => Ok(()),
            Some((Objection::Unapproved { source, .. }, valid)) => {
                let weak = search.weak.or_else(|| Some((None, valid.none?)));
                Err(Objection::Unapproved { source, weak })
            }
            Some((rewritten, _)) => Err(rewritten),
        }
    }

    /// Returns the approvals that count at a call: calls of other branches may use some before it.
    fn beside(&self, call: usize) -> Valid {
        let (branches, uses) = (self.analysis.flow.branches(), self.uses.borrow());
        let mut valid = Valid::default();
        for (other, used) in uses.iter().enumerate() {
            if other != call && !used.is_empty() && branches.are_concurrent(call, other) {
                valid.used.extend(used);
            }
        }
        valid
    }

    /// Takes note of the guarded calls that a search comes by on its way from a node to the one before it.
    fn come_by(&self, (node, before): (usize, usize), call: usize, valid: &mut Valid) {
        let uses = self.uses.borrow();
        let joined = self.paths.joined(node);
        let is_passed = |other: usize| other == before || joined.iter().any(|&fan| self.paths.is_inside(other, fan));
        for (other, used) in uses.iter().enumerate() {
            if other == call && is_passed(other) {
                valid.none.get_or_insert(Weakness::Again);
            } else if !used.is_empty() && is_passed(other) {
                valid.used.extend(used);
            }
        }
        if valid.used.len() > MOST_USED {
            valid.none.get_or_insert(Weakness::Used);
        }
        if valid.none.is_some() {
            // Nothing else matters any more.
            valid.used.clear();
            valid.lists.clear();
        }
    }

    /// Returns why an interrupt that shows a value does not approve a call with it.
    fn weakness(&self, interrupt: &Interrupt<'_>, call: usize, goal: &Goal, search: &Search) -> Option<Weakness> {
        let valid = &goal.valid;
        if valid.none.is_some() {
            return valid.none;
        }
        if goal.paths.iter().any(has_last_error) {
            return Some(Weakness::Replaced);
        }
        if valid.used.contains(&interrupt.node) {
            return Some(Weakness::Used);
        }
        let is_hidden = |node: &&usize| {
            let paths = list_of(self.node(**node)).and_then(paths_of);
            !paths.is_some_and(|paths| shows(interrupt.payload, paths))
        };
        if let Some(&node) = valid.lists.iter().find(is_hidden) {
            return Some(Weakness::List(node));
        }
        let is_rejected = search.rejected.contains(&interrupt.node)
            || search.rounds == MOST_ROUNDS && !self.answers(interrupt.node).decide(call);
        is_rejected.then_some(Weakness::EachAnswer)
    }

    /// Returns the interrupts by which a search has approved a value and that do not decide about the call. One decides by itself, or
    /// together with others: it has an answer that leads to the call only by an answer to one of them. The last before the call decides.
    fn undecided(&self, call: usize, search: &Search) -> BTreeSet<usize> {
        let mut together = BTreeSet::new();
        for &interrupt in search.approved.difference(&search.passed) {
            if together.len() < MOST_TOGETHER && !self.is_used_by_another(interrupt, call) {
                together.insert(interrupt);
            }
        }
        let mut undecided = BTreeSet::new();
        for &interrupt in &search.approved {
            let answers = self.answers(interrupt);
            if !answers.decide(call) && (together.is_empty() || !answers.decide_with(&together, call)) {
                undecided.insert(interrupt);
            }
        }
        undecided
    }

    /// Whether another guarded call than that of a node may use the approval of an interrupt.
    fn is_used_by_another(&self, interrupt: usize, call: usize) -> bool {
        let uses = self.uses.borrow();
        uses.iter().enumerate().any(|(user, used)| user != call && used.contains(&interrupt))
    }

    /// Adds the goals from which the value of one comes.
    fn follow(&self, goal: &Goal, call: usize, search: &mut Search) -> Result<(), Objection> {
        let Goal { paths, node, made, .. } = goal;
        let node = *node;
        let [path] = paths.as_slice() else {
            if self.stays_together(goal) {
                self.step_back(goal, call, search)?;
            } else {
                let alone = |path: &Path| Goal { paths: vec![path.clone()], ..goal.clone() };
                paths.iter().for_each(|path| search.add(alone(path)));
            }
            return Ok(());
        };
        let unapproved = |source| Objection::Unapproved { source, weak: None };
        match path.root {
            Root::Now | Root::Timestamp => return Ok(()),
            Root::Visit if path.segments.first().is_none_or(|part| part != "previous") => return Ok(()),
            Root::Visit => return self.result(node, &path.segments[1..]).map_err(unapproved),
            Root::Result => return self.result(node, &path.segments).map_err(unapproved),
            Root::Inputs if self.is_vouched(path) => return Ok(()),
            Root::State if path.segments.first().is_some_and(|key| key == RETRIES) => return Ok(()),
            Root::Inputs | Root::Local => {}
            Root::State => {
                if let Some(made) = made
                    && self.written(goal, node, *made, search)?
                {
                    return Ok(());
                }
                self.written_beside(goal, search)?;
            }
        }
        let is_entry = self.analysis.model.entries.contains(&Some(node));
        if is_entry || self.analysis.model.roots().any(|root| root == node) {
            self.begun(path, node, is_entry).map_err(unapproved)?;
        }
        self.step_back(goal, call, search)
    }

    /// Whether the value of an expression is the same behind the nodes before its node.
    fn stays_together(&self, goal: &Goal) -> bool {
        let (model, branches) = (&self.analysis.model, self.analysis.flow.branches());
        let writes = |node: usize| {
            let mut changed = self.node(node).changed();
            changed.any(|key| goal.paths.iter().any(|path| is_key(path, key.value.as_str())))
        };
        let is_plain = |path: &Path| matches!(path.root, Root::State | Root::Inputs);
        let begins = model.roots().any(|root| root == goal.node) || model.entries.contains(&Some(goal.node));
        let is_written = goal.made.is_some() && writes(goal.node)
            || !branches.is_empty()
                && (0..self.paths.nodes().len()).any(|at| writes(at) && branches.are_concurrent(goal.node, at));
        goal.paths.iter().all(is_plain) && !begins && !is_written
    }

    /// Adds the goals for a value that a node has from those before it.
    fn step_back(&self, goal: &Goal, call: usize, search: &mut Search) -> Result<(), Objection> {
        if self.is_approved_in_branch(goal, call, search) {
            return Ok(());
        }
        let mut steps = self.paths.before(goal.node).iter();
        steps.try_for_each(|&step| self.step_to(goal, step, call, search))
    }

    /// Whether the node of a goal is a join that needs each of its branches, and all paths of one of them lead by interrupts that
    /// approve the value. Adds their approvals.
    fn is_approved_in_branch(&self, goal: &Goal, call: usize, search: &mut Search) -> bool {
        if goal.is_missed || goal.valid.none.is_some() || search.depth == MOST_INSIDE {
            return false;
        }
        let Some((fan, arrivals)) = self.paths.arrivals(goal.node) else { return false };
        for path in &goal.paths {
            if !matches!(path.root, Root::State | Root::Inputs) || self.is_written_inside(path, fan) {
                return false;
            }
        }
        arrivals.iter().any(|steps| {
            let mut branch = Search {
                rejected: search.rejected.clone(),
                rounds: search.rounds,
                until: Some(fan),
                depth: search.depth + 1,
                ..Search::default()
            };
            let stepped = steps.iter().try_for_each(|&step| self.step_to(goal, step, call, &mut branch));
            let is_approved = stepped.is_ok() && self.finish(call, &mut branch).is_ok() && !branch.is_through;
            search.passed.extend(branch.passed);
            if is_approved {
                search.approved.extend(branch.approved);
                search.lists.extend(branch.lists);
            }
            is_approved
        })
    }

    /// Whether a node in the branches of a fan-out writes the key that a path leads to or into.
    fn is_written_inside(&self, path: &Path, fan: usize) -> bool {
        let mut inside = (0..self.paths.nodes().len()).filter(|&node| self.paths.is_inside(node, fan));
        inside.any(|node| self.node(node).changed().any(|key| is_key(path, key.value.as_str())))
    }

    /// Adds the goals for a value that a node has from one of those before it.
    fn step_to(
        &self,
        goal: &Goal,
        (before, via): StepBefore,
        call: usize,
        search: &mut Search,
    ) -> Result<(), Objection> {
        let Goal { paths, node, .. } = goal;
        if search.until == Some(before) {
            search.is_through = true;
            return Ok(());
        }
        let mut valid = goal.valid.clone();
        self.come_by((*node, before), call, &mut valid);
        if via == Via::Otherwise {
            let is_missed = self.analysis.model.fewer_successor(before) == Some(*node);
            search.add(Goal { paths: paths.clone(), node: before, made: None, valid, is_missed });
            return Ok(());
        }
        let is_target = || self.paths.successors(before).any(|next| next == *node);
        if let RouteDefinition::Each(each) = self.node(before).next()
            && is_target()
        {
            let is_element = |path: &Path| path.root == Root::Local && path.segments.first() == Some(&each.name.value);
            let inner = valid.lists.iter().filter_map(|&list| paths_of(list_of(self.node(list))?));
            let hides = inner.flatten().any(is_element);
            if hides {
                // A list that is a part of an element: an interrupt out here cannot show it.
                valid.none.get_or_insert(Weakness::List(before));
            } else if self.paths.is_inside(call, before) && valid.none.is_none() {
                valid.lists.insert(before);
            }
            if let [path] = paths.as_slice()
                && is_element(path)
            {
                search.read(&each.over, &of_element(path), (before, Some(usize::MAX), &valid));
                return Ok(());
            }
        }
        let asked = self.interrupts.iter().find(|one| one.node == before && shows(one.payload, paths));
        if let Some(interrupt) = asked {
            let shown = Goal { valid: valid.clone(), ..goal.clone() };
            match self.weakness(interrupt, call, &shown, search) {
                None => {
                    search.approved.insert(before);
                    search.lists.extend(&valid.lists);
                    // An answer may write the value itself.
                    for path in paths.iter().filter(|path| path.root == Root::State) {
                        let made = Some(usize::MAX);
                        let goal = Goal { paths: vec![path.clone()], node: before, made, ..shown.clone() };
                        self.written_beside(&goal, search)?;
                        self.written_by_answer(&goal, search)?;
                    }
                    return Ok(());
                }
                Some(weakness) => search.weak = Some((Some(before), weakness)),
            }
        }
        search.passed.insert(before);
        search.push(paths.clone(), (before, Some(usize::MAX), &valid));
        Ok(())
    }

    /// Adds the values that the assignments of an interrupt write, which has shown the value before.
    fn written_by_answer(&self, goal: &Goal, search: &mut Search) -> Result<(), Objection> {
        for (at, assignment) in self.node(goal.node).assign().iter().enumerate() {
            if is_key(goal.path(), assignment.key.value.as_str()) {
                let rest = self.part_of_write(goal.path());
                search.read(&assignment.value, &rest, (goal.node, Some(at), &goal.valid));
            }
        }
        Ok(())
    }

    /// Adds the values that a node has written to a key after its first `made` assignments. Returns whether the key has no value of before.
    fn written(&self, goal: &Goal, node: usize, made: usize, search: &mut Search) -> Result<bool, Objection> {
        let model = &self.analysis.model;
        let definition = self.node(node);
        let is_replaced = |name: &str| {
            goal.path().segments.first().is_some_and(|key| key == name)
                && model.key(name).is_some_and(|key| model.reducer(key).is_none())
        };
        let is_read = |name: &str| is_key(goal.path(), name);
        for (at, assignment) in definition.assign().iter().enumerate().take(made).rev() {
            let name = assignment.key.value.as_str();
            if is_read(name) {
                self.not_shown(goal.path(), node)?;
                search.read(&assignment.value, &self.part_of_write(goal.path()), (node, Some(at), &goal.valid));
                if is_replaced(name) {
                    return Ok(true);
                }
            }
        }
        if definition.reset().iter().any(|key| is_read(key.value.as_str())) {
            self.not_shown(goal.path(), node)?;
        }
        let unapproved = |source| Objection::Unapproved { source, weak: None };
        if definition.share().iter().any(|key| is_read(key.value.as_str())) {
            self.not_shown(goal.path(), node)?;
            return Err(unapproved(Provenance::Shared(Some(node))));
        }
        let collected = definition.each().and_then(|each| each.collect.as_ref()).map(|key| key.value.as_str());
        if let Some(name) = collected.filter(|name| is_read(name)) {
            self.not_shown(goal.path(), node)?;
            let rest = self.part_of_write(goal.path());
            self.collected(node, &rest).map_err(unapproved)?;
            return Ok(is_replaced(name));
        }
        Ok(false)
    }

    /// Adds the values that nodes of other branches may write to a key meanwhile.
    fn written_beside(&self, goal: &Goal, search: &mut Search) -> Result<(), Objection> {
        let branches = self.analysis.flow.branches();
        if branches.is_empty() {
            return Ok(());
        }
        let writes = |node: &NodeDefinition| {
            let mut keys = node.written_or_shared();
            keys.any(|key| is_key(goal.path(), key.value.as_str()))
        };
        let nodes = self.analysis.model.definition.nodes.iter().enumerate();
        for (writer, _) in nodes.filter(|(at, node)| writes(node) && branches.are_concurrent(goal.node, *at)) {
            let other = Goal { node: writer, ..goal.clone() };
            self.written(&other, writer, usize::MAX, search)?;
        }
        Ok(())
    }

    /// Fails if an interrupt has shown a value before a node writes it, or may show it meanwhile.
    fn not_shown(&self, path: &Path, writer: usize) -> Result<(), Objection> {
        let branches = self.analysis.flow.branches();
        let is_late = |interrupt: &&Interrupt<'_>| {
            let at = interrupt.node;
            let is_before = interrupt.leads[writer] || branches.are_concurrent(at, writer);
            at != writer && is_before && mentions(interrupt.payload, path)
        };
        match self.interrupts.iter().find(is_late) {
            Some(interrupt) => Err(Objection::Rewritten { writer, interrupt: interrupt.node }),
            None => Ok(()),
        }
    }

    /// Returns the part of a write to a channel or another key that a part of its value comes from.
    fn part_of_write(&self, path: &Path) -> Vec<String> {
        let rest = path.segments.get(1..).unwrap_or_default();
        let model = &self.analysis.model;
        let key = path.segments.first().and_then(|name| model.key(name));
        match key.and_then(|key| model.reducer(key)) {
            Some(Reducer::Append) => rest.get(1..).unwrap_or_default().to_vec(),
            None | Some(Reducer::Last | Reducer::Merge | Reducer::Extend | Reducer::Union) => rest.to_vec(),
            Some(_) => Vec::new(),
        }
    }

    /// Judges a value with which a run begins.
    fn begun(&self, path: &Path, node: usize, is_entry: bool) -> Result<(), Provenance> {
        match path.root {
            Root::Inputs => Err(Provenance::Input),
            Root::State => match path.segments.first() {
                None => Err(Provenance::Failure),
                Some(key) if key == LAST_ERROR => Err(Provenance::Failure),
                Some(key) if self.analysis.model.items.shared.contains(key) => Err(Provenance::Shared(None)),
                Some(_) => Ok(()),
            },
            Root::Local if is_entry => {
                let model = &self.analysis.model;
                let entries = model.definition.entries.iter().zip(&model.entries).filter(|(_, at)| **at == Some(node));
                let mut elements = entries.flat_map(|(entry, _)| &entry.elements);
                match elements.all(|element| self.is_vouched(&element.path.value)) {
                    true => Ok(()),
                    false => Err(Provenance::Input),
                }
            }
            _ => Ok(()),
        }
    }

    /// Judges a part of the result of a node: of its call, of a signal, or of an answer.
    fn result(&self, node: usize, parts: &[String]) -> Result<(), Provenance> {
        let model = &self.analysis.model;
        let trusted = match self.node(node).call() {
            Some(call) => self.is_of_program(call).then(|| model.tool(call).result.clone()),
            None => model.result_at(node, Site::Next).map(std::borrow::Cow::into_owned),
        };
        self.judge(node, trusted, parts)
    }

    /// Judges a part of the list that a foreach collects.
    fn collected(&self, node: usize, parts: &[String]) -> Result<(), Provenance> {
        let is_of_program = self.node(node).call().is_some_and(|call| self.is_of_program(call));
        self.judge(node, is_of_program.then(|| self.analysis.model.collected(node)), parts)
    }

    /// A text may say anything. A number of a function of the program, or of a person, is theirs.
    fn judge(&self, node: usize, trusted: Option<Type>, parts: &[String]) -> Result<(), Provenance> {
        let step = |ty: Type, part: &String| {
            let part = if part == ANY { "0" } else { part };
            ty.step(part).unwrap_or_else(|_| Type::any())
        };
        match trusted.map(|ty| parts.iter().fold(ty, step)) {
            Some(ty) if !may_hold_text(&ty) => Ok(()),
            _ => Err(Provenance::Result(node)),
        }
    }

    /// Whether a call executes a function of the program, which a contract describes.
    fn is_of_program(&self, call: &CallDefinition) -> bool {
        let contract = self.analysis.model.tool(call).contract;
        contract.is_some_and(|contract| contract.by == ContractKind::Rust && contract.result.is_some())
    }

    /// Whether whoever starts the run vouches for an input, or the author wrote it.
    fn is_vouched(&self, path: &Path) -> bool {
        let definition = self.analysis.model.definition;
        let (mut schema, mut is_vouched) = (definition.inputs.as_ref(), false);
        let judge =
            |schema: &ValueSchema, is_vouched: bool| (is_vouched || schema.guarded) && schema.unguarded.is_none();
        for part in &path.segments {
            if let Some(schema) = schema {
                is_vouched = judge(schema, is_vouched);
            }
            schema = schema.and_then(|schema| match &schema.kind {
                SchemaKind::Object(_) => definition.property(schema, part),
                SchemaKind::Map(inner) | SchemaKind::List(inner) => Some(&**inner),
                _ => None,
            });
        }
        let Some(schema) = schema else { return is_vouched };
        let is_whole = judge(schema, is_vouched) && schema.first_unguarded().is_none();
        is_whole || schema.rules.iter().any(|rule| rule.keyword == "const")
    }
}

impl Goal {
    /// Returns the first path; the only one, unless the value is that of an expression.
    fn path(&self) -> &Path {
        &self.paths[0]
    }
}

/// The goals of one search, and the approvals that it has found.
#[derive(Default)]
struct Search {
    open: VecDeque<Goal>,
    seen: HashSet<Goal>,
    approved: BTreeSet<usize>,
    /// The nodes with lists for which an interrupt outside of them approves the value.
    lists: BTreeSet<usize>,
    /// The interrupts that show the value and do not decide.
    rejected: BTreeSet<usize>,
    /// How often the search has begun.
    rounds: usize,
    /// The nodes that the search has come by. An interrupt among them does not approve the value on each path.
    passed: BTreeSet<usize>,
    /// The latest interrupt that shows the value and does not count.
    weak: Option<(Option<usize>, Weakness)>,
    /// The fan-out at which the search of a branch is over, and whether it has come there.
    until: Option<usize>,
    is_through: bool,
    /// The number of searches around this one, each of a branch.
    depth: usize,
}

impl Search {
    fn push(&mut self, paths: Vec<Path>, (node, made, valid): (usize, Option<usize>, &Valid)) {
        self.add(Goal { paths, node, made, valid: valid.clone(), is_missed: false });
    }

    fn add(&mut self, mut goal: Goal) {
        goal.paths.iter_mut().for_each(|path| path.segments.truncate(MOST_PARTS));
        if self.seen.insert(goal.clone()) {
            self.open.push_back(goal);
        }
    }

    /// Adds the paths that a part of a term is made from.
    fn read(&mut self, term: &TermDefinition, part: &[String], at: (usize, Option<usize>, &Valid)) {
        match &term.kind {
            TermKind::Unreadable | TermKind::Literal(_) => {}
            TermKind::Template { template: Template::Whole(expression), .. } => {
                let mut paths = expression.paths.clone();
                paths.iter_mut().for_each(|path| path.segments.extend_from_slice(part));
                self.push(paths, at);
            }
            TermKind::Template { template, .. } => {
                template.expressions().for_each(|expression| self.push(expression.paths.clone(), at));
            }
            TermKind::List(list) => {
                let part = part.get(1..).unwrap_or_default();
                list.iter().for_each(|term| self.read(term, part, at));
            }
            TermKind::Object(fields) => match part.split_first() {
                Some((name, part)) if name != ANY => {
                    let field = fields.iter().find(|(key, _)| key.value == *name);
                    field.into_iter().for_each(|(_, term)| self.read(term, part, at));
                }
                _ => fields.iter().for_each(|(_, term)| self.read(term, &[], at)),
            },
        }
    }
}

/// Returns the list for whose elements a node makes calls or begins branches.
pub(super) fn list_of(node: &NodeDefinition) -> Option<&TermDefinition> {
    match (node.each(), node.next()) {
        (Some(each), _) => Some(&each.over),
        (None, RouteDefinition::Each(each)) => Some(&each.over),
        _ => None,
    }
}

/// Returns the paths of a term whose value is that of an expression.
fn paths_of(term: &TermDefinition) -> Option<&[Path]> {
    match &term.kind {
        TermKind::Template { template: Template::Whole(expression), .. } => Some(&expression.paths),
        _ => None,
    }
}

/// Returns the part of a list that a path from its element leads to.
fn of_element(path: &Path) -> Vec<String> {
    std::iter::once(ANY.to_owned()).chain(path.segments.iter().skip(1).cloned()).collect()
}

/// Whether a path leads into a key of the state, or to all keys.
fn is_key(path: &Path, name: &str) -> bool {
    path.root == Root::State && path.segments.first().is_none_or(|key| key == name)
}

/// Whether a value of this type may be or contain a text that its author did not choose.
fn may_hold_text(ty: &Type) -> bool {
    match &ty.kind {
        TypeKind::Never | TypeKind::Boolean | TypeKind::Integer | TypeKind::Number | TypeKind::Enum(_) => false,
        TypeKind::List(inner) => may_hold_text(inner),
        TypeKind::Object(fields) => fields.iter().any(|field| may_hold_text(&field.ty)),
        // The names in a map are texts too.
        TypeKind::String | TypeKind::Map(_) | TypeKind::Any => true,
    }
}
