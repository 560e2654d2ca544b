//! Whole runs of a random graph, step by step as the engine makes them: with visits that others of their step cancel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use graph_engine::activation::{Activation, Fan, Frame, frames, is_inside};
use graph_engine::failure::LastError;
use graph_engine::step::{OpenJoin, Position, SettledVisit, Tally, Way, fold};
use graph_model::value::View;

use super::super::super::budget::budget;
use super::super::super::control_flow::ControlFlow;
use super::super::super::least::LeastRun;
use super::super::super::types::LeastLength;
use super::{Judge, Model, Random};
use crate::graph::StepBound;

/// How many runs of a graph are made.
const RUNS: u64 = 8;

/// How many steps of a run are made.
const MOST_STEPS: usize = 60;

impl Judge<'_> {
    /// Makes a run in which the visits of each step are done in any order, and with any outcome. Returns how many nodes it
    /// visited; `None` if it does not end soon.
    fn play(&self, entry: Option<&str>, random: &mut Random) -> Result<Option<u64>, String> {
        let inputs = serde_json::json!({"element": 1});
        let mut position = Position::at_entry(self.graph, entry, Some(&inputs))?;
        let mut failures = Failures::default();
        for _ in 0..MOST_STEPS {
            if position.is_over() {
                failures.check_end(&position)?;
                return Ok(Some(position.steps));
            }
            if position.has_failed(self.graph) {
                position.resume();
                failures.held.clear();
            }
            let frontier = position.frontier.clone();
            let ways = self.settle(&position, random);
            let errors: Vec<String> = frontier.iter().map(|at| at.number.to_string()).collect();
            let visits = frontier.iter().zip(&ways).zip(&errors).map(|((at, way), error)| SettledVisit {
                at,
                calls: 1,
                below: 0,
                error: has_failed(way).then_some(error),
                items: &[],
                way,
                returned: View::Null,
                changes: &[],
            });
            let joins = position.joins.clone();
            let candidate = fold(self.graph, &position, None, visits.clone())
                .map_err(|error| format!("n{}: {error}, after {frontier:?} {ways:?}", error.node()))?;
            drop(candidate.take(self.graph, &mut position, visits));
            failures.take(&frontier, &ways, &joins, &position);
            failures.check(&position).map_err(|wrong| format!("{wrong}, after {frontier:?} {ways:?}"))?;
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

fn has_failed(way: &Way) -> bool {
    matches!(way, Way::OnError(_) | Way::EndsBranch | Way::Held)
}

/// The failures of a run by the numbers of their visits, which are their errors.
#[derive(Default)]
struct Failures {
    /// The branches of the visits that failed.
    branches: BTreeMap<u64, Option<Arc<Frame>>>,
    /// Those that are held.
    held: BTreeSet<u64>,
    /// Those after which the run continued.
    over: BTreeSet<u64>,
    /// Those of them that no node handled.
    suppressed: BTreeSet<u64>,
    /// Those of late branches, each with the outermost fan-out that was decided without its branch.
    late: BTreeMap<u64, Arc<Fan>>,
}

impl Failures {
    /// Takes a step into account, behind which the run is at `position`.
    fn take(&mut self, frontier: &[Activation], ways: &[Way], joins: &[OpenJoin], position: &Position) {
        for (at, way) in frontier.iter().zip(ways).filter(|(_, way)| has_failed(way)) {
            self.branches.insert(at.number, at.frame.clone());
            let late = frames(at.frame.as_ref()).filter(|frame| is_over(joins, &frame.fan)).last();
            self.late.extend(late.map(|frame| (at.number, Arc::clone(&frame.fan))));
            match way {
                Way::Held => self.held.insert(at.number),
                Way::EndsBranch => self.suppressed.insert(at.number),
                _ => self.over.insert(at.number),
            };
        }
        let parked: BTreeSet<u64> = position.parked.iter().map(|at| at.number).collect();
        self.suppressed.extend(self.held.difference(&parked));
        self.held.retain(|number| parked.contains(number));
        self.over.extend(&self.suppressed);
    }

    /// Fails if a branch knows of a failure in a fan-out that is not over, or in a branch that is not its own.
    fn check(&self, position: &Position) -> Result<(), String> {
        let held: Vec<u64> = position.held.iter().map(|failed| failed.step).collect();
        if !held.iter().eq(&self.held) {
            return Err(format!("{held:?} are held, not {:?}", self.held));
        }
        let of_branches = position.branches.values().map(|branch| (Some(&branch.frame), &branch.memory));
        for (owner, memory) in of_branches.chain([(None, &position.root)]) {
            let Some(number) = memory.last_error.as_ref().map(number) else { continue };
            let known = self.branches.get(&number).filter(|_| self.over.contains(&number));
            let known = known.ok_or_else(|| format!("visit {number} has not failed, or is made again"))?;
            let around: Vec<&Arc<Frame>> = frames(known.as_ref()).collect();
            let inside = match owner {
                None => around.last(),
                Some(owner) => match around.iter().position(|frame| frame.key() == owner.key()) {
                    Some(at) => at.checked_sub(1).map(|at| &around[at]),
                    // The branch behind a partial join knows of a failure in one that came to it.
                    None if around.iter().any(|frame| frame.fan == owner.fan) => None,
                    None => return Err(format!("a branch knows of the failure of visit {number} in another")),
                },
            };
            let is_open =
                |fan| !is_over(&position.joins, fan) && position.open().any(|at| is_inside(at.frame.as_ref(), fan));
            // A return that cancels makes its branch the last one.
            let late = self.late.get(&number).filter(|fan| !is_inside(owner, fan) && position.returned_in.is_none());
            if inside.is_some_and(|frame| is_open(&frame.fan)) || late.is_some() {
                return Err(format!("the failure of visit {number} is known outside of its branch"));
            }
        }
        Ok(())
    }

    /// Fails unless the run ends with the errors of all failures after which it continued, and with the last of all.
    fn check_end(&self, position: &Position) -> Result<(), String> {
        let said: BTreeSet<u64> = position.suppressed.iter().map(|failed| failed.step).collect();
        if said != self.suppressed || position.suppressed.len() != said.len() {
            return Err(format!("the errors are {:?}, not {:?}", position.suppressed, self.suppressed));
        }
        let last = position.root.last_error.as_ref().map(number);
        let is_in_branches = position.returned_in.is_some() || !position.branches.is_empty();
        let known = self.over.iter().rfind(|number| !self.late.contains_key(number));
        if !is_in_branches && last != known.copied() {
            return Err(format!("the last failure is that of visit {last:?}, not one of {:?}", self.over));
        }
        Ok(())
    }
}

/// Whether the run continued without some branches of a fan-out.
fn is_over(joins: &[OpenJoin], fan: &Fan) -> bool {
    joins.iter().any(|join| join.is_over && join.fan.visit == fan.visit)
}

fn number(error: &LastError) -> u64 {
    error.error.parse().unwrap()
}

/// Asserts that runs of a graph with nothing wrong in it go wrong nowhere, and visit as many nodes as its budget says.
pub(super) fn assert_runs(judge: &Judge<'_>, model: &Model<'_>, what: &str) {
    let coverage: Vec<_> = judge.nodes.iter().map(|_| None).collect();
    let flow = ControlFlow::analyse(model, judge.branches, &coverage);
    let lists = vec![LeastLength::default(); judge.nodes.len()];
    let least = LeastRun { model, branches: judge.branches, flow: &flow, lists: &lists };
    let budget = budget(least, &coverage);
    for entry in judge.graph.settings.entries.keys() {
        for run in 0..RUNS / 4 {
            let played = judge.play(Some(entry), &mut Random(run));
            played.unwrap_or_else(|wrong| panic!("{wrong}, run {run} from {entry}\n{what}"));
        }
    }
    for run in 0..RUNS {
        let visits = judge.play(None, &mut Random(run)).unwrap_or_else(|wrong| panic!("{wrong}, run {run}\n{what}"));
        let Some(visits) = visits else { continue };
        let budget = budget.as_ref().unwrap_or_else(|| panic!("a run ends, and there is no budget, run {run}\n{what}"));
        let is_within = budget.shortest <= visits && (visits <= budget.steps || budget.bounded_by != StepBound::Edges);
        assert!(is_within, "{visits} visits, and the budget is {budget:?}, run {run}\n{what}");
    }
}
