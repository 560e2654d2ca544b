//! Recorded steps and visits: checking that the graph can have made them, and applying them again.

use std::collections::BTreeSet;

use graph_model::program::OnBranchError;
use graph_model::value::{AsView, MOST_LEVELS, Value};

use crate::activation::{Activation, Change, TakenEdges};
use crate::failure::Category;
use crate::graph::{Asks, GraphTables, MOST_BRANCHES};
use crate::record::entry::{Step, Target, Visit};
use crate::record::recorded_state::RecordedState;
use crate::record::written::{new_orders, open_joins, reduced, targets};
use crate::state::StateFields;
use crate::step::{
    FoldError, NO_WAY, Opened, Opening, Pause, Position, SettledVisit, StateWrites, Way, fold, may_begin_runs, write,
};

/// Applies a step of a journal to a position, and to a state if there is one.
///
/// # Errors
///
/// If the graph does not lead where the step says, or has no such node or key, or a value is not of its key's type.
pub fn retake(
    graph: &GraphTables,
    state: Option<&mut (dyn StateFields + 'static)>,
    position: &mut Position,
    step: &Step,
) -> Result<(), String> {
    if step.visits.len() != position.frontier.len() {
        return Err(format!(
            "{} nodes were to be visited, and it visits {}",
            position.frontier.len(),
            step.visits.len()
        ));
    }
    let frontier = position.frontier.clone();
    if let Some(visit) = frontier.iter().zip(&step.visits).find(|(at, visit)| position.is_late(at) != visit.late) {
        let (at, other) = (visit.0.number, if visit.1.late { "had not" } else { "had" });
        return Err(format!("visit {at} is in a branch that the run {other} continued without"));
    }
    if let Some((at, _)) = frontier.iter().zip(&step.visits).find(|(at, visit)| !waits_once(graph, position, at, visit))
    {
        return Err(format!("visit {} waits once, before it is made", at.number));
    }
    let read = |(at, visit)| Recorded::read(graph, at, visit);
    let visits = frontier.iter().zip(&step.visits).map(read).collect::<Result<Vec<_>, _>>()?;
    let visited = || visits.iter().zip(&step.visits).map(|(recorded, visit)| recorded.visited(visit));
    // Without channels, the state checks each value when it is written.
    let checked = state.as_deref().filter(|_| graph.combines_writes);
    let checked = checked.map(|state| RecordedState::of(graph, state, &step.reduced));
    let checked = checked.as_ref().map(|state| state as &dyn StateFields);
    let candidate = fold(graph, position, checked, visited()).map_err(|error| match &error {
        FoldError::Misfit { key, .. } | FoldError::Uncombined { key, .. } => {
            format!("`{}`: {error}", graph.keys[*key].name)
        }
        other => format!("{NO_WAY}{other}"),
    })?;
    let (said, next) = (&step.next, targets(graph, candidate.next()));
    if !said.iter().map(|target| target.node.as_str()).eq(next.iter().map(|target| target.node)) {
        let said = said.iter().map(|target| target.node.as_str()).collect::<Vec<_>>().join(", ");
        let leads = next.iter().map(|target| target.node).collect::<Vec<_>>().join(", ");
        return Err(format!("it says that {said} is next, and {leads} is"));
    }
    let is_same =
        |(said, is): (&Target, &Target<&str>)| (said.number, &said.branch, said.fan) == (is.number, &is.branch, is.fan);
    if !said.iter().zip(&next).all(is_same) {
        return Err("it numbers what is visited next otherwise than in the order of the branches".to_owned());
    }
    if step.joins != open_joins(graph, candidate.joins(position)) {
        return Err("it says something else of the joins than which branches came to them".to_owned());
    }
    if step.ordered != new_orders(graph, candidate.reordered()) {
        return Err("it puts the elements of a channel in another order than that of the branches".to_owned());
    }
    let names = functions_of(graph, &visits);
    if !step.reduced.keys().map(String::as_str).eq(names.iter().copied())
        || checked.is_some() && step.reduced != reduced(graph, candidate.reduced())
    {
        return Err(OTHER_VALUES.to_owned());
    }
    let combined = candidate.take(graph, position, visited());
    if let Some(state) = state {
        let changes = visits.into_iter().flat_map(|recorded| recorded.changes);
        write(combined, changes, state).map_err(|(key, error)| format!("`{}`: {error}", graph.keys[key].name))?;
    }
    position.limit = step.limit.or(position.limit);
    Ok(())
}

/// Whether a visit waits if its node does and it has not waited, and only then. Its node may fail before, or be cancelled.
fn waits_once(graph: &GraphTables, position: &Position, at: &Activation, visit: &Visit) -> bool {
    let taken = position.taken(at);
    let is_to_wait = graph.waits(at.node) && taken.is_none();
    let paused = position.pause_of(at).and_then(|opening| opening.pause);
    let before = position.waits_before(at.number);
    let has_lasted = graph.node(at.node).on_timeout().is_some() && taken.is_some_and(|taken| taken.signal.is_none());
    let is_paused = visit.opened.as_ref().is_some_and(|opened| opened.pause.is_some());
    if visit.timed_out != has_lasted && !visit.cancelled && !is_paused {
        return false;
    }
    match &visit.opened {
        Some(opened) if opened.pause.is_some() => {
            // A hook may suspend any visit that is not made yet.
            opened.before == before && (opened.pause == Some(Pause::Hook) || opened.pause == paused)
        }
        _ if paused.is_some() => visit.cancelled,
        // As often as they wait.
        Some(opened) if opened.is_inside() => graph.may_nest(at.node),
        Some(opened) if graph.tool_may_ask(at.node) => !has_lasted && opened.before == before,
        Some(opened) => is_to_wait && opened.before == before,
        None => !is_to_wait || visit.error.is_some() || visit.cancelled,
    }
}

const OTHER_VALUES: &str = "it has other values of the channels that functions of the program combine";

/// Returns the names of the channels that functions of the program combined the writes of visits with, in their order.
fn functions_of<'g>(graph: &'g GraphTables, visits: &[Recorded<'_>]) -> BTreeSet<&'g str> {
    let keys = visits.iter().flat_map(|recorded| &recorded.changes).map(|change| &graph.keys[change.key]);
    let combined = keys.filter(|key| key.reducer.as_ref().is_some_and(|reducer| reducer.function().is_some()));
    combined.map(|key| key.name.as_str()).collect()
}

/// Combines the writes of a recorded step with the functions of the program again. Returns the channels whose function is not
/// there.
///
/// # Errors
///
/// If a function fails, or yields another value than the record says.
pub fn combines_as_recorded(
    graph: &GraphTables,
    state: &dyn StateFields,
    position: &Position,
    step: &Step,
) -> Result<BTreeSet<usize>, String> {
    let read = |(at, visit)| Recorded::read(graph, at, visit);
    let visits = position.frontier.iter().zip(&step.visits).map(read).collect::<Result<Vec<_>, _>>()?;
    let visited = visits.iter().zip(&step.visits).map(|(recorded, visit)| recorded.visited(visit));
    let proving = RecordedState::of(graph, state, &step.reduced).proving();
    let writes = StateWrites::combine(graph, &proving, visited).map_err(|error| error.message(graph))?;
    if step.reduced != reduced(graph, writes.reduced()) {
        return Err(OTHER_VALUES.to_owned());
    }
    Ok(proving.missing())
}

/// A visit of a journal with its names resolved.
struct Recorded<'a> {
    at: &'a Activation,
    way: Way,
    changes: Vec<Change>,
}

impl<'a> Recorded<'a> {
    fn read(graph: &GraphTables, at: &'a Activation, visit: &Visit) -> Result<Self, String> {
        let node = at.node;
        let name = &graph.node(node).name;
        if visit.step != at.number || visit.node != *name {
            let Visit { step, node, .. } = visit;
            return Err(format!(
                "it is visit {step}, of node `{node}`, and visit {} of node `{name}` is next",
                at.number
            ));
        }
        let change = |(name, value): (&String, &Value)| {
            let key = graph.key_named(name).ok_or_else(|| format!("there is no state key `{name}`"))?;
            Ok(Change { key, value: value.clone() })
        };
        let changes = visit.changes.iter().map(change).collect::<Result<Vec<_>, String>>()?;
        let is_list = |change: &Change| change.value.as_array().is_some_and(|writes| !writes.is_empty());
        let shares = |change: &&Change| graph.node(node).share.contains(&change.key);
        if let Some(change) = changes.iter().filter(shares).find(|change| !is_list(change)) {
            return Err(format!("`{}`: it is shared, and has no list of writes", graph.keys[change.key].name));
        }
        if visit.cancelled {
            is_bare(name, visit)?;
            return Ok(Self { at, way: Way::Cancelled, changes });
        }
        if let Some(opened) = &visit.opened {
            is_bare(name, visit)?;
            return Ok(Self { at, way: Way::Waits(opened.clone()), changes });
        }
        if visit.timed_out {
            return Ok(Self { at, way: way_of_timeout(graph, at, visit)?, changes });
        }
        let way = match (&visit.error, visit.suppressed, graph.node(node).on_error) {
            (Some(_), false, None) if visit.ends_in_failure() => way_of_failure(graph, at, visit)?,
            (Some(_), false, Some(target)) => Way::OnError(target),
            (Some(_), false, None) => return Err("the node failed, and nothing says where that leads".to_owned()),
            (error, suppressed, _) => {
                let edges = visit.taken(graph.fans_out(node));
                if edges.as_slice().iter().any(|edge| graph.target(node, *edge).is_none()) {
                    return Err("there is no such edge".to_owned());
                }
                Way::Along { edges, suppressed: suppressed && error.is_some() }
            }
        };
        Ok(Self { at, way, changes })
    }

    fn visited<'v>(&'v self, visit: &'v Visit) -> SettledVisit<'v> {
        SettledVisit {
            at: self.at,
            calls: visit.calls,
            below: visit.below,
            error: visit.error.as_deref(),
            items: &visit.items,
            way: &self.way,
            returned: visit.result.view(),
            changes: &self.changes,
        }
    }
}

/// Fails if a visit that was cancelled, or waits, has members that only a visit has which was made to its end.
fn is_bare(node: &str, visit: &Visit) -> Result<(), String> {
    let bare = Visit {
        step: visit.step,
        node: visit.node.clone(),
        branch: visit.branch.clone(),
        fan: visit.fan,
        opened: visit.opened.clone(),
        cancelled: visit.cancelled,
        late: visit.late,
        below: if visit.cancelled { visit.below } else { 0 },
        ms: visit.ms,
        now: visit.now.filter(|_| visit.opened.is_some()),
        warnings: if visit.opened.is_some() { visit.warnings.clone() } else { Vec::new() },
        ..Visit::default()
    };
    if *visit == bare {
        return Ok(());
    }
    let what = if visit.cancelled { "was cancelled" } else { "waits" };
    Err(format!("the visit of node `{node}` {what}, and says what it came to"))
}

/// Returns where a visit leads that waited for signals, and none came in time.
fn way_of_timeout(graph: &GraphTables, at: &Activation, visit: &Visit) -> Result<Way, String> {
    let name = &graph.node(at.node).name;
    let bare = Visit {
        step: visit.step,
        node: visit.node.clone(),
        branch: visit.branch.clone(),
        fan: visit.fan,
        timed_out: true,
        late: visit.late,
        ms: visit.ms,
        ..Visit::default()
    };
    match graph.node(at.node).on_timeout() {
        None => Err(format!("node `{name}` does not wait for signals for a time")),
        Some(_) if *visit != bare => Err(format!("node `{name}` received nothing, and says what it came to")),
        Some(target) => Ok(Way::TimedOut(target)),
    }
}

/// Returns where the failure of a visit leads that ended its branch or is held, if the graph says so.
fn way_of_failure(graph: &GraphTables, at: &Activation, visit: &Visit) -> Result<Way, String> {
    match (graph.on_branch_error(at).0, visit.ends_branch, visit.held) {
        (OnBranchError::Collect, true, false) => Ok(Way::EndsBranch),
        (OnBranchError::Finish, false, true) => Ok(Way::Held),
        _ => Err(format!("the failure of node `{}` ends something else", graph.node(at.node).name)),
    }
}

/// Returns the edges that a visit says it took.
pub fn said_edges(graph: &GraphTables, node: u16, visit: &Visit) -> TakenEdges {
    visit.taken(graph.fans_out(node))
}

/// Returns where a visit with encrypted values leads, according to its own record.
///
/// # Errors
///
/// If the graph has no such edge, or the visit writes a key that a failed visit does not write.
pub fn said_way(graph: &GraphTables, activation: &Activation, visit: &Visit) -> Result<Way, String> {
    let at = activation.node;
    let node = graph.node(at);
    if visit.cancelled {
        return Ok(Way::Cancelled);
    }
    if let Some(opened) = &visit.opened {
        return Ok(Way::Waits(opened.clone()));
    }
    if visit.timed_out {
        return way_of_timeout(graph, activation, visit);
    }
    if visit.ends_in_failure() {
        return match visit.changes.is_empty() && visit.edges.is_empty() {
            true => way_of_failure(graph, activation, visit),
            false => Err(format!("node `{}` failed, and says where it leads", node.name)),
        };
    }
    if let Some(target) = node.on_error.filter(|_| visit.error.is_some()) {
        return match visit.changes.len() {
            0 => Ok(Way::OnError(target)),
            keys => Err(format!(
                "it says that the keys that a node wrote whose failure has a target is {keys}, and it is 0"
            )),
        };
    }
    if visit.error.is_some() {
        let collected = node.kind.collects().map(|key| &graph.keys[key].name);
        if let Some(key) = visit.changes.keys().find(|key| Some(*key) != collected) {
            return Err(format!("node `{}` failed, and writes to `{key}`", node.name));
        }
    }
    let edges = said_edges(graph, at, visit);
    if edges.as_slice().iter().any(|edge| graph.target(at, *edge).is_none()) {
        return Err("there is no such edge".to_owned());
    }
    if edges == TakenEdges::None && !graph.may_end(at) {
        return Err(format!("node `{}` leads along no edge", node.name));
    }
    Ok(Way::Along { edges, suppressed: visit.suppressed })
}

/// As [`has_shape`], for a visit that waits.
fn waits_so(graph: &GraphTables, at: u16, visit: &Visit, opened: &Opened) -> Result<(), String> {
    let node = graph.node(at);
    let name = &node.name;
    if opened.is_inside() {
        let bare = Opened::of_inside(opened.inside.clone(), opened.at);
        return match graph.may_nest(at) && *opened == bare && visit.now.is_none() && visit.warnings.is_empty() {
            true => is_bare(name, visit),
            false => Err(format!("node `{name}` waits for nested runs, and says something else")),
        };
    }
    if let Some(pause) = opened.pause {
        let mut opening = Opening { pause: Some(pause), ..Opening::default() };
        if pause == Pause::Hook {
            let Opened { payload, escalated, call, .. } = opened.clone();
            opening = Opening { payload, escalated, call, ..opening };
        }
        let is_call = opening.call == 0 || (opening.call > 1 && graph.may_nest(at));
        let bare = Opened::of_pause(opening, opened.at).behind(opened.before);
        return match *opened == bare && is_call && visit.now.is_none() && visit.warnings.is_empty() {
            true => is_bare(name, visit),
            false => Err(format!("the visit of node `{name}` is paused, and says something else")),
        };
    }
    let Some(wait) = node.wait() else { return Err(format!("node `{name}` does not wait")) };
    if node.interrupts.is_some() && (visit.now.is_some() || !visit.warnings.is_empty()) {
        return Err(format!("the tool of node `{name}` asks people, and the visit says something else"));
    }
    let until = opened.due.filter(|_| wait.until.is_some());
    let payload = opened.payload.clone().filter(|_| wait.ask.is_some());
    if wait.ask.is_some() != payload.is_some() {
        return Err(format!("node `{name}` asks people if it is an interrupt, and shows them what it asks"));
    }
    if wait.until.is_some() != until.is_some()
        || Opened::new(wait, Opening { until, payload, ..Opening::default() }, opened.at).behind(opened.before)
            != *opened
    {
        return Err(format!("node `{name}` waits until another time"));
    }
    is_bare(name, visit)
}

/// Fails unless the members of a visit are ones that its node can produce, and can produce together, in any state of the
/// run.
pub fn has_shape(graph: &GraphTables, at: u16, visit: &Visit) -> Result<(), String> {
    let (node, asks) = (graph.node(at), graph.asks(at));
    let name = &node.name;
    if visit.below > 0 && !asks.tool().and_then(|tool| graph.tool(tool)).is_some_and(may_begin_runs) {
        return Err(format!("node `{name}` begins no runs, and counts their steps"));
    }
    if let (Some(opened), false) = (&visit.opened, visit.cancelled) {
        return waits_so(graph, at, visit, opened);
    }
    if visit.cancelled {
        return is_bare(name, visit);
    }
    if visit.timed_out {
        return way_of_timeout(graph, &Activation { node: at, ..Activation::default() }, visit).map(drop);
    }
    let refuse = |what: &str| Err(format!("node `{name}` {what}"));
    if visit.cached && !node.cached {
        return Err(format!("what node `{name}` returned is not to be cached, and it says that it was"));
    }
    if visit.calls == 1 {
        return refuse("counts one call, which is not written down");
    }
    if visit.error.is_none() {
        if visit.category.is_some() || visit.suppressed || visit.ends_in_failure() || !visit.items.is_empty() {
            return refuse("did not fail, and says what its failure was");
        }
    } else if visit.category.as_deref().and_then(Category::named).is_none() {
        return refuse("failed with an unknown category");
    } else if visit.suppressed && !graph.may_suppress(at) {
        return refuse("failed, and the graph does not follow its edges then");
    } else if visit.ends_in_failure() && (visit.suppressed || graph.has_target(at)) {
        return refuse("failed, and its failure leads elsewhere");
    } else if !visit.suppressed && !visit.ends_in_failure() && !graph.has_target(at) {
        return Err("the node failed, and nothing says where that leads".to_owned());
    }
    if visit.over.is_some() != visit.list.is_some()
        || (visit.over.is_some() && (!graph.goes_over(at) || !visit.edges.is_empty()))
        || visit.over.is_some_and(|length| usize::try_from(length).is_ok_and(|length| length > MOST_BRANCHES))
    {
        return refuse("goes over another list");
    }
    let may_hold = visit.suppressed && matches!(asks, Asks::Once { .. });
    if visit.data.as_ref().is_some_and(|data| !may_hold || !data.view().is_within(MOST_LEVELS)) {
        return refuse("says what its edges saw of a failure, and they saw nothing of it");
    }
    let calls_one = visit.run.is_some() || !visit.result.is_null();
    match asks {
        Asks::Nothing if visit.error.is_some() && !visit.ends_in_failure() && !graph.has_target(at) => {
            refuse("calls nothing, and a failure of it ends the run")
        }
        Asks::Nothing if visit.calls > 0 || visit.cached || calls_one => {
            refuse("calls nothing, and says what its call came to")
        }
        Asks::Each { .. } if calls_one => refuse("is a list of calls, and says what one call came to"),
        Asks::Once { .. } if !visit.items.is_empty() => refuse("makes one call, and names items of a list"),
        Asks::Nothing | Asks::Once { .. } | Asks::Each { .. } => Ok(()),
    }
}
