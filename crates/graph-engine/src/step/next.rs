//! The activations after a step: visits that fan out, branches that reach joins, and joins that become active.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::activation::{Activation, Arrival, Fan, Frame, TakenEdges, frames, is_inside};
use crate::graph::GraphTables;
use crate::step::pauses::PausedAfter;
use crate::step::position::{OpenJoin, Position, is_late};
use crate::step::quorum::{Decision, Tally};
use crate::step::visited::{FoldError, SettledVisit, Way};

/// The part of a position after a step that depends on where the visits lead.
#[derive(Debug)]
pub(super) struct Behind {
    pub(super) frontier: Vec<Activation>,
    /// The activations that were parked and still are, and those of visits whose failures are held.
    pub(super) parked: Vec<Activation>,
    pub(super) joins: Vec<OpenJoin>,
    pub(super) returning: Option<Activation>,
    pub(super) made: u64,
    /// The fan-outs whose closing join was visited, or the node instead of it.
    pub(super) met: Vec<Arc<Fan>>,
    /// The fan-outs whose branches are over.
    pub(super) closed: Vec<Arc<Fan>>,
    /// The branches behind partial joins that were visited, each with what came to the join.
    pub(super) joined: Vec<(Arc<Frame>, Vec<Arrival>)>,
    /// The visits after which the run pauses, if there can be any.
    pub(super) followed: Option<PausedAfter>,
}

/// Follows where the visits of a step lead.
pub(super) fn follow<'v>(
    graph: &GraphTables,
    base: &Position,
    mut visits: impl Iterator<Item = SettledVisit<'v>>,
) -> Result<Behind, FoldError> {
    let (alive, parked) = (Vec::with_capacity(1), base.parked.clone());
    let mut ways = Ways {
        graph,
        alive,
        parked,
        held: base.held.iter().map(|failed| failed.step).collect(),
        joins: base.joins.clone(),
        returning: base.returning.clone(),
        met: Vec::new(),
        closed: Vec::new(),
        joined: Vec::new(),
        followed: PausedAfter::begin(base),
        is_last: false,
    };
    let pauses_after = |at: &Activation| base.pauses.as_ref().is_some_and(|pauses| pauses.after.contains(&at.node));
    let mut returned = None;
    visits.try_for_each(|visited| {
        let is_made = !visited.way.is_fatal() && visited.way.opened().is_none();
        if graph.node(visited.at.node).kind.ends_run() && is_made {
            returned = Some(visited.at.node);
        }
        if let Some(followed) = ways.followed.as_mut().filter(|_| visited.way.leads_on() && pauses_after(visited.at)) {
            followed.note(visited.at.number);
        }
        ways.lead(&visited)
    })?;
    ways.cancel();
    if !ways.joins.is_empty() {
        ways.join()?;
        ways.all_decided()?;
        // A join that cancels comes when the step is done, so it cancels no visit of it.
        ways.cancel();
    }
    ways.all_decided()?;
    ways.wait_to_return();
    let Ways { mut alive, parked, joins, returning, met, closed, joined, followed, .. } = ways;
    if let Some(node) = returned.filter(|_| !(alive.is_empty() && parked.is_empty() && joins.is_empty())) {
        return Err(FoldError::Alive { node });
    }
    if alive.is_empty()
        && parked.is_empty()
        && let Some(join) = joins.first()
    {
        return Err(FoldError::Stuck { node: join.node });
    }
    if alive.len() > 1 {
        alive.sort_by(Activation::by_path);
        let is_same = |pair: &&[Activation]| pair[0].node == pair[1].node && pair[0].branch() == pair[1].branch();
        if let Some(pair) = alive.windows(2).find(is_same) {
            return Err(FoldError::Twice { node: pair[0].node });
        }
    }
    let mut made = base.made;
    for activation in &mut alive {
        made += 1;
        activation.number = made;
    }
    Ok(Behind { frontier: alive, parked, joins, returning, made, met, closed, joined, followed })
}

/// The state of following a step's visits.
struct Ways<'g> {
    graph: &'g GraphTables,
    /// The activations of the next step, not yet numbered, and those whose visits were cancelled, with their numbers: they are
    /// active until the quorum of a fan-out around them is decided.
    alive: Vec<Activation>,
    /// The parked activations whose fan-outs are not over.
    parked: Vec<Activation>,
    /// The numbers of the visits whose failures are held.
    held: Vec<u64>,
    /// Ordered by their keys.
    joins: Vec<OpenJoin>,
    returning: Option<Activation>,
    met: Vec<Arc<Fan>>,
    closed: Vec<Arc<Fan>>,
    joined: Vec<(Arc<Frame>, Vec<Arrival>)>,
    followed: Option<PausedAfter>,
    /// Whether a return cancelled all other activations.
    is_last: bool,
}

impl Ways<'_> {
    /// Fails if a visit was cancelled that nothing cancelled.
    fn all_decided(&self) -> Result<(), FoldError> {
        let left = self.alive.iter().find(|one| one.number != 0);
        left.map_or(Ok(()), |one| Err(FoldError::Undecided { node: one.node }))
    }

    /// Cancels everything else if a return is active that says so. If there are several, the run returns at the one
    /// with the lowest path.
    fn cancel(&mut self) {
        if !self.graph.has_cancelling || self.is_last {
            return;
        }
        let cancels = |one: &&Activation| one.number == 0 && self.graph.node(one.node).cancels;
        let Some(last) = self.alive.iter().filter(cancels).min_by(|one, other| one.by_path(other)).cloned() else {
            return;
        };
        self.alive = vec![last];
        self.parked.clear();
        self.joins.clear();
        self.returning = None;
        self.followed.iter_mut().for_each(PausedAfter::forget_returning);
        self.is_last = true;
    }

    /// Lets a return wait until the late branches are done, if nothing else is active.
    fn wait_to_return(&mut self) {
        if !self.joins.iter().any(|join| join.is_over) {
            if let Some(returning) = self.returning.take() {
                self.followed.iter_mut().for_each(|followed| followed.let_return(&returning));
                self.alive.push(returning);
            }
            return;
        }
        let is_late = |frame| is_late(&self.joins, frame, None);
        let mut others = (0..self.alive.len()).filter(|&at| !is_late(self.alive[at].frame.as_ref()));
        let (Some(at), None) = (others.next(), others.next()) else { return };
        let ends_run = self.graph.node(self.alive[at].node).kind.ends_run();
        if ends_run && !self.is_last && self.returning.is_none() {
            let returning = self.alive.remove(at);
            self.followed.iter_mut().for_each(|followed| followed.put_off(&returning));
            self.returning = Some(returning);
        }
    }

    /// Follows where a visit leads.
    fn lead(&mut self, visited: &SettledVisit<'_>) -> Result<(), FoldError> {
        let at = visited.at;
        match visited.way {
            Way::EndsBranch | Way::Fatal => Ok(()),
            Way::Held => {
                // Nothing needs a late branch.
                if !is_late(&self.joins, at.frame.as_ref(), None) {
                    self.parked.push(at.clone());
                    self.held.push(at.number);
                }
                Ok(())
            }
            Way::Waits(_) => {
                self.parked.push(at.clone());
                Ok(())
            }
            Way::Cancelled => {
                self.alive.push(at.clone());
                Ok(())
            }
            Way::OnError(target) | Way::TimedOut(target) => self.go(*target, at.frame.as_ref(), at.number),
            Way::Along { edges, .. } if self.graph.fans_out(at.node) => self.fan_out(at, edges),
            Way::Along { edges, .. } => {
                let graph = self.graph;
                graph.targets(at.node, edges).try_for_each(|target| self.go(target, at.frame.as_ref(), at.number))
            }
        }
    }

    /// Begins a branch for each edge that was taken, or each element of the list.
    fn fan_out(&mut self, at: &Activation, edges: &TakenEdges) -> Result<(), FoldError> {
        let list = match edges {
            TakenEdges::Over(list) => Arc::clone(list),
            _ => Arc::default(),
        };
        let fan = Arc::new(Fan { visit: at.number, node: at.node, outer: at.frame.clone(), list });
        if let Some(node) = self.graph.closing_join(at.node) {
            self.open(node, &fan);
        }
        for (branch, target) in (0..).zip(self.graph.branches(at.node, edges)) {
            // An edge that leads nowhere ends its branch.
            let Some(node) = target else { continue };
            let frame = Arc::new(Frame { fan: Arc::clone(&fan), branch });
            self.go(node, Some(&frame), at.number)?;
        }
        Ok(())
    }

    /// Activates a node that visits lead to.
    fn activate(&mut self, node: u16, frame: Option<Arc<Frame>>, from: impl Iterator<Item = u64>) {
        let activation = Activation { number: 0, node, frame };
        if let Some(followed) = &mut self.followed {
            followed.lead(&activation, from);
        }
        self.alive.push(activation);
    }

    /// Activates a node. If the node is a join, it waits for the other branches that can still reach it.
    fn go(&mut self, node: u16, frame: Option<&Arc<Frame>>, visit: u64) -> Result<(), FoldError> {
        let Some(fan) = self.graph.joined(node) else {
            self.activate(node, frame.cloned(), [visit].into_iter());
            return Ok(());
        };
        let inside = frames(frame).find(|frame| frame.fan.node == fan);
        let Frame { fan, branch } = &**inside.ok_or(FoldError::Outside { node })?;
        let join = self.open(node, fan);
        // One that is over was visited without this branch.
        if !join.is_over {
            join.arrived.push(Arrival { visit, branch: *branch });
        }
        Ok(())
    }

    /// Returns the open join of a fan-out at a node.
    fn open(&mut self, node: u16, fan: &Arc<Fan>) -> &mut OpenJoin {
        let found = self.joins.binary_search_by_key(&(fan.visit, node), OpenJoin::key);
        let at = found.unwrap_or_else(|at| {
            self.joins.insert(at, OpenJoin::new(node, fan));
            at
        });
        &mut self.joins[at]
    }

    /// Activates every join that nothing alive can still reach, or whose quorum is decided. Activating a join may make another
    /// one ready: of its own fan-out, or of one around it, which has a lower number.
    fn join(&mut self) -> Result<(), FoldError> {
        let mut end = (u64::MAX, u16::MAX);
        while let Some(at) = self.joins.partition_point(|join| join.key() < end).checked_sub(1) {
            end = self.joins[at].key();
            let Some(decision) = self.comes(at) else { continue };
            let OpenJoin { node, fan, arrived, is_over } = self.joins.remove(at);
            end = (fan.visit + 1, 0);
            if is_over {
                self.closed.push(fan);
                continue;
            }
            let from: SmallVec<[u64; 4]> = arrived.iter().map(|arrival| arrival.visit).collect();
            if self.graph.closing_join(fan.node) != Some(node) {
                let branch = self.graph.branch_behind(fan.node, node);
                let frame = Arc::new(Frame { fan, branch });
                self.joined.push((Arc::clone(&frame), arrived));
                self.activate(node, Some(frame), from.into_iter());
                continue;
            }
            self.met.push(Arc::clone(&fan));
            if self.graph.finishes(fan.node) {
                // The failures that are held inside are needless now.
                self.parked.retain(|one| !is_inside(one.frame.as_ref(), &fan) || !self.held.contains(&one.number));
                *self.open(node, &fan) = OpenJoin { arrived, is_over: true, ..OpenJoin::new(node, &fan) };
            } else {
                // Only a quorum leaves anything inside.
                self.alive.retain(|one| !is_inside(one.frame.as_ref(), &fan));
                self.parked.retain(|one| !is_inside(one.frame.as_ref(), &fan));
                self.joins.retain(|join| !is_inside(join.fan.outer.as_ref(), &fan));
                self.closed.push(Arc::clone(&fan));
            }
            let frame = fan.outer.clone();
            let Some(quorum) = self.graph.quorum(fan.node).filter(|_| decision == Decision::Short) else {
                self.activate(node, frame, from.into_iter());
                continue;
            };
            // The compiler proves that a quorum without a target is always met.
            let target = quorum.fewer.ok_or(FoldError::Stuck { node })?;
            // It follows the branches, and is recorded as what follows their fan-out.
            let follows = |followed: &&mut PausedAfter| followed.follows(from.iter().copied());
            self.followed.as_mut().filter(follows).into_iter().for_each(|one| one.note(fan.visit));
            self.go(target, frame.as_ref(), fan.visit)?;
        }
        Ok(())
    }

    /// Returns what a join came to, if it is ready. A join that closes its fan-out waits for everything alive inside, or until
    /// its quorum is decided; another join only for activations that can reach it. A join that was visited beside late branches
    /// is done with them.
    fn comes(&self, at: usize) -> Option<Decision> {
        let join = &self.joins[at];
        let OpenJoin { node, fan, .. } = join;
        // A branch that ends before the closing join keeps it waiting until then.
        let closes = self.graph.closing_join(fan.node) == Some(*node);
        let mut alive = self.alive.iter().chain(&self.parked);
        if let Some(quorum) = self.graph.quorum(fan.node).filter(|_| closes && !join.is_over) {
            return Tally::count(quorum.need, join, alive, &self.joins).decision();
        }
        let reaches = |from: u16| closes || self.graph.can_reach(fan.node, from, *node);
        // The fan-outs inside of one have higher numbers.
        let first = self.joins.partition_point(|other| other.fan.visit < fan.visit);
        let mut others = self.joins[first..].iter().filter(|other| other.key() != join.key());
        let is_other = |join: &OpenJoin| join.fan.visit == fan.visit || is_inside(join.fan.outer.as_ref(), fan);
        let is_ready = !alive.any(|one| is_inside(one.frame.as_ref(), fan) && reaches(one.node))
            && !others.any(|join| is_other(join) && reaches(join.node));
        is_ready.then_some(Decision::Enough)
    }
}

#[cfg(test)]
mod tests {
    use graph_model::value::View;

    use super::*;
    use crate::graph::load::tests::load;

    /// Follows visits of the node `work`, each of which takes its only edge, to a return that `cancels` or not.
    fn behind(cancels: bool, visited: &[Activation]) -> Result<Vec<Activation>, FoldError> {
        let end = format!(r#"{{"line":2,"does":"return","cancels":{cancels}}}"#);
        let graph = load(&[("work", r#"{"line":1,"does":"gate","next":[{"to":"end"}]}"#), ("end", &*end)]).unwrap();
        let base = Position::new(&graph);
        let way = Way::Along { edges: TakenEdges::One(0), suppressed: false };
        let settled = |at| SettledVisit {
            at,
            calls: 0,
            below: 0,
            error: None,
            items: &[],
            way: &way,
            returned: View::Null,
            changes: &[],
        };
        follow(&graph, &base, visited.iter().map(settled)).map(|behind| behind.frontier)
    }

    #[test]
    fn two_activations_of_a_node_in_one_branch_are_refused() {
        let fan = Arc::new(Fan { visit: 1, node: 0, outer: None, list: Arc::default() });
        let branch =
            |branch| Activation { number: 2, node: 0, frame: Some(Arc::new(Frame { fan: Arc::clone(&fan), branch })) };
        let frontier = behind(false, &[branch(1), branch(0)]).unwrap();
        assert_eq!(frontier.iter().map(Activation::branch).collect::<Vec<_>>(), [Some((1, 0)), Some((1, 1))]);
        // The first of two returns that cancel is visited.
        let frontier = behind(true, &[branch(1), branch(0)]).unwrap();
        assert_eq!(frontier.iter().map(|at| (at.number, at.branch())).collect::<Vec<_>>(), [(2, Some((1, 0)))]);
        let is_refused = |visited: &[Activation]| matches!(behind(false, visited), Err(FoldError::Twice { node: 1 }));
        assert!(is_refused(&[branch(0), branch(0)]));
        assert!(is_refused(&[Activation::of(0), Activation::of(0)]));
    }
}
