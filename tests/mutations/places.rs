//! Where each node is visited: the fan-outs around its visits, and the fan-out that each join belongs to. The rules are
//! those of `docs/format.md`, and conditions are ignored.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::judge::Fault;

/// The ways on from a visit of a node.
#[derive(Debug, Clone)]
pub(crate) enum Leads {
    Return,
    /// One of the edges; `None` is the end of the branch or run.
    One(Vec<Way>),
    /// Every edge that matches, each in a branch.
    All(Vec<Way>),
    /// A branch for each element of a list, to the node at this index if it exists.
    Over(Option<usize>),
}

/// An edge.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    pub(crate) to: Option<usize>,
    /// Whether it always matches.
    pub(crate) is_sure: bool,
    /// The facts that hold where it is followed.
    pub(crate) gains: u128,
}

/// The way on from a failure of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Never,
    /// To a node; `None` if it does not exist.
    To(Option<usize>),
    /// Along the edges, without the assignments.
    Continues,
    /// The fan-outs around the node decide.
    Unhandled,
}

/// The word in `on_branch_error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Stop,
    Finish,
    Collect,
}

/// A join that waits for some branches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quorum {
    pub(crate) need: usize,
    pub(crate) finishes: bool,
    /// `Some(None)` leads nowhere.
    pub(crate) fewer: Option<Option<usize>>,
}

/// The parts of a node that matter for the order of visits.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    pub(crate) leads: Leads,
    pub(crate) failure: Failure,
    pub(crate) is_join: bool,
    pub(crate) quorum: Option<Quorum>,
    pub(crate) cancels: bool,
    pub(crate) on_branch_error: Option<Word>,
    /// How many elements its list may have.
    pub(crate) most: usize,
    /// The facts that hold after a visit that did not fail.
    pub(crate) sets: u128,
    /// The keys whose value is replaced, those that are written in any way, and those that are read.
    pub(crate) replaces: u128,
    pub(crate) writes: u128,
    pub(crate) reads: u128,
}

impl Stop {
    /// A node that leads nowhere.
    pub(crate) fn nothing() -> Self {
        Self {
            leads: Leads::One(Vec::new()),
            failure: Failure::Never,
            is_join: false,
            quorum: None,
            cancels: false,
            on_branch_error: None,
            most: usize::MAX,
            sets: 0,
            replaces: 0,
            writes: 0,
            reads: 0,
        }
    }
}

/// The nodes of a graph and the places where a run begins. A fan-out of several first nodes is the last stop.
#[derive(Debug, Clone, Default)]
pub(crate) struct Map {
    pub(crate) stops: Vec<Stop>,
    pub(crate) start: Option<usize>,
    pub(crate) entries: Vec<usize>,
    /// The facts that hold when a run begins.
    pub(crate) given: u128,
    /// The bit of the fact that a failure was handled.
    pub(crate) failed: u128,
    /// Whether a node fails if none of its edges matches.
    pub(crate) fails_without_match: bool,
}

impl Map {
    /// The edges from a node, with the branch that each begins, if it begins one.
    fn ways(&self, at: usize) -> Vec<(usize, Option<usize>)> {
        let stop = &self.stops[at];
        let mut ways: Vec<(usize, Option<usize>)> = match &stop.leads {
            Leads::Return => Vec::new(),
            Leads::One(ways) => ways.iter().filter_map(|way| Some((way.to?, None))).collect(),
            Leads::All(ways) => {
                ways.iter().enumerate().filter_map(|(branch, way)| Some((way.to?, Some(branch)))).collect()
            }
            Leads::Over(to) => to.iter().map(|to| (*to, Some(ELEMENT))).collect(),
        };
        if let Failure::To(Some(to)) = stop.failure {
            ways.push((to, None));
        }
        ways
    }

    /// The nodes with an edge to a node.
    pub(crate) fn sources(&self, to: usize) -> BTreeSet<usize> {
        let fewer = |at: &usize| self.stops[*at].quorum.and_then(|quorum| quorum.fewer) == Some(Some(to));
        let leads = |at: &usize| self.ways(*at).iter().any(|(other, _)| *other == to) || fewer(at);
        (0..self.stops.len()).filter(leads).collect()
    }
}

/// The branch of an element of a list, before elements are distinguished.
pub(crate) const ELEMENT: usize = 1_000;
/// The branch behind a partial join is this and the index of the join.
pub(crate) const PARTIAL: usize = 1_000_000;

/// A fan-out around a visit, and the branch that the visit is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Frame {
    pub(crate) fan: usize,
    pub(crate) branch: usize,
    /// Whether a quorum did without the branch, which runs on.
    pub(crate) is_late: bool,
}

pub(crate) type Frames = Vec<Frame>;

/// A node, and the frames around its visit.
pub(crate) type Visit = (usize, Frames);

/// The fan-out of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) fan: usize,
    /// How many fan-outs are around that fan-out.
    pub(crate) depth: usize,
    pub(crate) closes: bool,
}

/// The places of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// The frames in which each node is visited.
    pub(crate) visits: Vec<BTreeSet<Frames>>,
    pub(crate) joins: BTreeMap<usize, Place>,
    /// From each visit, the visits that may follow.
    next: HashMap<Visit, BTreeSet<Visit>>,
    pub(crate) faults: BTreeSet<Fault>,
}

impl Places {
    /// The join that closes a fan-out.
    pub(crate) fn closing(&self, fan: usize) -> Option<usize> {
        self.joins.iter().find(|(_, place)| place.fan == fan && place.closes).map(|(join, _)| *join)
    }

    /// Whether a visit may lead to a join without leaving the frames around it.
    pub(crate) fn comes(&self, from: &Visit, join: usize, around: usize) -> bool {
        let prefix = &from.1[..around];
        let (mut seen, mut open) = (BTreeSet::from([from]), vec![from]);
        while let Some(visit) = open.pop() {
            for next in self.next.get(visit).into_iter().flatten() {
                let is_inside =
                    next.1.len() > around && next.1.starts_with(prefix) && next.1[around].fan == from.1[around].fan;
                if is_inside && next.0 == join {
                    return true;
                }
                if is_inside && seen.insert(next) {
                    open.push(next);
                }
            }
        }
        false
    }
}

/// Finds the places by following all edges.
pub(crate) fn places(map: &Map) -> Places {
    let mut finder = Finder { map, found: Places::default(), arrivals: BTreeMap::new(), open: Vec::new() };
    finder.found.visits = vec![BTreeSet::new(); map.stops.len()];
    if let Some(start) = map.start {
        finder.enter(start, Vec::new(), None);
        finder.follow();
    }
    finder.meetings();
    finder.found
}

struct Finder<'m> {
    map: &'m Map,
    found: Places,
    /// The frames in which branches come to a join, and the visit that they come from.
    arrivals: BTreeMap<usize, BTreeSet<(Frames, Option<Visit>)>>,
    open: Vec<Visit>,
}

impl Finder<'_> {
    fn fault(&mut self, fault: Fault) {
        self.found.faults.insert(fault);
    }

    /// Follows an edge to a node.
    fn enter(&mut self, to: usize, frames: Frames, from: Option<Visit>) {
        if !self.map.stops[to].is_join {
            self.visit(to, frames, from);
            return;
        }
        if let Some(place) = self.found.joins.get(&to).copied() {
            self.come(to, place, &frames, from.clone());
        }
        self.arrivals.entry(to).or_default().insert((frames, from));
    }

    /// Follows an edge to a join whose fan-out is known.
    fn come(&mut self, join: usize, place: Place, frames: &Frames, from: Option<Visit>) {
        if frames.get(place.depth).is_none_or(|frame| frame.fan != place.fan) {
            return self.fault(Fault::Outside);
        }
        let mut outer = frames[..place.depth].to_vec();
        if !place.closes {
            outer.push(Frame { fan: place.fan, branch: PARTIAL + join, is_late: false });
        }
        self.visit(join, outer, from);
    }

    fn visit(&mut self, at: usize, frames: Frames, from: Option<Visit>) {
        if let Some(from) = from {
            self.found.next.entry(from).or_default().insert((at, frames.clone()));
        }
        if frames.iter().any(|frame| frame.fan == at) {
            return self.fault(Fault::Again);
        }
        if frames.len() < 6 && self.found.visits[at].insert(frames.clone()) {
            self.open.push((at, frames));
        }
    }

    fn follow(&mut self) {
        loop {
            while let Some((at, frames)) = self.open.pop() {
                let from = Some((at, frames.clone()));
                for (to, branch) in self.map.ways(at) {
                    let mut inner = frames.clone();
                    inner.extend(branch.map(|branch| Frame { fan: at, branch, is_late: false }));
                    self.enter(to, inner, from.clone());
                }
                // Behind a join, where the run is outside of the fan-out.
                if let Some(Some(fewer)) = self.map.stops[at].quorum.and_then(|quorum| quorum.fewer) {
                    self.enter(fewer, frames.clone(), from.clone());
                }
                if let Some(join) = self.found.closing(at) {
                    self.visit(join, frames, from);
                }
            }
            if !self.place() {
                return;
            }
        }
    }

    /// Gives a place to one join that is reached, and continues behind it.
    fn place(&mut self) -> bool {
        let waiting: Vec<usize> =
            self.arrivals.keys().copied().filter(|join| !self.found.joins.contains_key(join)).collect();
        let is_known = |join: &usize| self.map.sources(*join).iter().all(|at| !self.found.visits[*at].is_empty());
        let known: Vec<usize> = waiting.iter().copied().filter(is_known).collect();
        if known.is_empty() && !waiting.is_empty() {
            self.fault(Fault::Circle);
        }
        let from = if known.is_empty() { &waiting } else { &known };
        // Joins of inner fan-outs come first.
        let Some(join) = from.iter().copied().max_by_key(|join| (self.common(*join).len(), usize::MAX - join)) else {
            return false;
        };
        let common = self.common(join);
        let Some(&fan) = common.last() else {
            self.fault(Fault::Outside);
            // Nothing behind it is judged.
            self.found.joins.insert(join, Place { fan: usize::MAX, depth: 0, closes: true });
            return true;
        };
        let is_inside = |frames: &Frames| frames.iter().any(|frame| frame.fan == fan);
        let mut others = waiting.iter().filter(|other| **other != join);
        let closes = !others.any(|other| self.arrivals[other].iter().any(|(frames, _)| is_inside(frames)));
        let place = Place { fan, depth: common.len() - 1, closes };
        if closes && self.found.closing(fan).is_some() {
            self.fault(Fault::Outside);
        }
        self.found.joins.insert(join, place);
        for (frames, from) in self.arrivals[&join].clone() {
            self.come(join, place, &frames, from);
        }
        if closes {
            for frames in self.found.visits[fan].clone() {
                self.visit(join, frames.clone(), Some((fan, frames)));
            }
        }
        true
    }

    /// The fan-outs that everything that comes to a join is inside of.
    fn common(&self, join: usize) -> Vec<usize> {
        let fans = |frames: &Frames| frames.iter().map(|frame| frame.fan).collect::<Vec<_>>();
        let mut all = self.arrivals[&join].iter().map(|(frames, _)| fans(frames));
        let first = all.next().unwrap_or_default();
        all.fold(first, |one, two| {
            one.into_iter().zip(two).take_while(|(one, two)| one == two).map(|(fan, _)| fan).collect()
        })
    }

    /// Looks for nodes that several branches of a fan-out lead to, and for quorums beside partial joins.
    fn meetings(&mut self) {
        for at in 0..self.map.stops.len() {
            let stop = &self.map.stops[at];
            let visits: Vec<&Frames> = self.found.visits[at].iter().collect();
            let meet = |one: &Frames, two: &Frames| {
                let parting = one.iter().zip(two).find(|(one, two)| one != two);
                parting.is_some_and(|(one, two)| one.fan == two.fan)
            };
            let may_meet = stop.cancels && matches!(stop.leads, Leads::Return);
            if !may_meet && visits.iter().any(|one| visits.iter().any(|two| meet(one, two))) {
                self.fault(Fault::Meeting);
            }
            if let Leads::All(ways) = &self.map.stops[at].leads {
                let targets: BTreeSet<Option<usize>> = ways.iter().map(|way| way.to).collect();
                if targets.len() < ways.len() {
                    self.fault(Fault::Meeting);
                }
            }
        }
        let is_quorum = |join: usize| self.map.stops[join].quorum.is_some();
        for (join, place) in self.found.joins.clone() {
            let beside = self.found.joins.values().filter(|other| other.fan == place.fan).count() > 1;
            if is_quorum(join) && (beside || !place.closes) {
                self.fault(Fault::Quorum);
            }
            let word = self.map.stops.get(place.fan).and_then(|stop| stop.on_branch_error);
            if is_quorum(join) && matches!(word, Some(Word::Stop | Word::Finish)) {
                self.fault(Fault::Quorum);
            }
        }
    }
}
