//! Joins: the fan-out that each belongs to, and the nodes that can still reach it.

use std::sync::Arc;

use graph_model::program::{EntryBranch, OnBranchError, Quorum, Rest};

use crate::activation::{Activation, Frame, TakenEdges, frames};
use crate::graph::node::CompiledRoute;
use crate::graph::{GraphTables, MOST_BRANCHES};

impl GraphTables {
    /// Whether each visit of a node begins branches.
    #[inline]
    pub fn fans_out(&self, node: u16) -> bool {
        matches!(self.node(node).next, CompiledRoute::All(_) | CompiledRoute::Each(_))
    }

    /// Whether a visit of a node begins a branch for each element of a list.
    #[inline]
    pub fn goes_over(&self, node: u16) -> bool {
        matches!(self.node(node).next, CompiledRoute::Each(_))
    }

    /// Whether a visit of any node begins branches.
    pub fn has_branches(&self) -> bool {
        (0..).zip(&self.nodes).any(|(node, _)| self.fans_out(node))
    }

    /// Returns the target of each branch that a visit of a node begins; `None` for a branch that ends where it begins.
    pub fn branches<'g>(&'g self, node: u16, edges: &'g TakenEdges) -> impl Iterator<Item = Option<u16>> + 'g {
        let over = match edges {
            TakenEdges::Over(list) => list.len(),
            _ => 0,
        };
        let taken = edges.as_slice().iter().map(move |&edge| self.target(node, edge).flatten());
        taken.chain(std::iter::repeat_n(0, over).map(move |edge| self.target(node, edge).flatten()))
    }

    /// Returns what a failure of a visit does that nothing else handles, and the branch of the innermost fan-out around the
    /// visit that says it; if none does, the run ends.
    pub fn on_branch_error<'a>(&self, at: &'a Activation) -> (OnBranchError, Option<&'a Arc<Frame>>) {
        let said = |frame: &'a Arc<Frame>| Some((self.node(frame.fan.node).on_branch_error?, Some(frame)));
        frames(at.frame.as_ref()).find_map(said).unwrap_or((OnBranchError::Stop, None))
    }

    /// Whether a failure of a visit that nothing else handles ends the run at once.
    pub fn stops_run(&self, at: &Activation) -> bool {
        self.on_branch_error(at).0 == OnBranchError::Stop
    }

    /// Returns how many nodes of a step are visited at a time: the minimum of the limits of the graph and its routes that
    /// begin branches.
    pub fn branches_at_once(&self, frontier: &[Activation]) -> usize {
        let of_routes = frontier.iter().flat_map(|at| frames(at.frame.as_ref())).map(|frame| frame.fan.node);
        let widths = of_routes.filter_map(|node| self.node(node).width);
        let of_graph = usize::try_from(self.settings.max_concurrency.max(1)).unwrap_or(usize::MAX);
        widths.fold(of_graph, usize::min)
    }

    /// Returns the node whose branches a node joins, if it is a join.
    pub fn joined(&self, node: u16) -> Option<u16> {
        self.node(node).join.as_ref()?.fan
    }

    /// Returns the join that closes the fan-out of a node.
    pub fn closing_join(&self, node: u16) -> Option<u16> {
        self.fan_outs.get(&node)?.closing
    }

    /// Returns the partial joins of a fan-out.
    pub fn partial(&self, fan: u16) -> &[u16] {
        self.fan_outs.get(&fan).map_or(&[], |out| &out.partial)
    }

    /// Returns the index of the branch behind a partial join: after those that begin at a visit of the fan-out.
    pub fn branch_behind(&self, fan: u16, join: u16) -> u32 {
        let first = if self.goes_over(fan) { MOST_BRANCHES } else { self.node(fan).next.edges().len() };
        let place = self.partial(fan).iter().position(|&node| node == join).unwrap_or_default();
        u32::try_from(first + place).unwrap_or(u32::MAX)
    }

    /// Returns the index of a branch in which a run begins.
    pub fn branch_of(&self, branch: &EntryBranch) -> u32 {
        branch.behind.map_or(0, |join| self.branch_behind(branch.fan, join))
    }

    /// Returns how many branches the join waits for that closes the fan-out of a node, if not for all.
    pub fn quorum(&self, fan: u16) -> Option<Quorum> {
        self.fan_outs.get(&fan)?.quorum
    }

    /// Whether the branches of a node run on that its quorum does not need.
    pub fn finishes(&self, fan: u16) -> bool {
        self.quorum(fan).is_some_and(|quorum| quorum.rest == Rest::Finish)
    }

    /// Whether a branch that is at a node can still come to a join of a fan-out.
    pub fn can_reach(&self, fan: u16, from: u16, join: u16) -> bool {
        self.fan_outs.get(&fan).is_some_and(|out| out.can_reach(from, join))
    }
}
