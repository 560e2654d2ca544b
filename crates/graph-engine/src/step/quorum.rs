//! Quorums: how many branches of a fan-out have arrived at its join, and how many still can.

use std::collections::BTreeSet;
use std::sync::Arc;

use graph_model::program::Rest;

use crate::activation::{Activation, Fan, branch_in};
use crate::graph::GraphTables;
use crate::step::position::{OpenJoin, Position, is_late};
use crate::step::visited::Way;

/// The result of a quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Enough branches have arrived: the join is visited.
    Enough,
    /// Too few can arrive.
    Short,
}

/// The branches of one visit of a fan-out with a quorum.
#[derive(Debug)]
pub struct Tally {
    need: usize,
    /// The branches that have arrived at the join. A branch with branches of its own may come to it several times.
    arrived: BTreeSet<u32>,
    /// The branches that neither arrived nor ended.
    active: BTreeSet<u32>,
}

impl Tally {
    /// Counts the branches of a fan-out. `open` are all activations, and `joins` all open joins. A branch that is active only
    /// in late branches inside of it cannot arrive.
    pub fn count<'p>(need: u32, at: &OpenJoin, open: impl Iterator<Item = &'p Activation>, joins: &[OpenJoin]) -> Self {
        let (fan, need) = (&*at.fan, usize::try_from(need).unwrap_or(usize::MAX));
        let arrived: BTreeSet<u32> = at.arrived.iter().map(|arrival| arrival.branch).collect();
        let first = joins.partition_point(|join| join.fan.visit <= fan.visit);
        let inner = joins[first..].iter().filter(|join| !join.is_over).map(|join| join.fan.outer.as_ref());
        let counts = |frame| branch_in(frame, fan).filter(|_| !is_late(joins, frame, Some(fan)));
        let active = open.map(|one| one.frame.as_ref()).chain(inner).filter_map(counts);
        let active = active.filter(|branch| !arrived.contains(branch)).collect();
        Self { need, arrived, active }
    }

    /// Returns the tallies of a position that cancel branches when they are decided, each with the visit that fanned out.
    pub fn all(graph: &GraphTables, position: &Position) -> Vec<(Arc<Fan>, Self)> {
        let cancels = |join: &OpenJoin| {
            let quorum = graph.quorum(join.fan.node).filter(|quorum| quorum.rest == Rest::Cancel);
            quorum.filter(|_| graph.closing_join(join.fan.node) == Some(join.node))
        };
        let tally = |join| Some(Self::count(cancels(join)?.need, join, position.open(), &position.joins));
        position.joins.iter().filter_map(|join| Some((Arc::clone(&join.fan), tally(join)?))).collect()
    }

    /// Returns whether the quorum is decided.
    pub fn decision(&self) -> Option<Decision> {
        if self.arrived.len() >= self.need {
            Some(Decision::Enough)
        } else {
            (self.arrived.len() + self.active.len() < self.need).then_some(Decision::Short)
        }
    }

    /// Takes a visit into account that leads `way`: its branch arrives at the join of the fan-out, or ends, or stays active.
    pub fn take(&mut self, graph: &GraphTables, fan: &Fan, at: &Activation, way: &Way) {
        let Some(branch) = branch_in(at.frame.as_ref(), fan) else { return };
        let closing = graph.closing_join(fan.node);
        let target = way.next(graph, at);
        if target.is_some() && target == closing {
            self.active.remove(&branch);
            self.arrived.insert(branch);
        }
        // Where other branches are around the visit, the branch of this fan-out continues behind them.
        let is_innermost = at.frame.as_ref().is_some_and(|frame| frame.fan.visit == fan.visit);
        let is_over = match way {
            Way::EndsBranch => true,
            Way::Along { .. } => target.is_none() && !graph.fans_out(at.node),
            Way::OnError(_) | Way::TimedOut(_) | Way::Held | Way::Waits(_) | Way::Cancelled | Way::Fatal => false,
        };
        if is_innermost && is_over {
            self.active.remove(&branch);
        }
    }
}
