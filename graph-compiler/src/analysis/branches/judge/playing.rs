//! Whole runs of a random graph, step by step as the engine makes them: with visits that others of their step cancel.

use graph_engine::activation::is_inside;
use graph_engine::step::{Position, SettledVisit, Tally, Way, fold};
use graph_model::value::View;

use super::super::super::budget::budget;
use super::super::super::control_flow::ControlFlow;
use super::{Judge, Model, Random};
use crate::graph::StepBound;

/// How many runs of a graph are made.
const RUNS: u64 = 8;

/// How many steps of a run are made.
const MOST_STEPS: usize = 60;

impl Judge<'_> {
    /// Makes a run in which the visits of each step are done in any order, and with any outcome. Returns how many nodes it
    /// visited; `None` if it does not end soon.
    fn play(&self, random: &mut Random) -> Result<Option<u64>, String> {
        let mut position = Position::new(self.graph);
        for _ in 0..MOST_STEPS {
            if position.is_over() {
                return Ok(Some(position.steps));
            }
            if position.has_failed(self.graph) {
                position.resume();
            }
            let frontier = position.frontier.clone();
            let ways = self.settle(&position, random);
            let settled = |(at, way)| SettledVisit {
                at,
                calls: 1,
                below: 0,
                error: None,
                items: &[],
                way,
                returned: View::Null,
                changes: &[],
            };
            let visits = frontier.iter().zip(&ways).map(settled);
            let candidate = fold(self.graph, &position, None, visits.clone())
                .map_err(|error| format!("n{}: {error}, after {frontier:?} {ways:?}", error.node()))?;
            drop(candidate.take(self.graph, &mut position, visits));
        }
        Ok(None)
    }

    /// Lets each visit of a step lead anywhere, one after the other, unless one before has cancelled it.
    fn settle(&self, position: &Position, random: &mut Random) -> Vec<Way> {
        let frontier = &position.frontier;
        let mut quorums = Tally::all(self.graph, position);
        let mut ways: Vec<Option<Way>> = vec![None; frontier.len()];
        let mut left: Vec<usize> = (0..frontier.len()).collect();
        while !left.is_empty() {
            let place = left.swap_remove(random.below(left.len()));
            let at = &frontier[place];
            let all = self.ways(at);
            let way = all[random.below(all.len())].clone();
            if way.cancels(self.graph, at) {
                left.clear();
            }
            quorums.retain_mut(|(fan, tally)| {
                tally.take(self.graph, fan, at, &way);
                let is_decided = tally.decision().is_some();
                if is_decided {
                    left.retain(|&other| !is_inside(frontier[other].frame.as_ref(), fan));
                }
                !is_decided
            });
            ways[place] = Some(way);
        }
        ways.into_iter().map(|way| way.unwrap_or(Way::Cancelled)).collect()
    }
}

/// Asserts that runs of a graph with nothing wrong in it go wrong nowhere, and visit as many nodes as its budget says.
pub(super) fn assert_runs(judge: &Judge<'_>, model: &Model<'_>, what: &str) {
    let coverage: Vec<_> = judge.nodes.iter().map(|_| None).collect();
    let flow = ControlFlow::analyse(model, judge.branches, &coverage);
    let budget = budget(model, judge.branches, &coverage, &flow);
    for run in 0..RUNS {
        let visits = judge.play(&mut Random(run)).unwrap_or_else(|wrong| panic!("{wrong}, run {run}\n{what}"));
        let Some(visits) = visits else { continue };
        let budget = budget.as_ref().unwrap_or_else(|| panic!("a run ends, and there is no budget, run {run}\n{what}"));
        let is_within = budget.shortest <= visits && (visits <= budget.steps || budget.bounded_by != StepBound::Edges);
        assert!(is_within, "{visits} visits, and the budget is {budget:?}, run {run}\n{what}");
    }
}
