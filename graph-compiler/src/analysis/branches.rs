//! The branches that each node may be visited in.
//!
//! A visit of a node is inside of the fan-outs around it. Its *frame* names the innermost of them, with the branch that it
//! is in, and the frame outside of it. A node may be visited in several frames, and a [`Visit`] is a node in one of them.
//! Conditions are not looked at: every edge may be followed, and every call may fail.

use std::collections::BTreeMap;

use graph_definition::definition::{EntryDefinition, EntryElement, NodeDefinition, RouteDefinition, Spanned, TermKind};
use graph_definition::hash::HashMap;
use graph_model::path::Path;
use graph_model::program::{OnBranchError, Rest};
use graph_model::value::Value;

use super::model::Model;

/// The maximum number of visits of a graph, for each of its nodes.
const MOST_VISITS: usize = 64;

/// The maximum size of the joins of a graph: the sum, over its joins, of the branches of its fan-out times the nodes of the graph.
/// Each join knows of each branch which nodes it may visit.
const MOST_JOINED: usize = 16 << 20;

/// How many entries are tried as the one from which a run comes to the others.
const MOST_TRIED: usize = 16;

/// The frame outside of all fan-outs.
pub(crate) const OUTSIDE: usize = 0;

/// A branch of a fan-out that a visit is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BranchFrame {
    /// The frame of the node that fans out.
    pub(crate) outer: usize,
    /// The node that fans out.
    pub(crate) fan: usize,
    /// The branch.
    pub(crate) label: BranchLabel,
}

/// A branch of a fan-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum BranchLabel {
    /// The branch, or the branches, that begin with this edge: its index among the edges that can be followed.
    Edge(usize),
    /// The branch after a join that does not close its fan-out.
    Join(usize),
}

/// A node in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Visit {
    pub(crate) node: usize,
    pub(crate) frame: usize,
}

/// The fan-out that a join belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JoinPlace {
    pub(crate) fan: usize,
    /// Whether every branch reaches it or ends before.
    pub(crate) closes: bool,
}

/// A mistake in how branches begin, meet and end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BranchFault {
    /// Two branches of a fan-out lead to a node that does not wait for them.
    Meet {
        node: usize,
        fan: usize,
        /// The visits in the two branches.
        visits: [usize; 2],
    },
    /// A path leads to a join from outside of its fan-out, over the visit `from`; without a fan-out, no fan-out has all of its
    /// sources.
    Outside { join: usize, from: Option<usize>, fan: Option<usize> },
    /// A join waits for itself, or for one that waits for it.
    Circle { join: usize },
    /// A fan-out is reached from one of its own branches.
    Growth { fan: usize },
    /// The run may return at a visit while another visit is active or has not happened.
    Alive { visit: usize, other: usize },
    /// A branch may end at a node, and no join closes its fan-out.
    OpenEnd { node: usize, fan: usize },
    /// A node is visited in too many frames.
    Tangled { node: usize },
}

/// Why no run can begin in the branches that a node is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoEntry {
    /// It is visited in several branches or outside of them too, and an entry does not say where.
    Several,
    /// A quorum counts the branches of a fan-out around it, and the run would have one.
    Quorum { join: usize },
}

/// The branches of a graph.
#[derive(Debug, Default)]
pub(crate) struct Branches {
    frames: Vec<BranchFrame>,
    visits: Vec<Visit>,
    /// The visits with which runs begin.
    roots: Vec<usize>,
    /// For each visit, those that it may lead to.
    onward: Vec<Vec<usize>>,
    /// For each node, the indices of its visits.
    of_node: Vec<Vec<usize>>,
    /// For each node, its place if it is a join.
    places: Vec<Option<JoinPlace>>,
    /// For each node, the join that closes its fan-out.
    closing: Vec<Option<usize>>,
    /// For each partial join, the visits from which a path leads to it inside of its fan-out.
    reach: HashMap<usize, Vec<bool>>,
    /// For each partial join, the frames in which branches may come to it.
    arrivals: HashMap<usize, Vec<usize>>,
    /// For each node, whether it fans out over a list.
    over: Vec<bool>,
    /// For each visit of a node whose branches run on that its quorum does not need, the visits that may happen beside them.
    beside_late: HashMap<usize, Vec<bool>>,
    /// For each node that fans out, what a failure in its branches does; `None` if the fan-out around it says that.
    on_branch_error: Vec<Option<OnBranchError>>,
    /// For each node, the joins that may follow without an edge from it: where a branch ends, or where none begins.
    beyond: Vec<Vec<usize>>,
    /// For each node, the joins that may follow because its failure ends the branch.
    broken: Vec<Vec<usize>>,
    /// For each frame, the facts from the frames around it.
    inherited: Vec<InheritedByFrame>,
    faults: Vec<BranchFault>,
}

/// The facts about a visit in a frame that follow from the fan-outs around it.
#[derive(Debug, Default, Clone, Copy)]
struct InheritedByFrame {
    /// The join of the innermost fan-out that a join closes.
    closing: Option<usize>,
    /// The effect of a failure that nothing else handles, by the innermost fan-out that has one.
    policy: Option<OnBranchError>,
    /// The innermost frame of a fan-out whose branches are counted, with the join that counts them.
    counted: Option<(usize, usize)>,
}

/// Whether a route begins branches.
pub(crate) fn begins(route: &RouteDefinition) -> bool {
    matches!(route, RouteDefinition::All(_) | RouteDefinition::Each(_))
}

impl Branches {
    /// Finds the branches of a graph; nothing if no node begins or joins any.
    pub(crate) fn find(model: &Model<'_>) -> Self {
        let nodes = &model.definition.nodes;
        let (Some(start), true) =
            (model.start, nodes.iter().any(|node| begins(node.next()) || !node.waits_for.is_empty()))
        else {
            return Self::default();
        };
        let mut branches = Self::explore(model, &roots(model, start, 0));
        if !branches.faults.is_empty() {
            // Where entries lead to each other, one may be in a branch behind another one. No run begins there outside of all branches.
            let others = (1..model.entries.len().min(MOST_TRIED)).map(|first| roots(model, start, first));
            let mut others = others.filter(|roots| roots.len() > 1).map(|roots| Self::explore(model, &roots));
            branches = others.find(|other| other.faults.is_empty()).unwrap_or(branches);
        }
        branches.refuse_large_joins(model);
        for (fan, join) in branches.closing.iter().enumerate() {
            // A quorum does not need every branch.
            if join.is_some_and(|join| nodes[join].quorum.is_some()) {
                branches.on_branch_error[fan].get_or_insert(OnBranchError::Collect);
            }
        }
        for frame in 0..branches.frames.len() {
            let inherited = branches.inherit(model, frame);
            branches.inherited.push(inherited);
        }
        branches.find_late(model);
        branches.find_faults(model);
        branches
    }

    /// Follows all paths from nodes where runs begin.
    fn explore(model: &Model<'_>, roots: &[usize]) -> Self {
        let nodes = &model.definition.nodes;
        let count = nodes.len();
        let branches = Self {
            // The first frame is no branch.
            frames: vec![BranchFrame { outer: OUTSIDE, fan: usize::MAX, label: BranchLabel::Edge(0) }],
            of_node: vec![Vec::new(); count],
            places: vec![None; count],
            closing: vec![None; count],
            on_branch_error: nodes.iter().map(NodeDefinition::on_branch_error).collect(),
            over: nodes.iter().map(|node| matches!(node.next(), RouteDefinition::Each(_))).collect(),
            ..Self::default()
        };
        let mut explorer = Explorer {
            model,
            branches,
            visits: HashMap::default(),
            frames: HashMap::default(),
            depths: vec![0],
            shallowest: vec![usize::MAX; count],
            open: Vec::new(),
            arrived: BTreeMap::new(),
            unknown: vec![Vec::new(); count],
            reached: Vec::new(),
        };
        explorer.explore(roots);
        explorer.finish()
    }

    /// Returns the facts for a frame. Those of the frame around it are known.
    fn inherit(&self, model: &Model<'_>, at: usize) -> InheritedByFrame {
        if at == OUTSIDE {
            return InheritedByFrame::default();
        }
        let BranchFrame { outer, fan, .. } = self.frames[at];
        let (around, closing) = (self.inherited[outer], self.closing(fan));
        let counts = closing.filter(|&join| model.definition.nodes[join].quorum.is_some());
        InheritedByFrame {
            closing: closing.or(around.closing),
            policy: self.on_branch_error[fan].or(around.policy),
            counted: counts.map(|join| (at, join)).or(around.counted),
        }
    }

    /// Reports the join at which the joins of the graph are too large together. Then none of them has a place.
    fn refuse_large_joins(&mut self, model: &Model<'_>) {
        let mut size = 0;
        let is_too_large = |(_, place): &(usize, &Option<JoinPlace>)| {
            let branches = place.map_or(0, |place| model.successors(place.fan).count());
            size += branches * self.places.len();
            size > MOST_JOINED
        };
        let Some((node, _)) = self.places.iter().enumerate().find(is_too_large) else { return };
        self.faults.push(BranchFault::Tangled { node });
        self.places.fill(None);
        self.closing.fill(None);
        self.reach.clear();
        self.arrivals.clear();
    }

    /// Whether the graph has branches or joins.
    pub(crate) fn is_empty(&self) -> bool {
        self.visits.is_empty()
    }

    /// Returns the mistakes, each once.
    pub(crate) fn faults(&self) -> &[BranchFault] {
        &self.faults
    }

    /// Returns a visit by its index.
    pub(crate) fn visit(&self, at: usize) -> Visit {
        self.visits[at]
    }

    /// Returns the branches in which a run begins that begins at a node, the outermost first. It begins with these branches only.
    ///
    /// # Errors
    ///
    /// If no run can begin there.
    pub(crate) fn entry(&self, model: &Model<'_>, node: usize) -> Result<Vec<BranchFrame>, NoEntry> {
        let mut frames = each_once(self.visits(node).map(|(_, visit)| visit.frame)).into_iter();
        let frame = match (frames.next(), frames.next()) {
            (None, _) if self.is_empty() => OUTSIDE,
            (Some(frame), None) => frame,
            _ => return Err(NoEntry::Several),
        };
        let stack = self.stack(frame);
        let counts = |join: &usize| model.definition.nodes[*join].quorum.is_some();
        match stack.iter().find_map(|frame| self.closing(frame.fan).filter(counts)) {
            Some(join) => Err(NoEntry::Quorum { join }),
            None => Ok(stack),
        }
    }

    /// Whether a run that begins at a node begins in a branch of a fan-out.
    pub(crate) fn enters(&self, model: &Model<'_>, node: usize, fan: usize) -> bool {
        self.entry(model, node).is_ok_and(|frames| frames.iter().any(|frame| frame.fan == fan))
    }

    /// Returns the nodes on a shortest path from the start to a visit.
    pub(crate) fn path_to(&self, visit: usize) -> Vec<usize> {
        let mut before: Vec<Option<usize>> = vec![None; self.visits.len()];
        let mut open: std::collections::VecDeque<usize> = self.roots.iter().copied().collect();
        while let Some(at) = open.pop_front().filter(|&at| at != visit) {
            for &next in &self.onward[at] {
                if !self.roots.contains(&next) && before[next].is_none() {
                    before[next] = Some(at);
                    open.push_back(next);
                }
            }
        }
        let mut path: Vec<usize> =
            std::iter::successors(Some(visit), |&at| before[at]).map(|at| self.visits[at].node).collect();
        path.reverse();
        path
    }

    /// Returns the fan-outs over lists whose elements are known by `name` in each visit of a node; `None` if the name is
    /// not known in one of them.
    pub(crate) fn argument(&self, model: &Model<'_>, node: usize, name: &str) -> Option<Vec<usize>> {
        let is_named = |fan: usize| match model.definition.nodes[fan].next() {
            RouteDefinition::Each(each) => each.name.value == name,
            _ => false,
        };
        let mut fans: Vec<usize> = Vec::new();
        for (_, visit) in self.visits(node) {
            let frame = self.frames(visit.frame).find(|frame| is_named(frame.fan))?;
            // After a partial join, several elements have come together.
            if let BranchLabel::Join(_) = frame.label {
                return None;
            }
            fans.push(frame.fan);
        }
        fans.sort_unstable();
        fans.dedup();
        Some(fans)
    }

    /// Returns the visits of a node, each with its index.
    pub(crate) fn visits(&self, node: usize) -> impl Iterator<Item = (usize, Visit)> + '_ {
        self.of_node.get(node).into_iter().flatten().map(|&at| (at, self.visits[at]))
    }

    /// Returns the place of a join.
    pub(crate) fn place(&self, join: usize) -> Option<JoinPlace> {
        self.places.get(join).copied().flatten()
    }

    /// Returns the joins that do not close their fan-out.
    pub(crate) fn partial(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let places = self.places.iter().enumerate();
        places.filter_map(|(join, place)| place.filter(|place| !place.closes).map(|place| (join, place.fan)))
    }

    /// Returns the joins of each fan-out, by its node.
    pub(crate) fn joins(&self) -> HashMap<usize, Vec<usize>> {
        let mut joins: HashMap<usize, Vec<usize>> = HashMap::default();
        let places = self.places.iter().enumerate().filter_map(|(join, place)| Some((join, (*place)?)));
        places.for_each(|(join, place)| joins.entry(place.fan).or_default().push(join));
        joins
    }

    /// Whether a partial join waits for branches that are at a node, in each of its visits inside of the join's fan-out.
    pub(crate) fn waits_for(&self, join: usize, node: usize) -> bool {
        let (Some(reach), Some(place)) = (self.reach.get(&join), self.place(join)) else { return false };
        let is_inside = |visit: Visit| self.frames(visit.frame).any(|frame| frame.fan == place.fan);
        self.visits(node).filter(|(_, visit)| is_inside(*visit)).all(|(visit, _)| reach[visit])
    }

    /// Returns the join that closes a fan-out.
    pub(crate) fn closing(&self, fan: usize) -> Option<usize> {
        self.closing.get(fan).copied().flatten()
    }

    /// Returns the frames of branches, each behind the frame around it. The index of the first one is 1.
    pub(crate) fn branch_frames(&self) -> &[BranchFrame] {
        self.frames.get(1..).unwrap_or_default()
    }

    /// Returns the frames from one to the outermost.
    pub(crate) fn frames(&self, innermost: usize) -> impl Iterator<Item = BranchFrame> + '_ {
        let known = move |at: usize| (at != OUTSIDE).then(|| self.frames[at]);
        std::iter::successors(known(innermost), move |frame| known(frame.outer))
    }

    /// Whether two visits, by their indices, may happen in one run without either of them surely before the other.
    pub(crate) fn is_concurrent(&self, one: usize, other: usize) -> bool {
        self.are_in_branches(one, other) || self.is_beside_late(one, other) || self.is_beside_late(other, one)
    }

    /// Whether any branch runs on when a quorum is decided.
    pub(crate) fn has_late(&self) -> bool {
        !self.beside_late.is_empty()
    }

    /// Whether a visit may happen beside one in a late branch.
    fn is_beside_late(&self, visit: usize, late: usize) -> bool {
        !self.beside_late.is_empty()
            && self.frames(self.visits[late].frame).any(|frame| {
                let fans = self.visits(frame.fan).filter(|(_, fan)| fan.frame == frame.outer);
                fans.filter_map(|(fan, _)| self.beside_late.get(&fan)).any(|beside| beside[visit])
            })
    }

    /// Whether two visits may be in different branches at the same time, without regard to late branches.
    pub(crate) fn are_in_branches(&self, one: usize, other: usize) -> bool {
        let frames = [one, other].map(|visit| self.visits[visit].frame);
        // Nothing is beside a visit outside of all branches.
        if frames.contains(&OUTSIDE) {
            return false;
        }
        let stacks = frames.map(|frame| self.stack(frame));
        self.is_apart([&stacks[0], &stacks[1]], 0, [one, other])
    }

    /// Whether any visits of two nodes may happen without either of them surely before the other.
    pub(crate) fn are_concurrent(&self, one: usize, other: usize) -> bool {
        let others = || self.visits(other).map(|(at, _)| at);
        self.visits(one).any(|(at, _)| others().any(|other| self.is_concurrent(at, other)))
    }

    /// Returns the frames from the outermost to one.
    fn stack(&self, innermost: usize) -> Vec<BranchFrame> {
        let mut stack: Vec<BranchFrame> = self.frames(innermost).collect();
        stack.reverse();
        stack
    }

    /// Whether two visits may be active at the same time, given the frames of branches that lead to them, the outermost first.
    /// The first frames, up to `from`, are not compared.
    ///
    /// A visit behind a partial join may be active beside another one if a branch that comes to the join may be, and the join
    /// does not wait for the other one.
    fn is_apart(&self, stacks: [&[BranchFrame]; 2], from: usize, visits: [usize; 2]) -> bool {
        // Two elements of a list have equal frames.
        let of_list = |frame: &BranchFrame| self.over[frame.fan] && matches!(frame.label, BranchLabel::Edge(_));
        let mut pairs = stacks[0].iter().zip(stacks[1]).enumerate().skip(from);
        let Some((depth, pair)) = pairs.find(|(_, (a, b))| a != b || of_list(a)) else { return false };
        let pair = [*pair.0, *pair.1];
        if pair[0] == pair[1] || pair[0].fan != pair[1].fan {
            return pair[0] == pair[1];
        }
        let join = |side: usize| match pair[side].label {
            BranchLabel::Join(join) => Some(join),
            BranchLabel::Edge(_) => None,
        };
        let waits = |side: usize| {
            let reach = join(side).and_then(|join| self.reach.get(&join));
            reach.is_some_and(|reach| reach[visits[1 - side]])
        };
        if waits(0) || waits(1) {
            return false;
        }
        // The branch itself, and those that have come to its join.
        let comes = |side: usize| {
            let BranchFrame { outer, fan, .. } = pair[side];
            let arrivals = join(side).and_then(|join| self.arrivals.get(&join)).into_iter().flatten();
            let arrived = arrivals.map(|&frame| self.stack(frame));
            let arrived = arrived.filter(|stack| stack.get(depth).is_some_and(|at| (at.outer, at.fan) == (outer, fan)));
            arrived.chain([stacks[side].to_vec()]).collect::<Vec<_>>()
        };
        let (ones, others) = (comes(0), comes(1));
        let is_edge = |stack: &[BranchFrame]| matches!(stack[depth].label, BranchLabel::Edge(_));
        let are_apart = |a: &[BranchFrame], b: &[BranchFrame]| match a[depth] == b[depth] {
            true => self.is_apart([a, b], depth, visits),
            false => is_edge(a) && is_edge(b),
        };
        ones.iter().any(|a| others.iter().any(|b| are_apart(a, b)))
    }

    /// Adds to the frames in which branches come to a partial join from behind another one those in which branches come to that
    /// one.
    fn expand_arrivals(&mut self) {
        let mut changed = true;
        while changed {
            changed = false;
            for (join, fan) in self.partial().collect::<Vec<_>>() {
                let Some(known) = self.arrivals.get(&join) else { continue };
                let label = |at: usize| self.frames(at).find(|frame| frame.fan == fan).map(|frame| frame.label);
                let before = |&at: &usize| match label(at) {
                    Some(BranchLabel::Join(other)) => self.arrivals.get(&other).cloned().unwrap_or_default(),
                    _ => Vec::new(),
                };
                let expanded = each_once(known.iter().copied().chain(known.iter().flat_map(before)));
                changed |= expanded != *known;
                self.arrivals.insert(join, expanded);
            }
        }
    }

    /// Returns the joins that may follow a node without an edge from it: where a branch ends, or where none begins.
    pub(crate) fn beyond(&self, node: usize) -> &[usize] {
        self.beyond.get(node).map_or(&[], Vec::as_slice)
    }

    /// Whether a run may end at a node, in one of its visits: it returns there, or has no edge to follow, or no branch begins and
    /// no join waits for one.
    pub(crate) fn ends_run(&self, model: &Model<'_>, node: usize) -> bool {
        if !model.may_end(node) && !self.may_begin_none(model, node) {
            return false;
        }
        if self.is_empty() || model.definition.nodes[node].cancels().is_some() {
            return true;
        }
        let is_open = |frame: usize| self.closing_around(frame).is_none();
        self.closing(node).is_none() && self.visits(node).any(|(_, visit)| is_open(visit.frame))
    }

    /// Whether a node leads nowhere if its list has no elements.
    fn may_begin_none(&self, model: &Model<'_>, node: usize) -> bool {
        let RouteDefinition::Each(each) = model.definition.nodes[node].next() else { return false };
        let is_sure = match &each.over.kind {
            TermKind::List(list) => !list.is_empty(),
            TermKind::Literal(Value::Array(list)) => !list.is_empty(),
            _ => false,
        };
        self.closing(node).is_none() && !is_sure
    }

    /// Whether a node is visited inside of branches.
    pub(crate) fn is_inside(&self, node: usize) -> bool {
        self.visits(node).any(|(_, visit)| visit.frame != OUTSIDE)
    }

    /// Whether another node may be active while a node is visited.
    pub(crate) fn may_be_beside(&self, node: usize) -> bool {
        self.is_inside(node) || self.has_late()
    }

    /// Whether a node may be visited outside of all branches.
    pub(crate) fn is_outside(&self, node: usize) -> bool {
        self.visits(node).any(|(_, visit)| visit.frame == OUTSIDE)
    }

    /// Returns the joins that may follow a node because their quorum is decided then.
    pub(crate) fn cut(&self, node: usize) -> Vec<usize> {
        let counted = |frame: usize| self.inherited[frame].counted;
        let around = |visit: Visit| {
            std::iter::successors(counted(visit.frame), move |(frame, _)| counted(self.frames[*frame].outer))
        };
        each_once(self.visits(node).flat_map(|(_, visit)| around(visit)).map(|(_, join)| join))
    }

    /// Returns the joins that may follow a node because its failure ends the branch.
    pub(crate) fn broken(&self, node: usize) -> &[usize] {
        self.broken.get(node).map_or(&[], Vec::as_slice)
    }

    /// Whether a failure of a visit that nothing else handles ends its branch, and not the run.
    fn breaks(&self, model: &Model<'_>, visit: Visit) -> bool {
        self.policy(visit) == Some(OnBranchError::Collect) && model.may_break(visit.node)
    }

    /// Whether a failure of a visit that nothing else handles is held until other branches are done. If the run is resumed
    /// then, the visit is made again.
    pub(crate) fn holds(&self, model: &Model<'_>, visit: Visit) -> bool {
        self.policy(visit) == Some(OnBranchError::Finish) && model.may_break(visit.node)
    }

    /// Returns what a failure of a visit does that nothing else handles, as the innermost fan-out around it that says it does.
    fn policy(&self, visit: Visit) -> Option<OnBranchError> {
        self.inherited[visit.frame].policy
    }

    fn broken_of(&self, model: &Model<'_>, node: usize) -> Vec<usize> {
        self.closings(node, |visit| self.breaks(model, visit))
    }

    fn beyond_of(&self, model: &Model<'_>, node: usize) -> Vec<usize> {
        if let Some(join) = self.closing(node) {
            return vec![join];
        }
        let is_end = self.may_end(model, node) && !model.definition.nodes[node].ends_run();
        self.closings(node, |_| is_end)
    }

    /// Returns the joins that wait for the branches that end at visits of a node, each once.
    fn closings(&self, node: usize, ends: impl Fn(Visit) -> bool) -> Vec<usize> {
        let visits = self.visits(node).filter(|(_, visit)| ends(*visit));
        each_once(visits.filter_map(|(_, visit)| self.closing_around(visit.frame)))
    }

    /// Returns the join of the innermost fan-out around a frame that a join closes.
    fn closing_around(&self, frame: usize) -> Option<usize> {
        self.inherited[frame].closing
    }

    /// Finds the visits that may happen beside late branches.
    fn find_late(&mut self, model: &Model<'_>) {
        let nodes = &model.definition.nodes;
        let finishes = |fan: usize| self.closing(fan).filter(|&join| nodes[join].rest() == Rest::Finish);
        let late = |fan: usize| Some((fan, self.beside_late_of(model, fan, finishes(self.visits[fan].node)?)));
        self.beside_late = (0..self.visits.len()).filter_map(late).collect();
    }

    /// Returns the visits behind the join of a visit that fans out, up to a join of a fan-out around it. A return waits for late
    /// branches.
    fn beside_late_of(&self, model: &Model<'_>, fan: usize, join: usize) -> Vec<bool> {
        let outer = self.visits[fan].frame;
        let in_frame = |node: usize, frame: usize| {
            self.visits(node).filter(move |(_, visit)| visit.frame == frame).map(|(at, _)| at)
        };
        let is_inside = |frame: usize| {
            let around = std::iter::successors(Some(frame), |&at| (at != OUTSIDE).then(|| self.frames[at].outer));
            around.into_iter().any(|frame| frame == outer)
        };
        let first = std::iter::once(join).chain(model.fewer_successor(join));
        let mut open: Vec<usize> = first.flat_map(|node| in_frame(node, outer)).collect();
        let mut beside = vec![false; self.visits.len()];
        while let Some(at) = open.pop() {
            let Visit { node, frame } = self.visits[at];
            let definition = &model.definition.nodes[node];
            let waits = definition.ends_run() && definition.cancels().is_none();
            if is_inside(frame) && !waits && !std::mem::replace(&mut beside[at], true) {
                open.extend(&self.onward[at]);
                // Its branches may all end before their join.
                open.extend(self.closing(node).into_iter().flat_map(|join| in_frame(join, frame)));
            }
        }
        beside
    }

    /// Finds the mistakes that show when all visits are known.
    fn find_faults(&mut self, model: &Model<'_>) {
        self.beyond = (0..self.of_node.len()).map(|node| self.beyond_of(model, node)).collect();
        self.broken = (0..self.of_node.len()).map(|node| self.broken_of(model, node)).collect();
        let mut faults = Vec::new();
        for node in 0..self.of_node.len() {
            // Where a return cancels everything else, one visit of it is the last of the run.
            if model.definition.nodes[node].cancels().is_some() {
                continue;
            }
            if model.definition.nodes[node].waits_for.is_empty() {
                faults.extend(self.meeting(node).map(|(fan, visits)| BranchFault::Meet { node, fan, visits }));
            }
            if model.definition.nodes[node].ends_run() {
                faults.extend(self.alive_at(node).map(|(visit, other)| BranchFault::Alive { visit, other }));
            } else {
                let (ends, breaks) = (self.may_end(model, node), |visit| self.breaks(model, visit));
                faults.extend(
                    self.open_at(node, |visit| ends || breaks(visit)).map(|fan| BranchFault::OpenEnd { node, fan }),
                );
            }
        }
        self.faults.extend(faults);
    }

    /// Whether a branch may end at a node. A fan-out whose join closes it leads to that join.
    fn may_end(&self, model: &Model<'_>, node: usize) -> bool {
        if begins(model.definition.nodes[node].next()) && self.closing(node).is_some() {
            return false;
        }
        model.may_end(node) || self.may_begin_none(model, node)
    }

    /// Returns a fan-out of which two branches may visit a node, and the visits.
    fn meeting(&self, node: usize) -> Option<(usize, [usize; 2])> {
        let visits = &self.of_node[node];
        let pairs = (0..visits.len()).flat_map(|one| (one + 1..visits.len()).map(move |other| (one, other)));
        pairs.map(|(one, other)| [visits[one], visits[other]]).find_map(|pair| {
            // Branches of one list may visit the same nodes. All others have edges of their own.
            let [a, b] = pair.map(|visit| self.stack(self.visits[visit].frame));
            let depth = a.iter().zip(&b).position(|(a, b)| a != b)?;
            self.is_apart([&a, &b], depth, pair).then_some((a[depth].fan, pair))
        })
    }

    /// Whether nothing can be active beside a node, and no branch around it has yet to reach a join.
    pub(crate) fn is_alone(&self, node: usize) -> bool {
        let is_beside_another = |(at, _)| (0..self.visits.len()).any(|other| self.is_concurrent(at, other));
        self.is_empty() || (self.alive_at(node).is_none() && !self.visits(node).any(is_beside_another))
    }

    /// Returns a visit of a node that ends the run, and one that may be active then, or a join that was not visited by then.
    fn alive_at(&self, node: usize) -> Option<(usize, usize)> {
        self.of_node[node].iter().find_map(|&visit| {
            let closing =
                self.closing_around(self.visits[visit].frame).and_then(|join| self.of_node[join].first().copied());
            let beside = || (0..self.visits.len()).find(|&other| self.are_in_branches(visit, other));
            Some((visit, beside().or(closing)?))
        })
    }

    /// Returns the innermost fan-out around a visit of a node that `ends` its branch, if no join closes it, nor any fan-out
    /// around it.
    fn open_at(&self, node: usize, ends: impl Fn(Visit) -> bool) -> Option<usize> {
        self.of_node[node].iter().filter(|&&visit| ends(self.visits[visit])).find_map(|&visit| {
            let frame = self.visits[visit].frame;
            let innermost = self.frames(frame).next().map(|frame| frame.fan);
            innermost.filter(|_| self.closing_around(frame).is_none())
        })
    }
}

/// A list around the node of an entry, whose element is known there.
#[derive(Debug)]
pub(crate) struct EnteredList<'d> {
    /// The node that fans out over the list.
    pub(crate) fan: usize,
    /// The name of its element.
    pub(crate) name: &'d str,
    /// The input that the entry gives for the element.
    pub(crate) input: Option<&'d Spanned<Path>>,
}

/// Returns the lists around the node of an entry, the outermost first, given the branches that the node is in.
pub(crate) fn entered_lists<'d>(
    model: &Model<'d>,
    entry: &'d EntryDefinition,
    frames: &[BranchFrame],
) -> Vec<EnteredList<'d>> {
    let list = |frame: &BranchFrame| match (model.definition.nodes[frame.fan].next(), frame.label) {
        (RouteDefinition::Each(each), BranchLabel::Edge(_)) => Some((frame.fan, each.name.value.as_str())),
        _ => None,
    };
    let lists: Vec<(usize, &str)> = frames.iter().filter_map(list).collect();
    // An input without a name is the element of the only list.
    let input = |name: &str| {
        let is_it = |given: &&EntryElement| given.name.as_ref().map_or(lists.len() == 1, |own| own.value == name);
        entry.elements.iter().find(is_it).map(|given| &given.path)
    };
    lists.iter().map(|&(fan, name)| EnteredList { fan, name, input: input(name) }).collect()
}

/// Returns joins in their order, each once.
fn each_once(joins: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut joins: Vec<usize> = joins.collect();
    joins.sort_unstable();
    joins.dedup();
    joins
}

/// Returns which nodes paths lead to from these, without regard to branches.
fn reached(model: &Model<'_>, from: &[usize]) -> Vec<bool> {
    let mut reached = vec![false; model.definition.nodes.len()];
    let mut open = from.to_vec();
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut reached[node], true) {
            open.extend(model.onward(node));
        }
    }
    reached
}

/// Returns the nodes where runs begin outside of all branches: the start, and those of the entries that no other of them leads to. If
/// entries lead to each other, the first one counts, from the place `first` on.
fn roots(model: &Model<'_>, start: usize, first: usize) -> Vec<usize> {
    let of_start = reached(model, &[start]);
    let is_candidate = |root: &usize| !of_start[*root] && model.definition.nodes[*root].waits_for.is_empty();
    let entries = each_once(model.entries.iter().flatten().copied()).into_iter().filter(is_candidate);
    let mut entries: Vec<(usize, Vec<bool>)> = entries.map(|root| (root, reached(model, &[root]))).collect();
    let count = entries.len();
    entries.rotate_left(first.min(count));
    let mut roots = vec![start];
    for (at, (root, own)) in entries.iter().enumerate() {
        let leads_here =
            |(other, (from, reached)): (usize, &(usize, Vec<bool>))| reached[*root] && (!own[*from] || other < at);
        if !entries.iter().enumerate().filter(|(other, _)| *other != at).any(leads_here) {
            roots.push(*root);
        }
    }
    roots
}

/// Follows every path of a graph.
struct Explorer<'m, 'd> {
    model: &'m Model<'d>,
    branches: Branches,
    visits: HashMap<Visit, usize>,
    frames: HashMap<BranchFrame, usize>,
    /// For each frame, how many frames are around it.
    depths: Vec<usize>,
    /// For each node that fans out, the least depth of the frames of its branches.
    shallowest: Vec<usize>,
    /// The visits that are still to be followed.
    open: Vec<usize>,
    /// For each join, the visits that lead to it, each with the frame in which they come to it.
    arrived: BTreeMap<usize, Vec<(Option<usize>, usize)>>,
    /// For each join, the nodes that lead to it and can be reached, without those that a path was found to lead to.
    unknown: Vec<Vec<usize>>,
    reached: Vec<bool>,
}

impl Explorer<'_, '_> {
    fn explore(&mut self, roots: &[usize]) {
        self.reached = reached(self.model, roots);
        for node in (0..self.reached.len()).filter(|&node| self.reached[node]) {
            for next in self.model.onward(node) {
                if !self.model.definition.nodes[next].waits_for.is_empty() {
                    self.unknown[next].push(node);
                }
            }
        }
        for &root in roots {
            self.branches.roots.push(self.branches.visits.len());
            self.go(None, root, OUTSIDE);
        }
        loop {
            while let Some(visit) = self.open.pop() {
                self.follow(visit);
                if self.branches.visits.len() > MOST_VISITS * self.reached.len() {
                    let node = self.branches.visits[visit].node;
                    self.branches.faults.push(BranchFault::Tangled { node });
                    return;
                }
            }
            let waiting: Vec<usize> =
                self.arrived.keys().copied().filter(|&join| self.branches.places[join].is_none()).collect();
            if waiting.is_empty() || !self.place(&waiting) {
                return;
            }
        }
    }

    /// Follows the edges of a visit.
    fn follow(&mut self, visit: usize) {
        let Visit { node, frame } = self.branches.visits[visit];
        let is_fan = begins(self.model.definition.nodes[node].next());
        if is_fan && self.branches.frames(frame).any(|around| around.fan == node) {
            self.fault(BranchFault::Growth { fan: node });
        } else {
            let successors: Vec<usize> = self.model.successors(node).collect();
            for (edge, next) in successors.into_iter().enumerate() {
                let inside = match is_fan {
                    true => self.frame(BranchFrame { outer: frame, fan: node, label: BranchLabel::Edge(edge) }),
                    false => frame,
                };
                self.go(Some(visit), next, inside);
            }
        }
        for next in self.model.other_successors(node) {
            self.go(Some(visit), next, frame);
        }
    }

    /// Goes along an edge.
    fn go(&mut self, from: Option<usize>, to: usize, frame: usize) {
        if self.model.definition.nodes[to].waits_for.is_empty() {
            self.visit(from, Visit { node: to, frame });
            return;
        }
        let arrived = self.arrived.entry(to).or_default();
        if !arrived.contains(&(from, frame)) {
            arrived.push((from, frame));
            if self.branches.places[to].is_some() {
                self.arrive(to, from, frame);
            }
        }
    }

    fn visit(&mut self, from: Option<usize>, visit: Visit) {
        let at = *self.visits.entry(visit).or_insert_with(|| {
            let at = self.branches.visits.len();
            self.branches.visits.push(visit);
            self.branches.onward.push(Vec::new());
            self.branches.of_node[visit.node].push(at);
            self.open.push(at);
            at
        });
        if let Some(from) = from
            && !self.branches.onward[from].contains(&at)
        {
            self.branches.onward[from].push(at);
        }
    }

    fn frame(&mut self, frame: BranchFrame) -> usize {
        *self.frames.entry(frame).or_insert_with(|| {
            self.branches.frames.push(frame);
            let depth = self.depths[frame.outer] + 1;
            self.depths.push(depth);
            self.shallowest[frame.fan] = self.shallowest[frame.fan].min(depth);
            self.branches.frames.len() - 1
        })
    }

    fn fault(&mut self, fault: BranchFault) {
        if !self.branches.faults.contains(&fault) {
            self.branches.faults.push(fault);
        }
    }

    /// Visits a join whose place is known, after one of its branches.
    fn arrive(&mut self, join: usize, from: Option<usize>, frame: usize) {
        let Some(JoinPlace { fan, closes }) = self.branches.places[join] else { return };
        let Some(BranchFrame { outer, .. }) = self.branches.frames(frame).find(|around| around.fan == fan) else {
            self.fault(BranchFault::Outside { join, from, fan: Some(fan) });
            return;
        };
        let frame = match closes {
            true => outer,
            false => self.frame(BranchFrame { outer, fan, label: BranchLabel::Join(join) }),
        };
        self.visit(from, Visit { node: join, frame });
    }

    /// Finds the fan-outs of joins whose sources are all known, and visits these joins. Returns whether there are any.
    fn place(&mut self, waiting: &[usize]) -> bool {
        let mut ready: Vec<usize> = waiting.iter().copied().filter(|&join| self.is_ready(join)).collect();
        if ready.is_empty() {
            // Each of them has a source behind one of them.
            if self.branches.faults.is_empty() {
                self.fault(BranchFault::Circle { join: waiting[0] });
            }
            ready.push(waiting[0]);
        }
        let fans: Vec<(usize, Option<usize>)> = ready.iter().map(|&join| (join, self.fan_of(join))).collect();
        // A path behind the join of an inner fan-out may lead to a join of the fan-outs around it.
        let mut has_inner = vec![false; self.reached.len()];
        if fans.len() > 1 {
            for inner in each_once(fans.iter().filter_map(|(_, fan)| *fan)) {
                let around = self.branches.visits(inner).flat_map(|(_, visit)| self.branches.frames(visit.frame));
                around.filter(|around| around.fan != inner).for_each(|around| has_inner[around.fan] = true);
            }
        }
        let fans: Vec<(usize, Option<usize>)> =
            fans.iter().copied().filter(|(_, fan)| fan.is_none_or(|fan| !has_inner[fan])).collect();
        let mut is_any = false;
        for &(join, fan) in &fans {
            let Some(fan) = fan else {
                self.no_fan(join);
                continue;
            };
            let comes_from_inside =
                |other: usize| self.arrived[&other].iter().any(|(_, frame)| self.is_inside(*frame, fan));
            let closes = !waiting.iter().any(|&other| other != join && comes_from_inside(other));
            self.branches.places[join] = Some(JoinPlace { fan, closes });
            if closes {
                self.branches.closing[fan].get_or_insert(join);
            }
            is_any = true;
        }
        for (join, _) in fans {
            for (from, frame) in self.arrived[&join].clone() {
                self.arrive(join, from, frame);
            }
        }
        is_any
    }

    /// Whether a path is known to each node that leads to a join and can be reached.
    fn is_ready(&mut self, join: usize) -> bool {
        let unknown = &mut self.unknown[join];
        // A node that was known stays known.
        while unknown.last().is_some_and(|&node| !self.branches.of_node[node].is_empty()) {
            unknown.pop();
        }
        unknown.is_empty()
    }

    fn is_inside(&self, frame: usize, fan: usize) -> bool {
        // Frames further out than all branches of the fan-out are not inside of it.
        let deep = self.depths[frame].saturating_sub(self.shallowest[fan]).saturating_add(1);
        let is_deep_enough = self.depths[frame] >= self.shallowest[fan];
        is_deep_enough && self.branches.frames(frame).take(deep).any(|around| around.fan == fan)
    }

    /// Returns the innermost fan-out that everything that comes to a join is inside of.
    fn fan_of(&self, join: usize) -> Option<usize> {
        let arrived = &self.arrived[&join];
        let (_, first) = arrived.first()?;
        let mut around = self.branches.frames(*first).map(|frame| frame.fan);
        around.find(|&fan| arrived.iter().all(|(_, frame)| self.is_inside(*frame, fan)))
    }

    /// Reports a join that no fan-out has all sources of.
    fn no_fan(&mut self, join: usize) {
        let depth = |(_, frame): &&(Option<usize>, usize)| self.branches.frames(*frame).count();
        let arrived = &self.arrived[&join];
        // If some paths are inside of a fan-out, the others are meant to be.
        let inside = arrived.iter().max_by_key(depth).and_then(|(_, frame)| self.branches.frames(*frame).last());
        let fan = inside.map(|frame| frame.fan);
        let is_outside = |frame: usize| fan.is_none_or(|fan| !self.is_inside(frame, fan));
        let outside = arrived.iter().find(|(_, frame)| is_outside(*frame));
        let from = outside.and_then(|(from, _)| *from);
        self.fault(BranchFault::Outside { join, from, fan });
    }

    /// Finds what comes to each partial join, and the visits that it waits for.
    fn finish(self) -> Branches {
        let Self { mut branches, arrived, visits, .. } = self;
        let is_partial = |join: &usize| branches.places[*join].is_some_and(|place| !place.closes);
        let partial: Vec<usize> = arrived.keys().copied().filter(is_partial).collect();
        let mut circles: Vec<BranchFault> = Vec::new();
        if !partial.is_empty() {
            let before = before(&branches, &visits);
            for &join in &partial {
                let Some(JoinPlace { fan, .. }) = branches.places[join] else { continue };
                let reach = reach(&branches, &before, fan, &arrived[&join]);
                // The join would be visited again.
                let is_behind = |visit: usize| {
                    let mut frames = branches.frames(branches.visits[visit].frame);
                    frames.any(|around| around.fan == fan && around.label == BranchLabel::Join(join))
                };
                if reach.iter().enumerate().any(|(visit, reach)| *reach && is_behind(visit)) {
                    circles.push(BranchFault::Circle { join });
                }
                branches.reach.insert(join, reach);
                branches.arrivals.insert(join, each_once(arrived[&join].iter().map(|(_, frame)| *frame)));
            }
        }
        // A join that no rule placed was not followed, so nothing is known of the nodes behind it.
        if branches.faults.is_empty() {
            let unplaced = arrived.keys().find(|&&join| branches.places[join].is_none());
            circles.extend(unplaced.map(|&join| BranchFault::Circle { join }));
        }
        if circles.is_empty() {
            branches.expand_arrivals();
        } else {
            branches.arrivals.clear();
        }
        // One report for joins that wait for each other.
        if !branches.faults.iter().any(|fault| matches!(fault, BranchFault::Circle { .. })) {
            branches.faults.extend(circles.into_iter().next());
        }
        branches
    }
}

/// Returns for each visit those that lead to it. Everything inside of a fan-out leads to the join that closes it.
fn before(branches: &Branches, visits: &HashMap<Visit, usize>) -> Vec<Vec<usize>> {
    let mut before = vec![Vec::new(); branches.visits.len()];
    for (from, onward) in branches.onward.iter().enumerate() {
        onward.iter().for_each(|&to| before[to].push(from));
        let Visit { node, frame } = branches.visits[from];
        let own = branches.closing(node).map(|node| Visit { node, frame });
        let around = branches.frames(frame);
        let around = around.filter_map(|at| Some(Visit { node: branches.closing(at.fan)?, frame: at.outer }));
        let closing = own.into_iter().chain(around).filter_map(|visit| visits.get(&visit));
        closing.for_each(|&to| before[to].push(from));
    }
    before
}

/// Returns for each visit whether it leads to a partial join without leaving the join's fan-out.
fn reach(branches: &Branches, before: &[Vec<usize>], fan: usize, arrived: &[(Option<usize>, usize)]) -> Vec<bool> {
    let is_inside = |visit: usize| branches.frames(branches.visits[visit].frame).any(|around| around.fan == fan);
    let mut reach = vec![false; branches.visits.len()];
    let mut open: Vec<usize> = arrived.iter().filter_map(|(from, _)| *from).collect();
    while let Some(visit) = open.pop() {
        if is_inside(visit) && !std::mem::replace(&mut reach[visit], true) {
            open.extend(&before[visit]);
        }
    }
    reach
}

#[cfg(test)]
mod judge;
