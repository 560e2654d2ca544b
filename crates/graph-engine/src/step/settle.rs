//! The outcome of a visit after its calls: the keys that it writes, and where it leads.

use graph_model::program::OnBranchError;
use graph_model::value::{AsView, Value, View};

use crate::activation::{Change, TakenEdges};
use crate::failure::Failure;
use crate::graph::{Asks, EvalContext, Notes};
use crate::step::context::Env;
use crate::step::opened::TakenWait;
use crate::step::shared::SHARED;
use crate::step::visited::Way;

/// The outcome of a node's calls.
pub enum Outcome<'a> {
    /// Nothing was called.
    None,
    /// The tool returned.
    Returned(View<'a>),
    /// The calls of a foreach returned: one result for each item, in the order of the items. The node may take the list.
    Each(&'a mut Vec<Value>),
    /// The calls failed. With the failure comes the list of a foreach's results, in which failures are in the places of the
    /// failed items. It is empty if there was no list to go over.
    Failed(&'a Failure, &'a mut Vec<Value>),
}

impl<'a> Outcome<'a> {
    /// Returns the outcome of a node's calls from the `result` of one call, the `results` of those for a list, or their
    /// failure.
    pub fn of(asks: Asks, failure: Option<&'a Failure>, result: View<'a>, results: &'a mut Vec<Value>) -> Self {
        match (failure, asks) {
            (Some(failure), _) => Self::Failed(failure, results),
            (None, Asks::Each { .. }) => Self::Each(results),
            (None, Asks::Once { .. }) => Self::Returned(result),
            (None, Asks::Nothing) => Self::None,
        }
    }
}

/// Facts about the calls of a visit, besides their outcome.
pub struct CallFacts<'a> {
    /// How often the tool was called.
    pub calls: u64,
    /// Whether a hook ended the run after the failure.
    pub is_ended: bool,
    /// Removes secrets from a failure that arises in the node itself.
    pub scrub: &'a dyn Fn(&mut Failure),
}

impl CallFacts<'static> {
    /// Returns the facts of a visit without secrets that made this many calls.
    pub fn of(calls: u64) -> Self {
        Self { calls, is_ended: false, scrub: &|_| {} }
    }
}

/// The outcome of a visit, without the values that it writes: those are in the `changes` that [`settle()`] is given.
#[derive(Debug)]
pub struct Settled {
    /// Where the visit leads.
    pub way: Way,
    /// The failure of a node that could not use what its calls returned.
    pub unfit: Option<Box<Failure>>,
}

/// Computes the values that a visit writes, into `changes`, and where the visit leads.
///
/// A node that cannot use the results of its calls fails, and that failure is routed like any other: the node's writes are
/// discarded, and the results that a foreach collected are left as they were.
#[inline]
pub fn settle(
    env: &Env<'_>,
    outcome: Outcome<'_>,
    facts: &CallFacts<'_>,
    notes: &mut Notes,
    changes: &mut Vec<Change>,
) -> Settled {
    let received;
    let outcome = match (outcome, env.taken) {
        (outcome, Some(taken)) => match (after_wait(env, taken), outcome) {
            (AfterWait::Way(way), _) => return Settled { way, unfit: None },
            (AfterWait::Received(value), Outcome::None) => {
                received = value;
                Outcome::Returned(received.view())
            }
            (_, outcome) => outcome,
        },
        (outcome, None) => outcome,
    };
    // Most visits make at most one call, which succeeds, and write to no channel.
    let is_usual = facts.calls <= 1 && !env.graph.node(env.at.node).combines_writes;
    let result = match outcome {
        Outcome::None if is_usual => View::Null,
        Outcome::Returned(result) if is_usual => result,
        other => return settle_otherwise(env, other, facts, notes, changes),
    };
    env.graph.assign(env.at.node, &env.context, result, notes, changes);
    if let Some(edge) = env.graph.first_edge(env.at.node, &env.context, result, changes) {
        return Settled { way: Way::Along { edges: TakenEdges::One(edge), suppressed: false }, unfit: None };
    }
    match env.graph.edges(env.at.node, &env.context, result, notes, changes) {
        Ok(edges) => Settled { way: Way::Along { edges, suppressed: false }, unfit: None },
        Err(failure) => fail(env, failure, None, facts, notes, changes),
    }
}

/// The end of a wait, as the visit sees it.
enum AfterWait {
    /// The visit leads somewhere without writing anything.
    Way(Way),
    /// The result is the signal that it received.
    Received(Value),
    /// There is no result.
    Nothing,
}

#[cold]
fn after_wait(env: &Env<'_>, taken: &TakenWait) -> AfterWait {
    let Some(wait) = env.graph.node(env.at.node).wait() else { return AfterWait::Nothing };
    match (&taken.signal, wait.on_timeout) {
        (Some(signal), _) => AfterWait::Received(signal.result(wait)),
        (None, Some(target)) => AfterWait::Way(Way::TimedOut(target)),
        (None, None) => AfterWait::Nothing,
    }
}

/// As [`settle()`], for visits that made several calls, or whose calls failed.
#[inline(never)]
fn settle_otherwise(
    env: &Env<'_>,
    outcome: Outcome<'_>,
    facts: &CallFacts<'_>,
    notes: &mut Notes,
    changes: &mut Vec<Change>,
) -> Settled {
    let several;
    let context = if facts.calls <= 1 {
        &env.context
    } else {
        several = env.behind(facts.calls);
        &several
    };
    let (computed, results) = match outcome {
        Outcome::None => (compute(env, context, View::Null, notes, changes), None),
        Outcome::Returned(result) => (compute(env, context, result, notes, changes), None),
        Outcome::Each(results) => (collect(env, context, results, notes, changes), Some(results)),
        Outcome::Failed(failure, results) => {
            return Settled { way: route_failure(env, failure, results, facts, notes, changes), unfit: None };
        }
    };
    match computed {
        Ok(edges) => Settled { way: Way::Along { edges, suppressed: false }, unfit: None },
        Err(failure) => fail(env, failure, results, facts, notes, changes),
    }
}

/// Assigns, and returns the edges that are taken.
#[inline(always)]
fn compute(
    env: &Env<'_>,
    context: &EvalContext<'_>,
    result: View<'_>,
    notes: &mut Notes,
    changes: &mut Vec<Change>,
) -> Result<TakenEdges, Box<Failure>> {
    if env.graph.node(env.at.node).combines_writes {
        take_shared(env, result, changes)?;
        return env.graph.assign_to_channels(env.at.node, context, result, notes, changes);
    }
    env.graph.assign(env.at.node, context, result, notes, changes);
    env.graph.edges(env.at.node, context, result, notes, changes)
}

/// Writes the keys that the run of the node's graph shared: for each, a list of that run's writes.
fn take_shared(env: &Env<'_>, result: View<'_>, changes: &mut Vec<Change>) -> Result<(), Box<Failure>> {
    for &key in &env.graph.node(env.at.node).share {
        let name = &env.graph.keys[key].name;
        match result.step(SHARED).step(name).to_plain_value() {
            Value::Array(writes) if writes.is_empty() => {}
            Value::Array(writes) => changes.push(Change { key, value: Value::Array(writes) }),
            _ => return Err(Box::new(Failure::permanent(format!("the run inside does not share `{name}`")))),
        }
    }
    Ok(())
}

/// As [`compute`], for a foreach: it first writes the results of its calls. On an error, `results` is restored.
fn collect(
    env: &Env<'_>,
    context: &EvalContext<'_>,
    results: &mut Vec<Value>,
    notes: &mut Notes,
    changes: &mut Vec<Change>,
) -> Result<TakenEdges, Box<Failure>> {
    let key = env.graph.node(env.at.node).kind.collects();
    if let Some(key) = key {
        changes.push(Change { key, value: Value::Array(std::mem::take(results)) });
    }
    compute(env, context, View::Null, notes, changes).inspect_err(|_| {
        let collected = changes.drain(..).next().map(|change| change.value);
        if let (Some(_), Some(Value::Array(collected))) = (key, collected) {
            *results = collected;
        }
    })
}

/// Settles a visit that could not use the results of its calls; `results` are those of a foreach.
#[cold]
fn fail(
    env: &Env<'_>,
    mut failure: Box<Failure>,
    results: Option<&mut Vec<Value>>,
    facts: &CallFacts<'_>,
    notes: &mut Notes,
    changes: &mut Vec<Change>,
) -> Settled {
    if results.is_none() {
        changes.clear();
    }
    (facts.scrub)(&mut failure);
    let way = route_failure(env, &failure, results.unwrap_or(&mut Vec::new()), facts, notes, changes);
    Settled { way, unfit: Some(failure) }
}

/// Decides where a failure leads: to the node's own target, along its edges, or nowhere, which ends the branch or the run,
/// at once or when the other branches are done (R120).
///
/// A foreach whose failure is routed along its edges writes the list that it collected; nothing else is written.
#[cold]
fn route_failure(
    env: &Env<'_>,
    failure: &Failure,
    results: &mut Vec<Value>,
    facts: &CallFacts<'_>,
    notes: &mut Notes,
    changes: &mut Vec<Change>,
) -> Way {
    let node = env.graph.node(env.at.node);
    if facts.is_ended {
        return Way::Fatal;
    }
    if let Some(target) = node.on_error {
        return Way::OnError(target);
    }
    // A fan-out around the visit says what such a failure does.
    let unhandled = || match env.graph.on_branch_error(env.at).0 {
        OnBranchError::Stop => Way::Fatal,
        OnBranchError::Finish => Way::Held,
        OnBranchError::Collect => Way::EndsBranch,
    };
    if !env.graph.may_suppress(env.at.node) {
        return unhandled();
    }
    let several;
    let context = if facts.calls <= 1 {
        &env.context
    } else {
        several = env.behind(facts.calls);
        &several
    };
    let edges = if node.kind.goes_over_list() {
        // A foreach collects its results even if it failed, because later nodes rely on a list: failures are in the places
        // of the failed items.
        collect(env, context, results, notes, changes)
    } else {
        // The edges see the failure of a call as `result`; assignments are skipped.
        env.graph.edges(env.at.node, context, View::Object(failure), notes, changes)
    };
    match edges {
        Ok(edges) => Way::Along { edges, suppressed: true },
        // If no edge can be followed either, nothing handles the failure.
        Err(_) => {
            changes.clear();
            unhandled()
        }
    }
}

/// Returns the message of a foreach with failed items: `message` is that of the first one, at `index`, of `count`.
pub fn items_failed(index: u64, message: &str, count: usize) -> String {
    let others = if count > 1 { format!(", and {} more", count - 1) } else { String::new() };
    format!("item {index}: {message}{others}")
}
