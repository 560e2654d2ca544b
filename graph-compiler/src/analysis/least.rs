//! The least that a run costs: the nodes that it visits, those that the runs inside it visit too, and the time that it waits.
//!
//! Two bounds hold for every run that ends, and the greater one counts. One is the cheapest path, with the rounds that conditions on
//! `visit.number` require. The other adds up what branches cost that surely begin: those of `all`, and one for each element that a list
//! has at least. Time is an exception: branches wait side by side, so the longest counts.
//!
//! A node that fails may have cost less than one that is done. It counts so wherever a run can continue after its failure.

use graph_definition::definition::RouteDefinition;
use graph_model::program::OnError;

use super::branches::{Branches, begins};
use super::control_flow::ControlFlow;
use super::edges::edges;
use super::model::Model;
use super::types::LeastLength;

/// A unit of cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// The nodes that the run visits itself.
    Visits,
    /// The nodes that it visits together with the runs inside it.
    VisitsInside,
    /// The milliseconds that it waits.
    Time,
    /// The visits of this node.
    VisitsOf(usize),
}

/// The least cost of a visit of a node.
#[derive(Debug, Clone, Copy)]
struct VisitCost {
    /// If it is done.
    done: u64,
    /// If it fails.
    failed: u64,
    /// If its time is over, and the run continues at `on_timeout`.
    late: u64,
}

/// The graph whose runs are counted.
#[derive(Clone, Copy)]
pub(crate) struct LeastRun<'a, 'd> {
    pub(crate) model: &'a Model<'d>,
    pub(crate) branches: &'a Branches,
    pub(crate) flow: &'a ControlFlow,
    /// For each node, how long its lists are at least.
    pub(crate) lists: &'a [LeastLength],
}

/// The least number of visits.
pub(crate) struct LeastSteps {
    /// How many nodes a run visits at least.
    pub(crate) steps: u64,
    /// How many it visits along the shortest path.
    pub(crate) along: u64,
    /// That path.
    pub(crate) path: Vec<usize>,
}

impl LeastRun<'_, '_> {
    /// Returns how many nodes a run visits at least until it ends; `None` if no path leads to an end.
    pub(crate) fn steps(self) -> Option<LeastSteps> {
        let costs = self.costs(Unit::Visits);
        let (along, path) = self.along(&costs)?;
        let steps = along.max(self.in_branches(Unit::Visits, &costs));
        Some(LeastSteps { steps, along, path })
    }

    /// Returns how many nodes a run and the runs inside it visit at least; `None` if no path leads to an end.
    pub(crate) fn steps_inside(self) -> Option<u64> {
        self.least(Unit::VisitsInside)
    }

    /// Returns how many milliseconds a run waits at least; `None` if no path leads to an end.
    pub(crate) fn waits_ms(self) -> Option<u64> {
        self.least(Unit::Time)
    }

    /// Returns how often a node is visited at least that each element of a list leads to, and the node of which that is most.
    pub(crate) fn visits_of_branches(self) -> Option<(u64, usize)> {
        let starts = self.model.definition.nodes.iter().zip(self.lists).filter_map(|(node, least)| match node.next() {
            RouteDefinition::Each(each) if least.branches > 1 => self.model.node(each.to.value.as_str()),
            _ => None,
        });
        let visits = |node| Some((self.least(Unit::VisitsOf(node))?, node));
        starts.filter_map(visits).max_by_key(|(visits, _)| *visits)
    }

    fn least(self, unit: Unit) -> Option<u64> {
        let costs = self.costs(unit);
        let (along, _) = self.along(&costs)?;
        Some(along.max(self.in_branches(unit, &costs)))
    }

    fn costs(self, unit: Unit) -> Vec<VisitCost> {
        (0..self.model.definition.nodes.len()).map(|node| self.cost_of_visit(unit, node)).collect()
    }

    fn cost_of_visit(self, unit: Unit, node: usize) -> VisitCost {
        let definition = &self.model.definition.nodes[node];
        let inner = definition.call().and_then(|call| self.model.tool(call).graph);
        let inner = inner.and_then(|graph| graph.budget.as_ref());
        let runs = if definition.each().is_some() { self.lists[node].elements } else { 1 };
        let visit = match unit {
            Unit::Visits | Unit::VisitsInside => u64::from(!definition.is_start()),
            Unit::VisitsOf(counted) => u64::from(node == counted),
            Unit::Time => 0,
        };
        let (inside, late) = match unit {
            Unit::VisitsInside => (inner.map_or(0, |inner| inner.shortest_inside.saturating_mul(runs)), 0),
            Unit::Time => {
                let waits = definition.wait().map(|wait| (wait, wait.timeout_ms.unwrap_or_default()));
                match waits {
                    // A signal or an answer may come at once.
                    Some((wait, time)) if wait.listens || wait.ask.is_some() => (0, time),
                    // The time in `until` may be over.
                    Some((wait, time)) => (if wait.until.is_some() { 0 } else { time }, 0),
                    // Elements may be waited for at the same time.
                    None => (inner.map_or(0, |inner| inner.shortest_ms.saturating_mul(runs.min(1))), 0),
                }
            }
            Unit::Visits | Unit::VisitsOf(_) => (0, 0),
        };
        // A wait that names a time beside `until` ends at the earlier one.
        let late = if definition.wait().is_some_and(|wait| wait.until.is_some()) { 0 } else { late };
        // Failures that do not end the run let the node count as done.
        let is_forgiven = self.model.definition.settings.on_error == OnError::Continue;
        let done = visit.saturating_add(if is_forgiven { 0 } else { inside });
        VisitCost { done, failed: visit, late: visit.saturating_add(late) }
    }

    /// Returns the cheapest path to an end, and its cost.
    fn along(self, costs: &[VisitCost]) -> Option<(u64, Vec<usize>)> {
        let cheapest = |node: usize| {
            // A join that is passed over is not visited.
            if self.model.fewer_successor(node).is_some() {
                return 0;
            }
            let VisitCost { mut done, failed, late } = costs[node];
            let goes_on = self.model.error_successor(node).is_some() || !self.branches.broken(node).is_empty();
            if goes_on {
                done = done.min(failed);
            }
            if self.model.timeout_successor(node).is_some() {
                done = done.min(late);
            }
            done
        };
        self.flow.cheapest(&self.model.first(), &cheapest)
    }

    /// Returns the least that a run from the start costs in all of its branches; 0 if it has none, or none of its paths ends.
    fn in_branches(self, unit: Unit, costs: &[VisitCost]) -> u64 {
        let Some(start) = self.model.start.filter(|_| !self.branches.is_empty()) else { return 0 };
        let least = LeastInBranches { run: self, unit, costs }.of_nodes()[start];
        if least == u64::MAX { 0 } else { least }
    }
}

/// The least that the branches of a run cost.
struct LeastInBranches<'a, 'd> {
    run: LeastRun<'a, 'd>,
    unit: Unit,
    costs: &'a [VisitCost],
}

impl LeastInBranches<'_, '_> {
    /// Returns for each node the least cost from there to the end of the run, or to the join or end of its branch; `u64::MAX` if no
    /// path leads there.
    fn of_nodes(&self) -> Vec<u64> {
        let LeastRun { model, branches, .. } = self.run;
        let count = model.definition.nodes.len();
        // A return that cancels may cut all branches but the one that leads to it.
        let is_cut = model.definition.nodes.iter().any(|node| node.cancels().is_some());
        let is_join = |node: usize| branches.place(node).is_some();
        let mut least = vec![u64::MAX; count];
        let mut changed = true;
        while changed {
            changed = false;
            for node in (0..count).rev() {
                let after = |next: usize| if is_join(next) { 0 } else { least[next] };
                let joined = |join: usize| least[join].min(model.fewer_successor(join).map_or(u64::MAX, after));
                let behind = match begins(model.definition.nodes[node].next()) {
                    true => self.behind_fan(node, is_cut, &after, &joined),
                    false => {
                        let ends = model.may_end(node).then_some(0);
                        model.successors(node).map(after).chain(ends).min().unwrap_or(u64::MAX)
                    }
                };
                let VisitCost { done, failed, late } = self.costs[node];
                let on_error = match branches.broken(node).is_empty() {
                    true => model.error_successor(node).map_or(u64::MAX, after),
                    // A failure may end the branch.
                    false => 0,
                };
                let on_timeout = model.timeout_successor(node).map_or(u64::MAX, after);
                let cost = behind.saturating_add(done);
                let cost = cost.min(on_error.saturating_add(failed)).min(on_timeout.saturating_add(late));
                changed |= cost < least[node];
                least[node] = cost.min(least[node]);
            }
        }
        least
    }

    /// Returns the least cost behind a fan-out: `after` is that from the first node of a branch on, `joined` that from a join on.
    fn behind_fan(&self, fan: usize, is_cut: bool, after: &dyn Fn(usize) -> u64, joined: &dyn Fn(usize) -> u64) -> u64 {
        let LeastRun { model, branches, .. } = self.run;
        let join = branches.closing(fan);
        let quorum = join.and_then(|join| model.definition.nodes[join].quorum.as_ref());
        let at_once = model.successors(fan).filter(|to| Some(*to) == join).count();
        let edges = edges(model.definition.nodes[fan].next()).into_iter().filter(|edge| edge.always);
        let always: Vec<usize> = edges.filter_map(|edge| model.node(edge.to?.value.as_str())).collect();
        // A quorum may be decided where the branches begin, or when the first node of each was visited.
        let most = match quorum.map(|quorum| quorum.need.value as usize) {
            None => u64::MAX,
            Some(need) if at_once >= need || always.len() < need => 0,
            Some(_) => self.visit(),
        };
        if is_cut {
            let none = if always.is_empty() { 0 } else { u64::MAX };
            return self.behind_cut_fan(fan, &always, most, after, join.map_or(none, joined));
        }
        let mut branches = always.into_iter().map(|to| after(to).min(most)).fold(0, |all, one| self.add(all, one));
        if let (RouteDefinition::Each(each), None) = (model.definition.nodes[fan].next(), quorum)
            && let Some(to) = model.node(each.to.value.as_str())
        {
            let elements = self.run.lists[fan].branches;
            let times = if self.unit == Unit::Time { elements.min(1) } else { elements };
            branches = if times == 0 { 0 } else { after(to).saturating_mul(times) };
        }
        branches.saturating_add(join.map_or(0, joined))
    }

    /// As [`Self::behind_fan`], in a graph with returns that cancel: one branch may lead to such a return, and the others end with it.
    /// `always` are the first nodes of branches that surely begin, and each of these costs `most` at most where a quorum is decided.
    fn behind_cut_fan(
        &self,
        fan: usize,
        always: &[usize],
        most: u64,
        after: &dyn Fn(usize) -> u64,
        joined: u64,
    ) -> u64 {
        let LeastRun { model, branches, .. } = self.run;
        let is_join = |node: usize| branches.place(node).is_some();
        let closing = branches.closing(fan);
        let cancels = |to: usize| model.definition.nodes[to].cancels().is_some() && Some(to) != closing;
        // The first nodes of the branches are in one step, unless something cancels them before it. A partial join that cancels
        // may come where the branches begin.
        let first = match most == 0 || model.successors(fan).any(cancels) {
            true => 0,
            false => always.iter().filter(|&&to| !is_join(to)).map(|&to| self.visit_of(to)).sum(),
        };
        let further = |to: usize| if first > 0 { after(to).saturating_sub(self.visit_of(to)) } else { after(to) };
        let behind = model.successors(fan).map(further).min().unwrap_or(0).min(joined);
        behind.saturating_add(first)
    }

    /// Returns the cost of a visit that fails at once.
    fn visit(&self) -> u64 {
        u64::from(matches!(self.unit, Unit::Visits | Unit::VisitsInside))
    }

    fn visit_of(&self, node: usize) -> u64 {
        self.costs[node].failed
    }

    /// Returns the cost of two branches together.
    fn add(&self, one: u64, other: u64) -> u64 {
        if self.unit == Unit::Time { one.max(other) } else { one.saturating_add(other) }
    }
}
