//! Plays a graph: moves one visit at a time through every position that a run can come to, whatever conditions hold and
//! calls fail. So it sees every order of the branches.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::judge::Fault;
use super::places::{ELEMENT, Failure, Frame, Frames, Leads, Map, PARTIAL, Places, Stop, Way, Word};

/// The most positions that are looked at. The faults that were seen until then count.
const MOST: usize = 4_000;

/// The facts about a graph that was played.
#[derive(Debug, Default)]
pub(crate) struct Played {
    /// The facts that hold at every visit of a node; `None` if it is not visited.
    pub(crate) before: Vec<Option<u128>>,
    /// The fewest visits of a run that ends.
    pub(crate) shortest: Option<usize>,
    pub(crate) faults: BTreeSet<Fault>,
    pub(crate) is_whole: bool,
}

/// The frames around a visit, by their number.
type Around = usize;

/// Where a run is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Position {
    active: BTreeSet<(Around, usize)>,
    /// The branches that have come to a join: the join, the frames around its fan-out, and the branch.
    come: BTreeSet<(usize, Around, usize)>,
    /// The fan-outs that are not over, each with the frames around it.
    fans: BTreeSet<(usize, Around)>,
}

/// One of the ways in which a visit may end.
#[derive(Clone)]
struct Outcome {
    position: Position,
    gains: u128,
}

pub(crate) fn play(map: &Map, places: &Places) -> Played {
    let mut player = Player { map, places, frames: Vec::new(), numbers: HashMap::new(), played: Played::default() };
    player.played.before = vec![None; map.stops.len()];
    let mut ways = Ways::default();
    player.played.is_whole = player.explore(&mut ways);
    if player.played.is_whole {
        let facts = ways.facts();
        for &(position, at) in &ways.visited {
            player.played.before[at] = Some(player.played.before[at].unwrap_or(u128::MAX) & facts[position]);
        }
        player.played.shortest = ways.shortest();
        if !ways.all_end() {
            player.fault(Fault::NoEnd);
        }
        player.unused(&ways);
    }
    player.races(&ways.pairs);
    player.played
}

/// The positions of a graph, by their numbers, and the ways between them.
#[derive(Default)]
struct Ways {
    all: Vec<Position>,
    numbers: HashMap<Position, usize>,
    waiting: VecDeque<usize>,
    /// The facts that hold in a position before any visit.
    given: Vec<u128>,
    before: Vec<Vec<usize>>,
    /// The positions after each, with the facts that the visit on the way sets.
    after: Vec<Vec<(usize, u128)>>,
    /// The positions in which a run may end.
    ends: BTreeSet<usize>,
    /// The nodes that are visited, each with the position.
    visited: Vec<(usize, usize)>,
    /// The nodes that are visited at the same time.
    pairs: BTreeSet<(usize, usize)>,
    /// The returns that cancelled branches.
    cancelling: BTreeSet<usize>,
    /// The joins whose fan-outs ended with fewer branches than they wait for.
    short: BTreeSet<usize>,
}

impl Ways {
    /// Returns the number of a position, which is explored if it is new.
    fn number(&mut self, position: Position, given: u128) -> usize {
        if let Some(number) = self.numbers.get(&position) {
            return *number;
        }
        let number = self.all.len();
        self.numbers.insert(position.clone(), number);
        self.all.push(position);
        self.given.push(given);
        self.before.push(Vec::new());
        self.after.push(Vec::new());
        self.waiting.push_back(number);
        number
    }

    /// Returns the facts that hold on all ways to each position.
    fn facts(&self) -> Vec<u128> {
        let mut facts = self.given.clone();
        let mut open: Vec<usize> = (0..facts.len()).collect();
        while let Some(at) = open.pop() {
            for &(to, gains) in &self.after[at] {
                let both = facts[to] & (facts[at] | gains);
                if both != facts[to] {
                    facts[to] = both;
                    open.push(to);
                }
            }
        }
        facts
    }

    /// Returns whether every position leads to an end.
    fn all_end(&self) -> bool {
        let mut good: Vec<usize> = self.ends.iter().copied().collect();
        let mut can_end = vec![false; self.all.len()];
        while let Some(at) = good.pop() {
            if !std::mem::replace(&mut can_end[at], true) {
                good.extend(&self.before[at]);
            }
        }
        !can_end.contains(&false)
    }

    /// Returns how many nodes the shortest run from the start visits, if one ends.
    fn shortest(&self) -> Option<usize> {
        let (mut seen, mut waiting) = (BTreeSet::from([0]), VecDeque::from([(0, 0)]));
        let mut least: Option<usize> = None;
        while let Some((at, far)) = waiting.pop_front() {
            if self.ends.contains(&at) {
                // A return is a visit, too.
                let far = far + usize::from(!self.all[at].active.is_empty());
                least = Some(least.map_or(far, |least| least.min(far)));
            }
            for (to, _) in self.after.get(at).into_iter().flatten() {
                if seen.insert(*to) {
                    waiting.push_back((*to, far + 1));
                }
            }
        }
        least
    }
}

struct Player<'m> {
    map: &'m Map,
    places: &'m Places,
    frames: Vec<Frames>,
    numbers: HashMap<Frames, Around>,
    played: Played,
}

impl Player<'_> {
    fn fault(&mut self, fault: Fault) {
        self.played.faults.insert(fault);
    }

    fn number(&mut self, frames: Frames) -> Around {
        if let Some(number) = self.numbers.get(&frames) {
            return *number;
        }
        self.numbers.insert(frames.clone(), self.frames.len());
        self.frames.push(frames);
        self.frames.len() - 1
    }

    fn stop(&self, at: usize) -> &Stop {
        &self.map.stops[at]
    }

    /// The positions in which a run can begin: at the start, and at each entry.
    fn first(&mut self) -> Vec<Position> {
        let mut first = Vec::new();
        let outside = self.number(Vec::new());
        if let Some(start) = self.map.start {
            first.push(Position { active: BTreeSet::from([(outside, start)]), ..Position::default() });
        }
        for entry in self.map.entries.clone() {
            let Some(frames) = self.places.visits[entry].iter().next().cloned() else { continue };
            let mut position = Position::default();
            let mut around = frames;
            around.iter_mut().filter(|frame| frame.branch == ELEMENT).for_each(|frame| frame.branch = ELEMENT + 1);
            for depth in 0..around.len() {
                let outer = self.number(around[..depth].to_vec());
                position.fans.insert((around[depth].fan, outer));
            }
            let own = self.number(around);
            position.active.insert((own, entry));
            first.push(position);
        }
        first
    }

    /// Finds the positions that a run can come to. Returns whether these are all of them.
    fn explore(&mut self, ways: &mut Ways) -> bool {
        for position in self.first() {
            ways.number(position, self.map.given);
        }
        while let Some(at) = ways.waiting.pop_front() {
            if ways.all.len() > MOST {
                return false;
            }
            let position = ways.all[at].clone();
            self.beside(&position, &mut ways.pairs);
            if position.active.is_empty() {
                ways.ends.insert(at);
                continue;
            }
            for visit in &position.active {
                let (outcomes, is_end) = self.moves(&position, *visit, &mut ways.cancelling, &mut ways.short);
                if is_end {
                    ways.ends.insert(at);
                }
                // A return that waits for late branches is visited later.
                if is_end || !matches!(self.stop(visit.1).leads, Leads::Return) {
                    ways.visited.push((at, visit.1));
                }
                for outcome in outcomes {
                    let to = ways.number(outcome.position, u128::MAX);
                    ways.before[to].push(at);
                    ways.after[at].push((to, outcome.gains));
                }
            }
        }
        true
    }

    /// Finds the returns that are visited and never cancel a branch as they say, and the `fewer` that is never taken.
    fn unused(&mut self, ways: &Ways) {
        for (at, stop) in self.map.stops.iter().enumerate().filter(|(at, _)| self.played.before[*at].is_some()) {
            if stop.cancels && !ways.cancelling.contains(&at) {
                self.played.faults.insert(Fault::Cancels);
            }
            if stop.quorum.is_some_and(|quorum| quorum.fewer.is_some()) && !ways.short.contains(&at) {
                self.played.faults.insert(Fault::DeadEdge);
            }
        }
    }

    /// Notes the nodes that are visited at the same time.
    fn beside(&self, position: &Position, pairs: &mut BTreeSet<(usize, usize)>) {
        let is_waiting = |at: usize| matches!(self.stop(at).leads, Leads::Return);
        for (number, (_, one)) in position.active.iter().enumerate() {
            for (_, two) in position.active.iter().skip(number + 1) {
                // A return waits for the late branches, and one that cancels sees what there is.
                if !is_waiting(*one) && !is_waiting(*two) {
                    pairs.insert((*one, *two));
                }
            }
        }
    }

    fn races(&mut self, pairs: &BTreeSet<(usize, usize)>) {
        for &(one, two) in pairs {
            let (one, two) = (self.stop(one), self.stop(two));
            let race = (one.replaces & two.writes) | (one.writes & two.replaces);
            let racing_read = (one.reads & two.writes) | (one.writes & two.reads);
            if race != 0 {
                self.fault(Fault::Race);
            }
            if racing_read != 0 {
                self.fault(Fault::RacingRead);
            }
        }
    }

    fn is_late(&self, around: Around) -> bool {
        self.frames[around].iter().any(|frame| frame.is_late)
    }

    /// Whether frames are inside of a fan-out that is not over, and in which branch.
    fn branch_of(&self, around: Around, fan: usize, outer: Around) -> Option<usize> {
        let (own, outer) = (&self.frames[around], &self.frames[outer]);
        let frame = own.get(outer.len()).filter(|frame| frame.fan == fan && !frame.is_late)?;
        own.starts_with(outer).then_some(frame.branch)
    }

    /// Returns how a visit may end, and whether the run may end with it.
    fn moves(
        &mut self,
        position: &Position,
        (around, at): (Around, usize),
        cancelling: &mut BTreeSet<usize>,
        short: &mut BTreeSet<usize>,
    ) -> (Vec<Outcome>, bool) {
        let stop = self.stop(at).clone();
        let mut rest = position.clone();
        rest.active.remove(&(around, at));
        let mut outcomes = Vec::new();
        match &stop.leads {
            Leads::Return => {
                let is_over = |&(fan, _): &(usize, Around)| self.places.closing(fan).is_none();
                let is_alone = rest.come.is_empty() && rest.fans.iter().all(is_over);
                if stop.cancels {
                    if !is_alone || !rest.active.is_empty() {
                        cancelling.insert(at);
                    }
                    return (outcomes, true);
                }
                let is_late = |around: Around| self.is_late(around);
                let late = rest.active.iter().filter(|(around, _)| is_late(*around)).count();
                let own = rest.fans.iter().filter(|fan| !is_late(fan.1)).all(is_over);
                let come = rest.come.iter().any(|(_, outer, _)| !is_late(*outer));
                if rest.active.len() > late || !own || come {
                    self.fault(Fault::Beside);
                    return (outcomes, true);
                }
                return (outcomes, late == 0);
            }
            Leads::One(ways) => {
                for way in ways {
                    outcomes.push(self.take(&rest, around, way.to, way.gains | stop.sets));
                    if stop.failure == Failure::Continues {
                        outcomes.push(self.take(&rest, around, way.to, way.gains));
                    }
                }
            }
            Leads::All(ways) => {
                let must_match = self.map.fails_without_match;
                let sets: &[u128] = if stop.failure == Failure::Continues { &[stop.sets, 0] } else { &[stop.sets] };
                for sets in sets {
                    for chosen in subsets(ways).into_iter().filter(|chosen| !chosen.is_empty() || !must_match) {
                        let branches: Vec<(usize, &Way)> =
                            ways.iter().enumerate().filter(|(branch, _)| chosen.contains(branch)).collect();
                        outcomes.push(self.spread(&rest, around, at, &branches, *sets));
                    }
                }
            }
            Leads::Over(to) => {
                let need = self.places.closing(at).map_or(1, |join| self.need(at, join));
                let most = (need + 1).clamp(2, 3).min(stop.most);
                for count in 0..=most {
                    let way = Way { to: *to, is_sure: true, gains: 0 };
                    let branches: Vec<(usize, &Way)> =
                        (0..count).map(|element| (ELEMENT + 1 + element, &way)).collect();
                    outcomes.push(self.spread(&rest, around, at, &branches, stop.sets));
                }
            }
        }
        match stop.failure {
            Failure::To(to) => outcomes.push(self.take(&rest, around, to, self.map.failed)),
            Failure::Unhandled if self.collects(around) => outcomes.push(self.take(&rest, around, None, 0)),
            _ => {}
        }
        let mut settled = Vec::new();
        for mut outcome in outcomes {
            if self.settle(&mut outcome.position, short) {
                settled.push(outcome);
            }
        }
        (settled, false)
    }

    /// Returns how many branches a join waits for. Two elements stand for more if the list may have so many.
    fn need(&self, fan: usize, join: usize) -> usize {
        let need = self.stop(join).quorum.map_or(1, |quorum| quorum.need);
        let stop = &self.map.stops[fan];
        if matches!(stop.leads, Leads::Over(_)) && need <= stop.most { need.min(2) } else { need }
    }

    /// Whether a failure in a branch ends the branch.
    fn collects(&self, around: Around) -> bool {
        let decides = |frame: &Frame| {
            let word = self.map.stops.get(frame.fan).and_then(|stop| stop.on_branch_error);
            let quorum = self.places.closing(frame.fan).is_some_and(|join| self.stop(join).quorum.is_some());
            word.or(quorum.then_some(Word::Collect))
        };
        self.frames[around].iter().rev().find_map(decides) == Some(Word::Collect)
    }

    /// Follows an edge, or ends the branch.
    fn take(&mut self, rest: &Position, around: Around, to: Option<usize>, gains: u128) -> Outcome {
        let mut position = rest.clone();
        match to {
            Some(to) => self.enter(&mut position, around, to),
            None => self.end(around),
        }
        Outcome { position, gains }
    }

    /// Begins branches.
    fn spread(&mut self, rest: &Position, around: Around, fan: usize, ways: &[(usize, &Way)], sets: u128) -> Outcome {
        let mut position = rest.clone();
        position.fans.insert((fan, around));
        for (branch, way) in ways {
            let mut inner = self.frames[around].clone();
            inner.push(Frame { fan, branch: *branch, is_late: false });
            let inner = self.number(inner);
            match way.to {
                Some(to) => self.enter(&mut position, inner, to),
                None => self.end(inner),
            }
        }
        Outcome { position, gains: sets }
    }

    fn end(&mut self, around: Around) {
        let frames = &self.frames[around];
        if !frames.is_empty() && !frames.iter().any(|frame| self.places.closing(frame.fan).is_some()) {
            self.fault(Fault::Lost);
        }
    }

    fn enter(&mut self, position: &mut Position, around: Around, to: usize) {
        if !self.stop(to).is_join {
            position.active.insert((around, to));
            return;
        }
        // A join without a place is a fault of its own.
        let Some(place) = self.places.joins.get(&to) else { return };
        let frames = &self.frames[around];
        let Some(frame) = frames.get(place.depth).filter(|frame| frame.fan == place.fan) else { return };
        if !frame.is_late {
            let (outer, branch) = (frames[..place.depth].to_vec(), frame.branch);
            let outer = self.number(outer);
            position.come.insert((to, outer, branch));
        }
    }

    /// Visits the joins that have come, and decides quorums. Returns whether the run continues.
    fn settle(&mut self, position: &mut Position, short: &mut BTreeSet<usize>) -> bool {
        loop {
            let before = position.clone();
            for (fan, outer) in before.fans.iter().copied().collect::<Vec<_>>() {
                if position.fans.contains(&(fan, outer)) && !self.settle_fan(position, fan, outer, short) {
                    return false;
                }
            }
            if *position == before {
                return true;
            }
        }
    }

    fn settle_fan(&mut self, position: &mut Position, fan: usize, outer: Around, short: &mut BTreeSet<usize>) -> bool {
        let closing = self.places.closing(fan);
        let branch = |player: &Self, around: Around| player.branch_of(around, fan, outer);
        let mut alive: BTreeSet<usize> =
            position.active.iter().filter_map(|(around, _)| branch(self, *around)).collect();
        alive.extend(position.fans.iter().filter_map(|(_, around)| branch(self, *around)));
        alive.extend(position.come.iter().filter_map(|(_, around, _)| branch(self, *around)));
        if let Some((join, quorum)) = closing.and_then(|join| Some((join, self.stop(join).quorum?))) {
            let come: BTreeSet<usize> =
                position.come.iter().filter(|come| come.0 == join && come.1 == outer).map(|come| come.2).collect();
            let need = self.need(fan, join);
            let is_enough = come.len() >= need;
            if !is_enough && come.union(&alive).count() >= need {
                return true;
            }
            self.leave(position, fan, outer, quorum.finishes);
            if is_enough {
                position.active.insert((outer, join));
                return true;
            }
            short.insert(join);
            match quorum.fewer {
                Some(Some(fewer)) => self.enter(position, outer, fewer),
                Some(None) => return false,
                None => {
                    self.fault(Fault::Short);
                    return false;
                }
            }
            return true;
        }
        let partial: BTreeSet<usize> = position
            .come
            .iter()
            .filter(|come| come.1 == outer && self.places.joins[&come.0].fan == fan && closing != Some(come.0))
            .map(|come| come.0)
            .collect();
        for join in &partial {
            if !self.may_come(position, fan, outer, *join) {
                position.come.retain(|come| (come.0, come.1) != (*join, outer));
                let mut inner = self.frames[outer].clone();
                inner.push(Frame { fan, branch: PARTIAL + join, is_late: false });
                let inner = self.number(inner);
                position.active.insert((inner, *join));
                return true;
            }
        }
        // Late branches of an inner fan-out are active in their branch.
        if alive.is_empty() && partial.is_empty() {
            position.fans.remove(&(fan, outer));
            position.come.retain(|come| come.1 != outer || closing != Some(come.0));
            if let Some(join) = closing {
                position.active.insert((outer, join));
            }
        }
        true
    }

    /// Ends the branches that a quorum does without, or lets them run on.
    fn leave(&mut self, position: &mut Position, fan: usize, outer: Around, finishes: bool) {
        let before = std::mem::take(position);
        let renamed = |player: &mut Self, around: Around| -> Option<Around> {
            if player.branch_of(around, fan, outer).is_none() {
                return Some(around);
            }
            let mut frames = player.frames[around].clone();
            let depth = player.frames[outer].len();
            frames[depth].is_late = true;
            finishes.then(|| player.number(frames))
        };
        for (around, at) in before.active {
            position.active.extend(renamed(self, around).map(|around| (around, at)));
        }
        for (join, around, branch) in before.come {
            let is_own = around == outer && self.places.joins[&join].fan == fan;
            if !is_own {
                position.come.extend(renamed(self, around).map(|around| (join, around, branch)));
            }
        }
        for (inner, around) in before.fans {
            if (inner, around) != (fan, outer) {
                position.fans.extend(renamed(self, around).map(|around| (inner, around)));
            }
        }
    }

    /// Whether another branch may come to a partial join.
    fn may_come(&self, position: &Position, fan: usize, outer: Around, join: usize) -> bool {
        let depth = self.frames[outer].len();
        let plain = |frames: &Frames| {
            let plain = |frame: &Frame| Frame {
                is_late: false,
                branch: if (ELEMENT..PARTIAL).contains(&frame.branch) { ELEMENT } else { frame.branch },
                ..*frame
            };
            frames.iter().map(plain).collect::<Frames>()
        };
        let is_inside = |around: Around| self.branch_of(around, fan, outer).is_some();
        let comes = |at: usize, frames: Frames| at == join || self.places.comes(&(at, plain(&frames)), join, depth);
        let active = position.active.iter().filter(|(around, _)| is_inside(*around));
        if active.into_iter().any(|(around, at)| comes(*at, self.frames[*around].clone())) {
            return true;
        }
        let inner = position.fans.iter().filter(|(_, around)| is_inside(*around));
        let closing = inner.filter_map(|(inner, around)| Some((self.places.closing(*inner)?, *around)));
        if closing.into_iter().any(|(at, around)| comes(at, self.frames[around].clone())) {
            return true;
        }
        // Another join that waits and leads here. The joins of inner fan-outs are those of the open fan-outs above.
        let beside = position.come.iter().filter(|come| come.0 != join && come.1 == outer);
        beside.filter(|come| self.places.joins[&come.0].fan == fan && !self.places.joins[&come.0].closes).any(|come| {
            let mut frames = self.frames[outer].clone();
            frames.push(Frame { fan, branch: PARTIAL + come.0, is_late: false });
            comes(come.0, frames)
        })
    }
}

/// The sets of branches that may begin.
fn subsets(ways: &[Way]) -> Vec<BTreeSet<usize>> {
    let mut all = vec![BTreeSet::new()];
    for (branch, way) in ways.iter().enumerate() {
        let mut with = all.clone();
        with.iter_mut().for_each(|set| {
            set.insert(branch);
        });
        if way.is_sure {
            all = with;
        } else {
            all.extend(with);
        }
    }
    all
}
